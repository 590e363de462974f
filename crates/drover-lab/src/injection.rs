// SPDX-License-Identifier: GPL-2.0-only
//! Keeps interrupts that KVM injects into guests from arriving twice under QEMU's CPU emulation.
//!
//! QEMU's emulation of VMRUN delivers an injected interrupt, but leaves its number behind as if it were
//! still to be delivered. Should QEMU leave its execution loop before the guest's next exit, for a turn of
//! another pCPU or for work asked of this one, the interrupt is delivered again, also while the guest has
//! interrupts disabled. The guest's handler then waits for a lock that what it interrupted holds: Linux
//! guests always hung so while they booted on the exact clock, and now and then on the real one. (Seen in
//! QEMU's log of interrupts: vector 0xec at the same VMRUN with IF=1 and, without an exit, with IF=0.)
//!
//! A guest's exit clears what was left behind. So each entry with an injected interrupt is followed by an
//! exit at once: a BPF program at KVM's entry makes the pCPU interrupt itself. Only emulated labs need it.

#[allow(
    clippy::all,
    clippy::pedantic,
    clippy::undocumented_unsafe_blocks,
    missing_docs,
    reason = "generated"
)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/injection.skel.rs"));
}

use std::fs;
use std::mem::MaybeUninit;

use anyhow::{Context, Result};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, OpenObject};

/// Layout of the event of a guest's entry, once KVM is loaded.
const FORMAT: &str = "/sys/kernel/tracing/events/kvm/kvm_entry/format";

/// Keeps injected interrupts single until it is dropped.
#[derive(Debug)]
pub struct SingleInjection {
    _link: Link,
}

impl SingleInjection {
    /// Begins.
    ///
    /// # Errors
    /// When the kernel has no such event, or refuses the program.
    pub fn begin() -> Result<Self> {
        let format = fs::read_to_string(FORMAT).with_context(|| format!("cannot read {FORMAT}"))?;
        let offset = field_offset(&format, "intr_info")
            .with_context(|| format!("{FORMAT} has no field intr_info"))?;
        let mut place: MaybeUninit<OpenObject> = MaybeUninit::uninit();
        let mut open = skeleton::InjectionSkelBuilder::default().open(&mut place)?;
        let constants = open.maps.rodata_data.as_deref_mut().context("no constants")?;
        constants.intr_info_offset = offset;
        let program = open.load()?;
        // The link holds the program; the rest may go.
        Ok(Self { _link: program.progs.leave_after_injection.attach()? })
    }
}

/// Whether this machine's CPUs are emulated by QEMU.
#[must_use]
pub fn is_emulated(cpuinfo: &str) -> bool {
    cpuinfo.lines().any(|line| line.starts_with("model name") && line.contains("QEMU TCG"))
}

/// Where a trace event has the field, bytes.
fn field_offset(format: &str, field: &str) -> Option<u32> {
    let line = format.lines().find(|line| line.contains(&format!(" {field};")))?;
    line.split("offset:").nth(1)?.split(';').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = "name: kvm_entry\nformat:\n\
        \tfield:unsigned long rip;\toffset:16;\tsize:8;\tsigned:0;\n\
        \tfield:u32 intr_info;\toffset:28;\tsize:4;\tsigned:0;\n";

    #[test]
    fn fields_are_found_in_the_kernels_description() {
        assert_eq!(field_offset(LINES, "intr_info"), Some(28));
        assert_eq!(field_offset(LINES, "rip"), Some(16));
        assert_eq!(field_offset(LINES, "info"), None);
    }

    #[test]
    fn only_qemus_emulation_needs_it() {
        assert!(is_emulated("flags: svm\nmodel name\t: QEMU TCG CPU version 2.5+\n"));
        assert!(!is_emulated("model name\t: AMD EPYC 9654\n"));
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! Whether this machine's KVM can execute the lab.
//!
//! `/dev/kvm` alone does not tell: clouds offer it and then crash or hang when a guest starts VMs itself. So it
//! is tried once per boot of the machine: a small lab on KVM in which one VM of one instruction is run. The
//! answer is kept, with what it depends on. Anything but success means emulation, which always works.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::cache::{Cache, write_file};
use crate::kernel::Kernel;
use crate::lab::Lab;
use crate::qemu::{Accelerator, Clock, Qemu};
use crate::topology::Topology;

/// A lab on KVM boots in about a second; one that takes this long hangs.
const PROBE_TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Answer {
    boot_id: String,
    qemu: String,
    kernel: String,
    works: bool,
    reason: String,
}

/// KVM when it was shown to work on this machine since it booted, else emulation.
pub fn choose(cache: &Cache, qemu: &Qemu, kernel: &Kernel) -> Accelerator {
    if fs::OpenOptions::new().read(true).write(true).open("/dev/kvm").is_err() {
        return Accelerator::Tcg;
    }
    let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let place = cache.path("kvm-probe.json");
    if let Some(answer) = known(&place, boot_id.trim(), qemu, kernel) {
        return accelerator(answer.works);
    }
    let result = probe(cache, qemu, kernel);
    let answer = Answer {
        boot_id: boot_id.trim().to_owned(),
        qemu: qemu.version.clone(),
        kernel: kernel.version.clone(),
        works: result.is_ok(),
        reason: result.err().map_or_else(String::new, |error| format!("{error:#}")),
    };
    tracing::debug!(works = answer.works, reason = answer.reason, "tried KVM for the lab");
    // An answer that cannot be kept is only asked for again.
    if let Ok(text) = serde_json::to_vec_pretty(&answer) {
        let _ = write_file(&place, &text);
    }
    accelerator(answer.works)
}

fn accelerator(works: bool) -> Accelerator {
    if works { Accelerator::Kvm } else { Accelerator::Tcg }
}

fn known(place: &Path, boot_id: &str, qemu: &Qemu, kernel: &Kernel) -> Option<Answer> {
    let answer: Answer = serde_json::from_slice(&fs::read(place).ok()?).ok()?;
    let same = answer.boot_id == boot_id
        && answer.qemu == qemu.version
        && answer.kernel == kernel.version
        && !boot_id.is_empty();
    same.then_some(answer)
}

/// Boots a small lab on KVM and runs a VM in it.
fn probe(cache: &Cache, qemu: &Qemu, kernel: &Kernel) -> Result<()> {
    let lab = Lab::new(Topology::flat(1))
        .clock(Clock::Real)
        .timeout(PROBE_TIMEOUT)
        .command(["drover", "lab-kvm-probe"]);
    let mut output = String::new();
    let outcome = lab.boot(cache, qemu, kernel, Accelerator::Kvm, &mut |event| {
        if let crate::lab::Event::Output(line) = event {
            output.push_str(line);
        }
    });
    let outcome = outcome.context("a lab on KVM does not work")?;
    ensure!(outcome.exit_status == 0, "no VM runs in a lab on KVM: {}", output.trim());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_holds_only_for_what_it_was_given_for() {
        let dir = tempfile::tempdir().unwrap();
        let (place, qemu) = (dir.path().join("probe"), Qemu::for_test("/bin/true"));
        let kernel = Kernel::for_test("7.2");
        let answer = Answer {
            boot_id: "b".into(),
            qemu: qemu.version.clone(),
            kernel: "7.2".into(),
            works: true,
            reason: String::new(),
        };
        fs::write(&place, serde_json::to_vec(&answer).unwrap()).unwrap();
        assert_eq!(known(&place, "b", &qemu, &kernel), Some(answer));
        assert_eq!(known(&place, "c", &qemu, &kernel), None);
        assert_eq!(known(&place, "b", &qemu, &Kernel::for_test("6.18")), None);
        fs::write(&place, "{").unwrap();
        assert_eq!(known(&place, "b", &qemu, &kernel), None);
    }

    #[test]
    fn anything_but_success_means_emulation() {
        assert_eq!(accelerator(true), Accelerator::Kvm);
        assert_eq!(accelerator(false), Accelerator::Tcg);
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! The observer in the kernel (bpf/observe.bpf.c): loaded, attached and read.
//!
//! It is there for as long as the [`Observer`] lives. Nothing is pinned: when this process ends, in any
//! way, the kernel takes the programs away.

use std::io::Read;
use std::mem::MaybeUninit;

use anyhow::{Context, Result};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Iter, Link, OpenObject, PrintLevel};

use crate::skeleton::ObserveSkelBuilder;

/// A running observer.
#[derive(Debug)]
pub struct Observer {
    reader: Link,
    // Each holds its program.
    _events: [Link; 3],
}

/// What a vCPU did since it was found, as of one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct VcpuTimes {
    /// Its VMM.
    pub process: u32,
    /// Its thread.
    pub thread: u32,
    /// Its number in its VM.
    pub number: u32,
    /// When that was, on the kernel's monotonic clock; 0: there is no room for its books.
    pub at_ns: u64,
    /// Time it ran.
    pub running_ns: u64,
    /// Time it was ready and did not run.
    pub ready_ns: u64,
    /// Time it waited: halted, or for anything else.
    pub waiting_ns: u64,
    /// CPU time it was charged.
    pub used_ns: u64,
}

impl Observer {
    /// Begins to observe. KVM should be there (`drover_host::kvm`), or no vCPU will be found.
    ///
    /// # Errors
    /// When the kernel does not take it, with the kernel's reason.
    pub fn start() -> Result<Self> {
        // What libbpf has to say would be written across the screen.
        libbpf_rs::set_print(Some((PrintLevel::Warn, |_, text| {
            tracing::debug!("{}", text.trim())
        })));
        let mut place: MaybeUninit<OpenObject> = MaybeUninit::uninit();
        let open = ObserveSkelBuilder::default()
            .open(&mut place)
            .context("cannot open the BPF object of the observer")?;
        let loaded = open.load().context("the kernel does not take the observer")?;
        let programs = &loaded.progs;
        let events = || {
            let (switch, wakeup) = (&programs.observe_switch, &programs.observe_wakeup);
            anyhow::Ok([switch.attach()?, wakeup.attach()?, programs.observe_exit.attach()?])
        };
        Ok(Self {
            _events: events().context("the kernel does not start the observer")?,
            reader: programs.observe_read.attach().context("the kernel does not let it be read")?,
        })
    }

    /// All vCPUs of the host as they are now.
    ///
    /// # Errors
    /// When the kernel does not let them be read.
    pub fn read(&self) -> Result<Vec<VcpuTimes>> {
        let mut bytes = Vec::new();
        Iter::new(&self.reader)
            .and_then(|mut reader| Ok(reader.read_to_end(&mut bytes)?))
            .context("cannot read the observer")?;
        Ok(bytes.chunks_exact(READING_BYTES).map(VcpuTimes::of).collect())
    }
}

/// The kernel's `struct reading`: eight numbers of eight bytes.
const READING_BYTES: usize = 64;

impl VcpuTimes {
    /// Time since it was found.
    pub fn all_ns(&self) -> u64 {
        self.running_ns + self.ready_ns + self.waiting_ns
    }

    fn of(bytes: &[u8]) -> Self {
        let number = |index: usize| {
            let bytes = &bytes[index * size_of::<u64>()..][..size_of::<u64>()];
            u64::from_ne_bytes(bytes.try_into().expect("so many were taken"))
        };
        let id = |index: usize| u32::try_from(number(index)).unwrap_or(u32::MAX);
        Self {
            process: id(0),
            thread: id(1),
            number: id(2),
            at_ns: number(3),
            running_ns: number(4),
            ready_ns: number(5),
            waiting_ns: number(6),
            used_ns: number(7),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_is_eight_numbers() {
        let bytes: Vec<u8> = (1..=8_u64).flat_map(u64::to_ne_bytes).collect();
        assert_eq!(bytes.len(), READING_BYTES);
        let times = VcpuTimes::of(&bytes);
        assert_eq!((times.process, times.thread, times.number, times.at_ns), (1, 2, 3, 4));
        assert_eq!((times.running_ns, times.ready_ns), (5, 6));
        assert_eq!((times.waiting_ns, times.used_ns), (7, 8));
    }
}

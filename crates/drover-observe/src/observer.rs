// SPDX-License-Identifier: GPL-2.0-only
//! The observer in the kernel (bpf/observe.bpf.c): loaded, attached and read.
//!
//! It is there for as long as the [`Observer`] lives. Nothing is pinned: when this process ends, in any
//! way, the kernel takes the programs away.

use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::path::Path;

use anyhow::{Context, Result};
use drover_host::topology::online_cpus;
use drover_host::{files, kvm};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Iter, Link, MapHandle, OpenObject, PrintLevel};

#[cfg(test)]
use crate::delays::BUCKETS;
use crate::delays::{Delays, ThreadIo};
use crate::ring::{RING_EVENTS, Rings};
use crate::skeleton::ObserveSkelBuilder;

/// A running observer.
#[derive(Debug)]
pub struct Observer {
    reader: Link,
    /// Where what happens is kept for a while.
    rings: Option<Rings>,
    // Each holds its program.
    _events: [Link; 2],
}

/// Whether what happens is to be kept for a while, for who asks later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// Sums alone.
    Sums,
    /// Each switch and wake-up, too: 4 MiB for each pCPU.
    Events,
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
    /// When that was, on the kernel's monotonic clock; 0: the kernel had no memory for its books.
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
    pub fn start(keep: Keep) -> Result<Self> {
        // What libbpf has to say would be written across the screen.
        libbpf_rs::set_print(Some((PrintLevel::Warn, |_, text| {
            tracing::debug!("{}", text.trim())
        })));
        let mut place: MaybeUninit<OpenObject> = MaybeUninit::uninit();
        let mut open = ObserveSkelBuilder::default()
            .open(&mut place)
            .context("cannot open the BPF object of the observer")?;
        let tells = tells_of_interrupts(&symbols().unwrap_or_default());
        open.progs.observe_waking.set_autoload(tells);
        open.progs.observe_blind.set_autoload(!tells);
        let pcpus = match keep {
            Keep::Sums => 0,
            Keep::Events => online_cpus()?.last().map_or(0, |last| last + 1),
        };
        let rings_of = u32::try_from(pcpus)?;
        if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
            rodata.ring_pcpus = rings_of;
        }
        if rings_of > 0 {
            open.maps.rings.set_max_entries(rings_of)?;
            open.maps.ring_events.set_max_entries(u32::try_from(pcpus * RING_EVENTS)?)?;
        }
        let loaded = open.load().context("the kernel does not take the observer")?;
        let programs = &loaded.progs;
        let waking = if tells { &programs.observe_waking } else { &programs.observe_blind };
        let events = || anyhow::Ok([programs.observe_switch.attach()?, waking.attach()?]);
        let rings = || {
            let maps = &loaded.maps;
            let (counts, events) =
                (MapHandle::try_from(&maps.rings)?, MapHandle::try_from(&maps.ring_events)?);
            Rings::new(&counts, &events, rings_of)
        };
        let rings = (rings_of > 0).then(rings).transpose()?;
        let observer = Self {
            rings,
            _events: events().context("the kernel does not start the observer")?,
            reader: programs.observe_read.attach().context("the kernel does not let it be read")?,
        };
        // Who helps is seen once vCPUs are found: from here on all are known.
        observer.read()?;
        Ok(observer)
    }

    /// What happened lately, where that is kept.
    pub fn rings(&self) -> Option<&Rings> {
        self.rings.as_ref()
    }

    /// All vCPUs of the host as they are now, and their helpers.
    ///
    /// # Errors
    /// When the kernel does not let them be read.
    pub fn read(&self) -> Result<Reading> {
        let mut bytes = Vec::new();
        Iter::new(&self.reader)
            .and_then(|mut reader| Ok(reader.read_to_end(&mut bytes)?))
            .context("cannot read the observer")?;
        Reading::of(&bytes).context("the observer was read in part")
    }
}

/// An observer that finds VMs even where KVM's module comes after it.
#[derive(Debug)]
pub struct Follower {
    observer: Observer,
    keep: Keep,
    /// vCPUs were described when the observer was loaded: it finds them.
    finds_vms: bool,
}

impl Follower {
    /// Begins to observe.
    ///
    /// # Errors
    /// When the kernel does not take the observer.
    pub fn start(keep: Keep) -> Result<Self> {
        let finds_vms = kvm::is_known(Path::new("/"));
        Ok(Self { observer: Observer::start(keep)?, keep, finds_vms })
    }

    /// The observer; another one if KVM has come.
    ///
    /// # Errors
    /// When the kernel does not take that.
    pub fn observer(&mut self) -> Result<&Observer> {
        // Nobody has run a VM yet; from now on somebody may.
        if !self.finds_vms && Path::new("/sys/module/kvm").exists() {
            (self.observer, self.finds_vms) = (Observer::start(self.keep)?, true);
        }
        Ok(&self.observer)
    }

    /// Whether VMs would be found; KVM is not there else.
    pub fn finds_vms(&self) -> bool {
        self.finds_vms
    }
}

/// The kernel's symbols: some 15 MiB.
fn symbols() -> io::Result<String> {
    files::kernel_lines(Path::new("/proc/kallsyms"), 64 << 20)
}

/// Whether a kernel with these symbols lets programs see that a pCPU is in an interrupt.
fn tells_of_interrupts(symbols: &str) -> bool {
    let is_count = |line: &str| line.ends_with(" __preempt_count") || line.ends_with(" pcpu_hot");
    symbols.lines().any(is_count)
}

/// What is known of the threads of VMs at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reading {
    /// The vCPUs.
    pub vcpus: Vec<VcpuTimes>,
    /// I/O delays of vCPUs and helpers.
    pub io: Vec<ThreadIo>,
}

/// The number of a thread that is no vCPU.
const HELPER: u64 = u64::MAX;

impl Reading {
    /// Threads one after the other: the kernel's `struct reading`, nine numbers, and where there are books its
    /// `struct delays`. None where it ends in the middle of one.
    pub(crate) fn of(mut bytes: &[u8]) -> Option<Self> {
        let mut reading = Self::default();
        while !bytes.is_empty() {
            let numbers: [u64; 9] = take(&mut bytes, u64::from_ne_bytes)?;
            let [
                process,
                thread,
                number,
                found_ns,
                at_ns,
                running_ns,
                ready_ns,
                waiting_ns,
                used_ns,
            ] = numbers;
            let id = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
            let (process, thread, is_vcpu) = (id(process), id(thread), number != HELPER);
            if at_ns != 0 {
                let [sum_ns] = take(&mut bytes, u64::from_ne_bytes)?;
                let delays = Delays { sum_ns, counts: take(&mut bytes, u32::from_ne_bytes)? };
                reading.io.push(ThreadIo { process, thread, found_ns, is_vcpu, delays });
            }
            if is_vcpu {
                let number = id(number);
                reading.vcpus.push(VcpuTimes {
                    process,
                    thread,
                    number,
                    at_ns,
                    running_ns,
                    ready_ns,
                    waiting_ns,
                    used_ns,
                });
            }
        }
        Some(reading)
    }
}

/// Takes so many numbers from the front.
fn take<T: Copy + Default, const SIZE: usize, const COUNT: usize>(
    bytes: &mut &[u8],
    of: fn([u8; SIZE]) -> T,
) -> Option<[T; COUNT]> {
    let mut numbers = [T::default(); COUNT];
    for number in &mut numbers {
        let (first, rest) = bytes.split_first_chunk()?;
        (*number, *bytes) = (of(*first), rest);
    }
    Some(numbers)
}

impl VcpuTimes {
    /// Time since it was found.
    pub fn all_ns(&self) -> u64 {
        self.running_ns + self.ready_ns + self.waiting_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(numbers: [u64; 9], delays: Option<(u64, u32)>) -> Vec<u8> {
        let mut bytes: Vec<u8> = numbers.iter().flat_map(|it| it.to_ne_bytes()).collect();
        if let Some((sum_ns, count)) = delays {
            bytes.extend(sum_ns.to_ne_bytes());
            bytes.extend([count; BUCKETS].iter().flat_map(|it| it.to_ne_bytes()));
        }
        bytes
    }

    #[test]
    fn a_reading_is_a_list_of_threads() {
        let vcpu = bytes([1, 2, 3, 4, 5, 6, 7, 8, 9], Some((10, 11)));
        let helper = bytes([1, 3, HELPER, 4, 5, 6, 7, 8, 9], Some((12, 13)));
        let without_books = bytes([1, 4, 0, 0, 0, 0, 0, 0, 0], None);
        let Reading { vcpus, io } =
            Reading::of(&[&vcpu[..], &helper, &without_books].concat()).unwrap();
        assert_eq!(
            vcpus.iter().map(|it| (it.thread, it.at_ns)).collect::<Vec<_>>(),
            [(2, 5), (4, 0)]
        );
        let VcpuTimes { process, number, running_ns, ready_ns, waiting_ns, used_ns, .. } = vcpus[0];
        assert_eq!((process, number, running_ns, ready_ns), (1, 3, 6, 7));
        assert_eq!((waiting_ns, used_ns), (8, 9));
        let of = |io: &ThreadIo| (io.thread, io.is_vcpu, io.found_ns, io.delays.sum_ns);
        assert_eq!(io.iter().map(of).collect::<Vec<_>>(), [(2, true, 4, 10), (3, false, 4, 12)]);
        assert_eq!((io[0].delays.counts[0], io[1].delays.counts[BUCKETS - 1]), (11, 13));
    }

    #[test]
    fn a_kernel_that_hides_its_count_does_not_tell_of_interrupts() {
        assert!(tells_of_interrupts("0 T _text\nffff D __preempt_count\n"));
        assert!(tells_of_interrupts("0000 A pcpu_hot\n"));
        assert!(!tells_of_interrupts("0 T _text\n0 T __preempt_count_add\n"));
    }

    #[test]
    fn a_reading_that_is_cut_short_is_none() {
        let whole = bytes([1, 2, 3, 4, 5, 6, 7, 8, 9], Some((10, 11)));
        assert_eq!(Reading::of(&whole[..whole.len() - 1]), None);
        assert_eq!(Reading::of(&[]), Some(Reading::default()));
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! What a scheduler's BPF programs cost, from the kernel's own statistics.
//!
//! These leave out the callbacks of BPF timers. Drover's add up what they took themselves
//! (bpf/ground.bpf.h); those of other schedulers stay uncounted.
//!
//! The kernel measures only while asked to, because measuring costs some ns a call itself.

use anyhow::{Result, bail};
use libbpf_rs::libbpf_sys::{BPF_STATS_RUN_TIME, bpf_enable_stats};
use libbpf_rs::query::{MapInfoIter, ProgInfoIter, ProgInfoQueryOptions};
use libbpf_rs::{MapCore, MapFlags, MapHandle, ProgramType};
use std::os::fd::{FromRawFd, OwnedFd};

/// The map in which they do.
const TIMERS_RAN: &str = "timers_ran_ns";

/// Keeps the kernel measuring; it stops when this is dropped.
#[derive(Debug)]
pub(crate) struct BpfStats {
    _measuring: OwnedFd,
}

impl BpfStats {
    /// Asks the kernel to measure.
    ///
    /// # Errors
    /// When it does not: no BPF, or no right to use it.
    pub fn enable() -> Result<Self> {
        // SAFETY: takes a number, returns a descriptor or a negative error.
        let fd = unsafe { bpf_enable_stats(BPF_STATS_RUN_TIME) };
        if fd < 0 {
            let error = std::io::Error::from_raw_os_error(-fd);
            bail!("--bpf-stats: the kernel measures no BPF programs here: {error}");
        }
        // SAFETY: a descriptor that was just made for us; nobody else has it.
        Ok(Self { _measuring: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// Time in all struct_ops programs now loaded, which schedulers are made of, and in Drover's
    /// timers, in ns.
    pub fn run_ns(&self) -> u64 {
        let programs = ProgInfoIter::with_query_opts(ProgInfoQueryOptions::default());
        let of_schedulers = programs.filter(|program| program.ty == ProgramType::StructOps);
        of_schedulers.map(|program| program.run_time_ns).sum::<u64>() + timers_ran_ns()
    }
}

/// What Drover's timers have taken since it was loaded; 0 when it is not.
fn timers_ran_ns() -> u64 {
    let mut maps = MapInfoIter::default();
    let counter = maps.find(|map| map.name == TIMERS_RAN);
    let value = counter
        .and_then(|map| MapHandle::from_map_id(map.id).ok())
        .and_then(|map| map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).ok().flatten());
    value.and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_ne_bytes)
}

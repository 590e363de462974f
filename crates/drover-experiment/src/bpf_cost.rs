// SPDX-License-Identifier: GPL-2.0-only
//! What a scheduler's BPF programs cost, from the kernel's own statistics.
//!
//! The kernel measures only while asked to, because measuring costs some ns a call itself.

use anyhow::{Result, bail};
use libbpf_rs::ProgramType;
use libbpf_rs::libbpf_sys::{BPF_STATS_RUN_TIME, bpf_enable_stats};
use libbpf_rs::query::{ProgInfoIter, ProgInfoQueryOptions};
use std::os::fd::{FromRawFd, OwnedFd};

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

    /// Time in all struct_ops programs now loaded, which schedulers are made of, in ns.
    pub fn run_ns(&self) -> u64 {
        let programs = ProgInfoIter::with_query_opts(ProgInfoQueryOptions::default());
        let of_schedulers = programs.filter(|program| program.ty == ProgramType::StructOps);
        of_schedulers.map(|program| program.run_time_ns).sum()
    }
}

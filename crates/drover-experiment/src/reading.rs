// SPDX-License-Identifier: GPL-2.0-only
//! All figures at one moment.

use crate::bpf_cost::BpfStats;
use crate::failure::Failure;
use crate::proc_stat::{self, HostStat};
use crate::threads::{self, ThreadTime};
use crate::vm::{RunningVm, VmReading};
use anyhow::Context;
use std::time::Instant;

/// What the host and its VMs have used and done so far.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reading {
    /// When reading began.
    pub at: Instant,
    /// The VMs, in the order of the case.
    pub vms: Vec<VmReading>,
    /// The host.
    pub host: HostStat,
    /// Time in BPF programs, where that is measured, ns.
    pub bpf_run_ns: Option<u64>,
    /// All threads of the host, at a moment of their own.
    pub threads: Vec<ThreadTime>,
    /// That moment.
    pub threads_at: Instant,
}

/// Which end of the measured time a reading is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Edge {
    First,
    Last,
}

impl Reading {
    /// Reads everything, one after the other in a fixed order: what lies between two readings then
    /// spans the same time for each figure. All threads of the host, which take longest, are read
    /// outside of the measured time: before a first reading and after a last one.
    ///
    /// # Errors
    /// A fault when a VM is gone.
    pub fn take(
        edge: Edge,
        vms: &mut [RunningVm],
        bpf: Option<&BpfStats>,
    ) -> Result<Self, Failure> {
        let early = (edge == Edge::First).then(read_threads).transpose()?;
        let at = Instant::now();
        let vms = vms.iter_mut().map(RunningVm::read).collect::<Result<_, _>>()?;
        let host = proc_stat::read()?;
        let bpf_run_ns = bpf.map(BpfStats::run_ns);
        let (threads_at, threads) = early.map_or_else(read_threads, Ok)?;
        Ok(Self { at, vms, host, bpf_run_ns, threads, threads_at })
    }

    /// CPU time of each VM so far, ns.
    pub fn cpu_ns(&self) -> Vec<u64> {
        self.vms.iter().map(|vm| vm.threads.iter().map(|thread| thread.cpu_ns).sum()).collect()
    }
}

fn read_threads() -> anyhow::Result<(Instant, Vec<ThreadTime>)> {
    Ok((Instant::now(), threads::read_all().context("cannot read /proc")?))
}

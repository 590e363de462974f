// SPDX-License-Identifier: GPL-2.0-only
//! All figures at one moment.

use crate::bpf_cost::BpfStats;
use crate::failure::Failure;
use crate::proc_stat::{self, HostStat};
use crate::threads::{self, ThreadTime};
use crate::vm::{RunningVm, VmReading};
use anyhow::Context;
use drover_core::counters::VmCounters;
use drover_observe::delays::ThreadIo;
use drover_observe::observer::Observer;
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
    /// I/O delays of the threads of VMs, where these are observed.
    pub io: Vec<ThreadIo>,
    /// What the scheduler counts of each VM, where it does.
    pub counters: Vec<Option<VmCounters>>,
    /// All threads of the host, at a moment of their own.
    pub threads: Vec<ThreadTime>,
    /// That moment.
    pub threads_at: Instant,
}

/// Which end of the measured time a reading is for.
#[derive(Debug)]
pub(crate) enum Edge {
    /// What takes long was read before.
    First(Prepared),
    Last,
}

/// All threads of the host, read before the measured time.
#[derive(Debug)]
pub(crate) struct Prepared(Instant, Vec<ThreadTime>);

impl Prepared {
    /// Reads what takes long, and opens what is then read often: the measured time begins when it is
    /// due, not when all that is done.
    ///
    /// # Errors
    /// A fault when a VM is gone.
    pub fn take(vms: &mut [RunningVm]) -> Result<Self, Failure> {
        for vm in vms {
            vm.read()?;
        }
        let (at, threads) = read_threads()?;
        Ok(Self(at, threads))
    }
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
        observer: Option<&Observer>,
        counters: impl FnOnce() -> Vec<Option<VmCounters>>,
    ) -> Result<Self, Failure> {
        let at = Instant::now();
        let vms = vms.iter_mut().map(RunningVm::read).collect::<Result<_, _>>()?;
        let host = proc_stat::read()?;
        let bpf_run_ns = bpf.map(BpfStats::run_ns);
        let io = observer.map(Observer::read).transpose()?.unwrap_or_default().io;
        let counters = counters();
        let (threads_at, threads) = match edge {
            Edge::First(Prepared(at, threads)) => (at, threads),
            Edge::Last => read_threads()?,
        };
        Ok(Self { at, vms, host, bpf_run_ns, io, counters, threads, threads_at })
    }
}

fn read_threads() -> anyhow::Result<(Instant, Vec<ThreadTime>)> {
    Ok((Instant::now(), threads::read_all().context("cannot read /proc")?))
}

// SPDX-License-Identifier: GPL-2.0-only
//! What each VM is guaranteed now: [`drover_core::delay`], from what is known of the host and its VMs.

use crate::plan::{Plan, PlannedVm};
use crate::scheduler::KernelVm;
use crate::topology::{cpus_of_thread, online_cpus};
use anyhow::{Context, Result};
use drover_core::delay::{self, Delay, guaranteed};
use drover_core::params::Params;
use nix::time::{ClockId, clock_getres};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// What the scheduler runs on and with, as far as waits depend on it.
#[derive(Debug, Clone, Copy)]
pub struct Delays {
    host: delay::Host,
}

/// A VM's guarantee.
#[derive(Debug, Clone, PartialEq)]
pub struct Guarantee {
    /// The longest a thread of it may be ready while others run, ms.
    pub delay_ms: f64,
    /// Which promise that is, and from what numbers.
    pub why: String,
}

impl Delays {
    /// Of a scheduler with these settings on so many domains.
    ///
    /// # Errors
    /// When the kernel does not say how long its tick is.
    pub fn new(params: &Params, domains: u32) -> Result<Self> {
        let tick = clock_getres(ClockId::CLOCK_MONOTONIC_COARSE).context("no tick is known")?;
        let tick_ns = u64::try_from(Duration::from(tick).as_nanos())?;
        let &Params { slice_ns, wait_bound_ns, hold_max_ns, .. } = params;
        let host = delay::Host { pcpus: 1, domains, slice_ns, tick_ns, wait_bound_ns, hold_max_ns };
        Ok(Self { host })
    }

    /// From now on there are so many domains.
    pub fn set_domains(&mut self, domains: u32) {
        self.host.domains = domains;
    }

    /// What the VM is guaranteed beside all `vms`, on so many pCPUs.
    pub fn of(&self, plan: &Plan, vm: &PlannedVm, vms: &[KernelVm], pcpus: u32) -> Guarantee {
        let host = delay::Host { pcpus, ..self.host };
        let threads = |of_it: bool| -> u32 {
            vms.iter().filter(|one| (one.id == vm.id) == of_it).map(|one| one.nr_threads).sum()
        };
        let tgid = vms.iter().find(|one| one.id == vm.id).map_or(0, |one| one.tgid);
        let mut pools = plan.tree.path(vm.resolved.pool);
        let has_limit = |pool: usize| plan.tree.pools()[pool].spec.limit_mcpu.is_some();
        let terms = delay::Vm {
            threads: threads(true),
            reservation_mcpu: vm.reservation_mcpu,
            limited: vm.resolved.limit_mcpu.is_some() || pools.any(has_limit),
            confined: is_confined(tgid),
            cosched: vm.resolved.cosched,
        };
        let delay = guaranteed(&host, &terms, threads(false));
        Guarantee { delay_ms: ms(&delay), why: delay::why(&host, &terms, threads(false)) }
    }
}

#[allow(clippy::cast_precision_loss, reason = "exact up to 104 days")]
fn ms(delay: &Delay) -> f64 {
    delay.ready_ns() as f64 / 1e6
}

/// Is a pCPU that is online barred to a thread of that process?
fn is_confined(tgid: u32) -> bool {
    let Ok(online) = online_cpus() else { return false };
    let threads = fs::read_dir(Path::new("/proc").join(tgid.to_string()).join("task"));
    let barred = |thread: &Path| {
        // One that just left is not confined.
        cpus_of_thread(thread).is_ok_and(|cpus| !online.iter().all(|cpu| cpus.contains(cpu)))
    };
    threads.is_ok_and(|threads| threads.flatten().any(|thread| barred(&thread.path())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
    use nix::unistd::Pid;

    #[test]
    fn the_kernels_tick_is_a_tick() {
        let Delays { host } = Delays::new(&Params::default(), 1).unwrap();
        assert!([1, 2, 3, 4, 10].contains(&(host.tick_ns / 1_000_000)), "{} ns", host.tick_ns);
    }

    #[test]
    fn one_confined_thread_makes_a_confined_vm() {
        let own = std::process::id();
        let all = sched_getaffinity(Pid::from_raw(0)).unwrap();
        let first = (0..CpuSet::count()).find(|&cpu| all.is_set(cpu).unwrap()).unwrap();
        let mut one = CpuSet::new();
        one.set(first).unwrap();
        let others = online_cpus().unwrap().len() > 1;
        // This thread is the test's own.
        sched_setaffinity(Pid::from_raw(0), &one).unwrap();
        assert_eq!(is_confined(own), others);
        sched_setaffinity(Pid::from_raw(0), &all).unwrap();
        assert!(!is_confined(0x3fff_fff0), "nobody has that number");
    }
}

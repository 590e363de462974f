// SPDX-License-Identifier: GPL-2.0-only
//! What each VM is guaranteed now: [`drover_core::delay`], from what is known of the host and its VMs.

use crate::kernel::KernelVm;
use crate::plan::{Capacity, Plan, PlannedVm};
use crate::thread_sets::Sets;
use crate::topology::online_cpus;
use anyhow::{Context, Result};
use drover_core::cpu_list::CpuList;
use drover_core::delay::{self, Delay, Reach, guaranteed};
use drover_core::params::Params;
use nix::time::{ClockId, clock_getres};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

/// What the scheduler runs on and with, as far as waits depend on it.
#[derive(Debug, Clone)]
pub struct Delays {
    host: delay::Host,
    /// The domain of each pCPU.
    domain_of: Vec<u32>,
}

/// What stands in the way of VMs. Threads of one partition may stand in each other's way, and so may those of
/// another that may not run there.
#[derive(Debug, Default)]
pub struct Beside {
    /// The pCPUs online in each domain.
    domains: Vec<Vec<u32>>,
    /// The pCPUs online in each partition.
    cpus: HashMap<Option<usize>, Option<CpuList>>,
    /// Threads of VMs that keep to each partition.
    in_partition: HashMap<Option<usize>, u32>,
    /// Those of all other VMs.
    anywhere: u32,
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
    /// Of a scheduler with these settings on that host.
    ///
    /// # Errors
    /// When the kernel does not say how long its tick is.
    pub fn new(params: &Params, domain_of: &[u32]) -> Result<Self> {
        let tick_ns = tick_ns()?;
        let &Params { slice_ns, wait_bound_ns, hold_max_ns, .. } = params;
        let host = delay::Host { pcpus: 1, slice_ns, tick_ns, wait_bound_ns, hold_max_ns };
        Ok(Self { host, domain_of: domain_of.to_vec() })
    }

    /// From now on pCPUs are in these domains.
    pub fn set_domains(&mut self, domain_of: &[u32]) {
        if self.domain_of != domain_of {
            self.domain_of = domain_of.to_vec();
        }
    }

    /// What there is beside any VM, when these are all.
    pub fn beside<'a>(
        &self,
        plan: &Plan,
        vms: impl Iterator<Item = &'a KernelVm>,
        capacity: &Capacity,
    ) -> Beside {
        let mut beside = Beside { domains: self.domains_online(), ..Beside::default() };
        let all = plan.partitions.all();
        beside.cpus = all.map(|it| (it, plan.partitions.cpus_of(it, &capacity.online))).collect();
        for vm in vms {
            let threads = vm.nr_threads;
            match plan.vm(vm.id).map(|planned| (planned, &beside.cpus[&planned.resolved.partition]))
            {
                Some((planned, Some(cpus))) if !planned.affinity.leaves(cpus) => {
                    *beside.in_partition.entry(planned.resolved.partition).or_default() += threads;
                }
                // Of one that is not planned for nothing is known, and one that may not run in its partition strays.
                _ => beside.anywhere += threads,
            }
        }
        beside
    }

    /// What the VM, whose threads may run on these sets of pCPUs, is guaranteed beside all others.
    pub fn of(
        &self,
        plan: &Plan,
        (vm, own): (&PlannedVm, &KernelVm),
        beside: &Beside,
        capacity: &Capacity,
        sets: Sets,
    ) -> Guarantee {
        let partition = vm.resolved.partition;
        let spec = partition.map(|index| &plan.partitions.specs()[index]);
        let host = delay::Host {
            pcpus: u32::try_from(capacity.online.cpus().len()).unwrap_or(u32::MAX),
            slice_ns: spec.map_or(self.host.slice_ns, |spec| spec.slice_ns()),
            ..self.host
        };
        let there = beside.in_partition.get(&partition).copied().unwrap_or(0);
        // It is one of these itself.
        let others = (beside.anywhere + there).saturating_sub(own.nr_threads);
        let reach = may_run(sets, beside.cpus[&partition].as_ref());
        let mut pools = plan.tree.path(vm.resolved.pool);
        let has_limit = |pool: usize| plan.tree.pools()[pool].spec.limit_mcpu.is_some();
        let terms = delay::Vm {
            threads: own.nr_threads,
            reservation_mcpu: vm.reservation_mcpu,
            limited: vm.resolved.limit_mcpu.is_some() || pools.any(has_limit),
            reach: Reach::of(&beside.domains, &reach),
            cosched: vm.resolved.cosched,
        };
        let delay = guaranteed(&host, &terms, others);
        Guarantee { delay_ms: ms(&delay), why: delay::why(&host, &terms, others) }
    }

    /// The pCPUs online in each domain. One that came after the scheduler stands in the first.
    fn domains_online(&self) -> Vec<Vec<u32>> {
        let mut domains: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for cpu in online_cpus().unwrap_or_default() {
            let domain = self.domain_of.get(cpu).copied().unwrap_or(0);
            domains.entry(domain).or_default().extend(u32::try_from(cpu));
        }
        domains.into_values().collect()
    }
}

/// The kernel's tick, 1 s / HZ: its coarse clock moves with it, so that is the clock's resolution.
fn tick_ns() -> Result<u64> {
    let tick = clock_getres(ClockId::CLOCK_MONOTONIC_COARSE).context("no tick is known")?;
    Ok(u64::try_from(Duration::from(tick).as_nanos())?)
}

#[allow(clippy::cast_precision_loss, reason = "exact up to 104 days")]
fn ms(delay: &Delay) -> f64 {
    delay.ready_ns() as f64 / 1e6
}

/// For each set on which threads may run: may they run on a pCPU? Of those in it, those of their partition
/// count, if it has any.
fn may_run(sets: Sets, drawn_to: Option<&CpuList>) -> Vec<impl Fn(u32) -> bool + use<>> {
    let drawn = |set: Vec<usize>| {
        let is_drawn = |cpu: &&usize| drawn_to.is_some_and(|to| to.contains(**cpu as u32));
        let drawn: Vec<usize> = set.iter().filter(is_drawn).copied().collect();
        if drawn.is_empty() { set } else { drawn }
    };
    // They are in ascending order.
    let may_run = |cpus: Vec<usize>| move |cpu: u32| cpus.binary_search(&(cpu as usize)).is_ok();
    sets.into_iter().map(drawn).collect::<BTreeSet<_>>().into_iter().map(may_run).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_tick_is_a_tick() {
        let Delays { host, .. } = Delays::new(&Params::default(), &[0]).unwrap();
        assert!([1, 2, 3, 4, 10].contains(&(host.tick_ns / 1_000_000)), "{} ns", host.tick_ns);
    }

    #[test]
    fn a_vm_reaches_what_its_narrowest_thread_reaches() {
        let domains = Delays::new(&Params::default(), &[]).unwrap().domains_online();
        let all = online_cpus().unwrap();
        let pcpus = |sets: Sets| Reach::of(&domains, &may_run(sets, None)).pcpus as usize;
        assert_eq!(pcpus(Sets::from([all.clone(), vec![all[0]]])), 1);
        assert_eq!(pcpus(Sets::new()), all.len(), "nothing is known of them");
    }
}

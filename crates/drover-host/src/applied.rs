// SPDX-License-Identifier: GPL-2.0-only
//! What is in force in the kernel, and how it becomes what is planned.
//!
//! Only what differs is sent: partitions and their pCPUs first, then pools, parents before their children, then VMs, then the end of
//! pools nobody is in any more.

use crate::domains::Domains;
use crate::kernel::Kernel;
use crate::plan::{Plan, PlannedVm};
use crate::registry::Vm;
use crate::topology::Topology;
use anyhow::{Context, Result};
use drover_core::partition::{PartitionSettings, PartitionSpec};
use drover_core::resolve::Resolved;
use drover_core::settings::{PartitionId, PoolId, PoolSettings, VcpuLimit, VmSettings};
use drover_core::tree::DEPTH_MAX;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::Hash;

/// What the kernel was told.
#[derive(Debug, Default)]
pub struct Applied {
    ids: BTreeMap<String, PoolId>,
    pools: HashMap<PoolId, PoolSettings>,
    vms: HashMap<u64, VmSettings>,
    partition_ids: BTreeMap<String, PartitionId>,
    partitions: HashMap<PartitionId, PartitionSettings>,
    domains: Domains,
}

impl Applied {
    /// Of a scheduler that was started on these domains.
    pub fn new(domains: Domains) -> Self {
        Self { domains, ..Self::default() }
    }

    /// Where pCPUs are.
    pub fn domains(&self) -> &Domains {
        &self.domains
    }

    /// Looks at pCPUs that may have come for the first time.
    pub fn see(&mut self, kernel: &dyn Kernel, topology: &Topology) {
        for placed in self.domains.see(topology) {
            let (pcpu, domain) = (placed.pcpu, placed.domain);
            match kernel.place(placed) {
                Ok(()) => tracing::info!("pCPU {pcpu} has come, in domain {domain}"),
                Err(err) => tracing::warn!("pCPU {pcpu} has come, and stays where it was: {err:#}"),
            }
        }
    }

    /// Whether there are domains enough for the partitions of that plan.
    ///
    /// # Errors
    /// When there are not.
    pub fn check(&self, plan: &Plan) -> Result<()> {
        let ids = self.partition_ids_for(plan);
        self.domains.clone().give(|cpu| partition_of(plan, &ids, cpu)).map(drop)
    }

    /// Brings the plan into force, as far as the kernel takes it.
    ///
    /// # Errors
    /// The first order that was not taken; the others were given all the same.
    pub fn apply(&mut self, kernel: &dyn Kernel, plan: &Plan, vms: &[Vm]) -> Result<()> {
        let mut outcome = Ok(());
        let mut note = |result: Result<()>| {
            if outcome.is_ok() {
                outcome = result;
            }
        };
        let partition_ids = self.partition_ids_for(plan);
        for (spec, id) in plan.partitions.specs().iter().zip(&partition_ids) {
            note(self.set_partition(kernel, spec, *id));
        }
        note(self.give_pcpus(kernel, plan, &partition_ids));
        let pools = plan.tree.pools().iter().map(|pool| pool.spec.name.as_str());
        let ids = numbers(&self.ids, &pools.collect::<Vec<_>>(), PoolId::COUNT_MAX, PoolId);
        for (index, id) in ids.iter().enumerate() {
            note(self.set_pool(kernel, plan, &ids, index, *id));
        }
        for vm in vms {
            if let Some(planned) = plan.vm(vm.kernel.id) {
                note(self.set_vm(kernel, vm, planned, (&ids, &partition_ids)));
            }
        }
        let here: HashSet<u64> = vms.iter().map(|vm| vm.kernel.id).collect();
        self.vms.retain(|id, _| here.contains(id));
        note(self.remove_pools(kernel, &ids));
        let pools = plan.tree.pools().iter().map(|pool| pool.spec.name.clone());
        self.ids = pools.zip(ids).collect();
        let partitions = plan.partitions.specs().iter().map(|spec| spec.name.clone());
        self.partition_ids = partitions.zip(partition_ids).collect();
        outcome
    }

    fn partition_ids_for(&self, plan: &Plan) -> Vec<PartitionId> {
        let names: Vec<&str> =
            plan.partitions.specs().iter().map(|spec| spec.name.as_str()).collect();
        numbers(&self.partition_ids, &names, PartitionId::COUNT_MAX, PartitionId)
    }

    fn set_partition(
        &mut self,
        kernel: &dyn Kernel,
        spec: &PartitionSpec,
        id: PartitionId,
    ) -> Result<()> {
        let settings = PartitionSettings { policy: spec.policy, slice_ns: spec.slice_ns() };
        if self.partitions.get(&id) == Some(&settings) {
            return Ok(());
        }
        let set = kernel.set_partition(id, settings);
        set.with_context(|| format!("partition {}", spec.name))?;
        self.partitions.insert(id, settings);
        Ok(())
    }

    /// Puts pCPUs where their partitions are.
    fn give_pcpus(&mut self, kernel: &dyn Kernel, plan: &Plan, ids: &[PartitionId]) -> Result<()> {
        let moved = self.domains.give(|cpu| partition_of(plan, ids, cpu))?;
        moved.into_iter().try_for_each(|placed| kernel.place(placed))
    }

    fn set_pool(
        &mut self,
        kernel: &dyn Kernel,
        plan: &Plan,
        ids: &[PoolId],
        index: usize,
        id: PoolId,
    ) -> Result<()> {
        let pool = &plan.tree.pools()[index];
        let settings = PoolSettings {
            parent: pool.parent.map_or(PoolId::ROOT, |parent| ids[parent]),
            shares: pool.spec.shares.of_pool(),
            reservation_mcpu: plan.pools_mcpu[index],
            limit_mcpu: pool.spec.limit_mcpu,
            burst_us: pool.spec.burst_us,
        };
        if self.pools.get(&id) == Some(&settings) {
            return Ok(());
        }
        let set = kernel.set_pool(id, Some(&settings));
        set.with_context(|| format!("pool {}", pool.spec.name))?;
        self.pools.insert(id, settings);
        Ok(())
    }

    fn set_vm(
        &mut self,
        kernel: &dyn Kernel,
        vm: &Vm,
        planned: &PlannedVm,
        (ids, partition_ids): (&[PoolId], &[PartitionId]),
    ) -> Result<()> {
        let settings = VmSettings {
            shares: planned.resolved.shares,
            reservation_mcpu: planned.reservation_mcpu,
            limit_mcpu: limit_beside(&planned.resolved, vm.kernel.nr_vcpus),
            burst_us: planned.resolved.burst_us,
            vcpu_limit: planned.resolved.vcpu_limit,
            pool: planned.resolved.pool.map_or(PoolId::ROOT, |pool| ids[pool]),
            cosched: planned.resolved.cosched,
            partition: planned
                .resolved
                .partition
                .map_or(PartitionId::DEFAULT, |it| partition_ids[it]),
        };
        let before = self.vms.get(&planned.id);
        if before == Some(&settings) || (before.is_none() && settings == VmSettings::default()) {
            return Ok(());
        }
        kernel.set_vm(&vm.kernel, &settings).with_context(|| format!("VM {}", vm.name))?;
        self.vms.insert(planned.id, settings);
        Ok(())
    }

    fn remove_pools(&mut self, kernel: &dyn Kernel, ids: &[PoolId]) -> Result<()> {
        let stay: HashSet<&PoolId> = ids.iter().collect();
        let gone = self.pools.keys().copied().filter(|id| !stay.contains(id));
        // Children before their parents.
        let mut gone: Vec<(usize, PoolId)> = gone.map(|id| (self.depth(id), id)).collect();
        gone.sort_unstable_by_key(|(depth, id)| (Reverse(*depth), id.0));
        for (_, id) in gone {
            kernel.set_pool(id, None)?;
            self.pools.remove(&id);
        }
        Ok(())
    }

    /// How many pools that pool is in. After orders that were not taken they may be a circle, and any depth will do.
    fn depth(&self, pool: PoolId) -> usize {
        let above = |id: &PoolId| self.pools.get(id).map(|settings| settings.parent);
        std::iter::successors(Some(pool), above).take(2 * DEPTH_MAX).count()
    }
}

/// The kernel's number of each name: those it has stay; new ones take the lowest that are free, or that of
/// one which goes.
fn numbers<N: Copy + Eq + Hash>(
    known: &BTreeMap<String, N>,
    names: &[&str],
    count_max: u32,
    number: fn(u32) -> N,
) -> Vec<N> {
    let stay: HashSet<N> = names.iter().filter_map(|&name| known.get(name).copied()).collect();
    let go: HashSet<N> = known.values().copied().filter(|it| !stay.contains(it)).collect();
    let free = || (1..count_max).map(number).filter(|it| !stay.contains(it));
    let mut free = free().filter(|it| !go.contains(it)).chain(free().filter(|it| go.contains(it)));
    let mut new = || free.next().expect("there are no more names than numbers");
    names.iter().map(|&name| known.get(name).copied().unwrap_or_else(&mut new)).collect()
}

/// The partition of a pCPU.
fn partition_of(plan: &Plan, ids: &[PartitionId], cpu: u32) -> PartitionId {
    plan.partitions.of_cpu(cpu).map_or(PartitionId::DEFAULT, |index| ids[index])
}

/// The limit of a VM with so many vCPUs as a whole; none where those of its vCPUs come to no more: what its other
/// threads use is not taken from these.
fn limit_beside(resolved: &Resolved, nr_vcpus: u32) -> Option<u32> {
    let VcpuLimit { mcpu, .. } = resolved.vcpu_limit;
    let is_implied = |limit: &u32| mcpu > 0 && mcpu.saturating_mul(nr_vcpus) <= *limit;
    resolved.limit_mcpu.filter(|limit| !is_implied(limit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rehearsal::Onlooker;
    use drover_core::partition::Partitions;
    use drover_core::resolve::resolve;
    use drover_core::tree::Tree;

    #[test]
    fn what_vcpus_may_have_together_binds_no_other_thread() {
        let mut resolved = resolve(&[], 1, &Tree::default(), &Partitions::default());
        resolved.limit_mcpu = Some(1500);
        assert_eq!(limit_beside(&resolved, 3), Some(1500));
        resolved.vcpu_limit.mcpu = 500;
        assert_eq!(limit_beside(&resolved, 3), None);
        resolved.limit_mcpu = Some(1000);
        assert_eq!(limit_beside(&resolved, 3), Some(1000), "a lower one of all together does");
    }

    #[test]
    fn names_keep_their_numbers_and_new_ones_take_those_of_the_gone_last() {
        let known = BTreeMap::from([("a".to_owned(), 1), ("b".to_owned(), 3)]);
        let of = |names: &[&str]| numbers(&known, names, 5, |it| it);
        assert_eq!(of(&["b", "x", "a"]), [3, 2, 1]);
        assert_eq!(of(&["b", "x", "y"]), [3, 2, 4]);
        assert_eq!(of(&["b", "x", "y", "z"]), [3, 2, 4, 1]);
    }

    /// Two pools change places, and only one of the two orders was taken.
    #[test]
    fn pools_in_a_circle_are_removed() {
        let inside = |parent| PoolSettings { parent: PoolId(parent), ..PoolSettings::default() };
        let pools = HashMap::from([(PoolId(1), inside(2)), (PoolId(2), inside(1))]);
        let mut applied = Applied { pools, ..Applied::default() };
        applied.remove_pools(&Onlooker::default(), &[]).unwrap();
        assert!(applied.pools.is_empty());
    }
}

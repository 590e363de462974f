// SPDX-License-Identifier: GPL-2.0-only
//! The daemon's allocator in the simulator: every 50 ms it works out weights, as [`drover_core::allot`] says.
//!
//! What is asked, and where VMs may run, it takes note of at once; the daemon of the latter only every 2 s.

use super::Scx;
use super::ground::process_of;
use crate::cpu_set::CpuSet;
use crate::machine::{CLASS_LOOK, Machine, TaskState};
use drover_core::allot::{Basis, Claim, Measured, PERIOD_MS};
use drover_core::cpu_list::CpuList;
use drover_core::partition::PartitionPolicy;
use drover_core::settings::PoolSettings;
use drover_core::shares::Shares;
use drover_core::tree::pcpus::HOST_PERMILLE;
use drover_core::tree::{Affinity, PoolSpec, Tree};
use std::collections::HashMap;

impl Scx {
    /// The daemon is stopped until then.
    pub fn hang_daemon(&mut self, until_ns: u64) {
        self.daemon_hangs_until_ns = until_ns;
    }

    /// What weights follow from has changed.
    pub(super) fn allot_anew(&mut self, m: &mut Machine) {
        self.allocator.look_anew();
        m.events.set(CLASS_LOOK, m.now_ns.max(self.daemon_hangs_until_ns));
    }

    /// Works out weights, and puts them in force.
    pub(super) fn allot(&mut self, m: &mut Machine) {
        if m.now_ns < self.daemon_hangs_until_ns {
            m.events.set(CLASS_LOOK, self.daemon_hangs_until_ns);
            return;
        }
        let slots = self.policy.slots_in_use();
        let measured: Vec<Measured> =
            (0..slots).map(|slot| self.policy.measure(m, &mut self.queues, slot)).collect();
        let mut allocator = std::mem::take(&mut self.allocator);
        let allotted = allocator.allot(&measured, m.now_ns, |ids| self.basis(m, &measured, ids));
        self.allocator = allocator;
        let Some(allotted) = allotted else {
            return self.policy.allot_end(m, &mut self.queues);
        };
        for (slot, allotment) in (0..slots).zip(&allotted) {
            self.policy.allot(m, &mut self.queues, slot, allotment);
        }
        m.events.set(CLASS_LOOK, m.now_ns + u64::from(PERIOD_MS) * 1_000_000);
    }

    /// What weights follow from, for those with these numbers.
    fn basis(&self, m: &Machine, measured: &[Measured], ids: &[u64]) -> Basis {
        let (tree, places) = tree_of(&self.pools);
        let counts = |cpu: &u32| {
            m.online.contains(*cpu)
                && self.policy_of(self.partition_of(*cpu)) == PartitionPolicy::Share
        };
        let online = CpuList::of((0..m.pcpus.len() as u32).filter(counts))
            .unwrap_or_else(|| CpuList::all(m.pcpus.len() as u32));
        let mut confined = self.affinities(m, &online);
        let there = (0u32..).zip(measured).filter(|(_, one)| one.vm_id != 0);
        let claim = |(slot, _): (u32, &Measured)| {
            let vm = self.policy.vm(slot).process().wrapping_sub(process_of(0));
            match slot {
                0 => (0, Claim::of_host(0), Affinity::within(self.drawn(&online, 0)).on(&online)),
                _ => (
                    self.bounds_of(vm).partition,
                    self.claim(vm, &places),
                    confined.remove(&vm).unwrap_or_default(),
                ),
            }
        };
        let mut claims: Vec<(u32, Claim, Affinity)> = there.map(claim).collect();
        assert_eq!(claims.len(), ids.len(), "all that were measured are meant");
        for partition in 0..=self.settings.len() as u32 {
            let is_its = |cpu: &&u32| self.partition_of(**cpu) == partition;
            let pcpus = online.cpus().iter().filter(is_its).count();
            let its = claims.iter_mut().filter(|(of, ..)| *of == partition);
            let none = Tree::default();
            let tree = if partition == 0 { &tree } else { &none };
            scale(its.map(|(_, claim, _)| claim).collect(), tree, pcpus);
        }
        let claims = claims.into_iter().map(|(_, claim, affinity)| (claim, affinity)).collect();
        Basis { tree, online, claims }
    }

    /// Of pCPUs where a thread may run those of that partition, if it may run there at all.
    fn drawn(&self, cpus: &CpuList, partition: u32) -> CpuList {
        let is_its = |cpu: &u32| self.partition_of(*cpu) == partition;
        let drawn = CpuList::of(cpus.cpus().iter().copied().filter(is_its));
        drawn.unwrap_or_else(|| cpus.clone())
    }

    /// What that VM claims.
    fn claim(&self, vm: u32, places: &[Option<usize>]) -> Claim {
        let terms = self.terms.get(vm as usize).copied().unwrap_or_default();
        let settings = self.told(vm, terms);
        Claim {
            pool: places.get(settings.pool.0 as usize).copied().flatten(),
            reservation_mcpu: settings.reservation_mcpu,
            limit_mcpu: settings.limit_mcpu,
            ..Claim::default()
        }
    }

    /// Where VMs may run that may not run anywhere.
    fn affinities(&self, m: &Machine, online: &CpuList) -> HashMap<u32, Affinity> {
        let list = |mask: &CpuSet| {
            CpuList::of(online.cpus().iter().copied().filter(|&cpu| mask.contains(cpu)))
        };
        let lists: Vec<Option<CpuList>> = m.masks.iter().map(list).collect();
        // By mask and partition; `None`: anywhere, as mostly. There are thousands of threads and few of these.
        let mut drawn: HashMap<_, Option<CpuList>> = HashMap::new();
        let mut sets: HashMap<u32, Vec<_>> = HashMap::new();
        for task in m.tasks.iter().filter(|task| task.state != TaskState::Absent) {
            let set = (task.mask, self.bounds_of(task.vm).partition);
            drawn.entry(set).or_insert_with(|| {
                let cpus = lists[task.mask as usize].as_ref().unwrap_or(online);
                Some(self.drawn(cpus, set.1)).filter(|cpus| cpus != online)
            });
            sets.entry(task.vm).or_default().push(set);
        }
        let cpus_of = |set: &(_, _)| drawn[set].as_ref().unwrap_or(online).clone();
        let confined = |sets: &Vec<_>| sets.iter().any(|set| drawn[set].is_some());
        let affinity = |(vm, sets): (_, Vec<_>)| {
            let each: Vec<CpuList> = sets.iter().map(cpus_of).collect();
            (vm, Affinity::of_vcpus(each))
        };
        let sets = sets.into_iter().filter(|(_, sets)| confined(sets)).map(affinity);
        let sets = sets.map(|(vm, affinity)| (vm, affinity.on(online)));
        sets.filter(|(_, affinity)| !affinity.is_anywhere()).collect()
    }
}

/// The tree of pools, of which the first is pool 1, and the place of each in it by its number.
pub(crate) fn tree_of(pools: &[PoolSettings]) -> (Tree, Vec<Option<usize>>) {
    let name = |pool: usize| format!("pool{pool}");
    let spec = |(number, pool): (usize, &PoolSettings)| PoolSpec {
        parent: (pool.parent.0 > 0).then(|| name(pool.parent.0 as usize)),
        shares: Shares::Exact(pool.shares),
        reservation_mcpu: pool.reservation_mcpu,
        limit_mcpu: pool.limit_mcpu,
        ..PoolSpec::named(&name(number))
    };
    let specs: Vec<PoolSpec> = (1..).zip(pools).map(spec).collect();
    let tree = Tree::of(&specs).expect("pools of scenarios are a tree");
    let places = (0..=pools.len()).map(|number| tree.find(&name(number))).collect();
    (tree, places)
}

/// Promises in a partition that exceed its pCPUs shrink alike, as the daemon's plan has it.
fn scale(mut claims: Vec<&mut Claim>, tree: &Tree, pcpus: usize) {
    let mut promised = vec![0u64; tree.pools().len()];
    let mut in_all = 0;
    let mut add = |pool: Option<usize>, mcpu: u64, promised: &mut [u64]| match pool {
        Some(pool) => promised[pool] += mcpu,
        None => in_all += mcpu,
    };
    for claim in &claims {
        add(claim.pool, claim.reservation_mcpu.into(), &mut promised);
    }
    for (index, pool) in tree.pools().iter().enumerate().rev() {
        let mcpu = promised[index].max(pool.spec.reservation_mcpu.into());
        add(pool.parent, mcpu, &mut promised);
    }
    let there = 1000 * pcpus as u64;
    // Scenarios that ask for more than is left beside it are refused; the rig asks for all.
    let host_mcpu = there.saturating_sub(in_all).min(u64::from(HOST_PERMILLE) * pcpus as u64);
    for claim in claims.iter_mut().filter(|claim| claim.host) {
        claim.reservation_mcpu = host_mcpu as u32;
    }
    if in_all > there {
        for claim in claims {
            claim.reservation_mcpu = (u64::from(claim.reservation_mcpu) * there / in_all) as u32;
        }
    }
}

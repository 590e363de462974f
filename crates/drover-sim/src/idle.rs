// SPDX-License-Identifier: GPL-2.0-only
//! The kernel's idle masks and how sched_ext searches them (kernel/sched/ext/idle.c).

use crate::cpu_set::CpuSet;
use crate::topology::Topology;

/// Which pCPUs are idle and not yet claimed, and which cores are so wholly.
#[derive(Debug)]
pub struct IdleCpus {
    cpus: CpuSet,
    cores: CpuSet,
    /// Where the next search begins: claims spread over the host.
    rotor: u32,
    count: u32,
}

impl IdleCpus {
    /// All pCPUs idle.
    pub fn all(topology: &Topology) -> Self {
        let cpus = CpuSet::all(topology.pcpus());
        Self { cores: cpus.clone(), cpus, rotor: 0, count: topology.pcpus() }
    }

    /// Is the pCPU marked idle?
    pub fn contains(&self, cpu: u32) -> bool {
        self.cpus.contains(cpu)
    }

    /// The pCPU has become idle.
    pub fn insert(&mut self, topology: &Topology, cpu: u32) {
        if !self.cpus.contains(cpu) {
            self.count += 1;
            self.cpus.insert(cpu);
        }
        if topology.siblings(cpu).all(|sibling| self.cpus.contains(sibling)) {
            topology.siblings(cpu).for_each(|sibling| self.cores.insert(sibling));
        }
    }

    /// The pCPU is idle no more, or claimed. Was it marked idle?
    pub fn claim(&mut self, topology: &Topology, cpu: u32) -> bool {
        topology.siblings(cpu).for_each(|sibling| self.cores.remove(sibling));
        let was = self.cpus.contains(cpu);
        if was {
            self.count -= 1;
            self.cpus.remove(cpu);
        }
        was
    }

    /// scx_bpf_pick_idle_cpu: claims any idle pCPU of the set, a wholly idle core first.
    pub fn pick(&mut self, topology: &Topology, allowed: &CpuSet) -> Option<u32> {
        if self.count == 0 {
            return None;
        }
        if topology.threads > 1 {
            if let Some(cpu) = self.pick_core(topology, allowed, allowed) {
                return Some(cpu);
            }
        }
        let cpu = self.cpus.any_common(allowed, self.rotor)?;
        self.take(topology, cpu)
    }

    /// bpf/ground.bpf.h's ground_claim_idle. busy: somebody runs on the core of `near`, which has two threads.
    pub fn claim_near(
        &mut self,
        topology: &Topology,
        allowed: &CpuSet,
        near: u32,
        busy: bool,
    ) -> Option<u32> {
        if busy {
            if let Some(cpu) = self.pick_core(topology, allowed, allowed) {
                return Some(cpu);
            }
        }
        let mut here = [near].into_iter().chain(topology.sibling(near));
        let claimed = here.find(|&cpu| allowed.contains(cpu) && self.claim(topology, cpu));
        claimed.or_else(|| self.pick(topology, allowed))
    }

    /// Claims a pCPU of the set on a wholly idle core.
    pub fn claim_core(&mut self, topology: &Topology, allowed: &CpuSet) -> Option<u32> {
        self.pick_core(topology, allowed, allowed)
    }

    /// scx_select_cpu_dfl for a wake-up without the "sync" hint: claims the idle pCPU that suits a
    /// task best that last ran on `last`.
    pub fn select(&mut self, topology: &Topology, allowed: &CpuSet, last: u32) -> Option<u32> {
        if self.count == 0 {
            return None;
        }
        let may_stay = allowed.contains(last);
        let llc = &topology.llcs[topology.llc_of[last as usize] as usize];
        let near = topology.llcs.len() > 1;
        if topology.threads > 1 {
            if may_stay && self.cores.contains(last) {
                return self.take(topology, last);
            }
            let here = if near { self.pick_core(topology, llc, allowed) } else { None };
            if let Some(cpu) = here.or_else(|| self.pick_core(topology, allowed, allowed)) {
                return Some(cpu);
            }
        }
        if may_stay && self.cpus.contains(last) {
            return self.take(topology, last);
        }
        let sibling = topology
            .siblings(last)
            .find(|&sibling| allowed.contains(sibling) && self.cpus.contains(sibling));
        if let Some(cpu) = sibling {
            return self.take(topology, cpu);
        }
        if near {
            if let Some(cpu) = self.cpus.any_in_all(llc, allowed, self.rotor) {
                return self.take(topology, cpu);
            }
            let node = &topology.nodes[topology.node_of[last as usize] as usize];
            if let Some(cpu) = self.cpus.any_in_all(node, allowed, self.rotor) {
                return self.take(topology, cpu);
            }
        }
        self.pick(topology, allowed)
    }

    fn pick_core(&mut self, topology: &Topology, near: &CpuSet, allowed: &CpuSet) -> Option<u32> {
        let cpu = self.cores.any_in_all(near, allowed, self.rotor)?;
        self.take(topology, cpu)
    }

    fn take(&mut self, topology: &Topology, cpu: u32) -> Option<u32> {
        self.rotor = if cpu + 1 == topology.pcpus() { 0 } else { cpu + 1 };
        self.claim(topology, cpu).then_some(cpu)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drover_core::scenario::Host;

    fn topology(dies: u32, cores: u32, threads: u32) -> Topology {
        Topology::of(&Host { dies, cores, threads, ..Host::default() })
    }

    #[test]
    fn a_claimed_cpu_is_not_given_twice() {
        let topology = topology(1, 2, 1);
        let all = CpuSet::all(2);
        let mut idle = IdleCpus::all(&topology);
        assert_eq!(idle.select(&topology, &all, 1), Some(1));
        assert_eq!(idle.select(&topology, &all, 1), Some(0));
        assert_eq!((idle.select(&topology, &all, 1), idle.pick(&topology, &all)), (None, None));
        idle.insert(&topology, 1);
        assert!(idle.contains(1) && idle.claim(&topology, 1) && !idle.claim(&topology, 1));
    }

    #[test]
    fn a_whole_core_comes_first_then_the_same_cache() {
        let topology = topology(2, 2, 2);
        let all = CpuSet::all(8);
        let mut idle = IdleCpus::all(&topology);
        assert_eq!(idle.select(&topology, &all, 0), Some(0));
        assert_eq!(idle.select(&topology, &all, 1), Some(2), "1 shares its core with a busy one");
        for cpu in [4, 6] {
            assert!(idle.claim(&topology, cpu));
        }
        assert_eq!(idle.select(&topology, &all, 0), Some(1), "no whole core is left: a sibling");
        assert_eq!(idle.select(&topology, &all, 0), Some(3), "then the cache");
        assert_eq!(idle.select(&topology, &CpuSet::of(8, [7]), 0), Some(7));
        idle.insert(&topology, 4);
        assert_eq!(idle.claim_near(&topology, &all, 4, false), Some(4));
        for cpu in [2, 3, 4] {
            idle.insert(&topology, cpu);
        }
        assert_eq!(idle.claim_near(&topology, &all, 4, true), Some(2), "a whole core");
        assert_eq!(idle.claim_near(&topology, &all, 5, false), Some(4), "the other thread");
        assert_eq!(idle.claim_core(&topology, &all), None);
    }
}

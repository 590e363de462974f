// SPDX-License-Identifier: GPL-2.0-only
//! Which pCPUs share a core, a last-level cache and a NUMA node.
//!
//! pCPUs are numbered as QEMU does: hardware thread fastest, then core, die, socket.

use crate::cpu_set::CpuSet;
use crate::scx::native::DROVER_DOMAIN_PCPUS;
use drover_core::domain;
use drover_scenario::Host;

/// The shape of a host, pCPU by pCPU.
#[derive(Debug, Clone)]
pub struct Topology {
    /// Hardware threads per core.
    pub threads: u32,
    /// The last-level cache of each pCPU.
    pub llc_of: Vec<u32>,
    /// The NUMA node of each pCPU.
    pub node_of: Vec<u32>,
    /// The domain of each pCPU while there are no partitions: those of a last-level cache share a run queue of VMs, or
    /// several if they are more than the policy keeps in one.
    pub domain_of: Vec<u32>,
    /// The last-level cache of each of these domains.
    pub llc_of_domain: Vec<u32>,
    /// The pCPUs of each last-level cache.
    pub llcs: Vec<CpuSet>,
    /// The pCPUs of each NUMA node.
    pub nodes: Vec<CpuSet>,
    /// From each NUMA node, all nodes from the nearest (itself) to the farthest.
    pub nodes_by_distance: Vec<Vec<u32>>,
}

impl Topology {
    /// The topology of a scenario's host.
    pub fn of(host: &Host) -> Self {
        let pcpus = host.pcpus();
        let dies = host.sockets * host.dies;
        let per_die = host.cores * host.threads;
        let dies_per_node = (dies / host.nodes).max(1);
        let llc_of: Vec<u32> = (0..pcpus).map(|cpu| cpu / per_die).collect();
        let node_of: Vec<u32> = llc_of.iter().map(|die| die / dies_per_node).collect();
        let by_distance = |from: u32| {
            let mut nodes: Vec<u32> = (0..host.nodes).collect();
            nodes.sort_by_key(|&to| (from != to, host.distance(from, to)));
            nodes
        };
        let nodes_by_distance = (0..host.nodes).map(by_distance).collect();
        Self::made_of(host.threads, llc_of, node_of, nodes_by_distance)
    }

    /// A host whose dies, each a NUMA node, have so many cores each, not all alike, as where a hypervisor or
    /// the firmware took some away, or where fast and slow cores stand apart.
    pub fn of_dies(cores: &[u32], threads: u32) -> Self {
        let die = |(die, &cores): (u32, &u32)| vec![die; (cores * threads) as usize];
        let llc_of: Vec<u32> = (0..).zip(cores).flat_map(die).collect();
        let nodes = cores.len() as u32;
        let from = |node: u32| (0..nodes).map(|step| (node + step) % nodes).collect();
        Self::made_of(threads, llc_of.clone(), llc_of, (0..nodes).map(from).collect())
    }

    fn made_of(
        threads: u32,
        llc_of: Vec<u32>,
        node_of: Vec<u32>,
        nodes_by_distance: Vec<Vec<u32>>,
    ) -> Self {
        let pcpus = llc_of.len() as u32;
        let gather = |of: &[u32]| {
            let groups = of.iter().max().map_or(0, |last| last + 1);
            let members = |group: u32| (0..pcpus).filter(move |&cpu| of[cpu as usize] == group);
            (0..groups).map(|group| CpuSet::of(pcpus, members(group))).collect()
        };
        let (llcs, nodes): (Vec<CpuSet>, _) = (gather(&llc_of), gather(&node_of));
        let (domain_of, llc_of_domain) = domains(&llcs, threads, pcpus);
        Self { threads, llc_of, node_of, domain_of, llc_of_domain, llcs, nodes, nodes_by_distance }
    }

    /// Number of pCPUs.
    pub fn pcpus(&self) -> u32 {
        self.llc_of.len() as u32
    }

    /// The hardware threads of the pCPU's core, itself among them.
    pub fn siblings(&self, cpu: u32) -> std::ops::Range<u32> {
        let first = cpu - cpu % self.threads;
        first..first + self.threads
    }

    /// The other hardware thread of its core, where there are two.
    pub fn sibling(&self, cpu: u32) -> Option<u32> {
        (self.threads == 2).then_some(cpu ^ 1)
    }
}

/// The domain of each pCPU, and the cache of each domain.
fn domains(llcs: &[CpuSet], threads: u32, pcpus: u32) -> (Vec<u32>, Vec<u32>) {
    let (mut of, mut llc_of_domain) = (vec![0; pcpus as usize], Vec::new());
    for (llc, members) in (0..).zip(llcs) {
        let members: Vec<u32> = members.iter().collect();
        let cores: Vec<Vec<u32>> =
            members.chunk_by(|a, b| a / threads == b / threads).map(Vec::from).collect();
        for part in domain::split(&cores, DROVER_DOMAIN_PCPUS as usize) {
            part.iter().for_each(|&cpu| of[cpu as usize] = llc_of_domain.len() as u32);
            llc_of_domain.push(llc);
        }
    }
    (of, llc_of_domain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_of_two_nodes_is_taken_apart() {
        let host = Host { sockets: 2, dies: 2, cores: 3, threads: 2, nodes: 2, ..Host::default() };
        let topology = Topology::of(&host);
        assert_eq!(topology.pcpus(), 24);
        assert_eq!((topology.siblings(7), topology.sibling(7)), (6..8, Some(6)));
        assert_eq!((topology.llc_of[5], topology.llc_of[6], topology.llc_of[23]), (0, 1, 3));
        assert_eq!((topology.node_of[11], topology.node_of[12]), (0, 1));
        assert_eq!((topology.llcs[1].count(), topology.nodes[1].count()), (6, 12));
        assert_eq!(topology.nodes_by_distance, [[0, 1], [1, 0]]);
    }

    #[test]
    fn a_wide_cache_has_several_domains() {
        let topology = Topology::of_dies(&[2, 48], 2);
        assert_eq!((topology.domain_of[3], topology.domain_of[4]), (0, 1));
        assert_eq!(
            (topology.domain_of[51], topology.domain_of[52], topology.domain_of[99]),
            (1, 2, 2)
        );
        assert_eq!(topology.llc_of_domain, [0, 1, 1]);
    }

    #[test]
    fn dies_may_differ_in_width() {
        let topology = Topology::of_dies(&[3, 1], 2);
        assert_eq!(topology.llc_of, [0, 0, 0, 0, 0, 0, 1, 1]);
        assert_eq!((topology.llcs[0].count(), topology.llcs[1].count()), (6, 2));
        assert_eq!((topology.siblings(7), topology.nodes[0].count()), (6..8, 6));
        assert_eq!(topology.nodes_by_distance, [[0, 1], [1, 0]]);
    }

    #[test]
    fn near_nodes_come_before_far_ones() {
        let node_distances = [[10, 32, 16], [32, 10, 16], [16, 32, 10]].map(Vec::from).to_vec();
        let host = Host { sockets: 3, nodes: 3, node_distances, ..Host::default() };
        assert_eq!(Topology::of(&host).nodes_by_distance, [[0, 2, 1], [1, 2, 0], [2, 0, 1]]);
    }
}

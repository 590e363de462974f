// SPDX-License-Identifier: GPL-2.0-only
//! The host as the placer sees it.

use crate::domains::Domains;
use crate::topology::Topology;
use drover_core::cpu_list::CpuList;
use drover_core::place::{Host, Llc, Node};
use std::collections::{BTreeMap, BTreeSet};

/// The nodes of that host, in the order of their numbers, with those of their pCPUs that are among `cpus`; what is wanted
/// there is added by others.
pub(super) fn of(
    topology: &Topology,
    domains: &Domains,
    cpus: &CpuList,
    free_mib: &dyn Fn(usize) -> u64,
) -> Host {
    let number = |it: usize| u32::try_from(it).unwrap_or(u32::MAX);
    let node = |(&node, known): (&usize, &crate::topology::Node)| {
        let on = |cpu: &usize| {
            let pcpu = &topology.pcpus[*cpu];
            pcpu.online && pcpu.node == Some(node) && cpus.contains(number(*cpu))
        };
        let there: Vec<usize> = (0..topology.pcpus.len()).filter(on).collect();
        let cores: BTreeSet<usize> =
            there.iter().map(|&cpu| topology.pcpus[cpu].core.unwrap_or(cpu)).collect();
        let mut llcs: BTreeMap<usize, Llc> = BTreeMap::new();
        for &cpu in &there {
            let cache = domains.cache_of(cpu);
            let llc = llcs.entry(cache).or_default();
            let cache_mib = f64::from(topology.pcpus[cpu].llc_kib) / 1024.0;
            *llc = Llc { number: number(cache), pcpus: llc.pcpus + 1, cache_mib };
        }
        Node {
            number: number(node),
            pcpus: number(there.len()),
            cores: number(cores.len()),
            llcs: llcs.into_values().collect(),
            memory_mib: known.memory_kib >> 10,
            free_mib: free_mib(node),
            ..Node::default()
        }
    };
    let row = |known: &crate::topology::Node| {
        topology
            .nodes
            .keys()
            .map(|to| known.distances.get(to).copied().unwrap_or(Host::FAR))
            .collect()
    };
    Host {
        nodes: topology.nodes.iter().map(node).collect(),
        distances: topology.nodes.values().map(row).collect(),
    }
}

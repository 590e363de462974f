// SPDX-License-Identifier: GPL-2.0-only
//! A guest that is wider than a node and does not know of nodes.

use super::{Facts, Finding, VmFacts, each_vm};
use crate::place::{Host, Node, Shape, advise};
use std::collections::BTreeSet;

pub fn look(facts: &Facts) -> Vec<Finding> {
    each_vm(facts, of_vm)
}

fn of_vm(facts: &Facts, at: usize, vm: &VmFacts) -> Option<Finding> {
    let memory_mib = vm.memory_mib.values().sum();
    let host = host(facts);
    let shape =
        Shape { vcpus: u32::try_from(vm.vcpus.len()).ok()?, memory_mib, ..Shape::default() };
    let allowed = facts.allowed(vm)?;
    let nodes: BTreeSet<u32> = facts.on(&allowed).map(|pcpu| pcpu.node).collect();
    if vm.knows_nodes != Some(false) || nodes.len() < 2 {
        return None;
    }
    let topology = advise(&host, &shape)?;
    let text = if vm.domain.is_some() { topology.libvirt() } else { topology.qemu() };
    Some(Finding {
        rule: "vnuma",
        vm: Some(at),
        lost_pcpus: 0.0,
        what: "its guest is wider than a node of the host, and knows of no nodes".to_owned(),
        evidence: format!(
            "{} vCPUs and {memory_mib} MiB; the widest node has {} cores, the largest {} MiB",
            vm.vcpus.len(),
            host.widest(),
            host.homes().map(|node| node.memory_mib).max().unwrap_or(0)
        ),
        mend: text.lines().map(str::to_owned).collect(),
        trial: Err("what its guest would do with nodes is not known"),
    })
}

fn host(facts: &Facts) -> Host {
    let node = |(&number, &memory_mib): (&u32, &u64)| {
        let there = || facts.pcpus.iter().filter(move |pcpu| pcpu.node == number);
        let cores: BTreeSet<u32> = there().map(|pcpu| pcpu.core).collect();
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Node {
            number,
            pcpus: count(there().count()),
            cores: count(cores.len()),
            memory_mib,
            free_mib: memory_mib,
            ..Node::default()
        }
    };
    Host {
        nodes: facts.nodes_mib.iter().map(node).collect(),
        distances: facts.node_distances.clone(),
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! Memory on the wrong node: on one where the VM's vCPUs do not run.

use super::{Facts, Finding, VmFacts, each_vm, how, pct};
use std::collections::BTreeSet;

/// Less memory is not looked at, MiB.
const MEMORY_MIB: u64 = 64;
/// So much of it may be elsewhere.
const FAR: f64 = 0.3;
/// vCPUs that ran for less on a node do not run there, part of all their time.
const RUNS: f64 = 0.05;
/// A VM that ran for less is not judged by it, pCPUs.
const RAN: f64 = 0.05;

pub fn look(facts: &Facts) -> Vec<Finding> {
    each_vm(facts, of_vm)
}

fn of_vm(facts: &Facts, at: usize, vm: &VmFacts) -> Option<Finding> {
    let all_mib: u64 = vm.memory_mib.values().sum();
    let of_time = |node: &u32| vm.ran_on.get(node).copied().unwrap_or(0.0) / vm.ran().max(1e-9);
    let home = |node: &&u32| of_time(node) >= RUNS;
    let far: BTreeSet<u32> = vm.memory_mib.keys().filter(|node| !home(node)).copied().collect();
    let far_mib: u64 = far.iter().filter_map(|node| vm.memory_mib.get(node)).sum();
    if all_mib < MEMORY_MIB || vm.ran() < RAN || (far_mib as f64) < FAR * all_mib as f64 {
        return None;
    }
    let list =
        |nodes: &BTreeSet<u32>| nodes.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let near: BTreeSet<u32> = vm.ran_on.keys().filter(home).copied().collect();
    let (from, to) = (list(&far), list(&near));
    let mut mend = Vec::new();
    if let Some(domain) = &vm.domain {
        mend.push(format!("virsh numatune {} --nodeset {to} --live --config", how::word(domain)));
    }
    mend.push(match facts.is_drover() {
        true => "drover numa plan, which says what Drover would move itself".to_owned(),
        false => format!("migratepages {} {from} {to}", vm.pid),
    });
    Some(Finding {
        rule: "memory-node",
        vm: Some(at),
        lost_pcpus: 0.0,
        what: format!("its memory is on node {from}, and its vCPUs run on node {to}"),
        evidence: format!(
            "{far_mib} of {all_mib} MiB are there, where its vCPUs ran for {} of their time",
            pct(far.iter().map(of_time).sum())
        ),
        mend,
        trial: Err("how long a load from another node takes here is not in a recording"),
    })
}

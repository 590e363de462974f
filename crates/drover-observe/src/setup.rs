// SPDX-License-Identifier: GPL-2.0-only
//! What a recording says of the host beside what happens: its shape, and what is set for its VMs.

use std::path::Path;

use anyhow::Result;
use drover_core::asked::{Asked, DEFAULT, Limit};
use drover_core::cpu_list::CpuList;
use drover_core::recording_file::{PcpuSetup, Setup, VmSetup};
use drover_core::shares::Shares;
use drover_host::cookies::cookie_of;
use drover_host::names::Places;
use drover_host::numa::once::{Memory, memory_of};
use drover_host::pages::huge_by_itself;
use drover_host::pause_exits::pause_exits;
use drover_host::sources::cgroup;
use drover_host::sources::cgroup_tree::CgroupTree;
use drover_host::status::VmStatus;
use drover_host::topology::Topology;

use crate::explain::{allowed, allowed_of};
use crate::observer::VcpuTimes;
use crate::sample::{Sample, VmSample};
use crate::statuses::cgroups;

/// Looks at the host, and at the VMs of that sample; at their memory, too, where there is time for it: the kernel walks
/// all page tables of each.
///
/// # Errors
/// When the kernel does not tell.
pub fn setup(sample: &Sample, with_memory: bool) -> Result<Setup> {
    let tree = cgroups(sample);
    let vm = |(pid, vm): (&u32, &VmSample)| {
        let set = match sample.told.get(pid) {
            Some(told) => told_by_drover(told),
            None => set_by_cgroups(&tree, *pid, vm),
        };
        let pins = vm.vcpus.iter().map(|vcpu| CpuList::of(allowed(vcpu))).collect();
        let set = VmSetup { vm: *pid, pins, ..set };
        let set = around(*pid, vm, set);
        if with_memory { lies(*pid, set) } else { set }
    };
    let root = Path::new("/");
    Ok(Setup {
        vms: sample.vms.iter().map(vm).collect(),
        pause_exits: pause_exits(root),
        huge_pages: huge_by_itself(root),
        ..shape(&Topology::read()?)
    })
}

/// What manages it, and what its threads have.
fn around(pid: u32, vm: &VmSample, set: VmSetup) -> VmSetup {
    let cgroup = cgroup::path_of(pid);
    let tagged = |vcpu: &&VcpuTimes| i32::try_from(vcpu.thread).is_ok_and(|it| cookie_of(it) != 0);
    let helper_pins = vm.helpers.iter().flat_map(|&thread| allowed_of(pid, thread));
    VmSetup {
        domain: Places::default().identity_now(pid).domain,
        quota_mcpu: cgroup::quota_mcpu(&cgroup),
        cgroup,
        helper_pins: CpuList::of(helper_pins),
        cookies: u32::try_from(vm.vcpus.iter().filter(tagged).count()).unwrap_or(u32::MAX),
        ..set
    }
}

/// Where its memory lies.
fn lies(pid: u32, set: VmSetup) -> VmSetup {
    let Memory { on_mib, huge_mib, knows_nodes } = memory_of(pid);
    VmSetup { memory_mib: on_mib, huge_mib, knows_nodes, ..set }
}

fn told_by_drover(told: &VmStatus) -> VmSetup {
    VmSetup {
        shares: (!told.shares_by_default).then_some(told.shares),
        reservation_mcpu: (told.promised_mcpu > 0).then_some(told.promised_mcpu),
        limit_mcpu: told.limit_mcpu,
        pool: told.pool.clone(),
        partition: Some(told.partition.clone()).filter(|name| name != DEFAULT),
        troubles: told.troubles.clone(),
        ..VmSetup::default()
    }
}

fn set_by_cgroups(tree: &CgroupTree, pid: u32, vm: &VmSample) -> VmSetup {
    let layers = tree.vms.get(&pid).map_or(&[][..], Vec::as_slice);
    let asked = layers.iter().fold(Asked::default(), |below, layer| layer.asked.over(&below));
    let vcpus = u32::try_from(vm.vcpus.len()).unwrap_or(u32::MAX);
    VmSetup {
        shares: asked.shares.map(|shares: Shares| shares.of_vm(vcpus)),
        limit_mcpu: asked.limit.and_then(Limit::mcpu),
        pool: asked.pool,
        ..VmSetup::default()
    }
}

/// The pCPUs that are online, and the memory.
fn shape(topology: &Topology) -> Setup {
    let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let online = topology.pcpus.iter().enumerate().filter(|(_, pcpu)| pcpu.online);
    let place = |(at, pcpu): (usize, &drover_host::topology::Pcpu)| {
        let node = pcpu.node.unwrap_or(0);
        PcpuSetup {
            pcpu: number(at),
            core: number(pcpu.core.unwrap_or(at)),
            // Nodes have numbers of their own: one that is no pCPU's.
            llc: pcpu.llc.map_or(u32::MAX - number(node), number),
            node: number(node),
        }
    };
    let distances = |node: &drover_host::topology::Node| node.distances.values().copied().collect();
    let memory_kib: u64 = topology.nodes.values().map(|node| node.memory_kib).sum();
    Setup {
        pcpus: online.map(place).collect(),
        memory_mib: u32::try_from(memory_kib / 1024).unwrap_or(u32::MAX),
        node_distances: topology.nodes.values().map(distances).collect(),
        llc_kib: topology.pcpus.iter().map(|pcpu| pcpu.llc_kib).max().filter(|&kib| kib > 0),
        nodes_mib: topology
            .nodes
            .iter()
            .map(|(node, known)| (number(*node), known.memory_kib >> 10))
            .collect(),
        ..Setup::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drover_host::topology::{Node, Pcpu};
    use std::collections::BTreeMap;

    #[test]
    fn only_what_is_online_has_a_place() {
        let pcpu =
            Pcpu { present: true, online: true, core: Some(0), node: Some(1), ..Pcpu::default() };
        let with_llc = Pcpu { llc: Some(2), llc_kib: 512, core: None, ..pcpu };
        let pcpus = vec![pcpu, Pcpu { online: false, ..pcpu }, with_llc];
        let node = Node { memory_kib: 2 << 20, distances: BTreeMap::from([(0, 20), (1, 10)]) };
        let topology = Topology { pcpus, nodes: BTreeMap::from([(1, node)]), smt_off: false };
        let shape = shape(&topology);
        let place = |pcpu, core, llc| PcpuSetup { pcpu, core, llc, node: 1 };
        assert_eq!(shape.pcpus, [place(0, 0, u32::MAX - 1), place(2, 2, 2)]);
        assert_eq!((shape.memory_mib, shape.llc_kib), (2048, Some(512)));
        assert_eq!(shape.node_distances, [[20, 10]]);
        assert_eq!(shape.nodes_mib, BTreeMap::from([(1, 2048)]));
    }

    #[test]
    fn what_nobody_set_is_not_told() {
        let by_default = crate::statuses::tests::told();
        let set = told_by_drover(&by_default);
        assert_eq!((set.shares, set.reservation_mcpu), (None, None));
        let status = VmStatus { shares_by_default: false, promised_mcpu: 1500, ..by_default };
        let set = told_by_drover(&status);
        assert_eq!((set.shares, set.reservation_mcpu), (Some(1000), Some(1500)));
    }
}

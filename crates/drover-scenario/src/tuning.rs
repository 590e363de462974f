// SPDX-License-Identifier: GPL-2.0-only
//! Static tunings of seed 004: where the VMs of a case are pinned, one after the other over nodes and cores.
//!
//! Worked example: two nodes of four cores with two threads, VMs of four vCPUs. VM 0 has node 0, VM 1 node 1, VM 2 node 0; by
//! core VM 0 has CPUs 0-3, VM 1 8-11, VM 2 4-7; VM 4 comes to CPUs 0-3 again.

use crate::host::Host;
use crate::vm::{Pin, Vm};
use drover_core::cpu_list::CpuList;
use serde::Deserialize;

/// What an administrator sets of all VMs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub enum Tuning {
    /// Nothing.
    #[default]
    #[serde(rename = "default")]
    Default,
    /// vCPUs to a node.
    #[serde(rename = "pin-node")]
    PinNode,
    /// Memory to a node.
    #[serde(rename = "mem")]
    Mem,
    /// vCPUs to cores, as many threads as vCPUs.
    #[serde(rename = "pin-core")]
    PinCore,
    /// vCPUs to cores, memory to their node.
    #[serde(rename = "pin-core+mem")]
    PinCoreMem,
    /// Each vCPU to a thread of its own, memory to its node.
    #[serde(rename = "pin-1to1+mem")]
    PinOneMem,
}

impl Tuning {
    /// Sets pins and memory of all VMs; what a VM says itself counts before it.
    pub(super) fn apply(self, host: &Host, vms: &mut [Vm]) {
        if self == Self::Default {
            return;
        }
        for (number, vm) in vms.iter_mut().enumerate() {
            let place = Place::of(host, number as u32, vm.vcpus);
            let pin = match self {
                Self::Default | Self::Mem => None,
                Self::PinNode => CpuList::of(place.node_cpus()).map(Pin::Vm),
                Self::PinCore | Self::PinCoreMem => {
                    let core = |vcpu| CpuList::of(place.core_cpus(host, vcpu));
                    (0..vm.vcpus).map(core).collect::<Option<_>>().map(Pin::Vcpus)
                }
                Self::PinOneMem => {
                    let one = |vcpu| CpuList::of([place.cpu(vcpu)]);
                    (0..vm.vcpus).map(one).collect::<Option<_>>().map(Pin::Vcpus)
                }
            };
            vm.pin = vm.pin.take().or(pin);
            let has_memory = matches!(self, Self::Mem | Self::PinCoreMem | Self::PinOneMem);
            if has_memory && vm.memory_nodes.is_empty() {
                vm.memory_nodes = vec![place.node];
            }
        }
    }
}

/// The place of one VM.
struct Place {
    node: u32,
    /// CPUs of a node.
    per_node: u32,
    /// The first of its CPUs within the node.
    first: u32,
}

impl Place {
    fn of(host: &Host, number: u32, vcpus: u32) -> Self {
        let per_node = host.pcpus() / host.nodes;
        let width = vcpus.next_multiple_of(host.threads).min(per_node);
        let places = (per_node / width).max(1);
        let node = number % host.nodes;
        Self { node, per_node, first: number / host.nodes % places * width }
    }

    fn node_cpus(&self) -> std::ops::Range<u32> {
        self.node * self.per_node..(self.node + 1) * self.per_node
    }

    /// The CPU of a vCPU; a VM wider than a node has each of them for several.
    fn cpu(&self, vcpu: u32) -> u32 {
        self.node * self.per_node + (self.first + vcpu) % self.per_node
    }

    /// All CPUs of that CPU's core.
    fn core_cpus(&self, host: &Host, vcpu: u32) -> std::ops::Range<u32> {
        let first = self.cpu(vcpu) / host.threads * host.threads;
        first..first + host.threads
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Workload;

    fn tuned(tuning: Tuning) -> Vec<Vm> {
        let host = Host { sockets: 2, cores: 4, threads: 2, nodes: 2, ..Host::default() };
        let mut vms: Vec<Vm> =
            (0..5).map(|number| Vm::new(&format!("vm{number}"), 4, Workload::Mix {})).collect();
        vms[3].pin = Some(Pin::Vm("1".parse().unwrap()));
        tuning.apply(&host, &mut vms);
        vms
    }

    fn cpus(vm: &Vm, vcpu: u32) -> &[u32] {
        vm.pin.as_ref().unwrap().of_vcpu(vcpu).cpus()
    }

    #[test]
    fn vms_go_round_over_nodes_then_over_their_cores() {
        let vms = tuned(Tuning::PinCore);
        assert_eq!((cpus(&vms[0], 1), cpus(&vms[0], 2)), (&[0, 1][..], &[2, 3][..]));
        assert_eq!((cpus(&vms[1], 0), cpus(&vms[2], 0)), (&[8, 9][..], &[4, 5][..]));
        assert_eq!(cpus(&vms[4], 3), [2, 3], "over-committed");
        assert_eq!(cpus(&vms[3], 0), [1], "what it says itself");
        assert!(vms[0].memory_nodes.is_empty());
    }

    #[test]
    fn each_tuning_sets_what_it_is_called_for() {
        let vms = tuned(Tuning::PinNode);
        assert_eq!(cpus(&vms[1], 0), [8, 9, 10, 11, 12, 13, 14, 15]);
        assert_eq!((&tuned(Tuning::Default)[0].pin, &tuned(Tuning::Mem)[0].pin), (&None, &None));
        assert_eq!(tuned(Tuning::Mem)[1].memory_nodes, [1]);
        let vms = tuned(Tuning::PinOneMem);
        assert_eq!((cpus(&vms[2], 0), cpus(&vms[2], 3)), (&[4][..], &[7][..]));
        assert_eq!(tuned(Tuning::PinCoreMem)[3].memory_nodes, [1]);
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! Homes of VMs: what is asked of them, and what people are told.

use super::Reconciler;
use crate::kernel::Kernel;
use crate::numa::{Division, Seen};
use crate::orders::SET_ORIGIN;
use crate::plan::PlannedVm;
use crate::registry::Vm;
use crate::status::{Advice, NodeStatus, PlannedMove, SetStatus};
use anyhow::{Result, anyhow};
use drover_core::asked::Consolidate;
use drover_core::cpu_list::CpuList;
use drover_core::sets::{Room, soft_contradictions};
use std::time::Instant;

/// What there is on a host of one LLC, where VMs have no homes: one that is all of it.
const ONE_NODE: Room = Room { nodes: 1, llcs: 1 };

impl Reconciler {
    pub(super) fn look_at_homes(&mut self, kernel: &dyn Kernel, online: &CpuList, now: Instant) {
        let Some(mut numa) = self.numa.take() else { return };
        numa.set_budget(self.config.move_mib_per_s());
        let cpus = self.cpus_of_divisions();
        let divisions = self.divisions(&cpus);
        numa.look(kernel, &divisions, (online, self.applied.domains()), &self.wishes, now);
        drop(divisions);
        self.numa = Some(numa);
    }

    /// The pCPUs online of each partition in which VMs have homes.
    pub(super) fn cpus_of_divisions(&self) -> Vec<(Option<usize>, CpuList)> {
        self.plan.partitions.sharing(&self.capacity.online)
    }

    /// The partitions in which VMs have homes, with their VMs.
    pub(super) fn divisions<'a>(
        &'a self,
        cpus: &'a [(Option<usize>, CpuList)],
    ) -> Vec<Division<'a>> {
        let vms = |partition, cpus| {
            let vms = self.registry.vms().iter().filter(|vm| !vm.is_container());
            let seen = |vm: &'a Vm| {
                let planned = self.plan.vm(vm.kernel.id);
                let its = planned.and_then(|it| it.resolved.partition);
                (its == partition).then(|| self.seen(vm, planned, cpus))
            };
            vms.filter_map(seen).collect()
        };
        let division = |(partition, cpus): &'a (Option<usize>, CpuList)| Division {
            name: self.plan.partitions.name(*partition),
            cpus,
            vms: vms(*partition, cpus),
        };
        cpus.iter().map(division).collect()
    }

    /// A VM, as its home is chosen.
    fn seen<'a>(&'a self, vm: &'a Vm, planned: Option<&PlannedVm>, cpus: &'a CpuList) -> Seen<'a> {
        let resolved = planned.map(|it| &it.resolved);
        Seen {
            kernel: vm.kernel,
            name: &vm.name,
            affinity: vm.affinity(),
            cpus,
            wanted_pcpus: self.meter.rate(vm.kernel.id).map(|rate| rate.wanted_pcpus),
            reserved_pcpus: planned.map_or(0.0, |it| f64::from(it.reservation_mcpu) / 1e3),
            max_per_node: resolved.and_then(|it| it.max_per_node),
            consolidate: resolved.map_or(Consolidate::Off, |it| it.consolidate),
        }
    }

    /// How many homes there are.
    pub(super) fn room(&self) -> Room {
        let online = &self.capacity.online;
        let default = self.plan.partitions.cpus_of(None, online);
        let cpus = default.as_ref().unwrap_or(online);
        self.numa.as_ref().map_or(ONE_NODE, |numa| numa.room(self.applied.domains(), cpus))
    }

    /// What cannot be kept of sets: the names of these, and a line.
    pub(super) fn set_troubles(&self) -> Vec<(Vec<&str>, String)> {
        let (sets, room) = (&self.wishes.sets, self.room());
        let wide = sets
            .iter()
            .filter_map(|set| Some((vec![set.name.as_str()], set.check(room).err()?.to_string())));
        let soft = soft_contradictions(sets).into_iter();
        soft.map(|(names, text)| (names.to_vec(), text)).chain(wide).collect()
    }

    pub(super) fn set_statuses(&self) -> Vec<SetStatus> {
        let here = self.registry.names();
        let troubles = self.set_troubles();
        let of_set = |name: &str| {
            let its = troubles.iter().filter(|(names, _)| names.contains(&name));
            let one_node = "this host has one last-level cache, where VMs have no homes".to_owned();
            let one_node = self.numa.is_none().then_some(one_node);
            its.map(|(_, text)| text.clone()).chain(one_node).collect()
        };
        let origin = |name: &str| {
            let ordered = self.saved.sets.iter().any(|set| set.name == name);
            let mut configured = self.config.sets().filter(|(set, _)| set.name == name);
            let place = configured.next().filter(|_| !ordered).map(|(_, place)| place);
            place.unwrap_or_else(|| SET_ORIGIN.to_owned())
        };
        let status = |set: &drover_core::sets::SetSpec| SetStatus {
            name: set.name.clone(),
            vms: set.vms.clone(),
            absent: (set.vms.iter().filter(|vm| !here.contains_key(vm.as_str())))
                .cloned()
                .collect(),
            kind: set.kind,
            within: set.within,
            hard: set.hard,
            origin: origin(&set.name),
            troubles: of_set(&set.name),
        };
        self.wishes.sets.iter().map(status).collect()
    }

    pub(super) fn node_statuses(&self, now: Instant) -> Vec<NodeStatus> {
        let Some(numa) = &self.numa else { return Vec::new() };
        numa.nodes(&self.divisions(&self.cpus_of_divisions()), self.applied.domains(), now)
    }

    pub(super) fn planned_moves(&self, now: Instant) -> Option<Vec<PlannedMove>> {
        let numa = self.numa.as_ref()?;
        let cpus = self.cpus_of_divisions();
        Some(numa.plan(&self.divisions(&cpus), self.applied.domains(), &self.wishes, now))
    }

    /// The virtual nodes that the guest of that VM should have; none: this host has one node.
    pub(super) fn advise(&self, name: &str) -> Result<Option<Advice>> {
        let cpus = self.cpus_of_divisions();
        let divisions = self.divisions(&cpus);
        let mut all = divisions.iter().flat_map(|division| &division.vms);
        let Some(vm) = all.find(|vm| vm.name == name) else {
            let elsewhere = self.plan.vms.iter().find(|vm| vm.name == name);
            return Err(match elsewhere {
                None => anyhow!("there is no VM {name:?}; `drover vm list` shows all"),
                Some(vm) => anyhow!(
                    "VM {name:?} is in partition {:?}, where VMs have no homes; they have in those of policy share",
                    self.plan.partitions.name(vm.resolved.partition)
                ),
            });
        };
        let Some(numa) = &self.numa else { return Ok(None) };
        let advice = numa.advise(vm, self.applied.domains());
        let too_young =
            "has just come, and its memory was not looked at yet; ask again in a second";
        advice.map(Some).ok_or_else(|| anyhow!("VM {name:?} {too_young}"))
    }
}

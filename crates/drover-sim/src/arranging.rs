// SPDX-License-Identifier: GPL-2.0-only
//! `drover partition auto` in the simulator: every second partitions are arranged as [`drover_core::arrange`] plans
//! them, and the scheduler is told.

use crate::class::{Class, VmBounds};
use crate::sim::Sim;
use drover_core::arrange::{self, Arranger, Seen, Step, arrange};
use drover_core::asked::DEFAULT;
use drover_core::cpu_list::CpuList;
use drover_core::partition::{PartitionPolicy, PartitionSettings, PartitionSpec, Partitions};
use std::time::Duration;

/// A VM that may be moved to another partition, or has to stay.
#[derive(Debug)]
pub(crate) struct Arranged {
    pub(crate) name: String,
    pub(crate) bounds: VmBounds,
    pub(crate) stays: Option<String>,
}

/// Partitions as they are, and what is planned.
#[derive(Debug)]
pub(crate) struct Arranging {
    arranger: Arranger,
    partitions: Partitions,
    /// By their numbers for the scheduler, from 1 on.
    names: Vec<String>,
    vms: Vec<Arranged>,
}

impl Arranging {
    /// From these partitions on.
    pub(crate) fn new(partitions: Partitions, vms: Vec<Arranged>) -> Self {
        let specs = partitions.specs().iter().map(|spec| spec.name.clone());
        let names = specs.chain([arrange::IO, arrange::CPU].map(str::to_owned)).collect();
        Self { arranger: Arranger::default(), partitions, names, vms }
    }

    fn number(&self, name: &str) -> u32 {
        self.names.iter().position(|it| it == name).map_or(0, |index| index as u32 + 1)
    }

    fn name(&self, number: u32) -> &str {
        number.checked_sub(1).map_or(DEFAULT, |index| &self.names[index as usize])
    }

    /// The partitions with a step done.
    fn with(&self, step: &Step) -> Partitions {
        let mut specs = self.partitions.specs().to_vec();
        match step {
            Step::Add { partition, change } => specs.push(change.of(&PartitionSpec {
                name: partition.clone(),
                cpus: CpuList::all(1),
                policy: PartitionPolicy::Share,
                slice_ns: None,
            })),
            Step::Resize { partition, cpus } => {
                let of_name = specs.iter_mut().filter(|spec| spec.name == *partition);
                of_name.for_each(|spec| spec.cpus = cpus.clone());
            }
            Step::Remove { partition } => specs.retain(|spec| spec.name != *partition),
            Step::Move { .. } => {}
        }
        Partitions::of(specs).expect("what is planned can be")
    }
}

impl<C: Class> Sim<C> {
    /// Arranges partitions anew, if that is asked for.
    pub(crate) fn look_at_arrangement(&mut self) {
        let Some(mut arranging) = self.arranging.take() else { return };
        let seen: Vec<Seen> = (0u32..)
            .zip(&arranging.vms)
            .map(|(number, vm)| {
                let profile = self.profile(number);
                let evidence = profile.map(|profile| profile.evidence);
                Seen {
                    name: vm.name.clone(),
                    class: profile.map(|profile| profile.class),
                    wanted_pcpus: evidence.map_or(0.0, |it| it.wanted_pcpus),
                    vcpus: self.vms[number as usize].terms.vcpus,
                    partition: arranging.name(vm.bounds.partition).to_owned(),
                    stays: vm.stays.clone(),
                    evidence: String::new(),
                }
            })
            .collect();
        let online = CpuList::of(self.m.online.iter()).expect("a pCPU is online");
        let arrangement = arrange(&arranging.partitions, &online, &seen);
        let now = Duration::from_nanos(self.m.now_ns);
        for step in arranging.arranger.look(&arrangement, now) {
            self.carry_out(&mut arranging, &step);
        }
        self.arranging = Some(arranging);
    }

    fn carry_out(&mut self, arranging: &mut Arranging, step: &Step) {
        arranging.partitions = arranging.with(step);
        let (name, cpus) = match step {
            Step::Move { vm, to } => {
                let partition = arranging.number(to);
                let Some(number) = arranging.vms.iter().position(|it| it.name == *vm) else {
                    return;
                };
                let bounds = VmBounds { partition, ..arranging.vms[number].bounds };
                arranging.vms[number].bounds = bounds;
                return self.class.set_bounds(&mut self.m, number as u32, bounds);
            }
            Step::Remove { partition } => (partition, Vec::new()),
            Step::Add { partition, .. } | Step::Resize { partition, .. } => {
                let spec = arranging.partitions.find(partition);
                let spec = spec.map(|index| &arranging.partitions.specs()[index]);
                (partition, spec.map_or_else(Vec::new, |spec| spec.cpus.cpus().to_vec()))
            }
        };
        let spec = arranging.partitions.specs().iter().find(|spec| spec.name == *name);
        let (policy, slice_ns) = spec
            .map_or((PartitionPolicy::Share, PartitionPolicy::Share.slice_ns()), |spec| {
                (spec.policy, spec.slice_ns())
            });
        let settings = PartitionSettings { policy, slice_ns };
        let number = arranging.number(name);
        self.class.set_partition(&mut self.m, number, &cpus, settings);
    }
}

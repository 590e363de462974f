// SPDX-License-Identifier: GPL-2.0-only
//! `drover partition auto`: partitions by what VMs do, as [`drover_core::arrange`] plans them.
//!
//! What it does are orders like anybody's: each is in force and saved, or refused as a whole, and what is left is
//! planned anew a second later. VMs and pCPUs move as they do by hand, so nobody loses what he had.

use super::Reconciler;
use crate::control::Request;
use crate::kernel::Kernel;
use crate::orders::VM_ORIGIN;
use crate::plan::PlannedVm;
use crate::registry::Vm;
use drover_core::arrange::{Arrangement, Arranger, Seen, Step, arrange, is_ours};
use drover_core::asked::{Asked, DEFAULT, Key};
use drover_core::cpu_list::CpuList;
use drover_core::partition::PartitionChange;
use drover_core::settings::Cosched;
use drover_core::tree::Affinity;
use std::time::{Duration, Instant};

/// How often it is looked at.
const INTERVAL: Duration = Duration::from_secs(1);

/// What is kept from one time to the next.
#[derive(Debug, Default)]
pub(super) struct Arranging {
    arranger: Arranger,
    begun: Option<Instant>,
    looked: Option<Instant>,
    /// What was said, not to be said again.
    said: Vec<String>,
}

impl Reconciler {
    /// Arranges partitions anew if it is time to, and asked for.
    pub(super) fn look_at_arrangement(&mut self, kernel: &dyn Kernel, now: Instant) {
        if !self.saved.auto_partitions {
            self.arranging = Arranging::default();
            return;
        }
        if self.arranging.looked.is_some_and(|looked| now - looked < INTERVAL) {
            return;
        }
        self.arranging.looked = Some(now);
        let begun = *self.arranging.begun.get_or_insert(now);
        let arrangement = self.arrangement();
        let mut said = arrangement.misplaced.clone();
        let steps = self.arranging.arranger.look(&arrangement, now - begun);
        if !steps.is_empty() {
            tracing::info!("partitions are arranged: {}", arrangement.why);
            arrangement.moves_why.iter().for_each(|why| tracing::info!("{why}"));
        }
        for step in steps {
            let order = order(step);
            if let Err(error) = self.obey_own(kernel, &order) {
                said.push(format!("partition auto: {error:#}; the rest is planned anew"));
                break;
            }
        }
        for line in said.iter().filter(|line| !self.arranging.said.contains(line)) {
            tracing::warn!("{line}");
        }
        self.arranging.said = said;
    }

    /// What should be done now.
    pub(super) fn arrangement(&self) -> Arrangement {
        let vms = self.registry.vms().iter().filter(|vm| !vm.is_container());
        let seen = |vm: &Vm| {
            let planned = self.plan.vm(vm.kernel.id)?;
            let profile = self.profiles.as_ref().and_then(|profiles| profiles.of(vm.kernel.id));
            let rate = self.meter.rate(vm.kernel.id).map_or(0.0, |rate| rate.wanted_pcpus);
            Some(Seen {
                name: vm.name.clone(),
                class: profile.map(|profile| profile.class),
                wanted_pcpus: profile.map_or(rate, |profile| profile.evidence.wanted_pcpus),
                vcpus: vm.kernel.nr_vcpus,
                partition: self.plan.partitions.name(planned.resolved.partition).to_owned(),
                stays: stays(vm, planned, &self.capacity.online),
                evidence: profile.map_or_else(String::new, |profile| profile.evidence.text()),
            })
        };
        let seen: Vec<Seen> = vms.filter_map(seen).collect();
        arrange(&self.plan.partitions, &self.capacity.online, &seen)
    }
}

/// Why a VM may not be moved; none: it may.
fn stays(vm: &Vm, planned: &PlannedVm, online: &CpuList) -> Option<String> {
    let resolved = &planned.resolved;
    let partition = resolved.why.iter().find(|why| why.key == Key::Partition);
    let by_others =
        |value: &str, origin: &str| origin != DEFAULT && !(origin == VM_ORIGIN && is_ours(value));
    match partition {
        Some(why) if by_others(&why.value, &why.origin) => Some(format!("{} says so", why.origin)),
        _ if !vm.has_its_name() => Some("another VM has its name".to_owned()),
        _ if planned.promised_mcpu > 0 => Some("it has a reservation".to_owned()),
        _ if resolved.pool.is_some() => Some("it is in a pool".to_owned()),
        _ if resolved.cosched != Cosched::Auto => Some("it has a mode of cosched".to_owned()),
        // The kernel names all pCPUs where a thread may run anywhere.
        _ if !vm.is_confined_as(&Affinity::ANYWHERE, online) => {
            Some("it is confined to pCPUs".to_owned())
        }
        _ => None,
    }
}

fn order(step: Step) -> Request {
    match step {
        Step::Add { partition, change } => Request::AddPartition { name: partition, change },
        Step::Resize { partition, cpus } => {
            let change = PartitionChange { cpus: Some(cpus), ..PartitionChange::default() };
            Request::SetPartition { name: partition, change }
        }
        Step::Move { vm, to } if to == DEFAULT => {
            Request::SetVm { name: vm, set: Asked::default(), reset: vec![Key::Partition] }
        }
        Step::Move { vm, to } => {
            let set = Asked { partition: Some(to), ..Asked::default() };
            Request::SetVm { name: vm, set, reset: Vec::new() }
        }
        Step::Remove { partition } => Request::RemovePartition { name: partition },
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! A partition that would help: VMs that wait for devices wait behind VMs that compute ([`crate::arrange`]).

use super::{Facts, Finding, Trial, VmFacts, WAITS, pct};
use crate::arrange::{Seen, Step, arrange};
use crate::asked::DEFAULT;
use crate::partition::{Partitions, slice_text};
use crate::profile::Class;
use std::fmt::Write;

pub fn look(facts: &Facts) -> Vec<Finding> {
    // What people have arranged is theirs.
    let is_arranged = facts.vms.iter().any(|vm| vm.partition.is_some());
    if is_arranged { Vec::new() } else { of_host(facts).into_iter().collect() }
}

fn of_host(facts: &Facts) -> Option<Finding> {
    let online = facts.online()?;
    let seen: Vec<Seen> = facts.vms.iter().map(|vm| seen(facts, vm)).collect();
    let arrangement = arrange(&Partitions::default(), &online, &seen);
    if arrangement.steps.is_empty() {
        return None;
    }
    let io = || (0..).zip(&facts.vms).filter(|(_, vm)| vm.evidence.class() == Class::Io);
    let ready: f64 = io().map(|(_, vm): (usize, _)| vm.ready()).sum();
    let vcpus: usize = io().map(|(_, vm)| vm.vcpus.len()).sum();
    if ready < WAITS * vcpus as f64 {
        return None;
    }
    let name = |vm: &VmFacts| vm.name.clone();
    let names: Vec<String> = io().map(|(_, vm)| name(vm)).collect();
    Some(Finding {
        rule: "partition",
        vm: None,
        lost_pcpus: ready,
        what: format!(
            "{} wait for devices, and behind VMs that compute: apart they would not",
            names.join(", ")
        ),
        evidence: format!(
            "these were ready for {} of their vCPUs' time; {}",
            pct(ready / vcpus.max(1) as f64),
            arrangement.why
        ),
        mend: vec!["drover partition auto --on".to_owned()],
        trial: trial(facts, &arrangement.steps),
    })
}

fn seen(facts: &Facts, vm: &VmFacts) -> Seen {
    let is_free = facts.allowed(vm) == facts.online() && vm.pool.is_none();
    let stays = (!is_free || vm.reservation_mcpu.is_some())
        .then(|| "it is confined, in a pool, or has a reservation".to_owned());
    Seen {
        name: vm.name.clone(),
        class: Some(vm.evidence.class()),
        wanted_pcpus: vm.evidence.wanted_pcpus,
        vcpus: u32::try_from(vm.vcpus.len()).unwrap_or(u32::MAX),
        partition: DEFAULT.to_owned(),
        stays,
        evidence: vm.evidence.text(),
    }
}

/// The same partitions in a scenario.
fn trial(facts: &Facts, steps: &[Step]) -> Result<Trial, &'static str> {
    if !facts.is_drover() {
        return Err("partitions are Drover's, and another scheduler was recorded");
    }
    let mut trial = Trial::default();
    for step in steps {
        match step {
            Step::Add { partition, change } => {
                let cpus = change.cpus.as_ref().and_then(|cpus| facts.in_scenario(cpus));
                let cpus = cpus.ok_or("its pCPUs are not known")?;
                let _ = write!(
                    trial.tables,
                    "\n[[partition]]\nname = \"{partition}\"\ncpus = \"{cpus}\"\n"
                );
                if let Some(policy) = change.policy {
                    let _ = writeln!(trial.tables, "policy = \"{}\"", policy.name());
                }
                if let Some(ns) = change.slice_ns {
                    let ms = ns as f64 / 1e6;
                    let _ = writeln!(trial.tables, "# {}\nslice_ms = {ms}", slice_text(ns));
                }
            }
            Step::Move { vm, to } => {
                let at = facts.vms.iter().position(|it| it.name == *vm);
                let at = at.ok_or("one of them is not there")?;
                trial.set.push((at, format!("partition=\"{to}\"")));
            }
            Step::Resize { .. } | Step::Remove { .. } => {}
        }
    }
    Ok(trial)
}

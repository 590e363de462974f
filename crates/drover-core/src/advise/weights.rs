// SPDX-License-Identifier: GPL-2.0-only
//! Weights that say nothing: all VMs have the same, or the VM that has one shares its pCPUs with no other.

use super::{Facts, Finding, Trial, VmFacts, how};
use crate::shares::Shares;

pub fn look(facts: &Facts) -> Vec<Finding> {
    equal(facts).map_or_else(|| alone(facts), |finding| vec![finding])
}

/// Its default.
fn default_of(facts: &Facts, vm: &VmFacts) -> u32 {
    let vcpus = u32::try_from(vm.vcpus.len()).unwrap_or(u32::MAX);
    // Under the kernel's scheduler all have the same.
    Shares::NORMAL.of_vm(if facts.is_drover() { vcpus } else { 1 })
}

/// All VMs have one, and the same.
fn equal(facts: &Facts) -> Option<Finding> {
    let parts =
        facts.vms.iter().map(|vm| Some(f64::from(vm.shares?) / f64::from(default_of(facts, vm))));
    let parts: Vec<f64> = parts.collect::<Option<_>>()?;
    let first = *parts.first().filter(|_| parts.len() > 1)?;
    let is = |part: f64, other: f64| (part / other - 1.0).abs() < 0.001;
    // Beside cgroups that have weights, those that were given none count as 1000.
    if !facts.is_drover() && is(first, 1.0) {
        return None;
    }
    let is_same = |part: &f64| is(*part, first);
    parts.iter().all(is_same).then(|| {
        let each: Vec<usize> = (0..facts.vms.len()).collect();
        finding(
            facts,
            &each,
            format!("all {} VMs have shares that were set, and all the same part", each.len()),
        )
    })
}

/// No other VM may run where it does.
fn alone(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    let is_set = |vm: &VmFacts| vm.shares.is_some_and(|it| it != default_of(facts, vm));
    for (at, vm) in facts.vms.iter().enumerate().filter(|(_, vm)| is_set(vm)) {
        let Some(own) = facts.allowed(vm) else { continue };
        let meets = |(other, vm): (usize, &VmFacts)| {
            other != at && facts.allowed(vm).is_some_and(|their| their.common(&own).is_some())
        };
        if !facts.vms.iter().enumerate().any(meets) {
            let what = "it has shares that were set, and no other VM runs where it does";
            let mut one = finding(facts, &[at], what.to_owned());
            one.vm = Some(at);
            found.push(one);
        }
    }
    found
}

fn finding(facts: &Facts, vms: &[usize], what: String) -> Finding {
    let shares: Vec<String> = vms
        .iter()
        .map(|&at| (&facts.vms[at].name, facts.vms[at].shares.unwrap_or(0)))
        .map(|(name, shares)| format!("{name} {shares}"))
        .collect();
    let mend = |&at: &usize| {
        let vm = &facts.vms[at];
        match facts.is_drover() {
            true => format!("drover vm set {} --shares default", how::word(&vm.name)),
            false => format!("echo 100 > {}", how::file(vm, "cpu.weight")),
        }
    };
    Finding {
        rule: "weights",
        vm: None,
        lost_pcpus: 0.0,
        what,
        evidence: format!("shares: {}", shares.join(", ")),
        mend: vms.iter().map(mend).collect(),
        trial: Ok(Trial {
            set: vms
                .iter()
                .map(|&at| (at, format!("shares={}", default_of(facts, &facts.vms[at]))))
                .collect(),
            ..Trial::default()
        }),
    }
}

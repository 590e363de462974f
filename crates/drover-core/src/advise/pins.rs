// SPDX-License-Identifier: GPL-2.0-only
//! Pinning that hurts: vCPUs wait on pCPUs that are full, while pCPUs that they may not use have room.

use super::{FULL, Facts, Finding, Trial, VmFacts, WAITS, each_vm, how, pct};
use crate::why::pcpus;

pub fn look(facts: &Facts) -> Vec<Finding> {
    each_vm(facts, of_vm)
}

/// Of one VM; none: its pins do no harm.
pub fn of_vm(facts: &Facts, at: usize, vm: &VmFacts) -> Option<Finding> {
    let all = facts.online()?;
    let hurts = |number: &usize| {
        let vcpu = &vm.vcpus[*number];
        let rest = vcpu.pin.as_ref().and_then(|pin| all.without(pin));
        vcpu.ready >= WAITS
            && vcpu.pin.as_ref().is_some_and(|pin| facts.busy(pin) >= FULL)
            && rest.is_some_and(|rest| facts.busy(&rest) < FULL)
    };
    let hurt: Vec<usize> = (0..vm.vcpus.len()).filter(hurts).collect();
    if hurt.is_empty() || vm.is_at_limit() {
        return None;
    }
    let of_hurt = || hurt.iter().map(|&number| &vm.vcpus[number]);
    let pins = facts.union(of_hurt().map(|vcpu| vcpu.pin.as_ref()))?;
    let ready: f64 = of_hurt().map(|vcpu| vcpu.ready).sum();
    // More than those have room for it does not gain.
    let rest = all.without(&pins);
    let room = rest.as_ref().map_or(0.0, |rest| facts.idle(rest));
    let others = rest.map_or(facts.busy(&all), |rest| facts.busy(&rest));
    Some(Finding {
        rule: "pins",
        vm: Some(at),
        lost_pcpus: ready.min(room.max(WAITS)),
        what: format!("{} of its vCPUs may run on {} only", hurt.len(), pcpus(pins.cpus())),
        evidence: format!(
            "these vCPUs were ready for {} of their time; these pCPUs are busy for {}, the others for {}",
            pct(ready / hurt.len() as f64),
            pct(facts.busy(&pins)),
            pct(others)
        ),
        mend: how::vcpus_on(vm, &hurt, &all),
        trial: Ok(Trial {
            set: vec![(at, format!("pin=\"0-{}\"", facts.pcpus.len() - 1))],
            ..Trial::default()
        }),
    })
}

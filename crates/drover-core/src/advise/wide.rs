// SPDX-License-Identifier: GPL-2.0-only
//! Over-wide VMs: more vCPUs than pCPUs that they may use, or than were ever busy at once.

use super::{Facts, Finding, VmFacts, each_vm, how, pct, pins};
use crate::why;

/// A VM that wanted less of the time is not judged by it, pCPUs.
const BUSY: f64 = 0.2;
/// Fewer vCPUs are not too many.
const VCPUS_LEAST: usize = 4;

pub fn look(facts: &Facts) -> Vec<Finding> {
    each_vm(facts, of_vm)
}

fn of_vm(facts: &Facts, at: usize, vm: &VmFacts) -> Option<Finding> {
    let vcpus = vm.vcpus.len();
    let allowed = facts.allowed(vm)?;
    let pcpus = allowed.cpus().len();
    let peak = (vm.at_once as usize).max(1);
    let has_more = vcpus > pcpus;
    let never_used = vcpus >= VCPUS_LEAST && 2 * peak <= vcpus && vm.ran() + vm.ready() >= BUSY;
    // Where others have room, it is the pins that are wrong.
    if !(has_more || never_used) || pins::of_vm(facts, at, vm).is_some() {
        return None;
    }
    let enough = if has_more { pcpus } else { peak };
    let what = match has_more {
        true => {
            format!("{vcpus} vCPUs on {}: they wait for each other", why::pcpus(allowed.cpus()))
        }
        false => format!("{vcpus} vCPUs, of which {peak} at once is all it used"),
    };
    let at_once = match has_more {
        true => String::new(),
        false => format!("; more than {peak} at once wanted to run for less than 1 % of the time"),
    };
    let mend = match &vm.domain {
        Some(domain) => format!("virsh setvcpus {} {enough} --config", how::word(domain)),
        None => format!("-smp {enough}, at its next start"),
    };
    Some(Finding {
        rule: "wide",
        vm: Some(at),
        lost_pcpus: if has_more { vm.ready() } else { 0.0 },
        what,
        evidence: format!(
            "in {:.0} s its vCPUs ran for {} of a pCPU and were ready for {}{at_once}",
            facts.window_s,
            pct(vm.ran()),
            pct(vm.ready()),
        ),
        mend: vec![mend],
        trial: Err("what its guest would do with fewer vCPUs is not known"),
    })
}

// SPDX-License-Identifier: GPL-2.0-only
//! Reservations that do not fit: what was asked for a VM and cannot be, and what is promised to one that cannot use it.

use super::{Facts, Finding, VmFacts, count, each_vm, how};
use crate::percent;

pub fn look(facts: &Facts) -> Vec<Finding> {
    each_vm(facts, of_vm)
}

fn of_vm(facts: &Facts, at: usize, vm: &VmFacts) -> Option<Finding> {
    let overview = facts.overview();
    let can_use_mcpu = u64::from(vm.all_mcpu());
    let has_mcpu = u64::from(vm.reservation_mcpu.unwrap_or(0));
    let (what, fits_mcpu) = match vm.troubles.first() {
        Some(first) => {
            let room_mcpu = has_mcpu + overview.promisable_mcpu();
            (format!("what was asked for it cannot be: {first}"), room_mcpu.min(can_use_mcpu))
        }
        None if has_mcpu > can_use_mcpu => (
            format!(
                "{} is promised to it, more than {} can use",
                percent::text64(has_mcpu),
                count(vm.vcpus.len(), "vCPU")
            ),
            can_use_mcpu,
        ),
        None => return None,
    };
    Some(Finding {
        rule: "promise",
        vm: Some(at),
        lost_pcpus: 0.0,
        what,
        evidence: format!(
            "VMs are promised {}, and {} more can be; this one has {}",
            percent::text64(overview.promised_mcpu()),
            percent::text64(overview.promisable_mcpu()),
            count(vm.vcpus.len(), "vCPU")
        ),
        mend: vec![format!(
            "drover vm set {} --reservation {}",
            how::word(&vm.name),
            percent::text64(fits_mcpu)
        )],
        trial: Err("it frees what can be promised, and nothing that is used"),
    })
}

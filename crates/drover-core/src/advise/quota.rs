// SPDX-License-Identifier: GPL-2.0-only
//! A cgroup's limit below what QEMU itself needs: as much as its vCPUs can use, with nothing for its other threads.

use super::{Facts, Finding, WAITS, count, how, pct};
use crate::percent;

/// Other threads that used less are as good as none, pCPUs.
const HELPERS: f64 = 0.005;
/// They are to have so much more than they used, and a tenth of a pCPU at least.
const SPARE: f64 = 2.0;

pub fn look(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    for (at, vm) in facts.vms.iter().enumerate() {
        let helpers_mcpu = (1000.0 * vm.helpers_ran) as u32;
        let no_room = vm.all_mcpu()..=vm.all_mcpu().saturating_add(helpers_mcpu);
        let Some(quota_mcpu) = vm.quota_mcpu.filter(|mcpu| no_room.contains(mcpu)) else {
            continue;
        };
        if vm.helpers_ran < HELPERS {
            continue;
        }
        let is_held = vm.is_at_limit() && vm.ready() >= WAITS * vm.vcpus.len() as f64;
        let spare_mcpu = (SPARE * 1000.0 * vm.helpers_ran) as u32;
        let spare_mcpu = spare_mcpu.clamp(100, vm.all_mcpu()).next_multiple_of(100);
        let wanted_mcpu = vm.all_mcpu() + spare_mcpu;
        found.push(Finding {
            rule: "quota",
            vm: Some(at),
            lost_pcpus: if is_held { vm.ready() } else { 0.0 },
            what: format!(
                "the limit of its cgroup, {}, is what {} can use: its other threads run at the expense of that",
                percent::text(quota_mcpu),
                count(vm.vcpus.len(), "vCPU")
            ),
            evidence: format!(
                "vCPUs ran for {} of a pCPU, the other threads of the process for {}; vCPUs were ready for {}",
                pct(vm.ran()),
                pct(vm.helpers_ran),
                pct(vm.ready())
            ),
            mend: how::limit(facts, vm, Some(wanted_mcpu)),
            trial: Err("threads of a VM that are no vCPUs are the host's own work there"),
        });
    }
    found
}

// SPDX-License-Identifier: GPL-2.0-only
//! Limits that throttle: a VM has all that its limit allows, and is ready for more.

use super::{Facts, Finding, Trial, WAITS, count, how, pct};
use crate::percent;

pub fn look(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    for (at, vm) in facts.vms.iter().enumerate() {
        let Some(limit_mcpu) = vm.limit_mcpu.filter(|&mcpu| mcpu < vm.all_mcpu()) else { continue };
        if !vm.is_at_limit() || vm.ready() < WAITS * vm.vcpus.len() as f64 {
            continue;
        }
        let idle = facts.online().map_or(0.0, |all| facts.idle(&all));
        found.push(Finding {
            rule: "limit",
            vm: Some(at),
            lost_pcpus: vm.ready(),
            what: format!("its limit of {} throttles it", percent::text(limit_mcpu)),
            evidence: format!(
                "it ran for {} of a pCPU and was ready for {} more; {idle:.1} of {} were idle",
                pct(vm.ran()),
                pct(vm.ready()),
                count(facts.pcpus.len(), "pCPU")
            ),
            mend: how::limit(facts, vm, None),
            trial: Ok(Trial {
                // All its vCPUs can use.
                set: vec![(at, format!("limit_pct={}", vm.all_mcpu() / 10))],
                ..Trial::default()
            }),
        });
    }
    found
}

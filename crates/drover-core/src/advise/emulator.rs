// SPDX-License-Identifier: GPL-2.0-only
//! Emulator threads on vCPUs' pCPUs: vCPUs that have pCPUs of their own wait there for other threads of their VM.

use super::{Facts, Finding, VmFacts, each_vm, how, pct};
use crate::why::pcpus;

/// vCPUs that waited for less were not kept, pCPUs.
const KEPT: f64 = 0.001;

pub fn look(facts: &Facts) -> Vec<Finding> {
    each_vm(facts, of_vm)
}

fn of_vm(facts: &Facts, at: usize, vm: &VmFacts) -> Option<Finding> {
    let one = |vcpu: &super::VcpuFacts| vcpu.pin.as_ref().is_some_and(|pin| pin.cpus().len() == 1);
    let rest = facts.online()?.without(&facts.allowed(vm)?)?;
    let shared = vm.helper_pins.as_ref()?.common(&facts.allowed(vm)?)?;
    if !vm.vcpus.iter().all(one) || vm.kept_by_helpers < KEPT {
        return None;
    }
    // Where there is room.
    let mend = match &vm.domain {
        Some(domain) => vec![
            format!("virsh emulatorpin {} {rest} --live --config", how::word(domain)),
            format!("<cputune><emulatorpin cpuset='{rest}'/></cputune>"),
        ],
        None => vm.helpers.iter().map(|it| format!("taskset -cp {rest} {it}")).collect(),
    };
    Some(Finding {
        rule: "emulator",
        vm: Some(at),
        lost_pcpus: vm.kept_by_helpers,
        what: format!(
            "its emulator's threads may run on {}, where its vCPUs are pinned",
            pcpus(shared.cpus())
        ),
        evidence: format!(
            "while its vCPUs were ready there these ran for {} of a pCPU; {} are free of its vCPUs, busy for {}",
            pct(vm.kept_by_helpers),
            pcpus(rest.cpus()),
            pct(facts.busy(&rest))
        ),
        mend,
        trial: Err("threads of a VM that are no vCPUs are the host's own work there"),
    })
}

// SPDX-License-Identifier: GPL-2.0-only
//! Pause-loop exits that are off: vCPUs that spin for a sibling keep the pCPU that it waits for.

use super::{Facts, Finding, WAITS, pct};

pub fn look(facts: &Facts) -> Vec<Finding> {
    let wide = || facts.vms.iter().filter(|vm| vm.vcpus.len() > 1);
    let vcpus: usize = facts.vms.iter().map(|vm| vm.vcpus.len()).sum();
    let waits = wide().any(|vm| vm.ready() >= WAITS * vm.vcpus.len() as f64);
    if facts.pause_exits != Some(false) || vcpus <= facts.pcpus.len() || !waits {
        return Vec::new();
    }
    let ready: f64 = wide().map(super::VmFacts::ready).sum();
    vec![Finding {
        rule: "pause",
        vm: None,
        lost_pcpus: 0.0,
        what: "pause-loop exits are off: a vCPU that spins for a sibling keeps its pCPU".to_owned(),
        evidence: format!(
            "{vcpus} vCPUs on {} pCPUs; VMs of several were ready for {} of a pCPU; the CPU has these exits",
            facts.pcpus.len(),
            pct(ready)
        ),
        mend: vec![
            "options kvm_intel ple_gap=128, in /etc/modprobe.d/kvm.conf; load it again".to_owned(),
            "options kvm_amd pause_filter_count=3000 pause_filter_thresh=128, the same on AMD"
                .to_owned(),
        ],
        trial: Err("spinning is computing in a recording"),
    }]
}

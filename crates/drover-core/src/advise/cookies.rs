// SPDX-License-Identifier: GPL-2.0-only
//! Core-scheduling cookies where cores have two threads: one thread idles while the other runs a vCPU of another VM.

use super::{Facts, Finding};

pub fn look(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    for (at, vm) in facts.vms.iter().enumerate().filter(|(_, vm)| vm.cookies > 0) {
        if !facts.shares_cores() {
            continue;
        }
        let under = match facts.is_drover() {
            true => "; before 7.3.4 a kernel may freeze with them under Drover",
            false => "",
        };
        found.push(Finding {
            rule: "cookies",
            vm: Some(at),
            lost_pcpus: 0.0,
            what: format!("its threads share a core with none but each other{under}"),
            evidence: format!(
                "{} of its threads have a core-scheduling cookie; cores have two threads here",
                vm.cookies
            ),
            mend: vec![
                "cloud-hypervisor --cpus boot=N,core_scheduling=off, if its neighbours are trusted"
                    .to_owned(),
            ],
            trial: Err("the simulator knows no cookies"),
        });
    }
    found
}

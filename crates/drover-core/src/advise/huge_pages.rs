// SPDX-License-Identifier: GPL-2.0-only
//! Memory of VMs on small pages: each miss of the TLB walks two tables of pages, the guest's and the host's.

use super::{Facts, Finding};

/// Less memory is not worth it, MiB.
const MEMORY_MIB: u64 = 1024;

pub fn look(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    for (at, vm) in facts.vms.iter().enumerate() {
        let all_mib: u64 = vm.memory_mib.values().sum();
        let Some(huge_mib) = vm.huge_mib.filter(|&mib| 2 * mib < all_mib) else { continue };
        if all_mib < MEMORY_MIB {
            continue;
        }
        let by_itself = facts.huge_pages.as_deref().unwrap_or("unknown");
        let mut mend = Vec::new();
        if by_itself == "never" {
            mend.push("echo madvise > /sys/kernel/mm/transparent_hugepage/enabled".to_owned());
        }
        mend.push(match vm.domain {
            Some(_) => "<memoryBacking><hugepages/></memoryBacking>".to_owned(),
            None => "-mem-path /dev/hugepages -mem-prealloc, at its next start".to_owned(),
        });
        found.push(Finding {
            rule: "huge-pages",
            vm: Some(at),
            lost_pcpus: 0.0,
            what: "most of its memory is on small pages".to_owned(),
            evidence: format!(
                "{huge_mib} of {all_mib} MiB are huge pages; transparent_hugepage is {by_itself}"
            ),
            mend,
            trial: Err("the simulator knows no pages"),
        });
    }
    found
}

// SPDX-License-Identifier: GPL-2.0-only
//! The commands that mend something of a VM, by what manages it.

use super::{Facts, VmFacts};
use crate::cpu_list::CpuList;
use crate::percent;

/// A name as a shell takes it for one word.
pub fn word(name: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._-+@:/".contains(letter);
    match !name.is_empty() && name.chars().all(is_plain) && !name.starts_with('-') {
        true => name.to_owned(),
        false => format!("'{}'", name.replace('\'', r"'\''")),
    }
}

/// The file of that cgroup.
pub fn file(vm: &VmFacts, name: &str) -> String {
    word(&format!("/sys/fs/cgroup{}/{name}", vm.cgroup))
}

/// Lets vCPUs run on these pCPUs: those of these numbers.
pub fn vcpus_on(vm: &VmFacts, numbers: &[usize], pcpus: &CpuList) -> Vec<String> {
    match &vm.domain {
        Some(domain) => {
            let domain = word(domain);
            let pin = |number| format!("virsh vcpupin {domain} {number} {pcpus} --live --config");
            numbers.iter().map(pin).collect()
        }
        None => {
            let thread = |number: &usize| vm.vcpus.get(*number).map(|vcpu| vcpu.thread);
            let threads = numbers.iter().filter_map(thread);
            threads.map(|thread| format!("taskset -cp {pcpus} {thread}")).collect()
        }
    }
}

/// Gives it that limit; none: no limit.
pub fn limit(facts: &Facts, vm: &VmFacts, mcpu: Option<u32>) -> Vec<String> {
    if facts.is_drover() {
        let limit = mcpu.map_or("none".to_owned(), percent::text);
        return vec![format!("drover vm set {} --limit {limit}", word(&vm.name))];
    }
    // Of the usual period, 100 ms.
    let quota_us = mcpu.map(|mcpu| mcpu.saturating_mul(100));
    match &vm.domain {
        Some(domain) => {
            let quota = quota_us.map_or("-1".to_owned(), |us| us.to_string());
            let domain = word(domain);
            vec![format!("virsh schedinfo {domain} --live --config global_quota={quota}")]
        }
        None => {
            let quota = quota_us.map_or("max".to_owned(), |us| us.to_string());
            vec![format!("echo {quota} > {}", file(vm, "cpu.max"))]
        }
    }
}

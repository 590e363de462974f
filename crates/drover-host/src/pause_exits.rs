// SPDX-License-Identifier: GPL-2.0-only
//! Whether KVM has a vCPU stopped that spins: pause-loop exits (Intel), the pause filter (AMD).

use crate::files;
use std::path::Path;

/// What the CPU calls it, and the parameter of KVM that is 0 where it is off.
const KINDS: [(&str, &str); 2] = [
    ("ple", "kvm_intel/parameters/ple_gap"),
    ("pausefilter", "kvm_amd/parameters/pause_filter_count"),
];

/// Whether they are on; none: the CPU has none, or KVM is not loaded.
pub fn pause_exits(root: &Path) -> Option<bool> {
    let cpus = files::kernel(&root.join("proc/cpuinfo")).ok()?;
    let has = |flag: &str| {
        let mut flags = cpus.lines().filter(|line| line.contains("flags"));
        flags.any(|line| line.split_whitespace().any(|word| word == flag))
    };
    KINDS.iter().filter(|(flag, _)| has(flag)).find_map(|(_, parameter)| {
        let text = files::kernel(&root.join("sys/module").join(parameter)).ok()?;
        Some(text.trim() != "0")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_host::host;

    #[test]
    fn they_are_on_off_or_not_there() {
        let of = |flags: &str, module: &str, value: &str| {
            let host = host(&[("proc/cpuinfo", flags), (&format!("sys/module/{module}"), value)]);
            pause_exits(host.path())
        };
        let intel = "flags\t: fpu vmx\nvmx flags\t: vnmi ple pml\n";
        assert_eq!(of(intel, "kvm_intel/parameters/ple_gap", "128\n"), Some(true));
        assert_eq!(of(intel, "kvm_intel/parameters/ple_gap", "0\n"), Some(false));
        let amd = "flags : svm pausefilter pfthreshold\n";
        assert_eq!(of(amd, "kvm_amd/parameters/pause_filter_count", "0\n"), Some(false));
        assert_eq!(of("flags : svm\n", "kvm_amd/parameters/pause_filter_count", "0\n"), None);
        assert_eq!(of(amd, "kvm/refcnt", "0\n"), None);
    }
}

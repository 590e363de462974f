// SPDX-License-Identifier: GPL-2.0-only
//! One look at the memory of a VM, as a recording takes it. May wait for the VM's process.

use super::{guest, maps::Maps};
use crate::files;
use crate::names;
use std::collections::BTreeMap;
use std::path::Path;

/// Files of the kernel are as long as a process has mappings.
const LINES_MAX: usize = 16 << 20;

/// Where the memory of a VM lies, and what its guest knows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Memory {
    /// MiB on each node.
    pub on_mib: BTreeMap<u32, u64>,
    /// MiB on huge pages; none: the kernel does not tell.
    pub huge_mib: Option<u64>,
    /// Whether its guest has nodes; none: not known.
    pub knows_nodes: Option<bool>,
}

/// Looks at that process.
pub fn memory_of(pid: u32) -> Memory {
    memory_under(Path::new("/proc"), pid)
}

fn memory_under(proc: &Path, pid: u32) -> Memory {
    let dir = proc.join(pid.to_string());
    let read = |name: &str| files::kernel_lines(&dir.join(name), LINES_MAX).unwrap_or_default();
    let on = Maps::of(&read("maps"), &read("numa_maps")).lies_mib();
    let number = |node: usize| u32::try_from(node).unwrap_or(u32::MAX);
    Memory {
        on_mib: on.into_iter().map(|(node, mib)| (number(node), mib)).collect(),
        huge_mib: huge_mib(&read("smaps_rollup")),
        knows_nodes: guest::knows_nodes(&names::arguments(&dir)),
    }
}

fn huge_mib(rollup: &str) -> Option<u64> {
    const HUGE: [&str; 5] = [
        "AnonHugePages:",
        "ShmemPmdMapped:",
        "FilePmdMapped:",
        "Shared_Hugetlb:",
        "Private_Hugetlb:",
    ];
    let kib = |line: &str| {
        let (key, value) = line.split_once(char::is_whitespace)?;
        HUGE.contains(&key).then(|| value.trim().trim_end_matches(" kB").parse::<u64>().ok())?
    };
    let all: Vec<u64> = rollup.lines().filter_map(kib).collect();
    (!all.is_empty()).then(|| all.iter().sum::<u64>() >> 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_host::host;

    #[test]
    fn where_memory_lies_and_on_which_pages_is_told() {
        let host = host(&[
            ("7/maps", "7f0000000000-7f0010000000 rw-p 00000000 00:00 0\n"),
            ("7/numa_maps", "7f0000000000 default anon=512 dirty=512 N1=512 kernelpagesize_kB=4\n"),
            (
                "7/smaps_rollup",
                "Rss:   300000 kB\nAnonHugePages:      4096 kB\nPrivate_Hugetlb:  2048 kB\n",
            ),
            ("7/cmdline", "/usr/bin/qemu-system-x86_64\0-numa\0node,cpus=0-3\0"),
            ("8/cmdline", "cloud-hypervisor\0-numa\0node\0"),
            ("9/cmdline", "/usr/bin/kvm\0-smp\x004\0"),
        ]);
        let of = |pid| memory_under(host.path(), pid);
        assert_eq!(of(7).on_mib, BTreeMap::from([(1, 2)]));
        assert_eq!((of(7).huge_mib, of(7).knows_nodes), (Some(6), Some(true)));
        assert_eq!((of(8).huge_mib, of(8).knows_nodes), (None, None));
        assert_eq!(of(9).knows_nodes, Some(false));
    }
}

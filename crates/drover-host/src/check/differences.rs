// SPDX-License-Identifier: GPL-2.0-only
//! What of this host the kernel leaves to its own scheduler, and so will be otherwise under Drover.

use std::path::{Path, PathBuf};

use super::{Point, State, read};
use crate::files::{self, ENTRIES_MAX};
use crate::rehearsal::vms_in;
use crate::sources::cgroup::{has_uneven_vcpus, is_of_threads};
use crate::sources::nice;

/// Nobody looks at more cgroups than this before the first start.
const CGROUPS_MAX: usize = 20_000;

/// One point for each difference that this host will see.
pub fn of(root: &Path) -> Vec<Point> {
    let cgroups = cgroups(&root.join("sys/fs/cgroup"));
    let vms = vms_in(&root.join("proc"));
    let uneven = vms.iter().filter(|vm| nice::differs(&root.join("proc"), vm.tgid)).count();
    let found = [
        numa_balancing(root),
        real_time(root),
        clamps(&cgroups),
        thread_quotas(&cgroups),
        nice_values(uneven),
        rival(root),
    ];
    found.into_iter().flatten().collect()
}

fn differs(what: &'static str, found: impl Into<String>, fix: &'static str) -> Point {
    Point { what, state: State::Differs, found: found.into(), fix }
}

fn numa_balancing(root: &Path) -> Option<Point> {
    let on = read(root, "proc/sys/kernel/numa_balancing").is_some_and(|value| value != "0");
    let nodes = read(root, "sys/devices/system/node/has_memory")?;
    let several = nodes.contains(['-', ',']);
    (on && several).then(|| {
        differs(
            "NUMA balancing",
            "the kernel moves no memory while Drover runs",
            "Drover moves that of VMs; other large processes: start them under `numactl`",
        )
    })
}

fn real_time(root: &Path) -> Option<Point> {
    let unthrottled = read(root, "proc/sys/kernel/sched_rt_runtime_us")? == "-1";
    unthrottled.then(|| {
        differs(
            "real-time tasks",
            "they are not throttled: one that never sleeps has its pCPU alone",
            "a VM that waits there for longer than Drover's watchdog has the kernel end Drover; \
             `sysctl kernel.sched_rt_runtime_us=950000`",
        )
    })
}

/// Utilisation clamps say how fast a pCPU is to be while a task runs, which takes the kernel's scheduler.
fn clamps(cgroups: &[PathBuf]) -> Option<Point> {
    let clamped =
        |dir: &&PathBuf| says(dir, "cpu.uclamp.min", "0.00") || says(dir, "cpu.uclamp.max", "max");
    let count = cgroups.iter().filter(clamped).count();
    (count > 0).then(|| {
        differs(
            "cgroups",
            format!("{count} with cpu.uclamp.min or .max, which nobody heeds"),
            "choose a speed with the cpufreq governor while Drover runs",
        )
    })
}

/// A quota of vCPUs is heeded where all of the VM's have the same; that of its other threads is not.
fn thread_quotas(cgroups: &[PathBuf]) -> Option<Point> {
    let of_threads = |dir: &&PathBuf| {
        let name = dir.file_name().unwrap_or_default().to_string_lossy();
        is_of_threads(&name) && !name.starts_with("vcpu")
    };
    let has_quota = |dir: &&PathBuf| {
        files::kernel(&dir.join("cpu.max")).is_ok_and(|text| !text.starts_with("max"))
    };
    let others = cgroups.iter().filter(of_threads).filter(has_quota).count();
    let uneven = cgroups.iter().filter(|dir| has_uneven_vcpus(dir)).count();
    let each = [
        (others, "of emulator or I/O threads with a cpu.max of their own, which nobody heeds"),
        (uneven, "of VMs whose vCPUs have different quotas, of which the sum holds"),
    ];
    let found: Vec<String> = (each.iter().filter(|(count, _)| *count > 0))
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    (!found.is_empty()).then(|| {
        differs(
            "cgroups of threads",
            found.join("; "),
            "set cpu.max for the VM's scope, or `drover vm set NAME --limit`",
        )
    })
}

/// Threads of one VM share alike.
fn nice_values(uneven: usize) -> Option<Point> {
    (uneven > 0).then(|| {
        differs(
            "nice values",
            format!("{uneven} VMs have threads of different nice values, which share alike"),
            "give all threads of a VM the same; what its vCPUs have counts beside other VMs",
        )
    })
}

/// Does that file of a cgroup say anything else?
fn says(dir: &Path, file: &str, default: &str) -> bool {
    files::kernel(&dir.join(file)).is_ok_and(|text| text.trim() != default)
}

fn cgroups(top: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![top.to_owned()];
    while let Some(dir) = open.pop() {
        let below = files::entries(&dir, ENTRIES_MAX);
        open.extend(
            below.filter(|it| it.file_type().is_ok_and(|it| it.is_dir())).map(|it| it.path()),
        );
        found.push(dir);
        if found.len() >= CGROUPS_MAX {
            break;
        }
    }
    found
}

/// Another sched_ext scheduler that starts at boot. The kernel runs one at a time, the first that starts.
fn rival(root: &Path) -> Option<Point> {
    let wants = root.join("etc/systemd/system/multi-user.target.wants");
    let units = files::entries(&wants, ENTRIES_MAX);
    let mut names = units.map(|unit| unit.file_name().to_string_lossy().into_owned());
    let rival = names.find(|name| name.starts_with("scx"))?;
    Some(differs(
        "start at boot",
        format!("{rival} loads another scheduler at boot"),
        "`systemctl disable` it: the kernel takes one sched_ext scheduler at a time",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_host::host;

    #[test]
    fn a_plain_host_sees_no_difference() {
        let host = host(&[
            ("proc/sys/kernel/numa_balancing", "1\n"),
            ("sys/devices/system/node/has_memory", "0\n"),
            ("proc/sys/kernel/sched_rt_runtime_us", "950000\n"),
            ("sys/fs/cgroup/a/cpu.uclamp.min", "0.00\n"),
            ("sys/fs/cgroup/a/cpu.uclamp.max", "max\n"),
        ]);
        assert_eq!(of(host.path()), []);
    }

    #[test]
    fn each_difference_is_said_with_what_to_do() {
        let host = host(&[
            ("proc/sys/kernel/numa_balancing", "1\n"),
            ("sys/devices/system/node/has_memory", "0-1\n"),
            ("proc/sys/kernel/sched_rt_runtime_us", "-1\n"),
            ("sys/fs/cgroup/a/b/cpu.uclamp.max", "50.00\n"),
            ("sys/fs/cgroup/vm/emulator/cpu.max", "1000 100000\n"),
            ("sys/fs/cgroup/vm/iothread1/cpu.max", "max 100000\n"),
            ("sys/fs/cgroup/vm/vcpu0/cpu.max", "50000 100000\n"),
            ("sys/fs/cgroup/vm/vcpu1/cpu.max", "max 100000\n"),
            ("etc/systemd/system/multi-user.target.wants/scx_loader.service", ""),
        ]);
        let points = of(host.path());
        let whats: Vec<_> = points.iter().map(|point| point.what).collect();
        let expected =
            ["NUMA balancing", "real-time tasks", "cgroups", "cgroups of threads", "start at boot"];
        assert_eq!(whats, expected);
        assert!(points.iter().all(|it| it.state == State::Differs && !it.fix.is_empty()));
        assert!(points[2].found.starts_with("1 with cpu.uclamp"), "{points:?}");
        let quotas = "1 of emulator or I/O threads with a cpu.max of their own, which nobody heeds; 1 of VMs whose \
                      vCPUs have different quotas, of which the sum holds";
        assert_eq!(points[3].found, quotas);
        assert!(nice_values(0).is_none() && nice_values(3).unwrap().found.starts_with("3 VMs"));
    }
}

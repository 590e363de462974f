// SPDX-License-Identifier: GPL-2.0-only
//! Faults of kernels by which a host freezes as a whole, no message, no way back but a reset, where any sched_ext scheduler
//! runs or starts.
//!
//! | fault | comes with | fixed in |
//! |---|---|---|
//! | a core-scheduling cookie where cores have two threads | 6.19 | 7.3.4 |
//! | PID 1 makes a PSI trigger while a scheduler starts | 7.1; updates 6.18.33 and 7.0.10 | 6.18.46, 7.1.9, 7.2 |
//!
//! How that was found out. Cookies: scx issue 3715 (open; seen on 7.1.3, where Cloud Hypervisor tags its vCPUs). Its
//! cause, a run queue's lock that is given up while a core's two threads choose together, came with "sched/ext: Fold
//! balance_scx() into pick_task_scx()" (6.19), says the first set of fixes, whose last is "sched_ext: Fix rq->core_pick
//! corruption under core scheduling" (7.2.4 by the stable tree's log). "Don't queue balance callbacks from a core-sched
//! pick" came after it, with 7.3.4. Nobody has said that 6.18 is free of all of this, so every kernel before 7.3.4 counts as
//! one that freezes; who knows better tells `drover serve`. PSI: scx issue 3716, where sched_ext's maintainer names the
//! commit that brought it, "sched/psi: fix race between file release and pressure write", and the one that fixes it,
//! "sched/psi: Create the psimon kthread outside of cgroup_mutex"; the releases are by the stable tree's log (that of
//! 6.18.33 by its date, the same as of 6.12.91 and 7.0.10, which have it).

use std::path::Path;

use super::{Point, State, read};
use crate::cookies::{Tagged, cookie_of, cookies_freeze, tagged};
use crate::release::version;

/// The name of the point about cookies, which `drover serve` can be told to pass over.
pub const CORE_SCHEDULING: &str = "core scheduling";
/// The name of the point about PSI triggers.
pub const PSI_TRIGGERS: &str = "PSI triggers";

/// The releases in which a PSI trigger does harm.
const PSI_FREEZES: [std::ops::Range<(u32, u32, u32)>; 2] =
    [(6, 18, 33)..(6, 18, 46), (7, 0, 10)..(7, 1, 9)];

/// One point for each of these faults that this host may meet.
pub fn of(root: &Path) -> Vec<Point> {
    [cookies(root, tagged(root, cookie_of)), psi_triggers(root)].into_iter().flatten().collect()
}

fn cookies(root: &Path, tagged: Option<Tagged>) -> Option<Point> {
    let tagged = tagged?;
    if !cookies_freeze(root) {
        return Some(Point {
            what: CORE_SCHEDULING,
            state: State::Differs,
            found: format!("{tagged}; who has one shares cores with its own only"),
            fix: "the kernel keeps cores apart, but shares and reservations hold less well; untested",
        });
    }
    Some(Point {
        what: CORE_SCHEDULING,
        state: State::Missing,
        found: format!(
            "{tagged}; with cores of two threads, kernels before 7.3.4 then freeze as a whole under any \
             sched_ext scheduler"
        ),
        fix: "boot 7.3.4 or newer; or start Cloud Hypervisor with `--cpus core_scheduling=off` and Incus' \
              containers with `core_scheduling=false`; or boot with `nosmt`; if this kernel has the fix, \
              `drover serve --allow-core-scheduling`",
    })
}

fn psi_triggers(root: &Path) -> Option<Point> {
    let version = version(root);
    let freezes = PSI_FREEZES.iter().any(|range| range.contains(&version));
    let makes_them = read(root, "proc/1/comm").is_some_and(|name| name == "systemd")
        && root.join("proc/pressure/memory").exists();
    (makes_them && freezes).then(|| Point {
        what: PSI_TRIGGERS,
        state: State::Lacking,
        found: "should systemd set up a PSI trigger, as it does at boot and for each unit that watches memory \
                pressure, just when a sched_ext scheduler starts, this kernel freezes"
            .to_owned(),
        fix: "boot 6.18.46, 7.1.9, 7.2 or newer; till then, do not start Drover at boot: it is the start alone that is in \
              danger, and lasts a moment",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_host::host;

    /// A host with cores of two threads, and of Cloud Hypervisor only the two vCPU threads have a cookie.
    const VMM: [(&str, &str); 5] = [
        ("sys/devices/system/cpu/smt/active", "1\n"),
        ("proc/1/task/1/comm", "systemd\n"),
        ("proc/20/task/20/comm", "cloud-hyperviso\n"),
        ("proc/20/task/21/comm", "vcpu0\n"),
        ("proc/20/task/22/comm", "vcpu1\n"),
    ];

    fn of_vcpus(root: &Path) -> Option<Tagged> {
        tagged(root, |tid| u64::from(tid > 20))
    }

    #[test]
    fn cookies_end_the_start_on_cores_of_two_threads_and_kernels_without_the_fix() {
        for (release, smt, is_missing) in [
            ("7.1.3", "1", true),
            ("7.3.3-cloud-amd64", "1", true),
            ("7.3.4-cloud-amd64", "1", false),
            ("7.4-rc1", "1", false),
            ("6.18.30+deb14-amd64", "1", true),
            ("7.1.3", "0", false),
        ] {
            let mut files = VMM.to_vec();
            files[0].1 = smt;
            files.push(("proc/sys/kernel/osrelease", release));
            let host = host(&files);
            let point = cookies(host.path(), of_vcpus(host.path())).unwrap();
            assert_eq!(point.state == State::Missing, is_missing, "{release}: {point:?}");
            assert_eq!(cookies(host.path(), None), None);
            let says = ["vcpu", "of process 20"].iter().all(|it| point.found.contains(it));
            assert!(says && !point.fix.is_empty(), "{point:?}");
        }
    }

    #[test]
    fn psi_triggers_are_a_danger_at_the_start_on_some_kernels() {
        for (release, pid1, is_said) in [
            ("7.1.3", "systemd\n", true),
            ("7.1.9", "systemd\n", false),
            ("7.1.3", "sh\n", false),
            ("7.0.12", "systemd\n", true),
            ("6.18.15+deb13-cloud-amd64", "systemd\n", false),
            ("6.18.45", "systemd\n", true),
            ("6.18.46", "systemd\n", false),
            ("7.2.0", "systemd\n", false),
        ] {
            let host = host(&[
                ("proc/sys/kernel/osrelease", release),
                ("proc/1/comm", pid1),
                ("proc/pressure/memory", ""),
            ]);
            let point = psi_triggers(host.path());
            assert_eq!(point.is_some(), is_said, "{release}: {point:?}");
            assert!(point.is_none_or(|it| it.state == State::Lacking && !it.fix.is_empty()));
        }
    }
}

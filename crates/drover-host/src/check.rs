// SPDX-License-Identifier: GPL-2.0-only
//! Is this host fit? What is there, what is missing, and the fix for each.

mod differences;
pub mod freezes;

use std::path::{Path, PathBuf};

use crate::files;
use crate::kvm;
use crate::release::version;
use crate::sources::config_file::{CONFIG_PATH, ConfigFile};
use crate::topology::Topology;
use drover_core::cpu_list::CpuList;
use drover_core::percent;
use drover_core::tree::pcpus::{HOST_PERMILLE, Pcpus};

/// How one point stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// There.
    Good,
    /// Something on this host will be otherwise than without the scheduler.
    Differs,
    /// Missing, but the scheduler runs without it.
    Lacking,
    /// Missing, and the scheduler cannot run.
    Missing,
}

/// One point of the check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Point {
    /// What was looked at.
    pub what: &'static str,
    /// How it stands.
    pub state: State,
    /// What was found.
    pub found: String,
    /// How to fix it, and what still works; empty when good.
    pub fix: &'static str,
}

/// Look at this host.
pub fn check_host() -> Vec<Point> {
    check_under(Path::new("/"), nix::unistd::geteuid().is_root())
}

/// May the scheduler be started?
pub fn is_fit(points: &[Point]) -> bool {
    points.iter().all(|point| point.state != State::Missing)
}

fn check_under(root: &Path, is_root: bool) -> Vec<Point> {
    vec![
        root_rights(is_root),
        kernel(root),
        sched_ext(root),
        nobody_else(root),
        isolation(root),
        btf(root),
        config(root),
        kvm_point(root),
        topology(root),
    ]
    .into_iter()
    .chain(reservations(root))
    .chain(freezes::of(root))
    .chain(differences::of(root))
    .collect()
}

/// The oldest kernel that Drover is tested on.
const OLDEST_KERNEL: (u32, u32, u32) = (6, 18, 0);

fn kernel(root: &Path) -> Point {
    let release = read(root, "proc/sys/kernel/osrelease").unwrap_or_default();
    if version(root) >= OLDEST_KERNEL {
        return good("kernel", release);
    }
    Point {
        what: "kernel",
        state: State::Missing,
        found: format!("{release} is older than 6.18, which Drover needs at least"),
        fix: "boot 6.18 or newer: Debian has them in its backports, Ubuntu from 26.04 on",
    }
}

/// The name of the point about other schedulers, which does not count where one gives way.
pub const NOBODY_ELSE: &str = "no other scheduler";

fn good(what: &'static str, found: impl Into<String>) -> Point {
    Point { what, state: State::Good, found: found.into(), fix: "" }
}

fn root_rights(is_root: bool) -> Point {
    if is_root {
        return good("root", "running as root");
    }
    Point {
        what: "root",
        state: State::Missing,
        found: "running as an ordinary user".into(),
        fix: "use sudo; `drover run FILE --on lab` works without",
    }
}

fn sched_ext(root: &Path) -> Point {
    match read(root, "sys/kernel/sched_ext/state") {
        Some(_) => good("sched_ext", "the kernel has it"),
        None => Point {
            what: "sched_ext",
            state: State::Missing,
            found: "the running kernel was built without it".into(),
            fix: "boot a kernel with CONFIG_SCHED_CLASS_EXT=y; \
                   `drover run FILE --on lab` brings its own kernel",
        },
    }
}

fn nobody_else(root: &Path) -> Point {
    let state = read(root, "sys/kernel/sched_ext/state").unwrap_or_default();
    if state.is_empty() || state == "disabled" {
        return good(NOBODY_ELSE, "none is loaded");
    }
    let name = read(root, "sys/kernel/sched_ext/root/ops").unwrap_or_else(|| "unknown".into());
    Point {
        what: NOBODY_ELSE,
        state: State::Missing,
        found: format!("{name} is loaded ({state})"),
        fix: "stop it first: only one sched_ext scheduler can be loaded",
    }
}

/// The kernel refuses any sched_ext scheduler where it was booted with pCPUs kept from its balancing.
fn isolation(root: &Path) -> Point {
    let arguments = read(root, "proc/cmdline").unwrap_or_default();
    match arguments.split_whitespace().find(|argument| isolates_domains(argument)) {
        None => good("isolation", "the kernel balances all pCPUs"),
        Some(argument) => Point {
            what: "isolation",
            state: State::Missing,
            found: format!("booted with {argument}, beside which the kernel takes no scheduler"),
            fix: "boot without; cpuset.cpus.partition=isolated, nohz_full= and \
                   isolcpus=managed_irq are taken",
        },
    }
}

/// `isolcpus=1-3` does, and with flags where `domain` is one of them.
fn isolates_domains(argument: &str) -> bool {
    let Some(value) = argument.strip_prefix("isolcpus=") else { return false };
    let mut flags =
        value.split(',').take_while(|word| word.starts_with(|c: char| c.is_alphabetic()));
    !value.starts_with(|c: char| c.is_alphabetic()) || flags.any(|flag| flag == "domain")
}

fn btf(root: &Path) -> Point {
    if root.join("sys/kernel/btf/vmlinux").exists() {
        return good("BTF", "the kernel describes its types");
    }
    Point {
        what: "BTF",
        state: State::Missing,
        found: "no /sys/kernel/btf/vmlinux".into(),
        fix: "boot a kernel with CONFIG_DEBUG_INFO_BTF=y",
    }
}

fn config(root: &Path) -> Point {
    let release = read(root, "proc/sys/kernel/osrelease").unwrap_or_default();
    let places = [PathBuf::from("proc/config.gz"), PathBuf::from(format!("boot/config-{release}"))];
    if let Some(place) = places.iter().find(|place| root.join(place).exists()) {
        return good("kernel config", format!("/{}", place.display()));
    }
    Point {
        what: "kernel config",
        state: State::Lacking,
        found: format!("no /boot/config-{release}"),
        fix: "install the kernel's own package; loading may fail without it",
    }
}

fn kvm_point(root: &Path) -> Point {
    let lacks = |found: &str, fix| Point {
        what: "KVM",
        state: State::Lacking,
        found: found.to_owned(),
        fix,
    };
    if !root.join("dev/kvm").exists() {
        return lacks(
            "no /dev/kvm: no VM can run here",
            "load kvm-intel or kvm-amd, or switch virtualisation on in the firmware; \
             host tasks are scheduled all the same",
        );
    }
    if !kvm::is_known(root) {
        return lacks(
            "its module is not loaded, and by its types VMs are found",
            "`drover serve` runs `modprobe kvm`; if that fails, load kvm-intel or kvm-amd before it",
        );
    }
    good("KVM", "/dev/kvm is there")
}

fn topology(root: &Path) -> Point {
    match Topology::read_from(&root.join("sys/devices/system")) {
        Ok(topology) => good("topology", topology.summary()),
        Err(err) => Point {
            what: "topology",
            state: State::Missing,
            found: format!("{err:#}"),
            fix: "mount sysfs on /sys",
        },
    }
}

/// What can be promised to VMs, and what the host's own tasks keep.
fn reservations(root: &Path) -> Option<Point> {
    let topology = Topology::read_from(&root.join("sys/devices/system")).ok()?;
    let online = (0..).zip(&topology.pcpus).filter(|(_, pcpu)| pcpu.online);
    let online = CpuList::of(online.map(|(number, _)| number))?;
    let file = ConfigFile::open(&root.join(CONFIG_PATH.trim_start_matches('/')));
    let permille = file.map_or(HOST_PERMILLE, |(_, config)| config.host_permille());
    let pcpus = Pcpus::of(online.clone(), &online, &topology.siblings()).kept_for_host(permille);
    let amounts = [pcpus.promisable_mcpu(), pcpus.capacity_mcpu(), pcpus.host_mcpu()];
    let [promisable, all, host] = amounts.map(percent::text64);
    let found =
        format!("VMs can have {promisable} of {all}; {host} is kept for the host's own tasks");
    Some(good("reservations", found))
}

fn read(root: &Path, path: &str) -> Option<String> {
    Some(files::kernel(&root.join(path)).ok()?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_host::host;

    const FIT: [(&str, &str); 8] = [
        ("sys/kernel/sched_ext/state", "disabled\n"),
        ("sys/kernel/btf/vmlinux", ""),
        ("proc/sys/kernel/osrelease", "9.9\n"),
        ("boot/config-9.9", ""),
        ("sys/module/kvm/refcnt", "0\n"),
        ("sys/devices/system/cpu/possible", "0\n"),
        ("sys/devices/system/cpu/online", "0\n"),
        ("dev/kvm", ""),
    ];

    #[test]
    fn a_fit_host_is_good_on_all_points() {
        let dir = host(&FIT);
        let points = check_under(dir.path(), true);
        assert!(points.iter().all(|point| point.state == State::Good), "{points:?}");
        assert!(is_fit(&points));
        let reservations = points.iter().find(|point| point.what == "reservations").unwrap();
        assert!(reservations.found.contains("90% of 100%; 10% is kept"), "{reservations:?}");
    }

    #[test]
    fn a_bare_host_is_told_every_mend() {
        let dir = host(&[]);
        let points = check_under(dir.path(), false);
        assert!(!is_fit(&points));
        for point in points.iter().filter(|point| point.state != State::Good) {
            assert!(!point.fix.is_empty(), "{point:?}");
        }
        let missing = |what| points.iter().any(|p| p.what == what && p.state == State::Missing);
        assert!(missing("root") && missing("sched_ext") && missing("BTF"));
    }

    #[test]
    fn kernels_that_cannot_run_it_are_known() {
        for (release, fit) in [
            ("6.12.48+deb13-cloud-amd64", false),
            ("6.17.0-5-generic", false),
            ("6.18-rc3", true),
            ("6.18.12+deb14-amd64", true),
            ("7.0.0", true),
            ("", false),
        ] {
            let dir = host(&[("proc/sys/kernel/osrelease", release)]);
            assert_eq!(kernel(dir.path()).state == State::Good, fit, "{release}");
        }
    }

    #[test]
    fn a_kernel_booted_with_isolated_pcpus_takes_no_scheduler() {
        for (arguments, fit) in [
            ("quiet nohz_full=1 isolcpus=nohz,managed_irq,1", true),
            ("quiet isolcpus=1-3", false),
            ("isolcpus=managed_irq,domain,1 quiet", false),
        ] {
            let mut files = FIT.to_vec();
            files.push(("proc/cmdline", arguments));
            let dir = host(&files);
            let points = check_under(dir.path(), true);
            assert_eq!(is_fit(&points), fit, "{arguments}: {points:?}");
        }
    }

    #[test]
    fn another_scheduler_is_named() {
        let mut files = FIT.to_vec();
        files[0] = ("sys/kernel/sched_ext/state", "enabled\n");
        files.push(("sys/kernel/sched_ext/root/ops", "scx_other\n"));
        let dir = host(&files);
        let points = check_under(dir.path(), true);
        let other = points.iter().find(|point| point.what == NOBODY_ELSE).unwrap();
        assert!(other.found.contains("scx_other"), "{other:?}");
        assert!(!is_fit(&points));
    }

    #[test]
    fn kvm_is_not_needed_to_start_and_what_is_missing_of_it_is_said() {
        for (missing, said) in [("dev/kvm", "no /dev/kvm"), ("sys/module/kvm/refcnt", "module")] {
            let files: Vec<_> = FIT.iter().copied().filter(|(path, _)| *path != missing).collect();
            let dir = host(&files);
            let points = check_under(dir.path(), true);
            let kvm = points.iter().find(|point| point.what == "KVM").unwrap();
            assert!(is_fit(&points) && kvm.found.contains(said), "{kvm:?}");
        }
    }
}

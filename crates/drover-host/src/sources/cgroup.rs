// SPDX-License-Identifier: GPL-2.0-only
//! The host's cgroups as they are now: what `cpu.weight`, `cpu.max` and `cpu.idle` say, and who is in them.
//!
//! The kernel enforces none of these on tasks of a sched_ext scheduler, so Drover does. What is made of them
//! is in `cgroup_tree.rs`.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Where cgroups are on every distribution of the last years.
pub const CGROUPS: &str = "/sys/fs/cgroup";
/// The default weight, of a cgroup that was given none.
pub const WEIGHT_NORMAL: u64 = 100;

/// Cgroups deeper than that have what the one above them at that depth has, whatever they say themselves. So deep
/// the kernel looks for the container of a task (CONTAINER_DEPTH_MAX, bpf/ground.bpf.h).
pub const DEPTH_MAX: usize = 32;

/// A cgroup with the cpu controller, and those in it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cgroup {
    /// From the root, which is empty: `/machine.slice/web.scope`.
    pub path: String,
    /// The kernel's number of it.
    pub id: u64,
    /// Its weight among its siblings; 0: it is idle, and stands behind all others.
    pub weight: u64,
    /// The most CPU, thousandths of a pCPU; none: no limit.
    pub limit_mcpu: Option<u32>,
    /// The user it was delegated to: the owner of the uppermost above it that is not root's; 0: none is.
    pub user: u32,
    /// Processes in it, not in those below.
    pub pids: Vec<u32>,
    /// Those in it.
    pub inside: Vec<Cgroup>,
}

impl Cgroup {
    /// All of them, from that directory down. `first` is told of each before it is read.
    pub fn read(root: &Path, first: &mut dyn FnMut(&Path)) -> Self {
        let mut read = read(root, "", (0, 0), first);
        // What root says of itself is for nobody to heed: it has no siblings.
        (read.weight, read.limit_mcpu) = (WEIGHT_NORMAL, None);
        read
    }
}

/// The cgroup of a process: `/machine.slice/web.scope`. libvirt's cgroups for single threads are left out.
pub fn path_of(tgid: u32) -> String {
    let membership = fs::read_to_string(format!("/proc/{tgid}/cgroup")).unwrap_or_default();
    let path = membership.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or_default();
    without_threads(path)
}

fn without_threads(path: &str) -> String {
    let mut names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
    while names.last().is_some_and(|name| is_of_threads(name)) {
        names.pop();
    }
    names.iter().map(|name| format!("/{name}")).collect()
}

/// One that is so deep, in a cgroup of that user's.
fn read(
    dir: &Path,
    path: &str,
    (depth, above): (usize, u32),
    first: &mut dyn FnMut(&Path),
) -> Cgroup {
    first(dir);
    let (id, owner) = dir.metadata().map_or((0, 0), |meta| (meta.ino(), meta.uid()));
    let user = if above > 0 { above } else { owner };
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let is_dir = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    let names =
        entries.filter(is_dir).map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| !is_of_threads(name)).collect();
    names.sort();
    // Where the controller is off, so it is in all below.
    let has_cpu = |name: &String| dir.join(name).join("cpu.weight").exists();
    let inside = names.iter().filter(|name| depth < DEPTH_MAX && has_cpu(name));
    let mut read_one =
        |name: &String| read(&dir.join(name), &format!("{path}/{name}"), (depth + 1, user), first);
    let inside = inside.map(&mut read_one).collect();
    let pids = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    Cgroup {
        path: path.to_owned(),
        id,
        user,
        weight: weight(dir),
        limit_mcpu: limit_mcpu(dir),
        pids: pids.lines().filter_map(|pid| pid.parse().ok()).collect(),
        inside,
    }
}

fn is_of_threads(name: &str) -> bool {
    let numbered = |kind: &str| {
        name.strip_prefix(kind)
            .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
    };
    name == "emulator" || numbered("vcpu") || numbered("iothread")
}

fn weight(dir: &Path) -> u64 {
    let number = |name: &str| fs::read_to_string(dir.join(name)).ok()?.trim().parse::<u64>().ok();
    match number("cpu.idle") {
        Some(1) => 0,
        _ => number("cpu.weight").unwrap_or(WEIGHT_NORMAL),
    }
}

/// The limit of a cgroup: its own, or, of a VM's, what its vCPUs' cgroups allow together.
fn limit_mcpu(dir: &Path) -> Option<u32> {
    let own = quota_mcpu(&dir.join("cpu.max"));
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let is_vcpu = |name: &str| name.starts_with("vcpu") && is_of_threads(name);
    let vcpus = entries.filter(|entry| is_vcpu(&entry.file_name().to_string_lossy()));
    let vcpus: Vec<_> = vcpus.map(|entry| entry.path().join("cpu.max")).collect();
    let of_vcpus: Option<u64> = vcpus.iter().map(|file| quota_mcpu(file).map(u64::from)).sum();
    let of_vcpus = of_vcpus.filter(|_| !vcpus.is_empty()).and_then(|mcpu| mcpu.try_into().ok());
    own.into_iter().chain(of_vcpus).min()
}

/// `50000 100000` (us of CPU time in each period of us) is half a pCPU; `max` is no limit.
fn quota_mcpu(file: &Path) -> Option<u32> {
    let text = fs::read_to_string(file).ok()?;
    let mut words = text.split_whitespace();
    let quota_us: u64 = words.next()?.parse().ok()?;
    let period_us: u64 = words.next()?.parse().ok().filter(|period_us| *period_us > 0)?;
    u32::try_from(quota_us.saturating_mul(1000) / period_us).ok().map(|mcpu| mcpu.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_host::host;

    #[test]
    fn what_cgroups_say_is_read_as_the_kernel_writes_it() {
        let host = host(&[
            ("web/cpu.weight", "400\n"),
            ("web/cpu.max", "20000 100000\n"),
            ("web/cpu.idle", "0\n"),
            ("web/cgroup.procs", "7\n8\n"),
            ("low/cpu.weight", "0\n"),
            ("low/cpu.idle", "1\n"),
            ("low/cpu.max", "max 100000\n"),
            ("other/cgroup.procs", "9\n"),
        ]);
        let root = Cgroup::read(host.path(), &mut |_| {});
        let [low, web] = &root.inside[..] else { panic!("without the controller: {root:?}") };
        assert_eq!((web.path.as_str(), web.weight, web.limit_mcpu), ("/web", 400, Some(200)));
        assert_eq!(web.pids, [7, 8]);
        assert_eq!((low.weight, low.limit_mcpu), (0, None));
        assert_eq!(low.id, host.path().join("low").metadata().unwrap().ino());
    }

    #[test]
    fn cgroups_are_read_to_a_depth_that_nobody_chooses_for_us() {
        let nested = |depth: usize| "n/".repeat(depth) + "cpu.weight";
        let files: Vec<String> = (1..=60).map(nested).collect();
        let files: Vec<(&str, &str)> = files.iter().map(|path| (path.as_str(), "200")).collect();
        let root = Cgroup::read(host(&files).path(), &mut |_| {});
        let deepest = std::iter::successors(Some(&root), |one| one.inside.first());
        assert_eq!(deepest.count(), 1 + DEPTH_MAX);
    }

    #[test]
    fn what_is_delegated_is_the_users_whoever_owns_what_is_below() {
        let host = host(&[("a/cpu.weight", "1"), ("a/b/cpu.weight", "1")]);
        let own = |path: &str| host.path().join(path).metadata().unwrap().uid();
        let root = Cgroup::read(host.path(), &mut |_| {});
        assert_eq!((root.user, root.inside[0].inside[0].user), (own(""), own("a/b")));
        let below = read(&host.path().join("a"), "/a", (1, 4711), &mut |_| {});
        assert_eq!((below.user, below.inside[0].user), (4711, 4711));
    }

    #[test]
    fn libvirts_cgroups_of_threads_count_as_their_vm() {
        let host = host(&[
            ("web/cpu.weight", "250"),
            ("web/libvirt/cpu.weight", "100"),
            ("web/libvirt/emulator/cpu.weight", "100"),
            ("web/libvirt/emulator/cpu.max", "1000 100000"),
            ("web/libvirt/vcpu0/cpu.max", "50000 100000"),
            ("web/libvirt/vcpu1/cpu.max", "25000 100000"),
        ]);
        let libvirt = &Cgroup::read(host.path(), &mut |_| {}).inside[0].inside[0];
        assert_eq!((libvirt.limit_mcpu, libvirt.inside.len()), (Some(750), 0));
        assert_eq!(without_threads("/web/libvirt/emulator"), "/web/libvirt");
        assert_eq!((without_threads("/"), without_threads("")), (String::new(), String::new()));
    }

    #[test]
    fn what_makes_no_sense_asks_nothing() {
        let host = host(&[("vm/cpu.max", "50000 0"), ("vm/cpu.weight", "x")]);
        let vm = &Cgroup::read(host.path(), &mut |_| {}).inside[0];
        assert_eq!((vm.weight, vm.limit_mcpu), (WEIGHT_NORMAL, None));
        assert!(Cgroup::read(Path::new("/nowhere"), &mut |_| {}).inside.is_empty());
        assert_eq!(path_of(0x3fff_fff0), "", "nobody has that number");
    }
}

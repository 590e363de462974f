// SPDX-License-Identifier: GPL-2.0-only
//! The host's cgroups as they are now: what `cpu.weight`, `cpu.max` and `cpu.idle` say, and who is in them.
//!
//! The kernel enforces none of these on tasks of a sched_ext scheduler, so Drover does. What is made of them
//! is in `cgroup_tree.rs`.

use crate::files::{self, ENTRIES_MAX};
use drover_core::cpu_list::CpuList;
use std::fs::DirEntry;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where cgroups are on every distribution of the last years.
pub const CGROUPS: &str = "/sys/fs/cgroup";
/// So many are looked at, a level after the other, and none that are deeper: who is in one beyond counts as in the
/// deepest that is known.
pub const CGROUPS_MAX: usize = 20_000;
/// The default weight, of a cgroup that was given none.
pub const WEIGHT_NORMAL: u64 = 100;

/// The usual period of a quota, in which a limit brings what it lets be used at once (LIMIT_DEPTH_NS in
/// policy/limit/limit.h).
const PERIOD_NORMAL_US: u64 = 100_000;

/// Cgroups deeper than that have what the one above them at that depth has, whatever they say themselves. So deep
/// the kernel looks for the container of a task (CONTAINER_DEPTH_MAX, bpf/ground.bpf.h).
pub const DEPTH_MAX: usize = 32;

/// The most CPU that a cgroup may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Quota {
    /// In the long run, thousandths of a pCPU.
    pub mcpu: u32,
    /// What it may save up beside what comes in 100 ms, us of CPU time.
    pub burst_us: u32,
}

/// A cgroup with the cpu controller, and those in it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cgroup {
    /// From the root, which is empty: `/machine.slice/web.scope`.
    pub path: String,
    /// The kernel's number of it.
    pub id: u64,
    /// Its weight among its siblings; 0: it is idle, and stands behind all others.
    pub weight: u64,
    /// The most CPU; none: no limit.
    pub limit: Option<Quota>,
    /// That limit is what its vCPUs' cgroups allow together.
    pub is_of_vcpus: bool,
    /// Of a VM's: the most of each of its vCPUs; none: they have no limits, or different ones.
    pub vcpu_limit: Option<Quota>,
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
        let all = find(root, first);
        let mut read = read(&all, 0, 0);
        // What root says of itself is for nobody to heed: it has no siblings.
        (read.weight, read.limit, read.vcpu_limit) = (WEIGHT_NORMAL, None, None);
        read
    }

    /// How many these are.
    pub fn count(&self) -> usize {
        1 + self.inside.iter().map(Cgroup::count).sum::<usize>()
    }
}

/// The cgroup of a process: `/machine.slice/web.scope`. libvirt's cgroups for single threads are left out.
pub fn path_of(tgid: u32) -> String {
    let membership = files::kernel(Path::new(&format!("/proc/{tgid}/cgroup"))).unwrap_or_default();
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

/// One of them as it was found: where it is, and the places of those in it.
struct Found {
    path: String,
    dir: PathBuf,
    depth: usize,
    inside: Vec<usize>,
}

/// All that are looked at, level by level: the thousands that a user may have made are deep in his own subtree, and
/// leave out only others as deep.
fn find(root: &Path, first: &mut dyn FnMut(&Path)) -> Vec<Found> {
    let found = |path: String, dir: PathBuf, depth| Found { path, dir, depth, inside: Vec::new() };
    let mut all = vec![found(String::new(), root.to_owned(), 0)];
    let mut next = 0;
    while let Some(Found { path, dir, depth, .. }) = all.get(next) {
        first(dir);
        let depth = depth + 1;
        let room = if depth > DEPTH_MAX { 0 } else { CGROUPS_MAX - all.len() };
        let names = names_in(dir, room);
        let inside: Vec<Found> = (names.iter())
            .map(|name| found(format!("{path}/{name}"), dir.join(name), depth))
            .collect();
        all[next].inside = (all.len()..all.len() + inside.len()).collect();
        all.extend(inside);
        next += 1;
    }
    all
}

/// The names of the cgroups with the cpu controller in one.
fn names_in(dir: &Path, most: usize) -> Vec<String> {
    let is_dir = |entry: &DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    // Where the controller is off, so it is in all below.
    let has_cpu = |entry: &DirEntry| entry.path().join("cpu.weight").exists();
    let inside = files::entries(dir, ENTRIES_MAX).filter(|it| is_dir(it) && has_cpu(it));
    // A name that is no text cannot be told from others: who is in there is in the cgroup around it.
    let names = inside.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| !is_of_threads(name)).collect();
    names.sort();
    names.truncate(most);
    names
}

/// The cgroup at that place, with those in it; the one around it was delegated to that user.
fn read(all: &[Found], place: usize, above: u32) -> Cgroup {
    let Found { path, dir, inside, .. } = &all[place];
    let (id, owner) = dir.metadata().map_or((0, 0), |meta| (meta.ino(), meta.uid()));
    let user = if above > 0 { above } else { owner };
    // No VM is missed: the numbers of 2,047 take less.
    let pids = files::kernel(&dir.join("cgroup.procs")).unwrap_or_default();
    let (limit, is_of_vcpus, vcpu_limit) = limits(dir);
    Cgroup {
        path: path.clone(),
        id,
        user,
        weight: weight(dir),
        limit,
        is_of_vcpus,
        vcpu_limit,
        pids: pids.lines().filter_map(|pid| pid.parse().ok()).collect(),
        inside: inside.iter().map(|&place| read(all, place, user)).collect(),
    }
}

/// Is that what libvirt calls a cgroup of some of a VM's threads?
pub fn is_of_threads(name: &str) -> bool {
    let numbered = |kind: &str| {
        name.strip_prefix(kind)
            .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
    };
    name == "emulator" || numbered("vcpu") || numbered("iothread")
}

fn weight(dir: &Path) -> u64 {
    let number = |name: &str| files::kernel(&dir.join(name)).ok()?.trim().parse::<u64>().ok();
    match number("cpu.idle") {
        Some(1) => 0,
        _ => number("cpu.weight").unwrap_or(WEIGHT_NORMAL),
    }
}

/// The most CPU that the cgroup at that path says for itself, thousandths of a pCPU.
pub fn quota_mcpu(path: &str) -> Option<u32> {
    Quota::of(&Path::new(CGROUPS).join(path.trim_start_matches('/'))).map(|quota| quota.mcpu)
}

/// The pCPUs where tasks of the cgroup at that path may run.
pub fn cpus(path: &str) -> Option<CpuList> {
    cpus_below(Path::new(CGROUPS), path)
}

/// As the nearest of it and those above it says: one without the cpuset controller says nothing.
fn cpus_below(root: &Path, path: &str) -> Option<CpuList> {
    let dir = root.join(path.trim_start_matches('/'));
    let says = |dir: &Path| files::kernel(&dir.join("cpuset.cpus.effective")).ok();
    let above = dir.ancestors().take_while(|dir| dir.starts_with(root));
    above.filter_map(says).next()?.trim().parse().ok()
}

/// The limit of a cgroup, its own, or, of a VM's, what its vCPUs' cgroups allow together; whether it is that; and that of
/// each of these, where all have the same.
fn limits(dir: &Path) -> (Option<Quota>, bool, Option<Quota>) {
    let each: Option<Vec<Quota>> = vcpu_quotas(dir).into_iter().collect();
    let each = each.unwrap_or_default();
    let same = each.first().filter(|first| each.iter().all(|one| one == *first)).copied();
    let sum = each.into_iter().reduce(Quota::and);
    let limit = Quota::of(dir).into_iter().chain(sum).min();
    (limit, sum.is_some() && limit == sum, same)
}

/// What each of a VM's vCPUs may have, by libvirt's cgroups in that of the VM.
fn vcpu_quotas(dir: &Path) -> Vec<Option<Quota>> {
    let is_vcpu = |name: &str| name.starts_with("vcpu") && is_of_threads(name);
    let entries = files::entries(dir, ENTRIES_MAX);
    let vcpus = entries.filter(|entry| is_vcpu(&entry.file_name().to_string_lossy()));
    vcpus.map(|entry| Quota::of(&entry.path())).collect()
}

/// Do some vCPUs of the VM in that cgroup have other quotas than the rest?
pub fn has_uneven_vcpus(dir: &Path) -> bool {
    let each = vcpu_quotas(dir);
    each.iter().any(|one| *one != each[0])
}

impl Quota {
    /// That of a cgroup, with its burst; none: no limit.
    fn of(dir: &Path) -> Option<Self> {
        let burst_us = files::kernel(&dir.join("cpu.max.burst")).ok();
        let burst_us = burst_us.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
        Some(Self::read(&dir.join("cpu.max"))?.with_burst(burst_us))
    }

    /// `50000 100000` (us of CPU time in each period of us) is half a pCPU; `max` is no limit. What a longer period
    /// brings may be used at once, as under the kernel's scheduler.
    fn read(file: &Path) -> Option<Self> {
        let text = files::kernel(file).ok()?;
        let mut words = text.split_whitespace();
        let quota_us: u64 = words.next()?.parse().ok()?;
        let period_us: u64 = words.next()?.parse().ok().filter(|period_us| *period_us > 0)?;
        let mcpu = u32::try_from(quota_us.saturating_mul(1000) / period_us).ok()?.max(1);
        let at_once_us = u64::from(mcpu) * PERIOD_NORMAL_US / 1000;
        let burst_us = u32::try_from(quota_us.saturating_sub(at_once_us)).unwrap_or(u32::MAX);
        let is_long = period_us > PERIOD_NORMAL_US;
        Some(Self { mcpu, burst_us: if is_long { burst_us } else { 0 } })
    }

    fn with_burst(self, burst_us: u32) -> Self {
        Self { burst_us: self.burst_us.saturating_add(burst_us), ..self }
    }

    /// Both together.
    fn and(self, other: Self) -> Self {
        let mcpu = self.mcpu.saturating_add(other.mcpu);
        Self { mcpu, ..self }.with_burst(other.burst_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_host::host;

    fn mcpu(cgroup: &Cgroup) -> Option<u32> {
        cgroup.limit.map(|quota| quota.mcpu)
    }

    #[test]
    fn a_container_may_run_where_it_or_the_nearest_above_it_says() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("pods/web/inside")).unwrap();
        let says = |dir: &str, text: &str| {
            std::fs::write(root.path().join(dir).join("cpuset.cpus.effective"), text).unwrap();
        };
        let cpus = |path: &str| cpus_below(root.path(), path).map(|cpus| cpus.cpus().to_vec());
        assert_eq!(cpus("/pods/web"), None);
        says("", "0-3\n");
        says("pods/web", "1,3\n");
        assert_eq!(cpus("/pods"), Some(vec![0, 1, 2, 3]));
        assert_eq!(cpus("/pods/web/inside"), Some(vec![1, 3]));
        says("pods/web", "\n");
        assert_eq!(cpus("/pods/web"), None, "all of its pCPUs are offline");
    }

    #[test]
    fn what_cgroups_say_is_read_as_the_kernel_writes_it() {
        let host = host(&[
            ("web/cpu.weight", "400\n"),
            ("web/cpu.max", "20000 100000\n"),
            ("web/cpu.max.burst", "5000\n"),
            ("web/cpu.idle", "0\n"),
            ("web/cgroup.procs", "7\n8\n"),
            ("low/cpu.weight", "0\n"),
            ("low/cpu.idle", "1\n"),
            ("low/cpu.max", "max 100000\n"),
            ("other/cgroup.procs", "9\n"),
        ]);
        let root = Cgroup::read(host.path(), &mut |_| {});
        let [low, web] = &root.inside[..] else { panic!("without the controller: {root:?}") };
        assert_eq!((web.path.as_str(), web.weight, mcpu(web)), ("/web", 400, Some(200)));
        assert_eq!(web.limit.map(|quota| quota.burst_us), Some(5000));
        assert_eq!(web.pids, [7, 8]);
        assert_eq!((low.weight, mcpu(low)), (0, None));
        assert_eq!(low.id, host.path().join("low").metadata().unwrap().ino());
    }

    #[test]
    fn what_is_delegated_is_the_users_whoever_owns_what_is_below() {
        let host = host(&[("a/cpu.weight", "1"), ("a/b/cpu.weight", "1")]);
        let own = |path: &str| host.path().join(path).metadata().unwrap().uid();
        let root = Cgroup::read(host.path(), &mut |_| {});
        assert_eq!((root.user, root.inside[0].inside[0].user), (own(""), own("a/b")));
        let below = read(&find(&host.path().join("a"), &mut |_| {}), 0, 4711);
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
        assert_eq!((mcpu(libvirt), libvirt.inside.len()), (Some(750), 0));
        assert!(libvirt.is_of_vcpus);
        assert_eq!(libvirt.vcpu_limit, None, "they differ");
        assert_eq!(without_threads("/web/libvirt/emulator"), "/web/libvirt");
        assert_eq!((without_threads("/"), without_threads("")), (String::new(), String::new()));
    }

    #[test]
    fn a_quota_for_each_vcpu_is_theirs() {
        let host = host(&[
            ("web/cpu.weight", "100"),
            ("web/vcpu0/cpu.max", "50000 100000"),
            ("web/vcpu1/cpu.max", "50000 100000"),
        ]);
        let web = &Cgroup::read(host.path(), &mut |_| {}).inside[0];
        assert_eq!(web.vcpu_limit, Some(Quota { mcpu: 500, burst_us: 0 }));
        assert_eq!(mcpu(web), Some(1000));
    }

    #[test]
    fn deep_and_many_cgroups_leave_out_the_deepest() {
        let deep = "/d".repeat(DEPTH_MAX + 9);
        let host = host(&[(&format!("{deep}/x")[1..], ""), ("high/cpu.weight", "300")]);
        let mut dir = host.path().to_owned();
        for name in deep.split('/').skip(1) {
            dir.push(name);
            std::fs::write(dir.join("cpu.weight"), "200").unwrap();
        }
        let root = Cgroup::read(host.path(), &mut |_| {});
        let depth = std::iter::successors(Some(&root), |it| it.inside.first()).count() - 1;
        assert_eq!((depth, root.count()), (DEPTH_MAX, DEPTH_MAX + 2));
        let all: Vec<Found> = find(host.path(), &mut |_| {});
        assert!(all.windows(2).all(|two| two[0].depth <= two[1].depth), "a level after the other");
        assert_eq!(names_in(host.path(), 1), ["d"]);
    }

    #[test]
    fn a_name_that_is_no_text_is_not_looked_into() {
        use std::os::unix::ffi::OsStrExt;
        let host = host(&[("vm/cpu.weight", "300")]);
        let odd = host.path().join("vm").join(std::ffi::OsStr::from_bytes(b"x\xff"));
        std::fs::create_dir(&odd).unwrap();
        std::fs::write(odd.join("cpu.weight"), "900").unwrap();
        let vm = &Cgroup::read(host.path(), &mut |_| {}).inside[0];
        assert_eq!((vm.weight, vm.inside.len()), (300, 0));
    }

    #[test]
    fn what_a_long_period_brings_may_be_used_at_once() {
        let burst_us = |max: &str, burst: &str| {
            let host =
                host(&[("vm/cpu.weight", "100"), ("vm/cpu.max", max), ("vm/cpu.max.burst", burst)]);
            let quota = Cgroup::read(host.path(), &mut |_| {}).inside[0].limit.unwrap();
            (quota.mcpu, quota.burst_us)
        };
        // 200 ms of work each 500 ms under 50 %: of the 250 that the period brings 50 come in 100 ms.
        assert_eq!(burst_us("250000 500000", "0"), (500, 200_000));
        assert_eq!(burst_us("250000 500000", "3000"), (500, 203_000));
        assert_eq!(burst_us("50000 100000", "0"), (500, 0));
        assert_eq!(burst_us("5000 10000", "7000"), (500, 7000));
    }

    #[test]
    fn what_makes_no_sense_asks_nothing() {
        let host = host(&[("vm/cpu.max", "50000 0"), ("vm/cpu.weight", "x")]);
        let vm = &Cgroup::read(host.path(), &mut |_| {}).inside[0];
        assert_eq!((vm.weight, mcpu(vm)), (WEIGHT_NORMAL, None));
        assert!(Cgroup::read(Path::new("/nowhere"), &mut |_| {}).inside.is_empty());
        assert_eq!(path_of(0x3fff_fff0), "", "nobody has that number");
    }
}

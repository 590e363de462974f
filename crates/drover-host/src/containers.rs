// SPDX-License-Identifier: GPL-2.0-only
//! Follows the host's cgroups: reads them when the kernel says that something about them has changed, and
//! tells it which of them are containers.
//!
//! Of `cpu.idle` not every kernel tells its scheduler: that file is watched. How nice VMs are counts within cgroups, so
//! that is followed here, too.

use crate::kernel::{Kernel, KernelVm, Refusal, Slots};
use crate::names::user_name;
use crate::pace::{LOOKS_ONE_IN, cpu_time, next_after};
use crate::sources::cgroup::{CGROUPS_MAX, Cgroup, path_of};
use crate::sources::cgroup_tree::{CgroupTree, Container, Place};
use crate::sources::nice::{Nice, NiceValues};
use drover_core::tree::POOLS_MAX;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Cgroups are read no more often than that, however often they change, and more rarely where there are many.
const READ_INTERVAL: Duration = Duration::from_millis(400);

/// What the cgroups are now.
#[derive(Debug)]
pub struct Containers {
    root: PathBuf,
    tree: CgroupTree,
    nice: NiceValues,
    /// When cgroups were read last, and what there was then.
    read: Option<(Instant, Seen)>,
    /// The CPU time that it took.
    took: Duration,
    /// Some container could not be made, and why.
    lacking: Option<String>,
    /// What was said of that last.
    said: Option<String>,
    /// There are more cgroups than are looked at.
    many: bool,
    /// So many of them may be pools.
    pool_places: usize,
    /// Says that somebody has written a `cpu.idle`.
    idle: Option<Inotify>,
}

/// What cgroups are read again for.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    /// How often anything about cgroups had changed.
    changes: u32,
    /// The VMs and their vCPUs.
    vms: Vec<(u64, u32)>,
    /// How many of these count.
    sizes: Vec<u32>,
    /// How nice each is.
    nice: Vec<Option<Nice>>,
    /// How many cgroups may be pools.
    pool_places: usize,
}

impl Containers {
    /// Of the cgroups below `root`.
    pub fn below(root: &Path) -> Self {
        let (tree, root, nice) = (CgroupTree::default(), root.to_owned(), NiceValues::default());
        Self {
            root,
            tree,
            nice,
            read: None,
            took: Duration::ZERO,
            lacking: None,
            said: None,
            many: false,
            pool_places: POOLS_MAX / 2,
            idle: None,
        }
    }

    /// There are so many pools that no cgroups are: of the places that these leave half are for cgroups.
    pub fn leave_places(&mut self, others: usize) {
        self.pool_places = POOLS_MAX.saturating_sub(others) / 2;
    }

    /// What is made of the cgroups, as they were read last.
    pub fn tree(&self) -> &CgroupTree {
        &self.tree
    }

    /// Looks again, `seen` being all VMs and containers; whether anything is different.
    pub fn look(&mut self, kernel: &dyn Kernel, seen: &[KernelVm], now: Instant) -> bool {
        let vms = || seen.iter().filter(|vm| vm.cgroup == 0);
        self.nice.look(vms(), |vm| kernel.vcpus(vm), now);
        let is_now = Seen {
            changes: kernel.cgroup_changes(),
            vms: vms().map(|vm| (vm.id, vm.nr_vcpus)).collect(),
            sizes: vms().map(|vm| vm.size).collect(),
            nice: vms().map(|vm| self.nice.of(vm.id).cloned()).collect(),
            pool_places: self.pool_places,
        };
        if let Some((at, before)) = &self.read {
            let soon = now.duration_since(*at) < next_after(self.took, READ_INTERVAL, LOOKS_ONE_IN);
            let is_same = || *before == is_now && self.lacking.is_none() && !self.idle_changed();
            // What is asked for a new VM is in force from the first.
            if before.vms == is_now.vms && (soon || is_same()) {
                return false;
            }
        }
        self.read = Some((now, is_now));
        let begun = cpu_time();
        let place = |vm: &KernelVm| Place {
            tgid: vm.tgid,
            path: path_of(vm.tgid),
            size: vm.size,
            nice: self.nice.of(vm.id).cloned(),
        };
        let places: Vec<Place> = vms().map(place).collect();
        // None where it cannot be had: then it is seen with the next other change.
        let idle = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC).ok();
        let cgroups = Cgroup::read(&self.root, &mut |dir| {
            if let Some(idle) = &idle {
                // The root has no such file.
                let _ = idle.add_watch(&dir.join("cpu.idle"), AddWatchFlags::IN_MODIFY);
            }
        });
        close_elsewhere(std::mem::replace(&mut self.idle, idle));
        let (many, told) = (cgroups.count() >= CGROUPS_MAX, self.many);
        self.many = many;
        if many && !told {
            tracing::warn!(
                "there are more than {CGROUPS_MAX} cgroups; what is set for the deepest of them is not followed"
            );
        }
        let tree = CgroupTree::of(&cgroups, &places, self.pool_places);
        if tree.unplaced > 0 && self.tree.unplaced == 0 {
            tracing::warn!(
                "cgroups would be {} pools, and there are places for {}: each user, and each subtree of the root's own, \
                 has a part of them; what is in one without a place stands in the cgroup around it, with a part of its \
                 cpu.weight and cpu.max",
                tree.unplaced + tree.pools.len(),
                self.pool_places
            );
        }
        let changed = tree != self.tree;
        self.tree = tree;
        let is_new = self.settle(kernel, seen);
        self.took = cpu_time() - begun;
        is_new | changed
    }

    fn idle_changed(&self) -> bool {
        self.idle.as_ref().is_some_and(|idle| idle.read_events().is_ok())
    }

    /// Has the kernel know the containers there are; whether it did not before.
    fn settle(&mut self, kernel: &dyn Kernel, seen: &[KernelVm]) -> bool {
        let known: HashSet<u64> = seen.iter().map(|vm| vm.cgroup).filter(|&id| id != 0).collect();
        let all = &self.tree.containers;
        let gone: Vec<u64> = known.iter().copied().filter(|id| !all.contains_key(id)).collect();
        for &cgroup in &gone {
            if let Err(error) = kernel.set_container(cgroup, 0, false) {
                tracing::debug!("{error:#}");
            }
        }
        let new: Vec<_> = all.iter().filter(|(id, _)| !known.contains(id)).collect();
        let fails =
            |one: &&(&u64, &Container)| kernel.set_container(*one.0, one.1.user, true).is_err();
        let failed = new.iter().filter(fails).count();
        // Room for more is made in a moment, and what was said needs not be said again.
        let lacking = (failed > 0).then(|| no_room(failed, kernel.slots()));
        if let Some(line) = lacking.as_ref().filter(|_| self.lacking.is_some()) {
            if self.said.as_ref() != Some(line) {
                tracing::warn!("{line}");
                self.said = Some(line.clone());
            }
        }
        self.lacking = lacking;
        !gone.is_empty() || new.len() > failed
    }
}

/// To close it waits for a thread of the kernel's, which on a busy host takes its time.
fn close_elsewhere(watch: Option<Inotify>) {
    let Some(watch) = watch else { return };
    // Where there can be no thread it is closed here.
    let _ = std::thread::Builder::new().name("drover-close".to_owned()).spawn(|| drop(watch));
}

/// What to say of so many containers that could not be made.
fn no_room(failed: usize, slots: Slots) -> String {
    let count = Slots::COUNT;
    match slots.refusal() {
        Refusal::NotMadeYet => {
            format!(
                "{failed} containers run as tasks of what they are in until queues of theirs are made"
            )
        }
        Refusal::Full => format!(
            "{failed} containers run as tasks of what they are in: {count} VMs and containers at most have settings \
             of their own"
        ),
        Refusal::CrowdedUser(user) => format!(
            "user {} has as many VMs and containers as there is room left for: {failed} containers beyond run as \
             tasks of what they are in; one user has half of what others leave of {count} at most",
            user_name(user)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconciler::tests::FakeKernel;
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    fn host(dir: &Path, name: &str, weight: &str) -> u64 {
        let dir = dir.join(name);
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("cpu.weight"), weight).unwrap();
        dir.metadata().unwrap().ino()
    }

    #[test]
    fn cgroups_are_read_when_the_kernel_says_so_and_not_too_often() {
        let dir = tempfile::tempdir().unwrap();
        let (kernel, begun) = (FakeKernel::default(), Instant::now());
        let mut containers = Containers::below(dir.path());
        let web = host(dir.path(), "web", "400");
        assert!(containers.look(&kernel, &[], begun));
        assert_eq!(containers.tree().containers[&web].path, "/web");
        assert!(kernel.containers.borrow().contains(&web));
        let seen = [KernelVm { tgid: 0, cgroup: web, nr_vcpus: 0, ..KernelVm::for_test(1) }];
        host(dir.path(), "web", "100");
        let later = begun + Duration::from_secs(1);
        assert!(!containers.look(&kernel, &seen, later), "nobody said that it changed");
        kernel.cgroup_changes.set(1);
        assert!(containers.look(&kernel, &seen, later));
        assert!(containers.tree().containers.is_empty());
        assert!(kernel.containers.borrow().is_empty());
        host(dir.path(), "web", "400");
        kernel.cgroup_changes.set(2);
        assert!(!containers.look(&kernel, &[], later + READ_INTERVAL / 2), "in a moment");
        assert!(containers.look(&kernel, &[], later + READ_INTERVAL));
        fs::write(dir.path().join("web/cpu.idle"), "0").unwrap();
        kernel.cgroup_changes.set(3);
        let mut now = later;
        let mut look = |it: &mut Containers| {
            now += Duration::from_secs(1);
            it.look(&kernel, &seen, now)
        };
        assert!(!look(&mut containers), "nothing else than before");
        fs::write(dir.path().join("web/cpu.idle"), "1").unwrap();
        assert!(look(&mut containers), "although nobody said that it changed");
        assert!(!look(&mut containers));
    }

    #[test]
    fn a_vm_that_is_reniced_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (kernel, begun) = (FakeKernel::default(), Instant::now());
        let mut containers = Containers::below(dir.path());
        let vm = KernelVm::for_test(1);
        let says = |it: &Containers| {
            it.tree().vms[&vm.tgid].first().map(|layer| layer.origin.clone()).unwrap_or_default()
        };
        containers.look(&kernel, &[vm], begun);
        assert_eq!(says(&containers), "");
        let nice = Nice { weight: 110, said: "nice 10".to_owned() };
        containers.nice = NiceValues::of_one(&vm, nice, begun);
        let later = |s| begun + Duration::from_secs(s);
        assert!(containers.look(&kernel, &[vm], later(1)));
        assert_eq!(says(&containers), "nice 10");
        assert!(!containers.look(&kernel, &[vm], later(2)));
        // Nobody has its number: what is asked then, after the kernel said that it was reniced, is nothing.
        let reniced = KernelVm { weight_changes: 1, ..vm };
        assert!(containers.look(&kernel, &[reniced], later(3)));
        assert_eq!(says(&containers), "");
    }
}

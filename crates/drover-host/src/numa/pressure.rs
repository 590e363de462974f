// SPDX-License-Identifier: GPL-2.0-only
//! What VMs have of caches and memory, by whatever the host offers.
//!
//! Idea. Of these the first that works is taken, when the daemon starts:
//!
//! | source | what it tells | what it takes |
//! |---|---|---|
//! | resctrl | cache that a VM fills, MiB; memory that it moves, MiB/s | a monitoring group for each VM |
//! | hardware counters | memory that it moves: misses of the last-level cache, a line each | 100 ms of every 2 s, of 512 threads at most |
//! | demand | nothing: CPU time that is wanted stands for it | |
//!
//! resctrl is left alone where somebody else has groups there: a thread is in one group only. Ours are called
//! `drover-N`, are made and removed as VMs come and go, and those of a daemon that was killed are used again.
//! Threads that a VM starts later are in its group, as the kernel has it.
//!
//! Counters are asked for user mode of host and guests only, by who may look into others (`helper`): that takes no
//! capability beyond those that it keeps, where kernel.perf_event_paranoid is 2 or less.
//!
//! Limitations. A group belongs to the VM's process as it was when the VM was found. Counters see what misses, not
//! what is fetched ahead or written back. Where a host has no more groups, or a VM more threads than are looked at,
//! nothing is known of that VM.

use crate::files::{self, ENTRIES_MAX};
use crate::helper::{COUNTS, Helper, ITEMS_MAX, Op};
use drover_core::place::Pressure;
use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often it is looked at, and so many threads at once.
pub(super) const LOOKS: Duration = Duration::from_secs(2);
const MOST_THREADS: usize = ITEMS_MAX;
/// A miss moves one line.
const LINE_BYTES: f64 = 64.0;
const MIB: f64 = (1 << 20) as f64;
const RESCTRL: &str = "/sys/fs/resctrl";
const OURS: &str = "drover-";

/// A VM's number, and its process.
pub(super) type Process = (u64, u32);

/// Tells what VMs have; the host does, or a test.
pub(super) trait Gauge: Send {
    /// What it is called, for people.
    fn source(&self) -> &'static str;
    /// What these have, as far as it is known; may take [`COUNTS`].
    fn measure(&mut self, vms: &[Process]) -> HashMap<u64, Pressure>;
    /// Where it writes.
    fn writes(&self) -> &'static [&'static str] {
        &[]
    }
}

/// The first that works here; none: the host tells nothing.
pub(super) fn best(helper: &Arc<Helper>) -> Option<Box<dyn Gauge>> {
    match Resctrl::at(Path::new(RESCTRL)) {
        Ok(Some(resctrl)) => return Some(Box::new(resctrl)),
        Ok(None) => {}
        Err(owner) => {
            tracing::info!("resctrl is left alone: {owner} is somebody else's group");
        }
    }
    let counters = Counters { helper: Arc::clone(helper), known: HashMap::new(), turn: 0 };
    // 0 is who is asked.
    match counters.misses(&[0])?[0].is_nan() {
        false => Some(Box::new(counters)),
        true => None,
    }
}

/// What pressure is known by, for people.
pub(super) fn source(gauge: Option<&dyn Gauge>) -> &'static str {
    gauge.map_or("demand alone", Gauge::source)
}

/// Monitoring groups of resctrl.
#[derive(Debug)]
struct Resctrl {
    groups: PathBuf,
    /// What each VM had moved in all, and when that was.
    moved: HashMap<u64, (f64, Instant)>,
}

impl Resctrl {
    /// Where that is mounted and can tell; none: it is not. The error: whose group is there.
    fn at(root: &Path) -> Result<Option<Self>, String> {
        if !root.join("info/L3_MON").is_dir() {
            return Ok(None);
        }
        let groups = root.join("mon_groups");
        let is_own = |name: &str| ["info", "mon_data", "mon_groups"].contains(&name);
        let theirs = names(root).into_iter().find(|name| !is_own(name));
        let theirs = theirs.or_else(|| names(&groups).into_iter().find(|it| !it.starts_with(OURS)));
        theirs.map_or(Ok(Some(Self { groups, moved: HashMap::new() })), Err)
    }

    fn group(&self, id: u64) -> PathBuf {
        self.groups.join(format!("{OURS}{id}"))
    }

    /// Gives the VM a group, with all threads that it has.
    fn found(&self, (id, pid): Process) -> io::Result<()> {
        let group = self.group(id);
        match fs::create_dir(&group) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        for thread in threads(pid) {
            // A thread that has ended meanwhile cannot be added.
            #[allow(clippy::disallowed_methods, reason = "a file of the kernel's")]
            let _ = fs::write(group.join("tasks"), thread.to_string());
        }
        Ok(())
    }

    /// The sum over all caches of that number of the VM; none where a cache does not tell.
    fn sum(&self, id: u64, what: &str) -> Option<f64> {
        let data = self.group(id).join("mon_data");
        let of_cache = |name: String| {
            files::kernel(&data.join(name).join(what)).ok()?.trim().parse::<f64>().ok()
        };
        names(&data).into_iter().filter(|name| name.starts_with("mon_L3")).map(of_cache).sum()
    }

    fn remove_but(&mut self, vms: &[Process]) {
        self.moved.retain(|id, _| vms.iter().any(|vm| vm.0 == *id));
        for name in names(&self.groups).iter().filter_map(|name| name.strip_prefix(OURS)) {
            if !vms.iter().any(|(id, _)| id.to_string() == name) {
                // What is left is tried again in 2 s.
                let _ = fs::remove_dir(self.groups.join(format!("{OURS}{name}")));
            }
        }
    }
}

impl Gauge for Resctrl {
    fn source(&self) -> &'static str {
        "resctrl"
    }

    fn writes(&self) -> &'static [&'static str] {
        &[RESCTRL]
    }

    fn measure(&mut self, vms: &[Process]) -> HashMap<u64, Pressure> {
        self.remove_but(vms);
        let mut known = HashMap::new();
        for &(id, pid) in vms {
            if !self.moved.contains_key(&id) && self.found((id, pid)).is_err() {
                continue;
            }
            let (moved, now) = (self.sum(id, "mbm_total_bytes").unwrap_or(0.0), Instant::now());
            let Some((before, then)) = self.moved.insert(id, (moved, now)) else { continue };
            let rate = (moved - before).max(0.0) / MIB / (now - then).as_secs_f64().max(1e-3);
            let cache_mib = self.sum(id, "llc_occupancy").map(|bytes| bytes / MIB);
            known.insert(id, Pressure { cache_mib, memory_mib_s: (moved > 0.0).then_some(rate) });
        }
        known
    }
}

impl Drop for Resctrl {
    fn drop(&mut self) {
        self.remove_but(&[]);
    }
}

/// Misses of last-level caches, counted for each thread in turn.
#[derive(Debug)]
struct Counters {
    helper: Arc<Helper>,
    /// What was told last, as not all are looked at each time.
    known: HashMap<u64, Pressure>,
    /// Which VM is first.
    turn: usize,
}

impl Gauge for Counters {
    fn source(&self) -> &'static str {
        "hardware counters"
    }

    fn measure(&mut self, vms: &[Process]) -> HashMap<u64, Pressure> {
        self.known.retain(|id, _| vms.iter().any(|vm| vm.0 == *id));
        let mut left = MOST_THREADS;
        let (mut all, mut counted) = (Vec::new(), Vec::new());
        for at in 0..vms.len() {
            let (id, pid) = vms[(self.turn + at) % vms.len()];
            let of_vm = threads(pid);
            if of_vm.len() > left {
                self.turn = (self.turn + at.max(1)) % vms.len();
                break;
            }
            left -= of_vm.len();
            counted.push((id, of_vm.len()));
            all.extend(of_vm.into_iter().map(u64::from));
        }
        let mut misses = self.misses(&all).unwrap_or_default().into_iter();
        for (id, threads) in counted {
            let of_vm: Vec<f64> = misses.by_ref().take(threads).collect();
            if of_vm.len() == threads {
                // One that is gone has none.
                let misses: f64 = of_vm.into_iter().filter(|it| !it.is_nan()).sum();
                let rate = misses * LINE_BYTES / MIB / COUNTS.as_secs_f64();
                self.known.insert(id, Pressure { cache_mib: None, memory_mib_s: Some(rate) });
            }
        }
        self.known.clone()
    }
}

impl Counters {
    /// The misses of each of these threads; not a number where it cannot be counted. None: nobody says.
    fn misses(&self, threads: &[u64]) -> Option<Vec<f64>> {
        let asked = self.helper.names.ask(Op::Misses, 0, (threads.to_vec(), Vec::new()));
        let bytes = asked.inspect_err(|error| tracing::debug!("no counters: {error}")).ok()?;
        let each =
            bytes.chunks_exact(8).map(|it| f64::from_ne_bytes(it.try_into().expect("eight")));
        Some(each.collect()).filter(|all: &Vec<f64>| all.len() == threads.len())
    }
}

/// The threads of that process.
fn threads(pid: u32) -> Vec<u32> {
    let names = names(Path::new(&format!("/proc/{pid}/task")));
    names.into_iter().filter_map(|name| name.parse().ok()).collect()
}

/// The directories in that one.
fn names(dir: &Path) -> Vec<String> {
    let dirs = files::entries(dir, ENTRIES_MAX).filter(|it| it.path().is_dir());
    dirs.filter_map(|it| it.file_name().into_string().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As resctrl is with these groups.
    fn resctrl(dirs: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for dir in ["info/L3_MON", "mon_data/mon_L3_00", "mon_groups"].iter().chain(dirs) {
            fs::create_dir_all(root.path().join(dir)).unwrap();
        }
        root
    }

    /// What the kernel has in a group.
    fn tells(root: &Path, id: u64, cache: [&str; 2], moved: [&str; 2]) {
        for at in 0..2 {
            let data = root.join(format!("mon_groups/drover-{id}/mon_data/mon_L3_0{at}"));
            fs::create_dir_all(&data).unwrap();
            fs::write(data.join("llc_occupancy"), cache[at]).unwrap();
            fs::write(data.join("mbm_total_bytes"), moved[at]).unwrap();
        }
    }

    #[test]
    fn groups_of_resctrl_tell_what_a_vm_fills_and_moves() {
        let root = resctrl(&[]);
        let mut gauge = Resctrl::at(root.path()).unwrap().unwrap();
        let vms = [(7, std::process::id())];
        assert!(gauge.measure(&vms).is_empty(), "nothing is known of its past");
        let task = fs::read_to_string(root.path().join("mon_groups/drover-7/tasks")).unwrap();
        assert!(task.parse::<u32>().is_ok(), "{task}");
        tells(root.path(), 7, ["1048576", "3145728"], ["1000000000", "9000000000\n"]);
        let pressure = gauge.measure(&vms)[&7];
        assert_eq!(pressure.cache_mib, Some(4.0));
        assert!(pressure.memory_mib_s.unwrap() > 1.0, "{pressure:?}");
        tells(root.path(), 7, ["1048576", "Unavailable"], ["Unavailable", "Unavailable"]);
        assert_eq!(gauge.measure(&vms)[&7], Pressure::default());
    }

    #[test]
    fn groups_go_with_their_vms_and_those_that_were_left_behind_too() {
        let root = resctrl(&["mon_groups/drover-1"]);
        let mut gauge = Resctrl::at(root.path()).unwrap().unwrap();
        let groups = |root: &Path| names(&root.join("mon_groups"));
        gauge.measure(&[]);
        assert!(groups(root.path()).is_empty());
        assert!(gauge.measure(&[(2, 0x3fff_fff0)]).is_empty(), "it has gone already");
        assert_eq!(groups(root.path()), ["drover-2"]);
        drop(gauge);
        assert!(groups(root.path()).is_empty());
    }

    #[test]
    fn what_somebody_else_has_of_resctrl_is_left_alone() {
        for theirs in ["mon_groups/libvirt", "tenant-a"] {
            let root = resctrl(&[theirs]);
            let name = theirs.rsplit('/').next().unwrap();
            assert_eq!(Resctrl::at(root.path()).unwrap_err(), name);
        }
        let none = tempfile::tempdir().unwrap();
        assert!(Resctrl::at(none.path()).unwrap().is_none(), "it is not mounted");
    }

    #[test]
    fn misses_of_threads_are_counted_where_the_host_can() {
        let helper = Helper::for_test();
        let mut gauge = Counters { helper, known: HashMap::new(), turn: 0 };
        if gauge.misses(&[0]).is_none_or(|it| it[0].is_nan()) {
            return;
        }
        let known = gauge.measure(&[(3, std::process::id()), (4, 0x3fff_fff0)]);
        assert!(known[&3].memory_mib_s.is_some() && known[&4].memory_mib_s == Some(0.0));
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! What `drover observe` knows of the VMs second by second, for some minutes.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::Path;

use anyhow::Result;
use drover_core::asked::Key;
use drover_host::control::{Answer, Request};
use drover_host::files;
use drover_host::sources::cgroup::{self, CGROUPS};
use drover_host::status::VmStatus;
use nix::time::{ClockId, clock_gettime};

use crate::forward::Forward;
use crate::observer::{Reading, VcpuTimes};
use crate::snapshot::{cpu_time_of, scheduler_in_charge};

/// So far back it reaches, s.
pub const KEPT_S: u32 = 300;
/// Samples that are kept: a second apart, and one at either end.
const KEPT: usize = KEPT_S as usize + 2;

/// Of two samples closer than that one is enough.
const CLOSE_NS: u64 = 500_000_000;

/// One moment.
#[derive(Debug, Clone, Default)]
pub struct Sample {
    /// When, on the kernel's monotonic clock.
    pub at_ns: u64,
    /// The sched_ext scheduler in charge; none: the kernel's own.
    pub scheduler: Option<String>,
    /// VMs by their processes.
    pub vms: BTreeMap<u32, VmSample>,
    /// What Drover says of them, where it schedules.
    pub told: HashMap<u32, VmStatus>,
}

/// A VM at one moment.
#[derive(Debug, Clone, Default)]
pub struct VmSample {
    /// Its vCPUs.
    pub vcpus: Vec<VcpuTimes>,
    /// Its helpers.
    pub helpers: Vec<u32>,
    /// CPU time of all its threads, ns.
    pub cpu_ns: u64,
    /// How long limits of cgroups have held threads in them, us: its own cgroup, then those around it.
    pub throttled_us: Vec<(String, u64)>,
}

impl VmSample {
    /// A figure summed over its vCPUs.
    pub fn sum(&self, of: fn(&VcpuTimes) -> u64) -> u64 {
        self.vcpus.iter().map(of).sum()
    }
}

/// Now, on the kernel's monotonic clock.
///
/// # Errors
/// Never, on Linux.
pub fn now_ns() -> Result<u64> {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC)?;
    Ok(u64::try_from(now.tv_sec())? * 1_000_000_000 + u64::try_from(now.tv_nsec())?)
}

impl Sample {
    /// Looks around, beside what the observer was read.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn take(Reading { vcpus, io }: &Reading, forward: &mut Forward) -> Result<Self> {
        let mut sample =
            Self { at_ns: now_ns()?, scheduler: scheduler_in_charge(), ..Self::default() };
        for times in vcpus.iter().filter(|times| times.at_ns != 0) {
            sample.vms.entry(times.process).or_default().vcpus.push(*times);
        }
        for thread in io.iter().filter(|thread| !thread.is_vcpu) {
            if let Some(vm) = sample.vms.get_mut(&thread.process) {
                vm.helpers.push(thread.thread);
            }
        }
        for (pid, vm) in &mut sample.vms {
            vm.vcpus.sort_unstable_by_key(|vcpu| (vcpu.number, vcpu.thread));
            let cpu = cpu_time_of(*pid).unwrap_or_default();
            vm.cpu_ns = u64::try_from(cpu.as_nanos()).unwrap_or(u64::MAX);
            vm.throttled_us = throttled_us(Path::new(CGROUPS), &cgroup::path_of(*pid));
        }
        if sample.scheduler.as_deref() == Some("drover") {
            // Without an answer there is what the kernel knows.
            if let Ok(Answer::Vms { vms }) = forward.ask(&Request::ListVms { brief: false }) {
                sample.told = vms.into_iter().map(|vm| (vm.pid, vm)).collect();
            }
        }
        Ok(sample)
    }
}

/// What the cgroup at that path says of its limit, and those around it but the root.
fn throttled_us(root: &Path, path: &str) -> Vec<(String, u64)> {
    let mut found = Vec::new();
    let mut path = path;
    while !path.is_empty() {
        let dir = root.join(&path[1..]);
        if let Some(us) = throttled_us_of(&dir) {
            // libvirt limits each vCPU in a cgroup of its own.
            let inside = files::entries(&dir, files::ENTRIES_MAX);
            let vcpus = inside.filter(|it| it.file_name().to_string_lossy().starts_with("vcpu"));
            let of_vcpus: u64 = vcpus.filter_map(|it| throttled_us_of(&it.path())).sum();
            found.push((path.to_owned(), us + of_vcpus));
        }
        path = path.rsplit_once('/').map_or("", |(above, _)| above);
    }
    found
}

fn throttled_us_of(dir: &Path) -> Option<u64> {
    let text = files::kernel(&dir.join("cpu.stat")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("throttled_usec ")?.parse().ok())
}

/// The last samples, in the order of time.
#[derive(Debug, Default)]
pub struct Samples(VecDeque<Sample>);

impl Samples {
    /// Keeps one more; the oldest may go. Where somebody asks often, one in between goes.
    pub fn add(&mut self, sample: Sample) {
        let mut newest = self.0.iter().rev().map(|sample| sample.at_ns);
        if let (Some(last), Some(before)) = (newest.next(), newest.next()) {
            if last - before < CLOSE_NS {
                self.0.pop_back();
            }
        }
        if self.0.len() >= KEPT {
            self.0.pop_front();
        }
        self.0.push_back(sample);
    }

    /// Forgets all: another observer counts from nothing.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// The last one.
    pub fn last(&self) -> Option<&Sample> {
        self.0.back()
    }

    /// The last one that is so old at least and has that VM; else the first that has it.
    pub fn before(&self, at_ns: u64, pid: u32) -> Option<&Sample> {
        let has_it = |sample: &&Sample| sample.vms.contains_key(&pid);
        let old = self.0.iter().filter(has_it).take_while(|sample| sample.at_ns <= at_ns).last();
        old.or_else(|| self.0.iter().find(has_it))
    }

    /// The same among those since Drover has had the VM on the terms of the last one: what it waited for before an
    /// order has nothing to do with what it is to have now.
    pub fn before_on_same_terms(&self, at_ns: u64, pid: u32) -> Option<&Sample> {
        let now = terms(self.last()?, pid);
        let is_same = |sample: &&Sample| {
            sample.vms.contains_key(&pid) && (now.is_none() || terms(sample, pid) == now)
        };
        let mut oldest = None;
        for sample in self.0.iter().rev().take_while(is_same) {
            oldest = Some(sample);
            if sample.at_ns <= at_ns {
                break;
            }
        }
        oldest
    }
}

/// What a VM is to have as Drover tells it.
#[derive(PartialEq)]
struct Terms<'a> {
    values: Vec<(Key, &'a str)>,
    pool: Option<&'a str>,
    partition: &'a str,
}

fn terms(sample: &Sample, pid: u32) -> Option<Terms<'_>> {
    let vm = sample.told.get(&pid)?;
    let values = vm.why.iter().map(|why| (why.key, why.value.as_str())).collect();
    Some(Terms { values, pool: vm.pool.as_deref(), partition: &vm.partition })
}

#[cfg(test)]
mod tests {
    use super::*;
    use drover_core::resolve::Why;
    use std::fs;

    #[test]
    fn limits_of_a_cgroup_and_those_around_it_are_read() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("prod/web.scope");
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("cpu.stat"), "usage_usec 5\nthrottled_usec 7\n").unwrap();
        fs::create_dir(dir.join("vcpu0")).unwrap();
        fs::write(dir.join("vcpu0/cpu.stat"), "throttled_usec 4\n").unwrap();
        fs::write(root.path().join("prod/cpu.stat"), "throttled_usec 9\n").unwrap();
        let found = throttled_us(root.path(), "/prod/web.scope");
        assert_eq!(found, [("/prod/web.scope".to_owned(), 11), ("/prod".to_owned(), 9)]);
        assert_eq!(throttled_us(root.path(), ""), []);
    }

    const S: u64 = 1_000_000_000;

    #[test]
    fn who_asks_often_does_not_shorten_what_is_kept() {
        let mut samples = Samples::default();
        for tenth in 0..30 {
            samples.add(Sample { at_ns: tenth * S / 10, ..Sample::default() });
        }
        assert!(samples.0.len() <= 8, "{}", samples.0.len());
        assert_eq!(samples.last().map(|sample| sample.at_ns), Some(29 * S / 10));
    }

    #[test]
    fn a_window_begins_where_the_vm_was_first_seen() {
        let mut samples = Samples::default();
        for second in 0..=KEPT as u64 {
            let pids = if second >= 5 { vec![7, 8] } else { vec![7] };
            let vms = pids.into_iter().map(|pid| (pid, VmSample::default())).collect();
            samples.add(Sample { at_ns: second * S, vms, ..Sample::default() });
        }
        let begins = |second, pid| samples.before(second * S, pid).map(|it| it.at_ns / S);
        assert_eq!(begins(0, 7), Some(1), "the first is gone");
        assert_eq!((begins(9, 7), begins(3, 8), begins(9, 1)), (Some(9), Some(5), None));
    }

    #[test]
    fn a_window_begins_after_the_last_order() {
        let told = |limit: &str, pool: Option<&str>| {
            let why = Why { key: Key::Limit, value: limit.to_owned(), origin: "order".to_owned() };
            VmStatus {
                why: vec![why],
                pool: pool.map(str::to_owned),
                ..crate::statuses::tests::told()
            }
        };
        let mut samples = Samples::default();
        for second in 0..=9 {
            let vms = BTreeMap::from([(7, VmSample::default())]);
            let status = match second {
                0..4 => told("none", None),
                4..6 => told("50 %", None),
                _ => told("50 %", Some("prod")),
            };
            let told = HashMap::from([(7, status)]);
            samples.add(Sample { at_ns: second * S, vms, told, ..Sample::default() });
        }
        let begins = |samples: &Samples, second| {
            samples.before_on_same_terms(second * S, 7).map(|it| it.at_ns / S)
        };
        assert_eq!((begins(&samples, 8), begins(&samples, 2)), (Some(8), Some(6)));
        assert_eq!(samples.before_on_same_terms(0, 8).map(|it| it.at_ns), None);
        let vms = BTreeMap::from([(7, VmSample::default())]);
        samples.add(Sample { at_ns: 10 * S, vms, ..Sample::default() });
        assert_eq!(begins(&samples, 2), Some(2), "Drover has gone: nobody has terms");
    }
}

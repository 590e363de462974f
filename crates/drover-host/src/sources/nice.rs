// SPDX-License-Identifier: GPL-2.0-only
//! What nice values and `SCHED_IDLE` say of VMs: by how much each vCPU thread counts among its like.
//!
//! The kernel weighs a thread by its nice value, 1024 at nice 0 and a quarter more or less for each step, or as 3 under
//! `SCHED_IDLE`, and a VM by all of its threads that want to run. So a VM's shares for each vCPU are 1000 by the mean of
//! its vCPU threads' weights: 107 at nice 10, 3 under `SCHED_IDLE`. They count among those in the same cgroup only
//! (`cgroup_tree.rs`).
//!
//! Each VM is asked when it is new, when it has more vCPUs, and when the scheduler in the kernel says that a thread of
//! it was reniced.
//!
//! Limitations. Threads of one VM share alike, whatever the nice value of each.

use crate::files::{self, THREADS_MAX};
use crate::kernel::{KernelVcpu, KernelVm};
use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// The weight of a thread of nice 0, and the shares of such a vCPU.
const WEIGHT_NORMAL: u32 = 1024;
const SHARES_NORMAL: u32 = 1000;
/// That of one under `SCHED_IDLE`, whatever its nice value.
const WEIGHT_IDLE: u32 = 3;
const SCHED_IDLE: i32 = 5;
/// From nice -20 to 19: `sched_prio_to_weight` in kernel/sched/core.c.
const WEIGHTS: [u32; 40] = [
    88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916, 9548, 7620, 6100, 4904,
    3906, 3121, 2501, 1991, 1586, 1277, 1024, 820, 655, 526, 423, 335, 272, 215, 172, 137, 110, 87,
    70, 56, 45, 36, 29, 23, 18, 15,
];
/// No VM is asked more often: each of its threads is a file to read, and its user may renice them all the time.
const INTERVAL: Duration = Duration::from_millis(400);
/// When so many vCPUs were asked at a look, VMs that are known wait for the next.
const ASKED_AT_ONCE: u32 = 512;

/// How nice a VM is to its like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nice {
    /// The mean weight of its vCPU threads; not that of nice 0.
    pub weight: u32,
    /// What says so, as people are told it: `nice 10`.
    pub said: String,
}

impl Nice {
    /// The shares for each of its vCPUs.
    pub fn shares(&self) -> u32 {
        let shares = (self.weight * SHARES_NORMAL + WEIGHT_NORMAL / 2) / WEIGHT_NORMAL;
        shares.max(1)
    }
}

/// The nice values of all VMs.
#[derive(Debug, Default)]
pub struct NiceValues {
    known: HashMap<u64, Known>,
}

#[derive(Debug)]
struct Known {
    /// What the kernel counted, and how many vCPUs there were, when it was asked.
    seen: (u32, u32),
    asked: Instant,
    nice: Option<Nice>,
}

impl NiceValues {
    /// Asks those VMs of which the kernel says that something may have changed.
    pub fn look<'a>(
        &mut self,
        vms: impl Iterator<Item = &'a KernelVm>,
        vcpus_of: impl Fn(&KernelVm) -> Vec<KernelVcpu>,
        now: Instant,
    ) {
        self.look_with(vms, now, |vm| {
            of_vcpus(Path::new("/proc"), vm.tgid, vcpus_of(vm).iter().map(|vcpu| vcpu.tid))
        });
    }

    fn look_with<'a>(
        &mut self,
        vms: impl Iterator<Item = &'a KernelVm>,
        now: Instant,
        ask: impl Fn(&KernelVm) -> Option<Nice>,
    ) {
        let (mut before, mut asked) = (std::mem::take(&mut self.known), 0);
        for vm in vms {
            let seen = (vm.weight_changes, vm.nr_vcpus);
            let fresh =
                |known: &Known| known.seen == seen || now.duration_since(known.asked) < INTERVAL;
            let known = match before.remove(&vm.id) {
                Some(known) if fresh(&known) || asked >= ASKED_AT_ONCE => known,
                _ => {
                    asked += vm.nr_vcpus;
                    Known { seen, asked: now, nice: ask(vm) }
                }
            };
            self.known.insert(vm.id, known);
        }
    }

    /// One VM, as if it had been asked.
    #[cfg(test)]
    pub fn of_one(vm: &KernelVm, nice: Nice, asked: Instant) -> Self {
        let known = Known { seen: (vm.weight_changes, vm.nr_vcpus), asked, nice: Some(nice) };
        Self { known: HashMap::from([(vm.id, known)]) }
    }

    /// How nice that VM is; none: as most are, at nice 0.
    pub fn of(&self, id: u64) -> Option<&Nice> {
        self.known.get(&id)?.nice.as_ref()
    }
}

/// How nice these vCPU threads of a process are together; none: not at all, or it is gone.
pub fn of_vcpus(proc: &Path, tgid: u32, tids: impl Iterator<Item = u32>) -> Option<Nice> {
    let threads = proc.join(tgid.to_string()).join("task");
    let class = |tid: u32| Class::of(&threads.join(tid.to_string()));
    let each: Vec<Class> = tids.filter_map(class).collect();
    let sum: u64 = each.iter().map(|class| u64::from(class.weight())).sum();
    let weight = u32::try_from(sum / each.len().max(1) as u64).ok()?;
    if each.is_empty() || weight == WEIGHT_NORMAL {
        return None;
    }
    let (least, most) = (each.iter().min()?, each.iter().max()?);
    let said = match least == most {
        true => least.text(),
        false => format!("{} to {} of its vCPUs", least.text(), most.text()),
    };
    Some(Nice { weight, said })
}

/// Do threads of the process have different ones?
pub fn differs(proc: &Path, tgid: u32) -> bool {
    let threads = files::entries(&proc.join(tgid.to_string()).join("task"), THREADS_MAX);
    let mut classes = threads.filter_map(|thread| Class::of(&thread.path()));
    classes.next().is_some_and(|first| classes.any(|one| one != first))
}

/// What a thread counts by: the nicest last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Nice(i32),
    Idle,
}

impl Class {
    fn of(thread: &Path) -> Option<Self> {
        let stat = files::kernel(&thread.join("stat")).ok()?;
        // A thread may call itself what it likes, but its name is in the last parentheses.
        let (_, after) = stat.rsplit_once(')')?;
        let number = |place: usize| after.split_whitespace().nth(place)?.parse::<i32>().ok();
        let (nice, policy) = (number(16)?, number(38)?);
        Some(if policy == SCHED_IDLE { Class::Idle } else { Class::Nice(nice.clamp(-20, 19)) })
    }

    fn weight(self) -> u32 {
        match self {
            Class::Nice(nice) => WEIGHTS[usize::try_from(nice + 20).unwrap_or(0)],
            Class::Idle => WEIGHT_IDLE,
        }
    }

    fn text(self) -> String {
        match self {
            Class::Nice(nice) => format!("nice {nice}"),
            Class::Idle => "SCHED_IDLE".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_host::host;
    use std::cell::Cell;

    fn stat(nice: i32, policy: i32) -> String {
        let zeros = |count| ["0"; 40][..count].join(" ");
        format!("7 (a) b) R {} {nice} {} {policy} 0\n", zeros(15), zeros(21))
    }

    /// Threads, each with whether it is a vCPU.
    fn of(threads: &[(bool, i32, i32)]) -> Option<Nice> {
        let files: Vec<_> = (threads.iter().zip(0..))
            .map(|((_, nice, policy), tid)| (format!("7/task/{tid}/stat"), stat(*nice, *policy)))
            .collect();
        let files: Vec<_> =
            files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        let vcpus = threads.iter().zip(0..).filter(|((is_vcpu, ..), _)| *is_vcpu);
        of_vcpus(host(&files).path(), 7, vcpus.map(|(_, tid)| tid))
    }

    #[test]
    fn a_vm_is_as_nice_as_its_vcpu_threads() {
        let nice = |weight, said: &str| Some(Nice { weight, said: said.to_owned() });
        assert_eq!(of(&[(false, 10, 0), (true, 0, 0)]), None, "renice -p is of one thread");
        assert_eq!(of(&[(false, 0, 0), (true, 10, 0)]), nice(110, "nice 10"));
        assert_eq!(of(&[(true, 5, 5), (true, 0, 5)]), nice(3, "SCHED_IDLE"));
        assert_eq!(of(&[(true, -20, 3)]), nice(88761, "nice -20"));
        assert_eq!(nice(88761, "").unwrap().shares(), 86681);
        let mixed = [(true, 0, 0), (true, 10, 0)];
        assert_eq!(of(&mixed), nice(567, "nice 0 to nice 10 of its vCPUs"));
        assert_eq!(of_vcpus(Path::new("/nowhere"), 7, [7].into_iter()), None);
        let host = host(&[("7/task/1/stat", &stat(0, 0)), ("7/task/2/stat", &stat(0, 5))]);
        assert!(differs(host.path(), 7) && !differs(host.path(), 8));
    }

    #[test]
    fn a_vm_is_asked_again_when_it_was_reniced_or_has_grown() {
        let (mut values, begun) = (NiceValues::default(), Instant::now());
        let asked = Cell::new(0);
        let mut look = |vm: KernelVm, after_ms: u64| {
            let ask = |_: &KernelVm| {
                asked.set(asked.get() + 1);
                Some(Nice { weight: asked.get(), said: String::new() })
            };
            values.look_with([vm].iter(), begun + Duration::from_millis(after_ms), ask);
            values.of(vm.id).unwrap().weight
        };
        let vm = KernelVm::for_test(1);
        assert_eq!((look(vm, 0), look(vm, 5000)), (1, 1));
        let reniced = KernelVm { weight_changes: 1, ..vm };
        assert_eq!((look(reniced, 5001), look(reniced, 6000)), (2, 2));
        let again = KernelVm { weight_changes: 2, ..vm };
        assert_eq!((look(again, 5200), look(again, 5500)), (2, 3), "not all the time");
        let grown = KernelVm { nr_vcpus: 3, ..again };
        assert_eq!(look(grown, 7000), 4);
        values.look_with([].iter(), begun, |_| None);
        assert!(values.of(1).is_none());
    }

    #[test]
    fn vms_with_many_vcpus_take_turns() {
        let (mut values, begun) = (NiceValues::default(), Instant::now());
        let asked = Cell::new(0);
        let mut look = |changes: u32, after_ms: u64| {
            let before = asked.get();
            let wide =
                |id| KernelVm { nr_vcpus: 400, weight_changes: changes, ..KernelVm::for_test(id) };
            let vms: Vec<KernelVm> = (1..=4).map(wide).collect();
            let ask = |_: &KernelVm| {
                asked.set(asked.get() + 1);
                None
            };
            values.look_with(vms.iter(), begun + Duration::from_millis(after_ms), ask);
            asked.get() - before
        };
        assert_eq!(look(0, 0), 4, "of new ones something is known from the first");
        assert_eq!([look(1, 1000), look(1, 1200), look(1, 1400)], [2, 2, 0]);
    }
}

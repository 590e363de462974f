// SPDX-License-Identifier: GPL-2.0-only
//! Two hundred VMs come and go in bursts, beside two busy ones: nothing is left of them.

use std::collections::BTreeMap;
use std::fs;
use std::process::Child;
use std::thread;
use std::time::Duration;

use libbpf_rs::query::MapInfoIter;
use libbpf_rs::{MapCore, MapHandle};

use crate::host::{self, Daemon, say};
use crate::vms::{CPU, MicroVm, all_progress_within, spawn, stats_path};

/// Slots for VMs are made in batches of so many.
const SLOTS_MADE_AT_ONCE: usize = 64;
const BURST: usize = 20;
const BURSTS: usize = 10;
/// What fills the kernel's caches.
const BURSTS_BEFORE: usize = 3;
const WORKLOADS: [&str; 5] = [
    CPU,
    r#"{"kind":"lock"}"#,
    r#"{"kind":"barrier"}"#,
    r#"{"kind":"sleep","period_us":500}"#,
    r#"{"kind":"mix"}"#,
];
/// What the kernel may keep of two hundred VMs, such as caches of freed objects that it has not yet
/// given back. One VM's threads alone take more than 50 KiB.
const GROWTH_MAX_KIB: i64 = 6 << 10;
/// Changes of the kernel's figures that are worth a word.
const CHANGE_MIN_KIB: i64 = 512;
const KEPT_BY_CPUS: &str = "KeptByCpus";
const PAGE_KIB: i64 = 4;

/// Numbers that look random and are the same in each run (xorshift).
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number from 0 to `end` - 1.
    #[allow(clippy::cast_possible_truncation)] // The low bits are as good as any.
    pub fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 8) as usize % end
    }
}

#[test]
#[ignore = "runs inside the lab"]
fn inside() {
    host::must_be_lab();
    let busy = [MicroVm::start("busy0", 2, CPU), MicroVm::start("busy1", 1, CPU)];
    let busy: Vec<&MicroVm> = busy.iter().collect();
    let mut daemon = Daemon::start();
    let mut dice = Dice::new(1);
    // A first storm fills the kernel's caches; the second must find all it needs there.
    storm(&mut dice, &busy, BURSTS_BEFORE);
    let before = settled(&busy);
    storm(&mut dice, &busy, BURSTS);
    let after = settled(&busy);
    let growth_kib = in_use_kib(&after) - in_use_kib(&before);
    let what = format!("memory in use grew by {growth_kib} KiB: {:?}", changes(&before, &after));
    println!("{what}");
    assert!(growth_kib < GROWTH_MAX_KIB, "{what}");
    daemon.must_serve();
    let found = daemon.said().matches("found (pid").count();
    let gone = daemon.said().matches("is gone").count();
    println!("{found} VMs found, {gone} gone");
    assert_eq!(found - gone, busy.len());
}

fn storm(dice: &mut Dice, busy: &[&MicroVm], bursts: usize) {
    say("a storm begins");
    for burst in 0..bursts {
        let mut vms: Vec<(String, Child)> = (0..BURST)
            .map(|i| {
                let name = format!("storm{burst}-{i}");
                let vcpus = 1 + u32::from(dice.below(2) == 0);
                let child = spawn(&name, vcpus, WORKLOADS[dice.below(WORKLOADS.len())]);
                (name, child)
            })
            .collect();
        // Some die before they are VMs, some while vCPUs start, some at work.
        while !vms.is_empty() {
            thread::sleep(Duration::from_millis(dice.below(40) as u64));
            let (name, mut child) = vms.swap_remove(dice.below(vms.len()));
            child.kill().unwrap();
            child.wait().unwrap();
            let _ = fs::remove_file(stats_path(&name));
        }
        all_progress_within(Duration::from_secs(2), busy);
    }
}

/// The kernel's figures of memory, in KiB, by name.
type Memory = BTreeMap<String, i64>;

/// Waits until only the survivors are left, checks the books, and tells how memory is used.
fn settled(busy: &[&MicroVm]) -> Memory {
    host::wait_until("only survivors are listed", Duration::from_secs(5), || {
        let mut names: Vec<String> = host::list().into_iter().map(|vm| vm.name).collect();
        names.sort();
        names == busy.iter().map(|vm| vm.name.clone()).collect::<Vec<_>>()
    });
    let slots = map("vm_slots");
    assert_eq!(slots.keys().count(), busy.len(), "VMs the kernel's part knows of");
    // Slots are made in batches (bpf/queues.bpf.h), and none is lost.
    assert_eq!((count_free_slots() + busy.len()) % SLOTS_MADE_AT_ONCE, 0, "free slots");
    assert_eq!(slots.keys().count(), busy.len(), "no VM came meanwhile");
    // The kernel frees threads after a while.
    thread::sleep(Duration::from_secs(1));
    fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
    memory()
}

fn map(name: &str) -> MapHandle {
    let info = MapInfoIter::default().find(|info| info.name == name);
    MapHandle::from_map_id(info.unwrap_or_else(|| panic!("no map {name}")).id).unwrap()
}

/// The only way to count what is on a stack is to take it all off.
fn count_free_slots() -> usize {
    let stack = map("free_slots");
    let mut slots: Vec<Vec<u8>> = Vec::new();
    while let Ok(Some(slot)) = stack.lookup_and_delete(&[]) {
        slots.push(slot);
    }
    for slot in slots.iter().rev() {
        stack.update(&[], slot, libbpf_rs::MapFlags::ANY).unwrap();
    }
    let mut distinct = slots.clone();
    distinct.sort();
    distinct.dedup();
    assert_eq!(distinct.len(), slots.len(), "a slot is free twice");
    slots.len()
}

fn memory() -> Memory {
    let text = fs::read_to_string("/proc/meminfo").unwrap();
    let figure = |line: &str| -> Option<(String, i64)> {
        let (name, rest) = line.split_once(':')?;
        Some((name.to_owned(), rest.split_whitespace().next()?.parse().ok()?))
    };
    let mut memory: Memory = text.lines().map(|line| figure(line).unwrap()).collect();
    memory.insert(KEPT_BY_CPUS.to_owned(), kept_by_cpus_kib());
    memory
}

/// Free pages that each CPU keeps for its next need, megabytes sometimes, which do not count as free.
fn kept_by_cpus_kib() -> i64 {
    let text = fs::read_to_string("/proc/zoneinfo").unwrap();
    let counts = text.lines().filter_map(|line| line.trim().strip_prefix("count:"));
    counts.map(|pages| pages.trim().parse::<i64>().unwrap() * PAGE_KIB).sum()
}

fn in_use_kib(memory: &Memory) -> i64 {
    memory["MemTotal"] - memory["MemAvailable"] - memory[KEPT_BY_CPUS]
}

fn changes(before: &Memory, after: &Memory) -> Memory {
    let change = |(name, figure): (&String, &i64)| (name.clone(), figure - before[name]);
    after.iter().map(change).filter(|(_, change)| change.abs() >= CHANGE_MIN_KIB).collect()
}

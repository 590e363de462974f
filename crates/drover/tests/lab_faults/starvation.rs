// SPDX-License-Identifier: GPL-2.0-only
//! Nobody waits forever: neither tasks of the host under full VM load, nor a VM with one share, nor
//! one vCPU among many, nor a task that is nice to others.

use std::thread;
use std::time::{Duration, Instant};

use crate::hogs::Hogs;
use crate::host::{self, Daemon, say};
use crate::tasks::{RealTimeHog, confine};
use crate::vms::{CPU, MicroVm, all_progress_within};

/// The wait bound is 1 s, looked at eight times in that time; a slice or two may come on top.
const VM_WAIT_MAX: Duration = Duration::from_millis(1200);
/// The kernel throws the scheduler out after 26 s.
const THREAD_WAIT_MAX: Duration = Duration::from_millis(3500);
/// Several times what anybody may wait.
const WINDOW: Duration = Duration::from_secs(6);

#[test]
#[ignore = "runs inside the lab"]
fn inside() {
    host::must_be_lab();
    let mut daemon = Daemon::start();
    let mut starved = Vec::new();
    starved.extend(host_tasks());
    daemon.must_serve();
    starved.extend(nice_tasks());
    daemon.must_serve();
    starved.extend(few_shares("free", &[0, 1], VM_WAIT_MAX));
    daemon.must_serve();
    starved.extend(few_shares("pinned", &[1], VM_WAIT_MAX));
    daemon.must_serve();
    starved.extend(one_of_many());
    daemon.must_serve();
    starved.extend(beside_real_time());
    daemon.must_serve();
    assert!(starved.is_empty(), "{starved:#?}");
}

/// The longest time without progress of any vCPU of the VM, and of each.
fn longest_stills(vm: &MicroVm, window: Duration) -> (Duration, Duration) {
    let begun = Instant::now();
    let mut last = vm.progress();
    let mut moved = vec![begun; last.len()];
    let (mut vm_moved, mut vm_still, mut vcpu_still) = (begun, Duration::ZERO, Duration::ZERO);
    while begun.elapsed() < window {
        thread::sleep(Duration::from_millis(10));
        let (now, when) = (vm.progress(), Instant::now());
        for (index, moved) in moved.iter_mut().enumerate() {
            if now[index] != last[index] {
                *moved = when;
                vm_moved = when;
            }
            vcpu_still = vcpu_still.max(when - *moved);
        }
        vm_still = vm_still.max(when - vm_moved);
        last = now;
    }
    (vm_still, vcpu_still)
}

/// Complains when the VM, or one of its vCPUs, stands still for too long.
fn standing_still(what: &str, vm: &MicroVm, vm_wait_max: Duration) -> Option<String> {
    let (vm_still, vcpu_still) = longest_stills(vm, WINDOW);
    let text = format!("{what}: still for {vm_still:.2?}, one vCPU for {vcpu_still:.2?}");
    println!("{text}");
    (vm_still > vm_wait_max || vcpu_still > THREAD_WAIT_MAX).then_some(text)
}

/// Complains of host tasks that waited too long.
fn waiting(what: &str, hogs: &Hogs) -> Vec<String> {
    let gaps_ms = hogs.longest_gaps_ms();
    println!("{what}: longest waits (nice, ms): {gaps_ms:?}");
    let too_long = |(_, ms): &&(i32, u64)| Duration::from_millis(*ms) > THREAD_WAIT_MAX;
    gaps_ms.iter().filter(too_long).map(|gap| format!("{what}: {gap:?}")).collect()
}

/// Full VM load, with a million shares each; tasks of the host still get on, and so do the kernel's.
fn host_tasks() -> Vec<String> {
    say("host tasks under full load");
    let vms: Vec<MicroVm> = (0..4).map(|i| MicroVm::start(&format!("full{i}"), 2, CPU)).collect();
    host::wait_until("VMs are found", VM_WAIT_MAX * 3, || host::list().len() == vms.len());
    vms.iter().for_each(|vm| host::set_shares(&vm.name, 1_000_000));
    let hogs = Hogs::start(&[(0, 0), (1, 0), (0, 19), (1, 19)]);
    let begun = Instant::now();
    let mut slowest = Duration::ZERO;
    while begun.elapsed() < WINDOW {
        let asked = Instant::now();
        // Waits until every pCPU has scheduled: for the kernel's own threads, pinned ones too.
        // SAFETY: takes scalars only.
        let result = unsafe { libc::syscall(libc::SYS_membarrier, 1, 0, 0) };
        assert_eq!(result, 0, "membarrier");
        assert!(std::process::Command::new("true").status().unwrap().success());
        slowest = slowest.max(asked.elapsed());
        thread::sleep(Duration::from_millis(100));
    }
    println!("a grace period and a process took at most {slowest:.2?}");
    all_progress_within(VM_WAIT_MAX, &vms.iter().collect::<Vec<_>>());
    let mut starved = waiting("full VM load", &hogs);
    // One after the other, and each may wait as long as a thread may.
    if slowest > 2 * THREAD_WAIT_MAX {
        starved.push(format!("a grace period and a process took {slowest:.2?}"));
    }
    starved
}

/// The least and the most important tasks on one pCPU, beside VMs.
fn nice_tasks() -> Vec<String> {
    say("nice tasks");
    let vms: Vec<MicroVm> = (0..2).map(|i| MicroVm::start(&format!("beside{i}"), 2, CPU)).collect();
    let hogs = Hogs::start(&[(0, 19), (0, 0), (0, 0), (1, 19), (1, -20)]);
    thread::sleep(WINDOW);
    all_progress_within(VM_WAIT_MAX, &vms.iter().collect::<Vec<_>>());
    waiting("nice tasks", &hogs)
}

/// One share against a million.
fn few_shares(what: &str, pcpus: &[usize], wait_max: Duration) -> Option<String> {
    say(&format!("one share against a million, {what}"));
    let (poor, rich) = (MicroVm::start("poor", 1, CPU), MicroVm::start("rich", 2, CPU));
    host::wait_until("VMs are found", VM_WAIT_MAX * 3, || host::list().len() == 2);
    host::set_shares("poor", 1);
    host::set_shares("rich", 1_000_000);
    for vm in [&poor, &rich] {
        vm.threads().into_iter().for_each(|thread| confine(thread, pcpus));
    }
    standing_still(what, &poor, wait_max)
}

/// Many vCPUs with one share together.
fn one_of_many() -> Option<String> {
    say("many vCPUs with one share");
    let (poor, _rich) = (MicroVm::start("poor", 16, CPU), MicroVm::start("rich", 2, CPU));
    host::wait_until("VMs are found", VM_WAIT_MAX * 20, || host::list().len() == 2);
    host::set_shares("poor", 1);
    host::set_shares("rich", 1_000_000);
    standing_still("16 vCPUs", &poor, VM_WAIT_MAX)
}

/// Ten vCPUs on two pCPUs of which real-time threads take 450 us of every ms. A thread's wait may be as long as
/// without these, and what they took meanwhile.
fn beside_real_time() -> Option<String> {
    say("beside periodic real-time threads");
    let (wide, _narrow) = (MicroVm::start("wide", 6, CPU), MicroVm::start("narrow", 4, CPU));
    host::wait_until("VMs are found", VM_WAIT_MAX * 20, || host::list().len() == 2);
    let _hogs = [0, 1].map(|pcpu| RealTimeHog::periodic(pcpu, Duration::from_micros(450)));
    standing_still("real-time", &wide, VM_WAIT_MAX * 2)
}

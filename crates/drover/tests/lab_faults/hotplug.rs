// SPDX-License-Identifier: GPL-2.0-only
//! pCPUs go and come back under load, also those that VMs and host tasks are pinned to.

use std::thread;
use std::time::{Duration, Instant};

use nix::unistd::Pid;

use crate::hogs::Hogs;
use crate::host::{self, say, set_online};
use crate::idle::busy_share;
use crate::tasks::confine;
use crate::vms::{CPU, MicroVm, SLEEP, all_progress_within, cpu_s_during, start_quickly};

const PCPUS: usize = 4;
const PROGRESS: Duration = Duration::from_secs(1);
/// What is promised to each thread where twelve share one pCPU (policy/guarantee/wait_bound.h): 2 B, an eighth to notice
/// each time, and a slice and a tick for each.
const PROGRESS_ON_ONE: Duration = Duration::from_millis(2400);

#[test]
#[ignore = "runs inside the lab"]
fn inside() {
    host::must_be_lab();
    let free = MicroVm::start("free", 3, CPU);
    let sleeper = MicroVm::start("sleeper", 2, SLEEP);
    let pinned = MicroVm::start("pinned", 1, CPU);
    let subset = MicroVm::start("subset", 3, CPU);
    let vms = [&free, &sleeper, &pinned, &subset];
    let mut daemon = start_quickly(&vms);
    let hogs = Hogs::start(&[(3, 0), (3, 19), (2, 0)]);
    for round in 0..2 {
        pin(&pinned, &subset, &hogs);
        one_at_a_time(round, &vms);
        pin(&pinned, &subset, &hogs);
        down_to_one(round, &vms, &pinned);
        daemon.must_serve();
        hogs.all_progress_within(PROGRESS * 3);
    }
    as_fast_as_it_goes(&vms);
    daemon.must_serve();
    drop((hogs, daemon));
    host::wait_for_fallback();
    missing_at_the_start(&vms);
}

/// The kernel breaks affinities when the last pCPU of one goes; this fixes them.
fn pin(pinned: &MicroVm, subset: &MicroVm, hogs: &Hogs) {
    pinned.threads().into_iter().for_each(|thread| confine(thread, &[3]));
    subset.threads().into_iter().for_each(|thread| confine(thread, &[2, 3]));
    hogs.pin_again();
}

fn one_at_a_time(round: usize, vms: &[&MicroVm]) {
    say(&format!("round {round}: one at a time"));
    for pcpu in 1..PCPUS {
        set_online(pcpu, false);
        all_progress_within(PROGRESS, vms);
        set_online(pcpu, true);
        all_progress_within(PROGRESS, vms);
    }
}

fn down_to_one(round: usize, vms: &[&MicroVm], pinned: &MicroVm) {
    say(&format!("round {round}: down to one"));
    for pcpu in (1..PCPUS).rev() {
        set_online(pcpu, false);
    }
    all_progress_within(PROGRESS_ON_ONE, vms);
    let got_s = cpu_s_during(Duration::from_secs(1), &[pinned])[0];
    assert!(got_s > 0.05, "{got_s} s for a pinned VM whose pCPU is gone");
    for pcpu in 1..PCPUS {
        set_online(pcpu, true);
    }
    all_progress_within(PROGRESS, vms);
}

fn as_fast_as_it_goes(vms: &[&MicroVm]) {
    say("as fast as it goes");
    let begun = Instant::now();
    let mut changes = 0;
    while begun.elapsed() < Duration::from_secs(4) {
        let pcpu = 1 + changes % (PCPUS - 1);
        vms[3].threads().into_iter().for_each(|thread: Pid| confine(thread, &[pcpu]));
        set_online(pcpu, false);
        set_online(pcpu, true);
        changes += 1;
    }
    println!("{changes} times");
    assert!(changes >= 8, "only {changes} times");
    all_progress_within(PROGRESS, vms);
}

/// A pCPU that was not there when the scheduler started is used when it comes.
fn missing_at_the_start(vms: &[&MicroVm]) {
    say("missing at the start");
    for vm in vms {
        vm.threads().into_iter().for_each(|thread| confine(thread, &[0, 1, 2, 3]));
    }
    set_online(2, false);
    set_online(3, false);
    let mut daemon = start_quickly(vms);
    all_progress_within(PROGRESS, vms);
    set_online(2, true);
    set_online(3, true);
    thread::sleep(Duration::from_millis(200));
    let busy = busy_share(&[2, 3], Duration::from_secs(1));
    assert!(busy > 0.995, "the pCPUs that came are busy for {busy} only");
    all_progress_within(PROGRESS, vms);
    daemon.must_serve();
}

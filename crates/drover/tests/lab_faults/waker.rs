// SPDX-License-Identifier: GPL-2.0-only
//! Threads of a VM that wake each other often are drawn to one last-level cache: the kernel counts who wakes whom, and
//! the daemon acts on it.
//!
//! This process is a VM with a vCPU that halts, and two threads that hand a token to and fro. They begin in two caches, and
//! have one pCPU each there: busy VMs have the others until the two are drawn together.

use std::process;
use std::thread;
use std::time::Duration;

use drover_core::counters::Numa;
use nix::unistd::Pid;
use vmm_sys_util::eventfd::EventFd;

use crate::host::{self, Daemon, say};
use crate::io::new_vm;
use crate::tasks::confine;
use crate::vms::{CPU, MicroVm};

const CACHES: [[usize; 2]; 2] = [[0, 1], [2, 3]];
const ALL: [usize; 4] = [0, 1, 2, 3];
/// They are watched for 10 s, and tried for 10 s more.
const DRAWN_WITHIN_S: u64 = 40;
/// Whether it pays is known by then.
const TRIED: Duration = Duration::from_secs(12);
/// Whether it stays there.
const WATCHED: Duration = Duration::from_secs(2);

#[test]
#[ignore = "runs inside the lab"]
fn inside() {
    host::must_be_lab();
    let busy = [1, 3].map(|pcpu| {
        let vm = MicroVm::start(&format!("busy{pcpu}"), 1, CPU);
        vm.confine(&[pcpu]);
        vm
    });
    let mut daemon = Daemon::start();
    let (_vm, mut vcpu) = new_vm();
    thread::spawn(move || while vcpu.run().is_ok() {});
    hand_a_token_to_and_fro();
    let drawn = (0..DRAWN_WITHIN_S).any(|_| {
        thread::sleep(Duration::from_secs(1));
        home().0.contains("share a cache")
    });
    assert!(drawn, "not within {DRAWN_WITHIN_S} s");
    say("drawn to one cache");
    drop(busy);
    thread::sleep(TRIED);
    let (why, before) = home();
    assert!(why.contains("share a cache"), "it was taken back: {why}");
    thread::sleep(WATCHED);
    let after = home().1;
    let at_home = (after.home_s - before.home_s) / (after.ran_s - before.ran_s);
    println!("{:.1} % in that cache", 100.0 * at_home);
    assert!(at_home >= 0.95);
    daemon.must_serve();
}

/// Why this VM is at home where it is, and how long it has run there.
fn home() -> (String, Numa) {
    let this = host::list().into_iter().find(|vm| vm.pid == process::id()).expect("this is a VM");
    (this.home_why.unwrap_or_default(), this.numa.expect("the host has two caches"))
}

/// Starts two threads. Each runs in a cache of its own at first; after that it may run anywhere.
fn hand_a_token_to_and_fro() {
    let [there, back] = [(); 2].map(|()| EventFd::new(0).unwrap());
    let (other_there, other_back) = (there.try_clone().unwrap(), back.try_clone().unwrap());
    thread::spawn(move || begin(&CACHES[0], || there.write(1).and_then(|()| back.read())));
    thread::spawn(move || {
        begin(&CACHES[1], || other_there.read().and_then(|_| other_back.write(1)));
    });
}

/// Begins in that cache, then does that again and again.
fn begin<T>(cache: &[usize; 2], again: impl Fn() -> std::io::Result<T>) {
    let this = Pid::from_raw(0);
    confine(this, cache);
    thread::sleep(Duration::from_millis(10));
    confine(this, &ALL);
    while again().is_ok() {}
}

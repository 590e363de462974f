// SPDX-License-Identifier: GPL-2.0-only
//! Threads of a VM that wake each other often are drawn to one last-level cache: the kernel counts who wakes whom, and
//! the daemon acts on it.
//!
//! This process is a VM with a vCPU that halts, and two threads that hand a token to and fro. They begin in two caches.

use std::process;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use nix::unistd::{Pid, gettid};
use vmm_sys_util::eventfd::EventFd;

use crate::host::{self, Daemon, say};
use crate::io::new_vm;
use crate::tasks::{confine, last_pcpu};

const CACHES: [[usize; 2]; 2] = [[0, 1], [2, 3]];
const ALL: [usize; 4] = [0, 1, 2, 3];
/// They are watched for 10 s, and tried for 10 s more.
const DRAWN_WITHIN_S: u64 = 40;
const LOOKS: usize = 20;

#[test]
#[ignore = "runs inside the lab"]
fn inside() {
    host::must_be_lab();
    let mut daemon = Daemon::start();
    let (_vm, mut vcpu) = new_vm();
    thread::spawn(move || while vcpu.run().is_ok() {});
    let threads = hand_a_token_to_and_fro();
    assert!(!share_a_cache(threads), "they begin apart");
    let drawn = (0..DRAWN_WITHIN_S).any(|_| {
        thread::sleep(Duration::from_secs(1));
        let vms = host::list();
        let this = vms.iter().find(|vm| vm.pid == process::id()).expect("this is a VM");
        this.home_why.as_ref().is_some_and(|why| why.contains("share a cache"))
    });
    assert!(drawn, "not within {DRAWN_WITHIN_S} s");
    say("drawn to one cache");
    let together = (0..LOOKS).filter(|_| {
        thread::sleep(Duration::from_millis(50));
        share_a_cache(threads)
    });
    let together = together.count();
    assert!(together + 1 >= LOOKS, "together {together} times of {LOOKS}");
    daemon.must_serve();
}

fn share_a_cache(threads: [Pid; 2]) -> bool {
    let cache = |thread| CACHES.iter().position(|cache| cache.contains(&last_pcpu(thread)));
    cache(threads[0]) == cache(threads[1])
}

/// Two threads, each of which has begun in a cache of its own, and may run anywhere.
fn hand_a_token_to_and_fro() -> [Pid; 2] {
    let [there, back] = [(); 2].map(|()| EventFd::new(0).unwrap());
    let (tell, told) = channel();
    let (other_there, other_back) = (there.try_clone().unwrap(), back.try_clone().unwrap());
    let tell_too = tell.clone();
    thread::spawn(move || begin(&CACHES[0], &tell, || there.write(1).and_then(|()| back.read())));
    thread::spawn(move || {
        begin(&CACHES[1], &tell_too, || other_there.read().and_then(|_| other_back.write(1)));
    });
    let mut threads: Vec<(usize, Pid)> = (0..2).map(|_| told.recv().unwrap()).collect();
    threads.sort_unstable();
    [threads[0].1, threads[1].1]
}

/// Begins in that cache, then does that again and again.
fn begin<T>(
    cache: &[usize; 2],
    tell: &Sender<(usize, Pid)>,
    again: impl Fn() -> std::io::Result<T>,
) {
    let this = Pid::from_raw(0);
    confine(this, cache);
    thread::sleep(Duration::from_millis(10));
    confine(this, &ALL);
    tell.send((cache[0], gettid())).unwrap();
    while again().is_ok() {}
}

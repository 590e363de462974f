// SPDX-License-Identifier: GPL-2.0-only
//! Busy tasks of the host, which notice when they are left waiting.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::unistd::{Pid, gettid};

use crate::tasks::{confine, set_nice};

/// A busy thread's account of itself.
#[derive(Default)]
struct Account {
    tid: AtomicU64,
    turns: AtomicU64,
    longest_gap_ns: AtomicU64,
}

/// Busy threads, each pinned to a pCPU; they end when dropped.
pub struct Hogs {
    hogs: Vec<(usize, i32, Arc<Account>)>,
    threads: Vec<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
}

impl Hogs {
    /// Starts one for each pair of a pCPU and a nice value.
    pub fn start(places: &[(usize, i32)]) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        let mut hogs = Vec::new();
        for &(pcpu, nice) in places {
            let account = Arc::new(Account::default());
            let (mine, stop) = (Arc::clone(&account), Arc::clone(&stop));
            threads.push(thread::spawn(move || be_busy(&mine, pcpu, nice, &stop)));
            hogs.push((pcpu, nice, account));
        }
        Self { hogs, threads, stop }
    }

    /// Confines each to its pCPU again.
    pub fn pin_again(&self) {
        for (pcpu, _, account) in &self.hogs {
            let tid = i32::try_from(account.tid.load(Ordering::Relaxed)).unwrap();
            if tid != 0 {
                confine(Pid::from_raw(tid), &[*pcpu]);
            }
        }
    }

    /// Demands that each gets on within that time.
    pub fn all_progress_within(&self, limit: Duration) {
        let turns =
            |(_, _, account): &(usize, i32, Arc<Account>)| account.turns.load(Ordering::Relaxed);
        let before: Vec<u64> = self.hogs.iter().map(turns).collect();
        for (hog, before) in self.hogs.iter().zip(before) {
            let what = format!("a host task on pCPU {}, nice {}, gets on", hog.0, hog.1);
            crate::host::wait_until(&what, limit, || turns(hog) > before);
        }
    }

    /// The longest time each was ready and did not run, in ms.
    pub fn longest_gaps_ms(&self) -> Vec<(i32, u64)> {
        let gap = |account: &Account| account.longest_gap_ns.load(Ordering::Relaxed) / 1_000_000;
        self.hogs.iter().map(|(_, nice, account)| (*nice, gap(account))).collect()
    }
}

impl Drop for Hogs {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn be_busy(account: &Account, pcpu: usize, nice: i32, stop: &AtomicBool) {
    account.tid.store(gettid().as_raw().try_into().unwrap(), Ordering::Relaxed);
    confine(Pid::from_raw(0), &[pcpu]);
    set_nice(Pid::from_raw(0), nice);
    let mut last = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let now = Instant::now();
        let gap_ns = u64::try_from((now - last).as_nanos()).unwrap();
        account.longest_gap_ns.fetch_max(gap_ns, Ordering::Relaxed);
        account.turns.fetch_add(1, Ordering::Relaxed);
        last = now;
    }
}

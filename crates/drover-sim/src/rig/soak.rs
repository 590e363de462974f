// SPDX-License-Identifier: GPL-2.0-only
//! Trial after trial until the time is up or one fails.

use super::{Script, try_script};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What came of a soak.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Soaked {
    /// Trials done.
    pub trials: u64,
    /// pCPU time simulated, s.
    pub cpu_s: u64,
    /// Events simulated.
    pub events: u64,
    /// The lowest seed that failed, and what it broke.
    pub failed: Option<(u64, String)>,
}

/// Does trials with the seeds from `first` on, on so many threads, until `length` has passed or
/// one has failed. `progress` is told the pCPU seconds so far.
pub fn soak(
    first: u64,
    length: Duration,
    threads: usize,
    progress: &(dyn Fn(u64) + Sync),
) -> Soaked {
    let (cpu_ms, events) = (AtomicU64::new(0), AtomicU64::new(0));
    let failed: Mutex<Option<(u64, String)>> = Mutex::new(None);
    let trials = each_seed(first, length, threads, &|seed| {
        let trial = try_script(&Script::of_seed(seed), None);
        let so_far = cpu_ms.fetch_add(trial.cpu_ms, Ordering::Relaxed) + trial.cpu_ms;
        events.fetch_add(trial.events, Ordering::Relaxed);
        progress(so_far / 1000);
        let Some(broken) = trial.broken else { return true };
        let mut failed = failed.lock().expect("nobody panics with it held");
        if failed.as_ref().is_none_or(|(other, _)| seed < *other) {
            *failed = Some((seed, broken));
        }
        false
    });
    Soaked {
        trials,
        cpu_s: cpu_ms.into_inner() / 1000,
        events: events.into_inner(),
        failed: failed.into_inner().expect("nobody panicked"),
    }
}

/// Tries the seeds from `first` on, on so many threads, until `length` has passed or a trial says that it is
/// enough. Returns how many were tried.
pub(super) fn each_seed(
    first: u64,
    length: Duration,
    threads: usize,
    trial: &(dyn Fn(u64) -> bool + Sync),
) -> u64 {
    let begin = Instant::now();
    let (next, stop) = (AtomicU64::new(first), AtomicBool::new(false));
    let work = || {
        while !stop.load(Ordering::Relaxed) && begin.elapsed() < length {
            if !trial(next.fetch_add(1, Ordering::Relaxed)) {
                stop.store(true, Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.max(1) {
            scope.spawn(work);
        }
        work();
    });
    next.into_inner() - first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_soak_ends_in_time_and_counts_what_it_did() {
        // From there on nearly three hundred trials break nothing that is pending.
        let soaked = soak(6_199, Duration::from_millis(200), 2, &|_| {});
        assert!(soaked.trials >= 2 && soaked.cpu_s > 0 && soaked.events > 0, "{soaked:?}");
        assert_eq!(soaked.failed, None);
    }
}

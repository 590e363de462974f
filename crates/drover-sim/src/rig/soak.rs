// SPDX-License-Identifier: GPL-2.0-only
//! Trial after trial, for so long or so many.

use super::{Script, try_script};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// When trials end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// When so long has passed, or one fails.
    Passed(Duration),
    /// After so many, whether they fail or not: the same on any machine.
    Done(u64),
}

/// What came of a soak.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Soaked {
    /// Trials done.
    pub trials: u64,
    /// pCPU time simulated, ms.
    pub cpu_ms: u64,
    /// Events simulated.
    pub events: u64,
    /// The seeds that failed, in order, and what they broke.
    pub failed: Vec<(u64, String)>,
}

/// Does trials with the seeds from `first` on, on so many threads. `progress` is told of each trial the pCPU
/// seconds so far.
pub fn soak(first: u64, until: Until, threads: usize, progress: &(dyn Fn(u64) + Sync)) -> Soaked {
    let (cpu_ms, events) = (AtomicU64::new(0), AtomicU64::new(0));
    let failed: Mutex<Vec<(u64, String)>> = Mutex::new(Vec::new());
    let trials = each_seed(first, until, threads, &|seed| {
        let trial = try_script(&Script::of_seed(seed), None);
        let so_far = cpu_ms.fetch_add(trial.cpu_ms, Ordering::Relaxed) + trial.cpu_ms;
        events.fetch_add(trial.events, Ordering::Relaxed);
        progress(so_far / 1000);
        let Some(broken) = trial.broken else { return true };
        failed.lock().expect("nobody panics with it held").push((seed, broken));
        matches!(until, Until::Done(_))
    });
    let mut failed = failed.into_inner().expect("nobody panicked");
    failed.sort_unstable();
    Soaked { trials, cpu_ms: cpu_ms.into_inner(), events: events.into_inner(), failed }
}

/// Tries the seeds from `first` on, on so many threads, or until a trial says that it is enough. Returns how
/// many were tried.
pub(super) fn each_seed(
    first: u64,
    until: Until,
    threads: usize,
    trial: &(dyn Fn(u64) -> bool + Sync),
) -> u64 {
    let begin = Instant::now();
    let (next, stop) = (AtomicU64::new(first), AtomicBool::new(false));
    let (length, end) = match until {
        Until::Passed(length) => (length, u64::MAX),
        Until::Done(trials) => (Duration::MAX, first.saturating_add(trials)),
    };
    let work = || {
        while !stop.load(Ordering::Relaxed) && begin.elapsed() < length {
            let following = |seed| (seed < end).then_some(seed + 1);
            let Ok(seed) = next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, following)
            else {
                break;
            };
            if !trial(seed) {
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
        let soaked = soak(6_199, Until::Passed(Duration::from_millis(200)), 2, &|_| {});
        assert!(soaked.trials >= 2 && soaked.cpu_ms > 0 && soaked.events > 0, "{soaked:?}");
        assert_eq!(soaked.failed, []);
    }

    #[test]
    fn so_many_trials_are_the_same_on_any_number_of_threads() {
        let one = soak(6_199, Until::Done(5), 1, &|_| {});
        assert_eq!((one.trials, one.cpu_ms > 0), (5, true));
        assert_eq!(soak(6_199, Until::Done(5), 3, &|_| {}), one);
        let tried = Mutex::new(Vec::new());
        let never_enough = |seed| {
            tried.lock().unwrap().push(seed);
            false
        };
        assert_eq!(each_seed(7, Until::Passed(Duration::MAX), 1, &never_enough), 1);
        assert_eq!(each_seed(u64::MAX, Until::Done(3), 2, &|_| true), 0, "no seed is left");
        assert_eq!(tried.into_inner().unwrap(), [7]);
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! What a change of a run queue takes under real threads: native/run_queue_stress.c on this machine.

use std::time::Instant;

#[repr(C)]
struct Stress {
    _opaque: [u8; 0],
}

unsafe extern "C" {
    fn stress_new(nr_domains: u32) -> *mut Stress;
    fn stress_free(it: *mut Stress);
    fn stress_run(it: *mut Stress, domain: u32, first: u32, step: u32, times: u64) -> u64;
}

/// Run queues that threads share.
struct RunQueues(*mut Stress);

// SAFETY: what threads change of it they change under a lock, or read as one word (run_queue_stress.c).
unsafe impl Sync for RunQueues {}

impl Drop for RunQueues {
    fn drop(&mut self) {
        // SAFETY: it came from stress_new, and no thread uses it any more.
        unsafe { stress_free(self.0) }
    }
}

/// Of the time from when the first thread begins to when the last ends, the part in which all run, at least: else
/// they were not beside each other.
const TOGETHER: f64 = 0.8;

/// How so many threads do that change keys `times` times each, all of one domain or each of its own: ns for each
/// change, the mean over threads; none where they did not run at the same time. With more threads than pCPUs it says
/// nothing.
///
/// # Errors
/// When there is no memory for so many domains.
pub fn ns_per_change(threads: u32, own_domains: bool, times: u64) -> Result<Option<f64>, String> {
    let nr_domains = if own_domains { threads } else { 1 };
    // SAFETY: any number of domains will do; null is looked for below.
    let queues = RunQueues(unsafe { stress_new(nr_domains) });
    if queues.0.is_null() {
        return Err(format!("no memory for {nr_domains} run queues"));
    }
    let queues = &queues;
    let barrier = &std::sync::Barrier::new(threads as usize);
    let one = move |thread: u32| {
        let domain = if own_domains { thread } else { 0 };
        barrier.wait();
        let begun = Instant::now();
        // SAFETY: the domain is there, and `queues` outlives the threads.
        let seen = unsafe { stress_run(queues.0, domain, thread, threads, times) };
        std::hint::black_box(seen);
        (begun, Instant::now())
    };
    let spans: Vec<(Instant, Instant)> = std::thread::scope(|scope| {
        let started: Vec<_> = (0..threads).map(|it| scope.spawn(move || one(it))).collect();
        started.into_iter().map(|thread| thread.join().expect("it does not panic")).collect()
    });
    Ok(together(&spans, times))
}

/// ns for each change, if these ran at the same time.
fn together(spans: &[(Instant, Instant)], times: u64) -> Option<f64> {
    let begun = spans.iter().map(|span| span.0);
    let ended = spans.iter().map(|span| span.1);
    let all_ns = ended.clone().max()?.duration_since(begun.clone().min()?).as_nanos() as f64;
    let both_ns = ended.min()?.saturating_duration_since(begun.max()?).as_nanos() as f64;
    let sum_ns: f64 = spans.iter().map(|span| (span.1 - span.0).as_nanos() as f64).sum();
    (both_ns >= TOGETHER * all_ns).then(|| sum_ns / (spans.len() as f64 * times as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_change_keys_of_one_domain_and_of_their_own() {
        for own in [false, true] {
            let ns = ns_per_change(2, own, 10_000).unwrap();
            assert!(ns.is_none_or(|ns| ns > 1.0), "{own}: {ns:?}");
        }
    }

    #[test]
    fn threads_that_ran_one_after_the_other_say_nothing() {
        let begun = Instant::now();
        let at = |ns| begun + std::time::Duration::from_nanos(ns);
        assert_eq!(together(&[(at(0), at(1000)), (at(100), at(1100))], 10), Some(100.0));
        assert_eq!(together(&[(at(0), at(1000)), (at(1000), at(2000))], 10), None);
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! What threads leave behind in caches, and what it costs to fetch the rest again.
//!
//! A thread that runs fetches a line with each miss, until it has its share of the cache. Meanwhile it misses
//! more often: by the square-root rule of [`Pace::misses_with`], with a part `x` of its share `1 / sqrt(x)` times
//! as often. So `x^(3/2)` grows evenly with what it computes, and it has its share when it has computed for as long
//! as two thirds as many misses take as the share has lines. The other third is extra: what a cold cache costs.
//!
//! While it does not run, others fetch lines. Each replaces any line as likely as another, so of what it had
//! `(1 - 1 / lines of the cache)` is left after each (Thiebaut and Stone, "Footprints in the cache", 1987, has
//! the same for caches of few ways). Where it has run elsewhere in between, what it left here is of use as before.
//!
//! Worked example: a share of 1 MiB, 10,000 misses a ms with it: 16,384 lines, there after 1.09 ms of computing
//! and 5,461 extra misses from nothing, 268 from three quarters. Fetching 1 MiB in a cache of 4 leaves others 78 % of
//! theirs.

/// Lines of a cache in a KiB.
const LINES_PER_KIB: f64 = 16.0;

/// What is fetched into one cache.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Fetched {
    kib: f64,
    /// That was true then.
    at_ns: u64,
    /// Misses in each second since. In whole numbers: what comes and goes leaves nothing.
    misses_per_s: u64,
}

impl Fetched {
    /// In all until now, KiB.
    pub(super) fn kib(&self, now_ns: u64) -> f64 {
        let s = (now_ns - self.at_ns) as f64 / 1e9;
        self.kib + self.misses_per_s as f64 / LINES_PER_KIB * s
    }

    /// Misses come more or less often from now on.
    pub(super) fn count_until(&mut self, now_ns: u64) {
        self.kib = self.kib(now_ns);
        self.at_ns = now_ns;
    }

    pub(super) fn add(&mut self, misses_per_s: u64) {
        self.misses_per_s += misses_per_s;
    }

    pub(super) fn remove(&mut self, misses_per_s: u64) {
        self.misses_per_s -= misses_per_s;
    }
}

/// What a thread left in a cache.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Footprint {
    /// How much it was.
    pub(super) kib: f64,
    /// What had been fetched into that cache then, KiB.
    pub(super) fetched_kib: f64,
}

impl Footprint {
    /// What is left of it when so much has been fetched into that cache, KiB.
    pub(super) fn left_kib(self, fetched_kib: f64, llc_kib: u32) -> f64 {
        let turns = (fetched_kib - self.fetched_kib) / f64::from(llc_kib);
        // exp(-turns), in operations that are the same on all machines.
        let sixteenth = (1.0 - turns / 16.0).max(0.0);
        self.kib * sixteenth.powi(16)
    }
}

/// How a thread gets on that has a part of its share at first.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Warming {
    /// What it has in the end, KiB.
    pub(super) kib: f64,
    /// Its misses beyond those that it would have with its share all the time.
    pub(super) extra_misses: f64,
}

impl Warming {
    /// With so much at first, a share of so much, and so many misses a ms with that share, after it
    /// computed for so many ms.
    pub(super) fn of(from_kib: f64, share_kib: f64, misses_per_ms: f64, computed_ms: f64) -> Self {
        if from_kib >= share_kib {
            return Self { kib: share_kib, extra_misses: 0.0 };
        }
        let lines = share_kib * LINES_PER_KIB;
        let from = from_kib / share_kib;
        let warm_from = from * from.sqrt();
        let steady = misses_per_ms * computed_ms / lines;
        let warm = (warm_from + 1.5 * steady).min(1.0);
        let part = cube_root(warm) * cube_root(warm);
        let extra = part - from - (warm - warm_from) / 1.5;
        Self { kib: share_kib * part, extra_misses: (lines * extra).max(0.0) }
    }
}

/// Of a part of one, to a millionth where that is not below a millionth itself, which takes ns to compute; Newton's
/// steps, for the same result on all machines.
fn cube_root(part: f64) -> f64 {
    if part <= 0.0 {
        return 0.0;
    }
    // Two square roots are the fourth: not far off, and never below the third.
    let mut root = part.sqrt().sqrt();
    for _ in 0..6 {
        root -= (root - part / (root * root)) / 3.0;
    }
    root
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worked_example() {
        let cold = |computed_ms| Warming::of(0.0, 1024.0, 10_000.0, computed_ms);
        assert_eq!(cold(1.1).kib.round(), 1024.0);
        assert_eq!(cold(1.1).extra_misses.round(), 5461.0);
        assert!(cold(1.08).kib < 1024.0);
        let three_quarters = Warming::of(768.0, 1024.0, 10_000.0, 1.0);
        assert_eq!(three_quarters.extra_misses.round(), 268.0);
        let left = Footprint { kib: 100.0, fetched_kib: 500.0 }.left_kib(500.0 + 1024.0, 4096);
        assert_eq!(left.round(), 78.0);
    }

    #[test]
    fn in_pieces_it_costs_what_it_costs_at_once() {
        let (mut kib, mut extra) = (0.0, 0.0);
        for _ in 0..30 {
            let piece = Warming::of(kib, 1024.0, 10_000.0, 0.03);
            kib = piece.kib;
            extra += piece.extra_misses;
        }
        let at_once = Warming::of(0.0, 1024.0, 10_000.0, 0.9);
        assert!((kib - at_once.kib).abs() < 1e-6 && (extra - at_once.extra_misses).abs() < 1e-6);
    }

    #[test]
    fn who_has_more_than_its_share_loses_the_rest_for_nothing() {
        let shrunk = Warming::of(900.0, 512.0, 10_000.0, 0.0);
        assert_eq!(shrunk, Warming { kib: 512.0, extra_misses: 0.0 });
    }

    #[test]
    fn nothing_is_left_of_what_was_replaced_many_times_over() {
        let footprint = Footprint { kib: 100.0, fetched_kib: 0.0 };
        assert_eq!(footprint.left_kib(0.0, 1024), 100.0);
        assert!(footprint.left_kib(8.0 * 1024.0, 1024) < 0.01);
        assert_eq!(footprint.left_kib(1e9, 1024), 0.0);
    }

    #[test]
    fn what_is_fetched_adds_up() {
        let mut fetched = Fetched::default();
        fetched.add(16_000_000);
        fetched.count_until(2_000_000);
        fetched.remove(16_000_000);
        assert!((fetched.kib(9_000_000) - 2_000.0).abs() < 1e-6);
    }

    #[test]
    fn cube_roots() {
        for root in [0.01, 0.02, 0.1, 0.3, 0.5, 0.99, 1.0] {
            assert!((cube_root(root * root * root) / root - 1.0).abs() < 1e-6, "{root}");
        }
        assert_eq!(cube_root(0.0), 0.0);
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! A last-level cache, divided among those that run on it.
//!
//! Where the working sets of all do not fit together each has a part in proportion to its own. With less
//! cache a thread misses more: the square-root rule of [`Pace::misses_with`]. Worked example: on 6 MiB
//! four threads of 6 MiB each have 1.5 MiB, and miss twice as often as one of them alone.

use super::footprint::Fetched;
use drover_scenario::Pace;

/// How crowded a cache is, is told apart in so many steps for each power of two: on a wide one others are then
/// concerned only now and then. It makes a difference of 1.6 % of misses at most.
const STEPS: f64 = 16.0;

/// One cache of a host.
#[derive(Debug, Clone)]
pub(super) struct Cache {
    kib: f64,
    /// What all that run on it could fill, KiB.
    wanted_kib: u64,
    /// How many times what there is; 1 at least.
    crowding: f64,
    pub(super) fetched: Fetched,
}

impl Cache {
    /// One of that size that nobody uses.
    pub(super) fn new(llc_kib: u32) -> Self {
        Self { kib: llc_kib.into(), wanted_kib: 0, crowding: 1.0, fetched: Fetched::default() }
    }

    /// A thread that could fill so much of it gives way to one that could fill so much. Does that concern the
    /// others?
    pub(super) fn is_wanted(&mut self, before_kib: u64, after_kib: u64) -> bool {
        self.wanted_kib = self.wanted_kib - before_kib + after_kib;
        let crowding = in_steps((self.wanted_kib as f64 / self.kib).max(1.0));
        std::mem::replace(&mut self.crowding, crowding) != crowding
    }

    /// What a thread of that pace has of it, KiB.
    pub(super) fn share_kib(&self, pace: &Pace) -> f64 {
        let own_kib = f64::from(pace.working_set_kib);
        if self.wanted_kib <= pace.working_set_kib.into() {
            return own_kib.min(self.kib);
        }
        (own_kib / self.crowding).min(self.kib)
    }
}

/// The cache that the thread could fill, KiB; nothing where it does not miss.
pub(super) fn wants_kib(pace: &Pace) -> u64 {
    if pace.misses_per_ms == 0 { 0 } else { pace.working_set_kib.into() }
}

/// The nearest of the steps; `times` is 1 at least.
fn in_steps(times: f64) -> f64 {
    let power = f64::from(1u32 << (times as u32).max(1).ilog2());
    (times / power * STEPS).round() / STEPS * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_fits_has_all_it_wants_and_others_by_what_they_want() {
        let pace = |working_set_kib| Pace { misses_per_ms: 1, working_set_kib, ..Pace::default() };
        let share_kib = |own_kib, wanted_kib| {
            let mut cache = Cache::new(4000);
            cache.is_wanted(0, wanted_kib);
            cache.share_kib(&pace(own_kib))
        };
        assert_eq!(share_kib(1000, 4000), 1000.0);
        assert_eq!(share_kib(1000, 8000), 500.0);
        assert_eq!(share_kib(9100, 9100), 4000.0);
        assert_eq!((wants_kib(&pace(7)), wants_kib(&Pace::default())), (7, 0));
    }

    #[test]
    fn on_a_wide_cache_one_more_seldom_concerns_the_others() {
        let mut cache = Cache::new(1000);
        let concerned = (0..1000).filter(|_| cache.is_wanted(0, 100)).count();
        assert!((60..120).contains(&concerned), "{concerned}");
        for times in [1.0, 1.9, 7.3, 50.1, 1234.5] {
            assert!((in_steps(times) / times - 1.0_f64).abs() <= 1.0 / 32.0, "{times}");
        }
    }
}

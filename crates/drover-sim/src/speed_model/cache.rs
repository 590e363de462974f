// SPDX-License-Identifier: GPL-2.0-only
//! The last-level cache, divided among those that run on it.
//!
//! Where the working sets of all do not fit together each has a part in proportion to its own. With less
//! cache a thread misses more: the square-root rule of [`Pace::misses_with`]. Worked example: on 6 MiB
//! four threads of 6 MiB each have 1.5 MiB, and miss twice as often as one of them alone.

use drover_core::scenario::Pace;

/// The cache that the thread could fill, KiB; nothing where it does not miss.
pub(super) fn wants_kib(pace: &Pace) -> u64 {
    if pace.misses_per_ms == 0 { 0 } else { pace.working_set_kib.into() }
}

/// The cache that it has, where all that run on that cache want so much together, KiB.
pub(super) fn share_kib(pace: &Pace, wanted_kib: u64, llc_kib: u32) -> f64 {
    let own_kib = f64::from(pace.working_set_kib);
    own_kib.min(f64::from(llc_kib) * (own_kib / wanted_kib as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_fits_has_all_it_wants_and_others_by_what_they_want() {
        let pace = |working_set_kib| Pace { misses_per_ms: 1, working_set_kib, ..Pace::default() };
        assert_eq!(share_kib(&pace(1000), 4000, 4000), 1000.0);
        assert_eq!(share_kib(&pace(1000), 8000, 4000), 500.0);
        assert_eq!(share_kib(&pace(9000), 9000, 4000), 4000.0);
        assert_eq!((wants_kib(&pace(7)), wants_kib(&Pace::default())), (7, 0));
    }
}

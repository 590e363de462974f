// SPDX-License-Identifier: GPL-2.0-only
//! Hardware threads of a core: two do more together than one, and less than two.
//!
//! How much more hangs on what they do and is said by the workload. Worked example: a gain of 120 %: each
//! of two gets on at 0.6. A core with more than two threads does no more with all of them than with two.

/// The part of its full speed that a thread has, where so many of its core's are busy, it among them.
pub(super) fn part(smt_gain_pct: Option<u32>, busy: u32) -> f64 {
    match smt_gain_pct {
        Some(gain_pct) if busy > 1 => f64::from(gain_pct) / 100.0 / f64::from(busy),
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_siblings_do_together_what_the_gain_says() {
        assert_eq!((part(Some(120), 1), part(Some(120), 2)), (1.0, 0.6));
        assert_eq!((part(Some(120), 4), part(Some(200), 2)), (0.3, 1.0));
        assert_eq!(part(None, 2), 1.0);
    }
}

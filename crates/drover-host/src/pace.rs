// SPDX-License-Identifier: GPL-2.0-only
//! How often the daemon does what costs CPU time: it takes a part of a pCPU at most, however many VMs and cgroups there are.
//!
//! To read 1,500 cgroups may take 30 ms: at a fiftieth they are read again after 1.5 s, not after 0.4.

use nix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// The part of a pCPU that looking at VMs, reading cgroups and profiling may take, each: one in so many.
pub const LOOKS_ONE_IN: u32 = 50;

/// What took so much CPU time, and may take one in so many of a pCPU's, is done again after that long: `interval`, where
/// that is enough.
pub fn next_after(took: Duration, interval: Duration, one_in: u32) -> Duration {
    interval.max(took.saturating_mul(one_in))
}

/// CPU time of this thread.
pub fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_costs_much_is_done_less_often() {
        let ms = Duration::from_millis;
        assert_eq!(next_after(ms(1), ms(200), LOOKS_ONE_IN), ms(200));
        assert_eq!(next_after(ms(30), ms(400), LOOKS_ONE_IN), ms(1500));
        let before = cpu_time();
        while cpu_time() - before < ms(2) {}
    }
}

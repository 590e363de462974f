// SPDX-License-Identifier: GPL-2.0-only
//! How often the daemon does what costs CPU time: no more than a fiftieth of a pCPU each, however many VMs and cgroups there
//! are.
//!
//! To read 1,500 cgroups may take 30 ms: then they are read again after 1.5 s, not after 0.4.

use nix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// The part of a pCPU that each may take.
const ONE_IN: u32 = 50;

/// What took so much CPU time is done again after that long: `interval`, where that is enough.
pub fn next_after(took: Duration, interval: Duration) -> Duration {
    interval.max(took * ONE_IN)
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
        assert_eq!(next_after(ms(1), ms(200)), ms(200));
        assert_eq!(next_after(ms(30), ms(400)), ms(1500));
        let before = cpu_time();
        while cpu_time() - before < ms(2) {}
    }
}

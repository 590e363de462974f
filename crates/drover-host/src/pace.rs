// SPDX-License-Identifier: GPL-2.0-only
//! How often the daemon does what costs CPU time: it takes a part of a pCPU at most, however many VMs and cgroups there are.
//!
//! To read 1,500 cgroups may take 30 ms: at a fiftieth they are read again after 1.5 s, not after 0.4. VMs are looked at within
//! 2 s all the same: until then a VM that comes runs without what was asked for it. A look that took 300 ms, as after a
//! thousand VMs have come, would otherwise put the next off by 15 s.

use nix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// The part of a pCPU that looking at VMs, reading cgroups and profiling may take, each: one in so many.
pub const LOOKS_ONE_IN: u32 = 50;

/// VMs are looked at no later than that after the last look,
const LOOK_WITHIN: Duration = Duration::from_secs(2);
/// unless even that would take more than one in so many of a pCPU's time.
const LATE_LOOKS_ONE_IN: u32 = 5;

/// VMs are looked at again so long after a look that took that much CPU time.
pub fn next_look(took: Duration, interval: Duration) -> Duration {
    let at_most = next_after(took, LOOK_WITHIN, LATE_LOOKS_ONE_IN);
    next_after(took, interval, LOOKS_ONE_IN).min(at_most)
}

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
    fn vms_are_looked_at_within_two_seconds_however_long_the_last_look_took() {
        let ms = Duration::from_millis;
        let after = |took| next_look(ms(took), ms(200));
        assert_eq!([1, 20, 300].map(after), [200, 1000, 2000].map(ms));
        assert_eq!(after(1000), ms(5000), "a fifth of a pCPU is enough");
    }

    #[test]
    fn what_costs_much_is_done_less_often() {
        let ms = Duration::from_millis;
        assert_eq!(next_after(ms(1), ms(200), LOOKS_ONE_IN), ms(200));
        assert_eq!(next_after(ms(30), ms(400), LOOKS_ONE_IN), ms(1500));
        let before = cpu_time();
        while cpu_time() - before < ms(2) {}
    }
}

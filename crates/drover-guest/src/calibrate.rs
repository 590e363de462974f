// SPDX-License-Identifier: GPL-2.0-only
//! How fast this CPU runs the guest's work loop.
//!
//! Guests count work in loops (guest/work.c), scenarios give it in µs. The same instructions are
//! timed here, on the host, before the VM exists: outside or inside a VM they take the same
//! time, and a host's thread is easier to time. The fastest of several tries counts, for anything that
//! interferes only makes a try slower; nothing random enters, so an exact clock gives the same
//! figure each time.

use std::arch::asm;
use std::time::{Duration, Instant};

/// Loops of one try: 7 µs on a real CPU, 0.3 ms on the exact clock; far less than a time slice.
const TRY_LOOPS: u64 = 5_000;
const TRIES: u32 = 20;

/// Measures how many loops of the guest's work a CPU does in a ms; takes up to 10 ms itself.
pub fn loops_per_ms() -> u64 {
    let fastest = (0..TRIES).map(|_| time_one_try()).min().unwrap_or_default();
    rate_per_ms(TRY_LOOPS, fastest)
}

fn rate_per_ms(loops: u64, took: Duration) -> u64 {
    let took_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX).max(1);
    (loops.saturating_mul(1_000_000) / took_ns).max(1)
}

/// Never inlined: a copy of the loop for each try would have an emulator translate each anew, and that
/// would be timed (four times as long as the loop).
#[inline(never)]
fn time_one_try() -> Duration {
    let start = Instant::now();
    // SAFETY: counts a register down to zero; touches no memory and no stack.
    unsafe {
        asm!(
            ".p2align 6",
            "2: sub {loops}, 1",
            ".rept 30",
            "nop",
            ".endr",
            "jnz 2b",
            loops = inout(reg) TRY_LOOPS => _,
            options(nomem, nostack),
        );
    }
    start.elapsed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_loops_over_time() {
        assert_eq!(rate_per_ms(100_000, Duration::from_micros(250)), 400_000);
        assert_eq!(rate_per_ms(100_000, Duration::from_secs(1000)), 1, "never 0");
        assert_eq!(rate_per_ms(100_000, Duration::ZERO), 100_000_000_000, "no division by 0");
    }

    #[test]
    fn any_cpu_does_between_1_and_10_000_loops_per_us() {
        let rate = loops_per_ms();
        // A loop is 31 instructions: CPUs that fuse them have been seen to do 1300.
        assert!((1_000..=10_000_000).contains(&rate), "{rate}");
    }
}

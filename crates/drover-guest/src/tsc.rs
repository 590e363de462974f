// SPDX-License-Identifier: GPL-2.0-only
//! The rate of the guest's clock, the TSC.

use std::arch::x86_64::_rdtsc;
use std::time::{Duration, Instant};

const MEASURE_TIME: Duration = Duration::from_millis(20);

/// The guest's TSC rate in kHz: what KVM says it is, else the host's, measured.
///
/// A KVM that cannot say (it answers with an error, or 0) cannot scale the TSC either, so the
/// guest sees the host's.
pub(crate) fn guest_khz(kvm_says: Result<u32, kvm_ioctls::Error>) -> u64 {
    match kvm_says {
        Ok(khz) if khz > 0 => khz.into(),
        _ => measure_khz(),
    }
}

fn measure_khz() -> u64 {
    let (start, start_tsc) = (Instant::now(), read_tsc());
    while start.elapsed() < MEASURE_TIME {
        std::hint::spin_loop();
    }
    let (took, cycles) = (start.elapsed(), read_tsc().wrapping_sub(start_tsc));
    khz(cycles, took)
}

fn khz(cycles: u64, took: Duration) -> u64 {
    let khz = u128::from(cycles) * 1_000_000 / took.as_nanos().max(1);
    u64::try_from(khz).unwrap_or(u64::MAX).max(1)
}

fn read_tsc() -> u64 {
    // SAFETY: every x86-64 CPU has RDTSC, and Linux leaves it to user space.
    unsafe { _rdtsc() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn khz_is_cycles_per_ms() {
        assert_eq!(khz(60_000_000, Duration::from_millis(20)), 3_000_000);
        assert_eq!(khz(0, Duration::ZERO), 1, "never 0, whatever the clocks do");
    }

    #[test]
    fn what_kvm_says_goes_before_measuring() {
        assert_eq!(guest_khz(Ok(2_500_000)), 2_500_000);
    }

    #[test]
    fn a_kvm_that_cannot_say_is_made_up_for() {
        let errno = kvm_ioctls::Error::new(libc::EIO);
        for answer in [Ok(0), Err(errno)] {
            let khz = guest_khz(answer);
            assert!((100_000..=10_000_000).contains(&khz), "{khz}");
        }
    }
}

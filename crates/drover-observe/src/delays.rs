// SPDX-License-Identifier: GPL-2.0-only
//! I/O delays: how long threads on the way of a VM's I/O waited for their pCPUs (bpf/io.bpf.h).
//!
//! The kernel counts each delay in a bucket: each power of two in four, from 1.024 us on. So a percentile
//! is at most a quarter too high, or 1 us; the mean is exact. Counts and sum only ever grow, and a count begins
//! anew beyond 32 bits: what is between two readings is right all the same.

use std::collections::HashMap;

use drover_core::io::{DelayUs, Io, IoDelays};

/// Buckets, as the kernel has them.
pub(crate) const BUCKETS: usize = 92;
/// A unit is 2^10 ns.
const UNIT_SHIFT: u32 = 10;
/// log2 of the parts of a power of two.
const SUB_BITS: u32 = 2;

/// Delays by length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delays {
    /// All of them together.
    pub sum_ns: u64,
    /// How many of each length.
    pub counts: [u32; BUCKETS],
}

/// The delays of one thread since it was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadIo {
    /// Its VM's process.
    pub process: u32,
    /// The thread.
    pub thread: u32,
    /// When it was found, which tells it from another thread of that number.
    pub found_ns: u64,
    /// It is a vCPU, and its delays are those to the guest; else those to the device.
    pub is_vcpu: bool,
    /// Its delays.
    pub delays: Delays,
}

impl Default for Delays {
    fn default() -> Self {
        Self { sum_ns: 0, counts: [0; BUCKETS] }
    }
}

impl Delays {
    /// Those after `then`, an older reading of the same.
    fn since(&self, then: &Self) -> Self {
        let counts = std::array::from_fn(|at| self.counts[at].wrapping_sub(then.counts[at]));
        Self { sum_ns: self.sum_ns.wrapping_sub(then.sum_ns), counts }
    }

    fn add(&mut self, other: &Self) {
        self.sum_ns += other.sum_ns;
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine = mine.saturating_add(*theirs);
        }
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.counts.iter().map(|&count| u64::from(count)).sum()
    }

    /// The figures of these delays; none when there are none.
    fn figures(&self) -> Option<DelayUs> {
        let count = self.count();
        #[allow(clippy::cast_precision_loss, reason = "52 bits are enough for what is shown")]
        let mean_us = |count: u64| self.sum_ns as f64 / count as f64 / 1000.0;
        (count > 0).then(|| DelayUs {
            count,
            mean: rounded(mean_us(count)),
            p50: self.not_exceeded_us(count.div_ceil(2)),
            p99: self.not_exceeded_us((count * 99).div_ceil(100)),
        })
    }

    /// What so many of them do not exceed.
    fn not_exceeded_us(&self, rank: u64) -> f64 {
        let mut seen = 0;
        let bucket = self.counts.iter().position(|&count| {
            seen += u64::from(count);
            seen >= rank
        });
        rounded(top_us(bucket.unwrap_or(BUCKETS - 1)))
    }
}

/// Where a bucket ends.
fn top_us(bucket: usize) -> f64 {
    let (parts, bucket) = (1 << SUB_BITS, bucket as u64);
    let units = match bucket < parts {
        true => bucket + 1,
        false => (bucket % parts + parts + 1) << (bucket / parts - 1),
    };
    #[allow(clippy::cast_precision_loss, reason = "it is below 2^35")]
    let ns = (units << UNIT_SHIFT) as f64;
    ns / 1000.0
}

/// To ns.
fn rounded(us: f64) -> f64 {
    (us * 1000.0).round() / 1000.0
}

/// Delays of a VM in each direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct VmDelays {
    /// Of its helpers.
    pub to_device: Delays,
    /// Of its vCPUs.
    pub to_guest: Delays,
}

impl VmDelays {
    /// The figures of these.
    pub fn figures(&self) -> Io {
        let [to_device, to_guest] = [self.to_device.figures(), self.to_guest.figures()];
        Io { delay_us: IoDelays { to_guest, to_device }, ..Io::default() }
    }
}

/// The delays between two readings of each VM that has had any, by its process. Those of a thread that has ended
/// since the first are lost.
pub fn between(before: &[ThreadIo], after: &[ThreadIo]) -> HashMap<u32, VmDelays> {
    let earlier: HashMap<(u32, u64), &ThreadIo> =
        before.iter().map(|io| ((io.thread, io.found_ns), io)).collect();
    let mut sums: HashMap<u32, VmDelays> = HashMap::new();
    for now in after {
        // A helper that has become a vCPU begins anew.
        let then = earlier.get(&(now.thread, now.found_ns));
        let then = then.filter(|then| then.is_vcpu == now.is_vcpu);
        let new = then.map_or(now.delays, |then| now.delays.since(&then.delays));
        let of_vm = sums.entry(now.process).or_default();
        (if now.is_vcpu { &mut of_vm.to_guest } else { &mut of_vm.to_device }).add(&new);
    }
    sums
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Where the kernel counts a delay: `delay_index` of bpf/io.bpf.h.
    fn bucket(ns: u64) -> usize {
        let units = ns >> UNIT_SHIFT;
        if units < 1 << SUB_BITS {
            return usize::try_from(units).unwrap();
        }
        let shift = 63 - units.leading_zeros() - SUB_BITS;
        usize::try_from(u64::from(shift << SUB_BITS) + (units >> shift)).unwrap().min(BUCKETS - 1)
    }

    pub(crate) fn delays(each_ns: &[u64]) -> Delays {
        let mut delays = Delays { sum_ns: each_ns.iter().sum(), ..Delays::default() };
        each_ns.iter().for_each(|&ns| delays.counts[bucket(ns)] += 1);
        delays
    }

    fn thread(thread: u32, is_vcpu: bool, delays: Delays) -> ThreadIo {
        ThreadIo { process: 10, thread, found_ns: 5, is_vcpu, delays }
    }

    #[test]
    fn a_delay_is_below_the_end_of_its_bucket_and_not_by_more_than_a_quarter() {
        for ns in (0..200_000).step_by(37).chain((0..17_000_000_000).step_by(7_654_321)) {
            #[allow(clippy::cast_precision_loss)]
            let (us, top) = (ns as f64 / 1000.0, top_us(bucket(ns)));
            assert!(us < top && top <= (1.25 * us).max(us + 1.024), "{us} {top}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        assert_eq!(top_us(BUCKETS - 1), 2_f64.powi(34) / 1000.0);
    }

    #[test]
    fn mean_is_exact_and_percentiles_are_bucket_ends() {
        let mut each = vec![10_000; 98];
        each.extend([2_000_000, 4_000_000]);
        let figures = delays(&each).figures().unwrap();
        assert_eq!((figures.count, figures.mean), (100, 69.8));
        assert_eq!((figures.p50, figures.p99), (10.24, 2097.152));
        assert_eq!(delays(&[]).figures(), None);
    }

    #[test]
    fn delays_to_guest_are_those_of_vcpus_and_to_device_those_of_helpers() {
        let before = [thread(1, true, delays(&[5_000])), thread(2, false, delays(&[]))];
        let after = [
            thread(1, true, delays(&[5_000, 8_000])),
            thread(2, false, delays(&[3_000])),
            thread(3, false, delays(&[5_000])),
        ];
        let IoDelays { to_guest, to_device } = between(&before, &after)[&10].figures().delay_us;
        let means = [to_guest, to_device].map(|delay| delay.map(|it| (it.count, it.mean)));
        assert_eq!(means, [Some((1, 8.0)), Some((2, 4.0))]);
        assert!(between(&after, &[]).is_empty(), "of a VM that has gone nothing is known");
        assert_eq!(between(&after, &after)[&10].figures(), Io::default());
    }

    #[test]
    fn another_thread_of_the_same_number_begins_anew() {
        let before = [thread(1, true, delays(&[5_000, 5_000]))];
        let after = [ThreadIo { found_ns: 9, ..thread(1, true, delays(&[8_000])) }];
        let figures = between(&before, &after)[&10].figures();
        assert_eq!(figures.delay_us.to_guest.unwrap().mean, 8.0);
    }

    #[test]
    fn full_counters_go_on_from_nothing() {
        let mut before = delays(&[5_000]);
        before.counts[bucket(5_000)] = u32::MAX;
        let mut after = before;
        after.counts[bucket(5_000)] = 1;
        after.sum_ns += 10_000;
        let [before, after] = [before, after].map(|delays| [thread(1, true, delays)]);
        let figures = between(&before, &after)[&10].figures().delay_us.to_guest.unwrap();
        assert_eq!((figures.count, figures.mean), (2, 5.0));
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! How late sleepers woke: a histogram that only has the buckets it needs.
//!
//! The same buckets as [`drover_core::histogram`], but a VM of one vCPU must not cost 8 KiB.

use drover_core::histogram::{BUCKETS, Histogram, bucket_index};

/// Counted lateness, ns.
#[derive(Debug, Clone, Default)]
pub struct SleepTimes {
    /// Bucket and count, ascending.
    buckets: Vec<(u16, u32)>,
    sum_ns: u64,
    max_ns: u64,
}

impl SleepTimes {
    /// Counts one wake-up.
    pub fn record(&mut self, late_ns: u64) {
        let index = bucket_index(late_ns) as u16;
        match self.buckets.binary_search_by_key(&index, |(bucket, _)| *bucket) {
            Ok(at) => self.buckets[at].1 = self.buckets[at].1.saturating_add(1),
            Err(at) => self.buckets.insert(at, (index, 1)),
        }
        self.sum_ns = self.sum_ns.saturating_add(late_ns);
        self.max_ns = self.max_ns.max(late_ns);
    }

    /// What was counted since an earlier moment.
    pub fn since(&self, earlier: &Self) -> Histogram {
        self.histogram().since(&earlier.histogram())
    }

    /// The same with all its buckets.
    pub fn histogram(&self) -> Histogram {
        let mut buckets = vec![0; BUCKETS];
        for &(index, count) in &self.buckets {
            buckets[usize::from(index)] = u64::from(count);
        }
        Histogram::from_parts(&buckets, self.sum_ns, self.max_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_counts_as_the_full_histogram_does(times in prop::collection::vec(any::<u64>(), 0..80)) {
            let (mut sparse, mut full) = (SleepTimes::default(), Histogram::new());
            for time in times {
                sparse.record(time >> 20);
                full.record(time >> 20);
            }
            prop_assert_eq!(sparse.histogram(), full);
        }
    }
}

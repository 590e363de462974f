// SPDX-License-Identifier: GPL-2.0-only
//! A log-linear histogram of durations, small enough to live in a guest's shared memory.
//!
//! Every power of two is cut into [`SUB_BUCKETS`] equal parts, so a figure read from a bucket is
//! never more than 1/32 (3.1 %) above the true one. The code inside a micro VM fills the same
//! buckets; it must compute [`bucket_index`] as this file does. In C, for `v` in nanoseconds:
//!
//! ```c
//! if (v >= 1ull << 36) return 1023;           /* a minute and more: the last bucket */
//! if (v < 32) return v;
//! shift = 63 - __builtin_clzll(v) - 5;
//! return shift * 32 + (v >> shift);
//! ```
//!
//! Worked example: 1000 ns has its highest bit at 9, so `shift` is 4; 1000 >> 4 = 62 and the
//! index is 4 * 32 + 62 = 190, the bucket of 992 to 1007 ns.

/// Parts that each power of two is cut into; also the width of the exact range `0..32` ns.
pub const SUB_BUCKETS: usize = 32;

/// Number of buckets. The last one also holds everything from [`SATURATION_NS`] up.
pub const BUCKETS: usize = 1024;

/// Durations from here up (69 s) are counted in the last bucket.
pub const SATURATION_NS: u64 = 1 << 36;

/// log2 of [`SUB_BUCKETS`].
const SUB_BITS: u32 = SUB_BUCKETS.trailing_zeros();

const _: () = assert!(BUCKETS == (36 - SUB_BITS as usize + 1) * SUB_BUCKETS);

/// The bucket that counts a duration of `value_ns`: always below [`BUCKETS`].
pub const fn bucket_index(value_ns: u64) -> usize {
    if value_ns >= SATURATION_NS {
        return BUCKETS - 1;
    }
    if value_ns < SUB_BUCKETS as u64 {
        return value_ns as usize;
    }
    let shift = 63 - value_ns.leading_zeros() - SUB_BITS;
    shift as usize * SUB_BUCKETS + (value_ns >> shift) as usize
}

/// The largest duration, in ns, that bucket `index` counts (the last bucket's is [`u64::MAX`]).
///
/// # Panics
/// When `index` is not below [`BUCKETS`].
pub const fn bucket_top_ns(index: usize) -> u64 {
    assert!(index < BUCKETS);
    if index == BUCKETS - 1 {
        return u64::MAX;
    }
    if index < SUB_BUCKETS {
        return index as u64;
    }
    let shift = index / SUB_BUCKETS - 1;
    let sub = (index % SUB_BUCKETS + SUB_BUCKETS) as u64;
    ((sub + 1) << shift) - 1
}

/// Durations counted in buckets, with their exact sum and maximum. Unit: nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram {
    buckets: Vec<u64>,
    sum_ns: u64,
    max_ns: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: vec![0; BUCKETS], sum_ns: 0, max_ns: 0 }
    }
}

impl Histogram {
    /// An empty histogram.
    pub fn new() -> Self {
        Self::default()
    }

    /// A histogram as a guest left it: its buckets, the exact sum and the exact maximum.
    ///
    /// # Panics
    /// When `buckets` does not hold exactly [`BUCKETS`] counts.
    pub fn from_parts(buckets: &[u64], sum_ns: u64, max_ns: u64) -> Self {
        assert_eq!(buckets.len(), BUCKETS, "a histogram has {BUCKETS} buckets");
        Self { buckets: buckets.to_vec(), sum_ns, max_ns }
    }

    /// Counts one duration.
    pub fn record(&mut self, value_ns: u64) {
        self.buckets[bucket_index(value_ns)] += 1;
        self.sum_ns = self.sum_ns.saturating_add(value_ns);
        self.max_ns = self.max_ns.max(value_ns);
    }

    /// Adds the counts of another histogram, as those of a VM's other vCPUs.
    pub fn merge(&mut self, other: &Histogram) {
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine += theirs;
        }
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// What was counted after `earlier`, an older snapshot of this same histogram.
    ///
    /// The maximum of that time is exact when a new one was set in it, otherwise the top of the
    /// highest bucket that grew.
    pub fn since(&self, earlier: &Histogram) -> Histogram {
        let grown = |(now, then): (&u64, &u64)| now.saturating_sub(*then);
        let buckets: Vec<u64> = self.buckets.iter().zip(&earlier.buckets).map(grown).collect();
        let highest = buckets.iter().rposition(|&count| count > 0);
        let max_ns = match highest {
            None => 0,
            Some(_) if self.max_ns > earlier.max_ns => self.max_ns,
            Some(index) => bucket_top_ns(index).min(self.max_ns),
        };
        Histogram { buckets, sum_ns: self.sum_ns.saturating_sub(earlier.sum_ns), max_ns }
    }

    /// How many durations were counted.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The longest duration in ns; none when nothing was counted.
    pub fn max_ns(&self) -> Option<u64> {
        (self.count() > 0).then_some(self.max_ns)
    }

    /// The mean in ns; none when nothing was counted.
    pub fn mean_ns(&self) -> Option<f64> {
        let count = self.count();
        (count > 0).then(|| self.sum_ns as f64 / count as f64)
    }

    /// The duration in ns that `quantile` (0 to 1) of all counted ones do not exceed, at most
    /// 1/32 too high; none when nothing was counted.
    pub fn quantile_ns(&self, quantile: f64) -> Option<u64> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        let rank = ((quantile.clamp(0.0, 1.0) * count as f64).ceil() as u64).clamp(1, count);
        let mut seen = 0;
        let index = self.buckets.iter().position(|&bucket| {
            seen += bucket;
            seen >= rank
        });
        index.map(|index| bucket_top_ns(index).min(self.max_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_worked_example_of_the_header_holds() {
        assert_eq!(bucket_index(1000), 190);
        assert_eq!(bucket_index(992), 190);
        assert_eq!(bucket_index(991), 189);
        assert_eq!(bucket_top_ns(190), 1007);
    }

    #[test]
    fn small_and_huge_values_have_their_buckets() {
        assert_eq!(bucket_index(0), 0);
        assert_eq!(bucket_index(31), 31);
        assert_eq!(bucket_index(32), 32);
        assert_eq!(bucket_index(63), 63);
        assert_eq!(bucket_index(64), 64);
        assert_eq!(bucket_index(SATURATION_NS - 1), BUCKETS - 1);
        assert_eq!(bucket_index(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn nothing_counted_gives_no_figures() {
        let empty = Histogram::new();
        assert_eq!((empty.mean_ns(), empty.max_ns(), empty.quantile_ns(0.5)), (None, None, None));
    }

    #[test]
    fn quantiles_of_a_known_series() {
        let mut histogram = Histogram::new();
        (1..=100).for_each(|us| histogram.record(us * 1000));
        assert_eq!(histogram.mean_ns(), Some(50_500.0));
        assert_eq!(histogram.max_ns(), Some(100_000));
        let p50 = histogram.quantile_ns(0.5).unwrap();
        assert!((50_000..=51_600).contains(&p50), "{p50}");
        assert_eq!(histogram.quantile_ns(1.0), Some(100_000));
    }

    #[test]
    fn a_window_keeps_only_what_came_after() {
        let mut histogram = Histogram::new();
        histogram.record(9_000_000);
        let before = histogram.clone();
        histogram.record(1_000);
        let window = histogram.since(&before);
        assert_eq!((window.count(), window.mean_ns()), (1, Some(1000.0)));
        assert_eq!(window.max_ns(), Some(1007), "the old maximum is not of this window");
        assert_eq!(histogram.since(&histogram).count(), 0);
    }

    proptest! {
        #[test]
        fn a_bucket_holds_what_is_counted_in_it(value in 0u64..SATURATION_NS - (1 << 31)) {
            let index = bucket_index(value);
            prop_assert!(value <= bucket_top_ns(index));
            prop_assert!(index == 0 || value > bucket_top_ns(index - 1));
            prop_assert!(bucket_top_ns(index) - value <= value / 32);
        }

        #[test]
        fn merging_is_counting_both(a in prop::collection::vec(any::<u32>(), 0..50),
                                    b in prop::collection::vec(any::<u32>(), 0..50)) {
            let fill = |values: &[u32]| {
                let mut histogram = Histogram::new();
                values.iter().for_each(|&value| histogram.record(value.into()));
                histogram
            };
            let mut merged = fill(&a);
            merged.merge(&fill(&b));
            prop_assert_eq!(merged, fill(&[a, b].concat()));
        }
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! What repeats say together: the mean of each figure with its confidence interval, and how schedulers differ
//! within the same repeat.
//!
//! The intervals are of 95 %, by Student's t: of n values with standard deviation s the mean is known to
//! t s / sqrt(n), where t is that of n - 1 degrees of freedom. Within a repeat all schedulers have the same seed, so what
//! is luck is in both figures, and the difference is known better than either.
//!
//! Worked example: 10, 12 and 14 have the mean 12 and the standard deviation 2; t is 4.303; so 12 +- 4.97.

use serde::{Deserialize, Serialize};

/// Student's t of 97.5 % for 1 to 30 degrees of freedom.
const T: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];

/// The mean of some values.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Mean {
    /// How many there are, two at least.
    pub n: u32,
    /// Their mean.
    pub mean: f64,
    /// Half the width of its 95 % confidence interval.
    pub ci95: f64,
}

impl Mean {
    /// Of these values; none of fewer than two.
    pub fn of(values: &[f64]) -> Option<Self> {
        let n = values.len();
        if n < 2 {
            return None;
        }
        let mean = values.iter().sum::<f64>() / n as f64;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let deviation = (squares / (n - 1) as f64).sqrt();
        Some(Self { n: n as u32, mean, ci95: t(n - 1) * deviation / (n as f64).sqrt() })
    }
}

/// Student's t of 97.5 %: beyond the table, the normal quantile z with two terms of its expansion in 1 / `freedom`.
fn t(freedom: usize) -> f64 {
    let z: f64 = 1.959_964;
    let (first, second) =
        ((z.powi(3) + z) / 4.0, (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0);
    let freedom_f = freedom as f64;
    T.get(freedom - 1).copied().unwrap_or(z + first / freedom_f + second / freedom_f.powi(2))
}

/// Whose figure it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Whose {
    /// The case.
    pub case: String,
    /// The VM.
    pub vm: String,
    /// The figure, as expectations call it.
    pub metric: String,
    /// The scheduler.
    pub scheduler: String,
}

impl Whose {
    /// Case, VM and figure.
    pub fn figure(&self) -> (&str, &str, &str) {
        (&self.case, &self.vm, &self.metric)
    }
}

/// The mean of a figure over repeats.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OverRepeats {
    /// Whose.
    #[serde(flatten)]
    pub whose: Whose,
    /// What it is, in the figure's unit.
    #[serde(flatten)]
    pub value: Mean,
}

/// The mean over repeats of how far a figure is from that under another scheduler in the same repeat.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// Whose.
    #[serde(flatten)]
    pub whose: Whose,
    /// The other scheduler.
    pub against: String,
    /// What it is, % of the figure under the other one.
    #[serde(flatten)]
    pub value: Mean,
}

/// What the repeats of a scenario say together.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Repeats {
    /// The mean of each figure.
    pub means: Vec<OverRepeats>,
    /// How schedulers differ.
    pub differences: Vec<Difference>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_students() {
        let mean = Mean::of(&[10.0, 12.0, 14.0]).unwrap();
        assert_eq!((mean.n, mean.mean), (3, 12.0));
        assert!((mean.ci95 - 4.303 * 2.0 / 3.0f64.sqrt()).abs() < 1e-9, "{mean:?}");
        assert_eq!(Mean::of(&[3.0]), None);
        assert_eq!(Mean::of(&[3.0, 3.0]).unwrap().ci95, 0.0);
        // As tables of t have it for 40, 60 and 120 degrees of freedom.
        for (freedom, known) in [(40, 2.021), (60, 2.000), (120, 1.980)] {
            assert!((t(freedom) - known).abs() < 0.001, "{freedom}: {}", t(freedom));
        }
    }
}

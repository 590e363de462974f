// SPDX-License-Identifier: GPL-2.0-only
//! What repeats say together: the mean of each figure with its confidence interval, and how schedulers differ
//! within the same repeat.
//!
//! The intervals are of 95 %, by Student's t: of n values with standard deviation s the mean is known to
//! t s / sqrt(n), where t is that of n - 1 degrees of freedom. Within a repeat all schedulers have the same seed, so what
//! is luck is in both figures, and the difference is known better than either.
//!
//! Worked example: 10, 12 and 14 have the mean 12 and the standard deviation 2; t is 4.303; so 12 +- 4.97.

use crate::expect::Metric;
use crate::results::{Results, Run};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The figures that are drawn together.
const FIGURES: [Metric; 4] =
    [Metric::ShareGotPct, Metric::Progress, Metric::WakeupMeanUs, Metric::WakeupP99Us];

/// What others are compared with, where it ran.
const DROVER: &str = "drover";

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

impl Repeats {
    /// Of results in which something ran more than once; else none. Runs with a fault do not count.
    pub fn of(results: &Results) -> Option<Self> {
        let mut repeats = Self::default();
        let mut schedulers: Vec<&str> = Vec::new();
        let mut subjects: Vec<(&str, &str)> = Vec::new();
        for run in &results.runs {
            if !schedulers.contains(&run.scheduler.as_str()) {
                schedulers.push(&run.scheduler);
            }
            for vm in &run.vms {
                if !subjects.contains(&(&run.case, &vm.name)) {
                    subjects.push((&run.case, &vm.name));
                }
            }
        }
        let chief = schedulers.iter().find(|it| **it == DROVER).or(schedulers.last()).copied();
        for (case, vm) in subjects {
            for metric in FIGURES {
                let of = |scheduler: &str| figures(results, (case, scheduler), (vm, metric));
                let whose = |scheduler: &str| Whose {
                    case: case.to_owned(),
                    vm: vm.to_owned(),
                    metric: metric.name().to_owned(),
                    scheduler: scheduler.to_owned(),
                };
                for scheduler in &schedulers {
                    let values: Vec<f64> = of(scheduler).into_values().collect();
                    let mean = Mean::of(&values);
                    repeats
                        .means
                        .extend(mean.map(|value| OverRepeats { whose: whose(scheduler), value }));
                }
                let Some(chief) = chief else { continue };
                for other in schedulers.iter().filter(|it| **it != chief) {
                    let value = Mean::of(&differences_pct(&of(chief), &of(other)));
                    let against = (*other).to_owned();
                    let difference =
                        value.map(|value| Difference { whose: whose(chief), against, value });
                    repeats.differences.extend(difference);
                }
            }
        }
        (!repeats.means.is_empty()).then_some(repeats)
    }
}

/// The figure of a VM in each repeat.
fn figures(
    results: &Results,
    (case, scheduler): (&str, &str),
    (vm, metric): (&str, Metric),
) -> BTreeMap<u32, f64> {
    let is_of = |run: &&Run| run.case == case && run.scheduler == scheduler && run.fault.is_none();
    let runs = results.runs.iter().filter(is_of);
    let has_vm = runs.filter(|run| run.vm(vm).is_some());
    has_vm.filter_map(|run| Some((run.repeat, metric.figure(run, Some(vm), None)?))).collect()
}

/// How far each figure is from the other of the same repeat, % of that.
fn differences_pct(figures: &BTreeMap<u32, f64>, others: &BTreeMap<u32, f64>) -> Vec<f64> {
    let both = figures.iter().filter_map(|(repeat, it)| Some((it, others.get(repeat)?)));
    both.filter(|(_, other)| **other != 0.0).map(|(it, other)| 100.0 * (it / other - 1.0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Ground, HostFigures, Origin, VmFigures};

    fn run(scheduler: &str, repeat: u32, progress: u64) -> Run {
        let vm = VmFigures { name: "a".to_owned(), progress: Some(progress), ..Default::default() };
        Run {
            case: "all".to_owned(),
            scheduler: scheduler.to_owned(),
            repeat,
            seed: Some(u64::from(repeat)),
            duration_s: 1.0,
            fault: None,
            host: HostFigures::default(),
            vms: vec![vm],
        }
    }

    fn results(runs: Vec<Run>) -> Results {
        Results {
            scenario: "s".to_owned(),
            ground: Ground::Sim,
            clock: None,
            origin: Origin::default(),
            seed: 1,
            kernel: None,
            runs,
            repeats: None,
            wall: None,
        }
    }

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

    #[test]
    fn schedulers_are_compared_within_the_same_repeat() {
        // What luck there is moves both alike: the figures are far apart, their ratio is not.
        let runs = [(1, 100, 103), (2, 200, 206), (3, 400, 412)].into_iter();
        let runs = runs
            .flat_map(|(at, eevdf, drover)| [run("eevdf", at, eevdf), run("drover", at, drover)]);
        let repeats = Repeats::of(&results(runs.collect())).unwrap();
        assert_eq!(repeats.means.len(), 2, "{repeats:?}");
        assert!(repeats.means[1].value.ci95 > 100.0);
        let [difference] = &repeats.differences[..] else { panic!("one pair: {repeats:?}") };
        assert_eq!((&*difference.whose.scheduler, &*difference.against), ("drover", "eevdf"));
        assert!((difference.value.mean - 3.0).abs() < 1e-9 && difference.value.ci95 < 1e-9);
        assert_eq!(difference.value.n, 3);
    }

    #[test]
    fn one_run_has_no_mean_and_a_fault_does_not_count() {
        assert_eq!(Repeats::of(&results(vec![run("drover", 1, 5)])), None);
        let fault = Run { fault: Some("ejected".to_owned()), ..run("drover", 3, 9) };
        let repeats = Repeats::of(&results(vec![run("drover", 1, 5), run("drover", 2, 7), fault]));
        let mean = &repeats.unwrap().means[0];
        assert_eq!((mean.value.n, mean.value.mean), (2, 6.0));
    }
}

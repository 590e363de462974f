// SPDX-License-Identifier: GPL-2.0-only
//! The means of figures over repeats, and how schedulers differ.

use super::Metric;
use crate::repeats::{Difference, Mean, OverRepeats, Repeats, Whose};
use crate::results::{Results, Run};
use std::collections::BTreeMap;

/// The figures that are drawn together.
const FIGURES: [Metric; 4] =
    [Metric::ShareGotPct, Metric::Progress, Metric::WakeupMeanUs, Metric::WakeupP99Us];

/// What others are compared with, where it ran.
const DROVER: &str = "drover";

/// What the repeats of results say together, in which something ran more than once; else none. Runs with a fault do
/// not count.
pub fn repeats(results: &Results) -> Option<Repeats> {
    let mut repeats = Repeats::default();
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
    fn schedulers_are_compared_within_the_same_repeat() {
        // What luck there is moves both alike: the figures are far apart, their ratio is not.
        let runs = [(1, 100, 103), (2, 200, 206), (3, 400, 412)].into_iter();
        let runs = runs
            .flat_map(|(at, eevdf, drover)| [run("eevdf", at, eevdf), run("drover", at, drover)]);
        let repeats = repeats(&results(runs.collect())).unwrap();
        assert_eq!(repeats.means.len(), 2, "{repeats:?}");
        assert!(repeats.means[1].value.ci95 > 100.0);
        let [difference] = &repeats.differences[..] else { panic!("one pair: {repeats:?}") };
        assert_eq!((&*difference.whose.scheduler, &*difference.against), ("drover", "eevdf"));
        assert!((difference.value.mean - 3.0).abs() < 1e-9 && difference.value.ci95 < 1e-9);
        assert_eq!(difference.value.n, 3);
    }

    #[test]
    fn one_run_has_no_mean_and_a_fault_does_not_count() {
        assert_eq!(repeats(&results(vec![run("drover", 1, 5)])), None);
        let fault = Run { fault: Some("ejected".to_owned()), ..run("drover", 3, 9) };
        let repeats = repeats(&results(vec![run("drover", 1, 5), run("drover", 2, 7), fault]));
        let mean = &repeats.unwrap().means[0];
        assert_eq!((mean.value.n, mean.value.mean), (2, 6.0));
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! Holds results against expectations.

use super::{Expect, Metric, VmChoice};
use crate::results::{Results, Run};
use drover_core::names::is_meant;
use std::collections::BTreeMap;

/// What came of one expectation for one case and VM.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Scheduler whose runs were looked at.
    pub scheduler: String,
    /// Case whose runs were looked at; none where nothing ran.
    pub case: Option<String>,
    /// VM whose figure it is; none for a figure of the host.
    pub vm: Option<String>,
    /// The figure.
    pub metric: Metric,
    /// What was measured: the median over repeats, of ratios where one is asked for.
    pub measured: Option<f64>,
    /// The least and the most of that over the repeats.
    pub range: Option<(f64, f64)>,
    /// That of each repeat.
    pub of_repeats: Vec<f64>,
    /// What the source of the scenario has.
    pub published: Option<f64>,
    /// What was asked, such as `<= 1` or `>= 0.98 of eevdf`.
    pub asked: String,
    /// What came of it.
    pub verdict: Verdict,
    /// Why it failed, where the figure does not say it.
    pub note: Option<String>,
}

/// What came of an expectation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It holds.
    Pass,
    /// It does not hold, or could not be measured.
    Fail,
    /// What it speaks of was not run.
    NotRun,
}

/// The middle of some values; of an even number, the mean of the middle two; none of none.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        count if count % 2 == 1 => Some(sorted[upper]),
        _ => Some((sorted[upper - 1] + sorted[upper]) / 2.0),
    }
}

/// Holds `results` against each of `expects`: a row for each case and VM an expectation speaks of.
pub fn evaluate(expects: &[Expect], results: &Results) -> Vec<Row> {
    expects.iter().flat_map(|expect| rows_of(expect, results)).collect()
}

fn rows_of(expect: &Expect, results: &Results) -> Vec<Row> {
    let mut rows = Vec::new();
    for case in cases_of(expect, results) {
        let Some(run) = runs(results, &expect.scheduler, case).next() else { continue };
        let vms: Vec<Option<&str>> = match &expect.vm {
            VmChoice::Host => vec![None],
            VmChoice::Each if expect.mean => vec![Some("*")],
            VmChoice::Like(pattern) if expect.mean => vec![Some(pattern)],
            VmChoice::Each => run.vms.iter().map(|vm| Some(vm.name.as_str())).collect(),
            VmChoice::Like(pattern) => {
                let names = run.vms.iter().map(|vm| vm.name.as_str());
                names.filter(|name| is_meant(pattern, name)).map(Some).collect()
            }
            // Without a case named, the expectation is about those cases the VM is in.
            VmChoice::Named(name) => {
                run.vm(name).map(|vm| Some(vm.name.as_str())).into_iter().collect()
            }
        };
        rows.extend(vms.into_iter().map(|vm| Subject { expect, results, case, vm }.row()));
    }
    if rows.is_empty() {
        let vm = match &expect.vm {
            VmChoice::Named(name) | VmChoice::Like(name) => Some(name.clone()),
            VmChoice::Each => Some("*".to_owned()),
            VmChoice::Host => None,
        };
        rows.push(Row {
            scheduler: expect.scheduler.clone(),
            case: expect.case.clone(),
            vm,
            metric: expect.metric,
            measured: None,
            range: None,
            of_repeats: Vec::new(),
            published: expect.published,
            asked: asked(expect, expect.max),
            verdict: Verdict::NotRun,
            note: None,
        });
    }
    rows
}

/// The cases an expectation speaks of, in the order they ran.
fn cases_of<'a>(expect: &'a Expect, results: &'a Results) -> Vec<&'a str> {
    if let Some(case) = &expect.case {
        return vec![case];
    }
    let mut cases: Vec<&str> = Vec::new();
    for run in &results.runs {
        if !cases.contains(&run.case.as_str()) {
            cases.push(&run.case);
        }
    }
    cases
}

fn runs<'a>(
    results: &'a Results,
    scheduler: &'a str,
    case: &'a str,
) -> impl Iterator<Item = &'a Run> {
    results.runs.iter().filter(move |run| run.scheduler == scheduler && run.case == case)
}

/// An expectation with the case and VM it is held against.
struct Subject<'a> {
    expect: &'a Expect,
    results: &'a Results,
    case: &'a str,
    vm: Option<&'a str>,
}

/// Why there is no figure.
enum Missing {
    NotRun(String),
    NotMeasured(String),
}

impl Subject<'_> {
    fn row(&self) -> Row {
        let expect = self.expect;
        let max = self.max();
        let (figures, verdict, note) = match self.measured() {
            Ok(figures) => {
                let measured = median(&figures);
                let above = expect.min.is_none_or(|min| measured.is_some_and(|it| it >= min));
                let below = max.is_none_or(|max| measured.is_some_and(|it| it <= max));
                let verdict = if above && below { Verdict::Pass } else { Verdict::Fail };
                (figures, verdict, None)
            }
            Err(Missing::NotRun(note)) => (Vec::new(), Verdict::NotRun, Some(note)),
            Err(Missing::NotMeasured(note)) => (Vec::new(), Verdict::Fail, Some(note)),
        };
        let least = figures.iter().copied().reduce(f64::min);
        let most = figures.iter().copied().reduce(f64::max);
        Row {
            scheduler: expect.scheduler.clone(),
            case: Some(self.case.to_owned()),
            vm: self.vm.map(str::to_owned),
            metric: expect.metric,
            measured: median(&figures),
            range: least.zip(most),
            of_repeats: figures,
            published: expect.published,
            asked: asked(expect, max),
            verdict,
            note,
        }
    }

    /// In each repeat the figure asked for, or its ratio to what it is relative to; one at least. Ratios
    /// are within a repeat: those runs stood side by side, and from one repeat to the next the speed of a
    /// machine drifts.
    fn measured(&self) -> Result<Vec<f64>, Missing> {
        let expect = self.expect;
        let mut figures = self.ratios(self.case, expect.relative_to_case.as_deref())?;
        if let Some(gain) = &expect.relative_to_gain {
            let others = self.ratios(&gain.case, gain.relative_to_case.as_deref())?;
            figures = divided(figures, &others);
        }
        match figures.is_empty() {
            true => Err(Missing::NotRun("no repeat ran both".to_owned())),
            false => Ok(figures.into_values().collect()),
        }
    }

    /// The figure of each repeat in `case`, or its ratio to what it is relative to: in `base_case`, where
    /// one is named.
    fn ratios(&self, case: &str, base_case: Option<&str>) -> Result<BTreeMap<u32, f64>, Missing> {
        let expect = self.expect;
        let figures = self.figures(&expect.scheduler, case, self.vm)?;
        if !expect.is_relative() {
            return Ok(figures);
        }
        let scheduler = expect.relative_to.as_ref().unwrap_or(&expect.scheduler);
        let case = base_case.unwrap_or(case);
        let vm = expect.relative_to_vm.as_deref().or(self.vm);
        let bases = self.figures(scheduler, case, vm)?;
        if bases.values().any(|base| *base == 0.0) {
            let note = format!("{scheduler} has 0 in case {case}, which nothing compares with");
            return Err(Missing::NotMeasured(note));
        }
        Ok(divided(figures, &bases))
    }

    /// The largest value allowed.
    fn max(&self) -> Option<f64> {
        let max = self.expect.max?;
        let other = self.expect.or.as_ref().and_then(|or| {
            let figures = self.figures(&self.expect.scheduler, &or.case, self.vm).ok()?;
            Some(or.times * median_of(figures)?)
        });
        Some(other.map_or(max, |other| max.max(other)))
    }

    /// The figure of each repeat; there is one at least.
    fn figures(
        &self,
        scheduler: &str,
        case: &str,
        vm: Option<&str>,
    ) -> Result<BTreeMap<u32, f64>, Missing> {
        let mut figures = BTreeMap::new();
        for run in runs(self.results, scheduler, case) {
            if let Some(fault) = &run.fault {
                let note = format!("{scheduler}, repeat {}: {fault}", run.repeat);
                return Err(Missing::NotMeasured(note));
            }
            let figure = self.figure(run, vm);
            let missing = || format!("{scheduler} has no such figure in case {case}");
            figures.insert(run.repeat, figure.ok_or_else(|| Missing::NotMeasured(missing()))?);
        }
        if figures.is_empty() {
            return Err(Missing::NotRun(format!("{scheduler} did not run case {case}")));
        }
        Ok(figures)
    }

    /// The figure of a run, or the mean of those of the VMs that are meant.
    fn figure(&self, run: &Run, vm: Option<&str>) -> Option<f64> {
        let of = |vm| self.expect.metric.figure(run, vm, self.expect.window_s());
        let Some(pattern) = vm.filter(|_| self.expect.mean) else { return of(vm) };
        let names = run.vms.iter().map(|vm| vm.name.as_str());
        let meant = names.filter(|name| is_meant(pattern, name));
        let figures = meant.map(|name| of(Some(name))).collect::<Option<Vec<f64>>>()?;
        (!figures.is_empty()).then(|| figures.iter().sum::<f64>() / figures.len() as f64)
    }
}

/// Each figure divided by the other of the same repeat; those of repeats that have both.
fn divided(figures: BTreeMap<u32, f64>, by: &BTreeMap<u32, f64>) -> BTreeMap<u32, f64> {
    let ratio = |(repeat, figure)| Some((repeat, figure / by.get(&repeat)?));
    figures.into_iter().filter_map(ratio).collect()
}

/// The median over repeats.
fn median_of(figures: BTreeMap<u32, f64>) -> Option<f64> {
    median(&figures.into_values().collect::<Vec<_>>())
}

/// What is asked, in words.
fn asked(expect: &Expect, max: Option<f64>) -> String {
    let mut bounds = Vec::new();
    bounds.extend(expect.min.map(|min| format!(">= {}", short(min))));
    bounds.extend(max.map(|max| format!("<= {}", short(max))));
    let mut words = bounds.join(" and ");
    let of = [&expect.relative_to_vm, &expect.relative_to, &expect.relative_to_case];
    let of: Vec<&str> = of.into_iter().flatten().map(String::as_str).collect();
    if !of.is_empty() {
        words += &format!(" of {}", of.join(" in "));
    }
    if let Some(gain) = &expect.relative_to_gain {
        words += &format!(", against the gain of {}", gain.case);
    }
    if let Some((from_s, to_s)) = expect.window_s() {
        words += &format!(", {from_s} s to {to_s} s");
    }
    words
}

/// A number with three decimals at most.
fn short(number: f64) -> String {
    let text = format!("{number:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::{Gain, OrTimes};
    use super::*;
    use crate::results::{Ground, HostFigures, Origin, VmFigures, WakeupUs};

    fn run(case: &str, scheduler: &str, repeat: u32, mean_us: f64, progress: u64) -> Run {
        let wakeup = WakeupUs { count: 1, mean: mean_us, p50: 1.0, p99: 1.0, max: 1.0 };
        let vm = VmFigures {
            name: "vm0".to_owned(),
            progress: Some(progress),
            wakeup_us: Some(wakeup),
            ..Default::default()
        };
        Run {
            case: case.to_owned(),
            scheduler: scheduler.to_owned(),
            repeat,
            seed: None,
            duration_s: 4.0,
            fault: None,
            host: HostFigures { pcpus: 2, ..Default::default() },
            vms: vec![vm],
        }
    }

    fn results(runs: Vec<Run>) -> Results {
        let (scenario, ground) = ("s".to_owned(), Ground::Lab);
        let origin = Origin::default();
        Results {
            scenario,
            ground,
            clock: None,
            origin,
            seed: 1,
            kernel: None,
            runs,
            repeats: None,
            wall: None,
        }
    }

    fn expect(metric: Metric) -> Expect {
        Expect { vm: VmChoice::Each, ..Expect::of(metric) }
    }

    fn only(expect: Expect, results: &Results) -> Row {
        let mut rows = evaluate(&[expect], results);
        assert_eq!(rows.len(), 1, "{rows:?}");
        rows.remove(0)
    }

    #[test]
    fn findings_are_what_has_a_title_under_each_scheduler() {
        let runs = vec![
            run("a", "eevdf", 1, 400.0, 1),
            run("a", "drover", 1, 80.0, 1),
            run("a", "other", 1, 90.0, 1),
        ];
        let title = Some("how late, us".to_owned());
        let titled = Expect { title, max: Some(150.0), ..expect(Metric::WakeupMeanUs) };
        let silent = Expect { max: Some(150.0), ..expect(Metric::WakeupP99Us) };
        let found = crate::expect::findings(&[silent, titled], &results(runs));
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].title.as_str(), found[0].bound), ("how late, us", Some(150.0)));
        let each: Vec<_> =
            found[0].by_scheduler.iter().map(|it| (&*it.scheduler, it.measured)).collect();
        assert_eq!(each, [("eevdf", Some(400.0)), ("drover", Some(80.0)), ("other", Some(90.0))]);
    }

    #[test]
    fn medians_of_even_and_odd_numbers() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 9.0]), Some(3.0));
    }

    #[test]
    fn the_median_of_the_repeats_decides() {
        let repeats = [90.0, 400.0, 110.0].iter().zip(1..);
        let runs = repeats.map(|(mean, repeat)| run("a", "drover", repeat, *mean, 1));
        let results = results(runs.collect());
        let row = only(Expect { max: Some(150.0), ..expect(Metric::WakeupMeanUs) }, &results);
        assert_eq!((row.measured, row.verdict), (Some(110.0), Verdict::Pass));
        assert_eq!(row.range, Some((90.0, 400.0)));
        assert_eq!((row.asked.as_str(), row.vm.as_deref()), ("<= 150", Some("vm0")));
        let row = only(Expect { max: Some(100.0), ..expect(Metric::WakeupMeanUs) }, &results);
        assert_eq!(row.verdict, Verdict::Fail);
    }

    #[test]
    fn a_ratio_to_another_scheduler_or_case() {
        let results = results(vec![
            run("alone", "drover", 1, 1.0, 1000),
            run("beside", "drover", 1, 1.0, 450),
            run("beside", "eevdf", 1, 1.0, 500),
        ]);
        let beside = || Expect {
            case: Some("beside".to_owned()),
            min: Some(0.45),
            ..expect(Metric::Progress)
        };
        let row = only(Expect { relative_to: Some("eevdf".to_owned()), ..beside() }, &results);
        assert_eq!((row.measured, row.verdict), (Some(0.9), Verdict::Pass));
        assert_eq!(row.asked, ">= 0.45 of eevdf");
        let row = only(Expect { relative_to_case: Some("alone".to_owned()), ..beside() }, &results);
        assert_eq!((row.measured, row.verdict), (Some(0.45), Verdict::Pass));
    }

    #[test]
    fn a_vms_figure_may_be_held_against_anothers() {
        let mut both = run("all", "drover", 1, 1.0, 1000);
        both.vms.push(VmFigures {
            name: "vm1".to_owned(),
            progress: Some(400),
            ..both.vms[0].clone()
        });
        let (vm, relative_to_vm) = (VmChoice::Named("vm1".to_owned()), Some("vm0".to_owned()));
        let row = only(
            Expect { vm, relative_to_vm, min: Some(0.5), ..expect(Metric::Progress) },
            &results(vec![both]),
        );
        assert_eq!((row.measured, row.verdict), (Some(0.4), Verdict::Fail));
        assert_eq!(row.asked, ">= 0.5 of vm0");
    }

    #[test]
    fn a_ratio_is_of_runs_of_the_same_repeat() {
        // The machine is half as fast from the second repeat on.
        let alone = [1000, 500, 500].into_iter().zip(1..);
        let beside = [450, 240, 235].into_iter().zip(1..);
        let mut runs: Vec<Run> =
            alone.map(|(progress, repeat)| run("alone", "drover", repeat, 1.0, progress)).collect();
        runs.extend(
            beside.map(|(progress, repeat)| run("beside", "drover", repeat, 1.0, progress)),
        );
        let results = results(runs);
        let relative = Expect {
            case: Some("beside".to_owned()),
            relative_to_case: Some("alone".to_owned()),
            ..expect(Metric::Progress)
        };
        assert_eq!(only(relative, &results).measured, Some(0.47));
    }

    #[test]
    fn a_gain_may_be_asked_against_another() {
        let runs = [("a", 10), ("a, base", 5), ("b", 30), ("b, base", 10)];
        let runs = runs.map(|(case, progress)| run(case, "drover", 1, 1.0, progress));
        let results = results(runs.to_vec());
        let gain = Gain { case: "b".to_owned(), relative_to_case: Some("b, base".to_owned()) };
        let row = only(
            Expect {
                case: Some("a".to_owned()),
                relative_to_case: Some("a, base".to_owned()),
                relative_to_gain: Some(gain),
                max: Some(1.0),
                ..expect(Metric::Progress)
            },
            &results,
        );
        assert!((row.measured.unwrap() - 2.0 / 3.0).abs() < 1e-9);
        assert_eq!(row.asked, "<= 1 of a, base, against the gain of b");
    }

    #[test]
    fn of_several_vms_the_mean_may_be_asked() {
        let with_two = |scheduler: &str, progress| {
            let mut run = run("all", scheduler, 1, 1.0, progress);
            let name = "vm1".to_owned();
            run.vms.push(VmFigures { name, progress: Some(400), ..run.vms[0].clone() });
            run
        };
        let results = results(vec![with_two("drover", 1000), with_two("eevdf", 600)]);
        let relative_to = Some("eevdf".to_owned());
        let mean = Expect { mean: true, relative_to, min: Some(1.0), ..expect(Metric::Progress) };
        let row = only(mean, &results);
        assert_eq!((row.measured, row.vm.as_deref()), (Some(1.4), Some("*")));
    }

    #[test]
    fn the_laxer_of_two_maxima_counts() {
        let results = results(vec![
            run("alone", "drover", 1, 100.0, 1),
            run("beside", "drover", 1, 190.0, 1),
        ]);
        let or = |times| Some(OrTimes { case: "alone".to_owned(), times });
        let beside = |or| {
            let case = Some("beside".to_owned());
            only(Expect { case, max: Some(150.0), or, ..expect(Metric::WakeupMeanUs) }, &results)
        };
        assert_eq!(beside(None).verdict, Verdict::Fail);
        assert_eq!(beside(or(1.0)).verdict, Verdict::Fail);
        assert_eq!(beside(or(2.0)).verdict, Verdict::Pass);
        assert_eq!(beside(or(2.0)).asked, "<= 200");
    }

    #[test]
    fn what_did_not_run_neither_passes_nor_fails() {
        let results = results(vec![run("a", "drover", 1, 1.0, 5)]);
        let other = Expect { scheduler: "flash".to_owned(), ..expect(Metric::Progress) };
        assert_eq!(only(other, &results).verdict, Verdict::NotRun);
        let relative_to = Some("eevdf".to_owned());
        let row =
            only(Expect { relative_to, min: Some(1.0), ..expect(Metric::Progress) }, &results);
        assert_eq!(row.verdict, Verdict::NotRun);
        assert_eq!(row.note.as_deref(), Some("eevdf did not run case a"));
    }

    #[test]
    fn a_fault_or_a_missing_figure_fails() {
        let mut faulty = run("a", "drover", 1, 1.0, 5);
        faulty.fault = Some("the scheduler was ejected".to_owned());
        let row = only(expect(Metric::Progress), &results(vec![faulty]));
        assert_eq!(row.verdict, Verdict::Fail);
        assert_eq!(row.note.as_deref(), Some("drover, repeat 1: the scheduler was ejected"));
        let idle = Expect { vm: VmChoice::Host, max: Some(0.5), ..expect(Metric::IdlePct) };
        let row = only(idle, &results(vec![run("a", "drover", 1, 1.0, 5)]));
        assert_eq!((row.measured, row.verdict), (None, Verdict::Fail));
    }
}

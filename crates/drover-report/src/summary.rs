// SPDX-License-Identifier: GPL-2.0-only
//! Runs by case and scheduler, repeats drawn together.

use drover_scenario::expect::median;
use drover_scenario::results::{Results, Run, VmFigures};
use std::collections::{HashMap, HashSet};

/// A figure over repeats.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// The spread of some values; none of none.
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        Some(Self {
            median: median(values)?,
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        })
    }

    /// All of it divided by `base`, which is above 0.
    pub(crate) fn over(self, base: f64) -> Self {
        Self { median: self.median / base, min: self.min / base, max: self.max / base }
    }
}

/// A VM of a case.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Subject<'a> {
    pub(crate) case: &'a str,
    pub(crate) vm: &'a str,
}

/// Results with their cases, schedulers and VMs in the order in which they first ran.
#[derive(Clone)]
pub(crate) struct Summary<'a> {
    pub(crate) results: &'a Results,
    pub(crate) cases: Vec<&'a str>,
    pub(crate) schedulers: Vec<&'a str>,
    /// Where each run has the VM of a name.
    pub(crate) places: Vec<HashMap<&'a str, usize>>,
}

impl<'a> Summary<'a> {
    pub(crate) fn new(results: &'a Results) -> Self {
        let (mut cases, mut schedulers): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
        for run in &results.runs {
            if !cases.contains(&run.case.as_str()) {
                cases.push(&run.case);
            }
            if !schedulers.contains(&run.scheduler.as_str()) {
                schedulers.push(&run.scheduler);
            }
        }
        let name = |(place, vm): (usize, &'a VmFigures)| (vm.name.as_str(), place);
        let places_in = |run: &'a Run| run.vms.iter().enumerate().map(name).collect();
        let places = results.runs.iter().map(places_in).collect();
        Self { results, cases, schedulers, places }
    }

    /// All runs of `case` under `scheduler`.
    pub(crate) fn runs(&self, case: &str, scheduler: &str) -> impl Iterator<Item = &'a Run> {
        let runs = self.results.runs.iter();
        runs.filter(move |run| run.case == case && run.scheduler == scheduler)
    }

    /// Whether anything ran more than once.
    pub(crate) fn repeats(&self) -> u32 {
        self.results.runs.iter().map(|run| run.repeat).max().unwrap_or(0)
    }

    /// The VMs of each case.
    pub(crate) fn subjects(&self) -> Vec<Subject<'a>> {
        let (mut subjects, mut known) = (Vec::new(), HashSet::new());
        for case in &self.cases {
            let runs = self.results.runs.iter().filter(|run| run.case == *case);
            for vm in runs.flat_map(|run| &run.vms) {
                let subject = Subject { case, vm: vm.name.as_str() };
                if known.insert(subject.clone()) {
                    subjects.push(subject);
                }
            }
        }
        subjects
    }

    /// The names of all VMs.
    pub(crate) fn vms(&self) -> Vec<&'a str> {
        let (mut vms, mut known) = (Vec::new(), HashSet::new());
        for vm in self.results.runs.iter().flat_map(|run| &run.vms) {
            if known.insert(vm.name.as_str()) {
                vms.push(vm.name.as_str());
            }
        }
        vms
    }

    /// A figure of the host over the repeats of a case under a scheduler.
    pub(crate) fn of_host(
        &self,
        case: &str,
        scheduler: &str,
        figure: impl Fn(&Run) -> Option<f64>,
    ) -> Option<Spread> {
        let values: Vec<f64> = self.runs(case, scheduler).filter_map(figure).collect();
        Spread::of(&values)
    }

    /// A figure of a VM over the repeats of its case under a scheduler.
    pub(crate) fn of_vm(
        &self,
        subject: &Subject,
        scheduler: &str,
        figure: impl Fn(&VmFigures) -> Option<f64>,
    ) -> Option<Spread> {
        let runs = self.runs_of(subject).filter(|(run, _)| run.scheduler == scheduler);
        let values: Vec<f64> = runs.filter_map(|(_, vm)| figure(vm)).collect();
        Spread::of(&values)
    }

    /// Whether anything is promised or forbidden to a VM: what it gets is then told in pCPUs, because
    /// that is how it was asked.
    pub(crate) fn has_promises(&self) -> bool {
        self.has(|vm| vm.limit_pct.is_some() || vm.reservation_pct.is_some_and(|pct| pct > 0))
    }

    /// Whether any VM in any run has this figure.
    pub(crate) fn has(&self, figure: impl Fn(&VmFigures) -> bool) -> bool {
        self.results.runs.iter().flat_map(|run| &run.vms).any(figure)
    }

    /// A VM as its first run has it, for what is the same in all: vCPUs, shares, what is owed.
    pub(crate) fn any_run_of(&self, subject: &Subject) -> Option<&'a VmFigures> {
        self.runs_of(subject).next().map(|(_, vm)| vm)
    }

    /// The runs of its case that the VM is in, and what it had there.
    pub(crate) fn runs_of(
        &self,
        subject: &Subject,
    ) -> impl Iterator<Item = (&'a Run, &'a VmFigures)> {
        let runs = self.results.runs.iter().zip(&self.places);
        let runs = runs.filter(move |(run, _)| run.case == subject.case);
        runs.filter_map(move |(run, places)| Some((run, &run.vms[*places.get(subject.vm)?])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn repeats_are_drawn_together() {
        let results = sample::sleep();
        let summary = Summary::new(&results);
        assert_eq!(summary.cases, ["alone", "beside"]);
        assert_eq!(summary.schedulers, ["eevdf", "drover", "scx_bpfland"]);
        assert_eq!((summary.repeats(), summary.runs("beside", "drover").count()), (3, 3));
        let subject = Subject { case: "beside", vm: "sleeper" };
        let mean = |vm: &VmFigures| vm.wakeup_us.as_ref().map(|wakeup| wakeup.mean);
        let spread = summary.of_vm(&subject, "eevdf", mean).unwrap();
        assert_eq!((spread.min, spread.median, spread.max), (290.0, 400.0, 560.0));
        assert_eq!(spread.over(100.0).max, 5.6);
    }

    #[test]
    fn a_vm_is_a_subject_of_the_cases_it_is_in() {
        let results = sample::sleep();
        let summary = Summary::new(&results);
        let subjects = summary.subjects();
        let brief: Vec<_> = subjects.iter().map(|subject| (subject.case, subject.vm)).collect();
        assert_eq!(brief, [("alone", "sleeper"), ("beside", "sleeper"), ("beside", "busy")]);
        assert_eq!(summary.vms(), ["sleeper", "busy"]);
        let absent = Subject { case: "alone", vm: "busy" };
        assert_eq!(summary.of_vm(&absent, "eevdf", |vm| vm.cpu_s), None);
    }
}

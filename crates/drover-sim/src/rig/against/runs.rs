// SPDX-License-Identifier: GPL-2.0-only
//! Runs a trial: each VM alone, then all of them under the rival and under Drover; judged.

use super::part::{Alone, Part, parts};
use super::verdict::{Both, Did, Judged, VmDid, judge};
use crate::scenario::rival::Entry;
use crate::scenario::{ForRig, ThreadFigures, Threads, run_threads};
use crate::scx::Planted;
use drover_core::histogram::Histogram;
use drover_core::shares::Shares;
use drover_scenario::{Case, ProgramStep, Scenario, Vm, Workload};

/// What VMs want is read in intervals of so many ms.
const INTERVAL_MS: u32 = 50;
/// Who falls short with one seed is looked at with so many.
const SEEDS: u32 = 3;

/// What came of a case.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Found {
    /// The case.
    pub case: String,
    /// The names of its VMs.
    pub vms: Vec<String>,
    /// How many of them are light and heavy, and how many vCPUs are light.
    pub looked_at: LookedAt,
    /// Who falls short.
    pub judged: Judged,
    /// A hash over everything that happened in all runs.
    pub hash: u64,
    /// Events simulated in all runs.
    pub events: u64,
}

/// Who was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LookedAt {
    /// VMs.
    pub vms: u64,
    /// Light ones of them.
    pub light: u64,
    /// Heavy ones.
    pub heavy: u64,
    /// vCPUs.
    pub vcpus: u64,
    /// Light ones of these.
    pub light_vcpus: u64,
}

/// Runs all cases of a scenario against a rival and judges them. `planted`: a bug to find.
///
/// # Errors
/// In one line, when the simulator cannot run it or a run failed.
pub fn try_against(
    scenario: &Scenario,
    rival: &Entry,
    planted: Option<Planted>,
) -> Result<Vec<Found>, String> {
    scenario.cases.iter().map(|case| try_case(scenario, &told(case), rival, planted)).collect()
}

/// The case with all shares asked for: what is fair is judged by these.
fn told(case: &Case) -> Case {
    let told = |vm: &Vm| Vm { shares: Shares::Exact(vm.shares_of_all()), ..vm.clone() };
    Case { vms: case.vms.iter().map(told).collect(), ..case.clone() }
}

fn try_case(
    scenario: &Scenario,
    case: &Case,
    rival: &Entry,
    planted: Option<Planted>,
) -> Result<Found, String> {
    let mut found = Found {
        case: case.name.clone(),
        vms: case.vms.iter().map(|vm| vm.name.clone()).collect(),
        ..Found::default()
    };
    let parts = parts_of(scenario, case, rival, &mut found)?;
    let own_work: Vec<Vec<bool>> = case.vms.iter().map(own_work).collect();
    found.looked_at = looked_at(&parts);
    let mut runs = Vec::new();
    for seed in 1..=SEEDS {
        let under_rival = run_threads(scenario, (case, Some(rival), seed), ForRig::default())?;
        let under_drover = run_threads(scenario, (case, None, seed), ForRig { planted })?;
        found.note(&under_rival);
        found.note(&under_drover);
        runs.push(Both { drover: did(case, &under_drover), rival: did(case, &under_rival) });
        if seed == 1 && judge(&parts, &own_work, &runs).short.is_empty() {
            break;
        }
    }
    found.judged = judge(&parts, &own_work, &runs);
    Ok(found)
}

impl Found {
    fn note(&mut self, run: &Threads) {
        self.hash = crate::rng::mix(self.hash ^ run.hash);
        self.events += run.events;
    }
}

/// The part of each VM, from what it does alone on the host.
fn parts_of(
    scenario: &Scenario,
    case: &Case,
    rival: &Entry,
    found: &mut Found,
) -> Result<Vec<Part>, String> {
    let by_interval = Scenario { sample_ms: Some(INTERVAL_MS), ..scenario.clone() };
    // Those that are alike but for their names run once.
    let mut known: Vec<(Vm, Alone)> = Vec::new();
    let mut all = Vec::new();
    for vm in &case.vms {
        let nameless = Vm { name: String::new(), ..vm.clone() };
        let alone = match known.iter().find(|(other, _)| *other == nameless) {
            Some((_, alone)) => alone.clone(),
            None => {
                let case = Case { vms: vec![vm.clone()], ..case.clone() };
                let run = run_threads(&by_interval, (&case, Some(rival), 1), ForRig::default())?;
                found.note(&run);
                let alone = alone(vm, &run.of_vm[0]);
                known.push((nameless, alone.clone()));
                alone
            }
        };
        all.push(alone);
    }
    Ok(parts(&all, scenario.host.pcpus(), f64::from(INTERVAL_MS) / 1000.0))
}

fn alone(vm: &Vm, threads: &[ThreadFigures]) -> Alone {
    let interval_s = f64::from(INTERVAL_MS) / 1000.0;
    let pcpus = |thread: &ThreadFigures| {
        thread.cpu_s_by_interval.iter().map(|cpu_s| cpu_s / interval_s).collect()
    };
    let vcpus = vm.vcpus as usize;
    let work_s: f64 = threads[..vcpus].iter().map(|thread| thread.work_s).sum();
    let cpu_s: f64 = threads.iter().map(|thread| thread.cpu_s).sum();
    Alone {
        shares: vm.shares_of_all().into(),
        pcpus: threads.iter().map(pcpus).collect(),
        vcpus,
        work_per_cpu: if cpu_s > 0.0 { work_s / cpu_s } else { 0.0 },
    }
}

/// Which vCPUs' work does not hang on what siblings leave them in a queue.
fn own_work(vm: &Vm) -> Vec<bool> {
    let takes = |vcpu| match &vm.workload {
        Workload::Program(program) => program
            .role_of(vcpu)
            .is_some_and(|role| role.steps.iter().any(|step| matches!(step, ProgramStep::Wait(_)))),
        _ => false,
    };
    (0..vm.vcpus).map(|vcpu| !takes(vcpu)).collect()
}

fn looked_at(parts: &[Part]) -> LookedAt {
    let count = |what: fn(&Part) -> bool| parts.iter().filter(|part| what(part)).count() as u64;
    let light = |part: &Part| part.light_vcpus.iter().filter(|&&light| light).count() as u64;
    LookedAt {
        vms: parts.len() as u64,
        light: count(|part| part.light),
        heavy: count(|part| part.fair_work_s.is_some()),
        vcpus: parts.iter().map(|part| part.light_vcpus.len() as u64).sum(),
        light_vcpus: parts.iter().map(light).sum(),
    }
}

fn did(case: &Case, run: &Threads) -> Vec<VmDid> {
    let of_vm = |(vm, threads): (&Vm, &Vec<ThreadFigures>)| {
        let vcpus = &threads[..vm.vcpus as usize];
        let mut delays = Histogram::new();
        vcpus.iter().for_each(|vcpu| delays.merge(&vcpu.wake_delays));
        let work_s = vcpus.iter().map(|vcpu| vcpu.work_s).sum();
        let of_vcpu = |vcpu: &ThreadFigures| did_one(vcpu.work_s, &vcpu.wake_delays);
        VmDid { all: did_one(work_s, &delays), vcpus: vcpus.iter().map(of_vcpu).collect() }
    };
    case.vms.iter().zip(&run.of_vm).map(of_vm).collect()
}

fn did_one(work_s: f64, delays: &Histogram) -> Did {
    let p99_us = delays.quantile_ns(0.99).unwrap_or(0) as f64 / 1000.0;
    Did { work_s, wakes: delays.count(), p99_us }
}

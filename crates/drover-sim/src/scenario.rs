// SPDX-License-Identifier: GPL-2.0-only
//! Runs scenarios on simulated hosts, to the same results as the lab's.

mod measure;
mod one_run;

use crate::rng::mix;
use crate::trace::Span;
use drover_core::results::{Ground, Results, Run};
use drover_core::scenario::{Scenario, Vmm, scheduler_label};
use one_run::{Job, run_job};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The schedulers the simulator has.
pub const SCHEDULERS: &[&str] = &["drover", "eevdf", "cfs36", "credit"];

/// How to run a scenario.
#[derive(Debug, Clone)]
pub struct Options {
    /// Schedulers, instead of those of the scenario.
    pub schedulers: Option<Vec<String>>,
    /// How many seeds: each repeat of the scenario is run with every one of them.
    pub seeds: u32,
    /// How many runs at the same time.
    pub threads: usize,
    /// Record who ran when.
    pub trace: bool,
}

impl Default for Options {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self { schedulers: None, seeds: 1, threads, trace: false }
    }
}

/// What came of a scenario.
#[derive(Debug)]
pub struct Outcome {
    /// The figures.
    pub results: Results,
    /// A hash over everything that happened in all runs.
    pub trace_hash: u64,
    /// Events simulated in all runs.
    pub events: u64,
    /// Who ran when, run by run, if that was asked for.
    pub traces: Vec<RunTrace>,
}

/// Who ran when in one run.
#[derive(Debug, Clone)]
pub struct RunTrace {
    /// Case and scheduler.
    pub title: String,
    /// Name of the VM and number of the vCPU of each task.
    pub tasks: Vec<(String, u32)>,
    /// Who ran when.
    pub spans: Vec<Span>,
}

/// What one run gives.
struct Ran {
    run: Run,
    hash: u64,
    events: u64,
    trace: Option<RunTrace>,
}

/// Runs a scenario. `progress` is told how many of how many runs are done, from any thread.
///
/// # Errors
/// In one line, when the simulator cannot run the scenario.
pub fn run_scenario(
    scenario: &Scenario,
    options: &Options,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<Outcome, String> {
    let jobs = jobs_of(scenario, options)?;
    let next = AtomicUsize::new(0);
    let done = AtomicUsize::new(0);
    let slots: Vec<Mutex<Option<Result<Ran, String>>>> =
        jobs.iter().map(|_| Mutex::new(None)).collect();
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = jobs.get(index) else { break };
            let ran = run_job(scenario, options, job);
            *slots[index].lock().expect("nobody panics with it held") = Some(ran);
            progress(done.fetch_add(1, Ordering::Relaxed) + 1, jobs.len());
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..options.threads.clamp(1, jobs.len()) {
            scope.spawn(work);
        }
        work();
    });
    let mut outcome = Outcome {
        results: Results {
            scenario: scenario.name.clone(),
            ground: Ground::Sim,
            clock: None,
            seed: scenario.seed,
            kernel: None,
            runs: Vec::new(),
            wall: None,
        },
        trace_hash: 0,
        events: 0,
        traces: Vec::new(),
    };
    for slot in slots {
        let ran = slot.into_inner().expect("nobody panicked").expect("every job was done")?;
        outcome.results.runs.push(ran.run);
        outcome.trace_hash = mix(outcome.trace_hash ^ ran.hash);
        outcome.events += ran.events;
        outcome.traces.extend(ran.trace);
    }
    Ok(outcome)
}

/// One job for each case, scheduler and repeat with each seed, in the order results have them.
fn jobs_of<'a>(scenario: &'a Scenario, options: &'a Options) -> Result<Vec<Job<'a>>, String> {
    let schedulers = options.schedulers.as_ref().unwrap_or(&scenario.schedulers);
    for scheduler in schedulers {
        if !SCHEDULERS.contains(&scheduler.as_str()) {
            return Err(format!(
                "{}: the simulator has no scheduler \"{}\"; choose among {} with --schedulers",
                scenario.name,
                scheduler_label(scheduler),
                SCHEDULERS.join(", ")
            ));
        }
    }
    let vms = scenario.cases.iter().flat_map(|case| &case.vms);
    if let Some(vm) = vms.into_iter().find(|vm| vm.vmm == Vmm::Qemu) {
        return Err(format!(
            "{}: VM \"{}\" is a Linux guest, which the simulator does not run; use --on lab",
            scenario.name, vm.name
        ));
    }
    let repeats = scenario.repeats * options.seeds.max(1);
    let mut jobs = Vec::new();
    for case in &scenario.cases {
        for repeat in 1..=repeats {
            for scheduler in schedulers {
                jobs.push(Job { case, scheduler, repeat });
            }
        }
    }
    Ok(jobs)
}

// SPDX-License-Identifier: GPL-2.0-only
//! Runs scenarios on simulated hosts, to the same results as the lab's.

mod measure;
mod one_run;
pub mod rival;

use crate::machine::TaskId;
use crate::rng::mix;
use crate::scx::Planted;
use crate::trace;
use drover_core::histogram::Histogram;
use drover_scenario::results::{Ground, Origin, Results, Run};
use drover_scenario::schedule::{Schedule, ScheduledVm, Span, Wait, Who};
use drover_scenario::{Case, Scenario, Vmm, scheduler_label};
use one_run::{Job, run_drover};
use rival::Entry;
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What scenarios call Drover.
pub const DROVER: &str = "drover";

/// How to run a scenario.
#[derive(Debug, Clone)]
pub struct Options {
    /// Schedulers, instead of those of the scenario.
    pub schedulers: Option<Vec<String>>,
    /// How many times the scenario's repeats: each has a seed of its own, counted up from the scenario's.
    pub seeds: u32,
    /// How many runs at the same time.
    pub threads: usize,
    /// Record who ran when.
    pub trace: bool,
    /// What the rig asks for; none: a run of people's.
    pub rig: Option<ForRig>,
}

/// What the rig asks of a run: that each vCPU draws random numbers of its own ([`crate::guest::Guests::draw_apart`]),
/// and that what each thread did is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ForRig {
    /// A bug to find.
    pub planted: Option<Planted>,
}

impl Default for Options {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self { schedulers: None, seeds: 1, threads, trace: false, rig: None }
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
    /// Name of the case.
    pub case: String,
    /// The scheduler.
    pub scheduler: String,
    /// Which repeat, from 1.
    pub repeat: u32,
    /// Name of the VM and number of the vCPU of each task.
    pub tasks: Vec<(String, u32)>,
    /// Who ran when.
    pub spans: Vec<trace::Span>,
    /// Who was ready and did not run when.
    pub waits: Vec<trace::Wait>,
}

/// How long vCPUs of a VM were ready and did not run.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Ready {
    /// Summed over them, s.
    pub seconds: f64,
    /// The longest wait of any, s.
    pub longest_s: f64,
}

impl RunTrace {
    /// What tells the run from others.
    pub fn title(&self) -> String {
        format!("{} {} {}", self.case, self.scheduler, self.repeat)
    }

    /// How long the vCPUs of each VM of the case were ready in the measured time.
    pub fn ready(&self, scenario: &Scenario) -> Vec<Ready> {
        let case = scenario.cases.iter().find(|case| case.name == self.case);
        let vms = case.map_or(&[][..], |case| &case.vms);
        let by_name: HashMap<&str, usize> =
            (0..).zip(vms).map(|(at, vm)| (vm.name.as_str(), at)).collect();
        let vm_of = |(name, number): &(String, u32)| {
            let vm = *by_name.get(name.as_str())?;
            (*number < vms[vm].vcpus).then_some(vm)
        };
        let of_task: Vec<Option<usize>> = self.tasks.iter().map(vm_of).collect();
        let from_ns = (scenario.warmup_s * 1e9).round() as u64;
        let mut ready = vec![Ready::default(); vms.len()];
        for wait in self.waits.iter().filter(|wait| wait.to_ns > from_ns) {
            let Some(vm) = of_task[wait.task as usize] else { continue };
            let wait_s = (wait.to_ns - wait.from_ns.max(from_ns)) as f64 / 1e9;
            ready[vm].seconds += wait_s;
            ready[vm].longest_s = ready[vm].longest_s.max(wait_s);
        }
        ready
    }

    /// The part of it between two moments, counted from when measuring begins.
    pub fn schedule(&self, scenario: &Scenario, (from_s, to_s): (f64, f64)) -> Schedule {
        let ns = |at_s: f64| ((scenario.warmup_s + at_s) * 1e9).round() as u64;
        let case = scenario.cases.iter().find(|case| case.name == self.case);
        let vms = case.map_or(&[][..], |case| &case.vms);
        let who = |task: TaskId| {
            let (name, number) = &self.tasks[task as usize];
            match (0..).zip(vms).find(|(_, vm)| vm.name == *name) {
                None => Who::Host,
                Some((vm, of)) if *number < of.vcpus => Who::Vcpu(vm, *number),
                Some((vm, _)) => Who::Helper(vm),
            }
        };
        let span = |&trace::Span { cpu: pcpu, task, from_ns, to_ns }: &trace::Span| {
            Span { pcpu, from_ns, to_ns, who: who(task) }.within(ns(from_s), ns(to_s))
        };
        let wait = |&trace::Wait { task, from_ns, to_ns }: &trace::Wait| match who(task) {
            Who::Vcpu(vm, vcpu) => Wait { vm, vcpu, from_ns, to_ns }.within(ns(from_s), ns(to_s)),
            Who::Helper(_) | Who::Host => None,
        };
        Schedule {
            case: self.case.clone(),
            scheduler: self.scheduler.clone(),
            from_s,
            length_ns: ns(to_s) - ns(from_s),
            pcpus: scenario.host.pcpus(),
            vms: vms
                .iter()
                .map(|vm| ScheduledVm { name: vm.name.clone(), vcpus: vm.vcpus })
                .collect(),
            spans: self.spans.iter().filter_map(span).collect(),
            waits: self.waits.iter().filter_map(wait).collect(),
        }
    }
}

/// What a thread did in one run.
#[derive(Debug, Clone, PartialEq)]
pub struct ThreadFigures {
    /// CPU time, s.
    pub cpu_s: f64,
    /// Work in steps that compute, s at full speed.
    pub work_s: f64,
    /// CPU time in each interval of the record, s.
    pub cpu_s_by_interval: Vec<f64>,
    /// How long it was ready after each wake-up until it ran.
    pub wake_delays: Histogram,
}

/// What the rig sees of one run.
#[derive(Debug, Clone, PartialEq)]
pub struct Threads {
    /// The threads of each VM, vCPUs first.
    pub of_vm: Vec<Vec<ThreadFigures>>,
    /// A hash over everything that happened.
    pub hash: u64,
    /// Events simulated.
    pub events: u64,
}

/// Runs a case once, under Drover or, where one is named, under a rival.
///
/// # Errors
/// In one line, when the simulator cannot run it or the run failed.
pub fn run_threads(
    scenario: &Scenario,
    (case, rival, repeat): (&Case, Option<&Entry>, u32),
    rig: ForRig,
) -> Result<Threads, String> {
    can_run(scenario)?;
    let options = Options { rig: Some(rig), ..Options::default() };
    let job = Job::of(scenario, (case, rival, repeat));
    let Ran { run, threads, hash, events, .. } = match rival {
        None => run_drover(scenario, &options, &job),
        Some(rival) => (rival.run)(scenario, &options, &job),
    }?;
    match run.fault {
        Some(fault) => Err(format!("under {}: {fault}", run.scheduler)),
        None => Ok(Threads { of_vm: threads, hash, events }),
    }
}

/// What one run gives.
struct Ran {
    run: Run,
    threads: Vec<Vec<ThreadFigures>>,
    hash: u64,
    events: u64,
    trace: Option<RunTrace>,
}

/// Runs a scenario under those schedulers that it names: Drover and any of `rivals`. `progress` is told how
/// many of how many runs are done, from any thread.
///
/// # Errors
/// In one line, when the simulator cannot run the scenario.
pub fn run_scenario(
    scenario: &Scenario,
    rivals: &[Entry],
    options: &Options,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<Outcome, String> {
    let jobs = jobs_of(scenario, rivals, options)?;
    let next = AtomicUsize::new(0);
    let done = AtomicUsize::new(0);
    let slots: Vec<Mutex<Option<Result<Ran, String>>>> =
        jobs.iter().map(|_| Mutex::new(None)).collect();
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = jobs.get(index) else { break };
            let ran = match job.rival {
                None => run_drover(scenario, options, job),
                Some(rival) => (rival.run)(scenario, options, job),
            };
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
            origin: Origin::default(),
            seed: scenario.seed,
            kernel: None,
            runs: Vec::new(),
            repeats: None,
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
fn jobs_of<'a>(
    scenario: &'a Scenario,
    rivals: &'a [Entry],
    options: &Options,
) -> Result<Vec<Job<'a>>, String> {
    let schedulers = options.schedulers.as_ref().unwrap_or(&scenario.schedulers);
    let find = |name: &String| match rivals.iter().find(|rival| rival.name == name) {
        None if name != DROVER => Err(no_scheduler(scenario, rivals, name)),
        rival => Ok(rival),
    };
    let schedulers: Vec<_> = schedulers.iter().map(find).collect::<Result<_, _>>()?;
    can_run(scenario)?;
    let repeats = scenario.repeats * options.seeds.max(1);
    let mut jobs = Vec::new();
    for case in &scenario.cases {
        for repeat in 1..=repeats {
            for &rival in &schedulers {
                jobs.push(Job::of(scenario, (case, rival, repeat)));
            }
        }
    }
    Ok(jobs)
}

/// Is there a guest in the scenario that the simulator does not run?
fn can_run(scenario: &Scenario) -> Result<(), String> {
    let vms = || scenario.cases.iter().flat_map(|case| &case.vms);
    if let Some(vm) = vms().find(|vm| vm.workload.calls_kvm()) {
        return Err(format!(
            "{}: VM \"{}\" yields by hypercall, which the simulator's guests do not; use --on lab",
            scenario.name, vm.name
        ));
    }
    if let Some(vm) = vms().find(|vm| vm.vmm == Vmm::Qemu) {
        return Err(format!(
            "{}: VM \"{}\" is a Linux guest, which the simulator does not run; use --on lab",
            scenario.name, vm.name
        ));
    }
    if let Some(vm) = vms().find(|vm| vm.vmm == Vmm::Container) {
        return Err(format!(
            "{}: \"{}\" is a container, and the simulated host has no cgroups; use --on lab",
            scenario.name, vm.name
        ));
    }
    Ok(())
}

fn no_scheduler(scenario: &Scenario, rivals: &[Entry], name: &str) -> String {
    let rivals = rivals.iter().map(|rival| rival.name);
    let known: Vec<&str> = std::iter::once(DROVER).chain(rivals).collect();
    format!(
        "{}: the simulator has no scheduler \"{}\"; choose among {} with --scheduler",
        scenario.name,
        scheduler_label(name),
        known.join(", ")
    )
}

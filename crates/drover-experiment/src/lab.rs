// SPDX-License-Identifier: GPL-2.0-only
//! The ground `lab`: boots a virtual host, runs the scenario in it, takes the figures back.

use crate::event::{Event, Started};
use crate::figures::without_figures;
use crate::host::can_be_real;
use crate::host::{self, HostOptions};
use crate::overrides::Overrides;
use crate::parts::{Finished, make_at_once, put_together};
use crate::peers::{Contender, arguments_file};
use crate::plan::{Planned, parts, plan};
use crate::scenario_file::ScenarioFile;
use crate::wall::Stopwatch;
use anyhow::{Context, Result, anyhow};
use drover_core::partition::Partitions;
use drover_lab::{KernelChoice, Lab, LabOutcome, Topology};
use drover_scenario::results::{Ground, Origin, Results, Run};
use drover_scenario::{Case, Clock, Host, Scenario, Vmm, scheduler_label};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Where the lab has what it is to run.
const JOB_PATH: &str = "/lib/drover-lab/experiment.json";
/// Where the lab has other schedulers.
const PEERS_DIR: &str = "/usr/local/bin";
/// The subcommand of this program that runs in the lab.
pub const SUBCOMMAND: &str = "lab-run";

/// How to measure.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LabOptions {
    /// Which kernel.
    pub kernel: KernelChoice,
    /// Also measure the time spent in the scheduler's BPF programs.
    pub bpf_stats: bool,
    /// Also record who ran where.
    pub schedule: bool,
}

/// What came back from the lab.
#[derive(Debug, Clone, PartialEq)]
pub struct LabReport {
    /// The runs that were finished.
    pub results: Results,
    /// What went wrong with the virtual host: its kernel warned of stalls or lockups, or it did not get
    /// to the end. Figures beside such are not to be trusted.
    pub troubles: Vec<String>,
}

/// What the lab is to run.
#[derive(Debug, Serialize, Deserialize)]
struct Job {
    file: ScenarioFile,
    overrides: Overrides,
    bpf_stats: bool,
    schedule: bool,
    part: usize,
    done: usize,
}

/// Runs a scenario in the lab. `on_event` hears of each run.
///
/// A virtual host may hang or crash, by what is run in it or by the emulator itself: then the rest is run in
/// another. On the real clock, where no two runs are alike, the run that was lost is tried once more; lost
/// twice, it is a result without figures.
///
/// # Errors
/// When the lab cannot be set up, or nothing at all came back.
pub fn run(
    file: &ScenarioFile,
    overrides: &Overrides,
    options: &LabOptions,
    on_event: &mut dyn FnMut(Event),
) -> Result<LabReport> {
    let stopwatch = Stopwatch::start();
    let scenario = file.scenario(overrides)?;
    can_be_real(&scenario)?;
    let parts = parts(&scenario);
    let make = |number: usize, on_event: &mut dyn FnMut(Event)| {
        let mut boot = |done: usize, on_event: &mut dyn FnMut(drover_lab::Event)| {
            set_up(file, overrides, options, &scenario, (number, done))?.run(on_event)
        };
        make_part(&scenario, &parts[number], &mut boot, on_event)
    };
    let made = make_at_once(parts.len(), &make, on_event);
    let Finished { runs, troubles, kernel } = put_together(&parts, made)?;
    let results = Results {
        scenario: scenario.name.clone(),
        ground: Ground::Lab,
        clock: Some(scenario.clock),
        origin: Origin::default(),
        seed: scenario.seed,
        kernel,
        runs,
        repeats: None,
        wall: Some(stopwatch.wall()),
    };
    Ok(LabReport { results, troubles })
}

/// Boots a virtual host for all runs but the first so many, and tells what comes out of it.
type Boot<'a> = dyn FnMut(usize, &mut dyn FnMut(drover_lab::Event)) -> Result<LabOutcome> + 'a;

/// Makes one part of the runs.
fn make_part(
    scenario: &Scenario,
    part: &[Planned],
    boot: &mut Boot,
    on_event: &mut dyn FnMut(Event),
) -> Result<Finished> {
    let mut heard = Heard::default();
    let mut troubles = Vec::new();
    let mut lost = None;
    loop {
        let error = match boot(heard.runs.len(), &mut |event| heard.take(event, on_event)) {
            Ok(outcome) if outcome.exit_status != 0 && heard.runs.is_empty() => {
                return Err(refusal(&heard.words));
            }
            Ok(outcome) => {
                troubles.extend(troubles_of(&outcome, &heard.words));
                let kernel = Some(outcome.kernel_version);
                return Ok(Finished { runs: heard.runs, troubles, kernel });
            }
            Err(error) => error,
        };
        let Some(started) = heard.started.take() else { return Err(error) };
        let trouble = format!("run {} was lost: {error:#}", started.number);
        on_event(Event::Notice(trouble.lines().next().unwrap_or_default().to_owned()));
        if scenario.clock == Clock::Exact || lost == Some(started.number) {
            heard.runs.push(lost_run(scenario, &started, &format!("{error:#}")));
            troubles.push(trouble);
        }
        lost = Some(started.number);
        if heard.runs.len() == part.len() {
            return Ok(Finished { runs: heard.runs, troubles, kernel: None });
        }
    }
}

/// What came out of the lab so far.
#[derive(Debug, Default)]
struct Heard {
    /// Runs that are finished.
    runs: Vec<Run>,
    /// The run that is not.
    started: Option<Started>,
    /// The last line that was no event.
    words: String,
}

impl Heard {
    fn take(&mut self, event: drover_lab::Event, on_event: &mut dyn FnMut(Event)) {
        let line = match event {
            drover_lab::Event::Notice(line) => return on_event(Event::Notice(line.to_owned())),
            drover_lab::Event::Output(line) => line,
        };
        let Some(event) = Event::from_line(line) else {
            if !line.trim().is_empty() {
                line.trim().clone_into(&mut self.words);
            }
            return;
        };
        match &event {
            Event::Started(started) => self.started = Some(started.clone()),
            Event::Finished(run) => {
                self.started = None;
                self.runs.push((**run).clone());
            }
            Event::Schedule(_) | Event::Notice(_) => {}
        }
        on_event(event);
    }
}

/// The run that the virtual host did not survive: that too is a result.
fn lost_run(scenario: &Scenario, started: &Started, trouble: &str) -> Run {
    let case = scenario.cases.iter().find(|case| case.name == started.case);
    let pools = drover_core::tree::Tree::default();
    let (name, vms) = (started.case.clone(), Vec::new());
    let partitions = Partitions::default();
    let (placement, sets) = Default::default();
    let unknown =
        Case { name, auto_partitions: false, ple: false, placement, sets, pools, partitions, vms };
    let why = trouble.lines().next().unwrap_or_default();
    let fault = format!("the virtual host did not survive it: {why}");
    let mut run = without_figures(case.unwrap_or(&unknown), scenario.host.pcpus(), Some(fault));
    run.scheduler.clone_from(&started.scheduler);
    run.repeat = started.repeat;
    run.seed = Some(scenario.seed);
    run
}

/// What runs in the lab: the job that was put there. Everything it has to say is printed.
///
/// # Errors
/// As [`host::run`].
pub fn run_inside(stop: &AtomicBool) -> Result<()> {
    let job = fs::read(JOB_PATH)
        .with_context(|| format!("{SUBCOMMAND} is what the lab runs; there is no {JOB_PATH}"))?;
    let job: Job = serde_json::from_slice(&job)?;
    let scenario = job.file.scenario(&job.overrides)?;
    let Job { bpf_stats, schedule, part, done, .. } = job;
    let options = HostOptions { bpf_stats, schedule, part: Some(part), done };
    host::run(&scenario, options, stop, &mut |event| println!("{}", event.to_line()))?;
    Ok(())
}

fn set_up(
    file: &ScenarioFile,
    overrides: &Overrides,
    options: &LabOptions,
    scenario: &Scenario,
    (part, done): (usize, usize),
) -> Result<Lab> {
    let clock = match scenario.clock {
        Clock::Exact => drover_lab::Clock::Exact,
        Clock::Real => drover_lab::Clock::Real,
    };
    let mut lab = Lab::new(topology(&scenario.host))
        .clock(clock)
        .seed(scenario.seed)
        .kernel(options.kernel.clone())
        .timeout(patience(scenario))
        .silence(patience_of_a_run(scenario));
    let mut in_lab = Vec::new();
    for name in &scenario.schedulers {
        let label = scheduler_label(name);
        if let Contender::Program(path, arguments) = Contender::find(name)? {
            let inside = format!("{PEERS_DIR}/{label}");
            lab = lab.program(&inside, &path);
            if !arguments.is_empty() {
                let file = arguments_file(Path::new(&inside));
                lab = lab.file_bytes(&file.to_string_lossy(), arguments.join("\n"));
            }
        }
        in_lab.push(label.to_owned());
    }
    let uses_qemu = |case: &Case| case.vms.iter().any(|vm| vm.vmm == Vmm::Qemu);
    if scenario.cases.iter().any(uses_qemu) {
        lab = lab.with_qemu_guests();
    }
    let overrides = Overrides { schedulers: Some(in_lab), ..overrides.clone() };
    let LabOptions { bpf_stats, schedule, .. } = *options;
    let job = Job { file: file.clone(), overrides, bpf_stats, schedule, part, done };
    Ok(lab.file_bytes(JOB_PATH, serde_json::to_vec(&job)?).command(["drover", SUBCOMMAND]))
}

/// The most memory the virtual host is given, MiB: real machines have more than whoever runs the
/// lab, and no workload of it needs more.
const MEMORY_MIB_MAX: u32 = 8192;

fn topology(host: &Host) -> Topology {
    Topology {
        sockets: host.sockets,
        dies: host.dies,
        cores: host.cores,
        threads: host.threads,
        nodes: host.nodes,
        memory_mib: host.memory_mib.min(MEMORY_MIB_MAX / host.nodes * host.nodes),
        skew_tick: host.skew_tick,
    }
}

/// How long one run, or the boot before the first, may take in real time before the virtual host counts
/// as hung. Generous: a hung one is rare, a slow machine is not.
fn patience_of_a_run(scenario: &Scenario) -> Duration {
    let slowdown = match scenario.clock {
        // One emulated instruction after the other, for all pCPUs.
        Clock::Exact => 10.0 * f64::from(scenario.host.pcpus()).max(2.0),
        Clock::Real => 2.0,
    };
    Duration::from_secs_f64(150.0 + (scenario.warmup_s + scenario.duration_s + 20.0) * slowdown)
}

/// The same for all runs.
fn patience(scenario: &Scenario) -> Duration {
    let runs = u32::try_from(plan(scenario).len()).unwrap_or(u32::MAX);
    patience_of_a_run(scenario).saturating_mul(runs.saturating_add(1))
}

/// What the virtual host's end and its kernel tell of.
fn troubles_of(outcome: &LabOutcome, words: &str) -> Vec<String> {
    let warnings = outcome.kernel_warnings.iter();
    // An ejected scheduler is a fault of its run, and told there.
    let warnings = warnings.filter(|line| !line.contains("sched_ext"));
    let mut troubles: Vec<String> = warnings.map(|line| format!("kernel: {line}")).collect();
    if outcome.exit_status != 0 {
        troubles.push(format!("{:#}", refusal(words)));
    }
    troubles
}

/// The error of the program in the lab, from the last line it printed.
fn refusal(words: &str) -> anyhow::Error {
    match words.strip_prefix("drover: ").unwrap_or(words) {
        "" => anyhow!("in the lab: the experiment ended without a word"),
        words => anyhow!("in the lab: {words}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const TEXT: &str = "name = \"s\"\n[host]\ncores = 4\n[[vm]]\nname = \"a\"\nvcpus = 1\n\
                        workload = { kind = \"cpu\" }\n";

    fn file(text: &str) -> ScenarioFile {
        ScenarioFile {
            name: "s.toml".to_owned(),
            text: text.to_owned(),
            others: BTreeMap::new(),
            set: Vec::new(),
        }
    }

    fn outcome(exit_status: i32, warnings: &[&str]) -> LabOutcome {
        LabOutcome {
            exit_status,
            files: Vec::new(),
            console: String::new(),
            kernel_log: String::new(),
            kernel_warnings: warnings.iter().map(|&line| line.to_owned()).collect(),
            kernel_version: "7.0".to_owned(),
            accelerator: drover_lab::Accelerator::Tcg,
            wall_s: 1.0,
        }
    }

    #[test]
    fn a_file_is_read_with_its_overrides() {
        let overrides = Overrides { repeats: Some(3), ..Overrides::default() };
        assert_eq!(file(TEXT).scenario(&overrides).unwrap().repeats, 3);
        let message = file("name = 1").scenario(&overrides).unwrap_err().to_string();
        assert!(message.starts_with("s.toml:1: "), "{message}");
    }

    #[test]
    fn the_lab_is_shaped_as_the_scenario_says() {
        let scenario = file(TEXT).scenario(&Overrides::default()).unwrap();
        assert_eq!(topology(&scenario.host).pcpus(), 4);
    }

    #[test]
    fn more_runs_may_take_longer() {
        let short = file(TEXT).scenario(&Overrides::default()).unwrap();
        let overrides = Overrides { repeats: Some(50), ..Overrides::default() };
        let long = file(TEXT).scenario(&overrides).unwrap();
        assert!(patience(&long) > 10 * patience(&short));
        let overrides = Overrides { clock: Some(Clock::Real), ..overrides };
        assert!(patience(&file(TEXT).scenario(&overrides).unwrap()) < patience(&long));
    }

    #[test]
    fn what_came_out_before_the_end_is_kept() {
        let scenario = file(TEXT).scenario(&Overrides::default()).unwrap();
        let (case, scheduler) = ("all".to_owned(), "scx_other".to_owned());
        let started = Started { number: 1, of: 2, case, scheduler, repeat: 2 };
        let mut heard = Heard::default();
        let mut told = 0;
        let mut take = |line: &str| {
            heard.take(drover_lab::Event::Output(line), &mut |_| told += 1);
            (heard.started.clone(), heard.runs.len(), heard.words.clone())
        };
        assert_eq!(take("drover: a word\n"), (None, 0, "drover: a word".to_owned()));
        let begun = take(&format!("{}\n", Event::Started(started.clone()).to_line()));
        assert_eq!(begun.0, Some(started.clone()));
        let run = lost_run(&scenario, &started, "it hung\nconsole");
        let ended = take(&format!("{}\n", Event::Finished(Box::new(run.clone())).to_line()));
        assert_eq!((ended.0, ended.1, told), (None, 1, 2));
        assert!(run.fault.unwrap().ends_with("it: it hung"));
        assert_eq!((run.repeat, run.vms.len(), run.vms[0].cpu_s), (2, 1, None));
    }

    /// Three runs in hosts that end as `ends` says: after so many more runs they hang in the next.
    fn runs_in(clock: Clock, ends: &[usize]) -> (Finished, Vec<usize>) {
        let overrides = Overrides { repeats: Some(3), clock: Some(clock), ..Overrides::default() };
        let mut scenario = file(TEXT).scenario(&overrides).unwrap();
        scenario.schedulers.truncate(1);
        let of = plan(&scenario).len();
        let mut boots = Vec::new();
        let mut boot = |done: usize, on_event: &mut dyn FnMut(drover_lab::Event)| {
            let more = ends.get(boots.len()).copied();
            boots.push(done);
            for index in done..of {
                let started = plan(&scenario)[index].started(&scenario, of);
                let run = lost_run(&scenario, &started, "");
                let tell = |event: Event| format!("{}\n", event.to_line());
                on_event(drover_lab::Event::Output(&tell(Event::Started(started))));
                if more == Some(index - done) {
                    anyhow::bail!("it hung");
                }
                let finished = Event::Finished(Box::new(Run { fault: None, ..run }));
                on_event(drover_lab::Event::Output(&tell(finished)));
            }
            Ok(outcome(0, &[]))
        };
        let finished = make_part(&scenario, &plan(&scenario), &mut boot, &mut |_| ()).unwrap();
        (finished, boots)
    }

    fn faults(finished: &Finished) -> Vec<bool> {
        finished.runs.iter().map(|run| run.fault.is_some()).collect()
    }

    #[test]
    fn a_run_that_is_lost_is_tried_once_more_and_the_others_go_on() {
        let (finished, boots) = runs_in(Clock::Real, &[1]);
        assert_eq!((faults(&finished), boots), (vec![false; 3], vec![0, 1]));
        assert!(finished.troubles.is_empty());
        let (finished, boots) = runs_in(Clock::Real, &[1, 0]);
        assert_eq!((faults(&finished), boots), (vec![false, true, false], vec![0, 1, 2]));
        assert_eq!(finished.troubles, ["run 2 was lost: it hung"]);
        let (finished, boots) = runs_in(Clock::Real, &[2, 0]);
        assert_eq!((faults(&finished), boots), (vec![false, false, true], vec![0, 2]));
    }

    #[test]
    fn on_the_exact_clock_it_would_be_lost_again() {
        let (finished, boots) = runs_in(Clock::Exact, &[1]);
        assert_eq!((faults(&finished), boots), (vec![false, true, false], vec![0, 2]));
    }

    #[test]
    fn a_kernel_in_trouble_is_told_but_an_ejected_scheduler_is_not_twice() {
        assert!(troubles_of(&outcome(0, &[]), "").is_empty());
        let warnings = ["rcu: INFO: detected stalls", "sched_ext: \"x\" runnable task stall"];
        let told = troubles_of(&outcome(1, &warnings), "drover: scheduler x did not start: no");
        assert_eq!(
            told,
            ["kernel: rcu: INFO: detected stalls", "in the lab: scheduler x did not start: no"]
        );
        assert!(refusal("").to_string().contains("without a word"));
    }
}

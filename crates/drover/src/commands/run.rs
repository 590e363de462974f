// SPDX-License-Identifier: GPL-2.0-only
//! `drover run`, and what it runs inside the lab: `drover lab-run`

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, ensure};
use clap::{ValueEnum, ValueHint};
use drover_experiment::host::{self, HostOptions};
use drover_experiment::lab::{self, LabOptions};
use drover_experiment::{Event, Overrides, ScenarioFile};
use drover_lab::KernelChoice;
use drover_report::html::{Report, Timeline};
use drover_report::picture::Picture;
use drover_scenario::expect::{Finding, Verdict, evaluate, findings, repeats};
use drover_scenario::results::Results;
use drover_scenario::schedule::Schedule;
use drover_scenario::{Clock, Scenario};
use indicatif::ProgressBar;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::pipe;

use super::consent::ask_first;
use super::given::{out_file, such};
use super::progress;
use super::report::write_page;
use super::sim::{SimArgs, in_sim};
use super::whole::write_whole;

#[derive(clap::Args)]
pub struct Args {
    /// The scenario; docs/scenarios.md describes such files, scenarios/ holds some.
    file: PathBuf,
    /// Where to run it: lab, a virtual host; sim, the simulator; host, this machine (as root).
    #[arg(long, value_enum, default_value = "lab")]
    on: Ground,
    /// Schedulers to compare: eevdf (nothing loaded), drover, name or path of another.
    #[arg(
        long,
        value_name = "NAME,...",
        value_delimiter = ',',
        value_parser = such(&["eevdf", "drover"]),
        hide_possible_values = true
    )]
    scheduler: Option<Vec<String>>,
    /// Clock of the lab: exact, the same from run to run; real, for throughput.
    #[arg(long, value_enum)]
    clock: Option<ClockName>,
    /// Run this case only, by its name; may be given again for more.
    #[arg(long, value_name = "CASE")]
    only: Vec<String>,
    /// Change a key of the scenario, or a parameter of the policy: host.cores=16, vm.web.shares=4000, slice_ms=2; may be
    /// given again.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Seed of everything random (exact clock, simulator). In the simulator: the one run of that seed, unless
    /// --repeats or --seeds asks for more, each with the next seed.
    #[arg(long)]
    seed: Option<u64>,
    /// How often each case runs under each scheduler.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: Option<u32>,
    /// Measured time of each run, in seconds.
    #[arg(long, value_name = "SECONDS", value_parser = duration_s)]
    duration: Option<f64>,
    /// Write all figures to this file, and pictures beside it.
    #[arg(long, value_name = "OUT.json", value_parser = out_file())]
    json: Option<PathBuf>,
    /// Draw who ran where for a fifth of a second of each case: to this file and a PNG beside it.
    #[arg(long, value_name = "OUT.svg", value_parser = out_file())]
    schedule: Option<PathBuf>,
    /// Write a page of the same that can be zoomed, with the figures.
    #[arg(long, value_name = "OUT.html", value_parser = out_file())]
    report: Option<PathBuf>,
    /// Fail unless everything the scenario expects holds. What came of each expectation is shown anyway.
    #[arg(long)]
    check: bool,
    /// Kernel of the lab: the beginning of a version (6.18), a path to a vmlinuz, or "host".
    #[arg(long, value_hint = ValueHint::FilePath)]
    kernel: Option<String>,
    /// Use this machine without a question (--on host).
    #[arg(long)]
    yes: bool,
    /// Also measure the time in the scheduler's BPF programs, which costs a little itself.
    #[arg(long)]
    bpf_stats: bool,
    #[command(flatten)]
    sim: SimArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Ground {
    Lab,
    Sim,
    Host,
}

#[derive(Clone, Copy, ValueEnum)]
enum ClockName {
    Exact,
    Real,
}

fn duration_s(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(duration_s) if (0.01..=86_400.0).contains(&duration_s) => Ok(duration_s),
        _ => Err("use 0.01 to 86400".to_owned()),
    }
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let file = ScenarioFile::read_set(&args.file, &args.set)?;
    let overrides = args.overrides();
    let scenario = file.scenario(&overrides)?;
    check_args(args)?;
    if args.on == Ground::Host {
        ask_first(&scenario, args.yes)?;
    }
    let mut progress = Progress::new();
    let (mut results, troubles) = match args.on {
        Ground::Lab => in_lab(args, &file, &overrides, &mut progress)?,
        Ground::Sim => {
            ensure!(args.clock.is_none(), "--clock is the lab's; leave it out with --on sim");
            ensure!(args.kernel.is_none(), "--kernel is the lab's; leave it out with --on sim");
            ensure!(!args.bpf_stats, "--bpf-stats has no meaning with --on sim; leave it out");
            let (results, schedules) =
                in_sim(&args.sim, &scenario, args.draws_schedule(), &progress.bar)?;
            progress.schedules = schedules;
            (results, Vec::new())
        }
        Ground::Host => (on_host(args, &scenario, &mut progress)?, Vec::new()),
    };
    results.repeats = repeats(&results);
    results.origin = file.origin(&scenario, results.ground);
    if let (true, Some(json)) = (args.sim.shard, &args.json) {
        write_whole(json, &results)?;
        return Ok(ExitCode::SUCCESS);
    }
    let schedules = std::mem::take(&mut progress.schedules);
    drop(progress);
    let findings = findings(&scenario.expects, &results);
    let mut told = match findings.is_empty() {
        true => drover_report::table(&results),
        false => drover_report::findings(&results, &findings),
    };
    if let Some(json) = &args.json {
        told += &keep(&results, &findings, json)?;
    }
    if let Some(svg) = &args.schedule {
        match Picture::of_schedules(&results, &schedules) {
            Some(picture) => told += &draw(&picture, svg, "schedule: ")?,
            None => eprintln!("drover: no run came to its end: there is no schedule to draw"),
        }
    }
    if let Some(html) = &args.report {
        told += &write_page(html, &report(&results, &schedules))?;
    }
    for trouble in &troubles {
        eprintln!("drover: TROUBLE: {trouble}");
    }
    // All is done and kept: what is left is to tell.
    pipe::end_with_reader();
    print!("{told}");
    let faults = results.runs.iter().filter(|run| run.fault.is_some()).count();
    let held = check(&scenario, &results) || !args.check;
    let good = held && troubles.is_empty() && faults == 0;
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Better said before minutes of measuring than after them.
fn check_args(args: &Args) -> Result<()> {
    for out in args.json.iter().chain(&args.schedule).chain(&args.report) {
        let dir = std::path::absolute(out)?.parent().map(Path::to_owned).unwrap_or_default();
        ensure!(
            dir.is_dir(),
            "cannot write {}: there is no directory {}",
            out.display(),
            dir.display()
        );
    }
    ensure!(
        args.on == Ground::Sim || args.sim == SimArgs::default(),
        "--seeds, --trace, --trace-window and --determinism-check are the simulator's; add --on sim"
    );
    if args.on == Ground::Host {
        ensure!(args.clock.is_none(), "--clock is the lab's; leave it out with --on host");
        ensure!(args.kernel.is_none(), "--kernel is the lab's; leave it out with --on host");
    }
    ensure!(args.on == Ground::Host || !args.yes, "--yes is for --on host; leave it out");
    let first_seed = args.sim.seeds.and_then(|seeds| seeds.first);
    ensure!(
        args.seed.is_none() || first_seed.is_none(),
        "--seeds A..B says which seeds there are; leave --seed out"
    );
    Ok(())
}

/// What the lab runs.
pub fn run_in_lab() -> Result<ExitCode> {
    let stop = stop_on_signals()?;
    lab::run_inside(&stop)?;
    Ok(ExitCode::SUCCESS)
}

/// The page of what ran.
fn report(results: &Results, schedules: &[Schedule]) -> Report {
    let first = schedules.first();
    let part =
        first.map(|it| format!("{:.0} ms from the middle of each run", it.length_ns as f64 / 1e6));
    Report {
        title: format!("{}: who ran where", results.scenario),
        about: part.into_iter().collect(),
        tables: drover_report::table(results),
        timelines: schedules.iter().map(Timeline::of_schedule).collect(),
    }
}

impl Args {
    /// Whether who runs where is to be recorded.
    fn draws_schedule(&self) -> bool {
        self.schedule.is_some() || self.report.is_some()
    }

    fn overrides(&self) -> Overrides {
        let clock = self.clock.map(|clock| match clock {
            ClockName::Exact => Clock::Exact,
            ClockName::Real => Clock::Real,
        });
        let first_seed = self.sim.seeds.and_then(|seeds| seeds.first);
        let one = self.on == Ground::Sim
            && (first_seed.is_some() || self.seed.is_some() && self.sim.seeds.is_none());
        Overrides {
            schedulers: self.scheduler.clone(),
            only: self.only.clone(),
            clock,
            seed: self.seed.or(first_seed),
            repeats: self.repeats.or(one.then_some(1)),
            duration_s: self.duration,
            totals_only: false,
        }
    }
}

fn in_lab(
    args: &Args,
    file: &ScenarioFile,
    overrides: &Overrides,
    progress: &mut Progress,
) -> Result<(Results, Vec<String>)> {
    let kernel = args.kernel.as_deref().map_or(Ok(KernelChoice::Default), KernelChoice::parse)?;
    let options = LabOptions { kernel, bpf_stats: args.bpf_stats, schedule: args.draws_schedule() };
    let report = lab::run(file, overrides, &options, &mut |event| progress.take(event))?;
    Ok((report.results, report.troubles))
}

fn on_host(args: &Args, scenario: &Scenario, progress: &mut Progress) -> Result<Results> {
    let (bpf_stats, schedule) = (args.bpf_stats, args.draws_schedule());
    let options = HostOptions { bpf_stats, schedule, ..HostOptions::default() };
    let stop = stop_on_signals()?;
    // A terminal that goes leaves nothing behind either.
    signal_hook::flag::register(SIGHUP, Arc::clone(&stop)).context("cannot catch signals")?;
    let scenario = &Scenario { clock: Clock::Real, ..scenario.clone() };
    host::run(scenario, options, &stop, &mut |event| progress.take(event))
}

/// A flag that Ctrl-C and SIGTERM set.
pub(super) fn stop_on_signals() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("cannot catch signals")?;
    }
    Ok(stop)
}

/// Writes the results, and the pictures beside them; where they are.
fn keep(results: &Results, findings: &[Finding], json: &Path) -> Result<String> {
    let mut text = serde_json::to_string_pretty(results)?;
    text.push('\n');
    write(json, text.as_bytes())?;
    let figures = format!("figures:  {}\n", json.display());
    let picture = match findings.is_empty() {
        true => Picture::of(results),
        false => Picture::of_findings(results, findings),
    };
    match picture {
        Some(picture) => Ok(figures + &draw(&picture, &json.with_extension("svg"), "pictures:")?),
        None => Ok(figures),
    }
}

/// Writes a picture as SVG, and as PNG beside it; where they are.
pub(super) fn draw(picture: &Picture, svg: &Path, title: &str) -> Result<String> {
    let (svg, png) = (svg.with_extension("svg"), svg.with_extension("png"));
    write(&svg, picture.svg()?.as_bytes())?;
    write(&png, &picture.png()?)?;
    Ok(format!("{title} {} and {}\n", svg.display(), png.display()))
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}

/// Prints what was expected beside what was measured; whether all of it holds.
fn check(scenario: &Scenario, results: &Results) -> bool {
    let rows = evaluate(&scenario.expects, results);
    if !rows.is_empty() {
        print!("\n{}", drover_report::checks(&rows));
    }
    rows.iter().all(|row| row.verdict != Verdict::Fail)
}

/// How far it is: a bar on a terminal, else a line for each run.
struct Progress {
    bar: ProgressBar,
    /// Schedules that came meanwhile.
    schedules: Vec<Schedule>,
}

impl Progress {
    fn new() -> Self {
        let bar = progress::bar(1, "{pos}/{len}");
        bar.set_message("getting ready");
        Self { bar, schedules: Vec::new() }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Schedule(schedule) => self.schedules.push(*schedule),
            Event::Notice(line) => self.say(&format!("note: {line}")),
            Event::Started(run) => {
                if run.number == 1 {
                    // The lab had to boot again, and what ran before counts no more.
                    self.schedules.clear();
                }
                let what = format!("case {}, {}, repeat {}", run.case, run.scheduler, run.repeat);
                self.bar.set_length(run.of as u64);
                self.bar.set_message(what.clone());
                if self.bar.is_hidden() {
                    eprintln!("run {}/{}: {what}", run.number, run.of);
                }
            }
            Event::Finished(run) => {
                self.bar.inc(1);
                if let Some(fault) = &run.fault {
                    let (case, scheduler) = (&run.case, &run.scheduler);
                    self.say(&format!("case {case}, {scheduler}: FAULT: {fault}"));
                }
            }
        }
    }

    fn say(&self, line: &str) {
        self.bar.suspend(|| eprintln!("{line}"));
    }
}

impl Drop for Progress {
    /// An error message goes where the bar was.
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_seconds_in_range() {
        assert_eq!(duration_s("1.5"), Ok(1.5));
        for bad in ["0", "-1", "nan", "inf", "1e9", "two"] {
            assert!(duration_s(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let message = format!("{:#}", ScenarioFile::read(Path::new("/no/such.toml")).unwrap_err());
        assert!(message.contains("/no/such.toml") && !message.contains('\n'), "{message}");
    }
}

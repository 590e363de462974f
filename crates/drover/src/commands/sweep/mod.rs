// SPDX-License-Identifier: GPL-2.0-only
//! `drover sweep`: a scenario with many values and seeds, or trials of the fault rig, cut into shards that run on this
//! machine or on a cluster. docs/sweeps.md

mod cluster;
mod local;
mod plan;
mod state;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::ValueEnum;
use indicatif::ProgressBar;

use super::progress;
use super::run::stop_on_signals;
use plan::Plan;
use state::State;

#[derive(clap::Args)]
pub struct Args {
    /// The plan: a scenario, what varies in it, and seeds; docs/sweeps.md describes such files.
    plan: PathBuf,
    /// What runs the shards: processes here; Slurm; Ray, by the Python package drover-results.
    #[arg(long, value_enum, default_value = "local")]
    engine: Engine,
    /// How many shards run at the same time, at most; without it, as many as there are CPUs.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    workers: Option<u32>,
    /// Where finished shards are kept, and the table of all; without it, in a folder beside the plan.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Go on with what is there: do the shards that are missing.
    #[arg(long)]
    resume: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Engine {
    Local,
    Slurm,
    Ray,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let plan = Plan::read(&args.plan)?;
    let out = args.out.clone().unwrap_or_else(|| args.plan.with_extension("sweep"));
    let state = State::open(&out, &plan, args.resume)?;
    let missing = state.missing()?;
    if !missing.is_empty() {
        work(args, &plan, &state, &missing)?;
    }
    let figures = table::write(&state, &plan)?;
    state.sweep_up();
    print!("{}", figures.lines);
    println!("table: {}", out.join("results.csv").display());
    Ok(if figures.is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Has the missing shards done.
fn work(args: &Args, plan: &Plan, state: &State, missing: &[usize]) -> Result<()> {
    let stop = stop_on_signals()?;
    let watch = Mutex::new(Watch::new(plan.shards(), plan.shards() - missing.len()));
    let workers = args.workers.map(|workers| workers as usize);
    let why = match args.engine {
        Engine::Local => {
            let here = std::thread::available_parallelism().map_or(1, usize::from);
            local::run(state, plan, missing, workers.unwrap_or(here), &watch, &stop)
        }
        Engine::Slurm => cluster::slurm(state, plan, missing, workers, &watch, &stop),
        Engine::Ray => cluster::ray(state, plan, missing, workers, &watch, &stop),
    };
    drop(watch);
    let why = why?;
    let left = state.missing()?.len();
    if left == 0 {
        return Ok(());
    }
    let why = match (stop.load(Ordering::Relaxed), why) {
        (true, _) => "it was stopped".to_owned(),
        (false, Some(why)) => why,
        (false, None) => "nobody says why".to_owned(),
    };
    bail!("{left} of {} shards are missing, add --resume to go on: {why}", plan.shards())
}

/// How far it is: a bar on a terminal, else a line for each tenth.
pub struct Watch {
    bar: ProgressBar,
    all: usize,
    /// What was there before.
    before: usize,
    done: usize,
    begin: Instant,
}

impl Watch {
    fn new(all: usize, before: usize) -> Self {
        let bar = progress::bar(all as u64, "{pos}/{len} shards");
        bar.set_position(before as u64);
        bar.reset_eta();
        Self { bar, all, before, done: before, begin: Instant::now() }
    }

    /// One more shard is done.
    fn one_more(&mut self) {
        self.so_many(self.done + 1);
    }

    /// So many shards are done.
    fn so_many(&mut self, done: usize) {
        let tenth = |done: usize| done * 10 / self.all;
        let is_further = tenth(done) > tenth(self.done);
        self.done = self.done.max(done);
        self.bar.set_position(self.done as u64);
        if is_further && self.bar.is_hidden() {
            eprintln!("{}", estimate(self.done, self.before, self.all, self.begin.elapsed()));
        }
    }

    fn say(&self, line: &str) {
        self.bar.set_message(line.to_owned());
        if self.bar.is_hidden() {
            eprintln!("{line}");
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// How many shards are done, and how long the others may take if they take as long as these.
fn estimate(done: usize, before: usize, all: usize, passed: Duration) -> String {
    let fresh = (done - before).max(1) as f64;
    let left_s = passed.as_secs_f64() * (all - done) as f64 / fresh;
    format!(
        "{done} of {all} shards, {:.0} s so far, about {left_s:.0} s left",
        passed.as_secs_f64()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_takes_as_long_as_what_was_done_now() {
        let line = estimate(60, 50, 100, Duration::from_secs(20));
        assert_eq!(line, "60 of 100 shards, 20 s so far, about 80 s left");
    }
}

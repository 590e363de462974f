// SPDX-License-Identifier: GPL-2.0-only
//! `drover run --on sim`

use std::path::PathBuf;

use anyhow::{Result, anyhow, ensure};
use drover_core::results::Results;
use drover_core::scenario::Scenario;
use drover_core::schedule::{Schedule, window_s};
use drover_report::html::Timeline;
use drover_rivals::RIVALS;
use drover_sim::scenario::{Options, Outcome, RunTrace, run_scenario};
use indicatif::ProgressBar;

use super::report::write_trace;

/// What only the simulator can do.
#[derive(clap::Args, Default, PartialEq, Eq)]
pub struct SimArgs {
    /// With --on sim: run with so many seeds, --seed and those after it, in parallel; each counts as a repeat.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(super) seeds: Option<u32>,
    /// With --on sim: write who ran when to this file, for ui.perfetto.dev.
    #[arg(long, value_name = "OUT.json")]
    trace: Option<PathBuf>,
    /// With --on sim: run everything twice and fail unless both are the same, event by event.
    #[arg(long)]
    determinism_check: bool,
}

/// Runs the scenario in the simulator; with who ran where in the first run of each case under each
/// scheduler, where `schedules` asks for it.
pub fn in_sim(
    args: &SimArgs,
    scenario: &Scenario,
    schedules: bool,
    bar: &ProgressBar,
) -> Result<(Results, Vec<Schedule>)> {
    bar.set_message("simulating");
    let options = Options {
        seeds: args.seeds.unwrap_or(1),
        trace: args.trace.is_some() || schedules,
        ..Options::default()
    };
    let outcome = simulate(scenario, &options, bar)?;
    if args.determinism_check {
        let again = simulate(scenario, &options, bar)?;
        ensure!(
            again.trace_hash == outcome.trace_hash && again.results == outcome.results,
            "two runs with seed {} differ: trace hashes {:016x} and {:016x}; please report this",
            scenario.seed,
            outcome.trace_hash,
            again.trace_hash
        );
        bar.println(format!("the same twice: trace hash {:016x}", outcome.trace_hash));
        if bar.is_hidden() {
            eprintln!("the same twice: trace hash {:016x}", outcome.trace_hash);
        }
    }
    if let Some(path) = &args.trace {
        let timelines: Vec<_> = outcome.traces.iter().map(|trace| whole(trace, scenario)).collect();
        write_trace(path, &timelines)?;
    }
    let first = outcome.traces.iter().filter(|trace| schedules && trace.repeat == 1);
    let window = window_s(scenario.duration_s);
    let schedules = first.map(|trace| trace.schedule(scenario, window)).collect();
    Ok((outcome.results, schedules))
}

/// All of a run, from when the host was started on.
fn whole(trace: &RunTrace, scenario: &Scenario) -> Timeline {
    let schedule = trace.schedule(scenario, (-scenario.warmup_s, scenario.duration_s));
    Timeline { title: trace.title(), ..Timeline::of_schedule(&schedule) }
}

fn simulate(scenario: &Scenario, options: &Options, bar: &ProgressBar) -> Result<Outcome> {
    let progress = |done: usize, of: usize| {
        bar.set_length(of as u64);
        bar.set_position(done as u64);
    };
    run_scenario(scenario, RIVALS, options, &progress).map_err(|error| anyhow!(error))
}

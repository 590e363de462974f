// SPDX-License-Identifier: GPL-2.0-only
//! `drover run --on sim`

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, ensure};
use drover_report::html::Timeline;
use drover_report::perfetto::STRETCHES_MAX;
use drover_rivals::RIVALS;
use drover_scenario::Scenario;
use drover_scenario::results::Results;
use drover_scenario::schedule::{Schedule, window_s};
use drover_sim::scenario::{Options, Outcome, RunTrace, run_scenario};
use indicatif::ProgressBar;

use super::given::out_file;
use super::report::write_trace;

/// What only the simulator can do.
#[derive(clap::Args, Default, PartialEq)]
pub struct SimArgs {
    /// With --on sim: run with so many seeds, --seed and those after it, in parallel; each counts as a repeat. A..B: with
    /// the seeds from A to B, each once.
    #[arg(long, value_name = "N|A..B", value_parser = seeds)]
    pub(super) seeds: Option<Seeds>,
    /// With --on sim: write who ran when to this file, for ui.perfetto.dev. Whole with --only CASE and --seed N, else of
    /// many runs the beginning of each.
    #[arg(long, value_name = "OUT.json", value_parser = out_file())]
    trace: Option<PathBuf>,
    /// With --trace: only from A to B, s of the measured time; before 0 is the warm-up.
    #[arg(long, value_name = "A..B", value_parser = window, allow_hyphen_values = true, requires = "trace")]
    trace_window: Option<(f64, f64)>,
    /// With --on sim: run everything twice and fail unless both are the same, event by event.
    #[arg(long)]
    determinism_check: bool,
    /// Be a shard of a sweep: with --on sim, on one thread; nothing is written but the figures.
    #[arg(long, hide = true, requires_all = ["json", "seeds"])]
    pub(super) shard: bool,
}

/// The seeds to run with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seeds {
    /// The first, where it is said; then each runs once.
    pub(super) first: Option<u64>,
    /// How many.
    count: u32,
}

/// Seeds of one run, at most.
const SEEDS_MAX: u32 = 10_000;

/// Reads a number of seeds, or the first and the last of them.
fn seeds(text: &str) -> Result<Seeds, String> {
    let wrong = || format!("use a number from 1 to {SEEDS_MAX}, or A..B, such as 1..20");
    let seeds = match text.split_once("..") {
        None => text.parse().ok().map(|count| Seeds { first: None, count }),
        Some((first, last)) => first.parse().ok().zip(last.parse().ok()).and_then(seeds_between),
    };
    seeds.filter(|seeds| (1..=SEEDS_MAX).contains(&seeds.count)).ok_or_else(wrong)
}

fn seeds_between((first, last): (u64, u64)) -> Option<Seeds> {
    let count = last.checked_sub(first)?.checked_add(1)?;
    Some(Seeds { first: Some(first), count: count.try_into().ok()? })
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
        seeds: args.seeds.map_or(1, |seeds| seeds.count),
        trace: args.trace.is_some() || schedules,
        ..Options::default()
    };
    let options = if args.shard { Options { threads: 1, ..options } } else { options };
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
        keep_trace(path, args.trace_window, scenario, &outcome.traces)?;
    }
    let first = outcome.traces.iter().filter(|trace| schedules && trace.repeat == 1);
    let window = window_s(scenario.duration_s);
    let schedules = first.map(|trace| trace.schedule(scenario, window)).collect();
    Ok((outcome.results, schedules))
}

/// Reads two moments such as `0.5..1.5`, s.
fn window(text: &str) -> Result<(f64, f64), String> {
    let moments = text.split_once("..").and_then(|(from, to)| {
        Some((from.trim().parse::<f64>().ok()?, to.trim().parse::<f64>().ok()?))
    });
    let moments =
        moments.filter(|(from_s, to_s)| from_s.is_finite() && to_s.is_finite() && from_s < to_s);
    moments.ok_or_else(|| "use A..B, such as 0.5..1.5, seconds of the measured time".to_owned())
}

/// Writes what ran when, from when the host was started on or within the window. One case with one seed is written
/// whole, under all schedulers.
fn keep_trace(
    path: &Path,
    window_s: Option<(f64, f64)>,
    scenario: &Scenario,
    traces: &[RunTrace],
) -> Result<()> {
    let (first_s, last_s) = (-scenario.warmup_s, scenario.duration_s);
    let (from_s, to_s) = window_s.unwrap_or((first_s, last_s));
    ensure!(
        first_s <= from_s && to_s <= last_s,
        "--trace-window {from_s}..{to_s} is not within the run; it lasts from {first_s} to {last_s} s"
    );
    let part = |trace: &RunTrace| {
        let schedule = trace.schedule(scenario, (from_s, to_s));
        Timeline { title: trace.title(), ..Timeline::of_schedule(&schedule) }
    };
    let timelines: Vec<_> = traces.iter().map(part).collect();
    let is_one = traces.len() <= scenario.schedulers.len();
    if let Some(ends_ms) = write_trace(path, &timelines, (!is_one).then_some(STRETCHES_MAX))? {
        eprintln!(
            "drover: {} has the first {ends_ms} ms at least of each of {} runs; for one that is whole, add \
             --only CASE --seed N, such as --only \"{}\" --seed {}",
            path.display(),
            traces.len(),
            scenario.cases[0].name,
            scenario.seed
        );
    }
    Ok(())
}

fn simulate(scenario: &Scenario, options: &Options, bar: &ProgressBar) -> Result<Outcome> {
    let progress = |done: usize, of: usize| {
        bar.set_length(of as u64);
        bar.set_position(done as u64);
    };
    run_scenario(scenario, RIVALS, options, &progress).map_err(|error| anyhow!(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_a_number_or_the_first_and_the_last() {
        assert_eq!(seeds("20"), Ok(Seeds { first: None, count: 20 }));
        assert_eq!(seeds("5..7"), Ok(Seeds { first: Some(5), count: 3 }));
        assert_eq!(seeds("0..0"), Ok(Seeds { first: Some(0), count: 1 }));
        let bad = ["", "0", "10001", "7..5", "1..10001", "..", "1..", "-1..3", "1-3"];
        for bad in bad.into_iter().chain(["0..18446744073709551615", "1..2..3"]) {
            assert!(seeds(bad).unwrap_err().contains("1..20"), "{bad}");
        }
    }

    #[test]
    fn a_window_is_two_moments_in_order() {
        assert_eq!(window("0.5..1.5"), Ok((0.5, 1.5)));
        assert_eq!(window("-0.5..1"), Ok((-0.5, 1.0)));
        for bad in ["", "1", "2..1", "a..b", "1..inf", "1-2"] {
            assert!(window(bad).is_err(), "{bad}");
        }
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! `drover compare`: scenarios on simulator and lab, and how far the two are apart.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, ensure};
use drover_experiment::lab::{self, LabOptions};
use drover_experiment::{Overrides, ScenarioFile};
use drover_rivals::RIVALS;
use drover_scenario::Clock;
use drover_scenario::compare::{Compare, Compared, compare};
use drover_sim::scenario::{Options, run_scenario};

#[derive(clap::Args)]
pub struct Args {
    /// The scenarios.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Where to write the table.
    #[arg(long, value_name = "OUT.md")]
    out: PathBuf,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let mut sections = Vec::new();
    let mut all = Vec::new();
    for path in &args.files {
        eprintln!("compare: {}", path.display());
        let file = ScenarioFile::read(path)?;
        let (title, rows) = both(&file).with_context(|| format!("{}", path.display()))?;
        sections.push(section(&title, &rows));
        all.extend(rows);
        // After each scenario: what was measured is not lost with the next.
        fs::write(&args.out, page(&all, &sections))
            .with_context(|| format!("cannot write {}", args.out.display()))?;
    }
    let within = within(&all);
    println!("{within} of {} figures within tolerance: {}", all.len(), args.out.display());
    Ok(ExitCode::SUCCESS)
}

fn within(rows: &[Compared]) -> usize {
    rows.iter().filter(|row| row.is_within()).count()
}

fn page(rows: &[Compared], sections: &[String]) -> String {
    let counts = format!("{} of {} figures", within(rows), rows.len());
    format!("{HEAD}{counts} are within their tolerance.\n{}", sections.concat())
}

const HEAD: &str = "\
# Simulator against lab

Written by `make compare`: each scenario in the simulator (the median of nine seeds) and in the lab, and how far the
simulator's figure is from the lab's: under Drover, or under the scheduler that the title names. The tolerances were fixed
beforehand, in the scenario files; rows beyond them stay, marked, with the reason where one is known.

";

/// Seeds the simulator runs each scenario with: how often threads switch hangs on luck, by a tenth and more
/// beside a limit. Their figure is the median.
const SEEDS: u32 = 9;

/// The scenario's title, and its figures on both grounds.
fn both(file: &ScenarioFile) -> Result<(String, Vec<Compared>)> {
    let compares = file.scenario(&Overrides::default())?.compares;
    ensure!(!compares.is_empty(), "nothing to compare by; add a [[compare]]");
    let schedulers: BTreeSet<&String> = compares.iter().map(|it| &it.figure.scheduler).collect();
    let schedulers: Vec<String> = schedulers.into_iter().cloned().collect();
    let under = match schedulers.as_slice() {
        [drover] if drover == "drover" => String::new(),
        others => format!(" under {}", others.join(", ")),
    };
    let mut overrides = Overrides { schedulers: Some(schedulers), ..Overrides::default() };
    let mut scenario = file.scenario(&overrides)?;
    let over_time = |compare: &Compare| compare.figure.metric.needs_timeline();
    overrides.totals_only = !scenario.compares.iter().any(over_time);
    overrides.apply(&mut scenario)?;
    let options = Options { seeds: SEEDS, ..Options::default() };
    let sim = run_scenario(&scenario, RIVALS, &options, &|_, _| {})
        .map_err(|error| anyhow!(error))?
        .results;
    let report = lab::run(file, &overrides, &LabOptions::default(), &mut |_| {})?;
    ensure!(report.troubles.is_empty(), "the lab had trouble: {}", report.troubles.join("; "));
    let clock = match scenario.clock {
        Clock::Exact => "exact clock",
        Clock::Real => "real clock",
    };
    let title = format!("{}{under} ({clock}, {} s)", scenario.name, scenario.duration_s);
    Ok((title, compare(&scenario.compares, &sim, &report.results)))
}

fn section(title: &str, rows: &[Compared]) -> String {
    let mut text = format!(
        "\n## {title}\n\n| figure | case | VM | simulator | lab | error | tolerance | |\n\
         |---|---|---|---|---|---|---|---|\n"
    );
    let name = |name: &Option<String>| name.clone().unwrap_or("-".to_owned());
    let figure = |figure: Option<f64>| figure.map_or("missing".to_owned(), |it| format!("{it:.3}"));
    for row in rows {
        let unit = row.tolerance.unit();
        let error = row.error().map_or("-".to_owned(), |error| format!("{error:+.1} {unit}"));
        let mark = match (row.is_within(), &row.reason) {
            (true, _) => "",
            (false, None) => "**off**",
            (false, Some(reason)) => &format!("**off**: {reason}"),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {error} | {} {unit} | {mark} |",
            row.metric.name(),
            name(&row.case),
            name(&row.vm),
            figure(row.sim),
            figure(row.lab),
            row.tolerance.most(),
        );
    }
    text
}

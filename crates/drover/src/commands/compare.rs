// SPDX-License-Identifier: GPL-2.0-only
//! `drover compare`: scenarios on simulator and lab, and how far the two are apart.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, ensure};
use drover_experiment::lab::{self, LabOptions};
use drover_experiment::{Overrides, ScenarioFile};
use drover_rivals::RIVALS;
use drover_scenario::Clock;
use drover_scenario::compare::{Compare, Compared, compare};
use drover_sim::scenario::{Options, run_scenario};
use serde::{Deserialize, Serialize};

#[derive(clap::Args)]
pub struct Args {
    /// The scenarios.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Where to write the page; all figures go into a JSON file of the same name beside it.
    #[arg(long, value_name = "OUT.md")]
    out: PathBuf,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let mut rows = Vec::new();
    for path in &args.files {
        eprintln!("compare: {}", path.display());
        let file = ScenarioFile::read(path)?;
        let (title, compared) = both(&file).with_context(|| format!("{}", path.display()))?;
        rows.extend(compared.iter().map(|it| Row::of(&title, it)));
        // After each scenario: what was measured is not lost with the next.
        for (file, text) in
            [(args.out.clone(), page(&rows)), (data_beside(&args.out), data(&rows)?)]
        {
            fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        }
    }
    let within = rows.iter().filter(|row| row.within).count();
    println!("{within} of {} figures within tolerance: {}", rows.len(), args.out.display());
    Ok(ExitCode::SUCCESS)
}

fn data_beside(page: &Path) -> PathBuf {
    page.with_extension("json")
}

/// A figure in the simulator and in the lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Row {
    /// The scenario, its clock and time; the scheduler, if it is not Drover.
    scenario: String,
    figure: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    case: Option<String>,
    /// None: of the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    vm: Option<String>,
    simulator: Option<String>,
    lab: Option<String>,
    error: Option<String>,
    tolerance: String,
    within: bool,
    /// Why it is known to be further off.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl Row {
    fn of(scenario: &str, of: &Compared) -> Row {
        let unit = of.tolerance.unit();
        Row {
            scenario: scenario.to_owned(),
            figure: of.metric.name().to_owned(),
            case: of.case.clone(),
            vm: of.vm.clone(),
            simulator: of.sim.map(|it| format!("{it:.3}")),
            lab: of.lab.map(|it| format!("{it:.3}")),
            error: of.error().map(|it| format!("{it:+.1} {unit}")),
            tolerance: format!("{} {unit}", of.tolerance.most()),
            within: of.is_within(),
            reason: of.reason.clone().filter(|_| !of.is_within()),
        }
    }

    /// What it is of, such as `esx-fig5-limit, 50%, vm0: cpu_s`.
    fn name(&self) -> String {
        let scenario = self.scenario.split(' ').next().unwrap_or("");
        let parts = [Some(scenario), self.case.as_deref(), self.vm.as_deref()];
        let parts: Vec<&str> = parts.into_iter().flatten().filter(|it| *it != "all").collect();
        format!("{}: {}", parts.join(", "), self.figure)
    }
}

/// All figures as JSON, a line each.
fn data(rows: &[Row]) -> Result<String> {
    let lines = rows.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>()?;
    Ok(format!("[\n{}\n]\n", lines.join(",\n")))
}

const HEAD: &str = "\
# Simulator against lab

Written by `make compare`: each scenario in the simulator (the median of nine seeds) and in the lab, and how far the
simulator's figure is from the lab's: under Drover, or under the scheduler that is named. The tolerances were fixed
beforehand, in the scenario files. Each figure is in [fidelity.json](fidelity.json).

";

/// How many figures are within their tolerance, and those that are not, by reason.
fn page(rows: &[Row]) -> String {
    let count = |of: &[&Row]| (of.iter().filter(|row| row.within).count(), of.len());
    let (within, all) = count(&rows.iter().collect::<Vec<_>>());
    let mut text = format!(
        "{HEAD}{within} of {all} figures are within their tolerance.\n\n\
         | scenario | figures | within |\n|---|--:|--:|\n"
    );
    for of in rows.chunk_by(|a, b| a.scenario == b.scenario) {
        let (within, all) = count(&of.iter().collect::<Vec<_>>());
        text += &format!("| {} | {all} | {within} |\n", of[0].scenario);
    }
    let mut off: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for row in rows.iter().filter(|row| !row.within) {
        let reason = row.reason.as_deref().unwrap_or("not known");
        let error = row.error.as_deref().unwrap_or("not measured");
        let line = format!("{} {error}, {} asked", row.name(), row.tolerance);
        off.entry(reason).or_default().push(line);
    }
    text += "\n## Further off, by reason\n";
    for (reason, figures) in off {
        text += &format!(
            "\n- {reason}:\n{}",
            figures.iter().map(|it| format!("  - {it}\n")).collect::<String>()
        );
    }
    text
}

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

#[cfg(test)]
mod tests {
    use super::*;

    fn row(case: &str, error: &str, within: bool, reason: Option<&str>) -> Row {
        Row {
            scenario: "x (exact clock, 4 s)".to_owned(),
            figure: "cpu_s".to_owned(),
            case: Some(case.to_owned()),
            vm: Some("a".to_owned()),
            simulator: Some("2.000".to_owned()),
            lab: Some("1.900".to_owned()),
            error: Some(error.to_owned()),
            tolerance: "1 %".to_owned(),
            within,
            reason: reason.map(str::to_owned),
        }
    }

    #[test]
    fn the_page_counts_figures_and_has_those_that_are_off_by_reason() {
        let rows = [
            row("all", "+0.2 %", true, None),
            row("busy", "+5.3 %", false, Some("it is emulated")),
            row("idle", "-3.1 %", false, None),
        ];
        let text = page(&rows);
        for part in [
            "1 of 3 figures are within",
            "| x (exact clock, 4 s) | 3 | 1 |",
            "- it is emulated:\n  - x, busy, a: cpu_s +5.3 %, 1 % asked\n",
            "- not known:\n  - x, idle, a: cpu_s -3.1 %, 1 % asked\n",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }

    /// The page says what the data say; with `DROVER_WRITE_DOCS` set it is written anew.
    #[test]
    fn the_published_page_follows_from_the_published_data() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/fidelity.md");
        let text = fs::read_to_string(data_beside(&file)).unwrap();
        let rows: Vec<Row> = serde_json::from_str(&text).unwrap();
        assert_eq!(data(&rows).unwrap(), text, "fidelity.json is as `make compare` writes it");
        if std::env::var_os("DROVER_WRITE_DOCS").is_some() {
            fs::write(&file, page(&rows)).unwrap();
        }
        assert_eq!(
            fs::read_to_string(&file).unwrap(),
            page(&rows),
            "DROVER_WRITE_DOCS=1 writes it"
        );
    }
}

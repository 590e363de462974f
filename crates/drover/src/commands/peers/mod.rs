// SPDX-License-Identifier: GPL-2.0-only
//! `drover peers`: what `script/compare-peers` has run under Drover and other schedulers, into docs/peers.md.

mod cell;
mod table;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use cell::Cell;
use drover_experiment::{Overrides, ScenarioFile};
use drover_lab::kernel_packages::numbers;
use drover_report::picture::Picture;
use drover_scenario::Scenario;
use drover_scenario::expect::{Finding, Under};
use drover_scenario::results::Results;
use serde::{Deserialize, Serialize};

use super::page;

#[derive(clap::Args)]
pub struct Args {
    /// Where results are: KERNEL/SCENARIO/SCHEDULER.json, or .fault with the reason why there are none.
    kept: PathBuf,
    /// The other schedulers with their versions, for the page.
    #[arg(long, value_name = "TEXT")]
    versions: String,
    /// Where the page is, and peers.json, and the folder of pictures.
    #[arg(long, value_name = "DIR", default_value = "docs")]
    docs: PathBuf,
}

/// Where the scenarios are.
const SCENARIOS: &str = "scenarios/peers";
/// What the page has for us.
const LINES: (&str, &str) =
    ("<!-- begin: written by make peers -->\n", "<!-- end: written by make peers -->\n");

/// All that the page shows.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Data {
    /// The other schedulers with their versions.
    versions: String,
    /// When the first of it ran.
    began: String,
    /// When the last of it ran.
    ended: String,
    /// What each scheduler did on each kernel.
    cells: Vec<Cell>,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let mut data = Data {
        versions: args.versions.clone(),
        began: String::new(),
        ended: String::new(),
        cells: Vec::new(),
    };
    let pictures = args.docs.join("peers");
    fs::create_dir_all(&pictures).with_context(|| format!("cannot make {}", pictures.display()))?;
    let mut kernels = names(&args.kept, None)?;
    kernels.sort_by_key(|name| std::cmp::Reverse(numbers(name)));
    for scenario in names(Path::new(SCENARIOS), Some("toml"))? {
        let file = ScenarioFile::read(&Path::new(SCENARIOS).join(format!("{scenario}.toml")))?;
        let file = file.scenario(&Overrides::default())?;
        let first = data.cells.len();
        let mut drawn = None;
        for kernel in &kernels {
            let dir = args.kept.join(kernel).join(&scenario);
            drawn = drawn.or(read(&dir, &file, kernel, &mut data)?);
        }
        let findings = findings(&data.cells[first..]);
        let picture = drawn.as_ref().and_then(|it| Picture::of_findings(it, &findings));
        page::draw(&pictures.join(format!("{scenario}.svg")), picture)?;
    }
    ensure!(!data.cells.is_empty(), "{} has no results; run `make peers`", args.kept.display());
    let json = args.docs.join("peers.json");
    fs::write(&json, text(&data)?).with_context(|| format!("cannot write {}", json.display()))?;
    page::write(&args.docs.join("peers.md"), LINES, &table::of(&data))?;
    println!("{} figures: {}", data.cells.len(), args.docs.join("peers.md").display());
    Ok(ExitCode::SUCCESS)
}

/// The names in a folder, without an ending: of folders, or of files that end so; in order.
fn names(dir: &Path, ending: Option<&str>) -> Result<Vec<String>> {
    let entries = fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))?;
    let paths = entries.flatten().map(|entry| entry.path());
    let paths = paths.filter(|path| match ending {
        Some(ending) => path.extension().is_some_and(|it| it == ending),
        None => path.is_dir(),
    });
    let name = |path: PathBuf| match ending {
        Some(_) => Some(path.file_stem()?.to_string_lossy().into_owned()),
        None => Some(path.file_name()?.to_string_lossy().into_owned()),
    };
    let mut names: Vec<String> = paths.filter_map(name).collect();
    names.sort();
    Ok(names)
}

/// Takes over what a scenario's schedulers did on a kernel; the results of one of them, where one has any.
fn read(dir: &Path, scenario: &Scenario, kernel: &str, data: &mut Data) -> Result<Option<Results>> {
    if !dir.is_dir() {
        return Ok(None);
    }
    let mut any = None;
    for scheduler in names(dir, Some("json"))? {
        let file = dir.join(format!("{scheduler}.json"));
        let text =
            fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let results: Results =
            serde_json::from_str(&text).with_context(|| file.display().to_string())?;
        let started = results.wall.as_ref().and_then(|wall| wall.started.clone());
        if let Some(day) = started.as_deref().and_then(|it| it.get(..10)) {
            if data.began.is_empty() || day < data.began.as_str() {
                day.clone_into(&mut data.began);
            }
            if day > data.ended.as_str() {
                day.clone_into(&mut data.ended);
            }
        }
        data.cells.extend(Cell::all(scenario, &scheduler, &results, kernel));
        any = Some(results);
    }
    for scheduler in names(dir, Some("fault"))? {
        let why = fs::read_to_string(dir.join(format!("{scheduler}.fault")))?;
        data.cells.extend(Cell::none(scenario, &scheduler, kernel, why.trim()));
    }
    Ok(any)
}

/// What the picture of a scenario shows: schedulers on the newest kernel that has any.
fn findings(cells: &[Cell]) -> Vec<Finding> {
    let Some(newest) = cells.first() else { return Vec::new() };
    let mut findings: Vec<Finding> = Vec::new();
    for cell in cells.iter().filter(|cell| cell.kernel == newest.kernel) {
        let under = Under {
            scheduler: cell.scheduler.clone(),
            measured: cell.median(),
            range: cell.range(),
        };
        match findings.iter_mut().find(|it| it.title == cell.title) {
            Some(finding) => finding.by_scheduler.push(under),
            None => findings.push(Finding {
                title: cell.title.clone(),
                asked: cell.asked.clone(),
                bound: cell.bound,
                by_scheduler: vec![under],
            }),
        }
    }
    findings
}

/// The data as JSON, a line for each cell.
fn text(data: &Data) -> Result<String> {
    let Data { versions, began, ended, cells } = data;
    let lines = cells.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>()?;
    let [versions, began, ended] = [versions, began, ended].map(|it| serde_json::json!(it));
    Ok(format!(
        "{{\"versions\":{versions},\"began\":{began},\"ended\":{ended},\"cells\":[\n{}\n]}}\n",
        lines.join(",\n")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The page says what the data say; with `DROVER_WRITE_DOCS` set it is written anew.
    #[test]
    fn the_published_page_follows_from_the_published_data() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        let published = fs::read_to_string(docs.join("peers.json")).unwrap();
        let data: Data = serde_json::from_str(&published).unwrap();
        assert_eq!(text(&data).unwrap(), published, "peers.json is as `make peers` writes it");
        let page = docs.join("peers.md");
        if std::env::var_os("DROVER_WRITE_DOCS").is_some() {
            page::write(&page, LINES, &table::of(&data)).unwrap();
        }
        let page = fs::read_to_string(page).unwrap();
        assert!(page.contains(&table::of(&data)), "DROVER_WRITE_DOCS=1 writes it");
    }

    #[test]
    fn results_and_faults_are_found_by_kernel_and_scheduler() {
        let kept = tempfile::tempdir().unwrap();
        let dir = kept.path().join("7.10").join("bar");
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("scx_other.fault"), "it did not start\n").unwrap();
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/peers/bar.toml");
        let bar = ScenarioFile::read(&file).unwrap().scenario(&Overrides::default()).unwrap();
        let mut data = Data {
            versions: String::new(),
            began: String::new(),
            ended: String::new(),
            cells: Vec::new(),
        };
        assert_eq!(read(&dir, &bar, "7.10", &mut data).unwrap(), None);
        let cell = &data.cells[0];
        assert_eq!((cell.scheduler.as_str(), cell.kernel.as_str()), ("scx_other", "7.10"));
        assert_eq!(cell.fault.as_deref(), Some("it did not start"));
        assert_eq!(names(kept.path(), None).unwrap(), ["7.10"]);
    }
}

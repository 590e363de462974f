// SPDX-License-Identifier: GPL-2.0-only
//! `drover seeds`: what the five seed documents claim, measured in the simulator, into docs/seeds.md and docs/seeds/.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;

use anyhow::{Context, Result, anyhow};
use drover_experiment::{Overrides, ScenarioFile};
use drover_report::claims::{Row, Shown, document, lines, page, write};
use drover_report::picture::Picture;
use drover_rivals::RIVALS;
use drover_scenario::Scenario;
use drover_scenario::claims::{self, Claim, DOCUMENTS, Measured};
use drover_scenario::expect::Expect;
use drover_scenario::results::{Ground, Origin, Results, Run};
use drover_sim::batch::{run_batch, work};
use serde_json::json;

use super::progress;

#[derive(clap::Args)]
pub struct Args {
    /// Scenarios to run, and only show what comes of them; none: all that show claims, into docs/seeds.md.
    files: Vec<PathBuf>,
}

const CLAIMS: &str = "scenarios/seeds/claims.toml";
/// Where scenarios are that show claims.
const FOLDERS: [&str; 2] = ["scenarios/seeds", "scenarios"];
const PAGE: &str = "docs/seeds.md";
/// Where data, pictures and the pages of documents are.
const FOLDER: &str = "docs/seeds";
/// What has run, so that it does not run again.
const KEPT: &str = "out/seeds";
/// Seeds of randomness: enough for a median and a range.
const SEEDS: u32 = 5;

pub fn run(args: &Args) -> Result<ExitCode> {
    let text = fs::read_to_string(CLAIMS)
        .with_context(|| format!("cannot read {CLAIMS}; run it where Drover's sources are"))?;
    let claims = claims::parse(&text, CLAIMS)?;
    let all = args.files.is_empty();
    let files = if all { scenario_files()? } else { args.files.clone() };
    let files = read_files(&files)?;
    let named = files.iter().flat_map(|(_, file)| file.expects().map(|(id, _)| id.clone()));
    let named: BTreeSet<String> = named.collect();
    if all {
        claims::check(&claims, &named).map_err(|error| anyhow!(error))?;
    } else if let Some(id) = named.iter().find(|id| claims.iter().all(|it| it.id != **id)) {
        return Err(anyhow!("unknown claim \"{id}\"; {CLAIMS} has them all"));
    }
    let results = measure(&files)?;
    let (shown, drawn) = hold(&claims, &files, &results);
    if !all {
        print!("{}", lines(&shown));
        return Ok(ExitCode::SUCCESS);
    }
    let pictures = draw(&results, &drawn)?;
    let rows: Vec<Row> = shown.iter().map(Row::of).collect();
    save(PAGE, &page(&rows))?;
    save(&format!("{FOLDER}/claims.json"), &write(&rows)?)?;
    for (number, _) in DOCUMENTS {
        save(&format!("{FOLDER}/{number}.md"), &document(number, &rows, &pictures))?;
    }
    println!("{} claims: {PAGE}", rows.len());
    Ok(ExitCode::SUCCESS)
}

fn save(path: &str, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {path}"))
}

/// A scenario that shows claims.
struct Showing {
    scenario: Scenario,
    /// A hash of all its text.
    text: u64,
}

impl Showing {
    /// Its expectations that show a claim, and which.
    fn expects(&self) -> impl Iterator<Item = (&String, &Expect)> {
        self.scenario.expects.iter().filter_map(|it| Some((it.claim.as_ref()?, it)))
    }
}

/// The scenarios that come with Drover, in order.
fn scenario_files() -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for folder in FOLDERS {
        let entries = fs::read_dir(folder).with_context(|| format!("cannot read {folder}"))?;
        for entry in entries {
            let path = entry.with_context(|| format!("cannot read {folder}"))?.path();
            let is_scenario =
                path.extension().is_some_and(|it| it == "toml") && path != Path::new(CLAIMS);
            files.extend(is_scenario.then_some(path));
        }
    }
    files.sort();
    Ok(files)
}

/// Those of the files that show claims, to run with each seed once, and by path.
fn read_files(paths: &[PathBuf]) -> Result<Vec<(String, Showing)>> {
    let mut files = Vec::new();
    for path in paths {
        let file = ScenarioFile::read(path)?;
        let mut scenario =
            file.scenario(&Overrides { repeats: Some(SEEDS), ..Overrides::default() })?;
        if scenario.expects.iter().all(|expect| expect.claim.is_none()) {
            continue;
        }
        let needed = |name: &String| {
            let mut claims = scenario.expects.iter().filter(|it| it.claim.is_some());
            claims.any(|it| it.scheduler == *name || it.relative_to.as_ref() == Some(name))
        };
        let schedulers = scenario.schedulers.iter().filter(|name| needed(name)).cloned().collect();
        scenario.schedulers = schedulers;
        let text = hash(&(&file.text, &file.others));
        files.push((path.display().to_string(), Showing { scenario, text }));
    }
    Ok(files)
}

fn hash(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

/// One case of a scenario, and where its runs are kept.
struct Piece {
    scenario: usize,
    case: Scenario,
    key: String,
    kept: PathBuf,
}

/// The results of each scenario: what has run before with this program and text is read, the rest runs.
fn measure(files: &[(String, Showing)]) -> Result<Vec<Results>> {
    let program = std::env::current_exe().and_then(fs::read).context("cannot read the program")?;
    let program = hash(&program);
    let mut pieces = Vec::new();
    for (number, (_, file)) in files.iter().enumerate() {
        let folder = Path::new(KEPT).join(&file.scenario.name);
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        for (at, case) in file.scenario.cases.iter().enumerate() {
            let case = Scenario { cases: vec![case.clone()], ..file.scenario.clone() };
            let key = format!("{program:016x}-{:016x}-{SEEDS}", file.text);
            let kept = folder.join(format!("{at}.json"));
            pieces.push(Piece { scenario: number, case, key, kept });
        }
    }
    let mut runs: Vec<Option<Vec<Run>>> = pieces.iter().map(Piece::read).collect();
    let missing: Vec<usize> = (0..pieces.len()).filter(|&at| runs[at].is_none()).collect();
    let scenarios: Vec<Scenario> = missing.iter().map(|&at| pieces[at].case.clone()).collect();
    let bar = progress::bar(scenarios.iter().map(work).sum(), "{percent} %");
    let fresh = Mutex::new(BTreeMap::new());
    let take = |number: usize, results: Results| {
        let piece = &pieces[missing[number]];
        piece.keep(&results.runs).map_err(|error| format!("{error:#}"))?;
        fresh.lock().expect("nobody panics with it held").insert(missing[number], results.runs);
        bar.inc(work(&scenarios[number]));
        Ok(())
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    run_batch(&scenarios, RIVALS, threads, &take).map_err(|error| anyhow!(error))?;
    bar.finish_and_clear();
    for (at, fresh) in fresh.into_inner().expect("nobody panicked") {
        runs[at] = Some(fresh);
    }
    let empty = |file: &(String, Showing)| Results {
        scenario: file.1.scenario.name.clone(),
        ground: Ground::Sim,
        clock: None,
        origin: Origin::default(),
        seed: file.1.scenario.seed,
        kernel: None,
        runs: Vec::new(),
        repeats: None,
        wall: None,
    };
    let mut results: Vec<Results> = files.iter().map(empty).collect();
    for (piece, runs) in pieces.iter().zip(runs) {
        results[piece.scenario].runs.extend(runs.unwrap_or_default());
    }
    Ok(results)
}

impl Piece {
    /// The runs that are kept of it; none where there are none of this program and text.
    fn read(&self) -> Option<Vec<Run>> {
        let kept: serde_json::Value =
            serde_json::from_str(&fs::read_to_string(&self.kept).ok()?).ok()?;
        let is_it = kept["key"] == self.key.as_str();
        is_it.then(|| serde_json::from_value(kept["runs"].clone()).ok())?
    }

    /// Keeps its runs: all of them or, should the program end meanwhile, none.
    fn keep(&self, runs: &[Run]) -> Result<()> {
        let text = json!({ "key": self.key, "runs": runs }).to_string();
        let part = self.kept.with_extension("part");
        let kept = fs::write(&part, text).and_then(|()| fs::rename(&part, &self.kept));
        kept.with_context(|| format!("cannot write {}", self.kept.display()))
    }
}

/// The figures of a scenario that show claims.
type Figures = Vec<(String, Vec<Measured>)>;

/// Each claim with its figures, and the figures of each scenario.
fn hold(
    claims: &[Claim],
    files: &[(String, Showing)],
    results: &[Results],
) -> (Vec<Shown>, Figures) {
    let mut shown: Vec<Shown> =
        claims.iter().map(|claim| Shown { claim: claim.clone(), figures: Vec::new() }).collect();
    let mut drawn = Figures::new();
    for ((path, file), results) in files.iter().zip(results) {
        let mut of_file = Vec::new();
        for (id, expect) in file.expects() {
            let figures = Measured::all(expect, results);
            of_file.extend(figures.iter().cloned());
            let of_claim = shown.iter_mut().find(|shown| shown.claim.id == *id);
            if let Some(of_claim) = of_claim {
                of_claim.figures.extend(figures.into_iter().map(|it| (path.clone(), it)));
            }
        }
        drawn.push((path.clone(), of_file));
    }
    (shown, drawn)
}

/// Draws a picture of each scenario; the names of the scenarios that have one.
fn draw(results: &[Results], drawn: &Figures) -> Result<BTreeSet<String>> {
    fs::create_dir_all(FOLDER).with_context(|| format!("cannot make {FOLDER}"))?;
    let mut pictures = BTreeSet::new();
    for (results, (_, figures)) in results.iter().zip(drawn) {
        let Some(picture) = Picture::of_claims(results, figures) else { continue };
        save(&format!("{FOLDER}/{}.svg", results.scenario), &picture.svg()?)?;
        pictures.insert(results.scenario.clone());
    }
    Ok(pictures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_run_is_read_again_for_the_same_program_and_text_only() {
        let dir = tempfile::tempdir().unwrap();
        let text = "name = \"x\"\nhost = { cores = 1 }\n[[vm]]\nname = \"a\"\nvcpus = 1\n\
                    workload = { kind = \"cpu\" }\n";
        let case = Scenario::parse(text, "x.toml").unwrap();
        let piece = |key: &str| {
            let (key, kept) = (key.to_owned(), dir.path().join("0.json"));
            Piece { scenario: 0, case: case.clone(), key, kept }
        };
        assert_eq!(piece("one").read(), None, "nothing has run");
        piece("one").keep(&[]).unwrap();
        assert_eq!(piece("one").read(), Some(Vec::new()));
        assert_eq!(piece("two").read(), None, "another program or text");
        fs::write(dir.path().join("0.json"), "{ \"key\": \"one\", \"runs\"").unwrap();
        assert_eq!(piece("one").read(), None, "cut off");
    }
}

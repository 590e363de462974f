// SPDX-License-Identifier: GPL-2.0-only
//! `drover seeds`: what the five seed documents claim, measured in the simulator, into docs/seeds.md and docs/seeds/.

mod kept;
mod plain;

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};
use drover_experiment::{Overrides, ScenarioFile};
use drover_report::claims::{
    Cell, Row, Shown, document, dots, lines, page, read, write, write_cells,
};
use drover_report::picture::Picture;
use drover_scenario::claims::{self, Behind, Claim, DOCUMENTS, Measured};
use drover_scenario::expect::Expect;
use drover_scenario::results::{Ground, Origin, Results};
use drover_scenario::{Case, Scenario};
use kept::Piece;

#[derive(clap::Args)]
pub struct Args {
    /// Scenarios to run; the rows of others stay as they are in docs/seeds/. None: all that show claims.
    files: Vec<PathBuf>,
}

const CLAIMS: &str = "scenarios/seeds/claims.toml";
/// Where scenarios are that show claims.
const FOLDERS: [&str; 2] = ["scenarios/seeds", "scenarios"];
const PAGE: &str = "docs/seeds.md";
const CLAIMS_DATA: &str = "docs/seeds/claims.json";
const CELLS: &str = "docs/seeds/eevdf.json";
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
    let all = read_files(&scenario_files()?)?;
    let named = all.iter().flat_map(|(_, file)| file.expects().map(|(id, _)| id.clone()));
    claims::check(&claims, &named.collect()).map_err(|error| anyhow!(error))?;
    let is_given =
        |path: &str| args.files.is_empty() || args.files.iter().any(|it| it == Path::new(path));
    if let Some(file) =
        args.files.iter().find(|file| all.iter().all(|(path, _)| Path::new(path) != **file))
    {
        return Err(anyhow!("{} shows no claim; give scenarios/seeds/NAME.toml", file.display()));
    }
    let (files, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|(path, _)| is_given(path));
    let measured = measure(&files, others.is_empty())?;
    let (shown, drawn) = hold(&claims, &files, &measured.results);
    print!("{}", lines(&shown));
    draw(&measured.results, &drawn)?;
    let rows = rows(&shown, &files, &others)?;
    let causes = claims::parse_behind(&text, CLAIMS)?;
    let cells = cells(measured.cells, &others, &causes)?;
    publish(&rows, &cells)?;
    println!("{} claims: {PAGE}", rows.len());
    Ok(ExitCode::SUCCESS)
}

/// The row of each claim: a new one, or, where scenarios that show it have not run now, the published one, which says
/// whether something else would run today.
fn rows(
    shown: &[Shown],
    files: &[(String, Showing)],
    others: &[(String, Showing)],
) -> Result<Vec<Row>> {
    let published =
        published(CLAIMS_DATA)?.map_or(Ok(Vec::new()), |text| read(&text)).context(CLAIMS_DATA)?;
    let shows = |file: &Showing, id: &String| file.expects().any(|(of, _)| of == id);
    let row = |shown: &Shown| {
        let id = &shown.claim.id;
        let of = files.iter().chain(others).filter(|(_, file)| shows(file, id));
        let build = kept::build(&of.flat_map(|(_, file)| file.pieces()).collect::<Vec<_>>());
        let is_left = others.iter().any(|(_, file)| shows(file, id));
        match published.iter().find(|row| row.claim == *id).filter(|_| is_left) {
            Some(old) => Row {
                earlier: old.build != build,
                note: shown.claim.note.clone(),
                cause: shown.claim.cause,
                ..old.clone()
            },
            None => Row::of(shown, &build),
        }
    };
    Ok(shown.iter().map(row).collect())
}

/// The cells that were measured now, and the published ones of scenarios that were not.
fn cells(new: Vec<Cell>, others: &[(String, Showing)], causes: &[Behind]) -> Result<Vec<Cell>> {
    let old: Vec<Cell> = match published(CELLS)? {
        Some(text) => serde_json::from_str(&text).context(CELLS)?,
        None => Vec::new(),
    };
    let is_left = |cell: &Cell| others.iter().any(|(_, file)| file.scenario.name == cell.scenario);
    let mut cells: Vec<Cell> = old.into_iter().filter(is_left).chain(new).collect();
    cells.sort_by(|a, b| a.scenario.cmp(&b.scenario));
    for cell in &mut cells {
        let of = |it: &&Behind| it.is_of(&cell.scenario, &cell.case, &cell.figure);
        let cause = causes.iter().find(of).filter(|_| cell.is_behind());
        cell.why = cause.map(|it| it.why.clone());
    }
    Ok(cells)
}

/// The text of a published file, if it is there.
fn published(path: &str) -> Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {path}")),
    }
}

/// Writes data, pages, and the picture of each document.
fn publish(rows: &[Row], cells: &[Cell]) -> Result<()> {
    save(CLAIMS_DATA, &write(rows)?)?;
    save(CELLS, &write_cells(cells)?)?;
    save(PAGE, &page(rows, cells))?;
    for (number, _) in DOCUMENTS {
        if let Some(picture) = dots(number, rows) {
            save(&format!("{FOLDER}/{number}.svg"), &picture.svg()?)?;
        }
    }
    let names = fs::read_dir(FOLDER).with_context(|| format!("cannot read {FOLDER}"))?;
    let paths = names.flatten().map(|it| it.path());
    let pictures = paths.filter(|it| it.extension().is_some_and(|it| it == "svg"));
    let pictures: BTreeSet<String> =
        pictures.filter_map(|it| Some(it.file_stem()?.to_string_lossy().into_owned())).collect();
    for (number, _) in DOCUMENTS {
        save(&format!("{FOLDER}/{number}.md"), &document(number, rows, &pictures))?;
    }
    Ok(())
}

fn save(path: &str, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {path}"))
}

/// A scenario that shows claims.
struct Showing {
    scenario: Scenario,
}

impl Showing {
    /// Its expectations that show a claim, and which.
    fn expects(&self) -> impl Iterator<Item = (&String, &Expect)> {
        self.scenario.expects.iter().filter_map(|it| Some((it.claim.as_ref()?, it)))
    }

    /// Each case under each scheduler.
    fn pieces(&self) -> Vec<Piece> {
        let schedulers = &self.scenario.schedulers;
        let each = self.scenario.cases.iter();
        let each = each.flat_map(|case| schedulers.iter().map(move |it| (case, it)));
        let piece = |(case, scheduler): (&Case, &String)| {
            let (cases, schedulers) = (vec![case.clone()], vec![scheduler.clone()]);
            Piece::of(Scenario { cases, schedulers, ..self.scenario.clone() }, Path::new(KEPT))
        };
        each.map(piece).collect()
    }

    /// Results without a run yet.
    fn empty(&self) -> Results {
        Results {
            scenario: self.scenario.name.clone(),
            ground: Ground::Sim,
            clock: None,
            origin: Origin::default(),
            seed: self.scenario.seed,
            kernel: None,
            runs: Vec::new(),
            repeats: None,
            wall: None,
        }
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
        files.push((path.display().to_string(), Showing { scenario }));
    }
    Ok(files)
}

/// What was measured: the results of each scenario, and what Drover has of EEVDF's figures with nothing set.
struct Measurements {
    results: Vec<Results>,
    cells: Vec<Cell>,
}

fn measure(files: &[(String, Showing)], all: bool) -> Result<Measurements> {
    let folder = Path::new(KEPT);
    let mut pieces = Vec::new();
    let mut of: Vec<usize> = Vec::new();
    for (number, (_, file)) in files.iter().enumerate() {
        pieces.extend(file.pieces());
        of.resize(pieces.len(), number);
    }
    let judged = pieces.len();
    let plain: Vec<(&Scenario, Case)> = files
        .iter()
        .flat_map(|(_, file)| {
            plain::cases(&file.scenario).into_iter().map(|it| (&file.scenario, it))
        })
        .collect();
    for (scenario, case) in &plain {
        pieces.extend(plain::both(scenario, case).map(|it| Piece::of(it, folder)));
    }
    let runs = kept::runs(&pieces)?;
    if all {
        kept::clear(folder, &pieces)?;
    }
    let beside = plain.iter().zip(runs[judged..].chunks_exact(2));
    let cells = beside
        .flat_map(|((scenario, case), both)| plain::cells(scenario, case, [&both[0], &both[1]]));
    let cells = cells.collect();
    let mut results: Vec<Results> = files.iter().map(|(_, file)| file.empty()).collect();
    for (number, runs) in of.into_iter().zip(runs) {
        results[number].runs.extend(runs);
    }
    Ok(Measurements { results, cells })
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

/// Draws a picture of each scenario that has something to show.
fn draw(results: &[Results], drawn: &Figures) -> Result<()> {
    fs::create_dir_all(FOLDER).with_context(|| format!("cannot make {FOLDER}"))?;
    for (results, (_, figures)) in results.iter().zip(drawn) {
        let Some(picture) = Picture::of_claims(results, figures) else { continue };
        save(&format!("{FOLDER}/{}.svg", results.scenario), &picture.svg()?)?;
    }
    Ok(())
}

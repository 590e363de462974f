// SPDX-License-Identifier: GPL-2.0-only
//! Runs of scenarios that are kept, so that they do not run again: a file for each case, scheduler and what these
//! hang on.

use std::collections::BTreeSet;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::{Context, Result, anyhow};
use drover_rivals::RIVALS;
use drover_scenario::Scenario;
use drover_scenario::results::{Results, Run};
use drover_sim::batch::{run_batch, work};

use crate::commands::progress;

/// Hashes of the sources that a simulation hangs on: of all, of Drover, and of each rival.
const SOURCES: &[(&str, u64)] = include!(concat!(env!("OUT_DIR"), "/sources.rs"));

/// A case of a scenario under one scheduler, and where its runs are kept.
pub struct Piece {
    case: Scenario,
    kept: PathBuf,
}

impl Piece {
    /// The piece of `scenario`, which has one case and one scheduler, in this folder. Its file is named by what the
    /// runs hang on, and not by what is asked of them.
    pub fn of(scenario: Scenario, folder: &Path) -> Piece {
        let case = Scenario {
            description: String::new(),
            expects: Vec::new(),
            compares: Vec::new(),
            ..scenario
        };
        let mut hasher = DefaultHasher::new();
        (format!("{case:?}"), sources(&case.schedulers[0])).hash(&mut hasher);
        let name = format!("{:016x}.json", hasher.finish());
        Piece { kept: folder.join(&case.name).join(name), case }
    }

    /// The runs that are kept of it.
    fn read(&self) -> Option<Vec<Run>> {
        serde_json::from_str(&fs::read_to_string(&self.kept).ok()?).ok()
    }

    /// Keeps its runs: all of them or, should the program end meanwhile, none.
    fn keep(&self, runs: &[Run]) -> Result<()> {
        let part = self.kept.with_extension("part");
        let folder = part.parent().expect("each scenario has a folder");
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let kept = fs::write(&part, serde_json::to_string(runs)?)
            .and_then(|()| fs::rename(&part, &self.kept));
        kept.with_context(|| format!("cannot write {}", self.kept.display()))
    }
}

/// The hashes of what a scheduler's simulations hang on: files of its family, as `esx35` and `esx4` are one.
fn sources(scheduler: &str) -> Vec<u64> {
    let of = |(name, _): &&(&str, u64)| *name == "simulator" || family(name) == family(scheduler);
    SOURCES.iter().filter(of).map(|(_, hash)| *hash).collect()
}

/// What tells whether something else would run in these pieces than when they ran.
pub fn build(pieces: &[Piece]) -> String {
    let mut hasher = DefaultHasher::new();
    pieces.iter().for_each(|piece| piece.kept.file_name().hash(&mut hasher));
    format!("{:016x}", hasher.finish())
}

fn family(scheduler: &str) -> &str {
    scheduler.split(|it: char| !it.is_alphabetic()).next().unwrap_or(scheduler)
}

/// The runs of each piece: what is kept is read, the rest runs.
pub fn runs(pieces: &[Piece]) -> Result<Vec<Vec<Run>>> {
    let mut missing: Vec<usize> =
        (0..pieces.len()).filter(|&at| pieces[at].read().is_none()).collect();
    // Two cases may be the same run.
    let mut seen = BTreeSet::new();
    missing.retain(|&at| seen.insert(pieces[at].kept.clone()));
    eprintln!("{} of {} simulations have run before", pieces.len() - missing.len(), pieces.len());
    let scenarios: Vec<Scenario> = missing.iter().map(|&at| pieces[at].case.clone()).collect();
    let bar = progress::bar(scenarios.iter().map(work).sum(), "{percent} %");
    let done = Mutex::new(());
    let take = |number: usize, results: Results| {
        let _one = done.lock().expect("nobody panics with it held");
        let kept = pieces[missing[number]].keep(&results.runs);
        bar.inc(work(&scenarios[number]));
        kept.map_err(|error| format!("{error:#}"))
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    run_batch(&scenarios, RIVALS, threads, &take).map_err(|error| anyhow!(error))?;
    bar.finish_and_clear();
    let read = |piece: &Piece| {
        piece.read().with_context(|| format!("cannot read {} again", piece.kept.display()))
    };
    pieces.iter().map(read).collect()
}

/// Removes what is kept in this folder of anything but these.
pub fn clear(folder: &Path, pieces: &[Piece]) -> Result<()> {
    let used: BTreeSet<&Path> = pieces.iter().map(|piece| piece.kept.as_path()).collect();
    for scenario in fs::read_dir(folder).into_iter().flatten().flatten() {
        for kept in fs::read_dir(scenario.path()).into_iter().flatten().flatten() {
            let path = kept.path();
            if !used.contains(path.as_path()) {
                fs::remove_file(&path)
                    .with_context(|| format!("cannot remove {}", path.display()))?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "name = \"x\"\nhost = { cores = 1 }\nschedulers = [\"drover\"]\n[[vm]]\nname = \"a\"\n\
        vcpus = 1\nworkload = { kind = \"cpu\" }\n";

    fn piece(text: &str, folder: &Path) -> Piece {
        Piece::of(Scenario::parse(text, "x.toml").unwrap(), folder)
    }

    #[test]
    fn what_has_run_is_read_again_while_what_runs_is_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let first = piece(TEXT, dir.path());
        assert_eq!(first.read(), None, "nothing has run");
        first.keep(&[]).unwrap();
        let asked = "description = \"y\" # z\n[[expect]]\nmetric = \"idle_pct\"\nmax = 1\n";
        let with_more = asked.replace("[[expect]]", &format!("{TEXT}[[expect]]"));
        assert_eq!(piece(&with_more, dir.path()).read(), Some(Vec::new()), "asks something else");
        for (from, to) in
            [("cores = 1", "cores = 2"), ("drover", "eevdf"), ("vcpus = 1", "vcpus = 2")]
        {
            assert_eq!(piece(&TEXT.replace(from, to), dir.path()).read(), None, "{to}");
        }
        fs::write(&first.kept, "[{").unwrap();
        assert_eq!(first.read(), None, "cut off");
        clear(dir.path(), &[]).unwrap();
        assert!(!first.kept.exists(), "nobody asks for it any more");
    }

    #[test]
    fn schedulers_hang_on_their_own_sources() {
        assert_eq!(sources("cfs36-autonuma"), sources("cfs36"));
        assert_ne!(sources("credit"), sources("eevdf"));
        let names: Vec<&str> = SOURCES.iter().map(|(name, _)| *name).collect();
        for name in ["simulator", "drover", "eevdf", "cfs36", "credit", "esx35", "esx4", "priority"]
        {
            assert!(names.contains(&name), "{name}: {names:?}");
        }
    }
}

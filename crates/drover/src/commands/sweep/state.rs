// SPDX-License-Identifier: GPL-2.0-only
//! The state of a sweep: a folder with a file for each shard that is done. What is left to do is a listing.
//!
//! `sweep.json` says what the shards are of, `commands` has the command line of each, `shards/` the figures of those that are
//! done. A shard's file comes into being whole (whole.rs), so a process that is killed leaves nothing that counts.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use drover_experiment::program_sum;
use drover_scenario::results::FileSum;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use super::plan::{Plan, Work};
use crate::commands::whole::{PART, write_bytes_whole, write_whole};

/// What the shards in a folder are of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// The plan's text.
    plan: String,
    /// The scenario's file, then those it names.
    files: Vec<FileSum>,
    /// How many shards there are.
    shards: usize,
    /// Drover's version.
    drover: String,
    /// SHA-256 of the program.
    program: Option<String>,
}

impl Manifest {
    fn of(plan: &Plan) -> Self {
        let files = match &plan.work {
            Work::Runs(runs) => runs.sums.clone(),
            Work::Soak(_) => Vec::new(),
        };
        Self {
            plan: plan.text.clone(),
            files,
            shards: plan.shards(),
            drover: env!("CARGO_PKG_VERSION").to_owned(),
            program: program_sum().map(str::to_owned),
        }
    }

    /// How these differ, if they do.
    fn differs(&self, now: &Self) -> Option<String> {
        if !self.is_same_build(&now.drover, now.program.as_deref()) {
            return Some(format!("another build of Drover (its version is {})", self.drover));
        }
        if self.plan != now.plan {
            return Some("another plan".to_owned());
        }
        let changed = now.files.iter().find(|file| !self.files.contains(file));
        changed.map(|file| format!("another text of {}", file.name))
    }

    fn is_same_build(&self, drover: &str, program: Option<&str>) -> bool {
        self.drover == drover && self.program.as_deref() == program
    }
}

/// The folder of a sweep that is at work.
pub struct State {
    pub dir: PathBuf,
    manifest: Manifest,
    /// Nobody else is at work here.
    _lock: Flock<File>,
}

impl State {
    /// Takes the folder, which is made where there is none.
    pub fn open(dir: &Path, plan: &Plan, resume: bool) -> Result<Self> {
        let shown = dir.display();
        let manifest = Manifest::of(plan);
        let is_of_others = |entry: fs::DirEntry| entry.file_name() != "shards";
        let mut entries = fs::read_dir(dir).into_iter().flatten().flatten();
        ensure!(
            dir.join("sweep.json").exists() || !entries.any(is_of_others),
            "{shown} is no sweep's, and not empty: give another --out"
        );
        fs::create_dir_all(dir.join("shards")).with_context(|| format!("cannot make {shown}"))?;
        let dir = fs::canonicalize(dir).with_context(|| format!("cannot find {shown}"))?;
        let lock = File::open(&dir).with_context(|| format!("cannot open {shown}"))?;
        let lock = Flock::lock(lock, FlockArg::LockExclusiveNonblock).map_err(|_| {
            anyhow!(
                "another `drover sweep` is at work in {shown}: let it end, or give another --out"
            )
        })?;
        let state = Self { dir, manifest, _lock: lock };
        let path = state.dir.join("sweep.json");
        if let Ok(text) = fs::read_to_string(&path) {
            let began: Manifest = serde_json::from_str(&text)
                .with_context(|| format!("{} is damaged; give another --out", path.display()))?;
            if let Some(other) = began.differs(&state.manifest) {
                bail!("{shown} has shards of {other}: go on with that one, or give another --out");
            }
            let done = state.done()?.len();
            ensure!(
                resume || done == 0,
                "{shown} has {done} of {} shards already: add --resume to go on, or give another --out",
                began.shards
            );
        } else {
            write_whole(&path, &state.manifest)?;
        }
        state.write_commands(plan)?;
        Ok(state)
    }

    fn write_commands(&self, plan: &Plan) -> Result<()> {
        let lines: Result<Vec<String>> =
            (0..plan.shards()).map(|shard| self.line(plan, shard)).collect();
        write_bytes_whole(&self.dir.join("commands"), (lines?.join("\n") + "\n").as_bytes())
    }

    /// What a shell runs for that shard.
    pub fn line(&self, plan: &Plan, shard: usize) -> Result<String> {
        let program = std::env::current_exe().context("cannot find the program")?;
        let words =
            std::iter::once(program.display().to_string()).chain(self.arguments(plan, shard));
        let words: Vec<String> = words.collect();
        Ok(shlex::try_join(words.iter().map(String::as_str))?)
    }

    /// What the command line of that shard has behind `drover`.
    pub fn arguments(&self, plan: &Plan, shard: usize) -> Vec<String> {
        let json = ["--json".to_owned(), self.shard(shard).display().to_string()];
        plan.arguments(shard).into_iter().chain(json).collect()
    }

    /// Where the figures of that shard are.
    pub fn shard(&self, shard: usize) -> PathBuf {
        self.dir.join("shards").join(format!("{shard:06}.json"))
    }

    /// The shards that are done.
    pub fn done(&self) -> Result<BTreeSet<usize>> {
        let dir = self.dir.join("shards");
        let listing =
            fs::read_dir(&dir).with_context(|| format!("cannot read {}", dir.display()))?;
        let has_figures = |entry: &fs::DirEntry| entry.metadata().is_ok_and(|it| it.len() > 0);
        let names = listing.flatten().filter(has_figures).map(|entry| entry.file_name());
        let number = |name: std::ffi::OsString| name.to_str()?.strip_suffix(".json")?.parse().ok();
        Ok(names.filter_map(number).filter(|&shard| shard < self.manifest.shards).collect())
    }

    /// The shards that are not done.
    pub fn missing(&self) -> Result<Vec<usize>> {
        let done = self.done()?;
        Ok((0..self.manifest.shards).filter(|shard| !done.contains(shard)).collect())
    }

    /// Reads what `T` says of a shard, where `origin` gives the version and the program that it is of.
    pub fn read<T: serde::de::DeserializeOwned>(
        &self,
        shard: usize,
        origin: impl Fn(&T) -> (Option<String>, Option<String>),
    ) -> Result<T> {
        let path = self.shard(shard);
        let shown = path.display();
        let bytes = fs::read(&path).with_context(|| format!("cannot read {shown}"))?;
        let figures: T = serde_json::from_slice(&bytes).map_err(|error| {
            anyhow!("{shown} is no shard ({error}): delete it and add --resume")
        })?;
        let (drover, program) = origin(&figures);
        ensure!(
            self.manifest.is_same_build(drover.as_deref().unwrap_or_default(), program.as_deref()),
            "{shown} is of another build of Drover than the sweep: delete it and add --resume"
        );
        Ok(figures)
    }

    /// Removes files that a killed process had not finished.
    pub fn sweep_up(&self) {
        let listing = fs::read_dir(self.dir.join("shards")).into_iter().flatten().flatten();
        for entry in
            listing.filter(|entry| entry.file_name().as_bytes().starts_with(PART.as_bytes()))
        {
            // What cannot be removed is in nobody's way.
            let _ = fs::remove_file(entry.path());
        }
    }
}

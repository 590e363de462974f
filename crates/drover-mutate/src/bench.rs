// SPDX-License-Identifier: GPL-2.0-only
//! The bench: a copy of the policy in a tree of its own, in which one mutant after another is
//! compiled and checked. Nothing of the project's own tree is written to.
//!
//! A check is a few commands, which build a program and run it. All are run on the policy as it
//! is first: they must pass, and what they take says how long a mutant may take (it may loop
//! for ever) and in which order the checks come, so that the cheap ones kill first.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

/// A mutant may take so many times the CPU time of the policy as it is, and some seconds: other
/// work on the machine slows a program down, too.
const SLOWER: u64 = 3;
const SLOWER_BY_S: u64 = 5;
/// Memory a command may have, KiB.
const MEMORY_KIB: u64 = 8 << 20;

/// Who noticed a mutant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Net {
    /// The policy's own tests.
    Tests,
    /// The simulator's fault rig.
    Rig,
}

/// What became of a mutant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is no C.
    NotCompiled,
    /// The compiler makes the same machine code of it.
    SameCode,
    /// A check failed.
    Killed(Net),
    /// All checks passed.
    Survived,
}

/// A program and its arguments.
pub type Words = Vec<String>;

/// Commands that all end with 0 if the policy is right.
#[derive(Debug, Clone)]
pub struct Check {
    /// Whose check it is.
    pub net: Net,
    /// To be run in the bench's tree, in order.
    pub commands: Vec<Words>,
}

/// What is done to each mutant.
#[derive(Debug, Clone)]
pub struct Checks {
    /// Compiles the policy into `object`.
    pub compile: Words,
    /// That file, in the bench's tree.
    pub object: PathBuf,
    /// The rest.
    pub checks: Vec<Check>,
}

/// Checks that the policy as it is has passed.
#[derive(Debug)]
pub struct Proven {
    compile: (Words, u64),
    object: PathBuf,
    code: Vec<u8>,
    /// With the seconds that each command may take.
    checks: Vec<(Net, Vec<(Words, u64)>)>,
}

/// A tree with a copy of the policy.
#[derive(Debug)]
pub struct Bench {
    tree: PathBuf,
}

impl Bench {
    /// Lays out a tree anew, with copies of those folders and files of the project.
    pub fn new(tree: PathBuf, project: &Path, copied: &[&str]) -> Result<Self> {
        if tree.exists() {
            fs::remove_dir_all(&tree)
                .with_context(|| format!("cannot clear {}", tree.display()))?;
        }
        for part in copied {
            copy(&project.join(part), &tree.join(part))
                .with_context(|| format!("cannot copy {part} to {}", tree.display()))?;
        }
        Ok(Self { tree })
    }

    /// Runs all checks on the policy as it is. `progress` is told which.
    pub fn prove(&self, all: &Checks, progress: &dyn Fn(&str)) -> Result<Proven> {
        let compile = (all.compile.clone(), self.time(&all.compile, progress)?);
        let object = self.tree.join(&all.object);
        let code = fs::read(&object).with_context(|| format!("no {}", object.display()))?;
        let mut checks = Vec::new();
        for check in &all.checks {
            let begin = Instant::now();
            let timed = check.commands.iter().map(|words| {
                let limit_s = self.time(words, progress)?;
                Ok((words.clone(), limit_s))
            });
            let timed: Vec<(Words, u64)> = timed.collect::<Result<_>>()?;
            checks.push((check.net == Net::Rig, begin.elapsed(), check.net, timed));
        }
        checks.sort_by_key(|&(rig, took, ..)| (rig, took));
        let checks = checks.into_iter().map(|(_, _, net, timed)| (net, timed)).collect();
        Ok(Proven { compile, object: all.object.clone(), code, checks })
    }

    /// The seconds that the command may take of a mutant.
    fn time(&self, words: &Words, progress: &dyn Fn(&str)) -> Result<u64> {
        let command = words.join(" ");
        progress(&command);
        let begin = Instant::now();
        ensure!(
            self.passes(&(words.clone(), 3600))?,
            "the policy as it is fails in {}: {command}; see its file \"output\" and fix that first",
            self.tree.display()
        );
        Ok(begin.elapsed().as_secs() * SLOWER + SLOWER_BY_S)
    }

    /// Checks a mutant: that source in place of the file. Puts `original` back.
    pub fn fate(&self, all: &Proven, file: &str, source: &str, original: &str) -> Result<Fate> {
        self.write(file, source)?;
        let fate = self.fate_of_tree(all);
        self.write(file, original)?;
        fate
    }

    fn fate_of_tree(&self, all: &Proven) -> Result<Fate> {
        if !self.passes(&all.compile)? {
            return Ok(Fate::NotCompiled);
        }
        if fs::read(self.tree.join(&all.object))? == all.code {
            return Ok(Fate::SameCode);
        }
        for (net, commands) in &all.checks {
            for command in commands {
                if !self.passes(command)? {
                    return Ok(Fate::Killed(*net));
                }
            }
        }
        Ok(Fate::Survived)
    }

    /// A file of the tree.
    pub fn read(&self, file: &str) -> Result<String> {
        let path = self.tree.join(file);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    /// Writes a file of the tree.
    pub fn write(&self, file: &str, source: &str) -> Result<()> {
        let path = self.tree.join(file);
        fs::write(&path, source).with_context(|| format!("cannot write {}", path.display()))
    }

    /// What the last command wrote.
    pub fn said(&self) -> Result<String> {
        self.read("output")
    }

    /// Runs a command with so many seconds of CPU time. False if it fails in any way.
    pub fn passes(&self, (words, limit_s): &(Words, u64)) -> Result<bool> {
        let limits = format!("ulimit -c 0 -t {limit_s} -v {MEMORY_KIB}; exec nice -n 10 \"$@\"");
        let output = File::create(self.tree.join("output"))?;
        let status = Command::new("bash")
            .args(["-c", &limits, "bash"])
            .args(words)
            .current_dir(&self.tree)
            // What `make mutants SEED=7` was told is not for the tests' own make.
            .env_remove("MAKEFLAGS")
            .env_remove("SEED")
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .status()
            .context("cannot start bash")?;
        Ok(status.success())
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    if !from.is_dir() {
        fs::create_dir_all(to.parent().unwrap_or(to))?;
        fs::copy(from, to)?;
        return Ok(());
    }
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let name = entry?.file_name();
        copy(&from.join(&name), &to.join(&name))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bench() -> (tempfile::TempDir, Bench) {
        let folder = tempfile::tempdir().unwrap();
        let project = folder.path().join("project");
        fs::create_dir_all(project.join("policy/a")).unwrap();
        fs::write(project.join("policy/a/f.h"), "f").unwrap();
        fs::create_dir_all(folder.path().join("tree/left/over")).unwrap();
        let bench = Bench::new(folder.path().join("tree"), &project, &["policy"]).unwrap();
        (folder, bench)
    }

    fn shell(command: &str) -> Words {
        ["sh", "-c", command].map(str::to_owned).into()
    }

    #[test]
    fn a_tree_is_laid_out_anew() {
        let (folder, _) = bench();
        let tree = folder.path().join("tree");
        assert!(!tree.join("left").exists());
        assert_eq!(fs::read_to_string(tree.join("policy/a/f.h")).unwrap(), "f");
    }

    #[test]
    fn what_loops_for_ever_or_takes_all_memory_fails() {
        let (_folder, bench) = bench();
        assert!(!bench.passes(&(shell("while :; do :; done"), 1)).unwrap());
        assert!(!bench.passes(&(shell("[ $(ulimit -v) = unlimited ]"), 1)).unwrap());
        assert!(bench.passes(&(shell("true"), 1)).unwrap());
    }

    #[test]
    fn a_policy_that_fails_as_it_is_is_refused() {
        let (_folder, bench) = bench();
        let check = Check { net: Net::Tests, commands: vec![shell("exit 3")] };
        let checks = Checks { compile: shell("true > o"), object: "o".into(), checks: vec![check] };
        let error = bench.prove(&checks, &|_| {}).unwrap_err().to_string();
        assert!(error.starts_with("the policy as it is fails"), "{error}");
        assert!(error.contains("exit 3"), "{error}");
    }

    #[test]
    fn the_rig_comes_last_and_the_quickest_test_first() {
        let (_folder, bench) = bench();
        let check = |net, command: &str| Check { net, commands: vec![shell(command)] };
        let checks = Checks {
            compile: shell("true > o"),
            object: "o".into(),
            checks: vec![
                check(Net::Rig, "true"),
                check(Net::Tests, "sleep 0.2"),
                check(Net::Tests, "true"),
            ],
        };
        let proven = bench.prove(&checks, &|_| {}).unwrap();
        let order: Vec<&str> = proven.checks.iter().map(|(_, all)| &*all[0].0[2]).collect();
        assert_eq!(order, ["true", "sleep 0.2", "true"]);
        assert_eq!(proven.checks[2].0, Net::Rig);
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! `make mechanisms`: does the test that shows a mechanism of the seed documents fail when the mechanism is taken out?
//!
//! Each edit of [`crate::mechanism`] is made in the bench's tree; the programs of the tests it names are built there,
//! and each of these tests is run alone. It has passed before, with nothing taken out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use drover_scenario::claims::DOCUMENTS;
use indicatif::ProgressBar;

use crate::bench::{Bench, Words};
use crate::mechanism::{self, Mechanism};
use crate::{POLICY_CFLAGS, words};

const REPORT: &str = "docs/mechanisms.md";
/// What the tests are built from.
const COPIED: [&str; 8] =
    ["Cargo.toml", "Cargo.lock", "bpf", "crates", "docs", "policy", "scenarios", "script"];
/// CPU time that a build, or a test, may take, s.
const BUILD_S: u64 = 3600;
const TEST_S: u64 = 300;

/// The program of a test, and how it is asked for one.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Test {
    build: Words,
    run: Words,
}

impl Test {
    /// The test that claims name so. `target`: where cargo builds.
    fn of(named: &str, target: &Path) -> Result<Self> {
        let (file, name) = named
            .strip_suffix(')')
            .and_then(|it| it.split_once(" ("))
            .with_context(|| format!("\"{named}\" names no test; write `policy: x_test (y)`"))?;
        if let Some(test) = file.strip_prefix("policy: ") {
            let program = format!("../../tests/{test}");
            let mut build =
                words(&["make", "-s", "-C", "policy/test", "OUT=../../tests", &program]);
            build.push(format!("CFLAGS={POLICY_CFLAGS}"));
            let run = words(&["env", &format!("ONLY={name}"), &format!("tests/{test}")]);
            return Ok(Self { build, run });
        }
        let (of, program, name) = match file.split_once(": ") {
            Some(("sim", file)) => {
                let module = program_of(file)?;
                ("drover-sim".to_owned(), vec!["--test", "all"], format!("{module}::{name}"))
            }
            Some(("scenario", file)) => {
                ("drover-scenario".to_owned(), vec!["--test", program_of(file)?], name.to_owned())
            }
            Some(_) => bail!("a test of \"{file}\" cannot be run alone"),
            None => {
                let (of, path) = file.split_once("::").context("a crate has modules")?;
                let module = if path.ends_with("tests") { "" } else { "::tests" };
                (of.replace('_', "-"), vec!["--lib"], format!("{path}{module}::{name}"))
            }
        };
        let target = target.display().to_string();
        let mut build = words(&["cargo", "test", "--quiet", "--locked", "--profile", "trial"]);
        build.extend(words(&["--target-dir", &target, "-p", &of]));
        build.extend(words(&program));
        let mut run = build.clone();
        build.push("--no-run".to_owned());
        run.extend(words(&["--", "--exact", &name]));
        Ok(Self { build, run })
    }
}

/// The name of a file of tests, such as `x` of `tests/x.rs`.
fn program_of(file: &str) -> Result<&str> {
    let name = file.strip_prefix("tests/").and_then(|it| it.strip_suffix(".rs"));
    name.with_context(|| format!("{file} is no file of tests"))
}

/// Takes out one mechanism after the other, and writes the report. Returns what that says in short; no test may pass.
pub fn report_on(project: &Path, bar: &ProgressBar) -> Result<String> {
    let mechanisms = mechanism::read(project)?;
    let target = project.join("target/mechanisms");
    let bench = Bench::new(target.join("tree"), project, &COPIED)?;
    let tests = tests_of(&mechanisms, &target.join("cargo"))?;
    prove(&bench, &tests, bar)?;
    bar.set_length(mechanisms.len() as u64);
    let (mut survived, mut unbuilt) = (BTreeSet::new(), Vec::new());
    for mechanism in &mechanisms {
        bar.set_message(mechanism.without.clone());
        match passes_without(&bench, mechanism, &tests) {
            Ok(passing) => survived.extend(passing),
            Err(error) => unbuilt.push(format!("{error:#}")),
        }
        bar.inc(1);
    }
    ensure!(unbuilt.is_empty(), "{}", unbuilt.join("\n"));
    let text = report(&mechanisms, &survived);
    fs::write(project.join(REPORT), text).with_context(|| format!("cannot write {REPORT}"))?;
    let tried: usize = mechanisms.iter().map(|it| it.fails.len()).sum();
    let said = format!("{} mechanisms taken out, {tried} tests", mechanisms.len());
    ensure!(
        survived.is_empty(),
        "{said}: {} do not fail without what they show; see {REPORT}",
        survived.len()
    );
    Ok(format!("{said}, all failed"))
}

type Tests = BTreeMap<String, Test>;

fn tests_of(mechanisms: &[Mechanism], target: &Path) -> Result<Tests> {
    let names = mechanisms.iter().flat_map(|it| &it.fails);
    names.map(|name| Ok((name.clone(), Test::of(name, target)?))).collect()
}

/// All tests pass as the source is.
fn prove(bench: &Bench, tests: &Tests, bar: &ProgressBar) -> Result<()> {
    let mut built: Vec<&Words> = Vec::new();
    for (name, test) in tests {
        bar.set_message(format!("with nothing taken out: {name}"));
        if !built.contains(&&test.build) {
            let builds = bench.passes(&(test.build.clone(), BUILD_S))?;
            ensure!(builds, "it does not build: {}\n{}", test.build.join(" "), bench.said()?);
            built.push(&test.build);
        }
        let passes = bench.passes(&(test.run.clone(), TEST_S))?;
        let said = bench.said()?;
        ensure!(
            passes && said.contains("1 passed"),
            "{name} fails with nothing taken out:\n{said}"
        );
    }
    Ok(())
}

/// The tests that pass without the mechanism, though they must not: what is without it, and the test.
fn passes_without(
    bench: &Bench,
    mechanism: &Mechanism,
    tests: &Tests,
) -> Result<Vec<(String, String)>> {
    let original = bench.read(&mechanism.file)?;
    bench.write(&mechanism.file, &mechanism.applied(&original)?)?;
    let passing = || -> Result<Vec<(String, String)>> {
        let mut passing = Vec::new();
        for name in &mechanism.fails {
            let test = &tests[name];
            let builds = bench.passes(&(test.build.clone(), BUILD_S))?;
            ensure!(builds, "without: {}: no build\n{}", mechanism.without, bench.said()?);
            if bench.passes(&(test.run.clone(), TEST_S))? {
                passing.push((mechanism.without.clone(), name.clone()));
            }
        }
        Ok(passing)
    };
    let passing = passing();
    bench.write(&mechanism.file, &original)?;
    passing
}

/// The report, where those tests did not fail.
fn report(mechanisms: &[Mechanism], survived: &BTreeSet<(String, String)>) -> String {
    let mut text = "# Mechanisms of the seed documents, taken out\n\n\
        Written by `make mechanisms`. A claim in [seeds.md](seeds.md) that a test shows is shown only if the test fails without what it \
        shows.\nSo each mechanism is taken out of a copy of the source, one at a time, and the tests that show it are run: they pass \
        before, and\nmust fail then. What is taken out, where, and which tests must fail: \
        [mechanisms.toml](../crates/drover-mutate/mechanisms.toml).\n\n\
        | document | claims | taken out | tests | that fail |\n|---|--:|--:|--:|--:|\n"
        .to_owned();
    let is_of = |claim: &str, document: &str| claim.starts_with(document);
    for (document, title) in DOCUMENTS.iter().chain(&[("", "all")]) {
        let of = mechanisms.iter().filter(|it| it.claims.iter().any(|it| is_of(it, document)));
        let claims: BTreeSet<&String> =
            of.clone().flat_map(|it| &it.claims).filter(|it| is_of(it, document)).collect();
        let run: Vec<(String, String)> = of
            .clone()
            .flat_map(|it| it.fails.iter().map(|test| (it.without.clone(), test.clone())))
            .collect();
        let failed = run.iter().filter(|it| !survived.contains(it)).count();
        let name =
            if document.is_empty() { (*title).to_owned() } else { format!("{document}: {title}") };
        text +=
            &format!("| {name} | {} | {} | {} | {failed} |\n", claims.len(), of.count(), run.len());
    }
    text += "\n## Tests that pass without what they show\n\n";
    for (without, test) in survived {
        text += &format!("- {without}: {test}\n");
    }
    if survived.is_empty() {
        text += "None.\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn run_of(named: &str) -> String {
        Test::of(named, &PathBuf::from("/t")).unwrap().run.join(" ")
    }

    #[test]
    fn tests_are_run_one_at_a_time() {
        assert_eq!(run_of("policy: x_test (y)"), "env ONLY=y tests/x_test");
        for (named, ends) in [
            ("drover_core::place::tests (y)", "-p drover-core --lib -- --exact place::tests::y"),
            ("drover_core::arrange (y)", "-p drover-core --lib -- --exact arrange::tests::y"),
            ("sim: tests/x.rs (y)", "-p drover-sim --test all -- --exact x::y"),
            ("scenario: tests/x.rs (y)", "-p drover-scenario --test x -- --exact y"),
        ] {
            assert!(run_of(named).ends_with(ends), "{}", run_of(named));
        }
        for bad in ["policy: x_test", "lab: tests/x.rs (y)", "x (y)"] {
            assert!(Test::of(bad, &PathBuf::new()).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_report_is_of_the_list_as_it_is() {
        let project = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mechanisms = mechanism::read(&project).unwrap();
        let written = fs::read_to_string(project.join(REPORT)).unwrap();
        assert_eq!(written, report(&mechanisms, &BTreeSet::new()), "run `make mechanisms`");
    }
}

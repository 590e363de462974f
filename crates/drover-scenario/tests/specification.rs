// SPDX-License-Identifier: GPL-2.0-only
//! docs/specification.md: each promise has a state, and tests that are there.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const SPECIFICATION: &str = include_str!("../../../docs/specification.md");

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The text of a module: its file, and all files of the folder of its name.
fn module(path: &Path) -> String {
    let mut text = std::fs::read_to_string(path.with_extension("rs")).unwrap_or_default();
    for entry in std::fs::read_dir(path).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            text += &module(&path);
        } else if path.extension().is_some_and(|it| it == "rs") {
            text += &std::fs::read_to_string(path).unwrap();
        }
    }
    text
}

/// Whether a Rust source has the test, or any if no name is given.
fn has_test(text: &str, name: Option<&str>) -> bool {
    let Some(name) = name else { return text.contains("#[test]") };
    text.match_indices(&format!("fn {name}(")).any(|(at, _)| {
        let before: Vec<&str> = text[..at].lines().rev().take(4).collect();
        before.iter().any(|line| line.trim() == "#[test]")
    })
}

/// Whether `crate::module::test` or `crate::module` is there; modules of `crate::tests` are the crate's tests from outside.
fn rust_test_is_there(named: &str) -> bool {
    let (of, path) = named.split_once("::").unwrap_or((named, ""));
    let of = root().join("crates").join(of.replace('_', "-"));
    let is_outside = path.starts_with("tests::");
    let base = if is_outside { of } else { of.join("src") };
    let path = path.replace("::", "/");
    if has_test(&module(&base.join(&path)), None) {
        return true;
    }
    let (module_path, test) = path.rsplit_once('/').unwrap_or(("", &path));
    !module_path.is_empty() && has_test(&module(&base.join(module_path)), Some(test))
}

/// Whether the test or command that a row names is there.
fn is_there(named: &str) -> bool {
    let text = |path: String| std::fs::read_to_string(root().join(path)).unwrap_or_default();
    if named == "rig" {
        return rust_test_is_there("drover_sim::tests::rig");
    }
    if let Some(test) = named.strip_prefix("lab::") {
        return has_test(&module(&root().join("crates/drover/tests/lab_faults")), Some(test));
    }
    if let Some(target) = named.strip_prefix("make ") {
        return text("Makefile".to_owned()).contains(&format!("\n{target}:"));
    }
    if let Some(attack) = named.strip_prefix("attacks/") {
        return root().join(format!("attacks/{attack}.job")).is_file();
    }
    if named.starts_with("regressions/") {
        return root().join("crates/drover-sim").join(named).is_file();
    }
    if named.starts_with("script/") {
        return root().join(named).is_file();
    }
    if named.ends_with(".toml") {
        return text(format!("scenarios/{named}")).contains("\n[[expect]]");
    }
    let (of, test) = named.split_once("::").map_or((named, None), |(of, test)| (of, Some(test)));
    if of.ends_with("_test") {
        let run = test.map_or("\tRUN(".to_owned(), |test| format!("\tRUN({test});"));
        return text(format!("policy/test/{of}.c")).contains(&run);
    }
    rust_test_is_there(named)
}

/// What is wrong with a row of a promise.
fn fault_of(row: &str) -> Option<String> {
    let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
    let [_, text, tests, state] = cells[..] else { return Some("not four cells".to_owned()) };
    if text.is_empty() {
        return Some("no promise".to_owned());
    }
    let kind = state.split(": ").next().unwrap_or_default();
    let has_reason = state.len() > kind.len() + 2;
    if !["holds", "partly", "pending"].contains(&kind) || (kind != "holds") != has_reason {
        return Some(format!("no state: {state:?}"));
    }
    let named: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
    if named.is_empty() && kind != "pending" {
        return Some("no test".to_owned());
    }
    let missing: Vec<&str> = named.into_iter().filter(|test| !is_there(test)).collect();
    (!missing.is_empty()).then(|| format!("no such test: {}", missing.join(", ")))
}

/// The number that a row of a promise begins with, such as `7.12`.
fn number_of(row: &str) -> Option<&str> {
    let row = row.strip_prefix("| ").unwrap_or(row);
    let end = row.find(|it: char| !it.is_ascii_digit() && it != '.')?;
    row[..end].contains('.').then(|| &row[..end])
}

#[test]
fn each_promise_has_a_state_and_tests_that_are_there() {
    let mut numbers = BTreeSet::new();
    let mut faults = Vec::new();
    for row in SPECIFICATION.lines() {
        let Some(number) = number_of(row) else { continue };
        assert!(numbers.insert(number), "{number} stands twice");
        faults.extend(fault_of(row).map(|fault| format!("{number}: {fault}")));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(numbers.len() >= 342, "a promise was taken out: {}", numbers.len());
}

#[test]
fn a_promise_without_a_test_or_a_state_is_told() {
    let fault =
        |tests: &str, state: &str| fault_of(&format!("| 1.1 | Time is time | {tests} | {state} |"));
    assert_eq!(fault("`wake_test`", "holds"), None);
    assert_eq!(fault("-", "pending: not built"), None);
    for (tests, state) in [
        ("-", "holds"),
        ("-", "partly: not on 6.18"),
        ("`wake_test`", ""),
        ("`wake_test`", "-"),
        ("`wake_test`", "partly"),
        ("-", "pending"),
        ("`woke_test`", "holds"),
        ("`wake_test::it_is_not_there`", "holds"),
        ("`lab::it_is_not_there`", "holds"),
        ("`make nothing`", "holds"),
        ("`attacks/nothing`", "holds"),
        ("`regressions/nothing.json`", "holds"),
        ("`nothing.toml`", "holds"),
        ("`drover_core::nothing`", "holds"),
        ("`drover_core::allot::it_is_not_there`", "holds"),
        ("`drover_sim::tests::rig::it_is_not_there`", "holds"),
    ] {
        assert!(fault(tests, state).is_some(), "{tests}, {state}");
    }
}

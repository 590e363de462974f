// SPDX-License-Identifier: GPL-2.0-only
//! A run of the simulator can be made again from what its results say of it.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

/// VMs that sleep and work at random moments: no two seeds give the same.
const SCENARIO: &str = r#"name = "s"
duration_s = 0.5
repeats = 3
seed = 5
schedulers = ["eevdf", "drover"]
[host]
cores = 2
[[vm]]
name = "a"
vcpus = 2
workload = { kind = "program", steps = ["compute 100 us to 900 us", "sleep 1 ms", "count"] }
[[vm]]
name = "b"
vcpus = 2
workload = { kind = "cpu" }
[[case]]
name = "as set"
[[case]]
name = "more, for b"
vm.b.shares = 7000
"#;

/// What the command prints.
fn drover(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_drover")).args(arguments).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// What `drover run` writes.
fn results(file: &Path, more: &[&str]) -> Value {
    let json = file.with_extension("json");
    let (file, json) = (file.to_str().unwrap(), json.to_str().unwrap());
    drover(&[&["run", file, "--on", "sim", "--json", json], more].concat());
    serde_json::from_slice(&fs::read(json).unwrap()).unwrap()
}

#[test]
fn a_run_is_made_again_from_its_own_seed_and_case_to_the_last_bit() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("s.toml");
    fs::write(&file, SCENARIO).unwrap();
    let all = results(&file, &[]);
    let runs = all["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 12);
    let seeds: Vec<_> = runs[..6].iter().map(|run| run["seed"].as_u64().unwrap()).collect();
    assert_eq!(seeds, [5, 5, 6, 6, 7, 7]);
    let middle = |scheduler: &str| {
        let is_it = |run: &&Value| {
            run["case"] == "more, for b" && run["repeat"] == 2 && run["scheduler"] == scheduler
        };
        runs.iter().find(is_it).unwrap()
    };
    let (seed, case) = (&middle("drover")["seed"], middle("drover")["case"].as_str().unwrap());
    let again = results(&file, &["--seed", &seed.to_string(), "--only", case]);
    let again = again["runs"].as_array().unwrap();
    assert_eq!(again.len(), 2, "the case once, under each scheduler");
    for run in again {
        let before = middle(run["scheduler"].as_str().unwrap());
        assert_eq!((&run["vms"], &run["host"]), (&before["vms"], &before["host"]));
    }
    let others = runs.iter().filter(|run| run["repeat"] != 2);
    assert!(others.map(|run| &run["vms"]).all(|vms| *vms != middle("drover")["vms"]));
}

#[test]
fn what_is_set_is_in_force_and_in_the_results() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("s.toml");
    fs::write(&file, SCENARIO).unwrap();
    let only = ["--only", "as set", "--seed", "5"];
    let set = |setting: &str| results(&file, &[&only[..], &["--set", setting]].concat());
    let wide = set("host.cores=3");
    assert_eq!(wide["set"][0], "host.cores=3");
    assert_eq!(wide["runs"][0]["host"]["pcpus"], 3);
    let busy = "vm.a.workload={ kind = \"cpu\" }";
    let sliced = |ms: &str| {
        let slice = format!("slice_ms={ms}");
        results(&file, &[&only[..], &["--set", busy, "--set", &slice]].concat())
    };
    let (long, short) = (sliced("100"), sliced("7"));
    let switches = |of: &Value| of["runs"][1]["host"]["context_switches"].as_u64().unwrap();
    assert_eq!(short["set"][1], "slice_ms=7");
    assert_eq!(short["runs"][0], long["runs"][0], "EEVDF has no parameter of Drover's");
    assert!(switches(&short) > 3 * switches(&long), "{} {}", switches(&short), switches(&long));
}

#[test]
fn expectations_are_shown_always_and_fail_only_where_that_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("s.toml");
    let expect = |max: &str| format!("{SCENARIO}[[expect]]\nmetric = \"idle_pct\"\nmax = {max}\n");
    let run = |max: &str, more: &[&str]| {
        fs::write(&file, expect(max)).unwrap();
        let arguments = ["run", file.to_str().unwrap(), "--on", "sim", "--seed", "1"];
        let output = Command::new(env!("CARGO_BIN_EXE_drover")).args(arguments).args(more).output();
        let output = output.unwrap();
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    };
    let (good, text) = run("-1", &[]);
    assert!(good && text.contains("0 held, 2 failed"), "{text}");
    let (good, text) = run("-1", &["--check"]);
    assert!(!good && text.contains("0 held, 2 failed"), "{text}");
    let (good, text) = run("100", &["--check"]);
    assert!(good && text.contains("2 held, 0 failed"), "{text}");
}

/// The trace that is written, when the last of it ends, us, and what is said of it.
fn trace(file: &Path, more: &[&str]) -> (String, f64, String) {
    let path = file.with_extension("trace");
    let base = ["run", file.to_str().unwrap(), "--on", "sim", "--trace", path.to_str().unwrap()];
    let output = Command::new(env!("CARGO_BIN_EXE_drover")).args(base).args(more).output().unwrap();
    assert!(output.status.success());
    let text = fs::read_to_string(path).unwrap();
    let trace: Value = serde_json::from_str(&text).unwrap();
    let end = |event: &Value| Some(event["ts"].as_f64()? + event["dur"].as_f64()?);
    let ends = trace["traceEvents"].as_array().unwrap().iter().filter_map(end);
    let last_us = ends.fold(0.0, f64::max);
    (text, last_us, String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_trace_of_one_case_and_seed_is_whole_and_a_window_is_a_part_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("s.toml");
    // Twelve runs, each of far more stretches than a twelfth of what a trace of many runs has.
    let busy = SCENARIO.replace("100 us to 900 us", "50 us").replace("sleep 1 ms", "sleep 100 us");
    fs::write(&file, busy.replace("duration_s = 0.5", "duration_s = 2.0")).unwrap();
    let all_us = 2.5e6;
    let (_, last_us, said) = trace(&file, &[]);
    assert!(last_us < all_us * 0.99, "many runs are cut: {last_us}");
    assert!(said.contains("--only CASE --seed N") && said.contains("12 runs"), "{said}");
    let one = ["--only", "as set", "--seed", "6"];
    let (text, last_us, said) = trace(&file, &one);
    assert!(last_us > all_us * 0.99 && !said.contains("--only"), "whole: {last_us} {said}");
    assert!(text.contains("as set drover") && !text.contains("more, for b"));
    let (_, last_us, _) = trace(&file, &[&one[..], &["--trace-window", "0.5..0.75"]].concat());
    assert!(last_us > 0.24e6 && last_us < 0.26e6, "{last_us}");
}

#[test]
fn results_say_what_they_come_from_as_json_and_as_csv() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("s.toml");
    fs::write(&file, SCENARIO).unwrap();
    let all = results(&file, &["--only", "as set"]);
    let sum = Command::new("sha256sum").arg(&file).output().unwrap();
    let sum = String::from_utf8(sum.stdout).unwrap();
    let sum = sum.split_whitespace().next().unwrap();
    assert_eq!(
        (&all["files"][0]["name"], &all["files"][0]["sha256"]),
        (&file.to_str().unwrap().into(), &sum.into())
    );
    let csv = drover(&["export", file.with_extension("json").to_str().unwrap()]);
    let heads: Vec<&str> = csv.lines().next().unwrap().split(',').collect();
    assert_eq!(heads[..3], ["scenario", "file", "sha256"]);
    assert!(heads.contains(&"seed") && heads.contains(&"machine") && heads.contains(&"drover"));
    assert_eq!(csv.lines().count(), 1 + 3 * 2 * 2);
    for line in csv.lines().skip(1) {
        assert!(line.contains(sum) && line.contains("\"simulated, 2 pCPUs"), "{line}");
    }
    assert!(csv.contains(",3,7,\"b\","), "the third repeat has seed 7: {csv}");
}

#[test]
fn who_reads_no_further_ends_a_run_without_a_word_and_its_results_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let (file, json) = (dir.path().join("s.toml"), dir.path().join("s.json"));
    fs::write(&file, SCENARIO).unwrap();
    let mut run = Command::new(env!("CARGO_BIN_EXE_drover"));
    run.args(["run", "--on", "sim", "--json"]).arg(&json).arg(&file);
    let mut run = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(run.stdout.take());
    let output = run.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!said.contains("panicked") && !said.contains("roken pipe"), "{said}");
    assert_eq!(output.status.signal(), Some(libc::SIGPIPE), "as commands end");
    let kept: Value = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    assert_eq!(kept["runs"].as_array().unwrap().len(), 12);
}

// SPDX-License-Identifier: GPL-2.0-only
//! What `drover run` and `drover guest` say to bad input: one line, with what, where and the fix, before
//! anything was started.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const SCENARIO: &str = "name = \"s\"\n[host]\n[[vm]]\nname = \"a\"\nvcpus = 1\n\
                        workload = { kind = \"cpu\" }\n";

struct Files {
    dir: tempfile::TempDir,
}

impl Files {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn scenario(&self, text: &str) -> PathBuf {
        let path = self.dir.path().join("s.toml");
        fs::write(&path, text).unwrap();
        path
    }
}

/// The one line that the command fails with.
fn refusal(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_drover")).args(arguments).output().unwrap();
    assert!(!output.status.success(), "{arguments:?} did not fail");
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(text.lines().count(), 1, "{arguments:?}: {text}");
    assert!(output.stdout.is_empty());
    text
}

#[test]
fn a_file_that_is_not_there_is_named() {
    assert!(refusal(&["run", "/no/such.toml"]).contains("/no/such.toml"));
}

#[test]
fn a_fault_of_the_file_is_told_with_its_line() {
    let files = Files::new();
    let path = files.scenario(&SCENARIO.replace("vcpus = 1", "vcpu = 1"));
    let line = refusal(&["run", path.to_str().unwrap()]);
    assert!(line.contains("s.toml:5: ") && line.contains("\"vcpus\""), "{line}");
}

#[test]
fn what_is_not_there_is_neither_chosen_nor_set() {
    let files = Files::new();
    let path = files.scenario(SCENARIO);
    let file = path.to_str().unwrap();
    let line = refusal(&["run", file, "--on", "sim", "--only", "al"]);
    assert!(line.contains("--only") && line.contains("did you mean \"all\""), "{line}");
    let line = refusal(&["run", file, "--on", "sim", "--set", "vm.a.share=3"]);
    assert!(line.contains("--set vm.a.share=3") && line.contains("\"shares\""), "{line}");
    let line = refusal(&["run", file, "--on", "lab", "--set", "slice_ms=3"]);
    assert!(line.contains("--on sim"), "{line}");
}

#[test]
fn an_unknown_scheduler_is_named_before_the_lab_boots() {
    let files = Files::new();
    let path = files.scenario(SCENARIO);
    let file = path.to_str().unwrap();
    let line = refusal(&["run", file, "--scheduler", "eevdf,scx_none"]);
    assert!(line.contains("scx_none"), "{line}");
    let line = refusal(&["run", file, "--scheduler", "drover,drover"]);
    assert!(line.contains("twice"), "{line}");
}

#[test]
fn a_place_that_cannot_be_written_is_told_before_minutes_of_measuring() {
    let files = Files::new();
    let path = files.scenario(SCENARIO);
    let line = refusal(&["run", path.to_str().unwrap(), "--json", "/no/such/dir/r.json"]);
    assert!(line.contains("/no/such/dir"), "{line}");
}

#[test]
fn a_kernel_that_is_no_kernel_is_told() {
    let files = Files::new();
    let path = files.scenario(SCENARIO);
    let line = refusal(&["run", path.to_str().unwrap(), "--kernel", "newest"]);
    assert!(line.contains("--kernel newest"), "{line}");
}

#[test]
fn options_of_the_lab_are_no_options_of_a_host() {
    let files = Files::new();
    let path = files.scenario(SCENARIO);
    for option in [["--clock", "exact"], ["--kernel", "host"]] {
        let file = path.to_str().unwrap();
        let line = refusal(&["run", file, "--on", "host", option[0], option[1]]);
        assert!(line.contains(option[0]), "{line}");
    }
}

/// Whatever this machine lacks; one that lacks nothing is used after a question only.
#[test]
fn a_machine_is_not_used_unasked() {
    let files = Files::new();
    let path = files.scenario(SCENARIO);
    let file = path.to_str().unwrap();
    let pcpus = std::thread::available_parallelism().unwrap();
    let line = refusal(&["run", file, "--on", "host", "--set", &format!("host.cores={pcpus}")]);
    assert!(line.contains("--on host") || line.contains("pCPUs"), "{line}");
    assert!(!Path::new("/run/drover-lab").exists());
    let line = refusal(&["run", file, "--on", "sim", "--yes"]);
    assert!(line.contains("--yes is for --on host"), "{line}");
}

#[test]
fn a_vm_that_cannot_be_is_refused() {
    let files = Files::new();
    let stats = files.dir.path().join("stats");
    let stats = stats.to_str().unwrap();
    let mix = r#"{"kind":"mix"}"#;
    let line =
        refusal(&["guest", "--name", "a", "--vcpus", "257", "--workload", mix, "--stats", stats]);
    assert!(line.contains("257") && line.contains("256"), "{line}");
}

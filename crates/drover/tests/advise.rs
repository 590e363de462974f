// SPDX-License-Identifier: GPL-2.0-only
//! `drover advise` of a recording: what was planted in it stands first with what it would gain, and what cannot be read is
//! told in a line.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use drover_core::recording::{Class, Event, What};
use drover_core::recording_file::{self as file, Head, PcpuSetup, Setup, Thread, VmSetup};
use drover_core::why::Who;
use serde_json::Value;

const MS: u64 = 1_000_000;
/// Of web two vCPUs, of db one.
const VCPUS: [(u32, u32, u32); 3] = [(10, 1, 0), (11, 1, 1), (20, 2, 0)];

/// On two pCPUs the vCPUs of web take turns on the first, each 10 ms, for two seconds; db runs on the second for a tenth.
fn recording(pins: [&str; 3], limit_mcpu: Option<u32>) -> Vec<u8> {
    let mut events = Vec::new();
    let mut ran = |at_ms: u64, pcpu, thread, left_ready| {
        let what = What::Ran { left_ready, class: Class::Normal };
        events.push(Event { at_ns: at_ms * MS, pcpu, thread, what });
    };
    ran(0, 0, 10, false);
    for turn in 1..=200 {
        ran(10 * turn, 0, if turn % 2 == 0 { 10 } else { 11 }, true);
        ran(10 * turn, 1, 20, false);
        ran(10 * turn + 1, 1, 0, false);
    }
    let name = |vm| if vm == 1 { "web\u{1b}" } else { "db" };
    let thread = |(thread, vm, vcpu)| Thread {
        thread,
        who: Who::Vm,
        name: name(vm).to_owned(),
        vm: Some(vm),
        vcpu: Some(vcpu),
    };
    let place = |pcpu| PcpuSetup { pcpu, core: pcpu, llc: 0, node: 0 };
    let pin = |at: usize| pins[at].parse().ok();
    let web = VmSetup { vm: 1, pins: vec![pin(0), pin(1)], limit_mcpu, ..VmSetup::default() };
    let db = VmSetup { vm: 2, pins: vec![pin(2)], ..VmSetup::default() };
    let setup = Setup {
        pcpus: vec![place(0), place(1)],
        memory_mib: 1024,
        vms: vec![web, db],
        ..Setup::default()
    };
    let head = Head { host: "lab".to_owned(), pcpus: 2, ..Head::default() };
    let threads: Vec<Thread> = VCPUS.map(thread).to_vec();
    [file::begin(&head), file::setup(&setup), file::threads(&threads), file::events(&events)]
        .concat()
}

fn advise(bytes: &[u8], more: &[&str]) -> Output {
    let dir = tempfile::tempdir().unwrap();
    let path: PathBuf = dir.path().join("host.rec");
    fs::write(&path, bytes).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_drover"));
    command.arg("advise").arg(path).args(more).output().unwrap()
}

fn findings(bytes: &[u8]) -> Value {
    let output = advise(bytes, &["--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn pinning_that_hurts_stands_first_with_what_it_would_gain() {
    let bytes = recording(["0", "0", "0-1"], None);
    let output = advise(&bytes, &[]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    assert!(text.starts_with("lab: 2 pCPUs, 2 VMs of 3 vCPUs, 1.50 vCPUs a pCPU; 2.0 s"), "{text}");
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("1. ")).collect();
    assert!(lines[0].contains("VM web") && lines[0].contains("pCPU 0 only"), "{text}");
    assert!(text.contains("taskset -cp 0-1 10") && !text.contains('\u{1b}'), "{text}");
    assert!(text.ends_with("\nNothing was found of db. Nothing was changed.\n"), "{text}");
    let found = findings(&bytes);
    let first = &found["findings"][0];
    let of = |key: &str| first["gain"][key].as_f64().unwrap();
    assert_eq!(first["rule"], "pins");
    assert!((of("ran_pcpus") - 1.0).abs() < 0.05, "{first}");
    assert!(of("would_run_pcpus") > 1.8 && of("would_be_ready_pcpus") < 0.2, "{first}");
    assert_eq!(found["sound"][0], "db");
}

#[test]
fn a_limit_that_throttles_is_lifted_in_the_simulator() {
    let found = findings(&recording(["0-1", "0-1", "0-1"], Some(1000)));
    let first = &found["findings"][0];
    assert_eq!((&first["rule"], &first["vm"]), (&"limit".into(), &"web\u{1b}".into()));
    let of = |key: &str| first["gain"][key].as_f64().unwrap();
    assert!(of("ran_pcpus") < 1.1 && of("would_run_pcpus") > 1.7, "{first}");
}

#[test]
fn nothing_is_invented_where_nothing_is_wrong() {
    let text = String::from_utf8(advise(&recording(["0-1"; 3], None), &[]).stdout).unwrap();
    assert!(text.ends_with("\nNothing is to be tuned here.\n"), "{text}");
}

#[test]
fn what_cannot_be_read_is_told_in_a_line() {
    let whole = recording(["0"; 3], None);
    for (bytes, said) in [
        (&b"PK"[..], "no recording of `drover record`"),
        (&whole[..40], "the recording ends before its head"),
        (&whole[..whole.len() - 1700], "record for some seconds"),
    ] {
        let output = advise(bytes, &[]);
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && output.stdout.is_empty(), "{text}");
        assert!(text.lines().last().unwrap().contains(said), "{text}");
    }
}

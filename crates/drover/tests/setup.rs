// SPDX-License-Identifier: GPL-2.0-only
//! `script/setup`: says what is missing; nothing is installed here.

use std::os::unix::fs::symlink;
use std::process::{Command, Output};

const SETUP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../script/setup");

fn complaints(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn an_unknown_argument_is_refused() {
    let output = Command::new(SETUP).arg("--everything").output().unwrap();
    assert!(!output.status.success());
    assert_eq!(
        complaints(&output),
        "setup: unknown argument --everything; usage: script/setup [--check] [--build]\n"
    );
}

#[test]
fn on_a_bare_machine_everything_missing_is_named_in_one_line() {
    let bare = tempfile::tempdir().unwrap();
    for tool in ["sh", "sed", "id"] {
        symlink(format!("/bin/{tool}"), bare.path().join(tool)).unwrap();
    }
    let missing = |more: &[&str]| {
        let mut command = Command::new("/bin/sh");
        let output = command.args([SETUP, "--check"]).args(more).env("PATH", bare.path()).output();
        let output = output.unwrap();
        let text = complaints(&output);
        assert!(!output.status.success() && text.lines().count() == 1, "{text}");
        text
    };
    let text = missing(&[]);
    for thing in ["a C compiler", "clang 16 or newer", "QEMU", "busybox", "sysbench", "Rust 1.85"] {
        assert!(text.contains(thing), "{thing}: {text}");
    }
    let text = missing(&["--build"]);
    assert!(text.contains("Rust 1.85") && text.contains("QEMU"), "{text}");
    for thing in ["sysbench", "cyclictest", "clang-format", "sanitizers", "packages"] {
        assert!(!text.contains(thing), "only tests take {thing}: {text}");
    }
}

#[test]
fn a_machine_that_has_everything_is_left_alone() {
    let output = Command::new(SETUP).arg("--check").output().unwrap();
    assert!(output.status.success(), "{}", complaints(&output));
}

// SPDX-License-Identifier: GPL-2.0-only
//! Packages: what is in them, and a life with them from installing to purging.

use std::path::{Path, PathBuf};
use std::process::Command;

const PACKAGING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging");

fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}{complaints}");
    said
}

/// Makes a package of the drover under test; its file.
fn build(kind: &str, version: &str, out: &Path) -> PathBuf {
    let mut command = Command::new(format!("{PACKAGING}/build"));
    command.args([kind, env!("CARGO_BIN_EXE_drover"), version]).arg(out);
    PathBuf::from(output(&mut command).trim())
}

fn has_program(name: &str) -> bool {
    Command::new("sh")
        .args(["-c", &format!("command -v {name}")])
        .output()
        .unwrap()
        .status
        .success()
}

#[test]
fn a_debian_root_lives_with_the_package_and_without_it_again() {
    if !has_program("dh") || !nix::unistd::geteuid().is_root() {
        println!("not tried: it takes root, and Debian's debhelper (script/setup)");
        return;
    }
    let out = tempfile::tempdir().unwrap();
    let packages = ["0.1.0", "0.1.1"].map(|version| build("deb", version, out.path()));
    print!("{}", output(Command::new(format!("{PACKAGING}/test")).args(packages)));
}

#[test]
fn the_rpm_has_what_it_should_and_keeps_the_configuration() {
    if !has_program("rpmbuild") {
        println!("not tried: it takes rpmbuild (script/setup)");
        return;
    }
    let out = tempfile::tempdir().unwrap();
    let package = build("rpm", "0.1.0", out.path());
    let files = output(Command::new("rpm").args(["-qlp"]).arg(&package));
    for file in [
        "/usr/bin/drover",
        "/usr/lib/systemd/system/drover.service",
        "/usr/lib/systemd/system/drover-observe.service",
        "/usr/lib/systemd/system/drover-metrics.timer",
        "/usr/share/drover/dashboard.json",
        "/usr/share/drover/alerts.yml",
        "/usr/share/drover/fleet.yml",
        "/usr/share/man/man8/drover-vm-set.8",
        "/usr/share/zsh/site-functions/_drover",
        "/usr/share/doc/drover/docs/try.svg",
        "/usr/share/doc/drover/policy/share/share.h",
    ] {
        assert!(files.contains(file), "{file} is not in {files}");
    }
    assert!(!files.contains("drover-help"), "{files}");
    let kept = output(Command::new("rpm").args(["-qcp"]).arg(&package));
    assert_eq!(kept.trim(), "/etc/drover/drover.toml");
}

// SPDX-License-Identifier: GPL-2.0-only
//! The commands of docs/tutorial.md and docs/plan-a-host.md do what is printed there, but for the figures: these follow
//! the policy. With `DROVER_WRITE_DOCS` in the environment the outputs in the files are written anew. The change that
//! docs/write-a-policy.md makes can be made.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

const BEGIN: &str = "```sh\n";
const OUTPUT: &str = "```text\n";
const END: &str = "```\n";

/// What a shell prints for these commands, in that folder.
fn printed(commands: &str, folder: &Path) -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_drover")).parent().unwrap();
    let path = format!("{}:{}", program.display(), env::var("PATH").unwrap());
    let shell = Command::new("bash")
        .args(["-e", "-o", "pipefail", "-c", commands])
        .current_dir(folder)
        .env("PATH", path)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&shell.stderr);
    assert!(shell.status.success(), "{commands}\n{errors}");
    String::from_utf8(shell.stdout).unwrap()
}

/// The same without figures and without what they take in width.
fn shape(output: &str) -> Vec<String> {
    let word = |word: &str| match word.chars().any(|letter| letter.is_ascii_digit()) {
        true => "0".to_owned(),
        false => word.to_owned(),
    };
    let line = |line: &str| {
        let line = line.replace(',', "").replace("-+-", " | ");
        let words = line.split_whitespace().filter(|it| !it.starts_with("--"));
        words.map(word).collect::<Vec<_>>().join(" ")
    };
    output.lines().map(line).collect()
}

/// Runs the commands of a page in that folder, so many at least, and holds what they print to what is shown.
fn run_page(page: &str, folder: &Path, least: usize) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page);
    let document = fs::read_to_string(&file).unwrap();
    let (mut written, mut rest, mut commands) = (String::new(), document.as_str(), 0);
    while let Some((before, after)) = rest.split_once(BEGIN) {
        let (block, after) = after.split_once(END).unwrap();
        let output = printed(block, folder);
        commands += 1;
        written += &format!("{before}{BEGIN}{block}{END}");
        rest = after;
        if let Some(after) = after.strip_prefix(&format!("\n{OUTPUT}")) {
            let (shown, after) = after.split_once(END).unwrap();
            if env::var_os("DROVER_WRITE_DOCS").is_none() {
                assert_eq!(shape(&output), shape(shown), "{block}");
            }
            written += &format!("\n{OUTPUT}{output}{END}");
            rest = after;
        } else {
            assert_eq!(output, "", "{block}");
        }
    }
    assert!(commands >= least, "{commands}");
    if env::var_os("DROVER_WRITE_DOCS").is_some() {
        fs::write(&file, written + rest).unwrap();
    }
}

#[test]
fn every_command_of_the_tutorial_does_what_it_says() {
    let folder = tempfile::tempdir().unwrap();
    run_page("tutorial.md", folder.path(), 7);
    for made in ["late.svg", "late.png", "where.svg", "where.html", "late.csv"] {
        assert!(fs::metadata(folder.path().join(made)).unwrap().len() > 0, "{made}");
    }
}

#[test]
fn what_would_fit_is_printed_as_planning_a_host_shows_it() {
    let folder = tempfile::tempdir().unwrap();
    run_page("plan-a-host.md", folder.path(), 4);
}

#[test]
fn the_patch_of_the_policy_tutorial_fits_the_source() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let check = Command::new("git")
        .args(["apply", "--check", "docs/fifo.patch"])
        .current_dir(root)
        .output()
        .unwrap();
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr));
}

#[test]
fn a_shape_has_no_figures_but_all_words() {
    assert_eq!(shape("web   12.5 | 7,209\n----+---"), ["web 0 | 0", "|"]);
    assert_ne!(shape("web 1"), shape("db 1"));
}

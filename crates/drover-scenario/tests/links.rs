// SPDX-License-Identifier: GPL-2.0-only
//! Links between the documents lead to files and headings that are there, and the site has each document.

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The Markdown files of the folder and of those below it.
fn documents(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(documents(&path));
        } else if path.extension().is_some_and(|it| it == "md") {
            found.push(path);
        }
    }
    found
}

/// Those of the project that are for people to read.
fn all() -> Vec<PathBuf> {
    let others =
        ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "attacks/README.md", "python/README.md"];
    let mut found = documents(&root().join("docs"));
    found.extend(others.map(|it| root().join(it)));
    found
}

/// The text without its blocks of code.
fn prose(text: &str) -> String {
    text.split("```").step_by(2).collect()
}

/// What links lead to: `](target)`.
fn targets(text: &str) -> Vec<&str> {
    let links = text.split("](").skip(1);
    links.filter_map(|rest| rest.split_once(')')).map(|(target, _)| target).collect()
}

/// The anchor of a heading as GitHub and GitLab make it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = kept.chars().filter(|&it| it.is_alphanumeric() || " -_".contains(it));
    kept.map(|it| if it == ' ' { '-' } else { it }).collect()
}

/// What is wrong with a link of the document.
fn fault_of(document: &Path, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, heading) = target.split_once('#').map_or((target, None), |(it, of)| (it, Some(of)));
    let path = document.parent().unwrap().join(file);
    let path = if file.is_empty() { document } else { &path };
    let Some(heading) = heading else {
        return (!path.exists()).then(|| format!("{target}: no such file"));
    };
    let text = prose(&std::fs::read_to_string(path).unwrap_or_default());
    let mut headings = text.lines().filter(|line| line.starts_with('#'));
    (!headings.any(|line| anchor(line) == heading)).then(|| format!("{target}: no such heading"))
}

#[test]
fn links_lead_to_files_and_headings_that_are_there() {
    let mut faults = Vec::new();
    for document in &all() {
        let text = std::fs::read_to_string(document).unwrap();
        let faulty = targets(&text).into_iter().filter_map(|target| fault_of(document, target));
        faults.extend(faulty.map(|fault| format!("{}: {fault}", document.display())));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn the_contents_of_the_site_have_each_document_once() {
    let contents = root().join("docs/SUMMARY.md");
    let text = std::fs::read_to_string(&contents).unwrap();
    let listed = targets(&text).into_iter().map(|target| root().join("docs").join(target));
    let mut listed: Vec<PathBuf> = listed.map(|it| it.canonicalize().unwrap()).collect();
    let there = all().into_iter().filter(|it| *it != contents);
    let mut there: Vec<PathBuf> = there.map(|it| it.canonicalize().unwrap()).collect();
    listed.sort_unstable();
    there.sort_unstable();
    assert_eq!(listed, there);
}

#[test]
fn a_link_to_nothing_is_told() {
    let document = root().join("docs/specification.md");
    let fault = |target: &str| fault_of(&document, target);
    assert_eq!(fault("simulator.md#open"), None);
    assert!(fault("nothing.md").is_some());
    assert!(fault("simulator.md#nothing").is_some());
    assert!(fault("#nothing").is_some());
    assert_eq!(targets("[a](b.md) and [c](d.md#e)"), ["b.md", "d.md#e"]);
}

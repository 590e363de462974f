// SPDX-License-Identifier: GPL-2.0-only
//! The tables of keys in docs/scenarios.md are made of the comments at the keys in the source; with `DROVER_WRITE_DOCS`
//! set they are written anew.

use std::path::{Path, PathBuf};

const FORMAT: &str = "crates/drover-scenario/src/read/format.rs";
const WORKLOAD: &str = "crates/drover-scenario/src/workload.rs";
const EXPECT: &str = "crates/drover-scenario/src/expect/mod.rs";
const HOST: &str = "crates/drover-scenario/src/host.rs";
/// Tables that are types of the rest of Drover: the title, the file, and the line where the type begins. All others
/// are in `FORMAT`, under their title.
const TYPES: [(&str, &str, &str); 16] = [
    ("[host]", HOST, "pub struct Host {"),
    ("[host.costs]", HOST, "pub struct HostCosts {"),
    ("[[set]]", "crates/drover-core/src/sets/table.rs", "pub struct SetTable {"),
    ("workload cpu", WORKLOAD, "    Cpu {"),
    ("workload cpu, then", WORKLOAD, "pub struct CpuThen {"),
    ("workload lock", WORKLOAD, "    Lock {"),
    ("workload barrier", WORKLOAD, "    Barrier {"),
    ("workload yield", WORKLOAD, "    Yield {"),
    ("workload io", WORKLOAD, "    Io {"),
    ("workload sleep", WORKLOAD, "    Sleep {"),
    ("workload mix", WORKLOAD, "    Mix {"),
    ("workload command", WORKLOAD, "    Command {"),
    ("workload, speed", "crates/drover-scenario/src/pace.rs", "pub struct Pace {"),
    ("[[expect]]", EXPECT, "pub struct Expect {"),
    ("[[expect]], relative_to_gain", EXPECT, "pub struct Gain {"),
    ("[[expect]], or", EXPECT, "pub struct OrTimes {"),
];
/// Workloads whose speed may hang on something: the table `speed` is read apart from them.
const PACED: [&str; 4] = ["workload cpu", "workload lock", "workload barrier", "workload sleep"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The keys of the type that begins on a line, and the comment at each.
fn keys(source: &str, begins: impl Fn(&str) -> bool) -> Vec<(String, String)> {
    let mut lines = source.lines().skip_while(|line| !begins(line));
    let first = lines.next().expect("the type is there");
    if !first.ends_with('{') {
        return Vec::new();
    }
    let indent = first.len() - first.trim_start().len();
    let ends = |line: &&str| {
        line.trim_start().len() + indent != line.len() || !line.trim().starts_with('}')
    };
    let mut keys = Vec::new();
    let mut comment = Vec::new();
    for line in lines.take_while(ends).map(str::trim) {
        if let Some(text) = line.strip_prefix("/// ") {
            comment.push(text);
            continue;
        }
        let name = line.strip_prefix("pub ").unwrap_or(line).split_once(": ").map(|it| it.0);
        let is_key = |name: &&str| name.chars().all(|it| it.is_ascii_alphanumeric() || it == '_');
        if let Some(name) = name.filter(is_key) {
            keys.push((name.to_owned(), comment.join(" ").trim_end_matches('.').to_owned()));
            comment.clear();
        }
    }
    keys
}

/// The rows of the table with that title; none if it is no table of keys.
fn rows(title: &str) -> Option<String> {
    let read = |file: &str| std::fs::read_to_string(root().join(file)).unwrap();
    let mut keys = match TYPES.iter().find(|(of, ..)| *of == title) {
        Some((_, file, begins)) => keys(&read(file), |line| line.starts_with(begins)),
        None => {
            let (format, begins) = (read(FORMAT), format!("    \"{title}\" "));
            format.lines().find(|line| line.starts_with(&begins))?;
            keys(&format, |line| line.starts_with(&begins))
        }
    };
    let kind = title.strip_prefix("workload ").filter(|it| !it.contains([',', ' ']));
    if let Some(kind) = kind.filter(|_| keys.iter().all(|(key, _)| key != "kind")) {
        keys.insert(0, ("kind".to_owned(), format!("`{kind}`")));
    }
    if PACED.contains(&title) {
        keys.push((
            "speed".to_owned(),
            "What its [speed](#what-its-speed-hangs-on-workload-speed) hangs on".to_owned(),
        ));
    }
    let row =
        |(key, text): &(String, String)| format!("| `{key}` | {text} |\n").replace("|  |", "| |");
    Some(keys.iter().map(row).collect())
}

/// The document with its tables of keys made anew.
fn written(document: &str) -> String {
    let mut text = String::new();
    let (mut rows_of, mut is_in_table) = (None, false);
    for line in document.lines() {
        if line.starts_with('#') {
            let title = line.strip_suffix('`').and_then(|it| it.rsplit_once('`'));
            rows_of = title.and_then(|(_, title)| rows(title));
        }
        let is_row = line.starts_with("| `");
        if is_row && let Some(rows) = rows_of.take() {
            text += &rows;
            is_in_table = true;
        }
        is_in_table &= is_row;
        if !is_in_table {
            text += line;
            text.push('\n');
        }
    }
    text
}

#[test]
fn tables_of_keys_say_what_the_source_says() {
    let file = root().join("docs/scenarios.md");
    let published = std::fs::read_to_string(&file).unwrap();
    let written = written(&published);
    if std::env::var_os("DROVER_WRITE_DOCS").is_some() {
        std::fs::write(&file, &written).unwrap();
    }
    let published = std::fs::read_to_string(&file).unwrap();
    let first = written.lines().zip(published.lines()).find(|(ours, theirs)| ours != theirs);
    assert!(
        first.is_none() && written == published,
        "DROVER_WRITE_DOCS=1 cargo test -p drover-scenario keys: {first:?}"
    );
}

#[test]
fn each_title_has_its_keys() {
    assert_eq!(rows("[[expect]], or").unwrap().lines().count(), 2);
    assert!(rows("[[vm]]").unwrap().starts_with("| `name` | Unique name; needed |\n| `count` | "));
    assert!(rows("workload lock").unwrap().ends_with("hangs on |\n"));
    assert_eq!(rows("workload mix").unwrap(), "| `kind` | `mix` |\n");
    assert_eq!(rows("for"), None);
}

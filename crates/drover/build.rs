// SPDX-License-Identifier: GPL-2.0-only
//! Hashes the sources that decide what a simulation does, so that `drover seeds` knows which runs it need not repeat.

use std::env;
use std::fs;
use std::hash::{DefaultHasher, Hasher};
use std::path::{Path, PathBuf};

/// What every simulation hangs on.
const SIMULATOR: [&str; 9] = [
    "crates/drover-core/src",
    "crates/drover-scenario/src/entitlement.rs",
    "crates/drover-scenario/src/host.rs",
    "crates/drover-scenario/src/program.rs",
    "crates/drover-scenario/src/results.rs",
    "crates/drover-scenario/src/vm.rs",
    "crates/drover-scenario/src/workload.rs",
    "crates/drover-sim/native",
    "crates/drover-sim/src",
];
/// What those of Drover hang on, too.
const POLICY: &str = "policy";
/// A file or folder here is a rival.
const RIVALS: &str = "crates/drover-rivals/src";

fn main() {
    let root = Path::new(&env::var("CARGO_MANIFEST_DIR").expect("cargo names it")).join("../..");
    for source in SIMULATOR.into_iter().chain([POLICY, RIVALS]) {
        println!("cargo:rerun-if-changed={}", root.join(source).display());
    }
    let mut sources = vec![
        ("simulator".to_owned(), hash(SIMULATOR.map(|source| root.join(source)).to_vec())),
        ("drover".to_owned(), hash(vec![root.join(POLICY)])),
    ];
    for rival in entries(&root.join(RIVALS)) {
        let name = rival.file_stem().expect("a file has a name").to_string_lossy().into_owned();
        sources.push((name, hash(vec![rival])));
    }
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo names it")).join("sources.rs");
    fs::write(out, format!("&{sources:?}")).expect("cargo made it");
}

/// A hash of all that is in these files and folders.
fn hash(mut left: Vec<PathBuf>) -> u64 {
    let mut hasher = DefaultHasher::new();
    left.reverse();
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(entries(&path).into_iter().rev());
        } else {
            hasher.write(&fs::read(&path).unwrap_or_else(|it| panic!("{}: {it}", path.display())));
        }
    }
    hasher.finish()
}

/// What is in a folder but tests, in order.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|it| panic!("{}: {it}", folder.display()));
    let paths = entries.flatten().map(|entry| entry.path());
    let mut paths: Vec<PathBuf> = paths.filter(|path| !path.ends_with("test")).collect();
    paths.sort();
    paths
}

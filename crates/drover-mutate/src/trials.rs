// SPDX-License-Identifier: GPL-2.0-only
//! The fault rig as a library with a `main`, so that a mutant's policy is linked in by the C
//! compiler alone, without cargo.
//!
//! The library holds the whole policy, too. The linker leaves it there: an object named before
//! the library already has all that is asked for.

use std::ffi::c_int;
use std::process::exit;

use drover_sim::rig::{Script, try_script};

/// `trials FOLDER FROM END`: the trials kept in the folder, then those of the seeds from FROM on, END not among them.
/// Ends with 1 at the first that breaks something.
// SAFETY: the program that this is linked into has no other `main`.
#[unsafe(no_mangle)]
pub extern "C" fn main() -> c_int {
    let mut arguments = std::env::args().skip(1);
    let mut argument = || arguments.next().unwrap_or_else(|| exit(2));
    let [folder, from, end] = [argument(), argument(), argument()];
    let mut kept: Vec<_> = std::fs::read_dir(folder)
        .expect("the folder can be read")
        .map(|entry| entry.expect("the folder can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    kept.sort();
    for path in kept {
        let text = std::fs::read(&path).expect("the trial can be read");
        attempt(&path.display(), &serde_json::from_slice(&text).expect("the trial is one"));
    }
    let number = |text: String| text.parse().expect("FROM and END are numbers");
    for seed in number(from)..number(end) {
        attempt(&seed, &Script::of_seed(seed));
    }
    0
}

fn attempt(name: &dyn std::fmt::Display, script: &Script) {
    if let Some(broken) = try_script(script, None).broken {
        println!("{name}: {broken}");
        exit(1);
    }
}

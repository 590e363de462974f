// SPDX-License-Identifier: GPL-2.0-only
//! Drover against another scheduler, on random hosts where nothing is set: who loses by it?
//!
//! Idea. A trial is drawn from a seed: a host, VMs, ordinary work (draw.rs, work.rs). Each VM runs alone, which
//! says what it wants, and so what its part is (part.rs). Then all run together, under the rival and under
//! Drover, with the same random numbers (runs.rs), and are judged (verdict.rs). Somebody who falls short is
//! looked at with two more seeds of the same trial. What breaks is made smaller (shrink.rs) and kept as a
//! scenario (trial.rs).
//!
//! Limitations. The rival is a model, and unfairer than the real one on some hosts: what breaks here is shown
//! on a real kernel before the policy changes. Costs of a cold cache, memory's distance and SMT are not in it:
//! no trial has a table `speed`. VMs of a trial begin together and stay as they are.

mod draw;
mod part;
mod runs;
mod shrink;
mod tally;
mod trial;
mod verdict;
mod work;

pub use part::{Alone, Part, parts};
pub use runs::{Found, LookedAt, try_against};
pub use tally::{Row, Tally};
pub use trial::{Trial, TrialHost, TrialRole, TrialVm};
pub use verdict::{Both, Did, Judged, Kind, Short, VmDid, judge};

use super::shrink::shrink_by;
use super::soak::{Until, each_seed};
use crate::scenario::rival::Entry;
use crate::scx::Planted;
use std::sync::Mutex;
use std::time::Duration;

/// Smaller trials that are tried at most.
const SHRINK_TRIES: usize = 300;

/// Runs the trial against a rival and judges it.
///
/// # Errors
/// As [`try_against`].
pub fn try_trial(
    trial: &Trial,
    rival: &Entry,
    planted: Option<Planted>,
) -> Result<Vec<Found>, String> {
    let scenario = trial.scenario(rival.name).map_err(|error| error.to_string())?;
    try_against(&scenario, rival, planted)
}

/// Does trials with the seeds from `first` on, on so many threads, until `length` has passed. `progress` is
/// told of each that is done how many have somebody short, of how many.
pub fn soak_against(
    rival: &Entry,
    first: u64,
    length: Duration,
    threads: usize,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Tally {
    let tally = Mutex::new(Tally::default());
    each_seed(first, Until::Passed(length), threads, &|seed| {
        let found = try_trial(&Trial::of_seed(seed), rival, None);
        let mut tally = tally.lock().expect("nobody panics with it held");
        tally.count(seed, &found);
        progress(tally.short_trials, tally.trials);
        true
    });
    tally.into_inner().expect("nobody panicked")
}

/// The smallest trial found in which somebody falls short in that still, and the worst of those who do. None
/// if nobody does.
pub fn shrink_against(
    trial: &Trial,
    rival: &Entry,
    kind: Kind,
    planted: Option<Planted>,
) -> Option<(Trial, Short, String)> {
    let worst = |trial: &Trial| {
        let cases = try_trial(trial, rival, planted).ok()?;
        let mut all: Vec<(Short, String)> = Vec::new();
        for case in &cases {
            let of_kind = case.judged.short.iter().filter(|short| short.kind == kind);
            all.extend(of_kind.map(|short| (short.clone(), name_of(case, short))));
        }
        all.into_iter().reduce(|a, b| if kind.is_worse(b.0.ratio, a.0.ratio) { b } else { a })
    };
    let (least, (short, name)) = shrink_by(trial, SHRINK_TRIES, worst, shrink::candidates)?;
    Some((least, short, name))
}

/// Who falls short, by name.
pub fn name_of(found: &Found, short: &Short) -> String {
    match (short.vm, short.vcpu) {
        (None, _) => "all VMs".to_owned(),
        (Some(vm), None) => found.vms[vm].clone(),
        (Some(vm), Some(vcpu)) => format!("{} vCPU {vcpu}", found.vms[vm]),
    }
}

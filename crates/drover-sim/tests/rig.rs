// SPDX-License-Identifier: GPL-2.0-only
//! The fault rig against the policy, and against bugs planted to be found.

use drover_sim::rig::{Script, try_script};
use drover_sim::scx::Planted;

/// Trials in one test run; `make soak` does more.
const TRIALS: u64 = 60;

#[test]
fn the_policy_comes_through_faults() {
    for seed in 0..TRIALS {
        let trial = try_script(&Script::of_seed(seed), None);
        assert_eq!(trial.broken, None, "replay with: drover soak --seed {seed}");
    }
}

#[test]
fn trials_repeat_exactly() {
    for seed in [3, 14] {
        let script = Script::of_seed(seed);
        assert_eq!(try_script(&script, None), try_script(&script, None));
    }
}

#[test]
fn trials_that_once_failed_hold() {
    hold(concat!(env!("CARGO_MANIFEST_DIR"), "/regressions"));
}

fn hold(dir: &str) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let script: Script = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(try_script(&script, None).broken, None, "{}", path.display());
    }
}

/// Each planted bug must be noticed, by the invariant that is there for it.
#[test]
fn planted_bugs_are_found() {
    let expected = [
        (Planted::LosesTasks, "is forgotten"),
        (Planted::LosesKicks, "rests while"),
        (Planted::LosesKicks, "not known to be idle"),
        (Planted::MissesPcpu, "where it may not run"),
        (Planted::IgnoresWaitBound, "has waited"),
        (Planted::ChargesHalf, "CPU time charged"),
        (Planted::LosesStarts, "believes it waits"),
        (Planted::LosesStarts, "the policy asserts"),
        (Planted::Miscounts, "the policy counts"),
        (Planted::SpoilsTournament, "tournament of domain"),
        (Planted::LeaksSlots, "slots"),
        (Planted::TurnsClockBack, "went back"),
        (Planted::IgnoresShares, "is owed"),
        (Planted::IgnoresReservations, "is owed"),
        (Planted::IgnoresReservations, "is guaranteed"),
        (Planted::IgnoresPools, "is owed"),
        (Planted::IgnoresLimits, "VM "),
        (Planted::IgnoresLimits, "pool "),
        (Planted::IgnoresLimits, "in 100 ms"),
        (Planted::LaxLimits, "in 1000 ms"),
        (Planted::HoldsForEver, "rests while"),
        (Planted::ChargesStops, "is owed at least"),
        (Planted::MiscountsModes, "too many or too few"),
        (Planted::HurriesTimers, "time stands still"),
        (Planted::LosesTimers, "is held at its limit"),
        (Planted::LeavesBehind, "rests while"),
        (Planted::IgnoresPartitions, "outside of its partition"),
    ];
    for (planted, complaint) in expected {
        let found = (0..2000)
            .filter_map(|seed| try_script(&Script::of_seed(seed), Some(planted)).broken)
            .find(|broken| broken.contains(complaint));
        assert!(found.is_some(), "{planted:?} was never reported as \"{complaint}\"");
    }
}

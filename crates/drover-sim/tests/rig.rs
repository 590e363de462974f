// SPDX-License-Identifier: GPL-2.0-only
//! The fault rig against the policy, and against bugs planted to be found.

use drover_sim::rig::{Script, try_script};
use drover_sim::scx::Planted;

/// Trials in one test run; `make soak` does more.
const TRIALS: u64 = 60;
/// So many are tried until a planted bug is noticed.
const TRIALS_MAX: u64 = 2000;

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

/// Each planted bug must be noticed, by the invariant that is there for it. The search begins at the seed that found it
/// when this was written: from 0 on it takes two minutes.
#[test]
fn planted_bugs_are_found() {
    let expected = [
        (Planted::LosesTasks, "is forgotten", 0),
        (Planted::LosesKicks, "rests while", 16),
        (Planted::LosesKicks, "not known to be idle", 5),
        (Planted::MissesPcpu, "where it may not run", 4),
        (Planted::IgnoresWaitBound, "has waited", 3),
        (Planted::ChargesHalf, "CPU time charged", 0),
        (Planted::LosesStarts, "believes it waits", 2),
        (Planted::LosesStarts, "the policy asserts", 0),
        (Planted::Miscounts, "the policy counts", 0),
        (Planted::SpoilsTournament, "tournament of domain", 0),
        (Planted::LeaksSlots, "slots", 4),
        (Planted::TurnsClockBack, "went back", 0),
        (Planted::IgnoresShares, "is owed", 0),
        (Planted::IgnoresReservations, "is owed", 314),
        (Planted::IgnoresReservations, "is guaranteed", 273),
        (Planted::IgnoresPools, "is owed", 184),
        (Planted::IgnoresLimits, "VM ", 21),
        (Planted::IgnoresLimits, "pool ", 103),
        (Planted::IgnoresLimits, "in 100 ms", 21),
        (Planted::LaxLimits, "in 1000 ms", 368),
        (Planted::HoldsForEver, "rests while", 13),
        (Planted::ChargesStops, "is owed at least", 45),
        (Planted::MiscountsModes, "too many or too few", 0),
        (Planted::HurriesTimers, "time stands still", 5),
        (Planted::LosesTimers, "is held at its limit", 5),
        (Planted::LeavesBehind, "rests while", 356),
        (Planted::IgnoresPartitions, "outside of its partition", 21),
    ];
    for (planted, complaint, first) in expected {
        let is_found = (first..TRIALS_MAX).chain(0..first).any(|seed| {
            let broken = try_script(&Script::of_seed(seed), Some(planted)).broken;
            broken.is_some_and(|broken| broken.contains(complaint))
        });
        assert!(is_found, "{planted:?} was never reported as \"{complaint}\"");
    }
}

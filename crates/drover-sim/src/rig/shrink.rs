// SPDX-License-Identifier: GPL-2.0-only
//! Makes a failing trial smaller for as long as it still fails.

use super::{Fault, Script, try_script};
use crate::class::VmBounds;
use crate::scx::Planted;

/// Rounds at most: each makes something smaller, so there is an end to it; what is gained late is little.
const ROUNDS: usize = 20;

/// The smallest trial found that still breaks something, and what it breaks. None if the trial
/// breaks nothing.
pub fn shrink(script: &Script, planted: Option<Planted>) -> Option<(Script, String)> {
    let tries = ROUNDS * candidates(script).len().max(1);
    shrink_by(script, tries, |script| try_script(script, planted).broken, candidates)
}

/// The smallest found of what still fails, and why that fails. None if it does not. Each round takes the first
/// candidate that fails; so many are tried at most.
pub(super) fn shrink_by<T: Clone, W>(
    whole: &T,
    mut tries: usize,
    fails: impl Fn(&T) -> Option<W>,
    candidates: impl Fn(&T) -> Vec<T>,
) -> Option<(T, W)> {
    let mut least = (whole.clone(), fails(whole)?);
    loop {
        let smaller = candidates(&least.0).into_iter().take(tries).find_map(|candidate| {
            tries -= 1;
            let why = fails(&candidate)?;
            Some((candidate, why))
        });
        match smaller {
            Some(smaller) => least = smaller,
            None => return Some(least),
        }
    }
}

/// Trials a little smaller than this one, the boldest first.
fn candidates(script: &Script) -> Vec<Script> {
    let mut all = Vec::new();
    let mut offer = |change: &dyn Fn(&mut Script)| {
        let mut smaller = script.clone();
        change(&mut smaller);
        if smaller != *script && !smaller.vms.is_empty() {
            all.push(smaller);
        }
    };
    offer(&|script| script.faults.clear());
    offer(&|script| script.duration_us /= 2);
    let half = script.vms.len() / 2;
    offer(&|script| script.vms.truncate(half.max(1)));
    let half = script.faults.len() / 2;
    offer(&|script| script.faults.truncate(half));
    offer(&|script| drop(script.faults.drain(..half)));
    for index in 0..script.vms.len() {
        // Faults name VMs by number: put a small one in place of one in the middle.
        offer(&|script| {
            let vm = &mut script.vms[index];
            (vm.threads, vm.helpers) = (1, vm.helpers.min(1));
        });
    }
    if script.vms.len() > 1 {
        offer(&|script| drop(script.vms.pop()));
    }
    for index in 0..script.faults.len() {
        offer(&|script| drop(script.faults.remove(index)));
    }
    offer(&|script| script.vms.iter_mut().for_each(|vm| vm.bounds = VmBounds::default()));
    for index in 0..script.vms.len() {
        offer(&|script| script.vms[index].bounds = VmBounds::default());
    }
    offer(&|script| {
        script.pools.clear();
        script.vms.iter_mut().for_each(|vm| vm.bounds.pool = 0);
        let of_pool = |fault: &Fault| match fault {
            Fault::Pool(..) => true,
            Fault::Bounds(_, bounds) => bounds.pool > 0,
            _ => false,
        };
        script.faults.retain(|fault| !of_pool(&fault.fault));
    });
    offer(&|script| script.host.cores_of.clear());
    offer(&|script| (script.host.dies, script.host.cores_of) = (1, Vec::new()));
    offer(&|script| script.hz = 250);
    offer(&|script| script.vms.iter_mut().for_each(|vm| (vm.pin, vm.one_each) = (None, false)));
    for index in 0..script.vms.len() {
        offer(&|script| (script.vms[index].pin, script.vms[index].one_each) = (None, false));
    }
    offer(&|script| script.host.threads = 1);
    offer(&|script| {
        let all = std::iter::once(&mut script.host.cores).chain(&mut script.host.cores_of);
        all.for_each(|cores| *cores = (*cores / 2).max(1));
    });
    offer(&|script| script.vtime_ns = 0);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_trial_gets_smaller_and_still_fails() {
        let planted = Some(Planted::LosesTasks);
        let failing = (0..50)
            .map(Script::of_seed)
            .find(|script| try_script(script, planted).broken.is_some())
            .expect("losing tasks is noticed");
        let (least, broken) = shrink(&failing, planted).unwrap();
        assert!(least.duration_us <= failing.duration_us);
        assert!(least.faults.len() <= failing.faults.len());
        assert_eq!(try_script(&least, planted).broken, Some(broken));
    }
}

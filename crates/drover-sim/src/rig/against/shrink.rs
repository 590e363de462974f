// SPDX-License-Identifier: GPL-2.0-only
//! Trials a little smaller than one in which somebody falls short.

use super::trial::{Trial, TrialRole, TrialVm};

/// They, the boldest first.
pub fn candidates(trial: &Trial) -> Vec<Trial> {
    let mut all = Vec::new();
    let mut offer = |change: &dyn Fn(&mut Trial)| {
        let mut smaller = trial.clone();
        change(&mut smaller);
        smaller.vms.iter_mut().for_each(|vm| vm.roles.retain(|role| role.vcpus > 0));
        smaller.vms.retain(|vm| !vm.roles.is_empty());
        if smaller != *trial && !smaller.vms.is_empty() {
            all.push(smaller);
        }
    };
    let half = trial.vms.len() / 2;
    offer(&|trial| trial.vms.truncate(half.max(1)));
    offer(&|trial| drop(trial.vms.drain(..half)));
    // Half of everything: it is as crowded as before.
    offer(&|trial| {
        trial.host.cores = (trial.host.cores / 2).max(1);
        trial
            .vms
            .iter_mut()
            .flat_map(|vm| &mut vm.roles)
            .for_each(|role| role.vcpus = role.vcpus.div_ceil(2));
    });
    offer(&|trial| {
        trial.host.cores = (trial.host.cores / 2).max(1);
        trial.vms.truncate(half.max(1));
    });
    for index in (0..trial.vms.len()).rev() {
        offer(&|trial| drop(trial.vms.remove(index)));
    }
    offer(&|trial| {
        let host = &mut trial.host;
        (host.cores, host.dies, host.threads) = (host.cores * host.threads * host.dies, 1, 1);
    });
    offer(&|trial| trial.host.cores = (trial.host.cores - 1).max(1));
    offer(&|trial| trial.host.ple = false);
    for index in 0..trial.vms.len() {
        offer(&|trial| make_busy(&mut trial.vms[index]));
        for role in 0..trial.vms[index].roles.len() {
            offer(&|trial| trial.vms[index].roles[role].vcpus = 1);
            offer(&|trial| trial.vms[index].roles[role].vcpus /= 2);
            offer(&|trial| trial.vms[index].roles[role].vcpus -= 1);
        }
    }
    for index in 0..trial.vms.len() {
        offer(&|trial| {
            steps_of(&mut trial.vms[index]).for_each(|step| *step = step.replace("about ", ""))
        });
        offer(&|trial| steps_of(&mut trial.vms[index]).for_each(|step| *step = round(step)));
    }
    all
}

fn steps_of(vm: &mut TrialVm) -> impl Iterator<Item = &mut String> {
    vm.roles.iter_mut().flat_map(|role| &mut role.steps)
}

fn make_busy(vm: &mut TrialVm) {
    let busy = TrialRole { vcpus: vm.vcpus(), steps: vec!["compute 5 ms".to_owned()] };
    (vm.roles, vm.lock) = (vec![busy], None);
}

/// The step with each number to one digit.
fn round(step: &str) -> String {
    let word = |word: &str| match word.parse::<u64>() {
        Ok(number) if number >= 10 => {
            let unit = 10u64.pow(number.ilog10());
            ((number + unit / 2) / unit * unit).to_string()
        }
        _ => word.to_owned(),
    };
    step.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_are_smaller_and_most_make_sense() {
        for seed in 0..20 {
            let trial = Trial::of_seed(seed);
            let size = |trial: &Trial| {
                let vcpus: u32 = trial.vms.iter().map(TrialVm::vcpus).sum();
                (vcpus, trial.host.pcpus())
            };
            let all = candidates(&trial);
            assert!(
                all.iter().all(|it| size(it).0 <= size(&trial).0 && size(it).1 <= size(&trial).1)
            );
            let reads = all.iter().filter(|it| it.scenario("eevdf").is_ok()).count();
            assert!(2 * reads >= all.len(), "{reads} of {}", all.len());
        }
    }

    #[test]
    fn numbers_become_round() {
        assert_eq!(round("compute about 7313 us"), "compute about 7000 us");
        assert_eq!(round("io 80 us then 96 us"), "io 80 us then 100 us");
    }
}

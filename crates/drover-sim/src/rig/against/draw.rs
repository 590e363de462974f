// SPDX-License-Identifier: GPL-2.0-only
//! Draws a trial from a seed: hosts of 1 to 16 pCPUs mostly, of up to 64 now and then, 1 to 50 VMs of
//! ordinary work (work.rs), from half of what the host has to four times that.

use super::trial::{Trial, TrialHost, TrialVm};
use super::work;
use crate::rng::Rng;

/// VMs of a host at most.
const VMS_MAX: usize = 50;

impl Trial {
    /// Draws a trial.
    pub fn of_seed(seed: u64) -> Self {
        // Another number makes other trials of the same seeds: change it when the drawing changes.
        let mut rng = Rng::new(seed ^ 0x0a6a_1257_eed0_2711);
        let host = draw_host(&mut rng);
        // Threads for each pCPU, more or less; and whether VMs are few and wide or many and narrow.
        let threads = (u64::from(host.pcpus()) * (1 + rng.below(4))).max(2);
        let width_pct = *rng.pick(&[20, 50, 100, 200]);
        // Half of the hosts have VMs of few kinds, as hosts of one service do.
        let kinds = if rng.chance_pct(50) { 1 + rng.below(3) as usize } else { usize::MAX };
        let mut patterns: Vec<TrialVm> = Vec::new();
        let mut vms = Vec::new();
        let mut drawn = 0;
        while vms.is_empty() || drawn < threads && vms.len() < VMS_MAX {
            let room = (threads - drawn).max(1) as u32;
            let mut vm = if patterns.len() < kinds {
                let most = (host.pcpus() * width_pct / 100).clamp(1, room.min(32));
                work::draw_vm(&mut rng, most)
            } else {
                let known = rng.pick(&patterns).clone();
                if known.vcpus() > room && !vms.is_empty() {
                    break;
                }
                known
            };
            patterns.push(vm.clone());
            vm.name = format!("{}-{}", vm.name, vms.len());
            drawn += u64::from(vm.vcpus());
            vms.push(vm);
        }
        Self { seed, host, vms }
    }
}

fn draw_host(rng: &mut Rng) -> TrialHost {
    let pcpus = match rng.below(100) {
        0..65 => 1 + rng.below(8),
        65..92 => 9 + rng.below(8),
        _ => *rng.pick(&[32, 48, 64]),
    } as u32;
    let dies = match pcpus {
        0..4 => 1,
        4..17 => *rng.pick(&[1, 1, 1, 2]),
        _ => *rng.pick(&[1, 2, 4]),
    };
    let threads = if rng.chance_pct(20) && pcpus >= 2 * dies { 2 } else { 1 };
    let cores = (pcpus / dies / threads).max(1);
    TrialHost { dies, cores, threads, ple: rng.chance_pct(50) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_seed_draws_a_trial_that_reads() {
        let mut kinds = std::collections::BTreeSet::new();
        let (mut most_vms, mut widest) = (0, 0.0_f64);
        for seed in 0..300 {
            let trial = Trial::of_seed(seed);
            assert_eq!(trial, Trial::of_seed(seed));
            let scenario =
                trial.scenario("eevdf").unwrap_or_else(|error| panic!("{seed}: {error}"));
            assert_eq!(scenario.cases[0].vms.len(), trial.vms.len());
            most_vms = most_vms.max(trial.vms.len());
            for vm in &trial.vms {
                kinds.insert(vm.name.split('-').next().unwrap_or_default().to_owned());
                widest = widest.max(f64::from(vm.vcpus()) / f64::from(trial.host.pcpus()));
            }
        }
        assert_eq!(kinds.len(), work::KINDS, "{kinds:?}");
        assert!(most_vms > 40 && widest >= 2.0, "{most_vms} VMs, {widest} wide");
    }
}

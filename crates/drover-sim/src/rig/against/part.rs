// SPDX-License-Identifier: GPL-2.0-only
//! What VMs and vCPUs want, from what they did alone on the host, and what their part of it is.
//!
//! Idea. The even part of a VM is its shares' part of the host; of a vCPU, an even part of what its VM has.
//! Who wants less than that at any moment is *light*: nothing it wants has to wait for the others. Wants
//! are read interval by interval, so that a VM that computes for 200 ms and sleeps for 800 is not taken for
//! one that wants a fifth of a pCPU. A VM that wants more than there is for it at any moment is *heavy*: its
//! fair part is what is left for it, interval by interval, where CPU time is poured over all VMs by shares
//! ([`entitle`]).
//!
//! Worked example: two pCPUs; VM *a* of one vCPU wants 0.3, VM *b* of three wants 2.1: 1, 1 and 0.1. Even
//! parts are 0.5 and 1.5, so *a* is light. *b* is heavy: 1.7 are left for it. An even part of these is 0.57:
//! its third vCPU is light.
//!
//! What stands between is not judged: who wants nine tenths of its part, or a little more than it can have,
//! has by chance what it has; and phases of one VM meet those of another sooner or later than alone.

use drover_core::tree::Tree;
use drover_core::tree::entitlement::{Leaf, entitle};

/// Who wants at most so much of its part is light.
const LIGHT: f64 = 0.9;
/// Who can have less than so much of what it wants is heavy.
const HEAVY: f64 = 0.75;

/// A VM alone on the host.
#[derive(Debug, Clone, PartialEq)]
pub struct Alone {
    /// Its shares.
    pub shares: f64,
    /// pCPUs that each thread used, interval by interval; vCPUs first.
    pub pcpus: Vec<Vec<f64>>,
    /// Of which so many are vCPUs.
    pub vcpus: usize,
    /// Work of its vCPUs for each s of CPU time of the VM.
    pub work_per_cpu: f64,
}

/// What a VM's part of the host is.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// It wants less than its part.
    pub light: bool,
    /// It wants more than there is for it: the work that its fair part is good for, s.
    pub fair_work_s: Option<f64>,
    /// Which of its vCPUs want less than an even part of what it has.
    pub light_vcpus: Vec<bool>,
}

impl Alone {
    /// What the VM wants in that interval.
    fn wants(&self, interval: usize) -> f64 {
        self.pcpus.iter().map(|thread| thread[interval]).sum()
    }

    fn intervals(&self) -> usize {
        self.pcpus.iter().map(Vec::len).min().unwrap_or(0)
    }
}

/// The part of each VM on a host of so many pCPUs, over intervals of so many seconds.
pub fn parts(alone: &[Alone], pcpus: u32, interval_s: f64) -> Vec<Part> {
    let intervals = alone.iter().map(Alone::intervals).min().unwrap_or(0);
    let shares: f64 = alone.iter().map(|vm| vm.shares).sum();
    let fair: Vec<Vec<f64>> = (0..intervals)
        .map(|interval| {
            let leaf = |vm: &Alone| Leaf {
                pool: None,
                shares: vm.shares,
                reservation_pcpus: 0.0,
                demand_pcpus: vm.wants(interval),
            };
            let leaves: Vec<Leaf> = alone.iter().map(leaf).collect();
            entitle(&Tree::default(), &leaves, pcpus.into()).leaves
        })
        .collect();
    let part = |(number, vm): (usize, &Alone)| {
        let even = vm.shares / shares * f64::from(pcpus);
        let fair: Vec<f64> = fair.iter().map(|of_vms| of_vms[number]).collect();
        part_of(vm, even, &fair, interval_s)
    };
    alone.iter().enumerate().map(part).collect()
}

fn part_of(vm: &Alone, even: f64, fair: &[f64], interval_s: f64) -> Part {
    let within: Vec<bool> = (0..fair.len()).map(|at| vm.wants(at) <= LIGHT * even).collect();
    let heavy = (0..fair.len()).all(|at| fair[at] < HEAVY * vm.wants(at));
    let has_s = fair.iter().sum::<f64>() * interval_s;
    let vcpus = vm.vcpus as f64;
    let is_light = |thread: &Vec<f64>| {
        let fits = |at: usize| within[at] || thread[at] <= LIGHT * fair[at] / vcpus;
        (0..fair.len()).all(fits)
    };
    Part {
        light: within.iter().all(|&within| within),
        fair_work_s: heavy.then_some(has_s * vm.work_per_cpu),
        light_vcpus: vm.pcpus[..vm.vcpus].iter().map(is_light).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vm(shares: f64, pcpus: &[&[f64]]) -> Alone {
        let pcpus: Vec<Vec<f64>> = pcpus.iter().map(|thread| thread.to_vec()).collect();
        Alone { shares, vcpus: pcpus.len(), pcpus, work_per_cpu: 1.0 }
    }

    #[test]
    fn the_worked_example_of_the_header_holds() {
        let (a, b) = (vm(1000.0, &[&[0.3]]), vm(3000.0, &[&[1.0], &[1.0], &[0.1]]));
        let [a, b] = &parts(&[a, b], 2, 0.05)[..] else { panic!("two VMs") };
        assert_eq!(*a, Part { light: true, fair_work_s: None, light_vcpus: vec![true] });
        assert_eq!((b.light, b.light_vcpus.clone()), (false, vec![false, false, true]));
        assert_eq!(b.fair_work_s, None, "it has 1.7 of 2.1: too near to be judged");
        let b = vm(3000.0, &[&[1.0], &[1.0], &[1.0]]);
        let parts = parts(&[vm(1000.0, &[&[0.3]]), b], 2, 0.05);
        assert!(parts[1].fair_work_s.is_some_and(|work_s| (work_s - 1.7 * 0.05).abs() < 1e-9));
    }

    #[test]
    fn who_computes_for_a_while_and_then_rests_is_not_light() {
        let phases = vm(1000.0, &[&[1.0, 0.0, 0.0, 0.0]]);
        let busy = vm(1000.0, &[&[1.0, 1.0, 1.0, 1.0]]);
        let [phases, busy] = &parts(&[phases, busy], 1, 1.0)[..] else { panic!("two VMs") };
        assert_eq!((phases.light, phases.light_vcpus[0]), (false, false));
        assert_eq!((phases.fair_work_s, busy.fair_work_s), (None, None));
    }

    #[test]
    fn all_vcpus_of_a_light_vm_are_light() {
        let light = vm(4000.0, &[&[0.8], &[0.0], &[0.0], &[0.0]]);
        let [light, _] = &parts(&[light, vm(4000.0, &[&[1.0] as &[f64]; 4])], 4, 0.05)[..] else {
            panic!("two VMs")
        };
        assert_eq!((light.light, light.light_vcpus.clone()), (true, vec![true; 4]));
    }

    #[test]
    fn alone_on_a_wide_host_nobody_is_heavy() {
        let parts = parts(&[vm(2000.0, &[&[1.0], &[1.0]])], 4, 0.05);
        assert_eq!((parts[0].light, parts[0].fair_work_s), (true, None));
    }
}

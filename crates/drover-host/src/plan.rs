// SPDX-License-Identifier: GPL-2.0-only
//! From everything that is asked to what is to be in force: pure, and always of the whole host.
//!
//! Reservations are promised in a fixed order: pools from the host downwards, then the VMs that had
//! theirs before, then newcomers. Who has a promise keeps it while pCPUs go offline, but then everyone
//! is given the same part of it; newcomers are measured by the pCPUs that are online.

use crate::herd::Vm;
use drover_core::resolve::{Layer, Resolved, resolve};
use drover_core::tree::Tree;
use drover_core::tree::admission::{Ledger, degraded_mcpu};
use std::collections::HashSet;

/// The pCPUs promises are made on, in thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// Those online now.
    pub online_mcpu: u64,
    /// The most that were online since the daemon began.
    pub most_mcpu: u64,
}

/// What a VM is to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedVm {
    /// The kernel's id of it.
    pub id: u64,
    /// What it is called.
    pub name: String,
    /// What was asked, and by whom.
    pub resolved: Resolved,
    /// In numbers, for its size.
    pub shares: u32,
    /// What is promised to it; 0 when that was refused.
    pub promised_mcpu: u32,
    /// What of it can be kept on the pCPUs online now.
    pub reservation_mcpu: u32,
    /// Why nothing is promised although it was asked.
    pub refusal: Option<String>,
}

/// What is to be in force.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// The pools.
    pub tree: Tree,
    /// What of each pool's reservation can be kept.
    pub pools_mcpu: Vec<u32>,
    /// What can still be promised in each pool.
    pub pools_free_mcpu: Vec<u64>,
    /// The VMs, in the order they were found.
    pub vms: Vec<PlannedVm>,
    /// What the host has promised in all.
    pub total_mcpu: u64,
    /// What was asked of pools and cannot be, each in a line.
    pub troubles: Vec<String>,
}

impl Plan {
    /// Plans for these VMs, of which those in `holders` had a promise before. `layers_of` says what
    /// everyone asks for a VM.
    pub fn new(
        tree: Tree,
        vms: &[Vm],
        layers_of: impl Fn(&Vm) -> Vec<Layer>,
        holders: &HashSet<u64>,
        capacity: Capacity,
    ) -> Self {
        let mut troubles = Vec::new();
        let mut ledger = Ledger::new(&tree, capacity.most_mcpu);
        let promise = |pool: usize| match ledger.promise_pool(pool) {
            Ok(()) => tree.pools()[pool].spec.reservation_mcpu,
            Err(refusal) => {
                troubles.push(format!("pool {}: {refusal}", tree.pools()[pool].spec.name));
                0
            }
        };
        let pools_mcpu: Vec<u32> = (0..tree.pools().len()).map(promise).collect();
        let mut planned: Vec<PlannedVm> =
            vms.iter().map(|vm| planned(vm, resolve(&layers_of(vm), &tree))).collect();
        let holds = |vm: &PlannedVm| holders.contains(&vm.id);
        for vm in planned.iter_mut().filter(|vm| holds(vm)) {
            vm.ask(&mut ledger);
        }
        ledger.set_capacity(capacity.online_mcpu);
        for vm in planned.iter_mut().filter(|vm| !holds(vm)) {
            vm.ask(&mut ledger);
        }
        let total_mcpu = ledger.total_mcpu();
        let pools_free_mcpu = (0..tree.pools().len()).map(|pool| ledger.free_mcpu(pool)).collect();
        let kept = |mcpu: u32| degraded_mcpu(mcpu, total_mcpu, capacity.online_mcpu);
        for vm in &mut planned {
            vm.reservation_mcpu = kept(vm.promised_mcpu);
        }
        let pools_mcpu = pools_mcpu.into_iter().map(kept).collect();
        Self { tree, pools_mcpu, pools_free_mcpu, vms: planned, total_mcpu, troubles }
    }

    /// The VM with that id.
    pub fn vm(&self, id: u64) -> Option<&PlannedVm> {
        self.vms.iter().find(|vm| vm.id == id)
    }

    /// Everything that was asked and cannot be, each in a line.
    pub fn troubles(&self) -> Vec<String> {
        self.troubles.iter().cloned().chain(self.vms.iter().flat_map(PlannedVm::troubles)).collect()
    }

    /// The VMs to which something is promised.
    pub fn holders(&self) -> HashSet<u64> {
        self.vms.iter().filter(|vm| vm.promised_mcpu > 0).map(|vm| vm.id).collect()
    }
}

impl PlannedVm {
    /// Everything about it that was asked and cannot be, each in a line.
    pub fn troubles(&self) -> impl Iterator<Item = String> {
        let said = self.resolved.troubles.iter().chain(&self.refusal);
        said.map(|trouble| format!("VM {}: {trouble}", self.name))
    }

    fn ask(&mut self, ledger: &mut Ledger) {
        let asked_mcpu = self.resolved.reservation_mcpu;
        match ledger.promise(self.resolved.pool, asked_mcpu.into()) {
            Ok(()) => self.promised_mcpu = asked_mcpu,
            Err(refusal) => self.refusal = Some(refusal.to_string()),
        }
    }
}

fn planned(vm: &Vm, resolved: Resolved) -> PlannedVm {
    PlannedVm {
        id: vm.kernel.id,
        name: vm.name.clone(),
        shares: resolved.shares.of_vm(vm.kernel.nr_vcpus),
        resolved,
        promised_mcpu: 0,
        reservation_mcpu: 0,
        refusal: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::KernelVm;
    use drover_core::asked::{Asked, Key};

    const FULL: Capacity = Capacity { online_mcpu: 4000, most_mcpu: 4000 };
    const HALF: Capacity = Capacity { online_mcpu: 2000, most_mcpu: 4000 };

    fn vms(count: u64) -> Vec<Vm> {
        let vm = |id| Vm::for_test(KernelVm::for_test(id), &format!("vm{id}"), Vec::new());
        (1..=count).map(vm).collect()
    }

    fn plan(vms: &[Vm], reserved: &str, holders: &[u64], capacity: Capacity) -> Plan {
        let layers = |_: &Vm| {
            let mut asked = Asked::default();
            asked.read(Key::Reservation, reserved).unwrap();
            vec![Layer { origin: "test".to_owned(), asked }]
        };
        let holders = holders.iter().copied().collect();
        Plan::new(Tree::default(), vms, layers, &holders, capacity)
    }

    fn kept(plan: &Plan) -> Vec<u32> {
        plan.vms.iter().map(|vm| vm.reservation_mcpu).collect()
    }

    #[test]
    fn who_comes_last_to_a_full_host_gets_no_promise_and_is_told() {
        let plan = plan(&vms(3), "150%", &[], FULL);
        assert_eq!(kept(&plan), [1500, 1500, 0]);
        assert_eq!(plan.total_mcpu, 3000);
        let told: Vec<String> = plan.vms[2].troubles().collect();
        assert!(
            told[0].contains("VM vm3: 150% cannot be reserved: this host has 100% left of 400%")
        );
    }

    #[test]
    fn who_has_a_promise_goes_before_who_has_none() {
        assert_eq!(kept(&plan(&vms(3), "150%", &[2, 3], FULL)), [0, 1500, 1500]);
    }

    #[test]
    fn when_pcpus_go_holders_keep_a_part_and_newcomers_get_nothing() {
        let plan = plan(&vms(3), "120%", &[1, 2], HALF);
        assert_eq!(plan.total_mcpu, 2400);
        assert_eq!(kept(&plan), [1000, 1000, 0]);
        assert!(plan.vms[2].refusal.as_ref().unwrap().contains("this host has 0% left of 200%"));
        assert_eq!(plan.holders(), HashSet::from([1, 2]));
    }
}

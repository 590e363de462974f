// SPDX-License-Identifier: GPL-2.0-only
//! From everything that is asked to what is to be in force: pure, and always of the whole host.
//!
//! Reservations are promised in a fixed order: to pools from the host downwards, then to the VMs that had
//! a promise what they had, then what these want more, then to newcomers. Who has a promise keeps it
//! while pCPUs go offline, but then everyone is given the same part of it; newcomers are measured by the
//! pCPUs that are online. So are sets of pCPUs to which VMs are confined: who is confined to others than
//! before has its promise there, and where that is more than fits, all in it keep the same part.
//!
//! Promises are made on the pCPUs of partition `default`. A VM of another partition has none, nor has one that is
//! confined to pCPUs of others.

use crate::herd::Vm;
use drover_core::asked::{DEFAULT, Key};
use drover_core::partition::Partitions;
use drover_core::percent;
use drover_core::resolve::{Layer, Resolved, resolve};
use drover_core::scenario::CpuList;
use drover_core::tree::admission::{Ledger, Shortage, kept_mcpu, kept_of_pool};
use drover_core::tree::pcpus::{Pcpus, Siblings};
use drover_core::tree::{Affinity, Tree};
use std::collections::HashMap;
use std::fmt;

/// The pCPUs promises are made on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capacity {
    /// Those online now.
    pub online: CpuList,
    /// All that were online since the daemon began.
    pub known: CpuList,
    /// Which of them share a core.
    pub siblings: Siblings,
}

impl Capacity {
    /// What partition `default` has of it; all while that has lost its last pCPU.
    fn of_default(&self, partitions: &Partitions) -> OfDefault {
        let of_default = |of: &CpuList| {
            let default = partitions.cpus_of(None, of).unwrap_or_else(|| of.clone());
            Pcpus::of(default, of, &self.siblings)
        };
        OfDefault { online: of_default(&self.online), known: of_default(&self.known) }
    }
}

/// The same of partition `default`.
struct OfDefault {
    online: Pcpus,
    known: Pcpus,
}

impl OfDefault {
    /// Nothing is promised on it yet.
    fn ledger<'a>(&self, tree: &'a Tree, partitions: &Partitions) -> Ledger<'a> {
        Ledger::new(tree, self.known.clone(), partitions.specs().is_empty())
    }
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
    /// The pCPUs its vCPUs run on: of those they may run on the ones of its partition.
    pub affinity: Affinity,
    /// What is promised to it; when what it asks was refused, what it had before.
    pub promised_mcpu: u32,
    /// What of it can be kept on the pCPUs online now.
    pub reservation_mcpu: u32,
    /// Why not all is promised that was asked.
    pub refusal: Option<String>,
}

/// What is to be in force.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// The pools.
    pub tree: Tree,
    /// The partitions beside `default`.
    pub partitions: Partitions,
    /// What of each pool's reservation can be kept.
    pub pools_mcpu: Vec<u32>,
    /// What can still be promised in each pool.
    pub pools_free_mcpu: Vec<u64>,
    /// The VMs, in the order they were found.
    pub vms: Vec<PlannedVm>,
    /// What the host has promised in all.
    pub total_mcpu: u64,
    /// Where not all that is promised can be kept, by VM.
    pub shortages: Vec<Shortage>,
    /// What was asked of pools and cannot be.
    troubles: Vec<Trouble>,
}

/// Something that was asked and cannot be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// Of whom, as people are told it: `VM web`, `pool prod`.
    pub whose: String,
    /// Which value.
    key: Key,
    /// Why not, and what to do.
    pub text: String,
}

impl Trouble {
    /// The same thing cannot be, although maybe by other numbers.
    pub fn is_still(&self, before: &Trouble) -> bool {
        (&self.whose, self.key) == (&before.whose, before.key)
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.whose, self.text)
    }
}

impl Plan {
    /// Plans for these VMs, of which those in `holders` had that promise before, thousandths of a pCPU.
    /// `layers_of` says what everyone asks for a VM.
    pub fn new(
        (tree, partitions): (Tree, Partitions),
        vms: &[Vm],
        layers_of: impl Fn(&Vm) -> Vec<Layer>,
        holders: &HashMap<u64, u32>,
        capacity: &Capacity,
    ) -> Self {
        let mut troubles = Vec::new();
        let default = capacity.of_default(&partitions);
        let mut ledger = default.ledger(&tree, &partitions);
        let promise = |pool: usize| match ledger.promise_pool(pool) {
            Ok(()) => tree.pools()[pool].spec.reservation_mcpu,
            Err(refusal) => {
                let whose = format!("pool {}", tree.pools()[pool].spec.name);
                troubles.push(Trouble { whose, key: Key::Reservation, text: refusal.to_string() });
                0
            }
        };
        let pools_mcpu: Vec<u32> = (0..tree.pools().len()).map(promise).collect();
        let planned = |vm: &Vm| {
            let resolved = resolve(&layers_of(vm), &tree, &partitions);
            let affinity = partitions.affinity(resolved.partition, vm.affinity(), &capacity.known);
            planned(vm, resolved, affinity)
        };
        let mut planned: Vec<PlannedVm> = vms.iter().map(planned).collect();
        for vm in &mut planned {
            vm.leave_out(default.known.all());
            vm.ask_again(
                &mut ledger,
                default.known.all(),
                holders.get(&vm.id).copied().unwrap_or(0),
            );
        }
        let holds = |vm: &PlannedVm| holders.contains_key(&vm.id);
        for vm in planned.iter_mut().filter(|vm| holds(vm)) {
            vm.ask(&mut ledger, default.known.all());
        }
        ledger.set_pcpus(default.online.clone());
        for vm in planned.iter_mut().filter(|vm| !holds(vm)) {
            vm.ask(&mut ledger, default.known.all());
        }
        let total_mcpu = ledger.total_mcpu();
        let pools_free_mcpu = (0..tree.pools().len()).map(|pool| ledger.free_mcpu(pool)).collect();
        let promises: Vec<(&Affinity, u32)> =
            planned.iter().map(|vm| (&vm.affinity, vm.promised_mcpu)).collect();
        let (kept, shortages) = kept_mcpu(&promises, total_mcpu, &default.online);
        for (vm, kept) in planned.iter_mut().zip(kept) {
            vm.reservation_mcpu = kept;
        }
        let of_pool = |mcpu: u32| kept_of_pool(mcpu, total_mcpu, &default.online);
        let pools_mcpu = pools_mcpu.into_iter().map(of_pool).collect();
        let vms = planned;
        Self { tree, partitions, pools_mcpu, pools_free_mcpu, vms, total_mcpu, shortages, troubles }
    }

    /// The VM with that id.
    pub fn vm(&self, id: u64) -> Option<&PlannedVm> {
        self.vms.iter().find(|vm| vm.id == id)
    }

    /// What of what is asked for a VM could not be if it came alone, the pools apart.
    pub fn trouble_alone(
        (tree, partitions): (&Tree, &Partitions),
        name: &str,
        layers: &[Layer],
        capacity: &Capacity,
    ) -> Option<Trouble> {
        let default = capacity.of_default(partitions);
        let mut ledger = default.ledger(tree, partitions);
        for pool in 0..tree.pools().len() {
            // One that has no promise itself is said to, and has none to give.
            let _ = ledger.promise_pool(pool);
        }
        // Where it will be confined is not known before it is there.
        let resolved = resolve(layers, tree, partitions);
        let mut vm = PlannedVm::new(0, name, resolved, Affinity::ANYWHERE);
        vm.ask(&mut ledger, default.known.all());
        vm.troubles().next()
    }

    /// Everything that was asked and cannot be.
    pub fn troubles(&self) -> Vec<Trouble> {
        self.troubles.iter().cloned().chain(self.vms.iter().flat_map(PlannedVm::troubles)).collect()
    }

    /// The VMs to which something is promised, and what, thousandths of a pCPU.
    pub fn holders(&self) -> HashMap<u64, u32> {
        let holders = self.vms.iter().filter(|vm| vm.promised_mcpu > 0);
        holders.map(|vm| (vm.id, vm.promised_mcpu)).collect()
    }
}

impl PlannedVm {
    fn new(id: u64, name: &str, resolved: Resolved, affinity: Affinity) -> Self {
        Self {
            id,
            name: name.to_owned(),
            affinity,
            resolved,
            promised_mcpu: 0,
            reservation_mcpu: 0,
            refusal: None,
        }
    }

    /// Everything about it that was asked and cannot be.
    pub fn troubles(&self) -> impl Iterator<Item = Trouble> {
        let resolved = self.resolved.troubles.iter().map(|it| (it.key, it.text.clone()));
        let refused = self.refusal.iter().map(|text| (Key::Reservation, text.clone()));
        let whose = format!("VM {}", self.name);
        resolved.chain(refused).map(move |(key, text)| Trouble { whose: whose.clone(), key, text })
    }

    /// Has it ask for nothing where it runs on pCPUs of other partitions.
    fn leave_out(&mut self, default: &CpuList) {
        let asked_mcpu = self.resolved.reservation_mcpu;
        if asked_mcpu > 0 && self.affinity.leaves(default) {
            self.refusal = Some(format!(
                "{} cannot be reserved: it may run on pCPUs of other partitions only, and reservations \
                 are for \"{DEFAULT}\"; let it run on pCPUs of {default}",
                percent::text(asked_mcpu)
            ));
            self.resolved.reservation_mcpu = 0;
        }
    }

    /// Asks for what it had before, as far as it still wants it. Its set may not hold that any more.
    fn ask_again(&mut self, ledger: &mut Ledger, default: &CpuList, before_mcpu: u32) {
        let asked_mcpu = self.resolved.reservation_mcpu.min(before_mcpu);
        match ledger.renew(self.resolved.pool, &self.affinity.on(default), asked_mcpu.into()) {
            Ok(()) => self.promised_mcpu = asked_mcpu,
            Err(refusal) => self.refusal = Some(refusal.to_string()),
        }
    }

    /// Asks for what it lacks of its reservation.
    fn ask(&mut self, ledger: &mut Ledger, default: &CpuList) {
        let (pool, before_mcpu) = (self.resolved.pool, self.promised_mcpu);
        let asked_mcpu = self.resolved.reservation_mcpu;
        if asked_mcpu <= before_mcpu {
            return;
        }
        let affinity = self.affinity.on(default);
        match ledger.promise_instead(pool, &affinity, before_mcpu.into(), asked_mcpu.into()) {
            Ok(()) => self.promised_mcpu = asked_mcpu,
            Err(refusal) => self.refusal = Some(refusal.to_string()),
        }
    }
}

fn planned(vm: &Vm, resolved: Resolved, affinity: Affinity) -> PlannedVm {
    PlannedVm::new(vm.kernel.id, &vm.name, resolved, affinity)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::KernelVm;
    use drover_core::asked::Asked;
    use drover_core::tree::PoolSpec;

    fn full() -> Capacity {
        Capacity { online: CpuList::all(4), known: CpuList::all(4), siblings: Siblings::new() }
    }

    fn half() -> Capacity {
        Capacity { online: CpuList::all(2), known: CpuList::all(4), siblings: Siblings::new() }
    }

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
        let holders = holders.iter().map(|id| (*id, 1000)).collect();
        Plan::new((Tree::default(), Partitions::default()), vms, layers, &holders, &capacity)
    }

    fn kept(plan: &Plan) -> Vec<u32> {
        plan.vms.iter().map(|vm| vm.reservation_mcpu).collect()
    }

    #[test]
    fn a_core_whose_second_thread_goes_holds_what_it_held() {
        let siblings = || Siblings::from([(0, 1), (1, 0), (2, 3), (3, 2)]);
        let of = |online: &str| Capacity {
            online: online.parse().unwrap(),
            known: CpuList::all(4),
            siblings: siblings(),
        };
        assert_eq!(kept(&plan(&vms(3), "100%", &[1, 2], of("0-3"))), [1000, 1000, 0]);
        assert_eq!(kept(&plan(&vms(2), "100%", &[1, 2], of("0,2"))), [1000, 1000]);
        assert_eq!(kept(&plan(&vms(2), "100%", &[1, 2], of("0-1"))), [500, 500]);
    }

    #[test]
    fn who_comes_last_to_a_full_host_gets_no_promise_and_is_told() {
        let plan = plan(&vms(3), "150%", &[], full());
        assert_eq!(kept(&plan), [1500, 1500, 0]);
        assert_eq!(plan.total_mcpu, 3000);
        let told: Vec<String> = plan.vms[2].troubles().map(|it| it.to_string()).collect();
        assert!(
            told[0].contains("VM vm3: 150% cannot be reserved: this host has 100% left of 400%")
        );
    }

    #[test]
    fn who_has_a_promise_goes_before_who_has_none() {
        assert_eq!(kept(&plan(&vms(3), "150%", &[2, 3], full())), [0, 1500, 1500]);
    }

    #[test]
    fn when_pcpus_go_holders_keep_a_part_and_newcomers_get_nothing() {
        let plan = plan(&vms(3), "120%", &[1, 2], half());
        assert_eq!(plan.total_mcpu, 2400);
        assert_eq!(kept(&plan), [1000, 1000, 0]);
        assert!(plan.vms[2].refusal.as_ref().unwrap().contains("this host has 0% left of 200%"));
        assert_eq!(plan.holders(), HashMap::from([(1, 1200), (2, 1200)]));
    }

    #[test]
    fn who_wants_more_than_fits_keeps_what_it_had_and_others_theirs() {
        // Each of three had 100% and wants 150%: one more fits.
        let plan = plan(&vms(3), "150%", &[1, 2, 3], full());
        assert_eq!(kept(&plan), [1500, 1500, 1000]);
        let refusal = plan.vms[2].refusal.as_ref().unwrap();
        assert!(refusal.contains("150% cannot be reserved: this host has 100% left of 400%"));
    }

    #[test]
    fn what_is_left_is_told_without_what_it_has_itself_in_its_pool() {
        let tree =
            Tree::of(&[PoolSpec { reservation_mcpu: 2000, ..PoolSpec::named("prod") }]).unwrap();
        let layers = |_: &Vm| {
            let mut asked = Asked::default();
            asked.read(Key::Reservation, "450%").unwrap();
            asked.read(Key::Pool, "prod").unwrap();
            vec![Layer { origin: "test".to_owned(), asked }]
        };
        let parts = (tree, Partitions::default());
        let plan = Plan::new(parts, &vms(1), layers, &HashMap::from([(1, 500)]), &full());
        assert_eq!(kept(&plan), [500]);
        assert!(plan.vms[0].refusal.as_ref().unwrap().contains("this host has 200% left of 400%"));
    }
    fn confined(each: &[&str]) -> Vec<Vm> {
        let mut vms = vms(each.len() as u64);
        for (vm, cpus) in vms.iter_mut().zip(each) {
            vm.confine(Affinity::within(cpus.parse().unwrap()));
        }
        vms
    }

    #[test]
    fn who_is_confined_is_promised_what_its_set_holds() {
        let plan = plan(&confined(&["2-3", "2-3", "0-1"]), "140%", &[], full());
        assert_eq!(kept(&plan), [1400, 0, 1400]);
        let refusal = plan.vms[1].refusal.as_ref().unwrap();
        assert!(refusal.contains("140% cannot be reserved: pCPUs 2-3 have 60% left of 200%"));
    }

    #[test]
    fn who_is_confined_anew_takes_its_promise_along_and_all_there_keep_the_same_part() {
        let plan = plan(&confined(&["3", "3", "0-1"]), "100%", &[1, 2, 3], full());
        assert_eq!(kept(&plan), [500, 500, 1000]);
        assert_eq!(plan.shortages.len(), 1);
        assert_eq!(plan.holders(), HashMap::from([(1, 1000), (2, 1000), (3, 1000)]));
    }

    #[test]
    fn when_a_pcpu_of_a_set_goes_newcomers_to_it_get_nothing() {
        let capacity =
            Capacity { online: CpuList::all(3), known: CpuList::all(4), siblings: Siblings::new() };
        let plan = plan(&confined(&["2-3", "2-3", "0-1", "2-3"]), "60%", &[1, 2, 3], capacity);
        assert_eq!(kept(&plan), [500, 500, 600, 0]);
        let refusal = plan.vms[3].refusal.as_ref().unwrap();
        assert!(refusal.contains("pCPU 2 has 0% left of 100%"), "{refusal}");
    }

    #[test]
    fn promises_are_made_on_the_pcpus_of_the_default_partition() {
        let specs = r#"[{"name":"io","cpus":"2-3","policy":"credit"}]"#;
        let partitions = Partitions::of(serde_json::from_str(specs).unwrap()).unwrap();
        let layers = |vm: &Vm| {
            let mut asked = Asked::default();
            let (key, text) =
                if vm.name == "vm3" { (Key::Partition, "io") } else { (Key::Reservation, "150%") };
            asked.read(key, text).unwrap();
            vec![Layer { origin: "test".to_owned(), asked }]
        };
        let mut vms = vms(4);
        vms[3].confine(Affinity::within("3".parse().unwrap()));
        let parts = (Tree::default(), partitions);
        let plan = Plan::new(parts, &vms, layers, &HashMap::new(), &full());
        assert_eq!(kept(&plan), [1500, 0, 0, 0]);
        let refusal = |vm: usize| plan.vms[vm].refusal.clone().unwrap_or_default();
        assert!(
            refusal(1)
                .contains("150% cannot be reserved: partition \"default\" has 50% left of 200%"),
            "{}",
            refusal(1)
        );
        assert!(
            refusal(3).contains("it may run on pCPUs of other partitions only"),
            "{}",
            refusal(3)
        );
        let within = |cpus: &str| Affinity::within(cpus.parse().unwrap());
        let runs_on: Vec<&Affinity> = plan.vms.iter().map(|vm| &vm.affinity).collect();
        assert_eq!(runs_on, [&within("0-1"), &within("0-1"), &within("2-3"), &within("3")]);
    }
}

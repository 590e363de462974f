// SPDX-License-Identifier: GPL-2.0-only
//! Who is promised what: reservations of pools and VMs, in each partition on the pCPUs of that.
//!
//! Promises are made in a fixed order:
//! 1. to pools, parents before their children;
//! 2. to VMs that had a promise: what they had;
//! 3. to these again: what they want beyond that;
//! 4. to VMs whose affinity or partition has changed since they had theirs;
//! 5. to new VMs, those that users run last.
//!
//! When pCPUs go offline all promises stay. Where they no longer fit, in the partition or on a set of pCPUs, all are cut by
//! the same factor. VMs of 4 and 5 must fit on the pCPUs that are online. So a VM that moves onto pCPUs that are promised to
//! others may lose its own promise, and never takes theirs.
//!
//! Nothing is promised in partitions of another policy than `share`. Pools are promised on the pCPUs of `default`,
//! where the host's own tasks keep their part, too. A VM that is confined to pCPUs of other partitions than its own has
//! no promise.

use crate::names::Source;
use crate::plan::{Capacity, PlannedVm, Trouble};
use crate::registry::Vm;
use drover_core::asked::Key;
use drover_core::cpu_list::CpuList;
use drover_core::partition::{PartitionPolicy, Partitions};
use drover_core::percent;
use drover_core::tree::admission::{Ledger, Shortage, kept_mcpu, kept_of_pool};
use drover_core::tree::pcpus::Pcpus;
use drover_core::tree::{Affinity, Tree};
use std::collections::HashMap;

/// What the pCPUs of a partition hold, thousandths of a pCPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Room {
    /// In all, on those that are online.
    pub size_mcpu: u64,
    /// What the host's own tasks keep of that.
    pub host_mcpu: u32,
    /// What is promised, to VMs and pools.
    pub promised_mcpu: u64,
    /// What can still be promised.
    pub free_mcpu: u64,
}

/// What a VM had before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// What was promised to it, thousandths of a pCPU.
    pub promised_mcpu: u32,
    /// Where its vCPUs were confined then.
    pub on: Affinity,
    /// The name of its partition then.
    pub partition: String,
}

/// Why a VM is promised something, by which it is decided who is promised first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    /// It has a promise.
    Holds,
    /// It has one, and is confined to other pCPUs since, or in another partition.
    Moved,
    /// It has none.
    New,
    /// It has none, and a user runs it.
    NewOfUser,
}

/// The pCPUs of a partition.
struct Place {
    /// All that it ever had.
    known: Pcpus,
    /// Those online.
    online: Pcpus,
    /// It has lost its last one: who is in it runs where it may, and nothing can be kept.
    is_deserted: bool,
}

/// Promises in the making, for these VMs.
pub struct Promises<'a> {
    tree: &'a Tree,
    partitions: &'a Partitions,
    vms: &'a [Vm],
    holders: &'a HashMap<u64, Held>,
    capacity: &'a Capacity,
    /// What each partition has, `default` first; none: nothing is promised there.
    pub rooms: Vec<Option<Room>>,
    /// What of each pool's reservation can be kept.
    pub pools_mcpu: Vec<u32>,
    /// What can still be promised in each pool.
    pub pools_free_mcpu: Vec<u64>,
    /// Where not all that is promised can be kept, by VM.
    pub shortages: Vec<Shortage>,
    /// What was asked of pools and cannot be.
    pub troubles: Vec<Trouble>,
}

impl<'a> Promises<'a> {
    /// No promises yet, for these VMs. `holders`: what was promised to some of them before, by id.
    pub fn of(
        (tree, partitions): (&'a Tree, &'a Partitions),
        vms: &'a [Vm],
        holders: &'a HashMap<u64, Held>,
        capacity: &'a Capacity,
    ) -> Self {
        let (rooms, pools_mcpu, pools_free_mcpu) = (Vec::new(), Vec::new(), Vec::new());
        let (shortages, troubles) = (Vec::new(), Vec::new());
        Self {
            tree,
            partitions,
            vms,
            holders,
            capacity,
            rooms,
            pools_mcpu,
            pools_free_mcpu,
            shortages,
            troubles,
        }
    }

    /// Makes those of the next partition. `planned`: the VMs, in the order of those that this is for.
    pub fn make(&mut self, partition: Option<usize>, planned: &mut [PlannedVm]) {
        if self.partitions.policy(partition) != PartitionPolicy::Share {
            return self.rooms.push(None);
        }
        let place = self.place_of(partition);
        let mut ledger = self.ledger(partition, &place);
        if partition.is_none() {
            self.pools_mcpu = self.promise_pools(&mut ledger);
        }
        self.admit(partition, planned, &mut ledger, &place);
        let total_mcpu = ledger.total_mcpu();
        if partition.is_none() {
            let pools = 0..self.tree.pools().len();
            self.pools_free_mcpu = pools.map(|pool| ledger.free_mcpu(pool)).collect();
            for mcpu in &mut self.pools_mcpu {
                *mcpu = kept_of_pool(*mcpu, total_mcpu, &place.online);
            }
        }
        self.keep(partition, planned, total_mcpu, &place);
        let here = |mcpu: u64| if place.is_deserted { 0 } else { mcpu };
        self.rooms.push(Some(Room {
            size_mcpu: here(place.online.capacity_mcpu()),
            host_mcpu: u32::try_from(place.online.host_mcpu()).unwrap_or(u32::MAX),
            promised_mcpu: total_mcpu,
            free_mcpu: here(place.online.promisable_mcpu().saturating_sub(total_mcpu)),
        }));
    }

    /// Has a VM that comes alone, the pools apart, ask for what it wants.
    pub fn ask_alone(&mut self, vm: &mut PlannedVm) {
        let partition = vm.resolved.partition;
        if self.partitions.policy(partition) != PartitionPolicy::Share {
            return;
        }
        let place = self.place_of(partition);
        let mut ledger = self.ledger(partition, &place);
        if partition.is_none() {
            // A pool that has no promise itself is said to, and has none to give.
            self.promise_pools(&mut ledger);
        }
        vm.ask(&mut ledger, place.known.all());
    }

    /// Nothing is promised yet there.
    fn ledger(&self, partition: Option<usize>, at: &Place) -> Ledger<'a> {
        Ledger::new(self.tree, at.known.clone(), self.partitions.whole(partition))
    }

    /// While it has lost its last pCPU, `default` has all, and another one what it had.
    fn place_of(&self, partition: Option<usize>) -> Place {
        let Capacity { known, online, siblings, host_permille } = self.capacity;
        let own = |all: &CpuList| self.partitions.cpus_of(partition, all);
        let of = |all: &CpuList| {
            let pcpus = Pcpus::of(own(all).unwrap_or_else(|| all.clone()), all, siblings);
            match host_permille.filter(|_| partition.is_none()) {
                Some(permille) => pcpus.kept_for_host(permille),
                None => pcpus,
            }
        };
        let is_deserted = partition.is_some() && own(online).is_none();
        let there = if is_deserted { known } else { online };
        Place { known: of(known), online: of(there), is_deserted }
    }

    /// Promises the pools what they ask for, as far as it fits.
    fn promise_pools(&mut self, ledger: &mut Ledger) -> Vec<u32> {
        let mut promised = Vec::new();
        for (pool, it) in self.tree.pools().iter().enumerate() {
            promised.push(match ledger.promise_pool(pool) {
                Ok(()) => it.spec.reservation_mcpu,
                Err(refusal) => {
                    let whose = format!("pool {}", it.spec.name);
                    let text = refusal.to_string();
                    let (key, until) = (Key::Reservation, String::new());
                    self.troubles.push(Trouble { whose, key, text, until });
                    0
                }
            });
        }
        promised
    }

    /// Promises the VMs of that partition what they ask for, as far as it fits.
    fn admit(
        &self,
        partition: Option<usize>,
        planned: &mut [PlannedVm],
        ledger: &mut Ledger,
        at: &Place,
    ) {
        let (known, online) = (at.known.all(), &at.online);
        let name = self.partitions.name(partition);
        let of_vm = |place: usize| self.holders.get(&self.vms[place].kernel.id);
        let standing = |place: usize| match (of_vm(place), &self.vms[place]) {
            (Some(held), vm)
                if held.partition == name && vm.is_confined_as(&held.on, online.all()) =>
            {
                Standing::Holds
            }
            (Some(_), _) => Standing::Moved,
            (None, vm) if matches!(vm.identity.by, Source::User | Source::Container) => {
                Standing::NewOfUser
            }
            (None, _) => Standing::New,
        };
        let mut order: Vec<(Standing, usize)> = (0..planned.len())
            .filter(|&place| planned[place].resolved.partition == partition)
            .map(|place| (standing(place), place))
            .collect();
        // Those that stand alike go in the order they were found.
        order.sort();
        for &(standing, place) in &order {
            let vm = &mut planned[place];
            vm.leave_out(known, name);
            if let (Standing::Holds, Some(held)) = (standing, of_vm(place)) {
                vm.held_on = held.on.clone();
                vm.ask_again(ledger, known, held.promised_mcpu);
            }
        }
        let holds = order.partition_point(|(standing, _)| *standing == Standing::Holds);
        for &(_, place) in &order[..holds] {
            planned[place].ask(ledger, known);
        }
        let moved = order.partition_point(|(standing, _)| *standing <= Standing::Moved);
        for &(_, place) in &order[holds..moved] {
            if let Some(held) = of_vm(place) {
                planned[place].move_in(ledger, known, online, held.promised_mcpu);
            }
        }
        ledger.set_pcpus(online.clone());
        for &(_, place) in &order[holds..] {
            planned[place].ask(ledger, known);
        }
    }

    /// Notes what of the promises of that partition can be kept on the pCPUs that are online.
    fn keep(
        &mut self,
        partition: Option<usize>,
        planned: &mut [PlannedVm],
        total_mcpu: u64,
        at: &Place,
    ) {
        let is_here = |vm: &PlannedVm| vm.resolved.partition == partition;
        let here = planned.iter().filter(|vm| is_here(vm));
        let promises: Vec<(&Affinity, u32)> =
            here.map(|vm| (&vm.affinity, vm.promised_mcpu)).collect();
        let (kept, shortages) = match at.is_deserted {
            false => kept_mcpu(&promises, total_mcpu, &at.online),
            true => {
                let members = promises.iter().map(|(_, mcpu)| *mcpu > 0).collect();
                let nothing =
                    Shortage { cpus: None, promised_mcpu: total_mcpu, size_mcpu: 0, members };
                let short = (total_mcpu > 0).then_some(nothing);
                (vec![0; promises.len()], short.into_iter().collect())
            }
        };
        for short in shortages {
            let mut members = short.members.iter().copied();
            let of_all = planned.iter().map(|vm| is_here(vm) && members.next().unwrap_or(false));
            let members = of_all.collect();
            let whole = partition.map(|_| at.online.all().clone());
            self.shortages.push(Shortage { cpus: short.cpus.or(whole), members, ..short });
        }
        for (vm, kept) in planned.iter_mut().filter(|vm| is_here(vm)).zip(kept) {
            vm.reservation_mcpu = kept;
        }
    }
}

impl PlannedVm {
    /// Has it ask for nothing where it runs on pCPUs of other partitions.
    fn leave_out(&mut self, own: &CpuList, partition: &str) {
        let asked_mcpu = self.resolved.reservation_mcpu;
        if asked_mcpu > 0 && self.affinity.leaves(own) {
            self.refusal = Some(format!(
                "{} cannot be reserved: it may run on pCPUs of other partitions only, and is in \"{partition}\"; \
                 let it run on pCPUs of {own}",
                percent::text(asked_mcpu)
            ));
            self.resolved.reservation_mcpu = 0;
        }
    }

    /// Asks for what it had before, as far as it still wants it. Its set may not hold that any more.
    fn ask_again(&mut self, ledger: &mut Ledger, own: &CpuList, before_mcpu: u32) {
        let asked_mcpu = self.resolved.reservation_mcpu.min(before_mcpu);
        match ledger.renew(self.resolved.pool, &self.affinity.on(own), asked_mcpu.into()) {
            Ok(()) => self.promised_mcpu = asked_mcpu,
            Err(refusal) => self.refusal = Some(refusal.to_string()),
        }
    }

    /// Asks for what it had elsewhere, as far as it still wants it, on the pCPUs to which it is confined now.
    fn move_in(&mut self, ledger: &mut Ledger, own: &CpuList, online: &Pcpus, before_mcpu: u32) {
        let asked_mcpu = self.resolved.reservation_mcpu.min(before_mcpu);
        let affinity = self.affinity.on(own);
        match ledger.move_in(self.resolved.pool, &affinity, asked_mcpu.into(), online) {
            Ok(()) => self.promised_mcpu = asked_mcpu,
            Err(refusal) => self.refusal = Some(refusal.to_string()),
        }
    }

    /// Asks for what it lacks of its reservation.
    fn ask(&mut self, ledger: &mut Ledger, own: &CpuList) {
        let (pool, before_mcpu) = (self.resolved.pool, self.promised_mcpu);
        let asked_mcpu = self.resolved.reservation_mcpu;
        if asked_mcpu <= before_mcpu {
            return;
        }
        let affinity = self.affinity.on(own);
        match ledger.promise_instead(pool, &affinity, before_mcpu.into(), asked_mcpu.into()) {
            Ok(()) => self.promised_mcpu = asked_mcpu,
            Err(refusal) => self.refusal = Some(refusal.to_string()),
        }
    }
}

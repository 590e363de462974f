// SPDX-License-Identifier: GPL-2.0-only
//! From everything that is asked to what is to be in force: pure, and always of the whole host.
//!
//! Who is promised what is decided in [`crate::promises`].
//!
//! A VM for whose name a limit was set, and all that would have that name, stand in a pool of their own with that limit, so
//! that it holds for all of them together. Where no pool can be had each has its part of it.

use crate::promises::{Held, Promises, Room};
use crate::registry::Vm;
use drover_core::asked::Key;
use drover_core::cpu_list::CpuList;
use drover_core::partition::Partitions;
use drover_core::percent;
use drover_core::resolve::{self, Layer, Resolved, Why, resolve};
use drover_core::shares::SHARES_MAX;
use drover_core::tree::admission::Shortage;
use drover_core::tree::pcpus::Siblings;
use drover_core::tree::{Affinity, Tree};
use std::collections::{BTreeMap, HashMap};
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
    /// What the host's own tasks keep of each pCPU, in thousandths; none: nothing.
    pub host_permille: Option<u32>,
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
    /// Where they were confined when it had its promise.
    pub(crate) held_on: Affinity,
    /// In numbers, for the size it has now.
    shares: u32,
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
    /// What each partition has, keeps and can still promise, `default` first; none: nothing is promised there.
    pub rooms: Vec<Option<Room>>,
    /// Where not all that is promised can be kept, by VM.
    pub shortages: Vec<Shortage>,
    /// What was asked of pools and cannot be.
    troubles: Vec<Trouble>,
    /// Where each VM stands, by its id.
    places: HashMap<u64, usize>,
}

/// Something that was asked and cannot be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// Of whom, as people are told it: `VM web`, `pool prod`.
    pub whose: String,
    /// Which value.
    pub key: Key,
    /// Why not, and what to do.
    pub text: String,
    /// What is so until then; empty: nothing is to be said of that.
    pub until: String,
}

impl Trouble {
    /// What cannot be, whatever the numbers are by which it cannot.
    pub fn what(&self) -> (String, &'static str) {
        (self.whose.clone(), self.key.name())
    }

    /// What is said of it where it is so now: why not, what to do, and what is so until then.
    pub fn told(&self) -> String {
        match self.until.is_empty() {
            true => self.text.clone(),
            false => format!("{}; {}", self.text, self.until),
        }
    }

    /// What is said to who ordered it: nothing of it is so now.
    pub fn refusal(&self) -> String {
        format!("{}: nothing was changed: {}", self.whose, self.text)
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.whose, self.told())
    }
}

impl Plan {
    /// Plans for these VMs, of which those in `holders` had that promise before.
    /// `layers_of` says what everyone asks for a VM.
    pub fn new(
        (mut tree, partitions): (Tree, Partitions),
        vms: &[Vm],
        layers_of: impl Fn(&Vm) -> Vec<Layer>,
        holders: &HashMap<u64, Held>,
        capacity: &Capacity,
    ) -> Self {
        let named = count_names(vms);
        let planned = |vm: &Vm| {
            let named = named.get(name_of_limit(vm)).copied().unwrap_or(1);
            let resolved = resolve(&layers_of(vm), named, &tree, &partitions);
            let affinity = partitions.affinity(resolved.partition, vm.affinity(), &capacity.known);
            planned(vm, resolved, affinity)
        };
        let mut planned: Vec<PlannedVm> = vms.iter().map(planned).collect();
        let with_names = planned.iter_mut().zip(vms.iter().map(name_of_limit));
        limit_names(&mut tree, with_names, &named);
        let mut promises = Promises::of((&tree, &partitions), vms, holders, capacity);
        partitions.all().for_each(|partition| promises.make(partition, &mut planned));
        let Promises { rooms, pools_mcpu, pools_free_mcpu, shortages, troubles, .. } = promises;
        let places = planned.iter().enumerate().map(|(place, vm)| (vm.id, place)).collect();
        let vms = planned;
        Self {
            tree,
            partitions,
            pools_mcpu,
            pools_free_mcpu,
            vms,
            rooms,
            shortages,
            troubles,
            places,
        }
    }

    /// What that partition has, keeps and can still promise; none: nothing is promised there.
    pub fn room(&self, partition: Option<usize>) -> Option<Room> {
        let place = partition.map_or(0, |index| index + 1);
        self.rooms.get(place).copied().flatten()
    }

    /// The VM with that id.
    pub fn vm(&self, id: u64) -> Option<&PlannedVm> {
        self.places.get(&id).map(|&place| &self.vms[place])
    }

    /// What of what is asked for a VM could not be if it came alone, the pools apart.
    pub fn trouble_alone(
        parts: (&Tree, &Partitions),
        name: &str,
        layers: &[Layer],
        capacity: &Capacity,
    ) -> Option<Trouble> {
        // Where it will be confined is not known before it is there.
        let resolved = resolve(layers, 1, parts.0, parts.1);
        let mut vm = PlannedVm::new(0, name, 1, resolved, Affinity::ANYWHERE);
        Promises::of(parts, &[], &HashMap::new(), capacity).ask_alone(&mut vm);
        vm.troubles().next()
    }

    /// Everything that was asked and cannot be.
    pub fn troubles(&self) -> Vec<Trouble> {
        self.troubles.iter().cloned().chain(self.vms.iter().flat_map(PlannedVm::troubles)).collect()
    }

    /// The VMs to which something is promised, and what.
    pub fn holders(&self) -> HashMap<u64, Held> {
        let held = |vm: &PlannedVm| Held {
            promised_mcpu: vm.promised_mcpu,
            on: vm.held_on.clone(),
            partition: self.partitions.name(vm.resolved.partition).to_owned(),
        };
        let holders = self.vms.iter().filter(|vm| vm.promised_mcpu > 0);
        holders.map(|vm| (vm.id, held(vm))).collect()
    }
}

/// The name for which a limit that holds for that VM may be set.
fn name_of_limit(vm: &Vm) -> &str {
    vm.limited_as().unwrap_or(&vm.name)
}

/// How many VMs would have each name.
fn count_names(vms: &[Vm]) -> HashMap<&str, u32> {
    let mut named = HashMap::new();
    for vm in vms.iter().filter(|vm| !vm.is_container()) {
        *named.entry(name_of_limit(vm)).or_default() += 1;
    }
    named
}

/// Has limits that were set for a name hold for all VMs together that would have it: in a pool of their own, or in
/// one for each pool that they are in, by how many of them are there.
fn limit_names<'a>(
    tree: &mut Tree,
    planned: impl Iterator<Item = (&'a mut PlannedVm, &'a str)>,
    named: &HashMap<&str, u32>,
) {
    let mut groups: BTreeMap<_, Vec<&mut PlannedVm>> = BTreeMap::new();
    for (vm, name) in planned.filter(|(vm, _)| vm.resolved.limit_of_name_mcpu.is_some()) {
        // Pools are for partition `default`.
        let place = (vm.resolved.partition, vm.resolved.pool);
        groups.entry((name, place)).or_default().push(vm);
    }
    for ((name, (partition, pool)), inside) in groups {
        let limit_mcpu = u64::from(inside[0].resolved.limit_of_name_mcpu.unwrap_or(0));
        let all = u64::from(named.get(name).copied().unwrap_or(1));
        let part =
            |vms: usize| u32::try_from(limit_mcpu * vms as u64 / all).unwrap_or(u32::MAX).max(1);
        let shares = inside.iter().map(|vm| vm.shares).sum::<u32>().min(SHARES_MAX);
        let own = match partition {
            None => tree.add_name(name, pool, shares, part(inside.len())),
            Some(_) => None,
        };
        for vm in inside {
            match own {
                Some(pool) => vm.resolved.pool = Some(pool),
                None => vm.resolved.limit_mcpu = Some(part(1)),
            }
        }
    }
}

impl PlannedVm {
    fn new(id: u64, name: &str, size: u32, resolved: Resolved, affinity: Affinity) -> Self {
        Self {
            id,
            name: name.to_owned(),
            affinity,
            held_on: Affinity::ANYWHERE,
            shares: resolved.shares.of_vm(size),
            resolved,
            promised_mcpu: 0,
            reservation_mcpu: 0,
            refusal: None,
        }
    }

    /// Everything about it that was asked and cannot be.
    pub fn troubles(&self) -> impl Iterator<Item = Trouble> {
        let whose = format!("VM {}", self.name);
        let resolved = self.resolved.troubles.iter().cloned();
        let refused = self.refusal.iter().map(|text| resolve::Trouble {
            key: Key::Reservation,
            text: text.clone(),
            until: String::new(),
        });
        resolved.chain(refused).map(move |resolve::Trouble { key, text, until }| Trouble {
            whose: whose.clone(),
            key,
            text,
            until,
        })
    }

    /// Where each value that is in force came from.
    pub fn why(&self) -> Vec<Why> {
        let mut why = self.resolved.why.clone();
        for reservation in why.iter_mut().filter(|why| why.key == Key::Reservation) {
            let kept = percent::text(self.reservation_mcpu);
            if kept != reservation.value {
                let asked = std::mem::replace(&mut reservation.value, kept);
                reservation.origin += &format!(", where {asked} is asked");
            }
        }
        why
    }
}

fn planned(vm: &Vm, resolved: Resolved, affinity: Affinity) -> PlannedVm {
    let held_on = vm.affinity().clone();
    let planned = PlannedVm::new(vm.kernel.id, &vm.name, vm.kernel.size, resolved, affinity);
    PlannedVm { held_on, ..planned }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::KernelVm;
    use crate::names::Source;
    use drover_core::asked::{Asked, DEFAULT};
    use drover_core::shares::Shares;
    use drover_core::tree::PoolSpec;

    fn full() -> Capacity {
        Capacity {
            online: CpuList::all(4),
            known: CpuList::all(4),
            siblings: Siblings::new(),
            host_permille: None,
        }
    }

    fn half() -> Capacity {
        Capacity {
            online: CpuList::all(2),
            known: CpuList::all(4),
            siblings: Siblings::new(),
            host_permille: None,
        }
    }

    fn vms(count: u64) -> Vec<Vm> {
        let vm = |id| Vm::for_test(KernelVm::for_test(id), &format!("vm{id}"), Vec::new());
        (1..=count).map(vm).collect()
    }

    fn held_on(promised_mcpu: u32, on: Affinity) -> Held {
        Held { promised_mcpu, on, partition: DEFAULT.to_owned() }
    }

    fn plan(vms: &[Vm], reserved: &str, holders: &[u64], capacity: Capacity) -> Plan {
        let on = |id: u64| vms.iter().find(|vm| vm.kernel.id == id).unwrap().affinity().clone();
        let held = |id: &u64| (*id, held_on(1000, on(*id)));
        plan_after(vms, reserved, &holders.iter().map(held).collect(), &capacity)
    }

    fn plan_after(
        vms: &[Vm],
        reserved: &str,
        holders: &HashMap<u64, Held>,
        capacity: &Capacity,
    ) -> Plan {
        let layers = |_: &Vm| {
            let mut asked = Asked::default();
            asked.read(Key::Reservation, reserved).unwrap();
            vec![Layer { origin: "test".to_owned(), of_name: true, asked }]
        };
        Plan::new((Tree::default(), Partitions::default()), vms, layers, holders, capacity)
    }

    fn anywhere(id: u64, promised_mcpu: u32) -> HashMap<u64, Held> {
        HashMap::from([(id, held_on(promised_mcpu, Affinity::ANYWHERE))])
    }

    fn held(plan: &Plan) -> Vec<(u64, u32)> {
        let mut held: Vec<_> =
            plan.holders().iter().map(|(id, held)| (*id, held.promised_mcpu)).collect();
        held.sort_unstable();
        held
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
            host_permille: None,
        };
        assert_eq!(kept(&plan(&vms(3), "100%", &[1, 2], of("0-3"))), [1000, 1000, 0]);
        assert_eq!(kept(&plan(&vms(2), "100%", &[1, 2], of("0,2"))), [1000, 1000]);
        assert_eq!(kept(&plan(&vms(2), "100%", &[1, 2], of("0-1"))), [500, 500]);
    }

    #[test]
    fn who_comes_last_to_a_full_host_gets_no_promise_and_is_told() {
        let plan = plan(&vms(3), "150%", &[], full());
        assert_eq!(kept(&plan), [1500, 1500, 0]);
        assert_eq!(plan.room(None).unwrap().promised_mcpu, 3000);
        let told: Vec<String> = plan.vms[2].troubles().map(|it| it.to_string()).collect();
        assert!(
            told[0].contains("VM vm3: 150% cannot be reserved: this host has 100% left of 400%")
        );
    }

    #[test]
    fn the_host_keeps_a_part_of_what_is_reserved() {
        let capacity = || Capacity { host_permille: Some(100), ..full() };
        let plan = plan(&vms(3), "150%", &[], capacity());
        assert_eq!(kept(&plan), [1500, 1500, 0]);
        let host = plan.room(None).unwrap();
        assert_eq!((host.host_mcpu, host.free_mcpu), (400, 600));
        let refusal = plan.vms[2].refusal.as_ref().unwrap();
        assert!(refusal.contains("this host has 60% left of 400% (40% kept for"), "{refusal}");
    }

    #[test]
    fn who_has_a_promise_goes_before_who_has_none() {
        assert_eq!(kept(&plan(&vms(3), "150%", &[2, 3], full())), [0, 1500, 1500]);
    }

    #[test]
    fn when_pcpus_go_holders_keep_a_part_and_newcomers_get_nothing() {
        let plan = plan(&vms(3), "120%", &[1, 2], half());
        assert_eq!(plan.room(None).unwrap().promised_mcpu, 2400);
        assert_eq!(kept(&plan), [1000, 1000, 0]);
        assert!(plan.vms[2].refusal.as_ref().unwrap().contains("this host has 0% left of 200%"));
        assert_eq!(held(&plan), [(1, 1200), (2, 1200)]);
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
            vec![Layer { origin: "test".to_owned(), of_name: true, asked }]
        };
        let parts = (tree, Partitions::default());
        let plan = Plan::new(parts, &vms(1), layers, &anywhere(1, 500), &full());
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
    fn who_moves_onto_pcpus_that_are_promised_loses_its_promise_and_nobody_else_does() {
        // The one that moves was found first.
        let before = plan(&confined(&["0-2", "3", "0-2"]), "80%", &[], full());
        assert_eq!(kept(&before), [800, 800, 800]);
        let moved = confined(&["3", "3", "0-2"]);
        let after = plan_after(&moved, "80%", &before.holders(), &full());
        assert_eq!(kept(&after), [0, 800, 800]);
        assert!(after.shortages.is_empty());
        let refusal = after.vms[0].refusal.as_ref().unwrap();
        assert!(
            refusal.contains("80% cannot be reserved: pCPU 3 has 20% left of 100%"),
            "{refusal}"
        );
        let stays = plan_after(&moved, "80%", &after.holders(), &full());
        assert_eq!(kept(&stays), [0, 800, 800], "it waits behind who has one");
        let less = plan_after(&moved, "20%", &after.holders(), &full());
        assert_eq!(kept(&less), [200, 200, 200]);
    }

    #[test]
    fn who_moves_to_where_there_is_room_keeps_its_promise() {
        let before = plan(&confined(&["0", "1", "2-3"]), "80%", &[], full());
        let after = plan_after(&confined(&["1", "0", "2"]), "80%", &before.holders(), &full());
        assert_eq!(kept(&after), [800, 800, 800], "two that change places");
        assert!(after.troubles().is_empty());
    }

    #[test]
    fn a_pcpu_that_goes_confines_nobody_anew() {
        let capacity = || Capacity { online: CpuList::all(3), ..full() };
        let before = plan(&confined(&["2-3", "2-3", "0-1"]), "90%", &[], full());
        // The kernel does not name a pCPU that is offline.
        let vms = confined(&["2", "2", "0-1"]);
        let short = plan_after(&vms, "90%", &before.holders(), &capacity());
        assert_eq!(kept(&short), [500, 500, 900]);
        let back = plan_after(&confined(&["2-3", "2-3", "0-1"]), "90%", &short.holders(), &full());
        assert_eq!(kept(&back), [900, 900, 900]);
    }

    #[test]
    fn of_newcomers_those_that_users_run_come_last() {
        let mut vms = confined(&["3", "3", "0-1"]);
        vms[0].identity.by = Source::User;
        assert_eq!(kept(&plan(&vms, "80%", &[], full())), [0, 800, 800]);
    }

    #[test]
    fn a_limit_for_a_name_holds_for_all_vms_together_that_would_have_it() {
        let mut vms = vms(5);
        "x".clone_into(&mut vms[0].name);
        vms[1..4].iter_mut().for_each(|vm| vm.be_second_of("x"));
        let layers = |vm: &Vm| {
            let mut asked = Asked::default();
            asked.read(Key::Limit, "50%").unwrap();
            asked.read(Key::Reservation, "10%").unwrap();
            let pool = if vm.kernel.id == 4 { "prod" } else { "host" };
            asked.read(Key::Pool, pool).unwrap();
            vec![Layer { origin: "test".to_owned(), of_name: true, asked }]
        };
        let plan = |pools: &[PoolSpec]| {
            let parts = (Tree::of(pools).unwrap(), Partitions::default());
            Plan::new(parts, &vms, layers, &HashMap::new(), &full())
        };
        let two_places = plan(&[PoolSpec::named("prod")]);
        let pools: Vec<_> = two_places.tree.pools()[1..]
            .iter()
            .map(|pool| (pool.spec.name.as_str(), pool.spec.limit_mcpu, pool.spec.shares))
            .collect();
        assert_eq!(
            pools,
            [
                ("VMs \"x\" in host", Some(375), Shares::Exact(6000)),
                ("VMs \"x\" in prod", Some(125), Shares::Exact(2000)),
            ]
        );
        let of = |vm: &PlannedVm| (vm.resolved.pool, vm.resolved.limit_mcpu);
        let each: Vec<_> = two_places.vms.iter().map(of).collect();
        assert_eq!(each[2..], [(Some(1), Some(500)), (Some(2), Some(500)), (None, Some(500))]);
        assert_eq!(kept(&two_places), [100; 5]);
        // As deep as pools go there is no room for one more.
        let called =
            |depth: usize| if depth == 8 { "prod".to_owned() } else { format!("p{depth}") };
        let deep = |above: usize| PoolSpec {
            parent: (above > 0).then(|| called(above)),
            ..PoolSpec::named(&called(above + 1))
        };
        let deep = plan(&(0..8).map(deep).collect::<Vec<_>>());
        assert_eq!(of(&deep.vms[3]), (deep.tree.find("prod"), Some(125)));
    }

    #[test]
    fn when_a_pcpu_of_a_set_goes_newcomers_to_it_get_nothing() {
        let capacity = Capacity {
            online: CpuList::all(3),
            known: CpuList::all(4),
            siblings: Siblings::new(),
            host_permille: None,
        };
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
            vec![Layer { origin: "test".to_owned(), of_name: true, asked }]
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

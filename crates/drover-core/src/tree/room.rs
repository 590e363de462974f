// SPDX-License-Identifier: GPL-2.0-only
//! What sets of pCPUs can hold.
//!
//! VMs are confined to sets of pCPUs that may overlap. Do so many pCPUs for each of them fit? They do
//! when they flow through a network: from each VM to the sets its vCPUs are confined to, at most as
//! much as these can use; from a set to its pCPUs; from each pCPU at most one. Threads can then be
//! moved about so that everyone has its part and no vCPU runs twice at a time (T. Gonzalez, S. Sahni:
//! Open Shop Scheduling to Minimize Finish Time, 1976). What does not fit is found by augmenting paths
//! (L. Ford, D. Fulkerson: Maximal Flow through a Network, 1956); where these end, they have reached a
//! set that is full: a *bottleneck*, the VMs in it and what it has. That is Hall's condition: sets
//! fail only by unions of them that hold less than is asked within.
//!
//! pCPUs that are in the same sets are one node of the network, so hosts may be wide.
//!
//! Worked example: pCPUs 0-3; *a* may run on 0-1, *b* on 1-2, *c* on 0-2. 1.5 pCPUs for each of *a* and
//! *b* fill 0-2: the bottleneck is 0-2 with all three in it, and 3 pCPUs.

use super::affinity::Affinity;
use super::pcpus::Pcpus;
use crate::scenario::CpuList;
use std::collections::BTreeMap;

/// Amounts of CPU closer than this are the same, in pCPUs.
pub(crate) const TOLERANCE: f64 = 1e-9;

/// pCPUs, and who may use which of them.
#[derive(Debug)]
pub struct Room {
    pcpus: f64,
    /// pCPUs that are in the same sets, and how much they hold.
    groups: Vec<(CpuList, f64)>,
    /// The groups each set has.
    sets: Vec<Vec<usize>>,
    /// The sets of each VM, and how much of each it can use.
    seats: Vec<Vec<(usize, f64)>>,
}

/// A part of the host where no more fits than some VMs have there.
#[derive(Debug, Clone, PartialEq)]
pub struct Bottleneck {
    /// Who has it all, by VM.
    pub members: Vec<bool>,
    /// What these can have together, pCPUs.
    pub pcpus: f64,
    /// The pCPUs they may run on.
    pub cpus: CpuList,
}

impl Bottleneck {
    /// The sum over its members.
    pub(crate) fn sum(&self, amounts: &[f64]) -> f64 {
        amounts.iter().zip(&self.members).filter(|(_, member)| **member).map(|(it, _)| it).sum()
    }
}

impl Room {
    /// The pCPUs that are online, and VMs, each with how much one vCPU of it can use, pCPUs. Who may
    /// run on none that is online runs anywhere, as the kernel has it.
    pub fn new<'a>(online: &CpuList, vms: impl IntoIterator<Item = (&'a Affinity, f64)>) -> Self {
        Self::of(&Pcpus::cores(online.clone()), vms)
    }

    /// The same for reservations: each of two pCPUs that share a core holds half of it.
    pub fn of<'a>(pcpus: &Pcpus, vms: impl IntoIterator<Item = (&'a Affinity, f64)>) -> Self {
        let online = pcpus.all();
        let mut lists: Vec<CpuList> = Vec::new();
        // Of many VMs most have a set that another has, and lists are long.
        let mut numbers: BTreeMap<&'a CpuList, usize> = BTreeMap::new();
        let mut number = |there: &CpuList| {
            lists.iter().position(|known| known == there).unwrap_or_else(|| {
                lists.push(there.clone());
                lists.len() - 1
            })
        };
        let there = |cpus: &CpuList| cpus.common(online).unwrap_or_else(|| online.clone());
        let mut seats_of = |(affinity, of_vcpu): (&'a Affinity, f64)| {
            if affinity.is_anywhere() {
                return vec![(number(online), f64::INFINITY)];
            }
            let mut set = |cpus| *numbers.entry(cpus).or_insert_with(|| number(&there(cpus)));
            affinity.seats(of_vcpu).map(|(cpus, most)| (set(cpus), most)).collect::<Vec<_>>()
        };
        let seats = vms.into_iter().map(&mut seats_of).collect();
        let mut groups: BTreeMap<Vec<bool>, Vec<u32>> = BTreeMap::new();
        for &cpu in online.cpus() {
            let within = lists.iter().map(|list| list.contains(cpu)).collect();
            groups.entry(within).or_default().push(cpu);
        }
        let groups_of = |set: usize| {
            let within = groups.keys().enumerate().filter(|(_, within)| within[set]);
            within.map(|(group, _)| group).collect()
        };
        let sets = (0..lists.len()).map(groups_of).collect();
        let of_group = |cpus: Vec<u32>| {
            let cpus = CpuList::of(cpus).expect("a group has a pCPU");
            let holds = pcpus.holds_mcpu(&cpus) as f64 / 1e3;
            (cpus, holds)
        };
        let groups = groups.into_values().map(of_group).collect();
        Self { pcpus: pcpus.capacity_mcpu() as f64 / 1e3, groups, sets, seats }
    }

    /// How many pCPUs there are.
    pub fn pcpus(&self) -> f64 {
        self.pcpus
    }

    /// Where these amounts, one for each VM, do not fit; none: they do.
    pub fn bottleneck(&self, amounts: &[f64]) -> Option<Bottleneck> {
        let mut flow = Flow::new(self);
        // What those want who have one set is one amount: hosts may have many VMs and few sets.
        let mut of_sets = vec![0.0; self.sets.len()];
        let mut sources = Vec::new();
        for (vm, amount) in amounts.iter().enumerate() {
            match self.source(vm) {
                Node::Set(set) => of_sets[set] += amount,
                source => sources.push((source, *amount)),
            }
        }
        sources.extend(of_sets.into_iter().enumerate().map(|(set, it)| (Node::Set(set), it)));
        let mut left = None;
        for (source, amount) in sources {
            if flow.route(source, amount) > TOLERANCE {
                left = left.or(Some(source));
            }
        }
        left.map(|source| flow.bottleneck_of(source))
    }

    /// What of the last VM's amount fits beside all others, and where the rest of it does not.
    pub(crate) fn last(&self, amounts: &[f64]) -> (f64, Option<Bottleneck>) {
        let mut flow = Flow::new(self);
        let mut left = 0.0;
        let each = amounts.iter().enumerate();
        each.for_each(|(vm, amount)| left = flow.route(self.source(vm), *amount));
        let last = amounts.len() - 1;
        (amounts[last] - left, (left > TOLERANCE).then(|| flow.bottleneck_of(self.source(last))))
    }

    /// Where what a VM gets comes from: the VM, or its only set, of which it can use all.
    fn source(&self, vm: usize) -> Node {
        match self.seats[vm].as_slice() {
            [(set, _)] => Node::Set(*set),
            _ => Node::Vm(vm),
        }
    }
}

/// What fits of amounts when they cannot all be had.
#[derive(Debug, Clone, PartialEq)]
pub struct Kept {
    /// For each VM.
    pub amounts: Vec<f64>,
    /// Where they did not fit. Those in it who were in none before have the same part of their amounts.
    pub bottlenecks: Vec<Bottleneck>,
}

/// Has amounts shrink until they fit: all alike until the first bottleneck is not too narrow any more; who
/// is not in it goes on to more, and so on.
pub fn keep(room: &Room, amounts: &[f64]) -> Kept {
    let mut open = vec![true; amounts.len()];
    let mut kept = Kept { amounts: amounts.to_vec(), bottlenecks: Vec::new() };
    loop {
        let at = |part: f64, kept: &[f64]| -> Vec<f64> {
            let each = amounts.iter().zip(kept).zip(&open);
            each.map(|((amount, kept), open)| if *open { amount * part } else { *kept }).collect()
        };
        let (mut part, mut found) = (1.0, None);
        while let Some(full) = room.bottleneck(&at(part, &kept.amounts)) {
            let closed = full.sum(&at(0.0, &kept.amounts));
            let rising = full.sum(&at(1.0, &kept.amounts)) - closed;
            let fits = ((full.pcpus - closed) / rising).clamp(0.0, 1.0);
            let narrower = fits < part;
            (part, found) = (fits.min(part), Some(full));
            if !narrower {
                break;
            }
        }
        kept.amounts = at(part, &kept.amounts);
        let Some(full) = found else { return kept };
        let before = open.iter().filter(|open| **open).count();
        open.iter_mut().zip(&full.members).for_each(|(open, member)| *open &= !member);
        kept.bottlenecks.push(full);
        if open.iter().filter(|open| **open).count() == before {
            return kept;
        }
    }
}

/// A node of the network that paths lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Node {
    Vm(usize),
    Set(usize),
    Group(usize),
}

/// What flows so far.
struct Flow<'a> {
    room: &'a Room,
    /// From VMs that have several sets to these, as in `seats`; of the others nothing is kept.
    seated: Vec<Vec<f64>>,
    /// From sets to groups, as in `sets`.
    used: Vec<Vec<f64>>,
    /// Into each group.
    taken: Vec<f64>,
    /// VMs whose vCPUs have different sets: only these can give way to others.
    split: Vec<usize>,
}

/// How far paths from a VM lead, and from where each node was reached.
struct Reach {
    vms: Vec<Option<Node>>,
    sets: Vec<Option<Node>>,
    groups: Vec<Option<Node>>,
}

impl Reach {
    /// Notes a way to a node; whether it is the first.
    fn enter(&mut self, node: Node, from: Node) -> bool {
        let place = match node {
            Node::Vm(vm) => &mut self.vms[vm],
            Node::Set(set) => &mut self.sets[set],
            Node::Group(group) => &mut self.groups[group],
        };
        let new = place.is_none();
        *place = place.or(Some(from));
        new
    }

    fn from(&self, node: Node) -> Node {
        let from = match node {
            Node::Vm(vm) => self.vms[vm],
            Node::Set(set) => self.sets[set],
            Node::Group(group) => self.groups[group],
        };
        from.expect("it was reached")
    }
}

impl<'a> Flow<'a> {
    fn new(room: &'a Room) -> Self {
        let is_split = |seats: &Vec<(usize, f64)>| seats.len() > 1;
        let split = (0..room.seats.len()).filter(|&vm| is_split(&room.seats[vm])).collect();
        let seated = |seats| if is_split(seats) { vec![0.0; seats.len()] } else { Vec::new() };
        Self {
            room,
            seated: room.seats.iter().map(seated).collect(),
            used: room.sets.iter().map(|groups| vec![0.0; groups.len()]).collect(),
            taken: vec![0.0; room.groups.len()],
            split,
        }
    }

    /// Sends an amount from there to pCPUs; what of it finds no way.
    fn route(&mut self, source: Node, amount: f64) -> f64 {
        let mut left = amount;
        while left > 0.0 {
            let (reach, Some(group)) = self.reach(source) else { break };
            left -= self.augment(&reach, source, group, left);
        }
        left
    }

    /// All that can be reached from there; or a group with room, and the way to it.
    fn reach(&self, source: Node) -> (Reach, Option<usize>) {
        let room = self.room;
        let split = if self.split.is_empty() { 0 } else { room.seats.len() };
        let mut reach = Reach {
            vms: vec![None; split],
            sets: vec![None; room.sets.len()],
            groups: vec![None; room.groups.len()],
        };
        reach.enter(source, source);
        let mut next = vec![source];
        let mut at = 0;
        while let Some(&node) = next.get(at) {
            at += 1;
            if let Node::Group(group) = node {
                if self.taken[group] + TOLERANCE < room.groups[group].1 {
                    return (reach, Some(group));
                }
            }
            for to in self.neighbours(node) {
                if reach.enter(to, node) {
                    next.push(to);
                }
            }
        }
        (reach, None)
    }

    /// Where more can flow to, or what flows can be taken back from.
    fn neighbours(&self, node: Node) -> Vec<Node> {
        let room = self.room;
        match node {
            Node::Vm(vm) => {
                let seats = room.seats[vm].iter().zip(&self.seated[vm]);
                let open = seats.filter(|((_, most), seated)| **seated + TOLERANCE < *most);
                open.map(|((set, _), _)| Node::Set(*set)).collect()
            }
            Node::Set(set) => {
                let gives_way = |vm: &&usize| {
                    let seats = room.seats[**vm].iter().zip(&self.seated[**vm]);
                    seats.into_iter().any(|((of, _), seated)| *of == set && *seated > TOLERANCE)
                };
                let groups = room.sets[set].iter().map(|group| Node::Group(*group));
                groups.chain(self.split.iter().filter(gives_way).map(|vm| Node::Vm(*vm))).collect()
            }
            Node::Group(group) => {
                let uses = |set: &usize| {
                    let groups = room.sets[*set].iter().zip(&self.used[*set]);
                    groups.into_iter().any(|(of, used)| *of == group && *used > TOLERANCE)
                };
                (0..room.sets.len()).filter(uses).map(Node::Set).collect()
            }
        }
    }

    /// Sends as much as the way to that group takes, and says how much.
    fn augment(&mut self, reach: &Reach, source: Node, group: usize, most: f64) -> f64 {
        let mut way = vec![Node::Group(group)];
        while way[way.len() - 1] != source {
            way.push(reach.from(way[way.len() - 1]));
        }
        way.reverse();
        let free = self.room.groups[group].1 - self.taken[group];
        let steps = || way.windows(2).map(|step| (step[0], step[1]));
        let amount = steps().map(|(from, to)| self.takes(from, to)).fold(most.min(free), f64::min);
        for (from, to) in steps() {
            self.send(from, to, amount);
        }
        self.taken[group] += amount;
        amount
    }

    /// How much more can go that step.
    fn takes(&self, from: Node, to: Node) -> f64 {
        match (from, to) {
            (Node::Vm(vm), Node::Set(set)) => {
                let seat = self.seat(vm, set);
                self.room.seats[vm][seat].1 - self.seated[vm][seat]
            }
            (Node::Set(set), Node::Vm(vm)) => self.seated[vm][self.seat(vm, set)],
            (Node::Group(group), Node::Set(set)) => self.used[set][self.place(set, group)],
            _ => f64::INFINITY,
        }
    }

    fn send(&mut self, from: Node, to: Node, amount: f64) {
        match (from, to) {
            (Node::Vm(vm), Node::Set(set)) => {
                let seat = self.seat(vm, set);
                self.seated[vm][seat] += amount;
            }
            (Node::Set(set), Node::Vm(vm)) => {
                let seat = self.seat(vm, set);
                self.seated[vm][seat] -= amount;
            }
            (Node::Set(set), Node::Group(group)) => {
                let place = self.place(set, group);
                self.used[set][place] += amount;
            }
            (Node::Group(group), Node::Set(set)) => {
                let place = self.place(set, group);
                self.used[set][place] -= amount;
            }
            _ => unreachable!("the network has no such edge"),
        }
    }

    fn seat(&self, vm: usize, set: usize) -> usize {
        let seats = &self.room.seats[vm];
        seats.iter().position(|(of, _)| *of == set).expect("a VM's set")
    }

    fn place(&self, set: usize, group: usize) -> usize {
        self.room.sets[set].iter().position(|of| *of == group).expect("a set's group")
    }

    /// What keeps a VM from more: all that its ways reach is full.
    fn bottleneck_of(&self, source: Node) -> Bottleneck {
        let (reach, _) = self.reach(source);
        let room = self.room;
        let reached = |set: &usize| reach.sets[*set].is_some();
        let is_member = |(vm, seats): (usize, &Vec<(usize, f64)>)| {
            reach.vms.get(vm).is_some_and(Option::is_some)
                || seats.iter().all(|(set, _)| reached(set))
        };
        let members: Vec<bool> = room.seats.iter().enumerate().map(is_member).collect();
        let within = || room.seats.iter().zip(&members).filter(|(_, member)| **member);
        let groups = (0..room.groups.len()).filter(|&group| reach.groups[group].is_some());
        let full: f64 = groups.map(|group| room.groups[group].1).sum();
        // vCPUs that have all they can use, elsewhere.
        let beyond = within().flat_map(|(seats, _)| seats).filter(|(set, _)| !reached(set));
        let cpus = within().flat_map(|(seats, _)| seats).flat_map(|(set, _)| &room.sets[*set]);
        let cpus = cpus.flat_map(|group| room.groups[*group].0.cpus().iter().copied());
        Bottleneck {
            pcpus: full + beyond.map(|(_, most)| most).sum::<f64>(),
            cpus: CpuList::of(cpus).expect("a VM has pCPUs"),
            members,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn list(text: &str) -> CpuList {
        text.parse().unwrap()
    }

    fn within(text: &str) -> Affinity {
        Affinity::within(list(text))
    }

    fn room(pcpus: u32, vms: &[Affinity]) -> Room {
        Room::new(&CpuList::all(pcpus), vms.iter().map(|vm| (vm, 1.0)))
    }

    #[test]
    fn the_worked_example_of_the_header_holds() {
        let room = room(4, &[within("0-1"), within("1-2"), within("0-2")]);
        assert_eq!(room.bottleneck(&[1.5, 1.5, 0.0]), None);
        let full = room.bottleneck(&[1.5, 1.5, 0.1]).unwrap();
        assert_eq!((full.members, full.pcpus, full.cpus), (vec![true; 3], 3.0, list("0-2")));
    }

    #[test]
    fn vcpus_with_sets_of_their_own_go_where_there_is_room() {
        let split = Affinity::of_vcpus([list("0"), list("1-2")]);
        let room = room(3, &[split, within("0"), within("1")]);
        assert_eq!(room.bottleneck(&[1.5, 0.5, 1.0]), None);
        let full = room.bottleneck(&[1.6, 0.5, 0.0]).unwrap();
        assert_eq!((full.members, full.pcpus), (vec![true, true, false], 2.0));
        assert_eq!(full.cpus, list("0-2"));
        // The VM that came first moves over to its other vCPU.
        let (fits, full) = room.last(&[1.0, 0.0, 1.5]);
        assert_eq!((fits, full.unwrap().cpus), (1.0, list("1")));
        assert_eq!(room.last(&[1.0, 1.0, 1.0]), (1.0, None));
    }

    #[test]
    fn who_may_run_on_no_pcpu_that_is_online_runs_anywhere() {
        assert_eq!(room(2, &[within("2-3")]).bottleneck(&[2.0]), None);
        let room = room(3, &[within("2-3"), within("0-2")]);
        assert_eq!(room.bottleneck(&[1.5, 0.0]).unwrap().cpus, list("2"));
    }

    #[test]
    fn what_does_not_fit_shrinks_alike_where_it_does_not() {
        let room = room(4, &[within("2-3"), within("3"), Affinity::ANYWHERE]);
        let kept = keep(&room, &[1.8, 0.9, 1.0]);
        assert_eq!(kept.bottlenecks.len(), 1, "{kept:?}");
        let part = 2.0 / 2.7;
        let expected = [1.8 * part, 0.9 * part, 1.0];
        assert!(kept.amounts.iter().zip(expected).all(|(kept, it)| (kept - it).abs() < 1e-9));
        assert_eq!(keep(&room, &[1.0, 0.5, 2.5]).bottlenecks, []);
        // pCPU 3 first, then all of the host.
        let kept = keep(&room, &[1.0, 2.0, 4.0]);
        let expected = [0.6, 1.0, 2.4];
        assert!(kept.amounts.iter().zip(expected).all(|(kept, it)| (kept - it).abs() < 1e-9));
    }

    proptest! {
        #[test]
        fn amounts_fit_where_no_union_of_sets_holds_less(
            vms in prop::collection::vec(
                (prop::collection::btree_set(0u32..6, 1..4), 0.0..2.5f64), 1..8,
            ),
        ) {
            let affinity = |cpus: &std::collections::BTreeSet<u32>| {
                Affinity::within(CpuList::of(cpus.iter().copied()).unwrap())
            };
            let affinities: Vec<Affinity> = vms.iter().map(|(cpus, _)| affinity(cpus)).collect();
            let amounts: Vec<f64> = vms.iter().map(|(_, amount)| *amount).collect();
            let room = room(6, &affinities);
            // By Hall's condition, over all unions.
            let fits = |amounts: &[f64]| (0u32..1 << 6).all(|chosen| {
                let inside = vms.iter().map(|(cpus, _)| cpus.iter().all(|cpu| chosen >> cpu & 1 == 1));
                let asked: f64 = inside.zip(amounts).filter(|(inside, _)| *inside).map(|(_, it)| it).sum();
                asked <= f64::from(chosen.count_ones()) + 1e-6
            });
            match room.bottleneck(&amounts) {
                None => prop_assert!(fits(&amounts)),
                Some(full) => {
                    prop_assert!(full.sum(&amounts) > full.pcpus);
                    prop_assert_eq!(full.pcpus, full.cpus.cpus().len() as f64);
                }
            }
            prop_assert!(fits(&keep(&room, &amounts).amounts));
        }
    }
}

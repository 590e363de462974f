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
//! pCPUs that are in the same sets are one node of the network, so hosts may be wide; and VMs whose vCPUs all have
//! the same set flow from that set as one, so there may be many.
//!
//! Worked example: pCPUs 0-3; *a* may run on 0-1, *b* on 1-2, *c* on 0-2. 1.5 pCPUs for each of *a* and
//! *b* fill 0-2: the bottleneck is 0-2 with all three in it, and 3 pCPUs.

use super::affinity::Affinity;
use super::pcpus::Pcpus;
use super::steps;
use crate::cpu_list::CpuList;
use std::collections::{BTreeMap, BTreeSet, HashMap};

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
    /// Where each VM's amount flows from.
    sources: Vec<Source>,
    /// VMs whose vCPUs have different sets: those, and how much of each they can use.
    split: Vec<Vec<(usize, f64)>>,
}

/// Where an amount flows from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// From that set, with that of all other VMs of it.
    Set(usize),
    /// From a VM whose vCPUs have different sets.
    Split(usize),
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
        let mut numbers: HashMap<CpuList, usize> = HashMap::new();
        let mut lists: Vec<CpuList> = Vec::new();
        let mut number = |cpus: &CpuList| {
            let there = cpus.common(online).unwrap_or_else(|| online.clone());
            *numbers.entry(there).or_insert_with_key(|there| {
                lists.push(there.clone());
                lists.len() - 1
            })
        };
        let mut split: Vec<Vec<(usize, f64)>> = Vec::new();
        let mut source_of = |(affinity, of_vcpu): (&Affinity, f64)| {
            if affinity.is_anywhere() {
                return Source::Set(number(online));
            }
            // Sets may be the same on the pCPUs that are online.
            let mut seats: BTreeMap<usize, f64> = BTreeMap::new();
            for (cpus, most) in affinity.seats(of_vcpu) {
                *seats.entry(number(cpus)).or_default() += most;
            }
            if !affinity.is_split() {
                return Source::Set(*seats.keys().next().expect("it has a set"));
            }
            split.push(seats.into_iter().collect());
            Source::Split(split.len() - 1)
        };
        let sources = vms.into_iter().map(&mut source_of).collect();
        let mut within: BTreeMap<u32, Vec<usize>> =
            online.cpus().iter().map(|&cpu| (cpu, Vec::new())).collect();
        for (set, list) in lists.iter().enumerate() {
            for cpu in list.cpus() {
                within.get_mut(cpu).expect("it is online").push(set);
            }
        }
        let mut groups: BTreeMap<Vec<usize>, Vec<u32>> = BTreeMap::new();
        for (cpu, within) in within {
            groups.entry(within).or_default().push(cpu);
        }
        let mut sets = vec![Vec::new(); lists.len()];
        for (group, within) in groups.keys().enumerate() {
            within.iter().for_each(|&set| sets[set].push(group));
        }
        let of_group = |cpus: Vec<u32>| {
            let cpus = CpuList::of(cpus).expect("a group has a pCPU");
            let holds = pcpus.holds_mcpu(&cpus) as f64 / 1e3;
            (cpus, holds)
        };
        let groups = groups.into_values().map(of_group).collect();
        Self { pcpus: pcpus.capacity_mcpu() as f64 / 1e3, groups, sets, sources, split }
    }

    /// How many pCPUs there are.
    pub fn pcpus(&self) -> f64 {
        self.pcpus
    }

    /// Where these amounts, one for each VM, do not fit; none: they do.
    pub fn bottleneck(&self, amounts: &[f64]) -> Option<Bottleneck> {
        let mut flow = Flow::new(self);
        let left = flow.route_all(self.sources.iter().copied().zip(amounts.iter().copied()));
        left.map(|source| flow.bottleneck_of(source))
    }

    /// What of the last VM's amount fits beside all others, and where the rest of it does not.
    pub(crate) fn last(&self, amounts: &[f64]) -> (f64, Option<Bottleneck>) {
        let mut flow = Flow::new(self);
        let mut all: Vec<_> = self.sources.iter().copied().zip(amounts.iter().copied()).collect();
        let (source, amount) = all.pop().expect("there is a last one");
        flow.route_all(all.into_iter());
        let left = flow.route(source, amount);
        (amount - left, (left > TOLERANCE).then(|| flow.bottleneck_of(source)))
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
    Split(usize),
    Set(usize),
    Group(usize),
}

impl Node {
    fn group(self) -> Option<usize> {
        match self {
            Node::Group(group) => Some(group),
            Node::Set(_) | Node::Split(_) => None,
        }
    }
}

impl From<Source> for Node {
    fn from(source: Source) -> Self {
        match source {
            Source::Set(set) => Node::Set(set),
            Source::Split(vm) => Node::Split(vm),
        }
    }
}

/// What flows so far.
struct Flow<'a> {
    room: &'a Room,
    /// From VMs to sets, as in `split`.
    seated: Vec<Vec<f64>>,
    /// From sets to groups, as in `sets`.
    used: Vec<Vec<f64>>,
    /// Into each group.
    taken: Vec<f64>,
    /// The VMs that have a seat in each set: these can give way to others.
    split_in: Vec<Vec<usize>>,
    /// The sets that have used each group: these can, too.
    users: Vec<Vec<usize>>,
    /// From here no way leads to a group with room any more.
    closed: Reach,
}

/// How far paths from a source lead, and from where each node was reached.
struct Reach {
    split: Vec<Option<Node>>,
    sets: Vec<Option<Node>>,
    groups: Vec<Option<Node>>,
}

impl Reach {
    fn nothing(room: &Room) -> Self {
        Self {
            split: vec![None; room.split.len()],
            sets: vec![None; room.sets.len()],
            groups: vec![None; room.groups.len()],
        }
    }

    fn place(&mut self, node: Node) -> &mut Option<Node> {
        match node {
            Node::Split(vm) => &mut self.split[vm],
            Node::Set(set) => &mut self.sets[set],
            Node::Group(group) => &mut self.groups[group],
        }
    }

    /// Notes a way to a node; whether it is the first.
    fn enter(&mut self, node: Node, from: Node) -> bool {
        let place = self.place(node);
        let new = place.is_none();
        *place = place.or(Some(from));
        new
    }

    fn from(&self, node: Node) -> Option<Node> {
        match node {
            Node::Split(vm) => self.split[vm],
            Node::Set(set) => self.sets[set],
            Node::Group(group) => self.groups[group],
        }
    }
}

impl<'a> Flow<'a> {
    fn new(room: &'a Room) -> Self {
        let mut split_in = vec![Vec::new(); room.sets.len()];
        for (vm, seats) in room.split.iter().enumerate() {
            seats.iter().for_each(|(set, _)| split_in[*set].push(vm));
        }
        Self {
            room,
            seated: room.split.iter().map(|seats| vec![0.0; seats.len()]).collect(),
            used: room.sets.iter().map(|groups| vec![0.0; groups.len()]).collect(),
            taken: vec![0.0; room.groups.len()],
            split_in,
            users: vec![Vec::new(); room.groups.len()],
            closed: Reach::nothing(room),
        }
    }

    /// Sends all amounts, those of a set as one; a source of which something found no way.
    fn route_all(&mut self, amounts: impl Iterator<Item = (Source, f64)>) -> Option<Source> {
        let mut of_sets = vec![0.0; self.room.sets.len()];
        let mut of_split = Vec::new();
        for (source, amount) in amounts {
            match source {
                Source::Set(set) => of_sets[set] += amount,
                Source::Split(_) => of_split.push((source, amount)),
            }
        }
        let sets = of_sets.into_iter().enumerate().map(|(set, amount)| (Source::Set(set), amount));
        let mut left = None;
        for (source, amount) in sets.chain(of_split) {
            if self.route(source, amount) > TOLERANCE {
                left = left.or(Some(source));
            }
        }
        left
    }

    /// Sends an amount to pCPUs; what of it finds no way.
    fn route(&mut self, source: Source, amount: f64) -> f64 {
        let mut left = amount;
        while left > 0.0 {
            let Some((reach, group)) = self.reach(source) else { break };
            left -= self.augment(&reach, source, group, left);
        }
        left
    }

    /// A group with room, and the way to it from a source. Where none is found, none will be: what is sent from
    /// elsewhere later cannot pass through there.
    fn reach(&mut self, source: Source) -> Option<(Reach, usize)> {
        let first = Node::from(source);
        if self.closed.from(first).is_some() {
            return None;
        }
        let mut reach = Reach::nothing(self.room);
        let is_closed = |node: Node| self.closed.from(node).is_some();
        let (next, found) = self.walk(first, &mut reach, is_closed, |group| {
            self.taken[group] + TOLERANCE < self.room.groups[group].1
        });
        if found.is_none() {
            for node in next {
                self.closed.enter(node, node);
            }
        }
        found.map(|group| (reach, group))
    }

    /// Goes on from a node until a group is found to which that applies; all nodes that were entered, and that group.
    fn walk(
        &self,
        first: Node,
        reach: &mut Reach,
        is_closed: impl Fn(Node) -> bool,
        is_it: impl Fn(usize) -> bool,
    ) -> (Vec<Node>, Option<usize>) {
        reach.enter(first, first);
        let mut next = vec![first];
        let mut at = 0;
        while let Some(&node) = next.get(at) {
            at += 1;
            for to in self.neighbours(node) {
                steps::count(1);
                if is_closed(to) || !reach.enter(to, node) {
                    continue;
                }
                next.push(to);
                if let Some(group) = to.group().filter(|group| is_it(*group)) {
                    return (next, Some(group));
                }
            }
        }
        (next, None)
    }

    /// Where more can flow to, or what flows can be taken back from: groups first, which may have room.
    fn neighbours(&self, node: Node) -> Box<dyn Iterator<Item = Node> + '_> {
        let room = self.room;
        match node {
            Node::Split(vm) => {
                let seats = room.split[vm].iter().zip(&self.seated[vm]);
                let open = seats.filter(|((_, most), seated)| **seated + TOLERANCE < *most);
                Box::new(open.map(|((set, _), _)| Node::Set(*set)))
            }
            Node::Set(set) => {
                let gives_way =
                    move |vm: &&usize| self.seated[**vm][self.seat(**vm, set)] > TOLERANCE;
                let groups = room.sets[set].iter().map(|group| Node::Group(*group));
                let split = self.split_in[set].iter().inspect(|_| steps::count(1));
                Box::new(groups.chain(split.filter(gives_way).map(|vm| Node::Split(*vm))))
            }
            Node::Group(group) => {
                let uses =
                    move |set: &&usize| self.used[**set][self.place(**set, group)] > TOLERANCE;
                let users = self.users[group].iter().inspect(|_| steps::count(1));
                Box::new(users.filter(uses).map(|set| Node::Set(*set)))
            }
        }
    }

    /// Sends as much as the way to that group takes, and says how much.
    fn augment(&mut self, reach: &Reach, source: Source, group: usize, most: f64) -> f64 {
        let first = Node::from(source);
        let mut way = vec![Node::Group(group)];
        while way[way.len() - 1] != first {
            way.push(reach.from(way[way.len() - 1]).expect("it was reached"));
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
            (Node::Split(vm), Node::Set(set)) => {
                let seat = self.seat(vm, set);
                self.room.split[vm][seat].1 - self.seated[vm][seat]
            }
            (Node::Set(set), Node::Split(vm)) => self.seated[vm][self.seat(vm, set)],
            (Node::Group(group), Node::Set(set)) => self.used[set][self.place(set, group)],
            _ => f64::INFINITY,
        }
    }

    fn send(&mut self, from: Node, to: Node, amount: f64) {
        match (from, to) {
            (Node::Split(vm), Node::Set(set)) => {
                let seat = self.seat(vm, set);
                self.seated[vm][seat] += amount;
            }
            (Node::Set(set), Node::Split(vm)) => {
                let seat = self.seat(vm, set);
                self.seated[vm][seat] -= amount;
            }
            (Node::Set(set), Node::Group(group)) => {
                let place = self.place(set, group);
                if self.used[set][place] == 0.0 {
                    self.users[group].push(set);
                }
                self.used[set][place] += amount;
            }
            (Node::Group(group), Node::Set(set)) => {
                let place = self.place(set, group);
                // What is left over in rounding keeps it among the users: it is entered once.
                self.used[set][place] = (self.used[set][place] - amount).max(f64::MIN_POSITIVE);
            }
            _ => unreachable!("the network has no such edge"),
        }
    }

    fn seat(&self, vm: usize, set: usize) -> usize {
        let seats = &self.room.split[vm];
        seats.iter().position(|(of, _)| *of == set).expect("a VM's set")
    }

    /// The groups of a set are in their order.
    fn place(&self, set: usize, group: usize) -> usize {
        self.room.sets[set].binary_search(&group).expect("a set's group")
    }

    /// What keeps a source from more: all that its ways reach is full.
    fn bottleneck_of(&self, source: Source) -> Bottleneck {
        let room = self.room;
        let mut reach = Reach::nothing(room);
        self.walk(source.into(), &mut reach, |_| false, |_| false);
        let reached = |set: &usize| reach.sets[*set].is_some();
        let is_in: Vec<bool> = (room.split.iter().zip(&reach.split))
            .map(|(seats, vm)| vm.is_some() || seats.iter().all(|(set, _)| reached(set)))
            .collect();
        let member = |source: &Source| match source {
            Source::Set(set) => reached(set),
            Source::Split(vm) => is_in[*vm],
        };
        let members: Vec<bool> = room.sources.iter().map(member).collect();
        let groups = (0..room.groups.len()).filter(|&group| reach.groups[group].is_some());
        let full: f64 = groups.map(|group| room.groups[group].1).sum();
        // vCPUs that have all they can use, elsewhere.
        let split = || room.split.iter().zip(&is_in).filter(|(_, is_in)| **is_in);
        let seats = || split().flat_map(|(seats, _)| seats);
        let beyond = seats().filter(|(set, _)| !reached(set));
        let sets: BTreeSet<usize> =
            (0..room.sets.len()).filter(reached).chain(seats().map(|(set, _)| *set)).collect();
        let groups: BTreeSet<usize> =
            sets.iter().flat_map(|&set| &room.sets[set]).copied().collect();
        let cpus = groups.iter().flat_map(|&group| room.groups[group].0.cpus().iter().copied());
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

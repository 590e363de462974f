// SPDX-License-Identifier: GPL-2.0-only
//! The keeper: what is remembered of homes between two looks.
//!
//! [`place`] knows one moment. The keeper calls it again and again, for the daemon and for the simulator alike,
//! and sees to it that nobody is moved for what passes: a VM is given its home a second after it was found;
//! every 2 s it is asked who would be better off elsewhere; a VM keeps its home for 30 s at least, and nobody
//! leaves while the memory of two is on its way. What VMs want is averaged over 10 s or so: demand that swings
//! faster moves nobody. Who was crowded more than others on average is owed a better home in time, who was
//! crowded less owes it: so VMs of equal shares that two nodes cannot hold alike take turns.
//!
//! Worked example. Three VMs want four pCPUs each, on two nodes of four. A and B share node 0: half of what they
//! want is not there. C has node 1. The mean is a third, so in each 30 s A and B are owed 1/6 more and C 1/3 less.
//! After a minute they are 0.9 apart, and it pays for B to go to C, in spite of memory that has to follow: A is alone.
//!
//! Who is to share an LLC because its threads, or another VM, wake it often is found out here, too ([`super::draw`]).
//!
//! Limitations. Each turn moves all of a VM's memory, at the daemon's pace: of 64 GiB that takes four minutes.
//!
//! What others have decided stays: such a VM has a home to be shown, and counts where it is.

use super::cost::holds;
use super::draw::{Draw, Woken};
use super::{
    Client, Heuristic, Home, HomeNumber, Host, Kind, Move, Part, Set, Shape, VirtualNode, Within,
    parts, place,
};
use crate::asked::Consolidate;
use crate::sets::SetSpec;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

/// How often homes are looked at, and how often it is asked who would be better off elsewhere.
pub const INTERVAL: Duration = Duration::from_millis(500);
const BALANCES: Duration = Duration::from_secs(2);
/// So many VMs leave their homes at once, and nobody while the memory of so many is on its way.
const MOST_MOVES: usize = 2;
/// How old a VM is before it is given a home.
const SETTLES: Duration = Duration::from_secs(1);
/// Until it is so old, it is taken to want all of its vCPUs.
const YOUNG: Duration = Duration::from_secs(10);
/// How long a VM keeps its home at least.
const KEEPS: Duration = Duration::from_secs(30);
/// Memory that has not moved by then will not hold others up.
const ON_ITS_WAY: Duration = Duration::from_secs(120);
/// Wishes, and crowding, are averaged over so long.
const WANTS_OVER: Duration = Duration::from_secs(10);
const CROWDED_OVER: Duration = Duration::from_secs(30);
/// The reasons shown for a home that others chose, and for a VM without a home.
const BY_OTHERS: &str = "an affinity, cpuset or memory policy has it there";
const NO_HOME: &str = "no node has the memory for it, or a hard set leaves it none";
/// Nobody is owed more for having been crowded.
const CROWDED_MOST: f64 = 2.0;

/// A VM as it is now.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// Its number.
    pub id: u64,
    /// What it is called.
    pub name: String,
    /// Its vCPUs.
    pub vcpus: u32,
    /// CPU time it wanted lately, pCPUs; none: not known yet.
    pub wanted_pcpus: Option<f64>,
    /// What is reserved for it, pCPUs.
    pub reserved_pcpus: f64,
    /// At most so many of its vCPUs on a node.
    pub max_per_node: Option<u32>,
    /// The nodes that its guest has; empty: it knows of none.
    pub virtual_nodes: Vec<VirtualNode>,
    /// The node of a device that is passed through to it.
    pub device: Option<u32>,
    /// Whether it is to live in one LLC, if it fits.
    pub consolidate: Consolidate,
    /// Who wakes it; none: not known.
    pub woken: Option<Woken>,
    /// The part of its time that its affinity has it spend on each node; empty: it may run anywhere.
    pub on_nodes: BTreeMap<u32, f64>,
    /// The node that was ordered as its home.
    pub ordered: Option<u32>,
    /// Others have put it somewhere: on that node, if it is one.
    pub placed_by_others: Option<Option<u32>>,
    /// Its memory; none: it was not looked at yet.
    pub memory: Option<Memory>,
    /// What it has of caches and memory lately.
    pub pressure: Pressure,
}

/// What a VM was measured to have of caches and memory, by whatever the host offers.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Pressure {
    /// The part of last-level caches that it fills, MiB; none: not known.
    pub cache_mib: Option<f64>,
    /// What it reads from memory and writes there, MiB/s; none: not known.
    pub memory_mib_s: Option<f64>,
}

impl Seen {
    /// What it is split by.
    pub fn shape(&self, memory: &Memory) -> Shape {
        let Self { vcpus, max_per_node, .. } = *self;
        let virtual_nodes = self.virtual_nodes.clone();
        Shape { vcpus, memory_mib: memory.expected_mib, max_per_node, virtual_nodes }
    }
}

/// A VM's memory.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Memory {
    /// What lies on each node, MiB.
    pub lies_mib: BTreeMap<u32, u64>,
    /// What it has or may come to have, MiB.
    pub expected_mib: u64,
    /// It cannot be moved.
    pub is_stuck: bool,
    /// The part of it that lies at home, %; none: it has no home.
    pub local_pct: Option<f64>,
}

/// What is asked of all homes together.
#[derive(Debug, Clone, Default)]
pub struct Wishes {
    /// How homes are chosen.
    pub heuristic: Heuristic,
    /// VMs that belong together or apart; some may not be there.
    pub sets: Vec<SetSpec>,
}

/// A node, and who lives there, for people.
#[derive(Debug, Clone, PartialEq)]
pub struct Crowd {
    /// What is wanted there, pCPUs.
    pub wanted_pcpus: f64,
    /// The part of that for which there is no pCPU, or no even part of caches that VMs miss all the time.
    pub crowded: f64,
    /// VMs that have a home there, by their places among those given.
    pub vms: Vec<usize>,
}

/// What a move is, or would be, for people.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedMove {
    /// The VM.
    pub id: u64,
    /// What it is called.
    pub name: String,
    /// Its part, of so many.
    pub part: (usize, usize),
    /// From there; none: it had no home.
    pub from: Option<HomeNumber>,
    /// To there.
    pub to: HomeNumber,
    /// Why.
    pub why: String,
}

/// What is known of a VM.
#[derive(Debug)]
struct Kept {
    since: Duration,
    looked: Duration,
    /// What it wants, pCPUs.
    wants: f64,
    /// What it has of caches and memory, MiB and MiB/s; 0: not known.
    cache_mib: f64,
    memory_mib_s: f64,
    /// Its parts; none: nobody has asked yet.
    parts: Vec<Part>,
    /// The homes of these, or one of all that it has not, or that others chose.
    homes: Vec<Option<HomeNumber>>,
    /// Since when it has these.
    settled: Duration,
    /// How often a part left its home.
    migrations: u32,
    /// Why it has the last of its homes.
    why: String,
    /// It is where it was put by others: nothing is moved.
    is_left_alone: bool,
    /// Whose LLC it is to share.
    draw: Draw,
    /// How much more crowded it was than the host on average, in periods of `CROWDED_OVER`.
    crowded: f64,
}

/// Remembers homes.
#[derive(Debug, Default)]
pub struct Keeper {
    kept: HashMap<u64, Kept>,
    balanced: Option<Duration>,
    /// All homes are on one node: only those of one LLC mean anything.
    is_one_node: bool,
}

impl Keeper {
    /// Looks at all VMs, every [`INTERVAL`]: the moves that are made now, and the VMs whose homes are others
    /// than they were. `now`: since any moment.
    pub fn look(
        &mut self,
        host: Host,
        vms: &[Seen],
        wishes: &Wishes,
        now: Duration,
    ) -> (Vec<NamedMove>, Vec<u64>) {
        let here: HashSet<u64> = vms.iter().map(|vm| vm.id).collect();
        self.kept.retain(|id, _| here.contains(id));
        let mut changed = Vec::new();
        for vm in vms {
            let kept = self.kept.entry(vm.id).or_insert_with(|| Kept::new(now));
            kept.note(vm, now);
            if vm.memory.is_some() && kept.is_settled(now) && kept.leave_to(vm.placed_by_others) {
                changed.push(vm.id);
            }
        }
        self.is_one_node = host.nodes.iter().filter(|node| node.memory_mib > 0).count() < 2;
        self.draw(&host, vms, now);
        let survey = Survey::of(host, vms, &self.kept, wishes, now);
        changed.extend(survey.split_anew(&mut self.kept));
        let most = if self.balances(vms, now) { MOST_MOVES } else { 0 };
        let (homes, moves) = survey.place(wishes.heuristic, most);
        for ((id, ..), _) in survey.who.iter().zip(homes).filter(|(_, home)| home.is_none()) {
            NO_HOME.clone_into(&mut self.kept.get_mut(id).expect("it was entered").why);
        }
        let moves: Vec<NamedMove> = moves.into_iter().map(|step| survey.named(step, vms)).collect();
        for step in &moves {
            let kept = self.kept.get_mut(&step.id).expect("it was entered");
            kept.homes[step.part.0] = Some(step.to);
            if step.from.is_none_or(|from| from.node != step.to.node) {
                kept.settled = now;
                kept.migrations += u32::from(step.from.is_some());
            }
            kept.why.clone_from(&step.why);
            changed.push(step.id);
        }
        survey.note_crowding(&mut self.kept);
        changed.sort_unstable();
        changed.dedup();
        (moves, changed)
    }

    /// Who is to share an LLC with whom, as far as nobody asked otherwise.
    fn draw(&mut self, host: &Host, vms: &[Seen], now: Duration) {
        let widest = host.homes().flat_map(|node| &node.llcs).map(|llc| llc.pcpus).max();
        let widest = widest.unwrap_or(0);
        let may: HashMap<u64, u32> = vms
            .iter()
            .filter(|vm| vm.consolidate == Consolidate::Auto && !self.kept[&vm.id].is_left_alone)
            .map(|vm| (vm.id, vm.vcpus))
            .collect();
        let llcs: HashMap<u64, HomeNumber> =
            self.kept.iter().filter_map(|(&id, kept)| Some((id, kept.llc()?))).collect();
        for vm in vms {
            let kept = self.kept.get_mut(&vm.id).expect("it was entered");
            let Some(woken) = vm.woken.filter(|_| may.contains_key(&vm.id)) else {
                kept.draw.end();
                continue;
            };
            let fits = |by: u64| {
                let others = if by == vm.id { Some(0) } else { may.get(&by).copied() };
                others.is_some_and(|others| vm.vcpus + others <= widest)
            };
            let llc = llcs.get(&vm.id);
            let is_together = |by: u64| llc.is_some() && llcs.get(&by) == llc;
            kept.draw.look(now, woken, kept.wants, fits, is_together);
        }
    }

    /// Is it time to ask who would be better off elsewhere?
    fn balances(&mut self, vms: &[Seen], now: Duration) -> bool {
        let is_on_its_way = |vm: &&Seen| self.kept[&vm.id].memory_is_on_its_way(vm, now);
        let is_time = self.balanced.is_none_or(|balanced| now - balanced >= BALANCES)
            && vms.iter().filter(is_on_its_way).count() < MOST_MOVES;
        if is_time {
            self.balanced = Some(now);
        }
        is_time
    }

    /// What would be moved now, if everybody might leave home.
    pub fn plan(&self, host: Host, vms: &[Seen], wishes: &Wishes, now: Duration) -> Vec<NamedMove> {
        let known: Vec<Seen> =
            vms.iter().filter(|vm| self.kept.contains_key(&vm.id)).cloned().collect();
        let mut survey = Survey::of(host, &known, &self.kept, wishes, now);
        survey.clients.iter_mut().for_each(|client| client.may_leave = true);
        let (_, moves) = survey.place(wishes.heuristic, usize::MAX);
        moves.into_iter().map(|step| survey.named(step, &known)).collect()
    }

    /// How crowded each node is, and who lives there.
    pub fn crowds(&self, host: Host, vms: &[Seen], now: Duration) -> Vec<Crowd> {
        let known: Vec<Seen> =
            vms.iter().filter(|vm| self.kept.contains_key(&vm.id)).cloned().collect();
        let survey = Survey::of(host, &known, &self.kept, &Wishes::default(), now);
        let lives_on = |id: u64, node: u32| self.homes(id).iter().any(|home| home.node == node);
        let wanted = survey.wanted_pcpus();
        let holds = holds(&survey.host, &survey.clients, wanted.iter().sum());
        let wanted = wanted.into_iter().zip(holds);
        let crowd = |(node, (wanted_pcpus, holds)): (&super::Node, (f64, f64))| Crowd {
            wanted_pcpus,
            crowded: crowding(wanted_pcpus, holds),
            vms: (0..vms.len()).filter(|&vm| lives_on(vms[vm].id, node.number)).collect(),
        };
        survey.host.nodes.iter().zip(wanted).map(crowd).collect()
    }

    /// The parts of a VM that were given homes, once all have one. Not of who was put there by others.
    fn at_home(&self, id: u64) -> Vec<(&Part, HomeNumber)> {
        let kept = self.kept.get(&id).filter(|kept| !kept.is_left_alone);
        let parts = kept.into_iter().flat_map(|kept| kept.parts.iter().zip(&kept.homes));
        let homes: Option<Vec<_>> = parts.map(|(part, home)| Some((part, (*home)?))).collect();
        homes.unwrap_or_default()
    }

    /// Is that VM one of those that it was shown last?
    pub fn knows(&self, id: u64) -> bool {
        self.kept.contains_key(&id)
    }

    /// What the scheduler is told: the homes of so many even parts of the VM's vCPUs. Of two parts with 2 and 6 vCPUs
    /// the first has one of four, the other three.
    pub fn told(&self, id: u64) -> Vec<HomeNumber> {
        let homes = self.at_home(id);
        if self.is_one_node && homes.iter().all(|(_, home)| home.llc.is_none()) {
            return Vec::new();
        }
        let vcpus = homes.iter().map(|(part, _)| part.vcpus.len());
        let each = vcpus.fold(0, greatest_common_divisor).max(1);
        let told = homes.iter().map(|(part, home)| vec![*home; part.vcpus.len() / each]);
        told.flatten().collect()
    }

    /// Homes, for people: also of who was put there by others.
    pub fn homes(&self, id: u64) -> Vec<HomeNumber> {
        let kept = self.kept.get(&id);
        kept.map_or(Vec::new(), |kept| kept.homes.iter().copied().flatten().collect())
    }

    /// The nodes the VM's memory is to lie on; none: where it is.
    pub fn memory_nodes(&self, id: u64) -> Vec<u32> {
        self.at_home(id).iter().map(|(_, home)| home.node).collect()
    }

    /// The node that the memory of each virtual node is to lie on; none: virtual nodes do not matter, as all of it
    /// goes to one node or is spread evenly.
    pub fn nodes_of_virtual(&self, id: u64) -> Vec<u32> {
        let homes = self.at_home(id);
        if homes.len() < 2 {
            return Vec::new();
        }
        let of_part = |(part, home): (&Part, HomeNumber)| vec![home.node; part.virtual_nodes.len()];
        homes.into_iter().flat_map(of_part).collect()
    }

    /// How often a part of the VM left its home.
    pub fn migrations(&self, id: u64) -> u32 {
        self.kept.get(&id).map_or(0, |kept| kept.migrations)
    }

    /// Why its home is where it is, or why it has none; none: nobody chose yet.
    pub fn why(&self, id: u64) -> Option<&str> {
        self.kept.get(&id).map(|kept| kept.why.as_str()).filter(|why| !why.is_empty())
    }
}

impl Kept {
    fn new(now: Duration) -> Self {
        Self {
            since: now,
            looked: now,
            wants: 0.0,
            cache_mib: 0.0,
            memory_mib_s: 0.0,
            parts: Vec::new(),
            homes: vec![None],
            settled: now,
            migrations: 0,
            why: String::new(),
            is_left_alone: false,
            draw: Draw::default(),
            crowded: 0.0,
        }
    }

    /// Takes note of what it wants, and of what it has.
    fn note(&mut self, vm: &Seen, now: Duration) {
        let all = f64::from(vm.vcpus);
        let part = (now - self.looked).as_secs_f64() / WANTS_OVER.as_secs_f64();
        match vm.wanted_pcpus.filter(|_| now - self.since >= YOUNG) {
            Some(wanted) => self.wants += (wanted.min(all) - self.wants) * part.min(1.0),
            None => self.wants = all,
        }
        let Pressure { cache_mib, memory_mib_s } = vm.pressure;
        for (kept, seen) in
            [(&mut self.cache_mib, cache_mib), (&mut self.memory_mib_s, memory_mib_s)]
        {
            *kept = seen.map_or(0.0, |seen| *kept + (seen - *kept) * part.min(1.0));
        }
        self.looked = now;
    }

    /// The one LLC in which it lives, if it does.
    fn llc(&self) -> Option<HomeNumber> {
        let [home] = self.homes[..] else { return None };
        home.filter(|home| home.llc.is_some())
    }

    /// Into parts like these; that they have other vCPUs, as when one was added, does not matter.
    fn is_split_into(&self, parts: &[Part]) -> bool {
        let is_like = |(a, b): (&Part, &Part)| a.virtual_nodes == b.virtual_nodes;
        [self.parts.len(), self.homes.len()] == [parts.len(); 2]
            && (parts.len() == 1 || self.parts.iter().zip(parts).all(is_like))
    }

    fn is_settled(&self, now: Duration) -> bool {
        now - self.since >= SETTLES
    }

    /// Others have put it somewhere, or have not. True: that is new.
    fn leave_to(&mut self, others: Option<Option<u32>>) -> bool {
        let before = (self.is_left_alone, self.homes.clone());
        match others {
            Some(node) => self.homes = vec![node.map(HomeNumber::node)],
            None if self.is_left_alone => self.homes = vec![None],
            None => {}
        }
        self.is_left_alone = others.is_some();
        if self.is_left_alone {
            BY_OTHERS.clone_into(&mut self.why);
        }
        before != (self.is_left_alone, self.homes.clone())
    }

    /// Has it left a home, and is its memory on its way to the other?
    fn memory_is_on_its_way(&self, vm: &Seen, now: Duration) -> bool {
        let moves = vm.memory.as_ref().filter(|memory| !memory.is_stuck);
        let is_far = moves.and_then(|memory| memory.local_pct).is_some_and(|pct| pct < 90.0);
        is_far && self.migrations > 0 && now - self.settled < ON_ITS_WAY
    }
}

/// The part of these pCPUs that is on each node, by the node of each; for [`Seen::on_nodes`].
pub fn parts_on_nodes(nodes: &[u32]) -> BTreeMap<u32, f64> {
    let mut on = BTreeMap::new();
    for &node in nodes {
        *on.entry(node).or_default() += 1.0 / nodes.len() as f64;
    }
    on
}

/// Who is to be placed, and where.
struct Survey {
    host: Host,
    clients: Vec<Client>,
    /// The VM and the part that each client is, of so many.
    who: Vec<(u64, usize, usize)>,
    /// All parts of each VM that is placed by us.
    parts: HashMap<u64, Vec<Part>>,
    sets: Vec<Set>,
}

impl Survey {
    fn of(
        host: Host,
        vms: &[Seen],
        kept: &HashMap<u64, Kept>,
        wishes: &Wishes,
        now: Duration,
    ) -> Self {
        // All VMs of a name are in its set.
        let sets = wishes.sets.iter().map(|it| {
            let of_set = vms.iter().filter(|vm| it.vms.contains(&vm.name)).map(|vm| vm.id);
            let SetSpec { ref name, kind, within, hard, .. } = *it;
            Set { name: name.clone(), vms: of_set.collect(), kind, within, hard }
        });
        let drawn = vms.iter().filter_map(|vm| {
            let by = kept[&vm.id].draw.with().filter(|&by| by != vm.id)?;
            let by_name = &vms.iter().find(|other| other.id == by)?.name;
            let name = format!("of {} and {by_name}, which wakes it", vm.name);
            let (kind, within) = (Kind::Affine, Within::Llc);
            Some(Set { name, vms: vec![vm.id, by], kind, within, hard: false })
        });
        let sets = sets.chain(drawn).collect();
        let (clients, who, parts) = Default::default();
        let mut survey = Self { host, clients, who, parts, sets };
        for vm in vms {
            let known = &kept[&vm.id];
            match &vm.memory {
                Some(memory) if known.is_settled(now) && !known.is_left_alone => {
                    survey.add(vm, memory, known, now);
                }
                _ => survey.add_other(vm, known),
            }
        }
        survey
    }

    /// One that is placed by us.
    fn add(&mut self, vm: &Seen, memory: &Memory, known: &Kept, now: Duration) {
        let place_of = |node| self.host.place_of(HomeNumber::node(node)).map(|home| home.node);
        let (only, device) = (vm.ordered.and_then(place_of), vm.device.and_then(place_of));
        let parts = match only {
            Some(_) => vec![Part { vcpus: 0..vm.vcpus, virtual_nodes: 0..vm.virtual_nodes.len() }],
            None => parts(&self.host, &vm.shape(memory)),
        };
        let wanted_pcpus = known.wants.max(vm.reserved_pcpus);
        for (place, part) in parts.iter().enumerate() {
            let home = known.is_split_into(&parts).then(|| known.homes[place]).flatten();
            let (memory_mib, lies_mib) = self.memory_of(vm, memory, part, parts.len() as u64);
            self.who.push((vm.id, place, parts.len()));
            self.clients.push(Client {
                vm: vm.id,
                wanted_pcpus: wanted_pcpus * part.vcpus.len() as f64 / f64::from(vm.vcpus.max(1)),
                memory_mib,
                lies_mib,
                is_stuck: memory.is_stuck,
                cache_mib: known.cache_mib / parts.len() as f64,
                memory_mib_s: known.memory_mib_s / parts.len() as f64,
                device,
                one_llc: vm.consolidate == Consolidate::On || known.draw.with() == Some(vm.id),
                crowded: known.crowded,
                only,
                home: home.and_then(|home| self.host.place_of(home)),
                may_leave: now - known.settled >= KEEPS,
            });
            let client = self.clients.last_mut().expect("it was pushed");
            client.may_leave |=
                client.home.is_some_and(|home| client.is_stuck_elsewhere(home.node));
        }
        self.parts.insert(vm.id, parts);
    }

    /// The memory of one of so many parts, and what of it lies on each node, MiB.
    fn memory_of(&self, vm: &Seen, memory: &Memory, part: &Part, parts: u64) -> (u64, Vec<u64>) {
        let nodes = match parts {
            1 => &[],
            _ => &vm.virtual_nodes[part.virtual_nodes.clone()],
        };
        let lies_mib = |node: &super::Node| match nodes {
            [] => memory.lies_mib.get(&node.number).copied().unwrap_or(0) / parts,
            own => own.iter().filter_map(|it| it.lies_mib.get(&node.number)).sum(),
        };
        let memory_mib = match nodes {
            [] => memory.expected_mib / parts,
            own => own.iter().map(|it| it.memory_mib).fold(0, u64::saturating_add),
        };
        (memory_mib, self.host.nodes.iter().map(lies_mib).collect())
    }

    /// One that others have put on a node, which stays there, or somewhere, or that is too young: it wants pCPUs
    /// there, or everywhere.
    fn add_other(&mut self, vm: &Seen, known: &Kept) {
        let node = vm.placed_by_others.flatten().map(HomeNumber::node);
        if let Some(home) = node.and_then(|node| self.host.place_of(node)) {
            self.who.push((vm.id, 0, 1));
            self.clients.push(Client {
                vm: vm.id,
                wanted_pcpus: known.wants,
                only: Some(home.node),
                home: Some(home),
                ..Client::default()
            });
            return;
        }
        let pcpus: u32 = self.host.nodes.iter().map(|node| node.pcpus).sum();
        for node in &mut self.host.nodes {
            let part = match vm.on_nodes.is_empty() {
                true => f64::from(node.pcpus) / f64::from(pcpus.max(1)),
                false => vm.on_nodes.get(&node.number).copied().unwrap_or(0.0),
            };
            node.wanted_pcpus += known.wants * part;
        }
    }

    /// VMs that are split otherwise than they were begin without homes; VMs whose parts have other vCPUs only are
    /// returned.
    fn split_anew(&self, kept: &mut HashMap<u64, Kept>) -> Vec<u64> {
        let mut changed = Vec::new();
        for (id, parts) in &self.parts {
            let known = kept.get_mut(id).expect("it was surveyed");
            if !known.is_split_into(parts) {
                known.homes = vec![None; parts.len()];
            } else if known.parts != *parts {
                changed.push(*id);
            }
            known.parts.clone_from(parts);
        }
        changed
    }

    fn place(&self, by: Heuristic, most: usize) -> (Vec<Option<Home>>, Vec<Move>) {
        place(&self.host, &self.clients, &self.sets, by, most)
    }

    fn at_home(&self) -> impl Iterator<Item = (&Client, usize)> {
        self.clients.iter().filter_map(|it| Some((it, it.home?.node)))
    }

    /// What is wanted on each node, pCPUs.
    fn wanted_pcpus(&self) -> Vec<f64> {
        let mut wanted: Vec<f64> = self.host.nodes.iter().map(|node| node.wanted_pcpus).collect();
        self.at_home().for_each(|(client, node)| wanted[node] += client.wanted_pcpus);
        wanted
    }

    fn named(&self, step: Move, vms: &[Seen]) -> NamedMove {
        let (id, part, parts) = self.who[step.client];
        let name = vms.iter().find(|vm| vm.id == id).map_or(String::new(), |vm| vm.name.clone());
        let number = |home: Home| self.host.number(home);
        NamedMove {
            id,
            name,
            part: (part, parts),
            from: step.from.map(number),
            to: number(step.to),
            why: step.why,
        }
    }

    /// Who is more crowded than the host is, is owed a better home in time; who is less, owes it.
    fn note_crowding(&self, kept: &mut HashMap<u64, Kept>) {
        let wanted = self.wanted_pcpus();
        let all_wanted = wanted.iter().sum::<f64>();
        let holds = holds(&self.host, &self.clients, all_wanted);
        let is: Vec<f64> =
            wanted.iter().zip(&holds).map(|(it, holds)| crowding(*it, *holds)).collect();
        let all = is.iter().zip(&wanted).map(|(is, wanted)| is * wanted).sum::<f64>();
        let mean = if all_wanted > 0.0 { all / all_wanted } else { 0.0 };
        let part = INTERVAL.as_secs_f64() / CROWDED_OVER.as_secs_f64();
        for (client, node) in self.at_home() {
            let more = is[node] - mean;
            let known = kept.get_mut(&client.vm).expect("it was surveyed");
            known.crowded = (known.crowded + more * part).clamp(-CROWDED_MOST, CROWDED_MOST);
        }
    }
}

fn greatest_common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// The part of what is wanted that is more than a node holds.
fn crowding(wanted: f64, holds: f64) -> f64 {
    if wanted > holds { 1.0 - holds / wanted } else { 0.0 }
}

// SPDX-License-Identifier: GPL-2.0-only
//! What is known of each VM, and the clients that are placed.

use super::mover::Report;
use super::{Seen, Wishes};
use crate::topology::Topology;
use drover_core::place::{self, Client, Heuristic, Home, HomeNumber, Host, Move, Set, Shape};
use std::collections::HashMap;
use std::time::{Duration, Instant};

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
const CROWDED_OVER: Duration = Duration::from_secs(120);
/// Why a home is where it is that nobody here chose, and why there is none.
const BY_OTHERS: &str = "an affinity, cpuset or memory policy has it there";
const NO_HOME: &str = "no node has the memory for it, or a hard set leaves it none";
/// Nobody is owed more for having been crowded.
const CROWDED_MOST: f64 = 2.0;

/// What is known of a VM.
#[derive(Debug)]
pub(super) struct Kept {
    since: Instant,
    looked: Instant,
    /// What it wants, pCPUs.
    wants: f64,
    /// The homes of its parts; there is one part at least.
    homes: Vec<Option<HomeNumber>>,
    /// Why the last of these is what it is; empty: nobody chose.
    why: String,
    /// Since when it has these.
    settled: Instant,
    /// How often a part left its home.
    pub(super) migrations: u32,
    /// It is where it was put by others: nothing is moved.
    is_left_alone: bool,
    /// How much more crowded it was than the host on average, in periods of `CROWDED_OVER`.
    crowded: f64,
    /// What was said of it.
    said: Option<String>,
}

impl Kept {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            since: now,
            looked: now,
            wants: 0.0,
            homes: vec![None],
            why: String::new(),
            settled: now,
            migrations: 0,
            is_left_alone: false,
            crowded: 0.0,
            said: None,
        }
    }

    /// Takes note of what it wants.
    pub(super) fn note(&mut self, vm: &Seen, now: Instant) {
        let all = f64::from(vm.kernel.nr_vcpus);
        let part = (now - self.looked).as_secs_f64() / WANTS_OVER.as_secs_f64();
        match vm.wanted_pcpus.filter(|_| now - self.since >= YOUNG) {
            Some(wanted) => self.wants += (wanted.min(all) - self.wants) * part.min(1.0),
            None => self.wants = all,
        }
        self.looked = now;
    }

    pub(super) fn is_settled(&self, now: Instant) -> bool {
        now - self.since >= SETTLES
    }

    /// Others have put it somewhere, on that node if it is one; or they have not. True: that is new.
    pub(super) fn leave_to_others(&mut self, placed: bool, node: Option<usize>) -> bool {
        let node = node.and_then(|node| u32::try_from(node).ok()).map(HomeNumber::node);
        let before = (self.is_left_alone, self.homes.clone());
        if placed {
            self.homes = vec![node];
            BY_OTHERS.clone_into(&mut self.why);
        } else if self.is_left_alone {
            self.homes = vec![None];
        }
        self.is_left_alone = placed;
        before != (self.is_left_alone, self.homes.clone())
    }

    /// It was looked for a home of a part; none: it can have none.
    pub(super) fn note_home(&mut self, home: Option<Home>) {
        if home.is_none() {
            NO_HOME.clone_into(&mut self.why);
        }
    }

    /// Why its home is where it is, or why it has none.
    pub(super) fn why(&self) -> Option<String> {
        (!self.why.is_empty()).then(|| self.why.clone())
    }

    /// That is the home of the part from now on, for that reason; `moved`: it had another before.
    pub(super) fn settle(
        &mut self,
        (part, moved): (usize, bool),
        home: HomeNumber,
        why: String,
        now: Instant,
    ) {
        self.homes[part] = Some(home);
        self.why = why;
        self.settled = now;
        self.migrations += u32::from(moved);
    }

    /// How many parts it has.
    pub(super) fn parts(&self) -> usize {
        self.homes.len()
    }

    /// For messages.
    pub(super) fn part_text(&self, part: usize) -> String {
        match self.homes.len() {
            1 => String::new(),
            parts => format!(", part {} of {parts}", part + 1),
        }
    }

    /// What the scheduler is told: the homes of all parts, once all have one.
    pub(super) fn told(&self) -> Vec<HomeNumber> {
        let homes: Option<Vec<HomeNumber>> = self.homes.iter().copied().collect();
        homes.filter(|_| !self.is_left_alone).unwrap_or_default()
    }

    /// Homes, for people: also of who was put there by others.
    pub(super) fn homes(&self) -> Vec<HomeNumber> {
        self.homes.iter().copied().flatten().collect()
    }

    /// The nodes its memory is to lie on; none: where it is.
    pub(super) fn memory_nodes(&self) -> Vec<usize> {
        let mut nodes: Vec<usize> = self.told().iter().map(|home| home.node as usize).collect();
        nodes.dedup();
        nodes
    }

    /// Has it left a home, and is its memory on its way to the other?
    pub(super) fn memory_is_on_its_way(&self, report: &Report, now: Instant) -> bool {
        let local_pct = report.maps.local_pct(&self.memory_nodes());
        self.migrations > 0
            && now - self.settled < ON_ITS_WAY
            && !report.is_stuck
            && report.refused.is_none()
            && local_pct.is_some_and(|pct| pct < 90.0)
    }

    /// What cannot be moved, once.
    pub(super) fn say(&mut self, vm: &Seen, report: &Report) {
        let text = match &report.refused {
            Some(why) => {
                Some(format!("VM {}: its memory cannot be looked at or moved: {why}", vm.name))
            }
            None if report.is_stuck => Some(format!(
                "VM {}: what lies elsewhere of its memory cannot be moved (in use by a device, as with \
                 VFIO, or shared with other processes); its home is where most of it lies",
                vm.name
            )),
            None => None,
        };
        if let Some(text) = text.filter(|text| self.said.as_ref() != Some(text)) {
            tracing::warn!("{text}");
            self.said = Some(text);
        }
    }
}

/// Who is to be placed, and where.
pub(super) struct Survey {
    pub(super) host: Host,
    clients: Vec<Client>,
    /// The VM and the part that each client is.
    pub(super) who: Vec<(u64, usize)>,
    sets: Vec<Set>,
    /// How many parts each VM that is placed is to have.
    parts: HashMap<u64, usize>,
}

impl Survey {
    pub(super) fn of(
        host: Host,
        topology: &Topology,
        vms: &[Seen],
        reports: &HashMap<u64, Report>,
        kept: &HashMap<u64, Kept>,
        wishes: &Wishes,
        now: Instant,
    ) -> Self {
        // All VMs of a name are in its set.
        let sets = wishes.sets.iter().map(|it| Set {
            name: it.name.clone(),
            vms: (vms.iter().filter(|vm| it.vms.iter().any(|name| name == vm.name)))
                .map(|vm| vm.kernel.id)
                .collect(),
            kind: it.kind,
            within: it.within,
            hard: it.hard,
        });
        let mut survey = Self {
            host,
            clients: Vec::new(),
            who: Vec::new(),
            sets: sets.collect(),
            parts: HashMap::new(),
        };
        for vm in vms {
            let known = &kept[&vm.kernel.id];
            match reports.get(&vm.kernel.id) {
                Some(report) if known.is_settled(now) && !known.is_left_alone => {
                    survey.add(vm, report, known, now);
                }
                _ => survey.add_other(topology, vm, known),
            }
        }
        survey
    }

    /// One that is placed by us.
    fn add(&mut self, vm: &Seen, report: &Report, known: &Kept, now: Instant) {
        let shape = shape(vm, report);
        let parts = place::parts(&self.host, &shape).len();
        let count = parts as u64;
        let lies = report.maps.lies_mib();
        let lies_mib = self.host.nodes.iter().map(|node| lies.get(&(node.number as usize)));
        let lies_mib: Vec<u64> = lies_mib.map(|mib| mib.copied().unwrap_or(0) / count).collect();
        for part in 0..parts {
            let home = (known.parts() == parts).then(|| known.homes[part]).flatten();
            self.who.push((vm.kernel.id, part));
            self.clients.push(Client {
                vm: vm.kernel.id,
                wanted_pcpus: known.wants.max(vm.reserved_pcpus) / parts as f64,
                memory_mib: shape.memory_mib / count,
                lies_mib: lies_mib.clone(),
                is_stuck: report.is_stuck,
                one_llc: vm.one_llc,
                crowded: known.crowded,
                home: home.and_then(|home| self.place_of(home)),
                may_leave: now - known.settled >= KEEPS || report.is_stuck,
                ..Client::default()
            });
        }
        self.parts.insert(vm.kernel.id, parts);
    }

    /// One that others have put somewhere, or that is too young: it wants pCPUs there, or everywhere.
    fn add_other(&mut self, topology: &Topology, vm: &Seen, known: &Kept) {
        let node_of = |cpu: u32| topology.pcpus.get(cpu as usize).and_then(|pcpu| pcpu.node);
        let mut on: Vec<usize> = vm.affinity.cpus().filter_map(node_of).collect();
        if on.is_empty() {
            on = topology.pcpus.iter().filter(|it| it.online).filter_map(|it| it.node).collect();
        }
        let each = known.wants / on.len().max(1) as f64;
        for node in &mut self.host.nodes {
            let here = on.iter().filter(|&&it| it == node.number as usize).count();
            node.wanted_pcpus += each * here as f64;
        }
    }

    /// Where that home is in the host as it is now.
    fn place_of(&self, home: HomeNumber) -> Option<Home> {
        let node = self.host.nodes.iter().position(|node| node.number == home.node)?;
        let llcs = &self.host.nodes[node].llcs;
        let llc = home.llc.map(|number| llcs.iter().position(|llc| llc.number == number));
        Some(Home { node, llc: llc.flatten() })
    }

    /// How many parts that VM is to have.
    pub(super) fn parts(&self, vm: u64) -> usize {
        self.parts.get(&vm).copied().unwrap_or(1)
    }

    /// VMs that have come to have another number of parts begin without homes.
    pub(super) fn split_anew(&self, kept: &mut HashMap<u64, Kept>) {
        for (id, &parts) in &self.parts {
            let known = kept.get_mut(id).expect("it was surveyed");
            if known.parts() != parts {
                known.homes = vec![None; parts];
            }
        }
    }

    /// As if everybody had been at home for long.
    pub(super) fn let_all_leave(&mut self) {
        self.clients.iter_mut().for_each(|client| client.may_leave = true);
    }

    pub(super) fn place(&mut self, by: Heuristic, most: usize) -> (Vec<Option<Home>>, Vec<Move>) {
        place::place(&self.host, &self.clients, &self.sets, by, most)
    }

    fn at_home(&self) -> impl Iterator<Item = (&Client, usize)> {
        self.clients.iter().filter_map(|it| Some((it, it.home?.node)))
    }

    /// What is wanted on each node, pCPUs.
    pub(super) fn wanted_pcpus(&self) -> Vec<f64> {
        let mut wanted: Vec<f64> = self.host.nodes.iter().map(|node| node.wanted_pcpus).collect();
        self.at_home().for_each(|(client, node)| wanted[node] += client.wanted_pcpus);
        wanted
    }

    /// Who is more crowded than the host is, is owed a better home in time; who is less, owes it.
    pub(super) fn note_crowding(&self, kept: &mut HashMap<u64, Kept>) {
        let wanted = self.wanted_pcpus();
        let pcpus = |node: usize| f64::from(self.host.nodes[node].pcpus);
        let all = crowding(wanted.iter().sum(), (0..wanted.len()).map(pcpus).sum());
        let part = super::INTERVAL.as_secs_f64() / CROWDED_OVER.as_secs_f64();
        for (client, node) in self.at_home() {
            let more = crowding(wanted[node], pcpus(node)) - all;
            let known = kept.get_mut(&client.vm).expect("it was surveyed");
            known.crowded = (known.crowded + more * part).clamp(-CROWDED_MOST, CROWDED_MOST);
        }
    }
}

/// What a VM is split by.
pub(super) fn shape(vm: &Seen, report: &Report) -> Shape {
    Shape {
        vcpus: vm.kernel.nr_vcpus,
        memory_mib: report.maps.expected_mib(),
        max_per_node: vm.max_per_node,
        virtual_nodes: 0,
    }
}

/// The part of what is wanted for which there is no pCPU.
pub(super) fn crowding(wanted: f64, pcpus: f64) -> f64 {
    if wanted > pcpus { 1.0 - pcpus / wanted } else { 0.0 }
}

// SPDX-License-Identifier: GPL-2.0-only
//! What homes cost, in pCPUs of work lost, and what the choice of one client adds.
//!
//! Everything is a sum over nodes and LLCs, each a function of what those at home there want together, and a
//! sum over clients. So what a client costs somewhere is known from a few numbers, and moves can be compared by
//! taking the client out and asking what it would cost at each candidate.

use super::client::{Client, Home};
use super::host::Host;
use super::set::{Kind, Set, Within};
use std::collections::HashMap;

/// What is lost of CPU time beside a busy hardware thread of the same core.
const SMT: f64 = 0.35;
/// What is lost for each hop to memory, and what of that counts where the memory can follow: it is far for a
/// minute only.
const HOP: f64 = 0.25;
const FOLLOWS: f64 = 0.25;
/// What is lost where twice the cache is used that there is; and of bandwidth beyond what there is, all.
const CACHE: f64 = 0.2;
/// What is lost by who is to live in one LLC and lives in all of a node's.
const MANY_LLCS: f64 = 0.05;
/// What is lost for each other client of a set that is not where the set wants it.
const SET: f64 = 0.3;
/// What more it costs to be crowded for who always was.
const FAIR: f64 = 1.0;
/// VMs that move so much memory for each pCPU they want do not fit their caches: 1,700 lines in each ms.
const MISSES_MIB_S: f64 = 100.0;
/// Of what costs the same the evener load is chosen, then more free memory.
const EVEN: f64 = 0.01;
const EVEN_MEMORY: f64 = 1e-4;

/// What a home costs, by reason.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Cost {
    pub(super) cpu: f64,
    pub(super) memory: f64,
    pub(super) cache: f64,
    pub(super) bandwidth: f64,
    pub(super) set: f64,
    pub(super) device: f64,
    pub(super) fair: f64,
    /// Nothing is lost by it; it decides where all else is the same.
    pub(super) even: f64,
}

impl Cost {
    pub(super) fn total(&self) -> f64 {
        let Self { cpu, memory, cache, bandwidth, set, device, fair, even } = self;
        cpu + memory + cache + bandwidth + set + device + fair + even
    }
}

/// What those at home on a node or in an LLC want together.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Load {
    pcpus: f64,
    /// Of that, what was crowded lately.
    crowded_pcpus: f64,
    cache_mib: f64,
    memory_mib_s: f64,
    /// Memory that is to come there.
    comes_mib: f64,
}

impl Load {
    fn of(client: &Client, node: usize, scale: f64) -> Self {
        let wanted_pcpus = scale * client.wanted_pcpus;
        let lies_mib = client.lies_mib.get(node).copied().unwrap_or(0);
        let comes_mib =
            if client.is_stuck { 0 } else { client.memory_mib.saturating_sub(lies_mib) };
        Self {
            pcpus: wanted_pcpus,
            crowded_pcpus: wanted_pcpus * client.crowded,
            cache_mib: client.cache_mib,
            memory_mib_s: client.memory_mib_s,
            comes_mib: comes_mib as f64,
        }
    }

    fn plus(self, other: Self, times: f64) -> Self {
        Self {
            pcpus: self.pcpus + times * other.pcpus,
            crowded_pcpus: self.crowded_pcpus + times * other.crowded_pcpus,
            cache_mib: self.cache_mib + times * other.cache_mib,
            memory_mib_s: self.memory_mib_s + times * other.memory_mib_s,
            comes_mib: self.comes_mib + times * other.comes_mib,
        }
    }
}

/// All homes so far, and what they add up to.
pub(super) struct Ledger<'a> {
    pub(super) host: &'a Host,
    pub(super) clients: &'a [Client],
    pub(super) sets: &'a [Set],
    homes: Vec<Option<Home>>,
    /// What of its wishes everybody can have: where more is wanted than the host has, nobody runs that much, and
    /// what counts is that what each will have is there at home.
    scale: f64,
    nodes: Vec<Load>,
    /// What each node holds with nobody crowded, [`holds`].
    holds: Vec<f64>,
    /// Memory that is to leave each node, MiB.
    leaves_mib: Vec<f64>,
    llcs: Vec<Vec<Load>>,
    /// Clients of each VM.
    parts: HashMap<u64, Vec<usize>>,
    /// Sets of each VM.
    sets_of: HashMap<u64, Vec<usize>>,
}

impl<'a> Ledger<'a> {
    /// With the homes that clients have, where those still may be homes.
    pub(super) fn new(host: &'a Host, clients: &'a [Client], sets: &'a [Set]) -> Self {
        let mut parts: HashMap<u64, Vec<usize>> = HashMap::new();
        for (place, client) in clients.iter().enumerate() {
            parts.entry(client.vm).or_default().push(place);
        }
        let mut sets_of: HashMap<u64, Vec<usize>> = HashMap::new();
        for (place, set) in sets.iter().enumerate() {
            set.vms.iter().for_each(|&vm| sets_of.entry(vm).or_default().push(place));
        }
        let all_wanted = clients.iter().map(|client| client.wanted_pcpus).sum::<f64>()
            + host.nodes.iter().map(|node| node.wanted_pcpus).sum::<f64>();
        let pcpus = host.nodes.iter().map(|node| f64::from(node.pcpus)).sum::<f64>();
        let scale = if all_wanted > pcpus { pcpus / all_wanted } else { 1.0 };
        let others =
            |node: &super::Node| Load { pcpus: scale * node.wanted_pcpus, ..Load::default() };
        let mut ledger = Self {
            host,
            clients,
            sets,
            homes: vec![None; clients.len()],
            scale,
            nodes: host.nodes.iter().map(others).collect(),
            holds: holds(host, clients, all_wanted),
            leaves_mib: vec![0.0; host.nodes.len()],
            llcs: host.nodes.iter().map(|it| vec![Load::default(); it.llcs.len()]).collect(),
            parts,
            sets_of,
        };
        for (place, client) in clients.iter().enumerate() {
            if let Some(home) = client.home.filter(|home| ledger.exists(*home)) {
                ledger.settle(place, home);
            }
        }
        ledger
    }

    pub(super) fn into_homes(self) -> Vec<Option<Home>> {
        self.homes
    }

    pub(super) fn home(&self, client: usize) -> Option<Home> {
        self.homes[client]
    }

    fn exists(&self, home: Home) -> bool {
        let node = self.host.nodes.get(home.node);
        node.is_some_and(|it| it.is_a_home() && home.llc.is_none_or(|llc| llc < it.llcs.len()))
    }

    /// The client, which has no home, has that one from now on.
    pub(super) fn settle(&mut self, client: usize, home: Home) {
        assert!(self.homes[client].is_none(), "it left its home before");
        self.homes[client] = Some(home);
        self.add(client, home, 1.0);
    }

    /// The client has no home from now on.
    pub(super) fn leave(&mut self, client: usize) {
        if let Some(home) = self.homes[client].take() {
            self.add(client, home, -1.0);
        }
    }

    fn add(&mut self, client: usize, home: Home, times: f64) {
        let load = Load::of(&self.clients[client], home.node, self.scale);
        self.nodes[home.node] = self.nodes[home.node].plus(load, times);
        let it = &self.clients[client];
        let lies = it.lies_mib.iter().enumerate().filter(|(node, _)| *node != home.node);
        for (node, &mib) in lies.filter(|_| !it.is_stuck) {
            self.leaves_mib[node] += times * mib as f64;
        }
        if let Some(llc) = home.llc {
            let of_llc = &mut self.llcs[home.node][llc];
            *of_llc = of_llc.plus(load, times);
        }
    }

    /// Where the client may be at home: nodes, and LLCs if it is to live in one.
    pub(super) fn candidates(&self, client: usize) -> impl Iterator<Item = Home> + use<'_> {
        let in_llc = self.wants_llc(client);
        let nodes = self.host.nodes.iter().enumerate();
        nodes.filter(|(_, node)| node.is_a_home()).flat_map(move |(node, is)| {
            let fits = |llc: &usize| is.llcs[*llc].pcpus > 0;
            let llcs = (0..if in_llc { is.llcs.len() } else { 0 }).filter(fits);
            let any = Home { node, llc: None };
            llcs.map(move |llc| Home { node, llc: Some(llc) }).chain([any])
        })
    }

    /// Is the client to live in one LLC?
    pub(super) fn wants_llc(&self, client: usize) -> bool {
        let it = &self.clients[client];
        let mut sets = self.sets_of.get(&it.vm).into_iter().flatten();
        it.one_llc || sets.any(|&set| self.sets[set].within == Within::Llc)
    }

    /// What the client, which has no home, would cost there; none: it may not live there.
    pub(super) fn cost(&self, client: usize, home: Home) -> Option<Cost> {
        let it = &self.clients[client];
        let load = Load::of(it, home.node, self.scale);
        let node = &self.host.nodes[home.node];
        let promised_mib = self.nodes[home.node].comes_mib + load.comes_mib;
        let is_full = load.comes_mib > 0.0 && promised_mib > node.free_mib as f64;
        let is_none = !self.exists(home)
            || is_full
            || it.is_stuck_elsewhere(home.node)
            || it.only.is_some_and(|only| only != home.node);
        if is_none || self.sibling_is_on(client, home.node) {
            return None;
        }
        let mut cost = self.of_node(home.node, load);
        match home.llc {
            Some(llc) => self.add_llc(&mut cost, home.node, llc, load),
            None if self.wants_llc(client) => cost.cache += MANY_LLCS * (load.pcpus + 0.1),
            None => {}
        }
        let follows = if it.is_stuck { 1.0 } else { FOLLOWS };
        let hops = self.hops_to_memory(client, home.node);
        cost.memory =
            HOP * (load.pcpus * follows * hops + self.hops_to_siblings(client, home.node));
        cost.device = it.device.map_or(0.0, |at| load.pcpus * HOP * self.host.hops(home.node, at));
        cost.set = self.set_cost(client, home)?;
        cost.even += EVEN_MEMORY * promised_mib / node.free_mib.max(1) as f64;
        // What sleeps is where its memory lies.
        cost.even += EVEN * hops;
        Some(cost)
    }

    /// What that load adds to what is lost on a node.
    fn of_node(&self, node: usize, load: Load) -> Cost {
        let (before, is) = (self.nodes[node], &self.host.nodes[node]);
        let after = before.plus(load, 1.0);
        let (pcpus, cores) = (f64::from(is.pcpus), f64::from(is.cores));
        let lacks = |wanted: f64| (wanted - pcpus).max(0.0);
        let lost = |wanted: f64| lacks(wanted) + SMT * (wanted.min(pcpus) - cores).max(0.0);
        let holds = self.holds[node].max(f64::MIN_POSITIVE);
        let crowd = |it: Load| it.crowded_pcpus * (it.pcpus / holds - 1.0).clamp(0.0, 1.0);
        let uneven = |wanted: f64| wanted * wanted / pcpus;
        let (cache_mib, mib_s) = (is.llcs.iter().map(|it| it.cache_mib).sum(), is.memory_mib_s);
        let cache =
            |it: Load| CACHE * it.pcpus.min(pcpus) * beyond(it.cache_mib, cache_mib).min(1.0);
        let bandwidth = |it: Load| {
            let over = beyond(it.memory_mib_s, mib_s);
            it.pcpus.min(pcpus) * over / (1.0 + over)
        };
        Cost {
            cpu: lost(after.pcpus) - lost(before.pcpus),
            cache: cache(after) - cache(before),
            bandwidth: bandwidth(after) - bandwidth(before),
            fair: FAIR * (crowd(after) - crowd(before)),
            even: EVEN * (uneven(after.pcpus) - uneven(before.pcpus)),
            ..Cost::default()
        }
    }

    /// An LLC is a node of its own for those who live in it.
    fn add_llc(&self, cost: &mut Cost, node: usize, llc: usize, load: Load) {
        let (before, is) = (self.llcs[node][llc], self.host.nodes[node].llcs[llc]);
        let lacks = |wanted: f64| (wanted - f64::from(is.pcpus)).max(0.0);
        let uneven = |wanted: f64| wanted * wanted / f64::from(is.pcpus.max(1));
        let after = before.pcpus + load.pcpus;
        cost.cpu += lacks(after) - lacks(before.pcpus);
        cost.even += EVEN * (uneven(after) - uneven(before.pcpus));
    }

    /// Parts of one VM live on different nodes while there are enough.
    fn sibling_is_on(&self, client: usize, node: usize) -> bool {
        let parts = &self.parts[&self.clients[client].vm];
        let on = |part: &&usize| self.homes[**part].is_some_and(|home| home.node == node);
        parts.len() > 1 && parts.iter().filter(|&&part| part != client).any(|part| on(&part))
    }

    /// How far the client's memory lies from there now, in hops, the mean.
    fn hops_to_memory(&self, client: usize, node: usize) -> f64 {
        let it = &self.clients[client];
        let all_mib: u64 = it.lies_mib.iter().sum();
        let far = |(at, mib): (usize, &u64)| self.host.hops(node, at) * *mib as f64;
        match all_mib {
            0 => 0.0,
            _ => it.lies_mib.iter().enumerate().map(far).sum::<f64>() / all_mib as f64,
        }
    }

    /// The memory of a wide VM is spread over the homes of its parts, and all of them use all of it: how much far
    /// use comes of one more part there, pCPUs times hops.
    fn hops_to_siblings(&self, client: usize, node: usize) -> f64 {
        let parts = &self.parts[&self.clients[client].vm];
        let at_home = parts.iter().filter_map(|&part| Some((part, self.homes[part]?.node)));
        let both_ways = |(part, at): (usize, usize)| {
            self.wanted_pcpus(client) * self.host.hops(node, at)
                + self.wanted_pcpus(part) * self.host.hops(at, node)
        };
        at_home.map(both_ways).sum::<f64>() / parts.len() as f64
    }

    /// What it costs by all sets of its VM; none: a hard one forbids it.
    fn set_cost(&self, client: usize, home: Home) -> Option<f64> {
        let vm = self.clients[client].vm;
        let mut cost = 0.0;
        for &set in self.sets_of.get(&vm).into_iter().flatten() {
            let set = &self.sets[set];
            for other in set.vms.iter().filter(|&&other| other != vm) {
                let broken = self.breaks(set, *other, home);
                if broken > 0.0 && set.hard {
                    return None;
                }
                cost += SET * broken;
            }
        }
        Some(cost)
    }

    /// What of the other VM's wishes would be against the set if one more lived there, pCPUs and a little for
    /// those that sleep.
    fn breaks(&self, set: &Set, other: u64, home: Home) -> f64 {
        let parts = self.parts.get(&other).map_or(&[][..], Vec::as_slice);
        let homes = parts.iter().filter_map(|&part| Some((part, self.homes[part]?)));
        let wanted = |part: usize| self.wanted_pcpus(part) + 0.1;
        let near = |at: Home| match set.within {
            Within::Node => at.node == home.node,
            // In any LLC of the node, they may meet.
            Within::Llc => at.node == home.node && (at.llc == home.llc || at.llc.is_none()),
        };
        let is_near = |(_, at): &(usize, Home)| near(*at);
        match set.kind {
            // Of a wide one one part near by is enough.
            Kind::Affine if homes.clone().any(|it| is_near(&it)) => 0.0,
            Kind::Affine => homes.map(|(part, _)| wanted(part)).fold(0.0, f64::max),
            Kind::AntiAffine => homes.filter(is_near).map(|(part, _)| wanted(part)).sum(),
        }
    }

    /// The first set that is broken there, if any.
    pub(super) fn broken_set(&self, client: usize, home: Home) -> Option<&'a Set> {
        let vm = self.clients[client].vm;
        let sets = self.sets;
        let of_vm = self.sets_of.get(&vm).into_iter().flatten().map(|&set| &sets[set]);
        let mut of_vm = of_vm.filter(|set| {
            let mut others = set.vms.iter().filter(|&&other| other != vm);
            others.any(|&other| self.breaks(set, other, home) > 0.0)
        });
        of_vm.next()
    }

    /// The clients of each VM that have no home, those who want most first.
    pub(super) fn homeless(&self) -> Vec<Vec<usize>> {
        let no_home = |part: &usize| self.homes[*part].is_none();
        let of_vm = self.parts.values().map(|it| it.iter().copied().filter(no_home).collect());
        let mut homeless: Vec<Vec<usize>> =
            of_vm.filter(|it: &Vec<usize>| !it.is_empty()).collect();
        let wants =
            |parts: &[usize]| parts.iter().map(|&it| self.clients[it].wanted_pcpus).sum::<f64>();
        homeless.sort_by(|a, b| wants(b).total_cmp(&wants(a)).then(a.cmp(b)));
        homeless
    }

    /// What will be free of a node's memory when everybody's is at home, but for that client's, MiB.
    pub(super) fn free_mib(&self, node: usize, client: usize) -> u64 {
        let own_mib = self.clients[client].lies_mib.get(node).copied().unwrap_or(0);
        let there_is = self.host.nodes[node].free_mib + self.leaves_mib[node] as u64 + own_mib;
        there_is.saturating_sub(self.nodes[node].comes_mib as u64)
    }

    /// What of its wishes the client can have, pCPUs.
    pub(super) fn wanted_pcpus(&self, client: usize) -> f64 {
        self.scale * self.clients[client].wanted_pcpus
    }

    /// What is left of a node's pCPUs.
    pub(super) fn left_pcpus(&self, node: usize) -> f64 {
        f64::from(self.host.nodes[node].pcpus) - self.nodes[node].pcpus
    }
}

/// So many pCPUs of wishes each node holds before those at home there are crowded: as many as it has; but where VMs
/// miss their caches all the time, no more than its part of all wishes. A pCPU may be idle then, the cache is not.
/// The same whatever homes there are, or moves would not end.
pub(super) fn holds(host: &Host, clients: &[Client], all_wanted: f64) -> Vec<f64> {
    let pcpus = || host.nodes.iter().map(|node| f64::from(node.pcpus));
    let moves_mib_s: f64 = clients.iter().map(|client| client.memory_mib_s).sum();
    let wanted: f64 = clients.iter().map(|client| client.wanted_pcpus).sum();
    let misses = wanted > 0.0 && moves_mib_s >= MISSES_MIB_S * wanted;
    let part = if misses { (all_wanted / pcpus().sum::<f64>().max(1.0)).min(1.0) } else { 1.0 };
    pcpus().map(|pcpus| part * pcpus).collect()
}

/// By what part more is used than there is; 0 where that is not known.
fn beyond(used: f64, there_is: f64) -> f64 {
    if there_is > 0.0 { (used / there_is - 1.0).max(0.0) } else { 0.0 }
}

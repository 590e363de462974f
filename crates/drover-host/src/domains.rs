// SPDX-License-Identifier: GPL-2.0-only
//! Which pCPUs share a run queue of VMs.
//!
//! A domain is a last-level cache, or a part of one: the policy keeps 64 pCPUs of a domain in a word, so
//! a wider group is split evenly, cores kept whole. Where caches say nothing, the node is the group, and
//! where there are no nodes, the host.
//!
//! The number of domains is fixed when the scheduler is loaded, and of pCPUs that are offline then the
//! kernel does not tell the cache. So there are spare domains for caches that may come with them. Until a
//! pCPU has been online it stands in a domain of its node. When it comes, its cache is read, and it goes
//! where its cache is, or to a spare domain if nobody of that cache was seen before. A pCPU that has been
//! placed stays in its cache: numbers of pCPUs do not change their place.
//!
//! A domain is within one partition, too. When pCPUs of a cache are given to a partition they join the domain
//! that this partition has in this cache; if it has none, they take a spare one. Threads wait in a domain, so
//! it keeps its number where it can: for the pCPUs that stay in their partition or, if all are given away,
//! for the largest group that stays together. A domain without pCPUs is spare again.
//!
//! Worked example: pCPUs 0-3 on cache A, 4-7, present and offline, on cache B, all in one node. At first
//! all stand in domain 0, and domain 1 is spare. 4 comes: cache B is new, 4 goes to domain 1. 5 comes:
//! it shares its cache with 4, and follows. Partition `io` is given 2-3: they go to domain 2, and come back to
//! domain 0 when it is removed.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use drover_core::domain;
use drover_core::settings::PartitionId;

use crate::topology::Topology;
use drover_policy::{DROVER_DOMAIN_PCPUS, DROVER_MAX_DOMAINS};

/// What shares one run queue of VMs. See policy/queue/waiting.h for why an LLC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DomainLevel {
    /// One domain for every pCPU.
    Pcpu,
    /// One domain for every last-level cache.
    #[default]
    Llc,
    /// One domain for every NUMA node.
    Node,
    /// One domain for the whole host.
    Host,
}

impl DomainLevel {
    /// The words for them.
    pub const WORDS: [(&'static str, DomainLevel); 4] =
        [("pcpu", Self::Pcpu), ("llc", Self::Llc), ("node", Self::Node), ("host", Self::Host)];
}

impl std::str::FromStr for DomainLevel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::WORDS.iter().find(|(word, _)| *word == text);
        known
            .map(|(_, level)| *level)
            .ok_or_else(|| format!("unknown domain level {text:?}; use pcpu, llc, node or host"))
    }
}

/// A domain is no wider.
const WIDTH_MAX: usize = DROVER_DOMAIN_PCPUS as usize;
/// So many are spare for partitions, and one more for each that is used.
const SPARE_FOR_PARTITIONS: u32 = 6;

/// What pCPUs have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    Host,
    Node(usize),
    Llc(usize),
    Pcpu(usize),
}

/// A pCPU in its place, as the kernel is to know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    /// The pCPU.
    pub pcpu: u32,
    /// The domain it is in.
    pub domain: u32,
    /// The partition of that domain.
    pub partition: PartitionId,
    /// The other hardware thread of its core, where a core has two.
    pub sibling: Option<usize>,
    /// The NUMA node that all pCPUs of its domain are on.
    pub node: Option<usize>,
    /// The cache of that domain, by a number of its own.
    pub llc: usize,
}

/// The domain of each pCPU.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Domains {
    level: DomainLevel,
    of: Vec<u32>,
    /// Those seen online: they stay in their cache.
    placed: Vec<bool>,
    /// The partition of each pCPU.
    partition: Vec<PartitionId>,
    /// The other hardware thread of each one's core, and its NUMA node.
    near: Vec<(Option<usize>, Option<usize>)>,
    /// The cache of each domain that was ever used, by a number of its own.
    cache: Vec<usize>,
    /// With the spare ones.
    all: u32,
}

impl Domains {
    /// For that host as it is now.
    pub fn new(topology: &Topology, level: DomainLevel) -> Self {
        let nr_pcpus = topology.pcpus.len();
        let mut domains = Self {
            level,
            of: vec![0; nr_pcpus],
            placed: vec![false; nr_pcpus],
            partition: vec![PartitionId::DEFAULT; nr_pcpus],
            near: (0..nr_pcpus).map(|cpu| near(topology, cpu)).collect(),
            ..Self::default()
        };
        let mut groups: BTreeMap<Group, Vec<usize>> = BTreeMap::new();
        for cpu in (0..nr_pcpus).filter(|&cpu| topology.pcpus[cpu].online) {
            groups.entry(domains.group(topology, cpu)).or_default().push(cpu);
        }
        // In the order of their first pCPUs.
        let mut groups: Vec<Vec<usize>> = groups.into_values().collect();
        groups.sort();
        let widest = groups.iter().map(Vec::len).max().unwrap_or(1).min(WIDTH_MAX);
        for (cache, group) in groups.iter().enumerate() {
            for part in parts(topology, group) {
                // More than there can be share the last.
                if domains.used() < DROVER_MAX_DOMAINS {
                    domains.cache.push(cache);
                }
                let domain = domains.used() - 1;
                for cpu in part {
                    (domains.of[cpu], domains.placed[cpu]) = (domain, true);
                }
            }
        }
        if domains.cache.is_empty() {
            domains.cache.push(0);
        }
        let spare = domains.spare_for(topology, widest) + domains.used() + SPARE_FOR_PARTITIONS;
        domains.all = domains.used().saturating_add(spare).min(DROVER_MAX_DOMAINS);
        for cpu in 0..nr_pcpus {
            if !domains.placed[cpu] {
                domains.of[cpu] = domains.of_node(topology, cpu);
            }
        }
        domains
    }

    /// The domain of each possible pCPU.
    pub fn of(&self) -> &[u32] {
        &self.of
    }

    /// The domains that were used so far.
    pub fn used(&self) -> u32 {
        u32::try_from(self.cache.len()).expect("256 at most")
    }

    /// The same, and the spare ones.
    pub fn all(&self) -> u32 {
        self.all
    }

    /// The NUMA node that all pCPUs of a domain are on; none: there is none, or several.
    pub fn node_of(&self, domain: u32) -> Option<usize> {
        let here = self.of.iter().zip(&self.near).filter(|(of, _)| **of == domain);
        let mut nodes = here.map(|(_, (_, node))| *node);
        let first = nodes.next()??;
        nodes.all(|node| node == Some(first)).then_some(first)
    }

    /// Looks at the host again; the pCPUs that have come for the first time, and where each belongs.
    pub fn see(&mut self, topology: &Topology) -> Vec<Placed> {
        let mut moved = Vec::new();
        for cpu in 0..self.of.len().min(topology.pcpus.len()) {
            if self.placed[cpu] || !topology.pcpus[cpu].online {
                continue;
            }
            self.near[cpu] = near(topology, cpu);
            self.of[cpu] = self.place(topology, cpu);
            self.placed[cpu] = true;
            moved.push(self.placed(cpu));
        }
        moved
    }

    /// Gives each pCPU to the partition that is said; those that are elsewhere now. Who leaves a domain comes
    /// before who takes it along.
    ///
    /// # Errors
    /// When there are not domains enough; nothing is given then.
    pub fn give(&mut self, partition_of: impl Fn(u32) -> PartitionId) -> Result<Vec<Placed>> {
        let mut after = self.clone();
        for (cpu, partition) in (0..).zip(&mut after.partition) {
            *partition = partition_of(cpu);
        }
        let (mut left, mut taken) = (Vec::new(), Vec::new());
        let leaves =
            |cpu: &usize| self.placed[*cpu] && self.partition[*cpu] != after.partition[*cpu];
        for cpu in (0..self.of.len()).filter(leaves) {
            match self.takes_along(cpu, &after) {
                true => taken.push(cpu),
                false => left.push(cpu),
            }
        }
        // They are in no domain while others look for one.
        left.iter().for_each(|&cpu| after.placed[cpu] = false);
        for &cpu in &left {
            after.of[cpu] = after.domain_for(self.cache_of(cpu), after.partition[cpu], None)?;
            after.placed[cpu] = true;
        }
        *self = after;
        Ok(left.into_iter().chain(taken).map(|cpu| self.placed(cpu)).collect())
    }

    /// Whether a pCPU that changes partitions takes its domain along: nobody stays in it, its new partition
    /// has none in this cache, and most of its pCPUs go there.
    fn takes_along(&self, cpu: usize, after: &Self) -> bool {
        let (domain, to) = (self.of[cpu], after.partition[cpu]);
        let here = || (0..self.of.len()).filter(|&it| self.is_in(it, domain));
        let stays = |it: usize| self.partition[it] == after.partition[it];
        let is_there = |it: usize| {
            self.placed[it]
                && stays(it)
                && after.partition[it] == to
                && self.cache_of(it) == self.cache_of(cpu)
        };
        let going = |to: PartitionId| here().filter(|&it| after.partition[it] == to).count();
        let first_of_most = here().max_by_key(|&it| (going(after.partition[it]), usize::MAX - it));
        !here().any(stays)
            && !(0..self.of.len()).any(is_there)
            && first_of_most.is_some_and(|it| after.partition[it] == to)
    }

    /// Where a pCPU that comes for the first time belongs.
    fn place(&mut self, topology: &Topology, cpu: usize) -> u32 {
        let group = self.group(topology, cpu);
        let near = (0..self.of.len().min(topology.pcpus.len())).filter(|&other| {
            self.placed[other]
                && topology.pcpus[other].online
                && self.group(topology, other) == group
        });
        let near: Vec<usize> = near.collect();
        let cache = near.first().map(|&other| self.cache_of(other));
        let cache = cache.unwrap_or_else(|| self.cache.iter().max().map_or(0, |last| last + 1));
        let of_core = |it: &&usize| topology.pcpus[**it].core == topology.pcpus[cpu].core;
        let sibling = near.iter().find(of_core).map(|&it| self.of[it]);
        let partition = self.partition[cpu];
        if let Ok(domain) = self.domain_for(cache, partition, sibling) {
            return domain;
        }
        // Where there is none of its own it serves whom its neighbours serve.
        let domain = self.of_node(topology, cpu);
        let neighbour = (0..self.of.len()).find(|&it| self.is_in(it, domain));
        self.partition[cpu] = neighbour.map_or(partition, |it| self.partition[it]);
        domain
    }

    /// A domain of that cache and partition with room in it: `wish`, if it is one, else the narrowest, else one
    /// that is spare.
    fn domain_for(
        &mut self,
        cache: usize,
        partition: PartitionId,
        wish: Option<u32>,
    ) -> Result<u32> {
        let width = |domain: u32| (0..self.of.len()).filter(|&it| self.is_in(it, domain)).count();
        let is_of = |domain: u32| {
            self.cache[domain as usize] == cache
                && (0..self.of.len())
                    .any(|it| self.is_in(it, domain) && self.partition[it] == partition)
        };
        let roomy = || (0..self.used()).filter(|&it| is_of(it) && width(it) < WIDTH_MAX);
        let found =
            roomy().find(|it| wish == Some(*it)).or_else(|| roomy().min_by_key(|&it| width(it)));
        if let Some(found) = found {
            return Ok(found);
        }
        // One that this cache has left before others: who still waits there may run here.
        let spare = || (0..self.used()).filter(|&it| width(it) == 0);
        let own = spare().find(|&it| self.cache[it as usize] == cache);
        let new = Some(self.used()).filter(|&new| new < self.all);
        let Some(domain) = own.or(new).or_else(|| spare().next()) else {
            let all = self.all;
            bail!(
                "this host has {all} domains, and all are in use: each partition needs one in every \
                 last-level cache it has pCPUs of; give it pCPUs of fewer, or remove a partition"
            );
        };
        match self.cache.get_mut(domain as usize) {
            Some(known) => *known = cache,
            None => self.cache.push(cache),
        }
        Ok(domain)
    }

    /// The cache of a domain that is, or was, used, by a number of its own.
    pub fn llc_of(&self, domain: u32) -> Option<usize> {
        self.cache.get(domain as usize).copied()
    }

    /// The cache of that pCPU, by a number of its own.
    pub fn cache_of(&self, cpu: usize) -> usize {
        self.cache[self.of[cpu] as usize]
    }

    fn placed(&self, cpu: usize) -> Placed {
        let (domain, partition) = (self.of[cpu], self.partition[cpu]);
        let (sibling, node) = (self.near[cpu].0, self.node_of(domain));
        let pcpu = u32::try_from(cpu).expect("4096 at most");
        Placed { pcpu, domain, partition, sibling, node, llc: self.cache_of(cpu) }
    }

    fn is_in(&self, cpu: usize, domain: u32) -> bool {
        self.placed[cpu] && self.of[cpu] == domain
    }

    fn group(&self, topology: &Topology, cpu: usize) -> Group {
        let pcpu = &topology.pcpus[cpu];
        let node = || pcpu.node.map_or(Group::Host, Group::Node);
        match self.level {
            DomainLevel::Host => Group::Host,
            DomainLevel::Pcpu => Group::Pcpu(cpu),
            DomainLevel::Node => node(),
            DomainLevel::Llc => pcpu.llc.map_or_else(node, Group::Llc),
        }
    }

    /// How many may be needed for pCPUs that are plugged in and offline.
    fn spare_for(&self, topology: &Topology, widest: usize) -> u32 {
        let offline = topology.count(|pcpu| pcpu.present && !pcpu.online);
        let each = match self.level {
            DomainLevel::Pcpu => 1,
            _ if topology.smt_off => return 0,
            DomainLevel::Host => WIDTH_MAX,
            DomainLevel::Node | DomainLevel::Llc => widest,
        };
        u32::try_from(offline.div_ceil(each)).unwrap_or(DROVER_MAX_DOMAINS).min(DROVER_MAX_DOMAINS)
    }

    /// The narrowest domain of the node of a pCPU nobody knows more of, else of the host.
    fn of_node(&self, topology: &Topology, cpu: usize) -> u32 {
        let near = |other: usize| {
            let (a, b) =
                (topology.pcpus[cpu].node, topology.pcpus.get(other).and_then(|it| it.node));
            match (a, b) {
                (Some(a), Some(b)) => {
                    let distance = topology.nodes.get(&a).and_then(|node| node.distances.get(&b));
                    distance.copied().unwrap_or(if a == b { 10 } else { u32::MAX })
                }
                _ => u32::MAX,
            }
        };
        let members = |domain: u32| (0..self.of.len()).filter(move |&it| self.is_in(it, domain));
        let distance = |domain: u32| members(domain).map(near).min().unwrap_or(u32::MAX);
        (0..self.used()).min_by_key(|&it| (distance(it), members(it).count())).unwrap_or(0)
    }
}

/// A group as domains that are narrow enough, of like width, no core in two.
fn parts(topology: &Topology, group: &[usize]) -> Vec<Vec<usize>> {
    let mut cores: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for &cpu in group {
        cores.entry(topology.pcpus[cpu].core.unwrap_or(cpu)).or_default().push(cpu);
    }
    let cores: Vec<Vec<usize>> = cores.into_values().collect();
    domain::split(&cores, WIDTH_MAX)
}

/// The other hardware thread of that pCPU's core, and its NUMA node.
fn near(topology: &Topology, cpu: usize) -> (Option<usize>, Option<usize>) {
    (topology.sibling(cpu), topology.pcpus[cpu].node)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::tests::Host;
    use drover_core::cpu_list::CpuList;

    fn domains(host: &Host, level: DomainLevel) -> Domains {
        Domains::new(&host.read(), level)
    }

    fn seen(domains: &mut Domains, host: &Host) -> Vec<(u32, u32)> {
        domains.see(&host.read()).iter().map(|one| (one.pcpu, one.domain)).collect()
    }

    /// Two caches of two cores in a node each.
    fn two_nodes(online: &str) -> Host {
        let host = Host::new("0-3", "0-3", online);
        host.node(0, "0-1", 9, "10 20").node(1, "2-3", 9, "20 10");
        for (cpu, shared) in [(0, "0-1"), (1, "0-1"), (2, "2-3"), (3, "2-3")] {
            if online.contains(&cpu.to_string()) || online == "0-3" {
                host.llc(cpu, shared);
            }
        }
        host
    }

    #[test]
    fn domains_follow_the_level() {
        let host = two_nodes("0-3");
        let of = |level| domains(&host, level).of;
        assert_eq!(of(DomainLevel::Llc), [0, 0, 1, 1]);
        assert_eq!(of(DomainLevel::Pcpu), [0, 1, 2, 3]);
        assert_eq!(of(DomainLevel::Node), [0, 0, 1, 1]);
        assert_eq!(of(DomainLevel::Host), [0, 0, 0, 0]);
        assert_eq!(domains(&host, DomainLevel::Llc).all(), 2 + 2 + 6);
        let node_of = |level, domain| domains(&host, level).node_of(domain);
        assert_eq!([0, 1].map(|it| node_of(DomainLevel::Llc, it)), [Some(0), Some(1)]);
        assert_eq!(node_of(DomainLevel::Host, 0), None, "it is on both");
    }

    #[test]
    fn without_caches_the_node_counts_and_without_nodes_the_host() {
        let host = Host::new("0-3", "0-3", "0-3");
        assert_eq!(domains(&host, DomainLevel::Llc).of, [0, 0, 0, 0]);
        host.node(0, "0-1", 9, "10 20").node(1, "2-3", 9, "20 10");
        assert_eq!(domains(&host, DomainLevel::Llc).of, [0, 0, 1, 1]);
    }

    #[test]
    fn nodes_of_one_pcpu_are_domains_and_empty_ones_are_none() {
        let host = Host::new("0-1", "0-1", "0-1");
        host.node(0, "0", 9, "10 20 20").node(1, "1", 0, "20 10 20").node(7, "", 9, "20 20 10");
        let domains = domains(&host, DomainLevel::Llc);
        assert_eq!((domains.of(), domains.used()), (&[0, 1][..], 2));
    }

    #[test]
    fn a_cache_that_comes_with_its_pcpus_has_a_domain_of_its_own() {
        let host = Host::new("0-5", "0-5", "0-1");
        for cpu in [0, 1] {
            host.llc(cpu, "0-1");
        }
        let mut domains = domains(&host, DomainLevel::Llc);
        assert_eq!((domains.of(), domains.used(), domains.all()), (&[0; 6][..], 1, 3 + 7));
        host.set_online("0-2");
        host.llc(2, "2");
        assert_eq!(seen(&mut domains, &host), [(2, 1)]);
        host.set_online("0-3");
        host.llc(2, "2-3").llc(3, "2-3");
        assert_eq!(seen(&mut domains, &host), [(3, 1)]);
        assert!(domains.see(&host.read()).is_empty());
        assert_eq!((domains.used(), domains.all()), (2, 3 + 7));
        // It goes, and comes back: it stays where it was.
        host.set_online("0-2");
        assert!(domains.see(&host.read()).is_empty());
        host.set_online("0-3");
        assert!(domains.see(&host.read()).is_empty());
    }

    #[test]
    fn a_pcpu_of_a_known_cache_joins_it() {
        let host = two_nodes("0,2");
        let mut domains = domains(&host, DomainLevel::Llc);
        assert_eq!(domains.of(), [0, 0, 1, 1], "each with its node, until more is known");
        host.set_online("0-3");
        host.llc(1, "0-1").llc(3, "2-3");
        assert_eq!(seen(&mut domains, &host), [(1, 0), (3, 1)]);
        assert_eq!(domains.used(), 2);
    }

    #[test]
    fn offline_threads_of_cores_need_no_spare_domains() {
        let host = Host::new("0-3", "0-3", "0-1");
        std::fs::create_dir_all(host.0.path().join("cpu/smt")).unwrap();
        std::fs::write(host.0.path().join("cpu/smt/control"), "off\n").unwrap();
        assert_eq!(domains(&host, DomainLevel::Llc).all(), 1 + 7);
        // Not present, they may never come.
        let host = Host::new("0-255", "0-1", "0-1");
        assert_eq!(domains(&host, DomainLevel::Llc).all(), 1 + 7);
    }

    #[test]
    fn without_a_spare_domain_a_new_cache_stands_in_one_of_its_node() {
        let host = Host::new("0-3", "0-1", "0-1");
        host.node(0, "0", 9, "10 20").node(1, "1", 9, "20 10");
        let mut domains = domains(&host, DomainLevel::Llc);
        domains.all = 2;
        host.node(1, "1-3", 9, "20 10");
        host.set_online("0-3");
        host.llc(2, "2-3").llc(3, "2-3");
        assert_eq!(seen(&mut domains, &host), [(2, 1), (3, 1)]);
    }

    /// One cache, or two of four pCPUs each.
    fn eight(caches: usize) -> Host {
        let host = Host::new("0-7", "0-7", "0-7");
        for cpu in 0..8 {
            host.llc(cpu, if caches == 1 { "0-7" } else { ["0-3", "4-7"][cpu / 4] });
        }
        host
    }

    /// Gives these pCPUs to partitions 1, 2 ...; where those that moved are now.
    fn give(domains: &mut Domains, lists: &[&str]) -> Vec<(u32, u32)> {
        let lists: Vec<CpuList> = lists.iter().map(|list| list.parse().unwrap()).collect();
        let partition_of = |cpu| {
            let at = lists.iter().position(|list| list.contains(cpu));
            PartitionId(at.map_or(0, |at| at as u32 + 1))
        };
        let moved = domains.give(partition_of).unwrap();
        for one in &moved {
            assert_eq!(one.partition, partition_of(one.pcpu));
        }
        // No domain is in two partitions or two caches.
        for (a, b) in (0..8).flat_map(|a| (0..8).map(move |b| (a, b))) {
            let same = domains.of[a] == domains.of[b] && domains.placed[a] && domains.placed[b];
            assert!(!same || domains.partition[a] == domains.partition[b], "{domains:?}");
        }
        moved.iter().map(|one| (one.pcpu, one.domain)).collect()
    }

    #[test]
    fn a_partition_has_a_domain_in_each_cache_it_has_pcpus_of() {
        let mut domains = domains(&eight(2), DomainLevel::Llc);
        assert_eq!(give(&mut domains, &["2-5"]), [(2, 2), (3, 2), (4, 3), (5, 3)]);
        assert_eq!(domains.of(), [0, 0, 2, 2, 3, 3, 1, 1]);
        assert_eq!(give(&mut domains, &["2-4,6"]), [(5, 1), (6, 3)]);
        assert_eq!(give(&mut domains, &[]), [(2, 0), (3, 0), (4, 1), (6, 1)]);
        assert_eq!(domains.of(), [0, 0, 0, 0, 1, 1, 1, 1], "together again");
        assert!(give(&mut domains, &[]).is_empty());
    }

    #[test]
    fn who_keeps_its_pcpus_keeps_its_domain() {
        let mut domains = domains(&eight(1), DomainLevel::Llc);
        give(&mut domains, &["0-6"]);
        assert_eq!(domains.of(), [1, 1, 1, 1, 1, 1, 1, 0], "the one that stays has the number");
        // All of it is given away: the most keep it, and it is told to be of their partition last.
        assert_eq!(give(&mut domains, &["7", "0-4"])[..2], [(5, 2), (6, 2)]);
        assert_eq!(domains.of(), [1, 1, 1, 1, 1, 2, 2, 0]);
    }

    #[test]
    fn domains_without_pcpus_are_used_again_until_none_is_left() {
        let mut domains = domains(&eight(1), DomainLevel::Llc);
        domains.all = 3;
        for round in 0..5 {
            give(&mut domains, if round % 2 == 0 { &["1", "2"] } else { &["3"] });
        }
        let before = domains.clone();
        let refusal = domains.give(|cpu| PartitionId(cpu % 4)).unwrap_err().to_string();
        assert!(refusal.starts_with("this host has 3 domains, and all are in use"), "{refusal}");
        assert_eq!(domains, before, "nothing is half given");
    }

    #[test]
    fn a_pcpu_that_comes_goes_where_its_partition_is() {
        let host = eight(1);
        host.set_online("0-6");
        let mut domains = domains(&host, DomainLevel::Llc);
        give(&mut domains, &["5-7"]);
        host.set_online("0-7");
        assert_eq!(seen(&mut domains, &host), [(7, 1)]);
    }

    #[test]
    fn wide_groups_are_split_evenly_and_cores_are_kept_whole() {
        let host = Host::new("0-129", "0-129", "0-129");
        for cpu in 0..65 {
            let siblings = format!("{cpu},{}", cpu + 65);
            host.core(cpu, &siblings).core(cpu + 65, &siblings);
        }
        let domains = domains(&host, DomainLevel::Host);
        let width = |domain| domains.of().iter().filter(|&&it| it == domain).count();
        assert_eq!([width(0), width(1), width(2)], [42, 44, 44]);
        assert!((0..65).all(|cpu| domains.of()[cpu] == domains.of()[cpu + 65]));
        assert_eq!(
            super::tests::domains(&Host::new("0-63", "0-63", "0-63"), DomainLevel::Host).used(),
            1
        );
    }

    #[test]
    fn more_groups_than_domains_share_the_last() {
        let domains = domains(&Host::new("0-299", "0-299", "0-299"), DomainLevel::Pcpu);
        assert_eq!((domains.all(), domains.of()[299], domains.of()[254]), (256, 255, 254));
    }
}

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
//! placed stays: numbers of pCPUs do not change their place.
//!
//! Worked example: pCPUs 0-3 on cache A, 4-7, present and offline, on cache B, all in one node. At first
//! all stand in domain 0, and domain 1 is spare. 4 comes: cache B is new, 4 goes to domain 1. 5 comes:
//! it shares its cache with 4, and follows.

use std::collections::{BTreeMap, BTreeSet};

use crate::topology::{Pcpu, Topology};

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

impl std::str::FromStr for DomainLevel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "pcpu" => Ok(Self::Pcpu),
            "llc" => Ok(Self::Llc),
            "node" => Ok(Self::Node),
            "host" => Ok(Self::Host),
            _ => Err(format!("unknown domain level {text:?}; use pcpu, llc, node or host")),
        }
    }
}

/// A domain is no wider.
const WIDTH_MAX: usize = 64;
/// The most domains there can be, `DROVER_MAX_DOMAINS` in policy/base/types.h.
const DOMAINS_MAX: u32 = 256;

/// What pCPUs have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    Host,
    Node(usize),
    Llc(usize),
    Pcpu(usize),
}

/// The domain of each pCPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Domains {
    level: DomainLevel,
    of: Vec<u32>,
    /// Those seen online: they stay where they are.
    placed: Vec<bool>,
    used: u32,
    spare: u32,
}

impl Domains {
    /// For that host as it is now.
    pub fn new(topology: &Topology, level: DomainLevel) -> Self {
        let nr_pcpus = topology.pcpus.len();
        let (of, placed) = (vec![0; nr_pcpus], vec![false; nr_pcpus]);
        let mut domains = Self { level, of, placed, used: 0, spare: 0 };
        let mut groups: BTreeMap<Group, Vec<usize>> = BTreeMap::new();
        for cpu in (0..nr_pcpus).filter(|&cpu| topology.pcpus[cpu].online) {
            groups.entry(domains.group(topology, cpu)).or_default().push(cpu);
        }
        // In the order of their first pCPUs.
        let mut groups: Vec<Vec<usize>> = groups.into_values().collect();
        groups.sort();
        let widest = groups.iter().map(Vec::len).max().unwrap_or(1).min(WIDTH_MAX);
        for part in groups.iter().flat_map(|group| parts(topology, group)) {
            // More than there can be share the last.
            let domain = domains.used.min(DOMAINS_MAX - 1);
            for cpu in part {
                (domains.of[cpu], domains.placed[cpu]) = (domain, true);
            }
            domains.used = domain + 1;
        }
        domains.used = domains.used.max(1);
        domains.spare = domains.spare_for(topology, widest);
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

    /// The domains that pCPUs were seen in.
    pub fn used(&self) -> u32 {
        self.used
    }

    /// The same, and the spare ones.
    pub fn all(&self) -> u32 {
        self.used + self.spare
    }

    /// The NUMA node that all pCPUs of a domain are on; none: there is none, or several.
    pub fn node_of(&self, topology: &Topology, domain: u32) -> Option<usize> {
        let of = |(cpu, pcpu): (usize, &Pcpu)| (self.of[cpu] == domain).then_some(pcpu.node);
        let mut nodes = topology.pcpus.iter().enumerate().filter_map(of);
        let first = nodes.next()??;
        nodes.all(|node| node == Some(first)).then_some(first)
    }

    /// Looks at the host again; the pCPUs that have come for the first time, and where each belongs.
    pub fn see(&mut self, topology: &Topology) -> Vec<(u32, u32)> {
        let mut moved = Vec::new();
        for cpu in 0..self.of.len().min(topology.pcpus.len()) {
            if self.placed[cpu] || !topology.pcpus[cpu].online {
                continue;
            }
            let domain = self.place(topology, cpu);
            self.of[cpu] = domain;
            self.placed[cpu] = true;
            moved.extend(u32::try_from(cpu).map(|cpu| (cpu, domain)));
        }
        moved
    }

    /// Where a pCPU that comes for the first time belongs.
    fn place(&mut self, topology: &Topology, cpu: usize) -> u32 {
        let group = self.group(topology, cpu);
        let others: Vec<usize> = (0..self.of.len().min(topology.pcpus.len()))
            .filter(|&other| self.placed[other] && topology.pcpus[other].online)
            .filter(|&other| self.group(topology, other) == group)
            .collect();
        let of_core =
            others.iter().find(|&&it| topology.pcpus[it].core == topology.pcpus[cpu].core);
        let domains: BTreeSet<u32> = others.iter().map(|&other| self.of[other]).collect();
        let width = |domain: &u32| (0..self.of.len()).filter(|&it| self.is_in(it, *domain)).count();
        let of_core = of_core.map(|&other| self.of[other]).filter(|it| width(it) < WIDTH_MAX);
        if let Some(domain) = of_core {
            return domain;
        }
        if let Some(&roomy) =
            domains.iter().min_by_key(|it| width(it)).filter(|it| width(it) < WIDTH_MAX)
        {
            return roomy;
        }
        if self.spare == 0 {
            return self.of_node(topology, cpu);
        }
        self.spare -= 1;
        self.used += 1;
        self.used - 1
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
        let spare = u32::try_from(offline.div_ceil(each)).unwrap_or(u32::MAX);
        spare.min(DOMAINS_MAX - self.used)
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
        (0..self.used).min_by_key(|&it| (distance(it), members(it).count())).unwrap_or(0)
    }
}

/// A group as domains that are narrow enough, of like width, no core in two.
fn parts(topology: &Topology, group: &[usize]) -> Vec<Vec<usize>> {
    let mut cores: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for &cpu in group {
        cores.entry(topology.pcpus[cpu].core.unwrap_or(cpu)).or_default().push(cpu);
    }
    let cores: Vec<Vec<usize>> = cores.into_values().collect();
    let least = group.len().div_ceil(WIDTH_MAX);
    let split = |count: usize| -> Vec<Vec<usize>> {
        let of_part = |part: usize| part * cores.len() / count..(part + 1) * cores.len() / count;
        (0..count).map(|part| cores[of_part(part)].concat()).collect()
    };
    let fits = |parts: &Vec<Vec<usize>>| parts.iter().all(|part| part.len() <= WIDTH_MAX);
    (least..=cores.len()).map(split).find(fits).unwrap_or_else(|| split(cores.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::tests::Host;

    fn domains(host: &Host, level: DomainLevel) -> Domains {
        Domains::new(&host.read(), level)
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
        assert_eq!(domains(&host, DomainLevel::Llc).all(), 2);
        let node_of = |level, domain| domains(&host, level).node_of(&host.read(), domain);
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
        assert_eq!((domains.of(), domains.all()), (&[0, 1][..], 2));
    }

    #[test]
    fn a_cache_that_comes_with_its_pcpus_has_a_domain_of_its_own() {
        let host = Host::new("0-5", "0-5", "0-1");
        for cpu in [0, 1] {
            host.llc(cpu, "0-1");
        }
        let mut domains = domains(&host, DomainLevel::Llc);
        assert_eq!((domains.of(), domains.used(), domains.all()), (&[0; 6][..], 1, 3));
        host.set_online("0-2");
        host.llc(2, "2");
        assert_eq!(domains.see(&host.read()), [(2, 1)]);
        host.set_online("0-3");
        host.llc(2, "2-3").llc(3, "2-3");
        assert_eq!(domains.see(&host.read()), [(3, 1)]);
        assert!(domains.see(&host.read()).is_empty());
        assert_eq!((domains.used(), domains.all()), (2, 3));
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
        assert_eq!(domains.see(&host.read()), [(1, 0), (3, 1)]);
        assert_eq!(domains.used(), 2);
    }

    #[test]
    fn offline_threads_of_cores_need_no_spare_domains() {
        let host = Host::new("0-3", "0-3", "0-1");
        std::fs::create_dir_all(host.0.path().join("cpu/smt")).unwrap();
        std::fs::write(host.0.path().join("cpu/smt/control"), "off\n").unwrap();
        assert_eq!(domains(&host, DomainLevel::Llc).all(), 1);
        // Not present, they may never come.
        let host = Host::new("0-255", "0-1", "0-1");
        assert_eq!(domains(&host, DomainLevel::Llc).all(), 1);
    }

    #[test]
    fn without_a_spare_domain_a_new_cache_stands_in_one_of_its_node() {
        let host = Host::new("0-3", "0-1", "0-1");
        host.node(0, "0", 9, "10 20").node(1, "1", 9, "20 10");
        let mut domains = domains(&host, DomainLevel::Llc);
        assert_eq!(domains.all(), 2);
        host.node(1, "1-3", 9, "20 10");
        host.set_online("0-3");
        host.llc(2, "2-3").llc(3, "2-3");
        assert_eq!(domains.see(&host.read()), [(2, 1), (3, 1)]);
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
            super::tests::domains(&Host::new("0-63", "0-63", "0-63"), DomainLevel::Host).all(),
            1
        );
    }

    #[test]
    fn more_groups_than_domains_share_the_last() {
        let domains = domains(&Host::new("0-299", "0-299", "0-299"), DomainLevel::Pcpu);
        assert_eq!((domains.all(), domains.of()[299], domains.of()[254]), (256, 255, 254));
    }
}

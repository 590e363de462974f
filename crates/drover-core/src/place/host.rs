// SPDX-License-Identifier: GPL-2.0-only
//! The host, as the placer sees it.

/// A last-level cache and the pCPUs that share it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Llc {
    /// Its number, as the policy is told.
    pub number: u32,
    /// Its pCPUs that are online.
    pub pcpus: u32,
    /// Its size, MiB; 0: not known.
    pub cache_mib: f64,
}

/// A NUMA node.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Node {
    /// Its number, as the kernel has it.
    pub number: u32,
    /// Its pCPUs that are online.
    pub pcpus: u32,
    /// Its cores with a pCPU that is online.
    pub cores: u32,
    /// Its LLCs.
    pub llcs: Vec<Llc>,
    /// What those want there who are no clients: VMs confined to it, containers; pCPUs.
    pub wanted_pcpus: f64,
    /// Its memory, MiB.
    pub memory_mib: u64,
    /// Of that, free, MiB.
    pub free_mib: u64,
    /// What its memory can give, MiB/s; 0: not known.
    pub memory_mib_s: f64,
}

impl Node {
    /// May anybody be at home there?
    pub fn is_a_home(&self) -> bool {
        self.pcpus > 0 && self.memory_mib > 0
    }
}

/// Hops between two nodes at that distance, as the policy counts them (policy/base/topology.h).
pub fn policy_hops(distance: u32) -> u8 {
    let hops = (distance + Host::LOCAL / 2) / Host::LOCAL;
    u8::try_from(hops.clamp(2, 7)).unwrap_or(7)
}

/// All nodes, and how far they are from each other.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Host {
    /// In any order; others name them by their places here.
    pub nodes: Vec<Node>,
    /// From each to each as ACPI counts it, 10 for the node itself; where nothing is given all are as far.
    pub distances: Vec<Vec<u32>>,
}

impl Host {
    /// The distance of a node to itself.
    pub const LOCAL: u32 = 10;
    /// To another, where the host does not say.
    pub const FAR: u32 = 20;

    /// How many hops of ten the memory of one node is from the pCPUs of another; 0: it is the node's own.
    pub fn hops(&self, from: usize, to: usize) -> f64 {
        let given = self.distances.get(from).and_then(|row| row.get(to)).copied();
        let distance = match from == to {
            true => Self::LOCAL,
            false => given.filter(|&it| it > Self::LOCAL).unwrap_or(Self::FAR),
        };
        f64::from(distance) / f64::from(Self::LOCAL) - 1.0
    }

    /// What the policy and users call that home.
    pub fn number(&self, home: super::Home) -> super::HomeNumber {
        let node = &self.nodes[home.node];
        let llc = home.llc.and_then(|llc| node.llcs.get(llc)).map(|llc| llc.number);
        super::HomeNumber { node: node.number, llc }
    }

    /// Where that home is in the host as it is now; none: its node is not there.
    pub fn place_of(&self, home: super::HomeNumber) -> Option<super::Home> {
        let node = self.nodes.iter().position(|node| node.number == home.node)?;
        let llcs = &self.nodes[node].llcs;
        let llc = home.llc.and_then(|number| llcs.iter().position(|llc| llc.number == number));
        Some(super::Home { node, llc })
    }

    /// The most cores that a node has that may be a home.
    pub fn widest(&self) -> u32 {
        self.homes().map(|node| node.cores).max().unwrap_or(0)
    }

    /// Nodes that may be a home.
    pub fn homes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|node| node.is_a_home())
    }
}

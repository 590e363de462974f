// SPDX-License-Identifier: GPL-2.0-only
//! Clients: what is given a home.
//!
//! Idea. A VM that fits a node is one client. One that has more vCPUs than the widest node has cores, or more
//! memory than a node, is split into as few parts as fit, each a client with some of the vCPUs and an even part
//! of the memory. Hardware threads do not count: eight vCPUs are wide on four cores of two threads. Parts of one
//! VM never share a node while there are nodes enough, and lie as near together as can be ([`super::cost`]).
//!
//! Where the guest has virtual nodes (vNUMA), a part is some of these, one after the other, with their vCPUs and
//! their memory, which its kernel already keeps together. They do not split what fits a node: there all memory is
//! near to all vCPUs, as near as the guest takes it to be and nearer.
//!
//! Worked example (seed 000, 3.4). Nodes of four cores: 8 vCPUs are two parts, vCPUs 0 to 3 and 4 to 7; with
//! `max_per_node` 2, four parts. If the guest has four virtual nodes of 2 vCPUs, the first two are one part and the
//! others are the other; with virtual nodes of 2, 4 and 2 vCPUs there are three parts. On nodes of eight cores the
//! VM is one part, whatever virtual nodes it has.
//!
//! Limitations. Where a virtual node is larger than a node of the host, the VM is split evenly as if it had none,
//! except that on a host smaller than the VM, where nothing fits, virtual nodes stay whole.
//!
//! After seed 000, 3.4 (numa.vcpu.maxPerMachineNode).

use super::host::Host;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Range;

/// A home: a node, or one LLC of it. Both by their places in [`Host`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Home {
    /// The node.
    pub node: usize,
    /// The LLC, by its place in the node; none: any.
    pub llc: Option<usize>,
}

/// A home by the numbers that the policy knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct HomeNumber {
    /// The node's, as the kernel has it.
    pub node: u32,
    /// The LLC's; none: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub llc: Option<u32>,
}

impl HomeNumber {
    /// Of all of that node.
    pub fn node(node: u32) -> Self {
        Self { node, llc: None }
    }

    /// Above the node's number the policy keeps the LLC's (policy/place/home.h).
    pub const LLC_SHIFT: u32 = 12;

    /// As the policy keeps it.
    pub fn word(self) -> u32 {
        (self.node + 1) | self.llc.map_or(0, |llc| llc + 1) << Self::LLC_SHIFT
    }
}

/// A VM, or a part of one.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Client {
    /// The VM's number.
    pub vm: u64,
    /// What it wants, or has reserved if that is more, pCPUs.
    pub wanted_pcpus: f64,
    /// Memory it has or may come to have, MiB.
    pub memory_mib: u64,
    /// What of it lies on each node, MiB.
    pub lies_mib: Vec<u64>,
    /// Its memory cannot be moved, as a passed-through device may have it: its home is where that is.
    pub is_stuck: bool,
    /// Cache it uses, MiB; 0: not known.
    pub cache_mib: f64,
    /// Memory it moves, MiB/s; 0: not known.
    pub memory_mib_s: f64,
    /// The node of a device that is passed through to it.
    pub device: Option<usize>,
    /// It is to live in one LLC, if it fits.
    pub one_llc: bool,
    /// What of its time it was crowded lately, beyond what others were: 0 to 1.
    pub crowded: f64,
    /// The node that was ordered as its home; none: the placer chooses.
    pub only: Option<usize>,
    /// Where it is at home.
    pub home: Option<Home>,
    /// It may leave that.
    pub may_leave: bool,
}

impl Client {
    /// Its memory cannot move, and lies elsewhere: it is to go there.
    pub(super) fn is_stuck_elsewhere(&self, node: usize) -> bool {
        let most = self.lies_mib.iter().max().copied().unwrap_or(0);
        let here = self.lies_mib.get(node).copied().unwrap_or(0);
        self.is_stuck && 2 * here < most
    }
}

/// A node that a guest has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VirtualNode {
    /// Its vCPUs, which come after those of the virtual nodes before it.
    pub vcpus: u32,
    /// Its memory, MiB.
    pub memory_mib: u64,
    /// What of that lies on each node of the host, MiB.
    pub lies_mib: BTreeMap<u32, u64>,
}

/// What a VM is split by.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Shape {
    /// Its vCPUs.
    pub vcpus: u32,
    /// Its memory, MiB.
    pub memory_mib: u64,
    /// At most so many vCPUs on a node; none: as many as a node has cores.
    pub max_per_node: Option<u32>,
    /// The nodes that its guest has; empty: it knows of none.
    pub virtual_nodes: Vec<VirtualNode>,
}

/// A part of a VM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Its vCPUs.
    pub vcpus: Range<u32>,
    /// The virtual nodes whose vCPUs these are, by their places; empty: its memory is an even part of all.
    pub virtual_nodes: Range<usize>,
}

/// The parts of the VM on that host, in the order of their vCPUs.
pub fn parts(host: &Host, shape: &Shape) -> Vec<Part> {
    let limits = Limits::of(host, shape);
    by_virtual_nodes(shape, &limits).unwrap_or_else(|| even_parts(host, shape))
}

/// The same, as if the guest had no virtual nodes.
pub(super) fn even_parts(host: &Host, shape: &Shape) -> Vec<Part> {
    let count = Limits::of(host, shape).count(shape);
    let from = |part: u32| {
        let vcpus = u64::from(shape.vcpus) * u64::from(part) / u64::from(count);
        u32::try_from(vcpus).unwrap_or(u32::MAX)
    };
    let part = |part| Part { vcpus: from(part)..from(part + 1), virtual_nodes: 0..0 };
    (0..count).map(part).collect()
}

/// What a part may have, and how many parts there may be.
struct Limits {
    vcpus: u32,
    memory_mib: u64,
    nodes: u32,
    /// As many parts would fit, if there were nodes enough.
    wants: u32,
}

impl Limits {
    fn of(host: &Host, shape: &Shape) -> Self {
        let vcpus = shape.max_per_node.unwrap_or_else(|| host.widest()).max(1);
        let memory_mib = host.homes().map(|node| node.memory_mib).max().unwrap_or(0).max(1);
        let by_memory = u32::try_from(shape.memory_mib.div_ceil(memory_mib)).unwrap_or(u32::MAX);
        Self {
            vcpus,
            memory_mib,
            nodes: u32::try_from(host.homes().count()).unwrap_or(u32::MAX).max(1),
            wants: shape.vcpus.div_ceil(vcpus).max(by_memory).max(1),
        }
    }

    /// So many parts at least.
    fn count(&self, shape: &Shape) -> u32 {
        self.wants.min(self.nodes).min(shape.vcpus.max(1))
    }
}

/// The fewest parts of whole virtual nodes that fit, if any do.
fn by_virtual_nodes(shape: &Shape, limits: &Limits) -> Option<Vec<Part>> {
    let given = &shape.virtual_nodes;
    let sum =
        |nodes: &Range<usize>| given[nodes.clone()].iter().map(|it| u64::from(it.vcpus)).sum();
    let all: u64 = sum(&(0..given.len()));
    // Not all vCPUs have run yet, or more have than it should have.
    if given.is_empty() || all != u64::from(shape.vcpus) {
        return None;
    }
    let (fewest, most) = (limits.count(shape) as usize, given.len().min(limits.nodes as usize));
    let groups = |count: usize| {
        let from = move |part: usize| given.len() * part / count;
        (0..count).map(move |part| from(part)..from(part + 1))
    };
    let fits = |nodes: Range<usize>| {
        let memory_mib = given[nodes.clone()].iter().map(|it| it.memory_mib);
        sum(&nodes) <= u64::from(limits.vcpus)
            && memory_mib.fold(0, u64::saturating_add) <= limits.memory_mib
    };
    let fitting = (fewest..=most).find(|&count| groups(count).all(fits));
    let is_larger_than_host = limits.wants > limits.nodes && most >= fewest;
    let count = fitting.or_else(|| is_larger_than_host.then_some(most))?;
    let mut next = 0;
    let part = |virtual_nodes: Range<usize>| {
        let first = next;
        next += given[virtual_nodes.clone()].iter().map(|it| it.vcpus).sum::<u32>();
        Part { vcpus: first..next, virtual_nodes }
    };
    Some(groups(count).map(part).collect())
}

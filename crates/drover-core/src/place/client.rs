// SPDX-License-Identifier: GPL-2.0-only
//! Clients: what is given a home.
//!
//! Idea. A VM that fits a node is one client. One that has more vCPUs than the widest node has cores, or more
//! memory than a node, is split into as few parts as fit, each a client with some of the vCPUs and an even part
//! of the memory. Hardware threads do not count: eight vCPUs are wide on four cores of two threads. Parts of one
//! VM never share a node while there are nodes enough, and lie as near together as can be ([`super::cost`]).
//!
//! Worked example (seed 000, 3.4). Nodes of four cores: 8 vCPUs are two parts, vCPUs 0 to 3 and 4 to 7; with
//! `max_per_node` 2, four parts. A guest that has two virtual nodes is two parts in any case, and each has the
//! memory of its virtual node, not an even part of all.
//!
//! After seed 000, 3.4 (numa.vcpu.maxPerMachineNode).

use super::host::Host;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
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
    pub const LLC_SHIFT: u32 = 16;

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

/// What a VM is split by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Shape {
    /// Its vCPUs.
    pub vcpus: u32,
    /// Its memory, MiB.
    pub memory_mib: u64,
    /// At most so many vCPUs on a node; none: as many as a node has cores.
    pub max_per_node: Option<u32>,
    /// Nodes that the guest has; 0 and 1: it knows of none.
    pub virtual_nodes: u32,
}

/// The vCPUs of each part of the VM on that host, in order.
pub fn parts(host: &Host, shape: &Shape) -> Vec<Range<u32>> {
    let nodes = u32::try_from(host.homes().count()).unwrap_or(u32::MAX).max(1);
    let most = shape.max_per_node.unwrap_or_else(|| host.widest()).max(1);
    let largest_mib = host.homes().map(|node| node.memory_mib).max().unwrap_or(0).max(1);
    let by_memory = u32::try_from(shape.memory_mib.div_ceil(largest_mib)).unwrap_or(u32::MAX);
    let wants = shape.vcpus.div_ceil(most).max(by_memory).max(shape.virtual_nodes);
    let count = wants.clamp(1, nodes.min(shape.vcpus.max(1)));
    let from = |part: u32| {
        let vcpus = u64::from(shape.vcpus) * u64::from(part) / u64::from(count);
        u32::try_from(vcpus).unwrap_or(u32::MAX)
    };
    (0..count).map(|part| from(part)..from(part + 1)).collect()
}

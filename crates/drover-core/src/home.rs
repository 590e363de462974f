// SPDX-License-Identifier: GPL-2.0-only
//! On which NUMA node a VM is at home: where its memory is to lie, and its vCPUs run if they can.
//!
//! Idea. A home costs two things. What of the VM's CPU time would find no pCPU there, because those who
//! are at home there already want them: that part runs far from its memory, or waits. And what of its
//! memory lies elsewhere: it must be moved, once, and is far until then. The first lasts as long as the
//! VM, the second for seconds or minutes, so it counts a quarter. A node is no choice if it has no
//! pCPUs, no memory, or less free than what would have to come; memory is taken off what is free at the
//! moment it is promised, so that two VMs that start at once do not choose the same.
//!
//! Worked example. Node 0 has 2 pCPUs and VMs that want 2; node 1 has 2 and VMs that want none. A VM of
//! one vCPU has all of its memory on node 0. Node 0 costs 1 (no pCPU for it) and no memory, node 1 no
//! pCPU and 0.25: node 1 it is. Were there one VM less on node 0, that would cost nothing, and be home.
//!
//! Where several cost the same, the one whose pCPUs are wanted least is taken, then the one with the most
//! free memory. A VM that has a home leaves it only where that saves half of its time ([`better`]): what
//! it has moved counts for where it is then, so that it does not come back for the same reason.
//!
//! Limitations. A VM that fits no node has no home. All nodes but one's own are as far.

/// A node, as a VM that seeks a home sees it: that VM's own part is in none of this.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Node {
    /// Its pCPUs that are online.
    pub pcpus: u32,
    /// What those who are at home there want of these.
    pub wanted_pcpus: f64,
    /// Its memory, MiB.
    pub memory_mib: u64,
    /// Of that, free and promised to nobody, MiB.
    pub free_mib: u64,
}

/// A VM that seeks a home.
#[derive(Debug, Clone, PartialEq)]
pub struct Seeker {
    /// CPU time it wants, pCPUs.
    pub wanted_pcpus: f64,
    /// Memory it has or may come to have, MiB.
    pub memory_mib: u64,
    /// What of that lies on each node, MiB, in their order.
    pub lies_mib: Vec<u64>,
}

/// What of the cost of CPU time memory that lies elsewhere counts.
const FAR: f64 = 0.25;
/// What another home must save, as a part of the VM's CPU time.
const SAVES: f64 = 0.5;
/// Costs are the same within this.
const ALIKE: f64 = 1e-6;

impl Seeker {
    fn lies_on(&self, node: usize) -> u64 {
        self.lies_mib.get(node).copied().unwrap_or(0)
    }

    /// What the node would cost; none: it is no choice.
    #[allow(clippy::cast_precision_loss, reason = "parts need no more than 52 bits")]
    fn cost(&self, nodes: &[Node], node: usize) -> Option<f64> {
        let Node { pcpus, wanted_pcpus, memory_mib, free_mib } = nodes[node];
        let comes_mib = self.memory_mib.saturating_sub(self.lies_on(node));
        if pcpus == 0 || memory_mib == 0 || comes_mib > free_mib {
            return None;
        }
        let without = wanted_pcpus + self.wanted_pcpus - f64::from(pcpus);
        let crowded = match self.wanted_pcpus > 0.0 {
            true => (without / self.wanted_pcpus).clamp(0.0, 1.0),
            false => 0.0,
        };
        let has_mib: u64 = self.lies_mib.iter().sum();
        let far = match has_mib {
            0 => 0.0,
            _ => 1.0 - self.lies_on(node) as f64 / has_mib as f64,
        };
        Some(crowded + FAR * far)
    }
}

/// The place in `nodes` of the VM's home; none where it fits nowhere.
pub fn choose(nodes: &[Node], vm: &Seeker) -> Option<usize> {
    let mut best: Option<(usize, f64)> = None;
    for node in 0..nodes.len() {
        let Some(cost) = vm.cost(nodes, node) else { continue };
        let is_better = best.is_none_or(|(other, other_cost)| match cost - other_cost {
            more if more > ALIKE => false,
            more if more < -ALIKE => true,
            _ => is_emptier(&nodes[node], &nodes[other]),
        });
        if is_better {
            best = Some((node, cost));
        }
    }
    best.map(|(node, _)| node)
}

/// The home that is enough better than the one it has; none: it stays.
pub fn better(nodes: &[Node], vm: &Seeker, home: usize) -> Option<usize> {
    let best = choose(nodes, vm)?;
    // Where home has become no choice, it is all that can be lost.
    let here = vm.cost(nodes, home).unwrap_or(f64::INFINITY);
    (best != home && here - vm.cost(nodes, best)? >= SAVES).then_some(best)
}

fn is_emptier(node: &Node, other: &Node) -> bool {
    let crowd = |node: &Node| node.wanted_pcpus / f64::from(node.pcpus);
    match crowd(node) - crowd(other) {
        more if more.abs() > ALIKE => more < 0.0,
        _ => node.free_mib > other.free_mib,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FREE: Node = Node { pcpus: 2, wanted_pcpus: 0.0, memory_mib: 4096, free_mib: 4096 };

    fn vm(wanted_pcpus: f64, lies_mib: &[u64]) -> Seeker {
        let memory_mib = lies_mib.iter().sum::<u64>().max(1024);
        Seeker { wanted_pcpus, memory_mib, lies_mib: lies_mib.to_vec() }
    }

    #[test]
    fn home_is_where_the_memory_lies_unless_there_is_no_pcpu() {
        let full = Node { wanted_pcpus: 2.0, ..FREE };
        let half = Node { wanted_pcpus: 1.0, ..FREE };
        let on_0 = vm(1.0, &[1024, 0]);
        assert_eq!(choose(&[FREE, FREE], &on_0), Some(0));
        assert_eq!(choose(&[half, FREE], &on_0), Some(0), "there is one for it");
        assert_eq!(choose(&[full, FREE], &on_0), Some(1));
        assert_eq!(choose(&[full, full], &on_0), Some(0), "it is no better elsewhere");
        assert_eq!(choose(&[full, FREE], &vm(0.0, &[1024, 0])), Some(0), "it sleeps");
    }

    #[test]
    fn who_has_no_memory_yet_goes_where_there_is_most_room() {
        let busy = Node { wanted_pcpus: 1.0, ..FREE };
        let short = Node { free_mib: 2048, ..FREE };
        assert_eq!(choose(&[busy, FREE], &vm(1.0, &[])), Some(1));
        assert_eq!(choose(&[short, FREE], &vm(1.0, &[])), Some(1));
        assert_eq!(choose(&[FREE, FREE], &vm(1.0, &[])), Some(0));
    }

    #[test]
    fn promised_memory_is_not_free() {
        let mut nodes = [FREE, FREE];
        let big = Seeker { memory_mib: 3000, ..vm(0.1, &[]) };
        assert_eq!(choose(&nodes, &big), Some(0));
        nodes[0].free_mib -= 3000;
        assert_eq!(choose(&nodes, &big), Some(1));
        nodes[1].free_mib -= 3000;
        assert_eq!(choose(&nodes, &big), None);
    }

    #[test]
    fn nodes_without_pcpus_or_without_memory_are_nobodys_home() {
        let cxl = Node { pcpus: 0, ..FREE };
        let bare = Node { memory_mib: 0, free_mib: 0, ..FREE };
        assert_eq!(choose(&[cxl, bare, FREE], &vm(1.0, &[1024, 0, 0])), Some(2));
        assert_eq!(choose(&[cxl, bare], &vm(1.0, &[])), None);
        assert_eq!(choose(&[bare], &Seeker { memory_mib: 0, ..vm(1.0, &[]) }), None);
    }

    #[test]
    fn home_is_left_for_half_of_the_time_and_not_for_less() {
        let full = Node { wanted_pcpus: 2.0, ..FREE };
        assert_eq!(better(&[full, FREE], &vm(1.0, &[1024, 0]), 0), Some(1));
        let rather = Node { wanted_pcpus: 1.5, ..FREE };
        assert_eq!(better(&[rather, FREE], &vm(1.0, &[1024, 0]), 0), None);
        let gone = Node { pcpus: 0, ..FREE };
        assert_eq!(better(&[gone, FREE], &vm(1.0, &[1024, 0]), 0), Some(1));
    }

    proptest! {
        /// Two VMs that want the same pCPUs: whatever the load of others, once one has moved neither
        /// moves again.
        #[test]
        fn nobody_goes_back_and_forth(
            others in prop::collection::vec(0.0..4.0f64, 2..5),
            wants in prop::collection::vec((0.1..4.0f64, 0u64..4), 1..6),
        ) {
            let count = others.len();
            let mut homes: Vec<usize> =
                wants.iter().map(|(_, at)| usize::try_from(*at).unwrap() % count).collect();
            let mut moves = 0;
            for _ in 0..40 {
                for one in 0..homes.len() {
                    let nodes: Vec<Node> = (0..count).map(|node| {
                        let at_home = |it: &usize| *it != one && homes[*it] == node;
                        let wanted: f64 = (0..homes.len()).filter(at_home).map(|it| wants[it].0).sum();
                        Node { wanted_pcpus: others[node] + wanted, ..FREE }
                    }).collect();
                    let mut lies = vec![0; count];
                    lies[homes[one]] = 1024;
                    if let Some(node) = better(&nodes, &vm(wants[one].0, &lies), homes[one]) {
                        homes[one] = node;
                        moves += 1;
                    }
                }
            }
            prop_assert!(moves <= 2 * homes.len(), "{moves} moves of {} VMs", homes.len());
        }
    }
}

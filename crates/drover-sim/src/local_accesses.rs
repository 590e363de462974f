// SPDX-License-Identifier: GPL-2.0-only
//! Which part of a VM's memory accesses are local: to the node where it runs.
//!
//! All of its memory is used alike, and as often in each ms of CPU time. Worked example: memory on two nodes of
//! four; a vCPU that runs on one of the two has half of its accesses local, on the others none. One that
//! runs on all four alike has a quarter.

/// What one VM accessed.
#[derive(Debug, Clone, Default)]
struct OfVm {
    /// The nodes its memory lies on; none until it first runs.
    nodes: Vec<u32>,
    ran_ns: u64,
    local_ns: f64,
}

/// Local accesses of VMs, by CPU time.
#[derive(Debug, Clone, Default)]
pub(crate) struct LocalAccesses(Vec<OfVm>);

impl LocalAccesses {
    /// For VMs whose memory lies on these nodes; where none is named, on the one where the VM first runs.
    pub(crate) fn of(nodes: impl Iterator<Item = Vec<u32>>) -> Self {
        Self(nodes.map(|nodes| OfVm { nodes, ..OfVm::default() }).collect())
    }

    /// A thread of that VM, or of the host, ran for so long on that node.
    pub(crate) fn ran(&mut self, vm: u32, node: u32, ran_ns: u64) {
        let Some(vm) = self.0.get_mut(vm as usize) else { return };
        if vm.nodes.is_empty() {
            vm.nodes.push(node);
        }
        vm.ran_ns += ran_ns;
        if vm.nodes.contains(&node) {
            vm.local_ns += ran_ns as f64 / vm.nodes.len() as f64;
        }
    }

    /// The memory of that VM lies on these nodes from now on.
    pub(crate) fn set_nodes(&mut self, vm: u32, nodes: &[u32]) {
        if let Some(vm) = self.0.get_mut(vm as usize) {
            vm.nodes = nodes.to_vec();
        }
    }

    /// The part of that VM's accesses that were local since `before`, %; none where it did not run.
    pub(crate) fn pct_since(&self, before: &Self, vm: u32) -> Option<f64> {
        let (now, before) = (self.0.get(vm as usize)?, before.0.get(vm as usize)?);
        let ran_ns = now.ran_ns - before.ran_ns;
        (ran_ns > 0).then(|| 100.0 * (now.local_ns - before.local_ns) / ran_ns as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_on_two_of_four_nodes_is_at_hand_for_half() {
        let before = LocalAccesses::of([vec![0, 1], vec![]].into_iter());
        let mut now = before.clone();
        now.ran(0, 0, 1_000);
        assert_eq!(now.pct_since(&before, 0), Some(50.0));
        now.ran(0, 3, 1_000);
        assert_eq!(now.pct_since(&before, 0), Some(25.0));
        assert_eq!(now.pct_since(&before, 1), None, "it did not run");
        now.ran(1, 2, 1_000);
        now.ran(9, 2, 1_000);
        assert_eq!(now.pct_since(&before, 1), Some(100.0), "memory is where it first ran");
        now.set_nodes(1, &[3]);
        now.ran(1, 2, 1_000);
        assert_eq!(now.pct_since(&before, 1), Some(50.0));
    }
}

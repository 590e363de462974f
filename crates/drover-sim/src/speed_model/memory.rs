// SPDX-License-Identifier: GPL-2.0-only
//! Memory: how far away it is, and how crowded.
//!
//! Latency is the host's `memory_ns` and `hop_ns` for each 10 of distance beyond a node's own. Each node's
//! memory serves one cache line after the other, each in 64 bytes / bandwidth; who finds it busy waits.
//! With a part `r` of its time busy that wait is `service / 2 * r / (1 - r)` on average (a queue of type
//! M/D/1). Who waits longer asks less often, so `r` follows from what all would ask if nobody waited:
//!
//! `r * (1 - w + w * (1 + q * r / (1 - r))) = asked / bandwidth`
//!
//! with `w` the part of their time that those who ask spend waiting for memory, and `q` half the service
//! time over the latency. That has one solution below 1, however much is asked: a node saturates.
//! Worked example: 10,000 MB/s, 100 ns, all waiting half of their time. Asked 5,000 MB/s, the memory is
//! half busy and takes 103 ns. Asked 20,000 MB/s, it is 0.97 busy, takes 208 ns, and gives nearly all it has.

use drover_core::scenario::{Host, Pace};

/// How crowded a node is, is told apart in steps of this part of its unloaded latency: others are concerned
/// only now and then, and all stays a function of who runs now.
const STEPS: f64 = 64.0;

/// What a thread asks of each node that its memory lies on, if nobody is in its way. In whole numbers:
/// what is added and taken away again leaves nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Load {
    asks_kb_s: u64,
    /// That, times the part of its time that the thread waits for memory.
    waits_kb_s: u64,
}

impl Load {
    /// Of a thread that asks so much of all its nodes together, and waits for them that part of its time.
    pub(super) fn new(asks_mb_s: f64, waits: f64, nodes: usize) -> Self {
        let each_kb_s = asks_mb_s * 1e3 / nodes as f64;
        Self { asks_kb_s: each_kb_s as u64, waits_kb_s: (each_kb_s * waits) as u64 }
    }
}

/// The memory of a host.
#[derive(Debug)]
pub(super) struct Memory {
    memory_ns: f64,
    node_mb_s: f64,
    /// Added to the latency from each node to each.
    far_ns: Vec<Vec<f64>>,
    loads: Vec<Load>,
    /// How much longer each node takes, as it is loaded.
    times: Vec<f64>,
}

impl Memory {
    /// None where the host does not say how fast it is.
    pub(super) fn of(host: &Host) -> Option<Self> {
        let hop_ns = f64::from(host.hop_ns.unwrap_or_default());
        let far_ns = |from: u32, to: u32| {
            let hops = f64::from(host.distance(from, to)) / f64::from(Host::DISTANCE_LOCAL) - 1.0;
            hops * hop_ns
        };
        let row = |from: u32| (0..host.nodes).map(|to| far_ns(from, to)).collect();
        Some(Self {
            memory_ns: host.memory_ns?.into(),
            node_mb_s: host.node_mb_s?.into(),
            far_ns: (0..host.nodes).map(row).collect(),
            loads: vec![Load::default(); host.nodes as usize],
            times: vec![1.0; host.nodes as usize],
        })
    }

    /// Latency of a node's own memory that nobody else uses, ns.
    pub(super) fn local_ns(&self) -> f64 {
        self.memory_ns
    }

    /// From a node to memory on these in equal parts, unloaded, ns.
    pub(super) fn latency_ns(&self, from: u32, nodes: &[u32]) -> f64 {
        let far = &self.far_ns[from as usize];
        self.memory_ns + mean(nodes, |node| far[node])
    }

    /// ... and as loaded now.
    pub(super) fn loaded_ns(&self, from: u32, nodes: &[u32]) -> f64 {
        let far = &self.far_ns[from as usize];
        mean(nodes, |node| self.memory_ns * self.times[node] + far[node])
    }

    /// How long a ms of computing with so many misses in it takes a thread of that pace that is alone on
    /// the host, ms.
    pub(super) fn alone_ms(&self, pace: &Pace, misses_per_ms: f64) -> f64 {
        let stalled_ms = misses_per_ms * self.memory_ns / 1e6;
        let takes_ms = 1.0 + stalled_ms;
        let load = Load::new(pace.moves_mb_s(misses_per_ms / takes_ms), stalled_ms / takes_ms, 1);
        1.0 + stalled_ms * self.times(load)
    }

    pub(super) fn add(&mut self, load: Load, nodes: &[u32]) {
        for &node in nodes {
            let all = &mut self.loads[node as usize];
            all.asks_kb_s += load.asks_kb_s;
            all.waits_kb_s += load.waits_kb_s;
        }
    }

    pub(super) fn remove(&mut self, load: Load, nodes: &[u32]) {
        for &node in nodes {
            let all = &mut self.loads[node as usize];
            all.asks_kb_s -= load.asks_kb_s;
            all.waits_kb_s -= load.waits_kb_s;
        }
    }

    /// What nodes are asked has changed. Does one of them take another time now?
    pub(super) fn recount(&mut self) -> bool {
        let mut changed = false;
        for node in 0..self.loads.len() {
            let times = self.times(self.loads[node]);
            changed |= std::mem::replace(&mut self.times[node], times) != times;
        }
        changed
    }

    /// How many times its unloaded latency a node takes that is asked so much.
    fn times(&self, load: Load) -> f64 {
        if load.asks_kb_s == 0 {
            return 1.0;
        }
        let asked = load.asks_kb_s as f64 / 1e3 / self.node_mb_s;
        let waits = load.waits_kb_s as f64 / load.asks_kb_s as f64;
        let service_ns = f64::from(Pace::LINE_BYTES) * 1e3 / self.node_mb_s;
        let queue = service_ns / 2.0 / self.memory_ns;
        // (1 - wq) r^2 - (1 + a) r + a = 0
        let square = 1.0 - waits * queue;
        let linear = 1.0 + asked;
        let busy = (linear - (linear * linear - 4.0 * square * asked).sqrt()) / (2.0 * square);
        let times = 1.0 + queue * busy / (1.0 - busy);
        (times * STEPS).round() / STEPS
    }
}

fn mean(nodes: &[u32], of: impl Fn(usize) -> f64) -> f64 {
    nodes.iter().map(|&node| of(node as usize)).sum::<f64>() / nodes.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> Memory {
        let node_distances = [[10, 20, 30], [20, 10, 20], [30, 20, 10]].map(Vec::from).to_vec();
        let said = Host { sockets: 3, nodes: 3, node_distances, ..Host::default() };
        let (memory_ns, hop_ns, node_mb_s) = (Some(100), Some(40), Some(10_000));
        Memory::of(&Host { memory_ns, hop_ns, node_mb_s, ..said }).unwrap()
    }

    #[test]
    fn each_hop_takes_longer_and_interleaved_memory_the_mean() {
        let memory = memory();
        let from_0 = [&[0][..], &[1], &[2], &[0, 1], &[0, 1, 2]];
        assert_eq!(from_0.map(|nodes| memory.latency_ns(0, nodes)), [100., 140., 180., 120., 140.]);
        assert!(Memory::of(&Host::default()).is_none());
    }

    #[test]
    fn a_node_gives_no_more_than_it_has_and_nearly_that() {
        let memory = memory();
        let times = |asked_mb_s| memory.times(Load::new(asked_mb_s, 0.5, 1));
        assert_eq!(times(100.0), 1.0);
        assert!((1.02..1.05).contains(&times(5_000.0)), "{}", times(5_000.0));
        let mut before = 1.0;
        for asked_mb_s in (0..200).map(|step| f64::from(step) * 1_000.0) {
            let times = times(asked_mb_s);
            assert!(times >= before, "{asked_mb_s}");
            before = times;
            let given_mb_s = asked_mb_s / (0.5 + 0.5 * times);
            // But for the steps it is told apart in.
            assert!(given_mb_s <= 10_000.0 * 1.01, "{asked_mb_s}: {given_mb_s}");
            assert!(asked_mb_s < 20_000.0 || given_mb_s > 9_500.0, "{asked_mb_s}: {given_mb_s}");
        }
    }

    #[test]
    fn what_goes_leaves_nothing() {
        let mut memory = memory();
        let load = Load::new(14_321.7, 0.37, 2);
        memory.add(load, &[0, 2]);
        assert!(memory.recount() && memory.loaded_ns(1, &[0]) > memory.loaded_ns(1, &[1]) + 40.0);
        memory.remove(load, &[0, 2]);
        assert!(memory.recount() && !memory.recount());
        assert_eq!((memory.loads[0], memory.loaded_ns(0, &[2])), (Load::default(), 180.0));
    }
}

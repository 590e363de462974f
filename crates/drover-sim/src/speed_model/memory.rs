// SPDX-License-Identifier: GPL-2.0-only
//! Memory: how far away it is, and how crowded the way there.
//!
//! Latency is the host's `memory_ns`, and `hop_ns` for each 10 of distance beyond a node's own. Each node's memory
//! and each link between two nodes is a channel of some bandwidth ([`super::channel`]); who finds one busy waits
//! besides. Channels are taken for themselves: that who waits for one asks the others less is left out.

use super::channel::{Channel, Load};
use super::routes::Routes;
use drover_scenario::{Host, Pace};

/// The memory of a host.
#[derive(Debug)]
pub(super) struct Memory {
    memory_ns: f64,
    /// Added to the latency from each node to each.
    far_ns: Vec<Vec<f64>>,
    /// Those of the nodes, then those of the links.
    channels: Vec<Channel>,
    /// None where links are as wide as need be.
    routes: Option<Routes>,
}

impl Memory {
    /// None where the host does not say how fast it is.
    pub(super) fn of(host: &Host) -> Option<Self> {
        let (memory_ns, node_mb_s) = (host.memory_ns?, host.node_mb_s?);
        let hop_ns = f64::from(host.hop_ns.unwrap_or_default());
        let far_ns = |from: u32, to: u32| {
            let hops = f64::from(host.distance(from, to)) / f64::from(Host::DISTANCE_LOCAL) - 1.0;
            hops * hop_ns
        };
        let row = |from: u32| (0..host.nodes).map(|to| far_ns(from, to)).collect();
        let mut channels = vec![Channel::new(node_mb_s, memory_ns); host.nodes as usize];
        let routes = host.node_link_mb_s.map(|mb_s| {
            let routes = Routes::of(host);
            channels.extend(vec![Channel::new(mb_s, memory_ns); routes.links]);
            routes
        });
        let far_ns = (0..host.nodes).map(row).collect();
        Some(Self { memory_ns: memory_ns.into(), far_ns, channels, routes })
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
        let links = self.channels.get(self.far_ns.len()..).unwrap_or_default();
        mean(nodes, |node| {
            let hops = self.routes.iter().flat_map(|routes| &routes.hops[from as usize][node]);
            let on_way_ns: f64 =
                hops.map(|&(link, one_in)| links[link].wait_ns() / one_in as f64).sum();
            self.memory_ns + self.channels[node].wait_ns() + far[node] + on_way_ns
        })
    }

    /// How long a ms of computing with so many misses in it takes a thread of that pace that is alone on
    /// the host, near its memory, ms.
    pub(super) fn alone_ms(&self, pace: &Pace, misses_per_ms: f64) -> f64 {
        let stalled_ms = misses_per_ms * self.memory_ns / 1e6;
        let takes_ms = 1.0 + stalled_ms;
        let load = Load::new(pace.moves_mb_s(misses_per_ms / takes_ms), stalled_ms / takes_ms);
        1.0 + misses_per_ms * (self.memory_ns + self.channels[0].wait_with_ns(load)) / 1e6
    }

    /// A thread on that node asks so much of all these nodes together.
    pub(super) fn add(&mut self, load: Load, from: u32, nodes: &[u32]) {
        self.each_channel(load, from, nodes, Channel::add);
    }

    /// It no longer does.
    pub(super) fn remove(&mut self, load: Load, from: u32, nodes: &[u32]) {
        self.each_channel(load, from, nodes, Channel::remove);
    }

    fn each_channel(&mut self, load: Load, from: u32, nodes: &[u32], does: fn(&mut Channel, Load)) {
        let first_link = self.far_ns.len();
        let part = load.part(nodes.len().max(1));
        for &node in nodes {
            does(&mut self.channels[node as usize], part);
            let hops =
                self.routes.iter().flat_map(|routes| &routes.hops[from as usize][node as usize]);
            for &(link, one_in) in hops {
                does(&mut self.channels[first_link + link], part.part(one_in));
            }
        }
    }

    /// What channels are asked has changed. Does one wait for another time for one of them now?
    pub(super) fn recount(&mut self) -> bool {
        self.channels.iter_mut().fold(false, |changed, channel| channel.recount() | changed)
    }
}

fn mean(nodes: &[u32], of: impl Fn(usize) -> f64) -> f64 {
    nodes.iter().map(|&node| of(node as usize)).sum::<f64>() / nodes.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(node_link_mb_s: Option<u32>) -> Memory {
        let node_distances = [[10, 20, 30], [20, 10, 20], [30, 20, 10]].map(Vec::from).to_vec();
        let said = Host { sockets: 3, nodes: 3, node_distances, ..Host::default() };
        let (memory_ns, hop_ns, node_mb_s) = (Some(100), Some(40), Some(10_000));
        Memory::of(&Host { memory_ns, hop_ns, node_mb_s, node_link_mb_s, ..said }).unwrap()
    }

    #[test]
    fn each_hop_takes_longer_and_interleaved_memory_the_mean() {
        let memory = memory(None);
        let from_0 = [&[0][..], &[1], &[2], &[0, 1], &[0, 1, 2]];
        assert_eq!(from_0.map(|nodes| memory.latency_ns(0, nodes)), [100., 140., 180., 120., 140.]);
        assert!(Memory::of(&Host::default()).is_none());
    }

    #[test]
    fn who_goes_over_a_crowded_link_waits_and_who_does_not_does_not() {
        let (mut narrow, mut wide) = (memory(Some(1_000)), memory(None));
        // From node 0 to node 2, in the row through node 1.
        let load = Load::new(900.0, 0.5);
        for memory in [&mut narrow, &mut wide] {
            memory.add(load, 0, &[2]);
            assert!(memory.recount() || memory.routes.is_none());
        }
        for (from, to) in [(0, 0), (1, 1), (2, 2)] {
            assert_eq!(narrow.loaded_ns(from, &[to]), wide.loaded_ns(from, &[to]));
        }
        let waits_ns =
            |from: u32, to: u32| narrow.loaded_ns(from, &[to]) - wide.loaded_ns(from, &[to]);
        assert!(waits_ns(0, 1) > 50.0, "{}", waits_ns(0, 1));
        assert_eq!((waits_ns(1, 2), waits_ns(0, 2)), (waits_ns(0, 1), 2.0 * waits_ns(0, 1)));
    }

    #[test]
    fn what_goes_leaves_nothing() {
        let mut memory = memory(Some(5_000));
        let load = Load::new(14_321.7, 0.37);
        memory.add(load, 1, &[0, 2]);
        assert!(memory.recount() && memory.loaded_ns(1, &[0]) > memory.loaded_ns(1, &[1]) + 40.0);
        memory.remove(load, 1, &[0, 2]);
        assert!(memory.recount() && !memory.recount());
        assert_eq!(memory.loaded_ns(0, &[2]), 180.0);
    }
}

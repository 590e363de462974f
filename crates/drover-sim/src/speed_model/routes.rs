// SPDX-License-Identifier: GPL-2.0-only
//! Which links a cache line takes from one node to another.
//!
//! Two nodes are linked unless there is a third between them, by their distances: on a square of distances
//! 20 along its sides and 30 across, corners that lie opposite are not. What goes between those is spread evenly
//! over all ways of least distance.

use drover_scenario::Host;

/// A link, and the part of what goes between two nodes that takes it: one in so many.
pub(super) type Hop = (usize, usize);

/// The links of a host and who uses them.
#[derive(Debug)]
pub(super) struct Routes {
    /// How many links there are.
    pub(super) links: usize,
    /// From each node to each.
    pub(super) hops: Vec<Vec<Vec<Hop>>>,
}

impl Routes {
    /// Those of a host of several nodes.
    pub(super) fn of(host: &Host) -> Self {
        let nodes = host.nodes;
        let mut linked = Vec::new();
        for from in 0..nodes {
            linked.extend(
                (from + 1..nodes)
                    .filter(|&to| between(host, from, to).is_empty())
                    .map(|to| (from, to)),
            );
        }
        let row = |from| (0..nodes).map(|to| hops(host, &linked, (from, to), 1)).collect();
        Self { links: linked.len(), hops: (0..nodes).map(row).collect() }
    }
}

/// The nodes that lie on a shortest way between two.
fn between(host: &Host, from: u32, to: u32) -> Vec<u32> {
    let far = |from, to| host.distance(from, to) - Host::DISTANCE_LOCAL;
    let direct = far(from, to);
    let other = |&node: &u32| node != from && node != to;
    let lies = |&node: &u32| far(from, node) + far(node, to) <= direct;
    (0..host.nodes).filter(other).filter(lies).collect()
}

/// The hops from one node to another of what is one in so many of all that goes.
fn hops(host: &Host, linked: &[(u32, u32)], (from, to): (u32, u32), one_in: usize) -> Vec<Hop> {
    if from == to {
        return Vec::new();
    }
    let link = linked.iter().position(|&link| link == (from.min(to), from.max(to)));
    if let Some(link) = link {
        return vec![(link, one_in)];
    }
    let ways = between(host, from, to);
    let one_in = one_in * ways.len();
    let through = |&node: &u32| {
        let first = hops(host, linked, (from, node), one_in);
        first.into_iter().chain(hops(host, linked, (node, to), one_in))
    };
    ways.iter().flat_map(through).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_square_has_four_links_and_two_ways_across() {
        let square = [[10, 20, 20, 30], [20, 10, 30, 20], [20, 30, 10, 20], [30, 20, 20, 10]];
        let host =
            Host { nodes: 4, node_distances: square.map(Vec::from).to_vec(), ..Host::default() };
        let routes = Routes::of(&host);
        assert_eq!(routes.links, 4);
        assert!(routes.hops[1][1].is_empty());
        assert_eq!(routes.hops[0][1], routes.hops[1][0]);
        assert_eq!(routes.hops[0][1].len(), 1);
        let mut across = routes.hops[0][3].clone();
        across.sort_unstable();
        assert_eq!(across, [(0, 2), (1, 2), (2, 2), (3, 2)]);
    }

    #[test]
    fn where_all_are_as_far_each_two_are_linked() {
        assert_eq!(Routes::of(&Host { nodes: 4, ..Host::default() }).links, 6);
        assert_eq!(Routes::of(&Host::default()).links, 0);
    }
}

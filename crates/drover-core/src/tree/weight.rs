// SPDX-License-Identifier: GPL-2.0-only
//! What everyone in a tree would be owed who wanted all it can get, while all others want what they want.
//!
//! That is the weight a VM is scheduled by: a VM that sleeps has it when it wakes. Each place of the tree has a *level*,
//! in pCPUs per share: what a child that wants more than it has is owed for each of its shares. A child that begins to
//! want CPU time is owed its shares times that level. Where a place is owed more than is wanted in it, the level is
//! higher by the rest, divided by all shares there.
//!
//! VMs confined to a set of pCPUs go by the level at which their set was full.
//!
//! Worked example: 4 pCPUs; VMs *a*, *b* of 1000 shares and *c* of 2000; *a* and *c* are busy, *b* sleeps. The level is
//! 4 / 3000: *a* is owed 1.33 and *c* 2.67, and *b* would be owed 1.33. (A moment later, when that is known, all have less.)
//!
//! Limitations. A VM that begins to want CPU time changes the level: until the next time its weight is too high by that.

use super::Tree;
use super::entitlement::{Inside, Leaf, Owed, Part, Pouring, level, place_of, pool_parts};
use super::room::Room;

/// Who is owed next to nothing is weighed by that part of what shares alone bring at least: else a moment's
/// misjudgement is a debt of hours.
const LEAST_PART: f64 = 64.0;
/// Where reservations leave next to nothing for shares, a share counts as that part of an even one, to keep numbers
/// in range.
const REFERENCE_PART: f64 = 16.0;

/// What everyone is owed, and would be.
#[derive(Debug, Clone, PartialEq)]
pub struct Weights {
    /// What everyone is owed.
    pub owed: Owed,
    /// What each leaf would be owed if it wanted all, pCPUs.
    pub leaves: Vec<f64>,
    /// What a share of the host is worth, pCPUs.
    pub per_share: f64,
}

/// What everyone in a tree would be owed where `room` says which leaf may use which pCPUs.
pub fn weigh_within(tree: &Tree, leaves: &[Leaf], room: &Room) -> Weights {
    let mut pouring = Pouring::new(tree, leaves);
    let mut held_at: Vec<Option<f64>> = vec![None; leaves.len()];
    let owed = pouring.fill(room, |pouring, poured, members| {
        let levels = levels(pouring, poured);
        let full = leaves.iter().zip(members).zip(&mut held_at).filter(|((_, full), _)| **full);
        for ((leaf, _), held_at) in full {
            held_at.get_or_insert(levels[place_of(leaf.pool)]);
        }
    });
    let levels = levels(&pouring, room.pcpus());
    let each = leaves.iter().zip(held_at).zip(&owed.leaves);
    let weight = |((leaf, held_at), owed): ((&Leaf, Option<f64>), &f64)| {
        (leaf.shares * held_at.unwrap_or(levels[place_of(leaf.pool)])).max(*owed)
    };
    let weights = each.map(weight).collect();
    let shares = shares_in(&pouring, &pool_parts(tree, leaves, &pouring.parts), 0);
    let even = if shares > 0.0 { room.pcpus() / shares } else { 0.0 };
    Weights { owed, leaves: weights, per_share: levels[0].max(even / REFERENCE_PART) }
}

/// What a share is worth in the host, then in each pool, when so many pCPUs are poured.
fn levels(pouring: &Pouring, pcpus: f64) -> Vec<f64> {
    let pools = pool_parts(pouring.tree, pouring.leaves, &pouring.parts);
    let mut owed = vec![pcpus; pools.len() + 1];
    let mut levels = vec![0.0; pools.len() + 1];
    for (place, Inside { pools: inside, leaves }) in pouring.inside.iter().enumerate() {
        let parts: Vec<Part> = (inside.iter().map(|&pool| pools[pool]))
            .chain(leaves.iter().map(|&leaf| pouring.parts[leaf]))
            .collect();
        let even = owed[place] / shares_in(pouring, &pools, place).max(1.0);
        levels[place] = open_level(&parts, owed[place]).max(even / LEAST_PART);
        for &pool in inside {
            let spec = &pouring.tree.pools()[pool].spec;
            let limit = spec.limit_mcpu.map_or(f64::INFINITY, |mcpu| f64::from(mcpu) / 1e3);
            let reserved = f64::from(spec.reservation_mcpu) / 1e3;
            let by_shares = pools[pool].shares * levels[place];
            owed[pool + 1] = by_shares.max(pools[pool].floor).max(reserved).min(limit);
        }
    }
    levels
}

/// All shares of what is directly in a place.
fn shares_in(pouring: &Pouring, pools: &[Part], place: usize) -> f64 {
    let inside = &pouring.inside[place];
    let of_pools: f64 = inside.pools.iter().map(|&pool| pools[pool].shares).sum();
    of_pools + inside.leaves.iter().map(|&leaf| pouring.parts[leaf].shares).sum::<f64>()
}

/// What a share is worth to a child that begins to want CPU time.
fn open_level(parts: &[Part], owed: f64) -> f64 {
    let wanted: f64 = parts.iter().map(|part| part.want).sum();
    if owed < wanted {
        return level(parts, owed).max(0.0);
    }
    let shares: f64 = parts.iter().map(|part| part.shares).sum();
    let all_have = parts.iter().map(|part| part.want / part.shares).fold(0.0, f64::max);
    all_have + if shares > 0.0 { (owed - wanted) / shares } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::super::{Affinity, PoolSpec};
    use super::*;
    use crate::cpu_list::CpuList;
    use crate::shares::Shares;
    use proptest::prelude::*;

    fn leaf(pool: Option<usize>, shares: f64, reserved: f64, demand_pcpus: f64) -> Leaf {
        Leaf { pool, shares, reservation_pcpus: reserved, demand_pcpus }
    }

    fn within(tree: &Tree, leaves: &[Leaf], pcpus: u32, sets: &[Affinity]) -> Weights {
        let room = Room::new(&CpuList::all(pcpus), sets.iter().map(|set| (set, 1.0)));
        weigh_within(tree, leaves, &room)
    }

    fn anywhere(leaves: &[Leaf]) -> Vec<f64> {
        let sets = vec![Affinity::ANYWHERE; leaves.len()];
        within(&Tree::default(), leaves, 4, &sets).leaves
    }

    fn assert_near(got: &[f64], expected: &[f64]) {
        let near = got.iter().zip(expected).all(|(got, expected)| (got - expected).abs() < 1e-6);
        assert!(near && got.len() == expected.len(), "{got:?} is not {expected:?}");
    }

    #[test]
    fn the_worked_example_of_the_header_holds() {
        let leaves = [
            leaf(None, 1000.0, 0.0, 4.0),
            leaf(None, 1000.0, 0.0, 0.0),
            leaf(None, 2000.0, 0.0, 4.0),
        ];
        assert_near(&anywhere(&leaves), &[4.0 / 3.0, 4.0 / 3.0, 8.0 / 3.0]);
    }

    #[test]
    fn unused_time_is_there_for_a_vm_that_wakes() {
        // One has all it wants, 1 pCPU; of the other three each would have its half, and 1.5 of it are free for it.
        let leaves = [leaf(None, 1000.0, 0.0, 1.0), leaf(None, 1000.0, 0.0, 0.0)];
        assert_near(&anywhere(&leaves), &[2.5, 2.5]);
    }

    #[test]
    fn a_reservation_counts_in_the_weight() {
        let mut leaves = vec![leaf(None, 1000.0, 0.0, 1.0); 8];
        leaves[0].reservation_pcpus = 1.0;
        let weights = anywhere(&leaves);
        assert_near(&weights[..2], &[1.0, 3.0 / 7.0]);
    }

    #[test]
    fn pools_divide_before_what_is_in_them() {
        let spec = |name: &str| PoolSpec { shares: Shares::Exact(1000), ..PoolSpec::named(name) };
        let tree = Tree::of(&[spec("a"), spec("b")]).unwrap();
        let leaves = [
            leaf(Some(0), 1000.0, 0.0, 4.0),
            leaf(Some(0), 1000.0, 0.0, 0.0),
            leaf(Some(1), 1.0, 0.0, 4.0),
        ];
        let sets = vec![Affinity::ANYWHERE; 3];
        assert_near(&within(&tree, &leaves, 4, &sets).leaves, &[2.0, 2.0, 2.0]);
    }

    #[test]
    fn who_is_confined_is_weighed_by_what_its_set_holds() {
        let set = |cpus: &str| Affinity::within(cpus.parse().unwrap());
        let busy = leaf(None, 1000.0, 0.0, 4.0);
        let idle = leaf(None, 500.0, 0.0, 0.0);
        let leaves = [busy, busy, busy, idle];
        let sets = [set("0"), set("0"), Affinity::ANYWHERE, set("0")];
        assert_near(&within(&Tree::default(), &leaves, 4, &sets).leaves, &[0.5, 0.5, 3.0, 0.25]);
    }

    #[test]
    fn who_is_owed_next_to_nothing_is_weighed_by_a_part_of_its_shares() {
        let leaves = [leaf(None, 1000.0, 4.0, 4.0), leaf(None, 1000.0, 0.0, 4.0)];
        assert_near(&anywhere(&leaves), &[4.0, 2.0 / 64.0]);
    }

    proptest! {
        /// What it wants, at most, of what it would be owed if it wanted all: that is what each is owed.
        #[test]
        fn weights_say_what_is_owed(
            vms in prop::collection::vec((1u32..20, 0u32..5, 0u8..16, any::<bool>()), 1..10),
        ) {
            let tree = Tree::of(&[PoolSpec::named("p")]).unwrap();
            let leaves: Vec<Leaf> = vms
                .iter()
                .map(|(shares, demand, _, in_pool)| {
                    leaf(in_pool.then_some(0), f64::from(*shares), 0.0, f64::from(*demand))
                })
                .collect();
            let affinity = |bits: u8| {
                let cpus = CpuList::of((0..4).filter(|cpu| bits >> cpu & 1 == 1));
                cpus.map_or(Affinity::ANYWHERE, |cpus| Affinity::within(cpus).on(&CpuList::all(4)))
            };
            let sets: Vec<Affinity> = vms.iter().map(|(_, _, bits, _)| affinity(*bits)).collect();
            let weights = within(&tree, &leaves, 4, &sets);
            for ((leaf, weight), owed) in leaves.iter().zip(&weights.leaves).zip(&weights.owed.leaves) {
                prop_assert!(weight + 1e-6 >= *owed);
                let least = 4.0 * leaf.shares / LEAST_PART;
                let says = weight.min(leaf.demand_pcpus);
                prop_assert!(says <= owed.max(least) + 1e-6, "{weights:?} of {leaves:?} in {sets:?}");
            }
        }
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! What everyone in a tree is owed, given what everyone wants.
//!
//! CPU time is poured over the children of the host in proportion to their shares, then what each
//! pool got over its own children, and so on. Nobody gets more than it wants or may have; nobody who
//! wants it gets less than was reserved for it or within it. Only who wants something takes part: a
//! pool wants what is wanted in it.
//!
//! Worked example: 4 pCPUs; VM *a* of 1000 shares with 1 pCPU reserved, VM *b* of 1000 limited to
//! 0.5, and pool *p* of 4000 in which *c* (1000 shares) and *d* (3000) are busy. By shares alone *a*
//! would get 4/6; its reservation lifts it to 1. *b* is capped at 0.5. *p* gets the other 2.5, of
//! which *c* has 0.625 and *d* 1.875.

use super::Tree;

/// One who wants CPU time: a VM in its place.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Leaf {
    /// The pool it is in; none: the host.
    pub pool: Option<usize>,
    /// Weight among its siblings, above 0.
    pub shares: f64,
    /// Guaranteed to it, pCPUs.
    pub reservation_pcpus: f64,
    /// The most it can and may use, pCPUs.
    pub demand_pcpus: f64,
}

/// What everyone is owed, pCPUs.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Owed {
    /// The VMs, in their order.
    pub leaves: Vec<f64>,
    /// The pools, in the order of the tree.
    pub pools: Vec<f64>,
}

/// One among siblings: a pool or a VM.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Part {
    pub(crate) shares: f64,
    /// It gets at least this.
    pub(crate) floor: f64,
    /// It gets at most this; never below the floor.
    pub(crate) want: f64,
}

impl Part {
    pub(crate) fn at(&self, level: f64) -> f64 {
        (self.shares * level).max(self.floor).min(self.want)
    }
}

/// What everyone in a tree is owed on so many pCPUs.
pub fn entitle(tree: &Tree, leaves: &[Leaf], pcpus: f64) -> Owed {
    let leaf_part = |leaf: &Leaf| Part {
        shares: leaf.shares,
        floor: leaf.reservation_pcpus.min(leaf.demand_pcpus),
        want: leaf.demand_pcpus,
    };
    let leaf_parts: Vec<Part> = leaves.iter().map(leaf_part).collect();
    let pool_parts = pool_parts(tree, leaves, &leaf_parts);
    let mut owed = Owed { leaves: vec![0.0; leaves.len()], pools: vec![0.0; tree.pools().len()] };
    // Parents stand before their children: what a pool has to give is known when its turn comes.
    for place in std::iter::once(None).chain((0..tree.pools().len()).map(Some)) {
        let capacity = place.map_or(pcpus, |pool| owed.pools[pool]);
        let pools: Vec<usize> =
            (0..pool_parts.len()).filter(|&pool| tree.pools()[pool].parent == place).collect();
        let vms: Vec<usize> =
            (0..leaves.len()).filter(|&leaf| leaves[leaf].pool == place).collect();
        let parts: Vec<Part> = pools
            .iter()
            .map(|&pool| pool_parts[pool])
            .chain(vms.iter().map(|&leaf| leaf_parts[leaf]))
            .collect();
        let granted = pour(&parts, capacity);
        pools.iter().zip(&granted).for_each(|(&pool, granted)| owed.pools[pool] = *granted);
        let of_vms = &granted[pools.len()..];
        vms.iter().zip(of_vms).for_each(|(&leaf, granted)| owed.leaves[leaf] = *granted);
    }
    owed
}

/// The pools as their parents see them: they want what is wanted in them.
fn pool_parts(tree: &Tree, leaves: &[Leaf], leaf_parts: &[Part]) -> Vec<Part> {
    let mut parts = vec![Part::default(); tree.pools().len()];
    for (leaf, part) in leaves.iter().zip(leaf_parts) {
        if let Some(pool) = leaf.pool {
            parts[pool].floor += part.floor;
            parts[pool].want += part.want;
        }
    }
    for (index, pool) in tree.pools().iter().enumerate().rev() {
        let spec = &pool.spec;
        let limit = spec.limit_mcpu.map_or(f64::INFINITY, |limit| f64::from(limit) / 1000.0);
        let reserved = f64::from(spec.reservation_mcpu) / 1000.0;
        let part = &mut parts[index];
        part.shares = f64::from(spec.shares.of_pool());
        part.want = part.want.min(limit);
        part.floor = part.floor.max(reserved).min(part.want);
        let part = *part;
        if let Some(parent) = pool.parent {
            parts[parent].floor += part.floor;
            parts[parent].want += part.want;
        }
    }
    parts
}

/// Pours `capacity` over siblings. Where it does not even cover what is reserved, everyone gets the
/// same part of that.
pub(crate) fn pour(parts: &[Part], capacity: f64) -> Vec<f64> {
    let reserved: f64 = parts.iter().map(|part| part.floor).sum();
    if reserved >= capacity && reserved > 0.0 {
        return parts.iter().map(|part| part.floor * capacity / reserved).collect();
    }
    let level = level(parts, capacity);
    parts.iter().map(|part| part.at(level)).collect()
}

/// How high the level must be, in pCPUs per share, for `capacity` to be used up; infinite when all
/// that is wanted takes less. What is reserved must fit.
pub(crate) fn level(parts: &[Part], capacity: f64) -> f64 {
    // With the level rises whoever is above its floor and below what it wants: the sum is made of
    // straight pieces between the levels at which someone joins or leaves.
    let mut turns: Vec<(f64, f64)> = Vec::new();
    for part in parts.iter().filter(|part| part.want > part.floor) {
        turns.push((part.floor / part.shares, part.shares));
        turns.push((part.want / part.shares, -part.shares));
    }
    turns.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut used: f64 = parts.iter().map(|part| part.floor).sum();
    let (mut level, mut rising) = (0.0, 0.0);
    for (at, change) in turns {
        let full = used + rising * (at - level);
        if full >= capacity && rising > 0.0 {
            return level + (capacity - used) / rising;
        }
        (used, level) = (full, at);
        rising += change;
    }
    f64::INFINITY
}

#[cfg(test)]
mod tests {
    use super::super::PoolSpec;
    use super::*;
    use crate::shares::Shares;
    use proptest::prelude::*;

    fn pool(name: &str, parent: Option<&str>, shares: u32) -> PoolSpec {
        let parent = parent.map(str::to_owned);
        PoolSpec { parent, shares: Shares::Exact(shares), ..PoolSpec::named(name) }
    }

    fn leaf(pool: Option<usize>, shares: f64, reservation_pcpus: f64, demand_pcpus: f64) -> Leaf {
        Leaf { pool, shares, reservation_pcpus, demand_pcpus }
    }

    fn assert_near(got: &[f64], expected: &[f64]) {
        let near = got.iter().zip(expected).all(|(got, expected)| (got - expected).abs() < 1e-6);
        assert!(near && got.len() == expected.len(), "{got:?} is not {expected:?}");
    }

    #[test]
    fn the_worked_example_of_the_header_holds() {
        let tree = Tree::of(&[pool("p", None, 4000)]).unwrap();
        let leaves = [
            leaf(None, 1000.0, 1.0, 4.0),
            leaf(None, 1000.0, 0.0, 0.5),
            leaf(Some(0), 1000.0, 0.0, 4.0),
            leaf(Some(0), 3000.0, 0.0, 4.0),
        ];
        let owed = entitle(&tree, &leaves, 4.0);
        assert_near(&owed.leaves, &[1.0, 0.5, 0.625, 1.875]);
        assert_near(&owed.pools, &[2.5]);
    }

    #[test]
    fn pools_without_demand_take_no_part() {
        let specs = [pool("idle", None, 9000), pool("busy", None, 1000)];
        let tree = Tree::of(&specs).unwrap();
        let leaves = [leaf(Some(0), 1.0, 0.0, 0.0), leaf(Some(1), 1.0, 0.0, 9.0)];
        assert_near(&entitle(&tree, &leaves, 4.0).leaves, &[0.0, 4.0]);
    }

    #[test]
    fn a_reservation_deep_down_lifts_all_it_is_in() {
        let specs = [pool("outer", None, 1), pool("inner", Some("outer"), 1)];
        let tree = Tree::of(&specs).unwrap();
        let leaves = [leaf(Some(1), 1.0, 1.5, 4.0), leaf(None, 999.0, 0.0, 4.0)];
        let owed = entitle(&tree, &leaves, 4.0);
        assert_near(&owed.leaves, &[1.5, 2.5]);
        assert_near(&owed.pools, &[1.5, 1.5]);
    }

    #[test]
    fn a_pools_limit_holds_for_all_in_it() {
        let limited = PoolSpec { limit_mcpu: Some(1000), ..pool("p", None, 9000) };
        let tree = Tree::of(&[limited]).unwrap();
        let leaves = [leaf(Some(0), 1.0, 0.0, 4.0), leaf(Some(0), 3.0, 0.0, 4.0)];
        let owed = entitle(&tree, &leaves, 4.0);
        assert_near(&owed.leaves, &[0.25, 0.75]);
    }

    #[test]
    fn what_was_promised_on_more_pcpus_is_kept_in_proportion() {
        let leaves = [leaf(None, 1.0, 3.0, 4.0), leaf(None, 9.0, 1.0, 4.0)];
        assert_near(&entitle(&Tree::default(), &leaves, 2.0).leaves, &[1.5, 0.5]);
    }

    /// Random trees whose reservations fit the host.
    fn trees() -> impl Strategy<Value = (Tree, Vec<Leaf>, f64)> {
        let pool = (any::<prop::sample::Index>(), 1u32..10_000, 0u32..300, 0u32..6000);
        let vm = (any::<prop::sample::Index>(), 1u32..10_000, 0.0..0.1f64, 0.0..4.0f64);
        let pools = prop::collection::vec(pool, 0..8);
        let vms = prop::collection::vec(vm, 1..20);
        (pools, vms, 4u32..16).prop_map(|(pools, vms, pcpus)| {
            let mut specs: Vec<PoolSpec> = Vec::new();
            for (parent, shares, reservation_mcpu, room_mcpu) in pools {
                let parent = parent.index(specs.len() + 1).checked_sub(1);
                let parent = parent.map(|index| specs[index].name.clone());
                // Wide enough for whatever is reserved below.
                let limit_mcpu = (room_mcpu < 3000).then_some(4000 + room_mcpu);
                let (name, shares) = (format!("p{}", specs.len()), Shares::Exact(shares));
                let spec = PoolSpec::named(&name);
                specs.push(PoolSpec { parent, shares, reservation_mcpu, limit_mcpu, ..spec });
            }
            let tree = Tree::of(&specs).unwrap();
            let leaf = |(at, shares, reserved, demand): (prop::sample::Index, u32, f64, f64)| {
                leaf(at.index(specs.len() + 1).checked_sub(1), shares.into(), reserved, demand)
            };
            (tree, vms.into_iter().map(leaf).collect(), pcpus.into())
        })
    }

    proptest! {
        #[test]
        fn all_that_is_wanted_and_there_is_given((tree, leaves, pcpus) in trees()) {
            let owed = entitle(&tree, &leaves, pcpus);
            let given: f64 = owed.leaves.iter().sum();
            let mut wanted = 0.0;
            let parts: Vec<Part> = leaves
                .iter()
                .map(|leaf| Part { shares: 1.0, floor: 0.0, want: leaf.demand_pcpus })
                .collect();
            let pools = pool_parts(&tree, &leaves, &parts);
            for (index, pool) in tree.pools().iter().enumerate() {
                wanted += if pool.parent.is_none() { pools[index].want } else { 0.0 };
            }
            let direct = leaves.iter().filter(|leaf| leaf.pool.is_none());
            wanted += direct.map(|leaf| leaf.demand_pcpus).sum::<f64>();
            prop_assert!((given - wanted.min(pcpus)).abs() < 1e-6, "{given} of {wanted}");
        }

        #[test]
        fn floors_and_caps_hold_at_every_level((tree, leaves, pcpus) in trees()) {
            let owed = entitle(&tree, &leaves, pcpus);
            for (leaf, owed) in leaves.iter().zip(&owed.leaves) {
                prop_assert!(*owed <= leaf.demand_pcpus + 1e-9);
                prop_assert!(*owed + 1e-9 >= leaf.reservation_pcpus.min(leaf.demand_pcpus));
            }
            for (index, pool) in tree.pools().iter().enumerate() {
                let within: f64 = leaves
                    .iter()
                    .zip(&owed.leaves)
                    .filter(|(leaf, _)| leaf.pool == Some(index))
                    .map(|(_, owed)| *owed)
                    .chain((0..tree.pools().len())
                        .filter(|&child| tree.pools()[child].parent == Some(index))
                        .map(|child| owed.pools[child]))
                    .sum();
                prop_assert!((within - owed.pools[index]).abs() < 1e-6, "all of it flows on");
                let limit = pool.spec.limit_mcpu.map_or(f64::INFINITY, |mcpu| f64::from(mcpu) / 1e3);
                prop_assert!(owed.pools[index] <= limit + 1e-9);
            }
        }

        #[test]
        fn siblings_between_floor_and_cap_get_by_their_shares((tree, leaves, pcpus) in trees()) {
            let owed = entitle(&tree, &leaves, pcpus);
            let free = |index: usize| {
                let (leaf, owed) = (&leaves[index], owed.leaves[index]);
                owed > leaf.reservation_pcpus + 1e-6 && owed + 1e-6 < leaf.demand_pcpus
            };
            for a in (0..leaves.len()).filter(|&index| free(index)) {
                for b in (0..a).filter(|&b| free(b) && leaves[b].pool == leaves[a].pool) {
                    let rate = |index: usize| owed.leaves[index] / leaves[index].shares;
                    prop_assert!((rate(a) - rate(b)).abs() <= 1e-6 * rate(a));
                }
            }
        }
    }
}

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
//!
//! VMs that are confined to sets of pCPUs get what the same pouring gives them as far as their sets
//! hold it: max-min fair by shares, by *progressive filling* (D. Bertsekas, R. Gallager: Data Networks,
//! 6.5.2). What is poured grows until a set is full ([`Room`]); those in it keep what they have; it goes
//! on growing for the others until nobody can rise any more. Where sets do not even hold what is
//! reserved, that shrinks alike in each of them first ([`keep`]).
//!
//! Worked example: 4 pCPUs and busy VMs of 4 vCPUs and equal shares, *a* and *b* confined to pCPU 0, *c*
//! to 0-3. With 1.5 poured everyone has 0.5 and pCPU 0 is full; *c* alone goes on to 3.

use super::room::{Room, TOLERANCE, keep};
use super::{Tree, steps};

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
pub(super) struct Part {
    pub(super) shares: f64,
    /// It gets at least this.
    pub(super) floor: f64,
    /// It gets at most this; never below the floor.
    pub(super) want: f64,
}

impl Part {
    fn at(&self, level: f64) -> f64 {
        (self.shares * level).max(self.floor).min(self.want)
    }
}

/// Steps until an amount is as exact as its number, if one in three halves what is left to look at.
const STEPS_MAX: u32 = 180;

/// What everyone in a tree is owed on so many pCPUs, when everybody may use all of them.
pub fn entitle(tree: &Tree, leaves: &[Leaf], pcpus: f64) -> Owed {
    Pouring::new(tree, leaves).at(pcpus)
}

/// What everyone in a tree is owed where `room` says which leaf may use which pCPUs.
pub fn entitle_within(tree: &Tree, leaves: &[Leaf], room: &Room) -> Owed {
    Pouring::new(tree, leaves).fill(room, |_, _, _| {})
}

/// CPU time being poured over a tree.
pub(super) struct Pouring<'a> {
    pub(super) tree: &'a Tree,
    pub(super) leaves: &'a [Leaf],
    pub(super) parts: Vec<Part>,
    /// What is directly in the host, then in each pool.
    pub(super) inside: Vec<Inside>,
}

/// What is directly in one place.
#[derive(Debug, Clone, Default)]
pub(super) struct Inside {
    pub(super) pools: Vec<usize>,
    pub(super) leaves: Vec<usize>,
}

/// Where what is in the host, or in a pool, stands among all that is inside something.
pub(super) fn place_of(pool: Option<usize>) -> usize {
    pool.map_or(0, |pool| pool + 1)
}

impl<'a> Pouring<'a> {
    pub(super) fn new(tree: &'a Tree, leaves: &'a [Leaf]) -> Self {
        let part = |leaf: &Leaf| Part {
            shares: leaf.shares,
            floor: leaf.reservation_pcpus.min(leaf.demand_pcpus),
            want: leaf.demand_pcpus,
        };
        let mut inside = vec![Inside::default(); tree.pools().len() + 1];
        for (index, pool) in tree.pools().iter().enumerate() {
            inside[place_of(pool.parent)].pools.push(index);
        }
        for (index, leaf) in leaves.iter().enumerate() {
            inside[place_of(leaf.pool)].leaves.push(index);
        }
        Self { tree, leaves, parts: leaves.iter().map(part).collect(), inside }
    }

    /// Pours all there is, one set of pCPUs after the other being full. Each time `full` is told how much was poured
    /// by then and which leaves can have no more, before these are left with what they have.
    pub(super) fn fill(&mut self, room: &Room, mut full: impl FnMut(&Self, f64, &[bool])) -> Owed {
        let all = self.at(room.pcpus());
        if room.bottleneck(&all.leaves).is_none() {
            return all;
        }
        let shrunk = self.fit_reservations(room);
        let mut poured = self.reserved();
        full(self, poured, &shrunk);
        // Each round fills a set for one leaf at least.
        for _ in 0..self.leaves.len() {
            let Some((at, members)) = self.first_full(room, poured) else { break };
            poured = at;
            full(self, poured, &members);
            let owed = self.at(poured).leaves;
            (0..owed.len())
                .filter(|&leaf| members[leaf])
                .for_each(|leaf| self.fix(leaf, owed[leaf]));
        }
        self.at(room.pcpus())
    }

    /// From now on a leaf has so much.
    fn fix(&mut self, leaf: usize, amount: f64) {
        (self.parts[leaf].floor, self.parts[leaf].want) = (amount, amount);
    }

    /// What everyone has when so many pCPUs were poured.
    fn at(&self, pcpus: f64) -> Owed {
        let Self { tree, leaves, parts: leaf_parts, inside } = self;
        let count = tree.pools().len();
        let pool_parts = pool_parts(tree, leaves, leaf_parts);
        let mut owed = Owed { leaves: vec![0.0; leaves.len()], pools: vec![0.0; count] };
        // Parents stand before their children: what a pool has to give is known when its turn comes.
        for place in std::iter::once(None).chain((0..count).map(Some)) {
            let capacity = place.map_or(pcpus, |pool| owed.pools[pool]);
            let Inside { pools, leaves } = &inside[place_of(place)];
            let of_pools = pools.iter().map(|&pool| pool_parts[pool]);
            let parts: Vec<Part> =
                of_pools.chain(leaves.iter().map(|&leaf| leaf_parts[leaf])).collect();
            steps::count(1 + parts.len());
            let granted = pour(&parts, capacity);
            pools.iter().zip(&granted).for_each(|(&pool, granted)| owed.pools[pool] = *granted);
            let of_vms = &granted[pools.len()..];
            leaves.iter().zip(of_vms).for_each(|(&leaf, granted)| owed.leaves[leaf] = *granted);
        }
        owed
    }

    /// What must be poured until everyone has what is reserved.
    fn reserved(&self) -> f64 {
        let pools = pool_parts(self.tree, self.leaves, &self.parts);
        let pools = self.tree.pools().iter().zip(pools);
        let pools = pools.filter(|(pool, _)| pool.parent.is_none()).map(|(_, part)| part.floor);
        let vms = self.leaves.iter().zip(&self.parts).filter(|(leaf, _)| leaf.pool.is_none());
        pools.chain(vms.map(|(_, part)| part.floor)).sum()
    }

    /// Has reservations shrink to what the sets hold; what a pool cannot use of its own in one of them goes
    /// to others in it. Returns who has less than is reserved.
    fn fit_reservations(&mut self, room: &Room) -> Vec<bool> {
        let mut shrunk = vec![false; self.leaves.len()];
        for _ in 0..=self.leaves.len() {
            let floors = self.at(self.reserved()).leaves;
            let kept = keep(room, &floors);
            if kept.bottlenecks.is_empty() {
                break;
            }
            for (leaf, (kept, floor)) in kept.amounts.iter().zip(floors).enumerate() {
                if *kept < floor {
                    self.fix(leaf, *kept);
                    shrunk[leaf] = true;
                }
            }
        }
        shrunk
    }

    /// How much more CPU time can be given out until the first set of pCPUs is full, and which VMs that set
    /// holds. `None` when no set fills up.
    fn first_full(&self, room: &Room, poured: f64) -> Option<(f64, Vec<bool>)> {
        let (mut at, mut found) = (room.pcpus(), None);
        // Sets that are full later may be found first: less is tried until all hold what they get.
        while let Some(full) = room.bottleneck(&self.at(at).leaves) {
            let excess = |poured: f64| full.sum(&self.at(poured).leaves) - full.pcpus;
            let low = last_that_fits(poured, at, excess);
            found = Some((low, full.members));
            if at - low < TOLERANCE {
                break;
            }
            at = low;
        }
        found
    }
}

/// How much can be poured, from `low` to `high`, until more than nothing exceeds what there is. What exceeds it
/// grows with what is poured, in straight pieces: so it is looked for where a line through both ends has it.
fn last_that_fits(mut low: f64, mut high: f64, excess: impl Fn(f64) -> f64) -> f64 {
    const EXACT: f64 = TOLERANCE / 1e3;
    let (mut below, mut above) = (excess(low), excess(high));
    for step in 0..STEPS_MAX {
        if below >= -EXACT || high - low <= EXACT * EXACT {
            break;
        }
        let on_line = low - below * (high - low) / (above - below);
        let middle = match step % 3 {
            2 => low.midpoint(high),
            _ => on_line.clamp(low, high),
        };
        let exceeds = excess(middle);
        *(if exceeds <= EXACT { &mut low } else { &mut high }) = middle;
        *(if exceeds <= EXACT { &mut below } else { &mut above }) = exceeds;
    }
    low
}

/// The pools as their parents see them: they want what is wanted in them.
pub(super) fn pool_parts(tree: &Tree, leaves: &[Leaf], leaf_parts: &[Part]) -> Vec<Part> {
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
fn pour(parts: &[Part], capacity: f64) -> Vec<f64> {
    let reserved: f64 = parts.iter().map(|part| part.floor).sum();
    if reserved >= capacity && reserved > 0.0 {
        return parts.iter().map(|part| part.floor * capacity / reserved).collect();
    }
    let level = level(parts, capacity);
    parts.iter().map(|part| part.at(level)).collect()
}

/// How high the level must be, in pCPUs per share, for `capacity` to be used up; infinite when all
/// that is wanted takes less. What is reserved must fit.
pub(super) fn level(parts: &[Part], capacity: f64) -> f64 {
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
    use crate::cpu_list::CpuList;
    use crate::shares::Shares;
    use crate::tree::Affinity;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

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

    /// Busy VMs of that many pCPUs' demand and their shares, and where they may run.
    fn confined(pcpus: u32, vms: &[(f64, f64, f64, &str)]) -> Vec<f64> {
        let leaves: Vec<Leaf> = vms
            .iter()
            .map(|(shares, reserved, demand, _)| leaf(None, *shares, *reserved, *demand))
            .collect();
        let affinity = |cpus: &&str| Affinity::within(cpus.parse().unwrap());
        let sets: Vec<Affinity> = vms.iter().map(|(.., cpus)| affinity(cpus)).collect();
        within(&Tree::default(), &leaves, pcpus, &sets).leaves
    }

    fn within(tree: &Tree, leaves: &[Leaf], pcpus: u32, sets: &[Affinity]) -> Owed {
        let room = Room::new(&CpuList::all(pcpus), sets.iter().map(|set| (set, 1.0)));
        entitle_within(tree, leaves, &room)
    }

    #[test]
    fn the_worked_example_of_confined_vms_holds() {
        let vms = [(1.0, 0.0, 4.0, "0"), (1.0, 0.0, 4.0, "0"), (1.0, 0.0, 4.0, "0-3")];
        assert_near(&confined(4, &vms), &[0.5, 0.5, 3.0]);
        // However heavy the two are.
        let vms = [(9.0, 0.0, 4.0, "0"), (9.0, 0.0, 4.0, "0"), (1.0, 0.0, 4.0, "0-3")];
        assert_near(&confined(4, &vms), &[0.5, 0.5, 3.0]);
    }

    #[test]
    fn sets_that_overlap_are_shared_by_shares() {
        // All can have the same.
        let busy = |cpus| (1.0, 0.0, 2.0, cpus);
        let vms = ["0-1", "1-2", "2-3", "0-3"].map(busy);
        assert_near(&confined(4, &vms), &[1.0; 4]);
        // By shares alone 3 pCPUs for the first; it ends at two, and nobody else can use these.
        let vms = [(9.0, 0.0, 2.0, "0-1"), busy("1-2"), busy("2-3"), busy("0-3")];
        assert_near(&confined(4, &vms), &[2.0, 2.0 / 3.0, 2.0 / 3.0, 2.0 / 3.0]);
        let vms = [(3.0, 0.0, 2.0, "0-1"), busy("1-2"), (3.0, 0.0, 2.0, "2-3"), busy("0-3")];
        assert_near(&confined(4, &vms), &[1.5, 0.5, 1.5, 0.5]);
    }

    #[test]
    fn shares_and_reservations_hold_on_a_node() {
        let full = [(2.0, 0.0, 2.0, "2-3"); 2];
        let vms = [(3.0, 0.0, 2.0, "0-1"), (1.0, 0.0, 2.0, "0-1"), full[0], full[1]];
        assert_near(&confined(4, &vms), &[1.5, 0.5, 1.0, 1.0]);
        let busy = (2.0, 0.0, 2.0, "0-1");
        let vms = [(1.0, 0.9, 1.0, "0-1"), busy, busy, busy, full[0], full[1]];
        assert_near(&confined(4, &vms), &[0.9, 1.1 / 3.0, 1.1 / 3.0, 1.1 / 3.0, 1.0, 1.0]);
    }

    #[test]
    fn reservations_hold_as_far_as_the_sets_do() {
        let reserved = (1.0, 0.8, 1.0, "0");
        assert_near(&confined(2, &[reserved, (1.0, 0.0, 4.0, "0-1")]), &[1.0, 1.0]);
        assert_near(&confined(2, &[reserved, (9.0, 0.0, 1.0, "0")]), &[0.8, 0.2]);
        let vms = [reserved, reserved, (1.0, 0.7, 4.0, "1"), (1.0, 0.0, 4.0, "1")];
        assert_near(&confined(2, &vms), &[0.5, 0.5, 0.7, 0.3]);
    }

    #[test]
    fn vcpus_with_sets_of_their_own_have_what_these_hold() {
        // One to one on 0 and 1 beside two that may run on 0 and anywhere.
        let list = |text: &str| text.parse::<CpuList>().unwrap();
        let pinned = Affinity::of_vcpus([list("0"), list("1")]);
        let sets = [pinned, Affinity::within(list("0")), Affinity::within(list("0-1"))];
        let busy = |shares, demand| leaf(None, shares, 0.0, demand);
        let leaves = [busy(1.0, 2.0), busy(1.0, 1.0), busy(1.0, 2.0)];
        let owed = within(&Tree::default(), &leaves, 2, &sets).leaves;
        assert_near(&owed, &[2.0 / 3.0; 3]);
        // A heavy one ends where its vCPUs do: one pCPU each.
        let leaves = [busy(9.0, 2.0), busy(1.0, 1.0), busy(1.0, 2.0)];
        let sets = [sets[0].clone(), sets[1].clone(), Affinity::within(list("1-2"))];
        let owed = within(&Tree::default(), &leaves, 3, &sets).leaves;
        assert_near(&owed, &[1.8, 0.2, 1.0]);
    }

    #[test]
    fn what_a_pool_cannot_use_in_a_set_goes_to_others_in_it() {
        let tree = Tree::of(&[pool("a", None, 3000), pool("b", None, 1000)]).unwrap();
        let busy = |pool| leaf(Some(pool), 1.0, 0.0, 4.0);
        let leaves = [busy(0), busy(0), busy(1)];
        let set = |cpus: &str| Affinity::within(cpus.parse().unwrap());
        let sets = [set("0"), set("0-3"), Affinity::ANYWHERE];
        let owed = within(&tree, &leaves, 4, &sets);
        assert_near(&owed.leaves, &[1.0, 2.0, 1.0]);
        assert_near(&owed.pools, &[3.0, 1.0]);
        let sets = [set("0"), set("0"), Affinity::ANYWHERE];
        assert_near(&within(&tree, &leaves, 4, &sets).leaves, &[0.5, 0.5, 3.0]);
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

    /// VMs on six pCPUs: shares, reservation, demand, and the pCPUs they may use.
    type Confined = (u32, f64, f64, BTreeSet<u32>);

    fn confined_vms() -> impl Strategy<Value = Vec<Confined>> {
        let set = prop::collection::btree_set(0u32..6, 1..5);
        prop::collection::vec((1u32..10_000, 0.0..0.16f64, 0.0..4.0f64, set), 1..12)
    }

    fn affinity_of(vm: &Confined) -> Affinity {
        Affinity::within(CpuList::of(vm.3.iter().copied()).unwrap())
    }

    /// Sums over those confined to each union of pCPUs, of what they have and of what there is.
    fn unions<'a>(vms: &'a [Confined], owed: &'a [f64]) -> impl Iterator<Item = (u32, f64, f64)> {
        (1u32..1 << 6).map(move |union| {
            let inside = vms.iter().zip(owed).filter(|(vm, _)| is_in(vm, union));
            (union, inside.map(|(_, owed)| owed).sum(), f64::from(union.count_ones()))
        })
    }

    fn is_in(vm: &Confined, union: u32) -> bool {
        vm.3.iter().all(|cpu| union >> cpu & 1 == 1)
    }

    #[test]
    fn work_grows_with_the_number_of_vms_and_not_with_its_square() {
        // Some pCPUs are fuller than others, so that there are several rounds.
        let list = |cpu: usize| [0, 0, 0, 1, 1, 2, 3, 4][cpu % 8].to_string().parse().unwrap();
        let set = |vm: usize| match vm % 10 {
            0 => Affinity::within("3-5".parse().unwrap()),
            1..=4 => Affinity::within(list(vm)),
            5 => Affinity::within("0-3".parse().unwrap()),
            _ => Affinity::ANYWHERE,
        };
        let pools: Vec<PoolSpec> = (0..50).map(|at| pool(&format!("p{at}"), None, 1000)).collect();
        let tree = Tree::of(&pools).unwrap();
        let work = |vms: usize| {
            let leaf = |vm: usize| leaf((vm % 3 == 0).then_some(vm % 50), 1000.0, 0.0, 1.0);
            let leaves: Vec<Leaf> = (0..vms).map(leaf).collect();
            let sets: Vec<Affinity> = (0..vms).map(set).collect();
            steps::of(|| drop(within(&tree, &leaves, 8, &sets)))
        };
        // Each set and each pool has four times as many.
        let (few, many) = (work(1200), work(4800));
        assert!(few > 1200 && many < 5 * few, "{few} steps for 1200, {many} for 4800");
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

        #[test]
        fn nobody_can_be_raised_without_lowering_one_with_no_more_per_share(vms in confined_vms()) {
            let of = |(shares, reserved, demand, _): &Confined| {
                leaf(None, f64::from(*shares), *reserved, *demand)
            };
            let leaves: Vec<Leaf> = vms.iter().map(of).collect();
            let sets: Vec<Affinity> = vms.iter().map(affinity_of).collect();
            let owed = within(&Tree::default(), &leaves, 6, &sets).leaves;
            for (_, used, has) in unions(&vms, &owed) {
                prop_assert!(used <= has + 1e-6, "{used} of {has}");
            }
            let rate = |vm: usize| owed[vm] / leaves[vm].shares;
            for vm in (0..vms.len()).filter(|&vm| owed[vm] + 1e-6 < leaves[vm].demand_pcpus) {
                // What is reserved there may bend it: a floor is no part by shares.
                let is_poor = |other: usize| {
                    owed[other] <= leaves[other].reservation_pcpus + 1e-6
                        || rate(other) <= rate(vm) * (1.0 + 1e-6)
                };
                let stops = unions(&vms, &owed).any(|(union, used, has)| {
                    used + 1e-6 > has
                        && is_in(&vms[vm], union)
                        && (0..vms.len()).all(|other| !is_in(&vms[other], union) || is_poor(other))
                });
                prop_assert!(stops, "VM {vm} could have more: {owed:?}");
            }
        }

        #[test]
        fn what_is_reserved_is_kept_where_it_fits(vms in confined_vms()) {
            let leaves: Vec<Leaf> =
                vms.iter().map(|vm| leaf(None, vm.0.into(), vm.1, vm.2)).collect();
            let reserved: Vec<f64> =
                leaves.iter().map(|leaf| leaf.reservation_pcpus.min(leaf.demand_pcpus)).collect();
            prop_assume!(unions(&vms, &reserved).all(|(_, reserved, has)| reserved <= has));
            let sets: Vec<Affinity> = vms.iter().map(affinity_of).collect();
            let owed = within(&Tree::default(), &leaves, 6, &sets).leaves;
            prop_assert!(owed.iter().zip(&reserved).all(|(owed, least)| owed + 1e-6 > *least));
        }

        #[test]
        fn without_confinement_nothing_is_otherwise((tree, leaves, pcpus) in trees()) {
            let sets = vec![Affinity::ANYWHERE; leaves.len()];
            let owed = within(&tree, &leaves, pcpus as u32, &sets);
            prop_assert_eq!(owed, entitle(&tree, &leaves, pcpus));
        }

        #[test]
        fn confined_vms_in_pools_have_all_that_their_sets_and_limits_leave(
            (tree, leaves, pcpus) in trees(),
            sets in prop::collection::vec(prop::collection::btree_set(0u32..4, 1..4), 20),
        ) {
            let affinity = |set: &BTreeSet<u32>| {
                Affinity::within(CpuList::of(set.iter().copied()).unwrap())
            };
            let sets: Vec<Affinity> = sets.iter().take(leaves.len()).map(affinity).collect();
            let owed = within(&tree, &leaves, pcpus as u32, &sets);
            let room = Room::new(&CpuList::all(pcpus as u32), sets.iter().map(|set| (set, 1.0)));
            prop_assert_eq!(room.bottleneck(&owed.leaves), None);
            let pool_is_full = |pool: usize| {
                let limit = tree.pools()[pool].spec.limit_mcpu;
                limit.is_some_and(|mcpu| owed.pools[pool] + 1e-6 > f64::from(mcpu) / 1e3)
            };
            for (index, leaf) in leaves.iter().enumerate() {
                prop_assert!(owed.leaves[index] <= leaf.demand_pcpus + 1e-9);
                let wants = owed.leaves[index] + 1e-5 < leaf.demand_pcpus;
                if wants && !tree.path(leaf.pool).any(pool_is_full) {
                    let mut more = owed.leaves.clone();
                    more[index] += 1e-5;
                    prop_assert!(room.bottleneck(&more).is_some(), "{index} could have more");
                }
            }
        }
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! The tree of resource pools, with VMs as its leaves.
//!
//! A pool is to its parent what a VM is: it has shares, a reservation and a limit. What it is given
//! flows on to its children. This file says what a tree is and refuses what is none; [`admission`]
//! says which promises fit it, [`entitlement`] what everyone in it is owed, [`weight`] what everyone would be owed
//! who wanted all, [`pcpus`] what pCPUs hold of promises, and [`room`] what the sets of pCPUs can hold to which VMs are confined.

pub mod admission;
mod affinity;
mod change;
pub mod entitlement;
pub mod pcpus;
pub mod room;
mod steps;
pub mod weight;

pub use affinity::Affinity;
pub use change::PoolChange;

use crate::names::is_plain_name;
use crate::settings::{Cosched, PoolId};
use crate::shares::Shares;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};

/// How deep pools may nest: a pool of the host itself is at depth 1.
pub const DEPTH_MAX: usize = 8;
/// So begins the name of a pool of VMs that have one name. No other pool can be called so: cgroups begin with `/`.
const OF_A_NAME: &str = "VMs ";
/// The most pools a host may have: the root takes a place of its own.
pub const POOLS_MAX: usize = PoolId::COUNT_MAX as usize - 1;

/// A pool as somebody asked for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolSpec {
    /// Unique name, see [`is_plain_name`].
    pub name: String,
    /// The pool it is in; none: the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Weight among its siblings, pools and VMs alike.
    pub shares: Shares,
    /// Guaranteed to it, thousandths of a pCPU.
    pub reservation_mcpu: u32,
    /// The most it may have, thousandths of a pCPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_mcpu: Option<u32>,
    /// With a limit, what may be saved up beside 100 ms of that, us of CPU time: only cgroups say so.
    #[serde(skip)]
    pub burst_us: u32,
    /// Whether reservations in it that exceed its own may be taken from its parent.
    pub expandable: bool,
    /// How vCPUs of VMs in it are kept together, where these do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cosched: Option<Cosched>,
}

impl PoolSpec {
    /// Is it there for VMs that have one name, and was asked for by nobody?
    pub fn is_of_a_name(&self) -> bool {
        self.name.starts_with(OF_A_NAME)
    }

    /// A pool of the host with nothing asked for it.
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            parent: None,
            shares: Shares::NORMAL,
            reservation_mcpu: 0,
            limit_mcpu: None,
            burst_us: 0,
            expandable: true,
            cosched: None,
        }
    }
}

/// What is wrong with a set of pools.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("pool \"{pool}\" {what}; {fix}")]
pub struct TreeFault {
    /// The pool in question.
    pub pool: String,
    /// What is wrong with it.
    pub what: String,
    /// What to do about it.
    pub fix: String,
}

impl TreeFault {
    fn new(pool: &PoolSpec, what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { pool: pool.name.clone(), what: what.into(), fix: fix.into() }
    }
}

/// A pool in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    /// What was asked for.
    pub spec: PoolSpec,
    /// Index of its parent in [`Tree::pools`], always lower than its own; none: the host.
    pub parent: Option<usize>,
}

/// A checked set of pools.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tree {
    pools: Vec<Pool>,
    /// Where each stands, by its name.
    places: BTreeMap<String, usize>,
}

impl Tree {
    /// Whether a pool has a limit.
    pub fn is_limited(&self) -> bool {
        self.pools.iter().any(|pool| pool.spec.limit_mcpu.is_some())
    }

    /// The same pools, none with a limit.
    pub fn without_limits(&self) -> Self {
        let mut tree = self.clone();
        tree.pools.iter_mut().for_each(|pool| pool.spec.limit_mcpu = None);
        tree
    }

    /// Puts pools in their places.
    ///
    /// # Errors
    /// The first fault found.
    pub fn of(specs: &[PoolSpec]) -> Result<Self, TreeFault> {
        let mut names = HashSet::new();
        for (index, spec) in specs.iter().enumerate() {
            check_alone(spec)?;
            if !names.insert(&spec.name) {
                return Err(TreeFault::new(spec, "is there twice", "give each its own name"));
            }
            if index >= POOLS_MAX {
                let what = format!("is one too many: {POOLS_MAX} pools are the most");
                return Err(TreeFault::new(spec, what, "remove some"));
            }
        }
        let mut tree = Self::default();
        let mut depths: Vec<usize> = Vec::new();
        let mut left: Vec<&PoolSpec> = specs.iter().collect();
        // Each round places the pools whose parents have their places; what is left in the end hangs
        // on a parent that is not there, or on itself.
        while !left.is_empty() {
            let before = left.len();
            let mut later = Vec::new();
            for spec in left {
                let Some(parent) = tree.place_of(spec.parent.as_deref()) else {
                    later.push(spec);
                    continue;
                };
                let depth = 1 + parent.map_or(0, |parent| depths[parent]);
                if depth > DEPTH_MAX {
                    let what = format!("is {depth} deep and pools may be {DEPTH_MAX} deep");
                    return Err(TreeFault::new(spec, what, "give it a parent nearer to the host"));
                }
                depths.push(depth);
                tree.push(spec.clone(), parent);
            }
            if later.len() == before {
                return Err(homeless(specs, &later));
            }
            left = later;
        }
        Ok(tree)
    }

    /// Adds the host's cgroups that are pools: parents first, called as their paths, which no other pool
    /// can be. They take half of the places that are left; who finds none is left out, and with it those inside.
    pub fn add_cgroups(&mut self, specs: &[PoolSpec]) {
        let most = POOLS_MAX.midpoint(self.pools.len());
        for spec in specs {
            let parent = self.place_of(spec.parent.as_deref());
            if let Some(parent) = parent.filter(|_| self.pools.len() < most) {
                self.push(spec.clone(), parent);
            }
        }
    }

    /// Adds a pool for the VMs of one name in a pool, with a limit that holds for them together; none: no place is
    /// left, or it would be too deep.
    pub fn add_name(
        &mut self,
        name: &str,
        parent: Option<usize>,
        shares: u32,
        limit_mcpu: u32,
    ) -> Option<usize> {
        if self.pools.len() >= POOLS_MAX || self.path(parent).count() >= DEPTH_MAX {
            return None;
        }
        let place = parent.map(|parent| self.pools[parent].spec.name.clone());
        let called = format!("{OF_A_NAME}{name:?} in {}", place.as_deref().unwrap_or("host"));
        self.push(
            PoolSpec {
                parent: place,
                shares: Shares::Exact(shares),
                limit_mcpu: Some(limit_mcpu),
                ..PoolSpec::named(&called)
            },
            parent,
        );
        Some(self.pools.len() - 1)
    }

    fn push(&mut self, spec: PoolSpec, parent: Option<usize>) {
        self.places.insert(spec.name.clone(), self.pools.len());
        self.pools.push(Pool { spec, parent });
    }

    /// The pools, parents before their children.
    pub fn pools(&self) -> &[Pool] {
        &self.pools
    }

    /// Index of the pool of that name.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.places.get(name).copied()
    }

    /// The pool and all it is in, from the inside out.
    pub fn path(&self, pool: Option<usize>) -> impl Iterator<Item = usize> {
        std::iter::successors(pool, |&pool| self.pools[pool].parent)
    }

    /// How vCPUs of a VM in that pool are kept together, where the VM does not say.
    pub fn cosched(&self, pool: Option<usize>) -> Option<Cosched> {
        self.path(pool).find_map(|pool| self.pools[pool].spec.cosched)
    }

    /// Some(None): the host; Some(Some): a pool that has its place; None: neither.
    #[allow(clippy::option_option, reason = "the host is no pool, and not unknown either")]
    fn place_of(&self, name: Option<&str>) -> Option<Option<usize>> {
        match name {
            None => Some(None),
            Some(name) => self.find(name).map(Some),
        }
    }
}

fn check_alone(spec: &PoolSpec) -> Result<(), TreeFault> {
    if !is_plain_name(&spec.name) {
        let fix = "use 1 to 63 of A-Z a-z 0-9 . _ -";
        return Err(TreeFault::new(spec, "has no proper name", fix));
    }
    match spec.limit_mcpu {
        Some(limit_mcpu) if limit_mcpu < spec.reservation_mcpu => {
            let what = format!(
                "is limited to {} and has {} reserved",
                crate::percent::text(limit_mcpu),
                crate::percent::text(spec.reservation_mcpu)
            );
            Err(TreeFault::new(spec, what, "raise the limit or lower the reservation"))
        }
        _ => Ok(()),
    }
}

/// What is wrong with pools that found no place.
fn homeless(specs: &[PoolSpec], left: &[&PoolSpec]) -> TreeFault {
    let is_there = |name: &str| specs.iter().any(|spec| spec.name == name);
    let parent = |spec: &PoolSpec| spec.parent.clone().unwrap_or_default();
    if let Some(orphan) = left.iter().find(|spec| !is_there(&parent(spec))) {
        let what = format!("is in pool \"{}\", which is not there", parent(orphan));
        let known = specs.iter().map(|spec| spec.name.as_str()).filter(|name| *name != orphan.name);
        return TreeFault::new(orphan, what, crate::nearest::hint(&parent(orphan), known));
    }
    // All parents are there and none has a place: following them leads around. The first that is met
    // twice is on the circle.
    let mut met: Vec<&PoolSpec> = Vec::new();
    let mut next = left[0];
    while !met.iter().any(|spec| spec.name == next.name) {
        met.push(next);
        let name = parent(next);
        next = left.iter().find(|spec| spec.name == name).expect("its parent is among those left");
    }
    let from = met.iter().position(|spec| spec.name == next.name).expect("it was met");
    let circle: Vec<&str> = met[from..].iter().map(|spec| spec.name.as_str()).collect();
    let what = format!("is inside itself ({} in {})", circle.join(" in "), next.name);
    TreeFault::new(next, what, "give one of them another parent")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(name: &str, parent: Option<&str>) -> PoolSpec {
        PoolSpec { parent: parent.map(str::to_owned), ..PoolSpec::named(name) }
    }

    fn fault(specs: &[PoolSpec]) -> String {
        Tree::of(specs).unwrap_err().to_string()
    }

    #[test]
    fn parents_come_before_their_children_in_whatever_order_they_were_named() {
        let specs = [pool("c", Some("b")), pool("b", Some("a")), pool("a", None), pool("d", None)];
        let tree = Tree::of(&specs).unwrap();
        for (index, pool) in tree.pools().iter().enumerate() {
            assert!(pool.parent.is_none_or(|parent| parent < index));
        }
        let names = |pool: &str| -> Vec<&str> {
            let path = tree.path(tree.find(pool));
            path.map(|pool| tree.pools()[pool].spec.name.as_str()).collect()
        };
        assert_eq!((names("c"), names("d")), (vec!["c", "b", "a"], vec!["d"]));
    }

    #[test]
    fn what_is_no_tree_is_refused_with_the_mend() {
        assert_eq!(
            fault(&[pool("a", Some("b")), pool("b", Some("c")), pool("c", Some("b"))]),
            "pool \"b\" is inside itself (b in c in b); give one of them another parent"
        );
        assert_eq!(
            fault(&[pool("a", Some("a"))]),
            "pool \"a\" is inside itself (a in a); give one of them another parent"
        );
        assert_eq!(
            fault(&[pool("prod", None), pool("web", Some("pord"))]),
            "pool \"web\" is in pool \"pord\", which is not there; did you mean \"prod\"?"
        );
        assert_eq!(
            fault(&[pool("a", None), pool("a", None)]),
            "pool \"a\" is there twice; give each its own name"
        );
        let under = PoolSpec { reservation_mcpu: 2000, limit_mcpu: Some(1500), ..pool("a", None) };
        assert_eq!(
            fault(&[under]),
            "pool \"a\" is limited to 150% and has 200% reserved; \
             raise the limit or lower the reservation"
        );
        assert!(fault(&[pool("a b", None)]).contains("no proper name"));
    }

    #[test]
    fn pools_nest_eight_deep_and_no_deeper() {
        let chain = |depth: usize| -> Vec<PoolSpec> {
            let name = |index: usize| format!("p{index}");
            let parent = |index: usize| index.checked_sub(1).map(name);
            (0..depth).map(|index| pool(&name(index), parent(index).as_deref())).collect()
        };
        assert_eq!(Tree::of(&chain(8)).unwrap().pools().len(), 8);
        let text = fault(&chain(9));
        assert!(text.contains("\"p8\" is 9 deep and pools may be 8 deep"), "{text}");
    }

    #[test]
    fn the_nearest_pool_that_says_decides_on_co_scheduling() {
        let outer = PoolSpec { cosched: Some(Cosched::Gang), ..pool("outer", None) };
        let tree = Tree::of(&[outer, pool("inner", Some("outer")), pool("other", None)]).unwrap();
        assert_eq!(tree.cosched(tree.find("inner")), Some(Cosched::Gang));
        assert_eq!(tree.cosched(tree.find("other")), None);
        assert_eq!(tree.cosched(None), None);
    }
}

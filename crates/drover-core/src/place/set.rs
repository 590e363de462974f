// SPDX-License-Identifier: GPL-2.0-only
//! Sets of VMs that belong together, or apart.
//!
//! `affine`: data flows between them (a web application and its database), so they share a node, or an LLC.
//! `anti-affine`: data flows in and out of the host, or one must survive the other's node; they are kept on
//! different nodes, or LLCs. A soft set is a cost beside others; a hard one is never broken by a move, and a VM
//! that it leaves no home for has none. Where soft sets contradict each other the hard one wins, then the one that
//! concerns more CPU time: that is what the cost function says, and the reason given names the set.
//!
//! After the comment to seed 003.

use crate::words::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a set wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Its VMs near each other.
    Affine,
    /// Its VMs away from each other.
    AntiAffine,
}

impl Kind {
    /// The words for them.
    pub const WORDS: [(&'static str, Kind); 2] =
        [("affine", Self::Affine), ("anti-affine", Self::AntiAffine)];
}

words!(Kind);

/// What they are to share, or not to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Within {
    /// A last-level cache.
    Llc,
    /// A NUMA node.
    #[default]
    Node,
}

impl Within {
    /// The words for them.
    pub const WORDS: [(&'static str, Within); 2] = [("llc", Self::Llc), ("node", Self::Node)];
}

words!(Within);

/// A set of VMs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Set {
    /// Its name.
    pub name: String,
    /// Its VMs, by their numbers.
    pub vms: Vec<u64>,
    /// Together or apart?
    pub kind: Kind,
    /// In what?
    pub within: Within,
    /// It is never broken.
    pub hard: bool,
}

/// An affine set, an anti-affine one, and two VMs of both, where no placement can keep both sets.
///
/// VMs that affine sets chain together share a node; those of sets within an LLC share an LLC, too.
pub fn contradiction<'a, Vm: Ord>(
    sets: impl IntoIterator<Item = (&'a str, Kind, Within, &'a [Vm])>,
) -> Option<(&'a str, &'a str, [&'a Vm; 2])> {
    let (affine, apart): (Vec<_>, Vec<_>) =
        sets.into_iter().partition(|(_, kind, ..)| *kind == Kind::Affine);
    apart.into_iter().find_map(|(name, _, within, vms)| {
        let chains = affine.iter().filter(|it| within == Within::Node || it.2 == Within::Llc);
        let together = chain(chains.map(|&(name, _, _, vms)| (name, vms)));
        let of = |vm: &Vm| together.get(vm).map(|it| it.0);
        vms.iter().enumerate().find_map(|(place, one)| {
            let other = vms[..place].iter().find(|other| of(one).is_some() && of(other) == of(one));
            other.map(|other| (together[one].1, name, [other, one]))
        })
    })
}

/// Each VM's chain, by a number, and the set that joined it last.
fn chain<'a, Vm: Ord>(
    sets: impl Iterator<Item = (&'a str, &'a [Vm])>,
) -> BTreeMap<&'a Vm, (usize, &'a str)> {
    let mut together: BTreeMap<&Vm, (usize, &str)> = BTreeMap::new();
    for (number, (name, vms)) in sets.enumerate() {
        let joined: Vec<usize> =
            vms.iter().filter_map(|vm| together.get(vm)).map(|it| it.0).collect();
        together
            .values_mut()
            .filter(|it| joined.contains(&it.0))
            .for_each(|it| *it = (number, name));
        together.extend(vms.iter().map(|vm| (vm, (number, name))));
    }
    together
}

// SPDX-License-Identifier: GPL-2.0-only
//! From what several sources ask for a VM to what it has, and from where.
//!
//! Sources stand in layers, the last one wins, value by value: defaults, the host's cgroups, the
//! configuration file rule by rule, libvirt's metadata, orders. A VM that was given its limit by one
//! source may thus have its reservation from another; where the two contradict each other the limit
//! holds, and that is said.

use crate::asked::{Asked, HOST, Key, Limit};
use crate::percent;
use crate::settings::Cosched;
use crate::shares::Shares;
use crate::tree::Tree;
use serde::{Deserialize, Serialize};

/// What one source asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    /// Which source, as people are told it: `/etc/drover/drover.toml:12`.
    pub origin: String,
    /// What it asks.
    pub asked: Asked,
}

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Why {
    /// Which value.
    pub key: Key,
    /// What it is, as people write it.
    pub value: String,
    /// Which source.
    pub origin: String,
}

/// What a VM is to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// Weight among its siblings.
    pub shares: Shares,
    /// Guaranteed CPU, thousandths of a pCPU.
    pub reservation_mcpu: u32,
    /// The most CPU, thousandths of a pCPU; none: no limit.
    pub limit_mcpu: Option<u32>,
    /// Its pool, by index in the tree; none: the host.
    pub pool: Option<usize>,
    /// How its vCPUs are kept together.
    pub cosched: Cosched,
    /// Where each value came from, in the order of [`Key::ALL`].
    pub why: Vec<Why>,
    /// What was asked and cannot be.
    pub troubles: Vec<Trouble>,
}

/// A value that was asked for and cannot be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// Which value.
    pub key: Key,
    /// Why not, and what to do, in a line.
    pub text: String,
}

/// The origin of what nobody asked for.
const DEFAULT: &str = "default";

/// What a VM is to have when these layers ask, the last one first in rank.
pub fn resolve(layers: &[Layer], tree: &Tree) -> Resolved {
    let asked = layers.iter().fold(Asked::default(), |below, layer| layer.asked.over(&below));
    let mut troubles = Vec::new();
    let pool = find_pool(&asked, layers, tree, &mut troubles);
    let cosched = asked.cosched.or(tree.cosched(pool)).unwrap_or_default();
    let limit_mcpu = asked.limit.and_then(Limit::mcpu);
    let mut reservation_mcpu = asked.reservation_mcpu.unwrap_or(0);
    if let Some(limit_mcpu) = limit_mcpu.filter(|limit_mcpu| *limit_mcpu < reservation_mcpu) {
        let text = format!(
            "{} reserved by {} are more than its limit of {} by {}: raise the limit or lower the \
             reservation; until then the limit holds",
            percent::text(reservation_mcpu),
            origin(layers, Key::Reservation),
            percent::text(limit_mcpu),
            origin(layers, Key::Limit)
        );
        troubles.push(Trouble { key: Key::Limit, text });
        reservation_mcpu = limit_mcpu;
    }
    let mut resolved = Resolved {
        shares: asked.shares.unwrap_or(Shares::NORMAL),
        reservation_mcpu,
        limit_mcpu,
        pool,
        cosched,
        why: Vec::new(),
        troubles,
    };
    resolved.why = Key::ALL.map(|key| why(&resolved, key, &asked, layers, tree)).to_vec();
    resolved
}

/// The pool asked for; the host where there is none of that name.
fn find_pool(
    asked: &Asked,
    layers: &[Layer],
    tree: &Tree,
    troubles: &mut Vec<Trouble>,
) -> Option<usize> {
    let name = asked.pool.as_deref().filter(|name| *name != HOST)?;
    let found = tree.find(name);
    if found.is_none() {
        let origin = origin(layers, Key::Pool);
        let text = format!("pool \"{name}\" of {origin} is not there; it is in no pool");
        troubles.push(Trouble { key: Key::Pool, text });
    }
    found
}

/// The source that has the last word on a value.
fn origin(layers: &[Layer], key: Key) -> &str {
    let last = layers.iter().rev().find(|layer| layer.asked.text(key).is_some());
    last.map_or(DEFAULT, |layer| &layer.origin)
}

fn why(resolved: &Resolved, key: Key, asked: &Asked, layers: &[Layer], tree: &Tree) -> Why {
    let value = match key {
        Key::Shares => resolved.shares.to_string(),
        Key::Reservation => percent::text(resolved.reservation_mcpu),
        Key::Limit => resolved.limit_mcpu.map_or(Limit::Open, Limit::At).to_string(),
        Key::Pool => {
            let name = resolved.pool.map(|pool| tree.pools()[pool].spec.name.clone());
            name.unwrap_or_else(|| HOST.to_owned())
        }
        Key::Cosched => resolved.cosched.to_string(),
    };
    let by_pool = || {
        let says = |pool: &usize| tree.pools()[*pool].spec.cosched.is_some();
        let pool = tree.path(resolved.pool).find(says)?;
        Some(format!("pool {}", tree.pools()[pool].spec.name))
    };
    let origin = match key {
        Key::Cosched if asked.cosched.is_none() => by_pool().unwrap_or_else(|| DEFAULT.to_owned()),
        _ => origin(layers, key).to_owned(),
    };
    Why { key, value, origin }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::PoolSpec;

    fn layer(origin: &str, values: &[(Key, &str)]) -> Layer {
        let mut asked = Asked::default();
        values.iter().for_each(|(key, text)| asked.read(*key, text).unwrap());
        Layer { origin: origin.to_owned(), asked }
    }

    fn tree() -> Tree {
        let cosched = Some(Cosched::Gang);
        Tree::of(&[PoolSpec { cosched, ..PoolSpec::named("prod") }, PoolSpec::named("test")])
            .unwrap()
    }

    fn said(resolved: &Resolved) -> Vec<(&str, &str)> {
        resolved.why.iter().map(|why| (why.value.as_str(), why.origin.as_str())).collect()
    }

    #[test]
    fn nobody_asking_leaves_the_defaults() {
        let resolved = resolve(&[], &tree());
        assert_eq!(
            said(&resolved),
            ["normal", "0%", "none", "host", "auto"].map(|value| (value, "default"))
        );
        assert!(resolved.troubles.is_empty());
    }

    #[test]
    fn the_last_one_wins_value_by_value_and_is_named() {
        let layers = [
            layer("cgroup", &[(Key::Shares, "2000/vcpu"), (Key::Limit, "300%")]),
            layer(
                "file:3",
                &[(Key::Shares, "low"), (Key::Pool, "prod"), (Key::Reservation, "50%")],
            ),
            layer("libvirt", &[(Key::Limit, "200%")]),
            layer("order", &[(Key::Reservation, "100%")]),
        ];
        let resolved = resolve(&layers, &tree());
        assert_eq!(
            said(&resolved),
            [
                ("low", "file:3"),
                ("100%", "order"),
                ("200%", "libvirt"),
                ("prod", "file:3"),
                ("gang", "pool prod"),
            ]
        );
        assert_eq!((resolved.reservation_mcpu, resolved.limit_mcpu), (1000, Some(2000)));
    }

    #[test]
    fn a_word_for_nothing_wins_too() {
        let layers = [
            layer("below", &[(Key::Limit, "200%"), (Key::Pool, "prod")]),
            layer("above", &[(Key::Limit, "none"), (Key::Pool, "host"), (Key::Cosched, "off")]),
        ];
        let resolved = resolve(&layers, &tree());
        assert_eq!((resolved.limit_mcpu, resolved.pool), (None, None));
        assert_eq!(resolved.cosched, Cosched::Off);
    }

    #[test]
    fn contradictions_between_sources_are_said_and_the_limit_holds() {
        let layers = [
            layer("cgroup", &[(Key::Limit, "100%")]),
            layer("file:3", &[(Key::Reservation, "150%"), (Key::Pool, "gone")]),
        ];
        let resolved = resolve(&layers, &tree());
        assert_eq!((resolved.reservation_mcpu, resolved.pool), (1000, None));
        let told: Vec<&str> = resolved.troubles.iter().map(|it| it.text.as_str()).collect();
        assert_eq!(
            told,
            [
                "pool \"gone\" of file:3 is not there; it is in no pool",
                "150% reserved by file:3 are more than its limit of 100% by cgroup: raise the limit or lower \
                 the reservation; until then the limit holds",
            ]
        );
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! From what several sources ask for a VM to what it has, and from where.
//!
//! Sources stand in layers, the last one wins, value by value: defaults, the host's cgroups, the
//! configuration file rule by rule, libvirt's metadata, orders. A VM that was given its limit by one
//! source may thus have its reservation from another; where the two contradict each other the limit
//! holds, and that is said. Reservations and modes of co-scheduling are for partitions of policy `share`, pools for
//! partition `default`: who is in another has none, and that is said too.
//!
//! What is asked for a name is for the VM that has it. A limit holds for it together with all that would have that name if it
//! were not here ([`Resolved::limit_of_name_mcpu`]): nobody comes around it by being several. A cgroup speaks for one VM.

use crate::asked::{Asked, Consolidate, DEFAULT, HOST, Key, Limit, MaxPerNode};
use crate::partition::{PartitionPolicy, Partitions};
use crate::percent;
use crate::settings::{Cosched, VcpuLimit};
use crate::shares::Shares;
use crate::tree::Tree;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What one source asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    /// Which source, as people are told it: `/etc/drover/drover.toml:12`.
    pub origin: String,
    /// Does it ask for a name that several would have, and not for this VM alone?
    pub of_name: bool,
    /// What it asks.
    pub asked: Asked,
}

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
    /// With a limit, what is saved up beside 100 ms of that, us of CPU time.
    pub burst_us: u32,
    /// What each of its vCPUs may have.
    pub vcpu_limit: VcpuLimit,
    /// The most CPU that it may have together with the other VMs that would have its name; none: there are no others, or
    /// nobody set one for the name.
    pub limit_of_name_mcpu: Option<u32>,
    /// Its pool, by index in the tree; none: the host.
    pub pool: Option<usize>,
    /// How its vCPUs are kept together.
    pub cosched: Cosched,
    /// Its partition, by index; none: `default`.
    pub partition: Option<usize>,
    /// At most so many of its vCPUs on a NUMA node; none: as many as that has cores.
    pub max_per_node: Option<u32>,
    /// Whether it is to live in one last-level cache.
    pub consolidate: Consolidate,
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
    /// What is so until then.
    pub until: String,
}

/// What a VM is to have when these layers ask, the last one first in rank, and so many VMs would have its name.
pub fn resolve(layers: &[Layer], named: u32, tree: &Tree, partitions: &Partitions) -> Resolved {
    let mut asked = layers.iter().fold(Asked::default(), |below, layer| layer.asked.over(&below));
    let mut troubles = Vec::new();
    let partition = find_partition(&asked, layers, partitions, &mut troubles);
    if partition.is_some() {
        take_back(&mut asked, layers, partitions, partition, &mut troubles);
    }
    let pool = find_pool(&asked, layers, tree, &mut troubles);
    let cosched = asked.cosched.or(tree.cosched(pool)).unwrap_or_default();
    let limit_mcpu = asked.limit.and_then(Limit::mcpu);
    let shared = named > 1 && last(layers, Key::Limit).is_some_and(|layer| layer.of_name);
    let mut reservation_mcpu = asked.reservation_mcpu.unwrap_or(0);
    if let Some(limit_mcpu) = limit_mcpu.filter(|limit_mcpu| *limit_mcpu < reservation_mcpu) {
        let text = format!(
            "{reserved} reserved by {} are more than its limit of {limit} by {}: raise the limit to {reserved} at \
             least, or reserve {limit} at most, as in `drover vm set NAME --reservation {limit}`",
            origin(layers, Key::Reservation),
            origin(layers, Key::Limit),
            reserved = percent::text(reservation_mcpu),
            limit = percent::text(limit_mcpu),
        );
        let until = "until then the limit holds".to_owned();
        troubles.push(Trouble { key: Key::Limit, text, until });
        reservation_mcpu = limit_mcpu;
    }
    let mut resolved = Resolved {
        shares: asked.shares.unwrap_or(Shares::NORMAL),
        reservation_mcpu,
        limit_mcpu,
        burst_us: asked.burst_us,
        vcpu_limit: asked.vcpu_limit,
        limit_of_name_mcpu: limit_mcpu.filter(|_| shared),
        pool,
        cosched,
        partition,
        max_per_node: asked.max_per_node.and_then(MaxPerNode::vcpus),
        consolidate: asked.consolidate.unwrap_or_default(),
        why: Vec::new(),
        troubles,
    };
    let partition = partitions.name(partition);
    let why = |key| match key {
        Key::Partition => {
            let (value, origin) = (partition.to_owned(), origin(layers, key).to_owned());
            Why { key, value, origin }
        }
        _ => {
            let mut why = why(&resolved, key, &asked, layers, tree);
            if key == Key::Limit && resolved.limit_of_name_mcpu.is_some() {
                why.origin += &format!(", for all {named} VMs of that name together");
            }
            why
        }
    };
    resolved.why = Key::ALL.map(why).to_vec();
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
        let text = format!("pool \"{name}\" of {origin} is not there");
        troubles.push(Trouble { key: Key::Pool, text, until: "it is in no pool".to_owned() });
    }
    found
}

/// The partition asked for, or `default` if no partition has that name.
fn find_partition(
    asked: &Asked,
    layers: &[Layer],
    partitions: &Partitions,
    troubles: &mut Vec<Trouble>,
) -> Option<usize> {
    let name = asked.partition.as_deref().filter(|name| *name != DEFAULT)?;
    let found = partitions.find(name);
    if found.is_none() {
        let (what, fix) = partitions.unknown(name);
        let origin = origin(layers, Key::Partition);
        let text = format!("{what}, asked for by {origin}; {fix}");
        let until = format!("it is in \"{DEFAULT}\"");
        troubles.push(Trouble { key: Key::Partition, text, until });
    }
    found
}

/// What is not for that partition, which is not `default`, is not had.
fn take_back(
    asked: &mut Asked,
    layers: &[Layer],
    partitions: &Partitions,
    partition: Option<usize>,
    troubles: &mut Vec<Trouble>,
) {
    let (name, policy) = (partitions.name(partition), partitions.policy(partition));
    let others = policy != PartitionPolicy::Share;
    let gang = |mode: &Cosched| !matches!(mode, Cosched::Auto | Cosched::Off);
    let asks = [
        (Key::Reservation, others && asked.reservation_mcpu.is_some_and(|mcpu| mcpu > 0)),
        (Key::Pool, asked.pool.as_deref().is_some_and(|pool| pool != HOST)),
        (Key::Cosched, others && asked.cosched.as_ref().is_some_and(gang)),
    ];
    for (key, _) in asks.into_iter().filter(|(_, asks)| *asks) {
        let (what, value) = (key.name(), asked.text(key).unwrap_or_default());
        let origin = origin(layers, key);
        let whose = match key {
            Key::Pool => format!("partition \"{DEFAULT}\" only, whose time pools divide"),
            _ => "partitions of policy share".to_owned(),
        };
        let text = format!(
            "{what} {value} of {origin} is for {whose}, and it is to be in \"{name}\" ({policy}); take back one of the \
             two, as in `drover vm set NAME --{what} default`"
        );
        let until = format!("until then that {what} is not in force");
        troubles.push(Trouble { key, text, until });
        asked.clear(key);
    }
}

/// The source that has the last word on a value.
fn last(layers: &[Layer], key: Key) -> Option<&Layer> {
    layers.iter().rev().find(|layer| layer.asked.text(key).is_some())
}

/// What people are told that source is.
fn origin(layers: &[Layer], key: Key) -> &str {
    last(layers, key).map_or(DEFAULT, |layer| &layer.origin)
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
        Key::MaxPerNode => {
            resolved.max_per_node.map_or(MaxPerNode::Open, MaxPerNode::At).to_string()
        }
        Key::Consolidate => resolved.consolidate.to_string(),
        Key::Partition => unreachable!("partitions know their names"),
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
        Layer { origin: origin.to_owned(), of_name: !origin.starts_with("cgroup"), asked }
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
        let resolved = resolve(&[], 1, &tree(), &Partitions::default());
        assert_eq!(
            said(&resolved),
            ["normal", "0%", "none", "host", "auto", "default", "none", "auto"]
                .map(|value| (value, "default"))
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
            layer("libvirt", &[(Key::Limit, "200%"), (Key::MaxPerNode, "2")]),
            layer("order", &[(Key::Reservation, "100%"), (Key::Consolidate, "on")]),
        ];
        let resolved = resolve(&layers, 1, &tree(), &Partitions::default());
        assert_eq!(
            said(&resolved),
            [
                ("low", "file:3"),
                ("100%", "order"),
                ("200%", "libvirt"),
                ("prod", "file:3"),
                ("gang", "pool prod"),
                ("default", "default"),
                ("2", "libvirt"),
                ("on", "order"),
            ]
        );
        assert_eq!(resolved.max_per_node, Some(2));
        assert_eq!((resolved.reservation_mcpu, resolved.limit_mcpu), (1000, Some(2000)));
    }

    #[test]
    fn a_word_for_nothing_wins_too() {
        let layers = [
            layer("below", &[(Key::Limit, "200%"), (Key::Pool, "prod")]),
            layer("above", &[(Key::Limit, "none"), (Key::Pool, "host"), (Key::Cosched, "off")]),
        ];
        let resolved = resolve(&layers, 1, &tree(), &Partitions::default());
        assert_eq!((resolved.limit_mcpu, resolved.pool), (None, None));
        assert_eq!(resolved.cosched, Cosched::Off);
    }

    #[test]
    fn a_limit_for_a_name_is_for_all_that_would_have_it_and_nothing_else_is() {
        let layers = [
            layer("cgroup", &[(Key::Shares, "9"), (Key::Limit, "300%")]),
            layer("order", &[(Key::Reservation, "90%"), (Key::Limit, "100%")]),
            layer("libvirt", &[(Key::Shares, "700")]),
        ];
        let of = |layers: &[Layer], named| resolve(layers, named, &tree(), &Partitions::default());
        let three = of(&layers, 3);
        assert_eq!((three.reservation_mcpu, three.shares), (900, Shares::Exact(700)));
        assert_eq!((three.limit_mcpu, three.limit_of_name_mcpu), (Some(1000), Some(1000)));
        assert_eq!(
            said(&three)[..3],
            [
                ("700", "libvirt"),
                ("90%", "order"),
                ("100%", "order, for all 3 VMs of that name together"),
            ]
        );
        assert_eq!(of(&layers, 1).limit_of_name_mcpu, None);
        // A cgroup is one VM's.
        let three = of(&layers[..1], 3);
        assert_eq!((three.limit_mcpu, three.limit_of_name_mcpu), (Some(3000), None));
        let open = of(&[layer("order", &[(Key::Limit, "none")])], 3);
        assert_eq!((open.limit_of_name_mcpu, said(&open)[2]), (None, ("none", "order")));
    }

    #[test]
    fn contradictions_between_sources_are_said_and_the_limit_holds() {
        let layers = [
            layer("cgroup", &[(Key::Limit, "100%")]),
            layer("file:3", &[(Key::Reservation, "150%"), (Key::Pool, "gone")]),
        ];
        let resolved = resolve(&layers, 1, &tree(), &Partitions::default());
        assert_eq!((resolved.reservation_mcpu, resolved.pool), (1000, None));
        let told: Vec<(&str, &str)> =
            resolved.troubles.iter().map(|it| (it.text.as_str(), it.until.as_str())).collect();
        let limit = "150% reserved by file:3 are more than its limit of 100% by cgroup: raise the limit to 150% at \
                     least, or reserve 100% at most, as in `drover vm set NAME --reservation 100%`";
        assert_eq!(
            told,
            [
                ("pool \"gone\" of file:3 is not there", "it is in no pool"),
                (limit, "until then the limit holds"),
            ]
        );
    }

    #[test]
    fn what_is_not_for_a_partition_is_not_had_in_it() {
        let specs = r#"[{"name":"io","cpus":"1","policy":"credit"}]"#;
        let partitions = Partitions::of(serde_json::from_str(specs).unwrap()).unwrap();
        let order = [
            (Key::Partition, "io"),
            (Key::Reservation, "50%"),
            (Key::Pool, "prod"),
            (Key::Cosched, "strict"),
            (Key::Limit, "90%"),
        ];
        let resolved = resolve(&[layer("drover vm set", &order)], 1, &tree(), &partitions);
        assert_eq!((resolved.partition, resolved.reservation_mcpu), (Some(0), 0));
        assert_eq!((resolved.pool, resolved.cosched), (None, Cosched::Auto));
        assert_eq!(resolved.limit_mcpu, Some(900));
        let told: Vec<&str> = resolved.troubles.iter().map(|it| it.text.as_str()).collect();
        assert_eq!(
            told[0],
            "reservation 50% of drover vm set is for partitions of policy share, and it is to be in \"io\" (credit); \
             take back one of the two, as in `drover vm set NAME --reservation default`"
        );
        assert_eq!(told.len(), 3);
        assert!(told[1].contains("is for partition \"default\" only, whose time pools divide"));
        assert_eq!(said(&resolved)[5], ("io", "drover vm set"));
        let specs = r#"[{"name":"io","cpus":"1","policy":"share"}]"#;
        let share = Partitions::of(serde_json::from_str(specs).unwrap()).unwrap();
        let resolved = resolve(&[layer("drover vm set", &order)], 1, &tree(), &share);
        assert_eq!((resolved.reservation_mcpu, resolved.cosched), (500, Cosched::Strict));
        assert_eq!((resolved.pool, resolved.troubles.len()), (None, 1));
        let gone = resolve(&[layer("order", &[(Key::Partition, "oi")])], 1, &tree(), &partitions);
        assert_eq!(gone.partition, None);
        assert_eq!(
            gone.troubles[0].text,
            "there is no partition \"oi\", asked for by order; known are io, default"
        );
        assert_eq!(gone.troubles[0].until, "it is in \"default\"");
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! Everything that was ordered, and how it goes over what is configured.

use anyhow::Result;
use drover_core::asked::Asked;
use drover_core::partition::{PartitionSpec, Partitions};
use drover_core::sets::{self, SetSpec};
use drover_core::tree::{PoolSpec, Tree};
use serde::{Deserialize, Serialize, Serializer};
use std::collections::BTreeMap;

/// Of its form.
pub(crate) const VERSION: u32 = 1;
/// So many orders can be taken back, the last one first.
const KEPT: usize = 16;

/// Everything that was ordered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Saved {
    pub(crate) version: u32,
    /// Pools that were added or changed.
    pub pools: Vec<PoolSpec>,
    /// What was asked for VMs, by name.
    pub vms: BTreeMap<String, Asked>,
    /// Partitions that were added.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub partitions: Vec<PartitionSpec>,
    /// Partitions are arranged by what VMs do.
    #[serde(default, skip_serializing_if = "is_false")]
    pub auto_partitions: bool,
    /// Sets of VMs that were added.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sets: Vec<SetSpec>,
    /// By what the last orders are taken back, the last one last.
    #[serde(default, skip_serializing_if = "Vec::is_empty", serialize_with = "kept")]
    pub history: Vec<Before>,
    /// What was asked for VMs for as long as they run, by name: never kept.
    #[serde(skip)]
    pub live: BTreeMap<String, Asked>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_false(it: &bool) -> bool {
    !it
}

impl Saved {
    /// Has that order taken back first.
    pub fn remember(&mut self, before: Before) {
        self.history.push(before);
        let surplus = self.history.len().saturating_sub(KEPT);
        self.history.drain(..surplus);
    }

    /// Forgets what was asked for VMs for as long as they run, of those that are gone.
    pub fn forget_gone(&mut self, is_here: impl Fn(&str) -> bool) {
        self.live.retain(|name, _| is_here(name));
        self.history.retain(|before| match before {
            Before::LiveVm { name, .. } => is_here(name),
            _ => true,
        });
    }

    /// Pools that were ordered into pools which are neither configured nor ordered any more are the host's
    /// now. Returns a line for each.
    pub fn adopt_orphans<'a>(
        &mut self,
        configured: impl Iterator<Item = &'a PoolSpec>,
    ) -> Vec<String> {
        let mut known: Vec<String> = configured.map(|spec| spec.name.clone()).collect();
        known.extend(self.pools.iter().map(|pool| pool.name.clone()));
        let mut told = Vec::new();
        for pool in &mut self.pools {
            let Some(parent) = pool.parent.take_if(|parent| !known.contains(parent)) else {
                continue;
            };
            told.push(format!(
                "pool {0}: pool {parent:?}, which it was ordered into, is not there any more; it is the \
                 host's until `drover pool set {0} --parent NAME`",
                pool.name
            ));
        }
        told
    }
}

impl Default for Saved {
    fn default() -> Self {
        Self {
            version: VERSION,
            pools: Vec::new(),
            vms: BTreeMap::new(),
            partitions: Vec::new(),
            auto_partitions: false,
            sets: Vec::new(),
            history: Vec::new(),
            live: BTreeMap::new(),
        }
    }
}

/// What stood in the place of an order before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "of", rename_all = "snake_case", deny_unknown_fields)]
pub enum Before {
    /// What was ordered for a VM.
    Vm {
        /// Its name.
        name: String,
        /// To be kept.
        #[serde(default)]
        ordered: Asked,
        /// For as long as it runs.
        #[serde(skip)]
        live: Asked,
    },
    /// What was ordered for a VM for as long as it runs.
    LiveVm {
        /// Its name.
        name: String,
        /// That.
        live: Asked,
    },
    /// A pool as it was ordered; none: it was not.
    Pool {
        /// Its name.
        name: String,
        /// That.
        ordered: Option<PoolSpec>,
    },
    /// A partition likewise.
    Partition {
        /// Its name.
        name: String,
        /// That.
        ordered: Option<PartitionSpec>,
    },
    /// A set likewise.
    Set {
        /// Its name.
        name: String,
        /// That.
        ordered: Option<SetSpec>,
    },
    /// Whether partitions were arranged by what VMs do.
    AutoPartitions {
        /// That.
        on: bool,
    },
}

/// Without what ends with this daemon.
fn kept<S: Serializer>(history: &[Before], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(history.iter().filter(|it| !matches!(it, Before::LiveVm { .. })))
}

/// The pools of a configuration with those that were ordered over them, in place of or after them.
///
/// # Errors
/// When they are no tree together, in one line.
pub fn merged<'a>(configured: impl Iterator<Item = &'a PoolSpec>, saved: &Saved) -> Result<Tree> {
    Ok(Tree::of(&ordered_over(configured, &saved.pools, |pool| &pool.name))?)
}

/// The partitions of a configuration with those that were ordered over them.
///
/// # Errors
/// When they cannot stand together, in one line.
pub fn merged_partitions<'a>(
    configured: impl Iterator<Item = &'a PartitionSpec>,
    saved: &Saved,
) -> Result<Partitions> {
    Ok(Partitions::of(ordered_over(configured, &saved.partitions, |spec| &spec.name))?)
}

/// The sets of a configuration with those that were ordered over them.
///
/// # Errors
/// When they cannot stand together, in one line.
pub fn merged_sets<'a>(
    configured: impl Iterator<Item = &'a SetSpec>,
    saved: &Saved,
) -> Result<Vec<SetSpec>> {
    let specs = ordered_over(configured, &saved.sets, |set| &set.name);
    sets::check(&specs)?;
    Ok(specs)
}

/// What is configured, and what was ordered in place of what has that name, or after all.
fn ordered_over<'a, T: Clone + 'a>(
    configured: impl Iterator<Item = &'a T>,
    ordered: &[T],
    name: impl Fn(&T) -> &str,
) -> Vec<T> {
    let mut specs: Vec<T> = configured.cloned().collect();
    for one in ordered {
        match specs.iter_mut().find(|spec| name(spec) == name(one)) {
            Some(spec) => *spec = one.clone(),
            None => specs.push(one.clone()),
        }
    }
    specs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordered_pools_go_over_configured_ones() {
        let configured = [PoolSpec::named("a"), PoolSpec::named("prod")];
        let mut over = Saved { pools: vec![PoolSpec::named("prod")], ..Saved::default() };
        over.pools[0].parent = Some("a".to_owned());
        let tree = merged(configured.iter(), &over).unwrap();
        assert_eq!(tree.pools()[tree.find("prod").unwrap()].parent, tree.find("a"));
        over.pools[0].parent = Some("b".to_owned());
        assert!(merged(configured.iter(), &over).unwrap_err().to_string().contains("not there"));
    }
}

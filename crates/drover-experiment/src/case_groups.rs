// SPDX-License-Identifier: GPL-2.0-only
//! A case in the words of cgroups: which there are, in which, with what `cpu.weight` and `cpu.max`.
//!
//! It is what a scheduler that knows cgroups and no orders is told. Reservations cannot be said so.

use crate::weights::{WEIGHT_NORMAL, weights};
use drover_scenario::Case;
use std::path::PathBuf;

/// Shares that are the normal weight.
const SHARES_NORMAL: u32 = 1000;

/// A cgroup to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    /// Its place below that of the experiment.
    pub path: PathBuf,
    /// Its `cpu.weight`.
    pub weight: u32,
    /// The most CPU it may have, thousandths of a pCPU; none: no limit.
    pub limit_mcpu: Option<u32>,
    /// Whether it is a pool, which has cgroups in it and no process of its own.
    pub is_pool: bool,
}

/// The cgroups of a case: its pools, parents before their children, then its VMs in their order.
pub(crate) fn groups(case: &Case) -> Vec<Group> {
    let pools = case.pools.pools();
    let place = |name: &Option<String>| name.as_deref().and_then(|name| case.pools.find(name));
    let dir = |pool: Option<usize>| -> PathBuf {
        let path: Vec<usize> = case.pools.path(pool).collect();
        // A VM may be called as a pool is.
        path.iter().rev().map(|&pool| format!("pool.{}", pools[pool].spec.name)).collect()
    };
    let parents = pools.iter().map(|pool| pool.parent);
    let parents: Vec<_> = parents.chain(case.vms.iter().map(|vm| place(&vm.pool))).collect();
    let shares = pools.iter().map(|pool| pool.spec.shares.of_pool());
    let shares: Vec<u32> = shares.chain(case.vms.iter().map(|vm| vm.shares_of_all())).collect();
    // Weights count among siblings only.
    let weight = |index: usize| {
        // Those of containers are as the scenario has them, beside others with the normal one.
        if case.has_containers() {
            return (shares[index] * WEIGHT_NORMAL / SHARES_NORMAL).max(1);
        }
        let siblings: Vec<usize> =
            (0..shares.len()).filter(|&other| parents[other] == parents[index]).collect();
        let of_siblings: Vec<u32> = siblings.iter().map(|&other| shares[other]).collect();
        let own = siblings.iter().position(|&other| other == index).expect("its own sibling");
        weights(&of_siblings)[own]
    };
    let pool_group = |index: usize| Group {
        path: dir(Some(index)),
        weight: weight(index),
        limit_mcpu: pools[index].spec.limit_mcpu,
        is_pool: true,
    };
    let vm_group = |index: usize| {
        let (vm, all) = (&case.vms[index], pools.len() + index);
        Group {
            path: dir(parents[all]).join(&vm.name),
            weight: weight(all),
            limit_mcpu: vm.limit_pct.map(|pct| 10 * pct),
            is_pool: false,
        }
    };
    (0..pools.len()).map(pool_group).chain((0..case.vms.len()).map(vm_group)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use drover_scenario::Scenario;

    const TEXT: &str = r#"
name = "s"
host = { cores = 4 }
[[pool]]
name = "inner"
parent = "outer"
shares = 1000
[[pool]]
name = "outer"
limit_pct = 150
[[vm]]
name = "a"
vcpus = 1
pool = "inner"
limit_pct = 50
workload = { kind = "cpu" }
[[vm]]
name = "b"
vcpus = 4
pool = "outer"
workload = { kind = "cpu" }
[[vm]]
name = "outer"
vcpus = 2
workload = { kind = "cpu" }
"#;

    #[test]
    fn pools_are_cgroups_in_one_another_with_weights_among_siblings() {
        let case = Scenario::parse(TEXT, "s.toml").unwrap().cases.remove(0);
        let groups = groups(&case);
        let found: Vec<(&str, u32, Option<u32>, bool)> = groups
            .iter()
            .map(|group| {
                (group.path.to_str().unwrap(), group.weight, group.limit_mcpu, group.is_pool)
            })
            .collect();
        assert_eq!(
            found,
            [
                ("pool.outer", 10_000, Some(1500), true),
                ("pool.outer/pool.inner", 2500, None, true),
                ("pool.outer/pool.inner/a", 10_000, Some(500), false),
                ("pool.outer/b", 10_000, None, false),
                ("outer", 5000, None, false),
            ]
        );
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! Reads the pools and the partitions of a scenario, and what cases change about pools.

use super::format::{CasePoolTable, CaseTable, PartitionTable, PoolTable, Top};
use crate::host::Host;
use drover_core::asked::Limit;
use drover_core::cpu_list::CpuList;
use drover_core::nearest::hint;
use drover_core::partition::{PartitionSpec, Partitions};
use drover_core::toml_file::{Read, Table};
use drover_core::tree::{PoolChange, PoolSpec, Tree};

/// The pools of a scenario, before any case.
pub(super) struct Pools<'a>(Vec<Table<'a, PoolTable>>);

impl<'a> Pools<'a> {
    /// Reads the `[[pool]]` of a scenario.
    pub(super) fn read(top: &Table<'a, Top>) -> Read<Self> {
        top.tables("pool").map(Self)
    }

    /// The pools as a case has them; none: as they are without any.
    pub(super) fn tree(&self, case: Option<&Table<CaseTable>>) -> Read<Tree> {
        let mut specs: Vec<PoolSpec> = self.0.iter().map(|pool| spec(pool)).collect();
        let changes = case.map(|case| case.named::<CasePoolTable>("pool")).transpose()?;
        for (name, change) in changes.iter().flatten() {
            let known = self.0.iter().map(|pool| pool.name.as_str());
            let Some(index) = known.clone().position(|known| known == name) else {
                let what = format!("the case speaks of an unknown pool \"{name}\"");
                return Err(change.error("", what, hint(name, known)));
            };
            specs[index] = spec(&*change.over(&self.0[index])?);
        }
        Tree::of(&specs).map_err(|fault| {
            let index =
                specs.iter().rposition(|spec| spec.name == fault.pool).expect("one of them");
            let what = format!("pool \"{}\" {}", fault.pool, fault.what);
            match case {
                Some(case) => case.error("", what, fault.fix),
                None => self.0[index].error("", what, fault.fix),
            }
        })
    }
}

fn spec(pool: &PoolTable) -> PoolSpec {
    let asked = PoolChange {
        parent: None,
        shares: pool.shares.map(|given| given.0),
        reservation_mcpu: pool.reservation_pct.map(|pct| 10 * pct),
        limit: pool.limit_pct.map(|pct| Limit::At(10 * pct)),
        expandable: pool.expandable,
        cosched: pool.cosched,
    };
    PoolSpec { parent: pool.parent.clone(), ..asked.of(&PoolSpec::named(&pool.name)) }
}

/// Reads the `[[partition]]` of a scenario on that host.
pub(super) fn read_partitions(top: &Table<Top>, host: &Host) -> Read<Partitions> {
    let tables = top.tables::<PartitionTable>("partition")?;
    let specs: Vec<PartitionSpec> = tables.iter().map(|table| partition(table)).collect();
    let online = CpuList::all(host.pcpus());
    let checked = Partitions::of(specs.clone()).and_then(|partitions| {
        (0..specs.len()).try_for_each(|index| partitions.check(index, &online))?;
        Ok(partitions)
    });
    checked.map_err(|fault| {
        let at = specs.iter().rposition(|spec| spec.name == fault.partition);
        let what = format!("partition \"{}\" {}", fault.partition, fault.what);
        tables[at.expect("one of them")].error(fault.key, what, fault.fix)
    })
}

fn partition(table: &PartitionTable) -> PartitionSpec {
    PartitionSpec {
        name: table.name.clone(),
        cpus: table.cpus.clone(),
        policy: table.policy.unwrap_or_default(),
        slice_ns: table.slice_ms.map(|ms| (ms * 1e6).round() as u64),
    }
}

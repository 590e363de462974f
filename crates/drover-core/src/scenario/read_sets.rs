// SPDX-License-Identifier: GPL-2.0-only
//! Reads sets of VMs, of a scenario or of a host's configuration.

use super::format::SetTable;
use super::is_meant;
use super::table::{Read, Table};
use crate::nearest::hint;
use crate::sets::{self, SetSpec};

/// The sets, each with its line, checked against each other. `meant` says which VMs the names in a set mean.
pub(crate) fn read_sets(
    tables: &[Table<SetTable>],
    meant: impl Fn(&[String]) -> Vec<String>,
) -> Read<Vec<(SetSpec, usize)>> {
    let spec = |table: &Table<SetTable>| SetSpec {
        name: table.name.clone(),
        vms: meant(&table.vms),
        kind: table.kind,
        within: table.within.unwrap_or_default(),
        hard: table.hard.unwrap_or(false),
    };
    let specs: Vec<SetSpec> = tables.iter().map(spec).collect();
    sets::check(&specs).map_err(|fault| {
        let at = specs.iter().rposition(|spec| spec.name == fault.set).expect("one of them");
        tables[at].error(fault.key, format!("set \"{}\" {}", fault.set, fault.what), fault.fix)
    })?;
    Ok(specs.into_iter().zip(tables.iter().map(Table::line)).collect())
}

/// Whether all that a scenario's sets name are VMs of it.
pub(super) fn check_names(tables: &[Table<SetTable>], vms: &[&str]) -> Read<()> {
    for table in tables {
        if let Some(vm) = table.vms.iter().find(|vm| !vms.iter().any(|name| is_meant(vm, name))) {
            let what = format!("set \"{}\" names an unknown VM \"{vm}\"", table.name);
            return Err(table.error("vms", what, hint(vm, vms.iter().copied())));
        }
    }
    Ok(())
}

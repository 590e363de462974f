// SPDX-License-Identifier: GPL-2.0-only
//! Reads sets of VMs, of a scenario or of a host's configuration.

use super::{SetSpec, check};
use crate::place::{Kind, Within};
use crate::toml_file::{Keys, Read, Table};
use serde::Deserialize;

/// A `[[set]]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetTable {
    /// Unique name; needed.
    pub name: String,
    /// Its VMs, two at least, also by [pattern](#vms-by-pattern); needed.
    pub vms: Vec<String>,
    /// `affine` (near each other) or `anti-affine` (apart); needed.
    kind: Kind,
    /// In what: `node` (default) or `llc`.
    within: Option<Within>,
    /// `true`: never broken; a VM that it leaves no home has none.
    hard: Option<bool>,
}

impl Keys for SetTable {
    const TITLE: &'static str = "[[set]]";
}

/// The sets, each with its line, checked against each other. `meant` says which VMs the names in a set mean.
///
/// # Errors
/// When one is no set, or two contradict each other.
pub fn read_sets(
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
    check(&specs).map_err(|fault| {
        let at = specs.iter().rposition(|spec| spec.name == fault.set).expect("one of them");
        tables[at].error(fault.key, format!("set \"{}\" {}", fault.set, fault.what), fault.fix)
    })?;
    Ok(specs.into_iter().zip(tables.iter().map(Table::line)).collect())
}

// SPDX-License-Identifier: GPL-2.0-only
//! Reads the pools of a scenario, and what cases change about them.

use super::error::ScenarioError;
use super::keys;
use super::reader::Reader;
use crate::nearest::hint;
use crate::tree::{PoolSpec, Tree};

/// The most CPU a pool may be given, in % of one pCPU.
const POOL_PCT_MAX: u32 = 409_600;

/// The pools of a scenario, before any case.
pub(super) struct Pools<'a> {
    /// Each with the table it was read from, to complain of.
    specs: Vec<(PoolSpec, Reader<'a>)>,
}

impl<'a> Pools<'a> {
    /// Reads the `[[pool]]` of a scenario.
    pub(super) fn read(top: &Reader<'a>) -> Result<Self, ScenarioError> {
        let mut specs = Vec::new();
        for reader in top.tables("pool", keys::POOL)? {
            let name = reader.need("name", reader.text("name")?, "\"prod\"")?;
            let parent = reader.text("parent")?.map(str::to_owned);
            let spec = PoolSpec { parent, ..PoolSpec::named(name) };
            specs.push((changed(spec, &reader)?, reader));
        }
        Ok(Self { specs })
    }

    /// The pools as a case has them; none: as they are without any.
    pub(super) fn tree(&self, case: Option<&Reader>) -> Result<Tree, ScenarioError> {
        let mut specs: Vec<PoolSpec> = self.specs.iter().map(|(spec, _)| spec.clone()).collect();
        if let Some(case) = case {
            for (name, change) in case.named_tables("pool", keys::CASE_POOL)? {
                let known = self.specs.iter().map(|(spec, _)| spec.name.as_str());
                let Some(index) = known.clone().position(|known| known == name) else {
                    let what = format!("the case speaks of an unknown pool \"{name}\"");
                    return Err(change.error("", what, hint(name, known)));
                };
                specs[index] = changed(specs[index].clone(), &change)?;
            }
        }
        Tree::of(&specs).map_err(|fault| {
            let (_, reader) = self
                .specs
                .iter()
                .rev()
                .find(|(spec, _)| spec.name == fault.pool)
                .expect("the fault is of one of these pools");
            let what = format!("pool \"{}\" {}", fault.pool, fault.what);
            case.unwrap_or(reader).error("", what, fault.fix)
        })
    }
}

/// The pool with what a table says of it.
fn changed(spec: PoolSpec, reader: &Reader) -> Result<PoolSpec, ScenarioError> {
    let reserved = reader.whole32("reservation_pct", 0..=POOL_PCT_MAX)?;
    let limit = reader.whole32("limit_pct", 1..=POOL_PCT_MAX)?;
    Ok(PoolSpec {
        shares: reader.shares("shares")?.unwrap_or(spec.shares),
        reservation_mcpu: reserved.map_or(spec.reservation_mcpu, |pct| 10 * pct),
        limit_mcpu: limit.map(|pct| 10 * pct).or(spec.limit_mcpu),
        expandable: reader.truth("expandable")?.unwrap_or(spec.expandable),
        cosched: reader.cosched("cosched")?.or(spec.cosched),
        ..spec
    })
}

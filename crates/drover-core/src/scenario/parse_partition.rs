// SPDX-License-Identifier: GPL-2.0-only
//! Reads the partitions of a scenario.

use super::error::ScenarioError;
use super::keys;
use super::reader::Reader;
use super::{CpuList, CpuListError, Host};
use crate::partition::{PartitionPolicy, PartitionSpec, Partitions, SLICE_MAX_NS, SLICE_MIN_NS};

/// Reads the `[[partition]]` of a scenario on that host.
pub(super) fn read_partitions(top: &Reader, host: &Host) -> Result<Partitions, ScenarioError> {
    let readers = top.tables("partition", keys::PARTITION)?;
    let specs: Vec<PartitionSpec> = readers.iter().map(read_partition).collect::<Result<_, _>>()?;
    let online = CpuList::all(host.pcpus());
    let checked = Partitions::of(specs.clone()).and_then(|partitions| {
        (0..specs.len()).try_for_each(|index| partitions.check(index, &online))?;
        Ok(partitions)
    });
    checked.map_err(|fault| {
        let at = specs.iter().rposition(|spec| spec.name == fault.partition);
        let what = format!("partition \"{}\" {}", fault.partition, fault.what);
        readers[at.expect("one of them")].error(fault.key, what, fault.fix)
    })
}

fn read_partition(reader: &Reader) -> Result<PartitionSpec, ScenarioError> {
    let name = reader.need("name", reader.text("name")?, "\"io\"")?.to_owned();
    let cpus = reader.need("cpus", reader.text("cpus")?, "\"0-1\"")?;
    let cpus = cpus.parse().map_err(|error: CpuListError| {
        reader.error("cpus", error.to_string(), "give numbers and ranges with commas between")
    })?;
    let policy = reader.word("policy", &PartitionPolicy::WORDS)?.unwrap_or_default();
    let ms = |ns: u64| ns as f64 / 1e6;
    let slice_ms = reader.number("slice_ms", ms(SLICE_MIN_NS)..=ms(SLICE_MAX_NS))?;
    let slice_ns = slice_ms.map(|ms| (ms * 1e6).round() as u64);
    Ok(PartitionSpec { name, cpus, policy, slice_ns })
}

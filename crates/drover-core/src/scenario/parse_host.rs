// SPDX-License-Identifier: GPL-2.0-only
//! Reads a host: a table of the scenario, or a file with the same keys that the scenario names.

use super::error::{ScenarioError, Source};
use super::keys;
use super::reader::Reader;
use super::{Cost, Host, OwnTasks};

/// The largest cache a host may state, KiB.
const CACHE_KIB_MAX: u32 = 1 << 22;

/// The longest round of turns: each pCPU has one at least between two ticks.
const ROUND_US_MAX: u32 = 1_000;

/// The most that a step of the kernel may cost, ns.
const COST_NS_MAX: u32 = 1_000_000;

/// Reads `host` of a scenario.
pub(super) fn read_host(top: &Reader) -> Result<Host, ScenarioError> {
    if !top.is_file("host") {
        let host = top.need("host", top.table("host", keys::HOST)?, "{ cores = 4 }")?;
        return host_of(&host);
    }
    let name = top.need("host", top.text("host")?, "\"hosts/lab.toml\"")?;
    let (file, text) = top.other_file("host", name)?;
    let source = Source { file: &file, text: &text, ..*top.source };
    let table = source.table("docs/scenarios.md")?;
    host_of(&Reader::new(&source, keys::HOST, 0, table.get_ref())?)
}

fn host_of(reader: &Reader) -> Result<Host, ScenarioError> {
    let count = |key: &str| reader.whole32(key, 1..=1024).map(|given| given.unwrap_or(1));
    let memory_mib = reader.whole32("memory_mib", 256..=Host::MEMORY_MIB_MAX)?;
    let host = Host {
        sockets: count("sockets")?,
        dies: count("dies")?,
        cores: count("cores")?,
        threads: count("threads")?,
        nodes: count("nodes")?,
        memory_mib: memory_mib.unwrap_or(Host::MEMORY_MIB),
        node_distances: reader.grid("node_distances", 1..=254)?.unwrap_or_default(),
        cpu: reader.text("cpu")?.map(str::to_owned),
        clock_mhz: reader.whole32("clock_mhz", 100..=20_000)?,
        l1d_kib: reader.whole32("l1d_kib", 1..=CACHE_KIB_MAX)?,
        l2_kib: reader.whole32("l2_kib", 1..=CACHE_KIB_MAX)?,
        llc_kib: reader.whole32("llc_kib", 1..=CACHE_KIB_MAX)?,
        memory_ns: reader.whole32("memory_ns", 1..=10_000)?,
        hop_ns: reader.whole32("hop_ns", 0..=10_000)?,
        node_mb_s: reader.whole32("node_mb_s", 100..=10_000_000)?,
        skew_tick: reader.truth("skew_tick")?.unwrap_or(false),
        own_tasks: own_tasks(reader)?,
        round_us: reader.whole32("round_us", 1..=ROUND_US_MAX)?,
        costs_ns: costs_ns(reader)?,
    };
    check_counts(reader, &host)?;
    check_distances(reader, &host)?;
    check_memory(reader, &host)?;
    Ok(host)
}

fn own_tasks(reader: &Reader) -> Result<Option<OwnTasks>, ScenarioError> {
    let wakeups_per_s = reader.whole32("own_wakeups_per_s", 1..=10_000)?;
    let work_us = reader.whole32("own_work_us", 1..=1_000_000)?;
    match (wakeups_per_s, work_us) {
        (None, None) => Ok(None),
        (Some(wakeups_per_s), Some(work_us))
            if wakeups_per_s.saturating_mul(work_us) < 1_000_000 =>
        {
            Ok(Some(OwnTasks { wakeups_per_s, work_us }))
        }
        (Some(_), Some(_)) => {
            let what = "own_wakeups_per_s times own_work_us is a second or more";
            Err(reader.error("own_work_us", what, "leave something to the VMs"))
        }
        _ => {
            let what = "own_wakeups_per_s and own_work_us belong together";
            Err(reader.error("", what, "give both or neither"))
        }
    }
}

fn costs_ns(reader: &Reader) -> Result<Vec<(Cost, u32)>, ScenarioError> {
    let Some(table) = reader.table("costs", keys::HOST_COSTS)? else { return Ok(Vec::new()) };
    let given = Cost::KEYS.iter().map(|&(key, cost)| {
        let ns = table.whole32(key, 0..=COST_NS_MAX)?;
        Ok(ns.map(|ns| (cost, ns)))
    });
    given.filter_map(Result::transpose).collect()
}

fn check_counts(reader: &Reader, host: &Host) -> Result<(), ScenarioError> {
    let parts = [host.sockets, host.dies, host.cores, host.threads];
    // Four numbers of at most 1024 each: the product fits 64 bits.
    let pcpus: u64 = parts.iter().map(|part| u64::from(*part)).product();
    if pcpus > Host::PCPUS_MAX.into() {
        let what = format!("the host has {pcpus} pCPUs");
        let fix = format!("sockets * dies * cores * threads may be {} at most", Host::PCPUS_MAX);
        return Err(reader.error("", what, fix));
    }
    let dies = host.sockets * host.dies;
    if dies % host.nodes != 0 {
        let what = format!("{dies} dies do not divide evenly among {} NUMA nodes", host.nodes);
        let fix = "choose nodes so that sockets * dies is a multiple of it";
        return Err(reader.error("nodes", what, fix));
    }
    Ok(())
}

fn check_distances(reader: &Reader, host: &Host) -> Result<(), ScenarioError> {
    let (rows, nodes) = (&host.node_distances, host.nodes as usize);
    let fault = |what: String, fix: &str| Err(reader.error("node_distances", what, fix));
    if rows.is_empty() {
        return Ok(());
    }
    if rows.len() != nodes || rows.iter().any(|row| row.len() != nodes) {
        let what = format!("node_distances is not {nodes} rows of {nodes}");
        return fault(what, "give a row for each node, as numactl --hardware prints them");
    }
    for (from, row) in rows.iter().enumerate() {
        for (to, distance) in row.iter().enumerate() {
            let local = *distance == Host::DISTANCE_LOCAL;
            if (from == to) != local || *distance < Host::DISTANCE_LOCAL {
                let what = format!("distance {distance} from node {from} to node {to}");
                return fault(what, "10 is the distance of a node to itself, others are more");
            }
        }
    }
    Ok(())
}

/// What the speed of a memory is, is said as a whole or not at all.
fn check_memory(reader: &Reader, host: &Host) -> Result<(), ScenarioError> {
    let said = [
        ("memory_ns", host.memory_ns, true),
        ("hop_ns", host.hop_ns, host.nodes > 1),
        ("node_mb_s", host.node_mb_s, true),
        ("llc_kib", host.llc_kib, true),
    ];
    let Some((some, ..)) = said[..3].iter().find(|(_, given, _)| given.is_some()) else {
        return Ok(());
    };
    match said.iter().find(|(_, given, needed)| *needed && given.is_none()) {
        None => Ok(()),
        Some((missing, ..)) => {
            let what = format!("the host has {some} and no {missing}");
            Err(reader.error(some, what, format!("add {missing}, or remove {some}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cost_has_its_key() {
        assert_eq!(keys::of(keys::HOST_COSTS), Cost::KEYS.map(|(key, _)| key));
    }
}

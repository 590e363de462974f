// SPDX-License-Identifier: GPL-2.0-only
//! Reads what a workload's speed hangs on, and refuses what contradicts itself or the host.

use super::error::ScenarioError;
use super::keys;
use super::reader::Reader;
use super::{Host, Pace};

/// Reads `speed` of a workload.
pub(super) fn read_pace(workload: &Reader, host: &Host) -> Result<Pace, ScenarioError> {
    let has_it = keys::of(workload.title).contains(&"speed");
    let table = if has_it { workload.table("speed", keys::SPEED)? } else { None };
    let Some(table) = table else { return Ok(Pace::default()) };
    let misses_per_ms = table.whole32("misses_per_ms", 1..=1_000_000)?;
    let working_set_kib = table.whole32("working_set_kib", 1..=1 << 30)?;
    let lines_per_miss = table.whole32("lines_per_miss", 1..=1000)?;
    match (misses_per_ms, working_set_kib) {
        (Some(_), None) => {
            let what = "misses_per_ms without working_set_kib";
            return Err(table.error("misses_per_ms", what, "add working_set_kib"));
        }
        (None, _) if working_set_kib.or(lines_per_miss).is_some() => {
            let what = "working_set_kib or lines_per_miss, and no misses_per_ms";
            return Err(table.error("", what, "add misses_per_ms, or remove them"));
        }
        _ => {}
    }
    let pace = Pace {
        smt_gain_pct: table.whole32("smt_gain_pct", 100..=200)?,
        misses_per_ms: misses_per_ms.unwrap_or(0),
        working_set_kib: working_set_kib.unwrap_or(0),
        lines_per_miss: misses_per_ms.map_or(0, |_| lines_per_miss.unwrap_or(1)),
    };
    if misses_per_ms.is_some() {
        check_host(&table, host, &pace)?;
    }
    Ok(pace)
}

/// A vCPU alone on the host must be able to go at what is called its full speed.
fn check_host(table: &Reader, host: &Host, pace: &Pace) -> Result<(), ScenarioError> {
    match (pace.alone_mb_s(host), host.node_mb_s) {
        (Some(alone_mb_s), Some(node_mb_s)) if alone_mb_s < node_mb_s.into() => Ok(()),
        (Some(alone_mb_s), Some(node_mb_s)) => {
            let what = format!("a vCPU alone moves {alone_mb_s:.0} MB/s, a node has {node_mb_s}");
            let fix = "lower misses_per_ms or lines_per_miss, or raise the host's node_mb_s";
            Err(table.error("misses_per_ms", what, fix))
        }
        _ => {
            let what = "misses_per_ms, on a host that does not say how fast its memory is";
            let fix = "add llc_kib, memory_ns, hop_ns and node_mb_s to [host], or remove it";
            Err(table.error("misses_per_ms", what, fix))
        }
    }
}

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
    let bandwidth_mb_s = table.whole32("bandwidth_mb_s", 1..=1_000_000)?;
    let smt_gain_pct = table.whole32("smt_gain_pct", 100..=200)?;
    let memory = [
        ("misses_per_ms", misses_per_ms),
        ("working_set_kib", working_set_kib),
        ("bandwidth_mb_s", bandwidth_mb_s),
    ];
    let given = memory.iter().find(|(_, value)| value.is_some());
    let missing = memory.iter().find(|(_, value)| value.is_none());
    match (given, missing) {
        (Some((given, _)), Some((missing, _))) => {
            let what = format!("{given} without {missing}");
            Err(table.error(given, what, format!("add {missing}, or remove {given}")))
        }
        _ => {
            let said = |value: Option<u32>| value.unwrap_or_default();
            let pace = Pace {
                smt_gain_pct,
                misses_per_ms: said(misses_per_ms),
                working_set_kib: said(working_set_kib),
                bandwidth_mb_s: said(bandwidth_mb_s),
            };
            check_host(&table, host, &pace)?;
            Ok(pace)
        }
    }
}

/// A vCPU alone on the host must be able to go at what is called its full speed.
fn check_host(table: &Reader, host: &Host, pace: &Pace) -> Result<(), ScenarioError> {
    if pace.misses_per_ms == 0 {
        return Ok(());
    }
    let (Some(brings_mb_s), Some(node_mb_s)) = (pace.brings_mb_s(host), host.node_mb_s) else {
        let what = "misses_per_ms, on a host that does not say how fast its memory is";
        let mend = "add llc_kib, memory_ns, hop_ns and node_mb_s to [host], or remove it";
        return Err(table.error("misses_per_ms", what, mend));
    };
    let fault = |what: String, mend: String| Err(table.error("bandwidth_mb_s", what, mend));
    let bandwidth_mb_s = pace.bandwidth_mb_s;
    if f64::from(bandwidth_mb_s) < brings_mb_s {
        let least_mb_s = brings_mb_s.ceil();
        let what =
            format!("its misses bring {least_mb_s} MB/s, bandwidth_mb_s is {bandwidth_mb_s}");
        return fault(what, format!("make it {least_mb_s} or more, or lower misses_per_ms"));
    }
    if bandwidth_mb_s >= node_mb_s {
        let what =
            format!("bandwidth_mb_s is {bandwidth_mb_s}, a node of the host has {node_mb_s}");
        return fault(what, "a vCPU alone needs less than a node has".to_owned());
    }
    Ok(())
}

// SPDX-License-Identifier: GPL-2.0-only
//! Reads what the vCPUs of a VM do, and what their speed hangs on.

use super::format::VmTable;
use super::program::read_program;
use crate::host::Host;
use crate::pace::Pace;
use crate::workload::Workload;
use drover_core::toml_file::{Read, Table};

/// The shortest period of a busy vCPU, us.
const CPU_PERIOD_US_MIN: u32 = 100;

/// Reads `workload` of a VM, if it has one.
pub(super) fn read_workload(
    vm: &Table<VmTable>,
    host: &Host,
    end_s: f64,
) -> Read<Option<(Workload, Pace)>> {
    vm.here_or_in_file("workload", |table| {
        let kind = table.word("kind");
        let title = format!("workload {kind}");
        let (workload, has_speed) = match kind {
            "program" => (read_program(&table.read()?, host)?, true),
            "cpu" | "lock" | "barrier" | "sleep" => {
                let own = table.without("speed").read_as(&title, &["kind", "speed"])?;
                (read_plain(&own, end_s)?, true)
            }
            "yield" | "io" | "mix" | "command" => {
                (read_plain(&table.read_as(&title, &["kind"])?, end_s)?, false)
            }
            // Serde says which there are.
            _ => (table.read::<Workload>()?.clone(), false),
        };
        let pace = if has_speed { table.table::<Pace>("speed")? } else { None };
        let pace = pace.map_or(Ok(Pace::default()), |pace| read_pace(&pace, host))?;
        Ok((workload, pace))
    })
}

fn read_plain(table: &Table<Workload>, end_s: f64) -> Read<Workload> {
    match &**table {
        Workload::Cpu { period_us, .. } if *period_us < CPU_PERIOD_US_MIN => {
            let what = format!("period_us = {period_us} is too short for workload cpu");
            Err(table.error("period_us", what, format!("give {CPU_PERIOD_US_MIN} at least")))
        }
        Workload::Io { work_us: 0, back_end_us: 0, device_us: 0 } => {
            Err(table.error("", "workload io takes no time", "give work_us, such as 100"))
        }
        Workload::Cpu { then: Some(then), .. } if then.after_s > end_s => {
            let what = format!("after_s = {} is behind the end of the run", then.after_s);
            Err(table.error("then", what, format!("give a number from 0 to {end_s}")))
        }
        workload => Ok(workload.clone()),
    }
}

fn read_pace(table: &Table<Pace>, host: &Host) -> Read<Pace> {
    let mut pace = **table;
    if pace.misses_per_ms == 0 {
        if pace.working_set_kib > 0 || pace.lines_per_miss > 0 {
            let what = "working_set_kib or lines_per_miss, and no misses_per_ms";
            return Err(table.error("", what, "add misses_per_ms, or remove them"));
        }
        return Ok(pace);
    }
    if pace.working_set_kib == 0 {
        let what = "misses_per_ms without working_set_kib";
        return Err(table.error("misses_per_ms", what, "add working_set_kib"));
    }
    pace.lines_per_miss = pace.lines_per_miss.max(1);
    // A vCPU alone on the host must be able to go at what is called its full speed.
    let (what, fix) = match (pace.alone_mb_s(host), host.node_mb_s) {
        (Some(alone_mb_s), Some(node_mb_s)) if alone_mb_s < node_mb_s.into() => return Ok(pace),
        (Some(alone_mb_s), Some(node_mb_s)) => (
            format!("a vCPU alone moves {alone_mb_s:.0} MB/s, a node has {node_mb_s}"),
            "lower misses_per_ms or lines_per_miss, or raise the host's node_mb_s",
        ),
        _ => (
            "misses_per_ms, on a host that does not say how fast its memory is".to_owned(),
            "add llc_kib, memory_ns, hop_ns and node_mb_s to [host], or remove it",
        ),
    };
    Err(table.error("misses_per_ms", what, fix))
}

// SPDX-License-Identifier: GPL-2.0-only
//! Reads a host: a table of the scenario, or a file with the same keys that the scenario names.

use super::format::Top;
use crate::host::Host;
use drover_core::toml_file::{Read, Table};

/// Reads `host` of a scenario.
pub(super) fn read_host(top: &Table<Top>) -> Read<Host> {
    let host = top.here_or_in_file("host", |table| host_of(&table.read()?))?;
    Ok(host.expect("a scenario has a host"))
}

fn host_of(table: &Table<Host>) -> Read<Host> {
    check_own_tasks(table)?;
    check_counts(table)?;
    check_distances(table)?;
    check_memory(table)?;
    Ok((**table).clone())
}

fn check_own_tasks(host: &Table<Host>) -> Read<()> {
    match (host.own_wakeups_per_s, host.own_work_us) {
        (None, None) => Ok(()),
        (Some(wakeups_per_s), Some(work_us)) => {
            if wakeups_per_s.saturating_mul(work_us) < 1_000_000 {
                return Ok(());
            }
            let what = "own_wakeups_per_s times own_work_us is a second or more";
            Err(host.error("own_work_us", what, "leave something to the VMs"))
        }
        _ => {
            let what = "own_wakeups_per_s and own_work_us belong together";
            Err(host.error("", what, "give both or neither"))
        }
    }
}

fn check_counts(host: &Table<Host>) -> Read<()> {
    let parts = [host.sockets, host.dies, host.cores, host.threads];
    // Four numbers of at most 1024 each: the product fits 64 bits.
    let pcpus: u64 = parts.iter().map(|part| u64::from(*part)).product();
    if pcpus > Host::PCPUS_MAX.into() {
        let what = format!("the host has {pcpus} pCPUs");
        let fix = format!("sockets * dies * cores * threads may be {} at most", Host::PCPUS_MAX);
        return Err(host.error("", what, fix));
    }
    let dies = host.sockets * host.dies;
    if dies % host.nodes != 0 {
        let what = format!("{dies} dies do not divide evenly among {} NUMA nodes", host.nodes);
        let fix = "choose nodes so that sockets * dies is a multiple of it";
        return Err(host.error("nodes", what, fix));
    }
    Ok(())
}

fn check_distances(host: &Table<Host>) -> Read<()> {
    let (rows, nodes) = (&host.node_distances, host.nodes as usize);
    let fault = |what: String, fix: &str| Err(host.error("node_distances", what, fix));
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
fn check_memory(host: &Table<Host>) -> Read<()> {
    let said = [
        ("memory_ns", host.memory_ns, true),
        ("hop_ns", host.hop_ns, host.nodes > 1),
        ("node_mb_s", host.node_mb_s, true),
        ("node_link_mb_s", host.node_link_mb_s, false),
        ("llc_kib", host.llc_kib, true),
    ];
    let Some((some, ..)) = said[..4].iter().find(|(_, given, _)| given.is_some()) else {
        return Ok(());
    };
    match said.iter().find(|(_, given, needed)| *needed && given.is_none()) {
        None => Ok(()),
        Some((missing, ..)) => {
            let what = format!("the host has {some} and no {missing}");
            Err(host.error(some, what, format!("add {missing}, or remove {some}")))
        }
    }
}

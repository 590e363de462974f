// SPDX-License-Identifier: GPL-2.0-only
//! Why a client is given a home, in one line.

use super::client::Home;
use super::cost::{Cost, Ledger};

/// The greatest of what is saved beside where it was, or beside the next best; the client is away from home.
pub(super) fn of(ledger: &Ledger, client: usize, from: Option<Home>, to: Home) -> String {
    let it = &ledger.clients[client];
    if it.only.is_some() {
        return "it was ordered".to_owned();
    }
    match from.filter(|from| from.node == to.node).map(|from| (from.llc, to.llc)) {
        Some((None, Some(_))) => return "its threads are to share a cache".to_owned(),
        Some((Some(_), None)) => return "its threads need no cache of their own".to_owned(),
        _ => {}
    }
    let number = |home: Home| ledger.host.nodes[home.node].number;
    let there = ledger.cost(client, to).unwrap_or_default();
    let from_cost = match from {
        Some(from) => match ledger.cost(client, from) {
            Some(cost) => cost,
            None => return lost(ledger, client, from),
        },
        None => next_best(ledger, client, to),
    };
    let saved = by_reason(&from_cost, &there);
    let (reason, pcpus) = saved
        .into_iter()
        .fold((Reason::Even, 1e-3), |best, one| if one.1 > best.1 { one } else { best });
    let beside = from.map_or(String::new(), |from| {
        format!(", {pcpus:.1} less lost than on node {}", number(from))
    });
    let left = ledger.left_pcpus(to.node).max(0.0);
    match reason {
        Reason::Cpu => {
            format!("it wants {:.1} pCPUs, {left:.1} are left there{beside}", it.wanted_pcpus)
        }
        Reason::Memory => format!("most of its memory lies there, or near{beside}"),
        Reason::Cache => format!("its cache is less crowded{beside}"),
        Reason::Bandwidth => format!("its memory is less busy{beside}"),
        Reason::Set => match from.and_then(|from| ledger.broken_set(client, from)) {
            Some(set) => format!("as the set {} wants it{beside}", set.name),
            None => "as its sets want it".to_owned(),
        },
        Reason::Device => format!("its device is there, or near{beside}"),
        Reason::Fair => format!("for VMs that were crowded for long{beside}"),
        Reason::Even => format!("{left:.1} pCPUs are left there"),
    }
}

/// It can be at home there no longer.
fn lost(ledger: &Ledger, client: usize, from: Home) -> String {
    let node = &ledger.host.nodes[from.node];
    match ledger.broken_set(client, from).filter(|set| set.hard) {
        Some(set) => format!("the hard set {} is broken on node {}", set.name, node.number),
        None if ledger.clients[client].is_stuck_elsewhere(from.node) => {
            "its memory cannot be moved, and lies there".to_owned()
        }
        None if !node.is_a_home() => {
            format!("node {} has no pCPUs or no memory any more", node.number)
        }
        None => format!("its memory does not fit on node {} any more", node.number),
    }
}

/// What the cheapest other node would cost.
fn next_best(ledger: &Ledger, client: usize, to: Home) -> Cost {
    let others = ledger.candidates(client).filter(|home| home.node != to.node);
    let costs = others.filter_map(|home| ledger.cost(client, home));
    costs.min_by(|a, b| a.total().total_cmp(&b.total())).unwrap_or_default()
}

#[derive(Clone, Copy)]
enum Reason {
    Cpu,
    Memory,
    Cache,
    Bandwidth,
    Set,
    Device,
    Fair,
    Even,
}

fn by_reason(from: &Cost, to: &Cost) -> [(Reason, f64); 7] {
    [
        (Reason::Cpu, from.cpu - to.cpu),
        (Reason::Memory, from.memory - to.memory),
        (Reason::Cache, from.cache - to.cache),
        (Reason::Bandwidth, from.bandwidth - to.bandwidth),
        (Reason::Set, from.set - to.set),
        (Reason::Device, from.device - to.device),
        (Reason::Fair, from.fair - to.fair),
    ]
}

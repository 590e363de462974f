// SPDX-License-Identifier: GPL-2.0-only
//! Placement by free memory alone: `greedy`, `packed` and `spread`.
//!
//! The heuristics of seed 003: a VM goes to the first node that has enough free memory (first fit), to the one that
//! has least (best fit), or to the one that has most (worst fit). What is promised to one is not free for the next.
//! Nobody moves later.
//!
//! Worked example. Nodes with 5, 6 and 4 GB free, VMs of 1 GB: `greedy` fills the first, `packed` the third,
//! `spread` takes the second, then the first two in turns.

use super::Move;
use super::client::Home;
use super::cost::Ledger;
use crate::words::words;
use std::cmp::Reverse;

/// How homes are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Heuristic {
    /// By the whole cost function, and again when that changes.
    #[default]
    Auto,
    /// The first node with enough free memory.
    Greedy,
    /// The node with the least free memory that is enough.
    Packed,
    /// The node with the most free memory.
    Spread,
}

impl Heuristic {
    /// The words for them.
    pub const WORDS: [(&'static str, Heuristic); 4] = [
        ("auto", Self::Auto),
        ("greedy", Self::Greedy),
        ("packed", Self::Packed),
        ("spread", Self::Spread),
    ];
}

words!(Heuristic);

/// Gives each client without a home one, in the order of the list.
pub(super) fn give_first_homes(ledger: &mut Ledger, by: Heuristic) -> Vec<Move> {
    let mut moves = Vec::new();
    for client in 0..ledger.clients.len() {
        if ledger.home(client).is_some() {
            continue;
        }
        let nodes = 0..ledger.host.nodes.len();
        let fits = |&node: &usize| ledger.cost(client, Home { node, llc: None }).is_some();
        let mut fitting = nodes.filter(fits);
        let free_mib = |node: &usize| ledger.free_mib(*node, client);
        let node = match by {
            Heuristic::Packed => fitting.min_by_key(free_mib),
            Heuristic::Spread => fitting.min_by_key(|node| Reverse(free_mib(node))),
            Heuristic::Greedy | Heuristic::Auto => fitting.next(),
        };
        let Some(node) = node else { continue };
        let (to, free_mib) = (Home { node, llc: None }, ledger.free_mib(node, client));
        let number = ledger.host.nodes[node].number;
        let why = format!("{}: node {number} has {free_mib} MiB free", by.name());
        ledger.settle(client, to);
        moves.push(Move { client, from: ledger.clients[client].home, to, why });
    }
    moves
}

// SPDX-License-Identifier: GPL-2.0-only
//! Where VMs live: which NUMA node, or which last-level cache (LLC) of it, is home to each.
//!
//! Idea. A home is where a VM's memory is to lie and where its vCPUs run if they can: a preference, not a
//! prison (policy/place/home.h). What is placed are *clients*: a VM, or a part of one that is wider than a
//! node ([`client`]). One function says what all homes together cost ([`cost`]), in pCPUs of work lost:
//!
//! | what | costs |
//! |---|---|
//! | CPU | what clients want beyond the node's pCPUs, and a part of what they want beyond its cores; on a host where more is wanted than there is, all wishes scaled to what there is |
//! | memory | for each hop to memory a quarter of what a client wants; a sixteenth where it can follow |
//! | caches, bandwidth | a part of what is wanted where more is used than there is |
//! | sets | an affine set apart, an anti-affine one together ([`set`]) |
//! | devices | as memory, for a passed-through device that is far |
//! | fairness | crowding costs more for who has been crowded for long; where VMs miss caches all the time, beyond a node's part of all wishes |
//!
//! Clients without a home get the cheapest one, the largest client first. Then single moves and swaps of two
//! are made as long as one saves a good part of what it moves ([`search`]). Every move lowers the one
//! total, so with constant demand nothing goes back and forth; with changing demand the caller says who may
//! leave home again. `greedy`, `packed` and `spread` are seed 003's heuristics, which look at free memory
//! only ([`fit`]).
//!
//! Worked example. Two nodes of four pCPUs; VMs A, B and C want 3, 3 and 1, and came to node 0, node 0 and
//! node 1, with their memory. Node 0 lacks 2 pCPUs. Moving C costs more; moving B leaves all three with what
//! they want (node 1: 4 of 4) and costs 0.19 for memory that is far until it has moved: B moves. Had D with 1
//! been on node 1, too, node 1 would lack 1 after that move; a swap of B with C leaves 4 and 4, and is made.
//!
//! Limitations. Crowded caches are known where the caller measures them; else CPU demand stands for them. What a VM
//! fills is what it was let, not what it could use: it keeps VMs out of full caches and draws none out, which
//! fairness does. The search is local: a better placement that three clients would have to move for at once is not
//! found.

mod advise;
mod client;
mod cost;
mod draw;
mod fit;
mod host;
mod keeper;
mod search;
mod set;
mod why;

pub use advise::{GuestNode, GuestTopology, advise};
pub use client::{Client, Home, HomeNumber, Part, Shape, VirtualNode, parts};
pub use draw::Woken;
pub use fit::Heuristic;
pub use host::{Host, Llc, Node, policy_hops};
pub use keeper::{
    Crowd, INTERVAL, Keeper, Memory, NamedMove, Pressure, Seen, Wishes, parts_on_nodes,
};
pub use set::{Kind, Set, Within, contradiction};

use cost::Ledger;

/// A client that is to get another home, or its first.
#[derive(Debug, Clone, PartialEq)]
pub struct Move {
    /// The place of the client among those given.
    pub client: usize,
    /// The home it leaves; none: it had none.
    pub from: Option<Home>,
    /// The home it gets.
    pub to: Home,
    /// Why, in one line.
    pub why: String,
}

/// Homes for these clients, and what changes: first homes in the order of size, then moves, best first.
///
/// `most_moves`: so many clients may leave a home at once; a swap counts two.
pub fn place(
    host: &Host,
    clients: &[Client],
    sets: &[Set],
    heuristic: Heuristic,
    most_moves: usize,
) -> (Vec<Option<Home>>, Vec<Move>) {
    let mut ledger = Ledger::new(host, clients, sets);
    let mut moves = match heuristic {
        Heuristic::Auto => search::give_first_homes(&mut ledger),
        by_memory => fit::give_first_homes(&mut ledger, by_memory),
    };
    moves.extend(search::fit_llcs(&mut ledger));
    if heuristic == Heuristic::Auto {
        moves.extend(search::improve(&mut ledger, most_moves));
    }
    (ledger.into_homes(), moves)
}

#[cfg(test)]
mod tests;

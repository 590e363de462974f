// SPDX-License-Identifier: GPL-2.0-only
//! The search: first homes, then single moves and swaps of two that pay.
//!
//! A move pays where it saves a quarter of what it moves wants, and a tenth of a pCPU: to move a VM's memory
//! costs seconds, and demand is never known exactly. All single moves are tried, and swaps with those who suffer
//! most, so that thousands of clients take milliseconds.

use super::Move;
use super::client::Home;
use super::cost::{Cost, Ledger};
use super::why;

/// What a move must save of what its clients want, and in all.
const SAVES_PART: f64 = 0.25;
const SAVES_PCPUS: f64 = 0.1;
/// Swaps are tried for so many of those who suffer most.
const SUFFERERS: usize = 16;

/// Gives each VM without a home one, the largest VM first.
pub(super) fn give_first_homes(ledger: &mut Ledger) -> Vec<Move> {
    let mut moves = Vec::new();
    for parts in ledger.homeless() {
        for (client, to) in together(ledger, &parts) {
            // Its home before may be gone: its node went offline, or does not fit any more.
            let from = ledger.clients[client].home;
            let why = why::of(ledger, client, from, to);
            ledger.settle(client, to);
            moves.push(Move { client, from, to, why });
        }
    }
    moves
}

/// Homes for the parts of one VM: the first part is tried everywhere, the others follow, and the cheapest of all
/// that is taken. Parts that fit nowhere have none.
fn together(ledger: &mut Ledger, parts: &[usize]) -> Vec<(usize, Home)> {
    let candidates: Vec<Home> = ledger.candidates(parts[0]).collect();
    let tried = candidates.into_iter().filter_map(|first| {
        let mut cost = ledger.cost(parts[0], first)?.total();
        let mut homes = vec![(parts[0], first)];
        ledger.settle(parts[0], first);
        for &part in &parts[1..] {
            let Some((home, more)) = cheapest(ledger, part) else { continue };
            ledger.settle(part, home);
            homes.push((part, home));
            cost += more;
        }
        homes.iter().for_each(|&(part, _)| ledger.leave(part));
        Some((homes, cost))
    });
    let all_first =
        |a: &(Vec<_>, f64), b: &(Vec<_>, f64)| b.0.len().cmp(&a.0.len()).then(a.1.total_cmp(&b.1));
    tried.min_by(all_first).map_or(Vec::new(), |(homes, _)| homes)
}

/// Who is to live in one LLC gets one of its node's, if that costs no more; who is not has the whole node. No memory
/// moves for that.
pub(super) fn fit_llcs(ledger: &mut Ledger) -> Vec<Move> {
    let mut moves = Vec::new();
    for client in 0..ledger.clients.len() {
        let Some(home) = ledger.home(client) else { continue };
        if ledger.wants_llc(client) == home.llc.is_some() {
            continue;
        }
        ledger.leave(client);
        let of_node = ledger.candidates(client).filter(|to| to.node == home.node);
        let to = cheapest_of(ledger, client, of_node).map_or(home, |(to, _)| to);
        if to != home {
            let why = why::of(ledger, client, Some(home), to);
            moves.push(Move { client, from: Some(home), to, why });
        }
        ledger.settle(client, to);
    }
    moves
}

/// Lets up to so many leave for a better home.
pub(super) fn improve(ledger: &mut Ledger, most_moves: usize) -> Vec<Move> {
    let mut moves = Vec::new();
    let mut moved = vec![false; ledger.clients.len()];
    while moves.len() < most_moves {
        let may_leave = |&it: &usize| {
            let home = ledger.home(it);
            // What a set asks for does not wait until everybody has been at home for long.
            let is_against_a_set = || home.is_some_and(|at| ledger.broken_set(it, at).is_some());
            home.is_some() && !moved[it] && (ledger.clients[it].may_leave || is_against_a_set())
        };
        let all: Vec<usize> = (0..ledger.clients.len()).filter(may_leave).collect();
        let mut costs: Vec<(usize, f64)> =
            all.into_iter().map(|client| (client, stays(ledger, client))).collect();
        let mut steps: Vec<Step> =
            costs.iter().filter_map(|&(client, cost)| single(ledger, client, cost)).collect();
        if most_moves - moves.len() > 1 {
            costs.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
            steps.extend(swaps(ledger, &costs));
        }
        let Some(Step { clients, .. }) = best(steps) else { break };
        for &(client, _) in &clients {
            ledger.leave(client);
        }
        for (client, to) in clients {
            let from = ledger.clients[client].home;
            let why = why::of(ledger, client, from, to);
            ledger.settle(client, to);
            moved[client] = true;
            moves.push(Move { client, from, to, why });
        }
    }
    moves
}

/// Clients with their new homes, and by how much that is more than it has to save.
struct Step {
    clients: Vec<(usize, Home)>,
    surplus: f64,
}

/// The one that saves most, if any saves enough.
fn best(steps: Vec<Step>) -> Option<Step> {
    steps
        .into_iter()
        .max_by(|a, b| a.surplus.total_cmp(&b.surplus))
        .filter(|step| step.surplus > 0.0)
}

/// What it must save to move these.
fn must_save(ledger: &Ledger, clients: &[usize]) -> f64 {
    let wants: f64 = clients.iter().map(|&it| ledger.wanted_pcpus(it)).sum();
    (SAVES_PART * wants).max(SAVES_PCPUS)
}

fn single(ledger: &mut Ledger, client: usize, cost: f64) -> Option<Step> {
    let (to, there) = away(ledger, client, |ledger, _| cheapest(ledger, client))?;
    let surplus = cost - there - must_save(ledger, &[client]);
    (Some(to) != ledger.home(client)).then_some(Step { clients: vec![(client, to)], surplus })
}

/// Swaps of those who suffer most, with anybody.
fn swaps(ledger: &mut Ledger, costs: &[(usize, f64)]) -> Vec<Step> {
    let mut steps = Vec::new();
    for &(one, cost) in costs.iter().take(SUFFERERS).filter(|it| it.1 > SAVES_PCPUS) {
        for &(other, _) in costs.iter().filter(|it| it.0 != one) {
            steps.extend(swap(ledger, one, other, cost));
        }
    }
    steps
}

/// The swap of these two. `cost`: what `one` costs where it is.
fn swap(ledger: &mut Ledger, one: usize, other: usize, cost: f64) -> Option<Step> {
    let (from, to) = (ledger.home(one)?, ledger.home(other)?);
    if from.node == to.node {
        return None;
    }
    ledger.leave(one);
    let before = cost + stays(ledger, other);
    ledger.leave(other);
    let there = total(ledger, one, to);
    ledger.settle(one, to);
    let back = total(ledger, other, from);
    ledger.leave(one);
    ledger.settle(other, to);
    ledger.settle(one, from);
    let surplus = before - there - back - must_save(ledger, &[one, other]);
    let may_live = (there + back).is_finite();
    may_live.then(|| Step { clients: vec![(one, to), (other, from)], surplus })
}

/// Asks that while the client is away from home; `ask` is told which that is.
fn away<T>(ledger: &mut Ledger, client: usize, ask: impl Fn(&Ledger, Home) -> T) -> T {
    let home = ledger.home(client).expect("only who has a home is asked");
    ledger.leave(client);
    let answer = ask(ledger, home);
    ledger.settle(client, home);
    answer
}

/// What the client costs where it is.
fn stays(ledger: &mut Ledger, client: usize) -> f64 {
    away(ledger, client, |ledger, home| total(ledger, client, home))
}

/// What a client that is away would cost there; infinite where it may not live.
fn total(ledger: &Ledger, client: usize, home: Home) -> f64 {
    ledger.cost(client, home).as_ref().map_or(f64::INFINITY, Cost::total)
}

/// The cheapest home of a client that has none, and what it costs.
fn cheapest(ledger: &Ledger, client: usize) -> Option<(Home, f64)> {
    cheapest_of(ledger, client, ledger.candidates(client))
}

fn cheapest_of(
    ledger: &Ledger,
    client: usize,
    among: impl Iterator<Item = Home>,
) -> Option<(Home, f64)> {
    let cost = |home| Some((home, ledger.cost(client, home)?.total()));
    among.filter_map(cost).min_by(|a, b| a.1.total_cmp(&b.1))
}

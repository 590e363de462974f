// SPDX-License-Identifier: GPL-2.0-only
//! Ordinary work of VMs, by kinds. How long things take is drawn; nothing is set.

use super::trial::{TrialRole, TrialVm};
use crate::rng::Rng;

/// Kinds of work there are, as names of VMs tell them.
#[cfg(test)]
pub const KINDS: usize = 13;

/// Draws a VM of so many vCPUs at most. Its name says its kind.
pub fn draw_vm(rng: &mut Rng, most: u32) -> TrialVm {
    let vcpus = 1 + rng.below(most.into()) as u32;
    let (kind, roles, lock) = match rng.below(16) {
        0..2 => ("busy", all(vcpus, vec!["compute 5 ms".into()]), None),
        2 => ("sleeper", all(vcpus, sleeper(rng)), None),
        3 => ("timer", all(vcpus, timer(rng)), None),
        4 => ("duty", all(vcpus, duty(rng)), None),
        5 | 6 => ("request", request(rng, vcpus), None),
        7 => ("disk", all(vcpus, disk(rng)), None),
        8 => ("server", beside(vcpus, disk(rng), busy(rng)), None),
        9 | 10 => ("desktop", beside(vcpus, timer(rng), busy(rng)), None),
        11 => ("lock", all(vcpus, lock(rng)), Some(*rng.pick(&["ticket-pv", "test-and-set-pv"]))),
        12 => ("barrier", all(vcpus, barrier(rng)), None),
        13 => ("phases", all(vcpus, phases(rng)), None),
        14 => ("build", all(vcpus, build(rng)), None),
        _ => ("pair", pair(rng, vcpus), None),
    };
    TrialVm { name: kind.to_owned(), roles, lock }
}

/// All vCPUs do the same.
fn all(vcpus: u32, steps: Vec<String>) -> Vec<TrialRole> {
    vec![TrialRole { vcpus, steps }]
}

/// The first does something light; the others, if there are any, are busy.
fn beside(vcpus: u32, light: Vec<String>, busy: Vec<String>) -> Vec<TrialRole> {
    let mut roles = all(1, light);
    if vcpus > 1 {
        roles.push(TrialRole { vcpus: vcpus - 1, steps: busy });
    }
    roles
}

/// So many us, between two; as many of them short as long, by magnitude.
fn draw_us(rng: &mut Rng, least: u64, most: u64) -> u64 {
    let doublings = (most / least).ilog2();
    let from = least << rng.below(u64::from(doublings) + 1);
    (from + rng.below(from)).min(most)
}

/// A period, and a part of it that is worked.
fn draw_period_us(rng: &mut Rng) -> (u64, u64) {
    let period_us = draw_us(rng, 500, 64_000);
    let work_us = period_us * (1 + rng.below(60)) / 100;
    (period_us, work_us.max(5))
}

/// A time that is always the same, or not.
fn draw_time(rng: &mut Rng, us: u64) -> String {
    if rng.chance_pct(50) { format!("{us} us") } else { format!("about {us} us") }
}

fn busy(rng: &mut Rng) -> Vec<String> {
    let us = draw_us(rng, 500, 20_000);
    vec![format!("compute {us} us")]
}

fn sleeper(rng: &mut Rng) -> Vec<String> {
    let (period_us, work_us) = draw_period_us(rng);
    let time = draw_time(rng, work_us);
    vec![format!("sleep {} us", period_us - work_us), format!("compute {time}"), "count".into()]
}

fn timer(rng: &mut Rng) -> Vec<String> {
    let (period_us, work_us) = draw_period_us(rng);
    let time = draw_time(rng, work_us);
    vec![format!("timer {period_us} us"), format!("compute {time}")]
}

/// Computes most of the time.
fn duty(rng: &mut Rng) -> Vec<String> {
    let period_us = draw_us(rng, 2_000, 32_000);
    let work_us = period_us * (50 + rng.below(45)) / 100;
    let sleep_us = period_us - work_us;
    vec![format!("compute {work_us} us"), format!("sleep {sleep_us} us"), "count".into()]
}

/// Requests that come by a timer, each spread over all vCPUs.
fn request(rng: &mut Rng, vcpus: u32) -> Vec<TrialRole> {
    if vcpus == 1 {
        return all(1, timer(rng));
    }
    let (period_us, work_us) = draw_period_us(rng);
    let work_us = (work_us / 2).max(5);
    let compute = format!("compute {}", draw_time(rng, work_us));
    let spawn = format!("spawn {} q", vcpus - 1);
    let join = "join all".to_owned();
    let first = vec![format!("timer {period_us} us"), spawn, compute.clone(), join.clone()];
    let others = vec!["wait q".to_owned(), compute, join];
    vec![TrialRole { vcpus: 1, steps: first }, TrialRole { vcpus: vcpus - 1, steps: others }]
}

/// Reads, one after the other.
fn disk(rng: &mut Rng) -> Vec<String> {
    let (work_us, back_end_us) = (draw_us(rng, 20, 2_000), draw_us(rng, 10, 80));
    let device_us = draw_us(rng, 50, 6_400);
    let time = draw_time(rng, work_us);
    vec![
        format!("compute {time}"),
        format!("io {back_end_us} us then {device_us} us"),
        "count".into(),
    ]
}

fn lock(rng: &mut Rng) -> Vec<String> {
    let hold_us = draw_us(rng, 2, 64);
    let think_us = hold_us * (4 + rng.below(60)) + 50;
    let time = draw_time(rng, think_us);
    vec![
        format!("compute {time}"),
        "take l".into(),
        format!("kernel {hold_us} us"),
        "release l".into(),
        "count".into(),
    ]
}

fn barrier(rng: &mut Rng) -> Vec<String> {
    let us = draw_us(rng, 100, 6_400);
    let meet = if rng.chance_pct(50) { "meet all" } else { "join all" };
    let time = draw_time(rng, us);
    vec![format!("compute {time}"), meet.into(), "count".into()]
}

/// Computes for a while and rests for a while.
fn phases(rng: &mut Rng) -> Vec<String> {
    let (busy_ms, rest_ms) = (20 + rng.below(400), 20 + rng.below(400));
    let steps = [
        &format!("for {busy_ms} ms"),
        "compute 1 ms",
        "count",
        "end",
        &format!("sleep {rest_ms} ms"),
    ];
    steps.map(ToOwned::to_owned).to_vec()
}

/// Computes for long, then reads or writes a little.
fn build(rng: &mut Rng) -> Vec<String> {
    let (work_us, device_us) = (draw_us(rng, 5_000, 80_000), draw_us(rng, 100, 3_200));
    vec![
        format!("compute about {work_us} us"),
        format!("io 40 us then {device_us} us"),
        "count".into(),
    ]
}

/// Pairs of vCPUs that hand work to each other.
fn pair(rng: &mut Rng, vcpus: u32) -> Vec<TrialRole> {
    if vcpus == 1 {
        return all(1, sleeper(rng));
    }
    let (here_us, there_us) = (draw_us(rng, 20, 1_280), draw_us(rng, 20, 1_280));
    let (here, there) = (draw_time(rng, here_us), draw_time(rng, there_us));
    let half = vcpus / 2;
    let give = |time: &str, to: &str, from: &str| {
        vec![
            format!("compute {time}"),
            format!("spawn 1 {to}"),
            format!("wait {from}"),
            "count".into(),
        ]
    };
    vec![
        TrialRole { vcpus: half, steps: give(&here, "a", "b") },
        TrialRole { vcpus: vcpus - half, steps: give(&there, "b", "a") },
    ]
}

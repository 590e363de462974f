// SPDX-License-Identifier: GPL-2.0-only
//! What the policy costs: the time its C code takes, natively compiled, for each context switch.
//!
//! Only the time within the policy's functions counts, with what they ask of the simulator's queues, which
//! is the same for all; not the simulation around them. What reading the clock takes is taken off.

use crate::class::{Class, VmBounds};
use crate::scx::{Meter, Scx};
use crate::sim::{Plan, Sim};
use crate::sim_speed::{Load, set_up};
use drover_core::settings::{PoolId, PoolSettings};
use drover_core::shares::Shares;
use drover_scenario::{Host, Workload};
use std::time::Instant;

/// What is asked for the VMs of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// Shares, the same for all, and no pools.
    Shares,
    /// Shares that divide the host as the tree of pools does, and no pools: what unevenness takes.
    UnevenShares,
    /// Shares, in a tree of pools 8 deep.
    Pools,
    /// There, a reservation for each VM, too.
    Reservations,
    /// And a limit for each VM.
    Limits,
}

impl Asked {
    /// All of them, the least first.
    pub const ALL: [Self; 5] =
        [Self::Shares, Self::UnevenShares, Self::Pools, Self::Reservations, Self::Limits];

    /// What it is, in words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Shares => "shares alone",
            Self::UnevenShares => "... as uneven as in the pools",
            Self::Pools => "... in pools 8 deep",
            Self::Reservations => "... and a reservation each",
            Self::Limits => "... and a limit each",
        }
    }
}

/// What was measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// Time in the policy for each context switch, ns.
    pub ns_per_switch: f64,
    /// Context switches a second of virtual time.
    pub switches_per_s: f64,
    /// What that is of the host's CPU time, %.
    pub host_pct: f64,
}

const VMS: u32 = 1000;
const DEPTH: u32 = 8;
/// Pools in the tree: two in each, 8 deep.
const POOLS: u32 = (1 << (DEPTH + 1)) - 2;

/// The loads: a host that is too small by far, of VMs that sleep and work, and of VMs that are busy.
pub fn loads() -> Vec<Load> {
    let load = |name: &str, workload| Load {
        name: name.to_owned(),
        host: Host { dies: 4, cores: 16, ..Host::default() },
        vms: VMS,
        vcpus: 2,
        workload,
        length_ms: 3000,
    };
    vec![
        load(
            "awake 1 ms of every 10",
            Workload::Cpu { duty_pct: 10, period_us: 10_000, then: None },
        ),
        load("busy", Workload::Cpu { duty_pct: 100, period_us: 10_000, then: None }),
    ]
}

/// When all that is asked is in force. Eight pools deep shares are very uneven: the last VM is found when
/// the wait bound, 1 s, has served it.
const SETTLED_NS: u64 = 1_500_000_000;

/// Runs a load with that asked for its VMs and takes the time of the policy.
pub fn measure(load: &Load, asked: Asked) -> Cost {
    let mut sim = set_up(load);
    ask(&mut sim, load, asked);
    sim.run(SETTLED_NS);
    let before = sim.m.counts.switches;
    sim.class.policy.meter = Some(Meter::default());
    sim.run(sim.m.now_ns + load.length_ms * 1_000_000);
    let meter = sim.class.policy.meter.take().expect("it was set above");
    let switches = (sim.m.counts.switches - before) as f64;
    let ns = meter.ns as f64 - meter.calls as f64 * clock_ns();
    let length_ms = load.length_ms as f64;
    Cost {
        ns_per_switch: ns / switches,
        switches_per_s: 1000.0 * switches / length_ms,
        host_pct: ns / 1e4 / length_ms / f64::from(load.host.pcpus()),
    }
}

/// The first pool in `POOLS` is 1; pool n has the children 2 n + 1 and 2 n + 2, as 0 has 1 and 2.
fn parent_of(pool: u32) -> u32 {
    (pool - 1) / 2
}

fn shares_of(pool: u32) -> u32 {
    1000 + pool % 7 * 500
}

/// VMs are in the pools that have none in them.
fn pool_of(vm: u32) -> u32 {
    let first_leaf = (1 << DEPTH) - 1;
    first_leaf + vm % (POOLS + 1 - first_leaf)
}

/// What part of the host a VM is owed in the tree when all want all.
fn part_of(vm: u32, vms: u32) -> f64 {
    let beside = (0..vms).filter(|&other| pool_of(other) == pool_of(vm)).count();
    let mut part = 1.0 / beside as f64;
    let mut pool = pool_of(vm);
    while pool != 0 {
        let sibling = if pool % 2 == 1 { pool + 1 } else { pool - 1 };
        part *= f64::from(shares_of(pool)) / f64::from(shares_of(pool) + shares_of(sibling));
        pool = parent_of(pool);
    }
    part
}

fn ask(sim: &mut Sim<Scx>, load: &Load, asked: Asked) {
    match asked {
        Asked::Shares => return,
        Asked::UnevenShares => return ask_for_parts(sim, load),
        Asked::Pools | Asked::Reservations | Asked::Limits => {}
    }
    for pool in 1..=POOLS {
        let settings = PoolSettings {
            parent: PoolId(parent_of(pool)),
            shares: shares_of(pool),
            reservation_mcpu: 0,
            limit_mcpu: None,
            burst_us: 0,
        };
        sim.class.set_pool(&mut sim.m, pool, Some(&settings));
    }
    let host_mcpu = 1000 * load.host.pcpus();
    let (reserves, limits) = (asked != Asked::Pools, asked == Asked::Limits);
    for vm in 0..load.vms {
        let bounds = VmBounds {
            reservation_mcpu: if reserves { host_mcpu / (2 * load.vms) } else { 0 },
            limit_mcpu: if limits { 2 * host_mcpu / load.vms } else { 0 },
            pool: pool_of(vm),
            ..VmBounds::default()
        };
        sim.class.set_bounds(&mut sim.m, vm, bounds);
    }
}

/// Shares that come to the same as the tree.
fn ask_for_parts(sim: &mut Sim<Scx>, load: &Load) {
    let even = f64::from(Shares::NORMAL.of_vm(load.vcpus));
    for vm in 0..load.vms {
        let shares = even * f64::from(load.vms) * part_of(vm, load.vms);
        sim.plan(0, Plan::SetShares(vm, shares.round().max(1.0) as u32));
    }
}

/// What the meter itself adds to each call.
fn clock_ns() -> f64 {
    let mut meter = Meter::default();
    for _ in 0..100_000 {
        meter.add(std::hint::black_box(Instant::now()));
    }
    meter.ns as f64 / meter.calls as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_is_asked_is_in_force_when_it_is_measured() {
        let load = Load { length_ms: 20, ..loads().remove(1) };
        for asked in Asked::ALL {
            let cost = measure(&load, asked);
            assert!(cost.switches_per_s > 100.0, "{asked:?} {cost:?}");
        }
        let mut sim = set_up(&load);
        ask(&mut sim, &load, Asked::Limits);
        sim.run(SETTLED_NS);
        assert_eq!(sim.m.fault, None);
        assert!((0..load.vms).all(|vm| sim.class.is_capped(vm) && sim.class.slot_of(vm).is_some()));
        let above = (1..=POOLS).filter(|&pool| sim.class.is_in_pool(0, pool)).count();
        assert_eq!(above, DEPTH as usize);
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! In any time T no VM and no pool has more than its limit brings in T + 100 ms, within 1 %, and none is kept
//! from running for good by it.
//!
//! Moments of looking are at random, so windows are those from one look to another, of up to 100 ms or
//! a second: what may be had in 100 ms may be had in less, and not more.

use crate::machine::TaskId;
use crate::scx::Scx;
use crate::sim::Sim;
use std::collections::{BTreeMap, VecDeque};

/// Over which a limit is looked at.
const WINDOWS_NS: [u64; 2] = [100_000_000, LONGEST_NS];
/// The longest of them.
const LONGEST_NS: u64 = 1_000_000_000;
/// What may be saved up: what the limit brings in so long.
const SAVED_NS: u64 = 100_000_000;
/// After the clock jumped limits are not counted for so long.
const CLOCK_SETTLES_NS: u64 = 100_000_000;
/// A pCPU obeys so late even if kicks come at once: the interrupt, the switch, a tick at that moment.
const OBEYS_LATE_NS: u64 = 60_000;
/// Until a debt of what is brought in 100 ms is paid, enough has come to go on (2.5 ms), and it was looked at, every 5 ms;
/// the first look may come while its threads still run.
const HELD_MAX_NS: u64 = 112_500_000;

/// What was had, look by look.
#[derive(Debug, Default)]
pub(super) struct Limits {
    /// CPU time of each task at the last look, while attached to its VM's slot.
    seen_ns: Vec<Option<u64>>,
    /// What tasks of each VM had while attached.
    used_ns: Vec<u64>,
    /// That, at the looks of the last second; since limits, pools or the clock were changed.
    history: VecDeque<(u64, Vec<u64>)>,
    /// No window begins before then.
    from_ns: u64,
    /// What each VM may use unbooked, once: it was booked too early, when the clock jumped.
    early_ns: Vec<u64>,
    /// Of each VM that is held: since when, and what it had used by then. Since limits, pools or the clock
    /// were changed.
    held_since: BTreeMap<u32, (u64, u64)>,
}

impl Limits {
    /// Limits are others, or count from now on: windows begin anew.
    pub(super) fn begin_anew(&mut self) {
        self.history.clear();
        self.held_since.clear();
    }

    /// The clock jumped: what ran at that moment, or runs when a timer set before it goes off by the old
    /// clock, is booked by so much too early or too late. A VM held for what it has not used yet may
    /// have that in any window later.
    pub(super) fn clock_jumped(&mut self, sim: &Sim<Scx>, by_ns: u64) {
        self.begin_anew();
        self.from_ns = sim.m.now_ns + CLOCK_SETTLES_NS;
        self.early_ns.resize(sim.vms.len(), 0);
        for (vm, early_ns) in self.early_ns.iter_mut().enumerate() {
            *early_ns += by_ns * threads(sim, vm).min(sim.m.topology.pcpus().into());
        }
    }

    /// Is any broken? Kicks take `late_ns` longer at worst.
    pub(super) fn look(&mut self, sim: &Sim<Scx>, late_ns: u64) -> Result<(), String> {
        if (0..sim.vms.len() as u32).all(|vm| !sim.class.is_capped(vm)) {
            self.history.clear();
            return Ok(());
        }
        self.count(sim);
        let now_ns = sim.m.now_ns;
        if now_ns < self.from_ns {
            return Ok(());
        }
        while self.history.front().is_some_and(|(at_ns, _)| now_ns - at_ns > LONGEST_NS) {
            self.history.pop_front();
        }
        self.history.push_back((now_ns, self.used_ns.clone()));
        WINDOWS_NS.iter().try_for_each(|&window_ns| self.look_back(sim, late_ns, window_ns))
    }

    /// Is any broken over the last `window_ns`?
    fn look_back(&self, sim: &Sim<Scx>, late_ns: u64, window_ns: u64) -> Result<(), String> {
        let from = self.history.partition_point(|(at_ns, _)| sim.m.now_ns - at_ns > window_ns);
        let (_, before_ns) = &self.history[from];
        let early_ns = |vm: usize| self.early_ns.get(vm).copied().unwrap_or(0);
        let used_ns = |vm: usize| {
            let used_ns = self.used_ns[vm] - before_ns.get(vm).copied().unwrap_or(0);
            used_ns.saturating_sub(early_ns(vm))
        };
        let late_ns = late_ns + OBEYS_LATE_NS;
        for vm in 0..sim.vms.len() {
            let limit_mcpu = sim.class.bounds_of(vm as u32).limit_mcpu;
            let had = (used_ns(vm), threads(sim, vm));
            check(sim, &|| format!("VM {vm}"), (limit_mcpu, window_ns), late_ns, had)?;
        }
        for pool in 1..=sim.class.pools().len() as u32 {
            let inside = (0..sim.vms.len()).filter(|&vm| sim.class.is_in_pool(vm as u32, pool));
            let had =
                inside.fold((0, 0), |(ns, wide), vm| (ns + used_ns(vm), wide + threads(sim, vm)));
            let limit_mcpu = sim.class.pools()[pool as usize - 1].limit_mcpu.unwrap_or(0);
            check(sim, &|| format!("pool {pool}"), (limit_mcpu, window_ns), late_ns, had)?;
        }
        Ok(())
    }

    /// Nobody is held longer by its own limit than until its debt is paid and a timer goes off, `late_ns` late
    /// at worst.
    pub(super) fn nobody_is_held_for_long(
        &mut self,
        sim: &Sim<Scx>,
        late_ns: u64,
    ) -> Result<(), String> {
        let now_ns = sim.m.now_ns;
        for vm in 0..sim.vms.len() as u32 {
            let slot = sim.class.slot_of(vm).filter(|_| !sim.class.is_in_limited_pool(vm));
            let held = sim.tasks_of(vm).any(|task| sim.class.policy.at_limit(task));
            let Some(slot) = slot.filter(|_| held) else {
                self.held_since.remove(&vm);
                continue;
            };
            let known = sim.class.policy.vm(slot);
            let now = (now_ns, known.counters.vcpu_run_ns + known.counters.helper_run_ns);
            let since = self.held_since.entry(vm).or_insert(now);
            // It may have run between two looks.
            if since.1 != now.1 {
                *since = now;
            }
            let held_ns = now_ns - since.0;
            if held_ns > HELD_MAX_NS + late_ns {
                return Err(format!("VM {vm} is held at its limit for {} us", held_ns / 1000));
            }
        }
        Ok(())
    }

    /// Adds what was had since the last look.
    fn count(&mut self, sim: &Sim<Scx>) {
        self.seen_ns.resize(sim.m.tasks.len(), None);
        self.used_ns.resize(sim.vms.len(), 0);
        for (task, known) in sim.m.tasks.iter().enumerate() {
            let attached = sim.class.policy.thread(task as TaskId).slot != 0;
            let now_ns = attached.then(|| sim.m.cpu_time_now_ns(task as TaskId));
            let before_ns = std::mem::replace(&mut self.seen_ns[task], now_ns);
            if let (Some(now_ns), Some(before_ns)) = (now_ns, before_ns) {
                self.used_ns[known.vm as usize] += now_ns - before_ns;
            }
        }
    }
}

fn threads(sim: &Sim<Scx>, vm: usize) -> u64 {
    sim.tasks_of(vm as u32).count() as u64
}

/// What the limit brings and what may be saved up, 1 % more, and what all that may run at once have when they
/// stop late: once, and again whenever they may have been let go before that was paid back.
fn check(
    sim: &Sim<Scx>,
    whose: &dyn Fn() -> String,
    (limit_mcpu, window_ns): (u32, u64),
    late_ns: u64,
    (used_ns, threads): (u64, u64),
) -> Result<(), String> {
    let brings_ns = u64::from(limit_mcpu) * (window_ns + SAVED_NS) / 1000;
    let wide = threads.min(sim.m.topology.pcpus().into());
    let stops = 1 + window_ns / HELD_MAX_NS;
    let most_ns = brings_ns + brings_ns / 100 + stops * wide * late_ns;
    if limit_mcpu > 0 && used_ns > most_ns {
        return Err(format!(
            "{} had {} us in {} ms, its limit allows {} us",
            whose(),
            used_ns / 1000,
            window_ns / 1_000_000,
            brings_ns / 1000
        ));
    }
    Ok(())
}

// SPDX-License-Identifier: GPL-2.0-only
//! The fault rig: random hosts, VMs, workloads and faults against the policy, with invariants
//! always on. A trial that breaks one is shrunk to the least that still does.

mod delays;
mod invariants;
mod limits;
mod script;
mod shrink;
mod soak;

pub use script::{Fault, Script, ScriptVm, Shape, TimedFault};
pub use shrink::shrink;
pub use soak::{Soaked, soak};

use crate::class::Class;
use crate::costs::Costs;
use crate::cpu_set::CpuSet;
use crate::guest::Programs;
use crate::machine::{Machine, TaskId};
use crate::rng::{Rng, mix};
use crate::scx::{Planted, Scx, Tunables};
use crate::sim::{Plan, Sim};
use crate::topology::Topology;
use drover_core::scenario::Host;
use drover_core::settings::PoolSettings;
use drover_core::shares::Shares;
use drover_core::tree::entitlement::{Leaf, entitle};
use drover_core::tree::{PoolSpec, Tree};
use invariants::{Invariants, charges_agree};

/// Virtual time between two looks at the invariants, at most.
const LOOK_EVERY_NS: u64 = 20_000_000;
/// Beyond this the wait bound bends shares (policy/wait_bound.h), and so no exact ones are asked.
const SHARES_RATIO_MAX: f64 = 20.0;

/// The policy rouses resting pCPUs every eighth of its wait bound; timers are up to 300 ms late.
const ROUSED_AFTER_NS: u64 = 430_000_000;

/// What VMs want is known so long after they were found (policy/entitle.h).
const SETTLED_NS: u64 = 100_000_000;

/// What came of a trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trial {
    /// What was broken, if anything.
    pub broken: Option<String>,
    /// pCPU time simulated, ms.
    pub cpu_ms: u64,
    /// Events simulated.
    pub events: u64,
    /// The trace's hash.
    pub hash: u64,
}

/// Does a trial. `planted`: a bug to find.
pub fn try_script(script: &Script, planted: Option<Planted>) -> Trial {
    let mut sim = set_up(script, planted);
    let mut invariants = Invariants::default();
    let mut rng = Rng::new(mix(script.seed));
    let end_ns = script.duration_us * 1000;
    let mut calm = script.is_calm().then(Calm::default);
    let mut broken = None;
    while broken.is_none() && sim.m.now_ns < end_ns {
        let until_ns = (sim.m.now_ns + 1 + rng.below(LOOK_EVERY_NS)).min(end_ns);
        while let Some(number) = sim.run(until_ns) {
            let fault = &script.faults[number as usize].fault;
            disturb(&mut sim, &mut invariants, fault);
        }
        broken = sim.m.fault.take().or_else(|| invariants.look(&mut sim).err());
        if let Some(calm) = &mut calm {
            calm.look(&sim);
        }
    }
    // What a dead VM was charged is forgotten with its slot.
    let dies = script.faults.iter().any(|fault| matches!(fault.fault, Fault::Kill(_)));
    if broken.is_none() && !dies {
        broken = charges_agree(&sim).err();
    }
    if let (None, Some(Calm { begin: Some(begin), .. })) = (&broken, calm) {
        broken = shares_hold(&sim, script, &begin).err();
    }
    Trial {
        broken,
        cpu_ms: sim.m.now_ns / 1_000_000 * u64::from(script.host.pcpus()),
        events: sim.m.counts.events,
        hash: sim.m.trace.hash,
    }
}

fn set_up(script: &Script, planted: Option<Planted>) -> Sim<Scx> {
    let Shape { dies, cores, threads } = script.host;
    let host = Host { dies, cores, threads, ..Host::default() };
    let pcpus = host.pcpus();
    let tasks: u32 = script.vms.iter().map(|vm| vm.threads).sum();
    let m = Machine::new(Topology::of(&host), Costs::default(), tasks as usize);
    let mut tunables = Tunables { vtime_ns: script.vtime_ns, ..Tunables::default() };
    if planted == Some(Planted::HoldsForEver) {
        tunables.hold_max_ns = u64::MAX / 4;
    }
    let mut class = Scx::new(&m, &tunables).expect("hosts are drawn within the policy's tables");
    class.queues.planted = planted;
    let mut sim = Sim::new(m, class);
    let mut rng = Rng::new(script.seed);
    for (number, pool) in (1..).zip(&script.pools) {
        sim.class.set_pool(&mut sim.m, number, Some(pool));
    }
    for vm in &script.vms {
        let programs = Programs::of(&vm.workload, vm.threads).expect("drawn without Linux guests");
        let pin = vm.pin.as_ref().map(|pin| CpuSet::of(pcpus, pin.iter().copied()));
        let mask = pin.filter(|pin| pin.count() > 0).map_or(0, |pin| sim.m.mask_of(&pin));
        let number = sim.add_vm(&programs, vm.shares, mask);
        sim.set_helpers(number, vm.helpers);
        sim.class.set_bounds(&mut sim.m, number, vm.bounds);
        sim.plan(vm.start_us * 1000, Plan::Start(number));
        for task in sim.tasks_of(number) {
            sim.plan(vm.start_us * 1000 + rng.below(2_000_000), Plan::Wake(task));
        }
    }
    for (number, fault) in script.faults.iter().enumerate() {
        sim.plan(fault.at_us * 1000, Plan::Look(number as u32));
    }
    sim
}

/// Does a fault. What it names may have been shrunk away.
fn disturb(sim: &mut Sim<Scx>, invariants: &mut Invariants, fault: &Fault) {
    let now_ns = sim.m.now_ns;
    let pcpus = sim.m.topology.pcpus();
    match fault {
        // A pCPU that goes cannot kick an idle one for the threads it gives up: one of those that
        // rest is roused. It also frees threads that may run nowhere else.
        Fault::Offline(_) => {
            invariants.kicks_late_ns = ROUSED_AFTER_NS;
            invariants.pcpus_changed(now_ns);
        }
        Fault::Online(_) => invariants.pcpus_changed(now_ns),
        Fault::Confine(..) => invariants.changed_ns = now_ns,
        Fault::Bounds(vm, _) => invariants.bounds_changed(*vm, now_ns),
        Fault::Pool(..) => invariants.pools_changed(now_ns),
        Fault::TimerLate(us) => invariants.come_late(us * 1000),
        Fault::ClockOff(us) => invariants.clock_jumped(us.unsigned_abs() * 1000, now_ns),
        _ => {}
    }
    let vm_exists = |vm: u32| (vm as usize) < sim.vms.len();
    match *fault {
        Fault::Offline(cpu) if cpu < pcpus => sim.plan(now_ns, Plan::Offline(cpu)),
        Fault::Online(cpu) if cpu < pcpus => sim.plan(now_ns, Plan::Online(cpu)),
        Fault::Kill(vm) if vm_exists(vm) => sim.plan(now_ns, Plan::Kill(vm)),
        Fault::Shares(vm, shares) if vm_exists(vm) => {
            sim.plan(now_ns, Plan::SetShares(vm, shares));
        }
        Fault::Bounds(vm, bounds) if vm_exists(vm) => {
            sim.class.set_bounds(&mut sim.m, vm, bounds);
        }
        Fault::Pool(pool, ref settings) => sim.class.set_pool(&mut sim.m, pool, Some(settings)),
        Fault::Confine(vm, thread, ref cpus) if vm_exists(vm) => {
            let tasks: Vec<TaskId> = sim.tasks_of(vm).collect();
            let Some(&task) = tasks.get(thread as usize) else { return };
            let set = CpuSet::of(pcpus, cpus.iter().copied());
            let mask = if set.count() == 0 { 0 } else { sim.m.mask_of(&set) };
            sim.plan(now_ns, Plan::Confine(task, mask));
        }
        Fault::KicksLate(us) => {
            let late_ns = us * 1000;
            sim.class.queues.surroundings.kick_late_ns = late_ns;
            invariants.kicks_late_ns = invariants.kicks_late_ns.max(late_ns);
        }
        Fault::TimerLate(us) => sim.class.timer_late_ns = us * 1000,
        Fault::ClockOff(us) => sim.class.queues.surroundings.clock_off_ns = us * 1000,
        _ => {}
    }
}

/// What every VM is owed, pCPUs, when all are busy; none where the wait bound bends shares.
fn owed(script: &Script) -> Option<Vec<f64>> {
    let spec = |(number, pool): (usize, &PoolSettings)| PoolSpec {
        parent: pool.parent.0.checked_sub(1).map(|parent| format!("pool{parent}")),
        shares: Shares::Exact(pool.shares),
        reservation_mcpu: pool.reservation_mcpu,
        limit_mcpu: pool.limit_mcpu,
        ..PoolSpec::named(&format!("pool{number}"))
    };
    let specs: Vec<PoolSpec> = script.pools.iter().enumerate().map(spec).collect();
    let tree = Tree::of(&specs).expect("parents come before their pools");
    let leaf = |vm: &ScriptVm| Leaf {
        pool: (vm.bounds.pool as usize).checked_sub(1),
        shares: f64::from(vm.shares),
        reservation_pcpus: f64::from(vm.bounds.reservation_mcpu) / 1000.0,
        demand_pcpus: f64::from(vm.threads),
    };
    let leaves: Vec<Leaf> = script.vms.iter().map(leaf).collect();
    let owed = entitle(&tree, &leaves, f64::from(script.host.pcpus())).leaves;
    let per_thread = |weight: fn(&ScriptVm, f64) -> f64| {
        let each = script.vms.iter().zip(&owed);
        let each = each.map(move |(vm, &owed)| weight(vm, owed) / f64::from(vm.threads));
        each.clone().fold(0.0, f64::max) / each.fold(f64::MAX, f64::min)
    };
    let bent = per_thread(|vm, _| f64::from(vm.shares)) > SHARES_RATIO_MAX
        || per_thread(|_, owed| owed) > SHARES_RATIO_MAX;
    (!bent).then_some(owed)
}

/// When shares are looked at: a while after all threads are known to be their VMs'. Until then they
/// are tasks of the host, and wait their turn as those do.
#[derive(Debug, Default)]
struct Calm {
    all_found_ns: Option<u64>,
    /// From then on, and what each VM had had.
    begin: Option<(u64, Vec<u64>)>,
}

impl Calm {
    fn look(&mut self, sim: &Sim<Scx>) {
        let attached = |task| sim.class.policy.thread_view(task).slot != 0;
        if self.all_found_ns.is_none() && (0..sim.m.tasks.len() as TaskId).all(attached) {
            self.all_found_ns = Some(sim.m.now_ns);
        }
        let settled = self.all_found_ns.is_some_and(|at_ns| sim.m.now_ns - at_ns >= SETTLED_NS);
        if settled && self.begin.is_none() {
            let had_ns = (0..sim.vms.len()).map(|vm| had_ns(sim, vm)).collect();
            self.begin = Some((sim.m.now_ns, had_ns));
        }
    }
}

/// All that threads of the VM had.
fn had_ns(sim: &Sim<Scx>, vm: usize) -> u64 {
    sim.tasks_of(vm as u32).map(|task| sim.m.cpu_time_now_ns(task)).sum()
}

/// CPU time divides by shares, reservations and pools, within what one slice too many makes.
fn shares_hold(
    sim: &Sim<Scx>,
    script: &Script,
    (begin_ns, before_ns): &(u64, Vec<u64>),
) -> Result<(), String> {
    let Some(owed) = owed(script) else { return Ok(()) };
    let pcpus = f64::from(script.host.pcpus());
    let run_s = (sim.m.now_ns - begin_ns) as f64 / 1e9;
    for (vm, owed_pcpus) in owed.iter().enumerate() {
        let got_s = (had_ns(sim, vm) - before_ns[vm]) as f64 / 1e9;
        let owed_s = owed_pcpus * run_s;
        // Six slices for each of its threads, and 3 % for long runs. What is owed as much as it can
        // use never makes up for that.
        let threads = f64::from(script.vms[vm].threads);
        let slack_s = 0.048 * threads.min(pcpus) + 0.03 * owed_s + 0.030;
        if (got_s - owed_s).abs() > slack_s {
            return Err(format!(
                "VM {vm} of {} shares got {got_s:.3} s of CPU, is owed {owed_s:.3} s +- {slack_s:.3}",
                script.vms[vm].shares
            ));
        }
    }
    Ok(())
}

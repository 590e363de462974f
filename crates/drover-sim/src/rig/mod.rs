// SPDX-License-Identifier: GPL-2.0-only
//! The fault rig: random hosts, VMs, workloads and faults against the policy, with invariants
//! always on. A trial that breaks one is shrunk to the least that still does.

pub mod against;
mod delays;
mod draw;
mod invariants;
mod limits;
mod partitions;
mod script;
mod shares;
mod shrink;
mod soak;

pub use script::{Fault, Script, ScriptVm, Shape, TimedFault};
pub use shrink::shrink;
pub use soak::{Soaked, Until, soak};

use crate::class::{Class, VmBounds};

use crate::costs::Costs;
use crate::cpu_set::CpuSet;
use crate::guest::Programs;
use crate::machine::{Machine, TaskId, TaskState};
use crate::rng::{Rng, mix};
use crate::scx::{Planted, Scx, Tunables};
use crate::sim::{Plan, Sim};
use crate::topology::Topology;
use drover_core::partition::PartitionSettings;
use drover_core::shares::Shares;
use invariants::Invariants;
use shares::Calm;

/// Virtual time between two looks at the invariants, at most.
const LOOK_EVERY_NS: u64 = 20_000_000;
/// The policy rouses resting pCPUs every eighth of its wait bound; timers are up to 300 ms late.
const ROUSED_AFTER_NS: u64 = 430_000_000;

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
            if let Fault::Yields(vm, every_us) = *fault {
                yield_all(&mut sim, vm, &mut rng);
                sim.plan(sim.m.now_ns + every_us.max(1) * 1000, Plan::Look(number));
            }
        }
        broken = sim.m.fault.take().or_else(|| invariants.look(&mut sim).err());
        if let Some(calm) = &mut calm {
            calm.look(&sim);
        }
    }
    // What a dead VM was charged is forgotten with its slot.
    let dies = script.faults.iter().any(|fault| matches!(fault.fault, Fault::Kill(_)));
    if broken.is_none() && !dies {
        broken = invariants.charges_agree(&sim).err();
    }
    if let (None, Some(calm)) = (&broken, calm) {
        broken = calm.shares_hold(&sim, script).err();
    }
    Trial {
        broken,
        cpu_ms: sim.m.now_ns / 1_000_000 * u64::from(script.host.pcpus()),
        events: sim.m.counts.events,
        hash: sim.m.trace.hash,
    }
}

fn set_up(script: &Script, planted: Option<Planted>) -> Sim<Scx> {
    let topology = Topology::of_dies(&script.host.cores_by_die(), script.host.threads);
    let pcpus = topology.pcpus();
    let tasks: u32 = script.vms.iter().map(|vm| vm.threads).sum();
    let tick_interval_ns = 1_000_000_000 / u64::from(script.hz);
    let m = Machine::new(topology, Costs { tick_interval_ns, ..Costs::default() }, tasks as usize);
    // As many for each partition as for an undivided host.
    let spare_domains = script.nr_partitions() * m.topology.llc_of_domain.len() as u32;
    let mut tunables = Tunables { vtime_ns: script.vtime_ns, spare_domains, ..Tunables::default() };
    if planted == Some(Planted::HoldsForEver) {
        tunables.params.hold_max_ns = u64::MAX / 4;
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
        let mask = sim.m.mask_of(&vm.may_use(pcpus));
        let number = sim.add_vm(&programs, Shares::Exact(vm.shares), mask);
        for (thread, task) in (0..).zip(sim.tasks_of(number)) {
            sim.m.tasks[task as usize].mask = sim.m.mask_of(&vm.may_use_as(pcpus, thread));
        }
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

/// Tells the invariants of a fault that is about to be done.
fn announce(sim: &mut Sim<Scx>, invariants: &mut Invariants, fault: &Fault) {
    let now_ns = sim.m.now_ns;
    match fault {
        // A pCPU that goes cannot kick an idle one for the threads it gives up: one of those that
        // rest is roused. It also frees threads that may run nowhere else.
        Fault::Offline(_) => {
            invariants.kicks_late_ns = ROUSED_AFTER_NS;
            invariants.pcpus_changed(now_ns);
        }
        Fault::Online(_) => invariants.pcpus_changed(now_ns),
        Fault::Confine(..) | Fault::Cpuset(..) => invariants.changed_ns = now_ns,
        Fault::RealTime(cpu, us) if *cpu < sim.m.topology.pcpus() => {
            invariants.taken(now_ns, us * 1000);
        }
        Fault::KicksLate(us) => {
            invariants.kicks_late_ns = invariants.kicks_late_ns.max(us * 1000);
        }
        Fault::Bounds(vm, _) => invariants.bounds_changed(*vm, now_ns),
        Fault::Pool(..) => invariants.pools_changed(now_ns),
        Fault::Partition(.., slice_us) => {
            invariants.partitions_changed(now_ns + ROUSED_AFTER_NS, slice_us * 1000, now_ns);
        }
        Fault::Join(vm, _) => invariants.joined(*vm, now_ns),
        Fault::TimerLate(us) => invariants.come_late(us * 1000),
        Fault::ClockOff(us) => {
            let before_ns = sim.class.queues.surroundings.clock_off_ns;
            let by_ns = (us * 1000).abs_diff(before_ns);
            invariants.clock_jumped(sim, (by_ns, us.unsigned_abs() * 1000));
        }
        _ => {}
    }
}

/// Does a fault. What it names may have been shrunk away.
fn disturb(sim: &mut Sim<Scx>, invariants: &mut Invariants, fault: &Fault) {
    announce(sim, invariants, fault);
    let now_ns = sim.m.now_ns;
    let pcpus = sim.m.topology.pcpus();
    let vm_exists = |vm: u32| (vm as usize) < sim.vms.len();
    match *fault {
        Fault::Offline(cpu) if cpu < pcpus => sim.plan(now_ns, Plan::Offline(cpu)),
        Fault::Online(cpu) if cpu < pcpus => sim.plan(now_ns, Plan::Online(cpu)),
        Fault::Kill(vm) if vm_exists(vm) => sim.plan(now_ns, Plan::Kill(vm)),
        Fault::Shares(vm, shares) if vm_exists(vm) => {
            sim.plan(now_ns, Plan::SetShares(vm, shares));
        }
        Fault::Bounds(vm, bounds) if vm_exists(vm) => {
            let VmBounds { home, partition, .. } = sim.class.bounds_of(vm);
            sim.class.set_bounds(&mut sim.m, vm, VmBounds { home, partition, ..bounds });
        }
        Fault::Partition(number, ref cpus, policy, slice_us) => {
            let leaves = |vm: &u32| sim.class.bounds_of(*vm).partition == number;
            let members = (0..sim.vms.len() as u32).filter(leaves).collect::<Vec<_>>();
            for vm in members.into_iter().filter(|_| cpus.is_empty()) {
                join(sim, vm, 0);
            }
            let settings = PartitionSettings { policy, slice_ns: slice_us * 1000 };
            let cpus: Vec<u32> = cpus.iter().copied().filter(|&cpu| cpu < pcpus).collect();
            sim.class.set_partition(&mut sim.m, number, &cpus, settings);
        }
        Fault::Join(vm, number) if vm_exists(vm) => join(sim, vm, number),
        Fault::Home(vm, home) if vm_exists(vm) => {
            let bounds = sim.class.bounds_of(vm);
            sim.class.set_bounds(&mut sim.m, vm, VmBounds { home, ..bounds });
        }
        Fault::Pool(pool, ref settings) => sim.class.set_pool(&mut sim.m, pool, Some(settings)),
        Fault::Confine(vm, thread, ref cpus) if vm_exists(vm) => {
            let tasks: Vec<TaskId> = sim.tasks_of(vm).collect();
            let Some(&task) = tasks.get(thread as usize) else { return };
            let mask = mask_of(sim, cpus);
            sim.plan(now_ns, Plan::Confine(task, mask));
        }
        Fault::Cpuset(vm, ref cpus) if vm_exists(vm) => {
            let mask = mask_of(sim, cpus);
            for task in sim.tasks_of(vm) {
                sim.plan(now_ns, Plan::Confine(task, mask));
            }
        }
        Fault::RealTime(cpu, us) if cpu < pcpus => sim.plan(now_ns, Plan::Take(cpu, us * 1000)),
        Fault::KicksLate(us) => sim.class.queues.surroundings.kick_late_ns = us * 1000,
        Fault::TimerLate(us) => sim.class.timer_late_ns = us * 1000,
        Fault::DaemonHangs(us) => sim.class.hang_daemon(now_ns + us * 1000),
        Fault::ClockOff(us) => sim.class.queues.surroundings.clock_off_ns = us * 1000,
        _ => {}
    }
}

fn join(sim: &mut Sim<Scx>, vm: u32, partition: u32) {
    let bounds = sim.class.bounds_of(vm);
    sim.class.set_bounds(&mut sim.m, vm, VmBounds { partition, ..bounds });
}

/// Whatever threads of the VM run give way: to any of its threads, or to nobody in particular. The kernel
/// lets go of its locks before the pCPU chooses; what happens in between comes in between here, too.
fn yield_all(sim: &mut Sim<Scx>, vm: u32, rng: &mut Rng) {
    if vm as usize >= sim.vms.len() {
        return;
    }
    for cpu in 0..sim.m.topology.pcpus() {
        let Some(from) = sim.m.current(cpu).filter(|&task| sim.m.tasks[task as usize].vm == vm)
        else {
            continue;
        };
        let to = *rng.pick(&sim.tasks_of(vm).collect::<Vec<TaskId>>());
        let directed = !rng.chance_pct(20);
        // The kernel asks of those only that wait.
        if directed && (to == from || sim.m.tasks[to as usize].state != TaskState::Ready) {
            continue;
        }
        sim.account(cpu);
        let pair = (from, directed.then_some(to));
        if sim.class.policy.yields(&mut sim.m, &mut sim.class.queues, cpu, pair) {
            sim.m.kick(cpu, 0);
        }
    }
}

/// The mask of these pCPUs; of none: of all.
fn mask_of(sim: &mut Sim<Scx>, cpus: &[u32]) -> u32 {
    let set = CpuSet::of(sim.m.topology.pcpus(), cpus.iter().copied());
    if set.count() == 0 { 0 } else { sim.m.mask_of(&set) }
}

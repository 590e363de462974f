// SPDX-License-Identifier: GPL-2.0-only
//! One case under one scheduler, once.

use super::measure::Measured;
use super::rival::{Entry, Rival};
use super::{DROVER, Options, Ran, RunTrace};
use crate::arranging::{Arranged, Arranging};
use crate::class::{Class, VmBounds};
use crate::costs::{Costs, PauseLoop};
use crate::cpu_set::CpuSet;
use crate::guest::Programs;
use crate::local_accesses::LocalAccesses;
use crate::machine::{Machine, TaskState};
use crate::placer::{Placed, Placer};
use crate::rng::{Rng, mix};
use crate::scx::{Scx, Tunables};
use crate::sim::{Plan, Sim};
use crate::speed_model::SpeedModel;
use crate::topology::Topology;
use crate::trace::{Record, Trace};
use drover_core::cpu_list::CpuList;
use drover_core::params::DAEMON_LOOK_MS;
use drover_core::partition::{PartitionPolicy, PartitionSettings, PartitionSpec, Partitions};
use drover_core::place::{INTERVAL, Seen, Wishes, parts_on_nodes};
use drover_core::settings::{PoolId, PoolSettings};
use drover_core::shares::Shares;
use drover_core::tree::Tree;
use drover_scenario::{Case, Scenario, Vm, Workload};
use std::collections::BTreeSet;

/// vCPUs of a VM wake for the first time within this long of each other, VMs likewise: what luck
/// there is in a run is in these moments.
const SPREAD_NS: u64 = 4_000_000;

/// Looks: the measured time begins; an interval of the record ends; it is over.
const BEGIN: u32 = 0;
const SAMPLE: u32 = 1;
const END: u32 = 2;

/// A case to run.
pub(super) struct Job<'a> {
    pub(super) case: &'a Case,
    /// Its scheduler; none: Drover.
    pub(super) rival: Option<&'a Entry>,
    /// From 1.
    pub(super) repeat: u32,
    /// All luck in the run follows from it: the same for every scheduler and case.
    pub(super) seed: u64,
}

impl<'a> Job<'a> {
    /// That repeat: its seed is as many beyond the scenario's as repeats were before it.
    pub(super) fn of(
        scenario: &Scenario,
        (case, rival, repeat): (&'a Case, Option<&'a Entry>, u32),
    ) -> Self {
        let seed = scenario.seed.wrapping_add(u64::from(repeat) - 1);
        Self { case, rival, repeat, seed }
    }

    /// What scenarios call its scheduler.
    pub(super) fn scheduler(&self) -> &'static str {
        self.rival.map_or(DROVER, |rival| rival.name)
    }
}

/// Runs a case under Drover.
pub(super) fn run_drover(scenario: &Scenario, options: &Options, job: &Job) -> Result<Ran, String> {
    let m = machine(scenario, options, job, |_| ());
    let spare_domains = spare_domains(&m, job.case);
    let mut class =
        Scx::new(&m, &Tunables { params: scenario.policy, spare_domains, ..Tunables::default() })?;
    class.queues.planted = options.rig.and_then(|rig| rig.planted);
    class.policy.set_distances(&scenario.host);
    let (room, _) = class.queues.slots();
    let mut ran = run_with(scenario, options, job, Sim::new(m, class))?;
    ran.run.fault = ran.run.fault.or_else(|| without_slots(job.case.vms.len(), room));
    Ok(ran)
}

/// Runs a case under another scheduler.
pub(super) fn run_rival<R: Rival>(
    scenario: &Scenario,
    options: &Options,
    job: &Job,
) -> Result<Ran, String> {
    let m = machine(scenario, options, job, R::set_host);
    let class = R::new(&m);
    run_with(scenario, options, job, Sim::new(m, class))
}

/// The host of a case; `set_host` changes what things cost there.
fn machine(
    scenario: &Scenario,
    options: &Options,
    job: &Job,
    set_host: impl FnOnce(&mut Costs),
) -> Machine {
    let topology = Topology::of(&scenario.host);
    let tasks: u32 = job.case.vms.iter().map(|vm| vm.vcpus).sum();
    // A back-end thread for each VM at most, one of the host's own for each pCPU, and the daemon.
    let tasks = tasks as usize + job.case.vms.len() + topology.pcpus() as usize + 1;
    let mut costs = Costs::of(&scenario.host);
    costs.pause_loop = job.case.ple.then(PauseLoop::linux_6_18);
    set_host(&mut costs);
    let mut m = Machine::new(topology, costs, tasks);
    if options.trace {
        m.trace = Trace::recording();
    }
    m
}

/// What is wrong where there are more VMs than the policy has room for.
fn without_slots(vms: usize, room: usize) -> Option<String> {
    (vms > room).then(|| {
        format!("of {vms} VMs {room} have shares of their own, the others ran as the host's tasks")
    })
}

fn ns(seconds: f64) -> u64 {
    (seconds * 1e9).round() as u64
}

fn run_with<C: Class>(
    scenario: &Scenario,
    options: &Options,
    job: &Job,
    mut sim: Sim<C>,
) -> Result<Ran, String> {
    let warmup_ns = ns(scenario.warmup_s);
    let end_ns = warmup_ns + ns(scenario.duration_s);
    let mut rng = Rng::new(mix(job.seed) ^ 1);
    let draws = mix(mix(job.seed).wrapping_add(1));
    sim.guests.set_seed(draws);
    sim.guests.set_link(scenario.host.link_mbit_s.unwrap_or(0));
    sim.plan(warmup_ns, Plan::Look(BEGIN));
    set_partitions(&mut sim, scenario, &job.case.partitions);
    set_pools(&mut sim, &job.case.pools);
    for vm in &job.case.vms {
        add_vm(&mut sim, scenario, (vm, job.case), &mut rng);
    }
    if options.rig.is_some() {
        sim.guests.draw_apart(draws);
    }
    let paced: Vec<_> = job.case.vms.iter().map(|vm| (vm.pace, vm.memory_nodes.clone())).collect();
    sim.speeds = SpeedModel::of(&scenario.host, &paced).map(Box::new);
    sim.accesses = accesses(scenario, job.case);
    if job.rival.is_none() && scenario.host.llcs() > 1 {
        let sharing = job.case.partitions.sharing(&CpuList::all(scenario.host.pcpus()));
        let (partitions, divisions): (Vec<_>, Vec<_>) = sharing.into_iter().unzip();
        let placed = |(number, vm): (usize, &Vm)| {
            let own = vm.partition.as_deref().and_then(|name| job.case.partitions.find(name));
            let division = partitions.iter().position(|it| *it == own);
            Placed { division, ..placed(&sim.m.topology, (number, vm)) }
        };
        let placed = job.case.vms.iter().enumerate().map(placed).collect();
        let wishes = Wishes { heuristic: job.case.placement, sets: job.case.sets.clone() };
        sim.placer = Some(Box::new(Placer::new(&scenario.host, &divisions, placed, wishes)));
        sim.plan(INTERVAL.as_nanos() as u64, Plan::Place);
    }
    sim.keep_profiles();
    sim.arranging = arranging(job);
    add_host_tasks(&mut sim, scenario, job, &mut rng);
    if let Some(sample_ms) = scenario.sample_ms {
        let interval_ns = u64::from(sample_ms) * 1_000_000;
        let samples = (end_ns - warmup_ns) / interval_ns;
        // An interval that ends with the run is planned before the end, and so counted.
        for sample in 1..=samples {
            sim.plan(warmup_ns + sample * interval_ns, Plan::Look(SAMPLE));
        }
    }
    sim.plan(end_ns, Plan::Look(END));
    let mut measured = Measured::default();
    while let Some(look) = sim.run(end_ns) {
        match look {
            BEGIN => measured.begin(&sim),
            SAMPLE => measured.sample(&sim),
            _ => break,
        }
    }
    let stuck = |(number, vm): (usize, &Vm)| {
        let why = sim.guests.stuck(&sim.m, number as u32)?;
        Some(format!("VM \"{}\" {why}", vm.name))
    };
    let stuck = job.case.vms.iter().enumerate().find_map(stuck);
    let fault = sim.m.fault.take().or(stuck);
    let run = measured.end(&sim, scenario, job, fault);
    let trace = finish_trace(&mut sim.m).map(|record| RunTrace {
        case: run.case.clone(),
        scheduler: run.scheduler.clone(),
        repeat: run.repeat,
        tasks: sim.m.tasks.iter().map(|task| (name_of(job.case, task.vm), task.vcpu)).collect(),
        spans: record.spans,
        waits: record.waits,
    });
    let threads = options.rig.map(|_| measured.threads(&sim, job.case.vms.len()));
    let (hash, events) = (sim.m.trace.hash, sim.m.counts.events);
    Ok(Ran { run, threads: threads.unwrap_or_default(), hash, events, trace })
}

/// What the host does by itself on each pCPU, and the daemon, where Drover schedules.
fn add_host_tasks<C: Class>(sim: &mut Sim<C>, scenario: &Scenario, job: &Job, rng: &mut Rng) {
    let host = &scenario.host;
    if let Some((wakeups_per_s, work_us)) = host.own_wakeups_per_s.zip(host.own_work_us) {
        let pcpus = sim.m.topology.pcpus();
        for cpu in 0..pcpus {
            let mask = sim.m.mask_of(&CpuSet::of(pcpus, [cpu]));
            add_host_task(sim, wakeups_per_s, work_us, mask, rng);
        }
    }
    let look_us = (job.case.vms.len() as u64 * sim.m.costs.daemon_look_ns / 1000) as u32;
    if job.rival.is_none() && look_us > 0 {
        let wakeups_per_s = 1000 / u32::from(DAEMON_LOOK_MS);
        add_host_task(sim, wakeups_per_s, look_us, 0, rng);
    }
}

/// Who ran when and who waited, if that was recorded; who does so still did so until now.
fn finish_trace(m: &mut Machine) -> Option<Record> {
    for (task, known) in (0..).zip(&m.tasks) {
        if known.state == TaskState::Ready {
            m.trace.waited(task, known.ready_since_ns, m.now_ns);
        }
    }
    m.trace.finish(m.now_ns);
    m.trace.record.take()
}

/// Which part of accesses is local, where there is more than one node.
fn accesses(scenario: &Scenario, case: &Case) -> LocalAccesses {
    let vms = case.vms.iter().filter(|_| scenario.host.nodes > 1);
    LocalAccesses::of(vms.map(|vm| vm.memory_nodes.clone()))
}

/// What the placer is to know of the VM. Who is pinned or has memory on several nodes is left alone.
fn placed(topology: &Topology, (number, vm): (usize, &Vm)) -> Placed {
    let cpus = vm.pin.as_ref().map(|pin| pin.cpus());
    let nodes = cpus.iter().flat_map(|cpus| cpus.cpus());
    let nodes: Vec<u32> = nodes.map(|&cpu| topology.node_of[cpu as usize]).collect();
    let on_nodes = parts_on_nodes(&nodes);
    let only = on_nodes.keys().next().copied().filter(|_| on_nodes.len() == 1);
    let others = match vm.home {
        Some(_) => None,
        None if vm.pin.is_some() => Some(only),
        None => (vm.memory_nodes.len() > 1).then_some(None),
    };
    let seen = Seen {
        id: number as u64,
        name: vm.name.clone(),
        vcpus: vm.vcpus,
        reserved_pcpus: f64::from(vm.reservation_pct) / 100.0,
        on_nodes,
        max_per_node: vm.max_per_node,
        consolidate: vm.consolidate,
        ordered: vm.home,
        placed_by_others: others,
        ..Seen::default()
    };
    let memory_mib = f64::from(vm.memory_mib.max(1));
    Placed { seen, memory_mib, nodes: vm.memory_nodes.clone(), division: None }
}

/// What a trace calls the VM; those behind the case's own are the host's tasks.
fn name_of(case: &Case, vm: u32) -> String {
    case.vms.get(vm as usize).map_or_else(|| "host".to_owned(), |vm| vm.name.clone())
}

/// A thread that is no VM's, which sleeps and works from a moment of its own.
fn add_host_task<C: Class>(
    sim: &mut Sim<C>,
    wakeups_per_s: u32,
    work_us: u32,
    mask: u32,
    rng: &mut Rng,
) {
    let period_us = 1_000_000 / wakeups_per_s;
    let workload = Workload::Sleep { period_us, work_us };
    let programs = Programs::of(&workload, 1).expect("a workload of the simulator's");
    let process = sim.add_vm(&programs, Shares::NORMAL, mask);
    sim.set_helpers(process, 1);
    sim.plan(0, Plan::Start(process));
    let begin_ns = rng.below(u64::from(period_us) * 1000);
    for task in sim.tasks_of(process) {
        sim.plan(begin_ns, Plan::Wake(task));
    }
}

/// What the case asks for the VM beyond its shares. Pools keep the places the tree has them in,
/// behind the root; partitions theirs, behind `default`.
fn bounds(case: &Case, vm: &Vm) -> VmBounds {
    let pool = vm.pool.as_deref().and_then(|pool| case.pools.find(pool));
    let partition = vm.partition.as_deref().and_then(|name| case.partitions.find(name));
    VmBounds {
        reservation_mcpu: 10 * vm.reservation_pct,
        limit_mcpu: vm.limit_pct.map_or(0, |pct| 10 * pct),
        pool: pool.map_or(0, |pool| pool as u32 + 1),
        cosched: vm.cosched.unwrap_or_default(),
        home: vm.home.map_or(0, |node| node + 1),
        partition: partition.map_or(0, |partition| partition as u32 + 1),
    }
}

/// What arranges partitions, where the case asks for it.
fn arranging(job: &Job) -> Option<Box<Arranging>> {
    let vms = job.case.vms.iter().map(|vm| arranged(job.case, vm)).collect();
    let asked = job.case.auto_partitions && job.rival.is_none();
    asked.then(|| Box::new(Arranging::new(job.case.partitions.clone(), vms)))
}

/// The VM as its partition is chosen for it: people's choices, and what only `default` has, count.
fn arranged(case: &Case, vm: &Vm) -> Arranged {
    let stays = vm.partition.is_some()
        || vm.pin.is_some()
        || vm.pool.is_some()
        || vm.reservation_pct > 0
        || vm.cosched.is_some();
    let stays = stays.then(|| "the scenario says so".to_owned());
    Arranged { name: vm.name.clone(), bounds: bounds(case, vm), stays }
}

/// The domains that partitions need beyond those of an undivided host.
fn spare_domains(m: &Machine, case: &Case) -> u32 {
    let domains = |spec: &PartitionSpec| {
        let domains = spec.cpus.cpus().iter().map(|&cpu| m.topology.domain_of[cpu as usize]);
        domains.collect::<BTreeSet<_>>().len() as u32
    };
    let of_auto = if case.auto_partitions { 2 * m.topology.llc_of_domain.len() as u32 } else { 0 };
    case.partitions.specs().iter().map(domains).sum::<u32>() + of_auto
}

fn set_partitions<C: Class>(sim: &mut Sim<C>, scenario: &Scenario, partitions: &Partitions) {
    for (index, spec) in partitions.specs().iter().enumerate() {
        let slice_ns = match (spec.slice_ns, spec.policy) {
            (None, PartitionPolicy::Share) => scenario.policy.slice_ns,
            _ => spec.slice_ns(),
        };
        let settings = PartitionSettings { policy: spec.policy, slice_ns };
        sim.class.set_partition(&mut sim.m, index as u32 + 1, spec.cpus.cpus(), settings);
    }
}

fn set_pools<C: Class>(sim: &mut Sim<C>, pools: &Tree) {
    for (index, pool) in pools.pools().iter().enumerate() {
        let settings = PoolSettings {
            parent: PoolId(pool.parent.map_or(0, |parent| parent as u32 + 1)),
            shares: pool.spec.shares.of_pool(),
            reservation_mcpu: pool.spec.reservation_mcpu,
            limit_mcpu: pool.spec.limit_mcpu,
            burst_us: pool.spec.burst_us,
        };
        sim.class.set_pool(&mut sim.m, index as u32 + 1, Some(&settings));
    }
}

fn add_vm<C: Class>(
    sim: &mut Sim<C>,
    scenario: &Scenario,
    (vm, case): (&Vm, &Case),
    rng: &mut Rng,
) {
    let warmup_ns = ns(scenario.warmup_s);
    let workload = vm.workload_since_go(scenario.warmup_s);
    let programs = Programs::of(&workload, vm.vcpus).expect("Linux guests were refused");
    let pcpus = sim.m.topology.pcpus();
    let mut mask_of =
        |cpus: &CpuList| sim.m.mask_of(&CpuSet::of(pcpus, cpus.cpus().iter().copied()));
    let mask = vm.pin.as_ref().map_or(0, |pin| mask_of(&pin.cpus()));
    let of_vcpus: Vec<u32> = match &vm.pin {
        None => vec![0; vm.vcpus as usize],
        Some(pin) => (0..vm.vcpus).map(|vcpu| mask_of(pin.of_vcpu(vcpu))).collect(),
    };
    let number = sim.add_vm(&programs, vm.shares, mask);
    sim.class.set_bounds(&mut sim.m, number, bounds(case, vm));
    let start_ns = vm.start_s.map_or(0, |start_s| warmup_ns + ns(start_s));
    sim.plan(start_ns, Plan::Start(number));
    let begin_ns = start_ns + rng.below(SPREAD_NS);
    // What comes after the vCPUs are threads of the VMM.
    let masks = of_vcpus.into_iter().chain(std::iter::repeat(mask));
    for (task, mask) in sim.tasks_of(number).zip(masks) {
        sim.m.tasks[task as usize].mask = mask;
        let homes: Vec<u32> = sim.m.masks[mask as usize].iter().collect();
        sim.m.tasks[task as usize].pcpu = *rng.pick(&homes);
        sim.plan(begin_ns + rng.below(SPREAD_NS / 4), Plan::Wake(task));
    }
    if let Some(stop_s) = vm.stop_s {
        sim.plan(warmup_ns + ns(stop_s), Plan::Kill(number));
    }
}

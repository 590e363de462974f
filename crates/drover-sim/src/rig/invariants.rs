// SPDX-License-Identifier: GPL-2.0-only
//! What must hold at every moment, whatever is done to the policy.
//!
//! docs/simulator.md lists them, with the planted bug that shows each to fire.

use super::delays::Delays;
use super::limits::Limits;
use super::partitions::Partitions;
use crate::machine::{TaskId, TaskState, interrupt_source};
use crate::scx::native::{self, DROVER_DOMAIN_PCPUS};
use crate::scx::{Scx, Stands};
use crate::sim::Sim;
use std::collections::BTreeMap;

/// A pCPU that has been idle so long beside a thread that has waited so long is wrong.
const IDLE_BESIDE_WAITER_NS: u64 = 2_000_000;
/// A VM that waits for its vCPUs to start together stands still no longer than this.
const STANDS_STILL_NS: u64 = 100_000_000;

/// What is remembered from one look to the next.
#[derive(Debug, Default)]
pub struct Invariants {
    /// Of each domain.
    clocks_ns: Vec<u64>,
    /// Of each VM: since when it has stood still although a pCPU rested beside it.
    refused_ns: BTreeMap<u32, u64>,
    /// Of each task: where it may run, whether that is one single pCPU, and since when.
    places: Vec<Place>,
    /// When real-time tasks came, and for how long.
    taken: Vec<(u64, u64)>,
    /// What limits brought.
    limits: Limits,
    /// What is guaranteed.
    delays: Delays,
    /// Who may be where.
    partitions: Partitions,
    /// When who may run where last changed, or the policy's clock: nobody rested in vain before.
    pub changed_ns: u64,
    /// Until then pCPUs may rest that were given to others' partitions.
    roused_by_ns: u64,
    /// Kicks take this much longer at worst.
    pub kicks_late_ns: u64,
}

/// Where a task may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    /// Which of the machine's masks.
    mask: u32,
    /// Only one pCPU of it is online, of several.
    single: bool,
    since_ns: u64,
}

impl Invariants {
    /// What is broken, if anything.
    pub fn look(&mut self, sim: &mut Sim<Scx>) -> Result<(), String> {
        everybody_stands_somewhere(sim)?;
        counts_agree(sim)?;
        books_of_vcpus_agree(sim)?;
        tournaments_are_in_order(sim)?;
        slots_are_held_by_threads(sim)?;
        self.nobody_rests_beside_waiters(sim)?;
        self.note_places(sim);
        self.nobody_waits_too_long(sim)?;
        self.partitions.nobody_runs_elsewhere(sim, self.kicks_late_ns)?;
        let since_ns = |task: usize| {
            let (place_ns, waits) = (self.places[task].since_ns, &sim.m.tasks[task]);
            // Who waits where it was before its partition changed is served there.
            if self.partitions.waits_since_before(waits) { sim.m.now_ns } else { place_ns }
        };
        let taken_ns = |begun_ns: u64| taken_since_ns(&self.taken, begun_ns);
        self.delays.look(sim, since_ns, taken_ns, self.kicks_late_ns)?;
        self.limits.look(sim, self.kicks_late_ns)?;
        self.limits.nobody_is_held_for_long(sim, self.kicks_late_ns + self.delays.late_ns)?;
        self.virtual_time_moves_forward(sim)
    }

    /// What is asked for the VM was changed: whether it is held is asked anew.
    pub fn bounds_changed(&mut self, vm: u32, now_ns: u64) {
        self.refused_ns.remove(&vm);
        // One that was at its limit may be free, and its pCPUs rest.
        self.changed_ns = now_ns;
        self.limits.begin_anew();
        self.delays.vm_changed(vm, now_ns);
    }

    /// The VM is in another partition.
    pub fn joined(&mut self, vm: u32, now_ns: u64) {
        self.bounds_changed(vm, now_ns);
        self.partitions.changed(now_ns);
    }

    /// Partitions are others; pCPUs that rest are roused by then.
    pub fn partitions_changed(&mut self, roused_by_ns: u64, slice_ns: u64, now_ns: u64) {
        self.pcpus_changed(now_ns);
        self.limits.begin_anew();
        self.partitions.begin(slice_ns);
        self.roused_by_ns = roused_by_ns;
    }

    /// What is asked for a pool was changed.
    pub fn pools_changed(&mut self, now_ns: u64) {
        self.changed_ns = now_ns;
        self.limits.begin_anew();
        self.delays.all_changed(now_ns);
    }

    /// Has everybody been charged what they had?
    pub fn charges_agree(&self, sim: &Sim<Scx>) -> Result<(), String> {
        charges_agree(sim, self.partitions.longest_slice_ns)
    }

    /// A pCPU goes or comes.
    pub fn pcpus_changed(&mut self, now_ns: u64) {
        self.changed_ns = now_ns;
        self.delays.all_changed(now_ns);
        self.partitions.changed(now_ns);
    }

    /// A real-time task takes a pCPU for so long.
    pub fn taken(&mut self, now_ns: u64, for_ns: u64) {
        self.taken.push((now_ns, for_ns));
    }

    /// A timer will be that late.
    pub fn come_late(&mut self, late_ns: u64) {
        self.delays.late_ns = self.delays.late_ns.max(late_ns);
    }

    /// The clock the policy reads jumps by so much, and is off by so much from now on.
    pub fn clock_jumped(&mut self, sim: &Sim<Scx>, (by_ns, off_ns): (u64, u64)) {
        self.limits.clock_jumped(sim, by_ns);
        // How long a VM is held is measured by that clock.
        (self.changed_ns, self.refused_ns) = (sim.m.now_ns, BTreeMap::new());
        // From that much early to that much late.
        self.come_late(2 * off_ns);
    }

    fn virtual_time_moves_forward(&mut self, sim: &Sim<Scx>) -> Result<(), String> {
        let domains = 0..sim.class.domains();
        let now_ns: Vec<u64> = domains.map(|domain| sim.class.policy.clock_ns(domain)).collect();
        let before_ns = std::mem::replace(&mut self.clocks_ns, now_ns.clone());
        for (domain, (now_ns, before_ns)) in now_ns.iter().zip(&before_ns).enumerate() {
            if (now_ns.wrapping_sub(*before_ns) as i64) < 0 {
                return Err(format!(
                    "virtual time of domain {domain} went back from {before_ns} to {now_ns}"
                ));
            }
        }
        Ok(())
    }

    fn nobody_rests_beside_waiters(&mut self, sim: &Sim<Scx>) -> Result<(), String> {
        let m = &sim.m;
        let grace_ns = IDLE_BESIDE_WAITER_NS + 2 * self.kicks_late_ns;
        let known_ns = self.changed_ns.max(self.roused_by_ns);
        let rests_since_ns = |cpu: u32| m.pcpus[cpu as usize].idle_since_ns.max(known_ns);
        let rested = |cpu: &u32| {
            m.online.contains(*cpu)
                && m.current(*cpu).is_none()
                && !m.is_taken(*cpu)
                && m.events.when(interrupt_source(&m.pcpus, *cpu)).is_none()
                && m.now_ns.saturating_sub(rests_since_ns(*cpu)) > grace_ns
        };
        let mut resting: Vec<u32> = (0..m.pcpus.len() as u32).filter(rested).collect();
        if resting.is_empty() {
            return Ok(());
        }
        resting.sort_by_key(|&cpu| rests_since_ns(cpu));
        let moved_ns = last_ran_ns(sim);
        for (task, known) in m.tasks.iter().enumerate() {
            // One that has a limit may have had what it allows.
            let bounds = sim.class.bounds_of(known.vm);
            let capped = sim.class.is_capped(known.vm);
            // Who stands in a local queue is next there, unless a real-time task has that pCPU.
            let on_its_way = match sim.class.queues.stands(task as TaskId) {
                Stands::Local(at) => known.leaving || !m.is_taken(at),
                _ => false,
            };
            let waits = known.state == TaskState::Ready
                && m.now_ns.saturating_sub(known.ready_since_ns) > grace_ns
                && !capped
                && !on_its_way
                && !sim.class.policy.at_limit(task as TaskId);
            let beside = resting.iter().find(|&&cpu| {
                m.may_run_on(task as TaskId, cpu)
                    && self.partitions.serves(sim, task as TaskId, cpu)
            });
            let Some(&cpu) = beside.filter(|_| waits) else { continue };
            if bounds.cosched.may_wait() {
                // It may rather wait than run in part, but not stand still so for long.
                let still_ns = moved_ns[known.vm as usize];
                let refused_ns = self.refused_ns.entry(known.vm).or_insert(u64::MAX);
                if *refused_ns < still_ns {
                    *refused_ns = u64::MAX;
                }
                *refused_ns = (*refused_ns).min(still_ns.max(rests_since_ns(cpu)));
                // A timer ends that.
                if m.now_ns - *refused_ns <= grace_ns + STANDS_STILL_NS + self.delays.late_ns {
                    continue;
                }
            }
            let waited_us = (m.now_ns - known.ready_since_ns) / 1000;
            return Err(format!(
                "pCPU {cpu} rests while task {task}, which may run there, waits for {waited_us} us"
            ));
        }
        // Who rests must be in the kernel's mask, or no wake-up finds it.
        match resting.iter().find(|&&cpu| !m.idle.contains(cpu)) {
            Some(cpu) => Err(format!("pCPU {cpu} rests and is not known to be idle")),
            None => Ok(()),
        }
    }

    /// Who may run where, and since when.
    fn note_places(&mut self, sim: &Sim<Scx>) {
        let m = &sim.m;
        for (task, known) in m.tasks.iter().enumerate() {
            let left = m.allowed(task as TaskId).count_common(&m.online);
            let single = left == 1 && m.online.count() > 1;
            let now = Place { mask: known.mask, single, since_ns: self.changed_ns };
            match self.places.get_mut(task) {
                None => self.places.push(Place { since_ns: 0, ..now }),
                Some(place) if (place.mask, place.single) != (now.mask, single) => *place = now,
                Some(_) => {}
            }
        }
    }

    /// Nobody is kept waiting beyond what policy/guarantee/wait_bound.h promises: no VM goes unserved for
    /// longer than one thread alone may wait, twice the wait bound and a quarter, no thread without a
    /// turn for longer than three times B, none of one single pCPU for longer than the bound and B; and
    /// on top the time until the next look (timers may be late), a turn of all who may stand before, and
    /// what real-time tasks take. All processes of the host count as one VM. Who is confined or freed as
    /// he waits waits anew, elsewhere. No thread at all waits as long as the kernel's watchdog suffers.
    fn nobody_waits_too_long(&self, sim: &Sim<Scx>) -> Result<(), String> {
        let bound_ns = sim.class.policy.params().wait_bound_ns;
        let m = &sim.m;
        let present = m.tasks.iter().filter(|task| task.state != TaskState::Absent).count() as u64;
        let slice_ns = sim.class.policy.params().slice_ns.max(self.partitions.longest_slice_ns);
        let unasked_ns = slice_ns + m.costs.tick_interval_ns;
        let host = sim.vms.len();
        // A process is a VM from when one of its threads was seen inside KVM_RUN.
        let found = |task: usize| sim.class.policy.thread(task as TaskId).slot != 0;
        let books_of = |task: usize| if found(task) { m.tasks[task].vm as usize } else { host };
        let (mut served_ns, mut threads) = (vec![0; host + 1], vec![0; host + 1]);
        for (task, known) in m.tasks.iter().enumerate() {
            threads[books_of(task)] += u64::from(known.state != TaskState::Absent);
            if !self.places[task].single {
                let served_ns = &mut served_ns[books_of(task)];
                *served_ns = known.accounted_ns.max(*served_ns);
            }
        }
        for (task, known) in m.tasks.iter().enumerate() {
            if known.state != TaskState::Ready {
                continue;
            }
            let Place { single, since_ns, .. } = self.places[task];
            let (of_set, of_domain) = match self.partitions.waits_since_before(known) {
                true => (1, 1),
                false => pcpus_left(sim, task as TaskId),
            };
            let capped = sim.class.is_capped(known.vm);
            let held_ns =
                if sim.class.bounds_of(known.vm).cosched.may_wait() { STANDS_STILL_NS } else { 0 };
            let taken_ns = taken_since_ns(&self.taken, known.ready_since_ns);
            let slack_ns = bound_ns + 2 * present * unasked_ns / of_set + held_ns + taken_ns;
            let waited_ns = m.now_ns.saturating_sub(known.ready_since_ns);
            let waited_so_ns = waited_ns.min(m.now_ns - since_ns);
            let unserved_ns = m.now_ns.saturating_sub(served_ns[books_of(task)]);
            let of_vm_ns = waited_so_ns.min(unserved_ns);
            // Those of its VM that were found since began to wait beside it, as the host's.
            let found_since = if found(task) || known.vm as usize >= host {
                0
            } else {
                threads[known.vm as usize]
            };
            let n = threads[books_of(task)] + found_since;
            let most_ns = match single {
                true => bound_ns + turn_bound_ns(bound_ns, present, 1),
                false => 3 * turn_bound_ns(bound_ns, n, of_domain),
            } + slack_ns;
            // What a limit holds back is bound by the watchdog only.
            let most_ns = if capped { WATCHDOG_NS } else { most_ns };
            let vm_most_ns = bound_ns + bound_ns / 4 + slack_ns;
            // Of those not found yet each runs once as a task of the host, and is its VM's then.
            let vm_starves = found(task) && !single && !capped && of_vm_ns > vm_most_ns;
            if vm_starves || waited_so_ns > most_ns || waited_ns > WATCHDOG_NS {
                return Err(format!(
                    "task {task} has waited {} ms, its VM {} ms; it may {} ms, its VM {} ms",
                    waited_so_ns / 1_000_000,
                    of_vm_ns / 1_000_000,
                    most_ns.min(WATCHDOG_NS) / 1_000_000,
                    vm_most_ns / 1_000_000
                ));
            }
        }
        Ok(())
    }
}

/// How many pCPUs are left to a task: in all, and in the domain where it has the fewest.
fn pcpus_left(sim: &Sim<Scx>, task: TaskId) -> (u64, u64) {
    let reach = sim.class.reach_of(&sim.m, task);
    let left = || reach.iter().map(Vec::len);
    (left().sum::<usize>().max(1) as u64, left().min().unwrap_or(1) as u64)
}

/// What real-time tasks took of all pCPUs since then, at most.
fn taken_since_ns(taken: &[(u64, u64)], begun_ns: u64) -> u64 {
    let since = taken.iter().filter(|(at_ns, for_ns)| at_ns + for_ns > begun_ns);
    since.map(|(_, for_ns)| for_ns).sum()
}

/// When any thread of each VM last ran, or began to wait with none running.
fn last_ran_ns(sim: &Sim<Scx>) -> Vec<u64> {
    let m = &sim.m;
    let mut moved_ns = vec![0; sim.vms.len()];
    for known in &m.tasks {
        let at_ns = match known.state {
            TaskState::Running => m.now_ns,
            _ => known.accounted_ns,
        };
        let of_vm_ns = &mut moved_ns[known.vm as usize];
        *of_vm_ns = at_ns.max(*of_vm_ns);
    }
    moved_ns
}

fn everybody_stands_somewhere(sim: &Sim<Scx>) -> Result<(), String> {
    for (task, known) in sim.m.tasks.iter().enumerate() {
        let stands = sim.class.queues.stands(task as TaskId);
        let ready = known.state == TaskState::Ready;
        if ready && stands == Stands::Nowhere {
            return Err(format!("task {task} is ready and stands in no queue: it is forgotten"));
        }
        if !ready && stands != Stands::Nowhere {
            return Err(format!("task {task} is {:?} and stands in a queue", known.state));
        }
        let view = sim.class.policy.thread(task as TaskId);
        if !ready && (view.ready_since_ns | u64::from(view.queued_in | view.pinned_at)) != 0 {
            return Err(format!("task {task} is {:?}, the policy believes it waits", known.state));
        }
    }
    Ok(())
}

fn counts_agree(sim: &mut Sim<Scx>) -> Result<(), String> {
    let mut queued: BTreeMap<(u32, u32), u32> = BTreeMap::new();
    let mut pinned: BTreeMap<u32, u32> = BTreeMap::new();
    let mut waiting: BTreeMap<u32, u32> = BTreeMap::new();
    for task in 0..sim.m.tasks.len() as TaskId {
        let native::thread { slot, queued_in, pinned_at, ready_since_ns, .. } =
            *sim.class.policy.thread(task);
        if queued_in > 0 {
            *queued.entry((queued_in - 1, slot)).or_default() += 1;
        }
        if pinned_at > 0 {
            // policy/queue/affinity.h
            *pinned.entry(pinned_at / DROVER_DOMAIN_PCPUS - 1).or_default() += 1;
        }
        if ready_since_ns > 0 {
            *waiting.entry(slot).or_default() += 1;
        }
    }
    let class = &mut sim.class;
    let same = |what: &dyn Fn() -> String, counted: u32, real: u32| match counted == real {
        true => Ok(()),
        false => Err(format!("{}: the policy counts {counted}, there are {real}", what())),
    };
    for slot in 0..class.policy.slots_in_use() {
        for domain in 0..class.domains() {
            let counted = class.queues.queued(domain, slot);
            let real = queued.get(&(domain, slot)).copied().unwrap_or(0);
            same(&|| format!("threads of slot {slot} waiting in domain {domain}"), counted, real)?;
        }
        let real = waiting.get(&slot).copied().unwrap_or(0);
        same(
            &|| format!("waiting threads of slot {slot}"),
            class.policy.vm(slot).nr_waiting,
            real,
        )?;
    }
    for cpu in 0..sim.m.pcpus.len() as u32 {
        let real = pinned.get(&cpu).copied().unwrap_or(0);
        same(&|| format!("threads waiting for pCPU {cpu}"), class.policy.pinned_on(cpu), real)?;
    }
    Ok(())
}

/// What the policy counts of VMs, by mode and by what is asked, and of their vCPUs.
fn books_of_vcpus_agree(sim: &mut Sim<Scx>) -> Result<(), String> {
    let class = &mut sim.class;
    match class.policy.miscounted(&mut sim.m, &mut class.queues) {
        None => Ok(()),
        Some((what, 0)) => Err(format!("the policy counts too many or too few {what}")),
        Some((what, slot)) => Err(format!("the policy miscounts the {what} of slot {slot}")),
    }
}

fn tournaments_are_in_order(sim: &mut Sim<Scx>) -> Result<(), String> {
    for domain in 0..sim.class.domains() {
        let class = &mut sim.class;
        let wrong = class.policy.check_tournament(&mut sim.m, &mut class.queues, domain);
        if wrong != 0 {
            let at = wrong - 1;
            return Err(format!("the tournament of domain {domain} is wrong at slot or node {at}"));
        }
    }
    Ok(())
}

/// Every slot in use has as many threads attached as say so, and what has none is free again.
fn slots_are_held_by_threads(sim: &Sim<Scx>) -> Result<(), String> {
    let mut attached: BTreeMap<u32, u32> = BTreeMap::new();
    for (task, known) in sim.m.tasks.iter().enumerate() {
        let slot = sim.class.policy.thread(task as TaskId).slot;
        if known.state != TaskState::Absent && slot != 0 {
            *attached.entry(slot).or_default() += 1;
        }
    }
    let mut live = 0;
    for slot in 1..sim.class.policy.slots_in_use() {
        let vm = sim.class.policy.vm(slot);
        let real = attached.get(&slot).copied().unwrap_or(0);
        if vm.is_live() {
            live += 1;
        }
        if vm.nr_threads != real || vm.is_live() != (real > 0) {
            return Err(format!(
                "slot {slot} is {}, holds {} threads and has {real}",
                if vm.is_live() { "live" } else { "free" },
                vm.nr_threads
            ));
        }
    }
    let (free, all) = sim.class.queues.slots();
    if free + live != all {
        return Err(format!("of {all} slots {live} are in use and only {free} free"));
    }
    Ok(())
}

/// How long each of `threads` that wait for `pcpus` may wait for its turn: B(n, p) of
/// policy/guarantee/wait_bound.h, written down a second time.
fn turn_bound_ns(bound_ns: u64, threads: u64, pcpus: u64) -> u64 {
    (threads * 200_000_000 / pcpus).clamp(bound_ns, 8 * bound_ns)
}

/// The timeout Drover asks of the kernel's watchdog (bpf/drover.bpf.c).
const WATCHDOG_NS: u64 = 26_000_000_000;

/// What the policy charged everybody together, the host's own tasks too, is the CPU time all
/// received: none is lost and none charged twice.
fn charges_agree(sim: &Sim<Scx>, longest_slice_ns: u64) -> Result<(), String> {
    let slots = 0..sim.class.policy.slots_in_use();
    let charged = slots.map(|slot| sim.class.policy.vm(slot));
    let charged_ns: u64 =
        charged.map(|vm| vm.counters.vcpu_run_ns + vm.counters.helper_run_ns).sum();
    let real_ns: u64 = (0..sim.m.tasks.len() as TaskId).map(|t| sim.m.cpu_time_now_ns(t)).sum();
    // A thread that goes on is charged when its slice is over, and at the tick then.
    let charged_late_ns = KERNELS_SLICE_NS.max(longest_slice_ns) + 2 * sim.m.costs.tick_interval_ns;
    let late_ns = sim.m.pcpus.len() as u64 * charged_late_ns;
    let slots = 0..sim.class.policy.slots_in_use();
    let smt_discount_ns: u64 =
        slots.map(|slot| sim.class.policy.vm(slot).counters.smt_discount_ns).sum();
    let most_ns = if sim.m.topology.threads == 2 { charged_ns * 3 / 8 } else { 0 };
    if smt_discount_ns > most_ns {
        return Err(format!(
            "{smt_discount_ns} ns were spared of {charged_ns}, {most_ns} at most may be"
        ));
    }
    if charged_ns > real_ns || real_ns - charged_ns > late_ns {
        return Err(format!(
            "CPU time charged is {} us, threads had {} us",
            charged_ns / 1000,
            real_ns / 1000
        ));
    }
    Ok(())
}

/// What the kernel gives who goes on unasked.
const KERNELS_SLICE_NS: u64 = 20_000_000;

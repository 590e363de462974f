// SPDX-License-Identifier: GPL-2.0-only
//! CFS as of Linux 3.6, as a scheduler of the simulator: what seed 002's figures were measured with.
//!
//! Idea. Every pCPU has a run queue with two levels, groups (one for each VM, as libvirt makes a
//! cgroup for each) and their tasks. Whoever has had the least virtual time runs, for its part of a
//! latency in which everybody is to run once. A directed yield makes the target the *next* buddy
//! and the yielder the *skip* buddy of their queues: the target runs if that is hardly unfair, and
//! the yielder lets another go first, if there is one.
//!
//! What is kept, by the kernel's names: sched_latency 6 ms, min_granularity 0.75 ms and
//! wakeup_granularity 1 ms, each times 1 + log2(pCPUs up to 8); sched_slice over both levels, check
//! at the tick; place_entity with GENTLE_FAIR_SLEEPERS; wake-up preemption with LAST_BUDDY; buddies
//! next, last and skip; yield_to; select_idle_sibling (a whole core first); idle, nohz and periodic
//! balancing by domain (core, cache, host) and load.
//!
//! Worked example. Two pCPUs' worth: vCPU a of VM 0 and vCPU b of VM 1 share a pCPU of a host with
//! eight. Each has half of 24 ms, so a spins 12 ms for a lock whose holder waits elsewhere, unless a
//! pause-loop exit yields: then b is tried at once, for a is to be skipped, and the holder is next
//! where it waits, if it is not more than 4 ms ahead there.
//!
//! What is left out. Averages of group load (shares follow the number of ready vCPUs at once); the
//! limits of idle balancing (avg_idle); groups of pCPUs in load balancing (queues are compared one
//! by one), active balancing, cpu_power, asymmetric packing; wake_affine and sync wake-ups; cache
//! hotness; autogroup, bandwidth, nice levels (every vCPU has nice 0).

mod balance;
mod entity;
mod numa;
mod rq;

use drover_core::counters::VmCounters;
use drover_sim::class::{Class, VmTerms};
use drover_sim::costs::{Costs, PauseLoop};
use drover_sim::machine::{CLASS_TIMER, Machine, TaskId, TaskState};
use drover_sim::scenario::rival::Rival;
use entity::{Buddies, Entity, NICE_0, pick, preempts};
use numa::{Kind, Numa};
use rq::Rq;

/// kernel/sched/fair.c: normalized_sysctl_sched_*, for one pCPU.
const LATENCY_NS: u64 = 6_000_000;
const MIN_GRANULARITY_NS: u64 = 750_000;
const WAKEUP_GRANULARITY_NS: u64 = 1_000_000;
/// So many run within a latency; more make it longer.
const NR_LATENCY: u64 = 8;
/// The least a group weighs on a pCPU (MIN_SHARES).
const SHARES_MIN: u64 = 2;

/// CFS on every pCPU.
#[derive(Debug)]
pub struct Cfs36 {
    rqs: Vec<Rq>,
    /// The entity of each task.
    tasks: Vec<Entity>,
    /// Which run queue each task is on, if any.
    on: Vec<Option<u32>>,
    /// Weight of each VM's group, and how many of its tasks are on run queues.
    groups: Vec<(u64, u64)>,
    /// 1 + log2(pCPUs up to 8).
    factor: u64,
    /// What moves threads and memory to each other; none: nothing does.
    numa: Option<Box<Numa>>,
}

impl Rival for Cfs36 {
    type Class = Self;

    const NAME: &'static str = "cfs36";

    fn new(m: &Machine) -> Self {
        let pcpus = m.pcpus.len() as u64;
        Self {
            rqs: (0..pcpus).map(|_| Rq::default()).collect(),
            tasks: Vec::new(),
            on: Vec::new(),
            groups: Vec::new(),
            factor: 1 + u64::from(pcpus.min(8).ilog2()),
            numa: None,
        }
    }

    fn set_host(costs: &mut Costs) {
        costs.pause_loop = costs.pause_loop.take().map(|_| PauseLoop::linux_3_6());
    }
}

/// The same scheduler with the two fixes of yield_to() that seed 002 names: candidates that cannot hold a lock are
/// passed over for nothing, and nobody locks both run queues where yielding is in vain. Both are in the KVM of
/// today; its window that grows is not taken over.
#[derive(Debug)]
pub struct CheaperYield;

impl Rival for CheaperYield {
    type Class = Cfs36;

    const NAME: &'static str = "cfs36-cheaper-yield";

    fn new(m: &Machine) -> Cfs36 {
        Cfs36::new(m)
    }

    fn set_host(costs: &mut Costs) {
        let today = |_| PauseLoop { grow: 1, ..PauseLoop::linux_6_18() };
        costs.pause_loop = costs.pause_loop.take().map(today);
    }
}

/// The same scheduler with seed 002's throttled yield_to(): one a jiffy, and at other exits a plain yield().
#[derive(Debug)]
pub struct ThrottledYield;

impl Rival for ThrottledYield {
    type Class = Cfs36;

    const NAME: &'static str = "cfs36-throttled-yield";

    fn new(m: &Machine) -> Cfs36 {
        Cfs36::new(m)
    }

    fn set_host(costs: &mut Costs) {
        let throttled = |_| PauseLoop { throttled: true, ..PauseLoop::linux_3_6() };
        costs.pause_loop = costs.pause_loop.take().map(throttled);
    }
}

/// The same scheduler with AutoNUMA.
#[derive(Debug)]
pub struct AutoNuma;

impl Rival for AutoNuma {
    type Class = Cfs36;

    const NAME: &'static str = "cfs36-autonuma";

    fn new(m: &Machine) -> Cfs36 {
        Cfs36::new(m).with(Kind::Auto { slower: 1 }, m)
    }
}

/// ... which scans memory at a third of the rate.
#[derive(Debug)]
pub struct AutoNumaSlowly;

impl Rival for AutoNumaSlowly {
    type Class = Cfs36;

    const NAME: &'static str = "cfs36-autonuma-slowly";

    fn new(m: &Machine) -> Cfs36 {
        Cfs36::new(m).with(Kind::Auto { slower: 3 }, m)
    }
}

/// The same scheduler with SchedNUMA.
#[derive(Debug)]
pub struct SchedNuma;

impl Rival for SchedNuma {
    type Class = Cfs36;

    const NAME: &'static str = "cfs36-schednuma";

    fn new(m: &Machine) -> Cfs36 {
        Cfs36::new(m).with(Kind::Home, m)
    }
}

impl Cfs36 {
    fn with(self, kind: Kind, m: &Machine) -> Self {
        Self { numa: Some(Box::new(Numa::new(kind, m))), ..self }
    }

    fn granularity_ns(&self) -> u64 {
        WAKEUP_GRANULARITY_NS * self.factor
    }

    /// __sched_period: in what time so many are to run once.
    fn period_ns(&self, nr: u64) -> u64 {
        let least = MIN_GRANULARITY_NS * self.factor;
        if nr > NR_LATENCY { least * nr } else { LATENCY_NS * self.factor }
    }

    fn update(&mut self, m: &mut Machine, cpu: u32) {
        let ran_ns = m.account(cpu);
        if let (Some(task), true) = (m.current(cpu), ran_ns > 0) {
            self.ran(m, cpu, task, ran_ns);
        }
    }

    /// calc_cfs_shares: on each pCPU the group weighs its part of the group's tasks there.
    fn update_shares(&mut self, cpu: u32, vm: u32) {
        let (shares, all) = self.groups[vm as usize];
        let rq = &mut self.rqs[cpu as usize];
        let at = rq.group_at(vm);
        let here = rq.groups[at].tasks.len() as u64;
        if here > 0 {
            rq.groups[at].entity.weight = (shares * here / all.max(here)).max(SHARES_MIN);
        }
    }

    /// The task joins a run queue, at that distance from its least virtual time; one that wakes is
    /// not left too far behind.
    fn enqueue(&mut self, m: &mut Machine, cpu: u32, task: TaskId, apart: u64, wakes: bool) {
        debug_assert!(self.on[task as usize].is_none());
        let vm = m.tasks[task as usize].vm;
        let latency_ns = LATENCY_NS * self.factor;
        m.tasks[task as usize].pcpu = cpu;
        self.on[task as usize] = Some(cpu);
        self.groups[vm as usize].1 += 1;
        let rq = &mut self.rqs[cpu as usize];
        rq.nr += 1;
        let min_vruntime = rq.min_vruntime;
        let at = rq.group_at(vm);
        let group = &mut rq.groups[at];
        let entity = &mut self.tasks[task as usize];
        entity.vruntime = group.min_vruntime.wrapping_add(apart);
        if wakes {
            entity.place(group.min_vruntime, latency_ns);
        }
        if group.tasks.is_empty() {
            group.entity.place(min_vruntime, latency_ns);
        }
        group.tasks.push(task);
        self.update_shares(cpu, vm);
    }

    /// The task leaves its run queue; how far it was from the least virtual time there.
    fn dequeue(&mut self, m: &Machine, task: TaskId) -> u64 {
        let Some(cpu) = self.on[task as usize].take() else { return 0 };
        let vm = m.tasks[task as usize].vm;
        self.groups[vm as usize].1 -= 1;
        let rq = &mut self.rqs[cpu as usize];
        rq.nr -= 1;
        let at = rq.group_at(vm);
        let group = &mut rq.groups[at];
        let apart = self.tasks[task as usize].vruntime.wrapping_sub(group.min_vruntime);
        group.tasks.retain(|&other| other != task);
        group.buddies.clear(task);
        group.advance(&self.tasks);
        if group.tasks.is_empty() {
            rq.buddies.clear(vm);
        }
        rq.advance();
        self.update_shares(cpu, vm);
        apart
    }

    /// Moves a task that waits to another run queue.
    fn migrate(&mut self, m: &mut Machine, task: TaskId, to: u32) {
        if let Some(from) = self.on[task as usize] {
            self.update(m, from);
        }
        self.update(m, to);
        let apart = self.dequeue(m, task);
        self.enqueue(m, to, task, apart, false);
        m.counts.migrations += 1;
    }

    fn choose(&self, cpu: u32) -> Option<TaskId> {
        let rq = &self.rqs[cpu as usize];
        let vm = pick(rq.queued(), &rq.buddies, self.granularity_ns())?;
        let at = rq.groups.binary_search_by_key(&vm, |group| group.vm).ok()?;
        let group = &rq.groups[at];
        let tasks = group.tasks.iter().map(|&task| (task, &self.tasks[task as usize]));
        pick(tasks, &group.buddies, self.granularity_ns())
    }

    /// check_preempt_wakeup: does who has just come take the pCPU?
    fn preempt(&mut self, m: &mut Machine, cpu: u32, task: TaskId) {
        let Some(current) = m.current(cpu).filter(|_| !m.pcpus[cpu as usize].need_resched) else {
            m.resched(cpu);
            return;
        };
        let (mine, theirs) = (m.tasks[task as usize].vm, m.tasks[current as usize].vm);
        let rq = &mut self.rqs[cpu as usize];
        let (at, current_at) = (rq.group_at(mine), rq.group_at(theirs));
        // Both are there by now: making one does not move the other.
        let at = if mine == theirs { current_at } else { at };
        let groups = &rq.groups;
        let granularity_ns = WAKEUP_GRANULARITY_NS * self.factor;
        let wins = if mine == theirs {
            let (task, current) = (&self.tasks[task as usize], &self.tasks[current as usize]);
            preempts(current, task, granularity_ns)
        } else {
            preempts(&groups[current_at].entity, &groups[at].entity, granularity_ns)
        };
        if !wins {
            return;
        }
        // LAST_BUDDY: where many compete, the preempted one is to be back soon.
        if mine == theirs && rq.groups[at].tasks.len() as u64 >= NR_LATENCY {
            rq.groups[at].buddies.last = Some(current);
        }
        m.resched(cpu);
    }

    /// check_preempt_tick, at one level: has the running one had its slice, or is it far ahead?
    fn slice_over(&self, entity: &Entity, least: u64, slice_ns: u64) -> bool {
        if entity.ran_ns > slice_ns {
            return true;
        }
        let ahead = entity.vruntime.wrapping_sub(least) as i64;
        entity.ran_ns >= MIN_GRANULARITY_NS * self.factor && ahead > slice_ns as i64
    }
}

/// The least virtual time of the others.
fn least<'a>(entities: impl Iterator<Item = (u32, &'a Entity)>, but: u32) -> Option<u64> {
    let others = entities.filter(|(name, _)| *name != but).map(|(_, entity)| entity.vruntime);
    others.reduce(|a, b| if entity::before(b, a) { b } else { a })
}

impl Class for Cfs36 {
    fn start(&mut self, m: &mut Machine) {
        if let Some(numa) = &self.numa {
            numa.set_look(m);
        }
    }

    fn add(&mut self, m: &mut Machine, task: TaskId, terms: VmTerms) {
        let vm = m.tasks[task as usize].vm;
        if self.tasks.len() <= task as usize {
            self.tasks.resize(task as usize + 1, Entity::new());
            self.on.resize(task as usize + 1, None);
        }
        if self.groups.len() <= vm as usize {
            self.groups.resize(vm as usize + 1, (NICE_0, 0));
        }
        self.set_terms(m, vm, terms);
        if let Some(numa) = &mut self.numa {
            numa.add(m, task, terms.vcpus);
        }
    }

    fn set_terms(&mut self, _: &mut Machine, vm: u32, terms: VmTerms) {
        let weight = u64::from(terms.shares_of_all()) * NICE_0 / 1000;
        self.groups[vm as usize].0 = weight.clamp(SHARES_MIN, 1 << 18);
    }

    fn wake(&mut self, m: &mut Machine, task: TaskId) {
        let last = m.tasks[task as usize].pcpu;
        let cpu = self.select(m, task);
        m.counts.migrations += u64::from(cpu != last);
        self.update(m, cpu);
        let vm = m.tasks[task as usize].vm;
        let at = self.rqs[last as usize].group_at(vm);
        let least = self.rqs[last as usize].groups[at].min_vruntime;
        let apart = self.tasks[task as usize].vruntime.wrapping_sub(least);
        self.enqueue(m, cpu, task, apart, true);
        self.preempt(m, cpu, task);
    }

    fn stopped(&mut self, m: &mut Machine, _: u32, task: TaskId) {
        self.dequeue(m, task);
    }

    fn pick(
        &mut self,
        m: &mut Machine,
        cpu: u32,
        _: Option<TaskId>,
        ready: bool,
    ) -> Option<TaskId> {
        self.let_go(m, cpu, ready);
        if self.rqs[cpu as usize].nr == 0 && m.pcpus[cpu as usize].online && !self.expects(cpu) {
            self.pull_when_idle(m, cpu);
        }
        let chosen = self.choose(cpu)?;
        let vm = m.tasks[chosen as usize].vm;
        let rq = &mut self.rqs[cpu as usize];
        rq.buddies.clear(vm);
        let at = rq.group_at(vm);
        rq.groups[at].buddies.clear(chosen);
        // set_next_entity: a new slice begins, also for who goes on.
        rq.groups[at].entity.ran_ns = 0;
        self.tasks[chosen as usize].ran_ns = 0;
        Some(chosen)
    }

    fn put(&mut self, _: &mut Machine, _: u32, _: TaskId) {}

    fn set(&mut self, _: &mut Machine, _: u32, _: TaskId) {}

    fn rest(&mut self, _: &mut Machine, _: u32) {}

    fn ran(&mut self, m: &mut Machine, cpu: u32, task: TaskId, ran_ns: u64) {
        let vm = m.tasks[task as usize].vm;
        if let Some(numa) = &mut self.numa {
            numa.ran(m, cpu, vm, ran_ns);
        }
        self.tasks[task as usize].ran(ran_ns);
        let rq = &mut self.rqs[cpu as usize];
        let at = rq.group_at(vm);
        rq.groups[at].entity.ran(ran_ns);
        rq.groups[at].advance(&self.tasks);
        rq.advance();
    }

    fn tick(&mut self, m: &mut Machine, cpu: u32, task: TaskId) {
        let vm = m.tasks[task as usize].vm;
        let rq = &mut self.rqs[cpu as usize];
        let at = rq.group_at(vm);
        let (rq, group) = (&self.rqs[cpu as usize], &self.rqs[cpu as usize].groups[at]);
        let part = |ns: u64| ns * group.entity.weight / rq.weight().max(1);
        let (nr_tasks, nr_groups) = (group.tasks.len() as u64, rq.queued().count() as u64);
        let tasks = group.tasks.iter().map(|&task| (task, &self.tasks[task as usize]));
        let among_tasks = least(tasks, task).is_some_and(|least| {
            let slice_ns = part(self.period_ns(nr_tasks) / nr_tasks);
            self.slice_over(&self.tasks[task as usize], least, slice_ns)
        });
        let among_groups = least(rq.queued(), vm).is_some_and(|least| {
            self.slice_over(&group.entity, least, part(self.period_ns(nr_groups)))
        });
        if among_tasks || among_groups {
            let rq = &mut self.rqs[cpu as usize];
            rq.buddies.clear(vm);
            rq.groups[at].buddies.clear(task);
            m.resched(cpu);
        }
        self.balance_at_tick(m, cpu);
        self.numa_tick(m, cpu, task);
    }

    fn timer(&mut self, m: &mut Machine) {
        m.events.cancel(CLASS_TIMER);
    }

    fn look(&mut self, m: &mut Machine) {
        if let Some(numa) = &mut self.numa {
            numa.look(m);
        }
    }

    fn counters(&self, _: &Machine, vm: u32) -> Option<VmCounters> {
        self.numa.as_ref()?.counters(vm)
    }

    fn yield_to(&mut self, m: &mut Machine, cpu: u32, from: TaskId, to: TaskId) -> bool {
        let Some(there) = self.on[to as usize] else { return false };
        let next = |buddies: &mut Buddies, name: u32| buddies.next = Some(name);
        self.rqs[there as usize].set_buddies(m.tasks[to as usize].vm, to, next);
        self.yields(m, cpu, from);
        true
    }

    /// yield_task_fair: it is nobody's buddy any more, and skipped once.
    fn yields(&mut self, m: &mut Machine, cpu: u32, task: TaskId) {
        if self.rqs[cpu as usize].nr > 1 {
            self.update(m, cpu);
            let skip = |buddies: &mut Buddies, name: u32| {
                buddies.clear(name);
                buddies.skip = Some(name);
            };
            self.rqs[cpu as usize].set_buddies(m.tasks[task as usize].vm, task, skip);
        }
    }

    fn nr_running(&self, _: &Machine, cpu: u32) -> u32 {
        self.rqs[cpu as usize].nr
    }

    fn remove(&mut self, m: &mut Machine, task: TaskId) {
        debug_assert!(self.on[task as usize].is_none(), "who has left is on no run queue");
        if let Some(numa) = &mut self.numa {
            numa.remove(m, task);
        }
    }

    fn evict(&mut self, m: &mut Machine, cpu: u32, task: TaskId) {
        let to = m.allowed(task).next_common(&m.online, 0).unwrap_or(cpu);
        let apart = self.dequeue(m, task);
        self.update(m, to);
        self.enqueue(m, to, task, apart, false);
        self.preempt(m, to, task);
    }

    fn confine(&mut self, m: &mut Machine, task: TaskId) {
        if m.tasks[task as usize].state != TaskState::Ready {
            return;
        }
        let here = m.tasks[task as usize].pcpu;
        if !m.may_run_on(task, here) || !m.online.contains(here) {
            let to = m.allowed(task).next_common(&m.online, 0).unwrap_or(here);
            self.migrate(m, task, to);
            self.preempt(m, to, task);
        }
    }

    /// The core calls `confine` for every task next, which moves those that wait here.
    fn offline(&mut self, _: &mut Machine, _: u32) {}

    fn online(&mut self, _: &mut Machine, _: u32) {}
}

// SPDX-License-Identifier: GPL-2.0-only
//! The kernel's own scheduler, EEVDF as of Linux 6.18, as a scheduler of the simulator.
//!
//! Idea. Every pCPU has a run queue of its own, with two levels: groups (here: one for each VM, as
//! a cgroup with cpu.weight gives) and their tasks. Each entity has a virtual time and a deadline;
//! of those that have had no more than their due, the earliest deadline runs (entity.rs). Between
//! run queues only load balancing divides (balance.rs, busiest.rs, domains.rs): a group's weight on a
//! pCPU is its part of the group's load (load.rs, weigh.rs), so a VM's shares are spread over
//! wherever its vCPUs happen to wait.
//!
//! What is kept, by the kernel's names: PLACE_LAG, lag clamped to two slices or a tick,
//! RUN_TO_PARITY with slice protection, base slice 0.7 ms times 1 + log2(pCPUs up to 8), a check at
//! the tick only, wake-up preemption through pick_eevdf, calc_group_shares on PELT loads that move
//! with the task, reweight with scaled lag, yield_to with the next buddy if it is eligible,
//! select_idle_sibling within the last-level cache, the least loaded pCPU for who begins, sched domains
//! and their intervals, load_balance with nr_balance_failed, task_hot, confined tasks and active balance,
//! new-idle and nohz balance, cpu.max for a VM with a limit (bandwidth.rs; limits of pools and
//! reservations it has no word for).
//!
//! Worked example. Two VMs, two busy vCPUs each, two pCPUs. If balancing has put one vCPU of each
//! on either pCPU, each group weighs half its shares on both and time divides as shares do. If it
//! has put both vCPUs of VM 0 on pCPU 0, nothing tells EEVDF: loads are equal, so are the numbers.
//! Three busy VMs of one vCPU on two pCPUs: one runs alone, until at its second attempt, 120 ms
//! later, its pCPU pulls one of the others. So all have their turn alone, in no order, and in
//! two seconds one has a few per cent more than another.
//!
//! What is left out. Delayed dequeue (a sleeper with negative lag leaves at once, keeping it);
//! slices per task and PREEMPT_SHORT, hrtick, core scheduling; wake_affine and
//! sync wake-ups (timers wake where the task last ran); misfit and asymmetric capacity; NUMA
//! balancing, and nodes at several distances; the cost limits of new-idle balance; weights of nice
//! levels (every vCPU has nice 0); what Linux 7.2 adds, threads of a process gathered in one
//! cache (SCHED_CACHE).

mod balance;
mod bandwidth;
mod busiest;
mod domains;
mod entity;
mod group;
mod load;
mod pull;
mod wake;
mod weigh;

use bandwidth::Bandwidth;
use domains::Domains;
use drover_sim::class::{Class, VmBounds, VmTerms};
use drover_sim::machine::{Machine, TaskId, TaskState};
use drover_sim::scenario::rival::Rival;
use entity::{Entity, NICE_0, before};
use group::Rq;
use load::{ALWAYS, Average};

/// kernel/sched/fair.c: normalized_sysctl_sched_base_slice.
const BASE_SLICE_NS: u64 = 700_000;
/// Least and most shares of a group (MIN_SHARES, MAX_SHARES), in units of weight.
const SHARES_RANGE: std::ops::RangeInclusive<u64> = 2..=1 << 18;

/// EEVDF on every pCPU.
#[derive(Debug)]
pub struct Eevdf {
    rqs: Vec<Rq>,
    /// The entity of each task.
    tasks: Vec<Entity>,
    /// Which run queue each task is on, if any.
    on: Vec<Option<u32>>,
    /// Weight of each VM's group.
    shares: Vec<u64>,
    /// The tasks of each VM.
    members: Vec<Vec<TaskId>>,
    /// Whether each task is ready or runs, and was lately; that of a task that has not begun is new.
    ready: Vec<Average>,
    /// Whether each task runs, and did lately.
    running: Vec<Average>,
    /// Whether each task has begun.
    begun: Vec<bool>,
    domains: Domains,
    slice_ns: u64,
    /// Quota of each VM that has one.
    bandwidth: Vec<Option<Bandwidth>>,
}

impl Rival for Eevdf {
    type Class = Self;

    const NAME: &'static str = "eevdf";

    fn new(m: &Machine) -> Self {
        let pcpus = m.pcpus.len() as u64;
        let factor = 1 + u64::from(pcpus.min(8).ilog2());
        Self {
            rqs: (0..pcpus).map(|_| Rq::default()).collect(),
            tasks: Vec::new(),
            on: Vec::new(),
            shares: Vec::new(),
            members: Vec::new(),
            ready: Vec::new(),
            running: Vec::new(),
            begun: Vec::new(),
            domains: Domains::of(&m.topology),
            slice_ns: BASE_SLICE_NS * factor,
            bandwidth: Vec::new(),
        }
    }
}

impl Eevdf {
    /// Has somebody yielded to the task?
    fn is_buddy(&self, cpu: u32, vm: u32, task: TaskId) -> bool {
        self.rqs[cpu as usize].find(vm).is_some_and(|group| group.next == Some(task))
    }

    fn update(&mut self, m: &mut Machine, cpu: u32) {
        let ran_ns = m.account(cpu);
        if let (Some(task), true) = (m.current(cpu), ran_ns > 0) {
            self.ran(m, cpu, task, ran_ns);
        }
    }

    /// The task joins the run queue of a pCPU, at its old lag.
    fn enqueue(&mut self, m: &mut Machine, cpu: u32, task: TaskId) {
        debug_assert!(self.on[task as usize].is_none());
        let vm = m.tasks[task as usize].vm;
        let slice_ns = self.slice_ns;
        m.tasks[task as usize].pcpu = cpu;
        self.on[task as usize] = Some(cpu);
        self.ready[task as usize].set(m.now_ns, true);
        self.update_shares(m, cpu, vm);
        self.spend(m, cpu, vm, 0);
        let rq = &mut self.rqs[cpu as usize];
        let at = rq.group_at(vm);
        rq.nr += u32::from(!rq.groups[at].throttled);
        let others = rq.groups[at].tasks.iter().map(|&other| &self.tasks[other as usize]);
        let (mean, weight) = entity::mean(others).unwrap_or((rq.groups[at].zero, 0));
        self.tasks[task as usize].join(mean, weight, slice_ns);
        rq.groups[at].tasks.push(task);
        rq.order.push(task);
        if rq.groups[at].tasks.len() == 1 && !rq.groups[at].throttled {
            let (mean, weight) = rq.mean().unwrap_or((rq.zero, 0));
            rq.groups[at].entity.join(mean, weight, slice_ns);
            rq.groups[at].queued = true;
        }
        self.update_shares(m, cpu, vm);
    }

    /// The task leaves its run queue.
    fn dequeue(&mut self, m: &mut Machine, task: TaskId) {
        let Some(cpu) = self.on[task as usize].take() else { return };
        let vm = m.tasks[task as usize].vm;
        let (slice_ns, tick_ns) = (self.slice_ns, m.costs.tick_interval_ns);
        self.update_shares(m, cpu, vm);
        self.ready[task as usize].set(m.now_ns, false);
        self.running[task as usize].set(m.now_ns, false);
        let rq = &mut self.rqs[cpu as usize];
        rq.order.retain(|&other| other != task);
        let at = rq.group_at(vm);
        rq.nr -= u32::from(!rq.groups[at].throttled);
        let all = rq.groups[at].tasks.iter().map(|&other| &self.tasks[other as usize]);
        let (mean, _) = entity::mean(all).expect("the task is among them");
        self.tasks[task as usize].leave(mean, slice_ns, tick_ns);
        rq.groups[at].tasks.retain(|&other| other != task);
        rq.groups[at].zero = mean;
        rq.groups[at].next = rq.groups[at].next.filter(|&next| next != task);
        if rq.groups[at].tasks.is_empty() && rq.groups[at].queued {
            let (mean, _) = rq.mean().expect("the group is among them");
            rq.zero = mean;
            rq.groups[at].entity.leave(mean, slice_ns, tick_ns);
            rq.groups[at].queued = false;
        }
        self.update_shares(m, cpu, vm);
    }

    /// calc_group_shares: what the group weighs on that pCPU is its part of the group's load.
    fn update_shares(&mut self, m: &Machine, cpu: u32, vm: u32) {
        let shares = self.shares[vm as usize];
        let (mut all, mut here) = (0, 0);
        for &task in &self.members[vm as usize] {
            let load = self.ready[task as usize].at(m.now_ns);
            all += load;
            here += if m.tasks[task as usize].pcpu == cpu { load } else { 0 };
        }
        let rq = &mut self.rqs[cpu as usize];
        let at = rq.group_at(vm);
        let group = &mut rq.groups[at];
        let load = here.max(group.tasks.len() as u64 * NICE_0);
        let weight = (shares * load).checked_div(all - here + load).unwrap_or(shares);
        let weight = weight.clamp(*SHARES_RANGE.start(), shares.max(*SHARES_RANGE.start()));
        if weight == group.entity.weight {
            return;
        }
        if group.queued {
            let (mean, _) = rq.mean().expect("the group is among them");
            rq.groups[at].entity.reweigh(weight, mean);
        } else {
            rq.groups[at].entity.weight = weight;
        }
    }

    /// The group and task to run on that pCPU; with `protect`, whoever runs has its slice.
    fn choose(&self, m: &Machine, cpu: u32, protect: bool) -> Option<TaskId> {
        let rq = &self.rqs[cpu as usize];
        let current = m.current(cpu).filter(|&task| self.on[task as usize] == Some(cpu));
        let current_vm = current.map(|task| m.tasks[task as usize].vm);
        let queued: Vec<usize> = rq.queued().collect();
        let is_current = |&at: &usize| Some(rq.groups[at].vm) == current_vm;
        let running = queued.iter().position(is_current);
        let entities = queued.iter().map(|&at| &rq.groups[at].entity);
        let group = &rq.groups[queued[entity::pick(entities, running, protect)?]];
        let entities = || group.tasks.iter().map(|&task| &self.tasks[task as usize]);
        if let Some(next) = group.next {
            let (mean, _) = entity::mean(entities())?;
            if !before(mean, self.tasks[next as usize].vruntime) {
                return Some(next);
            }
        }
        let running = group.tasks.iter().position(|&task| Some(task) == current);
        entity::pick(entities(), running, protect).map(|number| group.tasks[number])
    }

    /// wakeup_preempt_fair: does who has just come take the pCPU?
    fn preempt(&mut self, m: &mut Machine, cpu: u32, task: TaskId) {
        match m.current(cpu) {
            None => m.resched(cpu),
            Some(current) => {
                let rival = m.tasks[current as usize].vm != m.tasks[task as usize].vm;
                let chosen = self.choose(m, cpu, true);
                let wins = chosen.is_some_and(|chosen| {
                    let vm = m.tasks[chosen as usize].vm;
                    if rival { vm == m.tasks[task as usize].vm } else { chosen == task }
                });
                if wins && chosen != Some(current) {
                    m.resched(cpu);
                }
            }
        }
    }

    /// Moves a task that waits to another run queue.
    fn migrate(&mut self, m: &mut Machine, task: TaskId, to: u32) {
        let from = self.on[task as usize].expect("who waits or runs is on a run queue");
        self.update(m, from);
        self.update(m, to);
        self.dequeue(m, task);
        self.enqueue(m, to, task);
        // Its load went with it.
        self.update_shares(m, from, m.tasks[task as usize].vm);
        m.counts.migrations += 1;
    }
}

impl Class for Eevdf {
    fn start(&mut self, _: &mut Machine) {}

    fn add(&mut self, m: &mut Machine, task: TaskId, terms: VmTerms) {
        let vm = m.tasks[task as usize].vm;
        if self.tasks.len() <= task as usize {
            self.tasks.resize(task as usize + 1, Entity::new(NICE_0));
            self.on.resize(task as usize + 1, None);
            self.ready.resize(task as usize + 1, Average::default());
            self.running.resize(task as usize + 1, Average::default());
            self.begun.resize(task as usize + 1, false);
        }
        if self.shares.len() <= vm as usize {
            self.shares.resize(vm as usize + 1, NICE_0);
            self.members.resize(vm as usize + 1, Vec::new());
        }
        self.members[vm as usize].push(task);
        self.set_terms(m, vm, terms);
    }

    fn set_terms(&mut self, _: &mut Machine, vm: u32, terms: VmTerms) {
        let weight = u64::from(terms.shares_of_all()) * NICE_0 / 1000;
        self.shares[vm as usize] = weight.clamp(*SHARES_RANGE.start(), *SHARES_RANGE.end());
    }

    fn wake(&mut self, m: &mut Machine, task: TaskId) {
        let begins = !std::mem::replace(&mut self.begun[task as usize], true);
        let cpu = self.select(m, task, begins);
        if begins {
            self.ready[task as usize] = Average::of(ALWAYS, m.now_ns);
            self.running[task as usize] = Average::of(ALWAYS / 2, m.now_ns);
        }
        m.counts.migrations += u64::from(cpu != m.tasks[task as usize].pcpu);
        self.update(m, cpu);
        self.enqueue(m, cpu, task);
        self.preempt(m, cpu, task);
    }

    fn stopped(&mut self, m: &mut Machine, _: u32, task: TaskId) {
        self.dequeue(m, task);
    }

    fn pick(&mut self, m: &mut Machine, cpu: u32, _: Option<TaskId>, _: bool) -> Option<TaskId> {
        self.push(m, cpu);
        if self.rqs[cpu as usize].nr == 0 && m.pcpus[cpu as usize].online {
            self.pull_when_dry(m, cpu);
        }
        let chosen = self.choose(m, cpu, true)?;
        let vm = m.tasks[chosen as usize].vm;
        let rq = &mut self.rqs[cpu as usize];
        let at = rq.group_at(vm);
        rq.groups[at].next = None;
        Some(chosen)
    }

    fn put(&mut self, m: &mut Machine, _: u32, task: TaskId) {
        self.running[task as usize].set(m.now_ns, false);
    }

    fn set(&mut self, m: &mut Machine, cpu: u32, task: TaskId) {
        let vm = m.tasks[task as usize].vm;
        let slice_ns = self.slice_ns;
        let protect = |entity: &mut Entity| {
            let slice = entity.vruntime.wrapping_add(entity.virtual_ns(slice_ns));
            let sooner = before(slice, entity.deadline);
            entity.protected = if sooner { slice } else { entity.deadline };
        };
        self.running[task as usize].set(m.now_ns, true);
        let rq = &mut self.rqs[cpu as usize];
        rq.move_to_head(task);
        let at = rq.group_at(vm);
        protect(&mut rq.groups[at].entity);
        protect(&mut self.tasks[task as usize]);
    }

    fn rest(&mut self, _: &mut Machine, _: u32) {}

    fn ran(&mut self, m: &mut Machine, cpu: u32, task: TaskId, ran_ns: u64) {
        let vm = m.tasks[task as usize].vm;
        let slice_ns = self.slice_ns;
        let rq = &mut self.rqs[cpu as usize];
        let at = rq.group_at(vm);
        let groups = rq.queued().count();
        let group = &mut rq.groups[at];
        let group_done = group.entity.ran(ran_ns, slice_ns) && groups > 1;
        let task_done = self.tasks[task as usize].ran(ran_ns, slice_ns) && group.tasks.len() > 1;
        if group_done || task_done {
            m.resched(cpu);
        }
        self.spend(m, cpu, vm, ran_ns);
    }

    fn tick(&mut self, m: &mut Machine, cpu: u32, task: TaskId) {
        self.update_shares(m, cpu, m.tasks[task as usize].vm);
        self.balance_at_tick(m, cpu);
    }

    fn set_bounds(&mut self, m: &mut Machine, vm: u32, bounds: VmBounds) {
        self.set_limit(m, vm, bounds.limit_mcpu);
    }

    fn timer(&mut self, m: &mut Machine) {
        self.new_period(m);
    }

    fn yield_to(&mut self, m: &mut Machine, cpu: u32, from: TaskId, to: TaskId) -> bool {
        let Some(there) = self.on[to as usize] else { return false };
        if self.is_throttled(there, m.tasks[to as usize].vm) {
            return false;
        }
        let vm = m.tasks[to as usize].vm;
        let rq = &mut self.rqs[there as usize];
        let at = rq.group_at(vm);
        rq.groups[at].next = Some(to);
        if self.rqs[cpu as usize].nr > 1 {
            self.update(m, cpu);
            let slice = self.tasks[from as usize].virtual_ns(self.slice_ns);
            let entity = &mut self.tasks[from as usize];
            entity.deadline = entity.deadline.wrapping_add(slice);
            entity.protected = entity.vruntime;
        }
        true
    }

    fn nr_running(&self, _: &Machine, cpu: u32) -> u32 {
        self.rqs[cpu as usize].nr
    }

    fn remove(&mut self, _: &mut Machine, task: TaskId) {
        debug_assert!(self.on[task as usize].is_none(), "who has left is on no run queue");
        self.ready[task as usize] = Average::default();
        self.running[task as usize] = Average::default();
    }

    fn evict(&mut self, m: &mut Machine, cpu: u32, task: TaskId) {
        let to = m.allowed(task).next_common(&m.online, 0).unwrap_or(cpu);
        self.dequeue(m, task);
        self.update(m, to);
        self.enqueue(m, to, task);
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

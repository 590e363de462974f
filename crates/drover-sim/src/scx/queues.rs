// SPDX-License-Identifier: GPL-2.0-only
//! The sched_ext side of a simulated kernel: dispatch queues, local queues, maps, kicks.
//!
//! After kernel/sched/ext/ext.c: what stands in a user queue is taken by a dispatch; what stands in
//! a pCPU's local queue runs there next; inserting into the local queue of an idle pCPU wakes it,
//! with "preempt" it takes the running task's slice away.

use super::memory::Room;
use super::native::runqueue;
use super::ordered_queue::{OrderedQueue, Place};
use super::timers::Timers;
use crate::machine::{Machine, TaskId};
use std::collections::VecDeque;

/// Slices beyond this are as good as endless.
pub(super) const MAX_SLICE: u64 = u64::MAX / 2;
/// How many tasks of a queue are looked at for one that is overdue (bpf/ground.bpf.h).
const OVERDUE_SEARCH_MAX: usize = 256;
/// What the kernel gives a task whose slice has run out and that goes on all the same.
pub(super) const DEFAULT_SLICE_NS: u64 = 20_000_000;

/// The kernel's clock starts before its scheduler does: nothing happens at 0.
const BOOT_NS: u64 = 1_000_000_000;

/// Where a task stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stands {
    /// In no queue.
    Nowhere,
    /// In the local queue of a pCPU.
    Local(u32),
    /// In the global queue.
    Global,
    /// In a queue of the policy.
    Queue(u32, Place),
}

/// Faults done to the scheduler's surroundings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// Kicks take this much longer.
    pub kick_late_ns: u64,
    /// The clock the policy reads is off by this much.
    pub clock_off_ns: i64,
}

/// A bug planted on purpose, to see the rig find it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planted {
    /// Every hundredth task put into a queue is lost.
    LosesTasks,
    /// Kicks get nowhere.
    LosesKicks,
    /// Every hundredth task sent to a pCPU is sent next door.
    MissesPcpu,
    /// The wait bound is never looked at, by timer or by search.
    IgnoresWaitBound,
    /// Odd VMs are charged half.
    ChargesHalf,
    /// Every fiftieth start is not told to the policy.
    LosesStarts,
    /// A thread too many is counted now and then.
    Miscounts,
    /// A node of a tournament is cleared now and then.
    SpoilsTournament,
    /// Slots of dead VMs are not given back.
    LeaksSlots,
    /// The present is set back now and then.
    TurnsClockBack,
    /// The VMs' shares are not told to the policy.
    IgnoresShares,
    /// Their reservations are not.
    IgnoresReservations,
    /// Their limits are not, and those of pools.
    IgnoresLimits,
    /// Limits are told a quarter higher: what is noticed over a second only. (The policy's own tests hold 1 %.)
    LaxLimits,
    /// Their pools are not.
    IgnoresPools,
    /// Their partitions are not.
    IgnoresPartitions,
    /// A VM is held for its siblings for as long as it takes.
    HoldsForEver,
    /// What a VM that waits for its siblings does not get is charged all the same.
    ChargesStops,
    /// A VM too many is counted as kept together now and then.
    MiscountsModes,
    /// Timers go off at once, and so for ever.
    HurriesTimers,
    /// Timers of VMs never go off.
    LosesTimers,
    /// What was to run on a pCPU that a real-time task takes waits there for it to leave.
    LeavesBehind,
}

/// All that sched_ext keeps for a scheduler.
#[derive(Debug)]
pub struct Queues {
    pub(super) nr_domains: u32,
    pub(super) domains: Room<runqueue>,
    queues: Vec<OrderedQueue>,
    pub(super) local: Vec<VecDeque<TaskId>>,
    pub(super) global: VecDeque<TaskId>,
    stands: Vec<Stands>,
    /// Taken out of a local queue, to be enqueued anew.
    reenqueued: Vec<TaskId>,
    arrivals: u64,
    /// The map policy_timers.
    pub(super) timers: Timers,
    /// The map vm_slots: slot of each process, 0 for none.
    pub(super) vm_slots: Vec<u32>,
    /// The map free_slots, a stack.
    pub(super) free_slots: Vec<u32>,
    /// Processes that have become VMs and were not yet told their terms.
    pub(super) found: Vec<u32>,
    /// See there.
    pub surroundings: Surroundings,
    /// See there; none outside tests.
    pub planted: Option<Planted>,
}

impl Queues {
    /// Empty queues for a host.
    pub(super) fn new(pcpus: u32, domains: Room<runqueue>, nr_domains: u32, max_vms: u32) -> Self {
        let mut queues = Vec::new();
        queues.resize_with((max_vms * nr_domains) as usize, OrderedQueue::default);
        Self {
            nr_domains,
            domains,
            queues,
            local: vec![VecDeque::new(); pcpus as usize],
            global: VecDeque::new(),
            stands: Vec::new(),
            reenqueued: Vec::new(),
            arrivals: 0,
            timers: Timers::default(),
            vm_slots: Vec::new(),
            free_slots: (1..max_vms).rev().collect(),
            found: Vec::new(),
            surroundings: Surroundings::default(),
            planted: None,
        }
    }

    /// Threads of the VM in that slot that wait in the domain, as the policy counts them.
    pub fn queued(&self, domain: u32, slot: u32) -> u32 {
        // SAFETY: any bytes are a struct runqueue; C code writes to it in `Policy::call` only, which borrows
        // self.
        unsafe { (*self.domains.at(domain as usize)).entity_rq[slot as usize].nr_queued }
    }

    /// The clock as the policy reads it.
    pub(super) fn clock_ns(&self, m: &Machine) -> u64 {
        (BOOT_NS + m.now_ns).wrapping_add_signed(self.surroundings.clock_off_ns)
    }

    /// scx_bpf_reenqueue_local: what waits to run next there is to be enqueued anew, when the policy
    /// has returned.
    pub(super) fn reenqueue_local(&mut self, cpu: u32) {
        if self.planted == Some(Planted::LeavesBehind) {
            return;
        }
        for task in std::mem::take(&mut self.local[cpu as usize]) {
            self.stand(task, Stands::Nowhere);
            self.reenqueued.push(task);
        }
    }

    /// Those.
    pub(super) fn take_reenqueued(&mut self) -> Vec<TaskId> {
        std::mem::take(&mut self.reenqueued)
    }

    /// How many slots are free, and how many there are.
    pub fn slots(&self) -> (usize, usize) {
        (self.free_slots.len(), self.queues.len() / self.nr_domains as usize - 1)
    }

    /// Where the task stands.
    pub fn stands(&self, task: TaskId) -> Stands {
        self.stands.get(task as usize).copied().unwrap_or(Stands::Nowhere)
    }

    fn stand(&mut self, task: TaskId, stands: Stands) {
        let index = task as usize;
        if self.stands.len() <= index {
            self.stands.resize(index + 1, Stands::Nowhere);
        }
        self.stands[index] = stands;
    }

    /// The policy puts a ready task into one of its queues.
    pub(super) fn enqueue(
        &mut self,
        m: &mut Machine,
        task: TaskId,
        queue: usize,
        slice_ns: u64,
        order: u64,
    ) {
        if self.stands(task) != Stands::Nowhere {
            m.complain(|| format!("task {task} is put into a queue while it stands in another"));
            return;
        }
        m.tasks[task as usize].slice_ns = slice_ns;
        let place = Place { order, arrival: self.arrivals };
        self.arrivals += 1;
        if self.planted == Some(Planted::LosesTasks) && self.arrivals % 100 == 0 {
            return;
        }
        self.queues[queue].insert(place, task);
        self.stand(task, Stands::Queue(queue as u32, place));
    }

    /// The policy sends a ready task to run on a pCPU next.
    pub(super) fn run_on(
        &mut self,
        m: &mut Machine,
        task: TaskId,
        cpu: u32,
        slice_ns: u64,
        preempt: bool,
    ) {
        if self.stands(task) != Stands::Nowhere {
            m.complain(|| format!("task {task} is sent to pCPU {cpu} while it stands in a queue"));
            return;
        }
        self.arrivals += 1;
        let misses = self.planted == Some(Planted::MissesPcpu) && self.arrivals % 100 == 0;
        let cpu = if misses { (cpu + 1) % m.pcpus.len() as u32 } else { cpu };
        if !m.may_run_on(task, cpu) {
            m.complain(|| format!("task {task} is sent to pCPU {cpu}, where it may not run"));
            return;
        }
        // A kernel may forget it on the way to another pCPU.
        let preempt = preempt && cpu == m.tasks[task as usize].pcpu;
        m.tasks[task as usize].slice_ns = slice_ns;
        if !m.pcpus[cpu as usize].online {
            self.global.push_back(task);
            self.stand(task, Stands::Global);
            return;
        }
        self.insert_local(m, task, cpu, preempt);
        if preempt {
            if let Some(current) = m.current(cpu) {
                m.tasks[current as usize].slice_ns = 0;
                m.resched(cpu);
            }
        }
    }

    /// Puts the task into the pCPU's local queue, and wakes the pCPU if it is idle.
    pub(super) fn insert_local(&mut self, m: &mut Machine, task: TaskId, cpu: u32, first: bool) {
        m.tasks[task as usize].pcpu = cpu;
        if first {
            self.local[cpu as usize].push_front(task);
        } else {
            self.local[cpu as usize].push_back(task);
        }
        self.stand(task, Stands::Local(cpu));
        if m.current(cpu).is_none() {
            m.resched(cpu);
        }
    }

    /// The first task of the pCPU's local queue, or of the global one.
    pub(super) fn pop_local(&mut self, m: &mut Machine, cpu: u32) -> Option<TaskId> {
        let task = self.local[cpu as usize].pop_front().or_else(|| {
            let at = self.global.iter().position(|&task| m.may_run_on(task, cpu))?;
            self.global.remove(at)
        })?;
        self.stand(task, Stands::Nowhere);
        let known = &mut m.tasks[task as usize];
        if known.slice_ns == 0 {
            known.slice_ns = DEFAULT_SLICE_NS;
        }
        Some(task)
    }

    /// The policy takes the first task of a queue that may run on the pCPU it dispatches for.
    pub(super) fn take_first(&mut self, m: &mut Machine, cpu: u32, queue: usize) -> bool {
        let passes = |task: TaskId| m.tasks[task as usize].pcpu == cpu || m.may_run_on(task, cpu);
        let Some((place, task)) = self.queues[queue].first_that(passes) else { return false };
        self.take(m, cpu, queue, place, task);
        true
    }

    /// The policy takes the task of a queue that must run first, of those it looks at, if that is then
    /// or before. `next_ns` is when the first of the others must, if that is sooner.
    pub(super) fn take_due(
        &mut self,
        m: &mut Machine,
        cpu: u32,
        queue: usize,
        until_ns: u64,
        due_ns: impl Fn(TaskId) -> Option<u64>,
        next_ns: &mut u64,
    ) -> bool {
        if self.planted == Some(Planted::IgnoresWaitBound) {
            return false;
        }
        let mut first: Option<(u64, Place, TaskId)> = None;
        for (place, task) in self.queues[queue].iter().take(OVERDUE_SEARCH_MAX) {
            let Some(due_ns) = due_ns(task) else { continue };
            let earlier = |other_ns: u64| (due_ns.wrapping_sub(other_ns) as i64) < 0;
            let takes = m.may_run_on(task, cpu)
                && until_ns.wrapping_sub(due_ns) as i64 >= 0
                && first.is_none_or(|(first_ns, ..)| earlier(first_ns));
            let stays_ns = match takes {
                true => first.replace((due_ns, place, task)).map(|(first_ns, ..)| first_ns),
                false => Some(due_ns),
            };
            if let Some(stays_ns) = stays_ns {
                if (stays_ns.wrapping_sub(*next_ns) as i64) < 0 {
                    *next_ns = stays_ns;
                }
            }
        }
        let Some((_, place, task)) = first else { return false };
        self.take(m, cpu, queue, place, task);
        true
    }

    fn take(&mut self, m: &mut Machine, cpu: u32, queue: usize, place: Place, task: TaskId) {
        self.queues[queue].remove(place);
        m.counts.migrations += u64::from(m.tasks[task as usize].pcpu != cpu);
        m.tasks[task as usize].pcpu = cpu;
        self.local[cpu as usize].push_back(task);
        self.stand(task, Stands::Local(cpu));
    }

    /// The tasks of a queue.
    pub(super) fn waiting_in(&self, queue: usize) -> Vec<TaskId> {
        self.queues[queue].iter().map(|(_, task)| task).collect()
    }

    /// The order of the first task of a queue that may run on that pCPU.
    pub(super) fn first_order(&self, m: &Machine, cpu: u32, queue: usize) -> Option<u64> {
        self.queues[queue].first_that(|task| m.may_run_on(task, cpu)).map(|(place, _)| place.order)
    }

    /// Takes a waiting task out of wherever it stands.
    pub(super) fn dequeue(&mut self, task: TaskId) {
        match self.stands(task) {
            Stands::Nowhere => return,
            Stands::Local(cpu) => self.local[cpu as usize].retain(|&other| other != task),
            Stands::Global => self.global.retain(|&other| other != task),
            Stands::Queue(queue, place) => {
                let found = self.queues[queue as usize].remove(place);
                debug_assert!(found, "a task stands where it was put");
            }
        }
        self.stand(task, Stands::Nowhere);
    }

    /// The policy makes a pCPU ask for work again.
    pub(super) fn kick(&mut self, m: &mut Machine, cpu: u32) {
        // From a pCPU that is going, a kick would never be sent (bpf/ground.bpf.h).
        if !m.pcpus[m.this_cpu as usize].online {
            return;
        }
        if m.pcpus[cpu as usize].online && self.planted != Some(Planted::LosesKicks) {
            m.kick(cpu, self.surroundings.kick_late_ns);
        }
    }

    /// ... and takes the slice from whoever runs there when the kick arrives.
    pub(super) fn preempt(&mut self, m: &mut Machine, cpu: u32) {
        self.kick(m, cpu);
        m.pcpus[cpu as usize].preempted |= m.pcpus[cpu as usize].kicked;
    }
}

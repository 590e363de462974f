// SPDX-License-Identifier: GPL-2.0-only
//! Fixed priorities, as seed 000 says of UNIX (2.1), as a scheduler of the simulator.
//!
//! Idea. The user gives each VM a priority, here its shares: more shares, higher priority. The ready VM with the
//! highest priority runs; those of one priority take turns of 10 ms.
//!
//! Worked example. A pCPU, two busy VMs: with 2000 shares against 1000, or 10,000 against 1000, the first has all of
//! it; with 1000 against 1000 each has half. "It is the relative order that matters, not the degree."
//!
//! Limitations, which are why it is here. What was consumed counts for nothing, so no split but all and equal can
//! be had, and a VM of lower priority starves.
//!
//! What is left out. UNIX lowers the priority of who has run for long (decay usage), so that nobody starves for
//! ever; how far it does so no user can say. Everything else beside priorities: caches, nodes, limits.

use drover_sim::class::{Class, VmTerms};
use drover_sim::machine::{CLASS_TIMER, Machine, TaskId};
use drover_sim::scenario::rival::Rival;

/// How long one of several of the same priority runs.
const TURN_NS: u64 = 10_000_000;

/// Fixed priorities, one queue for all pCPUs.
#[derive(Debug, Default)]
pub struct Priority {
    /// By VM.
    priorities: Vec<u32>,
    /// Who is ready and does not run, in the order they came.
    queue: Vec<TaskId>,
    /// When the turn of who runs on each pCPU ends.
    turn_ends_ns: Vec<u64>,
}

impl Rival for Priority {
    type Class = Self;

    const NAME: &'static str = "priority";

    fn new(m: &Machine) -> Self {
        Self { turn_ends_ns: vec![0; m.pcpus.len()], ..Self::default() }
    }
}

impl Priority {
    fn of(&self, m: &Machine, task: TaskId) -> u32 {
        self.priorities[m.tasks[task as usize].vm as usize]
    }

    /// Who has come takes an idle pCPU, or that of the lowest priority below its own.
    fn place(&mut self, m: &mut Machine, task: TaskId) {
        self.queue.push(task);
        let last = m.tasks[task as usize].pcpu;
        let all = 0..m.pcpus.len() as u32;
        let idle = std::iter::once(last).chain(all.clone());
        if let Some(cpu) = { idle }.find(|&cpu| m.idle.contains(cpu) && m.may_run_on(task, cpu)) {
            m.resched(cpu);
            return;
        }
        let runs = |cpu: u32| Some((self.of(m, m.current(cpu)?), cpu));
        let lowest = all.filter(|&cpu| m.may_run_on(task, cpu)).filter_map(runs).min();
        if let Some((_, cpu)) = lowest.filter(|&(theirs, _)| theirs < self.of(m, task)) {
            m.resched(cpu);
        }
    }
}

impl Class for Priority {
    fn start(&mut self, _: &mut Machine) {}

    fn add(&mut self, m: &mut Machine, task: TaskId, terms: VmTerms) {
        self.set_terms(m, m.tasks[task as usize].vm, terms);
    }

    fn set_terms(&mut self, _: &mut Machine, vm: u32, terms: VmTerms) {
        self.priorities.resize(self.priorities.len().max(vm as usize + 1), 0);
        self.priorities[vm as usize] = terms.shares_of_all();
    }

    fn wake(&mut self, m: &mut Machine, task: TaskId) {
        self.place(m, task);
    }

    fn stopped(&mut self, _: &mut Machine, _: u32, _: TaskId) {}

    fn pick(
        &mut self,
        m: &mut Machine,
        cpu: u32,
        previous: Option<TaskId>,
        ready: bool,
    ) -> Option<TaskId> {
        let may = |&&task: &&TaskId| m.may_run_on(task, cpu) && m.online.contains(cpu);
        let waiting = self.queue.iter().filter(may).map(|&task| (self.of(m, task), task));
        // Of equals the first to come.
        let best = waiting.reduce(|a, b| if b.0 > a.0 { b } else { a });
        let over = m.now_ns >= self.turn_ends_ns[cpu as usize];
        let stays = |task: &TaskId| {
            let mine = self.of(m, *task);
            let goes = best.is_some_and(|(theirs, _)| theirs > mine || (over && theirs == mine));
            ready && !goes && m.may_run_on(*task, cpu) && m.online.contains(cpu)
        };
        let chosen = previous.filter(stays).or(best.map(|(_, task)| task));
        if over || chosen != previous {
            self.turn_ends_ns[cpu as usize] = m.now_ns + TURN_NS;
        }
        self.queue.retain(|&task| Some(task) != chosen);
        chosen
    }

    fn put(&mut self, m: &mut Machine, _: u32, task: TaskId) {
        self.place(m, task);
    }

    fn set(&mut self, _: &mut Machine, _: u32, _: TaskId) {}

    fn rest(&mut self, _: &mut Machine, _: u32) {}

    fn ran(&mut self, _: &mut Machine, _: u32, _: TaskId, _: u64) {}

    fn tick(&mut self, m: &mut Machine, cpu: u32, _: TaskId) {
        if m.now_ns >= self.turn_ends_ns[cpu as usize] && !self.queue.is_empty() {
            m.resched(cpu);
        }
    }

    fn timer(&mut self, m: &mut Machine) {
        m.events.cancel(CLASS_TIMER);
    }

    fn yield_to(&mut self, _: &mut Machine, _: u32, _: TaskId, _: TaskId) -> bool {
        false
    }

    fn remove(&mut self, _: &mut Machine, task: TaskId) {
        self.queue.retain(|&other| other != task);
    }

    fn evict(&mut self, m: &mut Machine, _: u32, task: TaskId) {
        self.place(m, task);
    }

    fn confine(&mut self, m: &mut Machine, task: TaskId) {
        if self.queue.contains(&task) {
            self.queue.retain(|&other| other != task);
            self.place(m, task);
        }
    }

    /// The core calls `confine` for every task next.
    fn offline(&mut self, _: &mut Machine, _: u32) {}

    fn online(&mut self, _: &mut Machine, _: u32) {}
}

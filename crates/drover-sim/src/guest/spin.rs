// SPDX-License-Identifier: GPL-2.0-only
//! Spinlocks and barriers of guests.
//!
//! The lock is a ticket lock: it is handed to whoever asked first, running or not. Worked example:
//! A holds it, B and C spin, B is preempted. A releases: the lock is B's, who does not run, and C
//! spins on until B has run, held it and released it.

use super::{Guests, Mode, Outcome};
use crate::machine::{Machine, TaskId, TaskState};
use std::collections::VecDeque;

/// A ticket spinlock.
#[derive(Debug, Default)]
pub(super) struct Lock {
    held: bool,
    waiting: VecDeque<TaskId>,
}

/// A spinning barrier.
#[derive(Debug)]
pub(super) struct Barrier {
    parties: u32,
    waiting: Vec<TaskId>,
}

impl Barrier {
    pub(super) fn of(parties: u32) -> Self {
        Self { parties, waiting: Vec::with_capacity(parties as usize) }
    }
}

impl Guests {
    /// The running vCPU asks for a lock.
    pub(super) fn take(&mut self, m: &mut Machine, task: TaskId, lock: u32) -> Outcome {
        let vm = self.vcpus[task as usize].vm;
        let lock = &mut self.vms[vm as usize].locks[lock as usize];
        if lock.held {
            lock.waiting.push_back(task);
            return self.spin(m, task);
        }
        lock.held = true;
        self.spend_on(m, task, Mode::Handover, m.costs.atomic_ns)
    }

    /// The running vCPU gives a lock back: the first in line has it.
    pub(super) fn release(&mut self, m: &mut Machine, task: TaskId, lock: u32) {
        let vm = self.vcpus[task as usize].vm;
        let lock = &mut self.vms[vm as usize].locks[lock as usize];
        debug_assert!(lock.held, "who releases a lock holds it");
        match lock.waiting.pop_front() {
            Some(next) => self.let_go(m, next),
            None => lock.held = false,
        }
    }

    /// The running vCPU arrives at a barrier.
    pub(super) fn meet(&mut self, m: &mut Machine, task: TaskId, at: u32) -> Outcome {
        let vm = self.vcpus[task as usize].vm;
        let barrier = &mut self.vms[vm as usize].barriers[at as usize];
        if barrier.waiting.len() as u32 + 1 < barrier.parties {
            barrier.waiting.push(task);
            return self.spin(m, task);
        }
        let mut waiting = std::mem::take(&mut barrier.waiting);
        waiting.drain(..).for_each(|other| self.let_go(m, other));
        self.vms[vm as usize].barriers[at as usize].waiting = waiting;
        self.spend_on(m, task, Mode::Handover, m.costs.atomic_ns)
    }

    fn spin(&mut self, m: &mut Machine, task: TaskId) -> Outcome {
        self.vcpus[task as usize].mode = Mode::Spin;
        let cpu = m.tasks[task as usize].pcpu;
        self.start(m, cpu, task);
        Outcome::Goes
    }

    /// A spinning vCPU need not spin any longer; it notices when it runs.
    fn let_go(&mut self, m: &mut Machine, task: TaskId) {
        if self.vcpus[task as usize].mode != Mode::Spin {
            return; // killed meanwhile
        }
        if m.tasks[task as usize].state == TaskState::Running {
            let cpu = m.tasks[task as usize].pcpu;
            self.settle(m, cpu, task);
        }
        self.spend_on(m, task, Mode::Handover, m.costs.handover_ns);
    }
}

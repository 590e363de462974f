// SPDX-License-Identifier: GPL-2.0-only
//! Spinlocks and barriers of guests.
//!
//! A ticket lock is handed to whoever asked first, running or not. Worked example: A holds it, B
//! and C spin, B is preempted. A releases: the lock is B's, who does not run, and C spins on until
//! B has run, held it and released it. A test-and-set lock goes to C at once; if C does not run
//! either it is free, for whoever runs first. With paravirtual support a waiter halts after a while
//! and is kicked by who releases the lock to it.

use super::{Guests, LockTerms, Mode, Outcome, Step};
use crate::machine::{Machine, NOBODY, TaskId, TaskState};
use drover_scenario::LockKind;
use std::collections::VecDeque;

/// A spinlock.
#[derive(Debug)]
pub(super) struct Lock {
    terms: LockTerms,
    pub(super) holder: TaskId,
    waiting: VecDeque<TaskId>,
}

impl Lock {
    pub(super) fn of(terms: LockTerms) -> Self {
        Self { terms, holder: NOBODY, waiting: VecDeque::new() }
    }
}

/// A barrier, for those that spin and those that halt.
#[derive(Debug)]
pub(super) struct Barrier {
    pub(super) parties: u32,
    pub(super) waiting: Vec<TaskId>,
}

impl Barrier {
    pub(super) fn of(parties: u32) -> Self {
        Self { parties, waiting: Vec::with_capacity(parties as usize) }
    }
}

impl Guests {
    /// The running vCPU asks for a lock.
    pub(super) fn take(&mut self, m: &mut Machine, task: TaskId, at: u32) -> Outcome {
        let vcpu = &mut self.vcpus[task as usize];
        let lock = &mut self.vms[vcpu.vm as usize].locks[at as usize];
        debug_assert!(lock.holder != task, "whoever holds a lock does not ask for it");
        if lock.holder == NOBODY {
            lock.holder = task;
            vcpu.held += 1;
            return self.spend_on(m, task, Mode::Handover, m.costs.atomic_ns);
        }
        lock.waiting.push_back(task);
        let spin_ns = lock.terms.spin_ns;
        self.spin(m, task, spin_ns)
    }

    /// The vCPU halted for the lock and looks again.
    pub(super) fn retake(&mut self, m: &mut Machine, task: TaskId, at: u32) -> Outcome {
        if self.grab(m, task) {
            return Outcome::Goes;
        }
        let vm = self.vcpus[task as usize].vm;
        let spin_ns = self.vms[vm as usize].locks[at as usize].terms.spin_ns;
        self.spin(m, task, spin_ns)
    }

    /// The running vCPU takes the test-and-set lock it waits for, if that is free.
    pub(super) fn grab(&mut self, m: &mut Machine, task: TaskId) -> bool {
        let vcpu = &mut self.vcpus[task as usize];
        let step = self.programs[vcpu.program as usize][vcpu.step as usize];
        let Step::Take { lock } = step else { return false };
        let lock = &mut self.vms[vcpu.vm as usize].locks[lock as usize];
        if lock.terms.kind != LockKind::TestAndSet || lock.holder != NOBODY {
            return false;
        }
        lock.waiting.retain(|&other| other != task);
        lock.holder = task;
        vcpu.held += 1;
        self.spend_on(m, task, Mode::Handover, m.costs.atomic_ns);
        true
    }

    /// The running vCPU gives a lock back.
    pub(super) fn release(&mut self, m: &mut Machine, task: TaskId, at: u32) {
        let vm = self.vcpus[task as usize].vm;
        self.vcpus[task as usize].held -= 1;
        let lock = &mut self.vms[vm as usize].locks[at as usize];
        debug_assert!(lock.holder == task, "who releases a lock holds it");
        let next = match lock.terms.kind {
            LockKind::Ticket => lock.waiting.pop_front(),
            LockKind::TestAndSet => self.any_spinner(m, vm, at),
        };
        let lock = &mut self.vms[vm as usize].locks[at as usize];
        lock.holder = next.unwrap_or(NOBODY);
        match next {
            Some(next) => {
                self.vcpus[next as usize].held += 1;
                self.hand_over(m, next);
            }
            None => self.kick_one(m, vm, at),
        }
    }

    /// One of those that run and spin for the lock: any of them may be the first to see it free.
    fn any_spinner(&mut self, m: &Machine, vm: u32, at: u32) -> Option<TaskId> {
        let waiting = &mut self.vms[vm as usize].locks[at as usize].waiting;
        let spins = |&task: &TaskId| {
            m.tasks[task as usize].state == TaskState::Running
                && self.vcpus[task as usize].mode == Mode::Spin
        };
        let spinning = waiting.iter().filter(|task| spins(task)).count() as u64;
        if spinning == 0 {
            return None;
        }
        let chosen = self.rng.below(spinning) as usize;
        let (at, _) = waiting.iter().enumerate().filter(|(_, task)| spins(task)).nth(chosen)?;
        waiting.remove(at)
    }

    /// Nobody spins for a free lock: one of those that halted for it is to look again.
    fn kick_one(&mut self, m: &mut Machine, vm: u32, at: u32) {
        let waiting = &self.vms[vm as usize].locks[at as usize].waiting;
        let halts = |&&task: &&TaskId| {
            matches!(self.vcpus[task as usize].mode, Mode::Halting | Mode::Asleep)
        };
        if let Some(&task) = waiting.iter().find(halts) {
            m.charge(m.this_cpu, m.costs.vm_exit_ns);
            self.rouse(m, task);
        }
    }

    /// The lock is the vCPU's now, whether it spins or has halted for it.
    fn hand_over(&mut self, m: &mut Machine, task: TaskId) {
        match self.vcpus[task as usize].mode {
            Mode::Halting | Mode::Asleep => {
                m.charge(m.this_cpu, m.costs.vm_exit_ns);
                self.grant(m, task);
            }
            Mode::Resume => self.vcpus[task as usize].granted = true,
            _ => self.let_go(m, task),
        }
    }

    /// The running vCPU arrives at a barrier.
    pub(super) fn meet(&mut self, m: &mut Machine, task: TaskId, at: u32) -> Outcome {
        let vm = self.vcpus[task as usize].vm;
        let barrier = &mut self.vms[vm as usize].barriers[at as usize];
        if barrier.waiting.len() as u32 + 1 < barrier.parties {
            barrier.waiting.push(task);
            return self.spin(m, task, u64::MAX);
        }
        self.open_barrier(m, task, at)
    }

    /// The last has come: all others may go on.
    pub(super) fn open_barrier(&mut self, m: &mut Machine, task: TaskId, at: u32) -> Outcome {
        let vm = self.vcpus[task as usize].vm;
        let barrier = &mut self.vms[vm as usize].barriers[at as usize];
        let mut waiting = std::mem::take(&mut barrier.waiting);
        waiting.drain(..).for_each(|other| self.hand_over(m, other));
        self.vms[vm as usize].barriers[at as usize].waiting = waiting;
        self.spend_on(m, task, Mode::Handover, m.costs.atomic_ns)
    }

    /// The running vCPU spins, for so much CPU time at most.
    pub(super) fn spin(&mut self, m: &mut Machine, task: TaskId, spin_ns: u64) -> Outcome {
        let vcpu = &mut self.vcpus[task as usize];
        vcpu.mode = Mode::Spin;
        vcpu.left_ns = spin_ns;
        vcpu.spinning_ns = 0;
        let cpu = m.tasks[task as usize].pcpu;
        self.start(m, cpu, task);
        Outcome::Goes
    }

    /// A spinning vCPU need not spin any longer; it notices when it runs.
    pub(super) fn let_go(&mut self, m: &mut Machine, task: TaskId) {
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

// SPDX-License-Identifier: GPL-2.0-only
//! Pause-loop exits and KVM's directed yield.
//!
//! A vCPU that spins for longer than a window is let out. KVM then looks for a sibling that is
//! ready and does not run (kvm_vcpu_on_spin), beginning after the one it chose last, and yields to
//! it (kernel/sched: yield_to). Worked example: vCPUs 0 and 1 spin, 2 holds the lock and is
//! preempted, 3 was preempted in user mode. 0 exits: 1 runs, 3 cannot hold a kernel's lock, so 2 it
//! is: its run queue picks it next, if the scheduler agrees, and 0 gives way.
//!
//! What is left out: everything but yields takes no run queue lock, so only yields wait for one
//! another; a vCPU halted in the guest with an interrupt pending is ready here at once.

use crate::class::Class;
use crate::costs::Kvm;
use crate::guest::Mode;
use crate::machine::{TaskId, TaskState};
use crate::sim::Sim;

/// How many yields may find no point before KVM gives up (kvm_vcpu_on_spin).
const YIELD_TRIES: u32 = 3;

/// Locks of run queues: when each is free again.
#[derive(Debug, Default)]
pub struct RqLocks(Vec<u64>);

impl RqLocks {
    /// Takes both locks from `at_ns` on, for so long; when they are free again.
    fn take_both(&mut self, a: u32, b: u32, at_ns: u64, hold_ns: u64) -> u64 {
        let most = a.max(b) as usize + 1;
        if self.0.len() < most {
            self.0.resize(most, 0);
        }
        let free_ns = at_ns.max(self.0[a as usize]).max(self.0[b as usize]) + hold_ns;
        self.0[a as usize] = free_ns;
        self.0[b as usize] = free_ns;
        free_ns
    }
}

impl<C: Class> Sim<C> {
    /// The vCPU has spun for a whole window: exit, look for somebody to yield to.
    pub(crate) fn pause_exit(&mut self, cpu: u32, task: TaskId) {
        let Some(pause_loop) = self.m.costs.pause_loop.clone() else { return };
        self.m.counts.pause_exits += 1;
        self.count_preempted(task);
        if pause_loop.throttled && self.has_yielded_in_this_tick(task) {
            self.plain_yield(cpu, task, pause_loop.exit_ns);
            return;
        }
        let mut at_ns = self.m.now_ns + pause_loop.exit_ns;
        let vm = self.m.tasks[task as usize].vm;
        let first = self.vms[vm as usize].first;
        let vcpus = self.vms[vm as usize].terms.vcpus - self.vms[vm as usize].helpers;
        let after = self.guests.vms[vm as usize].last_boosted;
        let mut tries = YIELD_TRIES;
        let mut boosted = None;
        for step in 1..=vcpus {
            let vcpu = (after + step) % vcpus;
            let to = first + vcpu;
            let there = self.m.tasks[to as usize].state;
            if to == task || !matches!(there, TaskState::Ready | TaskState::Running) {
                continue;
            }
            let may_boost = self.may_boost(pause_loop.kvm, to);
            // 3.6 goes from each vCPU to its task to see that it is in the guest.
            if may_boost || pause_loop.kvm == Kvm::Linux36 {
                at_ns += pause_loop.candidate_ns;
            }
            if !may_boost {
                continue;
            }
            let there = self.m.tasks[to as usize].pcpu;
            let nr = |cpu| self.class.nr_running(&self.m, cpu);
            if pause_loop.kvm != Kvm::Linux36 && nr(cpu) == 1 && nr(there) == 1 {
                tries -= 1;
                if tries == 0 {
                    break;
                }
                continue;
            }
            at_ns = self.rq_locks.take_both(cpu, there, at_ns, pause_loop.yield_ns);
            let ready = self.m.tasks[to as usize].state == TaskState::Ready;
            if ready && self.class.yield_to(&mut self.m, cpu, task, to) {
                boosted = Some((vcpu, there));
                break;
            }
        }
        self.m.counts.pause_exit_ns += at_ns - self.m.now_ns;
        self.m.pcpus[cpu as usize].work_from_ns = at_ns;
        self.guests.spin_on(&mut self.m, cpu, task);
        match boosted {
            Some((vcpu, there)) => {
                self.guests.vms[vm as usize].last_boosted = vcpu;
                self.guests.vcpus[task as usize].boost.in_spin_loop = true;
                self.m.counts.directed_yields += 1;
                if there != cpu {
                    self.m.resched(there);
                }
                self.m.resched(cpu);
            }
            None => self.guests.vcpus[task as usize].boost.eligible = false,
        }
    }

    /// Counts the siblings that are ready and do not run, and who of them holds a lock.
    fn count_preempted(&mut self, task: TaskId) {
        let vm = &self.vms[self.m.tasks[task as usize].vm as usize];
        for other in vm.first..vm.first + vm.terms.vcpus - vm.helpers {
            if self.m.tasks[other as usize].state == TaskState::Ready {
                self.m.counts.preempted_siblings += 1;
                let holds = self.guests.holds_lock(other);
                self.m.counts.preempted_holders += u64::from(holds);
            }
        }
    }

    /// Has the vCPU looked for a sibling in this tick? If not, it has from now on.
    fn has_yielded_in_this_tick(&mut self, task: TaskId) -> bool {
        let tick = 1 + self.m.now_ns / self.m.costs.tick_interval_ns;
        let boost = &mut self.guests.vcpus[task as usize].boost;
        std::mem::replace(&mut boost.yielded_in_tick, tick) == tick
    }

    /// The vCPU lets anybody run before it.
    fn plain_yield(&mut self, cpu: u32, task: TaskId, exit_ns: u64) {
        self.m.counts.pause_exit_ns += exit_ns;
        self.m.pcpus[cpu as usize].work_from_ns = self.m.now_ns + exit_ns;
        self.guests.spin_on(&mut self.m, cpu, task);
        self.class.yields(&mut self.m, cpu, task);
        self.m.resched(cpu);
    }

    /// Does kvm_vcpu_on_spin take the vCPU for one worth yielding to?
    fn may_boost(&mut self, kvm: Kvm, to: TaskId) -> bool {
        let state = self.m.tasks[to as usize].state;
        let boost = self.guests.vcpus[to as usize].boost;
        match kvm {
            // Who is in the guest (PF_VCPU) is passed over, without a lock; who is in such an exit itself is not.
            Kvm::Linux36 if state == TaskState::Running => {
                let there = self.m.tasks[to as usize].pcpu as usize;
                let in_exit = self.guests.vcpus[to as usize].mode == Mode::Spin
                    && self.m.pcpus[there].work_from_ns > self.m.now_ns;
                let boost = &mut self.guests.vcpus[to as usize].boost;
                boost.eligible ^= in_exit;
                return in_exit && boost.eligible;
            }
            Kvm::Linux36 if state != TaskState::Ready => return false,
            Kvm::Linux36 => {}
            Kvm::Linux618 => {
                let kernel = self.guests.in_kernel(to) || self.guests.has_interrupt(to);
                if state != TaskState::Ready || (boost.preempted && !kernel) {
                    return false;
                }
            }
        }
        // kvm_vcpu_eligible_for_directed_yield: who gave way itself is passed over every other time.
        if boost.in_spin_loop {
            self.guests.vcpus[to as usize].boost.eligible = !boost.eligible;
        }
        !boost.in_spin_loop || boost.eligible
    }
}

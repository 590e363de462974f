// SPDX-License-Identifier: GPL-2.0-only
//! Waiting without spinning: timers, queues of work, joining, requests to a back-end thread; and
//! interrupts between siblings.
//!
//! Who waits is *halting*, then asleep, until what it waits for is *granted* or its deadline has
//! come. It may be roused for other things, an interrupt say; then it looks, and halts again.
//! Worked example: vCPU 1 waits for work; vCPU 0 spawns a piece: it is vCPU 1's, which is granted
//! it and woken; that costs vCPU 0 a VM exit, as the interrupt does that a guest would send.

use super::{Guests, Mode, Outcome, Step};
use crate::machine::{Machine, TaskId, TaskState, timer_source};
use drover_scenario::{IpiTo, StepTime};
use std::collections::VecDeque;

/// A queue of work in a guest.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Pieces that wait for somebody.
    pub(super) pieces: u64,
    /// Those that wait for a piece.
    waiting: VecDeque<TaskId>,
}

/// A request to a back-end thread.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    vcpu: TaskId,
    cpu_ns: u64,
    device_ns: u64,
}

impl Guests {
    /// The running vCPU halts until that moment, or until it is granted what it waits for.
    pub(super) fn halt(&mut self, m: &mut Machine, task: TaskId, until_ns: u64) -> Outcome {
        let vcpu = &mut self.vcpus[task as usize];
        vcpu.deadline_ns = until_ns;
        vcpu.granted = false;
        vcpu.roused = false;
        let halts = m.tasks[task as usize].in_kvm_run;
        self.spend_on(m, task, Mode::Halting, if halts { m.costs.halt_ns } else { 0 })
    }

    /// Somebody who waits has what it waits for.
    pub(super) fn grant(&mut self, m: &mut Machine, task: TaskId) {
        self.vcpus[task as usize].granted = true;
        self.rouse(m, task);
    }

    /// Somebody who halts or has halted is to look up.
    pub(super) fn rouse(&mut self, m: &mut Machine, task: TaskId) {
        let vcpu = &mut self.vcpus[task as usize];
        vcpu.roused = true;
        if vcpu.mode == Mode::Asleep {
            m.events.cancel(timer_source(&m.pcpus, task));
            m.to_wake.push(task);
        }
    }

    /// The vCPU has slept, or is at its very beginning. What comes of it, unless the program is to
    /// go on.
    pub(super) fn back_in_guest(&mut self, m: &mut Machine, task: TaskId) -> Option<Outcome> {
        let now_ns = m.now_ns;
        let vcpu = &mut self.vcpus[task as usize];
        if vcpu.deadline_ns == 0 {
            return None;
        }
        let step = self.programs[vcpu.program as usize][vcpu.step as usize];
        let over = vcpu.granted || now_ns >= vcpu.deadline_ns;
        match step {
            Step::Serve => return None,
            Step::Send { .. } | Step::Forward | Step::Transmit => {
                self.note_told(m.now_ns, task);
                return None;
            }
            Step::Take { lock } if !over => return Some(self.retake(m, task, lock)),
            _ if !over => {
                vcpu.roused = false;
                return Some(self.spend_on(m, task, Mode::Halting, m.costs.halt_ns));
            }
            Step::SleepGrid { .. } => {
                vcpu.count += 1;
                let late_ns = now_ns - vcpu.deadline_ns;
                self.vms[vcpu.vm as usize].sleeps.record(late_ns);
            }
            _ => {}
        }
        self.next_step(task);
        None
    }

    /// The running vCPU wants a piece of work.
    pub(super) fn take_work(&mut self, m: &mut Machine, task: TaskId, queue: u32) -> Outcome {
        let vm = self.vcpus[task as usize].vm;
        let queue = &mut self.vms[vm as usize].queues[queue as usize];
        if queue.pieces > 0 {
            queue.pieces -= 1;
            return self.spend_on(m, task, Mode::Handover, m.costs.atomic_ns);
        }
        queue.waiting.push_back(task);
        self.halt(m, task, u64::MAX)
    }

    /// The running vCPU puts work into a queue; whoever waits for it has it at once.
    pub(super) fn spawn_work(&mut self, m: &mut Machine, task: TaskId, queue: u32, times: u32) {
        let vm = self.vcpus[task as usize].vm;
        for piece in 0..times {
            let queue = &mut self.vms[vm as usize].queues[queue as usize];
            let Some(other) = queue.waiting.pop_front() else {
                queue.pieces = queue.pieces.saturating_add(u64::from(times - piece));
                return;
            };
            m.charge(m.this_cpu, m.costs.vm_exit_ns);
            self.grant(m, other);
        }
    }

    /// The running vCPU joins the others at a barrier, without spinning.
    pub(super) fn join(&mut self, m: &mut Machine, task: TaskId, at: u32) -> Outcome {
        let vm = self.vcpus[task as usize].vm;
        let barrier = &mut self.vms[vm as usize].barriers[at as usize];
        if barrier.waiting.len() as u32 + 1 < barrier.parties {
            barrier.waiting.push(task);
            return self.halt(m, task, u64::MAX);
        }
        self.open_barrier(m, task, at)
    }

    /// The running vCPU asks the back-end thread for something, and halts until it is done.
    pub(super) fn ask_backend(
        &mut self,
        m: &mut Machine,
        task: TaskId,
        time: StepTime,
        device_ns: u64,
    ) -> Outcome {
        let cpu_ns = self.draw(task, time);
        let vm = &mut self.vms[self.vcpus[task as usize].vm as usize];
        vm.requests.push_back(Request { vcpu: task, cpu_ns, device_ns });
        let backend = vm.first + vm.vcpus;
        m.charge(m.this_cpu, m.costs.vm_exit_ns);
        self.rouse(m, backend);
        self.halt(m, task, u64::MAX)
    }

    /// The back-end thread is done with a request, if it had one, and takes the next.
    pub(super) fn serve(&mut self, m: &mut Machine, task: TaskId) -> Outcome {
        let vm = self.vcpus[task as usize].vm as usize;
        if let Some(done) = self.vms[vm].serving.take() {
            self.deliver(m, done);
        }
        match self.vms[vm].requests.pop_front() {
            Some(request) => {
                self.vms[vm].serving = Some(request);
                self.work_on(m, task, request.cpu_ns)
            }
            None => self.halt(m, task, u64::MAX),
        }
    }

    /// The device will answer the vCPU's request when it has taken its time.
    fn deliver(&mut self, m: &mut Machine, request: Request) {
        if request.device_ns == 0 {
            self.grant(m, request.vcpu);
            return;
        }
        let vcpu = &mut self.vcpus[request.vcpu as usize];
        vcpu.deadline_ns = m.now_ns + request.device_ns;
        if vcpu.mode == Mode::Asleep {
            m.events.set(timer_source(&m.pcpus, request.vcpu), vcpu.deadline_ns);
        }
    }

    /// The running vCPU interrupts siblings and spins until they have answered. Those that run
    /// answer as soon as the interrupt gets there, those that are ready when they run, those that
    /// are halted are woken for it.
    pub(super) fn send_ipi(&mut self, m: &mut Machine, task: TaskId, to: IpiTo) -> Outcome {
        let vm = &self.vms[self.vcpus[task as usize].vm as usize];
        let (first, vcpus) = (vm.first, vm.vcpus);
        let others = match to {
            IpiTo::Vcpu(vcpu) if vcpu < vcpus => first + vcpu..first + vcpu + 1,
            IpiTo::One if vcpus > 1 => {
                let own = task - first;
                let vcpu = (own + 1 + self.rng_of(task).below(u64::from(vcpus) - 1) as u32) % vcpus;
                first + vcpu..first + vcpu + 1
            }
            IpiTo::All => first..first + vcpus,
            _ => first..first,
        };
        m.charge(m.this_cpu, m.costs.vm_exit_ns);
        let (mut interrupted, mut missing) = (false, 0);
        for other in others.filter(|&other| other != task) {
            match m.tasks[other as usize].state {
                TaskState::Running => {
                    m.charge(m.tasks[other as usize].pcpu, m.costs.interrupt_ns);
                    interrupted = true;
                }
                TaskState::Absent => {}
                TaskState::Asleep if to == IpiTo::All => {}
                _ => {
                    self.vcpus[other as usize].ipis.push(task);
                    missing += 1;
                    self.rouse(m, other);
                }
            }
        }
        if missing == 0 {
            let wait_ns =
                if interrupted { m.costs.ipi_latency_ns + m.costs.interrupt_ns } else { 0 };
            return self.spend_on(m, task, Mode::Handover, wait_ns + m.costs.atomic_ns);
        }
        self.vcpus[task as usize].answers = missing;
        self.spin(m, task, u64::MAX)
    }

    /// The vCPU runs again and sees its interrupts.
    pub(super) fn answer(&mut self, m: &mut Machine, cpu: u32, task: TaskId) {
        for sender in std::mem::take(&mut self.vcpus[task as usize].ipis) {
            m.charge(cpu, m.costs.interrupt_ns);
            let waiting = &mut self.vcpus[sender as usize];
            waiting.answers = waiting.answers.saturating_sub(1);
            if waiting.answers == 0 {
                self.let_go(m, sender);
            }
        }
    }
}

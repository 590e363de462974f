// SPDX-License-Identifier: GPL-2.0-only
//! The event loop: hardware, guests and one scheduler put together.
//!
//! Everything happens on one pCPU at one moment. A handler runs to its end, then those it woke are
//! woken, then the pCPU picks if it has to, as the kernel does on its way out of an interrupt.

use crate::arranging::Arranging;
use crate::class::{Class, VmTerms};
use crate::guest::{Guests, Mode, Outcome, Programs};
use crate::kvm::RqLocks;
use crate::local_accesses::LocalAccesses;
use crate::machine::{
    AGENDA, Machine, NOBODY, Source, TICK, TaskId, TaskState, interrupt_source, source_of,
    timer_source,
};
use crate::placer::Placer;
use crate::speed_model::SpeedModel;
use drover_core::profile::Profiler;
use drover_core::shares::Shares;

/// Something that is planned for a moment of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plan {
    /// The VM's workload starts: its vCPUs wake for the first time.
    Start(u32),
    /// One vCPU wakes for the first time.
    Wake(TaskId),
    /// The VM is killed.
    Kill(u32),
    /// The VM gets other shares.
    SetShares(u32, u32),
    /// The task is confined to a mask of the machine.
    Confine(TaskId, u32),
    /// The pCPU is taken away.
    Offline(u32),
    /// The pCPU is given back.
    Online(u32),
    /// A real-time task takes the pCPU for so long, ns.
    Take(u32, u64),
    /// ... and leaves it, unless it has it for longer.
    Give(u32),
    /// The placer looks at homes ([`crate::placer`]).
    Place,
    /// The profiler looks at VMs.
    Profile,
    /// The caller wants to look at something: [`Sim::run`] returns.
    Look(u32),
}

/// A VM of the simulated host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SimVm {
    /// Its first thread; the others follow, vCPUs first.
    pub first: TaskId,
    /// The last so many of its threads never enter KVM_RUN: helpers, or all of a host process.
    pub helpers: u32,
    /// Shares and size.
    pub terms: VmTerms,
}

/// A simulated host with one scheduler.
#[derive(Debug)]
pub struct Sim<C> {
    /// Hardware and the kernel's core.
    pub m: Machine,
    /// The scheduler.
    pub class: C,
    /// What vCPUs do.
    pub guests: Guests,
    /// The VMs.
    pub vms: Vec<SimVm>,
    /// How fast who runs gets on; none: everybody at full speed.
    pub speeds: Option<Box<SpeedModel>>,
    /// Which part of their memory accesses are local.
    pub(crate) accesses: LocalAccesses,
    /// Gives VMs homes; none: nobody does.
    pub placer: Option<Box<Placer>>,
    /// Says what kind of work VMs do; none: nobody does.
    pub(crate) profiler: Option<Box<Profiler>>,
    /// Arranges partitions; none: nobody does.
    pub(crate) arranging: Option<Box<Arranging>>,
    /// Locks of run queues that yields take.
    pub(crate) rq_locks: RqLocks,
    /// What is planned, the next last.
    agenda: Vec<(u64, Plan)>,
    /// Events of this moment so far.
    at_once: usize,
}

/// Events of one moment, for each pCPU and each thread, after which time is taken to stand still: an
/// timer that goes off anew at the moment at which it went off does so for ever.
const AT_ONCE_MAX: usize = 100;

impl<C: Class> Sim<C> {
    /// A host where nothing has happened yet.
    pub fn new(mut m: Machine, mut class: C) -> Self {
        class.start(&mut m);
        Self {
            m,
            class,
            guests: Guests::default(),
            vms: Vec::new(),
            speeds: None,
            accesses: LocalAccesses::default(),
            placer: None,
            profiler: None,
            arranging: None,
            rq_locks: RqLocks::default(),
            agenda: Vec::new(),
            at_once: 0,
        }
    }

    /// Adds a VM whose vCPUs may run on the pCPUs of that mask; it starts when the plan says so.
    pub fn add_vm(&mut self, programs: &Programs, shares: Shares, mask: u32) -> u32 {
        let vm = self.vms.len() as u32;
        let vcpus = programs.of_vcpu.len() as u32;
        let terms = VmTerms { shares, vcpus };
        let first = self.m.tasks.len() as TaskId;
        let numbers = self.guests.add_vm(programs);
        let home = self.m.masks[mask as usize].next_from(0).unwrap_or(0);
        for (vcpu, program) in numbers.into_iter().enumerate() {
            self.m.add_task(vm, vcpu as u32, mask, home);
            self.guests.add_vcpu(vm, program);
        }
        self.vms.push(SimVm { first, helpers: u32::from(programs.backend), terms });
        vm
    }

    /// Is that no VM, but a process of the host's own? The policy has them all in one VM, the host's.
    pub fn is_host_process(&self, vm: u32) -> bool {
        let SimVm { helpers, ref terms, .. } = self.vms[vm as usize];
        helpers == terms.vcpus
    }

    /// The last so many threads of the VM are no vCPUs.
    pub fn set_helpers(&mut self, vm: u32, helpers: u32) {
        self.vms[vm as usize].helpers = helpers;
    }

    /// Plans something. Plans of one moment happen in the order they were made.
    pub fn plan(&mut self, at_ns: u64, plan: Plan) {
        let at = self.agenda.partition_point(|(other_ns, _)| *other_ns > at_ns);
        self.agenda.insert(at, (at_ns, plan));
        let (next_ns, _) = self.agenda[self.agenda.len() - 1];
        self.m.events.set(AGENDA, next_ns);
    }

    /// The VM's vCPUs.
    pub fn tasks_of(&self, vm: u32) -> std::ops::Range<TaskId> {
        let vm = &self.vms[vm as usize];
        vm.first..vm.first + vm.terms.vcpus
    }

    /// Runs until a planned look, whose number it returns, or until that moment.
    pub fn run(&mut self, until_ns: u64) -> Option<u32> {
        let pcpus = self.m.pcpus.len() as u32;
        while self.m.fault.is_none() {
            if self.m.events.next_ns().is_none_or(|next_ns| next_ns > until_ns) {
                break;
            }
            let (at_ns, source) = self.m.events.pop().expect("there is a next event");
            self.note_moment(at_ns, source);
            self.m.counts.events += 1;
            match source_of(source, pcpus) {
                Source::Tick => self.tick(),
                Source::Step(cpu) => self.step(cpu),
                Source::Interrupt(cpu) => self.interrupt(cpu),
                Source::Timer(task) => self.timer(task),
                Source::ClassTimer => self.on(self.alive(0), |sim| sim.class.timer(&mut sim.m)),
                Source::ClassLook => self.on(self.alive(0), |sim| sim.class.look(&mut sim.m)),
                Source::ClassTimers => self.on(self.alive(0), |sim| sim.class.timers(&mut sim.m)),
                Source::Agenda => {
                    if let Some(look) = self.planned() {
                        return Some(look);
                    }
                }
            }
        }
        self.m.now_ns = self.m.now_ns.max(until_ns.min(u64::MAX - 1));
        None
    }

    /// It is that time now, because of an event of that source.
    fn note_moment(&mut self, at_ns: u64, source: u32) {
        self.at_once = if at_ns == self.m.now_ns { self.at_once + 1 } else { 0 };
        self.m.now_ns = at_ns;
        let events = self.at_once;
        if events > AT_ONCE_MAX * (self.m.pcpus.len() + self.m.tasks.len()) {
            let what = source_of(source, self.m.pcpus.len() as u32);
            self.m.complain(|| {
                format!(
                    "time stands still at {} us: {events} events, the last: {what:?}",
                    at_ns / 1000
                )
            });
        }
    }

    /// Does something on a pCPU, then what follows from it.
    fn on(&mut self, cpu: u32, handler: impl FnOnce(&mut Self)) {
        self.m.this_cpu = cpu;
        handler(self);
        self.m.wakes = true;
        while let Some(task) = self.m.to_wake.pop() {
            self.wake(task);
        }
        self.m.wakes = false;
        if self.m.pcpus[cpu as usize].need_resched {
            self.schedule(cpu);
        }
    }

    /// The pCPU, or one that is online: timers leave a pCPU that goes.
    fn alive(&self, cpu: u32) -> u32 {
        if self.m.online.contains(cpu) { cpu } else { self.m.online.next_from(0).unwrap_or(cpu) }
    }

    fn tick(&mut self) {
        let since_ns = self.m.now_ns % self.m.costs.tick_interval_ns;
        if let Some(cpu) = since_ns.checked_div(self.tick_step_ns()) {
            let cpu = cpu as u32;
            if self.m.busy.contains(cpu) {
                self.tick_on(cpu);
            }
        } else {
            let mut from = 0;
            while let Some(cpu) = self.m.busy.next_from(from) {
                from = cpu + 1;
                self.tick_on(cpu);
            }
        }
        self.set_tick();
    }

    fn tick_on(&mut self, cpu: u32) {
        self.m.counts.events += 1;
        self.on(cpu, |sim| {
            sim.m.charge(cpu, sim.m.costs.tick_ns);
            let Some(task) = sim.m.current(cpu) else { return };
            sim.account(cpu);
            sim.class.tick(&mut sim.m, cpu, task);
        });
    }

    /// So much after a pCPU ticks the next: nothing, or with its turn, or skewed.
    fn tick_step_ns(&self) -> u64 {
        let costs = &self.m.costs;
        if costs.skew_tick {
            (costs.tick_interval_ns / 2 / self.m.pcpus.len() as u64).max(1)
        } else {
            costs.turn_ns
        }
    }

    /// pCPUs tick for as long as any is busy: all at the same moments, or each at its own.
    fn set_tick(&mut self) {
        let Some(first) = self.m.busy.next_from(0) else { return };
        let interval_ns = self.m.costs.tick_interval_ns;
        let (turn, since_ns) = (self.m.now_ns / interval_ns, self.m.now_ns % interval_ns);
        let step_ns = self.tick_step_ns();
        if step_ns == 0 {
            self.m.events.set(TICK, (turn + 1) * interval_ns);
            return;
        }
        let later = (since_ns / step_ns + 1).min(self.m.pcpus.len() as u64) as u32;
        let at_ns = match self.m.busy.next_from(later) {
            Some(cpu) => turn * interval_ns + u64::from(cpu) * step_ns,
            None => (turn + 1) * interval_ns + u64::from(first) * step_ns,
        };
        self.m.events.set(TICK, at_ns);
    }

    fn step(&mut self, cpu: u32) {
        self.on(cpu, |sim| {
            let task = sim.m.current(cpu).expect("steps are of running tasks");
            match sim.guests.step(&mut sim.m, cpu, task) {
                Outcome::Goes => {}
                Outcome::PauseExit => sim.pause_exit(cpu, task),
                Outcome::Blocks => {
                    sim.m.tasks[task as usize].state = TaskState::Asleep;
                    sim.m.pcpus[cpu as usize].need_resched = true;
                }
                Outcome::Exits => {
                    sim.m.tasks[task as usize].state = TaskState::Absent;
                    sim.m.pcpus[cpu as usize].need_resched = true;
                }
            }
        });
    }

    fn interrupt(&mut self, cpu: u32) {
        let pcpu = &mut self.m.pcpus[cpu as usize];
        if !pcpu.online {
            // Sent before it went: nobody is there to notice.
            (pcpu.kicked, pcpu.preempted, pcpu.need_resched) = (false, false, false);
            return;
        }
        if pcpu.current != NOBODY && pcpu.work_from_ns > self.m.now_ns {
            // It is in the kernel, at a switch or a handler: the interrupt comes when it leaves, and
            // any others that come meanwhile are one with it.
            let source = interrupt_source(&self.m.pcpus, cpu);
            self.m.events.set(source, self.m.pcpus[cpu as usize].work_from_ns);
            return;
        }
        self.on(cpu, |sim| {
            sim.m.charge(cpu, sim.m.costs.interrupt_ns);
            let pcpu = &mut sim.m.pcpus[cpu as usize];
            pcpu.need_resched |= pcpu.kicked;
            pcpu.kicked = false;
            if std::mem::take(&mut pcpu.preempted) {
                if let Some(task) = sim.m.current(cpu) {
                    sim.m.tasks[task as usize].slice_ns = 0;
                }
            }
        });
    }

    fn timer(&mut self, task: TaskId) {
        let cpu = self.alive(self.m.tasks[task as usize].pcpu);
        let vcpu = &mut self.guests.vcpus[task as usize];
        if vcpu.mode != Mode::Asleep {
            return;
        }
        if self.m.pcpus[cpu as usize].current == NOBODY && !vcpu.timer_late {
            vcpu.timer_late = true;
            let at_ns = self.m.now_ns + self.m.costs.idle_exit_ns;
            self.m.events.set(timer_source(&self.m.pcpus, task), at_ns);
            return;
        }
        self.on(cpu, |sim| {
            sim.m.charge(cpu, sim.m.costs.interrupt_ns);
            sim.wake(task);
        });
    }

    /// The task was asleep and is ready.
    fn wake(&mut self, task: TaskId) {
        if self.m.tasks[task as usize].state != TaskState::Asleep {
            return;
        }
        self.guests.woken(&self.m, task);
        let known = &mut self.m.tasks[task as usize];
        known.state = TaskState::Ready;
        known.ready_since_ns = self.m.now_ns;
        self.m.counts.wakeups += 1;
        self.m.note(1, self.m.this_cpu, task);
        self.class.wake(&mut self.m, task);
    }

    pub(crate) fn account(&mut self, cpu: u32) {
        let ran_ns = self.m.account(cpu);
        if ran_ns > 0 {
            let current = self.m.pcpus[cpu as usize].current;
            self.class.ran(&mut self.m, cpu, current, ran_ns);
            let vm = self.m.tasks[current as usize].vm;
            self.accesses.ran(vm, self.m.topology.node_of[cpu as usize], ran_ns);
        }
    }

    /// `__schedule()`.
    fn schedule(&mut self, cpu: u32) {
        if self.m.is_taken(cpu) {
            // The kernel asks the higher class first, and it has somebody.
            self.m.pcpus[cpu as usize].need_resched = false;
            return;
        }
        self.m.counts.picks += 1;
        self.account(cpu);
        let previous = self.m.current(cpu);
        let ready =
            previous.is_some_and(|task| self.m.tasks[task as usize].state == TaskState::Running);
        if let (Some(task), false) = (previous, ready) {
            self.class.stopped(&mut self.m, cpu, task);
        }
        let next = self.class.pick(&mut self.m, cpu, previous, ready);
        let evicted = std::mem::take(&mut self.m.pcpus[cpu as usize].evicted);
        self.m.pcpus[cpu as usize].need_resched = false;
        if ready && next == previous {
            if let (Some(task), true) = (previous, self.m.costs.pause_loop.is_some()) {
                self.guests.vcpus[task as usize].boost.back_from_yield();
            }
            return;
        }
        if let Some(task) = previous {
            self.leave(cpu, task, ready);
        }
        if previous.is_some() || next.is_some() {
            self.m.counts.switches += 1;
        }
        match next {
            Some(task) => {
                self.m.tasks[task as usize].dispatches += 1;
                self.enter(cpu, task, previous.is_none());
            }
            None => self.rest(cpu, previous.is_some() || evicted),
        }
    }

    fn leave(&mut self, cpu: u32, task: TaskId, ready: bool) {
        self.guests.stop(&mut self.m, cpu, task);
        self.m.trace.end(cpu, self.m.now_ns);
        if ready {
            let known = &mut self.m.tasks[task as usize];
            known.state = TaskState::Ready;
            known.ready_since_ns = self.m.now_ns;
            self.guests.vcpus[task as usize].boost.preempted = true;
            self.class.put(&mut self.m, cpu, task);
        } else {
            self.m.tasks[task as usize].sleeps += 1;
        }
        if self.m.tasks[task as usize].state == TaskState::Absent {
            self.class.remove(&mut self.m, task);
        }
    }

    fn enter(&mut self, cpu: u32, task: TaskId, was_idle: bool) {
        let now_ns = self.m.now_ns;
        if was_idle {
            let pcpu = &mut self.m.pcpus[cpu as usize];
            pcpu.idle_ns += now_ns - pcpu.idle_since_ns;
            self.m.idle.remove(cpu);
            self.class.rests_no_more(&mut self.m, cpu);
            let first = self.m.busy.next_from(0).is_none();
            self.m.set_busy(cpu, true);
            if first || self.tick_step_ns() > 0 {
                self.set_tick();
            }
        }
        self.m.pcpus[cpu as usize].current = task;
        self.set_speeds(cpu);
        let last_ran = self.m.tasks[task as usize].last_ran;
        let migration_ns = if last_ran == cpu { 0 } else { self.m.costs.migration_ns };
        let cold_ns = self.speeds.as_ref().map_or(0, |speeds| speeds.owed_ns(cpu));
        let known = &mut self.m.tasks[task as usize];
        let ready_since_ns = known.ready_since_ns;
        // What the pCPU still pays for, a handler or an interrupt, comes first.
        let from_ns = self.m.pcpus[cpu as usize].work_from_ns.max(now_ns);
        self.m.pcpus[cpu as usize].work_from_ns =
            from_ns + self.m.costs.context_switch_ns + migration_ns + cold_ns;
        known.moves += u64::from(last_ran != cpu);
        known.last_ran = cpu;
        known.state = TaskState::Running;
        known.accounted_ns = now_ns;
        known.pcpu = cpu;
        self.m.note(2, cpu, task);
        self.m.trace.begin(cpu, task, ready_since_ns, now_ns);
        self.class.set(&mut self.m, cpu, task);
        self.guests.enter(&mut self.m, cpu, task);
    }

    /// Who runs on that pCPU has changed, and so may the speed of those that run beside it.
    fn set_speeds(&mut self, cpu: u32) {
        let Some(speeds) = &mut self.speeds else { return };
        let who = self.m.current(cpu).map(|task| (task, self.m.tasks[task as usize].vm));
        for &(other, speed) in speeds.runs(&self.m.topology, self.m.now_ns, cpu, who) {
            if other == cpu {
                // It has not yet begun.
                self.m.pcpus[cpu as usize].speed = speed;
            } else if let Some(task) = self.m.current(other) {
                self.guests.set_speed(&mut self.m, other, task, speed);
            }
        }
    }

    /// The memory of a VM lies on these nodes from now on.
    pub(crate) fn set_memory_nodes(&mut self, vm: u32, nodes: &[u32]) {
        self.accesses.set_nodes(vm, nodes);
        let Some(speeds) = &mut self.speeds else { return };
        for &(cpu, speed) in speeds.set_nodes(&self.m.topology, self.m.now_ns, vm, nodes) {
            if let Some(task) = self.m.current(cpu) {
                self.guests.set_speed(&mut self.m, cpu, task, speed);
            }
        }
    }

    fn rest(&mut self, cpu: u32, was_busy: bool) {
        self.m.pcpus[cpu as usize].current = NOBODY;
        self.set_speeds(cpu);
        self.m.idle.insert(cpu);
        if was_busy {
            self.m.pcpus[cpu as usize].idle_since_ns = self.m.now_ns;
            self.m.set_busy(cpu, false);
            self.m.note(3, cpu, NOBODY);
            self.class.rest(&mut self.m, cpu);
        }
    }

    /// Does what the plan has for now; returns the number of a look.
    fn planned(&mut self) -> Option<u32> {
        let (_, plan) = self.agenda.pop()?;
        if let Some((next_ns, _)) = self.agenda.last() {
            self.m.events.set(AGENDA, *next_ns);
        }
        match plan {
            Plan::Look(number) => return Some(number),
            Plan::Place => self.look_at_homes(),
            Plan::Profile => self.look_at_profiles(),
            Plan::Start(vm) => self.start_vm(vm),
            Plan::Wake(task) => {
                let cpu = self.alive(self.m.tasks[task as usize].pcpu);
                self.on(cpu, |sim| sim.wake(task));
            }
            Plan::Kill(vm) => self.tasks_of(vm).for_each(|task| self.kill(task)),
            Plan::SetShares(vm, shares) => {
                self.vms[vm as usize].terms.shares = Shares::Exact(shares);
                let terms = self.vms[vm as usize].terms;
                self.class.set_terms(&mut self.m, vm, terms);
            }
            Plan::Confine(task, mask) => self.confine(task, mask),
            Plan::Offline(cpu) => self.offline(cpu),
            Plan::Online(cpu) => self.online(cpu),
            Plan::Take(cpu, for_ns) => self.take(cpu, for_ns),
            Plan::Give(cpu) => self.give(cpu),
        }
        None
    }

    fn start_vm(&mut self, vm: u32) {
        self.guests.begin(vm, self.m.now_ns);
        let terms = self.vms[vm as usize].terms;
        for task in self.tasks_of(vm) {
            self.m.tasks[task as usize].state = TaskState::Asleep;
            let SimVm { first, helpers, .. } = self.vms[vm as usize];
            self.m.tasks[task as usize].in_kvm_run = task - first < terms.vcpus - helpers;
            self.class.add(&mut self.m, task, terms);
        }
    }

    fn kill(&mut self, task: TaskId) {
        let state = self.m.tasks[task as usize].state;
        if state == TaskState::Absent || self.guests.vcpus[task as usize].mode == Mode::Dying {
            return;
        }
        let cpu = self.alive(self.m.tasks[task as usize].pcpu);
        self.on(cpu, |sim| {
            sim.guests.kill(&mut sim.m, task);
            sim.wake(task);
        });
    }

    /// sched_setaffinity, or cpusets: a running task that may not stay goes at once.
    fn confine(&mut self, task: TaskId, mask: u32) {
        let state = self.m.tasks[task as usize].state;
        let reaches = self.m.masks[mask as usize].next_common(&self.m.online, 0).is_some();
        if state == TaskState::Absent || !reaches {
            return;
        }
        self.m.tasks[task as usize].mask = mask;
        let cpu = self.alive(self.m.tasks[task as usize].pcpu);
        self.on(cpu, |sim| {
            if state == TaskState::Running && !sim.m.may_run_on(task, cpu) {
                sim.evict(cpu);
            }
            sim.class.confine(&mut sim.m, task);
        });
    }

    /// The task running there has to wait elsewhere.
    fn evict(&mut self, cpu: u32) {
        let Some(task) = self.put_out(cpu) else { return };
        self.class.evict(&mut self.m, cpu, task);
        self.vacate(cpu);
    }

    /// Preempts the running task of that pCPU, in the middle of its work. Returns the task.
    fn put_out(&mut self, cpu: u32) -> Option<TaskId> {
        self.account(cpu);
        let task = self.m.current(cpu)?;
        self.m.counts.switches += 1;
        self.guests.stop(&mut self.m, cpu, task);
        self.m.trace.end(cpu, self.m.now_ns);
        let known = &mut self.m.tasks[task as usize];
        known.state = TaskState::Ready;
        known.ready_since_ns = self.m.now_ns;
        self.guests.vcpus[task as usize].boost.preempted = true;
        Some(task)
    }

    /// Nobody runs there any more; the pCPU picks.
    fn vacate(&mut self, cpu: u32) {
        let pcpu = &mut self.m.pcpus[cpu as usize];
        pcpu.current = NOBODY;
        pcpu.need_resched = true;
        pcpu.evicted = true;
        pcpu.idle_since_ns = self.m.now_ns;
        self.m.set_busy(cpu, false);
        self.set_speeds(cpu);
    }

    /// A real-time task takes the pCPU, or has it for longer.
    fn take(&mut self, cpu: u32, for_ns: u64) {
        if !self.m.online.contains(cpu) {
            return;
        }
        let until_ns = self.m.now_ns + for_ns;
        self.plan(until_ns, Plan::Give(cpu));
        let known = &mut self.m.pcpus[cpu as usize].taken_until_ns;
        if *known > 0 {
            *known = until_ns.max(*known);
            return;
        }
        self.on(cpu, |sim| {
            let task = sim.put_out(cpu);
            if task.is_none() {
                sim.m.pcpus[cpu as usize].idle_ns = sim.m.idle_now_ns(cpu);
                sim.m.idle.remove(cpu);
            }
            sim.m.pcpus[cpu as usize].taken_until_ns = until_ns;
            sim.vacate(cpu);
            sim.m.note(4, cpu, NOBODY);
            sim.class.taken(&mut sim.m, cpu, task);
        });
    }

    fn give(&mut self, cpu: u32) {
        let pcpu = &mut self.m.pcpus[cpu as usize];
        if pcpu.taken_until_ns == 0 || pcpu.taken_until_ns > self.m.now_ns {
            return;
        }
        self.on(cpu, |sim| sim.end_taken(cpu));
    }

    /// The pCPU is the scheduler's again.
    fn end_taken(&mut self, cpu: u32) {
        self.m.pcpus[cpu as usize].taken_until_ns = 0;
        self.vacate(cpu);
        self.class.given(&mut self.m, cpu);
    }

    /// CPU hotplug. The last pCPU stays.
    fn offline(&mut self, cpu: u32) {
        if !self.m.online.contains(cpu) || self.m.online.count() == 1 {
            return;
        }
        self.m.online.remove(cpu);
        self.m.pcpus[cpu as usize].online = false;
        for task in 0..self.m.tasks.len() as TaskId {
            let stranded = self.m.allowed(task).next_common(&self.m.online, 0).is_none();
            if stranded {
                // As the kernel: rather anywhere than nowhere.
                self.m.tasks[task as usize].mask = 0;
            }
        }
        let ran = self.m.pcpus[cpu as usize].current;
        self.on(cpu, |sim| {
            if sim.m.is_taken(cpu) {
                // What had it goes elsewhere.
                sim.end_taken(cpu);
            }
            sim.evict(cpu);
            sim.class.offline(&mut sim.m, cpu);
            for task in 0..sim.m.tasks.len() as TaskId {
                // Those that wait elsewhere stay where they are.
                if task == ran || sim.m.tasks[task as usize].pcpu == cpu {
                    sim.class.confine(&mut sim.m, task);
                }
            }
        });
        let pcpu = &mut self.m.pcpus[cpu as usize];
        pcpu.idle_ns += self.m.now_ns - pcpu.idle_since_ns;
        self.m.idle.remove(cpu);
    }

    fn online(&mut self, cpu: u32) {
        if self.m.online.contains(cpu) {
            return;
        }
        self.m.online.insert(cpu);
        self.m.pcpus[cpu as usize].online = true;
        self.m.pcpus[cpu as usize].idle_since_ns = self.m.now_ns;
        self.on(cpu, |sim| {
            sim.class.online(&mut sim.m, cpu);
            sim.m.pcpus[cpu as usize].need_resched = true;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim_speed::{loads, set_up};

    /// How long after a multiple of the tick's interval the next ticks come, us.
    fn phases_us(skew_tick: bool) -> Vec<u64> {
        let mut busy = loads().swap_remove(1);
        (busy.host.sockets, busy.host.cores, busy.host.threads) = (1, 4, 1);
        let mut sim = set_up(&busy);
        sim.m.costs.skew_tick = skew_tick;
        sim.run(20_000_000);
        let mut next = || {
            let at_ns = sim.m.events.when(TICK).expect("busy pCPUs tick");
            sim.run(at_ns);
            at_ns % sim.m.costs.tick_interval_ns / 1000
        };
        (0..8).map(|_| next()).collect()
    }

    #[test]
    fn a_real_time_task_takes_a_pcpu_and_who_ran_there_goes_on_elsewhere() {
        const MS: u64 = 1_000_000;
        let mut busy = loads().swap_remove(1);
        (busy.host.sockets, busy.host.cores, busy.host.threads) = (1, 2, 1);
        (busy.vms, busy.vcpus) = (1, 1);
        let mut sim = set_up(&busy);
        sim.run(100 * MS);
        let (task, taken) = (0, sim.m.tasks[0].pcpu);
        assert_eq!(sim.m.current(taken), Some(task));
        sim.plan(100 * MS, Plan::Take(taken, 5 * MS));
        sim.plan(102 * MS, Plan::Take(taken, 8 * MS));
        sim.run(101 * MS);
        assert_eq!((sim.m.current(taken), sim.m.current(1 - taken)), (None, Some(task)));
        assert!(sim.m.is_taken(taken) && !sim.m.idle.contains(taken));
        let (rested_ns, had_ns) = (sim.m.idle_now_ns(taken), sim.m.cpu_time_now_ns(task));
        sim.run(109 * MS);
        assert!(sim.m.is_taken(taken), "the second has it for longer");
        assert_eq!(sim.m.idle_now_ns(taken), rested_ns, "a taken pCPU does not rest");
        sim.run(111 * MS);
        assert!(!sim.m.is_taken(taken) && sim.m.idle.contains(taken));
        assert_eq!(sim.m.idle_now_ns(taken), rested_ns + MS);
        assert_eq!(sim.m.cpu_time_now_ns(task), had_ns + 10 * MS);
    }

    #[test]
    fn pcpus_tick_at_once_or_spread_over_half_an_interval() {
        assert_eq!(phases_us(false), [0; 8]);
        let mut spread = phases_us(true);
        spread[..4].sort_unstable();
        spread[4..].sort_unstable();
        assert_eq!(spread, [0, 500, 1000, 1500, 0, 500, 1000, 1500]);
    }
}

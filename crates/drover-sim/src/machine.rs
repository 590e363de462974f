// SPDX-License-Identifier: GPL-2.0-only
//! The host's hardware and the part of its kernel that is the same under every scheduler: pCPUs,
//! tasks, CPU time, interrupts, the idle mask.

use crate::costs::Costs;
use crate::cpu_set::CpuSet;
use crate::events::Events;
use crate::rng::mix;
use crate::speed_model;
use crate::topology::Topology;
use crate::trace::Trace;

/// A task, by number.
pub type TaskId = u32;

/// No task: the pCPU is idle.
pub const NOBODY: TaskId = u32::MAX;

/// What a task is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskState {
    /// Not there yet, or gone.
    Absent,
    /// Waits for a timer or for somebody.
    Asleep,
    /// Could run and does not.
    Ready,
    /// Runs.
    Running,
}

/// A thread of the host.
#[derive(Debug, Clone)]
pub struct Task {
    /// What it is doing.
    pub state: TaskState,
    /// Is it inside KVM_RUN whenever the scheduler looks?
    pub in_kvm_run: bool,
    /// The pCPU it runs on, or last ran on, or was queued for.
    pub pcpu: u32,
    /// The pCPU it last ran on; itself where it has not yet run.
    pub last_ran: u32,
    /// Which of [`Machine::masks`] it may run on.
    pub mask: u32,
    /// Its VM, by number.
    pub vm: u32,
    /// Its number among the VM's vCPUs.
    pub vcpu: u32,
    /// CPU time it was seen to spin since it was put on a pCPU, by pause-loop exits.
    pub spun_ns: u64,
    /// CPU time received so far, as of the last accounting.
    pub cpu_time_ns: u64,
    /// How often it was put on a pCPU.
    pub dispatches: u64,
    /// How often it was put on another pCPU than its last.
    pub moves: u64,
    /// How often it went to sleep.
    pub sleeps: u64,
    /// Until when its CPU time is accounted, while it runs.
    pub accounted_ns: u64,
    /// How long it may go on before its scheduler asks again (sched_ext).
    pub slice_ns: u64,
    /// Since when it is ready, while it is.
    pub ready_since_ns: u64,
    /// It was killed, and has run since: it is on its way out for good (the kernel's PF_EXITING).
    pub leaving: bool,
}

/// A physical CPU.
#[derive(Debug, Clone)]
pub struct Pcpu {
    /// Who runs; [`NOBODY`] when idle.
    pub current: TaskId,
    /// A pick is due.
    pub need_resched: bool,
    /// Its task was taken from it, and it has not picked since: it does not count as idle.
    pub evicted: bool,
    /// The interrupt on its way is a kick: a pick is due when it arrives.
    pub kicked: bool,
    /// ... and takes the slice from whoever runs then.
    pub preempted: bool,
    /// Takes part.
    pub online: bool,
    /// Until when a real-time task has it, which comes before everything of the scheduler's; 0: none.
    pub taken_until_ns: u64,
    /// From when on the task running here gets work done; before, it pays for switches and
    /// interrupts.
    pub work_from_ns: u64,
    /// How fast the task running here gets on with its work (crate::speed_model).
    pub speed: u32,
    /// Whoever runs here counts what it pays as time it got: its step does not take longer for it.
    pub pays_in_step: bool,
    /// What it has paid so since its work was last settled.
    pub paid_ns: u64,
    /// Since when it is idle, while it is.
    pub idle_since_ns: u64,
    /// Idle time up to then.
    pub idle_ns: u64,
}

/// What happened so far, counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// All events: every tick of a pCPU, interrupt, timer and step of a guest's program.
    pub events: u64,
    /// Picks: how often a scheduler was asked what to run.
    pub picks: u64,
    /// Switches from one task (or idle) to another (or idle).
    pub switches: u64,
    /// Wake-ups.
    pub wakeups: u64,
    /// Picks that put a task on another pCPU than its last.
    pub migrations: u64,
    /// Pause-loop exits.
    pub pause_exits: u64,
    /// CPU time they took, ns.
    pub pause_exit_ns: u64,
    /// Siblings that were ready and did not run at such an exit, summed over exits.
    pub preempted_siblings: u64,
    /// Those of them that held a spinlock.
    pub preempted_holders: u64,
    /// CPU time that page faults of guests took, where a scheduler takes memory away, ns.
    pub page_fault_ns: u64,
    /// ... of which they waited for a lock of their VM, ns.
    pub page_fault_spin_ns: u64,
    /// Pause-loop exits that made a sibling run.
    pub directed_yields: u64,
}

/// The host.
#[derive(Debug)]
pub struct Machine {
    /// Virtual time.
    pub now_ns: u64,
    /// The pCPU on which the present event happens.
    pub this_cpu: u32,
    /// What happens next.
    pub events: Events,
    /// The pCPUs.
    pub pcpus: Vec<Pcpu>,
    /// All threads that ever take part.
    pub tasks: Vec<Task>,
    /// Sets of pCPUs tasks may be confined to; the first is all of them.
    pub masks: Vec<CpuSet>,
    /// pCPUs with a task on them: those that tick.
    pub busy: CpuSet,
    /// pCPUs that take part.
    pub online: CpuSet,
    /// The kernel's mask of pCPUs that are idle and not yet claimed.
    pub idle: CpuSet,
    /// Who shares what.
    pub topology: Topology,
    /// What things cost now.
    pub costs: Costs,
    /// ... and while one pCPU is busy at most: not the same where pCPUs are emulated in turn.
    costs_alone: Costs,
    /// So many times as long as it says does a guest's work take now.
    pub slowness: u64,
    /// What happened, counted.
    pub counts: Counts,
    /// The thread on this pCPU is waking another.
    pub wakes: bool,
    /// Those to wake when the present event is done.
    pub to_wake: Vec<TaskId>,
    /// What happened, in order.
    pub trace: Trace,
    /// What is wrong with the scheduler, as soon as anything is.
    pub fault: Option<String>,
}

impl Machine {
    /// A host with everything idle.
    pub fn new(topology: Topology, costs: Costs, tasks: usize) -> Self {
        let pcpus = topology.pcpus();
        let pcpu = Pcpu {
            current: NOBODY,
            need_resched: false,
            evicted: false,
            kicked: false,
            preempted: false,
            online: true,
            taken_until_ns: 0,
            work_from_ns: 0,
            speed: speed_model::FULL,
            pays_in_step: false,
            paid_ns: 0,
            idle_since_ns: 0,
            idle_ns: 0,
        };
        Self {
            now_ns: 0,
            this_cpu: 0,
            events: Events::new(FIRST_PCPU as usize + 2 * pcpus as usize + tasks),
            pcpus: vec![pcpu; pcpus as usize],
            tasks: Vec::with_capacity(tasks),
            masks: vec![CpuSet::all(pcpus)],
            busy: CpuSet::none(pcpus),
            online: CpuSet::all(pcpus),
            idle: CpuSet::all(topology.pcpus()),
            topology,
            costs: costs.clone(),
            costs_alone: costs,
            slowness: 1,
            counts: Counts::default(),
            wakes: false,
            to_wake: Vec::new(),
            trace: Trace::default(),
            fault: None,
        }
    }

    /// Adds a task that is not there yet.
    pub fn add_task(&mut self, vm: u32, vcpu: u32, mask: u32, pcpu: u32) -> TaskId {
        self.tasks.push(Task {
            state: TaskState::Absent,
            in_kvm_run: false,
            pcpu,
            last_ran: pcpu,
            mask,
            vm,
            vcpu,
            spun_ns: 0,
            cpu_time_ns: 0,
            accounted_ns: 0,
            slice_ns: 0,
            ready_since_ns: 0,
            dispatches: 0,
            moves: 0,
            sleeps: 0,
            leaving: false,
        });
        (self.tasks.len() - 1) as TaskId
    }

    /// The number of that set of pCPUs among [`Machine::masks`], added if it is new.
    pub fn mask_of(&mut self, set: &CpuSet) -> u32 {
        if let Some(known) = self.masks.iter().position(|mask| mask == set) {
            return known as u32;
        }
        self.masks.push(set.clone());
        (self.masks.len() - 1) as u32
    }

    /// The pCPUs the task may run on.
    pub fn allowed(&self, task: TaskId) -> &CpuSet {
        &self.masks[self.tasks[task as usize].mask as usize]
    }

    /// May the task run on that pCPU now?
    pub fn may_run_on(&self, task: TaskId, cpu: u32) -> bool {
        self.allowed(task).contains(cpu)
    }

    /// The task that runs there, if any.
    pub fn current(&self, cpu: u32) -> Option<TaskId> {
        let current = self.pcpus[cpu as usize].current;
        (current != NOBODY).then_some(current)
    }

    /// Brings the CPU time of the task running there up to date; returns how much was added.
    pub fn account(&mut self, cpu: u32) -> u64 {
        let current = self.pcpus[cpu as usize].current;
        if current == NOBODY {
            return 0;
        }
        let task = &mut self.tasks[current as usize];
        let ran_ns = self.now_ns - task.accounted_ns;
        task.accounted_ns = self.now_ns;
        task.cpu_time_ns += ran_ns;
        ran_ns
    }

    /// Does a real-time task have that pCPU?
    pub fn is_taken(&self, cpu: u32) -> bool {
        self.pcpus[cpu as usize].taken_until_ns > 0
    }

    /// CPU time of the task up to this moment.
    pub fn cpu_time_now_ns(&self, task: TaskId) -> u64 {
        let task = &self.tasks[task as usize];
        let running = task.state == TaskState::Running;
        task.cpu_time_ns + if running { self.now_ns - task.accounted_ns } else { 0 }
    }

    /// Idle time of the pCPU up to this moment.
    pub fn idle_now_ns(&self, cpu: u32) -> u64 {
        let pcpu = &self.pcpus[cpu as usize];
        let idle = pcpu.current == NOBODY && pcpu.online && pcpu.taken_until_ns == 0;
        pcpu.idle_ns + if idle { self.now_ns - pcpu.idle_since_ns } else { 0 }
    }

    /// From now on the pCPU has somebody to run, or nobody.
    pub fn set_busy(&mut self, cpu: u32, busy: bool) {
        if busy {
            self.busy.insert(cpu);
        } else {
            self.busy.remove(cpu);
        }
        if self.costs_alone.turn_ns > 0 {
            self.slowness = self.busy.count().max(1).into();
            self.costs = self.costs_alone.in_turns(self.slowness);
        }
    }

    /// How long from now until a pCPU's turn comes, and it notices that it is interrupted: anything
    /// up to the turns of the others.
    fn turn_wait_ns(&self) -> u64 {
        let others_ns = self.costs.turn_ns * (self.slowness - 1);
        mix(self.now_ns) % (others_ns + 1)
    }

    /// How late a timer of the scheduler's is: its pCPU's turn must come, and its handler get to it.
    /// Where there are no turns, that is part of what the kicks it gives take.
    pub fn timer_late_ns(&self) -> u64 {
        match self.costs.turn_ns {
            0 => 0,
            _ => self.turn_wait_ns() + self.costs.interrupt_ns,
        }
    }

    /// Takes CPU time from whoever runs there.
    pub fn charge(&mut self, cpu: u32, cost_ns: u64) {
        let pcpu = &mut self.pcpus[cpu as usize];
        if pcpu.current == NOBODY {
            return;
        }
        // Shifts what has been done so far, too: it is the same sum.
        pcpu.work_from_ns += cost_ns;
        if pcpu.pays_in_step {
            pcpu.paid_ns += cost_ns;
        } else {
            self.events.delay(step_source(cpu), cost_ns);
        }
    }

    /// Makes the pCPU pick anew: at once if it is this one, else when the interrupt gets there.
    pub fn resched(&mut self, cpu: u32) {
        let pcpu = &mut self.pcpus[cpu as usize];
        if pcpu.need_resched {
            return;
        }
        pcpu.need_resched = true;
        if cpu != self.this_cpu {
            self.interrupt(cpu, 0);
        }
    }

    /// Makes the pCPU pick anew, from within a scheduler's callback, so much later
    /// than usual.
    pub fn kick(&mut self, cpu: u32, late_ns: u64) {
        self.pcpus[cpu as usize].kicked = true;
        self.interrupt(cpu, self.costs.kick_latency_ns + late_ns);
    }

    fn interrupt(&mut self, cpu: u32, extra_ns: u64) {
        let there = cpu != self.this_cpu;
        let idle = there && self.pcpus[cpu as usize].current == NOBODY;
        let latency_ns = if there { self.costs.ipi_latency_ns + self.turn_wait_ns() } else { 0 }
            + if idle { self.costs.idle_exit_ns } else { 0 }
            + extra_ns;
        self.events.set_if_sooner(interrupt_source(&self.pcpus, cpu), self.now_ns + latency_ns);
    }

    /// Adds to the trace's hash.
    pub fn note(&mut self, what: u64, cpu: u32, task: TaskId) {
        let word = self.now_ns ^ (u64::from(cpu) << 40) ^ (u64::from(task) << 20) ^ (what << 60);
        self.trace.hash = mix(self.trace.hash ^ word);
    }

    /// Notes what is wrong with the scheduler; only the first such thing is kept.
    pub fn complain(&mut self, what: impl FnOnce() -> String) {
        if self.fault.is_none() {
            self.fault = Some(what());
        }
    }
}

/// The source of ticks: one for all pCPUs, which tick at the same moments or in turn.
pub const TICK: u32 = 0;
/// The source of what the plan of the run holds next.
pub const AGENDA: u32 = 1;
/// The source of the scheduler's own timer.
pub const CLASS_TIMER: u32 = 2;
/// The source of the second such timer.
pub const CLASS_LOOK: u32 = 3;
/// The source of the first of all its other timers.
pub const CLASS_TIMERS: u32 = 4;
const FIRST_PCPU: u32 = 5;

/// The source of the next step of the program that runs on the pCPU.
pub fn step_source(cpu: u32) -> u32 {
    FIRST_PCPU + cpu
}

/// The source of the next interrupt of the pCPU.
pub fn interrupt_source(pcpus: &[Pcpu], cpu: u32) -> u32 {
    FIRST_PCPU + pcpus.len() as u32 + cpu
}

/// The source of the task's timer.
pub fn timer_source(pcpus: &[Pcpu], task: TaskId) -> u32 {
    FIRST_PCPU + 2 * pcpus.len() as u32 + task
}

/// What a source stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// See [`TICK`].
    Tick,
    /// See [`AGENDA`].
    Agenda,
    /// See [`CLASS_TIMER`].
    ClassTimer,
    /// See [`CLASS_LOOK`].
    ClassLook,
    /// See [`CLASS_TIMERS`].
    ClassTimers,
    /// See [`step_source`].
    Step(u32),
    /// See [`interrupt_source`].
    Interrupt(u32),
    /// See [`timer_source`].
    Timer(TaskId),
}

/// What the source stands for on a host with so many pCPUs.
pub fn source_of(source: u32, pcpus: u32) -> Source {
    match source {
        TICK => Source::Tick,
        AGENDA => Source::Agenda,
        CLASS_TIMER => Source::ClassTimer,
        CLASS_LOOK => Source::ClassLook,
        CLASS_TIMERS => Source::ClassTimers,
        _ if source < FIRST_PCPU + pcpus => Source::Step(source - FIRST_PCPU),
        _ if source < FIRST_PCPU + 2 * pcpus => Source::Interrupt(source - FIRST_PCPU - pcpus),
        _ => Source::Timer(source - FIRST_PCPU - 2 * pcpus),
    }
}

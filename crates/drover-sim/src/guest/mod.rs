// SPDX-License-Identifier: GPL-2.0-only
//! Guests: what vCPUs do with the CPU time they get.
//!
//! A vCPU is in one [`Mode`]. Timed modes have CPU time left to spend; spinning has none and ends
//! when somebody else acts. A vCPU that is handed a lock while it does not run only finds out when
//! it runs next: that is the lock-holder preemption this project is about.

mod network;
mod program;
mod sleep_times;
mod spin;
mod stuck;
mod wait;

pub use program::{CPU_UNIT_NS, Duty, LockTerms, Names, Programs, Step};
pub use sleep_times::SleepTimes;

use crate::machine::{Machine, TaskId, TaskState, step_source, timer_source};
use crate::rng::{Rng, mix};
use crate::speed_model::FULL;
use drover_scenario::StepTime;
use network::{Network, Piece};
use spin::{Barrier, Lock};
use std::collections::VecDeque;
use std::sync::Arc;
use wait::{Queue, Request};

/// Steps without any CPU time after which a program is taken to be stuck.
const IDLE_STEPS_MAX: u32 = 10_000;
/// Periods that a vCPU with nothing to do sleeps through.
const IDLE_PERIODS: u64 = 1000;
/// How deep loops stand in each other.
const DEPTH_MAX: usize = drover_scenario::DEPTH_MAX;

/// What a vCPU is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Has work left on its present step: as much CPU time as it would take at full speed.
    Work,
    /// Works until it has received the CPU time that is left, whatever that went for: what the host
    /// takes on the way counts.
    Receive,
    /// Busy until a moment of the clock.
    WorkUntil,
    /// Spins.
    Spin,
    /// Was let go from a spin; needs the time that is left to notice.
    Handover,
    /// Is on its way to sleep: arms its timer and halts.
    Halting,
    /// Sleeps.
    Asleep,
    /// On its way back into the guest.
    Resume,
    /// Its VM was killed.
    Dying,
}

impl Mode {
    /// Does it get on with its program?
    fn works(self) -> bool {
        matches!(self, Self::Work | Self::Receive | Self::WorkUntil)
    }
}

/// A vCPU as its guest sees it.
#[derive(Debug, Clone)]
pub struct Vcpu {
    /// What it is at.
    pub mode: Mode,
    /// The timer that wakes it has met an idle pCPU, which takes a moment to wake itself.
    pub timer_late: bool,
    step: u16,
    /// The program, by number.
    program: u32,
    vm: u32,
    left_ns: u64,
    /// The moment it sleeps or works until; the next period's beginning.
    deadline_ns: u64,
    /// Work done in steps that compute: CPU time at full speed.
    work_ns: u64,
    /// CPU time it spun; since it last began to; and the most of that.
    spun_ns: u64,
    spinning_ns: u64,
    longest_spin_ns: u64,
    /// Progress counted.
    count: u64,
    /// Window of the pause filter, cycles.
    pause_window: u64,
    /// Where loops of the program stand: rounds left, or the moment they end.
    loops: [u64; DEPTH_MAX],
    /// What it waits for has come.
    granted: bool,
    /// It was woken and has not run since.
    just_woken: bool,
    /// How long it was ready after each wake-up until it ran.
    pub wake_delays: SleepTimes,
    /// Something has come that it must not sleep over.
    roused: bool,
    /// Spinlocks it holds.
    held: u8,
    /// Interrupts of siblings that it has not seen yet: who waits for the answer.
    ipis: Vec<TaskId>,
    /// Answers to its own interrupts still to come.
    answers: u32,
    /// Bytes of it in its VM's ring, and what it has taken from one.
    in_ring: u32,
    piece: Option<Piece>,
    /// When it was told that the network has something for it; 0: it knows.
    told_ns: u64,
    /// How it looks to KVM's directed yield.
    pub boost: Boost,
}

/// A vCPU as kvm_vcpu_on_spin sees it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Boost {
    /// It was preempted, not woken (vcpu->preempted).
    pub preempted: bool,
    /// It gave way from within a pause-loop exit (spin_loop.in_spin_loop).
    pub in_spin_loop: bool,
    /// It may be yielded to although it spins itself (spin_loop.dy_eligible).
    pub eligible: bool,
    /// The last tick in which it looked for a sibling to yield to, from 1; of seed 002's throttled yields.
    pub yielded_in_tick: u64,
}

/// A VM as its guest sees it.
#[derive(Debug, Default)]
pub struct GuestVm {
    start_ns: u64,
    locks: Vec<Lock>,
    barriers: Vec<Barrier>,
    queues: Vec<Queue>,
    /// Requests its back-end thread has not begun with.
    requests: VecDeque<Request>,
    /// The request it is at.
    serving: Option<Request>,
    first: TaskId,
    vcpus: u32,
    names: Arc<Names>,
    /// What its vCPUs sent, forwarded and handed to the link.
    pub network_bytes: u64,
    /// How late its vCPUs woke.
    pub sleeps: SleepTimes,
    /// The pCPU on which a vCPU of it last passed lines on.
    passed_on: Option<u32>,
    /// The vCPU that pause-loop exits begin their search after.
    pub last_boosted: u32,
}

/// What comes of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Goes on.
    Goes,
    /// Goes to sleep.
    Blocks,
    /// Is gone for good.
    Exits,
    /// Has spun for too long and leaves the guest to yield.
    PauseExit,
}

/// All guests of a host; vCPUs have the numbers of their tasks.
#[derive(Debug)]
pub struct Guests {
    /// The vCPUs.
    pub vcpus: Vec<Vcpu>,
    /// The VMs.
    pub vms: Vec<GuestVm>,
    programs: Vec<Vec<Step>>,
    /// Rings, and the link behind them.
    network: Network,
    /// What programs draw at random.
    rng: Rng,
    /// ... each vCPU from numbers of its own, where that was asked for.
    own_rngs: Vec<Rng>,
}

impl Default for Guests {
    fn default() -> Self {
        let (vcpus, vms, programs) = (Vec::new(), Vec::new(), Vec::new());
        let (network, rng, own_rngs) = (Network::default(), Rng::new(0), Vec::new());
        Self { vcpus, vms, programs, network, rng, own_rngs }
    }
}

impl Vcpu {
    /// So much less is left of what it is at.
    fn spend(&mut self, ns: u64) {
        if self.left_ns != u64::MAX {
            self.left_ns = self.left_ns.saturating_sub(ns);
        }
    }
}

/// The work done in so much CPU time at that speed.
fn done_ns(ran_ns: u64, speed: u32) -> u64 {
    (u128::from(ran_ns) * u128::from(speed) / u128::from(FULL)) as u64
}

/// The CPU time that so much work takes at that speed.
fn takes_ns(work_ns: u64, speed: u32) -> u64 {
    if speed == FULL {
        return work_ns;
    }
    let takes_ns = (u128::from(work_ns) * u128::from(FULL)).div_ceil(speed.into());
    u64::try_from(takes_ns).unwrap_or(u64::MAX)
}

impl Boost {
    /// It runs again after it gave way, or nobody wanted its pCPU: kvm_vcpu_on_spin ends.
    pub fn back_from_yield(&mut self) {
        if self.in_spin_loop {
            self.in_spin_loop = false;
            self.eligible = false;
        }
    }
}

impl Guests {
    /// Adds a VM; returns the numbers of its vCPUs' programs for [`Guests::add_vcpu`].
    pub fn add_vm(&mut self, programs: &Programs) -> Vec<u32> {
        self.vms.push(GuestVm {
            locks: programs.locks.iter().map(|&terms| Lock::of(terms)).collect(),
            barriers: programs.barriers.iter().map(|&parties| Barrier::of(parties)).collect(),
            queues: (0..programs.queues).map(|_| Queue::default()).collect(),
            first: self.vcpus.len() as TaskId,
            vcpus: programs.of_vcpu.len() as u32 - u32::from(programs.backend),
            names: Arc::clone(&programs.names),
            ..GuestVm::default()
        });
        let number_of = |steps: &Vec<Step>| {
            let known = self.programs.iter().position(|known| known == steps);
            known.unwrap_or_else(|| {
                self.programs.push(steps.clone());
                self.programs.len() - 1
            }) as u32
        };
        programs.of_vcpu.iter().map(number_of).collect()
    }

    /// Adds the next vCPU, asleep, of that VM.
    pub fn add_vcpu(&mut self, vm: u32, program: u32) {
        self.vcpus.push(Vcpu {
            mode: Mode::Asleep,
            timer_late: false,
            step: 0,
            program,
            vm,
            left_ns: 0,
            deadline_ns: 0,
            work_ns: 0,
            spun_ns: 0,
            spinning_ns: 0,
            longest_spin_ns: 0,
            count: 0,
            pause_window: 0,
            loops: [0; DEPTH_MAX],
            granted: false,
            just_woken: false,
            wake_delays: SleepTimes::default(),
            roused: false,
            held: 0,
            ipis: Vec::new(),
            answers: 0,
            in_ring: 0,
            piece: None,
            told_ns: 0,
            boost: Boost::default(),
        });
    }

    /// What programs draw at random follows from that seed.
    pub fn set_seed(&mut self, seed: u64) {
        self.rng = Rng::new(seed);
    }

    /// Each vCPU there is by now draws from numbers of its own, which follow from that seed: its tenth number
    /// is the same whoever of the others drew before, and so under any scheduler.
    pub fn draw_apart(&mut self, seed: u64) {
        let rng = |vcpu: usize| Rng::new(mix(seed ^ mix(vcpu as u64 + 1)));
        self.own_rngs = (0..self.vcpus.len()).map(rng).collect();
    }

    /// Where the vCPU draws its numbers.
    fn rng_of(&mut self, task: TaskId) -> &mut Rng {
        self.own_rngs.get_mut(task as usize).unwrap_or(&mut self.rng)
    }

    /// The host's link sends so much.
    pub fn set_link(&mut self, mbit_s: u32) {
        self.network.mbit_s = mbit_s;
    }

    /// CPU time that the vCPU has spun up to now.
    pub fn spin_ns(&self, m: &Machine, task: TaskId) -> u64 {
        let (vcpu, thread) = (&self.vcpus[task as usize], &m.tasks[task as usize]);
        if vcpu.mode != Mode::Spin || thread.state != TaskState::Running {
            return vcpu.spun_ns;
        }
        vcpu.spun_ns + m.now_ns.saturating_sub(m.pcpus[thread.pcpu as usize].work_from_ns)
    }

    /// The longest that a vCPU of that VM has spun in one go, CPU time; what it spins now counts up to when
    /// it last ran.
    pub fn longest_spin_ns(&self, vm: u32) -> u64 {
        let of_vm = self.vcpus.iter().filter(|vcpu| vcpu.vm == vm);
        of_vm.map(|vcpu| vcpu.longest_spin_ns).max().unwrap_or(0)
    }

    /// Does the vCPU hold a spinlock?
    pub fn holds_lock(&self, task: TaskId) -> bool {
        self.vcpus[task as usize].held > 0
    }

    /// The VM's workload starts now; its clock begins.
    pub fn begin(&mut self, vm: u32, now_ns: u64) {
        self.vms[vm as usize].start_ns = now_ns;
    }

    /// Progress of the vCPU up to now.
    pub fn progress(&self, m: &Machine, task: TaskId) -> u64 {
        let vcpu = &self.vcpus[task as usize];
        let works = matches!(self.programs[vcpu.program as usize][0], Step::Busy(_));
        if works { self.work_ns(m, task) / CPU_UNIT_NS } else { vcpu.count }
    }

    /// Work that the vCPU has done in steps that compute up to now: CPU time at full speed.
    pub fn work_ns(&self, m: &Machine, task: TaskId) -> u64 {
        let (vcpu, thread) = (&self.vcpus[task as usize], &m.tasks[task as usize]);
        if thread.state != TaskState::Running || !vcpu.mode.works() {
            return vcpu.work_ns;
        }
        let pcpu = &m.pcpus[thread.pcpu as usize];
        vcpu.work_ns + done_ns(m.now_ns.saturating_sub(pcpu.work_from_ns), pcpu.speed)
    }

    /// The vCPU is woken: when it runs it will first make its way back into the guest.
    pub fn woken(&mut self, m: &Machine, task: TaskId) {
        let vcpu = &mut self.vcpus[task as usize];
        vcpu.timer_late = false;
        vcpu.just_woken = true;
        vcpu.mode = if vcpu.mode == Mode::Dying { Mode::Dying } else { Mode::Resume };
        if vcpu.mode == Mode::Resume {
            vcpu.left_ns = if m.tasks[task as usize].in_kvm_run { m.costs.resume_ns } else { 0 };
        }
    }

    /// Its VM is killed: it has just enough to do to leave.
    pub fn kill(&mut self, m: &mut Machine, task: TaskId) {
        let running = m.tasks[task as usize].state == TaskState::Running;
        let vcpu = &mut self.vcpus[task as usize];
        vcpu.mode = Mode::Dying;
        vcpu.left_ns = m.costs.exit_thread_ns;
        m.tasks[task as usize].in_kvm_run = false;
        m.events.cancel(timer_source(&m.pcpus, task));
        if running {
            m.tasks[task as usize].leaving = true;
            self.spend_on(m, task, Mode::Dying, m.costs.exit_thread_ns);
        }
    }

    /// The vCPU begins to run on the pCPU: it was scheduled in.
    pub fn enter(&mut self, m: &mut Machine, cpu: u32, task: TaskId) {
        let vcpu = &mut self.vcpus[task as usize];
        m.tasks[task as usize].leaving = vcpu.mode == Mode::Dying;
        if std::mem::take(&mut vcpu.just_woken) {
            vcpu.wake_delays.record(m.now_ns - m.tasks[task as usize].ready_since_ns);
        }
        if !self.vcpus[task as usize].ipis.is_empty() {
            self.answer(m, cpu, task);
        }
        if let Some(pause_loop) = &m.costs.pause_loop {
            let vcpu = &mut self.vcpus[task as usize];
            vcpu.pause_window = pause_loop.entered(vcpu.pause_window);
            m.tasks[task as usize].spun_ns = 0;
            vcpu.boost.preempted = false;
            vcpu.boost.back_from_yield();
        }
        // Who sleeps sees events once it is back in its guest.
        if self.vcpus[task as usize].mode != Mode::Resume {
            self.note_told(m.now_ns, task);
        }
        if self.vcpus[task as usize].mode == Mode::Spin && self.grab(m, task) {
            return;
        }
        self.start(m, cpu, task);
    }

    /// The running vCPU goes on with what it is at.
    fn start(&mut self, m: &mut Machine, cpu: u32, task: TaskId) {
        let pcpu = &mut m.pcpus[cpu as usize];
        let from_ns = pcpu.work_from_ns;
        let vcpu = &mut self.vcpus[task as usize];
        pcpu.pays_in_step = vcpu.mode == Mode::Receive;
        pcpu.paid_ns = if pcpu.pays_in_step { from_ns.saturating_sub(m.now_ns) } else { 0 };
        match vcpu.mode {
            Mode::WorkUntil if vcpu.deadline_ns == u64::MAX => {}
            Mode::WorkUntil => m.events.set(step_source(cpu), from_ns.max(vcpu.deadline_ns)),
            Mode::Spin => self.set_spin(m, cpu, task),
            Mode::Work => {
                m.events.set(step_source(cpu), from_ns + takes_ns(vcpu.left_ns, pcpu.speed))
            }
            _ => m.events.set(step_source(cpu), from_ns - pcpu.paid_ns + vcpu.left_ns),
        }
    }

    /// A spinning vCPU is let out by the pause filter, or gives up, whichever comes first.
    fn set_spin(&self, m: &mut Machine, cpu: u32, task: TaskId) {
        let vcpu = &self.vcpus[task as usize];
        let spins_ns = m.costs.window_ns(vcpu.pause_window).min(vcpu.left_ns);
        if spins_ns != u64::MAX {
            m.events.set(step_source(cpu), m.pcpus[cpu as usize].work_from_ns + spins_ns);
        }
    }

    /// The vCPU stops running on the pCPU, or its step there is over.
    pub fn stop(&mut self, m: &mut Machine, cpu: u32, task: TaskId) {
        m.events.cancel(step_source(cpu));
        self.settle(m, cpu, task);
    }

    fn settle(&mut self, m: &mut Machine, cpu: u32, task: TaskId) {
        let paid_ns = std::mem::take(&mut m.pcpus[cpu as usize].paid_ns);
        self.vcpus[task as usize].spend(paid_ns);
        self.settle_work(m, cpu, task);
    }

    /// What the running vCPU has done so far is done.
    fn settle_work(&mut self, m: &mut Machine, cpu: u32, task: TaskId) {
        let pcpu = &mut m.pcpus[cpu as usize];
        let ran_ns = m.now_ns.saturating_sub(pcpu.work_from_ns);
        pcpu.work_from_ns = pcpu.work_from_ns.max(m.now_ns);
        let vcpu = &mut self.vcpus[task as usize];
        let done_ns = done_ns(ran_ns, pcpu.speed);
        vcpu.spend(if vcpu.mode == Mode::Work { done_ns } else { ran_ns });
        if vcpu.mode.works() {
            vcpu.work_ns += done_ns;
        } else if vcpu.mode == Mode::Spin {
            vcpu.spun_ns += ran_ns;
            vcpu.spinning_ns += ran_ns;
            vcpu.longest_spin_ns = vcpu.longest_spin_ns.max(vcpu.spinning_ns);
        }
    }

    /// The running vCPU works at that speed from now on.
    pub fn set_speed(&mut self, m: &mut Machine, cpu: u32, task: TaskId, speed: u32) {
        if m.pcpus[cpu as usize].speed == speed {
            return;
        }
        self.settle_work(m, cpu, task);
        m.pcpus[cpu as usize].speed = speed;
        let vcpu = &self.vcpus[task as usize];
        if vcpu.mode == Mode::Work {
            let at_ns = m.pcpus[cpu as usize].work_from_ns + takes_ns(vcpu.left_ns, speed);
            m.events.set(step_source(cpu), at_ns);
        }
    }

    /// The running vCPU has come to the end of what it was at; what now?
    pub fn step(&mut self, m: &mut Machine, cpu: u32, task: TaskId) -> Outcome {
        self.settle(m, cpu, task);
        let now_ns = m.now_ns;
        let vcpu = &mut self.vcpus[task as usize];
        match vcpu.mode {
            Mode::Dying => return Outcome::Exits,
            Mode::Spin if vcpu.left_ns == 0 => return self.halt(m, task, u64::MAX),
            Mode::Spin => return Outcome::PauseExit,
            Mode::Halting if now_ns < vcpu.deadline_ns && !vcpu.roused => {
                vcpu.mode = Mode::Asleep;
                if vcpu.deadline_ns != u64::MAX {
                    m.events.set(timer_source(&m.pcpus, task), vcpu.deadline_ns);
                }
                return Outcome::Blocks;
            }
            // The timer has fired on the way, or somebody has come: no sleep.
            Mode::Halting => return self.spend_on(m, task, Mode::Resume, m.costs.resume_ns),
            Mode::Resume => {
                if let Some(outcome) = self.back_in_guest(m, task) {
                    return outcome;
                }
            }
            _ => self.next_step(task),
        }
        self.go_on(m, cpu, task)
    }

    /// A spinning vCPU that was let out spins on, in a wider window.
    pub fn spin_on(&mut self, m: &mut Machine, cpu: u32, task: TaskId) {
        let Some(pause_loop) = &m.costs.pause_loop else { return };
        let vcpu = &mut self.vcpus[task as usize];
        m.tasks[task as usize].spun_ns += m.costs.cycles_ns(vcpu.pause_window);
        vcpu.pause_window = pause_loop.grown(vcpu.pause_window);
        self.set_spin(m, cpu, task);
    }

    /// Would KVM find the vCPU in the guest's kernel mode (kvm_arch_vcpu_in_kernel)?
    pub fn in_kernel(&self, task: TaskId) -> bool {
        let vcpu = &self.vcpus[task as usize];
        let step = self.programs[vcpu.program as usize][vcpu.step as usize];
        let user = matches!(step, Step::Work { user: true, .. } | Step::Draw { user: true, .. });
        vcpu.held > 0 || vcpu.mode != Mode::Work || !user
    }

    /// Has the vCPU an interrupt that it has not seen (kvm_arch_dy_has_pending_interrupt)?
    pub fn has_interrupt(&self, task: TaskId) -> bool {
        !self.vcpus[task as usize].ipis.is_empty()
    }

    fn next_step(&mut self, task: TaskId) {
        let vcpu = &mut self.vcpus[task as usize];
        let steps = self.programs[vcpu.program as usize].len() as u16;
        vcpu.step = if vcpu.step + 1 == steps { 0 } else { vcpu.step + 1 };
    }

    /// Goes through the program until a step takes time.
    fn go_on(&mut self, m: &mut Machine, cpu: u32, task: TaskId) -> Outcome {
        for _ in 0..IDLE_STEPS_MAX {
            let vcpu = &self.vcpus[task as usize];
            let step = self.programs[vcpu.program as usize][vcpu.step as usize];
            if let Some(outcome) = self.begin_step(m, cpu, task, step) {
                return outcome;
            }
            self.next_step(task);
        }
        let vm = self.vcpus[task as usize].vm;
        m.complain(|| format!("the program of VM {vm} takes no time and would never end"));
        Outcome::Goes
    }

    /// Begins a step; none when it is over already.
    fn begin_step(
        &mut self,
        m: &mut Machine,
        cpu: u32,
        task: TaskId,
        step: Step,
    ) -> Option<Outcome> {
        let now_ns = m.now_ns;
        match step {
            Step::Work { ns: 0, .. } => None,
            Step::Work { ns, .. } => Some(self.work_on(m, task, ns)),
            Step::Draw { time, .. } => match self.draw(task, time) {
                0 => None,
                ns => Some(self.work_on(m, task, ns)),
            },
            Step::Busy(duty) => self.begin_busy(m, cpu, task, duty),
            Step::Rest => {
                let deadline_ns = self.vcpus[task as usize].deadline_ns;
                if now_ns < deadline_ns {
                    return Some(self.halt(m, task, deadline_ns));
                }
                self.vcpus[task as usize].deadline_ns = now_ns;
                None
            }
            Step::Take { lock } => Some(self.take(m, task, lock)),
            Step::Release { lock } => {
                self.release(m, task, lock);
                None
            }
            Step::Meet { barrier } => Some(self.meet(m, task, barrier)),
            Step::SleepGrid { period_ns, offset_ns } => {
                let vm = self.vcpus[task as usize].vm;
                let first_ns = self.vms[vm as usize].start_ns + offset_ns;
                let passed = (now_ns + 1).saturating_sub(first_ns).div_ceil(period_ns);
                Some(self.halt(m, task, first_ns + passed * period_ns))
            }
            Step::Sleep { ns: 0 } => None,
            Step::Sleep { ns } => Some(self.halt(m, task, now_ns + ns)),
            Step::Join { barrier } => Some(self.join(m, task, barrier)),
            Step::Ipi(to) => Some(self.send_ipi(m, task, to)),
            Step::Io { time, device_ns } => Some(self.ask_backend(m, task, time, device_ns)),
            Step::Serve => Some(self.serve(m, task)),
            Step::Wait { queue } => Some(self.take_work(m, task, queue)),
            Step::Spawn { times, queue } => {
                self.spawn_work(m, task, queue, times);
                None
            }
            Step::Send { bytes } => self.send(m, task, bytes),
            Step::Forward => self.forward(m, task),
            Step::Transmit => self.transmit(m, task),
            Step::Pass { lines } => Some(self.pass(m, cpu, task, lines)),
            Step::Count { times } => {
                self.vcpus[task as usize].count += u64::from(times);
                None
            }
            Step::Repeat { .. } | Step::For { .. } | Step::End { .. } => {
                self.go_round(now_ns, task, step);
                None
            }
        }
    }

    /// A loop begins or a round of it ends: the step is where the program stands afterwards.
    fn go_round(&mut self, now_ns: u64, task: TaskId, step: Step) {
        let vcpu = &mut self.vcpus[task as usize];
        match step {
            Step::Repeat { times, depth } => vcpu.loops[usize::from(depth)] = u64::from(times),
            Step::For { ns, depth } => {
                vcpu.loops[usize::from(depth)] = now_ns.saturating_add(ns);
            }
            Step::End { begin, depth } => {
                let rounds = &mut vcpu.loops[usize::from(depth)];
                let again = match self.programs[vcpu.program as usize][usize::from(begin)] {
                    Step::For { .. } => now_ns < *rounds,
                    _ => {
                        *rounds -= 1;
                        *rounds > 0
                    }
                };
                if again {
                    vcpu.step = begin;
                }
            }
            _ => unreachable!("only loops go round"),
        }
    }

    /// The running vCPU takes lines over from the one that last passed them on, and writes them.
    fn pass(&mut self, m: &mut Machine, cpu: u32, task: TaskId, lines: u32) -> Outcome {
        let vm = &mut self.vms[self.vcpus[task as usize].vm as usize];
        let from = vm.passed_on.replace(cpu).unwrap_or(cpu);
        let llc_of = &m.topology.llc_of;
        let line_ns = if from == cpu {
            0
        } else if llc_of[from as usize] == llc_of[cpu as usize] {
            m.costs.line_near_ns
        } else {
            m.costs.line_far_ns
        };
        let takes_ns = m.costs.atomic_ns + u64::from(lines) * line_ns;
        self.spend_on(m, task, Mode::Handover, takes_ns)
    }

    /// How long it is this time.
    fn draw(&mut self, task: TaskId, time: StepTime) -> u64 {
        let rng = self.rng_of(task);
        match time {
            StepTime::Exactly(ns) => ns,
            StepTime::Between(from_ns, to_ns) => from_ns + rng.below(to_ns - from_ns + 1),
            StepTime::About(ns) => {
                // From (0, 1]: its logarithm is finite.
                let part = (rng.bits() >> 11) as f64 + 1.0;
                let drawn = -(part / (1u64 << 53) as f64).ln() * ns as f64;
                drawn.round() as u64
            }
        }
    }

    fn begin_busy(
        &mut self,
        m: &mut Machine,
        cpu: u32,
        task: TaskId,
        duty: Duty,
    ) -> Option<Outcome> {
        let vcpu = &mut self.vcpus[task as usize];
        let then_ns = self.vms[vcpu.vm as usize].start_ns.saturating_add(duty.then_at_ns);
        let later = m.now_ns >= then_ns;
        let pct = if later { duty.then_pct } else { duty.pct };
        if pct >= 100 {
            vcpu.mode = Mode::WorkUntil;
            vcpu.deadline_ns = if later { u64::MAX } else { then_ns };
            self.start(m, cpu, task);
            return Some(Outcome::Goes);
        }
        let begin_ns = if vcpu.deadline_ns == 0 { m.now_ns } else { vcpu.deadline_ns };
        let busy_ns = duty.period_ns * u64::from(pct) / 100;
        if busy_ns == 0 {
            // With nothing to do it does not wake for each period, as the micro VM's.
            let long_ns = m.now_ns + IDLE_PERIODS * duty.period_ns;
            vcpu.deadline_ns = if later { long_ns } else { then_ns.min(long_ns) };
            return None;
        }
        vcpu.deadline_ns = begin_ns + duty.period_ns;
        Some(self.spend_on(m, task, Mode::Receive, busy_ns))
    }

    /// The vCPU works for so long, or as much longer as the host is slow now.
    fn work_on(&mut self, m: &mut Machine, task: TaskId, ns: u64) -> Outcome {
        self.spend_on(m, task, Mode::Work, ns * m.slowness)
    }

    /// The vCPU spends CPU time in that mode, from now on if it runs, else when it runs.
    fn spend_on(&mut self, m: &mut Machine, task: TaskId, mode: Mode, ns: u64) -> Outcome {
        let vcpu = &mut self.vcpus[task as usize];
        vcpu.mode = mode;
        vcpu.left_ns = ns;
        let thread = &m.tasks[task as usize];
        if thread.state == TaskState::Running {
            let cpu = thread.pcpu;
            let pcpu = &mut m.pcpus[cpu as usize];
            pcpu.work_from_ns = pcpu.work_from_ns.max(m.now_ns);
            self.start(m, cpu, task);
        }
        Outcome::Goes
    }
}

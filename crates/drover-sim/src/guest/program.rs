// SPDX-License-Identifier: GPL-2.0-only
//! Programs of guests: a few steps that a vCPU goes through again and again.
//!
//! The workloads of scenarios are written in them, to mean what the micro VMs' programs mean
//! (crates/drover-guest/guest/*.c). Worked example: `lock` with think 20 µs and hold 5 µs is
//! `[Work 20 µs, Take 0, Work 5 µs, Release 0, Count]`.

use drover_scenario::{
    CpuThen, IpiTo, LockKind, Program, ProgramLock, ProgramStep, StepTime, Workload,
};
use std::sync::Arc;

/// CPU time of one unit of progress of `cpu`: what the micro VMs' unit takes on a real CPU.
pub const CPU_UNIT_NS: u64 = 500;

/// One step of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Compute for so long, in CPU time. Micro VMs have no user mode.
    Work {
        /// How long.
        ns: u64,
        /// In the guest's user mode?
        user: bool,
    },
    /// Compute for a time that is drawn anew each time.
    Draw {
        /// How long.
        time: StepTime,
        /// In the guest's user mode?
        user: bool,
    },
    /// The busy part of a period: see [`Duty`].
    Busy(Duty),
    /// The rest of a period: halt until the next begins, unless it already has.
    Rest,
    /// Take a spinlock of the VM: spin until it is ours.
    Take {
        /// Which one.
        lock: u32,
    },
    /// Give it back.
    Release {
        /// Which one.
        lock: u32,
    },
    /// Spin until all parties of a barrier have come.
    Meet {
        /// Which one.
        barrier: u32,
    },
    /// Halt until all parties of a barrier have come.
    Join {
        /// Which one.
        barrier: u32,
    },
    /// Halt until the next moment of a grid; note how late we are back; that is one progress.
    SleepGrid {
        /// Distance of the moments.
        period_ns: u64,
        /// The first of them, after the start of the VM.
        offset_ns: u64,
    },
    /// Halt for so long.
    Sleep {
        /// How long.
        ns: u64,
    },
    /// Interrupt siblings and spin until they have answered.
    Ipi(IpiTo),
    /// Ask the back-end thread for something and halt until it is done.
    Io {
        /// CPU time of the back-end thread.
        time: StepTime,
        /// How long the device takes after that.
        device_ns: u64,
    },
    /// What the back-end thread does: one request after the other.
    Serve,
    /// Take a piece of work from a queue; halt while there is none.
    Wait {
        /// Which queue.
        queue: u32,
    },
    /// Put work into a queue.
    Spawn {
        /// How many pieces.
        times: u32,
        /// Which queue.
        queue: u32,
    },
    /// Send by the network; halt while the ring is full.
    Send {
        /// How much.
        bytes: u32,
    },
    /// Take what some VM sends; halt while there is nothing.
    Forward,
    /// Hand that to the link; halt while too much waits there.
    Transmit,
    /// Read so many cache lines from the vCPU that last did so, and write them.
    Pass {
        /// How many.
        lines: u32,
    },
    /// So much progress.
    Count {
        /// How much.
        times: u32,
    },
    /// What follows, up to its end, so often.
    Repeat {
        /// How often.
        times: u32,
        /// How many loops it stands in.
        depth: u8,
    },
    /// What follows, up to its end, again and again for so long.
    For {
        /// How long.
        ns: u64,
        /// How many loops it stands in.
        depth: u8,
    },
    /// The end of a loop that began with this step.
    End {
        /// The number of that step.
        begin: u16,
        /// How many loops it stands in.
        depth: u8,
    },
}

/// How busy a vCPU of `cpu` is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Duty {
    /// Length of a period.
    pub period_ns: u64,
    /// Busy part of it, in CPU time, %; from 100 on there are no periods.
    pub pct: u32,
    /// When that changes, after the start of the VM.
    pub then_at_ns: u64,
    /// Busy part from then on.
    pub then_pct: u32,
}

/// What a spinlock is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockTerms {
    /// How it is handed over.
    pub kind: LockKind,
    /// How long a vCPU spins for it before it halts; for ever without paravirtual support.
    pub spin_ns: u64,
}

impl LockTerms {
    /// The micro VMs' lock.
    const TICKET: Self = Self { kind: LockKind::Ticket, spin_ns: u64::MAX };

    fn of(lock: &ProgramLock, pv_spin_us: u32) -> Self {
        let spin_ns = if lock.paravirtual { u64::from(pv_spin_us) * 1000 } else { u64::MAX };
        Self { kind: lock.kind, spin_ns }
    }
}

/// What a VM's vCPUs do, and what they share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Programs {
    /// The program of each vCPU, and of the back-end thread behind them if there is one.
    pub of_vcpu: Vec<Vec<Step>>,
    /// The spinlocks.
    pub locks: Vec<LockTerms>,
    /// How many parties each barrier waits for.
    pub barriers: Vec<u32>,
    /// Number of queues of work.
    pub queues: u32,
    /// Does the last program belong to a back-end thread of the VMM?
    pub backend: bool,
    /// What locks, barriers and queues are called, where the scenario gives them names.
    pub names: Arc<Names>,
}

/// What locks, barriers and queues are called.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    /// Of locks.
    pub locks: Vec<String>,
    /// Of barriers.
    pub barriers: Vec<String>,
    /// Of queues.
    pub queues: Vec<String>,
}

impl Programs {
    /// The programs of a VM with so many vCPUs. None for what no simulator runs: a program of a Linux
    /// guest, and one that calls KVM.
    pub fn of(workload: &Workload, vcpus: u32) -> Option<Self> {
        let every = |steps: Vec<Step>| vec![steps; vcpus as usize];
        let ns = |us: u32| u64::from(us) * 1000;
        if workload.calls_kvm() {
            return None;
        }
        Some(match *workload {
            Workload::Cpu { duty_pct, period_us, ref then } => Self::plain(every(vec![
                Step::Busy(duty(duty_pct, period_us, then.as_ref())),
                Step::Rest,
            ])),
            Workload::Lock { hold_us, think_us, .. } => {
                let steps = every(locking(ns(think_us), ns(hold_us)));
                Self { locks: vec![LockTerms::TICKET], ..Self::plain(steps) }
            }
            Workload::Barrier { work_us, .. } => {
                let steps = every(meeting(ns(work_us)));
                Self { barriers: vec![vcpus], ..Self::plain(steps) }
            }
            Workload::Sleep { period_us, work_us } => {
                let program = |rank| sleeping(ns(period_us), ns(work_us), rank, vcpus);
                Self::plain((0..vcpus).map(program).collect())
            }
            Workload::Io { work_us, back_end_us, device_us } => {
                let time = StepTime::Exactly(ns(back_end_us));
                let io = Step::Io { time, device_ns: ns(device_us) };
                let mut of_vcpu = every(vec![work(ns(work_us)), io, Step::Count { times: 1 }]);
                of_vcpu.push(vec![Step::Serve]);
                Self { backend: true, ..Self::plain(of_vcpu) }
            }
            Workload::Mix {} => mix(vcpus),
            Workload::Program(ref program) => written(program, vcpus),
            Workload::Yield { .. } | Workload::Command { .. } => return None,
        })
    }

    fn plain(of_vcpu: Vec<Vec<Step>>) -> Self {
        Self {
            of_vcpu,
            locks: Vec::new(),
            barriers: Vec::new(),
            queues: 0,
            backend: false,
            names: Arc::default(),
        }
    }
}

fn duty(pct: u32, period_us: u32, then: Option<&CpuThen>) -> Duty {
    let (then_at_ns, then_pct) = match then {
        Some(then) => ((then.after_s * 1e9) as u64, then.duty_pct),
        None => (u64::MAX, pct),
    };
    Duty { period_ns: u64::from(period_us) * 1000, pct, then_at_ns, then_pct }
}

fn work(ns: u64) -> Step {
    Step::Work { ns, user: false }
}

fn locking(think_ns: u64, hold_ns: u64) -> Vec<Step> {
    let (take, release) = (Step::Take { lock: 0 }, Step::Release { lock: 0 });
    vec![work(think_ns), take, work(hold_ns), release, Step::Count { times: 1 }]
}

fn meeting(work_ns: u64) -> Vec<Step> {
    vec![work(work_ns), Step::Meet { barrier: 0 }, Step::Count { times: 1 }]
}

fn sleeping(period_ns: u64, work_ns: u64, rank: u32, parties: u32) -> Vec<Step> {
    let offset_ns = period_ns + period_ns * u64::from(rank) / u64::from(parties);
    vec![Step::SleepGrid { period_ns, offset_ns }, work(work_ns)]
}

/// vCPUs 0, 4, 8 ... are busy, 1, 5 ... lock, 2, 6 ... sleep, 3, 7 ... meet.
fn mix(vcpus: u32) -> Programs {
    use drover_scenario::Workload as W;
    let parse = |kind: &str| serde_json::from_value::<W>(serde_json::json!({ "kind": kind }));
    let kinds = ["cpu", "lock", "sleep", "barrier"].map(|kind| parse(kind).expect("defaults"));
    let mut programs = Programs { locks: vec![LockTerms::TICKET], ..Programs::plain(Vec::new()) };
    for index in 0..vcpus {
        let parties = (vcpus - index % 4).div_ceil(4);
        let alike = Programs::of(&kinds[index as usize % 4], parties).expect("micro programs");
        programs.of_vcpu.push(alike.of_vcpu[index as usize / 4].clone());
        if index == 3 {
            programs.barriers = alike.barriers;
        }
    }
    programs
}

/// The programs that a scenario writes out.
fn written(program: &Program, vcpus: u32) -> Programs {
    let role = |vcpu| &program.role_of(vcpu).expect("the parser gave each a role").steps;
    let meets = |vcpu: u32, barrier: u32| {
        let here = |step: &ProgramStep| match *step {
            ProgramStep::Meet(at) | ProgramStep::Join(at) => at == barrier,
            _ => false,
        };
        role(vcpu).iter().any(here)
    };
    let parties = |barrier: usize| (0..vcpus).filter(|&vcpu| meets(vcpu, barrier as u32)).count();
    let lock = |lock: &ProgramLock| LockTerms::of(lock, program.pv_spin_us);
    let mut of_vcpu: Vec<Vec<Step>> = (0..vcpus).map(|vcpu| steps_of(role(vcpu))).collect();
    let io = |step: &Step| matches!(step, Step::Io { .. });
    let backend = of_vcpu.iter().flatten().any(io);
    if backend {
        of_vcpu.push(vec![Step::Serve]);
    }
    Programs {
        of_vcpu,
        locks: program.locks.iter().map(lock).collect(),
        barriers: (0..program.barriers.len()).map(|barrier| parties(barrier) as u32).collect(),
        queues: program.queues.len() as u32,
        backend,
        names: Arc::new(Names {
            locks: program.locks.iter().map(|lock| lock.name.clone()).collect(),
            barriers: program.barriers.clone(),
            queues: program.queues.clone(),
        }),
    }
}

fn steps_of(steps: &[ProgramStep]) -> Vec<Step> {
    let mut begun: Vec<u16> = Vec::new();
    let mut depth = 0u8;
    let compute = |time, user| match time {
        StepTime::Exactly(ns) => Step::Work { ns, user },
        time => Step::Draw { time, user },
    };
    let step = |(number, step): (usize, &ProgramStep)| match *step {
        ProgramStep::Compute(time) => compute(time, true),
        ProgramStep::Kernel(time) => compute(time, false),
        ProgramStep::Take(lock) => Step::Take { lock },
        ProgramStep::Release(lock) => Step::Release { lock },
        ProgramStep::Meet(barrier) => Step::Meet { barrier },
        ProgramStep::Join(barrier) => Step::Join { barrier },
        ProgramStep::Sleep(ns) => Step::Sleep { ns },
        ProgramStep::Timer(ns) => Step::SleepGrid { period_ns: ns, offset_ns: ns },
        ProgramStep::Ipi(to) => Step::Ipi(to),
        ProgramStep::Io(time, device_ns) => Step::Io { time, device_ns },
        ProgramStep::Wait(queue) => Step::Wait { queue },
        ProgramStep::Spawn(times, queue) => Step::Spawn { times, queue },
        ProgramStep::Send(bytes) => Step::Send { bytes },
        ProgramStep::Forward => Step::Forward,
        ProgramStep::Transmit => Step::Transmit,
        ProgramStep::Pass(lines) => Step::Pass { lines },
        ProgramStep::Count(times) => Step::Count { times },
        ProgramStep::Repeat(times) => {
            begun.push(number as u16);
            depth += 1;
            Step::Repeat { times, depth: depth - 1 }
        }
        ProgramStep::For(ns) => {
            begun.push(number as u16);
            depth += 1;
            Step::For { ns, depth: depth - 1 }
        }
        ProgramStep::End => {
            depth -= 1;
            Step::End { begin: begun.pop().expect("the parser matched them"), depth }
        }
    };
    steps.iter().enumerate().map(step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use drover_scenario::Role;

    #[test]
    fn sleepers_spread_over_their_period() {
        let programs = Programs::of(&Workload::Sleep { period_us: 2000, work_us: 0 }, 2).unwrap();
        let first = |vcpu: usize| programs.of_vcpu[vcpu][0];
        assert_eq!(first(0), Step::SleepGrid { period_ns: 2_000_000, offset_ns: 2_000_000 });
        assert_eq!(first(1), Step::SleepGrid { period_ns: 2_000_000, offset_ns: 3_000_000 });
    }

    #[test]
    fn a_mix_meets_with_its_own_kind_only() {
        let programs = Programs::of(&Workload::Mix {}, 10).unwrap();
        assert_eq!((programs.locks.len(), programs.barriers.clone()), (1, vec![2]));
        assert_eq!(programs.of_vcpu[7], programs.of_vcpu[3]);
        assert!(matches!(programs.of_vcpu[8][0], Step::Busy(_)));
        assert!(matches!(programs.of_vcpu[6][0], Step::SleepGrid { offset_ns: 3_000_000, .. }));
        assert!(Programs::of(&Workload::Mix {}, 3).unwrap().barriers.is_empty());
    }

    #[test]
    fn linux_programs_are_not_simulated() {
        let workload = Workload::Command { run: "hackbench".to_owned(), ready: None };
        assert_eq!(Programs::of(&workload, 1), None);
    }

    #[test]
    fn loops_know_where_they_began_and_io_brings_a_back_end() {
        use ProgramStep as P;
        let steps = vec![P::Repeat(2), P::For(9), P::Meet(0), P::End, P::End];
        let io = P::Io(StepTime::Exactly(1), 0);
        let roles = vec![
            Role { vcpus: Some("0-1".parse().unwrap()), steps },
            Role { vcpus: None, steps: vec![io] },
        ];
        let barriers = vec!["b".to_owned()];
        let program = Program { roles, barriers, ..Program::default() };
        let programs = Programs::of(&Workload::Program(Box::new(program)), 3).unwrap();
        assert_eq!(programs.of_vcpu[0][3], Step::End { begin: 1, depth: 1 });
        assert_eq!(programs.of_vcpu[1][4], Step::End { begin: 0, depth: 0 });
        assert_eq!((programs.barriers, programs.backend), (vec![2], true));
        assert_eq!(programs.of_vcpu[3], [Step::Serve]);
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! Guests as small programs: the vocabulary of `kind = "program"`.
//!
//! A program is a list of steps that a vCPU goes through again and again, each a line of text such
//! as `compute 20 us`. Worked example: a file server whose vCPUs meet at one kernel lock is
//! `compute 20 us`, `take dcache`, `kernel 2 us`, `release dcache`, `count`.

use drover_core::cpu_list::CpuList;
use serde::{Deserialize, Serialize};

/// The longest time a step may say: a day.
pub const STEP_NS_MAX: u64 = 86_400_000_000_000;
/// The least time a round may take: a run in which nothing else happens would take hours.
pub const ROUND_NS_MIN: u64 = 100;
/// The most rounds `repeat`, pieces of work `spawn` and progress `count` may say.
pub const STEP_TIMES_MAX: u32 = 1_000_000;
/// The bytes that a VM's ring holds: 256 slots of a page, as Xen's and as virtio's usual one.
pub const RING_BYTES: u32 = 1 << 20;
/// How deep `repeat` and `for` may stand in each other.
pub const DEPTH_MAX: usize = 3;
/// How long a vCPU spins for a paravirtual lock before it halts: Linux's SPIN_THRESHOLD of 2^15
/// rounds of about 40 cycles at 2.6 GHz.
pub const PV_SPIN_US: u32 = 500;

/// Programs of the vCPUs of a VM, and what they share.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// Who does what; together they speak of every vCPU once.
    pub roles: Vec<Role>,
    /// The spinlocks, by number.
    pub locks: Vec<ProgramLock>,
    /// Names of the barriers, by number.
    pub barriers: Vec<String>,
    /// Names of the queues of work, by number.
    pub queues: Vec<String>,
    /// How long a vCPU spins for a paravirtual lock before it halts, µs.
    pub pv_spin_us: u32,
}

/// What some of the vCPUs do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Role {
    /// Which vCPUs; none: all that no other role names.
    pub vcpus: Option<CpuList>,
    /// Their steps.
    pub steps: Vec<ProgramStep>,
}

/// A spinlock of a guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgramLock {
    /// Its name.
    pub name: String,
    /// How it is handed over.
    pub kind: LockKind,
    /// Do waiters halt after a while, to be kicked by who releases it?
    pub paravirtual: bool,
}

/// How a spinlock is handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LockKind {
    /// To whoever asked first, running or not.
    Ticket,
    /// To any of those that run and spin just then; to nobody if none does.
    TestAndSet,
}

/// A time that a step takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StepTime {
    /// Always so long, ns.
    Exactly(u64),
    /// Any time between the two, ns, each as likely.
    Between(u64, u64),
    /// So long on average, ns; the longer the rarer (exponential).
    About(u64),
}

/// Whom an interprocessor interrupt is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IpiTo {
    /// Any one sibling.
    One,
    /// All siblings that are not halted, as a TLB shootdown.
    All,
    /// This vCPU.
    Vcpu(u32),
}

/// A step. Locks, barriers and queues by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProgramStep {
    /// Compute in user mode.
    Compute(StepTime),
    /// Compute in kernel mode.
    Kernel(StepTime),
    /// Spin until the lock is ours.
    Take(u32),
    /// Give it back.
    Release(u32),
    /// Spin until all that meet here have come.
    Meet(u32),
    /// Halt until all that join here have come.
    Join(u32),
    /// Halt for so long, ns.
    Sleep(u64),
    /// Halt until the next moment of a grid of that width, ns; note how late we are back; one
    /// progress.
    Timer(u64),
    /// Interrupt siblings and spin until they have answered.
    Ipi(IpiTo),
    /// A request to the VMM's back-end thread, which takes the first time of CPU; the second, ns,
    /// is how long the device takes. Halt until it is done.
    Io(StepTime, u64),
    /// Take a piece of work from the queue; halt while there is none.
    Wait(u32),
    /// Put so many pieces of work into the queue.
    Spawn(u32, u32),
    /// Send so many bytes by the network: they stand in the VM's ring until a back end has handed them to
    /// the host's link. Halt while the ring is full.
    Send(u32),
    /// Take what waits in any VM's ring, the first to come; halt while there is nothing.
    Forward,
    /// Hand that to the link; halt while too much waits there.
    Transmit,
    /// Read so many cache lines from the vCPU that last did so, and write them.
    Pass(u32),
    /// So much progress.
    Count(u32),
    /// All up to the matching end, so often.
    Repeat(u32),
    /// All up to the matching end, again and again for so long, ns.
    For(u64),
    /// The end of what repeats.
    End,
}

impl ProgramStep {
    /// How long it takes on average, whatever the others do, ns; where that is the host's to say, as
    /// much as a round needs.
    pub fn takes_ns(self) -> u64 {
        let mean_ns = |time| match time {
            StepTime::Exactly(ns) | StepTime::About(ns) => ns,
            StepTime::Between(from_ns, to_ns) => u64::midpoint(from_ns, to_ns),
        };
        match self {
            Self::Compute(time) | Self::Kernel(time) => mean_ns(time),
            Self::Sleep(0) => 0,
            Self::Sleep(_) | Self::Timer(_) | Self::Io(..) | Self::Take(_) | Self::Ipi(_) => {
                ROUND_NS_MIN
            }
            Self::Wait(_) | Self::Meet(_) | Self::Join(_) => ROUND_NS_MIN,
            Self::Send(_) | Self::Forward | Self::Pass(_) => ROUND_NS_MIN,
            _ => 0,
        }
    }

    /// May the vCPU halt in it?
    pub fn halts(self) -> bool {
        matches!(
            self,
            Self::Join(_)
                | Self::Sleep(_)
                | Self::Timer(_)
                | Self::Io(..)
                | Self::Wait(_)
                | Self::Send(_)
                | Self::Forward
                | Self::Transmit
        )
    }
}

impl Program {
    /// Does it speak of the host's network link?
    pub fn uses_link(&self) -> bool {
        let net = |step: &ProgramStep| {
            matches!(step, ProgramStep::Send(_) | ProgramStep::Forward | ProgramStep::Transmit)
        };
        self.roles.iter().flat_map(|role| &role.steps).any(net)
    }

    /// The role of that vCPU; none when no role speaks of it.
    pub fn role_of(&self, vcpu: u32) -> Option<&Role> {
        let names = |role: &&Role| role.vcpus.as_ref().is_some_and(|list| list.contains(vcpu));
        let rest = || self.roles.iter().find(|role| role.vcpus.is_none());
        self.roles.iter().find(names).or_else(rest)
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! Programs of guests: a few steps that a vCPU goes through again and again.
//!
//! The workloads of scenarios are written in them, to mean what the micro VMs' programs mean
//! (crates/drover-guest/guest/*.c). Worked example: `lock` with think 20 µs and hold 5 µs is
//! `[Work 20 µs, Take 0, Work 5 µs, Release 0, Count]`.

use drover_core::scenario::{CpuThen, Workload};

/// CPU time of one unit of progress of `cpu`: what the micro VMs' unit takes on a real CPU.
pub const CPU_UNIT_NS: u64 = 500;

/// One step of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Compute for so long, in CPU time.
    Work {
        /// How long.
        ns: u64,
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
    /// Halt until the next moment of a grid; note how late we are back; that is one progress.
    SleepGrid {
        /// Distance of the moments.
        period_ns: u64,
        /// The first of them, after the start of the VM.
        offset_ns: u64,
    },
    /// One progress.
    Count,
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

/// What a VM's vCPUs do, and what they share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Programs {
    /// The program of each vCPU.
    pub of_vcpu: Vec<Vec<Step>>,
    /// Number of spinlocks.
    pub locks: u32,
    /// How many parties each barrier waits for.
    pub barriers: Vec<u32>,
}

impl Programs {
    /// The programs of a VM with so many vCPUs. None for a program of a Linux guest, which no
    /// simulator runs.
    pub fn of(workload: &Workload, vcpus: u32) -> Option<Self> {
        let every = |steps: Vec<Step>| vec![steps; vcpus as usize];
        let ns = |us: u32| u64::from(us) * 1000;
        Some(match *workload {
            Workload::Cpu { duty_pct, period_us, ref then } => Self::plain(every(vec![
                Step::Busy(duty(duty_pct, period_us, then.as_ref())),
                Step::Rest,
            ])),
            Workload::Lock { hold_us, think_us } => {
                Self { locks: 1, ..Self::plain(every(locking(ns(think_us), ns(hold_us)))) }
            }
            Workload::Barrier { work_us } => {
                let steps = every(meeting(ns(work_us)));
                Self { barriers: vec![vcpus], ..Self::plain(steps) }
            }
            Workload::Sleep { period_us, work_us } => {
                let program = |rank| sleeping(ns(period_us), ns(work_us), rank, vcpus);
                Self::plain((0..vcpus).map(program).collect())
            }
            Workload::Mix {} => mix(vcpus),
            Workload::Command { .. } => return None,
        })
    }

    fn plain(of_vcpu: Vec<Vec<Step>>) -> Self {
        Self { of_vcpu, locks: 0, barriers: Vec::new() }
    }
}

fn duty(pct: u32, period_us: u32, then: Option<&CpuThen>) -> Duty {
    let (then_at_ns, then_pct) = match then {
        Some(then) => ((then.after_s * 1e9) as u64, then.duty_pct),
        None => (u64::MAX, pct),
    };
    Duty { period_ns: u64::from(period_us) * 1000, pct, then_at_ns, then_pct }
}

fn locking(think_ns: u64, hold_ns: u64) -> Vec<Step> {
    let (take, release) = (Step::Take { lock: 0 }, Step::Release { lock: 0 });
    vec![Step::Work { ns: think_ns }, take, Step::Work { ns: hold_ns }, release, Step::Count]
}

fn meeting(work_ns: u64) -> Vec<Step> {
    vec![Step::Work { ns: work_ns }, Step::Meet { barrier: 0 }, Step::Count]
}

fn sleeping(period_ns: u64, work_ns: u64, rank: u32, parties: u32) -> Vec<Step> {
    let offset_ns = period_ns + period_ns * u64::from(rank) / u64::from(parties);
    vec![Step::SleepGrid { period_ns, offset_ns }, Step::Work { ns: work_ns }]
}

/// vCPUs 0, 4, 8 ... are busy, 1, 5 ... lock, 2, 6 ... sleep, 3, 7 ... meet.
fn mix(vcpus: u32) -> Programs {
    use drover_core::scenario::Workload as W;
    let parse = |kind: &str| serde_json::from_value::<W>(serde_json::json!({ "kind": kind }));
    let kinds = ["cpu", "lock", "sleep", "barrier"].map(|kind| parse(kind).expect("defaults"));
    let mut programs = Programs { locks: 1, ..Programs::plain(Vec::new()) };
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

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!((programs.locks, programs.barriers.clone()), (1, vec![2]));
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
}

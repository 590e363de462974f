// SPDX-License-Identifier: GPL-2.0-only
//! What the vCPUs of a VM do, and how much CPU that can use at most.
//!
//! A workload travels to the process that runs the VM as JSON on its command line, in the same
//! words as in a scenario file: `{"kind":"lock","hold_us":5,"think_us":20}`.

use crate::program::Program;
use serde::{Deserialize, Serialize};

/// Default length of one busy-and-halted cycle of `cpu`, in µs.
pub const CPU_PERIOD_US: u32 = 10_000;
/// Default time a vCPU of `lock` holds the lock, in µs.
pub const LOCK_HOLD_US: u32 = 5;
/// Default time a vCPU of `lock` computes outside the lock, in µs.
pub const LOCK_THINK_US: u32 = 20;
/// Default time a vCPU of `barrier` works between two meetings, in µs.
pub const BARRIER_WORK_US: u32 = 30;
/// Default time from one wake-up of `sleep` to the next, in µs.
pub const SLEEP_PERIOD_US: u32 = 2_000;

/// Default time a vCPU of `io` works before it asks its device, in µs.
pub const IO_WORK_US: u32 = 100;
/// Default CPU time that the back end of `io` takes, in µs.
pub const IO_BACK_END_US: u32 = 20;

/// Default time a vCPU of `yield` works before it hands the token on, in µs.
pub const YIELD_WORK_US: u32 = 30;

/// What the vCPUs of a VM do. All but [`Workload::Program`] and
/// [`Workload::Command`] are programs of Drover's micro VMs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Workload {
    /// Every vCPU is busy for `duty_pct` of each period and halted for the rest of it.
    /// Progress: loops of the busy code.
    Cpu {
        /// Busy part, 0 to 100; default 100.
        #[serde(default = "full_duty_pct")]
        duty_pct: u32,
        /// Length of a period, 100 at least; default 10000.
        #[serde(default = "cpu_period_us")]
        period_us: u32,
        /// A later duty.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        then: Option<CpuThen>,
    },
    /// Every vCPU computes, takes the VM's one ticket spinlock, holds it, releases it.
    /// Progress: sections entered.
    Lock {
        /// Time the lock is held; default 5.
        #[serde(default = "lock_hold_us")]
        hold_us: u32,
        /// Time to the next attempt; default 20.
        #[serde(default = "lock_think_us")]
        think_us: u32,
        /// A vCPU that waits asks the host for the holder each time it has spun for so long
        /// (KVM_HC_SCHED_YIELD); default 0: never.
        #[serde(default, skip_serializing_if = "is_zero")]
        notify_us: u32,
    },
    /// Every vCPU works, then spins until all its siblings have arrived. Progress: rounds.
    Barrier {
        /// Work between two meetings; default 30.
        #[serde(default = "barrier_work_us")]
        work_us: u32,
        /// As in `lock`; default 0.
        #[serde(default, skip_serializing_if = "is_zero")]
        notify_us: u32,
    },
    /// Every vCPU sets a timer, halts, notes how late it woke, works. Progress: wake-ups.
    Sleep {
        /// Time between wake-ups, 10 at least; default 2000.
        #[serde(default = "sleep_period_us")]
        period_us: u32,
        /// Work after each wake-up; default 0.
        #[serde(default)]
        work_us: u32,
    },
    /// The vCPUs hand a token round: who has it works and hands it on; who waits for it asks the host
    /// to run the one that has it. Progress: tokens handed on.
    Yield {
        /// Work before the token is passed; default 30. 0: nothing but yields.
        #[serde(default = "yield_work_us")]
        work_us: u32,
    },
    /// Every vCPU works, asks a device, and halts until it has answered: a back end, which is a thread of the VM,
    /// takes CPU time for it, and then the device takes time. Progress: answers.
    Io {
        /// Work before the device is asked; default 100.
        #[serde(default = "io_work_us")]
        work_us: u32,
        /// CPU time of the back end; default 20.
        #[serde(default = "io_back_end_us")]
        back_end_us: u32,
        /// Time of the device; default 0.
        #[serde(default)]
        device_us: u32,
    },
    /// vCPU `i` does as `i % 4` says: 0 `cpu`, 1 `lock`, 2 `sleep`, 3 `barrier`, each with its
    /// defaults, the locks and barriers shared by the vCPUs of the same kind.
    Mix {},
    /// Small programs of steps, of the simulator's guests.
    Program(Box<Program>),
    /// A program in a Linux guest (`vmm = "qemu"`).
    Command {
        /// Command line of the guest's shell; needed.
        run: String,
        /// Text that it prints once work has begun; measured only then.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ready: Option<String>,
    },
}

/// A later duty of a [`Workload::Cpu`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuThen {
    /// When, in the measured time; needed.
    pub after_s: f64,
    /// Busy part from then on; needed.
    pub duty_pct: u32,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}
fn full_duty_pct() -> u32 {
    100
}
fn cpu_period_us() -> u32 {
    CPU_PERIOD_US
}
fn lock_hold_us() -> u32 {
    LOCK_HOLD_US
}
fn lock_think_us() -> u32 {
    LOCK_THINK_US
}
fn barrier_work_us() -> u32 {
    BARRIER_WORK_US
}
fn sleep_period_us() -> u32 {
    SLEEP_PERIOD_US
}

fn io_work_us() -> u32 {
    IO_WORK_US
}
fn io_back_end_us() -> u32 {
    IO_BACK_END_US
}
fn yield_work_us() -> u32 {
    YIELD_WORK_US
}

impl Workload {
    /// The word a scenario uses for it.
    pub fn kind(&self) -> &'static str {
        match self {
            Workload::Cpu { .. } => "cpu",
            Workload::Lock { .. } => "lock",
            Workload::Barrier { .. } => "barrier",
            Workload::Sleep { .. } => "sleep",
            Workload::Yield { .. } => "yield",
            Workload::Io { .. } => "io",
            Workload::Mix {} => "mix",
            Workload::Program(_) => "program",
            Workload::Command { .. } => "command",
        }
    }

    /// Do its vCPUs ask KVM for siblings?
    pub fn calls_kvm(&self) -> bool {
        match *self {
            Workload::Yield { .. } => true,
            Workload::Lock { notify_us, .. } | Workload::Barrier { notify_us, .. } => notify_us > 0,
            _ => false,
        }
    }

    /// The most CPU that one vCPU can use at `at_s` of the measured time, in % of a pCPU.
    ///
    /// None where only a measurement could tell: a sleeper's wake-ups cost what they cost, a
    /// program of a Linux guest does what it likes. Spinning uses CPU as well as working does.
    pub fn vcpu_demand_pct(&self, at_s: f64) -> Option<f64> {
        match self {
            Workload::Cpu { then: Some(then), .. } if at_s >= then.after_s => {
                Some(then.duty_pct.into())
            }
            Workload::Cpu { duty_pct, .. } => Some((*duty_pct).into()),
            Workload::Lock { .. } | Workload::Barrier { .. } | Workload::Yield { .. } => {
                Some(100.0)
            }
            Workload::Sleep { .. }
            | Workload::Io { .. }
            | Workload::Mix {}
            | Workload::Program(_)
            | Workload::Command { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_carries_a_workload_there_and_back() {
        let then = Some(CpuThen { after_s: 2.0, duty_pct: 50 });
        let ready = Some("Threads started!".to_owned());
        for workload in [
            Workload::Cpu { duty_pct: 100, period_us: 10_000, then },
            Workload::Lock { hold_us: 5, think_us: 20, notify_us: 0 },
            Workload::Barrier { work_us: 30, notify_us: 0 },
            Workload::Sleep { period_us: 2_000, work_us: 0 },
            Workload::Yield { work_us: 0 },
            Workload::Io { work_us: 100, back_end_us: 20, device_us: 1000 },
            Workload::Mix {},
            Workload::Command { run: "hackbench".to_owned(), ready },
        ] {
            let json = serde_json::to_string(&workload).unwrap();
            assert!(json.contains(&format!("\"kind\":\"{}\"", workload.kind())), "{json}");
            assert_eq!(serde_json::from_str::<Workload>(&json).unwrap(), workload);
        }
    }

    #[test]
    fn json_fills_in_the_defaults_and_refuses_unknown_keys() {
        let lock: Workload = serde_json::from_str(r#"{"kind":"lock"}"#).unwrap();
        assert_eq!(lock, Workload::Lock { hold_us: 5, think_us: 20, notify_us: 0 });
        let cpu: Workload = serde_json::from_str(r#"{"kind":"cpu"}"#).unwrap();
        assert_eq!(cpu, Workload::Cpu { duty_pct: 100, period_us: 10_000, then: None });
        assert!(serde_json::from_str::<Workload>(r#"{"kind":"lock","hold":1}"#).is_err());
        assert!(serde_json::from_str::<Workload>(r#"{"kind":"mix","hold":1}"#).is_err());
    }

    #[test]
    fn demand_follows_the_duty_and_its_change() {
        let then = Some(CpuThen { after_s: 2.0, duty_pct: 50 });
        let cpu = Workload::Cpu { duty_pct: 100, period_us: 10_000, then };
        assert_eq!(cpu.vcpu_demand_pct(1.9), Some(100.0));
        assert_eq!(cpu.vcpu_demand_pct(2.0), Some(50.0));
        assert_eq!(
            Workload::Barrier { work_us: 1, notify_us: 0 }.vcpu_demand_pct(0.0),
            Some(100.0)
        );
        assert_eq!(Workload::Sleep { period_us: 1, work_us: 0 }.vcpu_demand_pct(0.0), None);
    }
}

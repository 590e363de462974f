// SPDX-License-Identifier: GPL-2.0-only
//! A workload in the guest's terms: loops and clock cycles on the control page.

use crate::layout::{self, Control};
use drover_scenario::Workload;
use std::sync::atomic::Ordering::Relaxed;

/// Loops that make one unit of progress of `cpu`: 0.3 µs on a real CPU, up to 8 on an emulated one.
const CPU_UNIT_LOOPS: u64 = 125;
/// How often a vCPU at the gate looks whether it may go.
const GATE_POLL_US: u32 = 10_000;
/// What the vCPUs of `mix` do: the defaults of each kind of workload, in its words (µs, %).
const MIX: [Workload; 4] = [
    Workload::Cpu { duty_pct: 100, period_us: 10_000, then: None },
    Workload::Lock { hold_us: 5, think_us: 20, notify_us: 0 },
    Workload::Sleep { period_us: 2_000, work_us: 0 },
    Workload::Barrier { work_us: 30, notify_us: 0 },
];
/// `cpu_then_cycles` of a duty that never changes.
const NEVER: u64 = u64::MAX;

/// How fast the guest works and its clock ticks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Speed {
    pub loops_per_ms: u64,
    pub tsc_khz: u64,
}

impl Speed {
    fn loops(&self, us: u32) -> u64 {
        scale(us, self.loops_per_ms)
    }

    fn cycles(&self, us: u32) -> u64 {
        scale(us, self.tsc_khz)
    }

    /// ns per cycle with 32 fraction bits.
    fn ns_per_cycle_q32(&self) -> u64 {
        (1_000_000 << 32) / self.tsc_khz
    }
}

fn scale(us: u32, per_ms: u64) -> u64 {
    u64::try_from(u128::from(us) * u128::from(per_ms) / 1000).unwrap_or(u64::MAX)
}

/// Fills the control page but for its head (magic, version) and `go`.
pub(crate) fn write(control: &Control, vcpus: u32, workload: &Workload, speed: Speed) {
    control.vcpus.store(vcpus, Relaxed);
    control.ns_per_cycle_q32.store(speed.ns_per_cycle_q32(), Relaxed);
    control.gate_poll_cycles.store(speed.cycles(GATE_POLL_US), Relaxed);
    control.cpu_unit_loops.store(CPU_UNIT_LOOPS, Relaxed);
    let code = match workload {
        Workload::Mix {} => {
            for part in &MIX {
                write_parameters(control, part, speed);
            }
            layout::WORKLOAD_MIX
        }
        one => write_parameters(control, one, speed),
    };
    control.workload.store(code, Relaxed);
}

/// Writes what one kind of workload needs to know and returns its code.
fn write_parameters(control: &Control, workload: &Workload, speed: Speed) -> u32 {
    match *workload {
        Workload::Cpu { duty_pct, period_us, ref then } => {
            let then = then.as_ref().map(|then| (then.after_s, then.duty_pct));
            write_cpu(control, (duty_pct, period_us), then, speed);
            layout::WORKLOAD_CPU
        }
        Workload::Lock { hold_us, think_us, notify_us } => {
            control.notify_cycles.store(speed.cycles(notify_us), Relaxed);
            control.lock_hold_loops.store(speed.loops(hold_us), Relaxed);
            control.lock_think_loops.store(speed.loops(think_us), Relaxed);
            layout::WORKLOAD_LOCK
        }
        Workload::Barrier { work_us, notify_us } => {
            control.notify_cycles.store(speed.cycles(notify_us), Relaxed);
            control.barrier_work_loops.store(speed.loops(work_us), Relaxed);
            layout::WORKLOAD_BARRIER
        }
        Workload::Sleep { period_us, work_us } => {
            control.sleep_period_cycles.store(speed.cycles(period_us).max(1), Relaxed);
            control.sleep_work_loops.store(speed.loops(work_us), Relaxed);
            layout::WORKLOAD_SLEEP
        }
        Workload::Yield { work_us } => {
            control.yield_work_loops.store(speed.loops(work_us), Relaxed);
            layout::WORKLOAD_YIELD
        }
        Workload::Io { work_us, .. } => {
            control.io_work_loops.store(speed.loops(work_us), Relaxed);
            layout::WORKLOAD_IO
        }
        Workload::Mix {} => unreachable!("mix is made of the others"),
        Workload::Program(_) | Workload::Command { .. } => {
            unreachable!("GuestConfig::check refuses programs and commands")
        }
    }
}

fn write_cpu(
    control: &Control,
    (duty_pct, period_us): (u32, u32),
    then: Option<(f64, u32)>,
    speed: Speed,
) {
    let (then_cycles, then_duty_pct) = match then {
        Some((after_s, duty_pct)) => ((after_s * 1000.0 * speed.tsc_khz as f64) as u64, duty_pct),
        None => (NEVER, duty_pct),
    };
    control.cpu_duty_pct.store(duty_pct, Relaxed);
    control.cpu_period_cycles.store(speed.cycles(period_us).max(1), Relaxed);
    control.cpu_then_cycles.store(then_cycles, Relaxed);
    control.cpu_then_duty_pct.store(then_duty_pct, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use drover_scenario::CpuThen;
    use proptest::prelude::*;

    const SPEED: Speed = Speed { loops_per_ms: 3_000_000, tsc_khz: 2_000_000 };

    fn control(workload: Workload) -> Control {
        let control = Control::default();
        write(&control, 4, &workload, SPEED);
        control
    }

    #[test]
    fn microseconds_become_loops_and_cycles() {
        let lock = control(Workload::Lock { hold_us: 5, think_us: 20, notify_us: 10 });
        assert_eq!(lock.workload.load(Relaxed), layout::WORKLOAD_LOCK);
        assert_eq!(lock.lock_hold_loops.load(Relaxed), 15_000);
        assert_eq!(lock.lock_think_loops.load(Relaxed), 60_000);
        assert_eq!(lock.notify_cycles.load(Relaxed), 20_000);
        let sleep = control(Workload::Sleep { period_us: 2_000, work_us: 10 });
        assert_eq!(sleep.sleep_period_cycles.load(Relaxed), 4_000_000);
        assert_eq!(sleep.sleep_work_loops.load(Relaxed), 30_000);
        let yields = control(Workload::Yield { work_us: 30 });
        assert_eq!(yields.workload.load(Relaxed), layout::WORKLOAD_YIELD);
        assert_eq!(yields.yield_work_loops.load(Relaxed), 90_000);
        assert_eq!(sleep.ns_per_cycle_q32.load(Relaxed), 1 << 31, "half a ns");
    }

    #[test]
    fn a_change_of_duty_has_its_moment_in_cycles() {
        let then = Some(CpuThen { after_s: 2.5, duty_pct: 50 });
        let cpu = control(Workload::Cpu { duty_pct: 100, period_us: 10_000, then });
        assert_eq!(cpu.cpu_then_cycles.load(Relaxed), 5_000_000_000);
        assert_eq!(cpu.cpu_then_duty_pct.load(Relaxed), 50);
        let steady = control(Workload::Cpu { duty_pct: 30, period_us: 10_000, then: None });
        assert_eq!(steady.cpu_then_cycles.load(Relaxed), NEVER);
        assert_eq!(steady.cpu_duty_pct.load(Relaxed), 30);
    }

    #[test]
    fn mix_is_made_of_the_defaults() {
        for part in MIX {
            let default = format!(r#"{{"kind":"{}"}}"#, part.kind());
            assert_eq!(serde_json::from_str::<Workload>(&default).unwrap(), part);
        }
        let mix = control(Workload::Mix {});
        assert_eq!(mix.cpu_duty_pct.load(Relaxed), 100);
        assert_eq!(mix.lock_hold_loops.load(Relaxed), 15_000);
        assert_eq!(mix.barrier_work_loops.load(Relaxed), 90_000);
        assert_eq!(mix.sleep_period_cycles.load(Relaxed), 4_000_000);
    }

    proptest! {
        #[test]
        fn no_period_is_zero_and_nothing_overflows(
            period_us in any::<u32>(), work_us in any::<u32>(),
            loops_per_ms in 1u64..u64::MAX, tsc_khz in 1u64..100_000_000,
        ) {
            let control = Control::default();
            let workload = Workload::Sleep { period_us, work_us };
            write(&control, 1, &workload, Speed { loops_per_ms, tsc_khz });
            prop_assert!(control.sleep_period_cycles.load(Relaxed) > 0);
            prop_assert!(control.ns_per_cycle_q32.load(Relaxed) > 0);
        }
    }
}

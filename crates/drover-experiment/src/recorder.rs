// SPDX-License-Identifier: GPL-2.0-only
//! Records who runs where, from the kernel's own record of its switches (tracepoint sched_switch).
//!
//! A pCPU of which the record has no switch tells nothing of who runs there. So when the time is over,
//! and before the record is closed, this thread goes to each pCPU once: that is a switch, and says from
//! whom.

use anyhow::{Context, Result};
use drover_core::scenario::Case;
use drover_core::schedule::{Schedule, ScheduledVm, Span, Who};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Where the kernel keeps its records.
const TRACEFS: &str = "/sys/kernel/tracing";
/// Name of ours.
const INSTANCE: &str = "drover-schedule";
/// Room for the record of each pCPU, KiB: some ten thousand switches.
const ROOM_KIB: u32 = 1024;

/// A record of switches; it goes when dropped.
#[derive(Debug)]
pub(crate) struct Recorder {
    dir: PathBuf,
    from_ns: u64,
    to_ns: u64,
}

impl Recorder {
    /// Prepares everything; nothing is recorded yet.
    ///
    /// # Errors
    /// When this kernel keeps no such records, or not for this user.
    pub fn prepare() -> Result<Self> {
        let dir = Path::new(TRACEFS).join("instances").join(INSTANCE);
        // One that somebody left who was killed.
        let _ = fs::remove_dir(&dir);
        fs::create_dir(&dir).with_context(|| {
            format!(
                "--schedule needs the kernel's tracing, and {} cannot be made; \
                     mount -t tracefs tracefs {TRACEFS}",
                dir.display()
            )
        })?;
        let recorder = Self { dir, from_ns: 0, to_ns: 0 };
        recorder.write("tracing_on", "0")?;
        recorder.write("trace_clock", "mono")?;
        recorder.write("buffer_size_kb", &ROOM_KIB.to_string())?;
        recorder.write("events/sched/sched_switch/enable", "1")?;
        Ok(recorder)
    }

    /// The record begins.
    ///
    /// # Errors
    /// When the kernel does not do it.
    pub fn begin(&mut self) -> Result<()> {
        self.write("tracing_on", "1")?;
        self.from_ns = now_ns()?;
        Ok(())
    }

    /// The record ends.
    ///
    /// # Errors
    /// When the kernel does not do it.
    pub fn end(&mut self) -> Result<()> {
        self.to_ns = now_ns()?;
        visit_all_pcpus()?;
        self.write("tracing_on", "0")
    }

    /// What was recorded; `vm_of` knows the VMs' threads.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn schedule(
        &self,
        case: &Case,
        pcpus: u32,
        from_s: f64,
        vm_of: &HashMap<u32, Who>,
    ) -> Result<Schedule> {
        let mut spans = Vec::new();
        for pcpu in 0..pcpus {
            let path = self.dir.join(format!("per_cpu/cpu{pcpu}/trace"));
            let text = fs::read_to_string(&path)
                .with_context(|| format!("cannot read {}", path.display()))?;
            let switches: Vec<Switch> = text.lines().filter_map(Switch::read).collect();
            spans.extend(spans_of(pcpu, &switches, self.from_ns, self.to_ns, vm_of));
        }
        let vm =
            |vm: &drover_core::scenario::Vm| ScheduledVm { name: vm.name.clone(), vcpus: vm.vcpus };
        Ok(Schedule {
            case: case.name.clone(),
            scheduler: String::new(),
            from_s,
            length_ns: self.to_ns - self.from_ns,
            pcpus,
            vms: case.vms.iter().map(vm).collect(),
            spans,
        })
    }

    fn write(&self, file: &str, value: &str) -> Result<()> {
        let path = self.dir.join(file);
        fs::write(&path, value).with_context(|| format!("cannot write {}", path.display()))
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // Nothing else can be done about one that stays, and a next one replaces it.
        let _ = fs::remove_dir(&self.dir);
    }
}

fn now_ns() -> Result<u64> {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC)?;
    Ok(now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64)
}

/// Runs on each pCPU for a moment.
fn visit_all_pcpus() -> Result<()> {
    let this = Pid::from_raw(0);
    let all = sched_getaffinity(this)?;
    for pcpu in (0..CpuSet::count()).filter(|&pcpu| all.is_set(pcpu).unwrap_or(false)) {
        let mut one = CpuSet::new();
        one.set(pcpu)?;
        // One that went offline has nobody to tell of.
        let _ = sched_setaffinity(this, &one);
    }
    Ok(sched_setaffinity(this, &all)?)
}

/// A switch between two threads; 0 is idleness.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Switch {
    at_ns: u64,
    from: u32,
    to: u32,
}

impl Switch {
    /// Reads a line of the record; none of any other line. Names of threads may hold anything, so
    /// what follows them is searched from the end.
    fn read(line: &str) -> Option<Self> {
        let (before, event) = line.split_once(": sched_switch: ")?;
        let (seconds, micros) = before.rsplit(' ').next()?.split_once('.')?;
        let (from, to) = event.rsplit_once(" ==> ")?;
        let number = |text: &str, name: &str| -> Option<u32> {
            text.rsplit_once(name)?.1.split(' ').next()?.parse().ok()
        };
        let at_us = seconds.parse::<u64>().ok()? * 1_000_000 + micros.parse::<u64>().ok()?;
        Some(Self {
            at_ns: at_us * 1000,
            from: number(from, " prev_pid=")?,
            to: number(to, " next_pid=")?,
        })
    }
}

/// Who ran on a pCPU between two moments, counted from the first.
fn spans_of(
    pcpu: u32,
    switches: &[Switch],
    from_ns: u64,
    to_ns: u64,
    vm_of: &HashMap<u32, Who>,
) -> Vec<Span> {
    let before = switches.first().map(|first| (from_ns, first.from));
    let begins = before.into_iter().chain(switches.iter().map(|switch| (switch.at_ns, switch.to)));
    let ends = switches.iter().map(|switch| switch.at_ns).chain([to_ns]);
    let span = |((begin_ns, tid), end_ns): ((u64, u32), u64)| {
        let who = vm_of.get(&tid).copied().unwrap_or(Who::Host);
        let span = Span { pcpu, from_ns: begin_ns, to_ns: end_ns, who };
        span.within(from_ns, to_ns).filter(|_| tid != 0)
    };
    begins.zip(ends).filter_map(span).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: &str = "\
# tracer: nop
#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION
 vcpu0-41      [001] d..2.    12.000500: sched_switch: prev_comm=vcpu0 prev_pid=41 prev_prio=120 \
prev_state=R ==> next_comm=a ==> b: c next_pid=7 next_prio=120
   a ==> b: c-7       [001] d..2.    12.000600: sched_switch: prev_comm=a ==> b: c prev_pid=7 \
prev_prio=120 prev_state=S ==> next_comm=swapper/1 next_pid=0 next_prio=120
 <idle>-0      [001] d..2.    12.000900: sched_switch: prev_comm=swapper/1 prev_pid=0 \
prev_prio=120 prev_state=R ==> next_comm=CPU 1/KVM next_pid=52 next_prio=120
";

    #[test]
    fn a_record_says_who_ran_between_switches_and_at_the_edges() {
        let switches: Vec<Switch> = RECORD.lines().filter_map(Switch::read).collect();
        assert_eq!(switches[1], Switch { at_ns: 12_000_600_000, from: 7, to: 0 });
        let vm_of = HashMap::from([(41, Who::Vcpu(0, 0)), (52, Who::Vcpu(1, 1))]);
        let spans = spans_of(1, &switches, 12_000_000_000, 12_001_000_000, &vm_of);
        let told = spans.iter().map(|it| (it.pcpu, it.from_ns, it.to_ns, it.who));
        assert_eq!(
            told.collect::<Vec<_>>(),
            [
                (1, 0, 500_000, Who::Vcpu(0, 0)),
                (1, 500_000, 600_000, Who::Host),
                (1, 900_000, 1_000_000, Who::Vcpu(1, 1)),
            ]
        );
        assert!(spans_of(0, &[], 0, 10, &vm_of).is_empty());
    }

    #[test]
    fn all_pcpus_can_be_visited() {
        let before = sched_getaffinity(Pid::from_raw(0)).unwrap();
        visit_all_pcpus().unwrap();
        assert_eq!(sched_getaffinity(Pid::from_raw(0)).unwrap(), before);
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! Records who runs where and who waits, from the kernel's own record of its switches and wake-ups (tracepoints
//! sched_switch and sched_waking).
//!
//! A pCPU of which the record has no switch tells nothing of who runs there. So when the time is over,
//! and before the record is closed, this thread goes to each pCPU once: that is a switch, and says from
//! whom.

use anyhow::{Context, Result};
use drover_core::recording::{self, Class, Event, Ran, What, replay};
use drover_scenario::Case;
use drover_scenario::schedule::{Schedule, ScheduledVm, Span, Wait, Who};
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
/// Room for the record of each pCPU, KiB: some ten thousand switches and wake-ups.
const ROOM_KIB: u32 = 1024;

/// A record of switches and wake-ups; it goes when dropped.
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
        recorder.write("events/sched/sched_waking/enable", "1")?;
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
        let mut events = Vec::new();
        for pcpu in 0..pcpus {
            let path = self.dir.join(format!("per_cpu/cpu{pcpu}/trace"));
            let text = fs::read_to_string(&path)
                .with_context(|| format!("cannot read {}", path.display()))?;
            let lines: Vec<Line> = text.lines().filter_map(Line::read).collect();
            events.extend(events_of(pcpu, &lines, self.from_ns));
        }
        let (spans, waits) = replayed(&mut events, (self.from_ns, self.to_ns), vm_of);
        let vm = |vm: &drover_scenario::Vm| ScheduledVm { name: vm.name.clone(), vcpus: vm.vcpus };
        Ok(Schedule {
            case: case.name.clone(),
            scheduler: String::new(),
            from_s,
            length_ns: self.to_ns - self.from_ns,
            pcpus,
            vms: case.vms.iter().map(vm).collect(),
            spans,
            waits,
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

/// A line of the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Line {
    at_ns: u64,
    what: Told,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    /// From one thread to another; 0 is idleness.
    Switched { from: u32, left_ready: bool, to: u32 },
    /// A thread that slept is ready.
    Woken(u32),
}

impl Line {
    /// Reads a line of the record; none of any other line. Names of threads may hold anything, so
    /// what follows them is searched from the end.
    fn read(line: &str) -> Option<Self> {
        let switched = line.split_once(": sched_switch: ");
        let (before, event) = switched.or_else(|| line.split_once(": sched_waking: "))?;
        let (seconds, micros) = before.rsplit(' ').next()?.split_once('.')?;
        let at_us = seconds.parse::<u64>().ok()? * 1_000_000 + micros.parse::<u64>().ok()?;
        let what = match switched {
            None => Told::Woken(value(event, " pid=")?.parse().ok()?),
            Some(_) => {
                let (from, to) = event.rsplit_once(" ==> ")?;
                Told::Switched {
                    from: value(from, " prev_pid=")?.parse().ok()?,
                    left_ready: value(from, " prev_state=")?.starts_with('R'),
                    to: value(to, " next_pid=")?.parse().ok()?,
                }
            }
        };
        Some(Self { at_ns: at_us * 1000, what })
    }
}

/// What stands after the last such name.
fn value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.rsplit_once(name)?.1.split(' ').next()
}

/// What happened on a pCPU. The first switch says who ran there from the beginning on.
fn events_of(pcpu: u32, lines: &[Line], from_ns: u64) -> Vec<Event> {
    let ran = |at_ns, thread, left_ready| {
        let what = What::Ran { left_ready, class: Class::Normal };
        Event { at_ns, pcpu, thread, what }
    };
    let first = lines.iter().find_map(|line| match line.what {
        Told::Switched { from, .. } => Some(ran(from_ns, from, false)),
        Told::Woken(_) => None,
    });
    let event = |&Line { at_ns, what }: &Line| match what {
        Told::Switched { left_ready, to, .. } => ran(at_ns, to, left_ready),
        Told::Woken(thread) => Event { at_ns, pcpu, thread, what: What::Woken },
    };
    first.into_iter().chain(lines.iter().map(event)).collect()
}

/// Who ran and which vCPUs waited in that window, counted from where it begins.
fn replayed(
    events: &mut [Event],
    window: (u64, u64),
    vm_of: &HashMap<u32, Who>,
) -> (Vec<Span>, Vec<Wait>) {
    let who = |thread: u32| vm_of.get(&thread).copied().unwrap_or(Who::Host);
    events.sort_by_key(|event| event.at_ns);
    let history = replay(events, window, |thread| matches!(who(thread), Who::Vcpu(..)));
    let ran = history.ran.iter().filter(|ran| ran.thread != 0);
    let span = |&Ran { thread, pcpu, from_ns, to_ns, .. }: &Ran| {
        Span { pcpu, from_ns, to_ns, who: who(thread) }.within(window.0, window.1)
    };
    let wait = |it: &recording::Wait| match who(it.thread) {
        Who::Vcpu(vm, vcpu) => {
            Wait { vm, vcpu, from_ns: it.from_ns, to_ns: it.to_ns }.within(window.0, window.1)
        }
        Who::Helper(_) | Who::Host => None,
    };
    (ran.filter_map(span).collect(), history.waits.iter().filter_map(wait).collect())
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

    /// Woken by the other pCPU, and the last one preempted.
    const WAKES: &str = "\
          make-7       [000] d..3.    12.000800: sched_waking: comm=CPU 1/KVM pid=52 prio=120 target_cpu=001
";

    fn read(text: &str) -> Vec<Line> {
        text.lines().filter_map(Line::read).collect()
    }

    #[test]
    fn a_record_says_who_ran_between_switches_and_at_the_edges() {
        let lines = read(RECORD);
        let switched = Told::Switched { from: 7, left_ready: false, to: 0 };
        assert_eq!(lines[1], Line { at_ns: 12_000_600_000, what: switched });
        let vm_of = HashMap::from([(41, Who::Vcpu(0, 0)), (52, Who::Vcpu(1, 1))]);
        let (from_ns, to_ns) = (12_000_000_000, 12_001_000_000);
        let mut events = events_of(1, &lines, from_ns);
        events.extend(events_of(0, &read(WAKES), from_ns));
        let (spans, waits) = replayed(&mut events, (from_ns, to_ns), &vm_of);
        let told = spans.iter().map(|it| (it.pcpu, it.from_ns, it.to_ns, it.who));
        assert_eq!(
            told.collect::<Vec<_>>(),
            [
                (1, 0, 500_000, Who::Vcpu(0, 0)),
                (1, 500_000, 600_000, Who::Host),
                (1, 900_000, 1_000_000, Who::Vcpu(1, 1)),
            ]
        );
        let told = waits.iter().map(|it| (it.vm, it.vcpu, it.from_ns, it.to_ns));
        assert_eq!(
            told.collect::<Vec<_>>(),
            [(1, 1, 800_000, 900_000), (0, 0, 500_000, 1_000_000)],
            "woken and not yet running, and preempted"
        );
        assert!(events_of(0, &[], 0).is_empty());
    }

    #[test]
    fn all_pcpus_can_be_visited() {
        let before = sched_getaffinity(Pid::from_raw(0)).unwrap();
        visit_all_pcpus().unwrap();
        assert_eq!(sched_getaffinity(Pid::from_raw(0)).unwrap(), before);
    }
}

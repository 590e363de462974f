// SPDX-License-Identifier: GPL-2.0-only
//! `drover record`: what happens on the pCPUs, written to a file as it happens; or what has happened, as far as
//! `drover observe` keeps it.

use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use drover_core::recording::{Class, Event, What};
use drover_core::recording_file::{self as file, Head, Thread};
use drover_core::why::Who;
use drover_host::files;
use drover_host::names::vm_name;
use jiff::Timestamp;
use nix::unistd::gethostname;

use crate::forward::Forward;
use crate::observer::{Follower, Keep, Reading, VcpuTimes};
use crate::running::Running;
use crate::sample::{Sample, now_ns};
use crate::setup::setup;
use crate::threads::Threads;

/// A recording is no longer than that.
pub const BYTES_MAX: u64 = 1 << 30;
/// Events in a part of the file, at most.
const PART: usize = 1 << 20;
/// From one look at the rings to the next: a pCPU may switch a million times a second and none is lost.
const LOOK: Duration = Duration::from_millis(200);
/// From one look for VMs to the next.
const SAMPLE: Duration = Duration::from_secs(1);

/// What was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Recorded {
    /// Events.
    pub events: u64,
    /// Events that were lost.
    pub lost: u64,
    /// Bytes written.
    pub bytes: u64,
    /// How much time is in it, from its end back to where nothing is missing.
    pub whole: Duration,
}

/// Records for that time, until it is to stop, or until the file is full.
///
/// # Errors
/// When the kernel does not tell, or what was recorded cannot be written.
pub fn record(out: &mut impl Write, time: Duration, stop: &AtomicBool) -> Result<Recorded> {
    let mut follower = Follower::start(Keep::Events)?;
    let observer = follower.observer()?;
    let rings = observer.rings().context("nothing is kept")?;
    let mut forward = Forward::default();
    let mut sample = Sample::take(&observer.read()?, &mut forward)?;
    let from_ns = now_ns()?;
    let mut position = rings.position();
    // The last event of each pCPU says who runs as it begins.
    let mut before = rings.since(from_ns);
    // A pCPU without an event yet may have run one vCPU since before the observer began.
    let now = observer.read()?;
    let run = still_running(&sample, &now);
    let places = run.filter_map(|vcpu| Some((pcpu_of(vcpu)?, vcpu.thread)));
    let first = first_events(places, &before.events, from_ns);
    before.events.extend(first);
    let mut writer = Writer { out, recorded: Recorded::default(), people: People::default() };
    writer.write(&file::begin(&head(&sample, from_ns, Duration::ZERO)))?;
    writer.write(&file::setup(&setup(&sample, false)?))?;
    writer.add(&sample, &before.events)?;
    let (began, mut sampled) = (Instant::now(), Instant::now());
    while began.elapsed() < time && !stop.load(Ordering::Relaxed) {
        let rest = time.saturating_sub(began.elapsed());
        std::thread::sleep(LOOK.min(rest));
        if sampled.elapsed() >= SAMPLE {
            (sample, sampled) = (Sample::take(&observer.read()?, &mut forward)?, Instant::now());
        }
        let read = rings.after(&mut position);
        writer.lose(read.lost)?;
        writer.add(&sample, &read.events)?;
        if writer.recorded.bytes >= BYTES_MAX {
            break;
        }
    }
    // Who came after the last look.
    let last = Sample::take(&observer.read()?, &mut forward)?;
    writer.add(&last, &[])?;
    writer.write(&file::setup(&setup(&last, true)?))?;
    writer.recorded.whole = began.elapsed();
    writer.end()
}

/// Writes the last of what the running `drover observe` keeps: so much time, or what there is of it.
///
/// # Errors
/// When the kernel does not tell, or what was recorded cannot be written.
pub fn record_last(running: &Running, out: &mut impl Write, last: Duration) -> Result<Recorded> {
    let sample = Sample::take(&running.read()?, &mut Forward::default())?;
    let now_ns = now_ns()?;
    let last_ns = u64::try_from(last.as_nanos()).unwrap_or(u64::MAX);
    let asked_ns = now_ns.saturating_sub(last_ns);
    let read = running.rings().since(asked_ns);
    // Before its first event it was not there yet.
    let first_ns = read.events.first().map_or(now_ns, |event| event.at_ns);
    let from_ns = asked_ns.max(read.whole_from_ns).max(first_ns).min(now_ns);
    let mut writer = Writer { out, recorded: Recorded::default(), people: People::default() };
    writer.recorded.whole = Duration::from_nanos(now_ns - from_ns);
    writer.write(&file::begin(&head(&sample, from_ns, writer.recorded.whole)))?;
    writer.write(&file::setup(&setup(&sample, true)?))?;
    writer.lose(read.lost)?;
    for events in read.events.chunks(PART) {
        writer.add(&sample, events)?;
    }
    writer.end()
}

/// The vCPUs that ran all the time from that sample to that reading.
fn still_running<'a>(sample: &'a Sample, now: &'a Reading) -> impl Iterator<Item = &'a VcpuTimes> {
    let before =
        |thread| sample.vms.values().flat_map(|vm| &vm.vcpus).find(move |it| it.thread == thread);
    now.vcpus.iter().filter(move |vcpu| {
        before(vcpu.thread).is_some_and(|before| {
            let passed_ns = vcpu.at_ns.saturating_sub(before.at_ns);
            let ran_ns = vcpu.running_ns.saturating_sub(before.running_ns);
            passed_ns > 0 && ran_ns >= passed_ns
        })
    })
}

/// Where that vCPU runs, or ran last.
fn pcpu_of(vcpu: &VcpuTimes) -> Option<u32> {
    /// Its place in the line, behind the name.
    const PROCESSOR: usize = 36;
    let path = format!("/proc/{}/task/{}/stat", vcpu.process, vcpu.thread);
    let line = files::kernel(Path::new(&path)).ok()?;
    line.rsplit_once(") ")?.1.split(' ').nth(PROCESSOR)?.parse().ok()
}

/// That these run, where nothing was told of the pCPU before.
fn first_events(
    places: impl Iterator<Item = (u32, u32)>,
    before: &[Event],
    from_ns: u64,
) -> Vec<Event> {
    let is_told = |pcpu: u32| {
        before.iter().any(|it| it.pcpu == pcpu && it.at_ns < from_ns && it.what != What::Woken)
    };
    let what = What::Ran { left_ready: false, class: Class::Normal };
    places
        .filter(|(pcpu, _)| !is_told(*pcpu))
        .map(|(pcpu, thread)| Event { at_ns: from_ns, pcpu, thread, what })
        .collect()
}

fn head(sample: &Sample, from_ns: u64, ago: Duration) -> Head {
    let pcpus = drover_host::topology::online_cpus().unwrap_or_default();
    let pcpus = pcpus.last().map_or(0, |last| last + 1);
    Head {
        host: gethostname().unwrap_or_default().to_string_lossy().into_owned(),
        began: (Timestamp::now() - ago).strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        scheduler: sample.scheduler.clone(),
        from_ns,
        pcpus: u32::try_from(pcpus).unwrap_or(u32::MAX),
    }
}

struct Writer<'a, W> {
    out: &'a mut W,
    recorded: Recorded,
    people: People,
}

impl<W: Write> Writer<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.recorded.bytes += bytes.len() as u64;
        self.out.write_all(bytes).context("cannot write the recording")
    }

    fn end(self) -> Result<Recorded> {
        self.out.flush().context("cannot write the recording")?;
        Ok(self.recorded)
    }

    fn lose(&mut self, lost: u64) -> Result<()> {
        self.recorded.lost += lost;
        if lost > 0 { self.write(&file::lost(lost)) } else { Ok(()) }
    }

    /// Writes events, and who is new in them.
    fn add(&mut self, sample: &Sample, events: &[Event]) -> Result<()> {
        let new = self.people.added(sample, events);
        if !new.is_empty() {
            self.write(&file::threads(&new))?;
        }
        self.recorded.events += events.len() as u64;
        if events.is_empty() { Ok(()) } else { self.write(&file::events(events)) }
    }
}

/// Who was seen, and told of.
#[derive(Default)]
struct People {
    known: HashMap<u32, Thread>,
    vms: HashMap<u32, String>,
}

impl People {
    /// Those of whom nothing was told yet, or something else.
    fn added(&mut self, sample: &Sample, events: &[Event]) -> Vec<Thread> {
        let mut new = Vec::new();
        for thread in self.of_vms(sample) {
            if self.known.get(&thread.thread) != Some(&thread) {
                self.known.insert(thread.thread, thread.clone());
                new.push(thread);
            }
        }
        let threads = Threads::of(sample);
        let mut seen = HashSet::new();
        for event in events {
            let What::Ran { class, .. } = event.what else { continue };
            let is_new = event.thread != 0 && !self.known.contains_key(&event.thread);
            if is_new && seen.insert(event.thread) {
                let thread = told(&threads, event.thread, class);
                self.known.insert(event.thread, thread.clone());
                new.push(thread);
            }
        }
        new
    }

    fn of_vms(&mut self, sample: &Sample) -> Vec<Thread> {
        let mut all = Vec::new();
        for (pid, vm) in &sample.vms {
            let name = self.vms.entry(*pid).or_insert_with(|| vm_name(*pid));
            let one = |thread, who, vcpu| Thread {
                thread,
                who,
                name: name.clone(),
                vm: Some(*pid),
                vcpu,
            };
            all.extend(vm.vcpus.iter().map(|it| one(it.thread, Who::Vm, Some(it.number))));
            all.extend(vm.helpers.iter().map(|thread| one(*thread, Who::VmHelper, None)));
        }
        all
    }
}

fn told(threads: &Threads, thread: u32, class: Class) -> Thread {
    let found = threads.find(thread, class);
    Thread { thread, who: found.who, name: found.name, vm: None, vcpu: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::VmSample;

    fn vcpu(thread: u32, at_ns: u64, running_ns: u64) -> VcpuTimes {
        VcpuTimes { thread, at_ns, running_ns, ..VcpuTimes::default() }
    }

    #[test]
    fn a_vcpu_that_runs_without_a_switch_is_told_of_as_the_recording_begins() {
        let mut sample = Sample::default();
        let vcpus = vec![vcpu(7, 100, 50), vcpu(8, 100, 50), vcpu(9, 100, 50)];
        sample.vms.insert(1, VmSample { vcpus, ..VmSample::default() });
        let vcpus = vec![vcpu(7, 300, 250), vcpu(8, 300, 249), vcpu(9, 300, 250), vcpu(10, 300, 9)];
        let now = Reading { vcpus, ..Reading::default() };
        let run: Vec<u32> = still_running(&sample, &now).map(|it| it.thread).collect();
        assert_eq!(run, [7, 9]);
        let what = What::Ran { left_ready: false, class: Class::Normal };
        let told = [Event { at_ns: 150, pcpu: 3, thread: 9, what }];
        let first = first_events([(2, 7), (3, 9)].into_iter(), &told, 200);
        assert_eq!(first, [Event { at_ns: 200, pcpu: 2, thread: 7, what }]);
        assert_eq!(first_events([(3, 9)].into_iter(), &told, 100).len(), 1, "told of later only");
    }
}

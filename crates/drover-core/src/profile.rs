// SPDX-License-Identifier: GPL-2.0-only
//! What kind of work each VM does: its class, and the evidence for it.
//!
//! Idea. The host sees how long vCPUs run until they sleep, how often the VM's other threads, its
//! helpers, are woken, and how many bytes go in and out; no guest is asked. An *I/O event* is a helper that sleeps
//! again, or 64 KiB to or from disk or network, whichever is more. What matters is CPU time for each event, not events
//! for each second: a VM that waits for a pCPU has few of these.
//!
//! | class | when |
//! |---|---|
//! | idle | less than 2 % of a pCPU is wanted, and there are fewer than 50 I/O events a second |
//! | io | 2,000 I/O events or more for each second of CPU time; or vCPUs run for 1 ms at most until they sleep, and there is an I/O event or more for each two sleeps |
//! | cpu | fewer than 100, or fewer than 50 a second, and vCPUs run for 5 ms or longer until they sleep |
//! | memory | as cpu, and each pCPU of it moves 500 MiB/s or more: at 80 ns for a line of 64 bytes it waits for memory two thirds of its time; only where the host counts that |
//! | mixed | all others |
//!
//! A class is of the last 4 s. Another one must be seen for 10 s before it counts, and for twice as long after each
//! change, up to 320 s: a VM that swings changes less and less often. Each time that a class has stood for ten times as
//! long as another would have to be seen, that is halved again.
//!
//! Worked example. A guest reads its disk: 60 us of CPU for each block, and an I/O thread that takes 20 us and sleeps
//! again. 12,500 events for each second of CPU: io. A compiler that reads a file every 20 ms has 50: cpu. A guest that
//! receives packets on a slow pCPU takes 1.3 ms for each, two thirds of it in its vCPU, which sleeps after it: 770
//! events, and io all the same, because it waits for each. The guest that sends them computes without a pause for 12 ms:
//! mixed. It moves as many bytes, but it is its pCPU that it waits for.
//!
//! Fewer than 50 events a second are no I/O that matters: an emulated timer that nobody has switched off ticks 36 times
//! (i8254, QEMU's microvm).
//!
//! Limitations. A device that is passed through shows neither helpers nor bytes: such a VM is mixed or cpu.

use crate::io::counted_since;
use crate::words::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// How often VMs are to be looked at.
pub const INTERVAL: Duration = Duration::from_secs(1);
/// A class is of so long, once so much is known.
const WINDOW: Duration = Duration::from_secs(4);
/// A first class takes so long.
const FIRST: Duration = Duration::from_secs(2);
/// Another class must be seen for so long: a burst is seen for as long as it is, and a window.
const HOLD: Duration = Duration::from_secs(10);
/// That doubles so often at most.
const DOUBLINGS_MAX: u32 = 5;
/// After so many holds without a change the hold is halved.
const CALM_HOLDS: u32 = 10;

const IDLE_PCPUS: f64 = 0.02;
const IDLE_EVENTS_PER_S: f64 = 50.0;
const IO_EVENTS_PER_CPU_S: f64 = 2000.0;
const IO_RUN_MS: f64 = 1.0;
const IO_EVENTS_PER_SLEEP: f64 = 0.5;
const CPU_EVENTS_PER_CPU_S: f64 = 100.0;
const CPU_RUN_MS: f64 = 5.0;
const MEMORY_MIB_S: f64 = 500.0;
const EVENT_BYTES: f64 = 65536.0;

/// What kind of work a VM does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Next to nothing.
    Idle,
    /// It waits for devices mostly.
    Io,
    /// It computes.
    Cpu,
    /// It computes, and memory sets its pace.
    Memory,
    /// Both, or neither.
    Mixed,
}

impl Class {
    /// The words for them.
    pub const WORDS: [(&'static str, Class); 5] = [
        ("idle", Self::Idle),
        ("io", Self::Io),
        ("cpu", Self::Cpu),
        ("memory", Self::Memory),
        ("mixed", Self::Mixed),
    ];
}

words!(Class);

/// What was counted of a VM since it began. Counters that go backwards begin anew.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Counted {
    /// CPU time of its vCPUs, ns.
    pub vcpu_ns: u64,
    /// How often one of them went to sleep.
    pub vcpu_sleeps: u64,
    /// CPU time of its other threads, ns.
    pub helper_ns: u64,
    /// How often one of these went to sleep.
    pub helper_sleeps: u64,
    /// Time its threads were ready and did not run, ns.
    pub ready_ns: u64,
    /// Bytes to and from disks; none: not known.
    pub block_bytes: Option<u64>,
    /// Bytes to and from the network; none: not known.
    pub network_bytes: Option<u64>,
    /// What it moves to and from memory now, MiB/s; none: the host does not count that.
    pub memory_mib_s: Option<f64>,
}

/// What a class follows from: rates of the last seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Evidence {
    /// Of so long, s.
    pub over_s: f64,
    /// CPU time that its vCPUs used, pCPUs.
    pub vcpus_pcpus: f64,
    /// CPU time that its other threads used, pCPUs.
    pub helpers_pcpus: f64,
    /// Both, and time ready: what it wants, pCPUs.
    pub wanted_pcpus: f64,
    /// How long its vCPUs run until they sleep, ms; none: they did not sleep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_ms: Option<f64>,
    /// How often its vCPUs slept and woke, a second.
    pub sleeps_per_s: f64,
    /// How often its other threads did.
    pub helper_sleeps_per_s: f64,
    /// To and from disks, MB/s; none: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_mb_s: Option<f64>,
    /// To and from the network, MB/s; none: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_mb_s: Option<f64>,
    /// To and from memory, MiB/s; none: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mib_s: Option<f64>,
}

/// A VM's class.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Profile {
    /// What kind of work it does.
    pub class: Class,
    /// For how long that has been its class, s.
    pub for_s: f64,
    /// How often it was another before.
    pub changes: u32,
    /// What is seen of it now.
    pub evidence: Evidence,
}

impl Profile {
    /// The same, with what changed since `before`.
    pub fn since(&self, before: Option<&Self>) -> Self {
        let changes = self.changes.saturating_sub(before.map_or(0, |before| before.changes));
        Self { changes, ..*self }
    }
}

impl Evidence {
    /// What happened between two readings, so long apart.
    pub fn between(before: &Counted, after: &Counted, passed: Duration) -> Self {
        let passed_s = passed.as_secs_f64();
        let since = |of: fn(&Counted) -> u64| since(of(before), of(after));
        let per_s = |count: f64| count / passed_s;
        let mb_s = |of: fn(&Counted) -> Option<u64>| {
            let (before, after) = of(before).zip(of(after))?;
            Some(per_s(self::since(before, after) / 1e6))
        };
        let (vcpu_s, helper_s) = (since(|it| it.vcpu_ns) / 1e9, since(|it| it.helper_ns) / 1e9);
        let sleeps = since(|it| it.vcpu_sleeps);
        Self {
            over_s: passed_s,
            vcpus_pcpus: per_s(vcpu_s),
            helpers_pcpus: per_s(helper_s),
            wanted_pcpus: per_s(vcpu_s + helper_s + since(|it| it.ready_ns) / 1e9),
            run_ms: (sleeps > 0.0).then(|| 1e3 * vcpu_s / sleeps),
            sleeps_per_s: per_s(sleeps),
            helper_sleeps_per_s: per_s(since(|it| it.helper_sleeps)),
            block_mb_s: mb_s(|it| it.block_bytes),
            network_mb_s: mb_s(|it| it.network_bytes),
            memory_mib_s: after.memory_mib_s,
        }
    }

    /// I/O events, a second.
    pub fn events_per_s(&self) -> f64 {
        let mb_s = self.block_mb_s.unwrap_or(0.0) + self.network_mb_s.unwrap_or(0.0);
        self.helper_sleeps_per_s.max(mb_s * 1e6 / EVENT_BYTES)
    }

    /// I/O events for each second of CPU time.
    pub fn events_per_cpu_s(&self) -> f64 {
        self.events_per_s() / self.used_pcpus().max(1e-6)
    }

    /// CPU time it used, pCPUs.
    pub fn used_pcpus(&self) -> f64 {
        self.vcpus_pcpus + self.helpers_pcpus
    }

    /// The class that this is evidence for.
    pub fn class(&self) -> Class {
        let events = self.events_per_cpu_s();
        let runs_long = self.run_ms.is_none_or(|run_ms| run_ms >= CPU_RUN_MS);
        if self.wanted_pcpus < IDLE_PCPUS && self.events_per_s() < IDLE_EVENTS_PER_S {
            return Class::Idle;
        }
        let has_io = self.events_per_s() >= IDLE_EVENTS_PER_S;
        if has_io && (events >= IO_EVENTS_PER_CPU_S || self.waits_for_io()) {
            return Class::Io;
        }
        if has_io && events >= CPU_EVENTS_PER_CPU_S || !runs_long {
            return Class::Mixed;
        }
        let moves = self.memory_mib_s.unwrap_or(0.0) / self.used_pcpus().max(IDLE_PCPUS);
        if moves >= MEMORY_MIB_S { Class::Memory } else { Class::Cpu }
    }

    /// Do its vCPUs sleep after short runs, and mostly for I/O?
    fn waits_for_io(&self) -> bool {
        self.run_ms.is_some_and(|run_ms| run_ms <= IO_RUN_MS)
            && self.events_per_s() >= IO_EVENTS_PER_SLEEP * self.sleeps_per_s
    }

    /// The evidence in words, in one line.
    pub fn text(&self) -> String {
        let run = match self.run_ms {
            Some(ms) if ms < 10.0 => format!("runs of {ms:.2} ms"),
            Some(ms) => format!("runs of {ms:.0} ms"),
            None => "never sleeps".to_owned(),
        };
        let mut text = format!(
            "{run}; helpers {:.1}%, woken {:.0}/s; {:.0} I/O events a CPU second",
            100.0 * self.helpers_pcpus,
            self.helper_sleeps_per_s,
            self.events_per_cpu_s(),
        );
        for (what, mb_s) in [("disk", self.block_mb_s), ("network", self.network_mb_s)] {
            if let Some(mb_s) = mb_s.filter(|mb_s| *mb_s >= 0.05) {
                text += &format!("; {what} {mb_s:.1} MB/s");
            }
        }
        if let Some(mib_s) = self.memory_mib_s {
            text += &format!("; memory {mib_s:.0} MiB/s");
        }
        text
    }
}

/// What came between two readings of a counter.
#[allow(clippy::cast_precision_loss, reason = "52 bits are enough for rates")]
fn since(before: u64, after: u64) -> f64 {
    counted_since(before, after) as f64
}

/// What is known of one VM.
#[derive(Debug, Default)]
struct Known {
    readings: VecDeque<(Duration, Counted)>,
    evidence: Option<Evidence>,
    stands: Option<Standing>,
}

/// A class that counts.
#[derive(Debug, Clone, Copy)]
struct Standing {
    class: Class,
    since: Duration,
    changes: u32,
    /// Since when it has not changed, or the hold was last halved.
    calm_since: Duration,
    /// How often the hold is doubled.
    doublings: u32,
    /// Another class that is seen, and since when.
    other: Option<(Class, Duration)>,
}

/// Keeps the classes of all VMs.
#[derive(Debug, Default)]
pub struct Profiler {
    vms: HashMap<u64, Known>,
    now: Duration,
}

impl Profiler {
    /// Takes a reading of that VM. `now` is on any clock that does not go backwards.
    pub fn look(&mut self, id: u64, counted: Counted, now: Duration) {
        self.now = now;
        self.vms.entry(id).or_default().look(counted, now);
    }

    /// Forgets all VMs but these.
    pub fn retain(&mut self, is_here: impl Fn(u64) -> bool) {
        self.vms.retain(|id, _| is_here(*id));
    }

    /// A VM's class; none: too little is known yet.
    pub fn profile(&self, id: u64) -> Option<Profile> {
        let known = self.vms.get(&id)?;
        let (stands, evidence) = known.stands.zip(known.evidence)?;
        let for_s = self.now.saturating_sub(stands.since).as_secs_f64();
        Some(Profile { class: stands.class, for_s, changes: stands.changes, evidence })
    }
}

impl Known {
    fn look(&mut self, counted: Counted, now: Duration) {
        self.readings.push_back((now, counted));
        // The oldest that is kept is the youngest that is a window old.
        while self.readings.get(1).is_some_and(|(at, _)| now.saturating_sub(*at) >= WINDOW) {
            self.readings.pop_front();
        }
        let (at, first) = &self.readings[0];
        let passed = now.saturating_sub(*at);
        if passed < FIRST {
            return;
        }
        let evidence = Evidence::between(first, &counted, passed);
        self.evidence = Some(evidence);
        let class = evidence.class();
        match &mut self.stands {
            Some(stands) => stands.see(class, now),
            None => {
                let (changes, doublings) = (0, 0);
                let (since, calm_since) = (now, now);
                let other = None;
                self.stands =
                    Some(Standing { class, since, changes, calm_since, doublings, other });
            }
        }
    }
}

impl Standing {
    fn hold(&self) -> Duration {
        HOLD * 2u32.pow(self.doublings)
    }

    fn see(&mut self, class: Class, now: Duration) {
        if now.saturating_sub(self.calm_since) >= CALM_HOLDS * self.hold() {
            self.doublings = self.doublings.saturating_sub(1);
            self.calm_since = now;
        }
        if class == self.class {
            self.other = None;
            return;
        }
        let seen = self.other.filter(|(other, _)| *other == class);
        let (_, since) = *self.other.insert(seen.unwrap_or((class, now)));
        if now.saturating_sub(since) < self.hold() {
            return;
        }
        let doublings = (self.doublings + 1).min(DOUBLINGS_MAX);
        let changes = self.changes + 1;
        *self = Self { class, since: now, changes, calm_since: now, doublings, other: None };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A VM's counters after so many seconds of that life, per second.
    fn after(seconds: u64, each: Counted) -> Counted {
        let times = |count: Option<u64>| count.map(|count| seconds * count);
        Counted {
            vcpu_ns: seconds * each.vcpu_ns,
            vcpu_sleeps: seconds * each.vcpu_sleeps,
            helper_ns: seconds * each.helper_ns,
            helper_sleeps: seconds * each.helper_sleeps,
            ready_ns: seconds * each.ready_ns,
            block_bytes: times(each.block_bytes),
            network_bytes: times(each.network_bytes),
            memory_mib_s: each.memory_mib_s,
        }
    }

    fn class_of(each: Counted) -> Class {
        let begin = Counted { network_bytes: Some(0), ..Counted::default() };
        Evidence::between(&begin, &after(1, each), Duration::from_secs(1)).class()
    }

    const BUSY: Counted = Counted {
        vcpu_ns: 900 * MS,
        vcpu_sleeps: 0,
        helper_ns: 0,
        helper_sleeps: 1,
        ready_ns: 0,
        block_bytes: None,
        network_bytes: None,
        memory_mib_s: None,
    };
    /// Half of a pCPU, 60 us for each block.
    const READER: Counted = Counted {
        vcpu_ns: 360 * MS,
        vcpu_sleeps: 6000,
        helper_ns: 120 * MS,
        helper_sleeps: 6000,
        ..BUSY
    };

    #[test]
    fn the_worked_example_of_the_header_holds() {
        let second = Duration::from_secs(1);
        let reader = Evidence::between(&Counted::default(), &READER, second);
        assert_eq!((reader.events_per_cpu_s(), reader.class()), (12_500.0, Class::Io));
        let compiler = Counted { vcpu_sleeps: 45, helper_sleeps: 45, ..BUSY };
        let compiler = Evidence::between(&Counted::default(), &compiler, second);
        assert_eq!((compiler.events_per_cpu_s(), compiler.class()), (50.0, Class::Cpu));
        let receiver = Counted {
            vcpu_ns: 199 * MS,
            vcpu_sleeps: 238,
            helper_ns: 111 * MS,
            helper_sleeps: 238,
            ..BUSY
        };
        let events = Evidence::between(&Counted::default(), &receiver, second).events_per_cpu_s();
        assert!((760.0..770.0).contains(&events), "{events}");
        assert_eq!(class_of(receiver), Class::Io);
        let sender = Counted { vcpu_ns: 232 * MS, vcpu_sleeps: 20, ..receiver };
        assert_eq!(class_of(sender), Class::Mixed);
    }

    #[test]
    fn each_class_has_its_evidence() {
        assert_eq!(class_of(Counted { vcpu_ns: 15 * MS, vcpu_sleeps: 100, ..BUSY }), Class::Idle);
        assert_eq!(class_of(BUSY), Class::Cpu);
        let ticked = Counted { helper_sleeps: 37, helper_ns: 9 * MS, ..BUSY };
        assert_eq!(class_of(Counted { vcpu_ns: 300 * MS, ..ticked }), Class::Cpu);
        assert_eq!(class_of(Counted { vcpu_ns: 5 * MS, vcpu_sleeps: 16, ..ticked }), Class::Idle);
        let timers = Counted { vcpu_ns: 117 * MS, vcpu_sleeps: 500, ..ticked };
        assert_eq!(class_of(timers), Class::Mixed, "it sleeps, and not for I/O");
        let starved = Counted { vcpu_ns: 10 * MS, ready_ns: 990 * MS, helper_sleeps: 0, ..BUSY };
        assert_eq!(class_of(starved), Class::Cpu, "who waits for a pCPU is not idle");
        assert_eq!(class_of(Counted { memory_mib_s: Some(4000.0), ..BUSY }), Class::Memory);
        assert_eq!(class_of(Counted { memory_mib_s: Some(400.0), ..BUSY }), Class::Cpu);
        assert_eq!(class_of(Counted { vcpu_sleeps: 500, ..BUSY }), Class::Mixed);
        assert_eq!(class_of(Counted { helper_sleeps: 500, ..BUSY }), Class::Mixed);
        let sender = Counted { network_bytes: Some(200_000_000), ..BUSY };
        assert_eq!(class_of(sender), Class::Io, "bytes are evidence where helpers are unseen");
    }

    /// The classes of a VM that lives as `life` says in each second.
    fn live(seconds: u64, life: impl Fn(u64) -> Counted) -> (Vec<Class>, Profile) {
        let (mut profiler, mut sum, mut classes) =
            (Profiler::default(), Counted::default(), Vec::new());
        for second in 0..seconds {
            profiler.look(7, sum, Duration::from_secs(second));
            classes.extend(profiler.profile(7).map(|profile| profile.class));
            let each = life(second);
            sum.vcpu_ns += each.vcpu_ns;
            sum.vcpu_sleeps += each.vcpu_sleeps;
            sum.helper_ns += each.helper_ns;
            sum.helper_sleeps += each.helper_sleeps;
        }
        classes.dedup();
        (classes, profiler.profile(7).unwrap())
    }

    #[test]
    fn a_first_class_takes_two_seconds_and_another_more() {
        let mut profiler = Profiler::default();
        profiler.look(7, Counted::default(), Duration::ZERO);
        profiler.look(7, BUSY, Duration::from_secs(1));
        assert_eq!(profiler.profile(7), None);
        profiler.look(7, after(2, BUSY), Duration::from_secs(2));
        assert_eq!(profiler.profile(7).map(|it| it.class), Some(Class::Cpu));
        let burst = |second| if (20..24).contains(&second) { READER } else { BUSY };
        assert_eq!(live(60, burst).0, [Class::Cpu], "four seconds of I/O are no other class");
        let other = |second| if second < 20 { BUSY } else { READER };
        let (classes, profile) = live(60, other);
        assert_eq!((classes.first(), classes.last()), (Some(&Class::Cpu), Some(&Class::Io)));
        assert!(classes.len() <= 3 && profile.for_s > 15.0, "{classes:?} {profile:?}");
    }

    #[test]
    fn who_swings_changes_less_and_less_often() {
        let swings = |second| if second / 30 % 2 == 0 { BUSY } else { READER };
        let (_, profile) = live(3600, swings);
        assert!(profile.changes <= 12, "{profile:?}: of 120 swings");
    }

    #[test]
    fn counters_that_begin_anew_are_no_flood() {
        let (before, second) =
            (Counted { helper_sleeps: u64::MAX - 5, ..BUSY }, Duration::from_secs(1));
        let evidence = Evidence::between(&before, &Counted { helper_sleeps: 3, ..BUSY }, second);
        assert_eq!(evidence.helper_sleeps_per_s, 3.0);
    }

    #[test]
    fn who_has_gone_is_forgotten() {
        let mut profiler = Profiler::default();
        (0..9)
            .for_each(|second| profiler.look(7, after(second, BUSY), Duration::from_secs(second)));
        profiler.retain(|id| id != 7);
        assert_eq!(profiler.profile(7), None);
    }
}

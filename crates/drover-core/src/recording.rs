// SPDX-License-Identifier: GPL-2.0-only
//! What happened on the pCPUs of a host: who began to run where, and which threads of VMs were woken. Who ran when, and
//! who was ready meanwhile, follows.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

/// Something happened on a pCPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// When, on the kernel's monotonic clock.
    pub at_ns: u64,
    /// The pCPU; of a wake-up that of the waker.
    pub pcpu: u32,
    /// The thread; 0: none, the pCPU is idle.
    pub thread: u32,
    /// What it was.
    pub what: What,
}

/// What happened to a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// A thread of a VM that slept is ready.
    Woken,
    /// It began to run.
    Ran {
        /// Who ran there before is ready still: it was preempted.
        left_ready: bool,
        /// What kind of thread it is.
        class: Class,
    },
}

/// What kind of thread runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// A thread of a process.
    Normal,
    /// A thread of the kernel.
    Kernel,
    /// Real time, of a process or of the kernel: it goes before all others.
    RealTime,
}

/// A thread ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ran {
    /// The thread; 0: the pCPU was idle.
    pub thread: u32,
    /// What kind it is.
    pub class: Class,
    /// Where.
    pub pcpu: u32,
    /// From then.
    pub from_ns: u64,
    /// Until then.
    pub to_ns: u64,
}

/// A vCPU was ready and did not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait {
    /// Its thread.
    pub thread: u32,
    /// Where it ran next; where it has not yet, where it ran last. None: neither was seen.
    pub pcpu: Option<u32>,
    /// From then.
    pub from_ns: u64,
    /// Until then.
    pub to_ns: u64,
}

/// Who ran and who waited in a window of time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct History {
    /// Who ran, pCPU by pCPU in the order of time; idle pCPUs too.
    pub ran: Vec<Ran>,
    /// The waits of vCPUs, in the order of their ends.
    pub waits: Vec<Wait>,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Waiting,
    Ready { since_ns: u64, last_pcpu: Option<u32> },
    Running,
}

/// Replays events in the order of time. What is told before `from_ns` says who ran then; what comes of it is cut to
/// the window. A vCPU without any event counts as not waiting; the caller corrects that where it
/// knows more.
pub fn replay(
    events: &[Event],
    (from_ns, to_ns): (u64, u64),
    is_vcpu: impl Fn(u32) -> bool,
) -> History {
    let mut replay = Replay { from_ns, to_ns, ..Replay::default() };
    for event in events.iter().take_while(|event| event.at_ns < to_ns) {
        match event.what {
            What::Woken if is_vcpu(event.thread) => replay.woken(event),
            What::Woken => {}
            What::Ran { left_ready, class } => replay.ran(event, left_ready, class, &is_vcpu),
        }
    }
    replay.end()
}

#[derive(Default)]
struct Replay {
    from_ns: u64,
    to_ns: u64,
    /// Who runs on each pCPU, since when.
    running: HashMap<u32, (u32, Class, u64)>,
    vcpus: HashMap<u32, (State, Option<u32>)>,
    history: History,
}

impl Replay {
    fn woken(&mut self, event: &Event) {
        let (state, last_pcpu) = self.vcpus.entry(event.thread).or_insert((State::Waiting, None));
        if matches!(state, State::Waiting) {
            *state = State::Ready { since_ns: event.at_ns, last_pcpu: *last_pcpu };
        }
    }

    fn ran(
        &mut self,
        event: &Event,
        left_ready: bool,
        class: Class,
        is_vcpu: &impl Fn(u32) -> bool,
    ) {
        let Event { at_ns, pcpu, thread, .. } = *event;
        if let Some((before, of_class, since_ns)) =
            self.running.insert(pcpu, (thread, class, at_ns))
        {
            self.enter(before, of_class, pcpu, since_ns, at_ns);
            if is_vcpu(before) {
                let state = match left_ready {
                    true => State::Ready { since_ns: at_ns, last_pcpu: Some(pcpu) },
                    false => State::Waiting,
                };
                self.vcpus.insert(before, (state, Some(pcpu)));
            }
        }
        if !is_vcpu(thread) {
            return;
        }
        // Each wake-up is told of: who runs without one has been ready since before it began.
        let ready_since = match self.vcpus.get(&thread) {
            None => Some(0),
            Some((State::Ready { since_ns, .. }, _)) => Some(*since_ns),
            // It was woken on its way to sleep.
            Some((State::Waiting | State::Running, _)) => None,
        };
        if let Some(since_ns) = ready_since {
            self.waited(thread, Some(pcpu), since_ns, at_ns);
        }
        self.vcpus.insert(thread, (State::Running, Some(pcpu)));
    }

    fn enter(&mut self, thread: u32, class: Class, pcpu: u32, from_ns: u64, to_ns: u64) {
        let (from_ns, to_ns) = (from_ns.max(self.from_ns), to_ns.min(self.to_ns));
        if from_ns < to_ns {
            self.history.ran.push(Ran { thread, class, pcpu, from_ns, to_ns });
        }
    }

    fn waited(&mut self, thread: u32, pcpu: Option<u32>, from_ns: u64, to_ns: u64) {
        let (from_ns, to_ns) = (from_ns.max(self.from_ns), to_ns.min(self.to_ns));
        if from_ns < to_ns {
            self.history.waits.push(Wait { thread, pcpu, from_ns, to_ns });
        }
    }

    fn end(mut self) -> History {
        let to_ns = self.to_ns;
        for (pcpu, (thread, class, since_ns)) in std::mem::take(&mut self.running) {
            self.enter(thread, class, pcpu, since_ns, to_ns);
        }
        let mut vcpus: Vec<_> = std::mem::take(&mut self.vcpus).into_iter().collect();
        vcpus.sort_unstable_by_key(|(thread, _)| *thread);
        for (thread, (state, _)) in vcpus {
            if let State::Ready { since_ns, last_pcpu } = state {
                self.waited(thread, last_pcpu, since_ns, to_ns);
            }
        }
        self.history.ran.sort_unstable_by_key(|ran| (ran.pcpu, ran.from_ns));
        self.history
    }
}

/// How long each thread ran where one of these waits was, and on which pCPUs. What was waited where nobody knows is
/// the second.
pub fn who_ran_meanwhile(history: &History, waits: &[Wait]) -> (Vec<Meanwhile>, u64) {
    let mut found: HashMap<(u32, Class), Meanwhile> = HashMap::new();
    let mut unknown_ns = 0;
    for wait in waits {
        let mut seen_ns = 0;
        for ran in runs_of(history, wait) {
            let ns = ran.to_ns.min(wait.to_ns) - ran.from_ns.max(wait.from_ns);
            seen_ns += ns;
            let one = found.entry((ran.thread, ran.class)).or_insert(Meanwhile {
                thread: ran.thread,
                class: ran.class,
                ns: 0,
                pcpus: Vec::new(),
            });
            one.ns += ns;
            if !one.pcpus.contains(&ran.pcpu) {
                one.pcpus.push(ran.pcpu);
            }
        }
        unknown_ns += (wait.to_ns - wait.from_ns).saturating_sub(seen_ns);
    }
    let mut all: Vec<Meanwhile> = found.into_values().collect();
    all.sort_unstable_by_key(|one| (std::cmp::Reverse(one.ns), one.thread));
    all.iter_mut().for_each(|one| one.pcpus.sort_unstable());
    (all, unknown_ns)
}

/// The runs on the pCPU of that wait while it was.
fn runs_of<'a>(history: &'a History, wait: &Wait) -> impl Iterator<Item = &'a Ran> {
    let Wait { from_ns, to_ns, .. } = *wait;
    let pcpu = wait.pcpu.unwrap_or(u32::MAX);
    let first = history.ran.partition_point(|ran| (ran.pcpu, ran.to_ns) <= (pcpu, from_ns));
    history.ran[first..].iter().take_while(move |ran| ran.pcpu == pcpu && ran.from_ns < to_ns)
}

/// A thread that ran while somebody waited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meanwhile {
    /// The thread; 0: the pCPU was idle.
    pub thread: u32,
    /// What kind it is.
    pub class: Class,
    /// For so long.
    pub ns: u64,
    /// There.
    pub pcpus: Vec<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const VCPU: u32 = 7;
    const OTHER: u32 = 9;

    fn ran(at_ns: u64, pcpu: u32, thread: u32, left_ready: bool) -> Event {
        Event { at_ns, pcpu, thread, what: What::Ran { left_ready, class: Class::Normal } }
    }

    fn woken(at_ns: u64, thread: u32) -> Event {
        Event { at_ns, pcpu: 5, thread, what: What::Woken }
    }

    fn waits(events: &[Event], window: (u64, u64)) -> Vec<(Option<u32>, u64, u64)> {
        let history = replay(events, window, |thread| thread == VCPU);
        history.waits.iter().map(|wait| (wait.pcpu, wait.from_ns, wait.to_ns)).collect()
    }

    #[test]
    fn a_wait_is_from_a_wake_up_or_a_preemption_to_the_next_run() {
        let events = [
            ran(0, 1, OTHER, false),
            woken(10, VCPU),
            ran(30, 1, VCPU, true),
            ran(40, 1, OTHER, true),
        ];
        assert_eq!(waits(&events, (0, 100)), [(Some(1), 10, 30), (Some(1), 40, 100)]);
        let slept = [ran(0, 1, VCPU, false), ran(40, 1, OTHER, false)];
        assert_eq!(waits(&slept, (10, 100)), []);
    }

    #[test]
    fn who_runs_without_a_wake_up_was_ready_before_the_window_began() {
        assert_eq!(waits(&[ran(60, 2, VCPU, false)], (50, 100)), [(Some(2), 50, 60)]);
        let told_before = [woken(20, VCPU), ran(60, 2, VCPU, false)];
        assert_eq!(waits(&told_before, (50, 100)), [(Some(2), 50, 60)]);
        assert_eq!(waits(&[woken(60, VCPU)], (50, 100)), [(None, 60, 100)]);
    }

    #[test]
    fn what_ran_where_a_vcpu_waited_is_ranked() {
        let events = [
            ran(0, 1, OTHER, false),
            ran(0, 2, 11, false),
            woken(10, VCPU),
            ran(40, 1, 0, false),
            ran(50, 1, VCPU, false),
        ];
        let history = replay(&events, (0, 100), |thread| thread == VCPU);
        let (all, unknown_ns) = who_ran_meanwhile(&history, &history.waits);
        let found: Vec<_> = all.iter().map(|it| (it.thread, it.ns, it.pcpus.clone())).collect();
        assert_eq!(
            found,
            [(OTHER, 30, vec![1]), (0, 10, vec![1])],
            "who ran elsewhere is not in it"
        );
        assert_eq!(unknown_ns, 0);
        let nowhere = Wait { thread: VCPU, pcpu: None, from_ns: 0, to_ns: 9 };
        assert_eq!(who_ran_meanwhile(&history, &[nowhere]), (Vec::new(), 9));
    }
}

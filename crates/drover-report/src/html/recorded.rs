// SPDX-License-Identifier: GPL-2.0-only
//! A recording as a timeline.

use std::collections::HashMap;

use drover_core::recording::replay;
use drover_core::recording_file::{Recording, Thread};
use drover_core::why::Who;

use super::timeline::{Person, Stretch, Timeline, Waited};

impl Timeline {
    /// The same as that recording.
    pub fn of_recording(title: &str, recording: &Recording) -> Self {
        let mut events = recording.events.clone();
        events.sort_by_key(|event| event.at_ns);
        let from_ns = recording.head.from_ns;
        let to_ns = events.last().map_or(from_ns, |event| event.at_ns + 1).max(from_ns);
        let people = People::of(&recording.threads);
        let history = replay(&events, (from_ns, to_ns), |thread| people.is_vcpu(thread));
        let last_pcpu = events.iter().map(|event| event.pcpu + 1).max().unwrap_or(0);
        let ran = history.ran.iter().filter(|ran| ran.thread != 0);
        let spans = ran.map(|ran| Stretch {
            pcpu: ran.pcpu,
            from_ns: ran.from_ns - from_ns,
            to_ns: ran.to_ns - from_ns,
            who: people.number(ran.thread),
        });
        let waits = history.waits.iter().map(|wait| Waited {
            who: people.number(wait.thread),
            from_ns: wait.from_ns - from_ns,
            to_ns: wait.to_ns - from_ns,
        });
        Self {
            title: title.to_owned(),
            pcpus: recording.head.pcpus.max(last_pcpu),
            length_ns: to_ns - from_ns,
            spans: spans.collect(),
            waits: waits.collect(),
            vms: people.vms.clone(),
            people: people.all,
            notes: notes(recording),
        }
    }
}

/// What is missing.
fn notes(recording: &Recording) -> Vec<String> {
    let mut notes = Vec::new();
    if recording.lost > 0 {
        notes.push(format!("{} events were lost: there it is not true", recording.lost));
    }
    if recording.is_cut {
        notes.push("the file was cut off: this is what was whole of it".to_owned());
    }
    notes
}

/// Who the threads are.
struct People {
    all: Vec<Person>,
    vms: Vec<String>,
    /// Their numbers by threads.
    numbers: HashMap<u32, usize>,
}

impl People {
    /// Of those, the last of each number counts. Threads of no VM that are called alike are one.
    fn of(threads: &[Thread]) -> Self {
        let somebody = Person { name: "somebody".to_owned(), vm: None, vcpu: None };
        let mut people = Self { all: vec![somebody], vms: Vec::new(), numbers: HashMap::new() };
        let mut vms: Vec<u32> = Vec::new();
        let mut alike: HashMap<Person, usize> = HashMap::new();
        for thread in threads {
            let vm = thread.vm.map(|pid| {
                vms.iter().position(|known| *known == pid).unwrap_or_else(|| {
                    vms.push(pid);
                    people.vms.push(thread.name.clone());
                    vms.len() - 1
                })
            });
            let name = match (vm, thread.vcpu) {
                (Some(_), Some(vcpu)) => format!("{}/{vcpu}", thread.name),
                (Some(_), None) => format!("{} (helpers)", thread.name),
                (None, _) => format!("{} {}", thread.who.text(), thread.name),
            };
            let vcpu = thread.vcpu.filter(|_| thread.who == Who::Vm);
            let person = Person { name, vm, vcpu };
            let number = *alike.entry(person.clone()).or_insert_with(|| {
                people.all.push(person);
                people.all.len() - 1
            });
            people.numbers.insert(thread.thread, number);
        }
        people
    }

    fn number(&self, thread: u32) -> usize {
        self.numbers.get(&thread).copied().unwrap_or(0)
    }

    fn is_vcpu(&self, thread: u32) -> bool {
        self.all[self.number(thread)].vcpu.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drover_core::recording::{Class, Event, What};
    use drover_core::recording_file::Head;

    #[test]
    fn threads_of_a_recording_are_vcpus_helpers_and_others() {
        let thread = |thread, who, name: &str, vm, vcpu| Thread {
            thread,
            who,
            name: name.to_owned(),
            vm,
            vcpu,
        };
        let ran = |at_ns, thread| {
            let what = What::Ran { left_ready: true, class: Class::Normal };
            Event { at_ns, pcpu: 1, thread, what }
        };
        let recording = Recording {
            head: Head { from_ns: 1000, pcpus: 2, ..Head::default() },
            threads: vec![
                thread(7, Who::Task, "early", None, None),
                thread(7, Who::Vm, "web", Some(6), Some(0)),
                thread(8, Who::VmHelper, "web", Some(6), None),
                thread(9, Who::Task, "make", None, None),
                thread(10, Who::Task, "make", None, None),
            ],
            events: vec![ran(900, 7), ran(1100, 9), ran(1200, 10), ran(1300, 7), ran(1400, 0)],
            lost: 2,
            is_cut: true,
            setup: None,
        };
        let timeline = Timeline::of_recording("r", &recording);
        let name = |who: usize| timeline.people[who].name.as_str();
        let ran = timeline.spans.iter().map(|it| (name(it.who), it.from_ns, it.to_ns));
        let ran: Vec<_> = ran.collect();
        assert_eq!(
            ran,
            [
                ("web/0", 0, 100),
                ("host task make", 100, 200),
                ("host task make", 200, 300),
                ("web/0", 300, 400)
            ]
        );
        let waits = &timeline.waits;
        assert_eq!((waits[0].from_ns, waits[0].to_ns, name(waits[0].who)), (100, 300, "web/0"));
        assert_eq!((timeline.vms.len(), timeline.notes.len(), timeline.pcpus), (1, 2, 2));
    }
}

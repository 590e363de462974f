// SPDX-License-Identifier: GPL-2.0-only
//! Who ran where and who waited, as a page shows it.

use drover_scenario::schedule::{Schedule, Who};

/// Somebody who runs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Person {
    /// What it is called.
    pub name: String,
    /// The VM it is of, by number; none: a task of the host.
    pub vm: Option<usize>,
    /// The vCPU it is, by its place in the VM; none: another thread.
    pub vcpu: Option<u32>,
}

/// Somebody ran on a pCPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stretch {
    /// Where.
    pub pcpu: u32,
    /// From then, since the timeline begins, ns.
    pub from_ns: u64,
    /// Until then.
    pub to_ns: u64,
    /// Who, by number among the people.
    pub who: usize,
}

/// A vCPU was ready and did not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waited {
    /// Who, by number among the people.
    pub who: usize,
    /// From then, since the timeline begins, ns.
    pub from_ns: u64,
    /// Until then.
    pub to_ns: u64,
}

/// A stretch of time on the pCPUs of a host.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Timeline {
    /// What it is of.
    pub title: String,
    /// Number of pCPUs.
    pub pcpus: u32,
    /// How long it is, ns.
    pub length_ns: u64,
    /// Names of the VMs.
    pub vms: Vec<String>,
    /// Who runs.
    pub people: Vec<Person>,
    /// Who ran, in any order; on one pCPU they do not overlap.
    pub spans: Vec<Stretch>,
    /// Which vCPUs waited, in any order.
    pub waits: Vec<Waited>,
    /// What is missing in it, a line each.
    pub notes: Vec<String>,
}

impl Timeline {
    /// The same as that schedule.
    pub fn of_schedule(schedule: &Schedule) -> Self {
        let mut people =
            vec![Person { name: "the host's own tasks".to_owned(), vm: None, vcpu: None }];
        let mut firsts = Vec::new();
        for (vm, of) in schedule.vms.iter().enumerate() {
            firsts.push(people.len());
            let helper =
                Person { name: format!("{} (helpers)", of.name), vm: Some(vm), vcpu: None };
            people.push(helper);
            people.extend((0..of.vcpus).map(|vcpu| Person {
                name: format!("{}/{vcpu}", of.name),
                vm: Some(vm),
                vcpu: Some(vcpu),
            }));
        }
        let number = |who| match who {
            Who::Host => 0,
            Who::Helper(vm) => firsts[vm as usize],
            Who::Vcpu(vm, vcpu) => firsts[vm as usize] + 1 + vcpu as usize,
        };
        let stretch = |span: &drover_scenario::schedule::Span| Stretch {
            pcpu: span.pcpu,
            from_ns: span.from_ns,
            to_ns: span.to_ns,
            who: number(span.who),
        };
        let wait = |wait: &drover_scenario::schedule::Wait| Waited {
            who: number(Who::Vcpu(wait.vm, wait.vcpu)),
            from_ns: wait.from_ns,
            to_ns: wait.to_ns,
        };
        Self {
            title: format!("{}, {}", schedule.case, schedule.scheduler),
            pcpus: schedule.pcpus,
            length_ns: schedule.length_ns,
            vms: schedule.vms.iter().map(|vm| vm.name.clone()).collect(),
            people,
            spans: schedule.spans.iter().map(stretch).collect(),
            waits: schedule.waits.iter().map(wait).collect(),
            notes: Vec::new(),
        }
    }

    /// Who ran, in few letters: pCPU by pCPU how many runs there are, and of each the time since the last, how long it
    /// was, and who; numbers of 7 bits a byte, the bytes as base64.
    pub(super) fn packed(&self) -> String {
        let mut spans = self.spans.clone();
        spans.sort_unstable_by_key(|span| (span.pcpu, span.from_ns));
        let mut bytes = Vec::new();
        let mut rest = &spans[..];
        for pcpu in 0..self.pcpus {
            let count = rest.partition_point(|span| span.pcpu <= pcpu);
            let (own, after) = rest.split_at(count);
            rest = after;
            push(&mut bytes, own.len() as u64);
            let mut last_ns = 0;
            for span in own {
                push(&mut bytes, span.from_ns.saturating_sub(last_ns));
                push(&mut bytes, span.to_ns - span.from_ns);
                push(&mut bytes, span.who as u64);
                last_ns = span.to_ns;
            }
        }
        base64(&bytes)
    }
}

fn push(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 128 {
        bytes.push((number & 127) as u8 | 128);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let at = |place: usize| u32::from(three.get(place).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for letter in 0..4 {
            let sextet = bits >> (18 - 6 * letter) & 63;
            let is_there = letter <= three.len();
            text.push(if is_there { LETTERS[sextet as usize] as char } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_base64_as_everybody_has_it() {
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v")] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }

    #[test]
    fn runs_are_packed_pcpu_by_pcpu() {
        let run = |pcpu, from_ns, to_ns, who| Stretch { pcpu, from_ns, to_ns, who };
        let timeline = Timeline {
            pcpus: 3,
            spans: vec![run(2, 5, 7, 1), run(0, 300, 310, 2), run(0, 0, 200, 3)],
            ..Timeline::default()
        };
        let bytes = [2, 0, 0xc8, 1, 3, 100, 10, 2, 0, 1, 5, 2, 1];
        assert_eq!(timeline.packed(), base64(&bytes));
    }

    #[test]
    fn a_schedule_is_a_timeline_of_its_people() {
        let timeline = Timeline::of_schedule(&super::super::tests::schedule("web"));
        let who = |place: usize| timeline.people[timeline.spans[place].who].name.as_str();
        assert_eq!((who(0), who(1)), ("web/1", "the host's own tasks"));
        let waited = &timeline.waits[0];
        assert_eq!((who(0), timeline.people[waited.who].name.as_str()), ("web/1", "web/0"));
        assert_eq!(timeline.people.len(), 4);
    }
}

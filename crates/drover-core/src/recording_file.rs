// SPDX-License-Identifier: GPL-2.0-only
//! A recording in a file: what happened on the pCPUs of a host, and who the threads were.
//!
//! After a first line that says what it is, the file is parts one after the other: a letter for its kind, its length as
//! four bytes, the least first, and so many bytes. `H`, the first, is the head as JSON; `T` are threads as JSON; `E` are
//! events; `S` is what the host is made of and what is set for VMs as JSON; `L` is a number of events that were lost, as text. Of an event there are numbers of 7 bits a byte, the
//! highest bit says that more follow: the time since the one before (of the first in a part the time itself), ns; the
//! pCPU times 16 and what it was; the thread. A file that was cut off, or that somebody still writes, is read as far as
//! its parts are whole.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::cpu_list::CpuList;
use crate::recording::{Class, Event, What};
use crate::why::Who;

/// The first line.
pub const FIRST_LINE: &[u8] = b"drover recording 1\n";
/// No part is longer than that.
const PART_MAX: usize = 64 << 20;

/// What a recording is of.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Head {
    /// The host's name.
    pub host: String,
    /// When it began, as people write it.
    pub began: String,
    /// The scheduler in charge then; none: the kernel's own.
    pub scheduler: Option<String>,
    /// When it began, on the clock of its events, ns.
    pub from_ns: u64,
    /// pCPUs up to the last one.
    pub pcpus: u32,
}

/// A thread of a recording.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    /// Its number.
    pub thread: u32,
    /// What it is; of a VM's: `vm` a vCPU, `vm_helper` another thread.
    pub who: Who,
    /// Its name, or its VM's.
    pub name: String,
    /// The process of its VM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vm: Option<u32>,
    /// Its number in its VM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vcpu: Option<u32>,
}

/// What the host is made of, and what was set for its VMs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Setup {
    /// The pCPUs that are online.
    pub pcpus: Vec<PcpuSetup>,
    /// Memory of all nodes, MiB.
    pub memory_mib: u32,
    /// How far each node is from each, where there are several and it is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub node_distances: Vec<Vec<u32>>,
    /// A last-level cache, KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub llc_kib: Option<u32>,
    /// The memory of each node, MiB.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub nodes_mib: BTreeMap<u32, u64>,
    /// Whether a vCPU that spins is stopped (pause-loop exits); none: the CPU has nothing for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause_exits: Option<bool>,
    /// Which memory the kernel puts on huge pages by itself: `always`, `madvise` or `never`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub huge_pages: Option<String>,
    /// Its VMs.
    pub vms: Vec<VmSetup>,
}

/// Where a pCPU is, each place by the lowest pCPU there but the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PcpuSetup {
    /// Its number.
    pub pcpu: u32,
    /// Its core.
    pub core: u32,
    /// Its last-level cache; its node where that is not known.
    pub llc: u32,
    /// Its NUMA node.
    pub node: u32,
}

/// What was set for a VM.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct VmSetup {
    /// Its process.
    pub vm: u32,
    /// Its shares; none: nobody set any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shares: Option<u32>,
    /// CPU that is promised to it, thousandths of a pCPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation_mcpu: Option<u32>,
    /// The most CPU it may have, thousandths of a pCPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_mcpu: Option<u32>,
    /// Its pool; none: the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Where each vCPU may run, in the order of their numbers; none: that is not known.
    pub pins: Vec<Option<CpuList>>,
    /// Its partition, where it is in another than `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    /// What was asked for it and cannot be, each in a line.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub troubles: Vec<String>,
    /// libvirt's name of it, where that manages it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// Its cgroup.
    #[serde(default)]
    pub cgroup: String,
    /// The most CPU that its cgroup may have, other threads of its process counted, thousandths of a pCPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_mcpu: Option<u32>,
    /// Where its other threads may run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub helper_pins: Option<CpuList>,
    /// Whether its guest has nodes (vNUMA); none: that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub knows_nodes: Option<bool>,
    /// How many of its vCPUs have a core-scheduling cookie.
    #[serde(default)]
    pub cookies: u32,
    /// What of its memory lies on each node, MiB; empty: that was not looked at.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub memory_mib: BTreeMap<u32, u64>,
    /// What of it is on huge pages, MiB; none: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub huge_mib: Option<u64>,
}

/// A recording.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Recording {
    /// What it is of.
    pub head: Head,
    /// Those who ran; of one number the last counts.
    pub threads: Vec<Thread>,
    /// In the order of time, nearly: who writes it reads the pCPUs one after the other.
    pub events: Vec<Event>,
    /// What the host is made of and what was set; of several the last, none in recordings of older versions.
    pub setup: Option<Setup>,
    /// Events that were lost.
    pub lost: u64,
    /// The file ends in the middle of something.
    pub is_cut: bool,
}

/// The beginning of a file.
pub fn begin(head: &Head) -> Vec<u8> {
    let mut bytes = FIRST_LINE.to_vec();
    part(&mut bytes, b'H', serde_json::to_string(head).unwrap_or_default().as_bytes());
    bytes
}

/// Threads that were seen for the first time.
pub fn threads(threads: &[Thread]) -> Vec<u8> {
    let mut bytes = Vec::new();
    part(&mut bytes, b'T', serde_json::to_string(threads).unwrap_or_default().as_bytes());
    bytes
}

/// Events, in the order of time.
pub fn events(events: &[Event]) -> Vec<u8> {
    let mut body = Vec::new();
    let mut last_ns = 0;
    for event in events {
        let bits = match event.what {
            What::Woken => 1,
            What::Ran { left_ready, class } => u64::from(left_ready) << 1 | (class as u64) << 2,
        };
        push(&mut body, event.at_ns.saturating_sub(last_ns));
        push(&mut body, u64::from(event.pcpu) << 4 | bits);
        push(&mut body, u64::from(event.thread));
        last_ns = event.at_ns.max(last_ns);
    }
    let mut bytes = Vec::new();
    part(&mut bytes, b'E', &body);
    bytes
}

/// What the host is made of, and what is set for its VMs.
pub fn setup(setup: &Setup) -> Vec<u8> {
    let mut bytes = Vec::new();
    part(&mut bytes, b'S', serde_json::to_string(setup).unwrap_or_default().as_bytes());
    bytes
}

/// So many events were lost.
pub fn lost(events: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    part(&mut bytes, b'L', events.to_string().as_bytes());
    bytes
}

fn part(bytes: &mut Vec<u8>, kind: u8, body: &[u8]) {
    bytes.push(kind);
    bytes.extend(u32::try_from(body.len()).unwrap_or(u32::MAX).to_le_bytes());
    bytes.extend(body);
}

fn push(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 128 {
        bytes.push((number & 127) as u8 | 128);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Reads a file as far as it is whole.
///
/// # Errors
/// When the file is not a recording of `drover record`; the message is one line.
pub fn read(bytes: &[u8]) -> Result<Recording, String> {
    let mut rest =
        bytes.strip_prefix(FIRST_LINE).ok_or("this is no recording of `drover record`")?;
    let mut recording = Recording::default();
    let mut is_begun = false;
    while !rest.is_empty() {
        let Some((kind, body, after)) = next_part(rest) else { break };
        let is_whole = match kind {
            b'H' => json(body).map(|head| recording.head = head),
            b'T' => json(body).map(|threads: Vec<Thread>| recording.threads.extend(threads)),
            b'E' => read_events(body, &mut recording.events),
            b'S' => json(body).map(|setup| recording.setup = Some(setup)),
            b'L' => text(body).map(|lost: u64| recording.lost += lost),
            // Of a newer version.
            _ => Some(()),
        };
        if is_whole.is_none() {
            break;
        }
        (is_begun, rest) = (is_begun || kind == b'H', after);
    }
    recording.is_cut = !rest.is_empty();
    if !is_begun {
        return Err("the recording ends before its head".to_owned());
    }
    Ok(recording)
}

fn next_part(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&kind, rest) = bytes.split_first()?;
    let (length, rest) = rest.split_first_chunk()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    (length <= PART_MAX && length <= rest.len()).then(|| (kind, &rest[..length], &rest[length..]))
}

fn json<T: for<'a> Deserialize<'a>>(body: &[u8]) -> Option<T> {
    serde_json::from_slice(body).ok()
}

fn text<T: std::str::FromStr>(body: &[u8]) -> Option<T> {
    std::str::from_utf8(body).ok()?.parse().ok()
}

/// None where an event is not whole; those before it are kept.
fn read_events(mut body: &[u8], events: &mut Vec<Event>) -> Option<()> {
    let mut at_ns = 0u64;
    while !body.is_empty() {
        at_ns = at_ns.checked_add(take(&mut body)?)?;
        let place = take(&mut body)?;
        let thread = u32::try_from(take(&mut body)?).ok()?;
        let pcpu = u32::try_from(place >> 4).ok()?;
        let class = match place >> 2 & 3 {
            0 => Class::Normal,
            1 => Class::Kernel,
            _ => Class::RealTime,
        };
        let what = match place & 1 {
            1 => What::Woken,
            _ => What::Ran { left_ready: place & 2 != 0, class },
        };
        events.push(Event { at_ns, pcpu, thread, what });
    }
    Some(())
}

fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 127) << shift;
        if byte & 128 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn head() -> Head {
        Head { host: "h\u{1b}\n".to_owned(), from_ns: 5, pcpus: 2, ..Head::default() }
    }

    fn ran(at_ns: u64, pcpu: u32, thread: u32, class: Class) -> Event {
        Event { at_ns, pcpu, thread, what: What::Ran { left_ready: thread % 2 == 0, class } }
    }

    fn some() -> (Vec<Event>, Vec<Thread>) {
        let woken = Event { at_ns: 1 << 60, pcpu: 3, thread: u32::MAX, what: What::Woken };
        let events = vec![ran(7, 0, 0, Class::Kernel), ran(900, 4095, 2, Class::RealTime), woken];
        let thread =
            Thread { thread: 2, who: Who::Vm, name: "web".to_owned(), vm: Some(1), vcpu: Some(0) };
        (events, vec![thread])
    }

    fn set_up(pins: &str) -> Setup {
        let vm = VmSetup {
            vm: 1,
            shares: Some(500),
            pins: vec![pins.parse().ok()],
            ..VmSetup::default()
        };
        Setup { pcpus: vec![PcpuSetup::default()], vms: vec![vm], ..Setup::default() }
    }

    fn file() -> Vec<u8> {
        let (all, people) = some();
        let (first, last) = (setup(&set_up("0")), setup(&set_up("0-3")));
        [begin(&head()), first, threads(&people), events(&all), lost(3), last, events(&all)]
            .concat()
    }

    #[test]
    fn what_is_written_is_read() {
        let (all, people) = some();
        let read = read(&file()).unwrap();
        assert_eq!((read.head, read.threads, read.lost, read.is_cut), (head(), people, 3, false));
        assert_eq!(read.events, [&all[..], &all[..]].concat());
        assert_eq!(read.setup, Some(set_up("0-3")), "the last counts");
    }

    #[test]
    fn a_file_that_is_cut_off_is_read_as_far_as_it_is_whole() {
        let file = file();
        let begins = begin(&head()).len();
        for length in begins..file.len() {
            let read = read(&file[..length]).unwrap();
            assert!(read.events.len() <= 6 && read.head == head());
        }
        assert!(read(&file[..file.len() - 1]).unwrap().is_cut);
        assert_eq!(read(&file[..begins - 1]).unwrap_err(), "the recording ends before its head");
        assert!(read(b"PK\x03\x04").unwrap_err().contains("no recording"));
    }

    #[test]
    fn an_event_takes_few_bytes() {
        let all: Vec<Event> = (0..1000u32)
            .map(|number| ran(u64::from(number) * 25_000, number % 8, 4000 + number, Class::Normal))
            .collect();
        assert!(events(&all).len() <= 8 * all.len() + 8);
    }

    proptest! {
        #[test]
        fn nothing_that_is_read_ends_the_program(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let file = [&begin(&head())[..], &bytes].concat();
            let _ = read(&file);
            let _ = read(&bytes);
        }
    }
}

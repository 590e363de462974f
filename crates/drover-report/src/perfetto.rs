// SPDX-License-Identifier: GPL-2.0-only
//! Traces for ui.perfetto.dev, in the JSON trace event format.
//!
//! Each timeline has a process for its pCPUs, a row for each, which shows who ran there; and a
//! process for each VM, a row for each vCPU, which shows on which pCPU it ran and when it was ready.

use std::io::{self, Write};

use serde_json::{Value, json};

use crate::html::Timeline;

/// So many stretches, of about 200 bytes each, open in a moment: of more than that the page takes minutes.
pub const STRETCHES_MAX: usize = 150_000;

/// Writes timelines into one file: of each the beginning, where they have more than `most` stretches together.
/// Returns where the first of these ends, ns; none: all is there.
///
/// # Errors
/// When writing fails.
pub fn write(
    timelines: &[Timeline],
    most: Option<usize>,
    out: impl Write,
) -> io::Result<Option<u64>> {
    let most = most.map_or(usize::MAX, |most| most / timelines.len().max(1));
    let mut trace = Trace { out, is_first: true };
    trace.out.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n")?;
    let mut ends_ns: Option<u64> = None;
    let mut first_pid = 1;
    for timeline in timelines {
        trace.name(first_pid, timeline)?;
        let mut stretches = stretches(timeline);
        if let Some(beyond) = stretches.get(most) {
            ends_ns = Some(ends_ns.map_or(beyond.from_ns, |ends_ns| ends_ns.min(beyond.from_ns)));
        }
        stretches.truncate(most);
        for stretch in &stretches {
            trace.stretch(first_pid, timeline, stretch)?;
        }
        first_pid += 1 + timeline.vms.len();
    }
    trace.out.write_all(b"\n]}\n")?;
    trace.out.flush()?;
    Ok(ends_ns)
}

/// Somebody ran on a pCPU, or waited for one.
struct Stretch {
    from_ns: u64,
    to_ns: u64,
    who: usize,
    /// None: it waited.
    pcpu: Option<u32>,
}

/// What there is in a timeline, in the order of time.
fn stretches(timeline: &Timeline) -> Vec<Stretch> {
    let ran = timeline.spans.iter().map(|it| Stretch {
        from_ns: it.from_ns,
        to_ns: it.to_ns,
        who: it.who,
        pcpu: Some(it.pcpu),
    });
    let waited = timeline.waits.iter().map(|it| Stretch {
        from_ns: it.from_ns,
        to_ns: it.to_ns,
        who: it.who,
        pcpu: None,
    });
    let mut all: Vec<_> = ran.chain(waited).collect();
    all.sort_by_key(|stretch| stretch.from_ns);
    all
}

struct Trace<W> {
    out: W,
    is_first: bool,
}

impl<W: Write> Trace<W> {
    /// Names processes and rows: the pCPUs have the first process, VMs those after it.
    fn name(&mut self, first_pid: usize, timeline: &Timeline) -> io::Result<()> {
        let title = &timeline.title;
        self.name_one("process_name", first_pid, 0, &format!("{title}: pCPUs"))?;
        for pcpu in 0..timeline.pcpus {
            self.name_one("thread_name", first_pid, pcpu, &format!("pCPU {pcpu}"))?;
        }
        for (vm, name) in timeline.vms.iter().enumerate() {
            self.name_one("process_name", first_pid + 1 + vm, 0, &format!("{title}: {name}"))?;
        }
        for person in &timeline.people {
            if let (Some(vm), Some(vcpu)) = (person.vm, person.vcpu) {
                self.name_one("thread_name", first_pid + 1 + vm, vcpu, &format!("vCPU {vcpu}"))?;
            }
        }
        Ok(())
    }

    fn stretch(
        &mut self,
        first_pid: usize,
        timeline: &Timeline,
        stretch: &Stretch,
    ) -> io::Result<()> {
        let person = &timeline.people[stretch.who];
        let (ts, dur) = (us(stretch.from_ns), us(stretch.to_ns - stretch.from_ns));
        if let Some(pcpu) = stretch.pcpu {
            self.event(&json!({ "ph": "X", "pid": first_pid, "tid": pcpu, "name": person.name,
                                "ts": ts, "dur": dur }))?;
        }
        let (Some(vm), Some(vcpu)) = (person.vm, person.vcpu) else { return Ok(()) };
        let what = stretch.pcpu.map_or_else(|| "ready".to_owned(), |pcpu| format!("pCPU {pcpu}"));
        self.event(&json!({ "ph": "X", "pid": first_pid + 1 + vm, "tid": vcpu, "name": what,
                            "ts": ts, "dur": dur }))
    }

    fn name_one(&mut self, what: &str, pid: usize, tid: u32, name: &str) -> io::Result<()> {
        let args = json!({ "name": name });
        self.event(&json!({ "ph": "M", "pid": pid, "tid": tid, "name": what, "args": args }))
    }

    fn event(&mut self, event: &Value) -> io::Result<()> {
        if !std::mem::take(&mut self.is_first) {
            self.out.write_all(b",\n")?;
        }
        serde_json::to_writer(&mut self.out, event).map_err(io::Error::from)
    }
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::html::{Person, Stretch, Waited};

    fn vcpu(vcpu: u32) -> Person {
        Person { name: format!("vm0/{vcpu}"), vm: Some(0), vcpu: Some(vcpu) }
    }

    fn timeline(spans: Vec<Stretch>, waits: Vec<Waited>) -> Timeline {
        Timeline {
            title: "all, drover".to_owned(),
            pcpus: 4,
            length_ns: 1_000_000,
            vms: vec!["vm0".to_owned()],
            people: vec![vcpu(0), vcpu(1)],
            spans,
            waits,
            notes: Vec::new(),
        }
    }

    #[test]
    fn a_trace_is_no_longer_than_can_be_opened_unless_it_is_to_be_whole() {
        let span =
            |at: u64| Stretch { pcpu: 0, who: 0, from_ns: 1000 * at, to_ns: 1000 * at + 900 };
        let long = || timeline((0..400_000).map(span).collect(), Vec::new());
        let mut text = Vec::new();
        let ends_ns = write(&[long(), long()], Some(STRETCHES_MAX), &mut text).unwrap();
        assert_eq!(ends_ns, Some(75_000_000));
        assert!(text.len() < 32 << 20, "{}", text.len());
        let mut whole = Vec::new();
        assert_eq!(write(&[long(), long()], None, &mut whole).unwrap(), None);
        let spans = |text: &[u8]| text.split(|&byte| byte == b'\n').count();
        assert!(spans(&whole) > 2 * 2 * 400_000, "each on a row of a pCPU and of a vCPU");
    }

    #[test]
    fn a_trace_is_json_with_rows_of_pcpus_and_of_vcpus() {
        let ran = Stretch { pcpu: 3, who: 1, from_ns: 1_500, to_ns: 2_000 };
        let waited = Waited { who: 1, from_ns: 1_000, to_ns: 1_500 };
        let mut text = Vec::new();
        assert_eq!(write(&[timeline(vec![ran], vec![waited])], None, &mut text).unwrap(), None);
        let trace: Value = serde_json::from_slice(&text).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        assert_eq!(events[0]["args"]["name"], "all, drover: pCPUs");
        let shown: Vec<_> = events.iter().filter(|event| event["ph"] == "X").collect();
        let told = |event: &Value| {
            let number = |what: &str| event[what].as_f64().unwrap();
            (event["name"].as_str().unwrap().to_owned(), number("pid"), number("tid"), number("ts"))
        };
        let told: Vec<_> = shown.into_iter().map(told).collect();
        let of = |name: &str, pid, tid, ts| (name.to_owned(), pid, tid, ts);
        assert_eq!(
            told,
            [of("ready", 2.0, 1.0, 1.0), of("vm0/1", 1.0, 3.0, 1.5), of("pCPU 3", 2.0, 1.0, 1.5)]
        );
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! Traces for ui.perfetto.dev, in the JSON trace event format.
//!
//! Each run has a process for its pCPUs, a row for each, which shows whose vCPU ran there; and a
//! process for each VM, a row for each vCPU, which shows on which pCPU it ran.

use crate::scenario::RunTrace;
use serde_json::json;
use std::io::{self, Write};

/// A file has so many spans at most, of about 200 bytes each: more than that the page takes minutes to open.
const SPANS_MAX: usize = 150_000;

/// Writes the traces of some runs into one file: of each run the beginning, where there is too much of them all. Returns
/// where the first of these ends, ns; none: all is there.
///
/// # Errors
/// When writing fails.
pub fn write(runs: &[RunTrace], mut out: impl Write) -> io::Result<Option<u64>> {
    let most = SPANS_MAX / runs.len().max(1);
    let mut ends_ns = None;
    out.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n")?;
    let mut first = true;
    let mut next_pid = 1;
    for run in runs {
        let pcpus = next_pid;
        next_pid += 1;
        name_process(&mut out, &mut first, pcpus, &format!("{}: pCPUs", run.title()))?;
        let mut vms: Vec<(&str, u32)> = Vec::new();
        for (name, _) in &run.tasks {
            if vms.last().is_none_or(|(last, _)| *last != name) {
                vms.push((name, next_pid));
                name_process(&mut out, &mut first, next_pid, &format!("{}: {name}", run.title()))?;
                next_pid += 1;
            }
        }
        if let Some(beyond) = run.spans.get(most) {
            ends_ns =
                Some(ends_ns.map_or(beyond.from_ns, |ends_ns: u64| ends_ns.min(beyond.from_ns)));
        }
        for span in run.spans.iter().take(most) {
            let (name, vcpu) = &run.tasks[span.task as usize];
            let vm = vms.iter().find(|(vm, _)| vm == name).expect("all were named").1;
            let (ts, dur) = (us(span.from_ns), us(span.to_ns - span.from_ns));
            let on_pcpu = format!("{name}/{vcpu}");
            event(
                &mut out,
                &mut first,
                &json!({ "ph": "X", "pid": pcpus, "tid": span.cpu, "name": on_pcpu,
                         "ts": ts, "dur": dur }),
            )?;
            let of_vcpu = format!("pCPU {}", span.cpu);
            event(
                &mut out,
                &mut first,
                &json!({ "ph": "X", "pid": vm, "tid": vcpu, "name": of_vcpu,
                         "ts": ts, "dur": dur }),
            )?;
        }
    }
    out.write_all(b"\n]}\n")?;
    out.flush()?;
    Ok(ends_ns)
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

fn name_process(out: &mut impl Write, first: &mut bool, pid: u32, name: &str) -> io::Result<()> {
    let args = json!({ "name": name });
    event(out, first, &json!({ "ph": "M", "pid": pid, "name": "process_name", "args": args }))
}

fn event(out: &mut impl Write, first: &mut bool, event: &serde_json::Value) -> io::Result<()> {
    if !std::mem::take(first) {
        out.write_all(b",\n")?;
    }
    serde_json::to_writer(out, event).map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Span;

    #[test]
    fn a_trace_is_no_longer_than_can_be_opened() {
        let span = |at: u64| Span { cpu: 0, task: 0, from_ns: 1000 * at, to_ns: 1000 * at + 900 };
        let run = |repeat| RunTrace {
            case: "all".to_owned(),
            scheduler: "drover".to_owned(),
            repeat,
            tasks: vec![("vm0".to_owned(), 0)],
            spans: (0..400_000).map(span).collect(),
        };
        let mut text = Vec::new();
        assert_eq!(write(&[run(1), run(2)], &mut text).unwrap(), Some(75_000_000));
        assert!(text.len() < 32 << 20, "{}", text.len());
    }

    #[test]
    fn a_trace_is_json_with_both_views() {
        let run = RunTrace {
            case: "all".to_owned(),
            scheduler: "drover".to_owned(),
            repeat: 1,
            tasks: vec![("vm0".to_owned(), 0), ("vm0".to_owned(), 1)],
            spans: vec![Span { cpu: 3, task: 1, from_ns: 1_500, to_ns: 2_000 }],
        };
        let mut text = Vec::new();
        assert_eq!(write(&[run], &mut text).unwrap(), None);
        let trace: serde_json::Value = serde_json::from_slice(&text).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        assert_eq!(events.len(), 4);
        assert_eq!(events[0]["args"]["name"], "all drover 1: pCPUs");
        assert_eq!((&events[2]["name"], &events[2]["tid"]), (&json!("vm0/1"), &json!(3)));
        assert_eq!((&events[3]["ts"], &events[3]["dur"]), (&json!(1.5), &json!(0.5)));
    }
}

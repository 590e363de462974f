// SPDX-License-Identifier: GPL-2.0-only
//! `drover export`: results and recordings as CSV, for spreadsheets, pandas and DuckDB.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};
use drover_core::printable::cell;
use drover_core::recording::{Ran, replay};
use drover_core::recording_file::{self, Recording, Thread};
use drover_core::why::Who;
use drover_scenario::results::{Interval, Results, Run, VmFigures};
use serde_json::Value;

#[derive(clap::Args)]
pub struct Args {
    /// Results of `drover run --json`: a line for each VM of each run. A recording of `drover record`: a line for each
    /// time somebody ran, and each time a vCPU waited.
    file: PathBuf,
    /// Of results: a line for each interval of the scenario's `sample_ms`.
    #[arg(long)]
    over_time: bool,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let named = || args.file.display().to_string();
    let bytes = fs::read(&args.file).with_context(named)?;
    let mut out = BufWriter::new(io::stdout().lock());
    let written = match recording_file::read(&bytes) {
        Ok(_) if args.over_time => {
            return Err(anyhow!(
                "{}: a recording is over time already; leave out --over-time",
                named()
            ));
        }
        Ok(recording) => {
            if recording.is_cut {
                eprintln!("drover: {}: it was cut off; this is what was whole of it", named());
            }
            write_recording(&mut out, &recording)
        }
        Err(no_recording) => {
            let results: Results = serde_json::from_slice(&bytes)
                .map_err(|err| anyhow!("{}: {no_recording}, and no results: {err}", named()))?;
            let text = match args.over_time {
                true => over_time_csv(&results),
                false => results_csv(&results)?,
            };
            out.write_all(text.as_bytes())
        }
    };
    match written.and_then(|()| out.flush()) {
        Err(err) if err.kind() == ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        written => written.map(|()| ExitCode::SUCCESS).context("cannot write to standard output"),
    }
}

/// A text in CSV; names are anybody's.
pub(super) fn quoted(text: &str) -> String {
    format!("\"{}\"", cell(text).replace('"', "\"\""))
}

/// The columns that say which VM of which run it is, and what that run came from.
const KEYS: [&str; 11] = [
    "scenario",
    "file",
    "sha256",
    "machine",
    "kernel",
    "drover",
    "case",
    "scheduler",
    "repeat",
    "seed",
    "vm",
];

/// A line for each VM of each run, a column for each figure that any of them has.
fn results_csv(results: &Results) -> Result<String> {
    let mut found = BTreeSet::new();
    columns(results, &mut found)?;
    let lines = std::iter::once(header(&found)).chain(lines(results, &found)?);
    Ok(lines.map(|line| line + "\n").collect())
}

/// The figures of a VM, by where they stand.
fn figures(vm: &VmFigures) -> Result<BTreeMap<String, String>> {
    let mut figures = BTreeMap::new();
    flatten(&serde_json::to_value(vm)?, "", &mut figures);
    Ok(figures)
}

/// Finds the figures that any VM of any run has.
pub(super) fn columns(results: &Results, found: &mut BTreeSet<String>) -> Result<()> {
    for vm in results.runs.iter().flat_map(|run| &run.vms) {
        found.extend(figures(vm)?.into_keys());
    }
    Ok(())
}

/// The names of all columns, where these are of figures.
pub(super) fn header(columns: &BTreeSet<String>) -> String {
    let figures = columns.iter().map(String::as_str);
    KEYS.into_iter().chain(figures).collect::<Vec<_>>().join(",")
}

/// A line for each VM of each run, with these columns.
pub(super) fn lines(results: &Results, columns: &BTreeSet<String>) -> Result<Vec<String>> {
    let origin = origin_cells(results);
    let mut lines = Vec::new();
    for run in &results.runs {
        for vm in &run.vms {
            let figures = figures(vm)?;
            let mut line = format!("{origin},{}", run_cells(run, vm));
            for column in columns {
                line.push(',');
                line += figures.get(column).map_or("", String::as_str);
            }
            lines.push(line);
        }
    }
    Ok(lines)
}

/// The cells that say which VM and which run it is.
fn run_cells(run: &Run, vm: &VmFigures) -> String {
    let seed = run.seed.map_or(String::new(), |seed| seed.to_string());
    let names = [quoted(&run.case), quoted(&run.scheduler)];
    [names.join(","), run.repeat.to_string(), seed, quoted(&vm.name)].join(",")
}

/// A line for each interval of each VM of each run: when it began, how long it was, and CPU time used in it, s.
fn over_time_csv(results: &Results) -> String {
    let origin = origin_cells(results);
    let mut text = format!("{},from_s,length_s,cpu_s\n", KEYS.join(","));
    for run in &results.runs {
        for vm in &run.vms {
            let keys = run_cells(run, vm);
            let mut from_s = 0.0;
            for interval in vm.timeline.iter().flat_map(|timeline| timeline.intervals()) {
                let Interval { length_s, cpu_s } = interval;
                text += &format!("{origin},{keys},{from_s:.6},{length_s},{cpu_s}\n");
                from_s += length_s;
            }
        }
    }
    text
}

/// The cells of what all runs come from; empty where it is not known.
fn origin_cells(results: &Results) -> String {
    let file = results.origin.files.first();
    let cells = [
        Some(&results.scenario),
        file.map(|file| &file.name),
        file.map(|file| &file.sha256),
        results.origin.machine.as_ref(),
        results.kernel.as_ref(),
        results.origin.drover.as_ref(),
    ];
    cells.map(|cell| cell.map_or(String::new(), |text| quoted(text))).join(",")
}

/// The numbers in it, by where they stand: `wakeup_us.p99`. Lists, such as of vCPUs, are left to JSON.
fn flatten(value: &Value, place: &str, found: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let dot = if place.is_empty() { "" } else { "." };
                flatten(value, &format!("{place}{dot}{name}"), found);
            }
        }
        Value::Number(number) => drop(found.insert(place.to_owned(), number.to_string())),
        Value::Bool(is_so) => drop(found.insert(place.to_owned(), is_so.to_string())),
        Value::Null | Value::String(_) | Value::Array(_) => {}
    }
}

fn write_recording(out: &mut impl Write, recording: &Recording) -> io::Result<()> {
    let threads: HashMap<u32, &Thread> =
        recording.threads.iter().map(|thread| (thread.thread, thread)).collect();
    let is_vcpu = |thread: u32| threads.get(&thread).is_some_and(|it| it.who == Who::Vm);
    let mut events = recording.events.clone();
    events.sort_by_key(|event| event.at_ns);
    let from_ns = recording.head.from_ns;
    let to_ns = events.last().map_or(from_ns, |event| event.at_ns + 1).max(from_ns);
    let history = replay(&events, (from_ns, to_ns), is_vcpu);
    writeln!(out, "state,pcpu,from_ns,length_ns,thread,who,name,vm_pid,vcpu")?;
    let mut line = |state: &str, pcpu: Option<u32>, (begin, end): (u64, u64), thread: u32| {
        let of = |number: Option<u32>| number.map_or(String::new(), |number| number.to_string());
        let known = threads.get(&thread);
        let (who, name) = known.map_or(("", ""), |it| (it.who.text(), it.name.as_str()));
        let (vm, vcpu) = (known.and_then(|it| it.vm), known.and_then(|it| it.vcpu));
        writeln!(
            out,
            "{state},{},{},{},{thread},{},{},{},{}",
            of(pcpu),
            begin - from_ns,
            end - begin,
            quoted(who),
            quoted(name),
            of(vm),
            of(vcpu)
        )
    };
    for Ran { thread, pcpu, from_ns, to_ns, .. } in history.ran.iter().copied() {
        if thread != 0 {
            line("running", Some(pcpu), (from_ns, to_ns), thread)?;
        }
    }
    for wait in &history.waits {
        line("ready", wait.pcpu, (wait.from_ns, wait.to_ns), wait.thread)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use drover_core::recording::{Class, Event, What};
    use drover_core::recording_file::Head;

    #[test]
    fn numbers_are_called_by_where_they_stand() {
        let value = serde_json::json!({
            "name": "web", "used_s": 1.5, "wakeup_us": { "p99": 7, "max": null }, "vcpus": [1],
        });
        let mut found = BTreeMap::new();
        flatten(&value, "", &mut found);
        let found: Vec<_> = found.iter().map(|(place, text)| format!("{place}={text}")).collect();
        assert_eq!(found, ["used_s=1.5", "wakeup_us.p99=7"]);
    }

    #[test]
    fn over_time_each_interval_is_a_line() {
        let timeline = r#"{"interval_ms":100,"cpu_s":[0.05,0.1],"length_s":[0.1,0.2]}"#;
        let text = format!(
            r#"{{"scenario":"s","ground":"sim","seed":1,"runs":[{{"case":"c","scheduler":"eevdf","repeat":1,
            "seed":7,"duration_s":0.3,"host":{{"pcpus":1}},"vms":[
            {{"name":"a","vcpus":1,"shares":1000,"timeline":{timeline}}},
            {{"name":"b","vcpus":1,"shares":1000}}]}}]}}"#
        );
        let csv = over_time_csv(&serde_json::from_str(&text).unwrap());
        let lines: Vec<&str> = csv.lines().collect();
        assert!(lines[0].ends_with(",seed,vm,from_s,length_s,cpu_s"), "{csv}");
        assert!(lines[1].ends_with(",\"eevdf\",1,7,\"a\",0.000000,0.1,0.05"), "{csv}");
        assert!(lines[2].ends_with(",\"a\",0.100000,0.2,0.1") && lines.len() == 3, "{csv}");
    }

    #[test]
    fn a_recording_is_a_line_for_each_run_and_wait() {
        let ran = |at_ns, thread| Event {
            at_ns,
            pcpu: 1,
            thread,
            what: What::Ran { left_ready: true, class: Class::Normal },
        };
        let name = "w\"e\n\u{1b}b".to_owned();
        let vcpu = Thread { thread: 7, who: Who::Vm, name, vm: Some(6), vcpu: Some(0) };
        let recording = Recording {
            head: Head { from_ns: 1000, ..Head::default() },
            threads: vec![vcpu],
            events: vec![ran(1000, 7), ran(1100, 9), ran(1300, 7), ran(1350, 0)],
            ..Recording::default()
        };
        let mut out = Vec::new();
        write_recording(&mut out, &recording).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], "running,1,0,100,7,\"VM\",\"w\"\"e\u{fffd}\u{fffd}b\",6,0");
        assert_eq!(lines[2], "running,1,100,200,9,\"\",\"\",,");
        assert_eq!(lines[4], "ready,1,100,200,7,\"VM\",\"w\"\"e\u{fffd}\u{fffd}b\",6,0");
        assert_eq!(lines.len(), 6, "and it waits as the recording ends: {text}");
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! `drover sim-speed`: how fast the simulator is on this machine.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;
use drover_report::picture::{Curve, Picture};
use drover_sim::sim_speed::{
    Load, Speed, bytes_per_vcpu, growing_pcpus, growing_vcpus, loads, measure,
};

use super::page;

/// Other work on the machine only ever slows a measurement down: the fastest of so many counts.
const TRIES: u32 = 3;
/// ... and two threads at once need a moment when both cores are free.
const PAIRS: u32 = 30;
/// What is written goes between these lines of performance.md.
const BEGIN: &str = "<!-- begin: written by drover sim-speed -->\n";
const END: &str = "<!-- end: written by drover sim-speed -->\n";

#[derive(clap::Args)]
pub struct Args {
    /// Write what was measured into performance.md of this directory, and a plot beside it.
    #[arg(long, value_name = "DIR")]
    docs: Option<PathBuf>,
    /// How many times faster than real time SimSo is on the first load, as script/simso-speed.py
    /// measured it a moment ago.
    #[arg(long, value_name = "TIMES")]
    simso: Option<f64>,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let mut text = String::new();
    // First, as memory that was given back once stays the process'.
    let bytes = bytes_per_vcpu().map_or("?".to_owned(), |bytes| bytes.to_string());
    told(&mut text, &loads_table(args.simso));
    let (pcpus, vcpus) = (growing_pcpus(), growing_vcpus());
    let by_pcpus = growth(&pcpus, |load| load.host.pcpus());
    let by_vcpus = growth(&vcpus, |load| load.vms * load.vcpus);
    told(&mut text, &growth_table("pCPUs, two vCPUs each, awake half of every 4 ms", &by_pcpus));
    told(&mut text, &growth_table("vCPUs on 4096 pCPUs, awake 1/4 ms of every 4", &by_vcpus));
    told(
        &mut text,
        &format!(
            "{bytes} bytes for each of 32,768 vCPUs on 4096 pCPUs, the policy's tables included. \
             Two threads do {:.2} times the\nwork of one.\n",
            scaling()
        ),
    );
    if let Some(docs) = &args.docs {
        let curves = [("by pCPUs".to_owned(), by_pcpus), ("by vCPUs".to_owned(), by_vcpus)];
        write(docs, &text, &curves)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn told(text: &mut String, part: &str) {
    println!("{part}");
    text.push_str(part);
    text.push('\n');
}

/// The fastest of some measurements.
fn fastest(load: &Load) -> Speed {
    let speeds = (0..TRIES).map(|_| measure(load));
    let by_time = |a: &Speed, b: &Speed| a.real_s.total_cmp(&b.real_s);
    speeds.min_by(by_time).expect("there is a try at least")
}

fn loads_table(simso: Option<f64>) -> String {
    let mut text = "| load | M events/s | x real time |\n|---|---|---|\n".to_owned();
    for (number, load) in loads().iter().enumerate() {
        let speed = fastest(load);
        let (rate, times) = (speed.events_per_s() / 1e6, speed.times_real());
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(text, "| {} | {rate:.1} | {times:.0} |", load.name);
        if let (0, Some(simso)) = (number, simso) {
            let _ = writeln!(text, "| ... the same tasks in SimSo | - | {simso:.1} |");
        }
    }
    text
}

/// Sizes, and what an event costs, ns.
fn growth(loads: &[Load], size: impl Fn(&Load) -> u32) -> Vec<(u32, f64)> {
    loads.iter().map(|load| (size(load), 1e9 / fastest(load).events_per_s())).collect()
}

fn growth_table(what: &str, points: &[(u32, f64)]) -> String {
    let row = |first: &str, cell: &dyn Fn(&(u32, f64)) -> String| {
        let cells: Vec<String> = points.iter().map(cell).collect();
        format!("| {first} | {} |\n", cells.join(" | "))
    };
    let rule = format!("|---|{}\n", "---|".repeat(points.len()));
    row(what, &|(size, _)| size.to_string())
        + &rule
        + &row("ns an event", &|(_, cost_ns)| format!("{cost_ns:.0}"))
}

/// How much more two threads do than one, each with simulations of its own.
fn scaling() -> f64 {
    let load = loads().swap_remove(1);
    let took_s = |work: &dyn Fn()| {
        let begin = Instant::now();
        work();
        begin.elapsed().as_secs_f64()
    };
    let alone = || {
        took_s(&|| {
            measure(&load);
        })
    };
    let both = || {
        took_s(&|| {
            std::thread::scope(|scope| {
                scope.spawn(|| measure(&load));
                measure(&load);
            });
        })
    };
    let least = |times: &mut dyn Iterator<Item = f64>| times.fold(f64::INFINITY, f64::min);
    let (ones, twos): (Vec<f64>, Vec<f64>) = (0..PAIRS).map(|_| (alone(), both())).unzip();
    2.0 * least(&mut ones.into_iter()) / least(&mut twos.into_iter())
}

fn write(docs: &Path, text: &str, curves: &[Curve]) -> Result<()> {
    let title = "The simulator's cost of an event, as hosts grow";
    let picture = Picture::of_growth(title, "pCPUs or vCPUs", "ns an event", curves);
    page::draw(&docs.join("sim-growth.svg"), picture)?;
    page::write(&docs.join("performance.md"), (BEGIN, END), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_a_cell_for_each_size() {
        let text = growth_table("pCPUs", &[(4, 100.4), (16, 200.0)]);
        assert_eq!(text, "| pCPUs | 4 | 16 |\n|---|---|---|\n| ns an event | 100 | 200 |\n");
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! `drover lock-cost`: what sharing a run queue costs, by how many pCPUs share one: measured with threads here, and
//! modelled for hosts of up to 384 pCPUs; and what small domains lose.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};
use drover_report::picture::{Curve, Picture};
use drover_scenario::Scenario;
use drover_scenario::expect::{Metric, median};
use drover_sim::lock_model::{Prices, Shape};
use drover_sim::run_queue_stress::ns_per_change;
use drover_sim::scenario::{Options, run_scenario};

use super::page;

/// What is written goes between these lines of performance.md.
const BEGIN: &str = "<!-- begin: written by drover lock-cost -->\n";
const END: &str = "<!-- end: written by drover lock-cost -->\n";
/// Changes of a key for each thread and try: a few ms, so that some tries are not disturbed by other work, which
/// only slows them down. The fastest counts.
const CHANGES: u64 = 100_000;
const TRIES: u32 = 200;
/// Seeds of randomness of what is simulated.
const SEEDS: u32 = 3;

#[derive(clap::Args)]
pub struct Args {
    /// Threads of the stress test; no more than this machine has pCPUs.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,
    /// Write what was found into performance.md of this directory, and a plot beside it.
    #[arg(long, value_name = "DIR")]
    docs: Option<PathBuf>,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let here = std::thread::available_parallelism().map_or(1, usize::from);
    if args.threads as usize > here {
        return Err(anyhow!(
            "--threads {}: this machine has {here} pCPUs, and a thread that waits for one keeps the lock; give at \
             most {here}",
            args.threads
        ));
    }
    let text = [stress_table(args.threads)?, model_table(), balance_table()?].join("\n");
    print!("{text}");
    if let Some(docs) = &args.docs {
        write(docs, &text)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// One domain for all threads, or one for each.
fn stress_table(threads: u32) -> Result<String> {
    let fastest = |threads, own| -> Result<String> {
        let tries = (0..TRIES).map(|_| ns_per_change(threads, own, CHANGES));
        let tries: Vec<Option<f64>> =
            tries.collect::<Result<_, _>>().map_err(|error| anyhow!(error))?;
        let least = tries.into_iter().flatten().reduce(f64::min);
        Ok(least.map_or("never at the same time".to_owned(), |ns| format!("{ns:.0}")))
    };
    let mut text =
        "| threads here | a domain each, ns a change | one domain, ns a change |\n|---|--:|--:|\n"
            .to_owned();
    let doubled = std::iter::successors(Some(1), |&it| Some(2 * it));
    for threads in doubled.take_while(|&it| it <= threads) {
        let (own, one) = (fastest(threads, true)?, fastest(threads, false)?);
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(text, "| {threads} | {own} | {one} |");
    }
    Ok(text)
}

/// What a domain is, its pCPUs, and those of a cache and of a socket of that host.
type Domain = (&'static str, u32, u32, u32);

const DOMAINS: [Domain; 8] = [
    ("host", 384, 16, 192),
    ("node", 192, 16, 192),
    ("last-level cache", 16, 16, 192),
    ("half of a cache", 8, 16, 192),
    ("cell of four", 4, 16, 192),
    ("pCPU", 1, 16, 192),
    ("cache of seed 004's host", 96, 96, 96),
    ("half of that", 48, 96, 96),
];
const PCPUS: [u32; 7] = [4, 16, 48, 96, 192, 288, 384];

fn shape(pcpus: u32, (_, domain, llc, socket): Domain) -> Shape {
    let prices = Prices::PUBLISHED;
    Shape { pcpus, llc, socket, domain: domain.min(pcpus), cycles_per_s: 5_000, prices }
}

/// Lost time, %, by pCPUs and size of domains.
fn curves() -> Vec<Curve> {
    let cost = |of: Domain, pcpus| (pcpus, shape(pcpus, of).cost_pct());
    let curve =
        |of: Domain| (of.0.to_owned(), PCPUS.iter().map(|&pcpus| cost(of, pcpus)).collect());
    DOMAINS.iter().map(|&of| curve(of)).collect()
}

fn model_table() -> String {
    let mut text = "| a domain is a | ".to_owned();
    text += &PCPUS.map(|pcpus| format!("{pcpus} pCPUs")).join(" | ");
    text += " | 384, lines 30 % dearer | 384, 20,000 cycles/s |\n";
    let _ = writeln!(text, "|---|{}", "--:|".repeat(PCPUS.len() + 2));
    for (of, (_, points)) in DOMAINS.into_iter().zip(curves()) {
        let (name, domain, ..) = of;
        let dear = Shape { prices: Prices::PUBLISHED.times_pct(130), ..shape(384, of) };
        let busy = Shape { cycles_per_s: 20_000, ..shape(384, of) };
        let costs = points.iter().map(|&(_, pct)| pct).chain([dear.cost_pct(), busy.cost_pct()]);
        let cells: Vec<String> = costs.map(|pct| format!("{pct:.2}")).collect();
        let _ = writeln!(text, "| {name} ({domain}) | {} |", cells.join(" | "));
    }
    text
}

/// What small domains lose: Drover's own policy on 64 pCPUs, cut into domains of several sizes, nothing else
/// being different: no caches, no distances.
fn balance_table() -> Result<String> {
    let mut text = "| 64 pCPUs, domains of | CPU time of 24 equal VMs, most to least | wake-up mean, us | p99, us |\n\
                    |---|--:|--:|--:|\n"
        .to_owned();
    for domain in [64, 32, 16, 8, 4, 1] {
        let [apart, mean, p99] = balance(domain)?;
        let _ = writeln!(text, "| {domain} | {:.3} | {mean:.0} | {p99:.0} |", 1.0 + apart / 100.0);
    }
    Ok(text)
}

/// How far VMs of equal shares are apart, %, and how late a sleeper wakes, mean and 99 of 100, us.
fn balance(domain: u32) -> Result<[f64; 3]> {
    let text = format!(
        "name = \"x\"\nduration_s = 4.0\nwarmup_s = 1.0\nrepeats = {SEEDS}\nschedulers = [\"drover\"]\n\
         host = {{ dies = {}, cores = {domain} }}\n\
         [[vm]]\nname = \"busy\"\ncount = 24\nvcpus = 4\ncosched = \"off\"\nworkload = {{ kind = \"cpu\" }}\n\
         [[vm]]\nname = \"sleeper\"\nvcpus = 8\ncosched = \"off\"\nworkload = {{ kind = \"sleep\", work_us = 100 }}\n",
        64 / domain
    );
    let scenario = Scenario::parse(&text, "lock-cost")?;
    let outcome = run_scenario(&scenario, &[], &Options::default(), &|_, _| {});
    let runs = outcome.map_err(|error| anyhow!(error))?.results.runs;
    let figures = [
        (Metric::PeersApartPct, "busy-1"),
        (Metric::WakeupMeanUs, "sleeper"),
        (Metric::WakeupP99Us, "sleeper"),
    ];
    let mut medians = [0.0; 3];
    for (found, (metric, vm)) in medians.iter_mut().zip(figures) {
        let of_runs: Option<Vec<f64>> =
            runs.iter().map(|run| metric.figure(run, Some(vm), None)).collect();
        *found = of_runs.and_then(|it| median(&it)).context("the simulator has no such figure")?;
    }
    Ok(medians)
}

fn write(docs: &Path, text: &str) -> Result<()> {
    let title = "What locks of run queues cost, by how many pCPUs share one";
    let picture = Picture::of_growth(title, "pCPUs", "% of a pCPU's time", &curves());
    page::draw(&docs.join("lock-cost.svg"), picture)?;
    page::write(&docs.join("performance.md"), (BEGIN, END), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smaller_domains_cost_less_until_they_are_a_cache_and_each_size_has_a_row() {
        let text = model_table();
        assert_eq!(text.lines().count(), 2 + DOMAINS.len());
        let [host, node, llc] = [0, 1, 2].map(|at| shape(384, DOMAINS[at]).cost_pct());
        assert!(host > 10.0 * llc && node > 2.0 * llc, "{text}");
    }
}

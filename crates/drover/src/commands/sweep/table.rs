// SPDX-License-Identifier: GPL-2.0-only
//! The table of a sweep: all figures of all shards as one CSV.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufWriter, Write};

use anyhow::{Context, Result};
use drover_scenario::results::Results;

use super::plan::{Axis, Plan, Runs, Work};
use super::state::State;
use crate::commands::export::{self, quoted};
use crate::commands::soak::SoakFigures;

/// What came of a sweep.
pub struct Figures {
    /// In words, a line each.
    pub lines: String,
    /// Whether no run has a fault and no trial broke anything.
    pub is_good: bool,
}

/// Writes `results.csv` from the shards, which are all there.
pub fn write(state: &State, plan: &Plan) -> Result<Figures> {
    let path = state.dir.join("results.csv");
    let cannot = || format!("cannot write {}", path.display());
    let mut out = BufWriter::new(File::create(&path).with_context(cannot)?);
    let figures = match &plan.work {
        Work::Runs(runs) => write_runs(state, plan, runs, &mut out),
        Work::Soak(_) => write_soak(state, plan, &mut out),
    }?;
    out.flush().with_context(cannot)?;
    Ok(figures)
}

fn read_runs(state: &State, shard: usize) -> Result<Results> {
    state.read(shard, |results: &Results| {
        (results.origin.drover.clone(), results.origin.program.clone())
    })
}

/// A line for each VM of each run: what varies comes first, then what `drover export` prints.
fn write_runs(state: &State, plan: &Plan, runs: &Runs, out: &mut impl Write) -> Result<Figures> {
    let mut columns = BTreeSet::new();
    for shard in 0..plan.shards() {
        export::columns(&read_runs(state, shard)?, &mut columns)?;
    }
    let keys = runs.axes.iter().map(|axis| quoted(&axis.key) + ",");
    writeln!(out, "{}{}", keys.collect::<String>(), export::header(&columns))?;
    let (mut count, mut faults, mut of_first) = (0, 0, None);
    for shard in 0..plan.shards() {
        let results = read_runs(state, shard)?;
        count += results.runs.len();
        for run in results.runs.iter().filter(|run| run.fault.is_some()) {
            faults += 1;
            of_first.get_or_insert((shard, run.fault.clone().unwrap_or_default()));
        }
        let values: String =
            runs.axes.iter().map(|axis| cell(axis, &results.origin.set) + ",").collect();
        for line in export::lines(&results, &columns)? {
            writeln!(out, "{values}{line}")?;
        }
    }
    let mut lines = format!("{count} runs in {} shards\n", plan.shards());
    if let Some((shard, fault)) = of_first {
        lines += &format!("{faults} runs have a FAULT; the first is in shard {shard}: {fault}\n");
    }
    Ok(Figures { lines, is_good: faults == 0 })
}

/// What a shard had set for a key.
fn cell(axis: &Axis, set: &[String]) -> String {
    let mut values = set.iter().filter_map(|set| set.strip_prefix(&axis.key)?.strip_prefix('='));
    quoted(values.next_back().unwrap_or_default())
}

/// A line for each shard, and one for each trial that broke something.
fn write_soak(state: &State, plan: &Plan, out: &mut impl Write) -> Result<Figures> {
    writeln!(out, "from,trials,cpu_s,events,broken_seed,broken")?;
    let (mut trials, mut cpu_s, mut lines, mut failed) = (0, 0.0, String::new(), 0);
    for shard in 0..plan.shards() {
        let of_shard: SoakFigures =
            state.read(shard, |it: &SoakFigures| (Some(it.drover.clone()), it.program.clone()))?;
        let SoakFigures { from, .. } = of_shard;
        writeln!(out, "{from},{},{},{},,", of_shard.trials, of_shard.cpu_s, of_shard.events)?;
        for broken in &of_shard.failed {
            writeln!(out, "{from},,,,{},{}", broken.seed, quoted(&broken.broken))?;
            lines += &format!("BROKEN with seed {}: {}\n", broken.seed, broken.broken);
            failed += 1;
        }
        trials += of_shard.trials;
        cpu_s += of_shard.cpu_s;
    }
    lines += &format!("{trials} trials, {cpu_s:.0} CPU-seconds simulated, {failed} broken\n");
    if failed > 0 {
        lines += "replay with: drover soak --seed SEED\n";
    }
    Ok(Figures { lines, is_good: failed == 0 })
}

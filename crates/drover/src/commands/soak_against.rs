// SPDX-License-Identifier: GPL-2.0-only
//! `drover soak --against SCHEDULER`: random hosts where nothing is set, under Drover and under another.

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use drover_experiment::{Overrides, ScenarioFile};
use drover_scenario::Scenario;
use drover_sim::rig::against::{
    Found, Kind, Tally, Trial, name_of, shrink_against, soak_against, try_against,
};
use drover_sim::scenario::rival::Entry;

use super::progress;
use super::soak::Args;

pub fn run(args: &Args, rival: &Entry) -> Result<ExitCode> {
    if let Some(path) = &args.replay {
        let scenario = ScenarioFile::read(path)?.scenario(&Overrides::default())?;
        return replay(&scenario, rival);
    }
    if let Some(seed) = args.seed {
        return replay(&Trial::of_seed(seed).scenario(rival.name)?, rival);
    }
    let bar = progress::bar(args.seconds, "{pos}/{len} s");
    let begin = Instant::now();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let length = Duration::from_secs(args.seconds);
    let tally = soak_against(rival, args.from, length, threads, &|short, trials| {
        bar.set_position(begin.elapsed().as_secs());
        bar.set_message(format!("{trials} trials, somebody short in {short}"));
    });
    bar.finish_and_clear();
    println!("against {}, seeds from {}: {tally}", rival.name, args.from);
    println!(
        "{} events simulated in {:.1} s; replay with: drover soak --against {} --seed SEED",
        tally.events,
        begin.elapsed().as_secs_f64(),
        rival.name
    );
    keep(&tally, rival, &args.keep)?;
    let holds = tally.short_trials == 0 && tally.failed.is_empty();
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn replay(scenario: &Scenario, rival: &Entry) -> Result<ExitCode> {
    let cases = try_against(scenario, rival, None).map_err(|why| anyhow!(why))?;
    for case in &cases {
        println!("{}, {} events, trace hash {:016x}", case.case, case.events, case.hash);
        let of = case.looked_at;
        println!(
            "{} VMs: {} light, {} heavy; {} vCPUs, {} light",
            of.vms, of.light, of.heavy, of.vcpus, of.light_vcpus
        );
        for line in lines(case) {
            println!("SHORT {line}");
        }
        if case.judged.short.is_empty() {
            println!("nobody falls short");
        }
    }
    let holds = cases.iter().all(|case| case.judged.short.is_empty());
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Who falls short in what.
fn lines(found: &Found) -> impl Iterator<Item = String> + '_ {
    found.judged.short.iter().map(|short| format!("{}, {short}", name_of(found, short)))
}

/// Shrinks the worst trial of each kind and writes it down.
fn keep(tally: &Tally, rival: &Entry, dir: &Path) -> Result<()> {
    for (&kind, row) in &tally.kinds {
        let trial = Trial::of_seed(row.seed);
        let Some((least, short, name)) = shrink_against(&trial, rival, kind, None) else {
            continue;
        };
        let path = dir.join(format!("{}-{}.toml", file_name(kind), row.seed));
        let remarks = [
            format!("{name}, {short}"),
            format!("Replay with: drover soak --against {} --replay FILE", rival.name),
        ];
        fs::write(&path, least.text(rival.name, &remarks))
            .with_context(|| format!("cannot write {}", path.display()))?;
        println!("shrunk: {name}, {short}");
        println!("kept as {}", path.display());
    }
    Ok(())
}

/// The kind as part of a file's name.
fn file_name(kind: Kind) -> String {
    kind.name().replace("'s", "").replace(' ', "-").to_lowercase()
}

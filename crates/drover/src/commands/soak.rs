// SPDX-License-Identifier: GPL-2.0-only
//! `drover soak`: the policy against random hosts, VMs and faults, in the simulator; or against another
//! scheduler (soak_against.rs).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use clap::builder::PossibleValuesParser;
use drover_rivals::RIVALS;
use drover_sim::rig::{Script, shrink, soak, try_script};

use super::{progress, soak_against};

#[derive(clap::Args)]
pub struct Args {
    /// Against another scheduler, such as eevdf, on hosts where nothing is set and nothing goes wrong: who
    /// loses by Drover?
    #[arg(long, value_name = "SCHEDULER", value_parser = PossibleValuesParser::new(names()))]
    against: Option<String>,
    /// How long.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(super) seconds: u64,
    /// The first seed; seeds after it follow.
    #[arg(long, default_value_t = 1, conflicts_with = "seed")]
    pub(super) from: u64,
    /// Only this seed.
    #[arg(long, conflicts_with = "replay")]
    pub(super) seed: Option<u64>,
    /// Only the trial in this file, as a failing seed leaves behind; with --against, any scenario.
    #[arg(long, value_name = "FILE")]
    pub(super) replay: Option<PathBuf>,
    /// Where a failing trial is kept, shrunk; with --against, the worst of each kind.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(super) keep: PathBuf,
}

/// The schedulers there are to be against.
fn names() -> Vec<&'static str> {
    RIVALS.iter().map(|rival| rival.name).collect()
}

pub fn run(args: &Args) -> Result<ExitCode> {
    if let Some(name) = &args.against {
        let rival = RIVALS.iter().find(|rival| rival.name == name);
        return soak_against::run(args, rival.context("clap knows the names")?);
    }
    if let Some(path) = &args.replay {
        let text =
            fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let script = serde_json::from_str(&text)
            .map_err(|error| anyhow!("{} is no trial: {error}", path.display()))?;
        return Ok(replay(&script));
    }
    if let Some(seed) = args.seed {
        return Ok(replay(&Script::of_seed(seed)));
    }
    let bar = progress::bar(args.seconds, "{pos}/{len} s");
    let begin = Instant::now();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let soaked = soak(args.from, Duration::from_secs(args.seconds), threads, &|cpu_s| {
        bar.set_position(begin.elapsed().as_secs());
        bar.set_message(format!("{cpu_s} CPU-seconds simulated"));
    });
    bar.finish_and_clear();
    println!(
        "{} trials, {} CPU-seconds and {} events simulated in {:.1} s",
        soaked.trials,
        soaked.cpu_s,
        soaked.events,
        begin.elapsed().as_secs_f64()
    );
    match soaked.failed {
        None => Ok(ExitCode::SUCCESS),
        Some((seed, broken)) => {
            println!("BROKEN with seed {seed}: {broken}");
            println!("replay with: drover soak --seed {seed}");
            keep(seed, &args.keep)?;
            Ok(ExitCode::FAILURE)
        }
    }
}

fn replay(script: &Script) -> ExitCode {
    let trial = try_script(script, None);
    println!("{} events, trace hash {:016x}", trial.events, trial.hash);
    match trial.broken {
        None => {
            println!("nothing broken");
            ExitCode::SUCCESS
        }
        Some(broken) => {
            println!("BROKEN: {broken}");
            ExitCode::FAILURE
        }
    }
}

/// Shrinks a failing trial and writes it down.
fn keep(seed: u64, dir: &Path) -> Result<()> {
    let Some((least, broken)) = shrink(&Script::of_seed(seed), None) else { return Ok(()) };
    let path = dir.join(format!("seed-{seed}.json"));
    let mut text = serde_json::to_string_pretty(&least)?;
    text.push('\n');
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    println!("shrunk: {broken}");
    println!("kept as {}; replay with: drover soak --replay {}", path.display(), path.display());
    Ok(())
}

// SPDX-License-Identifier: GPL-2.0-only
//! `drover soak`: the policy against random hosts, VMs and faults, in the simulator; or against another
//! scheduler (soak_against.rs).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use clap::builder::PossibleValuesParser;
use drover_experiment::program_sum;
use drover_rivals::RIVALS;
use drover_sim::rig::{Script, Soaked, Until, shrink, soak, try_script};
use serde::{Deserialize, Serialize};

use super::given::out_file;
use super::whole::write_whole;
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
    /// How many trials, instead of how long: the same on any machine, all of them even when some break.
    #[arg(long, value_name = "TRIALS", conflicts_with_all = ["seconds", "seed", "replay", "against"])]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    trials: Option<u64>,
    /// Write what came of it to this file.
    #[arg(long, value_name = "OUT.json", value_parser = out_file(), requires = "trials")]
    json: Option<PathBuf>,
    /// Be a shard of a sweep: on one thread; nothing is written but the figures.
    #[arg(long, hide = true, requires = "json")]
    shard: bool,
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
    let begin = Instant::now();
    let soaked = soak_all(args);
    if let Some(json) = &args.json {
        write_whole(json, &SoakFigures::of(args.from, &soaked))?;
        if args.shard {
            return Ok(ExitCode::SUCCESS);
        }
    }
    println!(
        "{} trials, {} CPU-seconds and {} events simulated in {:.1} s",
        soaked.trials,
        soaked.cpu_ms / 1000,
        soaked.events,
        begin.elapsed().as_secs_f64()
    );
    for (seed, broken) in &soaked.failed {
        println!("BROKEN with seed {seed}: {broken}");
        println!("replay with: drover soak --seed {seed}");
    }
    let Some((first, _)) = soaked.failed.first() else { return Ok(ExitCode::SUCCESS) };
    keep(*first, &args.keep)?;
    Ok(ExitCode::FAILURE)
}

fn soak_all(args: &Args) -> Soaked {
    let (until, length, counts) = match args.trials {
        Some(trials) => (Until::Done(trials), trials, "{pos}/{len} trials"),
        None => (Until::Passed(Duration::from_secs(args.seconds)), args.seconds, "{pos}/{len} s"),
    };
    let threads = match args.shard {
        true => 1,
        false => std::thread::available_parallelism().map_or(1, usize::from),
    };
    let bar = progress::bar(length, counts);
    let begin = Instant::now();
    let soaked = soak(args.from, until, threads, &|cpu_s| {
        match until {
            Until::Done(_) => bar.inc(1),
            Until::Passed(_) => bar.set_position(begin.elapsed().as_secs()),
        }
        bar.set_message(format!("{cpu_s} CPU-seconds simulated"));
    });
    bar.finish_and_clear();
    soaked
}

/// What came of a soak, as it is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SoakFigures {
    /// The first seed.
    pub from: u64,
    /// Trials done.
    pub trials: u64,
    /// pCPU time simulated, s.
    pub cpu_s: f64,
    /// Events simulated.
    pub events: u64,
    /// What was broken.
    pub failed: Vec<Broken>,
    /// Drover's version.
    pub drover: String,
    /// SHA-256 of the program that did it.
    pub program: Option<String>,
}

/// A trial that broke something.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Broken {
    /// Its seed.
    pub seed: u64,
    /// What it broke.
    pub broken: String,
}

impl SoakFigures {
    fn of(from: u64, soaked: &Soaked) -> Self {
        let failed = soaked.failed.iter().cloned();
        Self {
            from,
            trials: soaked.trials,
            cpu_s: soaked.cpu_ms as f64 / 1000.0,
            events: soaked.events,
            failed: failed.map(|(seed, broken)| Broken { seed, broken }).collect(),
            drover: env!("CARGO_PKG_VERSION").to_owned(),
            program: program_sum().map(str::to_owned),
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

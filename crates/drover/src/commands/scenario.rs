// SPDX-License-Identifier: GPL-2.0-only
//! `drover scenario from`: a recording as a scenario, and how near the simulator comes to it.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, ensure};
use drover_core::recording_file::{self, Recording};
use drover_experiment::{Overrides, ScenarioFile};
use drover_rivals::RIVALS;
use drover_scenario::Scenario;
use drover_scenario::from_recording::{Described, Recorded, describe};
use drover_sim::scenario::{Options, run_scenario};

use super::ask::table;
use super::given::out_file;
use super::report::BYTES_MAX;

#[derive(clap::Subcommand)]
pub enum Command {
    /// Make a scenario of a recording: the host, its VMs, and programs that run and sleep as these did.
    From(FromArgs),
}

#[derive(clap::Args)]
pub struct FromArgs {
    /// The recording, of `drover record`.
    recording: PathBuf,
    /// The scenario to write; without it, it is printed.
    #[arg(long, value_name = "OUT.toml", value_parser = out_file())]
    out: Option<PathBuf>,
}

pub fn run(command: &Command) -> Result<ExitCode> {
    let Command::From(args) = command;
    let described = read(&args.recording)?;
    match &args.out {
        Some(out) => {
            fs::write(out, &described.text)
                .with_context(|| format!("cannot write {}", out.display()))?;
        }
        None => print!("{}", described.text),
    }
    for line in &described.left_out {
        eprintln!("drover: {line}");
    }
    let name = args.out.as_deref().unwrap_or(&args.recording).display().to_string();
    let scenario = Scenario::parse(&described.text, &name).map_err(|error| anyhow!("{error}"))?;
    eprint!("{}", nearness(&described.recorded, &simulated(&scenario)?));
    Ok(ExitCode::SUCCESS)
}

/// The recording at that path as a scenario.
fn read(path: &Path) -> Result<Described> {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    describe(&recording(path)?, &stem).map_err(|why| anyhow!("{}: {why}", path.display()))
}

/// The recording at that path; that it was cut off is said.
///
/// # Errors
/// One line, if the file is missing, too long or no recording.
pub(super) fn recording(path: &Path) -> Result<Recording> {
    let named = || path.display().to_string();
    let length = fs::metadata(path).with_context(named)?.len();
    ensure!(length <= BYTES_MAX, "{}: no recording is so long", named());
    let recording: Recording = recording_file::read(&fs::read(path).with_context(named)?)
        .map_err(|why| anyhow!("{}: {why}", named()))?;
    if recording.is_cut {
        eprintln!("drover: {}: it was cut off; this is what was whole of it", named());
    }
    Ok(recording)
}

/// A file of either kind; scenarios are made from these.
pub enum Source {
    Scenario(PathBuf),
    Recording(ScenarioFile),
}

impl Source {
    pub fn open(path: &Path) -> Result<Self> {
        let mut begin = [0; recording_file::FIRST_LINE.len()];
        let file = fs::File::open(path);
        let mut file = file.with_context(|| format!("cannot read {}", path.display()))?;
        if file.read_exact(&mut begin).is_err() || begin != recording_file::FIRST_LINE {
            return Ok(Self::Scenario(path.to_owned()));
        }
        let described = read(path)?;
        described.left_out.iter().for_each(|line| eprintln!("drover: {line}"));
        Ok(Self::Recording(ScenarioFile {
            name: path.display().to_string(),
            text: described.text,
            others: BTreeMap::new(),
            set: Vec::new(),
        }))
    }

    /// The scenario, with settings laid over it.
    pub fn scenario(&self, set: &[String], overrides: &Overrides) -> Result<Scenario> {
        match self {
            Self::Scenario(path) => ScenarioFile::read_set(path, set)?.scenario(overrides),
            Self::Recording(file) => {
                ScenarioFile { set: set.to_vec(), ..file.clone() }.scenario(overrides)
            }
        }
    }
}

/// The same figures of each VM in the simulator.
///
/// # Errors
/// When it cannot hold the host, or a run has a fault.
pub(super) fn simulated(scenario: &Scenario) -> Result<Vec<Recorded>> {
    let options = Options { trace: true, ..Options::default() };
    let outcome = run_scenario(scenario, RIVALS, &options, &|_, _| {});
    let outcome = outcome.map_err(|error| anyhow!(error))?;
    let run = outcome.results.runs.first().context("nothing ran")?;
    if let Some(fault) = &run.fault {
        return Err(anyhow!("the simulator: {fault}"));
    }
    let ready = outcome.traces.first().map(|trace| trace.ready(scenario)).unwrap_or_default();
    let of_each = run.vms.iter().zip(ready).map(|(vm, ready)| Recorded {
        name: vm.name.clone(),
        ran_pcpus: vm.cpu_s.unwrap_or(0.0) / run.duration_s,
        ready_pcpus: ready.seconds / run.duration_s,
        wakeups_per_s: vm.progress.unwrap_or(0) as f64 / run.duration_s,
    });
    Ok(of_each.collect())
}

/// What was recorded beside what is simulated.
fn nearness(recorded: &[Recorded], simulated: &[Recorded]) -> String {
    let titles = ["VM<", "RAN", "SIMULATED", "READY", "SIMULATED", "WAKE-UPS/S", "SIMULATED"];
    let row = |(was, is): (&Recorded, &Recorded)| {
        let pcpus = |value: f64| format!("{:.1}%", 100.0 * value);
        vec![
            was.name.clone(),
            pcpus(was.ran_pcpus),
            pcpus(is.ran_pcpus),
            pcpus(was.ready_pcpus),
            pcpus(is.ready_pcpus),
            format!("{:.0}", was.wakeups_per_s),
            format!("{:.0}", is.wakeups_per_s),
        ]
    };
    let rows: Vec<Vec<String>> = recorded.iter().zip(simulated).map(row).collect();
    let sum = |all: &[Recorded], of: fn(&Recorded) -> f64| all.iter().map(of).sum::<f64>();
    let apart = |of: fn(&Recorded) -> f64| {
        let (was, is) = (sum(recorded, of), sum(simulated, of));
        if was > 0.0 { format!("{:+.1} %", 100.0 * (is / was - 1.0)) } else { "-".to_owned() }
    };
    format!(
        "How near the simulator comes, % of a pCPU:\n{}All VMs, simulated to recorded: CPU time {}, ready time {}, wake-ups {}\n",
        table(&titles, &rows),
        apart(|it| it.ran_pcpus),
        apart(|it| it.ready_pcpus),
        apart(|it| it.wakeups_per_s)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_recorded_stands_beside_what_is_simulated() {
        let one = |ran_pcpus, ready_pcpus, wakeups_per_s| {
            [Recorded { name: "web".to_owned(), ran_pcpus, ready_pcpus, wakeups_per_s }]
        };
        let text = nearness(&one(1.0, 0.0, 500.0), &one(0.97, 0.02, 510.0));
        assert!(
            text.contains("100.0%") && text.contains("97.0%") && text.contains("510"),
            "{text}"
        );
        assert!(text.ends_with("CPU time -3.0 %, ready time -, wake-ups +2.0 %\n"), "{text}");
    }
}

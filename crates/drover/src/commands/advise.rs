// SPDX-License-Identifier: GPL-2.0-only
//! `drover advise`: what to tune on a host, with the figures it is concluded from, what it would gain by a simulation of
//! this host, and how. What is found is in drover-core (`advise`).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, anyhow};
use drover_core::advise::{Facts, Finding, Overview, Trial, advise, count};
use drover_core::printable::cell;
use drover_core::recording_file::{self, Recording};
use drover_experiment::{Overrides, ScenarioFile};
use drover_observe::record::record;
use drover_scenario::from_recording::{Described, Recorded, describe};
use serde::Serialize;
use serde_json::json;

use super::ask::{print_json, table};
use super::observe::host_must_do;
use super::progress;
use super::run::stop_on_signals;
use super::scenario::{recording, simulated};

/// So many of the worst are simulated.
const SIMULATED_MAX: usize = 8;
/// Simulated time of each, s.
const DURATION_S: f64 = 1.0;
/// Lines of XML or commands are shown up to that.
const MEND_MAX: usize = 12;

#[derive(clap::Args)]
pub struct Args {
    /// A recording of `drover record`; without it this host is recorded.
    recording: Option<PathBuf>,
    /// This host is recorded for so long.
    #[arg(long, default_value = "10", conflicts_with = "recording", value_parser = clap::value_parser!(u64).range(1..=300))]
    seconds: u64,
    /// As JSON, for programs.
    #[arg(long)]
    json: bool,
}

/// What the simulator measured for a finding: the host as it is, and with the change that is advised.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct Gain {
    /// What the VM runs, or all do, pCPUs.
    ran_pcpus: f64,
    /// What it would.
    would_run_pcpus: f64,
    /// What it is ready for and does not have, pCPUs.
    ready_pcpus: f64,
    /// What it would be.
    would_be_ready_pcpus: f64,
    /// What all others are, pCPUs.
    others_ready_pcpus: f64,
    /// What they would be.
    others_would_be_ready_pcpus: f64,
}

/// A finding, and what it would gain; why that is not known.
struct Advised {
    finding: Finding,
    gain: Result<Gain, String>,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let (recording, name) = match &args.recording {
        Some(path) => (recording(path)?, path.display().to_string()),
        None => (this_host(args.seconds)?, "this host".to_owned()),
    };
    let facts = Facts::of(&recording).map_err(|why| anyhow!("{name}: {why}"))?;
    let described = describe(&recording, "host");
    let advised = simulate_all(advise(&facts), described.as_ref());
    match args.json {
        true => print_json(&serde_json::to_string_pretty(&whole(&facts, &advised))?),
        false => print!("{}", page(&recording.head.host, &facts, &advised)),
    }
    Ok(ExitCode::SUCCESS)
}

fn this_host(seconds: u64) -> Result<Recording> {
    host_must_do()?;
    let stop = stop_on_signals()?;
    let mut bytes = Vec::new();
    record(&mut bytes, Duration::from_secs(seconds), &stop)?;
    recording_file::read(&bytes).map_err(|why| anyhow!(why))
}

/// Simulates the host as it is, and with what mends each of the worst.
fn simulate_all(found: Vec<Finding>, described: Result<&Described, &String>) -> Vec<Advised> {
    let count = found.iter().filter(|it| it.trial.is_ok()).count().min(SIMULATED_MAX);
    let bar = progress::bar(count as u64, "{pos}/{len} simulated");
    let mut now: Option<Result<Vec<Recorded>, String>> = None;
    let mut left = SIMULATED_MAX;
    let mut gain = |finding: &Finding| {
        let trial = finding.trial.as_ref().map_err(|why| (*why).to_owned())?;
        let described = described.map_err(Clone::clone)?;
        left = left.checked_sub(1).ok_or(format!("the {SIMULATED_MAX} worst only are"))?;
        let is = now.get_or_insert_with(|| simulate(described, &Trial::default())).clone()?;
        let then = simulate(described, trial)?;
        bar.inc(1);
        Ok(Gain::of(finding, &is, &then))
    };
    let advised = |finding: Finding| Advised { gain: gain(&finding), finding };
    let all = found.into_iter().map(advised).collect();
    bar.finish_and_clear();
    all
}

/// What each VM has in the simulator with that change.
fn simulate(described: &Described, trial: &Trial) -> Result<Vec<Recorded>, String> {
    let key = |(vm, set): &(usize, String)| {
        let name = &described.recorded.get(*vm)?.name;
        Some(format!("vm.\"{name}\".{set}"))
    };
    let file = ScenarioFile {
        name: "this host".to_owned(),
        text: format!("{}{}", described.text, trial.tables),
        others: BTreeMap::new(),
        set: trial.set.iter().filter_map(key).collect(),
    };
    let overrides = Overrides {
        repeats: Some(1),
        duration_s: Some(DURATION_S),
        totals_only: true,
        ..Overrides::default()
    };
    let run = || {
        let mut scenario = file.scenario(&overrides)?;
        scenario.warmup_s = scenario.warmup_s.min(DURATION_S / 2.0);
        simulated(&scenario)
    };
    run().map_err(|error| format!("{error:#}"))
}

impl Gain {
    fn of(finding: &Finding, is: &[Recorded], then: &[Recorded]) -> Self {
        let is_its = |at: usize| finding.vm.is_none_or(|vm| vm == at);
        let sum = |of: &[Recorded], own: bool, figure: fn(&Recorded) -> f64| {
            let its = of.iter().enumerate().filter(|(at, _)| is_its(*at) == own);
            // The sum of nothing is -0.
            its.map(|(_, it)| figure(it)).sum::<f64>() + 0.0
        };
        let (ran, ready) = (|it: &Recorded| it.ran_pcpus, |it: &Recorded| it.ready_pcpus);
        Self {
            ran_pcpus: sum(is, true, ran),
            would_run_pcpus: sum(then, true, ran),
            ready_pcpus: sum(is, true, ready),
            would_be_ready_pcpus: sum(then, true, ready),
            others_ready_pcpus: sum(is, false, ready),
            others_would_be_ready_pcpus: sum(then, false, ready),
        }
    }

    fn text(&self, of_host: bool) -> String {
        let whose = if of_host { "VMs" } else { "it" };
        let mut text = format!(
            "simulated, {whose} would run {:.2} pCPUs ({:.2} now) and be ready for {:.2} more ({:.2} now)",
            self.would_run_pcpus, self.ran_pcpus, self.would_be_ready_pcpus, self.ready_pcpus,
        );
        if !of_host && self.others_ready_pcpus.max(self.others_would_be_ready_pcpus) >= 0.005 {
            text += &format!(
                "; all others be ready for {:.2} ({:.2} now)",
                self.others_would_be_ready_pcpus, self.others_ready_pcpus
            );
        }
        text
    }
}

fn whose(facts: &Facts, finding: &Finding) -> Option<String> {
    finding.vm.map(|vm| facts.vms[vm].name.clone())
}

/// All of it, for programs.
fn whole(facts: &Facts, advised: &[Advised]) -> serde_json::Value {
    let one = |it: &Advised| {
        let mut value = json!(it.finding);
        value["vm"] = json!(whose(facts, &it.finding));
        match &it.gain {
            Ok(gain) => value["gain"] = json!(gain),
            Err(why) => value["not_simulated"] = json!(why),
        }
        value
    };
    let findings: Vec<_> = advised.iter().map(one).collect();
    json!({ "host": facts.overview(), "findings": findings, "sound": sound(facts, advised) })
}

/// The VMs without a finding.
fn sound<'a>(facts: &'a Facts, advised: &[Advised]) -> Vec<&'a str> {
    let is_sound = |at: &usize| advised.iter().all(|it| it.finding.vm != Some(*at));
    (0..facts.vms.len()).filter(is_sound).map(|at| facts.vms[at].name.as_str()).collect()
}

/// The figures of the host, then all findings, then the VMs without one.
fn page(host: &str, facts: &Facts, advised: &[Advised]) -> String {
    let mut text = overview(host, facts, &facts.overview());
    for (number, it) in (1..).zip(advised) {
        let of =
            whose(facts, &it.finding).map_or("The host".to_owned(), |name| format!("VM {name}"));
        text += &format!("\n{number}. {}: {}\n", cell(&of), cell(&it.finding.what));
        text += &format!("   evidence: {}\n", cell(&it.finding.evidence));
        let gain = match &it.gain {
            Ok(gain) => gain.text(it.finding.vm.is_none()),
            Err(why) => format!("not simulated: {why}"),
        };
        text += &format!("   gain: {}\n", cell(&gain));
        for line in it.finding.mend.iter().take(MEND_MAX) {
            text += &format!("     {}\n", cell(line));
        }
        if it.finding.mend.len() > MEND_MAX {
            text += &format!("     and {} more: see --json\n", it.finding.mend.len() - MEND_MAX);
        }
    }
    let sound: Vec<String> = sound(facts, advised).into_iter().map(cell).collect();
    text += &match (advised.is_empty(), sound.is_empty()) {
        (true, _) => "\nNothing is to be tuned here.\n".to_owned(),
        (_, true) => "\nNothing was changed.\n".to_owned(),
        _ => format!("\nNothing was found of {}. Nothing was changed.\n", sound.join(", ")),
    };
    text
}

fn overview(host: &str, facts: &Facts, it: &Overview) -> String {
    let scheduler = facts.scheduler.as_deref().map_or("the kernel's".to_owned(), cell);
    let row = |class: &str, pcpus: f64, what: &str| {
        vec![class.to_owned(), format!("{pcpus:.2}"), what.to_owned()]
    };
    let rows = [
        row("promised", it.promised_pcpus, "reservations"),
        row("owed", it.owed_pcpus, "what VMs want beyond that, within their limits"),
        row("free", it.free_pcpus, "can still be promised, or is idle"),
    ];
    format!(
        "{}: {}, {} of {}, {:.2} vCPUs a pCPU; {:.1} s, scheduler: {scheduler}\n\
         VMs ran {:.2} pCPUs and were ready for {:.2} more; of {:.2} that VMs can have:\n{}",
        cell(host),
        count(facts.pcpus.len(), "pCPU"),
        count(facts.vms.len(), "VM"),
        count(it.vcpus as usize, "vCPU"),
        it.overcommit,
        facts.window_s,
        it.ran_pcpus,
        it.ready_pcpus,
        it.capacity_pcpus,
        table(&["CLASS<", "PCPUS", "WHAT<"], &rows)
    )
}

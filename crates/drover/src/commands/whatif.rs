// SPDX-License-Identifier: GPL-2.0-only
//! `drover whatif`: who would wait, how long, and what would still fit, were a host or its VMs others. By simulation.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, ensure};
use clap::builder::PossibleValuesParser;
use drover_core::names::is_meant;
use drover_core::printable::cell;
use drover_experiment::{Overrides, program_sum};
use drover_report::picture::Picture;
use drover_rivals::RIVALS;
use drover_scenario::change::{Added, Change};
use drover_scenario::results::{Results, Run};
use drover_scenario::{Case, Host, Scenario, admit};
use drover_sim::scenario::{DROVER, Options, Ready, RunTrace, run_scenario};

use super::ask::table;
use super::given::out_file;
use super::progress;
use super::run::draw;
use super::scenario::Source;
use super::whole::write_whole;

/// A VM that is ready for less of its vCPUs' time than that does not wait worth a word, %.
const WAITS_PCT: f64 = 2.0;
/// Rows for each scheduler, at most.
const ROWS: usize = 24;
/// What the cases are called: as it is, and as it would be.
const NOW: &str = "now";
const THEN: &str = "then";

#[derive(clap::Args)]
pub struct Args {
    /// A scenario, or a recording of `drover record`.
    file: PathBuf,
    /// VMs that come, like one that is there: 10xweb; may be given again.
    #[arg(long, value_name = "NxVM")]
    add: Vec<Added>,
    /// VMs that leave, by name or pattern; may be given again.
    #[arg(long, value_name = "VM")]
    remove: Vec<String>,
    /// Another value: web.shares=high, or any key as `drover run --set` has it; may be given again.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Another number of pCPUs, of cores as they are.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(Host::PCPUS_MAX)))]
    pcpus: Option<u32>,
    /// Under which schedulers; without it, under those of the file.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = PossibleValuesParser::new(schedulers()))]
    scheduler: Option<Vec<String>>,
    /// The case, where the scenario has several.
    #[arg(long, value_name = "CASE")]
    only: Option<String>,
    /// Simulated time, in seconds.
    #[arg(long, value_name = "SECONDS", default_value = "1")]
    duration: f64,
    /// Write all figures to this file, as `drover run --json` does; the cases are `now` and `then`.
    #[arg(long, value_name = "OUT.json", value_parser = out_file())]
    json: Option<PathBuf>,
    /// Draw them: to this file and a PNG beside it.
    #[arg(long, value_name = "OUT.svg", value_parser = out_file())]
    picture: Option<PathBuf>,
}

fn schedulers() -> Vec<&'static str> {
    std::iter::once(DROVER).chain(RIVALS.iter().map(|rival| rival.name)).collect()
}

pub fn run(args: &Args) -> Result<ExitCode> {
    ensure!((0.05..=3600.0).contains(&args.duration), "--duration: use 0.05 to 3600");
    let source = Source::open(&args.file)?;
    let now = args.read(&source, &[])?;
    let set = args.settings(&now)?;
    let mut then = args.read(&source, &set)?;
    let change = Change { add: args.add.clone(), remove: args.remove.clone() };
    change.apply(&mut then).map_err(|why| anyhow!(why))?;
    let is_same =
        then.cases[0].vms == now.cases[0].vms && then.host == now.host && then.policy == now.policy;
    ensure!(
        !is_same || args.scheduler.is_some(),
        "nothing would change: give --add, --remove, --set, --pcpus or --scheduler"
    );
    let answers = simulate(&now, &then, is_same)?;
    print!("{}", page(&now, &then, &answers, is_same));
    if let Some(json) = &args.json {
        write_whole(json, &answers.results)?;
    }
    if let Some(svg) = &args.picture {
        match Picture::of(&answers.results) {
            Some(picture) => print!("{}", draw(&picture, svg, "picture: ")?),
            None => eprintln!("drover: there is nothing to draw"),
        }
    }
    Ok(ExitCode::SUCCESS)
}

impl Args {
    fn read(&self, source: &Source, set: &[String]) -> Result<Scenario> {
        let overrides = Overrides {
            schedulers: self.scheduler.clone(),
            only: self.only.iter().cloned().collect(),
            repeats: Some(1),
            duration_s: Some(self.duration),
            totals_only: true,
            ..Overrides::default()
        };
        let mut scenario = source.scenario(set, &overrides)?;
        let names: Vec<&str> = scenario.cases.iter().map(|case| case.name.as_str()).collect();
        ensure!(
            names.len() == 1,
            "{} has several cases: say which with --only: {}",
            self.file.display(),
            names.join(", ")
        );
        scenario.warmup_s = scenario.warmup_s.min(self.duration / 2.0);
        Ok(scenario)
    }

    /// What is set, as `drover run --set` has it: a key that begins with a VM is one of that.
    fn settings(&self, now: &Scenario) -> Result<Vec<String>> {
        let is_of_vm = |set: &&String| {
            let first = set.split(['.', '=']).next().unwrap_or_default().trim_matches('"');
            now.cases[0].vms.iter().any(|vm| is_meant(first, &vm.name))
        };
        let set = |set: &String| if is_of_vm(&set) { format!("vm.{set}") } else { set.clone() };
        let pcpus = self.pcpus.map(|pcpus| cores_of(&now.host, pcpus)).transpose()?;
        let cores = pcpus.map(|cores| format!("host.cores={cores}"));
        Ok(self.set.iter().map(set).chain(cores).collect())
    }
}

/// How many cores a die has on a host of so many pCPUs that is like this one.
fn cores_of(host: &Host, pcpus: u32) -> Result<u32> {
    let unit = host.sockets * host.dies * host.threads;
    let nearest = (pcpus / unit).max(1) * unit;
    ensure!(
        pcpus % unit == 0,
        "--pcpus {pcpus} does not divide on {} last-level caches with {} threads a core: {nearest} or {} do",
        host.llcs(),
        host.threads,
        nearest + unit
    );
    Ok(pcpus / unit)
}

/// What was simulated.
struct Answers {
    results: Results,
    traces: Vec<RunTrace>,
}

/// Both, or one where both are the same; their cases are called so.
fn simulate(now: &Scenario, then: &Scenario, is_same: bool) -> Result<Answers> {
    let named = |scenario: &Scenario, name: &str| {
        let case = Case { name: name.to_owned(), ..scenario.cases[0].clone() };
        Scenario { cases: vec![case], ..scenario.clone() }
    };
    let (now, then) = (named(now, NOW), named(then, THEN));
    let both = if is_same { vec![now] } else { vec![now, then] };
    let bar = progress::bar(both.len() as u64, "{pos}/{len}");
    let options = Options { trace: true, ..Options::default() };
    let mut answers: Option<Answers> = None;
    for scenario in &both {
        let outcome = run_scenario(scenario, RIVALS, &options, &|_, _| {});
        let outcome = outcome.map_err(|error| anyhow!(error))?;
        bar.inc(1);
        match &mut answers {
            None => answers = Some(Answers { results: outcome.results, traces: outcome.traces }),
            Some(answers) => {
                answers.results.runs.extend(outcome.results.runs);
                answers.traces.extend(outcome.traces);
            }
        }
    }
    bar.finish_and_clear();
    let mut answers = answers.context("nothing was simulated")?;
    answers.results.origin.drover = Some(env!("CARGO_PKG_VERSION").to_owned());
    answers.results.origin.program = program_sum().map(str::to_owned);
    match answers.results.runs.iter().find_map(|run| run.fault.as_ref()) {
        Some(fault) => Err(anyhow!("the simulator: {fault}")),
        None => Ok(answers),
    }
}

/// What VMs of one kind get: those of `count`, and those that come like one, are one kind.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Got {
    vms: u32,
    vcpus: u32,
    cpu_pcpus: f64,
    ready_pcpus: f64,
    longest_s: f64,
}

impl Got {
    fn ready_pct(self) -> f64 {
        100.0 * self.ready_pcpus / f64::from(self.vcpus.max(1))
    }
}

/// `web-3` and `web+1` are `web`, in as far as there are more of them.
fn kind(name: &str) -> &str {
    let cut = name.rfind(['-', '+']).filter(|&at| at > 0 && name[at + 1..].parse::<u32>().is_ok());
    cut.map_or(name, |at| &name[..at])
}

fn got(run: &Run, ready: &[Ready]) -> BTreeMap<String, Got> {
    let mut kinds: BTreeMap<String, Got> = BTreeMap::new();
    for (vm, ready) in run.vms.iter().zip(ready) {
        let got = kinds.entry(kind(&vm.name).to_owned()).or_default();
        got.vms += 1;
        got.vcpus += vm.vcpus;
        got.cpu_pcpus += vm.cpu_s.unwrap_or(0.0) / run.duration_s;
        got.ready_pcpus += ready.seconds / run.duration_s;
        got.longest_s = got.longest_s.max(ready.longest_s);
    }
    kinds
}

/// The answer in words and tables, scheduler by scheduler.
fn page(now: &Scenario, then: &Scenario, answers: &Answers, is_same: bool) -> String {
    let of = |case: &str, scheduler: &str, scenario: &Scenario| {
        let run = answers
            .results
            .runs
            .iter()
            .find(|run| run.case == case && run.scheduler == scheduler)?;
        let trace =
            answers.traces.iter().find(|it| it.case == case && it.scheduler == scheduler)?;
        // The trace knows its case by the name that it has here.
        let case = Case { name: case.to_owned(), ..scenario.cases[0].clone() };
        let scenario = Scenario { cases: vec![case], ..scenario.clone() };
        Some((got(run, &trace.ready(&scenario)), run.clone()))
    };
    let mut text = String::new();
    for scheduler in &then.schedulers {
        let Some((before, _)) = of(NOW, scheduler, now) else { continue };
        let after = if is_same { of(NOW, scheduler, now) } else { of(THEN, scheduler, then) };
        let Some((after, run)) = after else { continue };
        text += &format!("\n{scheduler}: {}\n", who_waits(&before, &after));
        text += &kinds(&before, &after, is_same);
        text += &what_fits(then, &after, &run);
    }
    text.trim_start().to_owned()
}

fn who_waits(before: &BTreeMap<String, Got>, after: &BTreeMap<String, Got>) -> String {
    let waits: Vec<String> = after
        .iter()
        .filter(|(_, got)| got.ready_pct() >= WAITS_PCT)
        .map(|(name, got)| {
            let was = before.get(name).map_or(0.0, |was| was.ready_pct());
            let more = if got.ready_pct() > was + WAITS_PCT { "more than now" } else { "as now" };
            format!("{} ({more})", cell(name))
        })
        .collect();
    match waits.is_empty() {
        true => format!("nobody waits for {WAITS_PCT:.0} % of its vCPUs' time"),
        false => format!("{} would wait", waits.join(", ")),
    }
}

fn kinds(before: &BTreeMap<String, Got>, after: &BTreeMap<String, Got>, is_same: bool) -> String {
    let mut names: Vec<&String> =
        after.keys().chain(before.keys().filter(|it| !after.contains_key(*it))).collect();
    // Who waits the most is first.
    let ready = |name: &&String| after.get(*name).map_or(-1.0, |got| got.ready_pct());
    names.sort_by(|a, b| ready(b).total_cmp(&ready(a)));
    let figure = |got: Option<&Got>, of: &dyn Fn(&Got) -> String| got.map_or("-".to_owned(), of);
    let row = |name: &&String| {
        let (was, is) = (before.get(*name), after.get(*name));
        let both = |of: &dyn Fn(&Got) -> String| match is_same {
            true => vec![figure(is, of)],
            false => vec![figure(was, of), figure(is, of)],
        };
        let mut cells = vec![cell(name)];
        cells.extend(both(&|got| got.vms.to_string()));
        cells.extend(both(&|got| format!("{:.2}", got.cpu_pcpus)));
        cells.extend(both(&|got| format!("{:.1} %", got.ready_pct())));
        cells.extend(both(&|got| format!("{:.1} ms", 1e3 * got.longest_s)));
        cells
    };
    let rows: Vec<Vec<String>> = names.iter().take(ROWS).map(row).collect();
    let titles: &[&str] = match is_same {
        true => &["VM<", "VMS", "PCPUS", "READY", "LONGEST"],
        false => &["VM<", "VMS", "THEN", "PCPUS", "THEN", "READY", "THEN", "LONGEST", "THEN"],
    };
    let more = names.len().saturating_sub(ROWS);
    let rest =
        if more == 0 { String::new() } else { format!("and {more} kinds of VMs that wait less\n") };
    table(titles, &rows) + &rest
}

/// What is idle, what can still be promised, and how many more of the VMs there are use that up.
fn what_fits(then: &Scenario, after: &BTreeMap<String, Got>, run: &Run) -> String {
    let idle_pcpus = run.host.idle_s.unwrap_or(0.0) / run.duration_s;
    let case = &then.cases[0];
    let free_pcpus = admit(&then.host, &case.pools, &case.partitions, &case.vms)
        .map_or(0.0, |free_mcpu| free_mcpu as f64 / 1e3);
    let mut text = format!(
        "{idle_pcpus:.1} of {} pCPUs idle, {free_pcpus:.1} can still be promised.",
        run.host.pcpus
    );
    let room = |(name, got): (&String, &Got)| {
        let each = f64::from(got.vms);
        let wants = (got.cpu_pcpus + got.ready_pcpus) / each;
        let vm = case.vms.iter().find(|vm| kind(&vm.name) == name)?;
        let by_promise = match vm.reservation_pct {
            0 => f64::INFINITY,
            pct => free_pcpus / (f64::from(pct) / 100.0),
        };
        let more = (idle_pcpus / wants.max(0.001)).min(by_promise).floor();
        (more < 10_000.0).then(|| format!("{more:.0} x {}", cell(name)))
    };
    let rooms: Vec<String> = after.iter().filter_map(room).take(ROWS).collect();
    if !rooms.is_empty() {
        text += &format!(" That is room for {}.", rooms.join(", or "));
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some(vms: u32, ready_pcpus: f64) -> Got {
        Got { vms, vcpus: 2 * vms, cpu_pcpus: 1.0, ready_pcpus, longest_s: 0.004 }
    }

    #[test]
    fn vms_of_one_kind_are_one_row() {
        let names = ["web-3", "web+12", "web", "db-a", "-1", "a-"].map(kind);
        assert_eq!(names, ["web", "web", "web", "db-a", "-1", "a-"]);
    }

    #[test]
    fn those_who_wait_the_most_stand_first_and_are_named() {
        let before =
            BTreeMap::from([("db".to_owned(), some(1, 0.1)), ("old".to_owned(), some(1, 0.0))]);
        let after = BTreeMap::from([
            ("db".to_owned(), some(1, 0.11)),
            ("calm".to_owned(), some(1, 0.01)),
            ("web".to_owned(), some(10, 8.0)),
        ]);
        let line = who_waits(&before, &after);
        assert_eq!(line, "db (as now), web (more than now) would wait");
        assert!(who_waits(&before, &before).starts_with("db (as now)"));
        let text = kinds(&before, &after, false);
        let first: Vec<_> =
            text.lines().map(|line| line.split_whitespace().next().unwrap()).collect();
        assert_eq!(first, ["VM", "web", "db", "calm", "old"], "{text}");
        let web = text.lines().nth(1).unwrap();
        assert!(web.contains("40.0 %") && web.contains("4.0 ms") && web.contains(" - "), "{web}");
    }

    #[test]
    fn other_numbers_of_pcpus_are_of_the_same_shape() {
        let host = Host { sockets: 2, dies: 1, cores: 8, threads: 2, nodes: 2, ..Host::default() };
        assert_eq!(cores_of(&host, 48).unwrap(), 12);
        let line = cores_of(&host, 50).unwrap_err().to_string();
        assert!(line.contains("48 or 52 do") && !line.contains('\n'), "{line}");
        assert!(cores_of(&host, 2).unwrap_err().to_string().contains("4 or 8 do"));
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! Results as tables for a terminal, schedulers side by side.

use crate::grid::{Grid, Group, Row, WIDTH};
use crate::number::{count, figure, shorten};
use crate::summary::{Spread, Subject, Summary};
use drover_core::counters::Counters;
use drover_scenario::Clock;
use drover_scenario::expect::{self, Metric};
use drover_scenario::repeats::{Difference, OverRepeats, Repeats};
use drover_scenario::results::{Ground, Results, Run, VmFigures, WakeupUs};

/// Longest name of a case or VM before it is shortened, in characters.
const NAME_WIDTH: usize = 16;

const COSCHED_TITLE: &str = "vCPUs together (hazard: one ran while a sibling waited, % of the \
                             time any ran;\nCSTP: co-stopped, % of time, all vCPUs; skew: the most \
                             one was ahead of a waiting sibling)";

const WAITS_TITLE: &str = "Waits, ms (the longest that a vCPU was ready and others ran, and what is \
                           guaranteed)";

/// What stands for a figure that was not measured.
const ABSENT: &str = "-";

/// The tables of CPU time, progress, wake-up latency and of the host, at most 120 columns wide;
/// of these only the ones there are figures for. Over repeats the median, with least and most.
pub fn table(results: &Results) -> String {
    let summary = Summary::new(results);
    let ran = circumstances(&summary, "below it least..most");
    let mut text = format!("{}: {ran}\n", results.scenario);
    text += &titled("CPU time", &cpu_time(&summary));
    text += &extremes(&summary);
    if summary.has(|vm| vm.progress.is_some()) {
        let note = if results.clock == Some(Clock::Exact) {
            "Progress (on the exact clock no measure of throughput)"
        } else {
            "Progress"
        };
        text += &titled(note, &progress(&summary));
    }
    if summary.has(|vm| vm.wakeup_us.is_some()) {
        text += &titled("Wake-up latency, us", &wakeups(&summary));
    }
    text += &titled(WAITS_TITLE, &waits(&summary));
    text += &titled(COSCHED_TITLE, &cosched(&summary));
    text += &titled("Host", &host(&summary));
    text += &repeated(results);
    text + &untrusted(results)
}

/// A line for each run of which the figures are worth nothing.
pub(crate) fn untrusted(results: &Results) -> String {
    let line = |run: &Run| {
        let (case, scheduler, repeat) = (&run.case, &run.scheduler, run.repeat);
        let fault = run.fault.as_ref()?;
        Some(format!("\nNot to be trusted: {scheduler}, case {case}, repeat {repeat}: {fault}\n"))
    };
    results.runs.iter().filter_map(line).collect()
}

fn titled(title: &str, grid: &Grid) -> String {
    if grid.rows.is_empty() || grid.groups.is_empty() {
        return String::new();
    }
    format!("\n{title}\n{}", grid.text())
}

/// What repeats say together.
fn repeated(results: &Results) -> String {
    let Some(repeats) = expect::repeats(results) else { return String::new() };
    let n = repeats.means.iter().map(|mean| mean.value.n).max().unwrap_or_default();
    let title = format!("Over n = {n} runs: mean ± its 95 % confidence interval (Student's t)");
    titled(&title, &means(&repeats))
}

/// A row for each figure of each VM: its mean under each scheduler, and how far one is from another.
fn means(repeats: &Repeats) -> Grid {
    let mut schedulers: Vec<&str> = Vec::new();
    let mut pairs: Vec<(&str, &str)> = Vec::new();
    let mut lines: Vec<(&str, &str, &str)> = Vec::new();
    for OverRepeats { whose, .. } in &repeats.means {
        add(&mut schedulers, whose.scheduler.as_str());
        add(&mut lines, whose.figure());
    }
    for Difference { whose, against, .. } in &repeats.differences {
        add(&mut pairs, (whose.scheduler.as_str(), against.as_str()));
    }
    let row = |(at, &line): (usize, &(&str, &str, &str))| {
        let mean = |scheduler: &&str| {
            let is_it =
                |it: &&OverRepeats| it.whose.figure() == line && it.whose.scheduler == **scheduler;
            let found = repeats.means.iter().find(is_it).map(|it| it.value);
            found
                .map_or(ABSENT.to_owned(), |it| format!("{} ±{}", figure(it.mean), figure(it.ci95)))
        };
        let difference = |&(scheduler, against): &(&str, &str)| {
            let is_it = |it: &&Difference| {
                it.whose.figure() == line
                    && it.whose.scheduler == scheduler
                    && it.against == against
            };
            let found = repeats.differences.iter().find(is_it).map(|it| it.value);
            found.map_or(ABSENT.to_owned(), |it| format!("{:+.1} % ±{:.1}", it.mean, it.ci95))
        };
        let (case, vm, metric) = line;
        let same =
            at.checked_sub(1).is_some_and(|above| (lines[above].0, lines[above].1) == (case, vm));
        let lead = if same { ["", ""] } else { [case, vm] }.map(|name| shorten(name, NAME_WIDTH));
        Row {
            lead: lead.into_iter().chain([metric.to_owned()]).collect(),
            groups: vec![
                schedulers.iter().map(mean).collect(),
                pairs.iter().map(difference).collect(),
            ],
            below: Vec::new(),
        }
    };
    let of_pair = |(one, other): &(&str, &str)| {
        format!("{} - {}", shorten(one, NAME_WIDTH), shorten(other, NAME_WIDTH))
    };
    let names = schedulers.iter().map(|it| shorten(it, NAME_WIDTH)).collect();
    let mut groups = vec![
        Group { title: "mean".to_owned(), columns: names },
        Group { title: "within each run".to_owned(), columns: pairs.iter().map(of_pair).collect() },
    ];
    let mut rows: Vec<Row> = lines.iter().enumerate().map(row).collect();
    if pairs.is_empty() {
        groups.truncate(1);
        rows.iter_mut().for_each(|row| row.groups.truncate(1));
    }
    Grid { lead: vec!["case", "VM", "figure"], lead_left: 3, groups, rows }
}

/// Puts it behind the others, once.
fn add<T: PartialEq>(all: &mut Vec<T>, it: T) {
    if !all.contains(&it) {
        all.push(it);
    }
}

/// The worst of each scheduler, for who reads but one line.
fn extremes(summary: &Summary) -> String {
    let worst = |scheduler: &&str, metric: Metric| {
        let subjects = summary.subjects();
        let figures = subjects.iter().filter_map(|subject| {
            let figure = |run: &Run| metric.figure(run, Some(subject.vm), None);
            summary.of_host(subject.case, scheduler, figure).map(|spread| spread.median)
        });
        figures.reduce(f64::max).map(|worst| format!("{scheduler} {worst:.1}"))
    };
    let line = |title: &str, metric: Metric, unit: &str| {
        let each = summary.schedulers.iter().filter_map(|scheduler| worst(scheduler, metric));
        let each: Vec<String> = each.collect();
        if each.is_empty() {
            return String::new();
        }
        // A list of many schedulers is the only one of these lines that could grow too wide.
        shorten(&format!("{title}: {} {unit}", each.join(", ")), WIDTH) + "\n"
    };
    line("Furthest from what is owed", Metric::ShareErrorPoints, "percentage points")
        + &line("Most uneven vCPUs of a VM", Metric::VcpuSpreadPct, "% more for the best served")
}

/// Where and how a scenario ran, in one line; `range` says how the spread over repeats is shown.
pub(crate) fn circumstances(summary: &Summary, range: &str) -> String {
    let results = summary.results;
    let mut parts = vec![ground(results)];
    if let Some(run) = results.runs.first() {
        parts.push(format!("{} pCPUs", run.host.pcpus));
        parts.push(format!("{} s measured", (run.duration_s * 100.0).round() / 100.0));
    }
    let repeats = summary.repeats();
    if repeats > 1 {
        parts.push(format!("median of {repeats} runs, {range}"));
    }
    parts.extend(seeds(results));
    if !results.origin.set.is_empty() {
        parts.push(format!("with {}", results.origin.set.join(", ")));
    }
    parts.join(", ")
}

/// The seeds of the runs, where each may be run again by its own.
fn seeds(results: &Results) -> Option<String> {
    let of_runs = results.runs.iter().filter(|_| results.ground == Ground::Sim);
    let seeds: Vec<u64> = of_runs.filter_map(|run| run.seed).collect();
    let (first, last) = (seeds.iter().min()?, seeds.iter().max()?);
    Some(if first == last { format!("seed {first}") } else { format!("seeds {first} to {last}") })
}

/// Where a scenario ran.
pub(crate) fn ground(results: &Results) -> String {
    match (results.ground, results.clock) {
        (Ground::Lab, Some(clock)) => format!("in the lab on the {clock} clock"),
        (Ground::Lab, None) => "in the lab".to_owned(),
        (Ground::Host, _) => "on this host".to_owned(),
        (Ground::Sim, _) => "in the simulator".to_owned(),
    }
}

/// What one scheduler has for a row: its cells, and the range of the chief one over repeats.
struct Cells {
    cells: Vec<String>,
    range: String,
}

impl Cells {
    /// Begins with the chief figure, whose range is said where there are repeats.
    fn new(
        summary: &Summary,
        title: &str,
        chief: Option<Spread>,
        format: fn(f64) -> String,
    ) -> Self {
        let range = match chief {
            Some(Spread { min, max, .. }) if summary.repeats() > 1 => {
                format!("{title} {}..{}", format(min), format(max))
            }
            _ => String::new(),
        };
        Self { cells: vec![cell(chief, format)], range }
    }

    fn and(mut self, spread: Option<Spread>, format: fn(f64) -> String) -> Self {
        self.cells.push(cell(spread, format));
        self
    }
}

fn cell(spread: Option<Spread>, format: fn(f64) -> String) -> String {
    spread.map_or(ABSENT.to_owned(), |spread| format(spread.median))
}

/// The groups of a table: the same columns for each scheduler.
fn groups(summary: &Summary, columns: &[&str]) -> Vec<Group> {
    let group = |scheduler: &&str| Group {
        title: shorten(scheduler, 2 * NAME_WIDTH),
        columns: columns.iter().map(|title| (*title).to_owned()).collect(),
    };
    summary.schedulers.iter().map(group).collect()
}

fn row(summary: &Summary, lead: Vec<String>, cells: impl Fn(&str) -> Cells) -> Row {
    let cells = summary.schedulers.iter().map(|scheduler| cells(scheduler));
    let (groups, below) = cells.map(|cells| (cells.cells, cells.range)).unzip();
    Row { lead, groups, below }
}

/// Names of case and VM; the case only where it is not that of the row above.
fn names(subject: &Subject, above: Option<&Subject>) -> Vec<String> {
    let same = above.is_some_and(|above| above.case == subject.case);
    let case = if same { String::new() } else { shorten(subject.case, NAME_WIDTH) };
    vec![case, shorten(subject.vm, NAME_WIDTH)]
}

/// A table with a row for each VM of each case.
fn by_vm(
    summary: &Summary,
    lead: Vec<&'static str>,
    columns: &[&str],
    subjects: &[Subject],
    lead_cells: impl Fn(&Subject) -> Vec<String>,
    cells: impl Fn(&Subject, &str) -> Cells,
) -> Grid {
    let row = |(index, subject): (usize, &Subject)| {
        let above = index.checked_sub(1).map(|above| &subjects[above]);
        let mut lead = names(subject, above);
        lead.extend(lead_cells(subject));
        row(summary, lead, |scheduler| cells(subject, scheduler))
    };
    let rows = subjects.iter().enumerate().map(row).collect();
    Grid { lead, lead_left: 2, groups: groups(summary, columns), rows }
}

fn cpu_time(summary: &Summary) -> Grid {
    let promises = summary.has_promises();
    let lead_cells = |subject: &Subject| {
        let vm = summary.any_run_of(subject);
        let owed = vm.and_then(|vm| vm.share_owed_pct);
        let mut cells = vec![vm.map_or(ABSENT.to_owned(), |vm| count(vm.shares.into()))];
        if promises {
            let pct = |pct: Option<u32>| pct.map_or(ABSENT.to_owned(), |pct| pct.to_string());
            cells.push(pct(vm.and_then(|vm| vm.reservation_pct.filter(|pct| *pct > 0))));
            cells.push(pct(vm.and_then(|vm| vm.limit_pct)));
        }
        cells.push(owed.map_or(ABSENT.to_owned(), |owed| format!("{owed:.1}")));
        cells
    };
    let cells = |subject: &Subject, scheduler: &str| {
        let of = |figure: fn(&VmFigures) -> Option<f64>| summary.of_vm(subject, scheduler, figure);
        let got = of(|vm| vm.share_got_pct);
        let mut cells = Cells::new(summary, "got", got, |value| format!("{value:.1}"));
        cells = cells.and(of(|vm| vm.cpu_s), figure);
        cells.cells.push(match (of(|vm| vm.vcpu_min_cpu_s), of(|vm| vm.vcpu_max_cpu_s)) {
            (Some(least), Some(most)) => {
                format!("{}..{}", figure(least.median), figure(most.median))
            }
            _ => ABSENT.to_owned(),
        });
        cells
    };
    let lead = match promises {
        true => vec!["case", "VM", "shares", "reserved %", "limit %", "owed %"],
        false => vec!["case", "VM", "shares", "owed %"],
    };
    let columns = ["got %", "cpu s", "per vCPU s"];
    by_vm(summary, lead, &columns, &summary.subjects(), lead_cells, cells)
}

fn progress(summary: &Summary) -> Grid {
    let first = summary.schedulers.first().copied().unwrap_or_default();
    let of = |subject: &Subject, scheduler: &str| {
        let progress = |vm: &VmFigures| vm.progress.map(|progress| progress as f64);
        summary.of_vm(subject, scheduler, progress)
    };
    let cells = |subject: &Subject, scheduler: &str| {
        let base = of(subject, first).filter(|base| base.median > 0.0);
        let ratio = of(subject, scheduler).zip(base).map(|(got, base)| got.over(base.median));
        let versus = Cells::new(summary, "vs", ratio, |ratio| format!("{ratio:.2}"));
        versus.and(of(subject, scheduler), count)
    };
    let counted = |subject: &Subject| {
        summary.schedulers.iter().any(|scheduler| of(subject, scheduler).is_some())
    };
    let subjects: Vec<Subject> = summary.subjects().into_iter().filter(counted).collect();
    let columns = [&format!("vs {}", shorten(first, NAME_WIDTH)), "count"];
    by_vm(summary, vec!["case", "VM"], &columns, &subjects, |_| Vec::new(), cells)
}

fn wakeups(summary: &Summary) -> Grid {
    let cells = |subject: &Subject, scheduler: &str| {
        let of = |latency: fn(&WakeupUs) -> f64| {
            summary.of_vm(subject, scheduler, |vm| vm.wakeup_us.as_ref().map(latency))
        };
        Cells::new(summary, "mean", of(|wakeup| wakeup.mean), figure)
            .and(of(|wakeup| wakeup.p50), figure)
            .and(of(|wakeup| wakeup.p99), figure)
            .and(of(|wakeup| wakeup.max), figure)
    };
    let woke = |subject: &Subject| {
        let latency = |vm: &VmFigures| vm.wakeup_us.as_ref().map(|wakeup| wakeup.mean);
        summary.schedulers.iter().any(|one| summary.of_vm(subject, one, latency).is_some())
    };
    let subjects: Vec<Subject> = summary.subjects().into_iter().filter(woke).collect();
    let columns = ["mean", "p50", "p99", "max"];
    by_vm(summary, vec!["case", "VM"], &columns, &subjects, |_| Vec::new(), cells)
}

/// The longest wait of each VM beside the one guaranteed, where somebody was promised something.
fn waits(summary: &Summary) -> Grid {
    let of = |subject: &Subject, scheduler: &str, figure: fn(&Counters) -> Option<f64>| {
        summary.of_vm(subject, scheduler, |vm| figure(&vm.counters?))
    };
    let longest = |counters: &Counters| counters.longest_ready_ms;
    let has = |subject: &Subject, scheduler: &str| of(subject, scheduler, longest).is_some();
    let mut subjects = summary.subjects();
    subjects.retain(|subject| summary.schedulers.iter().any(|one| has(subject, one)));
    if !summary.has_promises() {
        subjects.clear();
    }
    let counts = |one: &&str| subjects.iter().any(|subject| has(subject, one));
    let counting = summary.schedulers.iter().copied().filter(counts).collect();
    let summary = &Summary { schedulers: counting, ..summary.clone() };
    let cells = |subject: &Subject, scheduler: &str| {
        Cells::new(summary, "longest", of(subject, scheduler, longest), figure)
            .and(of(subject, scheduler, |counters| counters.guaranteed_delay_ms), figure)
    };
    let columns = ["longest", "guaranteed"];
    by_vm(summary, vec!["case", "VM"], &columns, &subjects, |_| Vec::new(), cells)
}

/// How vCPUs moved along together: of VMs for which the scenario says how they should, under
/// schedulers that count it.
fn cosched(summary: &Summary) -> Grid {
    let counted = |vm: &VmFigures| vm.counters.filter(|_| vm.cosched.is_some() && vm.vcpus > 1);
    let of = |subject: &Subject, scheduler: &str, figure: fn(&Counters) -> Option<f64>| {
        summary.of_vm(subject, scheduler, |vm| figure(&counted(vm)?))
    };
    let costops = |counters: &Counters| Some(counters.costops as f64);
    let has = |subject: &Subject, scheduler: &str| of(subject, scheduler, costops).is_some();
    let schedulers = || summary.schedulers.iter().copied();
    let mut subjects = summary.subjects();
    let counts = |one: &str| subjects.iter().any(|subject| has(subject, one));
    let counting: Vec<&str> = schedulers().filter(|one| counts(one)).collect();
    subjects.retain(|subject| schedulers().any(|one| has(subject, one)));
    let lead_cells = |subject: &Subject| {
        let mode = summary.any_run_of(subject).and_then(|vm| vm.cosched);
        vec![mode.map_or(ABSENT.to_owned(), |mode| mode.name().to_owned())]
    };
    let cells = |subject: &Subject, scheduler: &str| {
        let part = |counters: &Counters| {
            let hazard_pct = 100.0 * counters.hazard_s? / counters.progressed_s?;
            Some(hazard_pct).filter(|it| it.is_finite())
        };
        let cstp = |run: &Run| {
            let counters = counted(run.vm(subject.vm)?)?;
            Some(100.0 * counters.costop_s / run.duration_s).filter(|it| it.is_finite())
        };
        let percent = |value: f64| format!("{value:.1}");
        let cstp = summary.of_host(subject.case, scheduler, cstp);
        Cells::new(summary, "hazard", of(subject, scheduler, part), percent)
            .and(cstp, percent)
            .and(of(subject, scheduler, costops), count)
            .and(of(subject, scheduler, |counters| Some(counters.costarts as f64)), count)
            .and(of(subject, scheduler, |counters| counters.skew_max_ms), percent)
    };
    let columns = ["hazard %", "CSTP %", "co-stops", "co-starts", "skew ms"];
    let summary = &Summary { schedulers: counting, ..summary.clone() };
    by_vm(summary, vec!["case", "VM", "mode"], &columns, &subjects, lead_cells, cells)
}

fn host(summary: &Summary) -> Grid {
    let bpf = summary.results.runs.iter().any(|run| run.host.bpf_run_ns.is_some());
    let mut columns = vec!["idle %", "switches/s"];
    columns.extend(bpf.then_some("BPF ns/switch"));
    let cells = |case: &str, scheduler: &str| {
        let idle = summary.of_host(case, scheduler, Run::idle_pct);
        let switches = summary.of_host(case, scheduler, |run| {
            run.host.context_switches.map(|switches| switches as f64 / run.duration_s)
        });
        let cost = |run: &Run| Metric::BpfNsPerSwitch.figure(run, None, None);
        let mut cells = Cells::new(summary, "idle", idle, |value| format!("{value:.2}"));
        cells = cells.and(switches, count);
        if bpf {
            cells = cells.and(summary.of_host(case, scheduler, cost), count);
        }
        cells
    };
    let row = |case: &&str| {
        let lead = vec![shorten(case, NAME_WIDTH)];
        row(summary, lead, |scheduler| cells(case, scheduler))
    };
    let rows = summary.cases.iter().map(row).collect();
    Grid { lead: vec!["case"], lead_left: 1, groups: groups(summary, &columns), rows }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    fn line<'a>(text: &'a str, title: &str, start: &str) -> &'a str {
        let part = text.split(title).nth(1).unwrap_or_else(|| panic!("no {title} in\n{text}"));
        part.lines().find(|line| line.starts_with(start)).unwrap()
    }

    #[test]
    fn a_stranger_sees_what_each_scheduler_gave() {
        let text = table(&sample::shares());
        assert!(
            text.starts_with(
                "esx-fig3-shares: in the lab on the exact clock, 4 pCPUs, 4 s measured"
            )
        );
        let row: Vec<&str> = line(&text, "CPU time", "1:7").split_whitespace().collect();
        let expected = "1:7 vm0 1,000 12.5 | 11.4 1.85 0.35..0.65 | 12.5 2.00 0.50..0.50";
        assert_eq!(row.join(" "), expected, "{text}");
        assert!(
            text.contains("Furthest from what is owed: eevdf 2.6, drover 0.0 percentage points"),
            "{text}"
        );
        assert!(!text.contains("least..most"), "one run has no range\n{text}");
    }

    #[test]
    fn what_was_set_stands_above_the_table() {
        let mut results = sample::shares();
        results.origin.set = vec!["host.cores=16".to_owned(), "slice_ms=2".to_owned()];
        let text = table(&results);
        let heading = text.lines().next().unwrap();
        assert!(heading.ends_with("4 s measured, with host.cores=16, slice_ms=2"), "{heading}");
    }

    #[test]
    fn repeats_have_means_with_their_intervals_and_schedulers_are_compared_within_each() {
        let text = table(&sample::sleep());
        assert!(text.contains("Over n = 3 runs: mean ± its 95 % confidence interval"), "{text}");
        let part = text.split("Over n = 3").nth(1).unwrap();
        assert!(part.contains("drover - eevdf"), "{text}");
        let row = part.lines().find(|line| line.trim().starts_with("wakeup_mean_us")).unwrap();
        assert!(row.contains('±'), "{row}");
        assert!(!table(&sample::shares()).contains("Over n"), "nothing ran twice");
    }

    #[test]
    fn repeats_show_their_range_and_latencies_their_unit() {
        let text = table(&sample::sleep());
        assert!(text.contains("median of 3 runs, below it least..most"));
        let row: Vec<&str> =
            line(&text, "Wake-up latency, us", "beside").split_whitespace().collect();
        assert_eq!(row[..7], ["beside", "sleeper", "|", "400", "320", "1,240", "2,800"], "{text}");
        assert!(text.contains("| mean 290..560            | mean 70.0..81.0"), "{text}");
        assert!(!line(&text, "Wake-up latency", "alone").contains("busy"));
    }

    #[test]
    fn three_schedulers_stand_side_by_side() {
        for mut results in [sample::shares(), sample::sleep(), sample::timeline()] {
            let more = results.runs.iter().filter(|run| run.scheduler == "drover").cloned();
            let more = more.map(|run| Run { scheduler: "scx_bpfland".to_owned(), ..run });
            results.runs.extend(more.collect::<Vec<_>>());
            let text = table(&results);
            let titles = text
                .lines()
                .filter(|line| line.contains("scx_bpfland  ") || line.ends_with("scx_bpfland"));
            assert!(
                titles.clone().count() >= 3 && titles.clone().all(|line| line.contains("eevdf")),
                "{text}"
            );
        }
    }

    #[test]
    fn progress_is_measured_by_the_first_scheduler() {
        let text = table(&sample::shares());
        let row = line(&text, "Progress (on the exact clock", "1:7");
        let cells: Vec<&str> = row.split_whitespace().collect();
        assert_eq!((cells[3], cells[6]), ("1.00", "1.08"), "{text}");
    }

    #[test]
    fn modes_show_what_they_did_where_it_was_counted() {
        let text = table(&sample::cosched());
        let row = |start: &str| {
            let row = line(&text, "vCPUs together", start).split_whitespace();
            row.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(row("skew "), "skew two skew | 66.8 33.4 1,334 1,334 8.0", "{text}");
        assert_eq!(row("auto "), "auto two auto | 66.8 33.4 0 0 -", "{text}");
        assert!(!table(&sample::shares()).contains("vCPUs together"), "nobody asked for a mode");
    }

    #[test]
    fn waits_stand_beside_what_is_guaranteed_where_something_is_promised() {
        let mut results = sample::cosched();
        assert!(!table(&results).contains("Waits"), "nobody is promised anything");
        for vm in results.runs.iter_mut().flat_map(|run| &mut run.vms) {
            vm.reservation_pct = Some(100);
        }
        let text = table(&results);
        let row = line(&text, "Waits, ms", "auto").split_whitespace().collect::<Vec<_>>();
        assert_eq!(row.join(" "), "auto two | 16.5 66.0", "{text}");
    }

    #[test]
    fn the_host_has_its_own_table() {
        let text = table(&sample::shares());
        let row: Vec<&str> = line(&text, "Host", "4:4").split_whitespace().collect();
        let expected = ["4:4", "|", "0.19", "864", "-", "|", "0.03", "2,031", "406"];
        assert_eq!(row, expected, "{text}");
    }

    #[test]
    fn no_table_is_wider_than_a_terminal() {
        let mut wide = sample::sleep();
        for run in &mut wide.runs {
            run.case = format!("{} with a very long name for a case", run.case);
            run.scheduler = format!("{}_of_a_remarkably_long_name", run.scheduler);
        }
        for results in [sample::shares(), sample::sleep(), sample::timeline(), wide] {
            let text = table(&results);
            let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(widest <= WIDTH, "{widest}\n{text}");
        }
    }

    #[test]
    fn faults_and_missing_figures_are_said() {
        let mut results = sample::shares();
        results.runs[1].fault = Some("ejected: runnable task stall".to_owned());
        results.runs[1].vms[0].cpu_s = None;
        let text = table(&results);
        let fault = "Not to be trusted: drover, case 1:7, repeat 1: ejected: runnable task stall";
        assert!(text.contains(fault), "{text}");
        assert!(line(&text, "CPU time", "1:7").contains(" - "), "{text}");
        results.runs.clear();
        assert_eq!(table(&results), "esx-fig3-shares: in the lab on the exact clock\n");
    }
}

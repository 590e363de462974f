// SPDX-License-Identifier: GPL-2.0-only
//! Reads what a scenario expects of its results, and checks that it speaks of things that exist.

use super::expand::{LISTS, expanded};
use super::format::{CompareTable, Top};
use crate::compare::{Compare, Tolerance};
use crate::expect::{Expect, Metric, VmChoice, WINDOW_MS};
use crate::scenario::{Case, Scenario, scheduler_label};
use drover_core::names::is_meant;
use drover_core::nearest::hint;
use drover_core::toml_file::{FileError, Read, Table, number};

/// Schedulers that simulator and lab both have.
const SIMULATED: [&str; 2] = ["drover", "eevdf"];

/// Reads the `[[expect]]` of a scenario that is complete but for them.
pub(super) fn read_expects(top: &Table<Top>, scenario: &Scenario) -> Read<Vec<Expect>> {
    expanded(top, "expect", LISTS)?.iter().map(|table| read_expect(table, scenario)).collect()
}

fn read_expect(table: &Table<Expect>, scenario: &Scenario) -> Read<Expect> {
    let schedulers = || scenario.schedulers.iter().map(|scheduler| scheduler_label(scheduler));
    table.check_word("scheduler", Some(&table.scheduler), schedulers())?;
    table.check_word("case", table.case.as_ref(), case_names(scenario))?;
    table.check_word("relative_to", table.relative_to.as_ref(), schedulers())?;
    table.check_word("relative_to_case", table.relative_to_case.as_ref(), case_names(scenario))?;
    if let Some(or) =
        table.or.as_ref().filter(|or| case_names(scenario).all(|case| case != or.case))
    {
        let what = format!("unknown case \"{}\" in [[expect]], or", or.case);
        return Err(table.error("or", what, hint(&or.case, case_names(scenario))));
    }
    check_gain(table, scenario)?;
    check_vm(table, table, scenario)?;
    if let Some(name) = &table.relative_to_vm {
        let vm = VmChoice::Named(name.clone());
        check_vm(
            table,
            &Expect { vm, case: table.case.clone(), ..Expect::of(table.metric) },
            scenario,
        )?;
    }
    let mut expect = (**table).clone();
    if let Some((from_s, to_s)) = read_window(table, scenario)? {
        (expect.from_s, expect.to_s) = (Some(from_s), Some(to_s));
    }
    if expect.min.is_none() && expect.max.is_none() && !expect.beside {
        return Err(table.error("", "an [[expect]] without bound", "add min = or max ="));
    }
    let one_figure = expect.case.is_some() || scenario.cases.len() == 1;
    let one_vm = expect.mean || !matches!(expect.vm, VmChoice::Each | VmChoice::Like(_));
    if expect.title.is_some() && !(one_vm && one_figure) {
        let fix = "name case and vm, or remove the title";
        return Err(table.error("title", "a title is for one figure, these are several", fix));
    }
    if expect.or.is_some() && expect.max.is_none() {
        return Err(table.error("or", "\"or\" loosens a maximum, there is none", "add max ="));
    }
    Ok(expect)
}

/// Reads the `[[compare]]` of a scenario that is complete but for them.
pub(super) fn read_compares(top: &Table<Top>, scenario: &Scenario) -> Read<Vec<Compare>> {
    expanded(top, "compare", LISTS)?.iter().map(|table| read_compare(table, scenario)).collect()
}

fn read_compare(table: &Table<CompareTable>, scenario: &Scenario) -> Read<Compare> {
    let figure = Expect {
        scheduler: table.scheduler.clone().unwrap_or_else(|| "drover".to_owned()),
        case: table.case.clone(),
        vm: table.vm.clone().map_or(VmChoice::Host, VmChoice::from),
        relative_to_case: table.relative_to_case.clone(),
        ..Expect::of(table.metric)
    };
    table.check_word("scheduler", Some(&figure.scheduler), SIMULATED.into_iter())?;
    table.check_word("case", table.case.as_ref(), case_names(scenario))?;
    table.check_word("relative_to_case", table.relative_to_case.as_ref(), case_names(scenario))?;
    check_vm(table, &figure, scenario)?;
    check_record(table, scenario, figure.metric)?;
    let tolerance = match (table.tolerance_pct, table.tolerance_points) {
        (Some(pct), None) => Tolerance::Pct(pct),
        (None, Some(points)) => Tolerance::Points(points),
        (None, None) => {
            let what = "a [[compare]] without tolerance";
            return Err(table.error("", what, "add tolerance_pct = or tolerance_points ="));
        }
        _ => {
            let what = "a tolerance in % and one in points";
            return Err(table.error("tolerance_points", what, "remove one of the two"));
        }
    };
    Ok(Compare { figure, tolerance, reason: table.reason.clone() })
}

/// Whether the gain that it is held against is of cases that are there, and is held against a gain.
fn check_gain(table: &Table<Expect>, scenario: &Scenario) -> Read<()> {
    let Some(gain) = &table.relative_to_gain else { return Ok(()) };
    if !table.is_relative() {
        let what = "relative_to_gain, but the figure itself is not relative";
        let fix = "add relative_to_case = or relative_to =";
        return Err(table.error("relative_to_gain", what, fix));
    }
    for name in std::iter::once(&gain.case).chain(&gain.relative_to_case) {
        if case_names(scenario).all(|case| case != name) {
            let what = format!("unknown case \"{name}\" in [[expect]], relative_to_gain");
            return Err(table.error("relative_to_gain", what, hint(name, case_names(scenario))));
        }
    }
    Ok(())
}

fn case_names(scenario: &Scenario) -> impl Iterator<Item = &str> + Clone {
    scenario.cases.iter().map(|case| case.name.as_str())
}

/// Whether the figure is of something that has it and takes part.
fn check_vm<T>(table: &Table<T>, figure: &Expect, scenario: &Scenario) -> Read<()> {
    let metric = figure.metric.name();
    let name = match (&figure.vm, figure.metric.is_of_vm()) {
        (VmChoice::Host, true) => {
            let what = format!("{metric} is a figure of a VM, and none is named");
            return Err(table.error("", what, "add vm = \"NAME\", or \"*\" for each"));
        }
        (VmChoice::Each | VmChoice::Like(_) | VmChoice::Named(_), false) => {
            let what = format!("{metric} is a figure of the host, not of a VM");
            return Err(table.error("vm", what, "remove vm"));
        }
        (VmChoice::Host | VmChoice::Each, _) => return Ok(()),
        (VmChoice::Named(name) | VmChoice::Like(name), true) => name,
    };
    let is_of = |case: &&Case| figure.case.as_ref().is_none_or(|name| case.name == *name);
    let vms = scenario.cases.iter().filter(is_of).flat_map(|case| &case.vms);
    let names = vms.map(|vm| vm.name.as_str());
    match names.clone().any(|known| is_meant(name, known)) {
        true => Ok(()),
        false => Err(table.error("vm", format!("no VM \"{name}\" takes part"), hint(name, names))),
    }
}

/// Whether what the metric looks at is recorded.
fn check_record<T>(table: &Table<T>, scenario: &Scenario, metric: Metric) -> Read<()> {
    match scenario.sample_ms {
        _ if !metric.needs_timeline() => Ok(()),
        None => Err(unrecorded(table, "metric")),
        Some(sample_ms) if WINDOW_MS % sample_ms != 0 => {
            let what = format!("{} looks at {WINDOW_MS} ms at a time", metric.name());
            Err(table.error("metric", what, "set sample_ms to a divisor of that"))
        }
        Some(_) => Ok(()),
    }
}

fn read_window(table: &Table<Expect>, scenario: &Scenario) -> Read<Option<(f64, f64)>> {
    let (metric, end_s) = (table.metric, scenario.duration_s);
    check_record(table, scenario, metric)?;
    table.within("from_s", &number(0.0, end_s))?;
    table.within("to_s", &number(0.0, end_s))?;
    let (from_s, to_s) = (table.from_s, table.to_s);
    if from_s.is_none() && to_s.is_none() {
        return Ok(None);
    }
    let key = if from_s.is_some() { "from_s" } else { "to_s" };
    if !metric.has_timeline() {
        let what = format!("{} is not recorded over time", metric.name());
        let fix = "use share_got_pct, cpu_s or cpu_pcpus, or remove from_s, to_s";
        return Err(table.error(key, what, fix));
    }
    let (from_s, to_s) = (from_s.unwrap_or(0.0), to_s.unwrap_or(end_s));
    let Some(sample_ms) = scenario.sample_ms else { return Err(unrecorded(table, key)) };
    if to_s - from_s < f64::from(sample_ms) / 1000.0 {
        let what = format!("from {from_s} s to {to_s} s there is no whole sample");
        return Err(table.error(key, what, "widen it or lower sample_ms"));
    }
    Ok(Some((from_s, to_s)))
}

fn unrecorded<T>(table: &Table<T>, key: &str) -> FileError {
    let fix = "add sample_ms = 100 at the top level";
    table.error(key, "nothing is recorded over time", fix)
}

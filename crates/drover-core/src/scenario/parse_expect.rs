// SPDX-License-Identifier: GPL-2.0-only
//! Reads what a scenario expects of its results, and checks that it speaks of things that exist.

use super::error::ScenarioError;
use super::keys;
use super::reader::Reader;
use super::{Scenario, scheduler_label};
use crate::compare::{Compare, Tolerance};
use crate::expect::{Expect, Metric, OrTimes, VmChoice, WINDOW_MS};
use crate::nearest::hint;

/// Largest bound an expectation may set.
const BOUND_MAX: f64 = 1e15;

/// Reads the `[[expect]]` of a scenario that is complete but for them.
pub(super) fn read_expects(
    top: &Reader,
    scenario: &Scenario,
) -> Result<Vec<Expect>, ScenarioError> {
    let readers = top.tables("expect", keys::EXPECT)?;
    readers.iter().map(|reader| read_expect(reader, scenario)).collect()
}

fn read_expect(reader: &Reader, scenario: &Scenario) -> Result<Expect, ScenarioError> {
    let words = Metric::ALL.map(|metric| (metric.name(), metric));
    let example = "\"share_error_points\"";
    let metric = reader.need("metric", reader.word("metric", &words)?, example)?;
    let schedulers = || scenario.schedulers.iter().map(|scheduler| scheduler_label(scheduler));
    let cases = || scenario.cases.iter().map(|case| case.name.as_str());
    let case = known(reader, "case", cases())?;
    let or = read_or(reader, scenario)?;
    let expect = Expect {
        title: reader.text("title")?.map(str::to_owned),
        metric,
        scheduler: known(reader, "scheduler", schedulers())?.unwrap_or("drover".to_owned()),
        vm: read_vm(reader, scenario, metric, case.as_deref())?,
        case,
        min: reader.number("min", -BOUND_MAX..=BOUND_MAX)?,
        max: reader.number("max", -BOUND_MAX..=BOUND_MAX)?,
        published: reader.number("published", -BOUND_MAX..=BOUND_MAX)?,
        relative_to: known(reader, "relative_to", schedulers())?,
        relative_to_case: known(reader, "relative_to_case", cases())?,
        or,
        window_s: read_window(reader, scenario, metric)?,
    };
    if expect.min.is_none() && expect.max.is_none() {
        return Err(reader.error("", "an [[expect]] without bound", "add min = or max ="));
    }
    let one_figure = expect.case.is_some() || scenario.cases.len() == 1;
    if expect.title.is_some() && (expect.vm == VmChoice::Each || !one_figure) {
        let fix = "name case and vm, or remove the title";
        return Err(reader.error("title", "a title is for one figure, these are several", fix));
    }
    if expect.or.is_some() && expect.max.is_none() {
        return Err(reader.error("or", "\"or\" loosens a maximum, there is none", "add max ="));
    }
    Ok(expect)
}

/// Reads the `[[compare]]` of a scenario that is complete but for them.
pub(super) fn read_compares(
    top: &Reader,
    scenario: &Scenario,
) -> Result<Vec<Compare>, ScenarioError> {
    let readers = top.tables("compare", keys::COMPARE)?;
    readers.iter().map(|reader| read_compare(reader, scenario)).collect()
}

/// Schedulers that simulator and lab both have.
const SIMULATED: [&str; 2] = ["drover", "eevdf"];

fn read_compare(reader: &Reader, scenario: &Scenario) -> Result<Compare, ScenarioError> {
    let words = Metric::ALL.map(|metric| (metric.name(), metric));
    let metric = reader.need("metric", reader.word("metric", &words)?, "\"cpu_s\"")?;
    let cases = || scenario.cases.iter().map(|case| case.name.as_str());
    let case = known(reader, "case", cases())?;
    let figure = Expect {
        title: None,
        metric,
        scheduler: known(reader, "scheduler", SIMULATED.into_iter())?
            .unwrap_or_else(|| "drover".to_owned()),
        vm: read_vm(reader, scenario, metric, case.as_deref())?,
        case,
        min: None,
        max: None,
        published: None,
        relative_to: None,
        relative_to_case: known(reader, "relative_to_case", cases())?,
        or: None,
        window_s: read_window(reader, scenario, metric)?,
    };
    let pct = reader.number("tolerance_pct", 0.0..=1000.0)?.map(Tolerance::Pct);
    let points = reader.number("tolerance_points", 0.0..=100.0)?.map(Tolerance::Points);
    if pct.is_some() && points.is_some() {
        let what = "a tolerance in % and one in points";
        return Err(reader.error("tolerance_points", what, "remove one of the two"));
    }
    let tolerance = reader.need("tolerance_pct", pct.or(points), "1.0")?;
    let reason = reader.text("reason")?.map(str::to_owned);
    Ok(Compare { figure, tolerance, reason })
}

/// The text of `key`, which must be one of `names`.
fn known<'a>(
    reader: &Reader,
    key: &str,
    names: impl Iterator<Item = &'a str>,
) -> Result<Option<String>, ScenarioError> {
    let words: Vec<(&str, &str)> = names.map(|name| (name, name)).collect();
    Ok(reader.word(key, &words)?.map(str::to_owned))
}

fn read_vm(
    reader: &Reader,
    scenario: &Scenario,
    metric: Metric,
    case: Option<&str>,
) -> Result<VmChoice, ScenarioError> {
    let Some(name) = reader.text("vm")? else {
        if metric.is_of_vm() {
            let what = format!("{} is a figure of a VM, and none is named", metric.name());
            return Err(reader.error("", what, "add vm = \"NAME\", or \"*\" for each"));
        }
        return Ok(VmChoice::Host);
    };
    if !metric.is_of_vm() {
        let what = format!("{} is a figure of the host, not of a VM", metric.name());
        return Err(reader.error("vm", what, "remove vm"));
    }
    if name == "*" {
        return Ok(VmChoice::Each);
    }
    let cases = scenario.cases.iter().filter(|one| case.is_none_or(|case| one.name == case));
    let names: Vec<&str> = cases.flat_map(|one| &one.vms).map(|vm| vm.name.as_str()).collect();
    if names.contains(&name) {
        return Ok(VmChoice::Named(name.to_owned()));
    }
    let fix = hint(name, names.into_iter());
    Err(reader.error("vm", format!("no VM \"{name}\" takes part"), fix))
}

fn read_or(reader: &Reader, scenario: &Scenario) -> Result<Option<OrTimes>, ScenarioError> {
    let Some(or) = reader.table("or", keys::EXPECT_OR)? else { return Ok(None) };
    let cases = scenario.cases.iter().map(|case| case.name.as_str());
    let case = or.need("case", known(&or, "case", cases)?, "\"alone\"")?;
    let times = or.need("times", or.number("times", 0.0..=BOUND_MAX)?, "2.0")?;
    Ok(Some(OrTimes { case, times }))
}

fn read_window(
    reader: &Reader,
    scenario: &Scenario,
    metric: Metric,
) -> Result<Option<(f64, f64)>, ScenarioError> {
    let from_s = reader.number("from_s", 0.0..=scenario.duration_s)?;
    let to_s = reader.number("to_s", 0.0..=scenario.duration_s)?;
    if metric.needs_timeline() {
        let Some(sample_ms) = scenario.sample_ms else { return Err(unrecorded(reader, "metric")) };
        if WINDOW_MS % sample_ms != 0 {
            let what = format!("{} looks at {WINDOW_MS} ms at a time", metric.name());
            return Err(reader.error("metric", what, "set sample_ms to a divisor of that"));
        }
    }
    if from_s.is_none() && to_s.is_none() {
        return Ok(None);
    }
    let key = if from_s.is_some() { "from_s" } else { "to_s" };
    let (from_s, to_s) = (from_s.unwrap_or(0.0), to_s.unwrap_or(scenario.duration_s));
    if !metric.has_timeline() {
        let what = format!("{} is not recorded over time", metric.name());
        return Err(reader.error(
            key,
            what,
            "use share_got_pct, cpu_s or cpu_pcpus, or remove from_s, to_s",
        ));
    }
    let Some(sample_ms) = scenario.sample_ms else { return Err(unrecorded(reader, key)) };
    if to_s - from_s < f64::from(sample_ms) / 1000.0 {
        let what = format!("from {from_s} s to {to_s} s there is no whole sample");
        return Err(reader.error(key, what, "widen it or lower sample_ms"));
    }
    Ok(Some((from_s, to_s)))
}

fn unrecorded(reader: &Reader, key: &str) -> ScenarioError {
    let fix = "add sample_ms = 100 at the top level";
    reader.error(key, "nothing is recorded over time", fix)
}

// SPDX-License-Identifier: GPL-2.0-only
//! `drover top --since 10m`: figures of the past, as the daemons keep them.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use drover_core::printable::json;
use drover_host::control::ask_history;
use drover_host::status::{History, VmHistory};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::ask::{percent_of, table};
use super::export::quoted;

/// The pictures of READY have so many steps.
const STEPS: u32 = 30;

/// How it is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum As {
    /// A line for each VM.
    Table,
    /// A line for each step of each VM.
    Csv,
    /// As the daemon told it.
    Json,
}

/// Says what happened in that time, in that form.
///
/// # Errors
/// When no daemon answers.
pub fn told(socket: &Path, since: Duration, shown: As) -> Result<String> {
    let seconds = u32::try_from(since.as_secs())?;
    let step_s = if shown == As::Table { seconds.div_ceil(STEPS) } else { 1 };
    let history = ask_history(socket, seconds, step_s)?;
    Ok(match shown {
        As::Table => text(&history, seconds, &TimeZone::system()),
        As::Csv => csv(&history),
        As::Json => json(&serde_json::to_string(&history)?) + "\n",
    })
}

/// The VM that was ready for longest first.
fn text(history: &History, seconds: u32, zone: &TimeZone) -> String {
    let mut vms: Vec<(f64, &VmHistory)> =
        history.vms.iter().map(|vm| (mean(&vm.ready_mcpu).unwrap_or(0.0), vm)).collect();
    vms.sort_by(|(a, one), (b, other)| b.total_cmp(a).then_with(|| one.name.cmp(&other.name)));
    let row = |(ready, vm): &(f64, &VmHistory)| {
        let [owed, got] = [&vm.owed_mcpu, &vm.got_mcpu].map(|figures| percent_of(mean(figures)));
        let most = vm.peak.map(|peak| percent_of(Some(f64::from(peak.ready_mcpu) / 1000.0)));
        let when = vm.peak.map(|peak| clock(history, peak.at_s, zone));
        let name = if vm.is_here { vm.name.clone() } else { format!("{} (gone)", vm.name) };
        let (most, when) = (most.unwrap_or_default(), when.unwrap_or_default());
        let pid = vm.pid.to_string();
        vec![name, pid, percent_of(Some(*ready)), most, when, owed, got, picture(history, vm)]
    };
    let rows: Vec<Vec<String>> = vms.iter().map(row).collect();
    let titles = ["NAME<", "PID", "READY", "MOST", "AT", "OWED", "GOT", "READY OVER TIME<"];
    let mut text = table(&titles, &rows);
    if rows.is_empty() {
        "No VM ran here in that time.\n".clone_into(&mut text);
    }
    if history.kept_s < seconds {
        let _ = writeln!(text, "It reaches back {} s: no more is kept yet.", history.kept_s);
    }
    text
}

/// The mean of what is known, pCPUs.
fn mean(figures: &[Option<u32>]) -> Option<f64> {
    let known: Vec<f64> = figures.iter().flatten().map(|mcpu| f64::from(*mcpu) / 1000.0).collect();
    #[allow(clippy::cast_precision_loss, reason = "thousands at most")]
    let count = known.len() as f64;
    (!known.is_empty()).then(|| known.iter().sum::<f64>() / count)
}

/// A letter for each step, as high as it was ready: the highest is a whole pCPU, or what it was ready for at most.
fn picture(history: &History, vm: &VmHistory) -> String {
    const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = vm.ready_mcpu.iter().flatten().copied().max().unwrap_or(0).max(1000);
    let one = |step: u32| {
        let at = step.checked_sub(vm.first_step).and_then(|at| usize::try_from(at).ok());
        match at.and_then(|at| *vm.ready_mcpu.get(at)?) {
            Some(mcpu) => HEIGHTS[(mcpu * 7).div_ceil(most) as usize],
            None => ' ',
        }
    };
    (history.first_step..history.first_step + history.steps).map(one).collect()
}

/// The moment so many seconds after step 0 began.
fn moment(history: &History, at_s: u32) -> Timestamp {
    #[allow(clippy::cast_possible_truncation, reason = "seconds since 1970")]
    let begun = history.begun_unix_s as i64;
    Timestamp::from_second(begun + i64::from(at_s)).unwrap_or_default()
}

fn clock(history: &History, at_s: u32, zone: &TimeZone) -> String {
    moment(history, at_s).to_zoned_datetime(zone.clone()).strftime("%H:%M:%S").to_string()
}

/// A line for each step of each VM, with when the step ended.
fn csv(history: &History) -> String {
    let mut text = "time,vm,pid,ready_pct,owed_pct,got_pct\n".to_owned();
    let pct = |figures: &[Option<u32>], at: usize| {
        figures[at].map(|mcpu| (f64::from(mcpu) / 10.0).to_string()).unwrap_or_default()
    };
    for vm in &history.vms {
        for (at, step) in (vm.first_step..).enumerate().take(vm.ready_mcpu.len()) {
            let ends = moment(history, (step + 1) * history.step_s);
            let figures = [&vm.ready_mcpu, &vm.owed_mcpu, &vm.got_mcpu].map(|it| pct(it, at));
            let (name, figures) = (quoted(&vm.name), figures.join(","));
            let _ = writeln!(text, "{ends},{name},{},{figures}", vm.pid);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use drover_host::status::Peak;

    fn history() -> History {
        let vm = |name: &str, pid, is_here, first_step, ready: &[Option<u32>]| VmHistory {
            name: name.to_owned(),
            pid,
            user: 0,
            is_here,
            first_step,
            ready_mcpu: ready.to_vec(),
            owed_mcpu: vec![None; ready.len()],
            got_mcpu: vec![Some(500); ready.len()],
            peak: Some(Peak { ready_mcpu: 2000, at_s: 62 }),
        };
        let web = vm("web", 185, true, 30, &[Some(0), Some(2000), None, Some(1000)]);
        let db = vm("a,\"db", 7, false, 32, &[Some(4), Some(150)]);
        History {
            begun_unix_s: 1_796_083_200.0,
            kept_s: 68,
            step_s: 2,
            first_step: 30,
            steps: 4,
            vms: vec![db, web],
        }
    }

    #[test]
    fn who_was_ready_the_longest_stands_first_with_when_and_how_that_went() {
        let text = text(&history(), 600, &TimeZone::UTC);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0].split_whitespace().next(), Some("NAME"), "{text}");
        let web: Vec<&str> = lines[1].split_whitespace().collect();
        assert_eq!(
            web,
            ["web", "185", "100.0%", "200.0%", "00:01:02", "-", "50.0%", "▁█", "▅"],
            "{text}"
        );
        assert!(lines[2].starts_with("a,\"db (gone)") && lines[2].ends_with("  ▂▃"), "{text}");
        assert_eq!(lines[3], "It reaches back 68 s: no more is kept yet.");
        let none = History { vms: Vec::new(), ..history() };
        assert_eq!(super::text(&none, 60, &TimeZone::UTC), "No VM ran here in that time.\n");
    }

    #[test]
    fn csv_has_a_line_for_each_step_of_each_vm() {
        let text = csv(&history());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 7, "{text}");
        assert_eq!(lines[0], "time,vm,pid,ready_pct,owed_pct,got_pct");
        assert_eq!(lines[1], "2026-12-01T00:01:06Z,\"a,\"\"db\",7,0.4,,50");
        assert_eq!(lines[4], "2026-12-01T00:01:04Z,\"web\",185,200,,50");
        assert_eq!(lines[5], "2026-12-01T00:01:06Z,\"web\",185,,,50", "not known");
    }
}

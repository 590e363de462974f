// SPDX-License-Identifier: GPL-2.0-only
//! What was expected beside what was measured.

use crate::grid::{Grid, Group, Row as GridRow};
use crate::number::{figure, shorten};
use drover_scenario::expect::{Row, Verdict};

/// Longest name before it is shortened, in characters.
const NAME_WIDTH: usize = 16;

/// A table of expectations, with a last line that counts them; empty where there are none.
pub fn checks(rows: &[Row]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut columns = vec!["measured", "asked"];
    let published = rows.iter().any(|row| row.published.is_some());
    if published {
        columns.splice(1..1, ["published", "off, %"]);
    }
    let columns = columns.into_iter().map(str::to_owned).collect();
    let group = Group { title: "value".to_owned(), columns };
    let rows_of_grid = rows.iter().map(|of| row(of, published)).collect();
    let lead = vec!["", "metric", "scheduler", "case", "VM"];
    let grid = Grid { lead, lead_left: 5, groups: vec![group], rows: rows_of_grid };
    let mut text = format!("Expectations\n{}", grid.text());
    for row in rows {
        if let Some(note) = &row.note {
            text += &format!("{} {}: {note}\n", word(row.verdict), row.metric.name());
        }
    }
    text += &far_off(rows);
    let count = |verdict| rows.iter().filter(|row| row.verdict == verdict).count();
    let (held, failed) = (count(Verdict::Pass), count(Verdict::Fail));
    text + &format!("{held} held, {failed} failed, {} not run\n", count(Verdict::NotRun))
}

/// How far the figure is from what the source of the scenario has, %.
fn off_pct(row: &Row) -> Option<f64> {
    Some(100.0 * (row.measured? / row.published? - 1.0))
}

/// A line on how far figures are from those of the source; none where it has none of them.
fn far_off(rows: &[Row]) -> String {
    let off: Vec<f64> = rows.iter().filter_map(off_pct).map(f64::abs).collect();
    if off.is_empty() {
        return String::new();
    }
    let mean = off.iter().sum::<f64>() / off.len() as f64;
    let worst = off.iter().copied().fold(0.0, f64::max);
    format!("{} published figures, {mean:.1} % off on average, {worst:.1} % at most\n", off.len())
}

fn row(row: &Row, published: bool) -> GridRow {
    let name = |name: Option<&str>| name.map_or("-".to_owned(), |name| shorten(name, NAME_WIDTH));
    let number = |value: Option<f64>| value.map_or("-".to_owned(), figure);
    let mut cells = vec![number(row.measured), row.asked.clone()];
    if published {
        let off = off_pct(row).map_or("-".to_owned(), |off_pct| format!("{off_pct:+.1}"));
        cells.splice(1..1, [number(row.published), off]);
    }
    GridRow {
        lead: vec![
            word(row.verdict).to_owned(),
            row.metric.name().to_owned(),
            name(Some(&row.scheduler)),
            name(row.case.as_deref()),
            name(row.vm.as_deref()),
        ],
        groups: vec![cells],
        below: Vec::new(),
    }
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "ok",
        Verdict::Fail => "FAILED",
        Verdict::NotRun => "not run",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use drover_scenario::expect::{Expect, Metric, VmChoice, evaluate};

    fn expect(metric: Metric, scheduler: &str, max: f64) -> Expect {
        Expect {
            scheduler: scheduler.to_owned(),
            case: Some("1:7".to_owned()),
            vm: if metric.is_of_vm() { VmChoice::Each } else { VmChoice::Host },
            max: Some(max),
            ..Expect::of(metric)
        }
    }

    #[test]
    fn every_expectation_has_its_line() {
        let expects = [
            expect(Metric::VcpuSpreadPct, "eevdf", 5.0),
            expect(Metric::IdlePct, "drover", 0.5),
            expect(Metric::IdlePct, "scx_flash", 0.5),
            expect(Metric::WakeupMeanUs, "drover", 150.0),
        ];
        let text = checks(&evaluate(&expects, &sample::shares()));
        assert!(
            text.contains("FAILED   vcpu_spread_pct  eevdf      1:7   vm0 |     85.7"),
            "{text}"
        );
        assert!(
            text.contains("ok       idle_pct         drover     1:7   -   |     0.03"),
            "{text}"
        );
        assert!(text.contains("FAILED wakeup_mean_us: drover has no such figure"), "{text}");
        assert!(text.ends_with("1 held, 4 failed, 1 not run\n"), "{text}");
    }

    #[test]
    fn what_the_source_has_stands_beside_with_the_error() {
        let expects = [
            Expect { published: Some(0.04), ..expect(Metric::IdlePct, "drover", 0.5) },
            expect(Metric::VcpuSpreadPct, "eevdf", 5.0),
        ];
        let rows = evaluate(&expects, &sample::shares());
        let off_pct = 100.0 * (rows[0].measured.unwrap() / 0.04 - 1.0);
        let text = checks(&rows);
        assert!(text.contains("measured  published  off, %"), "{text}");
        let off = format!("0.04   {off_pct:+.1}");
        assert!(text.contains(&off), "{text}");
        let line = format!("1 published figures, {0:.1} % off on average, {0:.1} %", off_pct.abs());
        assert!(text.contains(&line), "{text}");
    }

    #[test]
    fn nothing_expected_is_nothing_shown() {
        assert_eq!(checks(&[]), "");
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! What was expected beside what was measured.

use crate::grid::{Grid, Group, Row as GridRow};
use crate::number::{figure, shorten};
use drover_core::expect::{Row, Verdict};

/// Longest name before it is shortened, in characters.
const NAME_WIDTH: usize = 16;

/// A table of expectations, with a last line that counts them; empty where there are none.
pub fn checks(rows: &[Row]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let group = Group {
        title: "value".to_owned(),
        columns: vec!["measured".to_owned(), "asked".to_owned()],
    };
    let lead = vec!["", "metric", "scheduler", "case", "VM"];
    let grid =
        Grid { lead, lead_left: 5, groups: vec![group], rows: rows.iter().map(row).collect() };
    let mut text = format!("Expectations\n{}", grid.text());
    for row in rows {
        if let Some(note) = &row.note {
            text += &format!("{} {}: {note}\n", word(row.verdict), row.metric.name());
        }
    }
    let count = |verdict| rows.iter().filter(|row| row.verdict == verdict).count();
    let (held, failed) = (count(Verdict::Pass), count(Verdict::Fail));
    text + &format!("{held} held, {failed} failed, {} not run\n", count(Verdict::NotRun))
}

fn row(row: &Row) -> GridRow {
    let name = |name: Option<&str>| name.map_or("-".to_owned(), |name| shorten(name, NAME_WIDTH));
    GridRow {
        lead: vec![
            word(row.verdict).to_owned(),
            row.metric.name().to_owned(),
            name(Some(&row.scheduler)),
            name(row.case.as_deref()),
            name(row.vm.as_deref()),
        ],
        groups: vec![vec![row.measured.map_or("-".to_owned(), figure), row.asked.clone()]],
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
    use drover_core::expect::{Expect, Metric, VmChoice, evaluate};

    fn expect(metric: Metric, scheduler: &str, max: f64) -> Expect {
        Expect {
            metric,
            scheduler: scheduler.to_owned(),
            case: Some("1:7".to_owned()),
            vm: if metric.is_of_vm() { VmChoice::Each } else { VmChoice::Host },
            min: None,
            max: Some(max),
            relative_to: None,
            relative_to_case: None,
            or: None,
            window_s: None,
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
    fn nothing_expected_is_nothing_shown() {
        assert_eq!(checks(&[]), "");
    }
}

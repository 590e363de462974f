// SPDX-License-Identifier: GPL-2.0-only
//! What a scenario set out to show, schedulers side by side, for who reads one table only.

use crate::grid::{Grid, Group, Row};
use crate::number::{figure, shorten};
use crate::summary::Summary;
use crate::table::{circumstances, untrusted};
use drover_scenario::expect::Finding;
use drover_scenario::results::Results;

/// Longest name of a scheduler before it is shortened, in characters.
const NAME_WIDTH: usize = 16;

/// A row for each finding: what it shows, under each scheduler, and what was asked.
pub fn findings(results: &Results, findings: &[Finding]) -> String {
    let summary = Summary::new(results);
    let schedulers = summary.schedulers.iter().map(|name| shorten(name, NAME_WIDTH));
    let columns = schedulers.chain(["asked".to_owned()]).collect();
    let group = Group { title: "measured".to_owned(), columns };
    let row = |finding: &Finding| {
        let measured = finding.by_scheduler.iter();
        let measured = measured.map(|under| under.measured.map_or("-".to_owned(), figure));
        Row {
            lead: vec![finding.title.clone()],
            groups: vec![measured.chain([finding.asked.clone()]).collect()],
            below: Vec::new(),
        }
    };
    let rows = findings.iter().map(row).collect();
    let grid = Grid { lead: vec![""], lead_left: 1, groups: vec![group], rows };
    let ran = circumstances(&summary, "the median shown");
    format!("{}: {ran}\n\n{}{}", results.scenario, grid.text(), untrusted(results))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn schedulers_stand_side_by_side_in_the_words_of_the_scenario() {
        let finding = Finding {
            title: "wake-up of the sleeper, us".to_owned(),
            asked: "<= 150".to_owned(),
            bound: Some(150.0),
            by_scheduler: sample::under(),
        };
        let text = findings(&sample::sleep(), &[finding]);
        let row = text.lines().last().unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(row, "wake-up of the sleeper, us | 1,240 70.0 - <= 150", "{text}");
    }

    #[test]
    fn a_fault_is_said() {
        let mut results = sample::shares();
        results.runs[1].fault = Some("ejected".to_owned());
        assert!(findings(&results, &[]).contains("Not to be trusted: drover"));
    }
}

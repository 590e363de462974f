// SPDX-License-Identifier: GPL-2.0-only
//! What a scenario set out to show: a figure for each finding, a bar for each scheduler.

use super::colors::of_scheduler;
use super::figures::{Bar, Content, Figure, Group, Panel};
use crate::summary::Spread;
use drover_scenario::expect::{Finding, Under};

/// The figures; none where there are no findings.
pub(super) fn figures(findings: &[Finding]) -> Vec<Figure> {
    let figure = |finding: &Finding| {
        let group = |under: &Under| {
            let (min, max) = under.range?;
            let value = Spread { median: under.measured?, min, max };
            let color = of_scheduler(&under.scheduler);
            let labels = [under.scheduler.clone(), String::new()];
            Some(Group { labels, bars: vec![Bar { color, value, mark: finding.bound }] })
        };
        let groups = finding.by_scheduler.iter().filter_map(group).collect();
        Figure {
            title: finding.title.clone(),
            y_title: String::new(),
            series: Vec::new(),
            mark: Some(format!("asked: {}", finding.asked)),
            one_scale: false,
            lies: true,
            panels: vec![Panel { title: String::new(), content: Content::Bars(groups) }],
        }
    };
    findings.iter().map(figure).collect()
}

// SPDX-License-Identifier: GPL-2.0-only
//! What a scenario set out to show: a panel for each finding, a bar for each scheduler.

use super::figures::{Bar, Content, Figure, Group, Panel};
use super::shapes::Colors;
use crate::summary::Spread;
use drover_scenario::expect::Finding;

/// One figure with all findings; none where there are none.
pub(super) fn figures(findings: &[Finding]) -> Vec<Figure> {
    let Some(first) = findings.first() else { return Vec::new() };
    let panel = |finding: &Finding| {
        let bar = |(series, (_, value)): (usize, &(String, Option<f64>))| {
            Some(Bar { series, value: Spread::of(&[(*value)?])?, mark: finding.bound })
        };
        let bars = finding.by_scheduler.iter().enumerate().filter_map(bar).collect();
        let labels = [format!("asked: {}", finding.asked), String::new()];
        Panel { title: finding.title.clone(), content: Content::Bars(vec![Group { labels, bars }]) }
    };
    vec![Figure {
        title: "Measured under each scheduler".to_owned(),
        y_title: String::new(),
        series: first.by_scheduler.iter().map(|(scheduler, _)| scheduler.clone()).collect(),
        colors: Colors::Schedulers,
        mark: Some("asked"),
        one_scale: false,
        panels: findings.iter().map(panel).collect(),
    }]
}

// SPDX-License-Identifier: GPL-2.0-only
//! What a scenario measures of claims: a panel for each metric, a bar for each figure, a mark for what
//! the document says.

use super::figures::{Bar, Content, Figure, Group, Panel};
use super::shapes::Colors;
use crate::summary::Spread;
use drover_core::claims::Measured;

/// Bars that have room in a panel.
const BARS_MAX: usize = 14;

/// One figure with all of them; none where nothing was measured.
pub(super) fn figures(measured: &[Measured]) -> Vec<Figure> {
    let mut series: Vec<String> = Vec::new();
    let mut panels: Vec<(String, Vec<Group>)> = Vec::new();
    for of in measured {
        let Some((title, group)) = group(of, &mut series) else { continue };
        let has_room = |it: &&mut (String, Vec<Group>)| it.0 == title && it.1.len() < BARS_MAX;
        match panels.iter_mut().find(has_room) {
            Some((_, groups)) => groups.push(group),
            None => panels.push((title, vec![group])),
        }
    }
    if panels.is_empty() {
        return Vec::new();
    }
    let panel = |(title, groups)| Panel { title, content: Content::Bars(groups) };
    vec![Figure {
        title: "Measured in the simulator".to_owned(),
        y_title: String::new(),
        series,
        colors: Colors::Vms,
        mark: Some("the document's number, or its bound"),
        one_scale: false,
        panels: panels.into_iter().map(panel).collect(),
    }]
}

/// The title of its panel, and its bar with what stands under it.
fn group(of: &Measured, series: &mut Vec<String>) -> Option<(String, Group)> {
    let (expect, row) = (&of.expect, &of.row);
    let (min, max) = row.range?;
    let value = Spread { median: row.measured?, min, max };
    let place = series.iter().position(|known| *known == row.scheduler).unwrap_or_else(|| {
        series.push(row.scheduler.clone());
        series.len() - 1
    });
    let base = expect.relative_to_case.as_ref().or(expect.relative_to.as_ref());
    let mut title = expect.metric.name().replace('_', " ");
    if base.is_some() {
        title += ", ratio";
    }
    let case = row.case.clone().filter(|case| case != "all").unwrap_or_default();
    let below = base.map(|base| format!("over {base}")).or(row.vm.clone()).unwrap_or_default();
    let mark = expect.published.or(expect.min).or(expect.max);
    let bars = vec![Bar { series: place, value, mark }];
    Some((title, Group { labels: [case, below], bars }))
}

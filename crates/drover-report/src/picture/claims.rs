// SPDX-License-Identifier: GPL-2.0-only
//! What a scenario measures of claims: a panel for each metric, a bar for each figure, a mark for what
//! the document says.

use super::figures::{Bar, Content, Figure, Group, Panel};
use super::shapes::Colors;
use crate::summary::Spread;
use drover_scenario::claims::Measured;

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
    let base = [&expect.relative_to_vm, &expect.relative_to_case, &expect.relative_to];
    let base = base.into_iter().flatten().next();
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

#[cfg(test)]
mod tests {
    use super::super::Picture;
    use super::*;
    use crate::sample;
    use drover_scenario::expect::{Expect, Metric, Row, Verdict};

    fn measured(case: &str, base: Option<&str>, range: Option<(f64, f64)>) -> Measured {
        let expect = Expect {
            published: Some(1.5),
            relative_to_case: base.map(str::to_owned),
            ..Expect::of(Metric::TotalProgress)
        };
        let row = Row {
            scheduler: "drover".to_owned(),
            case: Some(case.to_owned()),
            vm: None,
            metric: expect.metric,
            measured: range.map(|(least, most)| (least + most) / 2.0),
            range,
            published: expect.published,
            asked: String::new(),
            verdict: Verdict::Pass,
            note: None,
        };
        Measured { expect, row }
    }

    #[test]
    fn a_panel_for_each_metric_and_no_bar_for_what_was_not_measured() {
        let cases = ["jbb 4 x 1, 4", "jbb 1 x 2, 4", "jbb 2 x 2, 4", "kc 1 x 4, 4"];
        let ratio = |case: &&str| measured(case, Some("jbb 4 x 1, 3.5"), Some((1.0, 1.1)));
        let mut all: Vec<Measured> = cases.iter().map(ratio).collect();
        all.push(measured("faulty", None, None));
        all.push(measured("alone", None, Some((2.0, 2.0))));
        let [figure] = &figures(&all)[..] else { panic!("one figure") };
        assert_eq!(
            (figure.panels.len(), figure.series.as_slice()),
            (2, &["drover".to_owned()][..])
        );
        let Content::Bars(groups) = &figure.panels[0].content else { panic!("bars") };
        assert_eq!(groups.len(), 4);
        let picture = Picture::of_claims(&sample::shares(), &all).unwrap();
        picture.0.assert_texts_apart();
        assert!(Picture::of_claims(&sample::shares(), &[]).is_none());
    }

    #[test]
    fn a_panel_holds_no_more_bars_than_have_room() {
        let many: Vec<Measured> =
            (0..30).map(|case| measured(&case.to_string(), None, Some((1.0, 1.0)))).collect();
        let panels = &figures(&many)[0].panels;
        assert_eq!(panels.len(), 3);
    }
}

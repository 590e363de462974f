// SPDX-License-Identifier: GPL-2.0-only
//! What a scenario measures of claims: a panel for each metric, a bar for each figure, a mark for what
//! the document says.

use super::colors::of_scheduler;
use super::figures::{Bar, Content, Figure, Group, Panel};
use crate::summary::Spread;
use drover_scenario::claims::Measured;

/// A bar of a panel: what it is of, what it is divided by, and the bar itself.
struct Shown {
    metric: String,
    of: [String; 2],
    base: Option<String>,
    bar: Bar,
}

/// One figure with all of them; none where nothing was measured.
pub(super) fn figures(measured: &[Measured]) -> Vec<Figure> {
    let mut series = Vec::new();
    let mut by_metric: Vec<(String, Vec<Shown>)> = Vec::new();
    for of in measured {
        let Some(shown) = shown(of) else { continue };
        let named = (of.row.scheduler.clone(), shown.bar.color);
        if !series.contains(&named) {
            series.push(named);
        }
        match by_metric.iter_mut().find(|(metric, _)| *metric == shown.metric) {
            Some((_, all)) => all.push(shown),
            None => by_metric.push((shown.metric.clone(), vec![shown])),
        }
    }
    if by_metric.is_empty() {
        return Vec::new();
    }
    vec![Figure {
        title: "Measured, beside what the document says".to_owned(),
        y_title: String::new(),
        series,
        mark: Some("the document's number, or its bound".to_owned()),
        one_scale: false,
        lies: true,
        panels: by_metric.into_iter().map(|(metric, all)| panel(metric, all)).collect(),
    }]
}

/// A panel; what all its bars are divided by stands in its title, else each says its own.
fn panel(mut title: String, all: Vec<Shown>) -> Panel {
    let base = all[0].base.clone();
    let is_shared = all.iter().all(|shown| shown.base == base);
    if let Some(base) = base.filter(|_| is_shared) {
        title += &format!(", 1 = {base}");
    }
    let mut groups: Vec<Group> = Vec::new();
    for Shown { of: mut labels, base, bar, .. } in all {
        if let Some(base) = base.filter(|_| !is_shared) {
            labels[1] = format!("{}1 = {base}", spaced(&labels[1]));
        }
        match groups.iter_mut().find(|group| group.labels == labels) {
            Some(group) => group.bars.push(bar),
            None => groups.push(Group { labels, bars: vec![bar] }),
        }
    }
    Panel { title, content: Content::Bars(groups) }
}

fn spaced(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("{text}, ") }
}

fn shown(of: &Measured) -> Option<Shown> {
    let (expect, row) = (&of.expect, &of.row);
    let (min, max) = row.range?;
    let value = Spread { median: row.measured?, min, max };
    let case = row.case.clone().filter(|case| case != "all").unwrap_or_default();
    let base = [&expect.relative_to_vm, &expect.relative_to_case, &expect.relative_to];
    let mark = expect.published.or(expect.min).or(expect.max);
    Some(Shown {
        metric: expect.metric.name().replace('_', " "),
        of: [case, row.vm.clone().unwrap_or_default()],
        base: base.into_iter().flatten().next().cloned(),
        bar: Bar { color: of_scheduler(&row.scheduler), value, mark },
    })
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
            of_repeats: Vec::new(),
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
        assert_eq!((figure.panels.len(), figure.series[0].0.as_str()), (1, "drover"));
        let Content::Bars(groups) = &figure.panels[0].content else { panic!("bars") };
        assert_eq!(groups.len(), 5);
        assert_eq!(groups[0].labels, ["jbb 4 x 1, 4", "1 = jbb 4 x 1, 3.5"]);
        let picture = Picture::of_claims(&sample::shares(), &all).unwrap();
        picture.0.assert_texts_apart();
        assert!(Picture::of_claims(&sample::shares(), &[]).is_none());
    }

    #[test]
    fn bars_that_are_divided_by_the_same_say_so_once_and_each_says_what_it_is_of() {
        let of = |vm: &str, scheduler: &str| {
            let mut it = measured("all", Some("credit"), Some((1.0, 1.2)));
            (it.row.vm, it.row.scheduler) = (Some(vm.to_owned()), scheduler.to_owned());
            it
        };
        let all = [of("web", "drover"), of("db", "drover"), of("web", "credit")];
        let [figure] = &figures(&all)[..] else { panic!("one figure") };
        assert_eq!(figure.panels[0].title, "total progress, 1 = credit");
        let Content::Bars(groups) = &figure.panels[0].content else { panic!("bars") };
        assert_eq!((groups.len(), groups[0].bars.len()), (2, 2));
        assert_eq!((groups[0].labels[1].as_str(), groups[1].labels[1].as_str()), ("web", "db"));
    }
}

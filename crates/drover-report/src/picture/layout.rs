// SPDX-License-Identifier: GPL-2.0-only
//! Puts figures on a page: heading, then for each figure its title, its legend and its panels.

use super::axis::{Frame, Scale};
use super::colors::{Color, INK};
use super::figures::{Content, Figure, Panel};
use super::render::text_width;
use super::shapes::{Align, Drawing, fitting, wrapped};
use super::{bars, lines};
use crate::summary::Summary;
use crate::table::circumstances;
use drover_scenario::results::Results;

/// Width of the page: so narrow that its smallest letters can be read in a column of print.
pub(super) const PAGE_WIDTH: f64 = 640.0;
/// White space around everything.
pub(super) const MARGIN: f64 = 20.0;
/// Height of the axes of a panel, but of one whose bars lie.
const FRAME_HEIGHT: f64 = 210.0;
/// Room left of a panel's axes for numbers and title.
const AXIS_WIDTH: f64 = 84.0;
/// Room under a panel's axes for labels.
const LABEL_HEIGHT: f64 = 58.0;
/// Room over a panel's axes for its title.
const TITLE_HEIGHT: f64 = 36.0;
/// Room between panels.
const PANEL_GAP: f64 = 14.0;
/// From one line of the heading's small print to the next, and of figures' titles.
const LINE: f64 = 18.0;

/// The page of these figures of some results; none where there are none.
pub(super) fn page(results: &Results, figures: &[Figure]) -> Option<Drawing> {
    let summary = Summary::new(results);
    if figures.is_empty() {
        return None;
    }
    let mut drawing = Drawing { width: PAGE_WIDTH, ..Drawing::default() };
    let width = PAGE_WIDTH - 2.0 * MARGIN;
    drawing.text(MARGIN, 34.0, &fitting(&results.scenario, 22.0, width), 22.0, Align::Left);
    let mut y = 42.0;
    for line in wrapped(&circumstances(&summary, "with whiskers from least to most"), 13.0, width) {
        y += LINE;
        drawing.faint_text(MARGIN, y, &line, 13.0, Align::Left);
    }
    for figure in figures {
        y = draw_figure(&mut drawing, figure, y + 18.0);
    }
    drawing.height = y + MARGIN / 2.0;
    Some(drawing)
}

/// Draws a figure from `y` down; returns where it ends.
fn draw_figure(drawing: &mut Drawing, figure: &Figure, mut y: f64) -> f64 {
    for line in wrapped(&figure.title, 16.0, PAGE_WIDTH - 2.0 * MARGIN) {
        y += 22.0;
        drawing.text(MARGIN, y, &line, 16.0, Align::Left);
    }
    let (abreast, lies) = arrangement(figure);
    if !figure.series.is_empty() || figure.mark.is_some() {
        let mark = figure.mark.as_deref().map(|mark| (mark, lies));
        y = draw_legend(drawing, &figure.series, mark, y + 24.0);
    }
    y += 18.0;
    let highest_of_all = figure.panels.iter().map(highest).fold(0.0, f64::max);
    let width = panel_width(abreast);
    for row in figure.panels.chunks(abreast) {
        let mut end = y;
        for (column, panel) in row.iter().enumerate() {
            let highest = if figure.one_scale { highest_of_all } else { highest(panel) };
            // Room above the highest bar for its number.
            let scale = Scale::up_to(highest * if lies { 1.0 } else { 1.04 });
            let left = MARGIN + (width + PANEL_GAP) * column as f64;
            let from = (left, y, width);
            end = end.max(draw_panel(drawing, panel, from, &scale, (&figure.y_title, lies)));
        }
        y = end;
    }
    y
}

/// How many panels stand in a row, and whether their bars lie: as many as have room for all that is written.
fn arrangement(figure: &Figure) -> (usize, bool) {
    let has_room = |abreast: &usize| {
        let width = panel_width(*abreast) - AXIS_WIDTH;
        figure.panels.iter().all(|panel| match &panel.content {
            Content::Bars(groups) => !figure.lies && bars::may_stand(groups, width),
            Content::Lines(_) => true,
        })
    };
    let abreast = (1..=figure.panels.len().clamp(1, 2)).rev().find(has_room);
    (abreast.unwrap_or(1), abreast.is_none())
}

/// The width of each of so many panels in a row, its axis included.
fn panel_width(abreast: usize) -> f64 {
    let columns = abreast as f64;
    (PAGE_WIDTH - 2.0 * MARGIN - PANEL_GAP * (columns - 1.0)) / columns
}

fn highest(panel: &Panel) -> f64 {
    match &panel.content {
        Content::Bars(groups) => bars::highest(groups),
        Content::Lines(values) => lines::highest(values),
    }
}

/// Draws a panel from there; returns where it ends.
fn draw_panel(
    drawing: &mut Drawing,
    panel: &Panel,
    (left, mut y, width): (f64, f64, f64),
    scale: &Scale,
    (axis, lies): (&str, bool),
) -> f64 {
    let title = wrapped(&panel.title, 14.0, width - AXIS_WIDTH);
    let has_title = !panel.title.is_empty();
    let (before, behind, height) = match &panel.content {
        Content::Bars(groups) if lies => bars::room(groups),
        _ => (AXIS_WIDTH, 0.0, FRAME_HEIGHT),
    };
    let title_left = if lies { left } else { left + before };
    for (row, line) in title.iter().enumerate().filter(|_| has_title) {
        drawing.text(title_left, y + 8.0 + LINE * row as f64, line, 14.0, Align::Left);
    }
    y += match (has_title, lies) {
        (true, true) => 22.0 + LINE * (title.len() - 1) as f64,
        (true, false) => TITLE_HEIGHT + LINE * (title.len() - 1) as f64,
        (false, true) => 0.0,
        (false, false) => 14.0,
    };
    let (left, width) = (left + before, width - before - behind);
    let frame = Frame { left, top: y, width, height, lies };
    frame.draw(drawing, scale, axis);
    match &panel.content {
        Content::Bars(groups) => bars::draw(drawing, &frame, scale, groups),
        Content::Lines(values) => lines::draw(drawing, &frame, scale, values),
    }
    frame.bottom()
        + match (lies, axis.is_empty()) {
            (false, _) => LABEL_HEIGHT,
            (true, false) => 46.0,
            (true, true) => 28.0,
        }
}

/// Draws what colours and marks stand for, in as many rows as it takes; returns the last row's y. With a mark comes
/// whether its bars lie.
pub(super) fn draw_legend(
    drawing: &mut Drawing,
    series: &[(String, Color)],
    mark: Option<(&str, bool)>,
    mut y: f64,
) -> f64 {
    let entries = series.iter().map(|(name, color)| (name.as_str(), Some(*color)));
    let lies = mark.is_some_and(|(_, lies)| lies);
    let mut x = MARGIN;
    for (name, color) in entries.chain(mark.map(|(mark, _)| (mark, None))) {
        let width = 20.0 + text_width(name, 13.0) + 22.0;
        if x > MARGIN && x + width > PAGE_WIDTH - MARGIN {
            (x, y) = (MARGIN, y + 20.0);
        }
        match color {
            Some(color) => drawing.filled(x, y - 6.0, 13.0, 13.0, color),
            None if lies => drawing.line(vec![(x + 6.5, y - 7.0), (x + 6.5, y + 7.0)], 2.5, INK),
            None => drawing.line(vec![(x - 2.0, y), (x + 15.0, y)], 2.5, INK),
        }
        drawing.text(x + 20.0, y, name, 13.0, Align::Left);
        x += width;
    }
    y
}

#[cfg(test)]
mod tests {
    use super::super::colors::of_vm;
    use super::super::figures::figures;
    use super::*;
    use crate::sample;

    #[test]
    fn panels_stand_beside_each_other_where_they_have_room() {
        let arranged = |results: Results| {
            let figures = figures(&Summary::new(&results));
            figures.iter().map(arrangement).collect::<Vec<_>>()
        };
        assert_eq!(arranged(sample::shares()), [(1, false)], "seven cases are as wide as a page");
        assert_eq!(arranged(sample::timeline()), [(2, false), (2, false)]);
        let mut long = sample::timeline();
        long.runs[1].case =
            "a case with a name as long as people like to give them, all of which is shown"
                .to_owned();
        assert_eq!(arranged(long)[0], (1, true));
    }

    #[test]
    fn a_page_grows_with_its_figures() {
        let page = |results: Results| page(&results, &figures(&Summary::new(&results))).unwrap();
        let (one, two) = (page(sample::timeline()), page(sample::shares()));
        assert_eq!((one.width, two.width), (PAGE_WIDTH, PAGE_WIDTH));
        assert!(one.height > 2.0 * FRAME_HEIGHT && two.height > 2.0 * FRAME_HEIGHT);
    }

    #[test]
    fn a_long_legend_takes_more_rows() {
        let series = (0..40).map(|index| (format!("virtual-machine-{index}"), of_vm(index)));
        let mut drawing = Drawing { width: PAGE_WIDTH, height: 900.0, ..Drawing::default() };
        assert!(draw_legend(&mut drawing, &series.collect::<Vec<_>>(), None, 50.0) > 100.0);
        drawing.assert_texts_apart();
    }
}

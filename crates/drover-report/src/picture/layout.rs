// SPDX-License-Identifier: GPL-2.0-only
//! Puts figures on a page: heading, then for each figure its title, its legend and its panels.

use super::axis::{Frame, Scale};
use super::figures::{Content, Figure, Panel};
use super::render::text_width;
use super::shapes::{Align, Drawing, INK, color_of, fitting};
use super::{bars, lines};
use crate::summary::Summary;
use crate::table::circumstances;
use drover_scenario::results::Results;

/// Width of the page.
pub(super) const PAGE_WIDTH: f64 = 1200.0;
/// White space around everything.
pub(super) const MARGIN: f64 = 30.0;
/// Height of the axes of a panel.
const FRAME_HEIGHT: f64 = 240.0;
/// Room left of a panel's axes for numbers and title.
const AXIS_WIDTH: f64 = 75.0;
/// Room under a panel's axes for labels.
const LABEL_HEIGHT: f64 = 60.0;
/// Room between panels.
const PANEL_GAP: f64 = 20.0;
/// Panels in a row.
const PANELS_ABREAST: usize = 3;
/// Groups of bars that have room in half a page.
const GROUPS_IN_HALF: usize = 8;

/// The page of these figures of some results; none where there are none.
pub(super) fn page(results: &Results, figures: &[Figure]) -> Option<Drawing> {
    let summary = Summary::new(results);
    if figures.is_empty() {
        return None;
    }
    let mut drawing = Drawing { width: PAGE_WIDTH, ..Drawing::default() };
    let (left, width) = (MARGIN, PAGE_WIDTH - 2.0 * MARGIN);
    drawing.text(left, 40.0, &fitting(&results.scenario, 26.0, width), 26.0, Align::Left);
    let ran = circumstances(&summary, "with whiskers from least to most");
    drawing.faint_text(left, 70.0, &fitting(&ran, 15.0, width), 15.0, Align::Left);
    let mut y = 90.0;
    for figure in figures {
        y = draw_figure(&mut drawing, figure, y + 10.0);
    }
    drawing.height = y + MARGIN / 2.0;
    Some(drawing)
}

/// Draws a figure from `y` down; returns where it ends.
fn draw_figure(drawing: &mut Drawing, figure: &Figure, y: f64) -> f64 {
    drawing.text(MARGIN, y + 14.0, &figure.title, 19.0, Align::Left);
    let mut y = draw_legend(drawing, figure, y + 42.0) + 24.0;
    let highest_of_all = figure.panels.iter().map(highest).fold(0.0, f64::max);
    let abreast = abreast(figure.panels.len());
    for row in figure.panels.chunks(abreast) {
        let columns = if keeps_to_half(figure) { 2.0 } else { abreast as f64 };
        let width = (PAGE_WIDTH - 2.0 * MARGIN - PANEL_GAP * (columns - 1.0)) / columns;
        for (column, panel) in row.iter().enumerate() {
            let left = MARGIN + (width + PANEL_GAP) * column as f64 + AXIS_WIDTH;
            let frame =
                Frame { left, top: y + 24.0, width: width - AXIS_WIDTH, height: FRAME_HEIGHT };
            let highest = if figure.one_scale { highest_of_all } else { highest(panel) };
            // Room above the highest bar for its number.
            let scale = Scale::up_to(highest * 1.04);
            draw_panel(drawing, panel, &frame, &scale, figure);
        }
        y += 24.0 + FRAME_HEIGHT + LABEL_HEIGHT;
    }
    y
}

/// How many panels stand in a row: as many as there are, but rows of about the same length.
fn abreast(panels: usize) -> usize {
    panels.div_ceil(panels.div_ceil(PANELS_ABREAST).max(1)).max(1)
}

/// Whether a figure is a lone panel with few bars, which would be lost in the width of the page.
fn keeps_to_half(figure: &Figure) -> bool {
    match figure.panels.as_slice() {
        [Panel { content: Content::Bars(groups), .. }] => groups.len() <= GROUPS_IN_HALF,
        _ => false,
    }
}

fn highest(panel: &Panel) -> f64 {
    match &panel.content {
        Content::Bars(groups) => bars::highest(groups),
        Content::Lines(values) => lines::highest(values),
    }
}

fn draw_panel(drawing: &mut Drawing, panel: &Panel, frame: &Frame, scale: &Scale, figure: &Figure) {
    let title = fitting(&panel.title, 15.0, frame.width);
    drawing.text(frame.left + frame.width / 2.0, frame.top - 22.0, &title, 15.0, Align::Center);
    frame.draw(drawing, scale, &figure.y_title);
    match &panel.content {
        Content::Bars(groups) => bars::draw(drawing, frame, scale, groups, figure.colors),
        Content::Lines(values) => lines::draw(drawing, frame, scale, values, figure.colors),
    }
}

/// Draws what colours and marks stand for, in as many rows as it takes; returns the last row's y.
pub(super) fn draw_legend(drawing: &mut Drawing, figure: &Figure, mut y: f64) -> f64 {
    let names = figure.series.iter().map(String::as_str).chain(figure.mark);
    let mut x = MARGIN;
    for (index, name) in names.enumerate() {
        let name = fitting(name, 14.0, 260.0);
        let width = 20.0 + text_width(&name, 14.0) + 24.0;
        if x + width > PAGE_WIDTH - MARGIN {
            (x, y) = (MARGIN, y + 22.0);
        }
        if index < figure.series.len() {
            drawing.filled(x, y - 6.0, 13.0, 13.0, color_of(figure.colors, index));
        } else {
            drawing.line(vec![(x - 2.0, y), (x + 15.0, y)], 2.5, INK);
        }
        drawing.text(x + 20.0, y, &name, 14.0, Align::Left);
        x += width;
    }
    y
}

#[cfg(test)]
mod tests {
    use super::super::figures::figures;
    use super::super::shapes::Colors;
    use super::*;
    use crate::sample;

    #[test]
    fn panels_stand_in_rows_of_like_length() {
        assert_eq!([1, 2, 3, 4, 5, 6, 7].map(abreast), [1, 2, 3, 2, 3, 3, 3]);
        assert_eq!(abreast(0), 1);
    }

    #[test]
    fn a_page_grows_with_its_figures() {
        let page = |results: Results| page(&results, &figures(&Summary::new(&results))).unwrap();
        let (one, two) = (page(sample::shares()), page(sample::sleep()));
        assert_eq!((one.width, two.width), (PAGE_WIDTH, PAGE_WIDTH));
        assert!(two.height > one.height + FRAME_HEIGHT);
    }

    #[test]
    fn a_long_legend_takes_more_rows() {
        let series = (0..40).map(|index| format!("virtual-machine-{index}")).collect();
        let (title, y_title) = (String::new(), String::new());
        let (colors, mark, panels) = (Colors::Vms, None, Vec::new());
        let figure = Figure { title, y_title, series, colors, mark, one_scale: true, panels };
        let mut drawing = Drawing { width: PAGE_WIDTH, height: 900.0, ..Drawing::default() };
        assert!(draw_legend(&mut drawing, &figure, 50.0) > 100.0);
        drawing.assert_texts_apart();
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! What a document's claims say, one below the other, and how far off each what was measured is.

use super::colors::{Color, FAINT_INK, GRID, of_standing};
use super::layout::{MARGIN, draw_legend};
use super::render::text_width;
use super::shapes::{Align, Drawing, wrapped};
use crate::summary::Spread;
use drover_scenario::claims::Standing;

/// A claim: its name, what is said and measured in words, the latter over the former, and how it stands.
pub(crate) struct Dot {
    pub(crate) label: String,
    pub(crate) said: String,
    pub(crate) measured: String,
    pub(crate) ratio: Spread,
    pub(crate) standing: Standing,
}

const PAGE_WIDTH: f64 = 860.0;
const ROW: f64 = 17.0;
const SIZE: f64 = 12.0;
/// The scale ends at this many times what is said, and at a part as small.
const MOST: f64 = 10.0;
const TICKS: [(f64, &str); 7] = [
    (0.1, "1/10"),
    (0.2, "1/5"),
    (0.5, "1/2"),
    (1.0, "as said"),
    (2.0, "2"),
    (5.0, "5"),
    (10.0, "10"),
];

/// The page; none where there are no claims.
pub(super) fn page(title: &str, dots: &[Dot]) -> Option<Drawing> {
    let widest = |text: fn(&Dot) -> &str, head: &str| {
        let widths = dots.iter().map(|dot| text_width(text(dot), SIZE));
        widths.fold(text_width(head, SIZE), f64::max)
    };
    if dots.is_empty() {
        return None;
    }
    let said = MARGIN + widest(|dot| &dot.label, "") + 14.0;
    let left = said + widest(|dot| &dot.said, "said") + 14.0;
    let measured = PAGE_WIDTH - MARGIN - widest(|dot| &dot.measured, "measured");
    let width = measured - 24.0 - left;
    let mut drawing = Drawing { width: PAGE_WIDTH, ..Drawing::default() };
    let mut y = 18.0;
    for line in wrapped(title, 17.0, PAGE_WIDTH - 2.0 * MARGIN) {
        y += 22.0;
        drawing.text(MARGIN, y, &line, 17.0, Align::Left);
    }
    let standings = [(Standing::Holds, "holds"), (Standing::Near, "near"), (Standing::Not, "not")];
    let series: Vec<(String, Color)> =
        standings.iter().map(|(it, word)| ((*word).to_owned(), of_standing(*it))).collect();
    let top = draw_legend(&mut drawing, &series, None, y + 26.0) + 34.0;
    let bottom = top + ROW * dots.len() as f64;
    let x = |ratio: f64| {
        let log = ratio.clamp(1.0 / MOST, MOST).log10() / MOST.log10();
        left + width * (log + 1.0) / 2.0
    };
    for (ratio, label) in TICKS {
        let color = if ratio == 1.0 { FAINT_INK } else { GRID };
        drawing.line(vec![(x(ratio), top - 4.0), (x(ratio), bottom)], 1.0, color);
        drawing.faint_text(x(ratio), top - 14.0, label, SIZE, Align::Center);
    }
    drawing.faint_text(said, top - 14.0, "said", SIZE, Align::Left);
    drawing.faint_text(measured, top - 14.0, "measured", SIZE, Align::Left);
    for (dot, y) in dots.iter().zip((0..).map(|row| top + ROW * (f64::from(row) + 0.5))) {
        let color = of_standing(dot.standing);
        drawing.text(MARGIN, y, &dot.label, SIZE, Align::Left);
        drawing.faint_text(said, y, &dot.said, SIZE, Align::Left);
        drawing.line(vec![(x(dot.ratio.min), y), (x(dot.ratio.max), y)], 1.5, color);
        drawing.filled(x(dot.ratio.median) - 4.0, y - 4.0, 8.0, 8.0, color);
        drawing.text(measured, y, &dot.measured, SIZE, Align::Left);
    }
    drawing.height = bottom + MARGIN;
    Some(drawing)
}

#[cfg(test)]
mod tests {
    use super::super::shapes::Shape;
    use super::*;

    #[test]
    fn each_claim_has_a_dot_and_its_whole_name() {
        let dot = |label: &str, median: f64, standing| Dot {
            label: label.to_owned(),
            said: ">= 1.05 of esx35".to_owned(),
            measured: format!("{median}"),
            ratio: Spread { median, min: median * 0.9, max: median * 1.1 },
            standing,
        };
        let long = "s331-throttle-fades-with-overcommit-and-more";
        let dots = [dot(long, 1.0, Standing::Holds), dot("b", 4000.0, Standing::Not)];
        let page = page("What is said, and measured", &dots).unwrap();
        page.assert_texts_apart();
        let squares: Vec<f64> = page.shapes.iter().filter_map(square).collect();
        assert!(squares[0] < squares[1], "{squares:?}");
        assert!(page.shapes.iter().any(|it| matches!(it, Shape::Text(text) if text.text == long)));
        assert!(super::page("nothing", &[]).is_none());
    }

    fn square(shape: &Shape) -> Option<f64> {
        match shape {
            Shape::Box { x, width: 8.0, .. } => Some(*x),
            _ => None,
        }
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! Draws groups of bars: a bar for the median, a whisker from least to most, a mark across for
//! what it should be.

use super::axis::{Frame, Scale};
use super::figures::{Bar, Group};
use super::render::text_width;
use super::shapes::{Align, Colors, Drawing, INK, color_of, fitting};
use crate::number::figure;

/// The widest a bar gets.
const BAR_WIDTH_MAX: f64 = 46.0;
/// Size of the numbers above bars.
const VALUE_SIZE: f64 = 11.0;
/// Size of what stands under groups.
const LABEL_SIZE: f64 = 13.0;

/// The highest value any of these bars or their marks has.
pub(super) fn highest(groups: &[Group]) -> f64 {
    let bars = groups.iter().flat_map(|group| &group.bars);
    bars.map(|bar| bar.value.max.max(bar.mark.unwrap_or(0.0))).fold(0.0, f64::max)
}

/// Draws the groups into the frame, their labels below it.
pub(super) fn draw(
    drawing: &mut Drawing,
    frame: &Frame,
    scale: &Scale,
    groups: &[Group],
    colors: Colors,
) {
    let slot = frame.width / groups.len().max(1) as f64;
    let most = groups.iter().map(|group| group.bars.len()).max().unwrap_or(1).max(1);
    let bar_width = (slot * 0.8 / most as f64).min(BAR_WIDTH_MAX);
    for (index, group) in groups.iter().enumerate() {
        let center = frame.left + slot * (index as f64 + 0.5);
        let first = center - bar_width * group.bars.len() as f64 / 2.0;
        for (position, bar) in group.bars.iter().enumerate() {
            let left = first + bar_width * position as f64;
            let top = draw_bar(drawing, frame, scale, bar, (left, bar_width), colors);
            let value = figure(bar.value.median);
            if text_width(&value, VALUE_SIZE) <= bar_width {
                let center = left + bar_width / 2.0;
                drawing.text(center, top - 9.0, &value, VALUE_SIZE, Align::Center);
            }
        }
        for (row, label) in group.labels.iter().enumerate().filter(|(_, label)| !label.is_empty()) {
            let y = frame.bottom() + 16.0 + 18.0 * row as f64;
            let label = fitting(label, LABEL_SIZE, slot - 4.0);
            drawing.text(center, y, &label, LABEL_SIZE, Align::Center);
        }
    }
}

/// Draws a bar with all that belongs to it between `left` and `left + width`; returns the y of its
/// upper end.
fn draw_bar(
    drawing: &mut Drawing,
    frame: &Frame,
    scale: &Scale,
    bar: &Bar,
    (left, width): (f64, f64),
    colors: Colors,
) -> f64 {
    let (gap, center) = (width * 0.08, left + width / 2.0);
    let top = frame.y(scale, bar.value.median);
    let color = color_of(colors, bar.series);
    drawing.filled(left + gap, top, width - 2.0 * gap, frame.bottom() - top, color);
    let mut upper_end = top;
    if bar.value.max > bar.value.min {
        let (low, high) = (frame.y(scale, bar.value.min), frame.y(scale, bar.value.max));
        drawing.line(vec![(center, low), (center, high)], 1.5, INK);
        for end in [low, high] {
            drawing.line(vec![(center - 4.0, end), (center + 4.0, end)], 1.5, INK);
        }
        upper_end = upper_end.min(high);
    }
    if let Some(mark) = bar.mark {
        let (y, inset) = (frame.y(scale, mark), gap / 2.0);
        drawing.line(vec![(left + inset, y), (left + width - inset, y)], 2.5, INK);
        upper_end = upper_end.min(y);
    }
    upper_end
}

#[cfg(test)]
mod tests {
    use super::super::shapes::Shape;
    use super::*;
    use crate::summary::Spread;

    const FRAME: Frame = Frame { left: 0.0, top: 0.0, width: 100.0, height: 100.0 };

    fn group(values: &[f64], mark: Option<f64>) -> Group {
        let bar = Bar { series: 0, value: Spread::of(values).unwrap(), mark };
        Group { labels: ["1:7".to_owned(), String::new()], bars: vec![bar] }
    }

    fn shapes(group: Group) -> Vec<Shape> {
        let mut drawing = Drawing::default();
        draw(&mut drawing, &FRAME, &Scale::up_to(100.0), &[group], Colors::Vms);
        drawing.shapes
    }

    #[test]
    fn the_scale_must_reach_whiskers_and_marks() {
        assert_eq!(highest(&[group(&[10.0, 30.0], None), group(&[5.0], Some(20.0))]), 30.0);
        assert_eq!(highest(&[group(&[5.0], Some(50.0))]), 50.0);
        assert_eq!(highest(&[]), 0.0);
    }

    #[test]
    fn a_bar_stands_on_the_bottom_and_ends_at_its_value() {
        let shapes = shapes(group(&[25.0], None));
        let Shape::Box { y, height, width, .. } = &shapes[0] else { panic!("{shapes:?}") };
        assert_eq!((*y, *height), (75.0, 25.0));
        assert!(*width <= BAR_WIDTH_MAX);
    }

    #[test]
    fn only_repeats_have_whiskers_and_only_what_is_owed_a_mark() {
        let lines = |group: Group| {
            shapes(group).iter().filter(|shape| matches!(shape, Shape::Line { .. })).count()
        };
        assert_eq!(lines(group(&[25.0], None)), 0);
        assert_eq!(lines(group(&[25.0], Some(20.0))), 1);
        assert_eq!(lines(group(&[25.0, 30.0], None)), 3, "a stem and two ends");
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! Draws groups of bars: a bar for the median with its number at the end, a whisker from least to most, a
//! mark across for what it should be.
//!
//! Bars stand where all labels and numbers have room below and above them; else they lie, labels at their left.

use super::axis::{Frame, Scale};
use super::colors::{INK, PAPER};
use super::figures::{Bar, Group};
use super::render::text_width;
use super::shapes::{Align, Drawing, wrapped};
use crate::number::figure;

/// The widest a bar gets that stands.
const BAR_WIDTH_MAX: f64 = 44.0;
/// Height of a bar that lies.
const BAR_HEIGHT: f64 = 18.0;
/// From one group of lying bars to the next.
const GROUP_GAP: f64 = 9.0;
/// Size of the numbers at bars.
const VALUE_SIZE: f64 = 12.0;
/// Size of what stands under groups, or at their left.
const LABEL_SIZE: f64 = 13.0;
/// From one line of a label to the next.
const LABEL_LINE: f64 = 17.0;
/// The widest a label gets at the left.
const LABEL_WIDTH_MAX: f64 = 210.0;

/// The highest value any of these bars or their marks has.
pub(super) fn highest(groups: &[Group]) -> f64 {
    let bars = groups.iter().flat_map(|group| &group.bars);
    bars.map(|bar| bar.value.max.max(bar.mark.unwrap_or(0.0))).fold(0.0, f64::max)
}

/// Room for a group, and for each of its bars, where they stand in this width.
fn standing(groups: &[Group], width: f64) -> (f64, f64) {
    let slot = width / groups.len().max(1) as f64;
    let most = groups.iter().map(|group| group.bars.len()).max().unwrap_or(1).max(1);
    (slot, (slot * 0.8 / most as f64).min(BAR_WIDTH_MAX))
}

fn numbers(groups: &[Group]) -> impl Iterator<Item = f64> {
    let bars = groups.iter().flat_map(|group| &group.bars);
    bars.map(|bar| text_width(&figure(bar.value.median), VALUE_SIZE))
}

/// Whether all labels and numbers have room where bars stand in this width.
pub(super) fn may_stand(groups: &[Group], width: f64) -> bool {
    let (slot, bar_width) = standing(groups, width);
    let mut labels = groups.iter().flat_map(|group| &group.labels);
    labels.all(|label| text_width(label, LABEL_SIZE) <= slot - 6.0)
        && numbers(groups).all(|width| width <= bar_width)
}

/// The lines at the left of a group that lies.
fn lines(group: &Group) -> Vec<String> {
    let labels = group.labels.iter().filter(|label| !label.is_empty());
    labels.flat_map(|label| wrapped(label, LABEL_SIZE, LABEL_WIDTH_MAX)).collect()
}

/// The height of a group that lies.
fn lying(group: &Group) -> f64 {
    let lines = LABEL_LINE * lines(group).len() as f64;
    lines.max(BAR_HEIGHT * group.bars.len() as f64) + GROUP_GAP
}

/// Room that lying groups need: at the left, at the right, and their height.
pub(super) fn room(groups: &[Group]) -> (f64, f64, f64) {
    let labels = groups.iter().flat_map(lines);
    let left = labels.map(|line| text_width(&line, LABEL_SIZE)).fold(0.0, f64::max) + 10.0;
    let right = numbers(groups).fold(0.0, f64::max) + 18.0;
    (left, right, groups.iter().map(lying).sum())
}

/// Draws the groups into the frame, their labels below it or at its left.
pub(super) fn draw(drawing: &mut Drawing, frame: &Frame, scale: &Scale, groups: &[Group]) {
    let (slot, bar_width) = standing(groups, frame.width);
    let bar_width = if frame.lies { BAR_HEIGHT } else { bar_width };
    let mut begin = if frame.lies { frame.top } else { frame.left };
    for group in groups {
        let slot = if frame.lies { lying(group) } else { slot };
        let center = begin + slot / 2.0;
        begin += slot;
        let first = center - bar_width * group.bars.len() as f64 / 2.0;
        for (position, bar) in group.bars.iter().enumerate() {
            draw_bar(drawing, frame, scale, bar, (first + bar_width * position as f64, bar_width));
        }
        if frame.lies {
            let lines = lines(group);
            let top = center - LABEL_LINE * (lines.len() as f64 - 1.0) / 2.0;
            for (row, line) in lines.iter().enumerate() {
                let y = top + LABEL_LINE * row as f64;
                drawing.text(frame.left - 8.0, y, line, LABEL_SIZE, Align::Right);
            }
        } else {
            for (row, label) in group.labels.iter().enumerate().filter(|it| !it.1.is_empty()) {
                let y = frame.bottom() + 16.0 + 18.0 * row as f64;
                drawing.text(center, y, label, LABEL_SIZE, Align::Center);
            }
        }
    }
}

/// Draws a bar with all that belongs to it, from `from` on as wide as it is.
fn draw_bar(
    drawing: &mut Drawing,
    frame: &Frame,
    scale: &Scale,
    bar: &Bar,
    (from, width): (f64, f64),
) {
    let (gap, center) = (width * 0.08, from + width / 2.0);
    let reach = |value: f64| frame.reach(scale, value);
    let length = reach(bar.value.median);
    let (one, other) = (frame.point(0.0, from + gap), frame.point(length, from + width - gap));
    let size = ((other.0 - one.0).abs(), (other.1 - one.1).abs());
    drawing.filled(one.0.min(other.0), one.1.min(other.1), size.0, size.1, bar.color);
    let mut end = length;
    if bar.value.max > bar.value.min {
        let (low, high) = (reach(bar.value.min), reach(bar.value.max));
        drawing.line(vec![frame.point(low, center), frame.point(high, center)], 1.5, INK);
        for end in [low, high] {
            let across = [center - 4.0, center + 4.0].map(|at| frame.point(end, at));
            drawing.line(across.to_vec(), 1.5, INK);
        }
        end = end.max(high);
    }
    if let Some(mark) = bar.mark.map(reach) {
        let ends = [from + gap / 2.0, from + width - gap / 2.0].map(|at| frame.point(mark, at));
        drawing.line(ends.to_vec(), 5.0, PAPER);
        drawing.line(ends.to_vec(), 2.5, INK);
    }
    draw_number(drawing, frame, bar, (end, bar.mark.map(reach)), center);
}

/// Writes a bar's number where it ends, or behind its mark where the mark would cross it.
fn draw_number(
    drawing: &mut Drawing,
    frame: &Frame,
    bar: &Bar,
    (end, mark): (f64, Option<f64>),
    center: f64,
) {
    let value = figure(bar.value.median);
    let length = if frame.lies { text_width(&value, VALUE_SIZE) + 5.0 } else { VALUE_SIZE };
    let crossed = mark.filter(|mark| (end - 3.0..=end + length + 5.0).contains(mark));
    let end = crossed.unwrap_or(end).max(end);
    if frame.lies {
        let (x, y) = frame.point(end + 5.0, center);
        drawing.text(x, y, &value, VALUE_SIZE, Align::Left);
    } else {
        let (x, y) = frame.point(end + 9.0, center);
        drawing.text(x, y, &value, VALUE_SIZE, Align::Center);
    }
}

#[cfg(test)]
mod tests {
    use super::super::colors::of_vm;
    use super::super::shapes::{Shape, Text};
    use super::*;
    use crate::summary::Spread;

    const FRAME: Frame = Frame { left: 0.0, top: 0.0, width: 100.0, height: 100.0, lies: false };

    fn group(values: &[f64], mark: Option<f64>) -> Group {
        let bar = Bar { color: of_vm(0), value: Spread::of(values).unwrap(), mark };
        Group { labels: ["1:7".to_owned(), String::new()], bars: vec![bar] }
    }

    fn shapes(group: Group, lies: bool) -> Vec<Shape> {
        let mut drawing = Drawing::default();
        draw(&mut drawing, &Frame { lies, ..FRAME }, &Scale::up_to(100.0), &[group]);
        drawing.shapes
    }

    /// Where the number of a bar is, and its text.
    fn number(shapes: &[Shape]) -> Text {
        let text = shapes.iter().find_map(|shape| match shape {
            Shape::Text(text) if text.text != "1:7" => Some(text.clone()),
            _ => None,
        });
        text.unwrap()
    }

    #[test]
    fn the_scale_must_reach_whiskers_and_marks() {
        assert_eq!(highest(&[group(&[10.0, 30.0], None), group(&[5.0], Some(20.0))]), 30.0);
        assert_eq!(highest(&[group(&[5.0], Some(50.0))]), 50.0);
        assert_eq!(highest(&[]), 0.0);
    }

    #[test]
    fn a_bar_begins_at_0_and_ends_at_its_value() {
        let (standing, lying) =
            (shapes(group(&[25.0], None), false), shapes(group(&[25.0], None), true));
        let Shape::Box { y, height, width, .. } = &standing[0] else { panic!("{standing:?}") };
        assert_eq!((*y, *height), (75.0, 25.0));
        assert!(*width <= BAR_WIDTH_MAX);
        let Shape::Box { x, width, height, .. } = &lying[0] else { panic!("{lying:?}") };
        assert_eq!((*x, *width), (0.0, 25.0));
        assert!(*height <= BAR_HEIGHT);
    }

    #[test]
    fn only_repeats_have_whiskers_and_only_what_is_owed_a_mark() {
        let lines = |group: Group| {
            let shapes = shapes(group, false);
            shapes.iter().filter(|shape| matches!(shape, Shape::Line { .. })).count()
        };
        assert_eq!(lines(group(&[25.0], None)), 0);
        assert_eq!(lines(group(&[25.0], Some(20.0))), 2, "on paper of its own");
        assert_eq!(lines(group(&[25.0, 30.0], None)), 3, "a stem and two ends");
    }

    #[test]
    fn a_number_is_where_its_bar_ends_however_far_off_the_mark_is() {
        let lying = |mark| number(&shapes(group(&[10.0], mark), true)).x;
        assert_eq!((lying(None), lying(Some(90.0)), lying(Some(5.0))), (15.0, 15.0, 15.0));
        assert_eq!(lying(Some(20.0)), 25.0, "a mark that would cross it is passed");
        let standing = |mark| number(&shapes(group(&[10.0], mark), false)).y;
        assert_eq!((standing(None), standing(Some(45.0))), (81.0, 81.0));
        assert_eq!(standing(Some(18.0)), 73.0);
    }

    #[test]
    fn bars_lie_where_labels_have_no_room_below() {
        let named = |label: &str| {
            let labels = [label.to_owned(), String::new()];
            Group { labels, ..group(&[1234.0], None) }
        };
        assert!(may_stand(&[named("1:7"), named("2:6")], 200.0));
        assert!(!may_stand(&[named("jbb 4 x 1 beside others"), named("2:6")], 200.0));
        assert!(!may_stand(&[named("1:7"), named("2:6")], 60.0), "no room for numbers");
        let (left, right, height) =
            room(&[named("a label that is longer than there is room at the left")]);
        assert!(left <= LABEL_WIDTH_MAX + 10.0 && right > 30.0);
        assert_eq!(height, 2.0 * LABEL_LINE + GROUP_GAP);
    }
}

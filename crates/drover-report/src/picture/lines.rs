// SPDX-License-Identifier: GPL-2.0-only
//! Draws values over time.

use super::axis::{Frame, Scale};
use super::figures::Line;
use super::shapes::{Align, Drawing};

/// The highest value of these lines.
pub(super) fn highest(lines: &[Line]) -> f64 {
    lines.iter().flat_map(|line| &line.points).map(|(_, value)| *value).fold(0.0, f64::max)
}

/// Draws the lines into the frame, seconds below it.
pub(super) fn draw(drawing: &mut Drawing, frame: &Frame, scale: &Scale, lines: &[Line]) {
    let points = lines.iter().flat_map(|line| &line.points);
    let seconds = Scale::up_to(points.map(|(at_s, _)| *at_s).fold(0.0, f64::max));
    let x = |at_s: f64| frame.left + frame.width * at_s / seconds.top;
    for line in lines {
        let points = line.points.iter().map(|(at_s, value)| (x(*at_s), frame.y(scale, *value)));
        drawing.line(points.collect(), 2.0, line.color);
    }
    for tick in seconds.ticks() {
        let label = seconds.label(tick);
        drawing.text(x(tick), frame.bottom() + 16.0, &label, 12.0, Align::Center);
    }
    let center = frame.left + frame.width / 2.0;
    drawing.faint_text(center, frame.bottom() + 34.0, "s of measured time", 13.0, Align::Center);
}

#[cfg(test)]
mod tests {
    use super::super::{colors::of_vm, shapes::Shape};
    use super::*;

    #[test]
    fn a_line_goes_through_its_points() {
        let lines = [Line { color: of_vm(0), points: vec![(0.0, 0.0), (2.0, 50.0), (4.0, 100.0)] }];
        assert_eq!(highest(&lines), 100.0);
        let frame = Frame { left: 10.0, top: 0.0, width: 100.0, height: 200.0, lies: false };
        let mut drawing = Drawing::default();
        draw(&mut drawing, &frame, &Scale::up_to(100.0), &lines);
        let Shape::Line { points, .. } = &drawing.shapes[0] else { panic!("no line") };
        assert_eq!(*points, [(10.0, 200.0), (60.0, 100.0), (110.0, 0.0)]);
    }

    #[test]
    fn nothing_recorded_has_no_height() {
        assert_eq!(highest(&[]), 0.0);
        assert_eq!(highest(&[Line { color: of_vm(0), points: Vec::new() }]), 0.0);
    }
}

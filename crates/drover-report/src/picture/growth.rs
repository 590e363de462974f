// SPDX-License-Identifier: GPL-2.0-only
//! Draws how a cost grows with the size of things, sizes on a logarithmic scale: what grows with the
//! logarithm is a straight line.

use super::axis::{Frame, Scale};
use super::colors::of_vm;
use super::layout::{MARGIN, PAGE_WIDTH, draw_legend};
use super::shapes::{Align, Drawing, wrapped};

/// One line: its name, and its sizes and costs.
pub type Curve = (String, Vec<(u32, f64)>);

const HEIGHT: f64 = 260.0;
const AXIS_WIDTH: f64 = 84.0;

/// The page; none where there are no points.
pub(super) fn page(title: &str, x_title: &str, y_title: &str, curves: &[Curve]) -> Option<Drawing> {
    let points = || curves.iter().flat_map(|(_, points)| points);
    let least = f64::from(points().map(|(size, _)| *size).min()?.max(1)).log2();
    let most = f64::from(points().map(|(size, _)| *size).max()?).log2().max(least + 1.0);
    let mut drawing = Drawing { width: PAGE_WIDTH, ..Drawing::default() };
    let mut y = 18.0;
    for line in wrapped(title, 17.0, PAGE_WIDTH - 2.0 * MARGIN) {
        y += 22.0;
        drawing.text(MARGIN, y, &line, 17.0, Align::Left);
    }
    let series = curves.iter().enumerate();
    let series: Vec<_> = series.map(|(number, it)| (it.0.clone(), of_vm(number))).collect();
    let top = draw_legend(&mut drawing, &series, None, y + 26.0) + 26.0;
    let left = MARGIN + AXIS_WIDTH;
    // Room for half a number on the right.
    let (width, height) = (PAGE_WIDTH - 2.0 * MARGIN - left, HEIGHT);
    let frame = Frame { left, top, width, height, lies: false };
    drawing.height = frame.bottom() + 56.0;
    let scale = Scale::up_to(points().map(|(_, cost)| *cost).fold(0.0, f64::max));
    frame.draw(&mut drawing, &scale, y_title);
    let x = |log: f64| frame.left + frame.width * (log - least) / (most - least);
    for (number, (_, points)) in curves.iter().enumerate() {
        let place =
            |(size, cost): &(u32, f64)| (x(f64::from(*size).log2()), frame.y(&scale, *cost));
        let color = of_vm(number);
        drawing.line(points.iter().map(place).collect(), 2.0, color);
        for (x, y) in points.iter().map(place) {
            drawing.filled(x - 3.0, y - 3.0, 6.0, 6.0, color);
        }
    }
    for power in least.ceil() as u32..=most.floor() as u32 {
        let label = crate::number::count(f64::from(1u32 << power));
        drawing.text(x(f64::from(power)), frame.bottom() + 16.0, &label, 12.0, Align::Center);
    }
    let center = frame.left + frame.width / 2.0;
    drawing.faint_text(center, frame.bottom() + 38.0, x_title, 13.0, Align::Center);
    Some(drawing)
}

#[cfg(test)]
mod tests {
    use super::super::shapes::Shape;
    use super::*;

    #[test]
    fn what_grows_with_the_logarithm_is_straight() {
        let points = [4, 64, 1024].map(|size: u32| (size, 10.0 * f64::from(size).log2()));
        let page = page("growth", "pCPUs", "ns", &[("cost".to_owned(), points.to_vec())]).unwrap();
        let line = page.shapes.iter().rev().find_map(|shape| match shape {
            Shape::Line { points, .. } if points.len() == 3 => Some(points.clone()),
            _ => None,
        });
        let [a, b, c] = line.unwrap()[..] else { panic!("three points") };
        assert!((b.0 - a.0 - (c.0 - b.0)).abs() < 1e-9 && (a.1 - b.1 - (b.1 - c.1)).abs() < 1e-9);
        page.assert_texts_apart();
        assert!(super::page("nothing", "", "", &[]).is_none());
    }
}

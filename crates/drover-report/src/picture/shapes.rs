// SPDX-License-Identifier: GPL-2.0-only
//! The shapes a picture is made of, and the page that collects them.
//!
//! Units are those of the SVG; y grows downwards, as in every picture format.

use super::render;

/// Red, green, blue.
pub(super) type Color = (u8, u8, u8);

pub(super) const INK: Color = (40, 40, 40);
pub(super) const FAINT_INK: Color = (95, 95, 95);
pub(super) const GRID: Color = (225, 225, 225);

/// Colours that people with any kind of colour vision tell apart (Okabe and Ito's).
const PALETTE: [Color; 8] = [
    (0, 114, 178),
    (230, 159, 0),
    (0, 158, 115),
    (204, 121, 167),
    (86, 180, 233),
    (213, 94, 0),
    (240, 228, 66),
    (140, 140, 140),
];

/// What the colours of a figure tell apart.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Colors {
    Vms,
    /// The first of them, which the others are compared with, is grey.
    Schedulers,
}

/// The colour of the series with this number.
pub(super) fn color_of(colors: Colors, series: usize) -> Color {
    let first = match colors {
        Colors::Vms => 0,
        Colors::Schedulers => PALETTE.len() - 1,
    };
    PALETTE[(first + series) % PALETTE.len()]
}

/// Where a text stands relative to its point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Align {
    Left,
    Center,
    Right,
}

/// A text with its point at half its height.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Text {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) text: String,
    pub(super) size: f64,
    pub(super) color: Color,
    pub(super) align: Align,
    /// Turned to be read from the right, as the title of a vertical axis.
    pub(super) upright: bool,
}

/// One shape.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Shape {
    Box { x: f64, y: f64, width: f64, height: f64, color: Color },
    Line { points: Vec<(f64, f64)>, width: f64, color: Color },
    Text(Text),
}

/// A page with shapes, later ones above earlier ones.
#[derive(Debug, Default)]
pub(super) struct Drawing {
    pub(super) width: f64,
    pub(super) height: f64,
    pub(super) shapes: Vec<Shape>,
}

impl Drawing {
    pub(super) fn filled(&mut self, x: f64, y: f64, width: f64, height: f64, color: Color) {
        self.shapes.push(Shape::Box { x, y, width, height, color });
    }

    pub(super) fn line(&mut self, points: Vec<(f64, f64)>, width: f64, color: Color) {
        self.shapes.push(Shape::Line { points, width, color });
    }

    pub(super) fn text(&mut self, x: f64, y: f64, text: &str, size: f64, align: Align) {
        let (text, color, upright) = (text.to_owned(), INK, false);
        self.shapes.push(Shape::Text(Text { x, y, text, size, color, align, upright }));
    }

    pub(super) fn faint_text(&mut self, x: f64, y: f64, text: &str, size: f64, align: Align) {
        let (text, color, upright) = (text.to_owned(), FAINT_INK, false);
        self.shapes.push(Shape::Text(Text { x, y, text, size, color, align, upright }));
    }

    pub(super) fn upright_text(&mut self, x: f64, y: f64, text: &str, size: f64) {
        let (text, color, align) = (text.to_owned(), FAINT_INK, Align::Center);
        self.shapes.push(Shape::Text(Text { x, y, text, size, color, align, upright: true }));
    }
}

/// `text` cut down until it is at most `width` wide.
pub(super) fn fitting(text: &str, size: f64, width: f64) -> String {
    let mut length = text.chars().count();
    let mut short = text.to_owned();
    while length > 1 && render::text_width(&short, size) > width {
        length -= 1;
        short = crate::number::shorten(text, length);
    }
    short
}

#[cfg(test)]
impl Text {
    /// Left, top, right, bottom.
    fn bounds(&self) -> (f64, f64, f64, f64) {
        let (length, thickness) = (render::text_width(&self.text, self.size), self.size * 0.8);
        let (width, height) = if self.upright { (thickness, length) } else { (length, thickness) };
        let left = match self.align {
            _ if self.upright => self.x - width / 2.0,
            Align::Left => self.x,
            Align::Center => self.x - width / 2.0,
            Align::Right => self.x - width,
        };
        (left, self.y - height / 2.0, left + width, self.y + height / 2.0)
    }
}

#[cfg(test)]
impl Drawing {
    /// Panics when two texts overlap or one leaves the page.
    pub(super) fn assert_texts_apart(&self) {
        let texts: Vec<&Text> = self
            .shapes
            .iter()
            .filter_map(|shape| match shape {
                Shape::Text(text) => Some(text),
                _ => None,
            })
            .collect();
        for (index, text) in texts.iter().enumerate() {
            let (left, top, right, bottom) = text.bounds();
            let inside = left >= 0.0 && top >= 0.0 && right <= self.width && bottom <= self.height;
            assert!(inside, "{:?} leaves the page", text.text);
            for other in &texts[index + 1..] {
                let (other_left, other_top, other_right, other_bottom) = other.bounds();
                let apart = right <= other_left
                    || other_right <= left
                    || bottom <= other_top
                    || other_bottom <= top;
                assert!(apart, "{:?} overlaps {:?}", text.text, other.text);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_to_fit() {
        assert_eq!(fitting("drover", 14.0, 500.0), "drover");
        let short = fitting("a rather long name", 14.0, 60.0);
        assert!(short.contains('~') && render::text_width(&short, 14.0) <= 60.0, "{short}");
        assert_eq!(fitting("ab", 14.0, 0.0), "~", "something is always left");
    }

    #[test]
    #[should_panic(expected = "overlaps")]
    fn overlapping_texts_are_noticed() {
        let mut drawing = Drawing { width: 100.0, height: 100.0, shapes: Vec::new() };
        drawing.text(10.0, 50.0, "one", 14.0, Align::Left);
        drawing.text(20.0, 52.0, "two", 14.0, Align::Left);
        drawing.assert_texts_apart();
    }
}

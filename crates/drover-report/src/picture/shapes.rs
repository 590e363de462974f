// SPDX-License-Identifier: GPL-2.0-only
//! The shapes a picture is made of, and the page that collects them.
//!
//! Units are those of the SVG; y grows downwards, as in every picture format.

use super::colors::{Color, FAINT_INK, INK};
use super::render;

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

/// `text` in lines that are at most `width` wide, broken between words, and within one that is wider.
pub(super) fn wrapped(text: &str, size: f64, width: f64) -> Vec<String> {
    let fits = |line: &str| render::text_width(line, size) <= width;
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split(' ') {
        let longer = if line.is_empty() { word.to_owned() } else { format!("{line} {word}") };
        if fits(&longer) {
            line = longer;
            continue;
        }
        lines.extend((!line.is_empty()).then(|| std::mem::take(&mut line)));
        for letter in word.chars() {
            if !line.is_empty() && !fits(&format!("{line}{letter}")) {
                lines.push(std::mem::take(&mut line));
            }
            line.push(letter);
        }
    }
    lines.push(line);
    lines
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
    fn labels_are_broken_not_cut() {
        assert_eq!(wrapped("drover", 14.0, 500.0), ["drover"]);
        let lines = wrapped("jbb 4 x 1, over credit", 14.0, 80.0);
        assert_eq!(lines.join(" "), "jbb 4 x 1, over credit");
        assert!(lines.len() > 1 && lines.iter().all(|line| render::text_width(line, 14.0) <= 80.0));
        assert_eq!(wrapped("virtualmachine", 14.0, 50.0).concat(), "virtualmachine");
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

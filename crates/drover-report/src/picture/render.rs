// SPDX-License-Identifier: GPL-2.0-only
//! Hands shapes to the plotting crate: once for SVG, once for PNG.
//!
//! The font comes with the program, so that a picture needs no fonts on the machine that draws it.

use super::PictureError;
use super::colors::{self, Color, PAPER};
use super::shapes::{Align, Drawing, Shape, Text};
use plotters::backend::{BitMapBackend, DrawingBackend, SVGBackend};
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters::element::{PathElement, Rectangle, Text as TextElement};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{
    Color as _, FontStyle, FontTransform, IntoFont, RGBColor, TextStyle, register_font,
};
use std::sync::Once;

/// Pixels of a PNG for each unit of the page: sharp on today's screens.
const PNG_SCALE: f64 = 2.0;

const FONT: &str = "sans-serif";

/// The plotting crate's size of a font for each unit of the letters' em.
const FONT_SIZE: f64 = 1.24;

/// How much lower a text must stand in a bitmap, by its size: there the plotting crate centres the
/// line with the room under it, in an SVG the letters.
const BITMAP_TEXT_DROP: f64 = 0.1;

fn font_ready() {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        // Only a broken font is refused, and this one is part of the program.
        let registered = register_font(FONT, FontStyle::Normal, dejavu::sans::regular());
        assert!(registered.is_ok(), "the built-in font is whole");
    });
}

/// Width of a text in units of the page.
pub(super) fn text_width(text: &str, size: f64) -> f64 {
    font_ready();
    let measured = (FONT, size * FONT_SIZE).into_font().box_size(text);
    measured.map_or(0.0, |(width, _)| f64::from(width))
}

pub(super) fn svg(drawing: &Drawing) -> Result<String, PictureError> {
    let mut text = String::new();
    let size = (drawing.width.ceil() as u32, drawing.height.ceil() as u32);
    draw(drawing, &SVGBackend::with_string(&mut text, size).into_drawing_area(), 1.0, 0.0)?;
    let body = text.find('>').map_or(0, |end| end + 1);
    text.insert_str(body, &colors::style());
    Ok(text)
}

pub(super) fn png(drawing: &Drawing) -> Result<Vec<u8>, PictureError> {
    let pixels = |length: f64| (length * PNG_SCALE).ceil() as u32;
    let (width, height) = (pixels(drawing.width), pixels(drawing.height));
    let mut rgb = vec![0; width as usize * height as usize * 3];
    let backend = BitMapBackend::with_buffer(&mut rgb, (width, height));
    draw(drawing, &backend.into_drawing_area(), PNG_SCALE, BITMAP_TEXT_DROP)?;
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let written = encoder.write_header().and_then(|mut writer| writer.write_image_data(&rgb));
    written.map_err(|error| PictureError(error.to_string()))?;
    Ok(bytes)
}

fn draw<Backend: DrawingBackend>(
    drawing: &Drawing,
    area: &DrawingArea<Backend, Shift>,
    scale: f64,
    text_drop: f64,
) -> Result<(), PictureError> {
    font_ready();
    let at = |x: f64, y: f64| ((x * scale).round() as i32, (y * scale).round() as i32);
    let mut drawn = area.fill(&rgb(PAPER));
    for shape in &drawing.shapes {
        drawn = drawn.and_then(|()| match shape {
            Shape::Box { x, y, width, height, color } => {
                let corners = [at(*x, *y), at(x + width, y + height)];
                area.draw(&Rectangle::new(corners, rgb(*color).filled()))
            }
            Shape::Line { points, width, color } => {
                let points: Vec<_> = points.iter().map(|(x, y)| at(*x, *y)).collect();
                let stroke = (width * scale).round().max(1.0) as u32;
                area.draw(&PathElement::new(points, rgb(*color).stroke_width(stroke)))
            }
            Shape::Text(text) => {
                let drop = text.size * text_drop;
                let (x, y) =
                    if text.upright { (text.x + drop, text.y) } else { (text.x, text.y + drop) };
                area.draw(&TextElement::new(text.text.as_str(), at(x, y), style_of(text, scale)))
            }
        });
    }
    drawn.and_then(|()| area.present()).map_err(|error| PictureError(error.to_string()))
}

fn style_of(text: &Text, scale: f64) -> TextStyle<'static> {
    let across = match text.align {
        Align::Left => HPos::Left,
        Align::Center => HPos::Center,
        Align::Right => HPos::Right,
    };
    let font = (FONT, text.size * FONT_SIZE * scale).into_font();
    let font = if text.upright { font.transform(FontTransform::Rotate270) } else { font };
    let mut style = TextStyle::from(font).pos(Pos::new(across, VPos::Center));
    style.color = rgb(text.color).to_backend_color();
    style
}

fn rgb((red, green, blue): Color) -> RGBColor {
    RGBColor(red, green, blue)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_a_width() {
        let (short, long) = (text_width("eevdf", 14.0), text_width("scx_bpfland", 14.0));
        assert!(short > 20.0 && long > 1.5 * short, "{short} {long}");
        assert_eq!(text_width("", 14.0), 0.0);
    }

    #[test]
    fn a_png_has_two_pixels_for_each_unit() {
        let mut drawing = Drawing { width: 30.0, height: 20.0, shapes: Vec::new() };
        drawing.filled(10.0, 5.0, 10.0, 10.0, (255, 0, 0));
        let bytes = png(&drawing).unwrap();
        let decoder = png::Decoder::new(std::io::Cursor::new(bytes));
        let mut reader = decoder.read_info().unwrap();
        let mut rgb = vec![0; reader.output_buffer_size().unwrap()];
        reader.next_frame(&mut rgb).unwrap();
        assert_eq!((reader.info().width, reader.info().height), (60, 40));
        let pixel = |x: usize, y: usize| &rgb[3 * (60 * y + x)..][..3];
        assert_eq!((pixel(30, 20), pixel(10, 20)), (&[255, 0, 0][..], &[255, 255, 255][..]));
    }
}

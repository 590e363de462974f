// SPDX-License-Identifier: GPL-2.0-only
//! A scale from 0 up, with round numbers on it, and the frame of a panel.

use super::colors::{FAINT_INK, GRID};
use super::render::text_width;
use super::shapes::{Align, Drawing};

/// Size of the numbers on an axis.
const TICK_SIZE: f64 = 12.0;
/// Size of what the axis is of.
const TITLE_SIZE: f64 = 13.0;

/// A scale from 0 to a round number above all values.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Scale {
    pub(super) top: f64,
    step: f64,
}

impl Scale {
    /// The scale for values up to `highest`, with 4 to 7 round numbers.
    pub(super) fn up_to(highest: f64) -> Self {
        let highest = if highest > 0.0 && highest.is_finite() { highest } else { 1.0 };
        let magnitude = 10f64.powf((highest / 4.0).log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * magnitude);
        let fits = |step: &&f64| highest / **step <= 6.0;
        let step = *steps.iter().find(fits).unwrap_or(&steps[3]);
        Self { top: (highest / step - 1e-9).ceil() * step, step }
    }

    /// The round numbers, 0 first.
    pub(super) fn ticks(&self) -> Vec<f64> {
        (0..=(self.top / self.step).round() as u32)
            .map(|index| f64::from(index) * self.step)
            .collect()
    }

    /// A round number as text, with as many decimals as the step needs.
    pub(super) fn label(&self, tick: f64) -> String {
        let decimals = (-self.step.log10().floor()).clamp(0.0, 9.0) as usize;
        if decimals == 0 { crate::number::count(tick) } else { format!("{tick:.decimals$}") }
    }
}

/// The rectangle within which values are drawn, from its bottom up or, where it lies, from its left.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Frame {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) width: f64,
    pub(super) height: f64,
    pub(super) lies: bool,
}

impl Frame {
    pub(super) fn bottom(&self) -> f64 {
        self.top + self.height
    }

    /// How far from 0 `value` is.
    pub(super) fn reach(&self, scale: &Scale, value: f64) -> f64 {
        let whole = if self.lies { self.width } else { self.height };
        whole * (value / scale.top).clamp(0.0, 1.0)
    }

    /// The point that is `reach` from 0, and `across` on the other axis.
    pub(super) fn point(&self, reach: f64, across: f64) -> (f64, f64) {
        if self.lies { (self.left + reach, across) } else { (across, self.bottom() - reach) }
    }

    /// Where `value` stands.
    pub(super) fn y(&self, scale: &Scale, value: f64) -> f64 {
        self.bottom() - self.reach(scale, value)
    }

    /// Draws the lines of the scale, its numbers and its title.
    pub(super) fn draw(&self, drawing: &mut Drawing, scale: &Scale, title: &str) {
        let ticks = scale.ticks();
        let widest = ticks.iter().map(|tick| text_width(&scale.label(*tick), TICK_SIZE));
        let room = self.width / (ticks.len() - 1) as f64;
        let every = if self.lies { (widest.fold(0.0, f64::max) + 8.0) / room } else { 1.0 };
        let (from, to) =
            if self.lies { (self.top, self.bottom()) } else { (self.left, self.left + self.width) };
        for (index, &tick) in ticks.iter().enumerate() {
            let reach = self.reach(scale, tick);
            let color = if tick == 0.0 { FAINT_INK } else { GRID };
            drawing.line(vec![self.point(reach, from), self.point(reach, to)], 1.0, color);
            let label = scale.label(tick);
            match self.point(reach, from) {
                (x, _) if self.lies => {
                    if index % every.ceil() as usize == 0 {
                        let y = self.bottom() + 12.0;
                        drawing.faint_text(x, y, &label, TICK_SIZE, Align::Center);
                    }
                }
                (x, y) => drawing.faint_text(x - 8.0, y, &label, TICK_SIZE, Align::Right),
            }
        }
        if self.lies {
            let center = self.left + self.width / 2.0;
            drawing.faint_text(center, self.bottom() + 30.0, title, TITLE_SIZE, Align::Center);
        } else {
            let center = self.top + self.height / 2.0;
            drawing.upright_text(self.left - 76.0, center, title, TITLE_SIZE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn scales_end_at_round_numbers() {
        let labels = |highest: f64| {
            let scale = Scale::up_to(highest);
            let labels: Vec<String> = scale.ticks().iter().map(|tick| scale.label(*tick)).collect();
            labels.join(" ")
        };
        assert_eq!(labels(87.5), "0 20 40 60 80 100");
        assert_eq!(labels(1.04), "0.0 0.2 0.4 0.6 0.8 1.0 1.2");
        assert_eq!(labels(2290.0), "0 500 1,000 1,500 2,000 2,500");
        assert_eq!(labels(0.0), "0.0 0.2 0.4 0.6 0.8 1.0");
    }

    proptest! {
        #[test]
        fn every_value_is_on_its_scale(highest in 1e-6..1e12f64) {
            let scale = Scale::up_to(highest);
            prop_assert!(scale.top >= highest * (1.0 - 1e-6));
            prop_assert!((4..=8).contains(&scale.ticks().len()), "{:?}", scale.ticks());
        }
    }

    #[test]
    fn values_stand_between_bottom_and_top() {
        let frame = Frame { left: 0.0, top: 10.0, width: 50.0, height: 100.0, lies: false };
        let scale = Scale::up_to(10.0);
        assert_eq!(frame.point(frame.reach(&scale, 2.0), 7.0), (7.0, 90.0));
        let lying = Frame { lies: true, ..frame };
        assert_eq!(lying.point(lying.reach(&scale, 2.0), 7.0), (10.0, 7.0));
        assert_eq!(frame.y(&scale, 0.0), 110.0);
        assert_eq!(frame.y(&scale, 5.0), 60.0);
        assert_eq!(frame.y(&scale, 99.0), 10.0, "never above the frame");
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! Results as a picture, in SVG and PNG from one list of shapes.
//!
//! What is drawn follows from what was measured: shares got beside shares owed, CPU time over time,
//! wake-up latency, progress compared with the first scheduler's. `figures` chooses, `layout`
//! puts shapes on a page, `render` hands them to the plotting crate.

mod axis;
mod bars;
mod claims;
mod colors;
mod dots;
mod figures;
mod findings;
mod growth;
mod layout;
mod lines;
mod render;
mod schedule;
mod shapes;

use crate::summary::Summary;
use crate::table::ground;
pub(crate) use colors::TOLD_APART;
pub(crate) use dots::Dot;
use drover_scenario::claims::Measured;
use drover_scenario::expect::Finding;
use drover_scenario::results::Results;
use drover_scenario::schedule::Schedule;
pub use growth::Curve;
use shapes::Drawing;

/// A drawn picture.
pub struct Picture(Drawing);

/// Why a picture could not be made.
#[derive(Debug, thiserror::Error)]
#[error("the picture could not be drawn: {0}")]
pub struct PictureError(String);

impl Picture {
    /// Draws results; none where they hold nothing that could be drawn.
    pub fn of(results: &Results) -> Option<Self> {
        let drawn = figures::figures(&Summary::new(results));
        layout::page(results, &drawn).map(Self)
    }

    /// Draws what a scenario set out to show, and no more; none where that is nothing.
    pub fn of_findings(results: &Results, findings: &[Finding]) -> Option<Self> {
        layout::page(results, &findings::figures(findings)).map(Self)
    }

    /// Draws what a scenario measures of claims, beside what documents say; none where that is nothing.
    pub fn of_claims(results: &Results, measured: &[Measured]) -> Option<Self> {
        layout::page(results, &claims::figures(measured)).map(Self)
    }

    /// Draws what claims say and how far off what was measured is; none where there are none.
    pub(crate) fn of_dots(title: &str, dots: &[Dot]) -> Option<Self> {
        dots::page(title, dots).map(Self)
    }

    /// Draws who ran where on these results' ground; none where that was not recorded.
    pub fn of_schedules(results: &Results, schedules: &[Schedule]) -> Option<Self> {
        let ground = ground(results);
        schedule::page(&results.scenario, &ground, schedules).map(Self)
    }

    /// Draws how costs grow with size, sizes on a logarithmic scale; none where there are no points.
    pub fn of_growth(title: &str, x_title: &str, y_title: &str, curves: &[Curve]) -> Option<Self> {
        growth::page(title, x_title, y_title, curves).map(Self)
    }

    /// The picture as the text of an SVG file.
    ///
    /// # Errors
    /// When the plotting crate fails.
    pub fn svg(&self) -> Result<String, PictureError> {
        render::svg(&self.0)
    }

    /// The picture as the bytes of a PNG file, two pixels for each unit of the SVG.
    ///
    /// # Errors
    /// When the plotting crate or the encoder fails.
    pub fn png(&self) -> Result<Vec<u8>, PictureError> {
        render::png(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::shapes::Shape;
    use super::*;
    use crate::sample;

    #[test]
    fn both_formats_come_from_the_same_results() {
        let picture = Picture::of(&sample::shares()).unwrap();
        let svg = picture.svg().unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        for text in ["esx-fig3-shares", "eevdf", "drover", "1:7", "vm0", "owed"] {
            assert!(svg.contains(text), "{text}");
        }
        assert!(picture.png().unwrap().starts_with(b"\x89PNG\r\n"));
    }

    #[test]
    fn nothing_measured_is_nothing_drawn() {
        let mut results = sample::shares();
        results.runs.clear();
        assert!(Picture::of(&results).is_none());
    }

    #[test]
    fn the_same_results_give_the_same_bytes() {
        let draw = || Picture::of(&sample::sleep()).unwrap().png().unwrap();
        assert_eq!(draw(), draw());
    }

    #[test]
    fn no_two_texts_overlap_and_none_leaves_the_page() {
        let mut many_vms = sample::shares();
        for run in &mut many_vms.runs {
            run.case = format!("a case called {}", run.case);
            for index in 0..4 {
                let mut vm = run.vms[0].clone();
                vm.name = format!("another-vm-{index}");
                run.vms.push(vm);
            }
        }
        let fifty_vms = sample::fifty();
        let mut nine = sample::fifty();
        for run in &mut nine.runs {
            run.vms.truncate(9);
        }
        let mut late = sample::sleep();
        for vm in late.runs.iter_mut().flat_map(|run| &mut run.vms) {
            if let Some(wakeup) = &mut vm.wakeup_us {
                (wakeup.mean, wakeup.p99) = (wakeup.mean * 1e3, wakeup.p99 * 1e3);
            }
        }
        let (shares, timeline) = (sample::shares(), sample::timeline());
        let all = [shares, sample::sleep(), late, timeline, many_vms, fifty_vms, nine];
        for results in all {
            let Picture(drawing) = Picture::of(&results).unwrap();
            drawing.assert_texts_apart();
        }
    }

    #[test]
    fn names_are_whole_and_nine_vms_have_nine_colours() {
        let mut results = sample::fifty();
        for run in &mut results.runs {
            run.vms.truncate(9);
            for vm in &mut run.vms {
                vm.name = format!("warehouse and overcommit {}", vm.name);
            }
        }
        let Picture(drawing) = Picture::of(&results).unwrap();
        let mut colors = Vec::new();
        for shape in &drawing.shapes {
            match shape {
                Shape::Text(text) => assert!(!text.text.contains('~'), "{}", text.text),
                Shape::Box { width: 13.0, color, .. } if !colors.contains(color) => {
                    colors.push(*color);
                }
                _ => {}
            }
        }
        assert_eq!(colors.len(), 9 + 1, "and of a scheduler that is no VM's");
    }

    #[test]
    fn findings_have_a_bar_for_each_scheduler_and_whiskers_where_there_are_repeats() {
        let finding = Finding {
            title: "wake-up of the sleeper, us".to_owned(),
            asked: "<= 150".to_owned(),
            bound: Some(150.0),
            by_scheduler: sample::under(),
        };
        let Picture(drawing) = Picture::of_findings(&sample::sleep(), &[finding]).unwrap();
        drawing.assert_texts_apart();
        let texts = drawing.shapes.iter().filter_map(|shape| match shape {
            Shape::Text(text) => Some(text.text.as_str()),
            _ => None,
        });
        let texts: Vec<&str> = texts.collect();
        for text in ["wake-up of the sleeper, us", "asked: <= 150", "eevdf", "1,240", "70.0"] {
            assert!(texts.contains(&text), "{text}: {texts:?}");
        }
        let whiskers = drawing.shapes.iter();
        let whiskers = whiskers.filter(|it| matches!(it, Shape::Line { width: 1.5, .. }));
        assert_eq!(whiskers.count(), 2 * 3);
    }
}

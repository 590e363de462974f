// SPDX-License-Identifier: GPL-2.0-only
//! What a scenario sets out to show: its expectations that have a title, under each scheduler.

use super::{Expect, Row, evaluate};
use crate::results::Results;

/// One figure that a scenario is about, side by side.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// What it shows, in words for people.
    pub title: String,
    /// What was asked of it, such as `<= 1`.
    pub asked: String,
    /// The bound itself, as a number.
    pub bound: Option<f64>,
    /// What each scheduler did, in the order they ran.
    pub by_scheduler: Vec<Under>,
}

/// The figure under one scheduler; none where it was not measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Under {
    /// The scheduler.
    pub scheduler: String,
    /// The median of all repeats.
    pub measured: Option<f64>,
    /// The least and the most of them.
    pub range: Option<(f64, f64)>,
}

/// The findings of `results`: one for each of `expects` that has a title.
pub fn findings(expects: &[Expect], results: &Results) -> Vec<Finding> {
    let mut schedulers: Vec<&str> = Vec::new();
    for run in &results.runs {
        if !schedulers.contains(&run.scheduler.as_str()) {
            schedulers.push(&run.scheduler);
        }
    }
    expects.iter().filter_map(|expect| finding(expect, &schedulers, results)).collect()
}

fn finding(expect: &Expect, schedulers: &[&str], results: &Results) -> Option<Finding> {
    let title = expect.title.clone()?;
    let rows = schedulers.iter().map(|scheduler| {
        let under = Expect { scheduler: (*scheduler).to_owned(), ..expect.clone() };
        evaluate(&[under], results).swap_remove(0)
    });
    let rows: Vec<_> = rows.collect();
    let asked = rows.first()?.asked.clone();
    let bound = expect.min.or(expect.max);
    let under = |row: Row| {
        let Row { scheduler, measured, range, .. } = row;
        Under { scheduler, measured, range }
    };
    let by_scheduler = rows.into_iter().map(under).collect();
    Some(Finding { title, asked, bound, by_scheduler })
}

// SPDX-License-Identifier: GPL-2.0-only
//! The figures that show a claim, in words.

use super::Shown;
use crate::number::figure;
use drover_scenario::claims::Measured;

/// As many figures of an expectation are told one by one; of more the least and the most.
const TOLD: usize = 4;

/// All figures of a claim; those of an expectation that speaks of many cases or VMs drawn together. Those that stand
/// beside the claim, or those that do not.
pub(super) fn told(shown: &Shown, beside: bool) -> Vec<String> {
    let same = |a: &(String, Measured), b: &(String, Measured)| a.1.expect == b.1.expect;
    let asked = shown.figures.chunk_by(same).filter(|it| it[0].1.expect.beside == beside);
    let each = asked.flat_map(|figures| match figures.len() <= TOLD {
        true => figures.iter().map(|(_, it)| one(it)).collect(),
        false => vec![many(figures)],
    });
    each.collect()
}

/// The first figure of Drover's that stands beside the claim.
pub(super) fn of_drover(shown: &Shown) -> Option<String> {
    let mut beside = shown.figures.iter().map(|(_, it)| it).filter(|it| it.expect.beside);
    beside.find(|it| it.row.scheduler == "drover").map(one)
}

/// What is counted of whom, such as `total progress, jbb 2, 4.1 over jbb 2, 4.0`.
pub(super) fn label(of: &Measured) -> String {
    let mut label = of.expect.metric.name().replace('_', " ");
    label += &of.row.vm.as_ref().map_or(String::new(), |vm| format!(" of {vm}"));
    label + &circumstances(of)
}

fn circumstances(of: &Measured) -> String {
    let (expect, row) = (&of.expect, &of.row);
    let mut text = String::new();
    if let Some(case) = row.case.as_ref().filter(|case| *case != "all") {
        text += &format!(", {case}");
    }
    if row.scheduler != "drover" {
        text += &format!(", {}", row.scheduler);
    }
    let base = [&expect.relative_to_vm, &expect.relative_to_case, &expect.relative_to];
    let base: Vec<&str> = base.into_iter().flatten().map(String::as_str).collect();
    if !base.is_empty() {
        text += &format!(" over {}", base.join(", "));
    }
    if let Some(gain) = &expect.relative_to_gain {
        text += &format!(", against the gain of {}", gain.case);
    }
    text
}

fn one(of: &Measured) -> String {
    let label = label(of);
    match median(of) {
        Some(median) => format!("{label}: {median}{}", said(of)),
        None => format!("{label}: {}", of.row.note.as_deref().unwrap_or("not measured")),
    }
}

fn many(figures: &[(String, Measured)]) -> String {
    let (_, first) = &figures[0];
    let metric = first.expect.metric.name().replace('_', " ");
    let medians: Vec<f64> = figures.iter().filter_map(|(_, it)| it.row.measured).collect();
    let least = medians.iter().copied().fold(f64::INFINITY, f64::min);
    let most = medians.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let missing = match figures.len() - medians.len() {
        0 => String::new(),
        missing => format!(", {missing} not measured"),
    };
    let medians = format!("{} to {}", precise(least), precise(most));
    format!("{metric}, {} figures: {medians}{missing}{}", figures.len(), said(first))
}

/// The document's number, or what is asked; nothing of what stands beside.
fn said(of: &Measured) -> String {
    match of.expect.published {
        _ if of.expect.beside => String::new(),
        Some(_) => format!(", said {}", asked(of)),
        None => format!(", asked {}", asked(of)),
    }
}

/// The number that the document gives, or the bounds.
pub(super) fn asked(of: &Measured) -> String {
    of.expect.published.map_or_else(|| of.row.asked.clone(), precise)
}

/// The median of a figure, with the least and the most.
pub(super) fn median(of: &Measured) -> Option<String> {
    let (median, (least, most)) = (of.row.measured?, of.row.range?);
    Some(precise(median) + &range(least, most))
}

fn range(least: f64, most: f64) -> String {
    match precise(least) == precise(most) {
        true => String::new(),
        false => format!(" ({} to {})", precise(least), precise(most)),
    }
}

/// Three decimals below two, where ratios stand.
pub(super) fn precise(value: f64) -> String {
    if value.abs() < 2.0 { format!("{value:.3}") } else { figure(value) }
}

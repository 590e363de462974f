// SPDX-License-Identifier: GPL-2.0-only
//! Each claim with what was measured of it, as data: docs/seeds/claims.json.

use super::{Shown, figures};
use drover_scenario::claims::{Cause, Kind, Measured, decisive};
use serde::{Deserialize, Serialize};

/// A claim, how it stands, and what shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The claim's id.
    pub claim: String,
    /// Where in the document.
    pub section: String,
    /// What kind of claim it is.
    pub kind: Kind,
    /// `holds`, `near`, `not`, `by test`, `pending` or `outside`.
    pub standing: String,
    /// What the document says.
    pub says: String,
    /// The figure that decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured: Option<String>,
    /// What the document says of that figure, or the bounds that its words make.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked: Option<String>,
    /// The same in numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numbers: Option<Numbers>,
    /// All figures that show it: the median, the least and the most of the seeds of randomness.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub figures: Vec<String>,
    /// Figures that stand beside it and are not judged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<String>,
    /// What Drover does where the document speaks of another system: the first such figure beside it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drover: Option<String>,
    /// The scenarios that measure it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// A hash of the simulations and of the sources that they hang on.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub build: String,
    /// These have changed since it was measured.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub earlier: bool,
    /// The tests that show it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tests: Vec<String>,
    /// Why it is not shown yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending: Option<String>,
    /// Why no scheduler could show it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outside: Option<String>,
    /// Why it is not as the document says, where it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// What must be known of how it is shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// The figure that decides, beside what the document says or asks for at least or most.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Numbers {
    /// What the document says, or the bound nearest to the figure.
    pub said: f64,
    /// The median of the seeds of randomness.
    pub median: f64,
    /// The least.
    pub least: f64,
    /// The most.
    pub most: f64,
}

impl Numbers {
    fn of(of: &Measured) -> Option<Numbers> {
        let (median, (least, most)) = (of.row.measured?, of.row.range?);
        let far = |bound: &f64| (bound - median).abs();
        let bounds = [of.expect.min, of.expect.max].into_iter().flatten();
        let bound = || bounds.min_by(|a, b| far(a).total_cmp(&far(b)));
        let said = of.expect.published.filter(|said| *said > 0.0).or_else(bound)?;
        let rounded = |value: f64| (value * 1e6).round() / 1e6;
        let [said, median, least, most] = [said, median, least, most].map(rounded);
        Some(Numbers { said, median, least, most })
    }
}

impl Row {
    /// The row of a claim, measured just now.
    pub fn of(shown: &Shown, build: &str) -> Row {
        let claim = &shown.claim;
        let of_claim: Vec<Measured> = shown.figures.iter().map(|(_, it)| it.clone()).collect();
        let decisive = decisive(claim.kind, claim.judged_by, &of_claim);
        let mut files: Vec<String> = shown.figures.iter().map(|(file, _)| file.clone()).collect();
        files.dedup();
        Row {
            claim: claim.id.clone(),
            section: claim.section.clone(),
            kind: claim.kind,
            standing: shown.outcome().word().to_owned(),
            says: claim.says.clone(),
            measured: decisive.and_then(figures::median),
            asked: decisive.map(figures::asked),
            numbers: decisive.and_then(Numbers::of),
            figures: figures::told(shown, false),
            beside: figures::told(shown, true),
            drover: figures::of_drover(shown),
            build: if files.is_empty() { String::new() } else { build.to_owned() },
            earlier: false,
            files,
            tests: claim.tests.clone(),
            pending: claim.pending.clone(),
            outside: claim.outside.clone(),
            cause: claim.cause,
            note: claim.note.clone(),
        }
    }

    /// The number of its document.
    pub(super) fn document(&self) -> &str {
        self.claim.split('-').next().unwrap_or("")
    }

    /// Whether it was measured and is not as the document says, or only nearly.
    pub(super) fn is_missed(&self) -> bool {
        ["near", "not"].contains(&self.standing.as_str())
    }
}

/// The rows as JSON, a line each.
pub fn write(rows: &[Row]) -> Result<String, serde_json::Error> {
    let lines = rows.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>()?;
    Ok(format!("[\n{}\n]\n", lines.join(",\n")))
}

/// Reads rows.
pub fn read(text: &str) -> Result<Vec<Row>, serde_json::Error> {
    serde_json::from_str(text)
}

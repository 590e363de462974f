// SPDX-License-Identifier: GPL-2.0-only
//! Each claim with what was measured of it, as data: docs/seeds/claims.json.

use super::{Shown, figures};
use drover_scenario::claims::{Cause, Kind, Measured, decisive};
use serde::{Deserialize, Serialize};

/// A claim, how it stands, and what shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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

impl Row {
    /// The row of a claim.
    pub fn of(shown: &Shown) -> Row {
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
            measured: decisive.and_then(|it| it.row.measured).map(figures::precise),
            asked: decisive.map(figures::asked),
            figures: figures::told(shown, false),
            beside: figures::told(shown, true),
            drover: figures::of_drover(shown),
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

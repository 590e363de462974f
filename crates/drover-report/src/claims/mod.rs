// SPDX-License-Identifier: GPL-2.0-only
//! What the seed documents claim beside what was measured: docs/seeds/claims.json, pages that follow from it, and lines
//! for a terminal.

mod cells;
mod document;
mod dots;
mod figures;
mod page;
mod rows;

pub use cells::{Cell, write_cells};
pub use document::document;
pub use dots::dots;
pub use page::page;
pub use rows::{Row, read, write};

use drover_scenario::claims::{Claim, Measured, Standing, judge};

/// A claim with what was measured of it.
#[derive(Debug, Clone)]
pub struct Shown {
    /// The claim.
    pub claim: Claim,
    /// The figures that show it, and the path of the scenario each is from.
    pub figures: Vec<(String, Measured)>,
}

/// How a claim stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Figures say so.
    Measured(Standing),
    /// Tests show it.
    Tested,
    /// Nothing shows it yet.
    Pending,
    /// No scheduler could show it.
    Outside,
}

impl Shown {
    /// How it stands.
    pub fn outcome(&self) -> Outcome {
        if self.figures.is_empty() {
            return match &self.claim {
                claim if claim.outside.is_some() => Outcome::Outside,
                claim if claim.tests.is_empty() => Outcome::Pending,
                _ => Outcome::Tested,
            };
        }
        let figures: Vec<Measured> = self.figures.iter().map(|(_, it)| it.clone()).collect();
        Outcome::Measured(judge(self.claim.kind, self.claim.judged_by, &figures))
    }
}

impl Outcome {
    /// The word for it in tables.
    pub fn word(self) -> &'static str {
        match self {
            Outcome::Measured(Standing::Holds) => "holds",
            Outcome::Measured(Standing::Near) => "near",
            Outcome::Measured(Standing::Not) => "not",
            Outcome::Tested => "by test",
            Outcome::Pending => "pending",
            Outcome::Outside => "outside",
        }
    }
}

/// A line for each claim that was measured.
pub fn lines(shown: &[Shown]) -> String {
    let measured = shown.iter().filter(|shown| !shown.figures.is_empty());
    let line = |shown: &Shown| {
        let beside = figures::told(shown, true).into_iter().map(|it| format!("beside: {it}"));
        let figures: Vec<String> = figures::told(shown, false).into_iter().chain(beside).collect();
        format!("{:6} {}: {}\n", shown.outcome().word(), shown.claim.id, figures.join("; "))
    };
    measured.map(line).collect()
}

// SPDX-License-Identifier: GPL-2.0-only
//! What the five seed documents claim, and how each claim is shown: `scenarios/seeds/claims.toml`.
//!
//! A claim is shown by `[[expect]]`s of scenarios that name it, by tests (mechanisms), or not yet: then
//! it says why. What no scheduler could show is outside. [`judge`] holds what was measured against what is claimed.

mod judge;
mod read;

pub use judge::{Measured, Standing, decisive, judge};
pub use read::{parse, parse_behind};

use drover_core::nearest::hint;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The documents, by the number that ids of claims begin with.
pub const DOCUMENTS: [(&str, &str); 5] = [
    ("000", "VMware, The CPU Scheduler in VMware ESX 4.1, 2010"),
    ("001", "Aragiorgis et al., Co-existing scheduling policies in Xen, 2011"),
    ("002", "Theurer, KVM and Big VMs, KVM Forum 2012"),
    ("003", "Xen blog, NUMA and Xen, part II"),
    ("004", "Faggioli, VM performance: static partitioning or automatic tuning, 2024"),
];

/// What kind of claim it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The text gives a figure.
    Number,
    /// The text says more, less or the same.
    Direction,
    /// How it works.
    Mechanism,
}

/// Which of the figures that show a claim decides, where there are several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JudgedBy {
    /// All must hold.
    #[default]
    Each,
    /// The highest: "up to 50 percent".
    Highest,
    /// The middle one: "in many cases".
    Middle,
}

/// Why what was measured is not what a document claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// What costs time on a host costs too little in the simulator.
    Price,
    /// Caches, links and memory of the model.
    Memory,
    /// The system compared with is a stand-in.
    StandIn,
    /// The document says too little, or contradicts itself.
    Document,
    /// The effect is as small as the spread between seeds of randomness.
    Noise,
    /// Drover does less, or otherwise.
    Drover,
}

/// One claim of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Unique; begins with the document's number.
    pub id: String,
    /// Where in the document.
    pub section: String,
    /// What the document says.
    pub says: String,
    /// What kind of claim it is.
    pub kind: Kind,
    /// Which of several figures decides.
    pub judged_by: JudgedBy,
    /// The tests that show it, such as `policy: wake_test (name)`.
    pub tests: Vec<String>,
    /// Why it is not shown yet.
    pub pending: Option<String>,
    /// Why no scheduler, nor any model of one, could show it.
    pub outside: Option<String>,
    /// Why it is not as the document says, where it is not.
    pub cause: Option<Cause>,
    /// What must be known of how it is shown; why it does not hold, where it does not.
    pub note: Option<String>,
}

/// Why Drover has less than EEVDF in cases of a scenario.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Behind {
    /// The scenario's name.
    pub scenario: String,
    /// What it has less of.
    pub figure: String,
    /// Its cases; none: all.
    pub cases: Option<Vec<String>>,
    /// Why.
    pub why: String,
}

impl Behind {
    /// Whether it speaks of that figure.
    pub fn is_of(&self, scenario: &str, case: &str, figure: &str) -> bool {
        let has_case = self.cases.as_ref().is_none_or(|cases| cases.iter().any(|it| it == case));
        self.scenario == scenario && self.figure == figure && has_case
    }
}

impl Claim {
    /// The number of its document.
    pub fn document(&self) -> &str {
        self.id.split('-').next().unwrap_or("")
    }
}

/// Checks that each claim is shown in one way: by figures (`measured` are the ids that scenarios name),
/// by tests, pending, or outside.
///
/// # Errors
/// The first claim that is unknown, shown in no way, or in two, in one line.
pub fn check(claims: &[Claim], measured: &BTreeSet<String>) -> Result<(), String> {
    let known = || claims.iter().map(|claim| claim.id.as_str());
    if let Some(id) = measured.iter().find(|id| known().all(|known| known != *id)) {
        return Err(format!("unknown claim \"{id}\" in a scenario; {}", hint(id, known())));
    }
    for claim in claims {
        let is_shown = measured.contains(&claim.id) || !claim.tests.is_empty();
        let fix = match (is_shown, claim.pending.is_some(), claim.outside.is_some()) {
            (true, false, false) | (false, true, false) | (false, false, true) => continue,
            (false, false, false) => {
                "name it in an [[expect]], or give tests =, pending = or outside ="
            }
            (true, true, _) => "it is shown, so remove pending =",
            (true, false, true) => "it is shown, so remove outside =",
            (false, true, true) => "what is outside is not pending: remove one of the two",
        };
        return Err(format!("claim \"{}\" in claims.toml; {fix}", claim.id));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(id: &str, tests: &[&str], pending: Option<&str>) -> Claim {
        Claim {
            id: id.to_owned(),
            section: String::new(),
            says: String::new(),
            kind: Kind::Mechanism,
            judged_by: JudgedBy::Each,
            tests: tests.iter().map(|&test| test.to_owned()).collect(),
            pending: pending.map(str::to_owned),
            outside: None,
            cause: None,
            note: None,
        }
    }

    #[test]
    fn each_claim_is_shown_or_says_why_not() {
        let claims = [
            claim("000-a", &["policy: x_test"], None),
            claim("000-b", &[], Some("no scenario yet")),
            claim("001-c", &[], None),
        ];
        let measured = |ids: &[&str]| ids.iter().map(|&id| id.to_owned()).collect();
        assert_eq!(check(&claims, &measured(&["001-c"])), Ok(()));
        assert_eq!(check(&claims, &measured(&["000-a", "001-c"])), Ok(()), "a test and a figure");
        for (ids, named) in [
            (&[][..], "\"001-c\" in claims.toml; name it"),
            (&["001-c", "000-b"], "\"000-b\" in claims.toml; it is shown"),
            (&["001-c", "000-x"], "unknown claim \"000-x\" in a scenario; did you mean"),
        ] {
            let error = check(&claims, &measured(ids)).unwrap_err();
            assert!(error.contains(named) && !error.contains('\n'), "{error}");
        }
        assert_eq!(claims[2].document(), "001");
        let with = |id: &str, pending| {
            let outside = Some("a fact of hardware".to_owned());
            Claim { outside, ..claim(id, &[], pending) }
        };
        assert_eq!(check(&[with("000-d", None)], &measured(&[])), Ok(()));
        let both = check(&[with("000-d", Some("no scenario yet"))], &measured(&[])).unwrap_err();
        assert!(both.contains("remove one of the two"), "{both}");
        let shown = check(&[with("000-d", None)], &measured(&["000-d"])).unwrap_err();
        assert!(shown.contains("remove outside ="), "{shown}");
    }
}

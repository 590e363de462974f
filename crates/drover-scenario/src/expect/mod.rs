// SPDX-License-Identifier: GPL-2.0-only
//! What a scenario expects of its results, and whether they show it.

mod evaluate;
mod findings;
mod metric;
mod repeats;

pub use evaluate::{Row, Verdict, evaluate, median};
pub use findings::{Finding, findings};
pub use metric::Metric;
pub(crate) use metric::WINDOW_MS;
pub use repeats::repeats;

use drover_core::names::is_pattern;
use serde::Deserialize;

/// One expectation, the `[[expect]]` of a scenario.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    /// What it shows, in words for people: it is then a finding, shown under each scheduler.
    pub title: Option<String>,
    /// The figure in question.
    pub metric: Metric,
    /// Scheduler whose runs are looked at, by label.
    #[serde(default = "drover")]
    pub scheduler: String,
    /// Case whose runs are looked at; none: each case.
    pub case: Option<String>,
    /// VM the figure is taken of; [`VmChoice::Host`] for figures of the host.
    #[serde(default)]
    pub vm: VmChoice,
    /// The figure is at least this.
    pub min: Option<f64>,
    /// The figure is at most this.
    pub max: Option<f64>,
    /// What the source of the scenario has; how far off the figure is, is shown.
    pub published: Option<f64>,
    /// The claim of scenarios/seeds/claims.toml that it shows, by id.
    pub claim: Option<String>,
    /// It stands beside the claim, which is not judged by it.
    #[serde(default)]
    pub beside: bool,
    /// The figure is divided by the same figure under this scheduler.
    pub relative_to: Option<String>,
    /// The figure is divided by the same figure in this case.
    pub relative_to_case: Option<String>,
    /// The figure is divided by the same figure of this VM.
    pub relative_to_vm: Option<String>,
    /// The ratio is divided by the same ratio of these cases: one gain against another.
    pub relative_to_gain: Option<Gain>,
    /// A second maximum, taken from another case; the laxer of the two counts.
    pub or: Option<OrTimes>,
    /// Only the measured time from here counts (read from the timeline), s.
    pub from_s: Option<f64>,
    /// Only up to here; there where the other is.
    pub to_s: Option<f64>,
}

impl Expect {
    /// A figure of the host under Drover, in each case, without bounds.
    pub fn of(metric: Metric) -> Self {
        Self {
            title: None,
            metric,
            scheduler: drover(),
            case: None,
            vm: VmChoice::Host,
            min: None,
            max: None,
            published: None,
            claim: None,
            beside: false,
            relative_to: None,
            relative_to_case: None,
            relative_to_vm: None,
            relative_to_gain: None,
            or: None,
            from_s: None,
            to_s: None,
        }
    }

    /// Whether it is a ratio of two figures.
    pub fn is_relative(&self) -> bool {
        let of = [&self.relative_to, &self.relative_to_case, &self.relative_to_vm];
        of.into_iter().any(Option::is_some)
    }

    /// The part of the measured time that counts, s; none: all.
    pub fn window_s(&self) -> Option<(f64, f64)> {
        self.from_s.zip(self.to_s)
    }
}

fn drover() -> String {
    "drover".to_owned()
}

/// Of which VM an expectation takes its figure.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(from = "String")]
pub enum VmChoice {
    /// Of none: a figure of the host.
    #[default]
    Host,
    /// Of each VM of the case in turn, `"*"`.
    Each,
    /// Of each that such a pattern means, `"web-*"`.
    Like(String),
    /// Of this one.
    Named(String),
}

impl From<String> for VmChoice {
    fn from(name: String) -> Self {
        match name.as_str() {
            "*" => Self::Each,
            _ if is_pattern(&name) => Self::Like(name),
            _ => Self::Named(name),
        }
    }
}

/// The ratio of the figure in one case to that in another, or under another scheduler where the expectation
/// names one.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gain {
    /// The case of the figure that is divided.
    pub case: String,
    /// The case of the figure that divides it; none: the same case.
    pub relative_to_case: Option<String>,
}

/// `times` what the same VM has in `case` under the same scheduler.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OrTimes {
    /// The case to look at.
    pub case: String,
    /// How many times its figure is allowed.
    pub times: f64,
}

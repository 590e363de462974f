// SPDX-License-Identifier: GPL-2.0-only
//! What a scenario expects of its results, and whether they show it.

mod evaluate;
mod findings;
mod metric;
mod repeats;

pub use evaluate::{Row, Verdict, evaluate, median};
pub use findings::{Finding, Under, findings};
pub use metric::Metric;
pub(crate) use metric::WINDOW_MS;
pub use repeats::repeats;

use drover_core::names::is_pattern;
use serde::Deserialize;

/// One expectation, the `[[expect]]` of a scenario.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    /// What the figure shows, for people. With such titles `drover run` shows these, as a table and
    /// a picture, instead of all figures. Needs one `case`, no `"*"`.
    pub title: Option<String>,
    /// The figure; needed.
    pub metric: Metric,
    /// Scheduler whose runs are looked at; default `drover`.
    #[serde(default = "drover")]
    pub scheduler: String,
    /// Case, or a list of cases; default each.
    pub case: Option<String>,
    /// VM, `"*"` for each, a pattern or a list; needed for figures of a VM.
    #[serde(default)]
    pub vm: VmChoice,
    /// `true`: of several VMs their mean, not each.
    #[serde(default)]
    pub mean: bool,
    /// The value is at least this; one of `min` and `max` is needed.
    pub min: Option<f64>,
    /// The value is at most this.
    pub max: Option<f64>,
    /// What the source of the scenario has; the report shows the difference.
    pub published: Option<f64>,
    /// Id of the claim in `scenarios/seeds/claims.toml` that it shows, for [seeds.md](seeds.md).
    pub claim: Option<String>,
    /// `true`: it stands beside the claim, unjudged.
    #[serde(default)]
    pub beside: bool,
    /// Scheduler whose same figure divides the value.
    pub relative_to: Option<String>,
    /// Case whose figure divides the value.
    pub relative_to_case: Option<String>,
    /// VM whose figure divides the value.
    pub relative_to_vm: Option<String>,
    /// Ratio of other cases that divides the ratio; below 1: gains less.
    pub relative_to_gain: Option<Gain>,
    /// A second maximum; the laxer counts.
    pub or: Option<OrTimes>,
    /// The measured time counts from here (needs `sample_ms`; `share_got_pct`, `cpu_s`, `cpu_pcpus`
    /// and figures of 100 ms).
    pub from_s: Option<f64>,
    /// The measured time counts up to here.
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
            mean: false,
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
    /// The other case; needed.
    pub case: String,
    /// The case that divides its figure; default the same case.
    pub relative_to_case: Option<String>,
}

/// `times` what the same VM has in `case` under the same scheduler.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OrTimes {
    /// The case to look at, same VM and scheduler; needed.
    pub case: String,
    /// How many times its figure is allowed; needed.
    pub times: f64,
}

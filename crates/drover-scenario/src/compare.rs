// SPDX-License-Identifier: GPL-2.0-only
//! How far two grounds are apart, figure by figure, with tolerances fixed in the scenario.

use crate::expect::{Expect, Metric, evaluate};
use crate::results::Results;

/// One figure to be compared, the `[[compare]]` of a scenario.
#[derive(Debug, Clone, PartialEq)]
pub struct Compare {
    /// Which figure, in the words of an expectation without bounds.
    pub figure: Expect,
    /// How far the simulator's may be from the lab's.
    pub tolerance: Tolerance,
    /// Why it is known to be further off; such a row stays in the table, with this beside it.
    pub reason: Option<String>,
}

/// How far a figure of the simulator may be from the lab's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Tolerance {
    /// % of the lab's.
    Pct(f64),
    /// So much, for figures that are % themselves.
    Points(f64),
}

impl Tolerance {
    /// The unit, as tables have it.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Pct(_) => "%",
            Self::Points(_) => "points",
        }
    }

    /// How much, in its unit.
    pub fn most(self) -> f64 {
        let (Self::Pct(most) | Self::Points(most)) = self;
        most
    }
}

/// A figure on both grounds.
#[derive(Debug, Clone, PartialEq)]
pub struct Compared {
    /// The figure.
    pub metric: Metric,
    /// In this case.
    pub case: Option<String>,
    /// Of this VM; none: of the host.
    pub vm: Option<String>,
    /// In the simulator.
    pub sim: Option<f64>,
    /// In the lab.
    pub lab: Option<f64>,
    /// See [`Compare::tolerance`].
    pub tolerance: Tolerance,
    /// See [`Compare::reason`].
    pub reason: Option<String>,
}

impl Compared {
    /// How far the simulator's figure is from the lab's, in the unit of the tolerance; none where one
    /// is missing.
    pub fn error(&self) -> Option<f64> {
        let (sim, lab) = (self.sim?, self.lab?);
        match self.tolerance {
            _ if sim == lab => Some(0.0),
            Tolerance::Points(_) => Some(sim - lab),
            Tolerance::Pct(_) => Some(100.0 * (sim / lab - 1.0)).filter(|error| error.is_finite()),
        }
    }

    /// Is it within its tolerance? A figure that is missing is not.
    pub fn is_within(&self) -> bool {
        self.error().is_some_and(|error| error.abs() <= self.tolerance.most())
    }
}

/// The figures a scenario names, on both grounds.
pub fn compare(compares: &[Compare], sim: &Results, lab: &Results) -> Vec<Compared> {
    let mut rows = Vec::new();
    for asked in compares {
        let figure = std::slice::from_ref(&asked.figure);
        let theirs = evaluate(figure, lab);
        for ours in evaluate(figure, sim) {
            let same = |row: &&crate::expect::Row| row.case == ours.case && row.vm == ours.vm;
            rows.push(Compared {
                metric: ours.metric,
                sim: ours.measured,
                lab: theirs.iter().find(same).and_then(|row| row.measured),
                case: ours.case,
                vm: ours.vm,
                tolerance: asked.tolerance,
                reason: asked.reason.clone(),
            });
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(sim: Option<f64>, lab: Option<f64>) -> Compared {
        Compared {
            metric: Metric::CpuS,
            case: None,
            vm: None,
            sim,
            lab,
            tolerance: Tolerance::Pct(1.0),
            reason: None,
        }
    }

    #[test]
    fn errors_are_of_the_labs_figure_and_missing_ones_are_not_within() {
        assert!(compared(Some(1.009), Some(1.0)).is_within());
        assert!(!compared(Some(1.02), Some(1.0)).is_within());
        assert!(!compared(Some(0.98), Some(1.0)).is_within());
        assert!(compared(Some(0.0), Some(0.0)).is_within());
        for missing in [(None, Some(1.0)), (Some(1.0), None), (Some(1.0), Some(0.0))] {
            assert!(!compared(missing.0, missing.1).is_within(), "{missing:?}");
        }
        let tolerance = Tolerance::Points(5.0);
        let points = |sim, lab| Compared { tolerance, ..compared(Some(sim), Some(lab)) };
        assert!(points(4.0, 0.0).is_within() && !points(31.0, 25.0).is_within());
    }
}

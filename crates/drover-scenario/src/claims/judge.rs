// SPDX-License-Identifier: GPL-2.0-only
//! Whether what was measured is what a document claims.
//!
//! A number holds when the median and four of five seeds of randomness are within 10 % or 3 percentage points,
//! whichever is more, and is near when the median is within twice that. Of a ratio it is the change that counts: 17 %
//! more is shown by 14 to 20 % more. A direction holds when the figure of every seed is as said, and is near when the
//! median is.

use super::{JudgedBy, Kind};
use crate::expect::{Expect, Row, evaluate};
use crate::results::Results;

/// How far a figure may be from the number that a document gives, of that number.
const TOLERANCE: f64 = 0.10;
/// How far it may be at least, percentage points.
const TOLERANCE_POINTS: f64 = 3.0;
/// What part of the seeds must be as near to a number as the median.
const STEADY: f64 = 0.8;

/// What came of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// It is as the document says.
    Holds,
    /// A number is within twice the tolerance, or within it with too few seeds; a direction is as said in the median,
    /// not with every seed.
    Near,
    /// It is not so, or could not be measured.
    Not,
}

/// A figure that shows a claim.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// The expectation that asks for it.
    pub expect: Expect,
    /// What came of that for one case and VM.
    pub row: Row,
}

impl Measured {
    /// What came of the expectation, for each case and VM that it speaks of.
    pub fn all(expect: &Expect, results: &Results) -> Vec<Measured> {
        let rows = evaluate(std::slice::from_ref(expect), results);
        rows.into_iter().map(|row| Measured { expect: expect.clone(), row }).collect()
    }

    /// How far the median may be from `number`, in its own unit.
    fn tolerance(&self, number: f64) -> f64 {
        let expect = &self.expect;
        if expect.is_relative() {
            return (TOLERANCE * (number - 1.0).abs()).max(TOLERANCE_POINTS / 100.0);
        }
        let points = if expect.metric.is_pct() { TOLERANCE_POINTS } else { 0.0 };
        (TOLERANCE * number.abs()).max(points)
    }

    /// The least and the most that is claimed: the number that is published, or the bounds.
    fn claimed(&self, kind: Kind) -> (f64, f64) {
        let published = self.expect.published.filter(|_| kind == Kind::Number);
        let least = published.or(self.expect.min).unwrap_or(f64::NEG_INFINITY);
        (least, published.or(self.expect.max).unwrap_or(f64::INFINITY))
    }

    fn standing(&self, kind: Kind) -> Standing {
        let (Some(median), Some(range)) = (self.row.measured, self.row.range) else {
            return Standing::Not;
        };
        let claimed = self.claimed(kind);
        match kind {
            Kind::Number => self.of_number(median, claimed),
            Kind::Direction | Kind::Mechanism => of_direction(median, range, claimed),
        }
    }

    fn of_number(&self, median: f64, (least, most): (f64, f64)) -> Standing {
        // How far it is off, in tolerances. What stands exactly at the edge is within; floating point may have it
        // beyond.
        let off = |figure: f64| {
            let (edge, off) = match figure < least {
                true => (least, least - figure),
                false => (most, figure - most),
            };
            if off <= 0.0 { 0.0 } else { off / (self.tolerance(edge) + 1e-9) }
        };
        let seeds = &self.row.of_repeats;
        let within = seeds.iter().filter(|&&figure| off(figure) <= 1.0).count();
        let is_steady = within as f64 >= STEADY * seeds.len() as f64;
        match off(median) {
            off if off <= 1.0 && is_steady => Standing::Holds,
            off if off <= 2.0 => Standing::Near,
            _ => Standing::Not,
        }
    }
}

fn of_direction(median: f64, range: (f64, f64), (least, most): (f64, f64)) -> Standing {
    // As much is not more.
    let within = |figure: f64| least < figure && figure < most;
    match (within(median), within(range.0) && within(range.1)) {
        (true, true) => Standing::Holds,
        (true, false) => Standing::Near,
        (false, _) => Standing::Not,
    }
}

/// The figure that decides, of those that do not stand beside the claim: the first of the worst, the highest, or
/// the middle one.
pub fn decisive(kind: Kind, by: JudgedBy, figures: &[Measured]) -> Option<&Measured> {
    let mut judged: Vec<&Measured> = figures.iter().filter(|it| !it.expect.beside).collect();
    if by == JudgedBy::Each {
        return judged.into_iter().rev().max_by_key(|figure| figure.standing(kind));
    }
    let median = |it: &Measured| it.row.measured.unwrap_or(f64::NEG_INFINITY);
    judged.sort_by(|a, b| median(a).total_cmp(&median(b)));
    match by {
        JudgedBy::Middle => judged.get(judged.len().saturating_sub(1) / 2).copied(),
        _ => judged.last().copied(),
    }
}

/// What came of a claim that these figures show, but for those that stand beside it; of no figure,
/// [`Standing::Not`].
pub fn judge(kind: Kind, by: JudgedBy, figures: &[Measured]) -> Standing {
    decisive(kind, by, figures).map_or(Standing::Not, |figure| figure.standing(kind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expect::{Metric, Verdict};

    fn measured(expect: Expect, figures: [f64; 3]) -> Measured {
        let row = Row {
            scheduler: "drover".to_owned(),
            case: None,
            vm: None,
            metric: expect.metric,
            measured: Some(figures[1]),
            range: Some((figures[0], figures[2])),
            of_repeats: figures.to_vec(),
            published: expect.published,
            asked: String::new(),
            verdict: Verdict::Pass,
            note: None,
        };
        Measured { expect, row }
    }

    fn number(metric: Metric, published: f64, relative: bool, median: f64) -> Standing {
        let relative_to_case = relative.then(|| "base".to_owned());
        let expect = Expect { published: Some(published), relative_to_case, ..Expect::of(metric) };
        judge(Kind::Number, JudgedBy::Each, &[measured(expect, [median; 3])])
    }

    #[test]
    fn a_number_holds_within_a_tenth_or_three_points() {
        use Standing::{Holds, Near, Not};
        for (metric, published, relative, median, standing) in [
            (Metric::ContextSwitches, 100.0, false, 110.0, Holds),
            (Metric::ContextSwitches, 100.0, false, 81.0, Near),
            (Metric::ContextSwitches, 100.0, false, 79.0, Not),
            (Metric::IdlePct, 12.5, false, 15.4, Holds),
            (Metric::IdlePct, 12.5, false, 18.4, Near),
            (Metric::IdlePct, 12.5, false, 18.6, Not),
            (Metric::TotalProgress, 1.17, true, 1.14, Holds),
            (Metric::TotalProgress, 1.17, true, 1.11, Near),
            (Metric::TotalProgress, 1.17, true, 1.10, Not),
            (Metric::TotalProgress, 20.7, true, 22.6, Holds),
        ] {
            let found = number(metric, published, relative, median);
            assert_eq!(found, standing, "{metric:?} {published} {median}");
        }
    }

    #[test]
    fn a_number_holds_when_four_of_five_seeds_do() {
        let standing = |of_repeats: [f64; 5]| {
            let expect = Expect { published: Some(100.0), ..Expect::of(Metric::ContextSwitches) };
            let mut measured = measured(expect, [of_repeats[0], of_repeats[2], of_repeats[4]]);
            measured.row.of_repeats = of_repeats.to_vec();
            judge(Kind::Number, JudgedBy::Each, &[measured])
        };
        assert_eq!(standing([50.0, 91.0, 100.0, 105.0, 109.0]), Standing::Holds);
        assert_eq!(standing([50.0, 91.0, 100.0, 105.0, 150.0]), Standing::Near, "that is luck");
        assert_eq!(standing([50.0, 60.0, 70.0, 100.0, 100.0]), Standing::Not);
    }

    #[test]
    fn bounds_are_numbers_of_their_own_where_none_is_published() {
        let bounds = |median| {
            let relative_to_case = Some("base".to_owned());
            let (min, max) = (Some(1.12), Some(1.18));
            let of = Expect { min, max, relative_to_case, ..Expect::of(Metric::TotalProgress) };
            judge(Kind::Number, JudgedBy::Each, &[measured(of, [median; 3])])
        };
        let found = [1.10, 1.15, 1.20, 1.23, 1.05].map(bounds);
        use Standing::{Holds, Near, Not};
        assert_eq!(found, [Holds, Holds, Holds, Near, Not]);
    }

    #[test]
    fn a_direction_holds_when_every_seed_shows_it() {
        let more = |figures| {
            let expect = Expect { min: Some(1.0), ..Expect::of(Metric::TotalProgress) };
            judge(Kind::Direction, JudgedBy::Each, &[measured(expect, figures)])
        };
        assert_eq!(more([1.01, 1.05, 1.09]), Standing::Holds);
        assert_eq!(more([0.99, 1.05, 1.09]), Standing::Near);
        assert_eq!(more([1.0, 1.0, 1.0]), Standing::Not, "as much is not more");
        assert_eq!(more([0.90, 0.99, 1.09]), Standing::Not);
    }

    #[test]
    fn one_of_several_figures_may_decide() {
        let expect = Expect { min: Some(1.0), ..Expect::of(Metric::TotalProgress) };
        let all = [[0.5; 3], [2.0; 3], [0.8; 3]].map(|it| measured(expect.clone(), it));
        assert_eq!(judge(Kind::Direction, JudgedBy::Each, &all), Standing::Not);
        assert_eq!(judge(Kind::Direction, JudgedBy::Highest, &all), Standing::Holds);
        assert_eq!(judge(Kind::Direction, JudgedBy::Middle, &all), Standing::Not);
        assert_eq!(judge(Kind::Direction, JudgedBy::Each, &[]), Standing::Not);
        let mut beside = all.clone();
        (beside[0].expect.beside, beside[2].expect.beside) = (true, true);
        assert_eq!(judge(Kind::Direction, JudgedBy::Each, &beside), Standing::Holds);
    }

    #[test]
    fn what_could_not_be_measured_does_not_hold() {
        let mut faulty = measured(Expect::of(Metric::TotalProgress), [1.0; 3]);
        (faulty.row.measured, faulty.row.range) = (None, None);
        faulty.row.of_repeats.clear();
        assert_eq!(judge(Kind::Direction, JudgedBy::Each, &[faulty]), Standing::Not);
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! A figure under a scheduler on a kernel.

use drover_scenario::Scenario;
use drover_scenario::expect::{Expect, evaluate, median};
use drover_scenario::rank_sum::by_luck;
use drover_scenario::results::Results;
use serde::{Deserialize, Serialize};

/// Below this the difference of two schedulers is not luck.
const LEVEL: f64 = 0.05;

/// What one scheduler did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    pub scenario: String,
    /// What the figure shows.
    pub title: String,
    pub asked: String,
    pub bound: Option<f64>,
    /// Whether more is better; else less is.
    pub more: bool,
    /// The release that ran; where nothing came to its end, the one that was asked for.
    pub kernel: String,
    pub scheduler: String,
    /// The figure of each repeat.
    pub values: Vec<f64>,
    /// Why there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

/// How one scheduler's figure stands to another's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Standing {
    Better,
    Worse,
    /// Luck alone may do it.
    Alike,
}

impl Cell {
    /// The figures of a scenario under a scheduler.
    pub fn all(scenario: &Scenario, scheduler: &str, results: &Results, kernel: &str) -> Vec<Cell> {
        let kernel = results.kernel.as_deref().unwrap_or(kernel);
        // What came before a fault, or after it, is worth something.
        let mut sound = results.clone();
        sound.runs.retain(|run| run.fault.is_none());
        let cell = |expect: &Expect| {
            let under = Expect { scheduler: scheduler.to_owned(), ..expect.clone() };
            let row = evaluate(&[under], &sound).swap_remove(0);
            let mut cell = Cell::without(scenario, expect, scheduler, kernel);
            let fault = faults(results, expect.case.as_deref());
            cell.values = row.of_repeats.into_iter().map(rounded).collect();
            (cell.asked, cell.fault) = (row.asked, fault.or(row.note));
            cell
        };
        scenario.expects.iter().map(cell).collect()
    }

    /// The same where it did not run to an end.
    pub fn none(scenario: &Scenario, scheduler: &str, kernel: &str, why: &str) -> Vec<Cell> {
        let cell = |expect: &Expect| Cell {
            fault: Some(why.to_owned()),
            ..Cell::without(scenario, expect, scheduler, kernel)
        };
        scenario.expects.iter().map(cell).collect()
    }

    fn without(scenario: &Scenario, expect: &Expect, scheduler: &str, kernel: &str) -> Cell {
        Cell {
            scenario: scenario.name.clone(),
            title: expect.title.clone().unwrap_or_default(),
            asked: String::new(),
            bound: expect.min.or(expect.max),
            more: expect.min.is_some(),
            kernel: kernel.to_owned(),
            scheduler: scheduler.to_owned(),
            values: Vec::new(),
            fault: None,
        }
    }

    pub fn median(&self) -> Option<f64> {
        median(&self.values)
    }

    /// The least and the most.
    pub fn range(&self) -> Option<(f64, f64)> {
        let least = self.values.iter().copied().reduce(f64::min);
        least.zip(self.values.iter().copied().reduce(f64::max))
    }

    /// Whether its median is the better one.
    pub fn leads(&self, other: &Cell) -> bool {
        match (self.median(), other.median()) {
            (Some(own), Some(other)) => {
                if self.more {
                    own > other
                } else {
                    own < other
                }
            }
            (own, _) => own.is_some(),
        }
    }

    /// How it stands to another, and how likely luck alone sets them so far apart; none where one has no figure.
    pub fn against(&self, other: &Cell) -> Option<(Standing, f64)> {
        let luck = by_luck(&self.values, &other.values)?;
        let standing = match luck < LEVEL {
            false => Standing::Alike,
            true if self.leads(other) => Standing::Better,
            true => Standing::Worse,
        };
        Some((standing, luck))
    }
}

/// How many of a case's runs have a fault, and the first one.
fn faults(results: &Results, case: Option<&str>) -> Option<String> {
    let of_case = results.runs.iter().filter(|run| case.is_none_or(|case| run.case == case));
    let all = of_case.clone().count();
    let faults: Vec<&String> = of_case.filter_map(|run| run.fault.as_ref()).collect();
    Some(format!("in {} of {all} runs: {}", faults.len(), faults.first()?))
}

/// To six digits: what is published is read again as it was written.
fn rounded(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(more: bool, values: &[f64]) -> Cell {
        Cell {
            scenario: "s".to_owned(),
            title: "t".to_owned(),
            asked: String::new(),
            bound: None,
            more,
            kernel: "7.9".to_owned(),
            scheduler: "drover".to_owned(),
            values: values.to_vec(),
            fault: None,
        }
    }

    #[test]
    fn what_luck_may_do_is_no_difference() {
        let (low, high) = ([1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]);
        let standing = |more, one: &[f64], other: &[f64]| {
            cell(more, one).against(&cell(more, other)).map(|it| it.0)
        };
        assert_eq!(standing(true, &high, &low), Some(Standing::Better));
        assert_eq!(standing(false, &high, &low), Some(Standing::Worse));
        assert_eq!(standing(true, &low, &[4.5, 1.5, 2.5, 3.5]), Some(Standing::Alike));
        assert_eq!(standing(true, &high[..3], &low[..3]), Some(Standing::Alike), "too few");
        assert_eq!(standing(true, &[], &low), None);
        assert!(cell(true, &low).leads(&cell(true, &[])));
    }

    #[test]
    fn runs_beside_a_fault_count_and_the_fault_is_told() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/peers/bar.toml");
        let text = std::fs::read_to_string(file).unwrap();
        let bar = Scenario::parse(&text, "bar.toml").unwrap();
        let run = |repeat: u32, rest: &str| {
            format!(
                r#"{{"case":"four","scheduler":"scx_other","repeat":{repeat},"duration_s":1.0,
                    "host":{{"pcpus":2}},{rest}}}"#
            )
        };
        let vm = |cpu_s: f64| format!(r#"{{"name":"a","vcpus":1,"shares":1,"cpu_s":{cpu_s}}}"#);
        let sound = run(1, &format!(r#""vms":[{},{}]"#, vm(2.0), vm(1.0)));
        let thrown_out = run(2, r#""fault":"ejected","vms":[]"#);
        let results = format!(
            r#"{{"scenario":"bar","ground":"lab","seed":1,"runs":[{sound},{thrown_out}]}}"#
        );
        let cells = Cell::all(&bar, "scx_other", &serde_json::from_str(&results).unwrap(), "7.9");
        assert_eq!((cells[0].values.as_slice(), cells[0].more), (&[2.0][..], false));
        assert_eq!(cells[0].fault.as_deref(), Some("in 1 of 2 runs: ejected"));
    }
}

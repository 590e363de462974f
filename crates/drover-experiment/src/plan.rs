// SPDX-License-Identifier: GPL-2.0-only
//! In which order runs follow each other.

use crate::event::Started;
use drover_core::scenario::{Scenario, scheduler_label};

/// One run to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Planned {
    /// Index of the case.
    pub case: usize,
    /// Which repeat, from 1.
    pub repeat: u32,
    /// Index of the scheduler.
    pub scheduler: usize,
}

/// All runs: case by case, and within a case the schedulers in turn, so that what drifts while a
/// host is up meets all of them alike.
pub(crate) fn plan(scenario: &Scenario) -> Vec<Planned> {
    let mut runs = Vec::new();
    for case in 0..scenario.cases.len() {
        for repeat in 1..=scenario.repeats {
            let schedulers = 0..scenario.schedulers.len();
            runs.extend(schedulers.map(|scheduler| Planned { case, repeat, scheduler }));
        }
    }
    runs
}

impl Planned {
    /// The run as it is told to the user: `index` of `of`.
    pub fn started(&self, scenario: &Scenario, index: usize, of: usize) -> Started {
        Started {
            number: index + 1,
            of,
            case: scenario.cases[self.case].name.clone(),
            scheduler: scheduler_label(&scenario.schedulers[self.scheduler]).to_owned(),
            repeat: self.repeat,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
name = "s"
repeats = 2
schedulers = ["eevdf", "/opt/scx_other"]
[host]
[[vm]]
name = "a"
vcpus = 1
workload = { kind = "cpu" }
[[case]]
name = "x"
[[case]]
name = "y"
"#;

    #[test]
    fn schedulers_take_turns_within_a_case() {
        let scenario = Scenario::parse(TEXT, "s.toml").unwrap();
        let runs = plan(&scenario);
        let order: Vec<String> = runs
            .iter()
            .enumerate()
            .map(|(index, run)| run.started(&scenario, index, runs.len()))
            .map(|run| {
                format!("{}/{} {} {} {}", run.number, run.of, run.case, run.repeat, run.scheduler)
            })
            .collect();
        assert_eq!(
            order,
            [
                "1/8 x 1 eevdf",
                "2/8 x 1 scx_other",
                "3/8 x 2 eevdf",
                "4/8 x 2 scx_other",
                "5/8 y 1 eevdf",
                "6/8 y 1 scx_other",
                "7/8 y 2 eevdf",
                "8/8 y 2 scx_other",
            ]
        );
    }
}

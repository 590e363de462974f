// SPDX-License-Identifier: GPL-2.0-only
//! In which order runs follow each other.

use crate::event::Started;
use drover_scenario::{Clock, Scenario, scheduler_label};

/// One run to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Planned {
    /// Which of all runs, from 0.
    pub index: usize,
    /// Index of the case.
    pub case: usize,
    /// Which repeat, from 1.
    pub repeat: u32,
    /// Index of the scheduler.
    pub scheduler: usize,
}

/// All runs: repeat by repeat, within one the cases, and within a case the schedulers in turn: how fast a
/// machine is drifts from minute to minute, and what is compared, case with case or scheduler with
/// scheduler, is to stand side by side. On the exact clock nothing drifts: there it is scheduler by
/// scheduler, because loading one takes as long as several runs.
pub(crate) fn plan(scenario: &Scenario) -> Vec<Planned> {
    let mut runs = Vec::new();
    for repeat in 1..=scenario.repeats {
        for case in 0..scenario.cases.len() {
            let schedulers = 0..scenario.schedulers.len();
            runs.extend(schedulers.map(|scheduler| Planned { index: 0, case, repeat, scheduler }));
        }
    }
    if scenario.clock == Clock::Exact {
        runs.sort_by_key(|run| (run.scheduler, run.case));
    }
    runs.iter_mut().enumerate().for_each(|(index, run)| run.index = index);
    runs
}

/// The runs, divided among virtual hosts that are up at the same time. On the exact clock hosts do not
/// disturb each other, and one host keeps one CPU of this machine busy: two do the work in half of the time,
/// each case under all schedulers in one of them. On how many CPUs they really run does not matter to
/// the figures.
pub(crate) fn parts(scenario: &Scenario) -> Vec<Vec<Planned>> {
    let runs = plan(scenario);
    let half = scenario.cases.len().div_ceil(2);
    if scenario.clock == Clock::Real || scenario.cases.len() < 2 {
        return vec![runs];
    }
    let (first, second) = runs.into_iter().partition(|run| run.case < half);
    vec![first, second]
}

impl Planned {
    /// Whether the scheduler that is in charge of this run may stay for the next. It is told all there is
    /// to say of the VMs of a case, but not that pools, partitions or sets are gone.
    pub fn hands_on_to(&self, next: &Planned, scenario: &Scenario) -> bool {
        let has_orders = |run: &Planned| {
            let case = &scenario.cases[run.case];
            let has_partitions = case.auto_partitions || !case.partitions.specs().is_empty();
            has_partitions || !case.pools.pools().is_empty() || !case.sets.is_empty()
        };
        scenario.clock == Clock::Exact
            && self.scheduler == next.scheduler
            && !has_orders(self)
            && !has_orders(next)
    }

    /// The run as it is told to the user, one of `of`.
    pub fn started(&self, scenario: &Scenario, of: usize) -> Started {
        Started {
            number: self.index + 1,
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

    fn order(scenario: &Scenario) -> Vec<String> {
        let runs = plan(scenario);
        let told = runs.iter().map(|run| run.started(scenario, runs.len()));
        told.map(|run| {
            format!("{}/{} {} {} {}", run.number, run.of, run.case, run.repeat, run.scheduler)
        })
        .collect()
    }

    #[test]
    fn cases_and_schedulers_take_turns_within_a_repeat() {
        let mut scenario = Scenario::parse(TEXT, "s.toml").unwrap();
        scenario.clock = Clock::Real;
        assert_eq!(
            order(&scenario),
            [
                "1/8 x 1 eevdf",
                "2/8 x 1 scx_other",
                "3/8 y 1 eevdf",
                "4/8 y 1 scx_other",
                "5/8 x 2 eevdf",
                "6/8 x 2 scx_other",
                "7/8 y 2 eevdf",
                "8/8 y 2 scx_other",
            ]
        );
        let runs = plan(&scenario);
        assert!(runs.windows(2).all(|two| !two[0].hands_on_to(&two[1], &scenario)));
    }

    #[test]
    fn who_was_told_of_partitions_does_not_stay() {
        let partition = "[[partition]]\nname = \"p\"\ncpus = \"0\"\npolicy = \"share\"\n[[vm]]\npartition = \"p\"\n";
        let text =
            TEXT.replace("[host]", "host = { cores = 2 }").replacen("[[vm]]\n", partition, 1);
        let scenario = Scenario::parse(&text, "s.toml").unwrap();
        let runs = plan(&scenario);
        assert!(runs.windows(2).all(|two| !two[0].hands_on_to(&two[1], &scenario)));
    }

    #[test]
    fn on_the_exact_clock_a_scheduler_stays_for_all_its_runs() {
        let scenario = Scenario::parse(TEXT, "s.toml").unwrap();
        assert_eq!(
            order(&scenario),
            [
                "1/8 x 1 eevdf",
                "2/8 x 2 eevdf",
                "3/8 y 1 eevdf",
                "4/8 y 2 eevdf",
                "5/8 x 1 scx_other",
                "6/8 x 2 scx_other",
                "7/8 y 1 scx_other",
                "8/8 y 2 scx_other",
            ]
        );
        let runs = plan(&scenario);
        let stays: Vec<bool> =
            runs.windows(2).map(|two| two[0].hands_on_to(&two[1], &scenario)).collect();
        assert_eq!(stays, [true, true, true, false, true, true, true]);
    }

    #[test]
    fn on_the_exact_clock_two_hosts_share_the_cases() {
        let text = TEXT.replace("name = \"y\"", "name = \"y\"\n[[case]]\nname = \"z\"");
        let mut scenario = Scenario::parse(&text, "s.toml").unwrap();
        let cases = |part: &Vec<Planned>| part.iter().map(|run| run.case).collect::<Vec<_>>();
        let exact: Vec<_> = parts(&scenario).iter().map(cases).collect();
        assert_eq!(exact, [vec![0, 0, 1, 1, 0, 0, 1, 1], vec![2, 2, 2, 2]]);
        scenario.cases.truncate(1);
        assert_eq!(parts(&scenario), [plan(&scenario)]);
        let mut scenario = Scenario::parse(&text, "s.toml").unwrap();
        scenario.clock = Clock::Real;
        assert_eq!(parts(&scenario), [plan(&scenario)]);
    }

    #[test]
    fn a_scheduler_that_knows_of_pools_does_not_stay() {
        let text = TEXT.replace("[host]", "[host]\n[[pool]]\nname = \"p\"");
        let scenario = Scenario::parse(&text, "s.toml").unwrap();
        let runs = plan(&scenario);
        assert!(!runs[0].hands_on_to(&runs[1], &scenario));
    }
}

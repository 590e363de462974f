// SPDX-License-Identifier: GPL-2.0-only
//! What a command line says over a scenario file.

use anyhow::{Result, ensure};
use drover_core::nearest::there_is_no;
use drover_scenario::{Case, Clock, Scenario, scheduler_label};
use serde::{Deserialize, Serialize};

/// Values that replace those of a scenario; none: the scenario's own.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Overrides {
    /// Schedulers to compare.
    pub schedulers: Option<Vec<String>>,
    /// The cases to run, by name; empty: all.
    pub only: Vec<String>,
    /// The lab's clock.
    pub clock: Option<Clock>,
    /// Seed of whatever is drawn at random.
    pub seed: Option<u64>,
    /// How often each case runs under each scheduler.
    pub repeats: Option<u32>,
    /// Measured time of each run, s.
    pub duration_s: Option<f64>,
    /// Whether nothing is recorded over time, for whoever asks for totals only: each sample takes CPU
    /// time and two context switches.
    pub totals_only: bool,
}

impl Overrides {
    /// Puts them into `scenario`.
    ///
    /// # Errors
    /// When a scheduler has no name, or two would have the same in the results; when there is no such case.
    pub fn apply(&self, scenario: &mut Scenario) -> Result<()> {
        if let Some(schedulers) = &self.schedulers {
            for (index, scheduler) in schedulers.iter().enumerate() {
                let label = scheduler_label(scheduler);
                ensure!(!label.is_empty(), "--scheduler \"{scheduler}\" names no scheduler");
                let mut earlier = schedulers[..index].iter().map(|name| scheduler_label(name));
                ensure!(
                    !earlier.any(|name| name == label),
                    "--scheduler names {label} twice; --repeats 2 runs all twice"
                );
            }
            scenario.schedulers.clone_from(schedulers);
        }
        self.choose_cases(scenario)?;
        scenario.clock = self.clock.unwrap_or(scenario.clock);
        scenario.seed = self.seed.unwrap_or(scenario.seed);
        scenario.repeats = self.repeats.unwrap_or(scenario.repeats);
        scenario.duration_s = self.duration_s.unwrap_or(scenario.duration_s);
        if self.totals_only {
            scenario.sample_ms = None;
        }
        Ok(())
    }

    fn choose_cases(&self, scenario: &mut Scenario) -> Result<()> {
        let known = || scenario.cases.iter().map(|case| case.name.as_str());
        for name in &self.only {
            ensure!(
                known().any(|case| case == name),
                "--only: {}",
                there_is_no("case", name, known())
            );
        }
        let is_chosen = |case: &Case| self.only.is_empty() || self.only.contains(&case.name);
        scenario.cases.retain(is_chosen);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario() -> Scenario {
        let text = "name = \"s\"\nseed = 3\n[host]\n[[vm]]\nname = \"a\"\nvcpus = 1\n\
                    workload = { kind = \"cpu\" }\n";
        Scenario::parse(text, "s.toml").unwrap()
    }

    fn schedulers(names: &[&str]) -> Overrides {
        let schedulers = Some(names.iter().map(|&name| name.to_owned()).collect());
        Overrides { schedulers, ..Overrides::default() }
    }

    #[test]
    fn only_what_is_given_is_replaced() {
        let (mut changed, before) = (scenario(), scenario());
        Overrides::default().apply(&mut changed).unwrap();
        assert_eq!(changed, before);
        let overrides = Overrides { repeats: Some(7), ..schedulers(&["eevdf"]) };
        overrides.apply(&mut changed).unwrap();
        assert_eq!((changed.schedulers, changed.repeats), (vec!["eevdf".to_owned()], 7));
        assert_eq!((changed.seed, changed.duration_s), (3, before.duration_s));
    }

    #[test]
    fn for_totals_nothing_is_recorded_over_time() {
        let mut sampled = Scenario { sample_ms: Some(100), ..scenario() };
        Overrides::default().apply(&mut sampled).unwrap();
        assert_eq!(sampled.sample_ms, Some(100));
        Overrides { totals_only: true, ..Overrides::default() }.apply(&mut sampled).unwrap();
        assert_eq!(sampled.sample_ms, None);
    }

    #[test]
    fn only_the_cases_that_are_named_run() {
        let text = "name = \"s\"\n[host]\n[[vm]]\nname = \"a\"\nvcpus = 1\nworkload = { kind = \"cpu\" }\n\
                    [[case]]\nname = \"1:7\"\n[[case]]\nname = \"2:6\"\n[[case]]\nname = \"4:4\"\n";
        let chosen = |only: &[&str]| {
            let mut scenario = Scenario::parse(text, "s.toml").unwrap();
            let only = only.iter().map(|&name| name.to_owned()).collect();
            Overrides { only, ..Overrides::default() }.apply(&mut scenario)?;
            anyhow::Ok(scenario.cases.into_iter().map(|case| case.name).collect::<Vec<_>>())
        };
        assert_eq!(chosen(&[]).unwrap().len(), 3);
        assert_eq!(chosen(&["4:4", "1:7"]).unwrap(), ["1:7", "4:4"]);
        let message = chosen(&["4:4", "3:6"]).unwrap_err().to_string();
        assert!(message.contains("--only") && message.contains("\"3:6\""), "{message}");
        assert!(message.contains("did you mean \"2:6\"") && !message.contains('\n'), "{message}");
    }

    #[test]
    fn schedulers_that_would_be_mixed_up_are_refused() {
        for names in [&["drover", "/opt/drover"][..], &[""], &["eevdf", "/opt/"]] {
            let message = schedulers(names).apply(&mut scenario()).unwrap_err().to_string();
            assert!(message.contains("--scheduler") && message.lines().count() == 1, "{message}");
        }
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! What a command line says over a scenario file.

use anyhow::{Result, ensure};
use drover_core::scenario::{Clock, Scenario, scheduler_label};
use serde::{Deserialize, Serialize};

/// Values that replace those of a scenario; none: the scenario's own.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Overrides {
    /// Schedulers to compare.
    pub schedulers: Option<Vec<String>>,
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
    /// When a scheduler has no name, or two would have the same in the results.
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
        scenario.clock = self.clock.unwrap_or(scenario.clock);
        scenario.seed = self.seed.unwrap_or(scenario.seed);
        scenario.repeats = self.repeats.unwrap_or(scenario.repeats);
        scenario.duration_s = self.duration_s.unwrap_or(scenario.duration_s);
        if self.totals_only {
            scenario.sample_ms = None;
        }
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
    fn schedulers_that_would_be_mixed_up_are_refused() {
        for names in [&["drover", "/opt/drover"][..], &[""], &["eevdf", "/opt/"]] {
            let message = schedulers(names).apply(&mut scenario()).unwrap_err().to_string();
            assert!(message.contains("--scheduler") && message.lines().count() == 1, "{message}");
        }
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! Runs many scenarios on all pCPUs of this machine, one thread each.

use crate::scenario::rival::Entry;
use crate::scenario::{Options, run_scenario};
use drover_scenario::Scenario;
use drover_scenario::results::Results;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Takes what came of the scenario of that number, from any thread.
pub type Take<'a> = dyn Fn(usize, Results) -> Result<(), String> + Sync + 'a;

/// Runs each of `scenarios`, the longest first, and hands its results to `take` at once.
///
/// # Errors
/// The first error of the simulator or of `take`, in one line; what has not begun by then does not run.
pub fn run_batch(
    scenarios: &[Scenario],
    rivals: &[Entry],
    threads: usize,
    take: &Take,
) -> Result<(), String> {
    let mut order: Vec<usize> = (0..scenarios.len()).collect();
    order.sort_by_key(|&number| std::cmp::Reverse(work(&scenarios[number])));
    let next = AtomicUsize::new(0);
    let failed: Mutex<Option<String>> = Mutex::new(None);
    let options = Options { threads: 1, ..Options::default() };
    let run = || {
        while let Some(&number) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
            let outcome = run_scenario(&scenarios[number], rivals, &options, &|_, _| {});
            if let Err(error) = outcome.and_then(|outcome| take(number, outcome.results)) {
                next.store(order.len(), Ordering::Relaxed);
                failed.lock().expect("nobody panics with it held").get_or_insert(error);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.clamp(1, scenarios.len().max(1)) {
            scope.spawn(run);
        }
        run();
    });
    failed.into_inner().expect("nobody panicked").map_or(Ok(()), Err)
}

/// About how much work a scenario is: simulated ms times vCPUs, over all of its runs.
pub fn work(scenario: &Scenario) -> u64 {
    let vcpus: u64 =
        scenario.cases.iter().flat_map(|case| &case.vms).map(|vm| u64::from(vm.vcpus)).sum();
    let ms = ((scenario.warmup_s + scenario.duration_s) * 1000.0) as u64;
    let runs = u64::from(scenario.repeats) * scenario.schedulers.len() as u64;
    (ms * runs * vcpus).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario(name: &str, duration_s: f64, scheduler: &str) -> Scenario {
        let text = format!(
            "name = \"{name}\"\nduration_s = {duration_s}\nschedulers = [\"{scheduler}\"]\n\
             host = {{ cores = 1 }}\n[[vm]]\nname = \"a\"\nvcpus = 1\nworkload = {{ kind = \"cpu\" }}\n"
        );
        Scenario::parse(&text, "x.toml").unwrap()
    }

    #[test]
    fn every_scenario_runs_the_longest_first() {
        let scenarios = [1.0, 3.0, 2.0].map(|s| scenario("s", s, "drover"));
        let taken = Mutex::new(Vec::new());
        let take = |number, results: Results| {
            taken.lock().unwrap().push((number, results.runs.len()));
            Ok(())
        };
        run_batch(&scenarios, &[], 1, &take).unwrap();
        assert_eq!(taken.into_inner().unwrap(), [(1, 1), (2, 1), (0, 1)]);
    }

    #[test]
    fn the_first_error_ends_it() {
        let scenarios = [scenario("good", 1.0, "drover"), scenario("bad", 2.0, "nobody")];
        let error = run_batch(&scenarios, &[], 1, &|_, _| panic!("nothing ran")).unwrap_err();
        assert!(error.contains("bad") && error.contains("nobody"), "{error}");
    }
}

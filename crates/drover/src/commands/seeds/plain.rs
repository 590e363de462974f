// SPDX-License-Identifier: GPL-2.0-only
//! Drover beside EEVDF in each case of the documents' scenarios, with nothing set.

use drover_core::asked::Consolidate;
use drover_core::partition::Partitions;
use drover_core::place::Heuristic;
use drover_core::shares::Shares;
use drover_core::tree::Tree;
use drover_report::claims::Cell;
use drover_scenario::expect::median;
use drover_scenario::results::{Run, VmFigures};
use drover_scenario::{Case, Scenario, Vm};
use drover_sim::scenario::DROVER;

/// The scheduler of a host where nothing is loaded.
const EEVDF: &str = "eevdf";
/// So long is measured at most: a scenario is longer where homes or lost time are what it shows.
const LONGEST_S: f64 = 10.0;

/// The cases of a scenario with nothing set that only Drover knows; of those that are alike then, the first.
pub fn cases(scenario: &Scenario) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for case in scenario.cases.iter().map(plain) {
        let is_alike = |it: &Case| Case { name: case.name.clone(), ..it.clone() } == case;
        if !cases.iter().any(is_alike) {
            cases.push(case);
        }
    }
    cases
}

fn plain(case: &Case) -> Case {
    Case {
        pools: Tree::default(),
        partitions: Partitions::default(),
        auto_partitions: false,
        placement: Heuristic::default(),
        sets: Vec::new(),
        vms: case.vms.iter().map(plain_vm).collect(),
        ..case.clone()
    }
}

/// A VM of which its pins and where its memory lies are all that is said: EEVDF heeds these, too.
fn plain_vm(vm: &Vm) -> Vm {
    Vm {
        shares: Shares::NORMAL,
        reservation_pct: 0,
        limit_pct: None,
        pool: None,
        cosched: None,
        partition: None,
        home: None,
        max_per_node: None,
        consolidate: Consolidate::default(),
        ..vm.clone()
    }
}

/// The same scenario with this case alone, under each of the two schedulers.
pub fn both(scenario: &Scenario, case: &Case) -> [Scenario; 2] {
    [EEVDF, DROVER].map(|scheduler| Scenario {
        schedulers: vec![scheduler.to_owned()],
        cases: vec![case.clone()],
        duration_s: scenario.duration_s.min(LONGEST_S),
        policy: Default::default(),
        ..scenario.clone()
    })
}

/// A figure of VMs; more is better.
type Figure = fn(&[&VmFigures]) -> Option<f64>;

/// What comes of a case: for each kind of work that its VMs do, how much of it is done under Drover and how long a
/// vCPU waits after a wake-up, beside EEVDF.
pub fn cells(scenario: &Scenario, case: &Case, [eevdf, drover]: [&[Run]; 2]) -> Vec<Cell> {
    let mut kinds: Vec<(&Vm, Vec<usize>)> = Vec::new();
    for (at, vm) in case.vms.iter().enumerate() {
        match kinds.iter_mut().find(|(first, _)| first.workload == vm.workload) {
            Some((_, alike)) => alike.push(at),
            None => kinds.push((vm, vec![at])),
        }
    }
    let mut cells = Vec::new();
    for (first, alike) in &kinds {
        let figures: [(&str, Figure); 2] = [("work", work), ("promptness", promptness)];
        for (figure, of) in figures {
            let of_run = |run: &Run| of(&alike.iter().map(|&at| &run.vms[at]).collect::<Vec<_>>());
            let pairs = eevdf.iter().zip(drover);
            let ratios = pairs.map(|(eevdf, drover)| Some(of_run(drover)? / of_run(eevdf)?));
            let Some(ratios) = ratios.collect::<Option<Vec<f64>>>() else { continue };
            let Some(median) = median(&ratios).filter(|it| it.is_finite()) else { continue };
            cells.push(Cell {
                scenario: scenario.name.clone(),
                case: case.name.clone(),
                vms: if kinds.len() > 1 {
                    format!("{} x {}", alike.len(), first.name)
                } else {
                    String::new()
                },
                figure: figure.to_owned(),
                ratio: thousandths(median),
                least: thousandths(ratios.iter().copied().fold(f64::INFINITY, f64::min)),
                most: thousandths(ratios.iter().copied().fold(f64::NEG_INFINITY, f64::max)),
                why: None,
            });
        }
    }
    cells
}

fn work(vms: &[&VmFigures]) -> Option<f64> {
    let total: Option<u64> = vms.iter().map(|vm| vm.progress).sum();
    total.filter(|&total| total > 0).map(|total| total as f64)
}

/// The more, the sooner a woken vCPU runs; none where too few woke to tell.
fn promptness(vms: &[&VmFigures]) -> Option<f64> {
    let wakeups = vms.iter().filter_map(|vm| vm.wakeup_us.as_ref());
    let (count, sum) = wakeups
        .fold((0, 0.0), |(count, sum), it| (count + it.count, sum + it.count as f64 * it.mean));
    (count >= 200 * vms.len() as u64 && sum > 0.0).then(|| count as f64 / sum)
}

fn thousandths(ratio: f64) -> f64 {
    (ratio * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "name = \"x\"\nduration_s = 60.0\nhost = { cores = 2 }\n\
        [[vm]]\nname = \"a\"\nvcpus = 2\npin = \"0\"\nworkload = { kind = \"cpu\" }\n\
        [[vm]]\nname = \"b\"\nvcpus = 1\nworkload = { kind = \"sleep\" }\n\
        [[case]]\nname = \"shares\"\nvm.a.shares = 9000\n\
        [[case]]\nname = \"gang\"\nvm.a.cosched = \"gang\"\n\
        [[case]]\nname = \"alone\"\nvm.b.absent = true\n";

    fn scenario() -> Scenario {
        Scenario::parse(TEXT, "x.toml").unwrap()
    }

    #[test]
    fn a_case_with_nothing_set_keeps_its_pins_and_stands_once() {
        let cases = cases(&scenario());
        let names: Vec<&str> = cases.iter().map(|case| case.name.as_str()).collect();
        assert_eq!(names, ["shares", "alone"], "what was set was all that was different");
        assert_eq!(cases[0].vms[0].shares, Shares::NORMAL);
        assert!(cases[0].vms[0].pin.is_some());
        let both = both(&scenario(), &cases[0]);
        assert_eq!(both.each_ref().map(|it| it.schedulers[0].as_str()), ["eevdf", "drover"]);
        assert_eq!(both[0].duration_s, LONGEST_S);
    }

    #[test]
    fn cells_are_ratios_of_what_vms_of_one_kind_do() {
        let scenario = scenario();
        let case = &cases(&scenario)[0];
        let run = |progress: [u64; 2], mean: f64| {
            let text = serde_json::json!({
                "case": "shares", "scheduler": "eevdf", "repeat": 1, "duration_s": 1.0, "host": { "pcpus": 2 },
                "vms": [
                    { "name": "a", "vcpus": 2, "shares": 1, "progress": progress[0] },
                    { "name": "b", "vcpus": 1, "shares": 1, "progress": progress[1], "wakeup_us":
                        { "count": 500, "mean": mean, "p50": 1.0, "p99": 1.0, "max": 1.0 } },
                ],
            });
            serde_json::from_value::<Run>(text).unwrap()
        };
        let (eevdf, drover) = (run([100, 50], 30.0), run([90, 60], 60.0));
        let cells = cells(&scenario, case, [&[eevdf], &[drover]]);
        let each: Vec<_> =
            cells.iter().map(|it| (it.vms.as_str(), it.figure.as_str(), it.ratio)).collect();
        assert_eq!(
            each,
            [("1 x a", "work", 0.9), ("1 x b", "work", 1.2), ("1 x b", "promptness", 0.5)]
        );
    }
}

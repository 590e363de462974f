// SPDX-License-Identifier: GPL-2.0-only
//! Drover against EEVDF where nothing is set: what the rig finds, and what it must find.

use drover_core::shares::Shares;
use drover_rivals::RIVALS;
use drover_scenario::Scenario;
use drover_sim::rig::against::{Kind, Trial, TrialHost, TrialRole, TrialVm};
use drover_sim::rig::against::{shrink_against, try_against, try_trial};
use drover_sim::scenario::rival::Entry;
use drover_sim::scenario::{ForRig, run_threads};
use drover_sim::scx::Planted;

fn eevdf() -> &'static Entry {
    RIVALS.iter().find(|rival| rival.name == "eevdf").unwrap()
}

fn vm(name: &str, vcpus: u32, steps: &[&str]) -> TrialVm {
    let steps = steps.iter().map(|&step| step.to_owned()).collect();
    TrialVm { name: name.to_owned(), roles: vec![TrialRole { vcpus, steps }], lock: None }
}

#[test]
fn who_wakes_late_is_found_by_name() {
    let host = TrialHost { dies: 1, cores: 2, threads: 1, ple: false };
    let web = vm("web", 1, &["timer 4 ms", "compute 3200 us"]);
    let vms = vec![web, vm("busy-1", 4, &["compute 5 ms"]), vm("busy-2", 4, &["compute 5 ms"])];
    let mut scenario = Trial { seed: 1, host, vms }.scenario("eevdf").unwrap();
    // It is owed a pCPU, unless its shares are not told.
    scenario.cases[0].vms[0].shares = Shares::Exact(8000);
    let fine = &try_against(&scenario, eevdf(), None).unwrap()[0];
    assert_eq!((fine.looked_at.light, fine.looked_at.heavy), (1, 2));
    assert_eq!(fine.judged.short, [], "without a bug nobody falls short");
    let late = &try_against(&scenario, eevdf(), Some(Planted::IgnoresShares)).unwrap()[0];
    let found: Vec<_> = late.judged.short.iter().map(|short| (short.kind, short.vm)).collect();
    assert!(found.contains(&(Kind::LightVmWork, Some(0))), "{found:?}");
    assert!(found.contains(&(Kind::LightVmP99, Some(0))), "{found:?}");
}

#[test]
fn who_is_not_given_its_part_is_found_and_the_trial_gets_smaller() {
    let host = TrialHost { dies: 1, cores: 2, threads: 1, ple: false };
    let vms = vec![vm("small", 1, &["compute 5 ms"]), vm("large", 6, &["compute 5 ms"])];
    let trial = Trial { seed: 1, host, vms };
    assert_eq!(try_trial(&trial, eevdf(), None).unwrap()[0].judged.short, []);
    let planted = Some(Planted::ChargesHalf);
    let found = &try_trial(&trial, eevdf(), planted).unwrap()[0];
    let short: Vec<_> = found.judged.short.iter().map(|short| (short.kind, short.vm)).collect();
    assert_eq!(short, [(Kind::HeavyVmPart, Some(0))]);
    let (least, short, name) =
        shrink_against(&trial, eevdf(), Kind::HeavyVmPart, planted).expect("it is found");
    let vcpus = |trial: &Trial| trial.vms.iter().map(TrialVm::vcpus).sum::<u32>();
    assert!(vcpus(&least) < vcpus(&trial) && short.ratio < 0.98 && name == "small", "{least:?}");
}

#[test]
fn a_seed_repeats_exactly() {
    let seed = (0..).find(|&seed| Trial::of_seed(seed).host.pcpus() <= 4).unwrap();
    let trial = Trial::of_seed(seed);
    assert_eq!(try_trial(&trial, eevdf(), None), try_trial(&trial, eevdf(), None));
}

/// Each vCPU draws the same numbers under both, however the others come in between.
#[test]
fn both_sides_draw_the_same_numbers() {
    let host = TrialHost { dies: 1, cores: 4, threads: 1, ple: false };
    let steps = ["compute about 700 us", "io about 30 us then 100 us", "count"];
    let trial = Trial { seed: 5, host, vms: vec![vm("a", 1, &steps), vm("b", 1, &steps)] };
    let scenario = trial.scenario("eevdf").unwrap();
    let run = |rival| run_threads(&scenario, (&scenario.cases[0], rival, 1), ForRig::default());
    let (drover, rival) = (run(None).unwrap(), run(Some(eevdf())).unwrap());
    for (drover, rival) in drover.of_vm.iter().zip(&rival.of_vm) {
        let ratio = drover[0].work_s / rival[0].work_s;
        assert!((0.999..1.001).contains(&ratio), "{ratio}: by chance they would be 2 % apart");
    }
}

/// Trials in which somebody once fell short.
#[test]
fn trials_that_were_mended_hold() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/regressions/eevdf");
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let name = path.display().to_string();
        let scenario = Scenario::parse(&std::fs::read_to_string(&path).unwrap(), &name).unwrap();
        for case in try_against(&scenario, eevdf(), None).unwrap() {
            assert_eq!(case.judged.short, [], "{name}");
        }
    }
}

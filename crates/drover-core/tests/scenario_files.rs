// SPDX-License-Identifier: GPL-2.0-only
//! Every scenario that comes with Drover can be read, and is what its name says.

use drover_core::entitlement::share_owed_pct;
use drover_core::scenario::{Clock, Scenario, Vmm};
use std::path::PathBuf;

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scenarios")
}

fn read(name: &str) -> Scenario {
    let path = directory().join(name);
    let text = std::fs::read_to_string(&path).unwrap();
    Scenario::parse(&text, name).unwrap_or_else(|error| panic!("{error}"))
}

fn all() -> Vec<(String, Scenario)> {
    let entries = std::fs::read_dir(directory()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let files = names.filter(|name| name.ends_with(".toml"));
    files.map(|name| (name.clone(), read(&name))).collect()
}

#[test]
fn every_scenario_reads_and_is_named_as_its_file() {
    let scenarios = all();
    assert!(scenarios.len() >= 9, "{} scenarios", scenarios.len());
    for (file, scenario) in scenarios {
        assert_eq!(file, format!("{}.toml", scenario.name));
        assert!(!scenario.description.is_empty(), "{file} has no description");
        assert!(!scenario.expects.is_empty(), "{file} expects nothing");
    }
}

#[test]
fn figure_3_has_its_seven_ratios() {
    let scenario = read("esx-fig3-shares.toml");
    assert_eq!((scenario.host.pcpus(), scenario.clock), (4, Clock::Exact));
    let names: Vec<_> = scenario.cases.iter().map(|case| case.name.as_str()).collect();
    assert_eq!(names, ["1:7", "2:6", "3:5", "4:4", "5:3", "6:2", "7:1"]);
    for (case, eighths) in scenario.cases.iter().zip(1..) {
        let owed = share_owed_pct(&case.vms, 4, scenario.duration_s).unwrap();
        assert!((owed[0] - 12.5 * f64::from(eighths)).abs() < 1e-9, "{} {owed:?}", case.name);
    }
}

#[test]
fn equal_shares_owe_a_third_whatever_the_width() {
    let scenario = read("equal-shares-1-2-8.toml");
    let owed = share_owed_pct(&scenario.cases[0].vms, 2, scenario.duration_s).unwrap();
    assert!(owed.iter().all(|owed| (owed - 100.0 / 3.0).abs() < 1e-9), "{owed:?}");
}

#[test]
fn halving_its_demand_a_vm_wants_less_than_its_due() {
    let scenario = read("halved-demand.toml");
    let owed = share_owed_pct(&scenario.cases[0].vms, 4, scenario.duration_s).unwrap();
    assert!((owed[0] - 62.5).abs() < 1e-9, "75 % for the first half, 50 % after: {owed:?}");
}

#[test]
fn what_needs_real_time_runs_on_the_real_clock() {
    for name in ["sleep-vs-busy", "barrier-2to1", "lock-2to1", "total-work", "mixed-load"] {
        let scenario = read(&format!("{name}.toml"));
        assert_eq!((scenario.clock, scenario.host.pcpus()), (Clock::Real, 2), "{name}");
    }
}

#[test]
fn alone_leaves_the_busy_vm_out() {
    for name in ["sleep-vs-busy.toml", "barrier-2to1.toml"] {
        let widths: Vec<_> = read(name).cases.iter().map(|case| case.vms.len()).collect();
        assert_eq!(widths, [1, 2], "{name}");
    }
}

#[test]
fn qemu_guests_are_owed_one_to_three() {
    let scenario = read("qemu-guests.toml");
    let vms = &scenario.cases[0].vms;
    assert!(vms.iter().all(|vm| vm.vmm == Vmm::Qemu && vm.vcpus == 2));
    let owed = share_owed_pct(vms, 2, scenario.duration_s).unwrap();
    assert!((owed[0] - 25.0).abs() < 1e-9, "{owed:?}");
}

// SPDX-License-Identifier: GPL-2.0-only
//! Every scenario that comes with Drover can be read, and is what its name says.

use drover_scenario::entitlement::owed_s;
use drover_scenario::{Case, Clock, Host, Scenario, Vmm};
use std::path::PathBuf;

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scenarios")
}

fn read(name: &str) -> Scenario {
    let path = directory().join(name);
    let text = std::fs::read_to_string(&path).unwrap();
    let other = |other: &str| {
        std::fs::read_to_string(path.parent().unwrap().join(other))
            .map_err(|error| error.to_string())
    };
    Scenario::parse_with(&text, name, &other).unwrap_or_else(|error| panic!("{error}"))
}

/// What each VM of a case is owed, in % of what all are owed.
fn owed_pct(scenario: &Scenario, case: &Case) -> Vec<f64> {
    let owed_s = owed_s(case, scenario.host.pcpus(), scenario.duration_s).unwrap();
    let total_s: f64 = owed_s.iter().sum();
    owed_s.iter().map(|owed_s| 100.0 * owed_s / total_s).collect()
}

fn all() -> Vec<(String, Scenario)> {
    let names = |folder: &str| {
        let entries = std::fs::read_dir(directory().join(folder)).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.ends_with(".toml")).collect::<Vec<String>>()
    };
    let seeds = names("seeds").into_iter().filter(|name| name != "claims.toml");
    let seeds = seeds.map(|name| (name.clone(), format!("seeds/{name}")));
    let files = names("").into_iter().map(|name| (name.clone(), name)).chain(seeds);
    files.map(|(name, path)| (name, read(&path))).collect()
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
        let owed = owed_pct(&scenario, case);
        assert!((owed[0] - 12.5 * f64::from(eighths)).abs() < 1e-9, "{} {owed:?}", case.name);
    }
}

#[test]
fn figure_4_has_one_to_seven_rivals_of_a_reserved_vm() {
    let scenario = read("esx-fig4-reservation.toml");
    assert_eq!((scenario.host.pcpus(), scenario.clock), (4, Clock::Exact));
    for (case, rivals) in scenario.cases.iter().zip(1..) {
        assert_eq!((case.name.as_str(), case.vms.len()), (rivals.to_string().as_str(), rivals + 1));
        let owed = owed_s(case, 4, scenario.duration_s).unwrap();
        let rival_pcpus = 1.0_f64.min(3.0 / rivals as f64);
        assert!((owed[0] - scenario.duration_s).abs() < 1e-9, "{owed:?}");
        assert!((owed[rivals] - scenario.duration_s * rival_pcpus).abs() < 1e-9, "{owed:?}");
    }
    assert_eq!(scenario.cases.len(), 7);
}

#[test]
fn figure_5_has_its_seven_limits() {
    let scenario = read("esx-fig5-limit.toml");
    assert_eq!((scenario.host.pcpus(), scenario.clock), (4, Clock::Exact));
    for (case, limit_pct) in scenario.cases.iter().zip((50..).step_by(25)) {
        assert_eq!(case.name, format!("{limit_pct}%"));
        assert_eq!((case.vms[0].limit_pct, case.vms[1].limit_pct), (Some(limit_pct), None));
        let owed = owed_pct(&scenario, case);
        assert!((owed[0] - f64::from(limit_pct) / 4.0).abs() < 1e-9, "{owed:?}");
    }
    assert_eq!(scenario.cases.len(), 7);
}

#[test]
fn equal_shares_owe_a_third_whatever_the_width() {
    let scenario = read("equal-shares-1-2-8.toml");
    let owed = owed_pct(&scenario, &scenario.cases[0]);
    assert!(owed.iter().all(|owed| (owed - 100.0 / 3.0).abs() < 1e-9), "{owed:?}");
}

#[test]
fn halving_its_demand_a_vm_wants_less_than_its_due() {
    let scenario = read("halved-demand.toml");
    let owed = owed_pct(&scenario, &scenario.cases[0]);
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
    let widths =
        |name: &str| -> Vec<usize> { read(name).cases.iter().map(|case| case.vms.len()).collect() };
    assert_eq!(widths("sleep-vs-busy.toml"), [1, 2]);
    assert_eq!(widths("barrier-2to1.toml"), [1, 1, 2, 2, 3], "one, the busy one, both, two, three");
}

/// What each VM of a case is owed, pCPUs.
fn owed_pcpus(scenario: &Scenario, case: &str) -> Vec<f64> {
    let case = scenario.cases.iter().find(|it| it.name == case).unwrap();
    let owed_s = owed_s(case, scenario.host.pcpus(), scenario.duration_s).unwrap();
    owed_s.iter().map(|owed_s| owed_s / scenario.duration_s).collect()
}

fn assert_near(owed: &[f64], expected: &[f64]) {
    let near = owed.iter().zip(expected).all(|(owed, expected)| (owed - expected).abs() < 1e-9);
    assert!(near && owed.len() == expected.len(), "{owed:?}, not {expected:?}");
}

#[test]
fn confined_vms_are_owed_parts_of_their_node() {
    let shares = read("confined-shares.toml");
    assert_eq!((shares.host.pcpus(), shares.host.nodes, shares.clock), (4, 2, Clock::Exact));
    assert_near(&owed_pcpus(&shares, "1:7"), &[0.25, 1.75, 1.0, 1.0]);
    assert_near(&owed_pcpus(&shares, "3:1 and a sleeper"), &[1.365, 0.455, 0.18, 1.0, 1.0]);
    let third = 2.0 / 3.0;
    assert_near(&owed_pcpus(&shares, "1, 2 and 8 vCPUs"), &[third, third, third, 1.0, 1.0]);
    assert_near(&owed_pcpus(&shares, "halved demand"), &[1.25, 0.75, 1.0, 1.0]);
    let reserved = read("confined-reservation.toml");
    let rival = 1.1 / 3.0;
    let expected = [0.9, rival, rival, rival, 1.0, 1.0];
    assert_near(&owed_pcpus(&reserved, "90% beside three"), &expected);
    let limit = read("confined-limit.toml");
    assert_near(&owed_pcpus(&limit, "175%"), &[1.75, 0.25, 1.0, 1.0]);
    assert_near(&owed_pcpus(&limit, "200%"), &[1.8, 0.2, 1.0, 1.0]);
    assert_near(&owed_pcpus(&limit, "125% alone"), &[1.25, 1.0, 1.0]);
}

#[test]
fn vms_on_overlapping_sets_are_owed_what_shares_and_sets_say() {
    let sets = read("overlapping-sets.toml");
    assert_near(&owed_pcpus(&sets, "alike"), &[1.0; 4]);
    assert_near(&owed_pcpus(&sets, "3:1:3:1"), &[1.5, 0.5, 1.5, 0.5]);
    assert_near(&owed_pcpus(&sets, "9:1:1:1"), &[2.0, 2.0 / 3.0, 2.0 / 3.0, 2.0 / 3.0]);
    let left = 2.5 / 3.0;
    assert_near(&owed_pcpus(&sets, "150% reserved"), &[left, 1.5, left, left]);
    assert_near(&owed_pcpus(&sets, "one to one"), &[0.8; 5]);
}

#[test]
fn what_make_try_shows_has_a_title_each() {
    let scenario = read("try.toml");
    let titles: Vec<&str> = scenario.expects.iter().filter_map(|it| it.title.as_deref()).collect();
    assert_eq!(titles.len(), 4, "a barrier, a reservation, a wake-up and sizes");
    // Half a page of the picture.
    assert!(titles.iter().all(|title| title.len() <= 58), "{titles:?}");
}

#[test]
fn qemu_guests_are_owed_one_to_three() {
    let scenario = read("qemu-guests.toml");
    let vms = &scenario.cases[0].vms;
    assert!(vms.iter().all(|vm| vm.vmm == Vmm::Qemu && vm.vcpus == 2));
    let owed = owed_pct(&scenario, &scenario.cases[0]);
    assert!((owed[0] - 25.0).abs() < 1e-9, "{owed:?}");
}

/// The host of a file in scenarios/hosts/.
fn host(file: &str) -> Host {
    let text = format!(
        "name = \"x\"\nhost = \"hosts/{file}\"\n[[vm]]\nname = \"a\"\nvcpus = 1\n\
         workload = {{ kind = \"cpu\" }}\n"
    );
    let read = |other: &str| {
        std::fs::read_to_string(directory().join(other)).map_err(|error| error.to_string())
    };
    let scenario = Scenario::parse_with(&text, "x.toml", &read);
    scenario.unwrap_or_else(|error| panic!("{error}")).host
}

#[test]
fn every_host_reads_and_those_of_the_seeds_have_their_shape() {
    for entry in std::fs::read_dir(directory().join("hosts")).unwrap() {
        let file = entry.unwrap().file_name().into_string().unwrap();
        assert!(file.starts_with("lab") || host(&file).cpu.is_some(), "{file} says no CPU");
    }
    // pCPUs, last-level caches, NUMA nodes, MiB.
    for (file, shape) in [
        ("xeon-x5355-x2.toml", (8, 4, 1, 32_768)),
        ("opteron-8384-x2.toml", (8, 2, 2, 65_536)),
        ("opteron-8222-x4.toml", (8, 8, 4, 65_536)),
        ("opteron-8378-x4.toml", (16, 4, 4, 73_728)),
        ("xeon-x5365-x2.toml", (8, 4, 1, 16_384)),
        ("xeon-e7-8870-x4.toml", (80, 4, 4, 262_144)),
        ("westmere-ep-x2.toml", (16, 2, 2, 147_456)),
        ("numa-16-way.toml", (16, 2, 2, 12_288)),
        ("xeon-8468h-x4.toml", (384, 4, 4, 2_097_152)),
        ("lab.toml", (4, 1, 1, 2_048)),
    ] {
        let host = host(file);
        let found = (host.pcpus(), host.sockets * host.dies, host.nodes, host.memory_mib);
        assert_eq!(found, shape, "{file}");
    }
}

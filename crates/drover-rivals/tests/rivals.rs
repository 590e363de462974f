// SPDX-License-Identifier: GPL-2.0-only
//! The schedulers to compare with, on what is known of them.

use drover_rivals::RIVALS;
use drover_scenario::Scenario;
use drover_scenario::expect::{Verdict, evaluate};
use drover_scenario::results::Run;
use drover_sim::scenario::{Options, run_scenario};
use std::path::PathBuf;

/// Runs VMs (name, vCPUs, shares, workload) under a scheduler for 4 s.
fn simulate(scheduler: &str, top: &str, vms: &[(&str, u32, u32, &str)]) -> Run {
    let mut text = format!("name = \"x\"\nschedulers = [\"{scheduler}\"]\n{top}\n");
    for (name, vcpus, shares, rest) in vms {
        text += &format!("[[vm]]\nname = \"{name}\"\nvcpus = {vcpus}\nshares = {shares}\n{rest}\n");
    }
    let scenario = Scenario::parse(&text, "x.toml").unwrap_or_else(|error| panic!("{error}"));
    let outcome = run_scenario(&scenario, RIVALS, &Options::default(), &|_, _| {}).unwrap();
    let run = outcome.results.runs.into_iter().next().unwrap();
    assert_eq!(run.fault, None, "{scheduler}");
    run
}

const BUSY: &str = "workload = { kind = \"cpu\" }";

fn cpu_s(run: &Run) -> Vec<f64> {
    run.vms.iter().map(|vm| vm.cpu_s.unwrap()).collect()
}

#[test]
fn busy_vms_divide_a_host_by_their_shares() {
    for scheduler in ["eevdf", "cfs36", "credit", "esx35"] {
        let vms = [("a", 4, 1000, BUSY), ("b", 4, 3000, BUSY)];
        let got = cpu_s(&simulate(scheduler, "host = { cores = 4 }", &vms));
        assert!((got[0] - 4.0).abs() < 0.8 && (got[1] - 12.0).abs() < 0.8, "{scheduler}: {got:?}");
    }
}

#[test]
fn of_fixed_priorities_only_the_order_counts() {
    let split = |shares| {
        let vms = [("a", 2, shares, BUSY), ("b", 2, 1000, BUSY)];
        cpu_s(&simulate("priority", "host = { cores = 2 }", &vms))
    };
    for more in [1001, 2000, 10_000] {
        let got = split(more);
        assert!(got[0] > 7.9 && got[1] < 0.1, "{more}: {got:?}");
    }
    let equal = split(1000);
    assert!((equal[0] - 4.0).abs() < 0.1 && (equal[1] - 4.0).abs() < 0.1, "{equal:?}");
}

#[test]
fn nobody_rests_beside_a_crowd() {
    for scheduler in ["eevdf", "cfs36", "credit"] {
        let vms = [("a", 6, 1000, BUSY), ("b", 7, 1000, BUSY), ("c", 1, 1000, BUSY)];
        let run = simulate(
            scheduler,
            "host = \
            { sockets = 2, nodes = 2, cores = 2, threads = 2 }",
            &vms,
        );
        let idle_s = run.host.idle_s.unwrap();
        assert!(idle_s < 0.02, "{scheduler}: {idle_s}");
    }
}

#[test]
fn cfs_takes_turns_of_half_a_latency_and_serves_sleepers_at_once() {
    let vms = [("a", 1, 1000, BUSY), ("b", 1, 1000, BUSY)];
    // One pCPU: a latency of 6 ms, 3 ms each, at the next tick of 4 ms.
    let run = simulate("cfs36", "host = { cores = 1 }", &vms);
    let switches = run.host.context_switches.unwrap();
    assert!((990..=1010).contains(&switches), "{switches}");
    let sleeper = "workload = { kind = \"sleep\", period_us = 20000, work_us = 100 }";
    let vms = [("a", 1, 1000, BUSY), ("s", 1, 1000, sleeper)];
    let run = simulate("cfs36", "host = { cores = 1 }", &vms);
    let late = run.vms[1].wakeup_us.as_ref().unwrap();
    assert!(late.p99 < 20.0, "{late:?}");
}

#[test]
fn a_directed_yield_of_cfs_helps_who_holds_the_lock() {
    let lock = "workload = { kind = \"lock\", hold_us = 5, think_us = 20 }";
    let vms = [("l", 4, 4000, lock), ("b", 4, 4000, BUSY)];
    let sections = |ple: bool| {
        let run = simulate("cfs36", &format!("host = {{ cores = 4 }}\nple = {ple}"), &vms);
        run.vms[0].progress.unwrap()
    };
    let (without, with) = (sections(false), sections(true));
    assert!(with > 3 * without, "{with} with, {without} without");
}

/// Two VMs of four vCPUs on two nodes of four pCPUs, a minute after they began.
fn balanced_for_a_minute(scheduler: &str) -> Run {
    let top = "duration_s = 10.0\nwarmup_s = 50.0\nhost = { sockets = 2, nodes = 2, cores = 4 }";
    simulate(scheduler, top, &[("a", 4, 1000, BUSY), ("b", 4, 1000, BUSY)])
}

#[test]
fn autonuma_brings_threads_and_memory_together_and_faults_less_with_time() {
    let run = balanced_for_a_minute("cfs36-autonuma");
    let numa: Vec<_> = run.vms.iter().map(|vm| vm.numa.as_ref().unwrap()).collect();
    assert_ne!(numa[0].home, numa[1].home, "a node for each");
    for numa in numa {
        assert!(numa.local_pct.unwrap() > 99.0 && numa.home_time_pct.unwrap() > 99.0, "{numa:?}");
    }
    let (faults_s, spins_s) = (run.host.page_fault_s.unwrap(), run.host.page_fault_spin_s.unwrap());
    assert!(faults_s > 0.0 && spins_s < faults_s && faults_s < 0.05, "{faults_s} {spins_s}");
}

#[test]
fn schednuma_moves_memory_to_one_node() {
    let run = balanced_for_a_minute("cfs36-schednuma");
    for vm in &run.vms {
        assert!(vm.numa.as_ref().unwrap().local_pct.unwrap() > 99.0, "{vm:?}");
    }
    let plain = balanced_for_a_minute("cfs36");
    assert!(plain.vms[0].numa.is_none() && plain.host.page_fault_s.is_none());
}

#[test]
fn credit_takes_turns_of_30_ms_and_boosts_who_wakes() {
    let vms = [("a", 1, 1000, BUSY), ("b", 1, 1000, BUSY)];
    let run = simulate("credit", "host = { cores = 1 }", &vms);
    let switches = run.host.context_switches.unwrap();
    assert!((125..=140).contains(&switches), "4 s of 30 ms each: {switches}");
    let sleeper = "workload = { kind = \"sleep\", period_us = 7000, work_us = 100 }";
    let vms = [("a", 1, 1000, BUSY), ("b", 1, 1000, BUSY), ("s", 1, 1000, sleeper)];
    let run = simulate("credit", "host = { cores = 1 }", &vms);
    let late = run.vms[2].wakeup_us.as_ref().unwrap();
    assert!(late.p50 < 20.0, "in BOOST: {late:?}");
    // Seed 001: who wakes with nothing left is not boosted and waits for slices.
    let eager = "workload = { kind = \"sleep\", period_us = 7000, work_us = 6500 }";
    let vms = [("a", 1, 1000, BUSY), ("b", 1, 1000, BUSY), ("s", 1, 1000, eager)];
    let run = simulate("credit", "host = { cores = 1 }", &vms);
    let late = run.vms[2].wakeup_us.as_ref().unwrap();
    assert!(late.mean > 1_000.0, "{late:?}");
}

#[test]
fn eevdf_holds_a_limit_over_its_periods() {
    let limited = "limit_pct = 150\nworkload = { kind = \"cpu\" }";
    let vms = [("a", 4, 1000, limited), ("b", 4, 1000, BUSY)];
    let got = cpu_s(&simulate("eevdf", "host = { cores = 4 }", &vms));
    assert!((got[0] - 6.0).abs() < 0.2, "1.5 pCPUs of 4: {got:?}");
    assert!((got[1] - 10.0).abs() < 0.2, "the rest is the other's: {got:?}");
    let run = simulate("eevdf", "host = { cores = 4 }", &[("a", 4, 1000, limited)]);
    assert!((cpu_s(&run)[0] - 6.0).abs() < 0.2, "also when nobody else wants it");
    let loose = "limit_pct = 400\nworkload = { kind = \"cpu\" }";
    let got = cpu_s(&simulate("eevdf", "host = { cores = 4 }", &[("a", 4, 1000, loose)]));
    assert!(got[0] > 15.8, "{got:?}");
}

/// What the scenario expects holds in the simulator: what the lab has, within 5 points.
fn holds(file: &str) {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let read = |name: &str| {
        std::fs::read_to_string(directory.join(name)).map_err(|error| error.to_string())
    };
    let scenario = Scenario::parse_with(&read(file).unwrap(), file, &read).unwrap();
    let outcome = run_scenario(&scenario, RIVALS, &Options::default(), &|_, _| {}).unwrap();
    let rows = evaluate(&scenario.expects, &outcome.results);
    assert!(rows.iter().any(|row| row.measured.is_some()), "{file} measures nothing");
    for row in rows {
        assert_eq!(row.verdict, Verdict::Pass, "{file}: {row:?}");
    }
}

#[test]
fn eevdf_divides_as_the_labs_within_5_points() {
    holds("eevdf-shares.toml");
}

#[test]
fn eevdf_divides_two_nodes_as_the_labs_within_5_points() {
    holds("eevdf-shares-two-nodes.toml");
}

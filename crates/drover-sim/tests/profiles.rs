// SPDX-License-Identifier: GPL-2.0-only
//! Known workloads have the classes that they are known for, and keep them.

use drover_core::profile::Class;
use drover_rivals::RIVALS;
use drover_scenario::Scenario;
use drover_scenario::claims::Measured;
use drover_scenario::expect::Verdict;
use drover_scenario::results::{Run, VmFigures};
use drover_sim::scenario::{Options, run_scenario};
use std::path::PathBuf;

/// Runs them for a minute, beside others that keep the pCPUs busy.
fn a_minute(workload: &str, network: bool) -> Vec<Run> {
    let mut text = "name = \"x\"\nduration_s = 60.0\nwarmup_s = 0.0\nschedulers = [\"eevdf\", \"drover\"]\n\
         host = { cores = 4, llc_kib = 8192, memory_ns = 80, hop_ns = 30, node_mb_s = 20000, link_mbit_s = 1000 }\n"
        .to_owned();
    let mut vms = vec![("known", workload), ("busy", "{ kind = \"cpu\" }")];
    if network {
        vms.push(("dom0", "\"workloads/xen-netback.toml\""));
    }
    for (name, workload) in vms {
        text += &format!("[[vm]]\nname = \"{name}\"\nvcpus = 2\nworkload = {workload}\n");
    }
    let text = text.replace("name = \"dom0\"\nvcpus = 2", "name = \"dom0\"\nvcpus = 1");
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let read =
        |file: &str| std::fs::read_to_string(dir.join(file)).map_err(|error| error.to_string());
    let scenario = Scenario::parse_with(&text, "x.toml", &read).unwrap();
    run_scenario(&scenario, RIVALS, &Options::default(), &|_, _| {}).unwrap().results.runs
}

fn is(class: Class, workload: &str) {
    for run in a_minute(workload, workload.contains("send") || workload.contains("stream-out")) {
        let profile = run.vms[0].profile.expect("a minute is enough");
        let said = format!("{workload} under {}: {profile:?}", run.scheduler);
        assert_eq!((profile.class, profile.changes), (class, 0), "{said}");
    }
}

#[test]
fn idle_guests_are_idle() {
    is(Class::Idle, "{ kind = \"sleep\", period_us = 1000000, work_us = 100 }");
    is(Class::Idle, "{ kind = \"sleep\", period_us = 10000, work_us = 50 }");
}

#[test]
fn who_computes_is_cpu() {
    is(Class::Cpu, "{ kind = \"cpu\" }");
    is(Class::Cpu, "\"workloads/kernel-compile.toml\"");
    is(Class::Cpu, "{ kind = \"program\", steps = [\"kernel 20 ms\", \"sleep 5 ms\", \"count\"] }");
}

#[test]
fn who_waits_for_disks_is_io() {
    is(
        Class::Io,
        "{ kind = \"program\", steps = [\"compute 40 us\", \"io 20 us then 100 us\", \"count\"] }",
    );
    is(Class::Io, "{ kind = \"io\", work_us = 120, back_end_us = 60, device_us = 2000 }");
    is(Class::Io, "\"workloads/oltp.toml\"");
}

#[test]
fn who_sends_is_io() {
    is(Class::Io, "\"workloads/stream-out.toml\"");
}

#[test]
fn who_streams_through_memory_is_memory() {
    is(
        Class::Memory,
        "{ kind = \"program\", steps = [\"compute 10 ms\", \"count\"], speed = { misses_per_ms = 200000, working_set_kib = 65536 } }",
    );
}

#[test]
fn who_does_both_or_neither_is_mixed() {
    is(
        Class::Mixed,
        "{ kind = \"program\", steps = [\"compute 3 ms\", \"io 50 us then 200 us\", \"count\"] }",
    );
    is(Class::Mixed, "{ kind = \"sleep\", period_us = 2000, work_us = 200 }");
}

#[test]
fn seed_001s_mix_reaches_its_three_pools_and_stays() {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    for name in ["partition-auto-001.toml", "partition-auto.toml"] {
        let read =
            |file: &str| std::fs::read_to_string(dir.join(file)).map_err(|error| error.to_string());
        let scenario = Scenario::parse_with(&read(name).unwrap(), name, &read).unwrap();
        let outcome = run_scenario(&scenario, RIVALS, &Options::default(), &|_, _| {}).unwrap();
        let runs = outcome.results.runs.iter().map(|run| {
            let of = |vm: &VmFigures| (vm.name.clone(), vm.cpu_s, vm.progress, vm.profile);
            (run.scheduler.clone(), run.vms.iter().map(of).collect::<Vec<_>>())
        });
        let runs: Vec<_> = runs.collect();
        for expect in &scenario.expects {
            for figure in Measured::all(expect, &outcome.results) {
                assert_eq!(
                    figure.row.verdict,
                    Verdict::Pass,
                    "{name}: {:?}\n{runs:#?}",
                    figure.row
                );
            }
        }
    }
}

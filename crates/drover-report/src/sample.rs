// SPDX-License-Identifier: GPL-2.0-only
//! Made-up results for tests, in the shapes that scenarios have.

use drover_core::counters::Counters;
use drover_core::settings::Cosched;
use drover_scenario::Clock;
use drover_scenario::expect::Under;
use drover_scenario::results::{
    Ground, HostFigures, Origin, Results, Run, Timeline, VcpuFigures, VmFigures, WakeupUs,
};

fn results(scenario: &str, clock: Clock, runs: Vec<Run>) -> Results {
    Results {
        scenario: scenario.to_owned(),
        ground: Ground::Lab,
        clock: Some(clock),
        origin: Origin::default(),
        seed: 1,
        kernel: None,
        runs,
        repeats: None,
        wall: None,
    }
}

fn run(case: &str, scheduler: &str, repeat: u32, pcpus: u32, vms: Vec<VmFigures>) -> Run {
    let drover = scheduler == "drover";
    let mut run = Run {
        case: case.to_owned(),
        scheduler: scheduler.to_owned(),
        repeat,
        seed: None,
        duration_s: 4.0,
        fault: None,
        host: HostFigures {
            pcpus,
            idle_s: Some(if drover { 0.004 } else { 0.031 }),
            context_switches: Some(if drover { 8_123 } else { 3_456 }),
            bpf_run_ns: drover.then_some(3_300_000),
            ..HostFigures::default()
        },
        vms,
    };
    run.set_share_got();
    run
}

fn vm(name: &str, vcpus: u32, shares: u32, vcpu_s: &[f64]) -> VmFigures {
    let cpu_s: f64 = vcpu_s.iter().sum();
    let mut vm = VmFigures {
        name: name.to_owned(),
        vcpus,
        shares,
        cpu_s: Some(cpu_s),
        progress: Some((cpu_s * 101_234.0) as u64),
        ..Default::default()
    };
    let vcpu = |cpu_s: &f64| VcpuFigures { cpu_s: Some(*cpu_s), ..Default::default() };
    vm.set_vcpus(vcpu_s.iter().map(vcpu).collect());
    vm
}

/// A figure under three schedulers; one of them did not measure it.
pub(crate) fn under() -> Vec<Under> {
    let each = [("eevdf", Some(1240.0)), ("drover", Some(70.0)), ("scx_bpfland", None)];
    let under = |(scheduler, measured): (&str, Option<f64>)| Under {
        scheduler: scheduler.to_owned(),
        measured,
        range: measured.map(|median| (0.9 * median, 1.2 * median)),
    };
    each.map(under).into()
}

/// Fifty VMs of two kinds and one of its own.
pub(crate) fn fifty() -> Results {
    let vms = || {
        let web = (1..=40).map(|number| vm(&format!("web-{number}"), 2, 2000, &[0.2, 0.2]));
        let db = (1..=9).map(|number| vm(&format!("db{number}"), 4, 4000, &[1.0; 4]));
        let all = web.chain(db).chain([vm("monitor", 1, 1000, &[0.1])]);
        all.map(|vm| VmFigures { share_owed_pct: Some(2.0), ..vm }).collect()
    };
    let runs = ["eevdf", "drover"].map(|scheduler| run("all", scheduler, 1, 32, vms()));
    results("fifty", Clock::Real, runs.into())
}

/// Seven ratios under two schedulers, the first uneven.
pub(crate) fn shares() -> Results {
    let mut runs = Vec::new();
    for eighths in 1..=7u32 {
        for scheduler in ["eevdf", "drover"] {
            let case = format!("{eighths}:{}", 8 - eighths);
            let owed = |eighths: u32| 12.5 * f64::from(eighths);
            let vms = [("vm0", eighths), ("vm1", 8 - eighths)].map(|(name, eighths)| {
                let cpu_s = 0.16 * owed(eighths) / 4.0;
                let uneven = match (scheduler, name) {
                    ("eevdf", "vm0") => [0.7, 0.9, 1.3, 0.8],
                    ("eevdf", _) => [1.1, 0.9, 1.2, 0.9],
                    _ => [1.0; 4],
                };
                let mut vm = vm(name, 4, 1000 * eighths, &uneven.map(|part| part * cpu_s));
                vm.share_owed_pct = Some(owed(eighths));
                vm
            });
            runs.push(run(&case, scheduler, 1, 4, vms.to_vec()));
        }
    }
    results("esx-fig3-shares", Clock::Exact, runs)
}

/// A sleeping VM alone and beside a busy one, three schedulers, three repeats.
pub(crate) fn sleep() -> Results {
    let mut runs = Vec::new();
    let schedulers = [
        ("eevdf", [290.0, 400.0, 560.0]),
        ("drover", [70.0, 72.0, 81.0]),
        ("scx_bpfland", [2100.0, 2200.0, 2290.0]),
    ];
    for repeat in 1..=3u32 {
        for case in ["alone", "beside"] {
            for (scheduler, means) in schedulers {
                let mean = if case == "alone" { 62.0 } else { means[repeat as usize - 1] };
                let mut sleeper = vm("sleeper", 2, 2000, &[0.1, 0.11]);
                sleeper.wakeup_us = Some(WakeupUs {
                    count: 4000,
                    mean,
                    p50: mean * 0.8,
                    p99: mean * 3.1,
                    max: mean * 7.0,
                });
                let mut vms = vec![sleeper];
                if case == "beside" {
                    vms.push(vm("busy", 4, 2000, &[1.9, 1.9, 1.9, 1.8]));
                }
                runs.push(run(case, scheduler, repeat, 2, vms));
            }
        }
    }
    results("sleep-vs-busy", Clock::Real, runs)
}

/// A VM in two modes beside a VM with one vCPU, under a scheduler that counts and one that does not.
pub(crate) fn cosched() -> Results {
    let mut runs = Vec::new();
    for (mode, costops) in [(Cosched::Auto, 0), (Cosched::Skew, 1334)] {
        for scheduler in ["eevdf", "drover"] {
            let counters = Counters {
                progressed_s: Some(4.0),
                hazard_s: Some(2.672),
                costop_s: 1.336,
                costops,
                costarts: costops,
                skew_max_ms: (mode == Cosched::Skew).then_some(7.996),
                longest_ready_ms: Some(16.5),
                guaranteed_delay_ms: Some(66.0),
                ..Counters::default()
            };
            let counters = (scheduler == "drover").then_some(counters);
            let two = vm("two", 2, 2000, &[2.66, 2.67]);
            let two = VmFigures { cosched: Some(mode), counters, ..two };
            let one = VmFigures { counters, ..vm("one", 1, 1000, &[2.67]) };
            runs.push(run(mode.name(), scheduler, 1, 2, vec![two, one]));
        }
    }
    results("esx-fig6-8-coscheduling", Clock::Exact, runs)
}

/// A VM that halves its demand, recorded over time.
pub(crate) fn timeline() -> Results {
    let scheduler_run = |scheduler: &str, late: usize| {
        let timeline = |before: f64, after: f64| {
            let cpu_s = (0..40).map(|index| if index < 20 + late { before } else { after });
            Some(Timeline { interval_ms: 100, cpu_s: cpu_s.collect(), length_s: Vec::new() })
        };
        let mut vm0 = vm("vm0", 4, 3000, &[2.5; 4]);
        (vm0.timeline, vm0.share_owed_pct) = (timeline(0.3, 0.2), Some(62.5));
        let mut vm1 = vm("vm1", 4, 1000, &[1.5; 4]);
        (vm1.timeline, vm1.share_owed_pct) = (timeline(0.1, 0.2), Some(37.5));
        run("all", scheduler, 1, 4, vec![vm0, vm1])
    };
    let runs = vec![scheduler_run("eevdf", 3), scheduler_run("drover", 0)];
    results("halved-demand", Clock::Exact, runs)
}

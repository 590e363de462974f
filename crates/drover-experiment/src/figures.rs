// SPDX-License-Identifier: GPL-2.0-only
//! From two readings to the figures of a run.

use crate::proc_stat::TICKS_PER_S;
use crate::reading::Reading;
use crate::threads::{ThreadTime, used_between};
use crate::vm::VmReading;
use drover_core::counters::VmCounters;
use drover_core::io::Io;
use drover_observe::delays::{self, VmDelays};
use drover_scenario::entitlement::owed_s;
use drover_scenario::results::{HostFigures, Run, Timeline, VcpuFigures, VmFigures, WakeupUs};
use drover_scenario::{Case, Scenario, Vm};
use std::collections::HashMap;
use std::time::Instant;

const NS_PER_S: f64 = 1e9;

/// What was measured of a run.
#[derive(Debug)]
pub(crate) struct Measured {
    /// The first reading.
    pub before: Reading,
    /// The last reading.
    pub after: Reading,
    /// For each sample, each VM's CPU time so far.
    pub samples: Vec<Vec<Sample>>,
}

/// CPU time of a VM at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sample {
    /// That moment, by a clock read beside the counter.
    pub at: Instant,
    /// CPU time so far, ns.
    pub cpu_ns: u64,
}

/// The figures of a run of `case` on `pcpus` pCPUs. Under which scheduler and which repeat it was is for
/// the caller to fill in.
pub(crate) fn of_run(scenario: &Scenario, case: &Case, pcpus: u32, measured: &Measured) -> Run {
    let Measured { before, after, samples } = measured;
    let mut run = without_figures(case, pcpus, None);
    run.duration_s = between_s(before.at, after.at);
    run.host = of_host(pcpus, before, after);
    let io = delays::between(&before.io, &after.io);
    for (index, vm) in case.vms.iter().enumerate() {
        let figures = &mut run.vms[index];
        *figures = of_vm(vm, &before.vms[index], &after.vms[index]);
        figures.set_counters(counted(before, after, index).as_ref());
        if vm.has_devices() {
            figures.io = io_of(&before.vms[index], &after.vms[index], &io);
        }
        figures.timeline = scenario.sample_ms.map(|interval_ms| {
            let of_vm: Vec<Sample> = samples.iter().map(|sample| sample[index]).collect();
            timeline(interval_ms, &of_vm)
        });
    }
    run.set_owed(owed_s(case, pcpus, scenario.duration_s));
    run.set_share_got();
    run
}

/// A run of which nothing was measured, for the reason given.
pub(crate) fn without_figures(case: &Case, pcpus: u32, fault: Option<String>) -> Run {
    Run {
        case: case.name.clone(),
        scheduler: String::new(),
        repeat: 1,
        seed: None,
        duration_s: 0.0,
        fault,
        host: HostFigures { pcpus, ..HostFigures::default() },
        vms: case.vms.iter().map(VmFigures::unmeasured).collect(),
    }
}

/// What the host did between two readings.
///
/// Two figures say what was idle at most: the kernel's count of idle time, and what no thread used.
/// Both are needed. Recent kernels count some idle time twice where VMs wake often, so that a host
/// is idle for more than the time that passed; and the time of a running thread may be a tick old.
fn of_host(pcpus: u32, before: &Reading, after: &Reading) -> HostFigures {
    let counted_ticks = after.host.idle_ticks.saturating_sub(before.host.idle_ticks);
    let of_threads_s = f64::from(pcpus) * between_s(before.threads_at, after.threads_at);
    let used_s = sum_s(&used_between(&before.threads, &after.threads));
    let unused_part = if of_threads_s > 0.0 { 1.0 - used_s / of_threads_s } else { 0.0 };
    let unused_s = f64::from(pcpus) * between_s(before.at, after.at) * unused_part.max(0.0);
    let switches = after.host.context_switches.saturating_sub(before.host.context_switches);
    let bpf_run_ns = before
        .bpf_run_ns
        .zip(after.bpf_run_ns)
        .map(|(before_ns, after_ns)| after_ns.saturating_sub(before_ns));
    HostFigures {
        pcpus,
        idle_s: Some((counted_ticks as f64 / TICKS_PER_S).min(unused_s)),
        context_switches: Some(switches),
        bpf_run_ns,
        ..HostFigures::default()
    }
}

/// What a VM used and did between two readings.
fn of_vm(vm: &Vm, before: &VmReading, after: &VmReading) -> VmFigures {
    let used = used_between(&before.threads, &after.threads);
    let guest = match (&before.guest, &after.guest) {
        (Some(before), Some(after)) => Some(after.since(before)),
        _ => None,
    };
    let helpers: Vec<ThreadTime> = used.iter().filter(|one| one.vcpu.is_none()).cloned().collect();
    let vcpu = |number: u32| VcpuFigures {
        cpu_s: used.iter().find(|one| one.vcpu == Some(number)).map(|one| seconds(one.cpu_ns)),
        progress: guest
            .as_ref()
            .and_then(|guest| guest.vcpu_progress.get(number as usize).copied()),
        counters: None,
    };
    let mut figures = VmFigures::unmeasured(vm);
    figures.dispatches = Some(used.iter().map(|thread| thread.dispatches).sum());
    figures.cpu_s = Some(sum_s(&used));
    figures.helpers_cpu_s = Some(sum_s(&helpers));
    figures.set_vcpus((0..vm.vcpus).map(vcpu).collect());
    figures.progress = guest.as_ref().and_then(|guest| guest.progress);
    figures.boot_s = after.boot.map(|boot| boot.as_secs_f64());
    figures.yields = guest.as_ref().map(|guest| guest.yields).filter(|&yields| yields > 0);
    figures.wakeup_us = guest.and_then(|guest| WakeupUs::from_histogram(&guest.wakeups));
    figures
}

/// Its I/O, with delays of those known by process: the number of a process is that of one of its threads.
fn io_of(before: &VmReading, after: &VmReading, by_process: &HashMap<u32, VmDelays>) -> Option<Io> {
    let delays = after.threads.iter().find_map(|thread| by_process.get(&thread.tid))?;
    Some(delays.figures().with_bytes(after.bytes.since(&before.bytes)))
}

/// What the scheduler counted of a VM between two readings, where it did.
fn counted(before: &Reading, after: &Reading, index: usize) -> Option<VmCounters> {
    let of = |reading: &Reading| reading.counters.get(index).cloned().flatten();
    let after = of(after)?;
    // One that began meanwhile has counted nothing before.
    Some(of(before).map_or(after.clone(), |before| after.since(&before)))
}

/// CPU time of some threads together, s.
fn sum_s(threads: &[ThreadTime]) -> f64 {
    seconds(threads.iter().map(|thread| thread.cpu_ns).sum())
}

fn between_s(from: Instant, to: Instant) -> f64 {
    to.duration_since(from).as_secs_f64()
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / NS_PER_S
}

/// CPU time over time from samples of a VM's CPU time so far.
fn timeline(interval_ms: u32, samples: &[Sample]) -> Timeline {
    let used_s = |pair: &[Sample]| seconds(pair[1].cpu_ns.saturating_sub(pair[0].cpu_ns));
    let length_s = |pair: &[Sample]| between_s(pair[0].at, pair[1].at);
    let steps = || samples.windows(2);
    Timeline {
        interval_ms,
        cpu_s: steps().map(used_s).collect(),
        length_s: steps().map(length_s).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc_stat::HostStat;
    use drover_core::counters::Counters;
    use drover_core::io::Bytes;
    use drover_core::shares::Shares;
    use drover_scenario::Workload;
    use std::time::Duration;

    fn thread(tid: u32, vcpu: Option<u32>, cpu_ns: u64) -> ThreadTime {
        ThreadTime { tid, vcpu, cpu_ns, dispatches: cpu_ns / 10_000_000 }
    }

    fn reading(threads: Vec<ThreadTime>) -> VmReading {
        VmReading { threads, guest: None, bytes: Bytes::default(), boot: None }
    }

    fn vm(vcpus: u32) -> Vm {
        Vm { shares: Shares::Exact(1000), ..Vm::new("vm0", vcpus, Workload::Mix {}) }
    }

    #[test]
    fn only_what_came_between_counts() {
        let before =
            reading(vec![thread(1, None, 5_000_000_000), thread(2, Some(0), 1_000_000_000)]);
        let after = reading(vec![
            thread(1, None, 5_250_000_000),
            thread(2, Some(0), 3_000_000_000),
            thread(3, Some(1), 1_500_000_000),
        ]);
        let figures = of_vm(&vm(2), &before, &after);
        assert_eq!((figures.cpu_s, figures.helpers_cpu_s), (Some(3.75), Some(0.25)));
        assert_eq!(figures.dispatches, Some(375));
        assert_eq!((figures.vcpu_min_cpu_s, figures.vcpu_max_cpu_s), (Some(1.5), Some(2.0)));
        assert_eq!(figures.vcpu.len(), 2);
    }

    #[test]
    fn what_cannot_be_seen_is_absent() {
        let both = reading(vec![thread(2, Some(0), 7)]);
        let figures = of_vm(&vm(2), &both, &both);
        assert_eq!((figures.progress, figures.wakeup_us), (None, None));
        assert_eq!(figures.vcpu[1].cpu_s, None, "this vCPU has no thread");
    }

    fn counted(costops: u64) -> Counters {
        Counters { costops, ..Counters::default() }
    }

    fn host_reading(at: Instant, idle_ticks: u64, used_ns: u64) -> Reading {
        let host = HostStat { idle_ticks, context_switches: 10 * idle_ticks };
        let threads = vec![thread(1, None, used_ns)];
        let (vms, io, bpf_run_ns, threads_at) = (Vec::new(), Vec::new(), Some(used_ns / 100), at);
        let counters = vec![Some(VmCounters { vm: counted(used_ns), ..VmCounters::default() })];
        Reading { at, vms, host, threads, threads_at, bpf_run_ns, io, counters }
    }

    #[test]
    fn the_hosts_figures_are_differences() {
        let at = Instant::now();
        let later = at + Duration::from_secs(1);
        let (before, after) = (host_reading(at, 100, 500), host_reading(later, 150, 900));
        let figures = of_host(4, &before, &after);
        assert_eq!((figures.idle_s, figures.context_switches), (Some(0.5), Some(500)));
        assert_eq!((figures.pcpus, figures.bpf_run_ns), (4, Some(4)));
        let costops = |after| super::counted(&before, after, 0).map(|counted| counted.vm.costops);
        assert_eq!(costops(&after), Some(400));
        assert_eq!(costops(&Reading { counters: vec![None], ..after.clone() }), None);
        let unfound = Reading { counters: vec![None], ..before.clone() };
        let counted = super::counted(&unfound, &after, 0).map(|counted| counted.vm.costops);
        assert_eq!(counted, Some(900), "found meanwhile");
        let unmeasured = Reading { bpf_run_ns: None, ..before };
        assert_eq!(of_host(4, &unmeasured, &after).bpf_run_ns, None);
    }

    #[test]
    fn a_host_is_idle_no_longer_than_threads_leave_it() {
        let at = Instant::now();
        let idle_s = |used_ns| {
            let after = host_reading(at + Duration::from_secs(1), 900, used_ns);
            of_host(2, &host_reading(at, 0, 0), &after).idle_s.unwrap()
        };
        assert!((idle_s(500_000_000) - 1.5).abs() < 1e-9);
        assert_eq!(idle_s(2_001_000_000), 0.0, "a tick too much is no negative idle time");
    }

    #[test]
    fn a_run_has_what_vms_are_owed_and_got() {
        let text = "name = \"s\"\nsample_ms = 500\nduration_s = 1.0\n[host]\n[[vm]]\nname = \"a\"\n\
                    vcpus = 1\nshares = 1000\nworkload = { kind = \"cpu\" }\n[[vm]]\nname = \"b\"\n\
                    vcpus = 1\nshares = 3000\nworkload = { kind = \"cpu\" }\n";
        let scenario = Scenario::parse(text, "s.toml").unwrap();
        let at = Instant::now();
        let with_vms = |at, used_ns: [u64; 2]| Reading {
            vms: used_ns.map(|ns| reading(vec![thread(2, Some(0), ns)])).to_vec(),
            ..host_reading(at, 0, 0)
        };
        let after = with_vms(at + Duration::from_secs(1), [200_000_000, 800_000_000]);
        let samples = [(0, [0, 0]), (500, [100, 300]), (1000, [200, 800])];
        let sample = |at_ms: u64, cpu_ms: u64| Sample {
            at: at + Duration::from_millis(at_ms),
            cpu_ns: cpu_ms * 1_000_000,
        };
        let of_all = |(at_ms, ms): (u64, [u64; 2])| ms.map(|ms| sample(at_ms, ms)).to_vec();
        let samples = samples.map(of_all).to_vec();
        let measured = Measured { before: with_vms(at, [0, 0]), after, samples };
        let run = of_run(&scenario, &scenario.cases[0], 1, &measured);
        assert_eq!((run.duration_s, run.fault), (1.0, None));
        let shares: Vec<_> =
            run.vms.iter().map(|vm| (vm.share_owed_pct, vm.share_got_pct)).collect();
        assert_eq!(shares, [(Some(25.0), Some(20.0)), (Some(75.0), Some(80.0))]);
        assert_eq!(run.vms[1].timeline.as_ref().unwrap().cpu_s, [0.3, 0.5]);
    }

    #[test]
    fn a_faulty_run_has_no_figures() {
        let case = Case { vms: vec![vm(2)], ..Case::default() };
        let run = without_figures(&case, 4, Some("ejected".to_owned()));
        assert_eq!((run.host.pcpus, run.host.idle_s, run.duration_s), (4, None, 0.0));
        assert_eq!((run.vms.len(), run.vms[0].cpu_s), (1, None));
    }

    #[test]
    fn a_timeline_is_made_of_steps() {
        let begun = Instant::now();
        let sample = |at_ms: u64, cpu_ms: u64| Sample {
            at: begun + Duration::from_millis(at_ms),
            cpu_ns: cpu_ms * 1_000_000,
        };
        let line = timeline(100, &[sample(0, 1000), sample(100, 1050), sample(203, 1050)]);
        assert_eq!((line.interval_ms, line.cpu_s), (100, vec![0.05, 0.0]));
        assert_eq!(line.length_s, [0.1, 0.103], "a late sample ends a longer interval");
        assert!(timeline(100, &[sample(0, 7)]).cpu_s.is_empty());
    }
}

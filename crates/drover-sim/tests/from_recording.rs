// SPDX-License-Identifier: GPL-2.0-only
//! A recording becomes a scenario that does the same: a simulated host is recorded, described, and simulated again.

use drover_core::recording::{Class, Event, What};
use drover_core::recording_file::{Head, PcpuSetup, Recording, Setup, Thread, VmSetup};
use drover_core::why::Who;
use drover_rivals::RIVALS;
use drover_scenario::Scenario;
use drover_scenario::from_recording::{Described, Recorded, describe};
use drover_sim::scenario::{Options, RunTrace, run_scenario};
use std::collections::HashSet;

const HOST: &str = r#"name = "busy"
duration_s = 2.0
warmup_s = 0.0
schedulers = ["eevdf"]
[host]
cores = 2
threads = 2
own_wakeups_per_s = 50
own_work_us = 200
[[vm]]
name = "web"
vcpus = 2
workload = { kind = "program", steps = ["compute 300 us to 700 us", "sleep 2 ms", "count"] }
[[vm]]
name = "db"
vcpus = 3
workload = { kind = "program", roles = [
    { vcpus = "0", steps = ["compute about 3 ms", "sleep 4 ms", "count"] },
    { steps = ["compute 10 ms"] },
] }
[[vm]]
name = "calm"
vcpus = 1
workload = { kind = "program", steps = ["compute 50 us", "sleep 100 ms", "count"] }
[[vm]]
name = "clock"
vcpus = 1
workload = { kind = "program", steps = ["compute 1 ms to 6 ms", "timer 10 ms"] }
"#;

/// Runs it once and says what each VM did, beside who ran when.
fn simulate(text: &str) -> (Scenario, RunTrace, Vec<Recorded>) {
    let scenario =
        Scenario::parse(text, "x.toml").unwrap_or_else(|error| panic!("{error}\n{text}"));
    let options = Options { trace: true, ..Options::default() };
    let mut outcome = run_scenario(&scenario, RIVALS, &options, &|_, _| {}).unwrap();
    let (run, trace) = (outcome.results.runs.remove(0), outcome.traces.remove(0));
    assert_eq!(run.fault, None);
    let did = run.vms.iter().zip(trace.ready(&scenario)).map(|(vm, ready)| Recorded {
        name: vm.name.clone(),
        ran_pcpus: vm.cpu_s.unwrap() / run.duration_s,
        ready_pcpus: ready.seconds / run.duration_s,
        wakeups_per_s: vm.progress.unwrap() as f64 / run.duration_s,
    });
    let did = did.collect();
    (scenario, trace, did)
}

/// What `drover record` would have written of it; its clock begins at 1 s.
fn recorded(scenario: &Scenario, trace: &RunTrace) -> Recording {
    const BEGAN_NS: u64 = 1_000_000_000;
    let vms = &scenario.cases[0].vms;
    let vm_of = |task: u32| vms.iter().position(|vm| vm.name == trace.tasks[task as usize].0);
    let thread = |(task, (name, vcpu)): (u32, &(String, u32))| {
        let vm = vm_of(task).map(|vm| vm as u32 + 1000);
        let who = if vm.is_some() { Who::Vm } else { Who::Task };
        Thread { thread: task + 1, who, name: name.clone(), vm, vcpu: vm.map(|_| *vcpu) }
    };
    let ends: HashSet<_> = trace.spans.iter().map(|span| (span.task, span.to_ns)).collect();
    let begins: HashSet<_> = trace.spans.iter().map(|span| (span.cpu, span.from_ns)).collect();
    let preempted: HashSet<_> = trace.waits.iter().map(|wait| (wait.task, wait.from_ns)).collect();
    let waited: HashSet<_> = trace.waits.iter().map(|wait| (wait.task, wait.to_ns)).collect();
    let mut events = Vec::new();
    let at = |at_ns, order, pcpu, task: Option<u32>, what| {
        let thread = task.map_or(0, |task| task + 1);
        (at_ns, order, Event { at_ns: at_ns + BEGAN_NS, pcpu, thread, what })
    };
    for wait in trace.waits.iter().filter(|wait| !ends.contains(&(wait.task, wait.from_ns))) {
        events.push(at(wait.from_ns, 0, 0, Some(wait.task), What::Woken));
    }
    // Who ran before on the pCPU is ready still?
    let mut spans = trace.spans.clone();
    spans.sort_unstable_by_key(|span| (span.cpu, span.from_ns));
    let mut before: Option<(u32, u32, u64)> = None;
    for span in &spans {
        if !waited.contains(&(span.task, span.from_ns))
            && !ends.contains(&(span.task, span.from_ns))
        {
            events.push(at(span.from_ns, 0, 0, Some(span.task), What::Woken));
        }
        let left = before.filter(|&(cpu, _, to_ns)| cpu == span.cpu && to_ns == span.from_ns);
        let left_ready = left.is_some_and(|(_, task, to_ns)| preempted.contains(&(task, to_ns)));
        let what = What::Ran { left_ready, class: Class::Normal };
        events.push(at(span.from_ns, 2, span.cpu, Some(span.task), what));
        if !begins.contains(&(span.cpu, span.to_ns)) {
            let left_ready = preempted.contains(&(span.task, span.to_ns));
            let what = What::Ran { left_ready, class: Class::Normal };
            events.push(at(span.to_ns, 1, span.cpu, None, what));
        }
        before = Some((span.cpu, span.task, span.to_ns));
    }
    events.sort_by_key(|&(at_ns, order, _)| (at_ns, order));
    // As Linux numbers them: the second threads of cores come behind all first ones.
    let pcpu = |pcpu: u32| PcpuSetup { pcpu, core: pcpu % 2, llc: 0, node: 0 };
    let vm = |(number, _)| VmSetup { vm: number, ..VmSetup::default() };
    Recording {
        head: Head { host: "h".to_owned(), from_ns: BEGAN_NS, pcpus: 4, ..Head::default() },
        threads: (0..).zip(&trace.tasks).map(thread).collect(),
        events: events.into_iter().map(|(_, _, event)| event).collect(),
        setup: Some(Setup {
            pcpus: (0..4).map(pcpu).collect(),
            memory_mib: 4096,
            vms: (1000..).zip(vms).map(vm).collect(),
            ..Setup::default()
        }),
        ..Recording::default()
    }
}

fn described() -> (Recording, Described, Vec<Recorded>) {
    let (scenario, trace, did) = simulate(HOST);
    let recording = recorded(&scenario, &trace);
    let described = describe(&recording, "busy host").unwrap();
    (recording, described, did)
}

fn sum(all: &[Recorded], of: fn(&Recorded) -> f64) -> f64 {
    all.iter().map(of).sum()
}

#[test]
fn what_is_read_of_a_recording_is_what_happened() {
    let (_, described, did) = described();
    for (was, is) in did.iter().zip(&described.recorded) {
        assert_eq!(was.name, is.name);
        assert!((was.ran_pcpus - is.ran_pcpus).abs() < 0.01, "{was:?} {is:?}");
        assert!((was.ready_pcpus - is.ready_pcpus).abs() < 0.02, "{was:?} {is:?}");
        assert!(
            (was.wakeups_per_s - is.wakeups_per_s).abs() < 0.02 * was.wakeups_per_s + 3.0,
            "{was:?} {is:?}"
        );
    }
}

#[test]
fn the_scenario_of_a_recording_does_the_same() {
    let (_, described, did) = described();
    let (_, _, again) = simulate(&described.text);
    for (was, is) in did.iter().zip(&again) {
        let apart = (is.ran_pcpus - was.ran_pcpus).abs();
        assert!(apart < 0.05 * was.ran_pcpus + 0.001, "CPU time: {was:?} {is:?}");
        let allowed = 0.1 * was.wakeups_per_s + 3.0;
        assert!((is.wakeups_per_s - was.wakeups_per_s).abs() < allowed, "{was:?} {is:?}");
    }
    let (was, is) = (sum(&did, |it| it.ready_pcpus), sum(&again, |it| it.ready_pcpus));
    assert!((is / was - 1.0).abs() < 0.25, "ready time: {was} {is}\n{}", described.text);
}

#[test]
fn the_scenario_says_what_somebody_would_have_written() {
    let (mut recording, described, _) = described();
    let text = described.text;
    for line in ["name = \"busy-host\"", "cores = 2\nthreads = 2\n", "# Ran ", "\"sleep 199"] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let own = Scenario::parse(&text, "x.toml").unwrap().host.own_wakeups_per_s.unwrap();
    assert!((40..=60).contains(&own), "{text}");
    assert!(text.contains(", \"timer 10.00 ms\"]"), "{text}");
    assert_eq!(text.matches("vcpus = \"").count(), 5, "alike vCPUs share a role: {text}");
    assert!(text.contains("{ vcpus = \"1-2\", steps = [\"compute 10 ms\"] }"), "{text}");
    // pCPUs 0 and 2 are the threads of the first core: 0 and 1 of a scenario.
    let setup = recording.setup.as_mut().unwrap();
    setup.vms[0] = VmSetup {
        shares: Some(4000),
        limit_mcpu: Some(1500),
        reservation_mcpu: Some(500),
        pool: Some("prod".to_owned()),
        pins: vec!["0,2".parse().ok(), "0,2".parse().ok()],
        ..setup.vms[0].clone()
    };
    setup.vms[1].pins = vec!["1".parse().ok(), None, "0-3".parse().ok()];
    let described = describe(&recording, "x").unwrap();
    let scenario = Scenario::parse(&described.text, "x.toml").unwrap();
    let [web, db, calm, _] = &scenario.cases[0].vms[..] else { panic!("four VMs") };
    let figures = (web.shares_of_all(), web.limit_pct, web.reservation_pct);
    assert_eq!(figures, (4000, Some(150), 50));
    assert_eq!(web.pin.as_ref().unwrap().of_vcpu(1).cpus(), [0, 1]);
    assert_eq!(db.pin.as_ref().unwrap().of_vcpu(0).cpus(), [2]);
    assert_eq!(db.pin.as_ref().unwrap().of_vcpu(2).cpus(), [0, 1, 2, 3]);
    assert_eq!(calm.pin, None);
    assert!(
        described.left_out.iter().any(|line| line.contains("pool prod")),
        "{:?}",
        described.left_out
    );
}

#[test]
fn what_cannot_be_described_is_told_in_a_line() {
    let (recording, _, _) = described();
    let refused = |change: &dyn Fn(&mut Recording)| {
        let mut recording = recording.clone();
        change(&mut recording);
        let line = describe(&recording, "x").unwrap_err();
        assert!(!line.contains('\n'), "{line}");
        line
    };
    let one_core_more = |recording: &mut Recording| {
        recording.setup.as_mut().unwrap().pcpus.push(PcpuSetup {
            pcpu: 9,
            core: 9,
            llc: 0,
            node: 0,
        });
    };
    assert!(refused(&one_core_more).contains("cannot hold this host: its 5 pCPUs are on 3 cores"));
    assert!(refused(&|it| it.events.truncate(3)).contains("record for a second"));
    assert!(refused(&|it| it.threads.clear()).contains("no VM ran"));
    let old = Recording { setup: None, lost: 7, ..recording };
    let described = describe(&old, "x").unwrap();
    assert_eq!(Scenario::parse(&described.text, "x.toml").unwrap().host.pcpus(), 4);
    let said = described.left_out.join("\n");
    assert!(
        said.contains("shape was not recorded") && said.contains("7 events were lost"),
        "{said}"
    );
}

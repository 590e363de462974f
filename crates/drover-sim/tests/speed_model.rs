// SPDX-License-Identifier: GPL-2.0-only
//! What the speed model promises, on any host, and what comes of it in guests.

use drover_rivals::RIVALS;
use drover_scenario::results::Results;
use drover_scenario::{Host, Pace, Scenario};
use drover_sim::scenario::{Options, run_scenario};
use drover_sim::speed_model::{FULL, SpeedModel};
use drover_sim::topology::Topology;
use proptest::prelude::*;

/// A host that says how fast its memory is.
fn hosts() -> impl Strategy<Value = Host> {
    let shape = (1u32..=2, 1u32..=2, 1u32..=4, 1u32..=4);
    let memory = (512u32..20_000, 50u32..300, 0u32..200, 5_000u32..50_000);
    let link = proptest::option::of(1_000u32..50_000);
    let host = |((sockets, dies, cores, threads), (llc, memory, hop, node), link)| Host {
        sockets,
        dies,
        cores,
        threads,
        nodes: sockets,
        llc_kib: Some(llc),
        memory_ns: Some(memory),
        hop_ns: Some(hop),
        node_mb_s: Some(node),
        node_link_mb_s: link,
        ..Host::default()
    };
    (shape, memory, link).prop_map(host)
}

/// How a VM gets on.
fn paces() -> impl Strategy<Value = Pace> {
    let draft = (proptest::option::of(100u32..=200), 0u32..20_000, 64u32..50_000, 1u32..4);
    draft.prop_map(|(smt_gain_pct, misses_per_ms, working_set_kib, lines_per_miss)| Pace {
        smt_gain_pct,
        misses_per_ms,
        working_set_kib,
        lines_per_miss,
    })
}

/// That VM as it may be on that host: with no more misses than a node can serve.
fn on_host(host: &Host, pace: Pace) -> Pace {
    let fits = pace.alone_mb_s(host).unwrap() < host.node_mb_s.unwrap().into();
    if fits { pace } else { on_host(host, Pace { misses_per_ms: pace.misses_per_ms / 2, ..pace }) }
}

/// The speeds of all pCPUs after who runs where was changed so.
fn speeds(host: &Host, model: &mut SpeedModel, runs: &[(u32, Option<u32>)]) -> Vec<u32> {
    let topology = Topology::of(host);
    let mut speeds = vec![FULL; host.pcpus() as usize];
    for &(cpu, vm) in runs {
        let cpu = cpu % host.pcpus();
        for &(moved, speed) in model.runs(&topology, 0, cpu, vm.map(|vm| (cpu, vm))) {
            speeds[moved as usize] = speed;
        }
    }
    speeds
}

proptest! {
    #[test]
    fn speed_is_a_part_and_alone_and_near_it_is_all(
        host in hosts(),
        drafts in proptest::collection::vec(paces(), 1..4),
        runs in proptest::collection::vec((0u32..64, proptest::option::of(0u32..4)), 1..200),
        last in 0u32..64,
    ) {
        let paces: Vec<Pace> = drafts.iter().map(|&draft| on_host(&host, draft)).collect();
        // Each on one node, the last interleaved over all.
        let mut vms: Vec<_> = paces.iter().map(|&pace| (pace, vec![0])).collect();
        vms.push((paces[0], (0..host.nodes).collect()));
        let Some(mut model) = SpeedModel::of(&host, &vms) else { return Ok(()) };
        for speed in speeds(&host, &mut model, &runs) {
            prop_assert!((1..=FULL).contains(&speed), "{speed}");
        }
        // All leave; one comes to a pCPU of node 0.
        let leave: Vec<_> = (0..host.pcpus()).map(|cpu| (cpu, None)).collect();
        speeds(&host, &mut model, &leave);
        let cpu = last % (host.pcpus() / host.nodes);
        let alone = speeds(&host, &mut model, &[(cpu, Some(0))]);
        prop_assert_eq!(alone[cpu as usize], FULL);
    }

    #[test]
    fn siblings_do_together_what_the_gain_says(gain_pct in 100u32..=200, threads in 2u32..=4) {
        let host = Host { cores: 2, threads, ..Host::default() };
        let pace = Pace { smt_gain_pct: Some(gain_pct), ..Pace::default() };
        let mut model = SpeedModel::of(&host, &[(pace, vec![]), (pace, vec![])]).unwrap();
        let runs: Vec<_> = (0..threads).map(|cpu| (cpu, Some(cpu % 2))).collect();
        let speeds = speeds(&host, &mut model, &runs);
        let together: u32 = speeds[..threads as usize].iter().sum();
        prop_assert!(together.abs_diff(FULL / 100 * gain_pct) <= 100, "{together}");
    }

    #[test]
    fn order_of_coming_does_not_matter(host in hosts(), draft in paces(), busy in 0u64..u64::MAX) {
        let vms = vec![(on_host(&host, draft), vec![0])];
        let Some(mut model) = SpeedModel::of(&host, &vms) else { return Ok(()) };
        let mut runs: Vec<_> = (0..host.pcpus()).filter(|cpu| busy >> cpu & 1 == 1)
            .map(|cpu| (cpu, Some(0))).collect();
        let forward = speeds(&host, &mut model, &runs);
        runs.reverse();
        let backward = speeds(&host, &mut SpeedModel::of(&host, &vms).unwrap(), &runs);
        prop_assert_eq!(forward, backward);
    }
}

fn run(text: &str) -> Results {
    let scenario = Scenario::parse(text, "x.toml").unwrap();
    run_scenario(&scenario, RIVALS, &Options::default(), &|_, _| {}).unwrap().results
}

/// Progress of each VM in a run of 1 s.
fn progress(host: &str, vms: &[&str]) -> Vec<f64> {
    let mut text =
        format!("name = \"x\"\nduration_s = 1.0\nschedulers = [\"eevdf\"]\nhost = {host}\n");
    for (number, vm) in vms.iter().enumerate() {
        text += &format!("[[vm]]\nname = \"vm{number}\"\nvcpus = 1\n{vm}\n");
    }
    let figures = &run(&text).runs[0];
    figures.vms.iter().map(|vm| vm.progress.unwrap() as f64).collect()
}

fn near(found: f64, expected: f64) {
    assert!((found / expected - 1.0).abs() < 0.005, "{found} is not {expected}");
}

const TWO_NODES: &str =
    "{ sockets = 2, nodes = 2, llc_kib = 1024, memory_ns = 100, hop_ns = 100, node_mb_s = 20000 }";
const MISSES: &str = "{ misses_per_ms = 10000, working_set_kib = 1024, lines_per_miss = 1 }";

#[test]
fn the_worked_example_of_the_document() {
    let busy = |pin: u32, node: u32| {
        let workload = format!("{{ kind = \"cpu\", speed = {MISSES} }}");
        format!("pin = \"{pin}\"\nmemory_node = {node}\nworkload = {workload}")
    };
    let [local] = progress(TWO_NODES, &[&busy(0, 0)])[..] else { panic!("one VM") };
    let [remote] = progress(TWO_NODES, &[&busy(0, 1)])[..] else { panic!("one VM") };
    near(local, 2e6);
    near(remote / local, 2.0 / 3.0);
    let two_cores = TWO_NODES.replace("nodes = 2,", "nodes = 2, cores = 2,");
    for both in progress(&two_cores, &[&busy(0, 0), &busy(1, 0)]) {
        near(both / local, 2.0 / (1.0 + 2f64.sqrt()));
    }
}

#[test]
fn work_in_programs_takes_as_much_longer() {
    let steps = |pin: u32| {
        let speed = "{ smt_gain_pct = 120 }";
        let program = format!("steps = [\"compute 100 us\", \"count\"], speed = {speed}");
        format!("pin = \"{pin}\"\nworkload = {{ kind = \"program\", {program} }}")
    };
    let host = "{ cores = 1, threads = 2 }";
    let alone = progress(host, &[&steps(0)]);
    near(alone[0], 10_000.0);
    let both = progress(host, &[&steps(0), &steps(1)]);
    near(both[0], 6_000.0);
    near(both[1], 6_000.0);
    // Beside one that is there half of the time: full speed then, 0.6 else.
    let half = "pin = \"1\"\nworkload = { kind = \"cpu\", duty_pct = 50 }";
    let beside = progress(host, &[&steps(0), half]);
    near(beside[0], 8_000.0);
}

#[test]
fn memory_lies_where_its_vm_first_runs() {
    let at =
        |pin: u32| format!("pin = \"{pin}\"\nworkload = {{ kind = \"cpu\", speed = {MISSES} }}");
    let both = progress(TWO_NODES, &[&at(0), &at(1)]);
    near(both[0], 2e6);
    near(both[1], 2e6);
}

/// Threads of 5,000 misses a ms with 1 MiB, on a host of two caches of 4 MiB and memory of 100 ns: with 4 MiB a ms of
/// computing takes 1.25 ms, and a cache is warm after 17.5 ms of it.
struct OneVm {
    topology: Topology,
    model: SpeedModel,
}

impl OneVm {
    fn new() -> Self {
        let host = Host {
            sockets: 2,
            cores: 2,
            llc_kib: Some(4096),
            memory_ns: Some(100),
            node_mb_s: Some(1_000_000),
            ..Host::default()
        };
        let pace = Pace {
            misses_per_ms: 5_000,
            working_set_kib: 4096,
            lines_per_miss: 1,
            ..Pace::default()
        };
        let model = SpeedModel::of(&host, &[(pace, vec![0]), (pace, vec![0])]).unwrap();
        Self { topology: Topology::of(&host), model }
    }

    /// A thread runs on a pCPU between these ms. Returns what it first has to pay, ns.
    fn stint(&mut self, thread: u32, cpu: u32, from_ms: u64, to_ms: u64) -> u64 {
        let vm = thread % 2;
        self.model.runs(&self.topology, from_ms * 1_000_000, cpu, Some((thread, vm)));
        let owed_ns = self.model.owed_ns(cpu);
        self.model.runs(&self.topology, to_ms * 1_000_000, cpu, None);
        owed_ns
    }
}

#[test]
fn who_comes_to_a_cold_cache_pays_a_third_of_its_lines() {
    let mut host = OneVm::new();
    assert_eq!(host.stint(0, 0, 0, 100), 0);
    // 4 MiB are 65,536 lines; a third of them at 100 ns each.
    let cold_ns = host.stint(0, 1, 100, 200);
    assert!(cold_ns.abs_diff(2_184_533) < 1_000, "{cold_ns}");
    // It was there already.
    assert_eq!(host.stint(0, 0, 200, 300), 0);
    // Another cache, and it owes that when it runs next, wherever.
    assert_eq!(host.stint(0, 2, 300, 400), 0);
    assert!(host.stint(0, 0, 400, 500).abs_diff(2_184_533) < 1_000);
}

#[test]
fn a_short_stint_pays_for_what_it_fetched_only() {
    let mut host = OneVm::new();
    host.stint(0, 0, 0, 1);
    let owed_ns = host.stint(0, 0, 1, 2);
    // 0.8 ms of computing: 0.045 of the way, so a part of 0.127 of the lines, of which 0.03 it has in any case.
    assert!((550_000..700_000).contains(&owed_ns), "{owed_ns}");
}

#[test]
fn who_returns_pays_for_what_others_took_and_for_nothing_if_nobody_did() {
    let mut host = OneVm::new();
    host.stint(0, 0, 0, 100);
    host.stint(0, 0, 100, 101);
    let (mut before_ns, mut now_ms) = (0, 101);
    // Another computes on that cache for ever longer.
    for others_ms in [0, 5, 20, 80, 400] {
        host.stint(1, 1, now_ms, now_ms + others_ms);
        now_ms += others_ms;
        host.stint(0, 0, now_ms, now_ms + 100);
        let owed_ns = host.stint(0, 0, now_ms + 100, now_ms + 101);
        now_ms += 101;
        assert!(owed_ns > before_ns || others_ms == 0, "{others_ms}: {owed_ns}");
        before_ns = owed_ns;
    }
    // 400 ms bring in 49 MiB, twelve times what the cache holds: it is as good as cold.
    assert!(before_ns.abs_diff(2_184_533) < 60_000, "{before_ns}");
}

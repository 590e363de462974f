// SPDX-License-Identifier: GPL-2.0-only
//! The repo's scenarios in the simulator.

use drover_rivals::RIVALS;
use drover_scenario::Scenario;
use drover_scenario::claims::{self, Claim, JudgedBy, Kind, Measured, Standing, judge};
use drover_scenario::expect::Verdict;
use drover_scenario::results::VmFigures;
use drover_scenario::schedule::window_s;
use drover_sim::scenario::{Options, Outcome, run_scenario};
use std::collections::BTreeMap;
use std::path::PathBuf;

fn scenario(name: &str) -> Scenario {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scenarios").join(name);
    let directory = path.parent().unwrap();
    let read = |name: &str| {
        std::fs::read_to_string(directory.join(name)).map_err(|error| error.to_string())
    };
    Scenario::parse_with(&std::fs::read_to_string(&path).unwrap(), name, &read).unwrap()
}

fn run(scenario: &Scenario, options: &Options) -> Outcome {
    run_scenario(scenario, RIVALS, options, &|_, _| {}).unwrap()
}

/// All that the scenario's file expects holds, under all of its schedulers.
fn holds(name: &str) {
    let scenario = scenario(name);
    all_holds(&scenario, &run(&scenario, &Options::default()));
}

/// How a claim stands in docs/seeds/claims.json.
fn standing_of(claim: &str) -> String {
    let rows = drover_report::claims::read(include_str!("../../../docs/seeds/claims.json"));
    rows.unwrap().into_iter().find(|row| row.claim == claim).expect("each has a row").standing
}

fn all_claims() -> Vec<Claim> {
    const CLAIMS: &str = include_str!("../../../scenarios/seeds/claims.toml");
    claims::parse(CLAIMS, "claims.toml").unwrap()
}

/// Everything the scenario expects was measured and is so. What it expects of a document's claim may be
/// missed where docs/seeds/claims.json says so; what is claimed as a number has that number's tolerance.
fn all_holds(scenario: &Scenario, outcome: &Outcome) {
    let claims = all_claims();
    for expect in &scenario.expects {
        let claim = expect.claim.as_ref();
        if claim.is_some_and(|id| standing_of(id) != "holds") {
            continue;
        }
        let claim = claim.and_then(|id| claims.iter().find(|claim| claim.id == *id));
        let is_number = claim.is_some_and(|claim| claim.kind == Kind::Number);
        for figure in Measured::all(expect, &outcome.results) {
            let is_so = figure.row.verdict == Verdict::Pass
                || is_number
                    && judge(Kind::Number, JudgedBy::Each, std::slice::from_ref(&figure))
                        == Standing::Holds;
            assert!(is_so, "{}: {:?}", scenario.name, figure.row);
        }
    }
}

/// A vCPU that wakes beside busy siblings, and a VM that wakes in another's round, wait no longer than under EEVDF.
#[test]
fn whoever_wants_less_than_its_part_is_served_when_it_wakes() {
    for name in ["light-vcpu", "io-beside-own-work", "parallel-request", "desktop-compiles"] {
        holds(&format!("{name}.toml"));
    }
}

#[test]
fn what_scenarios_expect_of_drover_holds() {
    for name in [
        "esx-fig3-shares.toml",
        "equal-shares-1-2-8.toml",
        "total-work.toml",
        "fifty-vms.toml",
        "light-beside-reserved.toml",
        "wakes-as-a-whole.toml",
    ] {
        let scenario = scenario(name);
        let outcome = run(&scenario, &Options::default());
        all_holds(&scenario, &outcome);
    }
}

/// Homes are chosen by the daemon's placer, not by the scenario.
#[test]
fn homes_by_the_placer_bring_what_the_documents_say() {
    for name in ["numa-home.toml", "numa-wide.toml", "numa-sets.toml", "numa-four-nodes.toml"] {
        holds(name);
    }
    for name in ["000-fig15-17", "000-fig15-17-host3", "003-affinity", "003-placement"] {
        holds(&format!("seeds/{name}.toml"));
    }
}

/// Threads spread over the caches of a node; VMs that nodes cannot hold alike take turns.
#[test]
fn caches_are_shared_alike_as_figures_9_to_11_have_it() {
    for name in ["000-fig9", "000-fig10-11", "000-fig10-11-nodes"] {
        holds(&format!("seeds/{name}.toml"));
    }
}

/// Two of them stood half in each of two domains for ever when each domain had rounds of its own.
#[test]
fn vms_wider_than_a_domain_run_in_all_domains_at_once() {
    holds("barrier-wide.toml");
}

/// They did 0.71 and 0.56 of their work under EEVDF: all spun until a slice ended for the one that waited.
#[test]
fn a_wide_vm_goes_on_where_another_has_a_pcpu() {
    holds("barrier-crowded.toml");
}

#[test]
fn partitions_keep_what_is_promised_in_them() {
    holds("partition-promises.toml");
}

#[test]
fn partitions_do_what_their_files_say() {
    let scenario = scenario("partitions.toml");
    let options = Options { schedulers: Some(vec!["drover".to_owned()]), ..Options::default() };
    let outcome = run(&scenario, &options);
    all_holds(&scenario, &outcome);
    for vm in outcome.results.runs.iter().flat_map(|run| &run.vms) {
        let counters = vm.counters.unwrap();
        let [longest_ms, promised_ms] =
            [counters.longest_ready_ms, counters.guaranteed_delay_ms].map(Option::unwrap);
        assert!(longest_ms <= promised_ms, "{}: {longest_ms} of {promised_ms}", vm.name);
    }
}

#[test]
fn costs_grow_with_the_pcpus_that_are_emulated_in_turn() {
    let scenario = scenario("lab-turns.toml");
    let outcome = run(&scenario, &Options::default());
    all_holds(&scenario, &outcome);
    // A switch, a way out and a way back each time, with a tick now and then.
    let alone = &outcome.results.runs[0].vms[0];
    let each_us = 1e6 * alone.cpu_s.unwrap() / alone.progress.unwrap() as f64;
    assert!((43.5..45.0).contains(&each_us), "{each_us}");
}

#[test]
fn what_the_host_takes_from_a_busy_part_is_part_of_it() {
    let text = "name = \"duty\"\nduration_s = 2.0\nschedulers = [\"drover\"]\n\
                [host]\ncosts = { tick_ns = 500000, daemon_look_ns = 1000000 }\n\
                [[vm]]\nname = \"a\"\nvcpus = 1\n\
                workload = { kind = \"cpu\", duty_pct = 60, period_us = 10000 }\n\
                [[vm]]\nname = \"idle\"\nvcpus = 1\nworkload = { kind = \"cpu\", duty_pct = 0 }\n";
    let outcome = run(&Scenario::parse(text, "duty.toml").unwrap(), &Options::default());
    let run = &outcome.results.runs[0];
    // 60 %, and of 200 periods the way to sleep and back; not a tick of 0.5 ms more in every 4 ms.
    let used_s = run.vms[0].cpu_s.unwrap();
    assert!((1.200..1.203).contains(&used_s), "{used_s}");
    assert!(run.vms[1].cpu_s.unwrap() < 0.001, "who has nothing to do does not wake each period");
    // The daemon: ten looks of 2 ms in 2 s, and a few ticks.
    let daemon_s = run.duration_s - used_s - run.host.idle_s.unwrap();
    assert!((0.019..0.027).contains(&daemon_s), "{daemon_s}");
}

#[test]
fn a_halved_demand_is_given_away_at_once() {
    let scenario = scenario("halved-demand.toml");
    let options = Options { schedulers: Some(vec!["drover".to_owned()]), ..Options::default() };
    let outcome = run(&scenario, &options);
    all_holds(&scenario, &outcome);
}

#[test]
fn who_comes_late_among_confined_vms_has_its_part() {
    let scenario = scenario("late-among-confined.toml");
    let options = Options { schedulers: Some(vec!["drover".to_owned()]), ..Options::default() };
    all_holds(&scenario, &run(&scenario, &options));
}

#[test]
fn who_stays_below_its_limit_is_never_held() {
    holds("limit-events.toml");
}

#[test]
fn shares_are_a_vms_on_a_single_pcpu_too() {
    holds("pinned-io.toml");
}

#[test]
fn who_is_owed_time_has_it_in_one_piece_beside_a_wake_storm() {
    holds("wake-storm.toml");
}

#[test]
fn a_home_that_is_busy_makes_nobody_wait() {
    holds("home-busy.toml");
}

#[test]
fn modes_use_and_stop_as_figures_6_to_8_have_it() {
    let scenario = scenario("esx-fig6-8-coscheduling.toml");
    let outcome = run(&scenario, &Options::default());
    all_holds(&scenario, &outcome);
    let of = |case: &str| outcome.results.runs.iter().find(|run| run.case == case).unwrap();
    let used_s = |case: &str| of(case).vms.iter().filter_map(|vm| vm.cpu_s).sum::<f64>();
    // "Clearly" more than strict, the document says, and shows a picture.
    for case in ["relaxed", "skew"] {
        assert!((1.1..1.35).contains(&(used_s(case) / used_s("strict"))), "{case}");
    }
    let two = |case: &str| of(case).vms[0].counters.unwrap();
    assert!(two("skew").costops * 3 <= two("relaxed").costops * 2 + 3);
    assert_eq!((two("off").costops, two("off").skew_max_ms), (0, None));
    for case in ["strict", "relaxed", "skew"] {
        let (vm, vcpus) = (two(case), of(case).vms[0].vcpu.iter().filter_map(|it| it.counters));
        let starts: u64 = vcpus.clone().map(|vcpu| vcpu.costarts).sum();
        let stopped_s: f64 = vcpus.clone().map(|vcpu| vcpu.costop_s).sum();
        assert!(vm.costarts == starts && (vm.costop_s - stopped_s).abs() < 1e-6, "{case}");
        assert!(vcpus.filter_map(|it| it.skew_max_ms).fold(0.0, f64::max) <= 12.0, "{case}");
    }
    let eevdf = Options { schedulers: Some(vec!["eevdf".to_owned()]), ..Options::default() };
    let outcome = run(&scenario, &eevdf);
    let counted = |vm: &VmFigures| vm.counters.is_some() || vm.vcpu[0].counters.is_some();
    assert!(!outcome.results.runs.iter().flat_map(|run| &run.vms).any(counted));
}

/// Turns for all of them took more than the pCPU has: some never came, and the kernel would have thrown
/// the scheduler out.
#[test]
fn in_a_crowd_of_four_hundred_vcpus_on_one_pcpu_none_waits_longer_than_promised() {
    let mut text = "name = \"crowd\"\nduration_s = 20.0\nschedulers = [\"drover\"]\n\
                    [host]\ncores = 1\n"
        .to_owned();
    for vm in 0..200 {
        text += &format!("[[vm]]\nname = \"vm{vm}\"\nvcpus = 2\nworkload = {{ kind = \"cpu\" }}\n");
    }
    let outcome = run(&Scenario::parse(&text, "crowd.toml").unwrap(), &Options::default());
    for vm in &outcome.results.runs[0].vms {
        assert!(vm.vcpu_min_cpu_s.unwrap() > 0.0, "{}", vm.name);
        let counters = vm.counters.as_ref().unwrap();
        let (waited_ms, promised_ms) = (counters.longest_ready_ms, counters.guaranteed_delay_ms);
        assert!(waited_ms <= promised_ms, "{}: {waited_ms:?} of {promised_ms:?}", vm.name);
    }
}

#[test]
fn one_seed_is_one_history_whatever_the_threads() {
    let mut scenario = scenario("mixed-load.toml");
    scenario.duration_s = 1.0;
    let options = Options { seeds: 3, threads: 1, ..Options::default() };
    let alone = run(&scenario, &options);
    let beside = run(&scenario, &Options { threads: 4, ..options.clone() });
    assert_eq!(alone.trace_hash, beside.trace_hash);
    assert_eq!(alone.results, beside.results);
    scenario.seed += 1;
    assert_ne!(run(&scenario, &options).trace_hash, alone.trace_hash);
}

#[test]
fn a_barrier_alone_makes_its_rounds_and_idle_time_adds_up() {
    let mut scenario = scenario("barrier-2to1.toml");
    scenario.repeats = 1;
    scenario.duration_s = 4.0;
    let outcome = run(&scenario, &Options::default());
    for run in outcome.results.runs.iter().filter(|run| run.case == "alone") {
        // 30 us of work, a fraction for the hand-over and the tick: 4 s hold about 133,000 rounds.
        let rounds = run.vms[0].progress.unwrap() / 2;
        assert!((130_000..133_400).contains(&rounds), "{rounds}");
    }
    for run in &outcome.results.runs {
        let used_s: f64 = run.vms.iter().map(|vm| vm.cpu_s.unwrap()).sum();
        let all_s = used_s + run.host.idle_s.unwrap();
        let capacity_s = f64::from(run.host.pcpus) * run.duration_s;
        assert!((all_s - capacity_s).abs() < 1e-6, "{all_s} of {capacity_s}");
    }
}

#[test]
fn the_hosts_own_tasks_take_what_is_said_of_them() {
    let text = "name = \"own\"\nduration_s = 2.0\nschedulers = [\"drover\", \"eevdf\"]\n\
                [host]\ncores = 2\nown_wakeups_per_s = 100\nown_work_us = 500\n\
                [[vm]]\nname = \"a\"\nvcpus = 2\nworkload = { kind = \"cpu\" }\n";
    let outcome = run(&Scenario::parse(text, "own.toml").unwrap(), &Options::default());
    assert_eq!(outcome.results.runs.len(), 2);
    for run in &outcome.results.runs {
        let left_s = run.vms[0].cpu_s.unwrap();
        // Of 4 s of two pCPUs a twentieth, and a little for each switch.
        assert!((3.77..3.81).contains(&left_s), "{}: {left_s}", run.scheduler);
        assert!(run.host.context_switches.unwrap() >= 2 * 2 * 100 * 2 - 8);
    }
}

/// A VM with one busy vCPU has the part of one vCPU, whatever its others pretend; where it asks for shares, those.
#[test]
fn only_vcpus_that_run_count_for_shares_that_nobody_set() {
    let text = |set: &str| {
        format!(
            "name = \"blink\"\nduration_s = 4.0\nwarmup_s = 4.0\nhost = {{ cores = 4 }}\n\
             [[vm]]\nname = \"honest\"\ncount = 7\nvcpus = 1\nworkload = {{ kind = \"cpu\" }}\n\
             [[vm]]\nname = \"blinks\"\nvcpus = 4\n{set}\
             workload = {{ kind = \"program\", roles = [\
             {{ vcpus = \"0\", steps = [\"compute 1 ms\", \"count\"] }},\
             {{ vcpus = \"1-3\", steps = [\"compute 20 us\", \"sleep 1 s\"] }} ] }}\n"
        )
    };
    for (set, part) in [("", 0.5), ("shares = 4000\n", 1.0)] {
        let scenario = Scenario::parse(&text(set), "blink.toml").unwrap();
        let options = Options { schedulers: Some(vec!["drover".to_owned()]), ..Options::default() };
        let outcome = run(&scenario, &options);
        let blinks = &outcome.results.runs[0].vms[7];
        let got = blinks.cpu_s.unwrap() / 4.0;
        assert!((got - part).abs() < 0.03, "{set}: {got} of a pCPU, {part} is right");
    }
}

#[test]
fn what_cannot_be_simulated_is_refused_in_one_line() {
    let refuse = |scenario: &Scenario, options: &Options| {
        let error = run_scenario(scenario, RIVALS, options, &|_, _| {}).unwrap_err();
        assert!(!error.contains('\n'), "{error}");
        error
    };
    let error = refuse(&scenario("qemu-guests.toml"), &Options::default());
    assert!(error.contains("Linux guest") && error.contains("--on lab"), "{error}");
    let error = refuse(&scenario("yield-pingpong.toml"), &Options::default());
    assert!(error.contains("pingpong") && error.contains("--on lab"), "{error}");
    let options = Options { schedulers: Some(vec!["scx_lavd".to_owned()]), ..Options::default() };
    let error = refuse(&scenario("total-work.toml"), &options);
    assert!(error.contains("scx_lavd") && error.contains("eevdf"), "{error}");
}

#[test]
fn ten_thousand_vms_run_and_those_without_a_slot_are_told() {
    let vm = "vcpus = 1\nworkload = { kind = \"cpu\" }\n";
    let vms: String =
        (0..10_000).map(|number| format!("[[vm]]\nname = \"vm{number}\"\n{vm}")).collect();
    let head = "name = \"many\"\nduration_s = 0.1\nschedulers = [\"drover\"]\n[host]\ncores = 64\n";
    let scenario = Scenario::parse(&format!("{head}{vms}"), "many.toml").unwrap();
    let outcome = run(&scenario, &Options::default());
    let fault = outcome.results.runs[0].fault.clone().unwrap();
    assert!(fault.contains("10000 VMs 2047 have shares of their own"), "{fault}");
    assert_eq!(outcome.results.runs[0].vms.len(), 10_000);
}

#[test]
fn a_trace_shows_every_moment_of_cpu_time() {
    let mut scenario = scenario("total-work.toml");
    (scenario.repeats, scenario.duration_s, scenario.warmup_s) = (1, 0.5, 0.0);
    let outcome = run(&scenario, &Options { trace: true, ..Options::default() });
    assert_eq!(outcome.traces.len(), 2);
    for (trace, run) in outcome.traces.iter().zip(&outcome.results.runs) {
        let spans_ns: u64 = trace.spans.iter().map(|span| span.to_ns - span.from_ns).sum();
        let used_s: f64 = run.vms.iter().map(|vm| vm.cpu_s.unwrap()).sum();
        let missing_s = used_s - spans_ns as f64 / 1e9;
        assert!(missing_s.abs() < 0.001, "{}: {missing_s}", trace.title());
        assert_eq!(trace.tasks.len(), 4);
        // Of 200 ms out of the middle of a busy host nothing is missing either.
        let schedule = trace.schedule(&scenario, window_s(scenario.duration_s));
        assert_eq!((schedule.from_s, schedule.length_ns), (0.15, 200_000_000));
        let spans_ns: u64 = schedule.spans.iter().map(|span| span.to_ns - span.from_ns).sum();
        let all_ns = u64::from(schedule.pcpus) * schedule.length_ns;
        assert!(spans_ns <= all_ns && spans_ns > all_ns / 100 * 99, "{spans_ns} of {all_ns}");
        // Busy vCPUs run or wait at any moment.
        let waits_ns: u64 = schedule.waits.iter().map(|wait| wait.to_ns - wait.from_ns).sum();
        assert_eq!(spans_ns + waits_ns, 4 * schedule.length_ns);
    }
}

/// What shows each claim in a scenario, with as many seeds of randomness as `drover seeds` takes.
fn figures_of_claims(name: &str) -> BTreeMap<String, Vec<Measured>> {
    let mut scenario = scenario(name);
    (scenario.repeats, scenario.schedulers) = (5, vec!["drover".to_owned()]);
    let results = run(&scenario, &Options::default()).results;
    let mut figures: BTreeMap<String, Vec<Measured>> = BTreeMap::new();
    for expect in &scenario.expects {
        let Some(id) = &expect.claim else { continue };
        figures.entry(id.clone()).or_default().extend(Measured::all(expect, &results));
    }
    figures
}

/// Of scenarios that are quick, show all of each claim they show, and need no other scheduler.
#[test]
fn claims_stand_as_published() {
    let files = [
        "esx-fig3-shares.toml",
        "esx-fig5-limit.toml",
        "seeds/000-s2-shares-and-balance.toml",
        "seeds/000-s22-siblings.toml",
        "seeds/000-s33-caches.toml",
        "seeds/001-slices.toml",
    ];
    let claims = all_claims();
    for (id, figures) in files.iter().flat_map(|name| figures_of_claims(name)) {
        let claim = claims.iter().find(|claim| claim.id == id).unwrap();
        let word = match judge(claim.kind, claim.judged_by, &figures) {
            Standing::Holds => "holds",
            Standing::Near => "near",
            Standing::Not => "not",
        };
        assert_eq!(standing_of(&id), word, "{id}: run `make seeds`");
    }
}

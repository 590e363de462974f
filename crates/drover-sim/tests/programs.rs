// SPDX-License-Identifier: GPL-2.0-only
//! Guests as small programs: every word of the vocabulary does what docs/scenarios.md says.

use drover_rivals::RIVALS;
use drover_scenario::Scenario;
use drover_scenario::results::Run;
use drover_sim::scenario::{DROVER, Options, Outcome, run_scenario};
use std::path::PathBuf;

/// Runs VMs called a, b ... of those workloads on so many pCPUs for a second, without warm-up.
fn simulate(top: &str, pcpus: u32, vms: &[(u32, &str)]) -> Outcome {
    let mut text = format!(
        "name = \"x\"\nduration_s = 1.0\nwarmup_s = 0.0\n{top}\nhost = {{ cores = {pcpus}, llc_kib = 8192, memory_ns = 80, hop_ns = 30, node_mb_s = 20000, link_mbit_s = 1000 }}\n"
    );
    for ((vcpus, workload), name) in vms.iter().zip('a'..) {
        text += &format!("[[vm]]\nname = \"{name}\"\nvcpus = {vcpus}\nworkload = {workload}\n");
    }
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let read =
        |file: &str| std::fs::read_to_string(dir.join(file)).map_err(|error| error.to_string());
    let scenario = Scenario::parse_with(&text, "x.toml", &read).unwrap_or_else(|error| {
        panic!("{error}\n{text}");
    });
    run_scenario(&scenario, RIVALS, &Options::default(), &|_, _| {}).unwrap()
}

fn program(rest: &str) -> String {
    format!("{{ kind = \"program\", {rest} }}")
}

/// One VM alone under EEVDF.
fn alone(pcpus: u32, vcpus: u32, rest: &str) -> Run {
    let outcome = simulate("schedulers = [\"eevdf\"]", pcpus, &[(vcpus, &program(rest))]);
    outcome.results.runs.into_iter().next().unwrap()
}

fn progress(run: &Run) -> u64 {
    assert_eq!(run.fault, None);
    run.vms[0].progress.unwrap()
}

#[test]
fn computing_takes_the_time_it_says() {
    let exact = progress(&alone(1, 1, r#"steps = ["compute 100 us", "count"]"#));
    assert!((9_900..=9_990).contains(&exact), "{exact}");
    for time in ["about 100 us", "50 us to 150 us"] {
        let drawn = progress(&alone(1, 1, &format!(r#"steps = ["kernel {time}", "count"]"#)));
        assert!((9_600..=10_300).contains(&drawn), "{time}: {drawn}");
    }
    let none = alone(1, 1, r#"steps = ["compute 0 ns", "compute 1 s", "count"]"#);
    assert_eq!(progress(&none), 0, "the second is not quite over");
    let huge = alone(1, 1, r#"steps = ["count", "sleep 86400 s"]"#);
    assert_eq!(progress(&huge), 1);
}

#[test]
fn loops_go_round_as_often_or_as_long_as_they_say() {
    let steps = r#"steps = ["repeat 3", "repeat 2", "compute 1 us", "count", "end", "end",
        "sleep 86400 s"]"#;
    assert_eq!(progress(&alone(1, 1, steps)), 6);
    let phase = r#"steps = ["for 100 ms", "compute 1 ms", "count", "end", "sleep 100 ms"]"#;
    let rounds = progress(&alone(1, 1, phase));
    assert!((490..=510).contains(&rounds), "half of the time: {rounds}");
}

#[test]
fn sleepers_sleep_and_timers_keep_to_their_grid() {
    let slept = progress(&alone(1, 1, r#"steps = ["sleep 10 ms", "compute 10 ms", "count"]"#));
    assert!((48..=50).contains(&slept), "{slept}");
    let run = alone(1, 1, r#"steps = ["timer 10 ms", "compute 4 ms"]"#);
    assert!((98..=100).contains(&progress(&run)));
    assert!(run.vms[0].wakeup_us.as_ref().unwrap().max < 20.0);
}

#[test]
fn work_spawned_is_work_done() {
    let run = alone(
        2,
        3,
        r#"roles = [
            { vcpus = "0", steps = ["spawn 5 jobs", "sleep 10 ms"] },
            { steps = ["wait jobs", "compute 1 ms", "count"] },
        ]"#,
    );
    assert!((490..=500).contains(&progress(&run)), "{:?}", run.vms[0].progress);
    let back_and_forth = alone(
        2,
        2,
        r#"roles = [
            { vcpus = "0", steps = ["spawn 1 there", "wait back", "count"] },
            { steps = ["wait there", "compute 5 us", "spawn 1 back"] },
        ]"#,
    );
    let rounds = progress(&back_and_forth);
    assert!((20_000..=80_000).contains(&rounds), "{rounds}");
}

#[test]
fn requests_are_served_by_a_thread_of_the_vm() {
    let run = alone(2, 1, r#"steps = ["io 50 us then 400 us", "compute 40 us", "count"]"#);
    let done = progress(&run);
    assert!((1_900..=2_030).contains(&done), "490 us and some exits each: {done}");
    let helpers_s = run.vms[0].helpers_cpu_s.unwrap();
    assert!((0.09..0.13).contains(&helpers_s), "{helpers_s}");
    assert_eq!(run.vms[0].vcpu.len(), 1);
}

#[test]
fn interrupts_are_answered_by_runners_sleepers_and_the_preempted() {
    let one = progress(&alone(2, 2, r#"steps = ["compute 10 us", "ipi one", "count"]"#));
    assert!((100_000..200_000).contains(&one), "{one}");
    let sleeper = alone(
        2,
        2,
        r#"roles = [
            { vcpus = "0", steps = ["compute 10 us", "ipi 1", "count"] },
            { steps = ["sleep 86400 s"] },
        ]"#,
    );
    let woken = progress(&sleeper);
    assert!((10_000..100_000).contains(&woken), "{woken}");
    // Four vCPUs on two pCPUs: some are always preempted, and answer when they run.
    let crowded = progress(&alone(2, 4, r#"steps = ["compute 10 us", "ipi all", "count"]"#));
    assert!((100..50_000).contains(&crowded), "{crowded}");
}

#[test]
fn all_that_meet_or_join_go_on_together() {
    for step in ["meet here", "join here"] {
        let run = alone(4, 4, &format!(r#"steps = ["compute 100 us", "{step}", "count"]"#));
        let each: Vec<u64> = run.vms[0].vcpu.iter().map(|vcpu| vcpu.progress.unwrap()).collect();
        assert!(each.iter().all(|rounds| rounds.abs_diff(each[0]) <= 1), "{step}: {each:?}");
        assert!(each[0] > 8_000, "{step}: {each:?}");
    }
}

/// What a lock of that kind lets through beside a busy VM, on pCPUs for half of them.
fn beside_a_busy_one(lock: &str) -> u64 {
    let locking = program(&format!(
        r#"locks = {{ l = "{lock}" }}, pv_spin_us = 20,
        steps = ["compute 20 us", "take l", "kernel 5 us", "release l", "count"]"#
    ));
    let vms = [(4, locking.as_str()), (4, r#"{ kind = "cpu" }"#)];
    let outcome = simulate("schedulers = [\"eevdf\"]", 4, &vms);
    progress(&outcome.results.runs[0])
}

#[test]
fn locks_suffer_from_preemption_in_their_order() {
    let all = ["ticket", "ticket-pv", "test-and-set", "test-and-set-pv"].map(beside_a_busy_one);
    let [ticket, ticket_pv, any, any_pv] = all;
    assert!(ticket_pv > 2 * ticket, "halting lets a preempted holder run: {all:?}");
    assert!(any > 2 * ticket, "who runs takes it: {all:?}");
    assert!(any_pv * 10 > any * 8, "{all:?}");
}

#[test]
fn a_program_that_waits_for_itself_is_named_and_no_hang() {
    let run = alone(
        2,
        2,
        r#"locks = { a = "ticket", b = "test-and-set" }, roles = [
            { vcpus = "0", steps = [
                "take a", "compute 1 ms", "take b", "release b", "release a", "count"] },
            { steps = ["take b", "compute 1 ms", "take a", "release a", "release b", "count"] },
        ]"#,
    );
    let fault = run.fault.unwrap();
    assert_eq!(fault, "VM \"a\" can never go on: vCPU 0 waits for lock b, which vCPU 1 holds");
    let uneven = alone(
        2,
        2,
        r#"roles = [
            { vcpus = "0", steps = ["meet x", "repeat 2", "meet x", "end", "join y"] },
            { steps = ["meet x", "meet x", "join y"] },
        ]"#,
    );
    assert!(uneven.fault.unwrap().contains("barrier x, where 1 of 2 have come"));
}

#[test]
fn pause_loop_exits_let_a_preempted_lock_holder_run() {
    let locking = program(
        r#"locks = { l = "ticket" },
        steps = ["compute 20 us", "take l", "kernel 5 us", "release l", "count"]"#,
    );
    let vms = [(4, locking.as_str()), (4, r#"{ kind = "cpu" }"#)];
    let rounds = |ple: bool| {
        let outcome = simulate(&format!("schedulers = [\"eevdf\"]\nple = {ple}"), 4, &vms);
        progress(&outcome.results.runs[0])
    };
    let (without, with) = (rounds(false), rounds(true));
    assert!(with > 2 * without, "{with} with, {without} without");
}

#[test]
fn every_workload_that_comes_with_drover_runs_under_every_scheduler() {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/workloads");
    let mut files = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let file = entry.unwrap().file_name().into_string().unwrap();
        if file == "kernel-compile-four-nodes.toml" {
            continue; // For 80 vCPUs only, as scenarios/seeds/002-big-vm.toml has it.
        }
        let workload = format!("\"workloads/{file}\"");
        // A back end has nothing to do without somebody who sends.
        let beside = match file.as_str() {
            "xen-netback.toml" => "\"workloads/stream-out.toml\"",
            _ => r#"{ kind = "cpu" }"#,
        };
        let vms = [(4, workload.as_str()), (4, beside)];
        let rivals = RIVALS.iter().map(|rival| rival.name);
        let names: Vec<String> =
            std::iter::once(DROVER).chain(rivals).map(|name| format!("\"{name}\"")).collect();
        for ple in [false, true] {
            let top = format!("schedulers = [{}]\nple = {ple}", names.join(", "));
            let outcome = simulate(&top, 4, &vms);
            for run in &outcome.results.runs {
                assert!(progress(run) > 0, "{file} under {}: {run:?}", run.scheduler);
            }
            assert_eq!(simulate(&top, 4, &vms).trace_hash, outcome.trace_hash, "{file}");
        }
        files += 1;
    }
    assert!(files >= 7, "{files} workloads");
}

/// A VM sends by a back end in another: the link is full where the back end can keep up with it, else the
/// back end sets the pace; what is taken out of rings was put there.
#[test]
fn what_is_sent_goes_through_the_back_end_and_the_link() {
    let sends = program(r#"steps = ["compute 100 us", "send 50 KB", "count"]"#);
    for (back_end_us, most) in [(200, 2500), (800, 1250)] {
        let steps =
            format!(r#"steps = ["forward", "kernel {back_end_us} us", "transmit", "count"]"#);
        let text = format!(
            "name = \"x\"\nduration_s = 1.0\nwarmup_s = 0.0\nschedulers = [\"eevdf\"]\n\
             host = {{ cores = 2, link_mbit_s = 1000 }}\n\
             [[vm]]\nname = \"dom0\"\nvcpus = 1\nworkload = {}\n\
             [[vm]]\nname = \"io\"\nvcpus = 1\nworkload = {sends}\n",
            program(&steps)
        );
        let scenario = Scenario::parse(&text, "x.toml").unwrap_or_else(|error| panic!("{error}"));
        let outcome = run_scenario(&scenario, RIVALS, &Options::default(), &|_, _| {}).unwrap();
        let run = &outcome.results.runs[0];
        assert_eq!(run.fault, None);
        let [forwarded, sent] = [0, 1].map(|vm| run.vms[vm].progress.unwrap());
        // The link has 1 MiB in hand at most, and so has the ring.
        assert!((most * 95 / 100..=most + 22).contains(&forwarded), "{forwarded} of {most}");
        assert!((forwarded..=forwarded + 22).contains(&sent), "{sent} of {forwarded}");
    }
}

/// The sender has no need to sleep: events come to it while it is ready and another runs.
#[test]
fn an_event_waits_for_who_is_ready_as_for_who_sleeps() {
    let sends = program(r#"steps = ["compute 1 ms", "send 50 KB", "count"]"#);
    let forwards = program(r#"steps = ["forward", "kernel 200 us", "transmit", "count"]"#);
    let longest_us = |beside: &str| {
        let text = format!(
            "name = \"events\"\nduration_s = 1.0\nwarmup_s = 0.1\nschedulers = [\"eevdf\"]\n\
             host = {{ cores = 2, link_mbit_s = 1000 }}\n\
             [[vm]]\nname = \"dom0\"\nvcpus = 1\npin = \"0\"\nworkload = {forwards}\n\
             [[vm]]\nname = \"io\"\nvcpus = 1\npin = \"1\"\nworkload = {sends}\n{beside}"
        );
        let scenario = Scenario::parse(&text, "events.toml").unwrap();
        let outcome = run_scenario(&scenario, RIVALS, &Options::default(), &|_, _| {}).unwrap();
        outcome.results.runs[0].vms[1].wakeup_us.as_ref().map_or(0.0, |wakeup| wakeup.max)
    };
    assert_eq!(longest_us(""), 0.0);
    let busy = "[[vm]]\nname = \"busy\"\nvcpus = 1\npin = \"1\"\nworkload = { kind = \"cpu\" }\n";
    assert!(longest_us(busy) > 1000.0, "{}", longest_us(busy));
}

/// Linux 3.6 goes from each sibling to its task, and locks two run queues for one that is in such an exit.
#[test]
fn an_exit_of_linux_3_6_costs_more_the_more_siblings_spin() {
    let locking = program(
        r#"locks = { l = "ticket" }, steps = ["take l", "kernel 100 us", "release l", "count"]"#,
    );
    let exit_us = |scheduler: &str, vcpus: u32| {
        let top = format!("schedulers = [\"{scheduler}\"]\nple = true");
        let outcome = simulate(&top, vcpus, &[(vcpus, &locking)]);
        let run = &outcome.results.runs[0];
        assert!(run.vms[0].spin_s.unwrap() > 0.0);
        run.host.pause_exit_s.unwrap() * 1e6 / run.host.pause_exits.unwrap() as f64
    };
    let [few, many] = [4, 16].map(|vcpus| exit_us("cfs36", vcpus));
    assert!(few > 1.1 && many > 2.0 * few, "{few} {many}");
    assert!(exit_us("eevdf", 16) < few, "today's looks before it locks");
}

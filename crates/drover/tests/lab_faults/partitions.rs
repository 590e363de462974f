// SPDX-License-Identifier: GPL-2.0-only
//! VMs and pCPUs change partitions under load: nobody waits for longer than is promised, nothing is half done.

use std::path::Path;
use std::thread;
use std::time::Duration;

use drover_core::asked::Asked;
use drover_core::partition::PartitionChange;
use drover_host::control::{Answer, Request, SOCKET_PATH, ask};
use drover_host::status::PartitionStatus;
use nix::sys::signal::Signal;

use crate::host::{self, Daemon, drover, say, set_online};
use crate::settings::{as_printed, must, refused_with, vm};
use crate::storm::Dice;
use crate::vms::{CPU, MicroVm, SLEEP, all_progress_within, start_quickly};

/// Before so many moves of ten there is time enough for a long wait; before the others next to none.
const SETTLED_OF_TEN: usize = 1;
/// How the pCPUs are dealt out: those of `io`, `rt` and `near`; the rest is the default's.
const LAYOUTS: [[&str; 3]; 4] =
    [["1-2", "5", "3-4"], ["1", "4-5", "3"], ["2", "5", "3-4"], ["0-1", "5", "2-3"]];
/// One of each that no other partition has in any layout.
const LEAST: [&str; 3] = ["1", "5", "3"];
const PARTITIONS: [&str; 4] = ["io", "rt", "near", "default"];
/// A thread that brings a pCPU online while others change was left asleep in one of two or three of these.
const COMINGS: usize = 6;
/// Where each waits for a turn among those of a dedicated pCPU.
const PROGRESS: Duration = Duration::from_secs(4);

#[test]
#[ignore = "runs inside the lab"]
fn inside() {
    host::must_be_lab();
    let (web, db) = (MicroVm::start("web", 2, SLEEP), MicroVm::start("db", 2, CPU));
    let build = MicroVm::start("build", 4, CPU);
    let vms = [&web, &db, &build];
    let mut daemon = start_quickly(&vms);
    host::wait_until("all are found", Duration::from_secs(1), || host::list().len() == 3);
    as_printed("Partitions");
    must("partition add io --cpus 1-2 --policy credit --slice 3ms");
    must("partition add rt --cpus 5 --policy dedicated");
    must("partition add near --cpus 3-4 --policy anticipatory");
    moved(&vms, &mut daemon);
    let mut daemon = killed_in_the_middle(daemon, &vms);
    its_last_pcpu_goes(&vms, &mut daemon);
}

fn partitions() -> Vec<PartitionStatus> {
    match ask(Path::new(SOCKET_PATH), &Request::ListPartitions) {
        Ok(Answer::Partitions { partitions }) => partitions,
        other => panic!("no list of partitions: {other:?}"),
    }
}

/// Looks at the longest wait of each VM since its settings last changed.
fn nobody_waited_too_long() {
    for vm in host::list() {
        let waits = [vm.counters.longest_ready_ms, vm.counters.guaranteed_delay_ms];
        let [longest_ms, promised_ms] = waits.map(|ms| ms.expect("it is counted"));
        let (name, partition, why) = (vm.name, vm.partition, vm.guaranteed_delay_why);
        assert!(
            longest_ms <= promised_ms,
            "{name} in {partition} waited {longest_ms} ms of {promised_ms}: {why}"
        );
    }
}

/// Gives the pCPUs to partitions as in that layout. Who shrinks comes before who grows into it.
fn deal_out(layout: [&str; 3]) {
    for (name, cpus) in PARTITIONS.into_iter().zip(LEAST).chain(PARTITIONS.into_iter().zip(layout))
    {
        let change =
            PartitionChange { cpus: Some(cpus.parse().unwrap()), ..PartitionChange::default() };
        ordered(&Request::SetPartition { name: name.to_owned(), change });
    }
}

/// Orders without a program started for it, which takes the lab longer than the move.
fn ordered(order: &Request) {
    assert_eq!(ask(Path::new(SOCKET_PATH), order).unwrap(), Answer::Done, "{order:?}");
}

fn moved(vms: &[&MicroVm], daemon: &mut Daemon) {
    say("moves under load");
    let mut dice = Dice::new(1);
    let mut longest_ms: f64 = 0.0;
    let moves = host::times(1000, 100);
    for step in 0..moves {
        let (name, to) =
            (&vms[dice.below(vms.len())].name, PARTITIONS[dice.below(PARTITIONS.len())]);
        nobody_waited_too_long();
        longest_ms = longest_ms.max(vm(name).counters.longest_ready_ms.unwrap_or(0.0));
        let set = Asked { partition: Some(to.to_owned()), ..Asked::default() };
        ordered(&Request::SetVm { name: name.clone(), set, reset: Vec::new() });
        assert_eq!(vm(name).partition, to);
        if step % 4 == 3 {
            deal_out(LAYOUTS[dice.below(LAYOUTS.len())]);
        }
        let pause_ms = if dice.below(10) < SETTLED_OF_TEN { 200 } else { 20 };
        thread::sleep(Duration::from_millis(dice.below(pause_ms) as u64));
    }
    all_progress_within(PROGRESS, vms);
    nobody_waited_too_long();
    daemon.must_serve();
    println!("{moves} moves, the longest wait seen was {longest_ms} ms");
    for (name, to) in [("build", "default"), ("web", "io"), ("db", "io")] {
        must(&format!("vm set {name} --partition {to}"));
    }
    refused_with("partition remove io", "not empty (VM ");
    refused_with("partition set io --cpus 0-5", "so has");
    refused_with("partition set io --cpus 9", "not online here");
    assert_eq!(partitions()[1].vms.len(), 2, "nothing was changed");
}

/// A daemon is killed among orders: it comes back with one of them, whole.
fn killed_in_the_middle(daemon: Daemon, vms: &[&MicroVm]) -> Daemon {
    say("kill -9 among orders");
    deal_out(LAYOUTS[0]);
    let orders = thread::spawn(|| {
        for step in 1..1000 {
            let slice = format!("{step}ms");
            let cpus = ["1", "1-2"][step % 2];
            let line = ["partition", "set", "io", "--cpus", cpus, "--slice", &slice];
            if !drover(&line).status.success() {
                return step;
            }
        }
        panic!("the daemon was not killed");
    });
    thread::sleep(Duration::from_millis(300));
    daemon.signal(Signal::SIGKILL);
    let tried = orders.join().unwrap();
    host::wait_for_fallback();
    drop(daemon);
    let daemon = start_quickly(vms);
    host::wait_until("all are found", Duration::from_secs(1), || host::list().len() == 3);
    let io = partitions().remove(1);
    let is = |step: usize| {
        let cpus = ["1", "1-2"][step % 2].parse().ok();
        (io.slice_ms - step as f64).abs() < 1e-9 && io.cpus == cpus
    };
    assert!(is(tried) || is(tried - 1), "half of an order after {tried}: {io:?}");
    assert_eq!((vm("web").partition.as_str(), vm("db").partition.as_str()), ("io", "io"));
    all_progress_within(PROGRESS, vms);
    daemon
}

fn its_last_pcpu_goes(vms: &[&MicroVm], daemon: &mut Daemon) {
    say("the last pCPU of a partition goes");
    must("partition set io --cpus 1-2 --slice 3ms");
    set_online(1, false);
    all_progress_within(PROGRESS, vms);
    let is_offline = || partitions()[1].offline == "1".parse().ok();
    host::wait_until("it is listed as offline", Duration::from_secs(1), is_offline);
    set_online(2, false);
    let line = "partition \"io\": its last pCPU is offline; until one is back, ";
    host::wait_until("it is said", Duration::from_secs(1), || daemon.said().contains(line));
    all_progress_within(PROGRESS, vms);
    for _ in 0..COMINGS {
        set_online(2, true);
        set_online(1, true);
        set_online(1, false);
        set_online(2, false);
    }
    set_online(2, true);
    set_online(1, true);
    all_progress_within(PROGRESS, vms);
    nobody_waited_too_long();
    daemon.must_serve();
}

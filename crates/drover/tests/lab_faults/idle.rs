// SPDX-License-Identifier: GPL-2.0-only
//! A pCPU that could run somebody who waits does not idle; shares hold wherever VMs are confined to.

use std::thread;
use std::time::{Duration, Instant};

use crate::host::{self, Daemon, idle_s, say};
use crate::tasks::confine;
use crate::vms::{CPU, MicroVm, SLEEP, cpu_s_during};

const ALL: [usize; 4] = [0, 1, 2, 3];
const SETTLE: Duration = Duration::from_millis(300);
const WINDOW: Duration = Duration::from_millis(1500);
/// Of shares more has to be seen.
const SHARES_WINDOW: Duration = Duration::from_secs(3);
/// Host idle time that may be lost with enough runnable vCPUs.
const IDLE_MAX: f64 = 0.005;

#[test]
#[ignore = "runs inside the lab"]
fn inside() {
    host::must_be_lab();
    let mut daemon = Daemon::start();
    let mut lost = Vec::new();
    lost.extend(as_many_vcpus_as_pcpus());
    lost.extend(more_vcpus_than_pcpus());
    lost.extend(beside_sleepers());
    lost.extend(confined_beside_sleepers());
    lost.extend(shares_among_pinned());
    daemon.must_serve();
    assert!(lost.is_empty(), "{lost:#?}");
}

/// The part of that time that these pCPUs are not idle.
pub fn busy_share(pcpus: &[usize], time: Duration) -> f64 {
    let (begun, before) = (Instant::now(), idle_s(pcpus));
    thread::sleep(time);
    let idle: f64 = idle_s(pcpus).iter().zip(before).map(|(now, before)| now - before).sum();
    #[allow(clippy::cast_precision_loss)] // At most 4096.
    let pcpus = pcpus.len() as f64;
    1.0 - idle / (begun.elapsed().as_secs_f64() * pcpus)
}

/// Complains when these pCPUs idle too much.
fn idling(what: &str, pcpus: &[usize]) -> Option<String> {
    thread::sleep(SETTLE);
    let idle = 1.0 - busy_share(pcpus, WINDOW);
    println!("{what}: idle {:.2} %", idle * 100.0);
    (idle > IDLE_MAX).then(|| format!("{what}: idle {:.2} %", idle * 100.0))
}

fn as_many_vcpus_as_pcpus() -> Vec<String> {
    say("as many busy vCPUs as pCPUs, or fewer");
    let mut lost = Vec::new();
    let three: Vec<MicroVm> = (0..3).map(|i| MicroVm::start(&format!("lone{i}"), 1, CPU)).collect();
    lost.extend(less_than_whole(&three.iter().collect::<Vec<_>>()));
    drop(three);
    let pair: Vec<MicroVm> = (0..2).map(|i| MicroVm::start(&format!("pair{i}"), 2, CPU)).collect();
    lost.extend(less_than_whole(&pair.iter().collect::<Vec<_>>()));
    lost
}

/// Complains of each vCPU that does not get a pCPU of its own.
fn less_than_whole(vms: &[&MicroVm]) -> Vec<String> {
    thread::sleep(SETTLE);
    let got = cpu_s_during(WINDOW, vms);
    let mut lost = Vec::new();
    for (vm, got_s) in vms.iter().zip(got) {
        #[allow(clippy::cast_precision_loss)] // At most 256.
        let whole = vm.progress().len() as f64 * WINDOW.as_secs_f64();
        println!("{}: {:.1} % of its pCPUs", vm.name, got_s / whole * 100.0);
        if got_s < whole * 0.98 {
            lost.push(format!("{} got {got_s:.2} s of {whole:.2} s", vm.name));
        }
    }
    lost
}

fn more_vcpus_than_pcpus() -> Vec<String> {
    say("more busy vCPUs than pCPUs");
    let _vms = [MicroVm::start("wide", 5, CPU), MicroVm::start("narrow", 1, CPU)];
    idling("5 + 1 busy vCPUs", &ALL).into_iter().collect()
}

fn beside_sleepers() -> Vec<String> {
    say("beside sleepers");
    let _vms = [MicroVm::start("busy", 5, CPU), MicroVm::start("sleepers", 6, SLEEP)];
    idling("5 busy vCPUs beside 6 sleepers", &ALL).into_iter().collect()
}

/// Three busy vCPUs may use two pCPUs, on which sleepers come and go.
fn confined_beside_sleepers() -> Vec<String> {
    say("confined, beside sleepers");
    let busy = MicroVm::start("confined", 3, CPU);
    busy.threads().into_iter().for_each(|thread| confine(thread, &[1, 2]));
    let _sleepers = MicroVm::start("sleepers", 6, SLEEP);
    idling("two pCPUs of three confined vCPUs", &[1, 2]).into_iter().collect()
}

fn shares_among_pinned() -> Vec<String> {
    say("shares among pinned VMs");
    let (small, large) = (MicroVm::start("small", 1, CPU), MicroVm::start("large", 1, CPU));
    host::wait_until("VMs are found", SETTLE * 3, || host::list().len() == 2);
    host::set_shares("large", 3000);
    for vm in [&small, &large] {
        vm.threads().into_iter().for_each(|thread| confine(thread, &[3]));
    }
    thread::sleep(SETTLE);
    let got = cpu_s_during(SHARES_WINDOW, &[&small, &large]);
    let small_pct = got[0] / (got[0] + got[1]) * 100.0;
    println!("pinned to one pCPU with 1:3, the small one has {small_pct:.1} %");
    let fits = (23.0..27.0).contains(&small_pct);
    (!fits).then(|| format!("pinned 1:3: {small_pct:.1} % instead of 25 %")).into_iter().collect()
}

// SPDX-License-Identifier: GPL-2.0-only
//! Threads of VMs are confined, given other policies, stopped, moved and killed, at any moment.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::host::{self, Daemon, say};
use crate::nodes;
use crate::storm::Dice;
use crate::tasks::{confine, last_pcpu, set_nice, set_policy};
use crate::vms::{CPU, MicroVm, SLEEP, all_progress_within, cpu_s_during, parts_pct_during};

/// What is done to a thread while it runs.
type Harm = fn(&mut Dice, Pid);

const PCPUS: usize = 4;
/// What is promised to any thread whose siblings move from domain to domain, 3 B + W / 4 and some slices
/// (drover-core's delay.rs): on a single pCPU five threads had waited for more than a second in one run of four.
const PROGRESS: Duration = Duration::from_millis(3500);
const WINDOW: Duration = Duration::from_secs(1);
/// Until each has what its place is worth: as VMs move, the daemon reads where their memory lies, on the same pCPUs.
const SETTLED: Duration = Duration::from_secs(5);
/// Who comes from an emptier set waits for a second at most, and is level with the others then; if it is taken once
/// meanwhile, because nobody else waits just then, that second begins anew.
const FORGIVEN: Duration = Duration::from_millis(2500);
/// Each has one that it shares no pCPU with.
const SETS: [&[usize]; 6] = [&[0, 1], &[2, 3], &[0], &[1, 2, 3], &[0, 1, 2], &[3]];

#[test]
#[ignore = "runs inside the lab"]
fn inside() {
    host::must_be_lab();
    let mut daemon = Daemon::start();
    nodes::one_goes_and_comes_back();
    daemon.must_serve();
    let wide = MicroVm::start("wide", 4, CPU);
    let lone = MicroVm::start("lone", 1, CPU);
    let sleeper = MicroVm::start("sleeper", 2, SLEEP);
    let vms = [&wide, &lone, &sleeper];
    stays_where_it_is_pinned(&lone);
    all_progress_within(PROGRESS, &vms);
    let harms: [(&str, Harm); 4] = [
        ("affinities", change_affinity),
        ("policies and nice values", change_policy),
        ("stop and go", stop_and_go),
        ("cgroups", change_cgroup),
    ];
    between_disjoint_sets(&vms);
    daemon.must_serve();
    make_cgroups();
    let window = Duration::from_secs(host::times(3, 1));
    for (what, harm) in harms {
        say(what);
        harm_for(window, &vms, &[harm]);
        daemon.must_serve();
    }
    say("all at once, and killed");
    kill_while_harmed(&harms.map(|(_, harm)| harm));
    harm_for(window, &vms, &harms.map(|(_, harm)| harm));
    daemon.must_serve();
    host::wait_until("the killed are forgotten", WINDOW, || host::list().len() == vms.len());
}

/// Does harm to random threads of the VMs, again and again, then restores them: all must get on, at
/// once and evenly.
fn harm_for(time: Duration, vms: &[&MicroVm], harms: &[Harm]) {
    let threads: Vec<Pid> = vms.iter().flat_map(|vm| vm.vcpu_threads()).collect();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for seed in 1..=2 {
            let (stop, threads) = (&stop, &threads);
            scope.spawn(move || {
                let mut dice = Dice::new(seed);
                while !stop.load(Ordering::Relaxed) {
                    let thread = threads[dice.below(threads.len())];
                    harms[dice.below(harms.len())](&mut dice, thread);
                    if dice.below(4) == 0 {
                        thread::sleep(Duration::from_micros(dice.below(3000) as u64));
                    }
                }
            });
        }
        let begun = Instant::now();
        while begun.elapsed() < time {
            thread::sleep(Duration::from_millis(500));
            host::list();
        }
        stop.store(true, Ordering::Relaxed);
    });
    threads.iter().for_each(|&thread| restore(thread));
    vms.iter().for_each(|vm| vm.signal(Signal::SIGCONT));
    all_progress_within(PROGRESS, vms);
}

fn restore(thread: Pid) {
    set_policy(thread, libc::SCHED_OTHER);
    set_nice(thread, 0);
    confine(thread, &[0, 1, 2, 3]);
}

fn stays_where_it_is_pinned(vm: &MicroVm) {
    say("pinned");
    for pcpu in (0..PCPUS).rev() {
        confine(vm.vcpu_threads()[0], &[pcpu]);
        let got_s = cpu_s_during(Duration::from_millis(500), &[vm])[0];
        assert!(got_s > 0.1, "pinned to {pcpu} it gets {got_s} s of 0.5 s");
        assert_eq!(last_pcpu(vm.vcpu_threads()[0]), pcpu);
    }
    confine(vm.vcpu_threads()[0], &[0, 1, 2, 3]);
}

/// VMs are sent from set to set, to pCPUs where they were not, hundreds of times: everybody gets on all the while, and
/// is in its place when it is over.
fn between_disjoint_sets(vms: &[&MicroVm; 3]) {
    say("between disjoint sets");
    let over = AtomicBool::new(false);
    let mut rounds = 0;
    thread::scope(|scope| {
        scope.spawn(|| {
            move_between_disjoint_sets(vms);
            over.store(true, Ordering::Relaxed);
        });
        while !over.load(Ordering::Relaxed) {
            all_progress_within(PROGRESS, vms);
            rounds += 1;
        }
    });
    say(&format!("all got on {rounds} times"));
    let [wide, lone, sleeper] = *vms;
    for (vm, pcpus) in [(wide, [0, 1]), (lone, [2, 3]), (sleeper, [2, 3])] {
        vm.confine(&pcpus);
        let is_there = |thread: &Pid| pcpus.contains(&last_pcpu(*thread));
        host::wait_until("it is where it may be", PROGRESS, || {
            vm.vcpu_threads().iter().all(is_there)
        });
    }
    host::wait_until("each has what its place is worth", SETTLED, || {
        let got_s = cpu_s_during(WINDOW, &[wide, lone]);
        say(&format!("in its place each has {got_s:.2?} s of 2.00 and 1.00"));
        got_s[0] > 1.95 && got_s[1] > 0.97
    });
    vms.iter().for_each(|vm| vm.confine(&[0, 1, 2, 3]));
    thread::sleep(FORGIVEN);
    let parts = parts_pct_during(WINDOW, &[wide, lone]);
    say(&format!("with 4 : 1 they have {parts:.1?} %"));
    assert!((parts[1] - 20.0).abs() < 2.0, "with shares of 4 : 1 {parts:?} %");
}

fn move_between_disjoint_sets(vms: &[&MicroVm; 3]) {
    let mut dice = Dice::new(4);
    let mut places = [SETS[0]; 3];
    for _ in 0..host::times(1000, 200) {
        let which = dice.below(vms.len());
        let place = &mut places[which];
        let is_elsewhere = |set: &&&[usize]| !set.iter().any(|pcpu| place.contains(pcpu));
        let elsewhere: Vec<&&[usize]> = SETS.iter().filter(is_elsewhere).collect();
        *place = elsewhere[dice.below(elsewhere.len())];
        vms[which].confine(place);
    }
}

fn change_affinity(dice: &mut Dice, thread: Pid) {
    let pcpus: Vec<usize> = (0..PCPUS).filter(|_| dice.below(2) == 0).collect();
    let one = [dice.below(PCPUS)];
    confine(thread, if pcpus.is_empty() { &one } else { &pcpus });
}

fn change_policy(dice: &mut Dice, thread: Pid) {
    match dice.below(4) {
        0 => set_nice(thread, i32::try_from(dice.below(40)).unwrap() - 20),
        1 => set_policy(thread, libc::SCHED_BATCH),
        2 => set_policy(thread, libc::SCHED_IDLE),
        _ => {
            // Not for long: a busy thread of the real-time class rightly starves all others.
            set_policy(thread, libc::SCHED_FIFO);
            thread::sleep(Duration::from_micros(dice.below(500) as u64));
            set_policy(thread, libc::SCHED_OTHER);
        }
    }
}

/// Stops the whole process, as a manager that pauses a VM does.
fn stop_and_go(dice: &mut Dice, thread: Pid) {
    // That it has been killed is no error.
    let _ = kill(thread, Signal::SIGSTOP);
    thread::sleep(Duration::from_micros(dice.below(2000) as u64));
    let _ = kill(thread, Signal::SIGCONT);
}

const CGROUPS: &str = "/sys/fs/cgroup";

fn make_cgroups() {
    fs::write(format!("{CGROUPS}/cgroup.subtree_control"), "+cpu").unwrap();
    for (name, weight) in [("light", "1"), ("heavy", "10000")] {
        fs::create_dir(format!("{CGROUPS}/{name}")).unwrap();
        fs::write(format!("{CGROUPS}/{name}/cpu.weight"), weight).unwrap();
    }
}

fn change_cgroup(dice: &mut Dice, thread: Pid) {
    let place = ["", "/light", "/heavy"][dice.below(3)];
    let weight = 1 + dice.below(10_000);
    fs::write(format!("{CGROUPS}/light/cpu.weight"), weight.to_string()).unwrap();
    // That it has been killed is no error.
    let _ = fs::write(format!("{CGROUPS}{place}/cgroup.procs"), thread.to_string());
}

fn kill_while_harmed(harms: &[Harm]) {
    let mut dice = Dice::new(3);
    for round in 0..12 {
        let vm = MicroVm::start(&format!("victim{round}"), 2, [CPU, SLEEP][round % 2]);
        let threads = vm.threads();
        for _ in 0..dice.below(40) {
            let thread = threads[dice.below(threads.len())];
            harms[dice.below(harms.len())](&mut dice, thread);
        }
        if dice.below(2) == 0 {
            vm.signal(Signal::SIGSTOP);
        }
        drop(vm);
    }
}

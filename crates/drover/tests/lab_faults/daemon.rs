// SPDX-License-Identifier: GPL-2.0-only
//! The daemon is killed, stopped, broken: VMs go on, and the kernel's scheduler is back in a second.

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use drover_host::control::{Answer, Request, SOCKET_PATH, ask};
use drover_host::sources::config_file::CONFIG_PATH as CONFIG;
use drover_host::store::STATE_DIR;
use nix::mount::{MsFlags, mount, umount};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime, clock_settime};
use nix::unistd::mkfifo;

use crate::host::{self, DUMP, Daemon, FALLBACK, drover, refusal, say, scheduler_state};
use crate::tasks::{RealTimeHog, pid_of};
use crate::vms::{CPU, MicroVm, SLEEP, all_progress_within, start_quickly};

/// The exit status of a daemon whose scheduler the kernel threw out.
const THROWN_OUT: i32 = 70;
/// The kernel's watchdog waits for 26 s and looks every 13 s.
const STALL_ENDS: Duration = Duration::from_secs(40);
/// VMs must get on at least this often when nothing but shares holds them up.
const PROGRESS: Duration = Duration::from_millis(500);

#[test]
#[ignore = "runs inside the lab"]
fn inside() {
    host::must_be_lab();
    let (busy, sleeper) = (MicroVm::start("busy", 3, CPU), MicroVm::start("sleeper", 1, SLEEP));
    let vms = [&busy, &sleeper];
    killed(&vms);
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        ended_by(signal, &vms);
    }
    let daemon = stopped(&vms);
    has_given_up_privileges(&daemon);
    reads_its_configuration_when_told(&daemon);
    files_are_not_what_they_were(&daemon);
    clock_is_set(&daemon);
    broken(daemon, &vms);
    stalled(&vms);
    thrown_out_from_the_keyboard(&vms);
    its_log_cannot_be_written(&vms);
}

fn killed(vms: &[&MicroVm]) {
    say("kill -9");
    for stop_it_first in [false, true] {
        let daemon = if stop_it_first { start_quickly(vms) } else { Daemon::start() };
        host::wait_until("VMs are found", PROGRESS, || host::list().len() == vms.len());
        if stop_it_first {
            daemon.signal(Signal::SIGSTOP);
        }
        daemon.signal(Signal::SIGKILL);
        host::wait_for_fallback();
        all_progress_within(PROGRESS, vms);
        assert!(refusal(&drover(&["vm", "list"])).contains("drover serve"));
    }
}

fn ended_by(signal: Signal, vms: &[&MicroVm]) {
    say(signal.as_str());
    let daemon = start_quickly(vms);
    all_progress_within(PROGRESS, vms);
    daemon.signal(signal);
    let (status, said) = daemon.end_within(FALLBACK);
    assert!(status.success(), "{signal}: {status}: {said}");
    assert_eq!(scheduler_state(), "disabled", "it ends after its scheduler");
    assert!(!Path::new(SOCKET_PATH).exists(), "the socket is left behind");
    assert!(said.contains("stopping"), "{said}");
    all_progress_within(PROGRESS, vms);
}

fn stopped(vms: &[&MicroVm]) -> Daemon {
    say("SIGSTOP");
    let mut daemon = start_quickly(vms);
    // From now on shares alone do not say what VMs are owed, and the daemon does.
    assert!(drover(&["vm", "set", "busy", "--reservation", "20%"]).status.success());
    thread::sleep(PROGRESS);
    daemon.signal(Signal::SIGSTOP);
    for _ in 0..6 {
        thread::sleep(PROGRESS);
        assert_eq!(scheduler_state(), "enabled");
        all_progress_within(PROGRESS, vms);
    }
    let line = refusal(&drover(&["vm", "list"]));
    println!("{}", line.trim());
    assert!(line.contains("does not answer"), "{line}");
    let newcomer = MicroVm::start("newcomer", 1, CPU);
    all_progress_within(PROGRESS, &[&newcomer]);
    let lapsed = |said: String| said.matches("did not answer for 2 s").count();
    assert_eq!(lapsed(daemon.said()), 0);
    daemon.signal(Signal::SIGCONT);
    daemon.must_serve();
    host::wait_until("it says that weights had lapsed", PROGRESS, || lapsed(daemon.said()) > 0);
    thread::sleep(PROGRESS);
    assert_eq!(lapsed(daemon.said()), 1, "{}", daemon.said());
    assert!(drover(&["vm", "set", "busy", "--reservation", "default"]).status.success());
    // A vCPU is known once it has stopped, up to a slice after its first progress.
    host::wait_until("the newcomer is found", PROGRESS, || host::list().len() == vms.len() + 1);
    daemon
}

fn broken(daemon: Daemon, vms: &[&MicroVm]) {
    say("BPF error");
    ask(Path::new(SOCKET_PATH), &Request::Break).unwrap();
    let (status, said) = daemon.end_within(FALLBACK);
    assert_eq!(scheduler_state(), "disabled");
    assert_eq!(status.code(), Some(THROWN_OUT), "{said}");
    let last = said.lines().last().unwrap_or_default();
    println!("{last}");
    assert!(last.starts_with("drover: ") && last.contains("broken on request"), "{said}");
    assert_eq!(said.lines().filter(|line| line.contains("broken on request")).count(), 1, "{said}");
    let kept = std::fs::read_to_string(DUMP).unwrap();
    assert!(kept.contains("broken on request") && kept.contains("CPU states"), "{kept}");
    all_progress_within(PROGRESS, vms);
}

/// What is left: nothing to all threads of its own, CAP_SYS_PTRACE and CAP_SYS_NICE to those that look into others.
fn has_given_up_privileges(daemon: &Daemon) {
    say("capabilities");
    let statuses = |pid: u32| -> Vec<String> {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        let of = |task: std::io::Result<std::fs::DirEntry>| task.unwrap().path().join("status");
        tasks.map(|task| std::fs::read_to_string(of(task)).unwrap()).collect()
    };
    let have = |pid: u32, capabilities: &str| {
        for status in statuses(pid) {
            let of =
                |set: &str| status.lines().find_map(|line| line.strip_prefix(set)).unwrap().trim();
            for set in ["CapPrm:", "CapEff:", "CapBnd:"] {
                assert_eq!(of(set), capabilities, "{set}");
            }
            assert_eq!((of("NoNewPrivs:"), of("Seccomp:")), ("1", "2"));
        }
    };
    have(daemon.pid(), "0000000000000000");
    let children = |pid: u32| -> Vec<u32> {
        let file = format!("/proc/{pid}/task/{pid}/children");
        let all = std::fs::read_to_string(file).unwrap();
        all.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
    };
    let starter = children(daemon.pid());
    let readers = children(starter[0]);
    assert_eq!((starter.len(), readers.len()), (1, 16));
    readers.iter().chain(&starter).for_each(|pid| have(*pid, "0000000000880000"));
}

fn reads_its_configuration_when_told(daemon: &Daemon) {
    say("SIGHUP");
    std::fs::create_dir_all("/etc/drover").unwrap();
    std::fs::write("/etc/drover/drover.toml", "[[vm]]\nname = \"busy\"\nshares = 77\n").unwrap();
    daemon.signal(Signal::SIGHUP);
    let follows = || host::list().iter().any(|vm| vm.name == "busy" && vm.shares == 77);
    host::wait_until("the file is followed", Duration::from_secs(2), follows);
    std::fs::remove_file("/etc/drover/drover.toml").unwrap();
}

/// A FIFO in place of the configuration, its directories removed, a disk that takes nothing.
fn files_are_not_what_they_were(daemon: &Daemon) {
    say("a FIFO, and directories that go");
    let shares_are =
        |shares: u32| host::list().iter().any(|vm| vm.name == "busy" && vm.shares == shares);
    mkfifo(CONFIG, Mode::S_IRWXU).unwrap();
    host::wait_until("that is said", PROGRESS * 4, || daemon.said().contains("no regular file"));
    std::fs::remove_file(CONFIG).unwrap();
    for directory in ["/run/drover", STATE_DIR] {
        std::fs::remove_dir_all(directory).unwrap();
    }
    host::wait_until("it is reached again", PROGRESS, || Path::new(SOCKET_PATH).exists());
    host::set_shares("busy", 78);
    let kept = std::fs::read_to_string(Path::new(STATE_DIR).join("settings.json")).unwrap();
    assert!(shares_are(78) && kept.contains("78"), "{kept}");
    say("a disk that takes nothing");
    mount(Some("none"), STATE_DIR, Some("tmpfs"), MsFlags::MS_RDONLY, None::<&str>).unwrap();
    let line = refusal(&drover(&["vm", "set", "busy", "--shares", "79"]));
    println!("{}", line.trim());
    assert!(line.contains("cannot save settings in") && line.contains("Read-only"), "{line}");
    assert!(shares_are(78), "nothing of it is done");
    umount(STATE_DIR).unwrap();
    host::set_shares("busy", 79);
}

/// The time of day is nobody's measure: it is set back and forward by years, and all goes on.
fn clock_is_set(daemon: &Daemon) {
    say("the clock is set");
    let ten_years = 10 * 365 * 86_400;
    for (shares, seconds) in [(81, -ten_years), (82, 2 * ten_years), (83, -ten_years)] {
        let now = clock_gettime(ClockId::CLOCK_REALTIME).unwrap();
        let to = TimeSpec::new(now.tv_sec() + seconds, now.tv_nsec());
        clock_settime(ClockId::CLOCK_REALTIME, to).unwrap();
        let rule = format!("[[vm]]\nname = \"sleeper\"\nshares = {shares}\n");
        std::fs::write(CONFIG, rule).unwrap();
        host::set_shares("busy", shares);
        let follow = || host::list().iter().filter(|vm| vm.shares == shares).count() == 2;
        host::wait_until("file and order are followed", Duration::from_secs(2), follow);
    }
    std::fs::remove_file(CONFIG).unwrap();
    assert!(drover(&["vm", "forget", "busy"]).status.success());
    assert!(!daemon.said().contains("thrown out"), "{}", daemon.said());
}

/// A real-time task takes a pCPU, and what is ready there waits. Some kernels lend the pCPU to waiting tasks
/// now and then, and nobody stalls; others throw the scheduler out when the watchdog sees it.
fn stalled(vms: &[&MicroVm]) {
    say("a real-time task that never sleeps");
    let mut daemon = start_quickly(vms);
    let hog = RealTimeHog::start();
    let begun = Instant::now();
    while scheduler_state() == "enabled" && begun.elapsed() < STALL_ENDS {
        thread::sleep(Duration::from_millis(100));
    }
    println!("{} after {:.1?}", scheduler_state(), begun.elapsed());
    let is_thrown_out = scheduler_state() != "enabled";
    drop(hog);
    if is_thrown_out {
        let (status, said) = daemon.end_within(FALLBACK);
        assert_eq!(status.code(), Some(THROWN_OUT), "{said}");
        assert!(said.contains("stall"), "{said}");
    } else {
        daemon.must_serve();
    }
    all_progress_within(PROGRESS, vms);
}

/// Every line it would say fails, as on a full disk or when who reads its pipe has gone.
fn its_log_cannot_be_written(vms: &[&MicroVm]) {
    say("no room for its log");
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut daemon = Command::new("drover").arg("serve").stderr(full).spawn().unwrap();
    host::wait_until("it serves, and has found the VMs", Duration::from_secs(60), || {
        assert_eq!(daemon.try_wait().unwrap(), None, "drover ended");
        let list = ask(Path::new(SOCKET_PATH), &Request::ListVms { brief: false });
        matches!(list, Ok(Answer::Vms { vms: found }) if found.len() == vms.len())
    });
    all_progress_within(PROGRESS, vms);
    kill(pid_of(&daemon), Signal::SIGTERM).unwrap();
    assert!(daemon.wait().unwrap().success());
    host::wait_for_fallback();
}

/// `SysRq-S`: an operator without a shell takes the scheduler away.
fn thrown_out_from_the_keyboard(vms: &[&MicroVm]) {
    say("SysRq-S");
    let daemon = start_quickly(vms);
    std::fs::write("/proc/sysrq-trigger", "S").unwrap();
    let (_, said) = daemon.end_within(FALLBACK);
    assert_eq!(scheduler_state(), "disabled");
    assert!(said.contains("SysRq"), "{said}");
    all_progress_within(PROGRESS, vms);
}

// SPDX-License-Identifier: GPL-2.0-only
//! `drover top` tells the truth, under the kernel's scheduler and under Drover, and leaves nothing behind.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use libbpf_rs::query::ProgInfoIter;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::mount::{MsFlags, mount, umount};
use nix::pty::{OpenptyResult, Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{LocalFlags, tcgetattr};
use nix::unistd::Pid;
use serde_json::Value;

use crate::host::{self, Daemon, drover, refusal, say};
use crate::tasks::{confine, pid_of};
use crate::vms::{CPU, MicroVm};

const NOBODY: u32 = 65_534;
/// Every vCPU halts for good.
const HALTED: &str = r#"{"kind":"cpu","duty_pct":0}"#;
/// How far a figure may be from the truth, in % of a pCPU.
const TOLERANCE_PCT: f64 = 1.0;
/// Of a busy pCPU the guests have so much at least: ticks and exits take the rest, at 2 ns an instruction.
const GUEST_LEAST_PCT: f64 = 97.5;
/// However it ends, `top` and its programs are gone within so long.
pub const END: Duration = Duration::from_secs(1);

#[test]
#[ignore = "runs inside the lab"]
fn inside() {
    host::must_be_lab();
    // Where the VMs wait for each other nobody else is to run.
    confine(Pid::from_raw(0), &[0]);
    what_it_needs_is_said();
    vms_come_and_go();
    let first = MicroVm::start("first", 1, CPU);
    let second = MicroVm::start("second", 1, CPU);
    let halted = MicroVm::start("halted", 2, HALTED);
    for vm in [&first, &second] {
        vm.threads().into_iter().for_each(|thread| confine(thread, &[1]));
    }
    say("the kernel's own scheduler");
    assert_eq!(figures_are_true(), Value::Null);
    let mut daemon = Daemon::start();
    // Drover finds a VM when it runs; of the one that halts it need not know.
    host::wait_until("VMs are found", END, || host::list().len() == 2);
    say("drover");
    assert_eq!(figures_are_true(), "drover");
    drop(halted);
    drop(second);
    co_stops(&first);
    daemon.must_serve();
    drop(daemon);
    nothing_is_left_by(Signal::SIGKILL);
    nothing_is_left_by(Signal::SIGTERM);
    a_reader_goes();
    the_terminal_is_sane();
}

fn what_it_needs_is_said() {
    say("what it needs");
    let nobody =
        Command::new("drover").args(["top", "--json"]).uid(NOBODY).gid(NOBODY).output().unwrap();
    assert!(refusal(&nobody).contains("sudo"));
    assert!(refusal(&drover(&["top"])).contains("--batch"), "there is no terminal");
    let btf = "/sys/kernel/btf";
    mount(Some("tmpfs"), btf, Some("tmpfs"), MsFlags::empty(), None::<&str>).unwrap();
    let line = refusal(&drover(&["top", "--json"]));
    umount(btf).unwrap();
    assert!(line.contains("BTF"), "{line}");
}

fn vms_come_and_go() {
    say("a VM comes and goes");
    let mut top = top().arg("--json").stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(top.stdout.take().unwrap()).lines();
    let mut names = || {
        let reading: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        let vms = reading["vms"].as_array().unwrap().clone();
        vms.into_iter().map(|vm| vm["name"].clone()).collect::<Vec<_>>()
    };
    assert!(names().is_empty());
    let vm = MicroVm::start("guest", 2, CPU);
    host::wait_until("it is shown", END, || names() == ["guest"]);
    drop(vm);
    host::wait_until("it is shown no more", END, || names().is_empty());
    top.kill().unwrap();
    gone(top);
}

/// The second of two readings of so many seconds.
pub fn reading(seconds: &str) -> Value {
    let output = drover(&["top", "--json", "--interval", seconds, "--iterations", "2"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().count(), 2, "{text}");
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

pub fn vm<'a>(reading: &'a Value, name: &str) -> &'a Value {
    let vms = reading["vms"].as_array().unwrap();
    vms.iter().find(|vm| vm["name"] == name).unwrap_or_else(|| panic!("no {name}: {reading}"))
}

/// Figures of which all is known: two busy vCPUs have one pCPU, two others halt. Who is in charge.
fn figures_are_true() -> Value {
    let reading = reading("2");
    let is = |of: &Value, figure: &str, pct: f64| {
        let told = of[figure].as_f64().unwrap();
        println!("{} {}: {figure} {told}", of["name"], of["number"]);
        assert!((told - pct).abs() <= TOLERANCE_PCT, "{figure} is {told}, not {pct}: {reading}");
    };
    for name in ["first", "second"] {
        let vm = vm(&reading, name);
        for of in [vm, &vm["vcpus"][0]] {
            for figure in ["used_pct", "run_pct", "ready_pct"] {
                is(of, figure, 50.0);
            }
            is(of, "wait_pct", 0.0);
        }
    }
    let halted = vm(&reading, "halted");
    is(halted, "wait_pct", 200.0);
    halted["vcpus"].as_array().unwrap().iter().for_each(|vcpu| is(vcpu, "wait_pct", 100.0));
    let pcpu = &reading["pcpus"][1];
    is(pcpu, "busy_pct", 100.0);
    let guest_pct = pcpu["guest_pct"].as_f64().unwrap();
    assert!((GUEST_LEAST_PCT..=100.0).contains(&guest_pct), "guest_pct is {guest_pct}: {reading}");
    adds_up(&reading);
    reading["scheduler"].clone()
}

fn adds_up(reading: &Value) {
    for vm in reading["vms"].as_array().unwrap() {
        for vcpu in vm["vcpus"].as_array().unwrap() {
            let parts = ["run_pct", "ready_pct", "costop_pct", "wait_pct"];
            let sum: f64 = parts.iter().map(|part| vcpu[part].as_f64().unwrap()).sum();
            assert!((sum - 100.0).abs() < 0.01, "{sum}: {vcpu}");
        }
    }
}

/// A VM whose two vCPUs only start together waits for both pCPUs beside one that keeps one of them busy.
fn co_stops(busy: &MicroVm) {
    say("co-stops");
    busy.threads().into_iter().for_each(|thread| confine(thread, &[0, 1]));
    let pair = MicroVm::start("pair", 2, CPU);
    pair.threads().into_iter().for_each(|thread| confine(thread, &[0, 1]));
    host::wait_until("it is found", END, || host::list().len() == 2);
    assert!(drover(&["vm", "set", "pair", "--cosched", "strict"]).status.success());
    let reading = reading("2");
    println!("{reading}");
    adds_up(&reading);
    let pair = vm(&reading, "pair");
    for of in [pair, &pair["vcpus"][0], &pair["vcpus"][1]] {
        assert!(of["costop_pct"].as_f64().unwrap() > 10.0, "{of}");
    }
    assert_eq!(vm(&reading, &busy.name)["costop_pct"], 0.0);
}

fn top() -> Command {
    let mut top = Command::new("drover");
    top.args(["top", "--interval", "0.2"]);
    top
}

/// The observer's programs in the kernel.
pub fn programs() -> usize {
    ProgInfoIter::default().filter(|it| it.name.as_bytes().starts_with(b"observe_")).count()
}

fn gone(mut top: Child) {
    host::wait_until("top ends", END, || top.try_wait().unwrap().is_some());
    host::wait_until("its programs are gone", END, || programs() == 0);
}

fn nothing_is_left_by(signal: Signal) {
    say(signal.as_str());
    let mut top = top().arg("--json").stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(top.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(programs(), 3);
    kill(pid_of(&top), signal).unwrap();
    gone(top);
}

fn a_reader_goes() {
    say("nobody reads any more");
    let mut top =
        top().arg("--batch").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut head = String::new();
    BufReader::new(top.stdout.take().unwrap()).read_line(&mut head).unwrap();
    assert!(head.contains("PDH-CSV"), "{head}");
    let mut said = top.stderr.take().unwrap();
    gone(top);
    let mut text = String::new();
    said.read_to_string(&mut text).unwrap();
    assert_eq!(text, "", "it ends without a word");
}

/// A terminal with `top` on it.
struct Terminal {
    top: Child,
    // The terminal's far end, and what `top` has.
    far: File,
    near: OwnedFd,
    shown: Vec<u8>,
}

impl Terminal {
    fn start() -> Self {
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        let OpenptyResult { master, slave } = openpty(Some(&size), None).unwrap();
        // Of the far end `top` must not have a copy: it would never see it close.
        fcntl(&master, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).unwrap();
        let end = || Stdio::from(slave.try_clone().unwrap());
        let top = top().stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        let mut it = Self { top, far: master.into(), near: slave, shown: Vec::new() };
        it.read_until("%RDY");
        assert!(!it.is_sane(), "it takes keys one by one");
        it
    }

    fn read_until(&mut self, text: &str) {
        let mut buffer = [0; 4096];
        while !String::from_utf8_lossy(&self.shown).contains(text) {
            let count = self.far.read(&mut buffer).unwrap();
            self.shown.extend_from_slice(&buffer[..count]);
        }
    }

    fn is_sane(&self) -> bool {
        let flags = LocalFlags::ICANON | LocalFlags::ECHO;
        tcgetattr(&self.near).unwrap().local_flags.contains(flags)
    }

    /// It has left the terminal as it was.
    fn end(mut self) {
        self.read_until("\u{1b}[?1049l");
        host::wait_until("the terminal is as it was", END, || self.is_sane());
        gone(self.top);
    }
}

fn the_terminal_is_sane() {
    say("keys and signals on a terminal");
    for keys in ["q", "hxRe*\u{3}"] {
        let mut terminal = Terminal::start();
        terminal.far.write_all(keys.as_bytes()).unwrap();
        terminal.end();
    }
    for signal in [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGINT] {
        let terminal = Terminal::start();
        kill(pid_of(&terminal.top), signal).unwrap();
        terminal.end();
    }
    say("the terminal is closed");
    let Terminal { top, far, near, .. } = Terminal::start();
    drop((far, near));
    gone(top);
}

// SPDX-License-Identifier: GPL-2.0-only
//! The virtual host as jobs see it: its kernel, its pCPUs, and the daemon on it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output};
use std::thread;
use std::time::{Duration, Instant};

use drover_core::asked::Asked;
use drover_core::shares::Shares;
use drover_host::control::{Answer, Request, SOCKET_PATH, ask};
use drover_host::status::{Kind, VmStatus};
use nix::sys::signal::{Signal, kill};

use crate::tasks::pid_of;

/// The host must be the kernel's own again within this time, whatever happened.
pub const FALLBACK: Duration = Duration::from_secs(1);

/// What is promised of the scheduler's way through the kernel's verifier.
const INSTRUCTIONS_MAX: u32 = 135_000;

/// Set by `make evidence`, which repeats what is promised more often than `make test` does.
pub const AT_LENGTH: &str = "DROVER_TEST_AT_LENGTH";

/// How often a test repeats something: as often as is promised in `make evidence`, else less.
pub fn times<T>(promised: T, tried: T) -> T {
    if std::env::var_os(AT_LENGTH).is_some() { promised } else { tried }
}

/// Jobs do harm; they must not run anywhere else.
pub fn must_be_lab() {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let is_lab = name.trim() == "drover-lab" && Path::new(drover_lab::init::JOB_PATH).exists();
    assert!(is_lab, "this job runs inside the lab only; run the tests without --ignored");
}

/// Tells how far the job is.
pub fn say(what: &str) {
    let up = fs::read_to_string("/proc/uptime").unwrap_or_default();
    println!("[{} s] {what}", up.split(' ').next().unwrap_or_default());
}

/// Waits for the condition.
///
/// # Panics
/// When it does not come about in time.
pub fn wait_until(what: &str, limit: Duration, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < limit, "not within {limit:?}: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn sched_ext(file: &str) -> String {
    let text = fs::read_to_string(Path::new("/sys/kernel/sched_ext").join(file));
    text.unwrap_or_default().trim().to_owned()
}

/// What the kernel says of sched_ext: `enabled`, `disabled` or between.
pub fn scheduler_state() -> String {
    sched_ext("state")
}

/// Waits until the kernel's own scheduler has everything back, which must not take long.
pub fn wait_for_fallback() {
    wait_until("the kernel's own scheduler is back", FALLBACK, || scheduler_state() == "disabled");
}

/// Runs `drover` with these arguments.
pub fn drover(arguments: &[&str]) -> Output {
    Command::new("drover").args(arguments).output().expect("drover starts")
}

/// The one line on stderr of a `drover` that refused.
///
/// # Panics
/// When it did not fail, or had more or less to say.
pub fn refusal(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "was not refused: {text}");
    assert_eq!(text.lines().count(), 1, "one line was due, not:\n{text}");
    assert!(output.stdout.is_empty(), "a refusal goes to stderr: {output:?}");
    text
}

/// What the kernel saw when it threw the scheduler out.
pub const DUMP: &str = "/var/lib/drover/thrown-out.txt";

/// `drover vm list`, without the process.
pub fn list() -> Vec<VmStatus> {
    list_of(Kind::Vm)
}

/// All that are of that kind.
pub fn list_of(kind: Kind) -> Vec<VmStatus> {
    match ask(Path::new(SOCKET_PATH), &Request::ListVms { brief: false }) {
        Ok(Answer::Vms { vms }) => vms.into_iter().filter(|it| it.kind == kind).collect(),
        other => {
            // Thrown out, it left what the kernel saw.
            let seen = std::fs::read_to_string(DUMP).unwrap_or_default();
            panic!("no list of VMs: {other:?}\n{seen}")
        }
    }
}

/// Orders shares.
pub fn set_shares(name: &str, shares: u32) {
    let set = Asked { shares: Some(Shares::Exact(shares)), ..Asked::default() };
    let order = Request::SetVm { name: name.to_owned(), set, reset: Vec::new() };
    assert_eq!(ask(Path::new(SOCKET_PATH), &order).unwrap(), Answer::Done);
}

/// `drover serve`, killed when dropped.
pub struct Daemon {
    child: Child,
    log: PathBuf,
}

impl Daemon {
    /// Starts it and waits until it serves.
    pub fn start() -> Self {
        Self::spawn("/tmp/drover-serve.log").ready()
    }

    /// Starts it; what it says goes into that file.
    pub fn spawn(log: &str) -> Self {
        let log = PathBuf::from(log);
        let out = File::create(&log).unwrap();
        let child = Command::new("drover").arg("serve").stderr(out).spawn().unwrap();
        Self { child, log }
    }

    /// Waits until it serves.
    pub fn ready(mut self) -> Self {
        // Nearly all of it is the verifier, under emulation.
        wait_until("drover serves", Duration::from_secs(60), || {
            assert!(!self.has_ended(), "drover ended as it began: {}", self.said());
            scheduler_state() == "enabled"
                && ask(SOCKET_PATH.as_ref(), &Request::ListVms { brief: false }).is_ok()
        });
        let instructions = self.verified_instructions();
        say(&format!("the verifier went through {instructions} instructions"));
        assert!((1..=INSTRUCTIONS_MAX).contains(&instructions), "{instructions} instructions");
        self
    }

    /// What the kernel's verifier went through for the programs this daemon holds, as it says of their file descriptors.
    fn verified_instructions(&self) -> u32 {
        let files = fs::read_dir(format!("/proc/{}/fdinfo", self.child.id())).unwrap();
        let of_file = |file: std::io::Result<fs::DirEntry>| {
            let info = fs::read_to_string(file.ok()?.path()).ok()?;
            let number =
                |key| info.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok());
            Some((number("prog_id:")?, number("verified_insns:")?))
        };
        // One program may be open twice.
        let programs: BTreeMap<u32, u32> = files.filter_map(of_file).collect();
        programs.values().sum()
    }

    /// Whether it is over.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// What it has said so far.
    pub fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill(pid_of(&self.child), signal).unwrap();
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for its end.
    pub fn end_within(mut self, limit: Duration) -> (ExitStatus, String) {
        wait_until("drover ends", limit, || self.has_ended());
        (self.child.wait().unwrap(), self.said())
    }

    /// Demands that the scheduler was never thrown out and still serves.
    pub fn must_serve(&mut self) {
        let ended = self.child.try_wait().unwrap();
        assert!(ended.is_none(), "drover ended ({ended:?}): {}", self.said());
        let state = scheduler_state();
        if state != "enabled" {
            // What the kernel saw as it threw the scheduler out; the daemon writes it as it ends.
            thread::sleep(Duration::from_secs(1));
            say(&fs::read_to_string("/var/lib/drover/thrown-out.txt").unwrap_or_default());
        }
        assert_eq!(state, "enabled", "{}", self.said());
        list();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Takes a pCPU away from the host, or gives it back.
pub fn set_online(pcpu: usize, online: bool) {
    let path = format!("/sys/devices/system/cpu/cpu{pcpu}/online");
    fs::write(&path, if online { "1" } else { "0" }).unwrap_or_else(|err| panic!("{path}: {err}"));
}

/// Time each of these pCPUs has been idle since boot, in seconds, exact to a tick.
pub fn idle_s(pcpus: &[usize]) -> Vec<f64> {
    let text = fs::read_to_string("/proc/stat").unwrap();
    let idle_of = |pcpu: &usize| {
        let name = format!("cpu{pcpu} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&name)).expect("it is online");
        let figures: Vec<f64> = line.split_whitespace().map(|word| word.parse().unwrap()).collect();
        (figures[3] + figures[4]) / 100.0
    };
    pcpus.iter().map(idle_of).collect()
}

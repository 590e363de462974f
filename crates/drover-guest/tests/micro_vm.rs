// SPDX-License-Identifier: GPL-2.0-only
//! Real micro VMs of every workload, each in a process of its own, as on a host.
//!
//! The program calls itself for each VM. Without a usable `/dev/kvm` (none at all, or one that runs
//! guests at a crawl, as some clouds have) it says so and passes: the lab runs it again, where there
//! always is one.

use drover_guest::{GuestConfig, GuestError, Snapshot, StatsReader, Touched};
use drover_scenario::Workload;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};
use std::thread::sleep;
use std::time::{Duration, Instant};

const WORKLOADS: [&str; 8] = [
    r#"{"kind":"cpu"}"#,
    r#"{"kind":"cpu","duty_pct":40,"then":{"after_s":0.2,"duty_pct":60}}"#,
    r#"{"kind":"lock"}"#,
    r#"{"kind":"barrier"}"#,
    r#"{"kind":"sleep","work_us":10}"#,
    r#"{"kind":"yield"}"#,
    r#"{"kind":"io","device_us":100}"#,
    r#"{"kind":"mix"}"#,
];
const BOOT_MAX: Duration = Duration::from_secs(20);
const PROGRESS_MAX: Duration = Duration::from_secs(60);
/// A guest slower than this part of the host has a KVM no test of times can be made on.
const USABLE_SPEED: f64 = 0.01;
const END_MAX: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    if let [_, vcpus, workload, stats] = args.as_slice() {
        return be_a_vm(vcpus, workload, stats);
    }
    if let Err(error) = fs::OpenOptions::new().read(true).write(true).open("/dev/kvm") {
        println!("micro_vm: skipped: /dev/kvm: {error}");
        return ExitCode::SUCCESS;
    }
    let speed = guest_speed();
    if speed < USABLE_SPEED {
        println!("micro_vm: skipped: guests here run at {:.2} % of the host", speed * 100.0);
        return ExitCode::SUCCESS;
    }
    for workload in WORKLOADS {
        for vcpus in [1, 2, 4] {
            check_vm(vcpus, workload);
        }
    }
    check_too_many_vcpus();
    ExitCode::SUCCESS
}

fn config(vcpus: u32, workload: Workload, stats_path: PathBuf) -> GuestConfig {
    let name = "vm0".to_owned();
    let (loops_per_ms, memory) = (None, Touched::default());
    GuestConfig { name, vcpus, workload, stats_path, wait_for_go: true, loops_per_ms, memory }
}

fn be_a_vm(vcpus: &str, workload: &str, stats: &str) -> ExitCode {
    let workload: Workload = serde_json::from_str(workload).unwrap();
    match drover_guest::run(&config(vcpus.parse().unwrap(), workload, stats.into())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A VM in a process of its own, which goes when this does.
struct Vm {
    process: Child,
    reader: StatsReader,
    _dir: tempfile::TempDir,
}

impl Vm {
    fn boot(vcpus: u32, workload: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let stats = dir.path().join("stats");
        let process = Command::new(std::env::current_exe().unwrap())
            .args([&vcpus.to_string(), workload, stats.to_str().unwrap()])
            .spawn()
            .unwrap();
        let reader = wait_for("the VM to boot", BOOT_MAX, || {
            StatsReader::open(&stats).ok().filter(StatsReader::booted)
        });
        Self { process, reader, _dir: dir }
    }

    /// What it does in 300 ms.
    fn progress(&self) -> Snapshot {
        let first = self.reader.snapshot();
        sleep(Duration::from_millis(300));
        self.reader.snapshot().since(&first)
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// How fast one busy vCPU is, as part of the host's speed.
fn guest_speed() -> f64 {
    let vm = Vm::boot(1, WORKLOADS[0]);
    vm.reader.go();
    let loops = vm.progress().progress.unwrap() * 2_000;
    loops as f64 / (300.0 * drover_guest::loops_per_ms() as f64)
}

/// Boots a VM, lets it go, sees every vCPU make progress, ends it.
fn check_vm(vcpus: u32, workload: &str) {
    let mut vm = Vm::boot(vcpus, workload);
    assert_eq!(vm.reader.snapshot().progress, Some(0), "nothing happens before go");
    assert_eq!(vcpu_threads(&vm.process), vcpus as usize);
    vm.reader.go();
    let progress = wait_for("every vCPU to make progress", PROGRESS_MAX, || {
        let grown = vm.progress();
        grown.vcpu_progress.iter().all(|&progress| progress > 0).then_some(grown)
    });
    check_wakeups(workload, vcpus, &progress);
    end(&mut vm.process);
    println!("micro_vm: {workload} on {vcpus}: {} in 300 ms", progress.progress.unwrap());
}

/// Those that sleep and only those have latencies.
fn check_wakeups(workload: &str, vcpus: u32, progress: &Snapshot) {
    let sleeps = workload.contains("sleep") || (workload.contains("mix") && vcpus > 2);
    assert_eq!(progress.wakeups.count() > 0, sleeps, "{workload}");
}

fn vcpu_threads(child: &Child) -> usize {
    let tasks = fs::read_dir(format!("/proc/{}/task", child.id())).unwrap();
    let name = |task: fs::DirEntry| fs::read_to_string(task.path().join("comm")).ok();
    let names: Vec<String> = tasks.filter_map(|task| name(task.ok()?)).collect();
    names.iter().filter(|name| name.starts_with("vcpu")).count()
}

fn end(child: &mut Child) {
    let id = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
    nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGTERM).unwrap();
    let status = wait_for("the VM to end", END_MAX, || child.try_wait().unwrap());
    assert!(status.success(), "{status}");
}

fn wait_for<T>(what: &str, longest: Duration, mut poll: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = poll() {
            return found;
        }
        assert!(begun.elapsed() < longest, "waited {longest:?} for {what}");
        sleep(Duration::from_millis(10));
    }
}

fn check_too_many_vcpus() {
    let refusal = drover_guest::run(&config(300, Workload::Mix {}, Path::new("/no/such").into()));
    assert!(matches!(refusal, Err(GuestError::VcpuCount { asked: 300, .. })), "{refusal:?}");
}

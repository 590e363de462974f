// SPDX-License-Identifier: GPL-2.0-only
//! Micro VMs as jobs see them.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use drover_guest::StatsReader;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::host::{Daemon, wait_until};
use crate::tasks::{confine, cpu_time_ns, pid_of, state_of, threads_named};

/// Every vCPU is busy.
pub const CPU: &str = r#"{"kind":"cpu"}"#;
/// Every vCPU wakes each 2 ms.
pub const SLEEP: &str = r#"{"kind":"sleep"}"#;

/// A micro VM in a process of its own, killed when dropped.
pub struct MicroVm {
    pub name: String,
    child: Child,
    stats: StatsReader,
}

/// Starts the process of a micro VM; it may not be a VM yet.
pub fn spawn(name: &str, vcpus: u32, workload: &str) -> Child {
    spawn_with(name, vcpus, workload, &[])
}

fn spawn_with(name: &str, vcpus: u32, workload: &str, more: &[&str]) -> Child {
    // Measuring the speed takes time, and a VM of a storm has none.
    let arguments = ["--loops-per-ms", "15000", "--workload", workload];
    Command::new("drover")
        .args(["guest", "--name", name, "--vcpus", &vcpus.to_string()])
        .args(arguments)
        .arg("--stats")
        .arg(stats_path(name))
        .args(more)
        .stdin(Stdio::null())
        .spawn()
        .expect("a micro VM starts")
}

/// Where a VM of that name counts.
pub fn stats_path(name: &str) -> PathBuf {
    PathBuf::from(format!("/tmp/{name}.stats"))
}

impl MicroVm {
    /// Starts a VM and waits until all its vCPUs run. How long that takes is no promise: 256 vCPUs need 14 s
    /// here, and a slower machine's emulator more.
    pub fn start(name: &str, vcpus: u32, workload: &str) -> Self {
        Self::start_with(name, vcpus, workload, &[])
    }

    /// The same, with more arguments of `drover guest`.
    pub fn start_with(name: &str, vcpus: u32, workload: &str, more: &[&str]) -> Self {
        let _ = fs::remove_file(stats_path(name));
        let child = spawn_with(name, vcpus, workload, more);
        let mut stats = None;
        wait_until(&format!("{name} boots"), Duration::from_secs(60), || {
            stats = StatsReader::open(&stats_path(name)).ok();
            stats.as_ref().is_some_and(StatsReader::booted)
        });
        Self { name: name.to_owned(), child, stats: stats.unwrap() }
    }

    pub fn pid(&self) -> Pid {
        pid_of(&self.child)
    }

    /// The vCPU threads in their order.
    pub fn vcpu_threads(&self) -> Vec<Pid> {
        threads_named(self.pid(), "vcpu")
    }

    /// All threads of the VM's process.
    pub fn threads(&self) -> Vec<Pid> {
        threads_named(self.pid(), "")
    }

    /// CPU time of its vCPUs so far, exact to a tick.
    pub fn cpu_time_ns(&self) -> u64 {
        self.vcpu_threads().into_iter().map(cpu_time_ns).sum()
    }

    /// What each vCPU has done so far.
    pub fn progress(&self) -> Vec<u64> {
        self.stats.snapshot().vcpu_progress
    }

    /// Confines all its threads to these pCPUs.
    pub fn confine(&self, pcpus: &[usize]) {
        self.threads().into_iter().for_each(|thread| confine(thread, pcpus));
    }

    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }
}

impl Drop for MicroVm {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_file(stats_path(&self.name));
    }
}

/// Starts the daemon while these VMs are paused: beside busy ones, loading takes long.
pub fn start_quickly(vms: &[&MicroVm]) -> Daemon {
    vms.iter().for_each(|vm| vm.signal(Signal::SIGSTOP));
    let daemon = Daemon::start();
    vms.iter().for_each(|vm| vm.signal(Signal::SIGCONT));
    daemon
}

/// Demands that every vCPU of all these VMs gets on within that time.
pub fn all_progress_within(limit: Duration, vms: &[&MicroVm]) {
    let still = stand_still_for(limit, vms);
    assert!(still.is_empty(), "no progress within {limit:?}: {still:#?}");
}

/// The vCPUs of these VMs that do not get on within that time, and what their threads do: R is ready or runs, S
/// sleeps; none: it is gone.
fn stand_still_for(limit: Duration, vms: &[&MicroVm]) -> Vec<String> {
    let before: Vec<Vec<u64>> = vms.iter().map(|vm| vm.progress()).collect();
    let begun = Instant::now();
    let mut still = Vec::new();
    for (vm, before) in vms.iter().zip(before) {
        let stands = |now: &[u64], vcpu: usize| now[vcpu] == before[vcpu];
        let mut now = vm.progress();
        while (0..now.len()).any(|vcpu| stands(&now, vcpu)) && begun.elapsed() < limit {
            thread::sleep(Duration::from_millis(10));
            now = vm.progress();
        }
        let threads = vm.vcpu_threads();
        for vcpu in (0..now.len()).filter(|&vcpu| stands(&now, vcpu)) {
            let state = threads.get(vcpu).and_then(|&thread| state_of(thread));
            still.push(format!("vCPU {vcpu} of {} at {}, {state:?}", vm.name, now[vcpu]));
        }
    }
    still
}

/// CPU time each VM gets during that time, in seconds.
pub fn cpu_s_during(time: Duration, vms: &[&MicroVm]) -> Vec<f64> {
    let sample = || vms.iter().map(|vm| vm.cpu_time_ns()).collect::<Vec<_>>();
    let before = sample();
    thread::sleep(time);
    #[allow(clippy::cast_precision_loss)] // A few seconds.
    let seconds = |(before, after): (u64, u64)| (after - before) as f64 / 1e9;
    before.into_iter().zip(sample()).map(seconds).collect()
}

/// The part each VM has of what all these get during that time, in percent.
pub fn parts_pct_during(time: Duration, vms: &[&MicroVm]) -> Vec<f64> {
    let got_s = cpu_s_during(time, vms);
    let all_s: f64 = got_s.iter().sum();
    got_s.into_iter().map(|got_s| got_s / all_s * 100.0).collect()
}

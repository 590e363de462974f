// SPDX-License-Identifier: GPL-2.0-only
//! Boots the lab with one job of this program in it, and demands that all went well.

use std::io::{self, Write};
use std::process::Command;
use std::time::Duration;

use drover_lab::{Clock, Event, KernelChoice, Lab, LabOutcome, Topology};

use crate::host::{AT_LENGTH, times};

/// Where this program lies in the lab.
const JOBS: &str = "/usr/bin/lab-faults";
/// The kernel to boot instead of the test's own: the beginning of a version, or as `drover lab exec --kernel`.
const KERNEL: &str = "DROVER_TEST_KERNEL";
/// What the lab says where the archive does not have the kernel asked for.
const NO_SUCH: &str = "the package archive has no kernel";
/// Another order of events on the exact clock.
const SEED: &str = "DROVER_TEST_SEED";

/// A boot to come.
pub struct Boot {
    job: &'static str,
    topology: Topology,
    clock: Clock,
    kernel: Option<String>,
    is_skipped_without: bool,
    files: Vec<(&'static str, Vec<u8>)>,
    environment: Vec<(&'static str, String)>,
    timeout_s: u64,
    qemu_guests: bool,
}

impl Boot {
    /// A boot that runs that job, the path of an ignored test, on two pCPUs with the exact clock.
    pub fn new(job: &'static str) -> Self {
        Self {
            job,
            topology: Topology { memory_mib: 1024, ..Topology::flat(2) },
            clock: Clock::Exact,
            kernel: std::env::var(KERNEL).ok(),
            is_skipped_without: false,
            files: Vec::new(),
            environment: Vec::new(),
            // The longest takes five minutes of a machine that has nothing else to do.
            timeout_s: times(7200, 1500),
            qemu_guests: false,
        }
    }

    pub fn pcpus(mut self, cores: u32) -> Self {
        self.topology.cores = cores;
        self
    }

    /// Divides the pCPUs among that many sockets, each with a cache of its own.
    pub fn sockets(mut self, sockets: u32) -> Self {
        self.topology.cores /= sockets;
        self.topology.sockets = sockets;
        self
    }

    /// The same, and each socket is a NUMA node.
    pub fn nodes(self, nodes: u32) -> Self {
        let mut boot = self.sockets(nodes);
        boot.topology.nodes = nodes;
        boot
    }

    pub fn memory_mib(mut self, memory_mib: u32) -> Self {
        self.topology.memory_mib = memory_mib;
        self
    }

    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// On the oldest kernel that is promised instead of the newest, unless another is asked for.
    pub fn oldest_kernel(mut self) -> Self {
        self.kernel.get_or_insert_with(|| "6.18".to_owned());
        self
    }

    /// On that kernel, whatever else is asked for; where the package archive has none, that is said, and that is all.
    pub fn kernel_if_there(mut self, kernel: &str) -> Self {
        self.kernel = Some(kernel.to_owned());
        self.is_skipped_without = true;
        self
    }

    /// With QEMU, and the image of its guests.
    pub fn qemu_guests(mut self) -> Self {
        self.qemu_guests = true;
        self
    }

    pub fn file(mut self, path: &'static str, data: Vec<u8>) -> Self {
        self.files.push((path, data));
        self
    }

    pub fn environment(mut self, name: &'static str, value: &str) -> Self {
        self.environment.push((name, value.to_owned()));
        self
    }

    pub fn timeout_s(mut self, timeout_s: u64) -> Self {
        self.timeout_s = timeout_s;
        self
    }

    /// Boots and runs the job.
    ///
    /// # Panics
    /// When the job failed or the kernel complained.
    pub fn run(self) {
        let dir = tempfile::tempdir().unwrap();
        let jobs = dir.path().join("jobs");
        strip(&std::env::current_exe().unwrap(), &jobs);
        let mut lab = Lab::new(self.topology)
            .clock(self.clock)
            .timeout(Duration::from_secs(self.timeout_s))
            .drover(env!("CARGO_BIN_EXE_drover").as_ref())
            .program(JOBS, &jobs)
            .command([JOBS, "--exact", self.job, "--ignored", "--nocapture", "--test-threads=1"]);
        if self.qemu_guests {
            lab = lab.with_qemu_guests();
        }
        if let Some(kernel) = &self.kernel {
            lab = lab.kernel(KernelChoice::parse(kernel).unwrap());
        }
        if let Ok(seed) = std::env::var(SEED) {
            lab = lab.seed(seed.parse().unwrap());
        }
        for (path, data) in self.files {
            lab = lab.file_bytes(path, data);
        }
        for (name, value) in &self.environment {
            lab = lab.environment(name, value);
        }
        if std::env::var_os(AT_LENGTH).is_some() {
            lab = lab.environment(AT_LENGTH, "1");
        }
        let outcome = lab.run(&mut |event| match event {
            Event::Notice(line) => println!("{}: {line}", self.job),
            Event::Output(line) => print!("{}: {line}", self.job),
        });
        match outcome {
            Err(error) if self.is_skipped_without && format!("{error:#}").contains(NO_SUCH) => {
                // Past the harness, which keeps what passing tests print to itself.
                let _ = writeln!(io::stderr(), "{}: skipped: {error:#}", self.job);
            }
            Err(error) => panic!("{}: {error:#}", self.job),
            Ok(outcome) => check(self.job, &outcome),
        }
    }
}

fn check(job: &str, outcome: &LabOutcome) {
    println!("{job}: {:.1} s on kernel {}", outcome.wall_s, outcome.kernel_version);
    if outcome.exit_status != 0 || !outcome.kernel_warnings.is_empty() {
        let lines: Vec<&str> = outcome.kernel_log.lines().collect();
        println!("{job}: the kernel's log ended with:");
        println!("{}", lines[lines.len().saturating_sub(25)..].join("\n"));
    }
    assert!(outcome.kernel_warnings.is_empty(), "{job}: {:#?}", outcome.kernel_warnings);
    assert_eq!(outcome.exit_status, 0, "{job}: failed in the lab, see above");
}

/// Debug information is most of this program, and would be loaded at each boot.
fn strip(program: &std::path::Path, to: &std::path::Path) {
    let stripped =
        Command::new("strip").arg("--strip-debug").arg("-o").arg(to).arg(program).status();
    if !stripped.is_ok_and(|status| status.success()) {
        std::fs::copy(program, to).unwrap();
    }
}

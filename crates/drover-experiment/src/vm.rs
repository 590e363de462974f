// SPDX-License-Identifier: GPL-2.0-only
//! A VM of a run: made, let go, read, killed.

use crate::failure::Failure;
use crate::figures::Sample;
use crate::kit::Tools;
use crate::process::{Place, Process};
use crate::task_clock::TaskClock;
use crate::threads::{ThreadTime, Threads};
use anyhow::{Context, Result};
use drover_core::io::Bytes;
use drover_guest::{ConsoleReader, GuestError, ProgressSource, Snapshot, StatsReader};
use drover_host::io_bytes::ByteCounts;
use drover_lab::guest_image::{END_MARK, Guest as LinuxGuest};
use drover_scenario::schedule::Who;
use drover_scenario::{Pin, Vm, Vmm, Workload};
use nix::sys::signal::Signal;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// What a VM has used and done so far.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct VmReading {
    /// Its threads.
    pub threads: Vec<ThreadTime>,
    /// What its guest counts, where that can be seen.
    pub guest: Option<Snapshot>,
    /// Bytes to and from its disks and the network.
    pub bytes: Bytes,
    /// How long its Linux guest took until it was ready.
    pub boot: Option<Duration>,
}

/// A VM that runs.
#[derive(Debug)]
pub(crate) struct RunningVm {
    name: String,
    vcpus: u32,
    guest: Guest,
    started: Instant,
    /// How long it took until it was ready; none: it is not yet.
    boot: Option<Duration>,
    /// What it moved; none: it has no devices.
    bytes: Option<ByteCounts>,
    /// It does not go with the others: until it does, it is stopped as a process is, for waiting costs
    /// CPU time. (A micro VM's looks at its gate took a pool of two busy vCPUs 5 % of a pCPU.)
    starts_later: bool,
    /// Where its vCPUs are confined each to its own CPUs.
    pin: Option<Pin>,
    /// None once it was killed.
    process: Option<Process>,
    threads: Threads,
    /// Exact clocks of its threads, where it is sampled and the host has them.
    clocks: Vec<TaskClock>,
    /// What was read before it was killed.
    last: Option<VmReading>,
}

#[derive(Debug)]
enum Guest {
    /// None: a container's threads are busy from the first.
    None,
    Micro {
        stats: PathBuf,
        reader: Option<StatsReader>,
    },
    Linux {
        reader: ConsoleReader,
    },
}

/// What a Linux guest prints before its command where the scenario names no other text.
const BEGIN_MARK: &str = "drover-guest: the command begins";

impl RunningVm {
    /// Makes a VM in its place. It does not work yet: wait until it [`RunningVm::is_ready`], then let
    /// it [`RunningVm::go`].
    ///
    /// # Errors
    /// When its process cannot be started.
    pub fn start(tools: &Tools, vm: &Vm, place: &Place, warmup_s: f64) -> Result<Self> {
        let (command, guest) = match (&vm.vmm, &vm.workload) {
            (Vmm::Qemu, Workload::Command { run, ready }) => {
                linux(tools, vm, run, ready.as_deref())?
            }
            (Vmm::Container, _) => (container(tools, vm), Guest::None),
            _ => micro(tools, vm, warmup_s)?,
        };
        let process = Process::spawn(command, &tools.dir.join(format!("{}.log", vm.name)), place)?;
        let (name, vcpus, threads) = (vm.name.clone(), vm.vcpus, Threads::of(process.pid()));
        Ok(Self {
            name,
            vcpus,
            guest,
            started: Instant::now(),
            boot: None,
            bytes: vm.has_devices().then(ByteCounts::default),
            starts_later: vm.start_s.is_some(),
            pin: vm.pin.clone().filter(|pin| matches!(pin, Pin::Vcpus(_))),
            process: Some(process),
            threads,
            clocks: Vec::new(),
            last: None,
        })
    }

    /// Whether it has booted and stands ready.
    ///
    /// # Errors
    /// When it ended instead, with its last line.
    pub fn is_ready(&mut self) -> Result<bool, Failure> {
        if self.boot.is_some() {
            return Ok(true);
        }
        if let Some(fault) = self.fault() {
            return Err(anyhow::anyhow!(fault).into());
        }
        let ready = match &mut self.guest {
            Guest::Micro { stats, reader } => {
                if reader.is_none() {
                    // Refused until the VM has filled it in.
                    *reader = StatsReader::open(stats).ok();
                }
                reader.as_ref().is_some_and(StatsReader::booted)
            }
            Guest::Linux { reader } => reader.ready().map_err(fault_of)?,
            Guest::None => true,
        };
        if let Some(pin) = self.pin.take_if(|_| ready) {
            self.threads.look().map_err(|error| self.unreadable(&error))?;
            self.threads.confine(&pin)?;
        }
        if ready && self.starts_later {
            self.signal(Signal::SIGSTOP);
        }
        self.boot = ready.then(|| self.started.elapsed());
        Ok(ready)
    }

    /// Lets it work.
    pub fn go(&self) {
        if let Guest::Micro { reader: Some(reader), .. } = &self.guest {
            reader.go();
        }
        if self.starts_later {
            self.signal(Signal::SIGCONT);
        }
    }

    /// Why it no longer runs although nobody killed it; none while it runs.
    pub fn fault(&mut self) -> Option<String> {
        let process = self.process.as_mut()?;
        if !process.has_ended() {
            return None;
        }
        let fault = format!("VM {} ended: {}", self.name, process.last_words());
        // A kernel that crashes tells its console, not QEMU.
        let console = match &mut self.guest {
            Guest::Linux { reader, .. } => reader.last_line().unwrap_or_default(),
            Guest::Micro { .. } | Guest::None => "",
        };
        match console {
            "" => Some(fault),
            line => Some(format!("{fault}; last on its console: {line}")),
        }
    }

    /// What it has used and done so far; after its end, what it had then.
    ///
    /// # Errors
    /// A fault when its process is gone or its guest failed.
    pub fn read(&mut self) -> Result<VmReading, Failure> {
        if let Some(last) = &self.last {
            return Ok(last.clone());
        }
        self.threads.look().map_err(|error| self.unreadable(&error))?;
        let threads = self.threads.read().map_err(|error| self.unreadable(&error))?;
        let guest = match &mut self.guest {
            Guest::Micro { reader, .. } => reader.as_ref().map(StatsReader::snapshot),
            Guest::Linux { reader, .. } => Some(reader.snapshot().map_err(fault_of)?),
            Guest::None => None,
        };
        let bytes = match (&mut self.bytes, &self.process) {
            (Some(counts), Some(process)) => {
                counts.read(&Path::new("/proc").join(process.pid().to_string()))
            }
            _ => Bytes::default(),
        };
        let boot = self.boot.filter(|_| matches!(self.guest, Guest::Linux { .. }));
        Ok(VmReading { threads, guest, bytes, boot })
    }

    /// From now on it will be sampled: opens exact clocks of the threads it has.
    pub fn sample_from_now(&mut self) {
        let clocks: std::io::Result<Vec<_>> = self.threads.tids().map(TaskClock::open).collect();
        self.clocks = clocks.unwrap_or_default();
    }

    /// Its CPU time now, from a moment of its own, and when that was: the middle of reading it.
    ///
    /// # Errors
    /// A fault when its process is gone.
    pub fn sample(&self) -> Result<Sample, Failure> {
        let begun = Instant::now();
        let cpu_ns = self.sampled_ns()?;
        Ok(Sample { at: begun + begun.elapsed() / 2, cpu_ns })
    }

    /// CPU time for samples, ns, exact where the host has the means.
    fn sampled_ns(&self) -> Result<u64, Failure> {
        if self.clocks.is_empty() {
            return self.cpu_ns();
        }
        let sum = self.clocks.iter().map(TaskClock::ns).sum::<io::Result<u64>>();
        sum.map_err(|error| self.unreadable(&error))
    }

    /// CPU time so far, ns, of the threads it had when it was last [`RunningVm::read`].
    ///
    /// # Errors
    /// A fault when its process is gone.
    fn cpu_ns(&self) -> Result<u64, Failure> {
        let sum = |threads: &[ThreadTime]| threads.iter().map(|thread| thread.cpu_ns).sum();
        match &self.last {
            Some(last) => Ok(sum(&last.threads)),
            None => Ok(sum(&self.threads.read().map_err(|error| self.unreadable(&error))?)),
        }
    }

    fn unreadable(&self, error: &io::Error) -> Failure {
        Failure::Fault(format!("VM {} cannot be read: {error}", self.name))
    }

    /// Ends it as a power cut would.
    ///
    /// # Errors
    /// A fault when it was gone already.
    pub fn kill(&mut self) -> Result<(), Failure> {
        self.last = Some(self.read()?);
        self.process = None;
        Ok(())
    }

    /// Its threads, the VM being that with this index.
    pub fn threads(&self, vm: u32) -> Vec<(u32, Who)> {
        self.threads.who(vm).collect()
    }

    /// Its name and the number of its vCPUs.
    pub fn who(&self) -> (&str, u32) {
        (&self.name, self.vcpus)
    }

    fn signal(&self, signal: Signal) {
        if let Some(process) = &self.process {
            process.signal(signal);
        }
    }
}

fn fault_of(error: GuestError) -> Failure {
    Failure::Fault(error.to_string())
}

fn container(tools: &Tools, vm: &Vm) -> Command {
    let mut command = Command::new(&tools.program);
    command.args(["lab-busy", &vm.vcpus.to_string()]);
    command
}

fn micro(tools: &Tools, vm: &Vm, warmup_s: f64) -> Result<(Command, Guest)> {
    let stats = tools.dir.join(format!("{}.stats", vm.name));
    // Those of an earlier run would be taken for this VM's.
    let _ = fs::remove_file(&stats);
    let workload = serde_json::to_string(&vm.workload_since_go(warmup_s))?;
    let mut command = Command::new(&tools.program);
    command.args(["guest", "--name", &vm.name, "--vcpus", &vm.vcpus.to_string()]);
    command.args(["--workload", &workload, "--wait-for-go"]);
    command.args(["--loops-per-ms", &tools.loops_per_ms.to_string()]);
    if vm.memory_mib > 0 {
        command.args(["--memory-mib", &vm.memory_mib.to_string()]);
    }
    if let (Some(node), 1..) = (vm.memory_nodes.first(), vm.memory_mib) {
        command.args(["--memory-node", &node.to_string()]);
    }
    command.arg("--stats").arg(&stats);
    Ok((command, Guest::Micro { stats, reader: None }))
}

fn linux(tools: &Tools, vm: &Vm, run: &str, ready: Option<&str>) -> Result<(Command, Guest)> {
    let image = tools.image.as_ref().context("no image for Linux guests was prepared")?;
    let console = tools.dir.join(format!("{}.console", vm.name));
    // A console of an earlier run would look as if this guest were ready.
    let _ = fs::remove_file(&console);
    let run = match ready {
        Some(_) => run.to_owned(),
        None => format!("echo {BEGIN_MARK}; {run}"),
    };
    let guest = LinuxGuest {
        name: &vm.name,
        vcpus: vm.vcpus,
        memory_mib: vm.memory_mib,
        disk: tools.disk.filter(|_| vm.disk),
        network: tools.network.as_ref().zip(vm.network),
        run: &run,
    };
    let line = guest.command_line(image, &console)?;
    let mut command = Command::new(&line[0]);
    command.args(&line[1..]);
    let reader = ConsoleReader::new(&console, Some(ready.unwrap_or(BEGIN_MARK)), END_MARK);
    Ok((command, Guest::Linux { reader }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use drover_scenario::Scenario;

    fn vm(more: &str) -> Vm {
        let text = format!("name = \"s\"\n[host]\n[[vm]]\nname = \"vm0\"\nvcpus = 2\n{more}");
        Scenario::parse(&text, "s.toml").unwrap().cases.remove(0).vms.remove(0)
    }

    fn busy() -> Vm {
        vm("workload = { kind = \"cpu\", then = { after_s = 2.0, duty_pct = 50 } }")
    }

    fn start(script: &str) -> (tempfile::TempDir, RunningVm) {
        let dir = tempfile::tempdir().unwrap();
        let tools = Tools::for_test(dir.path(), script);
        let vm = RunningVm::start(&tools, &busy(), &Place::default(), 0.5).unwrap();
        (dir, vm)
    }

    fn words(command: &Command) -> String {
        let words = command.get_args().map(|word| word.to_string_lossy().into_owned());
        words.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_micro_vm_is_this_program_with_times_since_go() {
        let dir = tempfile::tempdir().unwrap();
        let tools = Tools::for_test(dir.path(), "");
        let line = words(&micro(&tools, &busy(), 0.5).unwrap().0);
        assert!(line.starts_with("guest --name vm0 --vcpus 2 --workload {"), "{line}");
        assert!(line.contains("\"after_s\":2.5") && line.contains("--wait-for-go"), "{line}");
        assert!(line.contains("--loops-per-ms 500000"), "{line}");
    }

    #[test]
    fn counters_and_consoles_of_earlier_runs_are_not_taken_for_this_ones() {
        let dir = tempfile::tempdir().unwrap();
        let tools = Tools::for_test(dir.path(), "");
        let (stats, console) = (dir.path().join("vm0.stats"), dir.path().join("vm0.console"));
        fs::write(&stats, "old").unwrap();
        fs::write(&console, "old").unwrap();
        micro(&tools, &busy(), 0.5).unwrap();
        let (command, _) = linux(&tools, &busy(), "sysbench cpu run", None).unwrap();
        assert!(!stats.exists() && !console.exists());
        assert!(command.get_program() == "qemu-system-x86_64");
        assert!(words(&command).contains("-name vm0,debug-threads=on"));
    }

    #[test]
    fn a_vm_that_boots_is_not_ready_and_has_its_times() {
        let (_dir, mut vm) = start("while :; do :; done");
        assert!(!vm.is_ready().unwrap());
        assert_eq!((vm.fault(), vm.who()), (None, ("vm0", 2)));
        let reading = vm.read().unwrap();
        assert_eq!((reading.threads.len(), reading.guest), (1, None));
        let (early, late) = (vm.sample().unwrap(), vm.sample().unwrap());
        assert!(early.at <= late.at && late.at <= Instant::now() && early.cpu_ns <= late.cpu_ns);
        let before_ns = vm.cpu_ns().unwrap();
        while vm.cpu_ns().unwrap() == before_ns {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_killed_vm_keeps_its_last_reading() {
        let (_dir, mut vm) = start("while :; do :; done");
        vm.kill().unwrap();
        let last = vm.read().unwrap();
        assert_eq!(vm.cpu_ns().unwrap(), last.threads[0].cpu_ns);
        assert_eq!((vm.read().unwrap(), vm.fault()), (last, None));
    }

    #[test]
    fn a_vm_that_ended_by_itself_is_a_fault_with_its_words() {
        let (_dir, mut vm) = start("echo 'drover: /dev/kvm is not there' >&2; exit 1");
        let fault = loop {
            if let Some(fault) = vm.fault() {
                break fault;
            }
            std::thread::yield_now();
        };
        assert_eq!(fault, "VM vm0 ended: /dev/kvm is not there");
        assert!(matches!(vm.is_ready(), Err(Failure::Error(_))), "there is no use in going on");
        assert!(matches!(vm.read(), Err(Failure::Fault(_))));
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! The first process of the virtual host: `drover lab-init`.
//!
//! It mounts what a Linux system needs, loads the KVM modules, runs the command it was given, sends back
//! what came of it, and switches the virtual host off. While the command runs it sleeps, so that it takes
//! nothing from what is measured.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sys::reboot::{RebootMode, reboot};
use nix::sys::resource::{RLIM_INFINITY, Resource, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitStatus, wait};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::injection::{self, SingleInjection};
use crate::system::{self, System};
use crate::transport::{Reporter, open_port};

/// Where the modules lie in the lab, numbered in the order they load in.
pub const MODULES_DIR: &str = "/lib/drover-lab/modules";

/// Where those for disks of its guests lie, which [`crate::disk`] loads.
pub const DISK_MODULES_DIR: &str = "/lib/drover-lab/disk-modules";
/// Where those for a network of its guests lie, which [`crate::network`] loads.
pub const NETWORK_MODULES_DIR: &str = "/lib/drover-lab/network-modules";

/// Where the job lies in the lab.
pub const JOB_PATH: &str = "/lib/drover-lab/job.json";

/// What the command leaves here comes back.
pub const OUT_DIR: &str = "/out";

/// What the lab is to do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// The command line.
    pub command: Vec<String>,
    /// Environment variables beside the usual ones.
    pub environment: BTreeMap<String, String>,
}

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Exit status of a command that could not be started, as shells have it.
const CANNOT_START: i32 = 127;

/// Runs as the first process; never returns.
pub fn main() -> ! {
    if let Err(error) = run() {
        // Goes to the console, whose tail is shown when no report comes.
        eprintln!("drover lab-init: {error:#}");
    }
    switch_off()
}

/// Whether this process may be the lab's first one; anywhere else `main` would only do damage.
#[must_use]
pub fn is_lab() -> bool {
    std::process::id() == 1 && Path::new(JOB_PATH).exists()
}

fn run() -> Result<()> {
    mount_all()?;
    nix::unistd::sethostname("drover-lab")?;
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    load_modules(MODULES_DIR, &cpuinfo, c"");
    lift_limits()?;
    let system = Path::new(system::ARCHIVE).exists().then(System::start).transpose()?;
    let _single = injection::is_emulated(&cpuinfo).then(keep_injections_single);
    let job = fs::read(JOB_PATH).with_context(|| format!("cannot read {JOB_PATH}"))?;
    let job: Job = serde_json::from_slice(&job)?;
    let output = open_port("output")?;
    let reporter = Reporter::begin(open_port("report")?)?;
    if let Some(system) = system {
        system.enter()?;
    }
    let exit_status = run_job(&job, &output)?;
    // Whatever the command left running would go on writing to /out.
    let _ = kill(Pid::from_raw(-1), Signal::SIGKILL);
    reporter.end(Path::new(OUT_DIR), &kernel_log(), exit_status)
}

fn mount_all() -> Result<()> {
    let mounts = [
        ("proc", "/proc"),
        ("sysfs", "/sys"),
        ("devtmpfs", "/dev"),
        ("devpts", "/dev/pts"),
        ("tmpfs", "/dev/shm"),
        ("cgroup2", "/sys/fs/cgroup"),
        ("bpf", "/sys/fs/bpf"),
        ("tracefs", "/sys/kernel/tracing"),
        ("debugfs", "/sys/kernel/debug"),
    ];
    for (kind, place) in mounts {
        if !Path::new(place).exists() {
            fs::create_dir_all(place).with_context(|| format!("cannot make {place}"))?;
        }
        mount(Some(kind), place, Some(kind), MsFlags::empty(), None::<&str>)
            .with_context(|| format!("cannot mount {kind} on {place}"))?;
    }
    Ok(())
}

/// Loads the modules with these parameters. One that will not load is no reason to stop: the command may not need it.
pub(crate) fn load_modules(dir: &str, cpuinfo: &str, parameters: &CStr) {
    let mut paths: Vec<_> =
        fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        let name = path.to_string_lossy();
        if module_fits(&name, cpuinfo) {
            if let Err(error) = load_module(&path, parameters) {
                eprintln!("drover lab-init: module {name}: {error}");
            }
        }
    }
}

/// Without it guests may hang, which is no reason to stop: the command may have none.
fn keep_injections_single() -> Option<SingleInjection> {
    let begun = SingleInjection::begin();
    begun.inspect_err(|error| eprintln!("drover lab-init: guests may hang: {error:#}")).ok()
}

/// Each vendor's KVM module loads only on its own CPUs.
fn module_fits(name: &str, cpu: &str) -> bool {
    let has = |flag: &str| cpu.split_whitespace().any(|word| word == flag);
    let vendors = [("kvm_amd", "svm"), ("kvm_intel", "vmx")];
    vendors.iter().all(|(module, flag)| !name.contains(module) || has(flag))
}

fn load_module(path: &Path, parameters: &CStr) -> Result<()> {
    let file = File::open(path)?;
    let parameters = parameters.as_ptr();
    // SAFETY: the descriptor is open, the parameter string ends with NUL and the kernel keeps neither.
    let result = unsafe { libc::syscall(libc::SYS_finit_module, file.as_raw_fd(), parameters, 0) };
    match Errno::result(result) {
        Ok(_) | Err(Errno::EEXIST) => Ok(()),
        Err(error) => bail!("{}", error.desc()),
    }
}

/// BPF maps and guest memory are locked memory; schedulers and many VMs take many files.
fn lift_limits() -> Result<()> {
    setrlimit(Resource::RLIMIT_MEMLOCK, RLIM_INFINITY, RLIM_INFINITY)?;
    setrlimit(Resource::RLIMIT_NOFILE, 65_536, 65_536)?;
    Ok(())
}

/// Runs the command to its end, with its output in the port, and reaps whatever loses its parent meanwhile.
fn run_job(job: &Job, output: &File) -> Result<i32> {
    let (program, arguments) = job.command.split_first().context("the job has no command")?;
    let started = Command::new(program)
        .args(arguments)
        .env_clear()
        .envs([("PATH", PATH), ("HOME", "/root"), ("TERM", "dumb"), ("LANG", "C.UTF-8")])
        .envs(&job.environment)
        .current_dir("/root")
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output.try_clone()?)
        .spawn();
    let child = match started {
        Ok(child) => child,
        Err(error) => {
            use std::io::Write;
            writeln!(&*output, "lab: cannot start {program}: {error}")?;
            return Ok(CANNOT_START);
        }
    };
    let pid = Pid::from_raw(i32::try_from(child.id())?);
    loop {
        match wait() {
            Ok(WaitStatus::Exited(ended, status)) if ended == pid => return Ok(status),
            // As shells have it: 128 and the signal's number.
            Ok(WaitStatus::Signaled(ended, signal, _)) if ended == pid => {
                return Ok(128 + signal as i32);
            }
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => bail!("cannot wait for the command: {error}"),
        }
    }
}

/// The kernel's log as `dmesg` shows it; empty when it cannot be read.
fn kernel_log() -> Vec<u8> {
    const READ_ALL: libc::c_int = 3;
    let mut log = vec![0u8; 1 << 20];
    let len = libc::c_int::try_from(log.len()).unwrap_or(libc::c_int::MAX);
    // SAFETY: the buffer is ours, as long as we say, and is not kept.
    let read = unsafe { libc::klogctl(READ_ALL, log.as_mut_ptr().cast(), len) };
    log.truncate(usize::try_from(read).unwrap_or(0));
    log
}

fn switch_off() -> ! {
    let _ = reboot(RebootMode::RB_POWER_OFF);
    // Only without the right to do so, and then the kernel panics when its first process ends: QEMU ends.
    std::process::exit(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_module_of_the_cpus_vendor_is_loaded() {
        let amd = "flags\t\t: fpu svm npt\n";
        assert!(module_fits("/m/02-kvm_amd.ko", amd) && !module_fits("/m/03-kvm_intel.ko", amd));
        let intel = "flags\t\t: fpu vmx\n";
        assert!(
            !module_fits("/m/02-kvm_amd.ko", intel) && module_fits("/m/03-kvm_intel.ko", intel)
        );
        assert!(module_fits("/m/00-irqbypass.ko", ""));
    }

    #[test]
    fn jobs_survive_the_way_into_the_lab() {
        let job = Job {
            command: vec!["sh".into(), "-c".into(), "echo \"a b\"".into()],
            environment: BTreeMap::from([("K".into(), "v".into())]),
        };
        let text = serde_json::to_vec(&job).unwrap();
        assert_eq!(serde_json::from_slice::<Job>(&text).unwrap(), job);
    }

    #[test]
    fn the_test_runner_is_not_mistaken_for_the_lab() {
        assert!(!is_lab());
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! `drover lab exec`, and what runs inside the lab: `drover lab-init`, `drover lab-kvm-probe`

use std::io::Write;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::{Subcommand, ValueEnum};
use drover_lab::{Event, KernelChoice, Lab, Topology};
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::stat::{SFlag, fstat};

/// What is written into a pipe comes within that time.
const INPUT_COMES_MS: u8 = 100;

#[derive(Subcommand)]
pub enum Command {
    /// Run a command as root in a virtual host with /dev/kvm, and get back what it leaves in /out.
    Exec(Exec),
}

#[derive(clap::Args)]
pub struct Exec {
    /// The kernel: the beginning of a version (6.18), a path to a vmlinuz, or "host".
    #[arg(long)]
    kernel: Option<String>,
    /// Tell the kernel this, too, when it boots (nohz_full=1).
    #[arg(long, value_name = "ARGUMENT")]
    kernel_argument: Vec<String>,
    /// exact: every run is the same, bit for bit. real: real time, real parallelism.
    #[arg(long, value_enum, default_value = "real")]
    clock: Clock,
    /// Seed of everything random (exact clock).
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// CPUs of the virtual host in all.
    #[arg(long, default_value_t = 2)]
    pcpus: u32,
    /// Sockets they are on, with a last-level cache each.
    #[arg(long, default_value_t = 1)]
    sockets: u32,
    /// Threads of each core, 1 or 2.
    #[arg(long, default_value_t = 1)]
    threads: u32,
    /// NUMA nodes.
    #[arg(long, default_value_t = 1)]
    nodes: u32,
    /// Its memory.
    #[arg(long, default_value_t = 1024)]
    memory_mib: u32,
    /// Give up after this many seconds of real time.
    #[arg(long, default_value_t = 3600)]
    timeout_s: u64,
    /// Put a file or program of this machine into the lab; programs bring their libraries.
    #[arg(long, value_name = "PATH[:PATH_IN_LAB]")]
    file: Vec<String>,
    /// Put QEMU and an image for Linux guests into the lab.
    #[arg(long)]
    qemu_guests: bool,
    /// A whole system as a tar archive: its init is the first process, the command one of its own.
    #[arg(long, value_name = "TAR")]
    system: Option<PathBuf>,
    /// Directory for what the command leaves in /out.
    #[arg(long)]
    out: Option<PathBuf>,
    /// The command; busybox and drover are there.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

#[derive(Clone, Copy, ValueEnum)]
pub enum Clock {
    Exact,
    Real,
}

impl From<Clock> for drover_lab::Clock {
    fn from(clock: Clock) -> Self {
        match clock {
            Clock::Exact => Self::Exact,
            Clock::Real => Self::Real,
        }
    }
}

pub fn run(command: Command) -> Result<ExitCode> {
    let Command::Exec(exec) = command;
    run_exec(exec)
}

fn run_exec(exec: Exec) -> Result<ExitCode> {
    ensure!(
        !has_input(),
        "the lab has no stdin: give the command a file with --file PATH, or add </dev/null"
    );
    let topology = topology_of(&exec)?;
    let mut lab = Lab::new(topology)
        .clock(exec.clock.into())
        .seed(exec.seed)
        .timeout(Duration::from_secs(exec.timeout_s))
        .command(exec.command);
    if let Some(kernel) = &exec.kernel {
        lab = lab.kernel(KernelChoice::parse(kernel)?);
    }
    for argument in &exec.kernel_argument {
        lab = lab.kernel_argument(argument);
    }
    for file in &exec.file {
        let (host_path, path) = places(file)?;
        lab = lab.program(&path, &host_path);
    }
    if exec.qemu_guests {
        lab = lab.with_qemu_guests();
    }
    if let Some(system) = &exec.system {
        lab = lab.system(system);
    }
    let outcome = lab.run(&mut |event| match event {
        Event::Notice(line) => eprintln!("lab: {line}"),
        Event::Output(line) => {
            let mut stdout = std::io::stdout().lock();
            // Nobody reads any more: the lab goes on for what it leaves in /out.
            let _ = stdout.write_all(line.as_bytes()).and_then(|()| stdout.flush());
        }
    })?;
    for warning in &outcome.kernel_warnings {
        eprintln!("lab: kernel: {warning}");
    }
    if let Some(out) = &exec.out {
        outcome.save(out)?;
    }
    Ok(ExitCode::from(u8::try_from(outcome.exit_status).unwrap_or(u8::MAX)))
}

/// Whether somebody means the command to read something: stdin is a file, or a pipe into which something is written.
/// A script that a service runs may have a pipe in which there is nothing.
fn has_input() -> bool {
    let stdin = std::io::stdin();
    let Ok(stat) = fstat(&stdin) else { return false };
    match SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits()) {
        SFlag::S_IFREG => stat.st_size > 0,
        SFlag::S_IFIFO => {
            let mut fds = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
            poll(&mut fds, INPUT_COMES_MS).is_ok()
                && fds[0].revents().is_some_and(|events| events.contains(PollFlags::POLLIN))
        }
        _ => false,
    }
}

fn topology_of(exec: &Exec) -> Result<Topology> {
    let &Exec { pcpus, sockets, threads, nodes, memory_mib, .. } = exec;
    let dealt = sockets.saturating_mul(threads);
    ensure!(
        dealt > 0 && pcpus % dealt == 0,
        "lab host: {pcpus} CPUs cannot be dealt to {sockets} sockets x {threads} threads; choose a \
         multiple of {dealt}"
    );
    Ok(Topology {
        sockets,
        cores: pcpus / dealt,
        threads,
        nodes,
        memory_mib,
        ..Topology::default()
    })
}

/// Splits `PATH:PATH_IN_LAB`; without the second part a file goes to its own absolute path.
fn places(text: &str) -> Result<(PathBuf, String)> {
    if let Some((host_path, path)) = text.split_once(':') {
        ensure!(path.starts_with('/'), "--file {text}: the path in the lab must begin with /");
        return Ok((PathBuf::from(host_path), path.to_owned()));
    }
    let absolute = std::path::absolute(Path::new(text))?;
    let path = absolute.to_string_lossy().into_owned();
    Ok((absolute, path))
}

/// The lab's first process.
pub fn init() -> Result<ExitCode> {
    ensure!(
        drover_lab::init::is_lab(),
        "lab-init is what the lab starts by itself; see `drover lab exec`"
    );
    drover_lab::init::main()
}

/// The smallest VM, to see whether KVM works.
pub fn kvm_probe() -> Result<ExitCode> {
    drover_lab::kvm_probe::run()?;
    println!("KVM runs VMs here.");
    Ok(ExitCode::SUCCESS)
}

/// Works on so many threads until killed.
pub fn busy(threads: u32) -> Result<ExitCode> {
    let work = || {
        loop {
            // Not the processor's pause instruction: an emulated CPU leaves its turn at each.
            std::hint::black_box(());
        }
    };
    for _ in 1..threads {
        std::thread::spawn(work);
    }
    work()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_keep_their_path_unless_told_otherwise() {
        assert_eq!(places("/a/b").unwrap(), (PathBuf::from("/a/b"), "/a/b".to_owned()));
        assert_eq!(places("x:/y").unwrap(), (PathBuf::from("x"), "/y".to_owned()));
        assert!(places("x:y").is_err());
    }
}

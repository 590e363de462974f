// SPDX-License-Identifier: GPL-2.0-only
//! QEMU: finding it, and the command line of a virtual host.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::programs;
use crate::topology::Topology;

/// How time passes in the lab.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    /// Virtual time counted in instructions: the whole run is identical bit for bit from run to run. The
    /// virtual CPUs share one instruction budget, so use it for correctness and for figures in kernel CPU
    /// time, never for guest throughput.
    #[default]
    Exact,
    /// Real time, real parallelism, noisy: for throughput, as a ratio within one boot.
    Real,
}

/// What executes the virtual host's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accelerator {
    /// QEMU's own emulation. Needs nothing of the machine.
    Tcg,
    /// The machine's KVM, which must be able to nest.
    Kvm,
}

/// The oldest QEMU whose emulation of nested paging the lab has been used with.
const OLDEST_MAJOR: u32 = 7;

/// From this version on, the virtual CPUs get turns of equal length.
const FAIR_MAJOR: u32 = 10;

/// The QEMU of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Qemu {
    /// The program.
    pub program: PathBuf,
    /// First line of what it says of its version.
    pub version: String,
    major: u32,
}

impl Qemu {
    /// Finds QEMU and asks for its version.
    ///
    /// # Errors
    /// When there is none or it is too old; the line says what to install.
    pub fn find() -> Result<Self> {
        let program = programs::find("qemu-system-x86_64").context(
            "QEMU is not installed: install package qemu-system-x86 (script/setup does); \
             without it, `drover run --on host` still works on a machine with KVM",
        )?;
        let text = Command::new(&program).arg("--version").output();
        let text = text.with_context(|| format!("cannot run {}", program.display()))?;
        let text = String::from_utf8_lossy(&text.stdout).into_owned();
        let version = text.lines().next().unwrap_or_default().to_owned();
        let Some(major) = major(&version) else {
            bail!(
                "{} does not say its version (`{version}`); reinstall qemu-system-x86",
                program.display()
            )
        };
        ensure!(
            major >= OLDEST_MAJOR,
            "{version} is too old: the lab needs QEMU {OLDEST_MAJOR} or newer; script/setup installs one"
        );
        Ok(Self { program, version, major })
    }

    /// Another program in QEMU's place.
    #[cfg(test)]
    pub(crate) fn for_test(program: &str) -> Self {
        Self { program: program.into(), version: "test".into(), major: FAIR_MAJOR }
    }

    /// Whether this QEMU gives the virtual CPUs of a host turns of equal length.
    #[must_use]
    pub fn is_fair(&self) -> bool {
        self.major >= FAIR_MAJOR
    }
}

fn major(version: &str) -> Option<u32> {
    version.strip_prefix("QEMU emulator version ")?.split('.').next()?.parse().ok()
}

/// A virtual host to be started.
#[derive(Clone, Debug)]
pub struct Machine<'a> {
    /// Its shape.
    pub topology: Topology,
    /// How time passes in it.
    pub clock: Clock,
    /// What executes it.
    pub accelerator: Accelerator,
    /// Seed of everything random in it.
    pub seed: u64,
    /// The kernel image.
    pub kernel: &'a Path,
    /// What the kernel is told on top of [`KERNEL_ARGUMENTS`].
    pub kernel_arguments: &'a [String],
    /// A directory with `initramfs`, in which `console`, `output` and `report` are written.
    pub dir: &'a Path,
}

/// What a fresh virtual host is told.
///
/// Warnings go to the console, where they are looked for (`loglevel`). A crash ends QEMU at once, because it
/// runs with `-no-reboot`. Addresses are not randomised, so that runs are alike. The time-stamp counter is
/// trusted: the kernel's check of it takes a busy machine's hiccup for a fault. What only costs emulated
/// instructions is off: the CPU's mitigations, auditing, zeroing memory that is handed out, the check of the timer
/// and the self-tests of the cryptography; a fifth of a boot.
const KERNEL_ARGUMENTS: &str = "console=ttyS0 loglevel=5 panic=-1 oops=panic nokaslr tsc=reliable \
    mitigations=off audit=0 cryptomgr.notests init_on_alloc=0 no_timer_check random.trust_cpu=on \
    rdinit=/usr/bin/drover -- lab-init";

/// The same with others before, and for pCPUs that tick all at once, as is the kernel's default, or one after the other.
fn kernel_arguments(skew_tick: bool, others: &[String]) -> String {
    let skew = skew_tick.then_some("skew_tick=1");
    let others = others.iter().map(String::as_str);
    others.chain(skew).chain([KERNEL_ARGUMENTS]).collect::<Vec<_>>().join(" ")
}

/// On the exact clock the virtual CPUs are emulated in turn, and one notices an interrupt when its turn comes.
/// A round of turns is as long as it is until the next of QEMU's timers: up to a tick, 4 ms, if there were no
/// others. So there is one: it empties the queue of a network that nobody is on, every so many µs of virtual
/// time.
const ROUND_US: u32 = 50;

/// Hosts of more pCPUs are wide. QEMU shares a round out among all pCPUs, idle ones too, and goes past all of them
/// after each turn: with 128 and 50 µs that was most of what it did, for 195 instructions each.
const WIDE_PCPUS: u32 = 16;

/// What each pCPU of a wide host has of a round, as on one of four.
const TURN_US: u32 = 12;

fn round_us(pcpus: u32) -> u32 {
    if pcpus <= WIDE_PCPUS { ROUND_US } else { TURN_US * pcpus }
}

/// Ports of the virtual host whose data QEMU writes to a file of the same name.
pub const PORTS: [&str; 2] = ["output", "report"];

impl Machine<'_> {
    /// QEMU's arguments.
    #[must_use]
    pub fn arguments(&self) -> Vec<String> {
        let mut arguments =
            words("-nodefaults -no-user-config -display none -no-reboot -machine q35");
        // pCPU threads are known by their names (pinning.rs).
        arguments.extend(words("-name lab,debug-threads=on"));
        arguments.extend(self.engine());
        arguments.extend(self.topology.qemu_arguments());
        let file = |name: &str| self.dir.join(name).to_string_lossy().into_owned();
        for (option, value) in [
            ("-kernel", self.kernel.to_string_lossy().into_owned()),
            ("-initrd", file("initramfs")),
            ("-append", kernel_arguments(self.topology.skew_tick, self.kernel_arguments)),
            ("-chardev", format!("file,id=console,path={}", escaped(&file("console")))),
            ("-serial", "chardev:console".to_owned()),
            // Without ioeventfd, what the guest writes is taken in its own instruction stream, not by
            // another thread some time later: the exact clock needs that.
            ("-device", "virtio-serial-pci,ioeventfd=off".to_owned()),
        ] {
            arguments.extend([option.to_owned(), value]);
        }
        for port in PORTS {
            let path = escaped(&file(port));
            arguments.extend(["-chardev".to_owned(), format!("file,id={port},path={path}")]);
            arguments.extend([
                "-device".to_owned(),
                format!("virtserialport,chardev={port},name={port}"),
            ]);
        }
        arguments
    }

    /// What executes the host, and how its time passes.
    fn engine(&self) -> Vec<String> {
        match (self.clock, self.accelerator) {
            (Clock::Exact, _) => {
                let mut arguments = words(
                    "-cpu max,la57=off -accel tcg,thread=single -icount shift=1,sleep=off \
                     -rtc base=2020-01-01T00:00:00,clock=vm",
                );
                arguments.extend(["-seed".to_owned(), self.seed.to_string()]);
                arguments.extend(words("-netdev hubport,id=rounds,hubid=0 -object"));
                let us = round_us(self.topology.pcpus());
                arguments.push(format!("filter-buffer,id=round,netdev=rounds,interval={us}"));
                arguments
            }
            (Clock::Real, Accelerator::Tcg) => words("-cpu max,la57=off -accel tcg,thread=multi"),
            (Clock::Real, Accelerator::Kvm) => words("-cpu host -accel kvm"),
        }
    }
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// QEMU splits option values at commas; a doubled comma stands for one.
fn escaped(path: &str) -> String {
    path.replace(',', ",,")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(clock: Clock, accelerator: Accelerator) -> String {
        let machine = Machine {
            topology: Topology::flat(4),
            clock,
            accelerator,
            seed: 7,
            kernel: Path::new("/k/vmlinuz"),
            kernel_arguments: &["nohz_full=1".to_owned()],
            dir: Path::new("/run,1"),
        };
        machine.arguments().join(" ")
    }

    #[test]
    fn the_exact_clock_leaves_nothing_to_chance() {
        let line = machine(Clock::Exact, Accelerator::Kvm);
        for part in [
            "tcg,thread=single",
            "-icount shift=1,sleep=off",
            "clock=vm",
            "-seed 7",
            "-append nohz_full=1 console=",
            "nokaslr",
            "ioeventfd=off",
            "interval=50",
        ] {
            assert!(line.contains(part), "{part}: {line}");
        }
        assert!(
            !line.contains("kvm") && !line.contains("-nic") && !line.contains("-net "),
            "{line}"
        );
    }

    #[test]
    fn turns_are_no_shorter_on_wide_hosts() {
        assert_eq!([2, 4, 16, 17, 128].map(round_us), [50, 50, 50, 204, 1536]);
    }

    #[test]
    fn the_real_clock_runs_in_parallel_or_on_kvm() {
        assert!(machine(Clock::Real, Accelerator::Tcg).contains("tcg,thread=multi"));
        let line = machine(Clock::Real, Accelerator::Kvm);
        assert!(
            line.contains("-accel kvm") && line.contains("-cpu host") && !line.contains("icount")
        );
        assert!(!line.contains("netdev"));
    }

    #[test]
    fn crashes_end_qemu_and_paths_with_commas_work() {
        let line = machine(Clock::Real, Accelerator::Tcg);
        assert!(
            line.contains("-no-reboot") && line.contains("panic=-1") && line.contains("oops=panic")
        );
        assert!(line.contains("path=/run,,1/report") && line.contains("-initrd /run,1/initramfs"));
    }

    #[test]
    fn versions_are_read() {
        assert_eq!(major("QEMU emulator version 10.0.2 (Debian 1:10.0.2)"), Some(10));
        assert_eq!(major("something else"), None);
    }
}

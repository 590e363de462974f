// SPDX-License-Identifier: GPL-2.0-only
//! The lab: a virtual host in QEMU in which real KVM VMs run under a real kernel.
//!
//! A newcomer has neither a spare machine nor a kernel with sched_ext. The lab needs only QEMU: it takes
//! a kernel from the machine's own package archive ([`kernel`]), packs the running `drover` binary, the
//! libraries it needs, busybox and the KVM modules into an initramfs ([`initramfs`]), boots a virtual host
//! of any topology ([`qemu`]), runs one command in it as root ([`init`]) and brings back what that command
//! wrote to its terminal and under `/out` ([`transport`]).
//!
//! QEMU's own CPU emulation (TCG) emulates AMD-V with nested paging, so `/dev/kvm` works in the lab even
//! where the machine has no KVM. Two clocks are offered, see [`Clock`].
//!
//! ```no_run
//! use drover_lab::{Clock, Event, Lab, Topology};
//! # fn main() -> anyhow::Result<()> {
//! let outcome = Lab::new(Topology { cores: 4, ..Topology::default() })
//!     .clock(Clock::Exact)
//!     .file_bytes("/job/scenario.toml", "name = \"demo\"")
//!     .command(["drover", "run", "/job/scenario.toml", "--on", "host", "--json", "/out/results.json"])
//!     .run(&mut |event| match event {
//!         Event::Output(line) => print!("{line}"),
//!         Event::Notice(line) => eprintln!("lab: {line}"),
//!     })?;
//! assert!(outcome.file("results.json").is_some());
//! # Ok(()) }
//! ```

pub mod accelerator;
pub mod apt;
pub mod cache;
pub mod console;
pub mod cpio;
pub mod disk;
mod first_pcpu;
pub mod guest_image;
pub mod init;
pub mod initramfs;
pub mod injection;
pub mod kernel;
pub mod kernel_config;
pub mod kernel_packages;
pub mod kvm_probe;
mod lab;
pub mod modules;
pub mod network;
mod pinning;
mod programs;
pub mod qemu;
mod supervise;
mod system;
pub mod topology;
pub mod transport;

pub use kernel::KernelChoice;
pub use lab::{Event, Lab, LabOutcome};
pub use qemu::{Accelerator, Clock};
pub use topology::Topology;

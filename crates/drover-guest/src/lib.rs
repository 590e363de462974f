// SPDX-License-Identifier: GPL-2.0-only
//! Guests to schedule: micro VMs on `/dev/kvm` whose guest code counts its own progress, and what is
//! seen of the progress of any guest.
//!
//! [`run`] is a whole VMM: it makes one VM, runs each vCPU on a thread named `vcpu0`, `vcpu1` ... and
//! returns when told to stop. The guest (guest/, freestanding C) does one
//! [`Workload`](drover_scenario::Workload) and counts in a shared file, which
//! any other process reads while the VM runs, through [`StatsReader`].
//!
//! ```text
//!  runner                     process of one VM                     the VM
//!  StatsReader  <-- mmap -->  stats file  == memory slot ==>  control page, counters
//!    go()                     threads vcpuN  -- KVM_RUN -->   guest code, one stack each
//! ```
//!
//! Linux guests under QEMU report on their console instead: [`ConsoleReader`] reads what sysbench, hackbench
//! and cyclictest print. Both are a [`ProgressSource`].

#[cfg(not(target_arch = "x86_64"))]
compile_error!("drover-guest makes x86-64 VMs and builds on x86-64 only");

mod back_end;
mod calibrate;
mod config;
mod console;
mod error;
mod layout;
mod memory;
mod program;
mod progress;
mod registers;
mod report_line;
mod run;
mod shared_file;
mod stats;
mod tsc;
mod vcpu;
mod vm;

pub use calibrate::loops_per_ms;
pub use config::{GuestConfig, Touched};
pub use console::ConsoleReader;
pub use error::GuestError;
pub use progress::{ProgressSource, Snapshot};
pub use run::run;
pub use stats::StatsReader;

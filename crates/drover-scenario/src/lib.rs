// SPDX-License-Identifier: GPL-2.0-only
//! The language of experiments: scenarios, what their VMs are owed, results and what is expected of them. Pure: text and
//! numbers in, values out.
//!
//! docs/scenarios.md describes the files. [`Scenario::parse`] reads one and resolves it: every default filled in, every
//! [`Case`] with its own full list of VMs.

mod admission;
pub mod change;
pub mod claims;
mod clock;
pub mod compare;
pub mod entitlement;
pub mod expect;
pub mod from_recording;
mod host;
mod pace;
mod program;
pub mod rank_sum;
mod read;
pub mod repeats;
pub mod results;
mod scenario;
pub mod schedule;
mod tuning;
mod vm;
mod workload;

pub use admission::admit;
pub use clock::Clock;
pub use host::{Host, HostCosts};
pub use pace::Pace;
pub use program::{
    DEPTH_MAX, IpiTo, LockKind, Program, ProgramLock, ProgramStep, RING_BYTES, Role, StepTime,
};
pub use scenario::{Case, Scenario, scheduler_label};
pub use tuning::Tuning;
pub use vm::{Pin, Vm, Vmm};
pub use workload::{CpuThen, Workload};

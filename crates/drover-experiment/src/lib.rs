// SPDX-License-Identifier: GPL-2.0-only
//! Experiments: runs a scenario and measures it, on this machine or in the lab.
//!
//! Every case of a scenario runs under each scheduler in turn, A, B, A, B over the repeats, so that
//! what drifts while a host is up meets all of them alike:
//!
//! ```text
//!  scheduler up -> pools told, VMs made, each in its cgroup -> settings told -> let go -> warm-up
//!     -> first reading ... (samples, VMs that come and go) ... last reading -> all taken down
//! ```
//!
//! [`host`] does that where it is called. [`lab`] boots a virtual host, lets [`host`] do it there and
//! takes the results back. Both hand out [`Event`]s meanwhile. Nothing of an experiment stays behind,
//! however it ends.

mod bpf_cost;
mod case_groups;
mod cgroup;
mod event;
mod failure;
mod figures;
pub mod host;
mod kit;
pub mod lab;
mod machine;
mod moments;
mod observer;
mod one_run;
mod overrides;
mod parts;
mod pause;
mod peers;
mod plan;
mod proc_stat;
mod process;
mod reading;
mod recorder;
mod scenario_file;
mod sched_ext;
mod scheduler;
mod task_clock;
mod threads;
mod vm;
mod wall;
mod weights;

pub use event::{Event, Started};
pub use machine::machine;
pub use overrides::Overrides;
pub use scenario_file::{ScenarioFile, program_sum};

// SPDX-License-Identifier: GPL-2.0-only
//! A discrete-event simulator of a KVM host that runs Drover's own policy code.
//!
//! Other schedulers run on the same host, as a [`class::Class`]: crates/drover-rivals.
//! docs/simulator.md tells what is modelled and what is not.

mod arranging;
pub mod batch;
pub mod class;
pub mod costs;
pub mod cpu_set;
pub mod events;
pub mod guest;
pub mod kvm;
mod local_accesses;
pub mod lock_model;
pub mod machine;
pub mod placer;
pub mod policy_cost;
mod profiles;
pub mod rig;
pub mod rng;
pub mod run_queue_stress;
pub mod scenario;
pub mod scx;
pub mod sim;
pub mod sim_speed;
pub mod speed_model;
pub mod topology;
pub mod trace;

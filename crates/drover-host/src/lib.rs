// SPDX-License-Identifier: GPL-2.0-only
//! A live host: is it fit, load the scheduler, find VMs by name, take orders.
//!
//! `scheduler` is the only module that touches BPF; `serve` is the daemon that
//! keeps a [`scheduler::Scheduler`] alive and answers on the control socket of
//! `control`.

pub mod check;
pub mod control;
pub mod farewell;
pub mod names;
pub mod params;
pub mod scheduler;
pub mod serve;
pub mod topology;

#[allow(
    clippy::all,
    clippy::pedantic,
    clippy::undocumented_unsafe_blocks,
    missing_docs,
    unsafe_op_in_unsafe_fn,
    reason = "generated"
)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/drover.skel.rs"));
}

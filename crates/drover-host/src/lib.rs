// SPDX-License-Identifier: GPL-2.0-only
//! A live host: is it fit, load the scheduler, find VMs by name, take orders.
//!
//! `scheduler` is the only module that touches BPF; `serve` is the daemon that
//! keeps a [`scheduler::Scheduler`] alive and answers on the control socket of
//! `control`. What each VM is to have follows from `sources` and `store` by way
//! of `plan`; `reconciler` brings it into force.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod applied;
mod changes;
pub mod check;
mod clients;
mod containers;
pub mod control;
pub mod cookies;
pub mod delays;
pub mod domains;
pub mod exit_info;
#[cfg(test)]
mod fake_host;
pub mod files;
pub mod handover;
mod helper;
pub mod history;
pub mod io_bytes;
pub mod kernel;
pub mod kvm;
pub mod listener;
pub mod manager;
pub mod meter;
pub mod names;
pub mod numa;
pub mod orders;
mod pace;
pub mod pages;
pub mod pause_exits;
pub mod places;
pub mod plan;
mod privileges;
pub mod profiles;
pub mod promises;
pub mod protocol;
pub mod readers;
pub mod recent;
pub mod reconciler;
pub mod registry;
pub mod rehearsal;
mod release;
pub mod saved;
pub mod scheduler;
pub mod serve;
pub mod sources;
pub mod status;
pub mod store;
mod thread_sets;
pub mod topology;
pub mod undo;
pub mod vcpus;
pub mod watch;

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

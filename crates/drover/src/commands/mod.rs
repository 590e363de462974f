// SPDX-License-Identifier: GPL-2.0-only
//! The subcommands. Each `run` returns the exit code, or an error to print in one line.

mod ask;
pub mod check;
pub mod compare;
pub mod config;
pub mod examples;
pub mod export;
mod given;
pub mod guest;
pub mod lab;
pub mod lock_cost;
pub mod manual;
pub mod metrics;
pub mod numa;
pub mod observe;
pub mod observer_cost;
mod page;
pub mod partition;
pub mod policy_cost;
pub mod pool;
mod progress;
pub mod record;
pub mod report;
pub mod run;
pub mod seeds;
pub mod serve;
pub mod set;
mod sim;
pub mod sim_speed;
pub mod soak;
mod soak_against;
pub mod status;
pub mod top;
pub mod undo;
pub mod vm;
pub mod why;

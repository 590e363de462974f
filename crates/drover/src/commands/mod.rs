// SPDX-License-Identifier: GPL-2.0-only
//! The subcommands. Each `run` returns the exit code, or an error to print in one line.

mod ask;
pub mod check;
pub mod compare;
pub mod config;
pub mod guest;
pub mod lab;
pub mod manual;
pub mod metrics;
mod page;
pub mod partition;
pub mod policy_cost;
pub mod pool;
pub mod run;
pub mod serve;
mod sim;
pub mod sim_speed;
pub mod soak;
pub mod top;
pub mod vm;

// SPDX-License-Identifier: GPL-2.0-only
//! What Drover decides slowly, without touching a machine: what VMs are asked to have and are owed, where they are placed,
//! what is admitted. Pure: text and numbers in, values out.
//!
//! The ground floor, which knows nothing of the rest: `cpu_list`, `percent`, `shares`, `names`, `nearest`, `printable`,
//! `words`, `toml_file`.

pub mod advise;
pub mod allot;
pub mod arrange;
pub mod asked;
pub mod config;
pub mod counters;
pub mod cpu_list;
pub mod delay;
pub mod domain;
pub mod histogram;
pub mod io;
pub mod names;
pub mod nearest;
pub mod params;
pub mod partition;
pub mod percent;
pub mod place;
pub mod printable;
pub mod profile;
pub mod recording;
pub mod recording_file;
pub mod resolve;
mod schema;
pub mod sets;
pub mod settings;
pub mod shares;
pub mod toml_file;
pub mod tree;
pub mod why;
mod words;

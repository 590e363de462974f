// SPDX-License-Identifier: GPL-2.0-only
//! What Drover knows without touching a machine: scenarios, what shares entitle a VM to, results
//! and what is expected of them. Pure: text and numbers in, values out.

pub mod allot;
pub mod arrange;
pub mod asked;
pub mod claims;
pub mod compare;
pub mod config;
pub mod counters;
pub mod delay;
pub mod domain;
pub mod entitlement;
pub mod expect;
pub mod histogram;
pub mod io;
pub mod nearest;
pub mod params;
pub mod partition;
pub mod percent;
pub mod place;
pub mod printable;
pub mod profile;
pub mod recording;
pub mod recording_file;
pub mod repeats;
pub mod resolve;
pub mod results;
pub mod scenario;
pub mod schedule;
mod schema;
pub mod sets;
pub mod settings;
pub mod shares;
pub mod tree;
pub mod why;
mod words;

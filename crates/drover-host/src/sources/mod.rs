// SPDX-License-Identifier: GPL-2.0-only
//! Where settings come from, each source as it is found on a host: one file a source.
//!
//! None of them is needed. What each says becomes a layer for `drover_core::resolve`.

pub mod cgroup;
pub mod cgroup_tree;
pub mod config_file;
pub mod libvirt;
pub mod nice;
mod places;

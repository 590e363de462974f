// SPDX-License-Identifier: GPL-2.0-only
//! I/O delays of a VM: how long threads on the way of its I/O waited for their pCPUs.

use serde::{Deserialize, Serialize};

/// What was measured of a VM's I/O.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Io {
    /// Times from a wake-up on the way of its I/O to the run it asked for; docs/counters.md defines them.
    pub delay_us: IoDelays,
}

/// Delays by direction, each absent when nothing was counted.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct IoDelays {
    /// Of its vCPUs, woken by devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_guest: Option<DelayUs>,
    /// Of its back ends, woken by its vCPUs or the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_device: Option<DelayUs>,
}

/// Delays. All but the count in µs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct DelayUs {
    /// How many.
    pub count: u64,
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// What 99 of 100 do not exceed.
    pub p99: f64,
}

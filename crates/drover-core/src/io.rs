// SPDX-License-Identifier: GPL-2.0-only
//! I/O of a VM: its bytes, and how long threads on the way of it waited for their pCPUs.

use serde::{Deserialize, Serialize};

/// What was measured of a VM's I/O.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Io {
    /// Bytes to and from its disks; absent: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_bytes: Option<u64>,
    /// Bytes to and from the network; absent: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_bytes: Option<u64>,
    /// What the delays of each direction together come to for each MB of these bytes; absent where there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ms_per_mb: Option<MsPerMb>,
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

/// Time lost for each MB (10^6 bytes) that the VM moved, either way, ms.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct MsPerMb {
    /// By its vCPUs.
    pub to_guest: f64,
    /// By its back ends.
    pub to_device: f64,
}

impl Io {
    /// The same, of a VM that moved so many bytes meanwhile.
    pub fn with_bytes(self, block_bytes: Option<u64>, network_bytes: Option<u64>) -> Self {
        let bytes = block_bytes.unwrap_or(0) + network_bytes.unwrap_or(0);
        #[allow(clippy::cast_precision_loss, reason = "52 bits are enough for rates")]
        let per_mb = |delay: Option<DelayUs>| {
            let lost_ms = delay.map_or(0.0, |delay| delay.count as f64 * delay.mean / 1e3);
            lost_ms / (bytes as f64 / 1e6)
        };
        let IoDelays { to_guest, to_device } = self.delay_us;
        let ms_per_mb = (bytes > 0)
            .then(|| MsPerMb { to_guest: per_mb(to_guest), to_device: per_mb(to_device) });
        Self { block_bytes, network_bytes, ms_per_mb, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_lost_is_for_the_bytes_of_disk_and_network() {
        let delay = DelayUs { count: 200, mean: 50.0, p50: 40.0, p99: 90.0 };
        let delay_us = IoDelays { to_guest: Some(delay), to_device: None };
        let io = Io { delay_us, ..Io::default() };
        let lost = io.with_bytes(Some(1_000_000), Some(3_000_000)).ms_per_mb.unwrap();
        assert_eq!((lost.to_guest, lost.to_device), (2.5, 0.0));
        assert_eq!(io.with_bytes(Some(0), None).ms_per_mb, None);
        assert_eq!(io.with_bytes(None, None), io);
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! I/O of a VM: its bytes, and how long threads on the way of it waited for their pCPUs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Of fewer bytes than that it is not said what time was lost for each MB: a packet of 60 bytes that was 1 ms late would
/// make 17 s of it.
const TELLING_BYTES: u64 = 100_000;

/// What was measured of a VM's I/O.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Io {
    /// Bytes to and from its disks; absent: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_bytes: Option<u64>,
    /// Bytes to and from the network; absent: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_bytes: Option<u64>,
    /// What the delays of each direction together come to for each MB of these bytes; absent where there are fewer than
    /// 0.1 MB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ms_per_mb: Option<MsPerMb>,
    /// Times from a wake-up on the way of its I/O to the run it asked for; docs/counters.md defines them.
    pub delay_us: IoDelays,
}

/// Delays by direction, each absent when nothing was counted.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct IoDelays {
    /// Of its vCPUs, woken by devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_guest: Option<DelayUs>,
    /// Of its back ends, woken by its vCPUs or the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_device: Option<DelayUs>,
}

/// Delays. All but the count in µs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MsPerMb {
    /// By its vCPUs.
    pub to_guest: f64,
    /// By its back ends.
    pub to_device: f64,
}

/// Bytes that a VM moved, either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Bytes {
    /// To and from its disks; absent: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_bytes: Option<u64>,
    /// To and from the network; absent: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_bytes: Option<u64>,
}

/// Delays of one direction, all together.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct DelaySum {
    /// How many.
    pub count: u64,
    /// How long, s.
    pub seconds: f64,
}

/// All I/O of a VM since it was found.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct IoSums {
    /// What it moved.
    #[serde(flatten)]
    pub bytes: Bytes,
    /// Delays of its vCPUs.
    pub to_guest: DelaySum,
    /// Delays of its back ends.
    pub to_device: DelaySum,
}

/// I/O of a VM as `drover observe` knows it.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct IoStatus {
    /// What was measured in the last so many seconds.
    pub over_s: f64,
    /// That.
    #[serde(flatten)]
    pub lately: Io,
    /// All since it was found.
    pub since_found: IoSums,
}

impl Bytes {
    /// Those after `before`, an older count of the same.
    pub fn since(&self, before: &Self) -> Self {
        let of = |now: Option<u64>, then: Option<u64>| Some(counted_since(then?, now?));
        Self {
            block_bytes: of(self.block_bytes, before.block_bytes),
            network_bytes: of(self.network_bytes, before.network_bytes),
        }
    }

    /// In this time, MB/s: of disks and of the network.
    pub fn mb_s(&self, passed_s: f64) -> [Option<f64>; 2] {
        #[allow(clippy::cast_precision_loss, reason = "52 bits are enough for rates")]
        let mb_s = |bytes: u64| bytes as f64 / 1e6 / passed_s;
        [self.block_bytes.map(mb_s), self.network_bytes.map(mb_s)]
    }
}

/// What came between two readings of a counter. One that is lower than before began anew: its device was made again, or
/// it is full, and then what came before that is lost.
pub fn counted_since(before: u64, after: u64) -> u64 {
    after.checked_sub(before).unwrap_or(after)
}

impl Io {
    /// The same, of a VM that moved so many bytes meanwhile.
    pub fn with_bytes(self, bytes: Bytes) -> Self {
        let Bytes { block_bytes, network_bytes } = bytes;
        let sum = block_bytes.unwrap_or(0).saturating_add(network_bytes.unwrap_or(0));
        #[allow(clippy::cast_precision_loss, reason = "52 bits are enough for rates")]
        let per_mb = |delay: Option<DelayUs>| {
            let lost_ms = delay.map_or(0.0, |delay| delay.count as f64 * delay.mean / 1e3);
            lost_ms / (sum as f64 / 1e6)
        };
        let IoDelays { to_guest, to_device } = self.delay_us;
        let ms_per_mb = (sum >= TELLING_BYTES)
            .then(|| MsPerMb { to_guest: per_mb(to_guest), to_device: per_mb(to_device) });
        Self { block_bytes, network_bytes, ms_per_mb, ..self }
    }

    /// The bytes of it.
    pub fn bytes(&self) -> Bytes {
        Bytes { block_bytes: self.block_bytes, network_bytes: self.network_bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(block_bytes: Option<u64>, network_bytes: Option<u64>) -> Bytes {
        Bytes { block_bytes, network_bytes }
    }

    fn late(to_guest: DelayUs) -> Io {
        Io { delay_us: IoDelays { to_guest: Some(to_guest), to_device: None }, ..Io::default() }
    }

    const LATE: DelayUs = DelayUs { count: 200, mean: 50.0, p50: 40.0, p99: 90.0 };

    #[test]
    fn time_lost_is_for_the_bytes_of_disk_and_network() {
        let io = late(LATE);
        let lost = io.with_bytes(bytes(Some(1_000_000), Some(3_000_000))).ms_per_mb.unwrap();
        assert_eq!((lost.to_guest, lost.to_device), (2.5, 0.0));
        assert_eq!(io.with_bytes(bytes(Some(0), None)).ms_per_mb, None);
        assert_eq!(io.with_bytes(bytes(None, None)), io);
    }

    #[test]
    fn thousands_of_tiny_ios_have_delays_and_too_few_bytes_for_what_a_mb_costs() {
        let tiny = late(DelayUs { count: 5000, ..LATE }).with_bytes(bytes(Some(1000), Some(0)));
        assert_eq!((tiny.ms_per_mb, tiny.block_bytes), (None, Some(1000)));
        assert_eq!(tiny.delay_us.to_guest.map(|delay| delay.count), Some(5000));
        let enough = late(LATE).with_bytes(bytes(Some(100_000), None));
        assert_eq!(enough.ms_per_mb.map(|lost| lost.to_guest), Some(100.0));
        let huge = late(LATE).with_bytes(bytes(Some(u64::MAX), Some(u64::MAX)));
        assert!(huge.ms_per_mb.unwrap().to_guest >= 0.0);
    }

    #[test]
    fn counters_that_go_backwards_are_no_flood() {
        let before = bytes(Some(500), Some(u64::from(u32::MAX) - 100));
        let since = bytes(Some(700), Some(50)).since(&before);
        assert_eq!(since, bytes(Some(200), Some(50)));
        assert_eq!(bytes(None, Some(60)).since(&before), bytes(None, Some(60)), "gone since");
        assert_eq!(since.mb_s(0.5), [Some(0.0004), Some(0.0001)]);
    }
}

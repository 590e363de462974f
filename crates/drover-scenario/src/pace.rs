// SPDX-License-Identifier: GPL-2.0-only
//! What the speed of a workload hangs on, beside the CPU time it gets.

use crate::host::Host;
use serde::Deserialize;

/// What a vCPU of a workload needs of what others use too. Nothing said: it is always at full speed.
///
/// Times in it are of a vCPU that is alone on the host with its memory near by: what scenarios call
/// a workload's time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Pace {
    /// What two such threads do on a core, % of one alone, 100 to 200; default they do not slow
    /// each other.
    pub smt_gain_pct: Option<u32>,
    /// Loads from memory that are waited for in each computed ms, with 1 MiB of last-level cache;
    /// default none. The host must say how fast its memory is.
    pub misses_per_ms: u32,
    /// More cache than this is of no use; needed with that.
    pub working_set_kib: u32,
    /// Lines of 64 bytes moved for each such miss; default 1.
    pub lines_per_miss: u32,
}

impl Pace {
    /// Cache lines have so many bytes.
    pub const LINE_BYTES: u32 = 64;

    /// How much of a last-level cache it fills, others aside, KiB.
    pub fn fills_kib(&self, llc_kib: u32) -> u32 {
        self.working_set_kib.min(llc_kib)
    }

    /// Misses in each ms that it computes with so much cache to itself: with a quarter of the cache,
    /// twice as many.
    pub fn misses_with(&self, cache_kib: f64) -> f64 {
        f64::from(self.misses_per_ms) * (1024.0 / cache_kib).sqrt()
    }

    /// What so many misses in a ms move, MB/s.
    pub fn moves_mb_s(&self, misses_per_ms: f64) -> f64 {
        misses_per_ms * f64::from(self.lines_per_miss * Self::LINE_BYTES) / 1e3
    }

    /// What it moves alone on that host, near its memory, MB/s; none where the host does not say how fast
    /// its memory is.
    pub fn alone_mb_s(&self, host: &Host) -> Option<f64> {
        let cache_kib = self.fills_kib(host.llc_kib?);
        let misses_per_ms = self.misses_with(cache_kib.into());
        let stalled_ms = misses_per_ms * f64::from(host.memory_ns?) / 1e6;
        Some(self.moves_mb_s(misses_per_ms / (1.0 + stalled_ms)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_of_the_cache_misses_twice_as_often() {
        let pace = Pace { misses_per_ms: 10_000, working_set_kib: 8192, ..Pace::default() };
        assert_eq!([1024.0, 4096.0, 256.0].map(|kib| pace.misses_with(kib)), [1e4, 5e3, 2e4]);
        assert_eq!((pace.fills_kib(4096), pace.fills_kib(12_288)), (4096, 8192));
    }

    #[test]
    fn misses_move_lines() {
        let pace = Pace {
            misses_per_ms: 10_000,
            working_set_kib: 1024,
            lines_per_miss: 2,
            ..Pace::default()
        };
        let mut host = Host { llc_kib: Some(4096), memory_ns: Some(100), ..Host::default() };
        // 10,000 misses take 1 ms to compute and 1 ms to wait: 640 kB a ms.
        assert_eq!(pace.alone_mb_s(&host), Some(640.0));
        host.memory_ns = None;
        assert_eq!(pace.alone_mb_s(&host), None);
    }
}

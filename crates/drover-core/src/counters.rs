// SPDX-License-Identifier: GPL-2.0-only
//! What a scheduler that knows VMs counts of how vCPUs moved along together.

use serde::{Deserialize, Serialize};

/// Counts of a VM, or of one of its vCPUs, since it was found.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Counters {
    /// Of a VM: time in which any of its vCPUs ran. Of a vCPU: guest time, and halted time as far
    /// as to the slowest sibling, s.
    pub progressed_s: f64,
    /// Concurrency hazard: time in which a vCPU ran while a sibling was ready and did not. Of a
    /// vCPU: while it was that sibling, s.
    pub hazard_s: f64,
    /// Time ready and co-stopped (%CSTP), s; of a VM summed over its vCPUs.
    pub costop_s: f64,
    /// Co-stops: of a VM as a whole or of a vCPU of it alone, as its mode has it.
    pub costops: u64,
    /// Starts of vCPUs after a co-stop.
    pub costarts: u64,
    /// Of a VM: CPU time of its threads, as far as it is in the books, s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_s: Option<f64>,
    /// Of a VM: the part of it that it was charged for, s: less beside busy sibling threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub charged_s: Option<f64>,
    /// Of a VM: time its threads were ready and a limit held it (%MLMTD), s, summed over them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limited_s: Option<f64>,
    /// Of a VM: what came of directed yields.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub yields: Option<Yields>,
    /// The furthest a vCPU was ever seen ahead of a sibling that was ready, ms; in modes that bound
    /// that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skew_max_ms: Option<f64>,
    /// Of a VM: the longest that a thread of it was ready and others ran, ms; limits and co-stops
    /// apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest_ready_ms: Option<f64>,
    /// Of a VM: the longest that may be, as things stand ([`crate::delay`]), ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guaranteed_delay_ms: Option<f64>,
}

/// How often vCPUs of a VM asked that a sibling run in their place, and what came of it; otherwise the
/// sibling had gone, could not run there, or another VM came first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Yields {
    /// Directed yields asked for.
    #[serde(rename = "yields_asked")]
    pub asked: u64,
    /// Of these, the sibling ran next.
    #[serde(rename = "yields_granted")]
    pub granted: u64,
    /// Beyond one a tick for a vCPU.
    #[serde(rename = "yields_throttled")]
    pub throttled: u64,
}

impl Yields {
    fn since(&self, before: &Self) -> Self {
        Self {
            asked: self.asked.saturating_sub(before.asked),
            granted: self.granted.saturating_sub(before.granted),
            throttled: self.throttled.saturating_sub(before.throttled),
        }
    }
}

impl Counters {
    /// What was counted since `before`. Maxima are of all time: it cannot be told when they were. Of
    /// two guarantees the laxer counts.
    pub fn since(&self, before: &Self) -> Self {
        // Differences of seconds have digits beyond the nanoseconds they were counted in.
        let ns = |now_s: f64, then_s: f64| ((now_s - then_s) * 1e9).round().max(0.0) / 1e9;
        let both = |of: fn(&Self) -> Option<f64>| Some(ns(of(self)?, of(before)?));
        Self {
            progressed_s: ns(self.progressed_s, before.progressed_s),
            hazard_s: ns(self.hazard_s, before.hazard_s),
            costop_s: ns(self.costop_s, before.costop_s),
            costops: self.costops.saturating_sub(before.costops),
            costarts: self.costarts.saturating_sub(before.costarts),
            used_s: both(|it| it.used_s),
            charged_s: both(|it| it.charged_s),
            limited_s: both(|it| it.limited_s),
            yields: self.yields.zip(before.yields).map(|(now, then)| now.since(&then)),
            skew_max_ms: self.skew_max_ms,
            longest_ready_ms: self.longest_ready_ms,
            guaranteed_delay_ms: (self.guaranteed_delay_ms.zip(before.guaranteed_delay_ms))
                .map(|(now_ms, then_ms)| now_ms.max(then_ms)),
        }
    }
}

/// Counts of a VM and of its vCPUs.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct VmCounters {
    /// The VM's.
    pub vm: Counters,
    /// Those of its vCPUs that are known, by number.
    pub vcpus: Vec<(u32, Counters)>,
}

impl VmCounters {
    /// What was counted since `before`.
    pub fn since(&self, before: &Self) -> Self {
        let vcpu =
            |(number, now): &(u32, Counters)| Some((*number, now.since(&before.vcpu(*number)?)));
        Self { vm: self.vm.since(&before.vm), vcpus: self.vcpus.iter().filter_map(vcpu).collect() }
    }

    /// The counts of that vCPU.
    pub fn vcpu(&self, number: u32) -> Option<Counters> {
        self.vcpus.iter().find(|(of, _)| *of == number).map(|(_, counters)| *counters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(seconds: f64, events: u64) -> Counters {
        Counters {
            progressed_s: seconds,
            hazard_s: seconds / 2.0,
            costop_s: seconds / 4.0,
            costops: events,
            costarts: events,
            used_s: Some(seconds),
            charged_s: Some(0.625 * seconds),
            limited_s: Some(seconds),
            yields: Some(Yields { asked: events, granted: events - 1, throttled: 1 }),
            skew_max_ms: Some(4.5),
            longest_ready_ms: Some(8.0),
            guaranteed_delay_ms: Some(100.0 - seconds),
        }
    }

    #[test]
    fn what_came_between_is_in_whole_nanoseconds() {
        let since = counters(0.3, 7).since(&counters(0.1, 3));
        assert_eq!((since.progressed_s, since.hazard_s, since.costop_s), (0.2, 0.1, 0.05));
        assert_eq!((since.costops, since.costarts, since.skew_max_ms), (4, 4, Some(4.5)));
        assert_eq!(
            (since.limited_s, since.used_s, since.charged_s),
            (Some(0.2), Some(0.2), Some(0.125))
        );
        assert_eq!(since.yields, Some(Yields { asked: 4, granted: 4, throttled: 0 }));
        assert_eq!((since.longest_ready_ms, since.guaranteed_delay_ms), (Some(8.0), Some(99.9)));
    }

    #[test]
    fn a_vcpu_that_came_between_has_no_figures() {
        let before = VmCounters { vm: counters(1.0, 1), vcpus: vec![(0, counters(1.0, 1))] };
        let vcpus = vec![(1, counters(1.0, 1)), (0, counters(2.0, 5))];
        let since = VmCounters { vm: counters(3.0, 6), vcpus }.since(&before);
        assert_eq!((since.vm.costops, since.vcpu(0).unwrap().costops), (5, 4));
        assert_eq!(since.vcpu(1), None);
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! What a scheduler that knows VMs counts of how vCPUs moved along together.

use crate::profile::Profile;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Counts of a VM, or of one of its vCPUs, since it was found.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Counters {
    /// Of a VM: time in which any of its vCPUs ran. Of a vCPU: guest time, and halted time as far
    /// as to the slowest sibling, s; none where no scheduler counts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progressed_s: Option<f64>,
    /// Concurrency hazard: time in which a vCPU ran while a sibling was ready and did not. Of a
    /// vCPU: while it was that sibling, s; none where no scheduler counts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hazard_s: Option<f64>,
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Yields {
    /// Directed yields asked for.
    #[serde(rename = "yields_asked")]
    pub asked: u64,
    /// Of these, the sibling ran next.
    #[serde(rename = "yields_granted")]
    pub granted: u64,
    /// Too soon after the last of that vCPU: one a tick, and another after each that was of use.
    #[serde(rename = "yields_throttled")]
    pub throttled: u64,
    /// Of those given, the sibling ran, and the vCPU that asked for it asked again at once. Absent in files of
    /// before it was counted.
    #[serde(rename = "yields_wasted", default)]
    pub wasted: u64,
}

impl Yields {
    /// How many were asked for a second, in a time of so many.
    #[allow(clippy::cast_precision_loss, reason = "there are no 2^52")]
    pub fn asked_per_s(self, seconds: f64) -> f64 {
        self.asked as f64 / seconds
    }

    /// Those that came too soon after the last, or after which the vCPU asked again at once, %; none: nobody asked.
    #[allow(clippy::cast_precision_loss, reason = "there are no 2^52")]
    pub fn in_vain_pct(self) -> Option<f64> {
        let in_vain = (self.throttled + self.wasted).min(self.asked);
        (self.asked > 0).then(|| 100.0 * in_vain as f64 / self.asked as f64)
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            asked: self.asked.saturating_sub(before.asked),
            granted: self.granted.saturating_sub(before.granted),
            throttled: self.throttled.saturating_sub(before.throttled),
            wasted: self.wasted.saturating_sub(before.wasted),
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
            progressed_s: both(|it| it.progressed_s),
            hazard_s: both(|it| it.hazard_s),
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

/// Where a VM's memory lies and where it ran, since it was found.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Numa {
    /// The nodes that are home to its parts, in order (NHN); empty: it has no home.
    pub home: Vec<u32>,
    /// The part of its memory that lies there (N%L), %; none until that was looked at.
    pub local_pct: Option<f64>,
    /// How often a part of it left its home (NMIG).
    pub migrations: u32,
    /// Memory that was moved there, MiB.
    pub moved_mib: f64,
    /// CPU time of its threads while it had a home and on pCPUs of it, s.
    pub home_s: f64,
    /// CPU time of its threads, s.
    pub ran_s: f64,
}

impl Numa {
    /// What was counted since `before`. What was moved is of all time, and what lies where of now.
    fn since(&self, before: &Self) -> Self {
        let (home_s, ran_s) = (self.home_s - before.home_s, self.ran_s - before.ran_s);
        Self { home_s, ran_s, ..self.clone() }
    }
}

/// Counts of a VM and of its vCPUs.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct VmCounters {
    /// The VM's.
    pub vm: Counters,
    /// Those of its vCPUs that are known, by number.
    pub vcpus: Vec<(u32, Counters)>,
    /// Where it is at home, on a host of several nodes.
    pub numa: Option<Numa>,
    /// What kind of work it does.
    pub profile: Option<Profile>,
}

impl VmCounters {
    /// What was counted since `before`.
    pub fn since(&self, before: &Self) -> Self {
        let vcpu =
            |(number, now): &(u32, Counters)| Some((*number, now.since(&before.vcpu(*number)?)));
        let numa =
            self.numa.as_ref().map(|numa| numa.since(&before.numa.clone().unwrap_or_default()));
        let vcpus = self.vcpus.iter().filter_map(vcpu).collect();
        let profile = self.profile.map(|now| now.since(before.profile.as_ref()));
        Self { vm: self.vm.since(&before.vm), vcpus, numa, profile }
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
            progressed_s: Some(seconds),
            hazard_s: Some(seconds / 2.0),
            costop_s: seconds / 4.0,
            costops: events,
            costarts: events,
            used_s: Some(seconds),
            charged_s: Some(0.625 * seconds),
            limited_s: Some(seconds),
            yields: Some(Yields {
                asked: events,
                granted: events - 1,
                throttled: 1,
                wasted: events,
            }),
            skew_max_ms: Some(4.5),
            longest_ready_ms: Some(8.0),
            guaranteed_delay_ms: Some(100.0 - seconds),
        }
    }

    #[test]
    fn what_came_between_is_in_whole_nanoseconds() {
        let since = counters(0.3, 7).since(&counters(0.1, 3));
        assert_eq!(
            (since.progressed_s, since.hazard_s, since.costop_s),
            (Some(0.2), Some(0.1), 0.05)
        );
        assert_eq!((since.costops, since.costarts, since.skew_max_ms), (4, 4, Some(4.5)));
        assert_eq!(
            (since.limited_s, since.used_s, since.charged_s),
            (Some(0.2), Some(0.2), Some(0.125))
        );
        assert_eq!(since.yields, Some(Yields { asked: 4, granted: 4, throttled: 0, wasted: 4 }));
        assert_eq!((since.longest_ready_ms, since.guaranteed_delay_ms), (Some(8.0), Some(99.9)));
    }

    #[test]
    fn a_vcpu_that_came_between_has_no_figures() {
        let numa = |ran_s| Numa { home: vec![1], ran_s, home_s: ran_s / 2.0, ..Numa::default() };
        let vcpus = vec![(0, counters(1.0, 1))];
        let before =
            VmCounters { vm: counters(1.0, 1), vcpus, numa: Some(numa(2.0)), profile: None };
        let vcpus = vec![(1, counters(1.0, 1)), (0, counters(2.0, 5))];
        let now = VmCounters { vm: counters(3.0, 6), vcpus, numa: Some(numa(6.0)), profile: None };
        let since = now.since(&before);
        assert_eq!(since.numa, Some(numa(4.0)));
        assert_eq!((since.vm.costops, since.vcpu(0).unwrap().costops), (5, 4));
        assert_eq!(since.vcpu(1), None);
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! A schedule: who ran where, for a short while out of the middle of a run.

use serde::{Deserialize, Serialize};

/// How long a schedule is at most, s: long enough to see some twenty rounds, short enough to see
/// each.
const LENGTH_S: f64 = 0.2;

/// Who ran where.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Schedule {
    /// Name of the case.
    pub case: String,
    /// Label of the scheduler.
    pub scheduler: String,
    /// When in the measured time it begins, s.
    pub from_s: f64,
    /// How long it is, ns.
    pub length_ns: u64,
    /// Number of pCPUs.
    pub pcpus: u32,
    /// The VMs of the case, in its order.
    pub vms: Vec<ScheduledVm>,
    /// Who ran, in any order; on one pCPU they do not overlap.
    pub spans: Vec<Span>,
    /// When vCPUs were ready and did not run, in any order.
    pub waits: Vec<Wait>,
}

/// A VM of a schedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduledVm {
    /// Its name.
    pub name: String,
    /// Number of its vCPUs.
    pub vcpus: u32,
}

/// Somebody ran on a pCPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// The pCPU.
    pub pcpu: u32,
    /// From then, since the schedule begins.
    pub from_ns: u64,
    /// Until then.
    pub to_ns: u64,
    /// Who it was.
    pub who: Who,
}

/// A vCPU was ready and did not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// Index of its VM.
    pub vm: u32,
    /// Its number.
    pub vcpu: u32,
    /// From then, since the schedule begins.
    pub from_ns: u64,
    /// Until then.
    pub to_ns: u64,
}

/// Who runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Who {
    /// A vCPU: index of the VM, and its number.
    Vcpu(u32, u32),
    /// Another thread of the VM with this index.
    Helper(u32),
    /// A task of the host.
    Host,
}

/// Which part of the measured time a schedule shows, s: from, to.
pub fn window_s(duration_s: f64) -> (f64, f64) {
    let length_s = duration_s.min(LENGTH_S);
    let from_s = (duration_s - length_s) / 2.0;
    (from_s, from_s + length_s)
}

impl Span {
    /// The part of it between two moments, counted from the first; none if it lies outside of them.
    pub fn within(&self, from_ns: u64, to_ns: u64) -> Option<Self> {
        let (from_ns, to_ns) = part((self.from_ns, self.to_ns), (from_ns, to_ns))?;
        Some(Self { from_ns, to_ns, ..*self })
    }
}

impl Wait {
    /// The part of it between two moments, counted from the first; none if it lies outside of them.
    pub fn within(&self, from_ns: u64, to_ns: u64) -> Option<Self> {
        let (from_ns, to_ns) = part((self.from_ns, self.to_ns), (from_ns, to_ns))?;
        Some(Self { from_ns, to_ns, ..*self })
    }
}

/// The part of a stretch of time that is in a window, counted from where that begins.
fn part(stretch: (u64, u64), window: (u64, u64)) -> Option<(u64, u64)> {
    let (begin_ns, end_ns) = (stretch.0.max(window.0), stretch.1.min(window.1));
    (begin_ns < end_ns).then(|| (begin_ns - window.0, end_ns - window.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_from_the_middle_and_no_longer_than_the_run() {
        assert_eq!(window_s(4.0), (1.9, 2.1));
        assert_eq!(window_s(0.1), (0.0, 0.1));
    }

    #[test]
    fn spans_are_cut_at_the_edges() {
        let span = |from_ns, to_ns| Span { pcpu: 1, from_ns, to_ns, who: Who::Host };
        assert_eq!(span(5, 30).within(10, 20), Some(span(0, 10)));
        assert_eq!(span(12, 13).within(10, 20), Some(span(2, 3)));
        assert_eq!(span(1, 10).within(10, 20), None);
    }
}

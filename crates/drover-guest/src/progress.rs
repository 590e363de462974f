// SPDX-License-Identifier: GPL-2.0-only
//! What is seen of a VM's work from outside, whatever kind of VM it is.

use crate::GuestError;
use drover_core::histogram::Histogram;

/// Where the progress of one VM is read while the VM runs.
pub trait ProgressSource {
    /// Whether measuring can begin: all of a micro VM's vCPUs have booted, or the program in a
    /// Linux guest is at work.
    ///
    /// # Errors
    /// When it never will be, with the reason.
    fn ready(&mut self) -> Result<bool, GuestError>;

    /// The VM's counters as they are now.
    ///
    /// # Errors
    /// When they cannot be read, or the VM's work has failed.
    fn snapshot(&mut self) -> Result<Snapshot, GuestError>;
}

/// The counters of a VM at one moment, or, of two moments, what came between.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Snapshot {
    /// What the VM's workload counts, over all vCPUs; none while a program has not reported any.
    pub progress: Option<u64>,
    /// Each vCPU's part of it, in order; empty where a program counts for the whole VM.
    pub vcpu_progress: Vec<u64>,
    /// How late timers were; empty for workloads that do not sleep.
    pub wakeups: Histogram,
    /// How often its vCPUs asked the host to run another in their place.
    pub yields: u64,
}

impl Snapshot {
    /// What happened after `earlier`, a snapshot of the same VM.
    ///
    /// # Panics
    /// When `earlier` has another number of vCPUs.
    pub fn since(&self, earlier: &Snapshot) -> Snapshot {
        let vcpus = self.vcpu_progress.len();
        assert_eq!(vcpus, earlier.vcpu_progress.len(), "snapshots of the same VM");
        let grown = |(now, then): (&u64, &u64)| now.saturating_sub(*then);
        Snapshot {
            progress: self.progress.map(|now| now.saturating_sub(earlier.progress.unwrap_or(0))),
            vcpu_progress: self
                .vcpu_progress
                .iter()
                .zip(&earlier.vcpu_progress)
                .map(grown)
                .collect(),
            wakeups: self.wakeups.since(&earlier.wakeups),
            yields: self.yields.saturating_sub(earlier.yields),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(progress: Option<u64>, vcpu_progress: &[u64]) -> Snapshot {
        let vcpu_progress = vcpu_progress.to_vec();
        Snapshot { progress, vcpu_progress, ..Snapshot::default() }
    }

    #[test]
    fn a_window_is_a_difference() {
        let window = snapshot(Some(30), &[10, 20]).since(&snapshot(Some(12), &[4, 8]));
        assert_eq!(window, snapshot(Some(18), &[6, 12]));
    }

    #[test]
    fn what_was_not_reported_stays_absent() {
        assert_eq!(snapshot(None, &[]).since(&snapshot(None, &[])).progress, None);
        assert_eq!(snapshot(Some(7), &[]).since(&snapshot(None, &[])).progress, Some(7));
    }
}

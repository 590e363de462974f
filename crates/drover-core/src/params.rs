// SPDX-License-Identifier: GPL-2.0-only
//! The policy's parameters and where their defaults come from: for the kernel and for the simulator.

/// How often the daemon looks for VMs that came or went, for changed settings and for its own end.
pub const DAEMON_LOOK_MS: u16 = 200;

/// Set once, before the scheduler starts. Times in nanoseconds. Laid out as the beginning of the policy's
/// `struct params` (policy/base/types.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Params {
    /// How long a thread runs before it is asked again. The kernel ends slices at its tick (4 ms
    /// at 250 Hz), so 7 ms means 8 ms in practice: long enough that switching costs little,
    /// short enough that four VMs on one pCPU each run 30 times a second.
    pub slice_ns: u64,
    /// CPU time a VM may save up by sleeping: more than a slice, so that one that waits for another's
    /// slice and then sleeps for a moment, as in I/O, loses nothing.
    pub wake_credit_ns: u64,
    /// CPU time a VM that is awake may be owed, for each of its threads: a thread is charged up to
    /// a slice late, and four slices were the least that kept shares exact in random trials.
    pub claim_bound_ns: u64,
    /// CPU time a waking VM must be owed more than a running one to preempt it.
    pub preempt_gain_ns: u64,
    /// Virtual time a VM of another domain must be behind to be worth a migration.
    pub steal_gain_ns: u64,
    /// No ready VM waits longer than this, whatever the shares.
    pub wait_bound_ns: u64,
    /// How far the vCPUs of a VM may drift apart before a co-stop: "typically a few milliseconds"
    /// (VMware). Less than a tick, so that the tick that finds it is the first.
    pub skew_max_ns: u64,
    /// No VM waits longer for its vCPUs to start together: half of the 100 ms in which one that
    /// cannot must be let go.
    pub hold_max_ns: u64,
    /// How often it is asked which VMs need their vCPUs together: twice within the 100 ms in which
    /// the answer must be found.
    pub judge_window_ns: u64,
    /// Thousandths charged of the time beside a busy sibling thread. Two threads of a core bring 10 to
    /// 30 % more than one (VMware, "Allowing vCPUs of an SMP virtual machine to share a core"; Intel's
    /// own first figures, Marr et al., 2002, are 16 to 28 %): 1.25 of one, so 0.625 each.
    pub shared_core_permille: u64,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            slice_ns: 7_000_000,
            wake_credit_ns: 10_000_000,
            claim_bound_ns: 32_000_000,
            preempt_gain_ns: 250_000,
            steal_gain_ns: 8_000_000,
            wait_bound_ns: 1_000_000_000,
            skew_max_ns: 3_000_000,
            hold_max_ns: 50_000_000,
            judge_window_ns: 50_000_000,
            shared_core_permille: 625,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_stay_far_from_the_kernel_watchdog() {
        let params = Params::default();
        assert!(params.wait_bound_ns * 25 < 26_000_000_000, "the watchdog fires at 26 s");
        assert!(params.slice_ns < params.wait_bound_ns);
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! The host's own figures, from `/proc/stat`.

use anyhow::{Context, Result};
use std::fs;

/// Figures of the host since it booted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HostStat {
    /// Idle time of all pCPUs together, in ticks of [`TICKS_PER_S`].
    pub idle_ticks: u64,
    /// Context switches on all pCPUs.
    pub context_switches: u64,
}

/// `USER_HZ`, the unit of `/proc/stat`: part of the kernel's interface on x86-64.
pub(crate) const TICKS_PER_S: f64 = 100.0;

/// Reads the figures as they are now.
///
/// # Errors
/// When there is no `/proc`, or it has another format.
pub(crate) fn read() -> Result<HostStat> {
    let text = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
    parse(&text).context("/proc/stat has another format than Linux gives it")
}

/// A pCPU that waits for a disk is idle too.
fn parse(text: &str) -> Option<HostStat> {
    let figure = |key: &str, index: usize| -> Option<u64> {
        let line = text.lines().find(|line| line.split_whitespace().next() == Some(key))?;
        line.split_whitespace().nth(index)?.parse().ok()
    };
    let (idle, iowait) = (figure("cpu", 4)?, figure("cpu", 5)?);
    Some(HostStat { idle_ticks: idle + iowait, context_switches: figure("ctxt", 1)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_and_switches_are_found() {
        let text =
            "cpu  10 0 20 500 7 0 1 0 0 0\ncpu0 10 0 20 500 7 0 1 0 0 0\nintr 5 5\nctxt 99\n";
        assert_eq!(parse(text), Some(HostStat { idle_ticks: 507, context_switches: 99 }));
    }

    #[test]
    fn anything_else_is_refused() {
        for text in ["", "cpu 1 2 3\nctxt 5\n", "cpu 1 2 3 4 5 6\n", "cpu a b c d e\nctxt 5\n"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn this_host_has_figures() {
        let (first, second) = (read().unwrap(), read().unwrap());
        assert!(second.context_switches >= first.context_switches);
    }
}

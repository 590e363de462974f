// SPDX-License-Identifier: GPL-2.0-only
//! The lab's clocks.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Which clock a lab runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Clock {
    /// Counted instructions: identical from run to run, but no measure of throughput.
    Exact,
    /// Real time.
    Real,
}

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Clock::Exact => "exact",
            Clock::Real => "real",
        })
    }
}

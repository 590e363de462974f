// SPDX-License-Identifier: GPL-2.0-only
//! The time that the policy's functions take.

use std::time::Instant;

/// Time spent in the policy.
#[derive(Debug, Clone, Copy, Default)]
pub struct Meter {
    pub(crate) ns: u64,
    pub(crate) calls: u64,
}

impl Meter {
    /// One call of it began then and ends now.
    pub fn add(&mut self, begun: Instant) {
        self.ns += begun.elapsed().as_nanos() as u64;
        self.calls += 1;
    }
}

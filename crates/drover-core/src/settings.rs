// SPDX-License-Identifier: GPL-2.0-only
//! What is asked of the scheduler for a VM or a pool, in the units the kernel takes.
//!
//! A pCPU is 1000 mcpu (thousandths of a pCPU); operators write percent of a pCPU, 10 mcpu each.

use crate::shares::Shares;
use crate::words::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How the vCPUs of a VM are kept moving together. The numbers are those of `enum cosched_mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[repr(u32)]
pub enum Cosched {
    /// As the VM needs it, found out while it runs.
    #[default]
    Auto = 0,
    /// Not at all.
    Off = 1,
    /// All stop when one lags, and start only all together.
    Strict = 2,
    /// As strict, but only those that lag must start together (ESX 3).
    Relaxed = 3,
    /// Only the vCPU too far ahead stops, alone (ESX 4).
    Skew = 4,
    /// All run and pause together.
    Gang = 5,
}

impl Cosched {
    /// The words for them.
    pub const WORDS: [(&'static str, Cosched); 6] = [
        ("auto", Cosched::Auto),
        ("off", Cosched::Off),
        ("strict", Cosched::Strict),
        ("relaxed", Cosched::Relaxed),
        ("skew", Cosched::Skew),
        ("gang", Cosched::Gang),
    ];

    /// Whether a VM in that mode may rather wait beside an idle pCPU than run in part.
    pub fn may_wait(self) -> bool {
        matches!(self, Self::Strict | Self::Relaxed | Self::Skew | Self::Gang)
    }
}

words!(Cosched);

/// A pool, by its place in the kernel's table; 0 is the root.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize,
)]
pub struct PoolId(pub u32);

impl PoolId {
    /// The pool all others are in.
    pub const ROOT: Self = Self(0);
    /// How many pools there may be, the root included.
    pub const COUNT_MAX: u32 = 1024;
}

/// A partition, by its place in the kernel's table; 0 is `default`.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize,
)]
pub struct PartitionId(pub u32);

impl PartitionId {
    /// The one that is always there.
    pub const DEFAULT: Self = Self(0);
    /// How many there may be, `default` included.
    pub const COUNT_MAX: u32 = 64;
}

/// The most that each vCPU of a VM may have: what libvirt and nova set as a quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, PartialOrd, Ord, Serialize, Deserialize)]
pub struct VcpuLimit {
    /// Thousandths of a pCPU; 0: no limit.
    pub mcpu: u32,
    /// What it may save up beside 100 ms of that, us of CPU time.
    pub burst_us: u32,
}

/// Everything asked for a VM.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct VmSettings {
    /// Shares among its siblings.
    pub shares: Shares,
    /// CPU it is promised, thousandths of a pCPU.
    pub reservation_mcpu: u32,
    /// CPU it may have at most, thousandths of a pCPU, above 0; none: no limit.
    pub limit_mcpu: Option<u32>,
    /// With a limit, what it may save up beside 100 ms of that, us of CPU time.
    #[serde(default)]
    pub burst_us: u32,
    /// What each vCPU may have.
    #[serde(default)]
    pub vcpu_limit: VcpuLimit,
    /// Its pool.
    pub pool: PoolId,
    /// How its vCPUs are kept together.
    pub cosched: Cosched,
    /// The partition it runs in.
    pub partition: PartitionId,
}

/// Everything asked for a pool other than the root.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PoolSettings {
    /// The pool it is in.
    pub parent: PoolId,
    /// Shares among its siblings, above 0.
    pub shares: u32,
    /// CPU it is promised, thousandths of a pCPU.
    pub reservation_mcpu: u32,
    /// CPU it may have at most, thousandths of a pCPU, above 0; none: no limit.
    pub limit_mcpu: Option<u32>,
    /// With a limit, what may be saved up beside 100 ms of that, us of CPU time.
    #[serde(default)]
    pub burst_us: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_have_the_same_word_everywhere() {
        for (word, mode) in Cosched::WORDS {
            assert_eq!((word.parse(), mode.to_string()), (Ok(mode), word.to_owned()));
            assert_eq!(serde_json::to_string(&mode).unwrap(), format!("\"{word}\""));
        }
        assert!("maybe".parse::<Cosched>().unwrap_err().contains("auto, off, strict"));
    }
}

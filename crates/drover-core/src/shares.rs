// SPDX-License-Identifier: GPL-2.0-only
//! Shares as people give them: a number, or one of three words.
//!
//! The words grow with what has them: a VM of 4 vCPUs has 2000, 4000 or 8000, and so has a pool,
//! which counts as a VM of 4 vCPUs.

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;
use std::str::FromStr;

/// The most shares there are.
pub const SHARES_MAX: u32 = 1_000_000;
/// With this bit the policy is asked for so many shares for each vCPU that runs.
pub const PER_VCPU: u32 = 1 << 31;
/// A pool counts as a VM of this many vCPUs.
const POOL_VCPUS: u32 = 4;

/// Shares of a VM or a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Shares {
    /// So many for each vCPU.
    PerVcpu(u32),
    /// So many, whatever the size.
    Exact(u32),
}

impl Shares {
    /// Half of what is normal.
    pub const LOW: Shares = Shares::PerVcpu(500);
    /// What everyone has who did not ask for more or less.
    pub const NORMAL: Shares = Shares::PerVcpu(1000);
    /// Twice of what is normal.
    pub const HIGH: Shares = Shares::PerVcpu(2000);
    /// The words for them.
    pub const WORDS: [(&'static str, Shares); 3] =
        [("low", Self::LOW), ("normal", Self::NORMAL), ("high", Self::HIGH)];

    /// In numbers, for a VM of that size.
    pub fn of_vm(self, vcpus: u32) -> u32 {
        match self {
            Shares::PerVcpu(each) => each.saturating_mul(vcpus.max(1)).clamp(1, SHARES_MAX),
            Shares::Exact(shares) => shares,
        }
    }

    /// As the policy is asked for them (`shares_asked` in policy/base/types.h).
    pub fn word(self) -> u32 {
        match self {
            Shares::PerVcpu(each) => each | PER_VCPU,
            Shares::Exact(shares) => shares,
        }
    }

    /// In numbers, for a pool.
    pub fn of_pool(self) -> u32 {
        self.of_vm(POOL_VCPUS)
    }
}

impl Default for Shares {
    fn default() -> Self {
        Self::NORMAL
    }
}

impl fmt::Display for Shares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((word, _)) = Self::WORDS.iter().find(|(_, shares)| shares == self) {
            return f.write_str(word);
        }
        match self {
            Shares::PerVcpu(each) => write!(f, "{each}/vcpu"),
            Shares::Exact(shares) => write!(f, "{shares}"),
        }
    }
}

/// Text that is no shares.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("use 1 to {SHARES_MAX}, low, normal or high")]
pub struct NoShares;

impl FromStr for Shares {
    type Err = NoShares;

    fn from_str(text: &str) -> Result<Self, NoShares> {
        if let Some((_, shares)) = Self::WORDS.iter().find(|(word, _)| *word == text) {
            return Ok(*shares);
        }
        let (digits, per_vcpu) = match text.strip_suffix("/vcpu") {
            Some(digits) => (digits, true),
            None => (text, false),
        };
        match digits.parse() {
            Ok(number) if (1..=SHARES_MAX).contains(&number) => {
                Ok(if per_vcpu { Shares::PerVcpu(number) } else { Shares::Exact(number) })
            }
            _ => Err(NoShares),
        }
    }
}

impl From<Shares> for String {
    fn from(shares: Shares) -> Self {
        shares.to_string()
    }
}

impl TryFrom<String> for Shares {
    type Error = NoShares;

    fn try_from(text: String) -> Result<Self, NoShares> {
        text.parse()
    }
}

/// Shares as a file has them: a number or a word.
#[derive(Clone, Copy)]
pub struct GivenShares(pub Shares);

impl<'de> Deserialize<'de> for GivenShares {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NumberOrWord)
    }
}

struct NumberOrWord;

impl Visitor<'_> for NumberOrWord {
    type Value = GivenShares;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "give 1 to {SHARES_MAX}, or \"low\", \"normal\", \"high\"")
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<GivenShares, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<GivenShares, E> {
        let invalid = |_| E::invalid_value(Unexpected::Str(text), &self);
        text.parse().map(GivenShares).map_err(invalid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_grow_with_the_vm_and_numbers_do_not() {
        let of = |text: &str| text.parse::<Shares>().unwrap();
        assert_eq!([of("low"), of("normal"), of("high")].map(|it| it.of_vm(2)), [1000, 2000, 4000]);
        assert_eq!([of("low"), of("normal"), of("high")].map(Shares::of_pool), [2000, 4000, 8000]);
        assert_eq!((of("700").of_vm(1), of("700").of_vm(8), of("700").of_pool()), (700, 700, 700));
        assert_eq!(of("300/vcpu").of_vm(3), 900);
        assert_eq!(Shares::HIGH.of_vm(100_000), SHARES_MAX);
    }

    #[test]
    fn text_goes_there_and_back() {
        for text in ["low", "normal", "high", "1", "1000000", "250/vcpu"] {
            assert_eq!(text.parse::<Shares>().unwrap().to_string(), text);
        }
        for text in ["", "0", "-1", "1000001", "many", "1e3", "0/vcpu", "/vcpu"] {
            assert_eq!(text.parse::<Shares>(), Err(NoShares), "{text}");
        }
    }
}

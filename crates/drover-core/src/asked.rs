// SPDX-License-Identifier: GPL-2.0-only
//! What somebody asks for a VM: up to six values, all optional.

use crate::percent;
use crate::settings::Cosched;
use crate::shares::Shares;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The word for no pool at all.
pub const HOST: &str = "host";
/// The word for a value that is for other sources to say again.
pub const DEFAULT: &str = "default";
/// Words that cannot name a pool, and what they mean.
pub const NO_POOLS: [(&str, &str); 2] = [(HOST, "no pool"), (DEFAULT, "no order")];

/// One of the values that can be asked for.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Key {
    /// Weight among siblings.
    Shares,
    /// Guaranteed CPU.
    Reservation,
    /// The most CPU.
    Limit,
    /// The pool it is in.
    Pool,
    /// How vCPUs are kept together.
    Cosched,
    /// The partition it runs in.
    Partition,
}

impl Key {
    /// All of them.
    pub const ALL: [Key; 6] =
        [Key::Shares, Key::Reservation, Key::Limit, Key::Pool, Key::Cosched, Key::Partition];

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Key::Shares => "shares",
            Key::Reservation => "reservation",
            Key::Limit => "limit",
            Key::Pool => "pool",
            Key::Cosched => "cosched",
            Key::Partition => "partition",
        }
    }
}

/// A limit, or that there is to be none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Limit {
    /// None.
    Open,
    /// Thousandths of a pCPU, above 0.
    At(u32),
}

impl Limit {
    /// Thousandths of a pCPU; none: no limit.
    pub fn mcpu(self) -> Option<u32> {
        match self {
            Limit::Open => None,
            Limit::At(mcpu) => Some(mcpu),
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Limit::Open => f.write_str("none"),
            Limit::At(mcpu) => f.write_str(&percent::text(*mcpu)),
        }
    }
}

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Limit::Open),
            _ => match percent::parse(text) {
                Ok(0) => Err("use more than 0%, or none".to_owned()),
                Ok(mcpu) => Ok(Limit::At(mcpu)),
                Err(fix) => Err(format!("{fix}, or none")),
            },
        }
    }
}

impl From<Limit> for String {
    fn from(limit: Limit) -> Self {
        limit.to_string()
    }
}

impl TryFrom<String> for Limit {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// What is asked; what is none is left to others.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    /// Weight among siblings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shares: Option<Shares>,
    /// Guaranteed CPU, thousandths of a pCPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation_mcpu: Option<u32>,
    /// The most CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// What is saved up beside 100 ms of the limit, us of CPU time: only cgroups say so.
    #[serde(skip)]
    pub burst_us: u32,
    /// The pool it is in, or `host` for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// How vCPUs are kept together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cosched: Option<Cosched>,
    /// The partition it runs in, or `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
}

impl Asked {
    /// The value as people write it; none where it is left unsaid.
    pub fn text(&self, key: Key) -> Option<String> {
        match key {
            Key::Shares => self.shares.map(|shares| shares.to_string()),
            Key::Reservation => self.reservation_mcpu.map(percent::text),
            Key::Limit => self.limit.map(|limit| limit.to_string()),
            Key::Pool => self.pool.clone(),
            Key::Cosched => self.cosched.map(|cosched| cosched.to_string()),
            Key::Partition => self.partition.clone(),
        }
    }

    /// Takes a value from what people write.
    ///
    /// # Errors
    /// When it is none, with what to give.
    pub fn read(&mut self, key: Key, text: &str) -> Result<(), String> {
        match key {
            Key::Shares => {
                self.shares = Some(text.parse().map_err(|error| format!("{error}"))?);
            }
            Key::Reservation => self.reservation_mcpu = Some(percent::parse(text)?),
            Key::Limit => self.limit = Some(text.parse()?),
            Key::Pool => {
                if !crate::tree::is_plain_name(text) {
                    return Err(format!("use the name of a pool, or {HOST}"));
                }
                self.pool = Some(text.to_owned());
            }
            Key::Cosched => self.cosched = Some(text.parse()?),
            Key::Partition => {
                if !crate::tree::is_plain_name(text) {
                    return Err("use the name of a partition".to_owned());
                }
                self.partition = Some(text.to_owned());
            }
        }
        Ok(())
    }

    /// Leaves a value unsaid.
    pub fn clear(&mut self, key: Key) {
        match key {
            Key::Shares => self.shares = None,
            Key::Reservation => self.reservation_mcpu = None,
            Key::Limit => self.limit = None,
            Key::Pool => self.pool = None,
            Key::Cosched => self.cosched = None,
            Key::Partition => self.partition = None,
        }
    }

    /// This, and where it says nothing what `lower` says.
    #[must_use]
    pub fn over(&self, lower: &Asked) -> Asked {
        Asked {
            shares: self.shares.or(lower.shares),
            reservation_mcpu: self.reservation_mcpu.or(lower.reservation_mcpu),
            limit: self.limit.or(lower.limit),
            burst_us: if self.limit.is_some() { self.burst_us } else { lower.burst_us },
            pool: self.pool.clone().or_else(|| lower.pool.clone()),
            cosched: self.cosched.or(lower.cosched),
            partition: self.partition.clone().or_else(|| lower.partition.clone()),
        }
    }

    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_goes_with_its_limit() {
        let cgroup = Asked { limit: Some(Limit::At(500)), burst_us: 7, ..Asked::default() };
        let order = Asked { limit: Some(Limit::At(700)), ..Asked::default() };
        assert_eq!(Asked::default().over(&cgroup).burst_us, 7);
        assert_eq!(order.over(&cgroup).burst_us, 0);
    }

    #[test]
    fn every_value_goes_there_and_back() {
        let mut asked = Asked::default();
        for (key, text) in [
            (Key::Shares, "high"),
            (Key::Reservation, "150%"),
            (Key::Limit, "none"),
            (Key::Pool, "prod"),
            (Key::Cosched, "gang"),
            (Key::Partition, "io"),
        ] {
            assert_eq!(asked.text(key), None);
            asked.read(key, text).unwrap();
            assert_eq!(asked.text(key).as_deref(), Some(text));
        }
        let json = serde_json::to_string(&asked).unwrap();
        assert_eq!(serde_json::from_str::<Asked>(&json).unwrap(), asked);
        Key::ALL.into_iter().for_each(|key| asked.clear(key));
        assert!(asked.is_empty() && serde_json::to_string(&asked).unwrap() == "{}");
    }

    #[test]
    fn what_is_no_value_is_refused_with_the_mend() {
        for (key, text, fix) in [
            (Key::Shares, "0", "1 to 1000000, low, normal or high"),
            (Key::Reservation, "2", "150%"),
            (Key::Limit, "0%", "more than 0%"),
            (Key::Limit, "much", "or none"),
            (Key::Pool, "a/b", "name of a pool, or host"),
            (Key::Cosched, "yes", "auto, off"),
            (Key::Partition, "", "name of a partition"),
        ] {
            let said = Asked::default().read(key, text).unwrap_err();
            assert!(said.contains(fix), "{text}: {said}");
        }
    }

    #[test]
    fn what_is_said_goes_over_what_was_said_before() {
        let limit = Some(Limit::Open);
        let lower =
            Asked { limit: Some(Limit::At(5)), shares: Some(Shares::LOW), ..Asked::default() };
        let both = Asked { limit, ..Asked::default() }.over(&lower);
        assert_eq!((both.limit, both.shares), (limit, Some(Shares::LOW)));
    }
}

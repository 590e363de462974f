// SPDX-License-Identifier: GPL-2.0-only
//! What somebody asks for a VM: up to eight values, all optional.

use crate::percent;
use crate::settings::{Cosched, VcpuLimit};
use crate::shares::Shares;
use crate::words::words;
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
#[serde(rename_all = "snake_case")]
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
    /// The most vCPUs on a NUMA node.
    MaxPerNode,
    /// Whether it is to live in one last-level cache.
    Consolidate,
}

impl Key {
    /// All of them.
    pub const ALL: [Key; 8] = [
        Key::Shares,
        Key::Reservation,
        Key::Limit,
        Key::Pool,
        Key::Cosched,
        Key::Partition,
        Key::MaxPerNode,
        Key::Consolidate,
    ];

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Key::Shares => "shares",
            Key::Reservation => "reservation",
            Key::Limit => "limit",
            Key::Pool => "pool",
            Key::Cosched => "cosched",
            Key::Partition => "partition",
            Key::MaxPerNode => "max_per_node",
            Key::Consolidate => "consolidate",
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

/// At most so many vCPUs on a NUMA node, or as many as it has cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum MaxPerNode {
    /// As many as there are cores.
    Open,
    /// So many, above 0.
    At(u32),
}

impl MaxPerNode {
    /// How many; none: as many as there are cores.
    pub fn vcpus(self) -> Option<u32> {
        match self {
            MaxPerNode::Open => None,
            MaxPerNode::At(vcpus) => Some(vcpus),
        }
    }
}

impl fmt::Display for MaxPerNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MaxPerNode::Open => f.write_str("none"),
            MaxPerNode::At(vcpus) => vcpus.fmt(f),
        }
    }
}

impl FromStr for MaxPerNode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(vcpus) if vcpus > 0 => Ok(MaxPerNode::At(vcpus)),
            _ if text == "none" => Ok(MaxPerNode::Open),
            _ => Err("use a number of vCPUs, 1 or more, or none".to_owned()),
        }
    }
}

impl From<MaxPerNode> for String {
    fn from(most: MaxPerNode) -> Self {
        most.to_string()
    }
}

impl TryFrom<String> for MaxPerNode {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// Whether a VM is to live in one last-level cache (LLC) of its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Consolidate {
    /// In all of its node's.
    Off,
    /// In one, if it fits.
    On,
    /// While its threads, or another VM, wake it often and it gains by it.
    #[default]
    Auto,
}

impl Consolidate {
    /// The words for them.
    pub const WORDS: [(&'static str, Consolidate); 3] =
        [("off", Self::Off), ("on", Self::On), ("auto", Self::Auto)];
}

words!(Consolidate);

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
    /// With a limit, what each vCPU may have: only cgroups say so.
    #[serde(skip)]
    pub vcpu_limit: VcpuLimit,
    /// The pool it is in, or `host` for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// How vCPUs are kept together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cosched: Option<Cosched>,
    /// The partition it runs in, or `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    /// The most vCPUs of it on a NUMA node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_per_node: Option<MaxPerNode>,
    /// Whether it is to live in one last-level cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consolidate: Option<Consolidate>,
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
            Key::MaxPerNode => self.max_per_node.map(|most| most.to_string()),
            Key::Consolidate => self.consolidate.map(|it| it.to_string()),
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
                if !crate::names::is_plain_name(text) {
                    return Err(format!("use the name of a pool, or {HOST}"));
                }
                self.pool = Some(text.to_owned());
            }
            Key::Cosched => self.cosched = Some(text.parse()?),
            Key::Partition => {
                if !crate::names::is_plain_name(text) {
                    return Err("use the name of a partition".to_owned());
                }
                self.partition = Some(text.to_owned());
            }
            Key::MaxPerNode => self.max_per_node = Some(text.parse()?),
            Key::Consolidate => self.consolidate = Some(text.parse()?),
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
            Key::MaxPerNode => self.max_per_node = None,
            Key::Consolidate => self.consolidate = None,
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
            vcpu_limit: if self.limit.is_some() { self.vcpu_limit } else { lower.vcpu_limit },
            pool: self.pool.clone().or_else(|| lower.pool.clone()),
            cosched: self.cosched.or(lower.cosched),
            partition: self.partition.clone().or_else(|| lower.partition.clone()),
            max_per_node: self.max_per_node.or(lower.max_per_node),
            consolidate: self.consolidate.or(lower.consolidate),
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
    fn a_burst_and_what_a_vcpu_may_have_go_with_the_limit() {
        let vcpu_limit = VcpuLimit { mcpu: 250, burst_us: 0 };
        let cgroup =
            Asked { limit: Some(Limit::At(500)), burst_us: 7, vcpu_limit, ..Asked::default() };
        let order = Asked { limit: Some(Limit::At(700)), ..Asked::default() };
        assert_eq!(Asked::default().over(&cgroup).burst_us, 7);
        assert_eq!(order.over(&cgroup).burst_us, 0);
        assert_eq!(Asked::default().over(&cgroup).vcpu_limit, vcpu_limit);
        assert_eq!(order.over(&cgroup).vcpu_limit, VcpuLimit::default());
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
            (Key::MaxPerNode, "2"),
            (Key::Consolidate, "on"),
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
            (Key::MaxPerNode, "0", "1 or more, or none"),
            (Key::Consolidate, "yes", "off, on, auto"),
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

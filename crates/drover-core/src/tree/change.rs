// SPDX-License-Identifier: GPL-2.0-only
//! What somebody asks of a pool: any of its values, each of which may be left as it is.

use super::PoolSpec;
use crate::asked::{HOST, Limit};
use crate::settings::Cosched;
use crate::shares::Shares;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is to change; what is none stays.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolChange {
    /// The pool it is in, or `host` for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Weight among its siblings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shares: Option<Shares>,
    /// Guaranteed to it, thousandths of a pCPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation_mcpu: Option<u32>,
    /// The most it may have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// Whether it may take reservations from its parent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expandable: Option<bool>,
    /// How vCPUs of VMs in it are kept together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cosched: Option<Cosched>,
}

impl PoolChange {
    /// The pool with what is to change.
    pub fn of(&self, spec: &PoolSpec) -> PoolSpec {
        let parent = match self.parent.as_deref() {
            None => spec.parent.clone(),
            Some(HOST) => None,
            Some(name) => Some(name.to_owned()),
        };
        PoolSpec {
            name: spec.name.clone(),
            parent,
            shares: self.shares.unwrap_or(spec.shares),
            reservation_mcpu: self.reservation_mcpu.unwrap_or(spec.reservation_mcpu),
            limit_mcpu: self.limit.map_or(spec.limit_mcpu, Limit::mcpu),
            burst_us: if self.limit.is_some() { 0 } else { spec.burst_us },
            expandable: self.expandable.unwrap_or(spec.expandable),
            cosched: self.cosched.or(spec.cosched),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_said_stays() {
        let spec = PoolSpec { parent: Some("a".to_owned()), ..PoolSpec::named("b") };
        assert_eq!(PoolChange::default().of(&spec), spec);
        let limit = Some(Limit::At(500));
        let parent = Some(HOST.to_owned());
        let changed = PoolChange { limit, parent, ..PoolChange::default() }.of(&spec);
        assert_eq!((changed.limit_mcpu, changed.parent.as_deref()), (Some(500), None));
        let open = PoolChange { limit: Some(Limit::Open), ..PoolChange::default() }.of(&changed);
        assert_eq!(open.limit_mcpu, None);
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! `drover undo`: an order is taken back by what stood in its place before.
//!
//! That is kept with what was ordered, so it outlives the daemon. It is brought back as an order would be: what does
//! not fit the host any more is refused.

use crate::control::Request;
use crate::orders::Ground;
use crate::saved::{Before, Saved};
use anyhow::Result;
use drover_core::asked::{Asked, Key};
use drover_core::partition::PartitionChange;
use drover_core::sets::SetSpec;
use drover_core::tree::PoolChange;

impl Before {
    /// What stands in the place of that order now; none: it is no order that can be taken back.
    pub fn of(order: &Request, saved: &Saved) -> Option<Self> {
        Some(match order {
            Request::SetVm { name, .. } | Request::ForgetVm { name } => {
                let [ordered, live] =
                    [&saved.vms, &saved.live].map(|vms| vms.get(name).cloned().unwrap_or_default());
                Self::Vm { name: name.clone(), ordered, live }
            }
            Request::SetVmLive { name, .. } => {
                let live = saved.live.get(name).cloned().unwrap_or_default();
                Self::LiveVm { name: name.clone(), live }
            }
            Request::AddPool { name: pool, .. }
            | Request::SetPool { name: pool, .. }
            | Request::RemovePool { name: pool } => {
                let ordered = saved.pools.iter().find(|it| it.name == *pool).cloned();
                Self::Pool { name: pool.clone(), ordered }
            }
            Request::AddPartition { name: partition, .. }
            | Request::SetPartition { name: partition, .. }
            | Request::RemovePartition { name: partition } => {
                let ordered = saved.partitions.iter().find(|it| it.name == *partition).cloned();
                Self::Partition { name: partition.clone(), ordered }
            }
            Request::AddSet { set: SetSpec { name: set, .. } }
            | Request::RemoveSet { name: set } => {
                let ordered = saved.sets.iter().find(|it| it.name == *set).cloned();
                Self::Set { name: set.clone(), ordered }
            }
            Request::SetAutoPartitions { .. } => Self::AutoPartitions { on: saved.auto_partitions },
            _ => return None,
        })
    }

    /// Of whom it is, as people are told it.
    pub fn whose(&self) -> String {
        match self {
            Self::Vm { name, .. } => format!("VM {name}"),
            Self::LiveVm { name, .. } => format!("VM {name}, for as long as it runs"),
            Self::Pool { name, .. } => format!("pool {name}"),
            Self::Partition { name, .. } => format!("partition {name}"),
            Self::Set { name, .. } => format!("set {name}"),
            Self::AutoPartitions { .. } => "partition auto".to_owned(),
        }
    }

    /// The order by which it is brought back, or is judged.
    pub fn as_order(&self) -> Request {
        let values = |name: &String, asked: &Asked| {
            let is_unsaid = |key: &Key| asked.text(*key).is_none();
            let reset = Key::ALL.into_iter().filter(is_unsaid).collect();
            (name.clone(), asked.clone(), reset)
        };
        match self.clone() {
            Self::Vm { name, ordered, .. } => {
                let (name, set, reset) = values(&name, &ordered);
                Request::SetVm { name, set, reset }
            }
            Self::LiveVm { name, live } => {
                let (name, set, reset) = values(&name, &live);
                Request::SetVmLive { name, set, reset }
            }
            Self::Pool { name, ordered: Some(_) } => {
                Request::SetPool { name, change: PoolChange::default() }
            }
            Self::Pool { name, ordered: None } => Request::RemovePool { name },
            Self::Partition { name, ordered: Some(_) } => {
                Request::SetPartition { name, change: PartitionChange::default() }
            }
            Self::Partition { name, ordered: None } => Request::RemovePartition { name },
            Self::Set { ordered: Some(set), .. } => Request::AddSet { set },
            Self::Set { name, ordered: None } => Request::RemoveSet { name },
            Self::AutoPartitions { on } => Request::SetAutoPartitions { on },
        }
    }
}

impl Ground<'_> {
    /// What stood in the place of an order, instead of that.
    ///
    /// # Errors
    /// When that cannot be any more.
    pub fn bring_back(&self, before: &Before) -> Result<Saved> {
        let mut saved = self.saved.clone();
        match before {
            Before::Pool { name, ordered: Some(spec) } => {
                put(&mut saved.pools, spec, |it| it.name == *name);
            }
            Before::Partition { name, ordered: Some(spec) } => {
                put(&mut saved.partitions, spec, |it| it.name == *name);
                self.check_partition(&saved, name)?;
            }
            Before::Vm { name, live, .. } => {
                saved = self.order(&before.as_order())?;
                saved.set_live(name, live.clone());
            }
            _ => saved = self.order(&before.as_order())?,
        }
        Ok(saved)
    }
}

/// Puts it in the place of that one, or after all.
fn put<T: Clone>(specs: &mut Vec<T>, spec: &T, is_it: impl Fn(&T) -> bool) {
    match specs.iter_mut().find(|it| is_it(it)) {
        Some(it) => *it = spec.clone(),
        None => specs.push(spec.clone()),
    }
}

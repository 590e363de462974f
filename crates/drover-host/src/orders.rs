// SPDX-License-Identifier: GPL-2.0-only
//! What an order makes of what was ordered before: pure, and refused where it makes no sense by itself.
//!
//! Whether it fits the host is for the plan to say.

use crate::herd::Herd;
use crate::plan::Plan;
use crate::store::Saved;
use anyhow::{Result, bail, ensure};
use drover_core::asked::{Asked, HOST, Key, NO_POOLS};
use drover_core::config::Config;
use drover_core::tree::{PoolChange, PoolSpec};

/// How people are told that a value came from an order.
pub const VM_ORIGIN: &str = "drover vm set";
/// The same for pools.
pub const POOL_ORIGIN: &str = "drover pool";

/// Everything an order is measured by.
#[derive(Clone, Copy)]
pub struct Ground<'a> {
    /// What was ordered before.
    pub saved: &'a Saved,
    /// What the host's configuration says.
    pub config: &'a Config,
    /// What is in force.
    pub plan: &'a Plan,
    /// Who is here.
    pub herd: &'a Herd,
}

impl Ground<'_> {
    /// Other things asked for a VM: one that is here, or one that something was ordered for.
    ///
    /// # Errors
    /// When there is no such VM, or no such pool.
    pub fn set_vm(&self, name: &str, set: &Asked, reset: &[Key]) -> Result<Saved> {
        let here = self.herd.find(name).map_err(anyhow::Error::msg)?.is_some();
        ensure!(
            here || self.saved.vms.contains_key(name),
            "no VM named {name:?} runs here; `drover vm list` shows who does"
        );
        if let Some(pool) = set.pool.as_deref().filter(|pool| *pool != HOST) {
            self.find_pool(pool)?;
        }
        let mut saved = self.saved.clone();
        let mut asked = saved.vms.remove(name).unwrap_or_default();
        reset.iter().for_each(|key| asked.clear(*key));
        let asked = set.over(&asked);
        if !asked.is_empty() {
            saved.vms.insert(name.to_owned(), asked);
        }
        Ok(saved)
    }

    /// A new pool.
    ///
    /// # Errors
    /// When there is one of that name.
    pub fn add_pool(&self, name: &str, change: &PoolChange) -> Result<Saved> {
        for (word, meaning) in NO_POOLS {
            ensure!(name != word, "{word:?} is the word for {meaning}; choose another name");
        }
        ensure!(
            self.plan.tree.find(name).is_none(),
            "there is a pool {name:?}; change it with `drover pool set {name}`"
        );
        let mut saved = self.saved.clone();
        saved.pools.push(change.of(&PoolSpec::named(name)));
        Ok(saved)
    }

    /// Another shape for a pool.
    ///
    /// # Errors
    /// When there is none of that name.
    pub fn set_pool(&self, name: &str, change: &PoolChange) -> Result<Saved> {
        let index = self.find_pool(name)?;
        let spec = change.of(&self.plan.tree.pools()[index].spec);
        let mut saved = self.saved.clone();
        match saved.pools.iter_mut().find(|pool| pool.name == name) {
            Some(pool) => *pool = spec,
            None => saved.pools.push(spec),
        }
        Ok(saved)
    }

    /// A pool less, or what the configuration says of it.
    ///
    /// # Errors
    /// When it is not there, not ordered, or somebody is in it.
    pub fn remove_pool(&self, name: &str) -> Result<Saved> {
        let index = self.find_pool(name)?;
        let mut saved = self.saved.clone();
        saved.pools.retain(|pool| pool.name != name);
        if let Some((_, place)) = self.config.pools().find(|(spec, _)| spec.name == name) {
            ensure!(
                saved.pools.len() < self.saved.pools.len(),
                "pool {name:?} is made by {place}; remove it there"
            );
            return Ok(saved);
        }
        let pools = self.plan.tree.pools();
        let inside = pools.iter().filter(|pool| pool.parent == Some(index));
        let mut inside: Vec<String> =
            inside.map(|pool| format!("pool {}", pool.spec.name)).collect();
        let vms = self.plan.vms.iter().filter(|vm| vm.resolved.pool == Some(index));
        inside.extend(vms.map(|vm| format!("VM {}", vm.name)));
        let absent = self.saved.vms.iter().filter(|(vm, asked)| {
            asked.pool.as_deref() == Some(name) && matches!(self.herd.find(vm), Ok(None))
        });
        inside.extend(absent.map(|(vm, _)| format!("VM {vm}, which does not run")));
        if !inside.is_empty() {
            let mend = "move them first, as in `drover vm set NAME --pool host`";
            bail!("pool {name:?} is not empty ({}); {mend}", inside.join("; "));
        }
        Ok(saved)
    }

    fn find_pool(&self, name: &str) -> Result<usize> {
        self.plan.tree.find(name).ok_or_else(|| {
            let pools = self.plan.tree.pools();
            let known: Vec<&str> = pools.iter().map(|pool| pool.spec.name.as_str()).collect();
            match known.is_empty() {
                true => {
                    anyhow::anyhow!("there is no pool {name:?}; make it with `drover pool add`")
                }
                false => {
                    anyhow::anyhow!("there is no pool {name:?}; known are {}", known.join(", "))
                }
            }
        })
    }
}

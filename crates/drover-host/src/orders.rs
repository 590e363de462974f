// SPDX-License-Identifier: GPL-2.0-only
//! What an order makes of what was ordered before: pure, and refused where it makes no sense by itself.
//!
//! Whether it fits the host is for the plan to say.

use crate::control::Request;
use crate::names::{NAME_LENGTH_MAX, is_name};
use crate::plan::Plan;
use crate::registry::VmRegistry;
use crate::saved::{Saved, merged_partitions, merged_sets};
use anyhow::{Result, bail, ensure};
use drover_core::arrange::is_ours;
use drover_core::asked::{Asked, DEFAULT, HOST, Key, NO_POOLS};
use drover_core::config::Config;
use drover_core::cpu_list::CpuList;
use drover_core::nearest::there_is_no;
use drover_core::partition::{PartitionChange, PartitionSpec};
use drover_core::sets::{Room, SetSpec};
use drover_core::tree::{PoolChange, PoolSpec};

/// How people are told that a value came from an order.
pub const VM_ORIGIN: &str = "drover vm set";
/// The same for as long as the VM runs.
pub const LIVE_ORIGIN: &str = "drover vm set --live";
/// The same for pools.
pub const POOL_ORIGIN: &str = "drover pool";
/// The same for sets.
pub const SET_ORIGIN: &str = "drover set";
/// The same for pools that hold a limit of several VMs that have one name.
pub const NAME_ORIGIN: &str = "a limit of that name";

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
    pub registry: &'a VmRegistry,
    /// The pCPUs that are online.
    pub online: &'a CpuList,
    /// How many homes there are.
    pub room: Room,
}

impl Ground<'_> {
    /// What is ordered when that order has been followed.
    ///
    /// # Errors
    /// When the order makes no sense, or the request is not an order.
    pub fn order(&self, order: &Request) -> Result<Saved> {
        match order {
            Request::SetVm { name, set, reset } => self.set_vm(name, set, reset),
            Request::SetVmLive { name, set, reset } => self.set_vm_live(name, set, reset),
            Request::ForgetVm { name } => self.forget_vm(name),
            Request::AddPool { name, change } => self.add_pool(name, change),
            Request::SetPool { name, change } => self.set_pool(name, change),
            Request::RemovePool { name } => self.remove_pool(name),
            Request::AddPartition { name, change } => self.add_partition(name, change),
            Request::SetPartition { name, change } => self.set_partition(name, change),
            Request::RemovePartition { name } => self.remove_partition(name),
            Request::SetAutoPartitions { on } => Ok(self.set_auto_partitions(*on)),
            Request::AddSet { set } => self.add_set(set),
            Request::RemoveSet { name } => self.remove_set(name),
            _ => bail!("that is no order"),
        }
    }

    /// Other things asked for a VM, or all of that name, which need not be here yet.
    ///
    /// # Errors
    /// When that name is a container's, or no name, or there is no such pool.
    pub fn set_vm(&self, name: &str, set: &Asked, reset: &[Key]) -> Result<Saved> {
        self.check_vm(name, set)?;
        let mut saved = self.saved.clone();
        let asked = changed(saved.vms.remove(name), set, reset);
        if !asked.is_empty() {
            saved.vms.insert(name.to_owned(), asked);
        }
        // It is the last word on these.
        let said = Key::ALL.into_iter().filter(|key| set.text(*key).is_some());
        let said: Vec<Key> = said.chain(reset.iter().copied()).collect();
        let live = changed(saved.live.remove(name), &Asked::default(), &said);
        saved.set_live(name, live);
        Ok(saved)
    }

    /// Other things asked for a VM for as long as it runs.
    ///
    /// # Errors
    /// As [`Self::set_vm`], and when it does not run.
    pub fn set_vm_live(&self, name: &str, set: &Asked, reset: &[Key]) -> Result<Saved> {
        let names = self.registry.names();
        ensure!(
            names.contains_key(name),
            "no VM {name} runs here, and --live is for one that does; leave it out, and the order is kept until its VM comes"
        );
        self.check_vm(name, set)?;
        let mut saved = self.saved.clone();
        let live = changed(saved.live.remove(name), set, reset);
        saved.set_live(name, live);
        Ok(saved)
    }

    /// Whether that can be asked for a VM of that name.
    fn check_vm(&self, name: &str, set: &Asked) -> Result<()> {
        ensure!(
            !self.registry.vms().iter().any(|vm| vm.name == name && vm.is_container()),
            "{name} is a container; set cpu.weight and cpu.max of its cgroup instead"
        );
        ensure!(
            is_name(name),
            "{name:?} is no name a VM can have; use 1 to {NAME_LENGTH_MAX} letters"
        );
        ensure!(
            !name.contains(['*', '?', '[']) || self.registry.vms().iter().any(|vm| vm.name == name),
            "{name:?} is a pattern, and orders are for one name; write a rule for it into drover.toml: [[vm]] name = {name:?}"
        );
        if let Some(pool) = set.pool.as_deref().filter(|pool| *pool != HOST) {
            self.find_pool(pool)?;
        }
        if let Some(partition) = set.partition.as_deref().filter(|name| *name != DEFAULT) {
            self.find_partition(partition)?;
        }
        Ok(())
    }

    /// Nothing asked for a VM any more.
    ///
    /// # Errors
    /// When nothing was.
    pub fn forget_vm(&self, name: &str) -> Result<Saved> {
        let mut saved = self.saved.clone();
        let was_ordered = [saved.vms.remove(name), saved.live.remove(name)];
        ensure!(
            was_ordered.iter().any(Option::is_some),
            "nothing was ordered for a VM {name:?}; `drover vm orders` shows for whom something was"
        );
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
        let here = self.registry.names();
        let absent = self.saved.vms.iter().filter(|(vm, asked)| {
            asked.pool.as_deref() == Some(name) && !here.contains_key(vm.as_str())
        });
        inside.extend(absent.map(|(vm, _)| format!("VM {vm}, which does not run")));
        if !inside.is_empty() {
            let fix = "move them first, as in `drover vm set NAME --pool host`";
            bail!("pool {name:?} is not empty ({}); {fix}", inside.join("; "));
        }
        Ok(saved)
    }

    /// A new partition.
    ///
    /// # Errors
    /// When it has no pCPUs, or cannot have them, or there is one of that name.
    pub fn add_partition(&self, name: &str, change: &PartitionChange) -> Result<Saved> {
        ensure!(
            self.plan.partitions.find(name).is_none(),
            "there is a partition {name:?}; change it with `drover partition set {name}`"
        );
        let Some(cpus) = change.cpus.clone() else {
            bail!("partition {name:?} has no pCPUs; give it some, such as `--cpus 0-1`");
        };
        let (policy, slice_ns) = (change.policy.unwrap_or_default(), change.slice_ns);
        let mut saved = self.saved.clone();
        saved.partitions.push(PartitionSpec { name: name.to_owned(), cpus, policy, slice_ns });
        self.check_partition(&saved, name)?;
        Ok(saved)
    }

    /// Another shape for a partition.
    ///
    /// # Errors
    /// When there is none of that name, or it cannot have these pCPUs.
    pub fn set_partition(&self, name: &str, change: &PartitionChange) -> Result<Saved> {
        let index = self.find_partition(name)?;
        let spec = change.of(&self.plan.partitions.specs()[index]);
        let mut saved = self.saved.clone();
        match saved.partitions.iter_mut().find(|it| it.name == name) {
            Some(it) => *it = spec,
            None => saved.partitions.push(spec),
        }
        if change.cpus.is_some() {
            // One that it has may be offline now, and stays.
            self.check_partition(&saved, name)?;
        }
        Ok(saved)
    }

    pub(crate) fn check_partition(&self, saved: &Saved, name: &str) -> Result<()> {
        let partitions = merged_partitions(self.config.partitions().map(|(spec, _)| spec), saved)?;
        let index = partitions.find(name).expect("it was ordered just now");
        Ok(partitions.check(index, self.online)?)
    }

    /// A partition less: its pCPUs are those of `default` again.
    ///
    /// # Errors
    /// When it is not there, or somebody is in it.
    pub fn remove_partition(&self, name: &str) -> Result<Saved> {
        let index = self.find_partition(name)?;
        let mut saved = self.saved.clone();
        saved.partitions.retain(|it| it.name != name);
        if let Some((_, place)) = self.config.partitions().find(|(spec, _)| spec.name == name) {
            ensure!(
                saved.partitions.len() < self.saved.partitions.len(),
                "partition {name:?} is made by {place}; remove it there"
            );
            return Ok(saved);
        }
        let vms = self.plan.vms.iter().filter(|vm| vm.resolved.partition == Some(index));
        let mut inside: Vec<String> = vms.map(|vm| format!("VM {}", vm.name)).collect();
        let here = self.registry.names();
        let is_absent = |vm: &str| !here.contains_key(vm);
        for (vm, asked) in saved.vms.iter_mut().filter(|(vm, _)| is_absent(vm)) {
            match asked.partition.as_deref() == Some(name) {
                // `partition auto` put it there: nobody would miss that.
                true if is_ours(name) => asked.clear(Key::Partition),
                true => inside.push(format!("VM {vm}, which does not run")),
                false => {}
            }
        }
        saved.vms.retain(|_, asked| !asked.is_empty());
        if !inside.is_empty() {
            let fix = "move them first, as in `drover vm set NAME --partition default`";
            bail!("partition {name:?} is not empty ({}); {fix}", inside.join("; "));
        }
        Ok(saved)
    }

    /// Partitions are arranged by what VMs do, or no longer: those that are there stay.
    pub fn set_auto_partitions(&self, on: bool) -> Saved {
        let mut saved = self.saved.clone();
        saved.auto_partitions = on;
        saved
    }

    /// A new set.
    ///
    /// # Errors
    /// When there is one of that name, it cannot stand beside the others, or this host is too small for it.
    pub fn add_set(&self, set: &SetSpec) -> Result<Saved> {
        let name = &set.name;
        ensure!(
            !self.saved.sets.iter().any(|it| it.name == *name),
            "there is a set {name:?}; remove it with `drover set remove {name}` first"
        );
        if let Some((_, place)) = self.config.sets().find(|(it, _)| it.name == *name) {
            bail!("set {name:?} is made by {place}; change it there");
        }
        let mut saved = self.saved.clone();
        saved.sets.push(set.clone());
        merged_sets(self.config.sets().map(|(it, _)| it), &saved)?;
        set.check(self.room)?;
        Ok(saved)
    }

    /// A set less.
    ///
    /// # Errors
    /// When it is not there, or not ordered.
    pub fn remove_set(&self, name: &str) -> Result<Saved> {
        let mut saved = self.saved.clone();
        saved.sets.retain(|set| set.name != name);
        if saved.sets.len() < self.saved.sets.len() {
            return Ok(saved);
        }
        if let Some((_, place)) = self.config.sets().find(|(set, _)| set.name == name) {
            bail!("set {name:?} is made by {place}; remove it there");
        }
        bail!(there_is_no("set", name, self.saved.sets.iter().map(|set| set.name.as_str())))
    }

    fn find_partition(&self, name: &str) -> Result<usize> {
        ensure!(
            name != DEFAULT,
            "partition {name:?} has the pCPUs that no other one has, and is `share`; change those"
        );
        self.plan.partitions.find(name).ok_or_else(|| {
            let (what, fix) = self.plan.partitions.unknown(name);
            anyhow::anyhow!("{what}; {fix}")
        })
    }

    fn find_pool(&self, name: &str) -> Result<usize> {
        let names = self.plan.tree.pools().iter().map(|pool| pool.spec.name.as_str());
        let found = self.plan.tree.find(name);
        found.ok_or_else(|| anyhow::anyhow!(there_is_no("pool", name, names)))
    }
}

/// What is asked with what is asked now, and without what is asked no more.
fn changed(before: Option<Asked>, set: &Asked, reset: &[Key]) -> Asked {
    let mut asked = before.unwrap_or_default();
    reset.iter().for_each(|key| asked.clear(*key));
    set.over(&asked)
}

impl Saved {
    /// What is asked for a VM for as long as it runs.
    pub(crate) fn set_live(&mut self, name: &str, asked: Asked) {
        match asked.is_empty() {
            true => self.live.remove(name),
            false => self.live.insert(name.to_owned(), asked),
        };
    }
}

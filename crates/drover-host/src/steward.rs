// SPDX-License-Identifier: GPL-2.0-only
//! Brings what is asked into force: looks at the sources, plans, tells the kernel, keeps orders.
//!
//! An order is tried as a whole: planned, given to the kernel, saved. Whatever of that fails, what was
//! before is in force again and the order is refused. A change of a source cannot be refused to anybody:
//! what of it cannot be is said, and everything else is done.

use crate::control::{Answer, Request};
use crate::delays::Delays;
use crate::force::Force;
use crate::herd::{Herd, Vm};
use crate::kernel::Kernel;
use crate::meter::Meter;
use crate::orders::{Ground, POOL_ORIGIN, VM_ORIGIN};
use crate::plan::{Capacity, Plan, PlannedVm};
use crate::scheduler::{KernelVcpu, KernelVm};
use crate::sources::config_file::ConfigFile;
use crate::status::{PoolStatus, VcpuStatus, VmStatus};
use crate::store::{Saved, Store, merged};
use anyhow::{Context, Result, bail, ensure};
use drover_core::asked::Key;
use drover_core::config::Config;
use drover_core::counters::Counters;
use drover_core::percent;
use drover_core::resolve::Layer;
use drover_core::shares::Shares;
use drover_core::tree::Tree;
use std::collections::HashSet;
use std::path::Path;
use std::time::{Duration, Instant};

/// How often the configuration is looked at.
const CONFIG_INTERVAL: Duration = Duration::from_millis(150);

/// Keeps what everybody asks in force.
pub struct Steward {
    file: ConfigFile,
    config: Config,
    /// When the file was last looked at.
    config_looked: Option<Instant>,
    /// What the file says does not fit what was ordered.
    config_waits: bool,
    store: Store,
    saved: Saved,
    herd: Herd,
    meter: Meter,
    delays: Delays,
    capacity: Capacity,
    plan: Plan,
    force: Force,
    /// What was said of the plan in force, not to be said again.
    said: HashSet<String>,
}

impl Steward {
    /// Reads what is configured and what was saved.
    ///
    /// # Errors
    /// When one of them has a fault, in one line.
    pub fn open(config: &Path, state: &Path, online_mcpu: u64, delays: Delays) -> Result<Self> {
        let (file, read) = ConfigFile::open(config).map_err(anyhow::Error::msg)?;
        let (store, mut saved) = Store::open(state)?;
        for orphan in saved.adopt_orphans(read.pools().map(|(spec, _)| spec)) {
            tracing::warn!("{orphan}");
        }
        merged(read.pools().map(|(spec, _)| spec), &saved).with_context(|| {
            format!("{} and the pools saved in {}", config.display(), state.display())
        })?;
        Ok(Self {
            file,
            config: read,
            config_looked: None,
            config_waits: false,
            store,
            saved,
            herd: Herd::default(),
            meter: Meter::default(),
            delays,
            capacity: Capacity { online_mcpu, most_mcpu: online_mcpu },
            plan: Plan::default(),
            force: Force::default(),
            said: HashSet::new(),
        })
    }

    /// Looks at everything settings follow from, and brings changes into force.
    pub fn look(&mut self, kernel: &dyn Kernel, online_mcpu: u64, now: Instant) {
        let mut changed = self.look_at_config(now);
        changed |= self.look_at_pcpus(online_mcpu);
        self.look_at_vms(kernel, now, changed);
    }

    /// Follows an order or answers a question.
    pub fn answer(&mut self, kernel: &dyn Kernel, request: Request, now: Instant) -> Answer {
        self.look_at_vms(kernel, now, false);
        let done = match request {
            Request::ListVms => return Answer::Vms { vms: self.vm_statuses(kernel) },
            Request::ListPools => return Answer::Pools { pools: self.pool_statuses() },
            Request::Break => kernel.break_on_purpose(),
            order => self.follow(kernel, &order),
        };
        match done {
            Ok(()) => Answer::Done,
            Err(err) => Answer::Refused { reason: format!("{err:#}") },
        }
    }

    fn follow(&mut self, kernel: &dyn Kernel, order: &Request) -> Result<()> {
        let Self { saved, config, plan, herd, .. } = self;
        let ground = Ground { saved, config, plan, herd };
        let saved = match order {
            Request::SetVm { name, set, reset } => ground.set_vm(name, set, reset)?,
            Request::AddPool { name, change } => ground.add_pool(name, change)?,
            Request::SetPool { name, change } => ground.set_pool(name, change)?,
            Request::RemovePool { name } => ground.remove_pool(name)?,
            Request::ListVms | Request::ListPools | Request::Break => return Ok(()),
        };
        let plan = self.planned(&self.config, &saved)?;
        self.check(&plan, order)?;
        self.check_absent(&plan.tree, &saved, order)?;
        let kept =
            self.force.apply(kernel, &plan, self.herd.vms()).and_then(|()| self.save(&saved));
        if let Err(error) = kept {
            // What the kernel took of it is taken back.
            let _ = self.force.apply(kernel, &self.plan, self.herd.vms());
            return Err(error);
        }
        self.saved = saved;
        self.enter(plan);
        if self.config_waits {
            self.file.offer_again();
        }
        Ok(())
    }

    /// Keeps what is ordered, or what was before.
    fn save(&self, saved: &Saved) -> Result<()> {
        self.store.save(saved).inspect_err(|_| {
            // The disk may have failed after it took the new ones.
            let _ = self.store.save(&self.saved);
        })
    }

    /// Whether an order makes nothing impossible that was possible before, and asks nothing impossible itself.
    fn check(&self, plan: &Plan, order: &Request) -> Result<()> {
        let before = self.plan.troubles();
        let target = whose_bounds(order);
        for trouble in plan.troubles() {
            let stood = before.iter().find(|it| trouble.is_still(it));
            let asked = target.as_ref() == Some(&trouble.whose) && stood != Some(&trouble);
            ensure!(stood.is_some() && !asked, "{trouble}");
        }
        let online_mcpu = self.capacity.online_mcpu;
        if plan.total_mcpu > online_mcpu && plan.total_mcpu > self.plan.total_mcpu {
            bail!(
                "{} would be promised and {} are online; bring pCPUs back or reserve less",
                percent::text64(plan.total_mcpu),
                percent::text64(online_mcpu)
            );
        }
        Ok(())
    }

    /// Whether what is ordered for a VM that does not run could be if it came.
    fn check_absent(&self, tree: &Tree, saved: &Saved, order: &Request) -> Result<()> {
        let Request::SetVm { name, .. } = order else { return Ok(()) };
        if whose_bounds(order).is_none() || self.herd.vms().iter().any(|vm| vm.name == *name) {
            return Ok(());
        }
        let mut layers = self.config.layers(name);
        layers.extend(ordered(saved, name));
        match Plan::trouble_alone(tree, name, &layers, self.capacity) {
            Some(trouble) => bail!("{trouble}"),
            None => Ok(()),
        }
    }

    fn planned(&self, config: &Config, saved: &Saved) -> Result<Plan> {
        let tree = merged(config.pools().map(|(spec, _)| spec), saved)?;
        let layers = |vm: &Vm| layers(config, saved, vm);
        Ok(Plan::new(tree, self.herd.vms(), layers, &self.plan.holders(), self.capacity))
    }

    fn look_at_config(&mut self, now: Instant) -> bool {
        // Orders wake the daemon, and must not make a file that is being written look settled.
        if self.config_looked.is_some_and(|looked| now - looked < CONFIG_INTERVAL) {
            return false;
        }
        self.config_looked = Some(now);
        let Some(config) = self.file.look() else { return false };
        let parsed = config.is_ok();
        let fits = config.and_then(|config| {
            let tree = merged(config.pools().map(|(spec, _)| spec), &self.saved);
            tree.map(|_| config).map_err(|error| error.to_string())
        });
        match fits {
            Ok(config) => {
                tracing::info!("the configuration changed");
                self.config = config;
                self.config_waits = false;
                self.tell_ordered_pools();
                true
            }
            Err(fault) => {
                tracing::warn!("{fault}; the configuration before it still counts");
                self.config_waits = parsed;
                false
            }
        }
    }

    /// Pools that are as they were ordered, whatever the file says of them now.
    fn tell_ordered_pools(&self) {
        for (spec, place) in self.config.pools() {
            if self.saved.pools.iter().any(|pool| pool.name == spec.name && pool != spec) {
                tracing::warn!(
                    "pool {0}: it is as `drover pool` has it, not as {place} says; \
                     `drover pool remove {0}` takes what the file says",
                    spec.name
                );
            }
        }
    }

    fn look_at_pcpus(&mut self, online_mcpu: u64) -> bool {
        let changed = online_mcpu != self.capacity.online_mcpu;
        let most_mcpu = self.capacity.most_mcpu.max(online_mcpu);
        self.capacity = Capacity { online_mcpu, most_mcpu };
        changed
    }

    fn look_at_vms(&mut self, kernel: &dyn Kernel, now: Instant, changed: bool) {
        let seen = kernel.vms();
        self.meter.look(&seen, now);
        if !self.herd.look(&seen, now) && !changed {
            return;
        }
        let plan = match self.planned(&self.config, &self.saved) {
            Ok(plan) => plan,
            Err(error) => return tracing::error!("{error:#}; nothing is changed"),
        };
        if let Err(error) = self.force.apply(kernel, &plan, self.herd.vms()) {
            // A VM may go at any moment; what else there is comes up again with the next change.
            tracing::debug!("{error:#}");
        }
        self.enter(plan);
    }

    /// The plan is in force: says what of it is not as was asked.
    fn enter(&mut self, plan: Plan) {
        let mut troubles: Vec<String> = plan.troubles().iter().map(ToString::to_string).collect();
        troubles.extend(self.shortfall(&plan));
        for trouble in troubles.iter().filter(|trouble| !self.said.contains(*trouble)) {
            tracing::warn!("{trouble}");
        }
        let was_short = is_short(&self.plan);
        self.said = troubles.into_iter().collect();
        self.plan = plan;
        if was_short && !is_short(&self.plan) {
            tracing::info!("every promise is kept again");
        }
    }

    /// Which promises cannot be kept on the pCPUs that are online.
    fn shortfall(&self, plan: &Plan) -> Option<String> {
        let short = |vm: &&PlannedVm| vm.reservation_mcpu < vm.promised_mcpu;
        let each = |vm: &PlannedVm| {
            let [promised, kept] = [vm.promised_mcpu, vm.reservation_mcpu].map(percent::text);
            format!("{} {promised} -> {kept}", vm.name)
        };
        let vms: Vec<String> = plan.vms.iter().filter(short).map(each).collect();
        (plan.total_mcpu > self.capacity.online_mcpu).then(|| {
            format!(
                "PROMISES CANNOT BE KEPT: {} are promised and {} are online; everyone is given the \
                 same part: {}",
                percent::text64(plan.total_mcpu),
                percent::text64(self.capacity.online_mcpu),
                vms.join(", ")
            )
        })
    }

    fn vm_statuses(&self, kernel: &dyn Kernel) -> Vec<VmStatus> {
        let owed = self.meter.owed(&self.plan, pcpus(self.capacity.online_mcpu)).leaves;
        let each = self.plan.vms.iter().zip(owed);
        let all: Vec<KernelVm> = self.herd.vms().iter().map(|vm| vm.kernel).collect();
        let online = u32::try_from(self.capacity.online_mcpu / 1000).unwrap_or(u32::MAX);
        each.filter_map(|(planned, owed)| {
            let vm = self.herd.vms().iter().find(|vm| vm.kernel.id == planned.id)?;
            let guarantee = self.delays.of(&self.plan, planned, &all, online);
            let mut status = self.vm_status(vm, planned, owed, &kernel.vcpus(&vm.kernel));
            status.counters.guaranteed_delay_ms = Some(guarantee.delay_ms);
            status.guaranteed_delay_why = guarantee.why;
            Some(status)
        })
        .collect()
    }

    fn vm_status(
        &self,
        vm: &Vm,
        planned: &PlannedVm,
        owed_pcpus: f64,
        vcpus: &[KernelVcpu],
    ) -> VmStatus {
        let (kernel, rate) = (&vm.kernel, self.meter.rate(planned.id));
        let pool = planned.resolved.pool.map(|pool| &self.plan.tree.pools()[pool].spec);
        VmStatus {
            name: vm.name.clone(),
            pid: kernel.tgid,
            vcpus: kernel.nr_vcpus,
            shares: planned.shares,
            shares_by_default: planned.resolved.shares == Shares::NORMAL,
            reservation_mcpu: planned.reservation_mcpu,
            promised_mcpu: planned.promised_mcpu,
            limit_mcpu: planned.resolved.limit_mcpu,
            pool: pool.map(|spec| spec.name.clone()),
            owed_pcpus: rate.map(|_| owed_pcpus),
            got_pcpus: rate.map(|rate| rate.got_pcpus),
            vcpu_cpu_s: seconds(kernel.vcpu_run_ns),
            helper_cpu_s: seconds(kernel.helper_run_ns),
            ready_s: seconds(kernel.ready_ns),
            guaranteed_delay_why: String::new(),
            counters: counters_of_vm(kernel),
            vcpu: vcpus.iter().map(vcpu_status).collect(),
            why: planned.resolved.why.clone(),
            troubles: planned.troubles().map(|trouble| trouble.text).collect(),
        }
    }

    fn pool_statuses(&self) -> Vec<PoolStatus> {
        let tree = &self.plan.tree;
        let owed = self.meter.owed(&self.plan, pcpus(self.capacity.online_mcpu)).pools;
        let mut got = vec![0.0; tree.pools().len()];
        let mut known = false;
        for vm in &self.plan.vms {
            let Some(rate) = self.meter.rate(vm.id) else { continue };
            known = true;
            tree.path(vm.resolved.pool).for_each(|pool| got[pool] += rate.got_pcpus);
        }
        let status = |index: usize| {
            let pool = &tree.pools()[index];
            let inside = self.plan.vms.iter().filter(|vm| vm.resolved.pool == Some(index));
            PoolStatus {
                name: pool.spec.name.clone(),
                parent: pool.spec.parent.clone(),
                depth: u32::try_from(tree.path(Some(index)).count()).expect("8 at most"),
                shares: pool.spec.shares.of_pool(),
                reservation_mcpu: self.plan.pools_mcpu[index],
                limit_mcpu: pool.spec.limit_mcpu,
                expandable: pool.spec.expandable,
                free_mcpu: self.plan.pools_free_mcpu[index],
                vms: u32::try_from(inside.count()).expect("VMs are counted in 32 bits"),
                owed_pcpus: known.then_some(owed[index]),
                got_pcpus: known.then_some(got[index]),
                origin: self.pool_origin(&pool.spec.name),
            }
        };
        (0..tree.pools().len()).map(status).collect()
    }

    fn pool_origin(&self, name: &str) -> String {
        if self.saved.pools.iter().any(|pool| pool.name == name) {
            return POOL_ORIGIN.to_owned();
        }
        let place = self.config.pools().find(|(spec, _)| spec.name == name).map(|(_, place)| place);
        place.unwrap_or_default()
    }
}

fn counters_of_vm(vm: &KernelVm) -> Counters {
    Counters {
        progressed_s: seconds(vm.progressed_ns),
        hazard_s: seconds(vm.hazard_ns),
        costop_s: seconds(vm.costop_ns),
        costops: vm.nr_costops,
        costarts: vm.nr_costarts,
        limited_s: Some(seconds(vm.limited_ns)),
        skew_max_ms: vm.skew_max_ns.map(|skew_ns| seconds(skew_ns) * 1e3),
        longest_ready_ms: Some(seconds(vm.longest_ready_ns) * 1e3),
        ..Counters::default()
    }
}

fn vcpu_status(vcpu: &KernelVcpu) -> VcpuStatus {
    let counters = Counters {
        progressed_s: seconds(vcpu.progress_ns),
        hazard_s: seconds(vcpu.hazard_ns),
        costop_s: seconds(vcpu.costop_ns),
        costops: vcpu.nr_costops,
        costarts: vcpu.nr_costarts,
        skew_max_ms: vcpu.skew_max_ns.map(|skew_ns| seconds(skew_ns) * 1e3),
        ..Counters::default()
    };
    VcpuStatus { number: vcpu.number, counters }
}

/// Whether somebody is given less than was promised.
fn is_short(plan: &Plan) -> bool {
    plan.vms.iter().any(|vm| vm.reservation_mcpu < vm.promised_mcpu)
}

/// What everyone asks for a VM, the last one first in rank.
fn layers(config: &Config, saved: &Saved, vm: &Vm) -> Vec<Layer> {
    let (cgroup, libvirt) = vm.layers();
    let mut layers = cgroup.to_vec();
    layers.extend(config.layers(&vm.name));
    layers.extend(libvirt.cloned());
    layers.extend(ordered(saved, &vm.name));
    layers
}

/// What was ordered for a VM.
fn ordered(saved: &Saved, name: &str) -> Option<Layer> {
    let asked = saved.vms.get(name)?.clone();
    Some(Layer { origin: VM_ORIGIN.to_owned(), asked })
}

/// Of whom an order changes what can be impossible: a VM's reservation, limit or pool, or a pool.
fn whose_bounds(order: &Request) -> Option<String> {
    match order {
        Request::SetVm { name, set, reset } => {
            let bounds = [Key::Reservation, Key::Limit, Key::Pool];
            let changes = |key: &Key| reset.contains(key) || set.text(*key).is_some();
            bounds.iter().any(changes).then(|| format!("VM {name}"))
        }
        Request::AddPool { name, .. } | Request::SetPool { name, .. } => {
            Some(format!("pool {name}"))
        }
        Request::RemovePool { .. } | Request::ListVms | Request::ListPools | Request::Break => None,
    }
}

#[allow(clippy::cast_precision_loss, reason = "exact up to 104 days")]
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[allow(clippy::cast_precision_loss, reason = "a host has far fewer pCPUs")]
fn pcpus(mcpu: u64) -> f64 {
    mcpu as f64 / 1e3
}

#[cfg(test)]
mod tests;

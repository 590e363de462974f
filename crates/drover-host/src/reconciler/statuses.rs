// SPDX-License-Identifier: GPL-2.0-only
//! What is told about VMs and pools: what is in force, what each is owed, what it got.

use super::Reconciler;
use crate::files;
use crate::history::Now;
use crate::kernel::{Kernel, KernelVcpu};
use crate::orders::{NAME_ORIGIN, POOL_ORIGIN};
use crate::plan::PlannedVm;
use crate::recent;
use crate::registry::Vm;
use crate::saved::Saved;
use crate::status::{
    HostStatus, Kind, OrderStatus, PartitionStatus, PoolStatus, VcpuStatus, VmStatus,
};
use drover_core::partition::{PartitionPolicy, PartitionSpec};
use drover_core::shares::Shares;
use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::time::Instant;

impl Reconciler {
    /// What is told of all VMs; `brief`: without what only a question for one VM is about.
    pub(super) fn vm_statuses(&self, kernel: &dyn Kernel, brief: bool) -> Vec<VmStatus> {
        let owed = self.meter.owed(&self.plan, &self.capacity.online).leaves;
        let each = self.plan.vms.iter().zip(owed);
        let all: HashMap<u64, &Vm> =
            self.registry.vms().iter().map(|vm| (vm.kernel.id, vm)).collect();
        let kernels = self.registry.vms().iter().map(|vm| &vm.kernel);
        let beside = self.delays.beside(&self.plan, kernels, &self.capacity);
        each.filter_map(|(planned, owed)| {
            let vm = all.get(&planned.id)?;
            let own = (planned, &vm.kernel);
            let guarantee = {
                let sets = self.thread_sets.of(planned.id);
                self.delays.of(&self.plan, own, &beside, &self.capacity, sets)
            };
            let mut status = self.vm_status(vm, planned, owed);
            // What a container may have depends on how many tasks it has at a time, which nobody knows.
            if !vm.is_container() {
                status.counters.guaranteed_delay_ms = Some(guarantee.delay_ms);
                status.guaranteed_delay_why = guarantee.why;
            }
            if brief {
                status.guaranteed_delay_why.clear();
            } else {
                status.profile =
                    self.profiles.as_ref().and_then(|profiles| profiles.of(vm.kernel.id));
                status.vcpu = kernel.vcpus(&vm.kernel).iter().map(vcpu_status).collect();
                status.why = planned.why();
            }
            Some(status)
        })
        .collect()
    }

    /// Keeps what VMs got, were owed and waited for, once that is known anew.
    pub(super) fn keep_history(&mut self) {
        let Some(at) = self.meter.taken_at().filter(|at| self.history.is_due(*at)) else { return };
        let owed = self.meter.owed(&self.plan, &self.capacity.online).leaves;
        let owed: HashMap<u64, f64> = self.plan.vms.iter().map(|vm| vm.id).zip(owed).collect();
        let vms = self.registry.vms().iter().filter(|vm| !vm.is_container());
        let now = |vm: &Vm| {
            let rate = self.meter.rate(vm.kernel.id)?;
            Some(Now {
                name: vm.name.clone(),
                pid: vm.kernel.tgid,
                user: vm.kernel.uid,
                ready_pcpus: rate.ready_pct / 100.0,
                owed_pcpus: owed.get(&vm.kernel.id).copied(),
                got_pcpus: rate.got_pcpus,
            })
        };
        self.history.add(vms.filter_map(now), at);
    }

    fn vm_status(&self, vm: &Vm, planned: &PlannedVm, owed_pcpus: f64) -> VmStatus {
        let (kernel, rate) = (&vm.kernel, self.meter.rate(planned.id));
        let pool = planned.resolved.pool.map(|pool| &self.plan.tree.pools()[pool].spec);
        VmStatus {
            kind: if vm.is_container() { Kind::Container } else { Kind::Vm },
            name: vm.name.clone(),
            named_by: vm.identity.by,
            label: vm.identity.label.clone(),
            uuid: vm.identity.uuid.clone(),
            pid: kernel.tgid,
            user: kernel.uid,
            vcpus: kernel.nr_vcpus,
            shares: planned.resolved.shares.of_vm(kernel.size),
            shares_by_default: planned.resolved.shares == Shares::NORMAL,
            reservation_mcpu: planned.reservation_mcpu,
            promised_mcpu: planned.promised_mcpu,
            limit_mcpu: planned.resolved.limit_mcpu,
            pool: pool.map(|spec| spec.name.clone()),
            partition: self.plan.partitions.name(planned.resolved.partition).to_owned(),
            owed_pcpus: rate.map(|_| owed_pcpus),
            got_pcpus: rate.map(|rate| rate.got_pcpus),
            vcpu_cpu_s: seconds(kernel.vcpu_run_ns),
            helper_cpu_s: seconds(kernel.helper_run_ns),
            ready_s: seconds(kernel.ready_ns),
            ready_pct: rate.map(|rate| rate.ready_pct),
            guaranteed_delay_why: String::new(),
            counters: kernel.counters,
            numa: self.numa.as_ref().map(|numa| numa.counters(kernel)),
            home_why: self.numa.as_ref().and_then(|numa| numa.why(kernel)),
            profile: None,
            io: None,
            vcpu: Vec::new(),
            why: Vec::new(),
            troubles: planned.troubles().map(|trouble| trouble.told()).collect(),
        }
    }

    pub(super) fn host_status(&self, kernel: &dyn Kernel, now: Instant) -> HostStatus {
        let vms = self.registry.vms();
        let containers = vms.iter().filter(|vm| vm.is_container()).count();
        let rates: Vec<f64> =
            vms.iter().filter_map(|vm| Some(self.meter.rate(vm.kernel.id)?.got_pcpus)).collect();
        let release = files::kernel(Path::new("/proc/sys/kernel/osrelease"));
        let mut troubles: Vec<String> = self.said.iter().cloned().collect();
        troubles.sort();
        let of_config = |fault| format!("{fault}; the configuration before it still counts");
        troubles.splice(0..0, self.config_fault.as_ref().map(of_config));
        HostStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            kernel: release.unwrap_or_default().trim().to_owned(),
            in_charge_s: now.saturating_duration_since(self.begun).as_secs_f64(),
            cpus: self.capacity.online.clone(),
            domains: self.applied.domains().used(),
            vms: count(vms.len() - containers),
            containers: count(containers),
            got_pcpus: (!rates.is_empty()).then(|| rates.iter().sum()),
            pools: count(self.plan.tree.pools().len()),
            promised_mcpu: self.plan.rooms.iter().flatten().map(|room| room.promised_mcpu).sum(),
            partitions: self.partition_statuses(kernel),
            config: Some(self.file.path())
                .filter(|path| path.exists())
                .map(|path| path.display().to_string()),
            config_fault: self.config_fault.clone(),
            troubles,
            warnings: recent::warnings(now),
        }
    }

    pub(super) fn order_statuses(&self) -> Vec<OrderStatus> {
        let names = self.registry.names();
        let Saved { vms: kept, live, .. } = &self.saved;
        let ordered: BTreeSet<&String> = kept.keys().chain(live.keys()).collect();
        let status = |name: &String| {
            let vms = names.get(name.as_str()).copied().unwrap_or(0);
            let [ordered, live] =
                [kept, live].map(|vms| vms.get(name).cloned().unwrap_or_default());
            OrderStatus { name: name.clone(), here: vms > 0, vms, ordered, live }
        };
        ordered.into_iter().map(status).collect()
    }

    pub(super) fn pool_statuses(&self) -> Vec<PoolStatus> {
        let tree = &self.plan.tree;
        let owed = self.meter.owed(&self.plan, &self.capacity.online).pools;
        let mut got = vec![0.0; tree.pools().len()];
        let mut inside = vec![0; tree.pools().len()];
        let mut known = false;
        for vm in &self.plan.vms {
            vm.resolved.pool.into_iter().for_each(|pool| inside[pool] += 1);
            let Some(rate) = self.meter.rate(vm.id) else { continue };
            known = true;
            tree.path(vm.resolved.pool).for_each(|pool| got[pool] += rate.got_pcpus);
        }
        let mut origins: HashMap<&String, String> =
            self.config.pools().map(|(spec, place)| (&spec.name, place)).collect();
        let ordered = self.saved.pools.iter();
        origins.extend(ordered.map(|pool| (&pool.name, POOL_ORIGIN.to_owned())));
        let status = |index: usize| {
            let pool = &tree.pools()[index];
            PoolStatus {
                name: pool.spec.name.clone(),
                parent: pool.spec.parent.clone(),
                depth: u32::try_from(tree.path(Some(index)).count()).expect("8 at most"),
                shares: pool.spec.shares.of_pool(),
                reservation_mcpu: self.plan.pools_mcpu[index],
                limit_mcpu: pool.spec.limit_mcpu,
                expandable: pool.spec.expandable,
                free_mcpu: self.plan.pools_free_mcpu[index],
                vms: inside[index],
                owed_pcpus: known.then_some(owed[index]),
                got_pcpus: known.then_some(got[index]),
                origin: origins.get(&pool.spec.name).cloned().unwrap_or_else(|| {
                    let one = pool.spec.is_of_a_name();
                    if one { NAME_ORIGIN.to_owned() } else { format!("cgroup {}", pool.spec.name) }
                }),
            }
        };
        (0..tree.pools().len()).map(status).collect()
    }

    pub(super) fn partition_statuses(&self, kernel: &dyn Kernel) -> Vec<PartitionStatus> {
        let partitions = &self.plan.partitions;
        let status = |partition: Option<usize>| {
            let inside = || self.plan.vms.iter().filter(|vm| vm.resolved.partition == partition);
            let rates: Vec<_> = inside().filter_map(|vm| self.meter.rate(vm.id)).collect();
            let spec = partition.map(|index| &partitions.specs()[index]);
            let cpus = match spec {
                Some(spec) => Some(spec.cpus.clone()),
                None => partitions.cpus_of(None, &self.capacity.known),
            };
            let policy = spec.map_or(PartitionPolicy::Share, |spec| spec.policy);
            let room = self.plan.room(partition);
            PartitionStatus {
                size_mcpu: room.map(|room| room.size_mcpu),
                host_mcpu: room.map(|room| room.host_mcpu),
                promised_mcpu: room.map(|room| room.promised_mcpu),
                free_mcpu: room.map(|room| room.free_mcpu),
                name: partitions.name(partition).to_owned(),
                offline: cpus.as_ref().and_then(|cpus| cpus.without(&self.capacity.online)),
                cpus,
                policy,
                slice_ms: spec.map_or(policy.slice_ns(), PartitionSpec::slice_ns) as f64 / 1e6,
                vms: inside().map(|vm| vm.name.clone()).collect(),
                unplaced_vcpus: match partition {
                    None => kernel.slots().unplaced_vcpus,
                    Some(_) => 0,
                },
                got_pcpus: (!rates.is_empty())
                    .then(|| rates.iter().map(|rate| rate.got_pcpus).sum()),
            }
        };
        partitions.all().map(status).collect()
    }
}

fn vcpu_status(vcpu: &KernelVcpu) -> VcpuStatus {
    VcpuStatus {
        tid: Some(vcpu.tid),
        state: Some(vcpu.state),
        counters: vcpu.counters,
        ..VcpuStatus::numbered(vcpu.number)
    }
}

fn count(some: usize) -> u32 {
    u32::try_from(some).unwrap_or(u32::MAX)
}

#[allow(clippy::cast_precision_loss, reason = "exact up to 104 days")]
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

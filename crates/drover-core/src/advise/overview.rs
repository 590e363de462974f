// SPDX-License-Identifier: GPL-2.0-only
//! How far a host is over-committed, and what of it is promised, owed and free.

use super::{Facts, VmFacts};
use crate::tree::pcpus::{HOST_PERMILLE, Pcpus};
use serde::Serialize;

/// A host in figures, pCPUs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Overview {
    /// Its pCPUs.
    pub pcpus: u32,
    /// Its VMs.
    pub vms: u32,
    /// Their vCPUs.
    pub vcpus: u32,
    /// vCPUs for each pCPU.
    pub overcommit: f64,
    /// What VMs ran.
    pub ran_pcpus: f64,
    /// What they were ready for and did not have.
    pub ready_pcpus: f64,
    /// What of the host can be promised to VMs: not what its own tasks keep, nor more than a core for two threads.
    pub capacity_pcpus: f64,
    /// Of that, promised: reservations, used or not.
    pub promised_pcpus: f64,
    /// Of that, owed: what VMs want beyond their promises and within their limits, as far as there is; shares divide it.
    pub owed_pcpus: f64,
    /// Of that, free.
    pub free_pcpus: f64,
}

impl Overview {
    /// What is promised, thousandths of a pCPU.
    pub fn promised_mcpu(&self) -> u64 {
        (1000.0 * self.promised_pcpus).round() as u64
    }

    /// What can be promised beyond that, thousandths of a pCPU.
    pub fn promisable_mcpu(&self) -> u64 {
        (1000.0 * (self.capacity_pcpus - self.promised_pcpus).max(0.0)).round() as u64
    }
}

impl Facts {
    /// The host in figures.
    pub fn overview(&self) -> Overview {
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let (pcpus, vms) = (count(self.pcpus.len()), count(self.vms.len()));
        let vcpus = count(self.vms.iter().map(|vm| vm.vcpus.len()).sum());
        let promised = |vm: &VmFacts| f64::from(vm.reservation_mcpu.unwrap_or(0)) / 1e3;
        let promised_pcpus: f64 = self.vms.iter().map(promised).sum();
        let limit = |vm: &VmFacts| vm.limit_mcpu.map_or(f64::INFINITY, |it| f64::from(it) / 1e3);
        let wanted = |vm: &VmFacts| (vm.ran() + vm.ready()).min(limit(vm));
        let beyond = |vm: &VmFacts| (wanted(vm) - promised(vm)).max(0.0);
        let capacity_mcpu = self.online().map_or(0, |online| {
            let all = Pcpus::of(online.clone(), &online, &self.siblings());
            all.kept_for_host(HOST_PERMILLE).promisable_mcpu()
        });
        let capacity_pcpus = capacity_mcpu as f64 / 1e3;
        let left = (capacity_pcpus - promised_pcpus).max(0.0);
        let owed_pcpus = self.vms.iter().map(beyond).sum::<f64>().min(left);
        Overview {
            pcpus,
            vms,
            vcpus,
            overcommit: f64::from(vcpus) / f64::from(pcpus.max(1)),
            ran_pcpus: self.vms.iter().map(VmFacts::ran).sum(),
            ready_pcpus: self.vms.iter().map(VmFacts::ready).sum(),
            capacity_pcpus,
            promised_pcpus,
            owed_pcpus,
            free_pcpus: left - owed_pcpus,
        }
    }
}

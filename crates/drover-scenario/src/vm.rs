// SPDX-License-Identifier: GPL-2.0-only
//! A VM of a scenario, or a container, as one case has it.

use crate::pace::Pace;
use crate::workload::Workload;
use drover_core::asked::Consolidate;
use drover_core::cpu_list::CpuList;
use drover_core::settings::Cosched;
use drover_core::shares::Shares;
use drover_core::tree::Affinity;
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;

/// What runs a VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Vmm {
    /// Drover's own micro VM, with guest code that counts its progress.
    Micro,
    /// A Linux guest under QEMU/KVM.
    Qemu,
    /// Nothing: it is no VM, but a cgroup with a busy thread where a VM has a vCPU. No file says so of a VM.
    #[serde(skip_deserializing)]
    Container,
}

/// The CPUs that threads of a VM are confined to.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "give CPUs such as \"0-3,8\", or a list with those of each vCPU")]
pub enum Pin {
    /// All its threads to these.
    Vm(CpuList),
    /// Each vCPU to its own, its other threads to all of them together.
    Vcpus(Vec<CpuList>),
}

impl Pin {
    /// All CPUs that are named.
    pub fn cpus(&self) -> CpuList {
        match self {
            Pin::Vm(cpus) => cpus.clone(),
            Pin::Vcpus(each) => {
                let all = each.iter().flat_map(|cpus| cpus.cpus().iter().copied());
                CpuList::of(all).expect("a VM has a vCPU")
            }
        }
    }

    /// The CPUs of a vCPU.
    pub fn of_vcpu(&self, vcpu: u32) -> &CpuList {
        match self {
            Pin::Vm(cpus) => cpus,
            Pin::Vcpus(each) => &each[vcpu as usize],
        }
    }
}

/// A VM with everything a case says about it.
#[derive(Debug, Clone, PartialEq)]
pub struct Vm {
    /// Unique name, `[A-Za-z0-9._-]{1,63}`.
    pub name: String,
    /// Number of vCPUs.
    pub vcpus: u32,
    /// CPU shares, relative to those of its siblings.
    pub shares: Shares,
    /// CPU it is promised, in % of one pCPU.
    pub reservation_pct: u32,
    /// CPU it may have at most, in % of one pCPU; none: no limit.
    pub limit_pct: Option<u32>,
    /// The pool it is in, of the case's; none: in none.
    pub pool: Option<String>,
    /// How its vCPUs are kept together, where it or its pool says so.
    pub cosched: Option<Cosched>,
    /// The partition it runs in, of the scenario's; none: `default`.
    pub partition: Option<String>,
    /// What runs it.
    pub vmm: Vmm,
    /// Guest memory in MiB; of a micro VM, which needs none, what it touches all the same.
    pub memory_mib: u32,
    /// Whether it has a disk.
    pub disk: bool,
    /// Its address in the guests' network; none: it is in none.
    pub network: Option<Ipv4Addr>,
    /// The NUMA node that is its home in the simulator, by order; elsewhere the daemon chooses.
    pub home: Option<u32>,
    /// At most so many of its vCPUs have a home on one NUMA node; none: as many as it has cores.
    pub max_per_node: Option<u32>,
    /// Whether it is to live in one last-level cache.
    pub consolidate: Consolidate,
    /// The CPUs its threads are confined to; none: any.
    pub pin: Option<Pin>,
    /// The NUMA nodes that its memory lies on at first, in equal parts (in the lab the first of them);
    /// empty: where it first runs, or is touched.
    pub memory_nodes: Vec<u32>,
    /// The most CPU it can use, in % of one pCPU, where the scenario says so.
    pub demand_pct: Option<u32>,
    /// When its workload starts, in s of the measured time; none: before the warm-up.
    pub start_s: Option<f64>,
    /// When it is stopped, in s of the measured time; none: at the end.
    pub stop_s: Option<f64>,
    /// What its vCPUs do. Moments in it are in s of the measured time: hand guests what
    /// [`Vm::workload_since_go`] says.
    pub workload: Workload,
    /// What the speed of its vCPUs hangs on, for the simulator.
    pub pace: Pace,
}

impl Vm {
    /// So many VMs may be alike.
    pub(super) const COUNT_MAX: u32 = 1000;
    /// The most vCPUs a VM may have.
    pub const VCPUS_MAX: u32 = 256;
    /// The most memory a micro VM may have, MiB.
    pub const MICRO_MEMORY_MIB_MAX: u32 = 240;
    /// Default memory of a QEMU guest, MiB.
    pub const MEMORY_MIB: u32 = 256;

    /// Its shares in numbers, while all of its vCPUs run.
    pub fn shares_of_all(&self) -> u32 {
        self.shares.of_vm(self.vcpus)
    }

    /// A micro VM of which no more is said.
    pub fn new(name: &str, vcpus: u32, workload: Workload) -> Self {
        Self {
            name: name.to_owned(),
            vcpus,
            shares: Shares::NORMAL,
            reservation_pct: 0,
            limit_pct: None,
            pool: None,
            cosched: None,
            partition: None,
            vmm: Vmm::Micro,
            memory_mib: 0,
            disk: false,
            network: None,
            home: None,
            max_per_node: None,
            consolidate: Consolidate::default(),
            pin: None,
            memory_nodes: Vec::new(),
            demand_pct: None,
            start_s: None,
            stop_s: None,
            workload,
            pace: Pace::default(),
        }
    }

    /// The workload for a guest that counts time from the moment it is let go: `warmup_s` before
    /// the measured time, or at the VM's own `start_s`.
    pub fn workload_since_go(&self, warmup_s: f64) -> Workload {
        let go_s = self.start_s.unwrap_or(-warmup_s);
        let mut workload = self.workload.clone();
        if let Workload::Cpu { then: Some(then), .. } = &mut workload {
            then.after_s = (then.after_s - go_s).max(0.0);
        }
        workload
    }

    /// Whether it has a device whose I/O delays are measured.
    pub fn has_devices(&self) -> bool {
        self.disk || self.network.is_some()
    }

    /// Where its vCPUs may run.
    pub fn affinity(&self) -> Affinity {
        match &self.pin {
            None => Affinity::ANYWHERE,
            Some(Pin::Vm(cpus)) => Affinity::within(cpus.clone()),
            Some(Pin::Vcpus(each)) => Affinity::of_vcpus(each.iter().cloned()),
        }
    }

    /// The most CPU the VM can use at `at_s` of the measured time, in pCPUs, its pinning left
    /// aside; none where that is not known beforehand.
    pub fn demand_pcpus(&self, at_s: f64) -> Option<f64> {
        let before = self.start_s.is_some_and(|start_s| at_s < start_s);
        let after = self.stop_s.is_some_and(|stop_s| at_s >= stop_s);
        if before || after {
            return Some(0.0);
        }
        let vcpus = f64::from(self.vcpus);
        match self.demand_pct {
            Some(demand_pct) => Some((f64::from(demand_pct) / 100.0).min(vcpus)),
            None => self.workload.vcpu_demand_pct(at_s).map(|pct| vcpus * pct / 100.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::CpuThen;

    fn halving_at_2_s() -> Workload {
        let then = Some(CpuThen { after_s: 2.0, duty_pct: 50 });
        Workload::Cpu { duty_pct: 100, period_us: 10_000, then }
    }

    fn after_s(workload: Workload) -> f64 {
        match workload {
            Workload::Cpu { then: Some(then), .. } => then.after_s,
            other => panic!("no change of duty in {other:?}"),
        }
    }

    #[test]
    fn a_guest_counts_from_the_moment_it_is_let_go() {
        let mut vm = Vm::new("vm0", 4, halving_at_2_s());
        assert_eq!(after_s(vm.workload_since_go(0.5)), 2.5);
        vm.start_s = Some(1.5);
        assert_eq!(after_s(vm.workload_since_go(0.5)), 0.5);
    }

    #[test]
    fn demand_is_zero_outside_the_life_of_a_vm() {
        let mut vm = Vm::new("vm0", 4, halving_at_2_s());
        (vm.start_s, vm.stop_s) = (Some(1.0), Some(3.0));
        let demand = [0.5, 1.5, 2.5, 3.0].map(|at_s| vm.demand_pcpus(at_s));
        assert_eq!(demand, [Some(0.0), Some(4.0), Some(2.0), Some(0.0)]);
    }

    #[test]
    fn a_stated_demand_goes_before_the_workload() {
        let run = "sysbench cpu run".to_owned();
        let mut vm = Vm::new("vm0", 4, Workload::Command { run, ready: None });
        assert_eq!(vm.demand_pcpus(0.0), None);
        vm.demand_pct = Some(150);
        assert_eq!(vm.demand_pcpus(0.0), Some(1.5));
        vm.demand_pct = Some(900);
        assert_eq!(vm.demand_pcpus(0.0), Some(4.0), "no more than its vCPUs");
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! What the daemon would do on this host, told without a scheduler: nothing is loaded, written or moved.
//!
//! VMs are found by what their processes have open: KVM gives each vCPU a file. The plan is then made by
//! the same reconciler as for a scheduler that runs.

use std::fs;
use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use drover_core::allot::{AllotmentOf, Measured};
use drover_core::params::Params;
use drover_core::partition::PartitionSettings;
use drover_core::place::HomeNumber;
use drover_core::settings::{PartitionId, PoolId, PoolSettings, VmSettings};

use crate::control::{Answer, Request};
use crate::delays::Delays;
use crate::domains::{DomainLevel, Domains, Placed};
use crate::files::{self, ENTRIES_MAX, THREADS_MAX};
use crate::kernel::{Kernel, KernelVcpu, KernelVm, Slots};
use crate::names;
use crate::places::Places;
use crate::reconciler::Reconciler;
use crate::status::{HostStatus, PoolStatus, VmStatus};
use crate::topology::{Topology, online_list};

/// What would be.
#[derive(Debug)]
pub struct Rehearsed {
    /// pCPUs that would be scheduled.
    pub pcpus: usize,
    /// In so many domains.
    pub domains: u32,
    /// The VMs that are here, and what each would have.
    pub vms: Vec<VmStatus>,
    /// The pools.
    pub pools: Vec<PoolStatus>,
    /// The host, and what it could still promise.
    pub host: HostStatus,
}

/// Makes the plan for this host as it is now.
///
/// # Errors
/// When the daemon would not start: a fault in the configuration or in what was saved.
pub fn rehearse(level: DomainLevel, params: &Params, places: &Places) -> Result<Rehearsed> {
    let topology = Topology::read()?;
    let domains = Domains::new(&topology, level);
    let delays = Delays::new(params, domains.of())?;
    let online = online_list()?;
    let used = domains.used();
    let before = (delays, domains);
    let mut reconciler = Reconciler::open(places.config, places.state, online.clone(), before)?;
    let kernel = Onlooker { vms: vms_in(Path::new("/proc")) };
    reconciler.see(&kernel, &topology);
    reconciler.look(&kernel, &online, Instant::now());
    let mut ask = |request| reconciler.answer(&kernel, request, Instant::now());
    let (Answer::Vms { vms }, Answer::Pools { pools }, Answer::Status { status }) =
        (ask(Request::ListVms { brief: false }), ask(Request::ListPools), ask(Request::Status))
    else {
        unreachable!("these were asked for");
    };
    let pcpus = topology.count(|pcpu| pcpu.online);
    Ok(Rehearsed { pcpus, domains: used, vms, pools, host: *status })
}

/// The processes that have vCPUs.
pub(crate) fn vms_in(proc: &Path) -> Vec<KernelVm> {
    let places = names::Places { proc: proc.to_owned(), ..names::Places::default() };
    let processes = files::entries(proc, ENTRIES_MAX);
    let mut tgids: Vec<u32> =
        processes.filter_map(|process| process.file_name().to_str()?.parse().ok()).collect();
    tgids.sort_unstable();
    let vcpus = tgids.into_iter().map(|tgid| (tgid, vcpus_of(&proc.join(tgid.to_string()))));
    let vms = vcpus.filter(|(_, vcpus)| *vcpus > 0).zip(1..);
    vms.map(|((tgid, nr_vcpus), slot)| KernelVm {
        slot,
        id: u64::from(slot),
        tgid,
        // Nobody has seen it become one.
        uid: places.owner(tgid).unwrap_or(0),
        nr_vcpus,
        size: nr_vcpus,
        nr_threads: nr_vcpus,
        ..KernelVm::default()
    })
    .collect()
}

/// How many vCPUs that process has open.
fn vcpus_of(process: &Path) -> u32 {
    let open = files::entries(&process.join("fd"), ENTRIES_MAX);
    let is_vcpu = |file: &fs::DirEntry| {
        fs::read_link(file.path())
            .is_ok_and(|target| target.to_string_lossy().starts_with("anon_inode:kvm-vcpu:"))
    };
    u32::try_from(open.filter(is_vcpu).count()).unwrap_or(u32::MAX)
}

/// Which threads of that process are vCPUs, where no scheduler has seen them in a guest: by what VMMs call them, `CPU 0/KVM`,
/// `vcpu0`, `fc_vcpu 0` or much like it; where none is called so, all.
fn vcpu_threads(process: &Path) -> Vec<u32> {
    let threads = files::entries(&process.join("task"), THREADS_MAX);
    let is_vcpu = |thread: &fs::DirEntry| {
        let name = files::kernel(&thread.path().join("comm")).unwrap_or_default();
        name.to_ascii_lowercase().contains("cpu")
    };
    let (vcpus, others): (Vec<_>, Vec<_>) = threads.partition(is_vcpu);
    let these = if vcpus.is_empty() { others } else { vcpus };
    these.iter().filter_map(|thread| thread.file_name().to_str()?.parse().ok()).collect()
}

/// Sees VMs, and follows no order.
#[derive(Default)]
pub(crate) struct Onlooker {
    vms: Vec<KernelVm>,
}

impl Kernel for Onlooker {
    fn vms(&self) -> Vec<KernelVm> {
        self.vms.clone()
    }

    fn vcpus(&self, vm: &KernelVm) -> Vec<KernelVcpu> {
        let tids = vcpu_threads(&Path::new("/proc").join(vm.tgid.to_string()));
        tids.into_iter().map(KernelVcpu::of_thread).collect()
    }

    fn set_vm(&self, _: &KernelVm, _: &VmSettings) -> Result<()> {
        Ok(())
    }

    fn cgroup_changes(&self) -> u32 {
        0
    }

    fn slots(&self) -> Slots {
        Slots::default()
    }

    fn set_container(&self, _: u64, _: u32, _: bool) -> Result<()> {
        Ok(())
    }

    fn set_pool(&self, _: PoolId, _: Option<&PoolSettings>) -> Result<()> {
        Ok(())
    }

    fn set_home(&self, _: &KernelVm, _: &[HomeNumber]) -> Result<()> {
        Ok(())
    }

    fn set_partition(&self, _: PartitionId, _: PartitionSettings) -> Result<()> {
        Ok(())
    }

    fn place(&self, _: Placed) -> Result<()> {
        Ok(())
    }

    fn measure(&self) -> Result<Vec<Measured>> {
        Ok(Vec::new())
    }

    fn allot(&self, _: Option<&[AllotmentOf]>) -> Result<()> {
        Ok(())
    }

    fn allot_lapses(&self) -> u32 {
        0
    }

    #[cfg(feature = "fault-injection")]
    fn break_on_purpose(&self) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn who_has_vcpus_open_is_a_vm() {
        let proc = tempfile::tempdir().unwrap();
        let open = |process: &str, files: &[&str]| {
            let dir = proc.path().join(process).join("fd");
            fs::create_dir_all(&dir).unwrap();
            for (number, target) in files.iter().enumerate() {
                symlink(target, dir.join(number.to_string())).unwrap();
            }
        };
        open("20", &["anon_inode:kvm-vm", "anon_inode:kvm-vcpu:0", "anon_inode:kvm-vcpu:1"]);
        open("3", &["/dev/null", "anon_inode:kvm-vcpu:0"]);
        open("7", &["/dev/kvm"]);
        open("self", &["anon_inode:kvm-vcpu:0"]);
        let found: Vec<_> =
            vms_in(proc.path()).iter().map(|vm| (vm.slot, vm.tgid, vm.nr_vcpus)).collect();
        assert_eq!(found, [(1, 3, 1), (2, 20, 2)]);
    }

    #[test]
    fn this_host_is_planned_for_and_nothing_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let below = |name: &str| dir.path().join(name);
        let (config, state, socket) = (below("drover.toml"), below("state"), below("socket"));
        fs::write(&config, "[[vm]]\nname = \"*\"\nshares = 5\n").unwrap();
        let places = Places { config: &config, state: &state, socket: &socket, readers: &socket };
        let would = rehearse(DomainLevel::Llc, &Params::default(), &places).unwrap();
        assert!(would.pcpus >= 1 && would.domains >= 1);
        assert!(!state.exists() && !socket.exists());
        fs::write(&config, "[[vm]]\nname = 5\n").unwrap();
        let fault = rehearse(DomainLevel::Llc, &Params::default(), &places).unwrap_err();
        assert!(fault.to_string().contains("drover.toml:2"), "{fault}");
    }
}

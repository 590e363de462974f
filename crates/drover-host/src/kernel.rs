// SPDX-License-Identifier: GPL-2.0-only
//! What the daemon needs of the scheduler: to see VMs and to give orders.

use crate::domains::Placed;
use crate::scheduler::{KernelVcpu, KernelVm, Scheduler, Slots};
use anyhow::Result;
use drover_core::allot::{AllotmentOf, Measured};
use drover_core::place::HomeNumber;
use drover_core::settings::{PartitionId, PartitionSettings, PoolId, PoolSettings, VmSettings};

/// A scheduler that takes orders.
pub trait Kernel {
    /// All VMs and containers now live, in the order of their slots.
    fn vms(&self) -> Vec<KernelVm>;
    /// The vCPUs of a VM.
    fn vcpus(&self, vm: &KernelVm) -> Vec<KernelVcpu>;
    /// Puts these settings of the VM in force.
    ///
    /// # Errors
    /// When it is gone meanwhile.
    fn set_vm(&self, vm: &KernelVm, settings: &VmSettings) -> Result<()>;
    /// Counts what changed about cgroups.
    fn cgroup_changes(&self) -> u32;
    /// How much room there is for VMs and containers.
    fn slots(&self) -> Slots;
    /// The cgroup with that number, in a subtree of that user's, begins, or ceases, to be a container.
    ///
    /// # Errors
    /// When there is no room for it now, or it is what it shall be.
    fn set_container(&self, cgroup: u64, user: u32, live: bool) -> Result<()>;
    /// Puts these settings of the pool in force; none: removes it.
    ///
    /// # Errors
    /// When the kernel does not take it.
    fn set_pool(&self, pool: PoolId, settings: Option<&PoolSettings>) -> Result<()>;
    /// The VM's home, or those of its parts in order; empty: it has none.
    ///
    /// # Errors
    /// When it is gone meanwhile.
    fn set_home(&self, vm: &KernelVm, homes: &[HomeNumber]) -> Result<()>;
    /// Puts these settings of the partition in force.
    ///
    /// # Errors
    /// When the kernel does not take it.
    fn set_partition(&self, partition: PartitionId, settings: PartitionSettings) -> Result<()>;
    /// Puts a pCPU into a domain, and that into a partition.
    ///
    /// # Errors
    /// When the kernel does not take it.
    fn place(&self, placed: Placed) -> Result<()>;
    /// What VMs used and want since this was asked last, by their slots.
    ///
    /// # Errors
    /// When the kernel cannot be reached.
    fn measure(&self) -> Result<Vec<Measured>>;
    /// Puts in force what is allotted, by slots; none: nothing is any more.
    ///
    /// # Errors
    /// When the kernel cannot be reached.
    fn allot(&self, allotted: Option<&[AllotmentOf]>) -> Result<()>;
    /// Counts how often what was allotted lapsed because nothing came after it.
    fn allot_lapses(&self) -> u32;
    /// Ends the scheduler as an internal error would.
    ///
    /// # Errors
    /// When the kernel cannot be reached.
    #[cfg(feature = "fault-injection")]
    fn break_on_purpose(&self) -> Result<()>;
}

impl Kernel for Scheduler {
    fn vms(&self) -> Vec<KernelVm> {
        self.vms()
    }

    fn vcpus(&self, vm: &KernelVm) -> Vec<KernelVcpu> {
        self.vcpus(vm)
    }

    fn set_vm(&self, vm: &KernelVm, settings: &VmSettings) -> Result<()> {
        self.set_vm(vm, settings)
    }

    fn cgroup_changes(&self) -> u32 {
        self.cgroup_changes()
    }

    fn slots(&self) -> Slots {
        self.slots()
    }

    fn set_container(&self, cgroup: u64, user: u32, live: bool) -> Result<()> {
        self.set_container(cgroup, user, live)
    }

    fn set_pool(&self, pool: PoolId, settings: Option<&PoolSettings>) -> Result<()> {
        self.set_pool(pool, settings)
    }

    fn set_home(&self, vm: &KernelVm, homes: &[HomeNumber]) -> Result<()> {
        self.set_home(vm, homes)
    }

    fn set_partition(&self, partition: PartitionId, settings: PartitionSettings) -> Result<()> {
        self.set_partition(partition, settings)
    }

    fn place(&self, placed: Placed) -> Result<()> {
        self.place(placed)
    }

    fn measure(&self) -> Result<Vec<Measured>> {
        self.measure()
    }

    fn allot(&self, allotted: Option<&[AllotmentOf]>) -> Result<()> {
        self.allot(allotted)
    }

    fn allot_lapses(&self) -> u32 {
        self.allot_lapses()
    }

    #[cfg(feature = "fault-injection")]
    fn break_on_purpose(&self) -> Result<()> {
        self.break_on_purpose()
    }
}

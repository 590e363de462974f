// SPDX-License-Identifier: GPL-2.0-only
//! What the daemon needs of the scheduler: VMs and vCPUs as the kernel sees them, and to give orders.

use crate::domains::Placed;
use crate::status::VcpuState;
use anyhow::Result;
use drover_core::allot::{AllotmentOf, Measured};
use drover_core::counters::Counters;
use drover_core::partition::PartitionSettings;
use drover_core::place::{HomeNumber, Woken};
use drover_core::settings::{PartitionId, PoolId, PoolSettings, VmSettings};
use drover_policy::DROVER_MAX_VMS;

/// A VM, or a container, as the kernel sees it at one moment. Times in nanoseconds since its birth.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct KernelVm {
    /// Where its record is; may be another VM's later.
    pub slot: u32,
    /// Never reused while this scheduler runs.
    pub id: u64,
    /// The VMM process; 0 of a container.
    pub tgid: u32,
    /// The number of a container's cgroup; 0 of a VM.
    pub cgroup: u64,
    /// The user whose it was when it was found.
    pub uid: u32,
    /// vCPUs seen so far.
    pub nr_vcpus: u32,
    /// Of these, the ones that shares for each vCPU count: those that ran lately, no more than pCPUs.
    pub size: u32,
    /// vCPUs and helper threads attached.
    pub nr_threads: u32,
    /// Counts how often one of them was confined or freed.
    pub affinity_changes: u32,
    /// Counts how often the nice value, or the class, of one of them changed.
    pub weight_changes: u32,
    /// Shares in force.
    pub shares: u32,
    /// Shares asked for; 0 is the default for its size.
    pub shares_asked: u32,
    /// CPU time of its vCPU threads.
    pub vcpu_run_ns: u64,
    /// CPU time of its other threads.
    pub helper_run_ns: u64,
    /// Time its threads were ready and not running.
    pub ready_ns: u64,
    /// Time its vCPUs were ready and co-stopped, summed over them.
    pub costop_ns: u64,
    /// CPU time of its threads on pCPUs of its home.
    pub home_run_ns: u64,
    /// What else was counted of it.
    pub counters: Counters,
    /// Who wakes it.
    pub woken: Woken,
}

impl KernelVm {
    /// The same one in another reading, which is in the order of slots.
    pub fn found_in<'a>(&self, reading: &'a [Self]) -> Option<&'a Self> {
        let at = reading.binary_search_by_key(&self.slot, |one| one.slot).ok()?;
        Some(&reading[at]).filter(|one| one.id == self.id)
    }
}

/// VMs and containers have slots, and not all may have one (policy/account/find.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Slots {
    /// How many are held.
    pub held: u32,
    /// The user that was refused one, for having as many as are left; 0: none was since one became free.
    pub crowded_user: u32,
    /// vCPUs that are served as ordinary tasks, because their VMs have none.
    pub unplaced_vcpus: u32,
}

impl Slots {
    /// There are so many, beside the host's own.
    pub const COUNT: u32 = DROVER_MAX_VMS - 1;

    /// Why a VM or container that asks for one has none.
    pub fn refusal(&self) -> Refusal {
        match self.crowded_user {
            _ if self.held + 1 >= Self::COUNT => Refusal::Full,
            0 => Refusal::NotMadeYet,
            user => Refusal::CrowdedUser(user),
        }
    }
}

/// Why a VM or container has no slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// All are held.
    Full,
    /// That user holds as many as are left for others.
    CrowdedUser(u32),
    /// The queues of the next slots are being made (bpf/queues.bpf.h).
    NotMadeYet,
}

/// A vCPU likewise.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KernelVcpu {
    /// Its number in its VM.
    pub number: u32,
    /// Its thread.
    pub tid: u32,
    /// What it does.
    pub state: VcpuState,
    /// What was counted of it.
    pub counters: Counters,
}

impl KernelVcpu {
    /// A vCPU; only its thread is known.
    pub(crate) fn of_thread(tid: u32) -> Self {
        Self { number: 0, tid, state: VcpuState::Halted, counters: Counters::default() }
    }
}

#[cfg(test)]
impl KernelVm {
    /// A VM of two vCPUs that has done nothing yet.
    pub fn for_test(id: u64) -> Self {
        Self {
            slot: u32::try_from(id).unwrap(),
            id,
            tgid: u32::MAX,
            cgroup: 0,
            uid: 0,
            nr_vcpus: 2,
            size: 2,
            nr_threads: 3,
            affinity_changes: 0,
            weight_changes: 0,
            shares: 2000,
            shares_asked: 0,
            vcpu_run_ns: 0,
            helper_run_ns: 0,
            ready_ns: 0,
            home_run_ns: 0,
            costop_ns: 0,
            counters: Counters::default(),
            woken: Woken::default(),
        }
    }
}

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

// SPDX-License-Identifier: GPL-2.0-only
//! VMs and pools as `drover vm list` and `drover pool list` show them.

use crate::names::Source;
use crate::recent::Warning;
use drover_core::asked::{Asked, Key};
use drover_core::counters::{Counters, Numa, VmCounters};
use drover_core::cpu_list::CpuList;
use drover_core::io::IoStatus;
use drover_core::partition::PartitionPolicy;
use drover_core::place::{GuestTopology, HomeNumber, Kind as SetKind, Within};
use drover_core::profile::Profile;
use drover_core::resolve::Why;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The daemon, and the host it schedules.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostStatus {
    /// The daemon's version.
    pub version: String,
    /// The release of the kernel.
    pub kernel: String,
    /// How long the daemon has been in charge, s.
    pub in_charge_s: f64,
    /// The pCPUs that are online.
    pub cpus: CpuList,
    /// Domains: pCPUs that share a queue of VMs.
    pub domains: u32,
    /// VMs that are here.
    pub vms: u32,
    /// Containers that are here.
    pub containers: u32,
    /// What they got in the last second, pCPUs; none until that is known.
    pub got_pcpus: Option<f64>,
    /// Pools.
    pub pools: u32,
    /// What is promised to VMs and pools, thousandths of a pCPU.
    pub promised_mcpu: u64,
    /// `default`, then the other partitions in the order they were made.
    pub partitions: Vec<PartitionStatus>,
    /// The configuration file; none: it is not there.
    pub config: Option<String>,
    /// Why what it says is not in force, with the line in it: what it said before counts. None: it is in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_fault: Option<String>,
    /// What was asked and is not so now, each in a line; the fault of the configuration is the first of them.
    pub troubles: Vec<String>,
    /// The last warnings, the newest first.
    pub warnings: Vec<Warning>,
}

/// What is scheduled as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A VM.
    #[default]
    Vm,
    /// A cgroup with CPU settings and no VM in it.
    Container,
}

/// A VM or a container.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VmStatus {
    /// Which of these.
    #[serde(default)]
    pub kind: Kind,
    /// The VM's name.
    pub name: String,
    /// Who calls it so.
    #[serde(default)]
    pub named_by: Source,
    /// What people call it, where its manager goes by a number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The UUID its manager knows it by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// The VMM process; 0 of a container.
    pub pid: u32,
    /// The user who owns the VM, or the delegated cgroup of the container; 0: root.
    #[serde(default)]
    pub user: u32,
    /// vCPUs seen so far.
    pub vcpus: u32,
    /// Shares in force.
    pub shares: u32,
    /// Are they the default for its size?
    pub shares_by_default: bool,
    /// CPU promised to it and kept, thousandths of a pCPU.
    pub reservation_mcpu: u32,
    /// CPU promised to it; more than what is kept while pCPUs are offline.
    pub promised_mcpu: u32,
    /// The most CPU it may have, thousandths of a pCPU; none: no limit.
    pub limit_mcpu: Option<u32>,
    /// Its pool; none: the host.
    pub pool: Option<String>,
    /// The partition it is in.
    pub partition: String,
    /// What it is owed now, for what it wants, pCPUs; none until that is known.
    pub owed_pcpus: Option<f64>,
    /// What it got in the last second, pCPUs; none until that is known.
    pub got_pcpus: Option<f64>,
    /// CPU time of its vCPUs since it was found, in seconds.
    pub vcpu_cpu_s: f64,
    /// CPU time of its helper threads, in seconds.
    pub helper_cpu_s: f64,
    /// Time its threads were ready and not running, in seconds.
    pub ready_s: f64,
    /// %RDY: such time in the last second, without co-stops, summed over them, % of a pCPU; none until that is known.
    #[serde(default)]
    pub ready_pct: Option<f64>,
    /// Why its guaranteed delay is what it is.
    pub guaranteed_delay_why: String,
    /// How its vCPUs moved along together, the longest single wait and the one guaranteed.
    #[serde(flatten)]
    pub counters: Counters,
    /// Where it is at home, on a host of several NUMA nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa: Option<Numa>,
    /// Why its home is that, or why it has none; none within: not looked at yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home_why: Option<String>,
    /// What kind of work it does, and the evidence; none until that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
    /// Its I/O, as `drover observe` knows it; none: that does not run, or knows nothing yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io: Option<IoStatus>,
    /// Its vCPUs.
    pub vcpu: Vec<VcpuStatus>,
    /// Where each value came from.
    pub why: Vec<Why>,
    /// What was asked for it and cannot be, each in a line.
    pub troubles: Vec<String>,
}

/// I/O of a VM, as `drover observe` knows it under any scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VmIo {
    /// The VMM process.
    pub pid: u32,
    /// What it moved, and how late that was.
    pub io: IoStatus,
}

/// Figures of the past. Steps are numbered from when the daemon began to keep them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct History {
    /// When step 0 began, seconds since 1970.
    pub begun_unix_s: f64,
    /// How far back it reaches, s: a day at most.
    pub kept_s: u32,
    /// The length of a step, s: what was asked for, or longer, as full minutes are kept of what is older than an hour.
    pub step_s: u32,
    /// The first step that was asked for.
    pub first_step: u32,
    /// So many are told, up to the last that is over.
    pub steps: u32,
    /// The VMs that were here, by name.
    pub vms: Vec<VmHistory>,
}

/// Figures of a VM's past: means over steps, thousandths of a pCPU; null: not known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VmHistory {
    /// The VM's name.
    pub name: String,
    /// The VMM process.
    pub pid: u32,
    /// The user who owns it; 0: root.
    pub user: u32,
    /// Whether it is here now.
    pub is_here: bool,
    /// The step of the first of these figures.
    pub first_step: u32,
    /// How long its threads were ready and did not run, summed over them.
    pub ready_mcpu: Vec<Option<u32>>,
    /// What its settings and all demand entitled it to.
    pub owed_mcpu: Vec<Option<u32>>,
    /// What it got.
    pub got_mcpu: Vec<Option<u32>>,
    /// When it was ready the most.
    pub peak: Option<Peak>,
}

/// The second, or the minute, in which a VM was ready the most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Peak {
    /// How long it was ready, thousandths of a pCPU.
    pub ready_mcpu: u32,
    /// When that began, s after step 0 did.
    pub at_s: u32,
}

/// What was ordered for a VM, whether it is here or not.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OrderStatus {
    /// The VM's name.
    pub name: String,
    /// Whether a VM of that name is here.
    pub here: bool,
    /// How many would have it if it were not one's: a limit is in force for all of them together, all else for the first.
    #[serde(default)]
    pub vms: u32,
    /// What was ordered.
    pub ordered: Asked,
    /// What was ordered for as long as it runs: it goes over that.
    #[serde(default, skip_serializing_if = "Asked::is_empty")]
    pub live: Asked,
}

/// A value that is, or would be, another than before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// Of whom, as people are told it: `VM web`, `pool prod`.
    pub whose: String,
    /// Which value; none: all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Key>,
    /// What it was; none: it was not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// What it is now; none: it is not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

/// What a vCPU does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum VcpuState {
    /// It runs.
    Running,
    /// It is ready and does not run.
    Ready,
    /// It is ready, and stopped for the sake of its siblings.
    CoStopped,
    /// It wants nothing: its guest has halted it, or its thread waits for something else.
    Halted,
    /// It runs or is ready: who does not schedule cannot tell.
    Runnable,
}

impl VcpuState {
    /// The word for it.
    pub fn text(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Ready => "ready",
            Self::CoStopped => "co-stopped",
            Self::Halted => "halted",
            Self::Runnable => "runnable",
        }
    }
}

/// A vCPU of a VM.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VcpuStatus {
    /// Its number in its VM.
    pub number: u32,
    /// Its thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tid: Option<u32>,
    /// What it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<VcpuState>,
    /// The pCPU it last ran on; `drover vm list` reads this and what follows itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pcpu: Option<u32>,
    /// Where its thread may run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<CpuList>,
    /// Time its thread was ready and did not run, ns, since it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_ns: Option<u64>,
    /// The same in the last second, % of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_pct: Option<f64>,
    /// How it moved along with its siblings.
    #[serde(flatten)]
    pub counters: Counters,
}

impl VcpuStatus {
    /// One of which nothing else is known.
    pub fn numbered(number: u32) -> Self {
        Self {
            number,
            tid: None,
            state: None,
            pcpu: None,
            affinity: None,
            ready_ns: None,
            ready_pct: None,
            counters: Counters::default(),
        }
    }
}

impl VmStatus {
    /// A VM as a test wants it.
    #[cfg(test)]
    pub fn sample(name: &str) -> Self {
        Self {
            kind: Kind::Vm,
            name: name.to_owned(),
            named_by: Source::Process,
            label: None,
            uuid: None,
            pid: 7,
            user: 0,
            vcpus: 2,
            shares: 2000,
            shares_by_default: true,
            reservation_mcpu: 0,
            promised_mcpu: 0,
            limit_mcpu: None,
            pool: None,
            partition: "default".to_owned(),
            owed_pcpus: Some(1.5),
            got_pcpus: None,
            vcpu_cpu_s: 1.0,
            helper_cpu_s: 0.25,
            ready_s: 0.5,
            ready_pct: Some(12.5),
            guaranteed_delay_why: String::new(),
            counters: Counters::default(),
            numa: None,
            home_why: None,
            profile: None,
            io: None,
            vcpu: Vec::new(),
            why: Vec::new(),
            troubles: Vec::new(),
        }
    }

    /// What was counted of it and its vCPUs.
    pub fn counters(&self) -> VmCounters {
        let vcpus = self.vcpu.iter().map(|vcpu| (vcpu.number, vcpu.counters)).collect();
        VmCounters { vm: self.counters, vcpus, numa: self.numa.clone(), profile: self.profile }
    }
}

/// A pool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PoolStatus {
    /// The pool's name.
    pub name: String,
    /// The pool it is in; none: the host.
    pub parent: Option<String>,
    /// How deep it is: 1 in the host.
    pub depth: u32,
    /// Shares among its siblings.
    pub shares: u32,
    /// CPU promised to it and kept, thousandths of a pCPU.
    pub reservation_mcpu: u32,
    /// The most CPU it may have, thousandths of a pCPU; none: no limit.
    pub limit_mcpu: Option<u32>,
    /// Whether it may take reservations from its parent.
    pub expandable: bool,
    /// What can still be promised in it, thousandths of a pCPU.
    pub free_mcpu: u64,
    /// VMs directly in it.
    pub vms: u32,
    /// What it is owed now, pCPUs; none until that is known.
    pub owed_pcpus: Option<f64>,
    /// What the VMs in it and below got in the last second, pCPUs; none until that is known.
    pub got_pcpus: Option<f64>,
    /// Where it comes from.
    pub origin: String,
}

/// A partition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PartitionStatus {
    /// The partition's name.
    pub name: String,
    /// Its pCPUs; none: others have all there are.
    pub cpus: Option<CpuList>,
    /// Those of them that are offline.
    pub offline: Option<CpuList>,
    /// How it chooses who runs.
    pub policy: PartitionPolicy,
    /// How long a thread runs before it is asked again, in ms.
    pub slice_ms: f64,
    /// What its pCPUs hold, thousandths of a pCPU; none where nothing can be reserved: by policies other than `share`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_mcpu: Option<u64>,
    /// What of that is kept for the host's own tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_mcpu: Option<u32>,
    /// What of it is promised, to VMs and pools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promised_mcpu: Option<u64>,
    /// What of it can still be reserved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free_mcpu: Option<u64>,
    /// The VMs in it.
    pub vms: Vec<String>,
    /// vCPUs of VMs for which no room is left, and that run as ordinary tasks; of partition `default`.
    #[serde(default)]
    pub unplaced_vcpus: u32,
    /// What they got in the last second, pCPUs; none until that is known.
    pub got_pcpus: Option<f64>,
}

/// A set of VMs that belong together or apart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SetStatus {
    /// The set's name.
    pub name: String,
    /// Its VMs.
    pub vms: Vec<String>,
    /// Those of them that are not here.
    pub absent: Vec<String>,
    /// Together or apart.
    pub kind: SetKind,
    /// In what.
    pub within: Within,
    /// It is never broken.
    pub hard: bool,
    /// Where it comes from.
    pub origin: String,
    /// Why it cannot be kept, or not always, each in a line.
    pub troubles: Vec<String>,
}

/// A NUMA node that may be a home.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeStatus {
    /// Its number.
    pub node: u32,
    /// The partition for which it is one.
    #[serde(default)]
    pub partition: String,
    /// Its pCPUs that are online and in that.
    pub pcpus: u32,
    /// Cores of these.
    pub cores: u32,
    /// Last-level caches of these.
    pub llcs: usize,
    /// What VMs want there, pCPUs.
    pub wanted_pcpus: f64,
    /// The part of that for which there is no pCPU or, where VMs miss their caches, no even part of these, 0 to 1.
    pub crowded: f64,
    /// What pressure on caches and memory is known by.
    pub measured_by: String,
    /// Its memory, MiB.
    pub memory_mib: u64,
    /// Of that, free, MiB.
    pub free_mib: u64,
    /// The VMs that are at home there, with all or some of their parts.
    pub vms: Vec<String>,
}

/// A move to another home that would be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedMove {
    /// The VM.
    pub name: String,
    /// Which part of it, from 1,
    pub part: usize,
    /// of so many.
    pub parts: usize,
    /// From there; none: it has no home.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<HomeNumber>,
    /// To there.
    pub to: HomeNumber,
    /// Why.
    pub why: String,
}

/// The virtual nodes that the guest of a VM should have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Advice {
    /// The VM's vCPUs.
    pub vcpus: u32,
    /// The VM's memory, MiB.
    pub memory_mib: u64,
    /// The most cores that a node of this host has.
    pub node_cores: u32,
    /// The most memory that one has, MiB.
    pub node_memory_mib: u64,
    /// What its guest should be told; none: it needs no virtual nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest: Option<GuestTopology>,
}

// SPDX-License-Identifier: GPL-2.0-only
//! A scenario: a host, its VMs, what they do, the schedulers to compare and what is expected.
//!
//! docs/scenarios.md describes the files. [`Scenario::parse`] reads one and resolves it: every
//! default filled in, every [`Case`] with its own full list of VMs.

use crate::clock::Clock;
use crate::compare::Compare;
use crate::expect::Expect;
use crate::host::Host;
use crate::vm::{Vm, Vmm};
use drover_core::params::Params;
use drover_core::partition::Partitions;
use drover_core::place::Heuristic;
use drover_core::sets::SetSpec;
use drover_core::tree::Tree;

/// One set of VMs to run under each scheduler.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Case {
    /// Unique name, such as `1:7`; `all` in a scenario without cases.
    pub name: String,
    /// The pools, with what the case says of them.
    pub pools: Tree,
    /// The partitions of its host beside `default`.
    pub partitions: Partitions,
    /// Does Drover arrange partitions by what VMs do?
    pub auto_partitions: bool,
    /// Do the pCPUs let spinning vCPUs out, for KVM to yield to a sibling (pause-loop exits)?
    pub ple: bool,
    /// How homes are chosen, in the simulator.
    pub placement: Heuristic,
    /// VMs that belong together or apart.
    pub sets: Vec<SetSpec>,
    /// The VMs that take part, with what the case says of them, in the order of the file; then the containers.
    pub vms: Vec<Vm>,
}

impl Case {
    /// Whether some of what runs are containers: then all are told what they may have by cgroups only.
    pub fn has_containers(&self) -> bool {
        self.vms.iter().any(|vm| vm.vmm == Vmm::Container)
    }
}

/// A scenario, checked, with nothing left to fill in.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// Its name, `[A-Za-z0-9._-]{1,63}`.
    pub name: String,
    /// What it shows, in one line.
    pub description: String,
    /// Measured time of each run, s.
    pub duration_s: f64,
    /// Time the VMs run before it, s.
    pub warmup_s: f64,
    /// How often each case runs under each scheduler.
    pub repeats: u32,
    /// Seed of whatever is drawn at random.
    pub seed: u64,
    /// The lab's clock, unless the command line says otherwise.
    pub clock: Clock,
    /// Schedulers to compare: `eevdf` (nothing loaded), `drover`, or a sched_ext scheduler's
    /// program by name or path. See [`scheduler_label`].
    pub schedulers: Vec<String>,
    /// Interval of the record of CPU time over time, ms; none: no record.
    pub sample_ms: Option<u32>,
    /// The policy's parameters, in the simulator.
    pub policy: Params,
    /// The host.
    pub host: Host,
    /// What runs, one after the other; never empty.
    pub cases: Vec<Case>,
    /// What the results must show.
    pub expects: Vec<Expect>,
    /// What simulator and lab are compared by.
    pub compares: Vec<Compare>,
}

/// The name results give a scheduler: of a path, the file's name.
pub fn scheduler_label(scheduler: &str) -> &str {
    scheduler.rsplit('/').next().unwrap_or(scheduler)
}

// SPDX-License-Identifier: GPL-2.0-only
//! Results of a scenario: the content of results.json, which docs/results.md describes.
//!
//! A figure that was not measured is absent, never 0. Fields may be added, never renamed.

use crate::clock::Clock;
use crate::repeats::Repeats;
use crate::vm::Vm;
use drover_core::counters::{Counters, Numa, VmCounters};
use drover_core::histogram::Histogram;
use drover_core::io::Io;
use drover_core::profile::Profile;
use drover_core::settings::Cosched;
use serde::{Deserialize, Serialize};

/// Where a scenario ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ground {
    /// A virtual host in QEMU.
    Lab,
    /// This machine.
    Host,
    /// The simulator.
    Sim,
}

/// All runs of a scenario.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// The scenario's name.
    pub scenario: String,
    /// Where it ran.
    pub ground: Ground,
    /// The lab's clock; absent on a real host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<Clock>,
    /// What it ran from.
    #[serde(flatten)]
    pub origin: Origin,
    /// The seed of its first repeat; each run has its own.
    pub seed: u64,
    /// Release of the kernel under test, as `uname -r` says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// One entry for each case, scheduler and repeat, in the order they ran.
    pub runs: Vec<Run>,
    /// What its repeats say together; absent where nothing ran more than once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeats: Option<Repeats>,
    /// When and how long by a clock on the wall: all that differs between two exact runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wall: Option<Wall>,
}

/// What results come from: what somebody must have to make them again.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Origin {
    /// The scenario's file, then those it names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileSum>,
    /// What was laid over these, such as `host.cores=16`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub set: Vec<String>,
    /// The host, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// Drover's version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drover: Option<String>,
    /// SHA-256 of the program that ran it, in hex: what tells two builds of a version apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
}

/// A file, and what tells whether another has the same text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSum {
    /// Its name, as it was given.
    pub name: String,
    /// SHA-256 of its text, in hex.
    pub sha256: String,
}

/// Time on the wall clock.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Wall {
    /// Start, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<String>,
    /// How long everything took, booting included, s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elapsed_s: Option<f64>,
}

/// One case under one scheduler, once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Name of the case.
    pub case: String,
    /// Scheduler, as [`crate::scheduler_label`] names it.
    pub scheduler: String,
    /// Which repeat, from 1.
    pub repeat: u32,
    /// Its seed: in the simulator each repeat has one of its own, and with it as the scenario's the same happens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Time really measured, s.
    pub duration_s: f64,
    /// Why the figures are not to be trusted: the scheduler was ejected, a VM died ...
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// The host's figures.
    pub host: HostFigures,
    /// The VMs' figures, in the order of the scenario.
    pub vms: Vec<VmFigures>,
}

/// What was measured of the host during a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct HostFigures {
    /// Number of pCPUs.
    pub pcpus: u32,
    /// Idle time of all pCPUs together, s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_s: Option<f64>,
    /// Context switches on all pCPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_switches: Option<u64>,
    /// Time spent in BPF programs, as the kernel counts it, ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bpf_run_ns: Option<u64>,
    /// How often vCPUs that spun left their guests for it; of the simulator only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause_exits: Option<u64>,
    /// CPU time that these exits took, s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause_exit_s: Option<f64>,
    /// Siblings that were ready and did not run at such an exit, on average.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preempted_siblings: Option<f64>,
    /// Those of them that held a spinlock, on average.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preempted_holders: Option<f64>,
    /// CPU time that page faults of guests took, where a scheduler takes their memory away, s; of the simulator only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_fault_s: Option<f64>,
    /// What of that they waited for a lock of their VM, s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_fault_spin_s: Option<f64>,
}

/// What was measured of a VM during a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct VmFigures {
    /// Its name.
    pub name: String,
    /// Number of vCPUs.
    pub vcpus: u32,
    /// Its shares.
    pub shares: u32,
    /// CPU it is promised, in % of one pCPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation_pct: Option<u32>,
    /// CPU it may have at most, in % of one pCPU; absent: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_pct: Option<u32>,
    /// The pool it is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// The partition it runs in; absent: `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    /// How its vCPUs are kept together, where the scenario says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cosched: Option<Cosched>,
    /// CPU time it is owed, s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owed_cpu_s: Option<f64>,
    /// What it is owed, in % of what all VMs are owed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_owed_pct: Option<f64>,
    /// What it got, in % of the CPU time of all VMs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_got_pct: Option<f64>,
    /// CPU time of all its threads, as the kernel accounts it, s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_s: Option<f64>,
    /// CPU time of those threads of it that are no vCPUs, s; part of `cpu_s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub helpers_cpu_s: Option<f64>,
    /// CPU time of the vCPU that got least, s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vcpu_min_cpu_s: Option<f64>,
    /// CPU time of the vCPU that got most, s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vcpu_max_cpu_s: Option<f64>,
    /// How often its threads were put on a pCPU where another had run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatches: Option<u64>,
    /// How often its threads were put on another pCPU than their last; of the simulator only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moves: Option<u64>,
    /// What its workload counts: loops, sections, rounds or wake-ups of all vCPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<u64>,
    /// How often its vCPUs asked the host to run another in their place; absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub yields: Option<u64>,
    /// How long its Linux guest took from its start until it was ready, s; of the lab only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_s: Option<f64>,
    /// CPU time that its vCPUs spun in the guest, s; of the simulator only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spin_s: Option<f64>,
    /// The longest that a vCPU of it spun in one go since the VM began, ms of CPU time; of the simulator only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest_spin_ms: Option<f64>,
    /// The part of its memory accesses that are to the node where it runs, %: as if all of its memory were
    /// used alike, in each ms of CPU time; of the simulator only, on hosts of several nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_access_pct: Option<f64>,
    /// How its vCPUs moved along together, where the scheduler counts that.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub counters: Option<Counters>,
    /// Its vCPUs, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vcpu: Vec<VcpuFigures>,
    /// What kind of work it did, and the evidence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
    /// Where it is at home, on a host of several NUMA nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa: Option<NumaFigures>,
    /// How long its I/O waited for pCPUs, of a VM with a disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io: Option<Io>,
    /// How late its vCPUs woke from their timers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wakeup_us: Option<WakeupUs>,
    /// CPU time over time, when the scenario asks for it (`sample_ms`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeline: Option<Timeline>,
}

/// Where a VM's memory lies and where it ran.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct NumaFigures {
    /// The nodes that are home to its parts, in order.
    #[serde(default)]
    pub home: Vec<u32>,
    /// How often a part of it left its home since it began.
    #[serde(default)]
    pub migrations: u32,
    /// The part of its memory that lies there at the end, %.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_pct: Option<f64>,
    /// The part of its CPU time that it ran there, %.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home_time_pct: Option<f64>,
    /// Memory that was moved there since it began, MiB.
    #[serde(default)]
    pub moved_mib: f64,
}

impl From<Numa> for NumaFigures {
    fn from(numa: Numa) -> Self {
        let Numa { home, local_pct, migrations, moved_mib, home_s, ran_s } = numa;
        let home_time_pct = (!home.is_empty() && ran_s > 0.0).then(|| 100.0 * home_s / ran_s);
        Self { home, migrations, local_pct, home_time_pct, moved_mib }
    }
}

/// What was measured of a vCPU during a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct VcpuFigures {
    /// CPU time of its thread, s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_s: Option<f64>,
    /// Its part of the VM's progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<u64>,
    /// How it moved along with its siblings, where the scheduler counts that.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub counters: Option<Counters>,
}

/// Wake-up latency: from when a timer was due to when the guest's code ran. All but the count
/// in µs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WakeupUs {
    /// Wake-ups counted.
    pub count: u64,
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// The latency that 99 of 100 wake-ups do not exceed.
    pub p99: f64,
    /// The longest.
    pub max: f64,
}

/// CPU time of a VM over time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    /// Length of an interval, ms.
    pub interval_ms: u32,
    /// CPU time used in each interval, s.
    pub cpu_s: Vec<f64>,
    /// How long each interval really was, s, where samples come when they can; absent: as it should.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub length_s: Vec<f64>,
}

impl Timeline {
    /// Each interval: CPU time used in it and how long it was, s.
    pub fn intervals(&self) -> Vec<Interval> {
        let planned_s = f64::from(self.interval_ms) / 1000.0;
        let lengths_s = self.length_s.iter().copied().chain(std::iter::repeat(planned_s));
        let each = self.cpu_s.iter().zip(lengths_s);
        each.map(|(&cpu_s, length_s)| Interval { cpu_s, length_s }).collect()
    }
}

/// One interval of a [`Timeline`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// CPU time used in it, s.
    pub cpu_s: f64,
    /// How long it was, s.
    pub length_s: f64,
}

impl WakeupUs {
    /// The figures of a histogram; none when nothing was counted in it.
    pub fn from_histogram(histogram: &Histogram) -> Option<Self> {
        let us = |ns: u64| ns as f64 / 1000.0;
        Some(Self {
            count: histogram.count(),
            mean: histogram.mean_ns()? / 1000.0,
            p50: us(histogram.quantile_ns(0.50)?),
            p99: us(histogram.quantile_ns(0.99)?),
            max: us(histogram.max_ns()?),
        })
    }
}

impl VmFigures {
    /// The figures of `vm` with nothing measured yet.
    pub fn unmeasured(vm: &Vm) -> Self {
        Self {
            name: vm.name.clone(),
            vcpus: vm.vcpus,
            shares: vm.shares_of_all(),
            reservation_pct: Some(vm.reservation_pct),
            limit_pct: vm.limit_pct,
            pool: vm.pool.clone(),
            partition: vm.partition.clone(),
            cosched: vm.cosched,
            ..Self::default()
        }
    }

    /// Takes over what was measured of each vCPU, and sets the least and the most CPU time.
    pub fn set_vcpus(&mut self, vcpu: Vec<VcpuFigures>) {
        let times = || vcpu.iter().filter_map(|one| one.cpu_s);
        self.vcpu_min_cpu_s = times().reduce(f64::min);
        self.vcpu_max_cpu_s = times().reduce(f64::max);
        self.vcpu = vcpu;
    }

    /// Takes over what the scheduler counted; after [`Self::set_vcpus`].
    pub fn set_counters(&mut self, counters: Option<&VmCounters>) {
        self.counters = counters.map(|counters| counters.vm);
        self.profile = counters.and_then(|counters| counters.profile);
        self.numa = counters.and_then(|counters| counters.numa.clone()).map(NumaFigures::from);
        for (number, vcpu) in (0..).zip(&mut self.vcpu) {
            vcpu.counters = counters.and_then(|counters| counters.vcpu(number));
        }
    }
}

impl Run {
    /// Takes over what each VM is owed, s, where that is known.
    pub fn set_owed(&mut self, owed_s: Option<Vec<f64>>) {
        let Some(owed_s) = owed_s else { return };
        let total_s: f64 = owed_s.iter().sum();
        for (vm, owed_s) in self.vms.iter_mut().zip(owed_s) {
            vm.owed_cpu_s = Some(owed_s);
            vm.share_owed_pct = Some(100.0 * owed_s / total_s);
        }
    }

    /// Sets what each VM got, in % of the CPU time of all; leaves it absent while the CPU time
    /// of any VM is, or all is 0.
    pub fn set_share_got(&mut self) {
        let total_s: Option<f64> = self.vms.iter().map(|vm| vm.cpu_s).sum();
        let Some(total_s) = total_s.filter(|&total_s| total_s > 0.0) else { return };
        for vm in &mut self.vms {
            vm.share_got_pct = vm.cpu_s.map(|cpu_s| 100.0 * cpu_s / total_s);
        }
    }

    /// Idle time in % of the host's CPU time.
    pub fn idle_pct(&self) -> Option<f64> {
        let capacity_s = f64::from(self.host.pcpus) * self.duration_s;
        self.host.idle_s.filter(|_| capacity_s > 0.0).map(|idle_s| 100.0 * idle_s / capacity_s)
    }

    /// The VM called `name`.
    pub fn vm(&self, name: &str) -> Option<&VmFigures> {
        self.vms.iter().find(|vm| vm.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: &str = r#"{"scenario":"s","ground":"lab","clock":"exact","seed":1,"runs":[
        {"case":"1:7","scheduler":"drover","repeat":1,"duration_s":4.0,
         "host":{"pcpus":4,"idle_s":0.01,"context_switches":812},
         "vms":[{"name":"vm0","vcpus":4,"shares":1000,"share_owed_pct":12.5,
                 "share_got_pct":12.4,"cpu_s":1.98,"progress":77,
                 "progressed_s":1.5,"hazard_s":0.5,"costop_s":0.25,"costops":7,"costarts":9,
                 "skew_max_ms":4.5,
                 "vcpu":[{"cpu_s":0.5,"progress":19,"progressed_s":0.5,"hazard_s":0.1,
                          "costop_s":0.2,"costops":3,"costarts":3},
                         {"cpu_s":0.5}],
                 "numa":{"home":[1],"local_pct":97.5,"home_time_pct":99.0,"migrations":2,"moved_mib":128.0},
                 "io":{"delay_us":{"to_guest":{"count":9,"mean":4.5,"p50":4.096,"p99":8.192}}},
                 "wakeup_us":{"count":3,"mean":61.5,"p50":60.0,"p99":99.0,"max":120.5}}]}]}"#;

    #[test]
    fn the_shape_that_was_promised_reads_and_writes_back_alike() {
        let results: Results = serde_json::from_str(SHAPE).unwrap();
        let promised: serde_json::Value = serde_json::from_str(SHAPE).unwrap();
        assert_eq!(serde_json::to_value(&results).unwrap(), promised);
    }

    #[test]
    fn what_was_not_measured_is_absent() {
        let vm = VmFigures { name: "vm0".to_owned(), vcpus: 1, shares: 1, ..Default::default() };
        assert_eq!(serde_json::to_string(&vm).unwrap(), r#"{"name":"vm0","vcpus":1,"shares":1}"#);
        let host = HostFigures { pcpus: 4, ..Default::default() };
        assert_eq!(serde_json::to_string(&host).unwrap(), r#"{"pcpus":4}"#);
    }

    #[test]
    fn a_histogram_becomes_figures_in_us() {
        let mut histogram = Histogram::new();
        assert_eq!(WakeupUs::from_histogram(&histogram), None);
        histogram.record(2_000);
        let figures = WakeupUs::from_histogram(&histogram).unwrap();
        assert_eq!((figures.count, figures.mean, figures.max), (1, 2.0, 2.0));
    }

    fn run_with(cpu_s: [Option<f64>; 2]) -> Run {
        let vms = cpu_s.map(|cpu_s| VmFigures { cpu_s, ..Default::default() }).to_vec();
        let host = HostFigures { pcpus: 2, idle_s: Some(0.4), ..Default::default() };
        let (case, scheduler) = ("all".to_owned(), "drover".to_owned());
        Run { case, scheduler, repeat: 1, seed: None, duration_s: 4.0, fault: None, host, vms }
    }

    #[test]
    fn what_each_vm_got_is_a_part_of_the_vms_time() {
        let mut run = run_with([Some(1.0), Some(3.0)]);
        run.set_share_got();
        let got: Vec<_> = run.vms.iter().map(|vm| vm.share_got_pct).collect();
        assert_eq!(got, [Some(25.0), Some(75.0)]);
        assert_eq!(run.idle_pct(), Some(5.0));
        let mut run = run_with([Some(1.0), None]);
        run.set_share_got();
        assert_eq!(run.vms[0].share_got_pct, None, "the total is not known");
    }

    #[test]
    fn vcpu_extremes_come_from_the_vcpus() {
        let mut vm = VmFigures::default();
        let vcpu = |cpu_s| VcpuFigures { cpu_s, ..Default::default() };
        vm.set_vcpus(vec![vcpu(Some(0.5)), vcpu(Some(0.7))]);
        assert_eq!((vm.vcpu_min_cpu_s, vm.vcpu_max_cpu_s), (Some(0.5), Some(0.7)));
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! The figures that expectations can be about.

use crate::results::{Interval, Run, Timeline, VmFigures};
use drover_core::io::Io;
use drover_core::profile::{Class, Profile};
use serde::Deserialize;

/// Limits hold, and reservations are looked at, over windows of this length.
pub(crate) const WINDOW_MS: u32 = 100;
/// Samples come within a ms of when they should: what is shorter than that, s, is no such window.
const LEAST_WINDOW_S: f64 = 0.099;

/// A figure that results hold or that follows from them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Of a VM: its part of the CPU time of all VMs, %.
    ShareGotPct,
    /// Of a VM: its part of the CPU time of all VMs of its partition, %.
    PartitionSharePct,
    /// Of a VM: distance of its part of all from what it is owed, percentage points.
    ShareErrorPoints,
    /// Of a VM: distance of its CPU time from what it is owed, percentage points of the host.
    EntitlementErrorPoints,
    /// Of a VM: distance of its CPU time from what it is owed, % of that.
    OwedErrorPct,
    /// Of a VM: how far the CPU time of another with the same settings is from its own at most, %.
    PeersApartPct,
    /// Of a VM: difference of the most and the least CPU time among it and its peers, % of that of all
    /// VMs.
    PeersApartPoints,
    /// Of a VM: how far the progress of another with the same settings is from its own at most, %.
    ProgressApartPct,
    /// Of a VM: what it was charged for, % of its CPU time.
    ChargedPct,
    /// Of a VM: how far another with the same settings was charged for more or less, %.
    ChargedApartPct,
    /// Of a VM: its CPU time, s.
    CpuS,
    /// Of a VM: its CPU time, pCPUs.
    CpuPcpus,
    /// Of a VM: the least CPU time in any 100 ms, % of one pCPU.
    WindowMinPct,
    /// Of a VM: the most CPU time in any 100 ms, % of what its limit allows.
    LimitUsedPct,
    /// Of a VM: time its threads were ready and a limit held it, s, summed over them.
    LimitedS,
    /// Of a VM: how far, at worst, it was behind its reservation, ms at the reserved rate.
    ReservationLagMs,
    /// Of a VM: the longest that a thread of it was ready, % of what is guaranteed.
    DelayUsedPct,
    /// Of a VM: how often a vCPU of it was stopped because it was ahead of its siblings.
    Costops,
    /// Of a VM: how much more its best served vCPU got than its worst, %.
    VcpuSpreadPct,
    /// Of a VM: how often its threads were put on a pCPU where another had run, 1/s.
    DispatchesPerS,
    /// Of a VM: how often its threads were put on another pCPU than their last, 1/s.
    MovesPerS,
    /// Of a VM: what its workload counts.
    Progress,
    /// Of a VM: what its workload counts, for each s of its CPU time.
    ProgressPerCpuS,
    /// Of a VM: how often its vCPUs asked to be put off for another, for each step of progress.
    YieldsPerProgress,
    /// Of a VM: how long its Linux guest took to boot, s.
    BootS,
    /// Of a VM: CPU time that its vCPUs spun, for each step of progress, µs.
    SpinUsPerProgress,
    /// Of a VM: the longest that a vCPU of it spun in one go, ms of CPU time.
    LongestSpinMs,
    /// Of a VM: the part of its memory accesses that are to the node where it runs, %.
    LocalAccessPct,
    /// Of a VM: the node that is home to its first part.
    HomeNode,
    /// Of a VM: how often a part of it left its home since it began.
    HomeMigrations,
    /// Of a VM: the part of its memory that lies on its home nodes, %.
    LocalPct,
    /// Of a VM: the part of its CPU time that it ran there, %.
    HomeTimePct,
    /// Of a VM: memory that was moved there, MiB.
    MovedMib,
    /// Of a VM: mean wake-up latency, µs.
    WakeupMeanUs,
    /// Of a VM: wake-up latency that 99 of 100 do not exceed, µs.
    WakeupP99Us,
    /// Of a VM: longest wake-up latency, µs.
    WakeupMaxUs,
    /// Of a VM: all of its wake-up latencies, for each step of progress, µs.
    WakeupUsPerProgress,
    /// Of a VM: mean time from a device's waking a vCPU of it to its running, µs.
    IoToGuestMeanUs,
    /// Of a VM: the same of its back ends, woken by its vCPUs or the host, µs.
    IoToDeviceMeanUs,
    /// Of a VM: what its vCPUs lost so for each MB of its I/O, ms.
    IoToGuestMsPerMb,
    /// Of a VM: what its back ends lost so, ms.
    IoToDeviceMsPerMb,
    /// Of a VM: bytes to and from its disks and the network, MB/s.
    IoMbS,
    /// Of a VM: whether its class was `idle` at the end: 1, else 0.
    ClassIsIdle,
    /// Of a VM: whether its class was `io` at the end: 1, else 0.
    ClassIsIo,
    /// Of a VM: whether its class was `cpu` at the end: 1, else 0.
    ClassIsCpu,
    /// Of a VM: whether its class was `memory` at the end: 1, else 0.
    ClassIsMemory,
    /// Of a VM: whether its class was `mixed` at the end: 1, else 0.
    ClassIsMixed,
    /// Of a VM: how often its class changed.
    ClassChanges,
    /// Of the host: idle time, % of its CPU time.
    IdlePct,
    /// Of the host: CPU time of all VMs, s.
    HostCpuS,
    /// Of the host: how many times the least CPU time of a VM the most of one is.
    CpuMaxOverMin,
    /// Of the host: progress of all VMs.
    TotalProgress,
    /// Of the host: context switches.
    ContextSwitches,
    /// Of the host: time in BPF programs per context switch, ns.
    BpfNsPerSwitch,
    /// Of the host: pause-loop exits.
    PauseExits,
    /// Of the host: what these took, % of its CPU time.
    PauseExitPct,
    /// Of the host: siblings that were ready and did not run at such an exit, on average.
    PreemptedSiblings,
    /// Of the host: those of them that held a spinlock.
    PreemptedHolders,
    /// Of the host: page faults of guests whose memory a scheduler takes away, % of its CPU time.
    PageFaultPct,
    /// Of the host: what of that time they waited for a lock of their VM, %.
    PageFaultSpinPct,
}

impl Metric {
    /// All of them.
    pub const ALL: [Metric; 60] = [
        Metric::ShareGotPct,
        Metric::PartitionSharePct,
        Metric::ShareErrorPoints,
        Metric::EntitlementErrorPoints,
        Metric::OwedErrorPct,
        Metric::PeersApartPct,
        Metric::PeersApartPoints,
        Metric::ProgressApartPct,
        Metric::ChargedPct,
        Metric::ChargedApartPct,
        Metric::CpuS,
        Metric::CpuPcpus,
        Metric::WindowMinPct,
        Metric::LimitUsedPct,
        Metric::LimitedS,
        Metric::ReservationLagMs,
        Metric::DelayUsedPct,
        Metric::Costops,
        Metric::VcpuSpreadPct,
        Metric::DispatchesPerS,
        Metric::MovesPerS,
        Metric::Progress,
        Metric::ProgressPerCpuS,
        Metric::YieldsPerProgress,
        Metric::BootS,
        Metric::SpinUsPerProgress,
        Metric::LongestSpinMs,
        Metric::LocalAccessPct,
        Metric::HomeNode,
        Metric::HomeMigrations,
        Metric::LocalPct,
        Metric::HomeTimePct,
        Metric::MovedMib,
        Metric::WakeupMeanUs,
        Metric::WakeupP99Us,
        Metric::WakeupMaxUs,
        Metric::WakeupUsPerProgress,
        Metric::IoToGuestMeanUs,
        Metric::IoToDeviceMeanUs,
        Metric::IoToGuestMsPerMb,
        Metric::IoToDeviceMsPerMb,
        Metric::IoMbS,
        Metric::ClassIsIdle,
        Metric::ClassIsIo,
        Metric::ClassIsCpu,
        Metric::ClassIsMemory,
        Metric::ClassIsMixed,
        Metric::ClassChanges,
        Metric::IdlePct,
        Metric::HostCpuS,
        Metric::CpuMaxOverMin,
        Metric::TotalProgress,
        Metric::ContextSwitches,
        Metric::BpfNsPerSwitch,
        Metric::PauseExits,
        Metric::PauseExitPct,
        Metric::PreemptedSiblings,
        Metric::PreemptedHolders,
        Metric::PageFaultPct,
        Metric::PageFaultSpinPct,
    ];

    /// The word for it in a scenario.
    pub fn name(self) -> &'static str {
        match self {
            Metric::ShareGotPct => "share_got_pct",
            Metric::PartitionSharePct => "partition_share_pct",
            Metric::ShareErrorPoints => "share_error_points",
            Metric::EntitlementErrorPoints => "entitlement_error_points",
            Metric::OwedErrorPct => "owed_error_pct",
            Metric::PeersApartPct => "peers_apart_pct",
            Metric::PeersApartPoints => "peers_apart_points",
            Metric::ProgressApartPct => "progress_apart_pct",
            Metric::ChargedPct => "charged_pct",
            Metric::ChargedApartPct => "charged_apart_pct",
            Metric::CpuS => "cpu_s",
            Metric::CpuPcpus => "cpu_pcpus",
            Metric::WindowMinPct => "window_min_pct",
            Metric::LimitUsedPct => "limit_used_pct",
            Metric::LimitedS => "limited_s",
            Metric::ReservationLagMs => "reservation_lag_ms",
            Metric::DelayUsedPct => "delay_used_pct",
            Metric::Costops => "costops",
            Metric::VcpuSpreadPct => "vcpu_spread_pct",
            Metric::DispatchesPerS => "dispatches_per_s",
            Metric::MovesPerS => "moves_per_s",
            Metric::Progress => "progress",
            Metric::ProgressPerCpuS => "progress_per_cpu_s",
            Metric::YieldsPerProgress => "yields_per_progress",
            Metric::BootS => "boot_s",
            Metric::SpinUsPerProgress => "spin_us_per_progress",
            Metric::LongestSpinMs => "longest_spin_ms",
            Metric::LocalAccessPct => "local_access_pct",
            Metric::HomeNode => "home_node",
            Metric::HomeMigrations => "home_migrations",
            Metric::LocalPct => "local_pct",
            Metric::HomeTimePct => "home_time_pct",
            Metric::MovedMib => "moved_mib",
            Metric::WakeupMeanUs => "wakeup_mean_us",
            Metric::WakeupP99Us => "wakeup_p99_us",
            Metric::WakeupMaxUs => "wakeup_max_us",
            Metric::WakeupUsPerProgress => "wakeup_us_per_progress",
            Metric::IoToGuestMeanUs => "io_to_guest_mean_us",
            Metric::IoToDeviceMeanUs => "io_to_device_mean_us",
            Metric::IoToGuestMsPerMb => "io_to_guest_ms_per_mb",
            Metric::IoToDeviceMsPerMb => "io_to_device_ms_per_mb",
            Metric::IoMbS => "io_mb_s",
            Metric::ClassIsIdle => "class_is_idle",
            Metric::ClassIsIo => "class_is_io",
            Metric::ClassIsCpu => "class_is_cpu",
            Metric::ClassIsMemory => "class_is_memory",
            Metric::ClassIsMixed => "class_is_mixed",
            Metric::ClassChanges => "class_changes",
            Metric::IdlePct => "idle_pct",
            Metric::HostCpuS => "host_cpu_s",
            Metric::CpuMaxOverMin => "cpu_max_over_min",
            Metric::TotalProgress => "total_progress",
            Metric::ContextSwitches => "context_switches",
            Metric::BpfNsPerSwitch => "bpf_ns_per_switch",
            Metric::PauseExits => "pause_exits",
            Metric::PauseExitPct => "pause_exit_pct",
            Metric::PreemptedSiblings => "preempted_siblings",
            Metric::PreemptedHolders => "preempted_holders",
            Metric::PageFaultPct => "page_fault_pct",
            Metric::PageFaultSpinPct => "page_fault_spin_pct",
        }
    }

    /// Whether it is taken of a VM; else of the host.
    pub fn is_of_vm(self) -> bool {
        !matches!(
            self,
            Metric::IdlePct
                | Metric::HostCpuS
                | Metric::CpuMaxOverMin
                | Metric::TotalProgress
                | Metric::ContextSwitches
                | Metric::BpfNsPerSwitch
                | Metric::PauseExits
                | Metric::PauseExitPct
                | Metric::PreemptedSiblings
                | Metric::PreemptedHolders
                | Metric::PageFaultPct
                | Metric::PageFaultSpinPct
        )
    }

    /// Whether its unit is % or percentage points.
    pub fn is_pct(self) -> bool {
        self.name().ends_with("_pct") || self.name().ends_with("_points")
    }

    /// Whether it can be had for a part of the measured time.
    pub fn has_timeline(self) -> bool {
        matches!(self, Metric::ShareGotPct | Metric::CpuS | Metric::CpuPcpus)
            || self.needs_timeline()
    }

    /// Whether it cannot be had without a record over time.
    pub fn needs_timeline(self) -> bool {
        matches!(self, Metric::WindowMinPct | Metric::LimitUsedPct | Metric::ReservationLagMs)
    }

    /// The figure in `run`, of the VM named `vm` where it is one of a VM, within `window_s` where
    /// one is given; none where it was not measured.
    pub fn figure(self, run: &Run, vm: Option<&str>, window_s: Option<(f64, f64)>) -> Option<f64> {
        match (vm, window_s) {
            (Some(name), None) if self.needs_timeline() => {
                self.in_window(run, run.vm(name)?, (0.0, f64::INFINITY))
            }
            (Some(name), None) => self.of_vm(run, run.vm(name)?),
            (Some(name), Some(window_s)) => self.in_window(run, run.vm(name)?, window_s),
            (None, _) => self.of_host(run),
        }
    }

    fn of_vm(self, run: &Run, vm: &VmFigures) -> Option<f64> {
        let wakeup = vm.wakeup_us.as_ref();
        match self {
            Metric::ShareGotPct => vm.share_got_pct,
            Metric::PartitionSharePct => partition_share_pct(run, vm),
            Metric::ShareErrorPoints => Some((vm.share_got_pct? - vm.share_owed_pct?).abs()),
            Metric::EntitlementErrorPoints => {
                let host_s = f64::from(run.host.pcpus) * run.duration_s;
                Some(100.0 * (vm.cpu_s? - vm.owed_cpu_s?).abs() / host_s)
                    .filter(|it| it.is_finite())
            }
            Metric::OwedErrorPct => {
                let owed_s = vm.owed_cpu_s.filter(|owed_s| *owed_s > 0.0)?;
                Some(100.0 * (vm.cpu_s? / owed_s - 1.0).abs())
            }
            Metric::PeersApartPct => peers_apart_pct(run, vm, |it| it.cpu_s),
            Metric::PeersApartPoints => peers_apart_points(run, vm),
            Metric::ProgressApartPct => {
                peers_apart_pct(run, vm, |it| it.progress.map(|progress| progress as f64))
            }
            Metric::ChargedPct => {
                let counters = vm.counters?;
                let used_s = counters.used_s.filter(|&used_s| used_s > 0.0)?;
                Some(100.0 * counters.charged_s? / used_s)
            }
            Metric::ChargedApartPct => peers_apart_pct(run, vm, |it| it.counters?.charged_s),
            Metric::CpuS => vm.cpu_s,
            Metric::CpuPcpus => Some(vm.cpu_s? / run.duration_s).filter(|it| it.is_finite()),
            Metric::LimitedS => vm.counters?.limited_s,
            Metric::DelayUsedPct => {
                let counters = vm.counters?;
                Some(100.0 * counters.longest_ready_ms? / counters.guaranteed_delay_ms?)
            }
            Metric::Costops => Some(vm.counters?.costops as f64),
            Metric::VcpuSpreadPct => {
                let least_s = vm.vcpu_min_cpu_s.filter(|&least_s| least_s > 0.0)?;
                Some(100.0 * (vm.vcpu_max_cpu_s? / least_s - 1.0))
            }
            Metric::DispatchesPerS => {
                Some(vm.dispatches? as f64 / run.duration_s).filter(|it| it.is_finite())
            }
            Metric::MovesPerS => {
                Some(vm.moves? as f64 / run.duration_s).filter(|it| it.is_finite())
            }
            Metric::LocalAccessPct => vm.local_access_pct,
            Metric::HomeNode => vm.numa.as_ref()?.home.first().copied().map(f64::from),
            Metric::HomeMigrations => Some(vm.numa.as_ref()?.migrations.into()),
            Metric::LocalPct => vm.numa.as_ref()?.local_pct,
            Metric::HomeTimePct => vm.numa.as_ref()?.home_time_pct,
            Metric::MovedMib => Some(vm.numa.as_ref()?.moved_mib),
            Metric::WakeupMeanUs => wakeup.map(|wakeup| wakeup.mean),
            Metric::WakeupP99Us => wakeup.map(|wakeup| wakeup.p99),
            Metric::WakeupMaxUs => wakeup.map(|wakeup| wakeup.max),
            Metric::WakeupUsPerProgress => {
                let lost_us = wakeup.map_or(0.0, |wakeup| wakeup.count as f64 * wakeup.mean);
                Some(lost_us / vm.progress? as f64).filter(|us| us.is_finite())
            }
            _ => {
                let of_class = || self.of_profile(&vm.profile?);
                self.of_guest(vm).or_else(of_class).or_else(|| self.of_io(run, vm.io?))
            }
        }
    }

    fn of_profile(self, profile: &Profile) -> Option<f64> {
        let class = match self {
            Metric::ClassIsIdle => Class::Idle,
            Metric::ClassIsIo => Class::Io,
            Metric::ClassIsCpu => Class::Cpu,
            Metric::ClassIsMemory => Class::Memory,
            Metric::ClassIsMixed => Class::Mixed,
            Metric::ClassChanges => return Some(profile.changes.into()),
            _ => return None,
        };
        Some(f64::from(u8::from(profile.class == class)))
    }

    /// What the VM's guest did with its CPU time.
    fn of_guest(self, vm: &VmFigures) -> Option<f64> {
        match self {
            Metric::Progress => vm.progress.map(|progress| progress as f64),
            Metric::ProgressPerCpuS => {
                let cpu_s = vm.cpu_s.filter(|&cpu_s| cpu_s > 0.0)?;
                Some(vm.progress? as f64 / cpu_s)
            }
            Metric::YieldsPerProgress => {
                let progress = vm.progress.filter(|&progress| progress > 0)?;
                Some(vm.yields? as f64 / progress as f64)
            }
            Metric::SpinUsPerProgress => {
                let progress = vm.progress.filter(|&progress| progress > 0)?;
                Some(vm.spin_s? * 1e6 / progress as f64)
            }
            Metric::BootS => vm.boot_s,
            Metric::LongestSpinMs => vm.longest_spin_ms,
            _ => None,
        }
    }

    fn of_io(self, run: &Run, io: Io) -> Option<f64> {
        match self {
            Metric::IoToGuestMeanUs => Some(io.delay_us.to_guest?.mean),
            Metric::IoToDeviceMeanUs => Some(io.delay_us.to_device?.mean),
            Metric::IoToGuestMsPerMb => Some(io.ms_per_mb?.to_guest),
            Metric::IoToDeviceMsPerMb => Some(io.ms_per_mb?.to_device),
            Metric::IoMbS => {
                io.block_bytes.or(io.network_bytes)?;
                let bytes = io.block_bytes.unwrap_or(0) + io.network_bytes.unwrap_or(0);
                Some(bytes as f64 / 1e6 / run.duration_s)
            }
            _ => None,
        }
    }

    fn of_host(self, run: &Run) -> Option<f64> {
        let switches = run.host.context_switches.map(|switches| switches as f64);
        match self {
            Metric::IdlePct => run.idle_pct(),
            Metric::HostCpuS => run.vms.iter().map(|vm| vm.cpu_s).sum(),
            Metric::CpuMaxOverMin => {
                let times: Option<Vec<f64>> = run.vms.iter().map(|vm| vm.cpu_s).collect();
                let times = times?;
                let most_s = times.iter().copied().fold(f64::MIN, f64::max);
                let least_s = times.iter().copied().fold(f64::MAX, f64::min);
                Some(most_s / least_s).filter(|ratio| ratio.is_finite())
            }
            Metric::TotalProgress => {
                let total: Option<u64> = run.vms.iter().map(|vm| vm.progress).sum();
                total.map(|total| total as f64)
            }
            Metric::ContextSwitches => switches,
            Metric::BpfNsPerSwitch => {
                let switches = switches.filter(|&switches| switches > 0.0)?;
                Some(run.host.bpf_run_ns? as f64 / switches)
            }
            Metric::PreemptedSiblings => run.host.preempted_siblings,
            Metric::PreemptedHolders => run.host.preempted_holders,
            Metric::PauseExits => run.host.pause_exits.map(|exits| exits as f64),
            Metric::PauseExitPct => of_host_pct(run, run.host.pause_exit_s?),
            Metric::PageFaultPct => of_host_pct(run, run.host.page_fault_s?),
            Metric::PageFaultSpinPct => {
                let pct = 100.0 * run.host.page_fault_spin_s? / run.host.page_fault_s?;
                Some(pct).filter(|it| it.is_finite())
            }
            _ => None,
        }
    }

    fn in_window(self, run: &Run, vm: &VmFigures, window_s: (f64, f64)) -> Option<f64> {
        let timeline = vm.timeline.as_ref()?;
        let intervals = &within(timeline, window_s)?;
        let used_s: f64 = intervals.iter().map(|interval| interval.cpu_s).sum();
        match self {
            Metric::CpuS => Some(used_s),
            Metric::CpuPcpus => Some(pcpus(intervals)),
            Metric::WindowMinPct => windows_pct(timeline, intervals)?.reduce(f64::min),
            Metric::LimitUsedPct => {
                let most_pct = windows_pct(timeline, intervals)?.reduce(f64::max)?;
                Some(100.0 * most_pct / f64::from(vm.limit_pct?))
            }
            Metric::ReservationLagMs => {
                let reserved_pcpus = f64::from(vm.reservation_pct.filter(|pct| *pct > 0)?) / 100.0;
                Some(lag_ms(intervals, reserved_pcpus))
            }
            Metric::ShareGotPct => {
                let each = run.vms.iter().map(|vm| cpu_s_within(vm, window_s));
                let total_s: Option<f64> = each.sum();
                total_s.filter(|&total_s| total_s > 0.0).map(|total_s| 100.0 * used_s / total_s)
            }
            _ => None,
        }
    }
}

/// So much CPU time in % of all of the host's.
fn of_host_pct(run: &Run, cpu_s: f64) -> Option<f64> {
    let host_s = f64::from(run.host.pcpus) * run.duration_s;
    Some(100.0 * cpu_s / host_s).filter(|it| it.is_finite())
}

/// What the VM got, in % of what all of its partition got.
fn partition_share_pct(run: &Run, vm: &VmFigures) -> Option<f64> {
    let of_partition = run.vms.iter().filter(|other| other.partition == vm.partition);
    let total_s: Option<f64> = of_partition.map(|other| other.cpu_s).sum();
    total_s.filter(|&total_s| total_s > 0.0).and_then(|total_s| Some(100.0 * vm.cpu_s? / total_s))
}

/// The most another VM's figure differs from that of `vm`, % of the latter: of those with the same settings, in
/// the same pool, of as many vCPUs; without any, 0.
fn peers_apart_pct(
    run: &Run,
    vm: &VmFigures,
    figure: fn(&VmFigures) -> Option<f64>,
) -> Option<f64> {
    let mine = figure(vm).filter(|&mine| mine > 0.0)?;
    let apart_pct = |other: &VmFigures| Some(100.0 * (figure(other)? / mine - 1.0).abs());
    peers(run, vm).map(apart_pct).try_fold(0.0, |most, apart| Some(f64::max(most, apart?)))
}

/// By how much those VMs differ at most, % of the CPU time of all VMs.
fn peers_apart_points(run: &Run, vm: &VmFigures) -> Option<f64> {
    let times = |vms: &mut dyn Iterator<Item = &VmFigures>| -> Option<Vec<f64>> {
        vms.map(|vm| vm.cpu_s).collect()
    };
    let total_s: f64 = times(&mut run.vms.iter())?.iter().sum();
    let of_peers = times(&mut peers(run, vm))?;
    let most_s = of_peers.iter().copied().fold(f64::MIN, f64::max);
    let least_s = of_peers.iter().copied().fold(f64::MAX, f64::min);
    Some(100.0 * (most_s - least_s) / total_s).filter(|points| points.is_finite())
}

/// The VM, and those with the same settings, in the same pool, of as many vCPUs.
fn peers<'a>(run: &'a Run, vm: &'a VmFigures) -> impl Iterator<Item = &'a VmFigures> {
    run.vms.iter().filter(move |other| {
        (other.shares, other.reservation_pct, other.limit_pct)
            == (vm.shares, vm.reservation_pct, vm.limit_pct)
            && (&other.pool, &other.partition, other.vcpus) == (&vm.pool, &vm.partition, vm.vcpus)
    })
}

/// CPU time of `vm` in the intervals of its timeline that lie wholly within `window_s`.
fn cpu_s_within(vm: &VmFigures, window_s: (f64, f64)) -> Option<f64> {
    Some(within(vm.timeline.as_ref()?, window_s)?.iter().map(|interval| interval.cpu_s).sum())
}

/// The intervals of a timeline that lie wholly within `window_s`; none where there is none.
fn within(timeline: &Timeline, window_s: (f64, f64)) -> Option<Vec<Interval>> {
    let interval_s = f64::from(timeline.interval_ms) / 1000.0;
    // Bounds such as 2.1 s are no sums of binary fractions: allow a hair on either side.
    let hair = 1e-3;
    let first = (window_s.0 / interval_s - hair).ceil().max(0.0) as usize;
    let last = (window_s.1 / interval_s + hair).floor().min(timeline.cpu_s.len() as f64) as usize;
    let intervals = timeline.intervals();
    Some(intervals.get(first..last)?.to_vec()).filter(|intervals| !intervals.is_empty())
}

/// CPU time over time.
fn pcpus(intervals: &[Interval]) -> f64 {
    let (used_s, length_s) = intervals.iter().fold((0.0, 0.0), |(used_s, length_s), interval| {
        (used_s + interval.cpu_s, length_s + interval.length_s)
    });
    used_s / length_s
}

/// CPU time in each 100 ms that begin with one of these intervals, % of one pCPU: of as long as that
/// really was, for a sample may come late, and the interval before it is the longer and the one after it
/// the shorter; one more is taken where it takes one more to make 100 ms. None where intervals do not divide
/// 100 ms, or all of them are shorter.
fn windows_pct<'a>(
    timeline: &Timeline,
    intervals: &'a [Interval],
) -> Option<impl Iterator<Item = f64> + use<'a>> {
    let length = (WINDOW_MS / timeline.interval_ms) as usize;
    let fits = WINDOW_MS % timeline.interval_ms == 0 && intervals.len() >= length;
    let is_long = |window: &[Interval]| {
        let length_s: f64 = window.iter().map(|interval| interval.length_s).sum();
        length_s >= LEAST_WINDOW_S
    };
    let window = move |from: usize| {
        let mut windows = (length..=intervals.len() - from).map(|n| &intervals[from..from + n]);
        windows.find(|window| is_long(window))
    };
    let starts = 0..=intervals.len().saturating_sub(length);
    fits.then(|| starts.filter_map(window).map(|window| 100.0 * pcpus(window)))
}

/// How far, at worst, CPU time fell behind `reserved_pcpus` from the first of these intervals on, in
/// ms at that rate: what the service began too late.
fn lag_ms(intervals: &[Interval], reserved_pcpus: f64) -> f64 {
    let (mut used_s, mut passed_s) = (0.0, 0.0);
    let lags = intervals.iter().map(|interval| {
        used_s += interval.cpu_s;
        passed_s += interval.length_s;
        passed_s - used_s / reserved_pcpus
    });
    1000.0 * lags.fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{HostFigures, WakeupUs};
    use drover_core::counters::Counters;
    use drover_core::io::{DelayUs, IoDelays, MsPerMb};
    use drover_core::profile::Evidence;

    fn timeline(interval_ms: u32, cpu_s: &[f64]) -> Timeline {
        Timeline { interval_ms, cpu_s: cpu_s.to_vec(), length_s: Vec::new() }
    }

    fn host() -> HostFigures {
        HostFigures {
            pcpus: 2,
            idle_s: Some(0.08),
            context_switches: Some(1000),
            bpf_run_ns: Some(250_000),
            pause_exits: Some(4_000),
            pause_exit_s: Some(0.04),
            preempted_siblings: Some(9.5),
            preempted_holders: Some(0.5),
            page_fault_s: Some(0.08),
            page_fault_spin_s: Some(0.02),
        }
    }

    fn run() -> Run {
        let timeline = |cpu_s: &[f64]| Some(timeline(100, cpu_s));
        let delay = |mean| Some(DelayUs { count: 9, mean, p50: 4.096, p99: 16.384 });
        let vm0 = VmFigures {
            name: "vm0".to_owned(),
            share_owed_pct: Some(25.0),
            share_got_pct: Some(24.0),
            cpu_s: Some(1.9),
            owed_cpu_s: Some(1.5),
            reservation_pct: Some(50),
            limit_pct: Some(80),
            vcpu_min_cpu_s: Some(0.5),
            vcpu_max_cpu_s: Some(0.6),
            dispatches: Some(120),
            moves: Some(20),
            progress: Some(70),
            yields: Some(77),
            boot_s: Some(3.5),
            spin_s: Some(0.7),
            longest_spin_ms: Some(2.5),
            local_access_pct: Some(50.0),
            counters: Some(Counters {
                used_s: Some(1.6),
                charged_s: Some(1.2),
                limited_s: Some(0.3),
                longest_ready_ms: Some(16.5),
                guaranteed_delay_ms: Some(66.0),
                ..Counters::default()
            }),
            numa: Some(crate::results::NumaFigures {
                home: vec![1],
                migrations: 0,
                local_pct: Some(99.0),
                home_time_pct: Some(98.0),
                moved_mib: 64.0,
            }),
            io: Some(Io {
                block_bytes: Some(750_000),
                network_bytes: Some(1_250_000),
                ms_per_mb: Some(MsPerMb { to_guest: 1.5, to_device: 2.5 }),
                delay_us: IoDelays { to_guest: delay(5.5), to_device: delay(6.5) },
            }),
            profile: Some(Profile {
                class: Class::Io,
                for_s: 9.0,
                changes: 2,
                evidence: Evidence::default(),
            }),
            wakeup_us: Some(WakeupUs { count: 9, mean: 60.0, p50: 55.0, p99: 99.0, max: 120.0 }),
            timeline: timeline(&[0.1, 0.02, 0.02]),
            ..Default::default()
        };
        let vm1 = VmFigures {
            name: "vm1".to_owned(),
            cpu_s: Some(6.0),
            progress: Some(30),
            timeline: timeline(&[0.1, 0.18, 0.06]),
            ..Default::default()
        };
        let (case, scheduler, vms) = ("all".to_owned(), "drover".to_owned(), vec![vm0, vm1]);
        let host = host();
        Run { case, scheduler, repeat: 1, seed: None, duration_s: 4.0, fault: None, host, vms }
    }

    #[test]
    fn figures_of_a_vm() {
        let figure = |metric: Metric| metric.figure(&run(), Some("vm0"), None).unwrap();
        assert_eq!(figure(Metric::ShareGotPct), 24.0);
        assert_eq!(figure(Metric::ShareErrorPoints), 1.0);
        assert!((figure(Metric::PartitionSharePct) - 100.0 * 1.9 / 7.9).abs() < 1e-9);
        let mut apart = run();
        apart.vms[1].partition = Some("io".to_owned());
        assert_eq!(Metric::PartitionSharePct.figure(&apart, Some("vm0"), None), Some(100.0));
        assert_eq!(figure(Metric::CpuS), 1.9);
        assert!((figure(Metric::EntitlementErrorPoints) - 5.0).abs() < 1e-9);
        assert!((figure(Metric::CpuPcpus) - 0.475).abs() < 1e-9);
        assert!((figure(Metric::WindowMinPct) - 20.0).abs() < 1e-9);
        assert!((figure(Metric::LimitUsedPct) - 125.0).abs() < 1e-9);
        assert!((figure(Metric::OwedErrorPct) - 26.666_666_667).abs() < 1e-6);
        assert!((figure(Metric::VcpuSpreadPct) - 20.0).abs() < 1e-9);
        assert!((figure(Metric::ChargedPct) - 75.0).abs() < 1e-9);
        assert_eq!(figure(Metric::ChargedApartPct), 0.0);
        assert_eq!(figure(Metric::LimitedS), 0.3);
        assert_eq!(figure(Metric::DelayUsedPct), 25.0);
        assert_eq!(figure(Metric::DispatchesPerS), 30.0);
        assert_eq!(figure(Metric::MovesPerS), 5.0);
        assert_eq!(figure(Metric::Progress), 70.0);
        assert!((figure(Metric::YieldsPerProgress) - 1.1).abs() < 1e-9);
        assert_eq!(figure(Metric::BootS), 3.5);
        assert_eq!(figure(Metric::WakeupMeanUs), 60.0);
        assert_eq!(figure(Metric::WakeupP99Us), 99.0);
        assert_eq!(figure(Metric::WakeupMaxUs), 120.0);
        assert_eq!(figure(Metric::IoToGuestMeanUs), 5.5);
        assert_eq!(figure(Metric::IoToDeviceMeanUs), 6.5);
        assert_eq!(figure(Metric::IoToGuestMsPerMb), 1.5);
        assert_eq!(figure(Metric::IoToDeviceMsPerMb), 2.5);
        assert_eq!(figure(Metric::IoMbS), 0.5);
        let [idle, changes] = [Metric::ClassIsIdle, Metric::ClassChanges];
        assert_eq!(idle.figure(&run(), Some("vm1"), None), None, "its class is not known");
        assert_eq!((figure(Metric::ClassIsIo), figure(idle), figure(changes)), (1.0, 0.0, 2.0));
    }

    #[test]
    fn vms_with_the_same_settings_are_compared() {
        let mut run = run();
        let apart = |run: &Run, vm| Metric::PeersApartPct.figure(run, Some(vm), None);
        assert_eq!(apart(&run, "vm0"), Some(0.0));
        let peer =
            |name: &str, cpu_s| VmFigures { name: name.to_owned(), cpu_s, ..run.vms[1].clone() };
        let peers = [peer("vm2", Some(6.6)), peer("vm3", Some(5.7))];
        run.vms.extend(peers);
        assert!((apart(&run, "vm1").unwrap() - 10.0).abs() < 1e-9);
        assert!((apart(&run, "vm2").unwrap() - 100.0 * 0.9 / 6.6).abs() < 1e-9);
        assert_eq!(apart(&run, "vm0"), Some(0.0));
        run.vms[2].progress = run.vms[1].progress.map(|progress| progress * 7 / 5);
        let progress = Metric::ProgressApartPct.figure(&run, Some("vm1"), None).unwrap();
        assert!((progress - 40.0).abs() < 1e-9);
        let points = |run: &Run, vm| Metric::PeersApartPoints.figure(run, Some(vm), None);
        for peer in ["vm1", "vm2", "vm3"] {
            let all_s = 1.9 + 6.0 + 6.6 + 5.7;
            assert!((points(&run, peer).unwrap() - 100.0 * 0.9 / all_s).abs() < 1e-9, "{peer}");
        }
        assert_eq!(points(&run, "vm0"), Some(0.0));
        run.vms[3].cpu_s = None;
        assert_eq!((apart(&run, "vm1"), points(&run, "vm1")), (None, None));
    }

    #[test]
    fn figures_of_the_host() {
        let figure = |metric: Metric| metric.figure(&run(), None, None).unwrap();
        assert!((figure(Metric::IdlePct) - 1.0).abs() < 1e-9);
        assert!((figure(Metric::HostCpuS) - 7.9).abs() < 1e-9);
        assert!((figure(Metric::CpuMaxOverMin) - 6.0 / 1.9).abs() < 1e-9);
        assert_eq!(figure(Metric::TotalProgress), 100.0);
        assert_eq!(figure(Metric::ContextSwitches), 1000.0);
        assert_eq!(figure(Metric::BpfNsPerSwitch), 250.0);
        assert_eq!(figure(Metric::PauseExits), 4_000.0);
        assert!((figure(Metric::PauseExitPct) - 0.5).abs() < 1e-9);
        assert!((figure(Metric::PageFaultPct) - 1.0).abs() < 1e-9);
        assert!((figure(Metric::PageFaultSpinPct) - 25.0).abs() < 1e-9);
        let spin_us = Metric::SpinUsPerProgress.figure(&run(), Some("vm0"), None).unwrap();
        assert!((spin_us - 10_000.0).abs() < 1e-6, "{spin_us}");
    }

    #[test]
    fn figures_of_a_window_come_from_the_timeline() {
        let figure = |metric: Metric, window| metric.figure(&run(), Some("vm0"), Some(window));
        assert_eq!(figure(Metric::ShareGotPct, (0.0, 0.1)), Some(50.0));
        let later = figure(Metric::ShareGotPct, (0.1, 0.2)).unwrap();
        assert!((later - 10.0).abs() < 1e-9, "{later}");
        let used_s = figure(Metric::CpuS, (0.1, 0.3)).unwrap();
        assert!((used_s - 0.04).abs() < 1e-9, "{used_s}");
        assert_eq!(figure(Metric::CpuS, (0.15, 0.25)), None, "no whole interval");
    }

    #[test]
    fn windows_of_100_ms_slide_from_sample_to_sample() {
        let run = |interval_ms: u32, cpu_s: &[f64]| {
            let mut run = run();
            run.vms[0].timeline = Some(timeline(interval_ms, cpu_s));
            run
        };
        let figure = |metric: Metric, run: &Run| metric.figure(run, Some("vm0"), None);
        let burst = run(50, &[0.0, 0.04, 0.05, 0.0]);
        assert!((figure(Metric::LimitUsedPct, &burst).unwrap() - 112.5).abs() < 1e-9);
        assert!((figure(Metric::WindowMinPct, &burst).unwrap() - 40.0).abs() < 1e-9);
        assert_eq!(figure(Metric::LimitUsedPct, &run(30, &[0.03; 9])), None, "no whole window");
        assert_eq!(figure(Metric::LimitUsedPct, &run(50, &[0.05])), None, "too short");
    }

    #[test]
    fn a_late_sample_makes_no_window_of_its_own() {
        // All of a pCPU throughout; the third sample comes 2 ms late.
        let mut run = run();
        let length_s = vec![0.05, 0.05, 0.052, 0.048, 0.05];
        run.vms[0].timeline =
            Some(Timeline { length_s: length_s.clone(), ..timeline(50, &length_s) });
        run.vms[0].limit_pct = Some(100);
        run.vms[0].reservation_pct = Some(100);
        let figure = |metric: Metric| metric.figure(&run, Some("vm0"), None).unwrap();
        assert!((figure(Metric::WindowMinPct) - 100.0).abs() < 1e-9);
        assert!((figure(Metric::LimitUsedPct) - 100.0).abs() < 1e-9);
        assert!(figure(Metric::ReservationLagMs).abs() < 1e-9);
        let pcpus = Metric::CpuPcpus.figure(&run, Some("vm0"), Some((0.1, 0.15))).unwrap();
        assert!((pcpus - 1.0).abs() < 1e-9, "{pcpus}");
    }

    #[test]
    fn what_a_late_sample_leaves_is_no_window_of_100_ms() {
        // Half of a pCPU in any 100 ms; the VM used its part early, and the first interval is short.
        let mut run = run();
        run.vms[0].limit_pct = Some(50);
        run.vms[0].timeline = Some(Timeline {
            interval_ms: 50,
            cpu_s: vec![0.020, 0.026, 0.024, 0.025, 0.025],
            length_s: vec![0.039, 0.050, 0.050, 0.050, 0.050],
        });
        let used = Metric::LimitUsedPct.figure(&run, Some("vm0"), None).unwrap();
        assert!((used - 100.7).abs() < 0.05, "{used}");
    }

    #[test]
    fn a_late_service_lags_by_the_time_it_was_late() {
        // Half a pCPU is reserved; nothing for 20 ms, then all of a pCPU.
        let lag = |cpu_s: &[f64]| lag_ms(&timeline(10, cpu_s).intervals(), 0.5);
        assert!((lag(&[0.0, 0.0, 0.01, 0.01, 0.01]) - 20.0).abs() < 1e-9);
        assert_eq!(lag(&[0.01, 0.01]), 0.0);
        let lag = Metric::ReservationLagMs.figure(&run(), Some("vm0"), Some((0.1, 0.3))).unwrap();
        assert!((lag - 120.0).abs() < 1e-9, "{lag}");
        assert_eq!(Metric::ReservationLagMs.figure(&run(), Some("vm1"), None), None);
    }

    #[test]
    fn what_was_not_measured_has_no_figure() {
        let run = run();
        for metric in [Metric::ShareErrorPoints, Metric::VcpuSpreadPct, Metric::WakeupMeanUs] {
            assert_eq!(metric.figure(&run, Some("vm1"), None), None, "{}", metric.name());
        }
        assert_eq!(Metric::CpuS.figure(&run, Some("nobody"), None), None);
        assert_eq!(Metric::CpuS.figure(&run, None, None), None);
    }

    #[test]
    fn every_metric_is_of_a_vm_or_of_the_host() {
        let run = run();
        for metric in Metric::ALL {
            let of_vm = metric.figure(&run, Some("vm0"), None).is_some();
            let of_host = metric.figure(&run, None, None).is_some();
            assert_eq!((of_vm, of_host), (metric.is_of_vm(), !metric.is_of_vm()), "{metric:?}");
        }
    }
}

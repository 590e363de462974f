// SPDX-License-Identifier: GPL-2.0-only
//! What the rig does to the policy: a host, VMs and faults, drawn from a seed (draw.rs) or read from a file.

use crate::class::VmBounds;
use crate::cpu_set::CpuSet;
use drover_core::partition::PartitionPolicy;
use drover_core::settings::{Cosched, PoolSettings};
use drover_scenario::Workload;
use serde::{Deserialize, Serialize};

/// The shape of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shape {
    /// Last-level caches.
    pub dies: u32,
    /// Cores of each.
    pub cores: u32,
    /// Hardware threads of a core.
    pub threads: u32,
    /// Cores of each die, where these are not alike; none: all have `cores`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cores_of: Vec<u32>,
}

/// A VM, or with helpers only a process of the host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptVm {
    /// Threads, vCPUs first.
    pub threads: u32,
    /// How many of them are no vCPUs.
    pub helpers: u32,
    /// Its shares.
    pub shares: u32,
    /// What its threads do.
    pub workload: Workload,
    /// The pCPUs it is confined to; none: any.
    pub pin: Option<Vec<u32>>,
    /// Each thread is pinned to one of these pCPUs alone, one after the other.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub one_each: bool,
    /// When it starts.
    pub start_us: u64,
    /// What is asked for it beyond shares.
    #[serde(default)]
    pub bounds: VmBounds,
}

/// Something that goes wrong or changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// A pCPU goes.
    Offline(u32),
    /// A pCPU comes back.
    Online(u32),
    /// All threads of a VM are killed.
    Kill(u32),
    /// A VM's shares are changed.
    Shares(u32, u32),
    /// What is asked for a VM beyond shares changes.
    Bounds(u32, VmBounds),
    /// What is asked for a pool changes.
    Pool(u32, PoolSettings),
    /// A VM's thread is confined to these pCPUs; to none: freed.
    Confine(u32, u32, Vec<u32>),
    /// All threads of a VM are confined to these pCPUs, as by its cpuset; to none: freed.
    Cpuset(u32, Vec<u32>),
    /// A real-time task takes a pCPU for so many µs.
    RealTime(u32, u64),
    /// That NUMA node, + 1, is a VM's home; 0: it has none.
    Home(u32, u32),
    /// A partition, from 1 on, has these pCPUs from now on, that policy, and slices of so many µs; without
    /// pCPUs it is removed, and its VMs are in `default`.
    Partition(u32, Vec<u32>, PartitionPolicy, u64),
    /// A VM is in that partition from now on.
    Join(u32, u32),
    /// From now on whatever threads of a VM run yield every so many µs: to one of its threads, mostly.
    Yields(u32, u64),
    /// Kicks take so many µs more from now on.
    KicksLate(u64),
    /// The next timer comes so many µs late.
    TimerLate(u64),
    /// The daemon answers nobody for so many µs.
    DaemonHangs(u64),
    /// The clock the policy reads is off by so many µs from now on.
    ClockOff(i64),
}

/// A fault and its moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimedFault {
    /// When.
    pub at_us: u64,
    /// What.
    pub fault: Fault,
}

/// A trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// The seed it was drawn from.
    pub seed: u64,
    /// The host.
    pub host: Shape,
    /// Ticks of its kernel a second.
    #[serde(default = "hz_of_most")]
    pub hz: u32,
    /// How long it takes.
    pub duration_us: u64,
    /// Virtual time at the start, ns: some begin just before it wraps.
    pub vtime_ns: u64,
    /// The pools, from 1 on; the root is 0.
    #[serde(default)]
    pub pools: Vec<PoolSettings>,
    /// The VMs.
    pub vms: Vec<ScriptVm>,
    /// What goes wrong, in order.
    pub faults: Vec<TimedFault>,
}

/// Partitions that are made by then are made before anything is counted.
pub const DIVIDED_US: u64 = 2_000;

/// How a host is divided into partitions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Divided {
    /// The partition of each pCPU.
    pub of_cpu: Vec<u32>,
    /// That of each VM.
    pub of_vm: Vec<u32>,
    /// The policy of each, from `default` on.
    pub policies: Vec<PartitionPolicy>,
}

/// What Debian, Ubuntu and Fedora build.
fn hz_of_most() -> u32 {
    250
}

impl ScriptVm {
    /// The pCPUs of so many that its threads may run on, taken together.
    pub fn may_use(&self, pcpus: u32) -> CpuSet {
        let pin = self.pin.as_ref().map(|pin| CpuSet::of(pcpus, pin.iter().copied()));
        pin.filter(|pin| pin.count() > 0).unwrap_or_else(|| CpuSet::all(pcpus))
    }

    /// The pCPUs its thread of that number may run on.
    pub fn may_use_as(&self, pcpus: u32, thread: u32) -> CpuSet {
        let all = self.may_use(pcpus);
        let one = all.iter().nth((thread % all.count()) as usize).filter(|_| self.one_each);
        one.map_or(all, |one| CpuSet::of(pcpus, [one]))
    }

    /// Is it of a mode that may have it wait beside an idle pCPU?
    pub fn may_be_held(&self) -> bool {
        !matches!(self.bounds.cosched, Cosched::Auto | Cosched::Off)
    }
}

impl Shape {
    /// Number of pCPUs.
    pub fn pcpus(&self) -> u32 {
        self.cores_by_die().iter().sum::<u32>() * self.threads
    }

    /// Cores of each die.
    pub fn cores_by_die(&self) -> Vec<u32> {
        match self.cores_of.is_empty() {
            true => vec![self.cores; self.dies as usize],
            false => self.cores_of.clone(),
        }
    }
}

impl Script {
    /// The partition of each pCPU, each VM's, and the policies of partitions, as they are when none change
    /// any more.
    pub fn partitions(&self) -> Divided {
        let mut divided = Divided {
            of_cpu: vec![0; self.host.pcpus() as usize],
            of_vm: vec![0; self.vms.len()],
            policies: vec![PartitionPolicy::Share; self.nr_partitions() as usize + 1],
        };
        for TimedFault { fault, .. } in &self.faults {
            match fault {
                Fault::Partition(number, cpus, policy, _) => {
                    divided.policies[*number as usize] = *policy;
                    for (cpu, of) in (0..).zip(&mut divided.of_cpu) {
                        match cpus.contains(&cpu) {
                            true => *of = *number,
                            false if of == number => *of = 0,
                            false => {}
                        }
                    }
                }
                Fault::Join(vm, number) => {
                    divided.of_vm.get_mut(*vm as usize).into_iter().for_each(|of| *of = *number);
                }
                _ => {}
            }
        }
        divided
    }

    /// How many partitions there are at most, `default` apart.
    pub fn nr_partitions(&self) -> u32 {
        let number = |fault: &TimedFault| match fault.fault {
            Fault::Partition(number, ..) | Fault::Join(_, number) => number,
            _ => 0,
        };
        self.faults.iter().map(number).max().unwrap_or(0)
    }

    /// No faults but yields, homes and partitions, and nothing but VMs that are always busy and may run
    /// anywhere, or on several pCPUs: time must divide by shares, reservations and pools (shares.rs). What a reservation is worth to a VM that
    /// waits beside an idle pCPU for its siblings is not known; nor what such a one is owed where some are
    /// confined.
    pub fn is_calm(&self) -> bool {
        let pcpus = self.host.pcpus();
        let busy = |vm: &ScriptVm| {
            let always = matches!(vm.workload, Workload::Cpu { duty_pct: 100, then: None, .. });
            let set = vm.may_use(pcpus);
            let free = vm.pin.is_none() || !vm.one_each && set.count() > 1;
            always && free && vm.start_us == 0 && vm.helpers == 0 && vm.bounds.limit_mcpu == 0
        };
        let limited = self.pools.iter().any(|pool| pool.limit_mcpu.is_some());
        let promises =
            self.vms.iter().any(|vm| vm.bounds.pool > 0 || vm.bounds.reservation_mcpu > 0);
        let held = self.vms.iter().any(ScriptVm::may_be_held);
        let confined = self.vms.iter().any(|vm| vm.pin.is_some());
        let known = !(held && (promises || confined));
        let divides = |fault: &Fault| matches!(fault, Fault::Partition(..) | Fault::Join(..));
        let divided = self.faults.iter().any(|fault| divides(&fault.fault));
        // What is owed in partitions is known where they do not change, and nothing else keeps VMs anywhere.
        let known = known && !(divided && (held || confined));
        let is_none = |TimedFault { at_us, fault }: &TimedFault| {
            matches!(fault, Fault::Yields(..) | Fault::Home(..))
                || divides(fault) && *at_us <= DIVIDED_US
        };
        self.faults.iter().all(is_none) && !limited && known && self.vms.iter().all(busy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_draws_the_same_trial_and_files_keep_it() {
        for seed in 0..200 {
            let script = Script::of_seed(seed);
            assert_eq!(Script::of_seed(seed), script);
            assert!(!script.vms.is_empty() && script.host.pcpus() > 0);
            let json = serde_json::to_string(&script).unwrap();
            assert_eq!(serde_json::from_str::<Script>(&json).unwrap(), script);
        }
        let any = |what: fn(&Script) -> bool| (0..100).any(|seed| what(&Script::of_seed(seed)));
        assert!(any(|script| script.is_calm() && script.vms[0].pin.is_none()));
        assert!(any(|script| script.is_calm() && script.vms[0].pin.is_some()));
        assert!(any(|script| !script.host.cores_of.is_empty()));
        assert!(any(|script| script.hz == 100) && any(|script| script.hz == 1000));
        let faults = |script: &Script, kind: fn(&Fault) -> bool| {
            script.faults.iter().any(|fault| kind(&fault.fault))
        };
        assert!((0..100).any(|seed| {
            let script = Script::of_seed(seed);
            faults(&script, |fault| matches!(fault, Fault::Cpuset(..)))
                && faults(&script, |fault| matches!(fault, Fault::RealTime(..)))
        }));
        let has_homes = |script: &Script| faults(script, |fault| matches!(fault, Fault::Home(..)));
        assert!((0..100).any(|seed| has_homes(&Script::of_seed(seed))));
        let is_divided = |script: &Script| script.nr_partitions() > 0;
        assert!(any(|script| script.nr_partitions() > 0 && script.is_calm()));
        assert!((0..100).any(|seed| {
            let script = Script::of_seed(seed);
            is_divided(&script) && !script.is_calm()
        }));
        assert!((0..100).any(|seed| Script::of_seed(seed).faults.len() > 10));
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! The host a scenario asks for.

use drover_core::tree::pcpus::Siblings;
use serde::Deserialize;

/// The shape of a host, written in the scenario or in a file of its own (scenarios/hosts/). The lab
/// builds it; on a real host only [`Host::pcpus`] counts. Sizes and clock are for whoever has a use
/// for them: none means not said.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Host {
    /// Sockets; default 1.
    pub sockets: u32,
    /// Dies a socket, each with a last-level cache; default 1.
    pub dies: u32,
    /// Cores a die; default 1.
    pub cores: u32,
    /// Hardware threads a core; default 1.
    pub threads: u32,
    /// NUMA nodes, which divide the dies evenly; default 1.
    pub nodes: u32,
    /// Memory, 256 at least; default 2048.
    pub memory_mib: u32,
    /// Distances in rows as of `numactl --hardware`, 10 being local; default 20 between any two.
    pub node_distances: Vec<Vec<u32>>,
    /// Model of the CPU.
    pub cpu: Option<String>,
    /// Clock, 100 to 20000.
    pub clock_mhz: Option<u32>,
    /// First-level data cache of a core.
    pub l1d_kib: Option<u32>,
    /// Second-level cache of a core, if not the last.
    pub l2_kib: Option<u32>,
    /// Last-level cache of a die.
    pub llc_kib: Option<u32>,
    /// Latency of a load from the own node, 1 to 10000. With the next three and `llc_kib` for the
    /// [speed model](simulator.md#how-fast-threads-get-on).
    pub memory_ns: Option<u32>,
    /// Added for each 10 of distance beyond the own; needed with several nodes.
    pub hop_ns: Option<u32>,
    /// Bandwidth of a node's memory.
    pub node_mb_s: Option<u32>,
    /// Bandwidth of each link of two nodes, both ways together; default unlimited. Nodes are linked
    /// unless a third lies between them.
    pub node_link_mb_s: Option<u32>,
    /// `true`: pCPUs tick spread over half a tick.
    pub skew_tick: bool,
    /// How often a task of the host wakes on each pCPU; simulator only.
    pub own_wakeups_per_s: Option<u32>,
    /// How long it works then.
    pub own_work_us: Option<u32>,
    /// PCPUs are emulated in turn, all within this time, as the lab's on the exact clock: costs
    /// grow with busy pCPUs; simulator only.
    pub round_us: Option<u32>,
    /// Network link of all VMs (`send`, `transmit`); simulator only.
    pub link_mbit_s: Option<u32>,
    /// What things cost; simulator only.
    pub costs: HostCosts,
}

/// What a host's kernel takes for some things, ns; none: as the simulator has it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HostCosts {
    /// The scheduler's tick; default 2000.
    pub tick_ns: Option<u32>,
    /// From one thread to another; default 1500.
    pub context_switch_ns: Option<u32>,
    /// Of a timer or another pCPU; default 1500.
    pub interrupt_ns: Option<u32>,
    /// Before an idle pCPU does anything; default 1500.
    pub idle_exit_ns: Option<u32>,
    /// A vCPU's way to sleep; default 2500.
    pub halt_ns: Option<u32>,
    /// A woken vCPU's way into its guest; default 1500.
    pub resume_ns: Option<u32>,
    /// Drover's daemon for each VM, five times a second; default 0.
    pub daemon_look_ns: Option<u32>,
}

impl Host {
    /// The most pCPUs a scenario's host may have.
    pub const PCPUS_MAX: u32 = 4096;
    /// Default memory of the host, MiB.
    pub const MEMORY_MIB: u32 = 2048;
    /// Distance from a node to itself.
    pub const DISTANCE_LOCAL: u32 = 10;
    /// Distance between nodes where it is not said: one hop.
    pub const DISTANCE_REMOTE: u32 = 20;
    /// The most memory a host or VM may have, MiB.
    pub const MEMORY_MIB_MAX: u32 = 1 << 24;

    /// Number of physical CPUs: what a vCPU can run on, so each hardware thread counts.
    pub fn pcpus(&self) -> u32 {
        self.sockets * self.dies * self.cores * self.threads
    }

    /// What it is made of, in words.
    pub fn words(&self) -> String {
        let Self { sockets, dies, cores, threads, nodes, .. } = self;
        let cpu = self.cpu.as_ref().map_or(String::new(), |cpu| format!(", {cpu}"));
        format!(
            "{} pCPUs (sockets {sockets}, dies {dies}, cores {cores}, threads {threads}, nodes {nodes}){cpu}",
            self.pcpus()
        )
    }

    /// Number of last-level caches.
    pub fn llcs(&self) -> u32 {
        self.sockets * self.dies
    }

    /// The other thread of each pCPU's core. Of cores with more than two, each thread counts as a core.
    pub fn siblings(&self) -> Siblings {
        let of_two = (0..self.pcpus()).filter(|_| self.threads == 2);
        of_two.map(|pcpu| (pcpu, pcpu ^ 1)).collect()
    }

    /// Distance from one NUMA node to another.
    pub fn distance(&self, from: u32, to: u32) -> u32 {
        match self.node_distances.get(from as usize).and_then(|row| row.get(to as usize)) {
            Some(distance) => *distance,
            None if from == to => Self::DISTANCE_LOCAL,
            None => Self::DISTANCE_REMOTE,
        }
    }
}

impl Default for Host {
    fn default() -> Self {
        Self {
            sockets: 1,
            dies: 1,
            cores: 1,
            threads: 1,
            nodes: 1,
            memory_mib: Self::MEMORY_MIB,
            node_distances: Vec::new(),
            cpu: None,
            clock_mhz: None,
            l1d_kib: None,
            l2_kib: None,
            llc_kib: None,
            memory_ns: None,
            hop_ns: None,
            node_mb_s: None,
            node_link_mb_s: None,
            skew_tick: false,
            own_wakeups_per_s: None,
            own_work_us: None,
            round_us: None,
            link_mbit_s: None,
            costs: HostCosts::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hardware_thread_is_a_pcpu() {
        let host = Host { sockets: 2, dies: 2, cores: 4, threads: 2, ..Host::default() };
        assert_eq!(host.pcpus(), 32);
        assert_eq!(Host::default().pcpus(), 1);
    }

    #[test]
    fn distances_that_are_not_said_are_one_hop() {
        let mut host = Host { sockets: 2, nodes: 2, ..Host::default() };
        assert_eq!((host.distance(1, 1), host.distance(0, 1)), (10, 20));
        host.node_distances = vec![vec![10, 32], vec![32, 10]];
        assert_eq!(host.distance(0, 1), 32);
    }
}

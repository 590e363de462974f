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
    /// CPU sockets.
    pub sockets: u32,
    /// Dies (last-level caches) per socket.
    pub dies: u32,
    /// Cores per die.
    pub cores: u32,
    /// Hardware threads per core.
    pub threads: u32,
    /// NUMA nodes; the host's dies are spread evenly over them.
    pub nodes: u32,
    /// Memory of the whole host, MiB.
    pub memory_mib: u32,
    /// Distance from each node (row) to each (column), as `numactl --hardware` prints it: 10 is
    /// local. Empty: not said.
    pub node_distances: Vec<Vec<u32>>,
    /// Model of the CPU.
    pub cpu: Option<String>,
    /// Nominal clock of a core, MHz.
    pub clock_mhz: Option<u32>,
    /// First-level data cache of a core, KiB.
    pub l1d_kib: Option<u32>,
    /// Second-level cache of a core, KiB, where it is not the die's last level.
    pub l2_kib: Option<u32>,
    /// Last-level cache of a die, KiB.
    pub llc_kib: Option<u32>,
    /// Latency of a load from a node's own memory that missed all caches, ns.
    pub memory_ns: Option<u32>,
    /// What is added for each 10 of distance beyond a node's own, ns.
    pub hop_ns: Option<u32>,
    /// Bandwidth of a node's memory, MB/s.
    pub node_mb_s: Option<u32>,
    /// Bandwidth of each link between two nodes, both ways together, MB/s of what memory accesses move. None: as wide as
    /// need be.
    pub node_link_mb_s: Option<u32>,
    /// Whether pCPUs tick one after the other, within half a tick, instead of all at once: the
    /// kernel's boot option of that name, off by default there too.
    pub skew_tick: bool,
    /// How often a task of its own wakes on each pCPU in the simulator; real hosts, the lab's too, have theirs.
    pub own_wakeups_per_s: Option<u32>,
    /// How long that task works each time, µs.
    pub own_work_us: Option<u32>,
    /// The pCPUs are emulated one after the other, and all have had their turn within so long, as in
    /// the lab on the exact clock; for the simulator. None: they are there all at once.
    pub round_us: Option<u32>,
    /// What all VMs together send through the host's network link, Mbit/s; for the simulator.
    pub link_mbit_s: Option<u32>,
    /// What its kernel takes for some things, for the simulator; on a host with turns, while no other pCPU
    /// wants one.
    pub costs: HostCosts,
}

/// What a host's kernel takes for some things, ns; none: as the simulator has it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HostCosts {
    /// The scheduler's tick.
    pub tick_ns: Option<u32>,
    /// From one thread to another.
    pub context_switch_ns: Option<u32>,
    /// What a timer or another interrupt costs who runs there.
    pub interrupt_ns: Option<u32>,
    /// What passes before an idle pCPU does anything.
    pub idle_exit_ns: Option<u32>,
    /// A vCPU's way to sleep.
    pub halt_ns: Option<u32>,
    /// A woken vCPU's way back into its guest.
    pub resume_ns: Option<u32>,
    /// What Drover's daemon does for one VM each time it looks.
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

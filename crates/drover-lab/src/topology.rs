// SPDX-License-Identifier: GPL-2.0-only
//! The shape of the virtual host: sockets, dies, cores, threads and NUMA nodes.

use anyhow::{Result, ensure};

/// How many CPUs the virtual host has and how they hang together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Topology {
    /// CPU sockets.
    pub sockets: u32,
    /// Dies per socket; each die has a last-level cache of its own.
    pub dies: u32,
    /// Cores per die.
    pub cores: u32,
    /// Hardware threads per core, 1 or 2.
    pub threads: u32,
    /// NUMA nodes; `sockets * dies` must divide by it without rest.
    pub nodes: u32,
    /// Memory of the whole virtual host in MiB.
    pub memory_mib: u32,
    /// Whether its CPUs tick one after the other (the kernel's `skew_tick`).
    pub skew_tick: bool,
}

impl Default for Topology {
    fn default() -> Self {
        Self {
            sockets: 1,
            dies: 1,
            cores: 1,
            threads: 1,
            nodes: 1,
            memory_mib: 1024,
            skew_tick: false,
        }
    }
}

/// The most CPUs a virtual host may have: what QEMU's `q35` machine takes without extra devices.
pub const MAX_PCPUS: u32 = 255;

/// Less memory than this and the kernel cannot unpack its initramfs.
pub const MIN_MEMORY_MIB: u32 = 256;

impl Topology {
    /// A host of `cores` cores on one socket, everything else default.
    #[must_use]
    pub fn flat(cores: u32) -> Self {
        Self { cores, ..Self::default() }
    }

    /// Number of CPUs the host's kernel sees.
    #[must_use]
    pub fn pcpus(&self) -> u32 {
        [self.dies, self.cores, self.threads].iter().fold(self.sockets, |n, &f| n.saturating_mul(f))
    }

    /// Checks that QEMU can build such a host.
    ///
    /// # Errors
    /// One line that names the value and what it may be.
    pub fn check(&self) -> Result<()> {
        let counts = [
            ("sockets", self.sockets),
            ("dies", self.dies),
            ("cores", self.cores),
            ("threads", self.threads),
            ("nodes", self.nodes),
        ];
        for (name, count) in counts {
            ensure!(count >= 1, "lab host: {name} = {count}; must be at least 1");
        }
        ensure!(self.threads <= 2, "lab host: threads = {}; QEMU's CPU has 1 or 2", self.threads);
        let pcpus = self.pcpus();
        ensure!(pcpus <= MAX_PCPUS, "lab host: {pcpus} CPUs; at most {MAX_PCPUS} are possible");
        ensure!(
            (self.sockets * self.dies) % self.nodes == 0,
            "lab host: {} nodes do not divide {} sockets x {} dies evenly; choose a divisor",
            self.nodes,
            self.sockets,
            self.dies
        );
        ensure!(
            self.memory_mib >= MIN_MEMORY_MIB && self.memory_mib % self.nodes == 0,
            "lab host: memory_mib = {}; must be at least {MIN_MEMORY_MIB} and a multiple of nodes",
            self.memory_mib
        );
        Ok(())
    }

    /// QEMU's options for this shape.
    #[must_use]
    pub fn qemu_arguments(&self) -> Vec<String> {
        let mut arguments = vec![
            "-m".into(),
            format!("{}M", self.memory_mib),
            "-smp".into(),
            format!(
                "{},sockets={},dies={},cores={},threads={}",
                self.pcpus(),
                self.sockets,
                self.dies,
                self.cores,
                self.threads
            ),
        ];
        if self.nodes == 1 {
            return arguments;
        }
        let (memory_mib, pcpus) = (self.memory_mib / self.nodes, self.pcpus() / self.nodes);
        for node in 0..self.nodes {
            let (first, last) = (node * pcpus, (node + 1) * pcpus - 1);
            arguments.extend([
                "-object".into(),
                format!("memory-backend-ram,id=node{node},size={memory_mib}M"),
                "-numa".into(),
                format!("node,nodeid={node},memdev=node{node},cpus={first}-{last}"),
            ]);
        }
        arguments
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_flat_host_needs_no_numa_options() {
        assert_eq!(
            Topology::flat(4).qemu_arguments(),
            ["-m", "1024M", "-smp", "4,sockets=1,dies=1,cores=4,threads=1"]
        );
    }

    #[test]
    fn nodes_share_cpus_and_memory_evenly() {
        let topology =
            Topology { sockets: 2, cores: 2, threads: 2, nodes: 2, ..Topology::default() };
        let arguments = topology.qemu_arguments().join(" ");
        assert!(arguments.contains("node,nodeid=0,memdev=node0,cpus=0-3"), "{arguments}");
        assert!(arguments.contains("node,nodeid=1,memdev=node1,cpus=4-7"), "{arguments}");
        assert!(arguments.contains("id=node1,size=512M"), "{arguments}");
    }

    #[test]
    fn impossible_hosts_are_refused_in_one_line() {
        let default = Topology::default();
        for (bad, word) in [
            (Topology { cores: 0, ..default }, "cores = 0"),
            (Topology { threads: 4, ..default }, "threads = 4"),
            (Topology { sockets: 3, nodes: 2, ..default }, "divisor"),
            (Topology { memory_mib: 16, ..default }, "memory_mib = 16"),
            (Topology { sockets: u32::MAX, cores: u32::MAX, ..default }, "at most"),
        ] {
            let message = bad.check().unwrap_err().to_string();
            assert!(message.contains(word) && !message.contains('\n'), "{message}");
        }
        default.check().unwrap();
    }

    proptest! {
        #[test]
        fn every_cpu_of_a_good_host_belongs_to_one_node(sockets in 1u32..5, dies in 1u32..4, cores in 1u32..5, nodes in 1u32..9) {
            let topology = Topology { sockets, dies, cores, threads: 2, nodes, memory_mib: 5040, skew_tick: false };
            prop_assume!(topology.check().is_ok() && nodes > 1);
            let last = format!("-{}", topology.pcpus() - 1);
            let arguments = topology.qemu_arguments();
            prop_assert!(arguments.last().unwrap().ends_with(&last));
        }
    }
}

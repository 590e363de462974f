// SPDX-License-Identifier: GPL-2.0-only
//! The host a scenario asks for.

/// The shape of a host. The lab builds it; on a real host only [`Host::pcpus`] counts.
#[derive(Debug, Clone, PartialEq, Eq)]
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
}

impl Host {
    /// The most pCPUs a scenario's host may have.
    pub const PCPUS_MAX: u32 = 4096;
    /// Default memory of the host, MiB.
    pub const MEMORY_MIB: u32 = 2048;
    /// The most memory a host or VM may have, MiB.
    pub const MEMORY_MIB_MAX: u32 = 1 << 24;

    /// Number of physical CPUs: what a vCPU can run on, so each hardware thread counts.
    pub fn pcpus(&self) -> u32 {
        self.sockets * self.dies * self.cores * self.threads
    }
}

impl Default for Host {
    fn default() -> Self {
        let memory_mib = Self::MEMORY_MIB;
        Self { sockets: 1, dies: 1, cores: 1, threads: 1, nodes: 1, memory_mib }
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
}

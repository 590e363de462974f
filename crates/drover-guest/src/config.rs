// SPDX-License-Identifier: GPL-2.0-only
//! What a micro VM is told.

use crate::GuestError;
use drover_scenario::{Vm, Workload};
use std::path::PathBuf;

/// One micro VM.
#[derive(Debug, Clone, PartialEq)]
pub struct GuestConfig {
    /// The VM's name, for messages.
    pub name: String,
    /// Number of vCPUs, 1 to [`Vm::VCPUS_MAX`].
    pub vcpus: u32,
    /// What the vCPUs do; moments in it count from the moment the VM is let go.
    pub workload: Workload,
    /// The file its counters are shared through: made anew, left behind at the end.
    pub stats_path: PathBuf,
    /// Whether the vCPUs halt until [`StatsReader::go`](crate::StatsReader::go), rather than start
    /// to work at once. They look every 10 ms.
    pub wait_for_go: bool,
    /// Speed of the guest's work loop, to turn µs of work into loops; none: measured at start, by
    /// [`loops_per_ms`](crate::loops_per_ms). Runs that are compared must be given the same value.
    pub loops_per_ms: Option<u64>,
    /// What of its memory is touched before it starts.
    pub memory: Touched,
}

/// Memory of a VM that is there from the start, as that of a guest with an operating system is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Touched {
    /// MiB; [`Vm::MICRO_MEMORY_MIB_MAX`] at most, 0: only what is needed.
    pub mib: u32,
    /// The NUMA node where it is put, as its preferred one; none: where it is touched.
    pub node: Option<u32>,
}

impl GuestConfig {
    /// Refuses what no micro VM can be, before anything is made.
    pub(crate) fn check(&self) -> Result<(), GuestError> {
        if !(1..=Vm::VCPUS_MAX).contains(&self.vcpus) {
            return Err(GuestError::VcpuCount {
                name: self.name.clone(),
                asked: self.vcpus,
                max: Vm::VCPUS_MAX,
            });
        }
        if let Workload::Command { .. } = self.workload {
            return Err(GuestError::NeedsLinux { name: self.name.clone() });
        }
        if let Workload::Program(_) = self.workload {
            return Err(GuestError::NeedsSimulator { name: self.name.clone() });
        }
        if self.loops_per_ms == Some(0) {
            return Err(GuestError::ZeroSpeed { name: self.name.clone() });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(vcpus: u32, workload: Workload) -> GuestConfig {
        GuestConfig {
            name: "vm0".to_owned(),
            vcpus,
            workload,
            stats_path: PathBuf::from("/nonexistent/stats"),
            wait_for_go: false,
            loops_per_ms: None,
            memory: Touched::default(),
        }
    }

    #[test]
    fn a_vm_has_1_to_256_vcpus() {
        for vcpus in [1, 256] {
            assert!(config(vcpus, Workload::Mix {}).check().is_ok());
        }
        for vcpus in [0, 257] {
            let refusal = config(vcpus, Workload::Mix {}).check().unwrap_err().to_string();
            assert!(refusal.contains("vm0") && refusal.contains("1 to 256"), "{refusal}");
        }
    }

    #[test]
    fn programs_of_linux_guests_are_refused() {
        let command = Workload::Command { run: "hackbench".to_owned(), ready: None };
        let refusal = config(1, command).check().unwrap_err().to_string();
        assert!(refusal.contains("vmm = \"qemu\""), "{refusal}");
    }

    #[test]
    fn a_speed_of_zero_is_refused() {
        let program = Workload::Program(Box::default());
        let refusal = config(1, program).check().unwrap_err().to_string();
        assert!(refusal.contains("--on sim"), "{refusal}");
        let config = GuestConfig { loops_per_ms: Some(0), ..config(1, Workload::Mix {}) };
        assert!(config.check().is_err());
    }
}

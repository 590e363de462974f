// SPDX-License-Identifier: GPL-2.0-only
//! The daemon: keeps the scheduler alive, names VMs, takes orders.
//!
//! Nothing here is on a hot path: if the daemon is stopped, the scheduler in
//! the kernel goes on; if it dies, the kernel's own scheduler takes over.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, bail};
use drover_core::settings::VmSettings;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::control::{Answer, Listener, Request, VmStatus};
use crate::names::vm_name;
use crate::params::Params;
use crate::scheduler::{KernelVm, Scheduler};
use crate::topology::{CellLevel, Topology};

/// How often the daemon looks for VMs that came or went and for its own end.
const LOOK_INTERVAL_MS: u16 = 100;
/// The most shares a VM may be given.
pub const SHARES_MAX: u32 = 1_000_000;

/// Run the daemon until `stop` is set or the kernel ends the scheduler.
///
/// # Errors
/// When the scheduler cannot be started, or the kernel threw it out; the text
/// says why.
pub fn serve(
    level: CellLevel,
    params: &Params,
    socket: &Path,
    stop: &Arc<AtomicBool>,
) -> Result<()> {
    let listener = Listener::bind(socket)?;
    let topology = Topology::read(level)?;
    let scheduler = Scheduler::start(&topology, params)?;
    tracing::info!(
        "scheduling {} pCPUs in {} cell(s); Ctrl-C gives them back to the kernel",
        topology.online.iter().filter(|&&online| online).count(),
        topology.nr_cells()
    );
    let mut herd = Herd::default();
    while !stop.load(Ordering::Relaxed) {
        if let Some(farewell) = scheduler.farewell() {
            let text = format!("{farewell}; all tasks are the kernel's own scheduler's again");
            if farewell.is_error() {
                bail!(text);
            }
            tracing::warn!("{text}");
            return Ok(());
        }
        herd.look(&scheduler.vms());
        listener.answer_all(|request| herd.answer(&scheduler, request));
        let mut fds = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
        // A signal ends the wait; so does a client.
        let _ = poll(&mut fds, PollTimeout::from(LOOK_INTERVAL_MS));
    }
    tracing::info!("stopping; all tasks go back to the kernel's own scheduler");
    Ok(())
}

/// The VMs the daemon has met, by the kernel's id.
#[derive(Default)]
struct Herd {
    names: HashMap<u64, String>,
    vms: Vec<KernelVm>,
}

impl Herd {
    /// Take note of who is there now.
    fn look(&mut self, vms: &[KernelVm]) {
        for vm in vms {
            self.names.entry(vm.id).or_insert_with(|| {
                let name = vm_name(vm.tgid);
                tracing::info!("VM {name} found (pid {})", vm.tgid);
                name
            });
        }
        self.names.retain(|id, name| {
            let here = vms.iter().any(|vm| vm.id == *id);
            if !here {
                tracing::info!("VM {name} is gone");
            }
            here
        });
        self.vms = vms.to_vec();
    }

    fn answer(&mut self, scheduler: &Scheduler, request: Request) -> Answer {
        self.look(&scheduler.vms());
        match request {
            Request::ListVms => {
                Answer::Vms { vms: self.vms.iter().map(|vm| self.status(vm)).collect() }
            }
            Request::SetVm { name, shares } => match self.set_shares(scheduler, &name, shares) {
                Ok(()) => Answer::Done,
                Err(err) => Answer::Refused { reason: format!("{err:#}") },
            },
            Request::Break => match scheduler.break_on_purpose() {
                Ok(()) => Answer::Done,
                Err(err) => Answer::Refused { reason: format!("{err:#}") },
            },
        }
    }

    fn set_shares(&self, scheduler: &Scheduler, name: &str, shares: Option<u32>) -> Result<()> {
        let vm = self.find(name)?;
        if shares.is_some_and(|shares| !(1..=SHARES_MAX).contains(&shares)) {
            bail!("shares must be 1 to {SHARES_MAX}");
        }
        scheduler.set_vm(vm, &VmSettings { shares, ..VmSettings::default() })
    }

    fn find(&self, name: &str) -> Result<&KernelVm> {
        let named: Vec<&KernelVm> = self
            .vms
            .iter()
            .filter(|vm| self.names.get(&vm.id).is_some_and(|n| n == name))
            .collect();
        match named[..] {
            [vm] => Ok(vm),
            [] => bail!("no VM named {name:?} runs here; `drover vm list` shows who does"),
            _ => bail!("{} VMs are named {name:?}; give them names of their own", named.len()),
        }
    }

    fn status(&self, vm: &KernelVm) -> VmStatus {
        VmStatus {
            name: self.names.get(&vm.id).cloned().unwrap_or_default(),
            pid: vm.tgid,
            vcpus: vm.nr_vcpus,
            shares: vm.shares,
            shares_by_default: vm.shares_asked == 0,
            vcpu_cpu_s: seconds(vm.vcpu_run_ns),
            helper_cpu_s: seconds(vm.helper_run_ns),
            ready_s: seconds(vm.ready_ns),
            longest_ready_ms: seconds(vm.longest_ready_ns) * 1e3,
        }
    }
}

#[allow(clippy::cast_precision_loss)] // Exact up to 104 days.
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vm(id: u64, tgid: u32) -> KernelVm {
        KernelVm {
            slot: u32::try_from(id).unwrap(),
            id,
            tgid,
            nr_vcpus: 2,
            nr_threads: 3,
            shares: 2000,
            shares_asked: 0,
            vcpu_run_ns: 1_500_000_000,
            helper_run_ns: 0,
            ready_ns: 0,
            longest_ready_ns: 2_000_000,
        }
    }

    fn herd_of(vms: &[(u64, &str)]) -> Herd {
        Herd {
            names: vms.iter().map(|&(id, name)| (id, name.to_owned())).collect(),
            vms: vms.iter().map(|&(id, _)| vm(id, 1)).collect(),
        }
    }

    #[test]
    fn vms_come_and_go() {
        let mut herd = Herd::default();
        herd.look(&[vm(1, u32::MAX), vm(2, u32::MAX)]);
        assert_eq!(herd.names.len(), 2);
        herd.look(&[vm(2, u32::MAX)]);
        assert_eq!(herd.names.keys().collect::<Vec<_>>(), [&2]);
    }

    #[test]
    fn a_name_must_mean_one_vm() {
        let herd = herd_of(&[(1, "web"), (2, "web"), (3, "db")]);
        assert_eq!(herd.find("db").unwrap().id, 3);
        assert!(herd.find("web").unwrap_err().to_string().contains("2 VMs"));
        assert!(herd.find("x").unwrap_err().to_string().contains("drover vm list"));
    }

    #[test]
    fn status_has_units() {
        let herd = herd_of(&[(1, "web")]);
        let status = herd.status(&herd.vms[0]);
        assert_eq!((status.vcpu_cpu_s, status.longest_ready_ms), (1.5, 2.0));
        assert!(status.shares_by_default);
    }
}

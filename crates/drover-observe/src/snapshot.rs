// SPDX-License-Identifier: GPL-2.0-only
//! What is known of VMs and pCPUs at one moment.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use drover_core::io::Bytes;
use drover_host::control::{Answer, Request, ask, ask_either};
use drover_host::files;
use drover_host::io_bytes::HostBytes;
use drover_host::status::{VcpuStatus, VmStatus};
use drover_host::vcpus;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

use crate::delays::ThreadIo;
use crate::observer::{Observer, Reading, VcpuTimes};
use crate::pcpus::{self, Ticks};

/// One moment.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// When it was.
    pub at: Instant,
    /// The sched_ext scheduler in charge; none: the kernel's own.
    pub scheduler: Option<String>,
    /// All vCPUs that have books.
    pub vcpus: Vec<VcpuTimes>,
    /// I/O delays of their threads and of those of their helpers.
    pub io: Vec<ThreadIo>,
    /// Bytes that each VMM process moved since it was first looked at.
    pub bytes: HashMap<u32, Bytes>,
    /// CPU time of each VMM process, all its threads together.
    pub process_cpu: HashMap<u32, Duration>,
    /// What Drover tells of VMs, by process, where it is in charge.
    pub told: HashMap<u32, VmStatus>,
    /// pCPUs that are online.
    pub pcpus: Vec<Ticks>,
    /// What of it could not be known, a line each.
    pub notes: Vec<String>,
}

impl Snapshot {
    /// Looks around; `socket` is where Drover would answer, `bytes` what was counted up to now.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn take(observer: &Observer, bytes: &mut HostBytes, socket: &Path) -> Result<Self> {
        let at = Instant::now();
        let Reading { vcpus, io } = observer.read()?;
        let (vcpus, unbooked): (Vec<_>, Vec<_>) =
            vcpus.into_iter().partition(|times| times.at_ns != 0);
        let processes: BTreeSet<u32> = vcpus.iter().map(|times| times.process).collect();
        let bytes = bytes.read(Path::new("/proc"), &processes);
        let process_cpu =
            processes.into_iter().filter_map(|process| Some((process, cpu_time_of(process)?)));
        let mut snapshot = Self {
            at,
            scheduler: scheduler_in_charge(),
            process_cpu: process_cpu.collect(),
            vcpus,
            io,
            bytes,
            told: HashMap::new(),
            pcpus: pcpus::read()?,
            notes: Vec::new(),
        };
        if !unbooked.is_empty() {
            let note = format!("the kernel has no memory to count {} vCPUs", unbooked.len());
            snapshot.notes.push(note);
        }
        // Nobody else stops vCPUs for their siblings.
        if snapshot.scheduler.as_deref() == Some("drover") {
            match told(socket) {
                Ok(told) => snapshot.told = told,
                Err(err) => snapshot.notes.push(format!("%CSTP is in %RDY: {err:#}")),
            }
        }
        Ok(snapshot)
    }
}

impl Snapshot {
    /// What those may know who may only look: of the VMs that `drover serve` or `drover observe` names to them, what the
    /// kernel says of the threads.
    ///
    /// # Errors
    /// When neither answers.
    pub fn take_told(bytes: &mut HostBytes, socket: &Path) -> Result<Self> {
        let (Answer::Vms { vms }, _) = ask_either(socket, &Request::ListVms { brief: false })?
        else {
            anyhow::bail!("the daemon answered something else; is it of this version?");
        };
        let (at, proc) = (Instant::now(), Path::new("/proc"));
        let at_ns = Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC)?);
        let at_ns = u64::try_from(at_ns.as_nanos())?;
        let of_vm = |vm: &VmStatus| {
            let process = vm.pid;
            let one = move |vcpu: &VcpuStatus| {
                let thread = vcpu.tid?;
                let (running_ns, ready_ns) = vcpus::times_of(proc, process, thread)?;
                // Whatever is left of the time since the host has booted.
                let waiting_ns = at_ns.saturating_sub(running_ns + ready_ns);
                let (number, used_ns) = (vcpu.number, running_ns);
                Some(VcpuTimes {
                    process,
                    thread,
                    number,
                    at_ns,
                    running_ns,
                    ready_ns,
                    waiting_ns,
                    used_ns,
                })
            };
            vm.vcpu.iter().filter_map(one).collect::<Vec<_>>()
        };
        let vcpus: Vec<VcpuTimes> = vms.iter().flat_map(of_vm).collect();
        let processes: BTreeSet<u32> = vcpus.iter().map(|times| times.process).collect();
        let bytes = bytes.read(proc, &processes);
        let process_cpu =
            processes.into_iter().filter_map(|process| Some((process, cpu_time_of(process)?)));
        Ok(Self {
            at,
            scheduler: scheduler_in_charge(),
            process_cpu: process_cpu.collect(),
            vcpus,
            io: Vec::new(),
            bytes,
            told: vms.into_iter().map(|vm| (vm.pid, vm)).collect(),
            pcpus: pcpus::read()?,
            notes: Vec::new(),
        })
    }
}

/// CPU time of a process, all its threads together, those that have ended too; none: it is gone.
pub(crate) fn cpu_time_of(process: u32) -> Option<Duration> {
    let pid = Pid::from_raw(i32::try_from(process).ok()?);
    let clock = ClockId::pid_cpu_clock_id(pid).ok()?;
    Some(clock_gettime(clock).ok()?.into())
}

/// Which sched_ext scheduler is in charge of this host; none: the kernel's own scheduler is.
pub fn scheduler_in_charge() -> Option<String> {
    scheduler_under(Path::new("/"))
}

fn scheduler_under(root: &Path) -> Option<String> {
    let read = |file: &str| {
        let text = files::kernel(&root.join("sys/kernel/sched_ext").join(file)).ok()?;
        Some(text.trim().to_owned())
    };
    if read("state")? == "disabled" {
        return None;
    }
    read("root/ops")
}

/// What Drover tells of VMs, by process.
fn told(socket: &Path) -> Result<HashMap<u32, VmStatus>> {
    let Answer::Vms { vms } = ask(socket, &Request::ListVms { brief: false })? else {
        anyhow::bail!("the daemon answered something else; is it of this version?");
    };
    Ok(vms.into_iter().map(|vm| (vm.pid, vm)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_scheduler_in_charge_is_named() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(scheduler_under(dir.path()), None, "a kernel without sched_ext");
        let sched_ext = dir.path().join("sys/kernel/sched_ext");
        fs::create_dir_all(sched_ext.join("root")).unwrap();
        fs::write(sched_ext.join("state"), "disabled\n").unwrap();
        assert_eq!(scheduler_under(dir.path()), None);
        fs::write(sched_ext.join("state"), "enabled\n").unwrap();
        fs::write(sched_ext.join("root/ops"), "drover\n").unwrap();
        assert_eq!(scheduler_under(dir.path()).as_deref(), Some("drover"));
    }

    #[test]
    fn a_process_has_a_cpu_time_until_it_is_gone() {
        assert!(cpu_time_of(std::process::id()).unwrap() > Duration::ZERO);
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        assert_eq!(cpu_time_of(child.id()), None);
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! What the kernel says of the threads of vCPUs, under any scheduler: where each ran last and may run, and for how long it
//! was ready.
//!
//! Whoever asks reads that itself, of the VMs it asks for: the daemon names the threads, and reads nothing.
//!
//! | what | from |
//! |---|---|
//! | the pCPU it last ran on, what it does | `/proc/PID/task/TID/stat` |
//! | where it may run | `/proc/PID/task/TID/status` |
//! | time ready | `/proc/PID/task/TID/schedstat` |

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::files;
use crate::status::{VcpuState, VcpuStatus, VmStatus};
use crate::topology::cpus_of_thread;
use drover_core::cpu_list::CpuList;

/// How long each vCPU of some VMs had been ready, ns.
#[derive(Debug, Default)]
pub struct ReadyTimes(HashMap<(u32, u32), u64>);

impl ReadyTimes {
    /// Reads them.
    pub fn read(proc: &Path, vms: &[VmStatus]) -> Self {
        let of_vm = |vm: &VmStatus| {
            let pid = vm.pid;
            let tids = vm.vcpu.iter().filter_map(|vcpu| vcpu.tid);
            let ready = |tid| Some(((pid, tid), ready_ns(&thread(proc, pid, tid))?));
            tids.filter_map(ready).collect::<Vec<_>>()
        };
        Self(vms.iter().flat_map(of_vm).collect())
    }

    /// Says of each vCPU for which part of the time it was ready since they were read.
    #[allow(clippy::cast_precision_loss, reason = "exact up to 104 days")]
    pub fn add_parts(&self, vms: &mut [VmStatus], passed: Duration) {
        for vm in vms {
            let pid = vm.pid;
            for vcpu in &mut vm.vcpu {
                let before = vcpu.tid.and_then(|tid| self.0.get(&(pid, tid)));
                let ready_ns =
                    vcpu.ready_ns.zip(before).map(|(now, then)| now.saturating_sub(*then));
                vcpu.ready_pct = ready_ns.map(|ns| 100.0 * ns as f64 / passed.as_nanos() as f64);
            }
        }
    }
}

/// Says of each vCPU of these VMs what is known of its thread. Of one that has just gone that is nothing.
pub fn add_threads(proc: &Path, vms: &mut [VmStatus]) {
    for vm in vms {
        let pid = vm.pid;
        for vcpu in &mut vm.vcpu {
            if let Some(tid) = vcpu.tid {
                add_thread(&thread(proc, pid, tid), vcpu);
            }
        }
    }
}

fn thread(proc: &Path, pid: u32, tid: u32) -> PathBuf {
    proc.join(format!("{pid}/task/{tid}"))
}

fn add_thread(thread: &Path, vcpu: &mut VcpuStatus) {
    if let Some((letter, pcpu)) = files::kernel(&thread.join("stat")).ok().as_deref().and_then(stat)
    {
        vcpu.pcpu = Some(pcpu);
        // Who schedules knows more of it.
        vcpu.state = vcpu.state.or(Some(match letter {
            'R' => VcpuState::Runnable,
            _ => VcpuState::Halted,
        }));
    }
    let cpus = cpus_of_thread(thread).unwrap_or_default();
    vcpu.affinity = CpuList::of(cpus.into_iter().filter_map(|cpu| u32::try_from(cpu).ok()));
    vcpu.ready_ns = ready_ns(thread);
}

fn ready_ns(thread: &Path) -> Option<u64> {
    Some(times(thread)?.1)
}

/// How long a vCPU's thread has run, and was ready and did not, ns since it began. Either is counted when it ends, or at
/// a tick of the scheduler's.
pub fn times_of(proc: &Path, pid: u32, tid: u32) -> Option<(u64, u64)> {
    times(&thread(proc, pid, tid))
}

fn times(thread: &Path) -> Option<(u64, u64)> {
    let text = files::kernel(&thread.join("schedstat")).ok()?;
    let mut figures = text.split_whitespace().map_while(|figure| figure.parse().ok());
    Some((figures.next()?, figures.next()?))
}

/// The state of a thread, and the pCPU it last ran on, of its `stat`: fields 3 and 39. Field 2, in brackets, is what the
/// thread calls itself.
fn stat(text: &str) -> Option<(char, u32)> {
    let mut fields = text[text.rfind(')')? + 1..].split_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(39 - 3 - 1)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_host::host;

    /// As the kernel writes it, on pCPU 3, of a thread with an ugly name.
    const STAT: &str = "8 (a) S 5 (x) R 1 7 7 0 -1 4194304 1 0 0 0 2 3 0 0 20 0 2 0 100 9 9 18446744073709551615 \
                        0 0 0 0 0 0 0 0 0 0 0 0 17 3 0 0 0 0 0 0 0 0 0 0 0 0 0";

    fn vm(vcpus: &[(Option<u32>, Option<VcpuState>)]) -> VmStatus {
        let vcpu = |(number, (tid, state)): (u32, &(Option<u32>, Option<VcpuState>))| VcpuStatus {
            tid: *tid,
            state: *state,
            ..VcpuStatus::numbered(number)
        };
        VmStatus { vcpu: (0..).zip(vcpus).map(vcpu).collect(), ..VmStatus::sample("web") }
    }

    #[test]
    fn where_a_vcpu_ran_and_may_run_and_how_long_it_was_ready_is_read() {
        let proc = host(&[
            ("7/task/8/stat", STAT),
            ("7/task/8/status", "Name:\tx\nCpus_allowed_list:\t0-1,3\n"),
            ("7/task/8/schedstat", "5000000000 250000000 20\n"),
        ]);
        // The last one has gone.
        let known = Some(VcpuState::CoStopped);
        let mut vms = [vm(&[(Some(8), None), (Some(8), known), (None, None), (Some(9), None)])];
        let before = ReadyTimes(HashMap::from([((7, 8), 0)]));
        add_threads(proc.path(), &mut vms);
        before.add_parts(&mut vms, Duration::from_secs(1));
        let [seen, stopped, unnamed, gone] = &vms[0].vcpu[..] else { panic!() };
        assert_eq!((seen.pcpu, seen.state), (Some(3), Some(VcpuState::Runnable)));
        assert_eq!(seen.affinity.as_ref().unwrap().to_string(), "0-1,3");
        assert_eq!((seen.ready_ns, seen.ready_pct), (Some(250_000_000), Some(25.0)));
        assert_eq!(stopped.state, known, "who schedules knows more");
        for nothing in [unnamed, gone] {
            assert_eq!((nothing.pcpu, &nothing.affinity, nothing.ready_pct), (None, &None, None));
        }
    }

    #[test]
    fn what_the_kernel_says_of_a_thread_of_this_process_is_understood() {
        let pid = std::process::id();
        let mut vms = [VmStatus { pid, ..vm(&[(Some(pid), None)]) }];
        let before = ReadyTimes::read(Path::new("/proc"), &vms);
        add_threads(Path::new("/proc"), &mut vms);
        let vcpu = &vms[0].vcpu[0];
        assert!(vcpu.pcpu.is_some() && vcpu.state.is_some() && vcpu.affinity.is_some());
        assert!(vcpu.ready_ns >= before.0.get(&(pid, pid)).copied(), "{vcpu:?}");
    }
}

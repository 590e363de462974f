// SPDX-License-Identifier: GPL-2.0-only
//! Real clock: the thread of each pCPU on a CPU of its own.
//!
//! The machine's scheduler may put two of QEMU's pCPU threads on one CPU and leave them there for seconds,
//! beside an idle one. Half a host is then measured, and interrupts between its pCPUs take a time slice.

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use std::fs;

/// Pins the threads of a virtual host as they appear.
#[derive(Debug)]
pub struct Pinning {
    /// The CPU for each pCPU whose thread has not been seen yet.
    wanted: Vec<(u32, usize)>,
}

impl Pinning {
    /// Each of so many pCPUs on one of the CPUs this process may use; nothing is pinned when there are too
    /// few of these.
    pub fn new(pcpus: u32) -> Self {
        let allowed = sched_getaffinity(Pid::this()).unwrap_or_default();
        let cpus = (0..CpuSet::count()).filter(|&cpu| allowed.is_set(cpu).unwrap_or(false));
        let wanted: Vec<(u32, usize)> = (0..pcpus).zip(cpus).collect();
        let enough = wanted.len() == pcpus as usize;
        Self { wanted: if enough { wanted } else { Vec::new() } }
    }

    /// Pins those of QEMU's threads that have appeared since the last look.
    pub fn look(&mut self, qemu: u32) {
        if self.wanted.is_empty() {
            return;
        }
        for (thread, name) in threads(qemu) {
            let Some(pcpu) = pcpu_of(&name) else { continue };
            self.wanted.retain(|&(wanted, cpu)| wanted != pcpu || !pin(thread, cpu));
        }
    }
}

/// The threads of a process, with their names; none when it is gone.
fn threads(process: u32) -> Vec<(i32, String)> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{process}/task")) else { return Vec::new() };
    let thread = |task: fs::DirEntry| {
        let name = fs::read_to_string(task.path().join("comm")).ok()?;
        Some((task.file_name().to_str()?.parse().ok()?, name))
    };
    tasks.flatten().filter_map(thread).collect()
}

/// QEMU names them `CPU 0/TCG` and `CPU 0/KVM`.
fn pcpu_of(name: &str) -> Option<u32> {
    name.strip_prefix("CPU ")?.split('/').next()?.parse().ok()
}

fn pin(thread: i32, cpu: usize) -> bool {
    let mut set = CpuSet::new();
    set.set(cpu).is_ok() && sched_setaffinity(Pid::from_raw(thread), &set).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn pcpu_threads_are_known_by_name() {
        assert_eq!(pcpu_of("CPU 0/TCG\n"), Some(0));
        assert_eq!(pcpu_of("CPU 13/KVM\n"), Some(13));
        assert_eq!(pcpu_of("qemu-system-x86\n"), None);
    }

    #[test]
    fn a_thread_is_pinned_once_it_appears_and_others_are_left_alone() {
        let mut pinning = Pinning::new(1);
        let me = std::process::id();
        pinning.look(me);
        assert_eq!(pinning.wanted.len(), 1, "none of this name yet");
        let (ready, wait) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let start = std::thread::Builder::new().name("CPU 0/TCG".to_owned());
        let pcpu = start.spawn(move || {
            ready.send(()).unwrap();
            ended.recv().unwrap();
            let set = sched_getaffinity(Pid::from_raw(0)).unwrap();
            (0..CpuSet::count()).filter(|&cpu| set.is_set(cpu).unwrap()).count()
        });
        wait.recv().unwrap();
        let before = sched_getaffinity(Pid::from_raw(0)).unwrap();
        pinning.look(me);
        assert!(pinning.wanted.is_empty());
        end.send(()).unwrap();
        assert_eq!(pcpu.unwrap().join().unwrap(), 1);
        assert_eq!(sched_getaffinity(Pid::from_raw(0)).unwrap(), before);
    }

    #[test]
    fn a_host_wider_than_the_machine_is_not_pinned() {
        assert!(Pinning::new(100_000).wanted.is_empty());
    }
}

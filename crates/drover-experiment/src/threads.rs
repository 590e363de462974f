// SPDX-License-Identifier: GPL-2.0-only
//! CPU time of the threads of a VM's process, and how often they were put on a pCPU.
//!
//! `/proc/PID/task/TID/schedstat` has both, the time in ns. The kernel brings the figure of a running thread up
//! to date at each tick, so it may be one tick old.

use crate::process::cpu_set;
use drover_scenario::Pin;
use drover_scenario::schedule::Who;
use nix::sched::sched_setaffinity;
use nix::unistd::Pid;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;

/// A thread and the CPU time it has used so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ThreadTime {
    /// The thread.
    pub tid: u32,
    /// Which vCPU it runs; none: a helper.
    pub vcpu: Option<u32>,
    /// CPU time, ns.
    pub cpu_ns: u64,
    /// How often it was put on a pCPU.
    pub dispatches: u64,
}

/// The threads of a process, kept open: reading them often must cost little, because it takes CPU
/// time from what is measured.
#[derive(Debug)]
pub(crate) struct Threads {
    pid: u32,
    /// In the order of their numbers.
    open: Vec<Thread>,
}

#[derive(Debug)]
struct Thread {
    tid: u32,
    vcpu: Option<u32>,
    schedstat: File,
}

impl Threads {
    /// The threads of process `pid`; none are known until [`Threads::look`].
    pub fn of(pid: u32) -> Self {
        Self { pid, open: Vec::new() }
    }

    /// Takes note of threads that are new.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn look(&mut self) -> io::Result<()> {
        for entry in fs::read_dir(format!("/proc/{}/task", self.pid))? {
            let Ok(tid) = entry?.file_name().to_string_lossy().parse() else { continue };
            let Err(place) = self.open.binary_search_by_key(&tid, |thread| thread.tid) else {
                continue;
            };
            let dir = format!("/proc/{}/task/{tid}", self.pid);
            let schedstat = File::open(format!("{dir}/schedstat"));
            let comm = fs::read_to_string(format!("{dir}/comm"));
            // One that ended meanwhile is left out.
            let (Ok(schedstat), Ok(comm)) = (schedstat, comm) else { continue };
            let vcpu = vcpu_number(comm.trim_end());
            self.open.insert(place, Thread { tid, vcpu, schedstat });
        }
        Ok(())
    }

    /// Confines each vCPU that is known to the CPUs it is to have.
    ///
    /// # Errors
    /// When the kernel does not take it.
    pub fn confine(&self, pin: &Pin) -> anyhow::Result<()> {
        for thread in &self.open {
            let Some(vcpu) = thread.vcpu else { continue };
            let cpus = cpu_set(pin.of_vcpu(vcpu))?;
            sched_setaffinity(Pid::from_raw(i32::try_from(thread.tid)?), &cpus)?;
        }
        Ok(())
    }

    /// The threads known.
    pub fn tids(&self) -> impl Iterator<Item = u32> {
        self.open.iter().map(|thread| thread.tid)
    }

    /// Whose the threads are that were ever known, the process being the VM with this index.
    pub fn who(&self, vm: u32) -> impl Iterator<Item = (u32, Who)> {
        let who = move |thread: &Thread| thread.vcpu.map_or(Who::Helper(vm), |n| Who::Vcpu(vm, n));
        self.open.iter().map(move |thread| (thread.tid, who(thread)))
    }

    /// The CPU time of each known thread, in the order of their numbers. One that ended is left out.
    ///
    /// # Errors
    /// When none is left, or the kernel keeps no such statistics.
    pub fn read(&self) -> io::Result<Vec<ThreadTime>> {
        let mut times = Vec::with_capacity(self.open.len());
        for Thread { tid, vcpu, schedstat } in &self.open {
            let mut text = [0; SCHEDSTAT_LEN_MAX];
            let Ok(len) = schedstat.read_at(&mut text, 0) else { continue };
            let told = std::str::from_utf8(&text[..len]).ok().and_then(told);
            let told = told.ok_or_else(|| io::Error::other("schedstat has no CPU time"))?;
            times.push(ThreadTime { tid: *tid, vcpu: *vcpu, ..told });
        }
        match times.is_empty() {
            true => Err(io::Error::other("it has no thread with a schedstat in /proc")),
            false => Ok(times),
        }
    }
}

/// Three numbers of 64 bits and what is between them.
const SCHEDSTAT_LEN_MAX: usize = 64;

/// All threads of this host, the kernel's own too, in the order of their numbers, without knowing
/// vCPUs from others. One that ends meanwhile is left out.
///
/// # Errors
/// When there is no `/proc`.
pub(crate) fn read_all() -> io::Result<Vec<ThreadTime>> {
    let mut threads = Vec::new();
    for process in fs::read_dir("/proc")? {
        let name = process?.file_name();
        let Ok(pid) = name.to_string_lossy().parse::<u32>() else { continue };
        let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { continue };
        for tid in
            tasks.flatten().filter_map(|task| task.file_name().to_string_lossy().parse().ok())
        {
            let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat"));
            if let Some(told) = text.ok().as_deref().and_then(told) {
                threads.push(ThreadTime { tid, ..told });
            }
        }
    }
    threads.sort_by_key(|thread| thread.tid);
    Ok(threads)
}

/// CPU time used between two readings by each thread there was at the second. What threads used that
/// ended in between is not known any more: VMMs keep their threads.
pub(crate) fn used_between(before: &[ThreadTime], after: &[ThreadTime]) -> Vec<ThreadTime> {
    let used = |now: &ThreadTime| {
        let then = before.binary_search_by_key(&now.tid, |thread| thread.tid);
        let (then_ns, then_dispatches) =
            then.map_or((0, 0), |index| (before[index].cpu_ns, before[index].dispatches));
        ThreadTime {
            cpu_ns: now.cpu_ns.saturating_sub(then_ns),
            dispatches: now.dispatches.saturating_sub(then_dispatches),
            ..now.clone()
        }
    };
    after.iter().map(used).collect()
}

/// What a schedstat file says, of no thread yet: CPU time in ns, how long it waited, how often it ran.
fn told(schedstat: &str) -> Option<ThreadTime> {
    let mut figures = schedstat.split_whitespace().map(|figure| figure.parse().ok());
    let (cpu_ns, dispatches) = (figures.next()??, figures.nth(1)??);
    Some(ThreadTime { tid: 0, vcpu: None, cpu_ns, dispatches })
}

/// The vCPU a thread of this name runs: `vcpu3` in micro VMs, `CPU 3/KVM` in QEMU.
fn vcpu_number(name: &str) -> Option<u32> {
    let number = match name.strip_prefix("vcpu") {
        Some(number) => number,
        None => name.strip_prefix("CPU ")?.strip_suffix("/KVM")?,
    };
    number.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_the_first_of_three_figures_and_dispatches_the_last() {
        let read = told("1234567890 42 7\n").unwrap();
        assert_eq!((read.cpu_ns, read.dispatches), (1_234_567_890, 7));
        for bad in ["", "x 1 2", "-1 0 0", "1 2"] {
            assert_eq!(told(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn vcpus_are_known_by_their_names() {
        for (name, vcpu) in [("vcpu0", Some(0)), ("vcpu127", Some(127)), ("CPU 3/KVM", Some(3))] {
            assert_eq!(vcpu_number(name), vcpu);
        }
        for helper in ["drover", "vcpu", "vcpu1x", "CPU 1/TCG", "IO mon_iothread", "vhost-12"] {
            assert_eq!(vcpu_number(helper), None, "{helper}");
        }
    }

    #[test]
    fn a_thread_that_is_new_has_used_all_it_has_and_one_that_ended_nothing() {
        let thread = |tid, cpu_ns| ThreadTime { tid, vcpu: None, cpu_ns, dispatches: cpu_ns / 2 };
        let used = used_between(&[thread(1, 10), thread(3, 5)], &[thread(2, 7), thread(3, 9)]);
        assert_eq!(used, [thread(2, 7), thread(3, 4)]);
    }

    #[test]
    fn the_threads_of_this_process_are_read() {
        let mut threads = Threads::of(std::process::id());
        assert!(threads.read().is_err(), "none is known yet");
        threads.look().unwrap();
        let first = threads.read().unwrap();
        assert!(first.iter().any(|thread| thread.cpu_ns > 0 && thread.vcpu.is_none()));
        let named = std::thread::Builder::new().name("vcpu3".to_owned());
        let (go_on, wait) = std::sync::mpsc::channel::<()>();
        let (begun, has_begun) = std::sync::mpsc::channel();
        let thread = named.spawn(move || {
            // By now it has its name.
            begun.send(()).unwrap();
            wait.recv()
        });
        has_begun.recv().unwrap();
        let has_vcpu =
            |threads: &Threads| threads.read().unwrap().iter().any(|thread| thread.vcpu == Some(3));
        // A list that is read while a thread of another test ends may leave one out.
        while !has_vcpu(&threads) {
            threads.look().unwrap();
        }
        let second = threads.read().unwrap();
        assert!(second.windows(2).all(|pair| pair[0].tid < pair[1].tid));
        drop(go_on);
        assert!(thread.unwrap().join().unwrap().is_err());
        // A thread is joined a little before it is gone.
        while has_vcpu(&threads) {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_process_that_is_not_there_is_an_error() {
        assert!(Threads::of(u32::MAX).look().is_err());
    }

    #[test]
    fn all_threads_include_those_of_this_process() {
        let all = read_all().unwrap();
        assert!(all.windows(2).all(|pair| pair[0].tid < pair[1].tid));
        assert!(all.iter().any(|thread| thread.tid == std::process::id()));
    }
}

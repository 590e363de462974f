// SPDX-License-Identifier: GPL-2.0-only
//! Threads as the kernel has them: their CPU time, where they may run, and how.

use std::fs;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::{Pid, gettid};

/// The process id of a child.
pub fn pid_of(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).unwrap())
}

/// The threads of a process whose names begin so, in the order of their numbers.
pub fn threads_named(process: Pid, prefix: &str) -> Vec<Pid> {
    let mut threads: Vec<Pid> = fs::read_dir(format!("/proc/{process}/task"))
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| {
            let name = fs::read_to_string(entry.path().join("comm"));
            name.is_ok_and(|name| name.starts_with(prefix))
        })
        .filter_map(|entry| Some(Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)))
        .collect();
    threads.sort();
    threads
}

/// CPU time of a thread, exact to a tick; 0 when it is gone.
pub fn cpu_time_ns(thread: Pid) -> u64 {
    let text = fs::read_to_string(format!("/proc/{thread}/schedstat")).unwrap_or_default();
    text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0)
}

/// What a thread does, as `/proc` has it (R, S, ...); none when it is gone.
pub fn state_of(thread: Pid) -> Option<char> {
    let text = fs::read_to_string(format!("/proc/{thread}/stat")).ok()?;
    text.rsplit_once(") ")?.1.chars().next()
}

/// Confines a thread to these pCPUs. That it has ended meanwhile is no error.
pub fn confine(thread: Pid, pcpus: &[usize]) {
    let mut set = CpuSet::new();
    pcpus.iter().for_each(|&pcpu| set.set(pcpu).unwrap());
    match sched_setaffinity(thread, &set) {
        Ok(()) | Err(Errno::ESRCH) => {}
        Err(err) => panic!("cannot confine {thread} to {pcpus:?}: {err}"),
    }
}

/// The pCPUs of the host on which a thread may run now, of the first eight.
pub fn may_run_on(thread: Pid) -> Vec<usize> {
    let set = sched_getaffinity(thread).unwrap_or_else(|err| panic!("affinity of {thread}: {err}"));
    (0..8).filter(|&pcpu| set.is_set(pcpu).unwrap()).collect()
}

/// The pCPU where a thread runs, or ran last.
pub fn last_pcpu(thread: Pid) -> usize {
    let stat = fs::read_to_string(format!("/proc/{thread}/stat")).unwrap();
    let number = stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(36));
    number.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{stat}"))
}

/// Gives a thread a scheduling policy (`libc::SCHED_FIFO` ...). That it has ended is no error.
pub fn set_policy(thread: Pid, policy: libc::c_int) {
    let real_time = policy == libc::SCHED_FIFO || policy == libc::SCHED_RR;
    let param = libc::sched_param { sched_priority: i32::from(real_time) };
    // SAFETY: reads the parameter, which is ours, and keeps nothing.
    let result = unsafe { libc::sched_setscheduler(thread.as_raw(), policy, &raw const param) };
    match Errno::result(result) {
        Ok(_) | Err(Errno::ESRCH) => {}
        Err(err) => panic!("policy {policy} for {thread}: {err}"),
    }
}

/// Sets the nice value of a thread; 0 is the calling one. That it has ended is no error.
pub fn set_nice(thread: Pid, nice: i32) {
    let id = u32::try_from(thread.as_raw()).unwrap();
    // SAFETY: takes scalars only.
    let result = unsafe { libc::setpriority(libc::PRIO_PROCESS, id, nice) };
    match Errno::result(result) {
        Ok(_) | Err(Errno::ESRCH) => {}
        Err(err) => panic!("nice {nice} for {thread}: {err}"),
    }
}

/// A real-time thread on one pCPU, until it is dropped.
pub struct RealTimeHog {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl RealTimeHog {
    /// One on pCPU 1 that never sleeps.
    pub fn start() -> Self {
        Self::with(1, std::hint::spin_loop)
    }

    /// One that works for some of every ms, as a guest's or an audio server's does.
    pub fn periodic(pcpu: usize, busy: Duration) -> Self {
        Self::with(pcpu, move || {
            let begun = Instant::now();
            while begun.elapsed() < busy {
                std::hint::spin_loop();
            }
            thread::sleep(Duration::from_millis(1).saturating_sub(busy));
        })
    }

    fn with(pcpu: usize, work: impl Fn() + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let body = move || {
            confine(gettid(), &[pcpu]);
            set_policy(gettid(), libc::SCHED_FIFO);
            while !stopped.load(Ordering::Relaxed) {
                work();
            }
        };
        Self { stop, thread: Some(thread::spawn(body)) }
    }
}

impl Drop for RealTimeHog {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! CPU time of a thread to the moment.
//!
//! `/proc` has the time of a running thread as of the last tick: a VM of 4 vCPUs may seem to have had 16 ms
//! more or less in 100 ms than it had. A counter of the kernel's own tools is read on the pCPU that runs
//! the thread, and is exact.

use perf_event_open_sys::bindings::{
    PERF_COUNT_SW_TASK_CLOCK, PERF_FLAG_FD_CLOEXEC, PERF_TYPE_SOFTWARE, perf_event_attr,
};
use perf_event_open_sys::perf_event_open;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::FromRawFd;

/// A count of a thread's CPU time from when it was opened; it outlives the thread.
#[derive(Debug)]
pub(crate) struct TaskClock(File);

impl TaskClock {
    /// Begins to count.
    ///
    /// # Errors
    /// When there is no such thread, or this host does not allow it.
    pub fn open(tid: u32) -> io::Result<Self> {
        let mut attr = perf_event_attr {
            type_: PERF_TYPE_SOFTWARE,
            size: u32::try_from(size_of::<perf_event_attr>()).expect("a small struct"),
            config: PERF_COUNT_SW_TASK_CLOCK.into(),
            ..perf_event_attr::default()
        };
        let tid = i32::try_from(tid).map_err(io::Error::other)?;
        let close_on_exec = PERF_FLAG_FD_CLOEXEC.into();
        // SAFETY: `attr` is initialised and outlives the call; the kernel only reads it.
        let fd = unsafe { perf_event_open(&raw mut attr, tid, -1, -1, close_on_exec) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor that nobody else has.
        Ok(Self(unsafe { File::from_raw_fd(fd) }))
    }

    /// CPU time so far, ns.
    ///
    /// # Errors
    /// When the kernel does not give it.
    pub fn ns(&self) -> io::Result<u64> {
        let mut count = [0; 8];
        (&self.0).read_exact(&mut count)?;
        Ok(u64::from_ne_bytes(count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn what_a_thread_uses_is_counted_at_once() {
        // Where it is not allowed, samples are taken from /proc.
        let Ok(clock) = TaskClock::open(std::process::id()) else { return };
        let own = || {
            let tid = nix::unistd::gettid().as_raw();
            TaskClock::open(u32::try_from(tid).unwrap()).unwrap()
        };
        let (this, begun) = (own(), Instant::now());
        while this.ns().unwrap() < 1_000_000 {
            assert!(begun.elapsed() < Duration::from_secs(60), "a busy thread's clock stands");
        }
        assert!(clock.ns().is_ok());
        assert!(TaskClock::open(u32::MAX).is_err() && TaskClock::open(0x3fff_fff0).is_err());
    }
}

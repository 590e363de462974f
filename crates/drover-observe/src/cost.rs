// SPDX-License-Identifier: GPL-2.0-only
//! What observing costs this host: the programs in the kernel, by its own statistics, and the reading once a second.

use std::collections::BTreeSet;
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use drover_host::io_bytes::HostBytes;
use libbpf_rs::libbpf_sys::{BPF_STATS_RUN_TIME, bpf_enable_stats};
use libbpf_rs::query::ProgInfoIter;
use nix::time::{ClockId, clock_gettime};

use crate::forward::Forward;
use crate::observer::{Follower, Keep};
use crate::sample::Sample;

/// What our programs' names begin with, as far as the kernel keeps names.
const PROGRAMS: &[u8] = b"observe_";

/// What observing cost in some time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// Of so long, s.
    pub over_s: f64,
    /// Calls of the programs on the kernel's tracepoints.
    pub calls: u64,
    /// Time in these, s; the kernel's measuring is in it.
    pub programs_s: f64,
    /// CPU time of the reading, s.
    pub reading_s: f64,
}

/// Observes as `drover observe` does, for so many seconds.
///
/// # Errors
/// When the kernel does not take the observer, or measures no programs.
pub fn measure(seconds: u32) -> Result<Cost> {
    let mut follower = Follower::start(Keep::Events)?;
    // SAFETY: takes a number, returns a descriptor or a negative error.
    let fd = unsafe { bpf_enable_stats(BPF_STATS_RUN_TIME) };
    if fd < 0 {
        bail!(
            "the kernel measures no BPF programs here: {}",
            std::io::Error::from_raw_os_error(-fd)
        );
    }
    // SAFETY: a descriptor that was just made for us; nobody else has it.
    let _measuring = unsafe { OwnedFd::from_raw_fd(fd) };
    let mut bytes = HostBytes::default();
    let (begun, [ns, calls]) = (Instant::now(), programs());
    let mut reading = Duration::ZERO;
    for _ in 0..seconds {
        sleep(Duration::from_secs(1));
        let from = own_time()?;
        let sample = Sample::take(&follower.observer()?.read()?, &mut Forward::default())?;
        let processes: BTreeSet<u32> = sample.vms.keys().copied().collect();
        bytes.read(Path::new("/proc"), &processes);
        reading += own_time()?.saturating_sub(from);
    }
    let [ns_after, calls_after] = programs();
    let over_s = begun.elapsed().as_secs_f64();
    Ok(Cost {
        over_s,
        calls: calls_after.saturating_sub(calls),
        programs_s: Duration::from_nanos(ns_after.saturating_sub(ns)).as_secs_f64(),
        reading_s: reading.as_secs_f64(),
    })
}

/// Time in our programs on tracepoints, ns, and how often they were called. What reading takes is the reader's.
fn programs() -> [u64; 2] {
    let of_events = |name: &[u8]| name.starts_with(PROGRAMS) && !name.starts_with(b"observe_read");
    ProgInfoIter::default()
        .filter(|program| of_events(program.name.as_encoded_bytes()))
        .fold([0, 0], |[ns, calls], it| [ns + it.run_time_ns, calls + it.run_cnt])
}

/// CPU time of this thread.
fn own_time() -> Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?.into())
}

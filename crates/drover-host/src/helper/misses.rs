// SPDX-License-Identifier: GPL-2.0-only
//! Misses of the last-level cache, by the hardware's counters.

use std::fs;
use std::io::{self, Read};
use std::os::fd::FromRawFd;
use std::time::{Duration, Instant};

/// For so long threads are counted.
pub const COUNTS: Duration = Duration::from_millis(100);

/// Counts the misses of these threads for [`COUNTS`]; not a number where that cannot be.
pub fn misses_of(threads: &[u64]) -> Vec<f64> {
    let open = |thread: &u64| count(u32::try_from(*thread).ok()?).ok();
    let mut counts: Vec<Option<fs::File>> = threads.iter().map(open).collect();
    let begun = Instant::now();
    std::thread::sleep(COUNTS);
    // Who looks may have waited for a pCPU meanwhile.
    let part = COUNTS.as_secs_f64() / begun.elapsed().as_secs_f64();
    let misses = |file: &mut Option<fs::File>| Some(counted(file.as_mut()?)? * part);
    counts.iter_mut().map(|file| misses(file).unwrap_or(f64::NAN)).collect()
}

/// The kernel's perf_event_attr as it was first, which it takes for ever.
#[repr(C)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    bp_type: u32,
    bp_addr: u64,
}

/// PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_MISSES, to be told for how long it was wanted and did count, and neither
/// the kernel's misses nor a hypervisor's below.
const HARDWARE: u32 = 0;
const CACHE_MISSES: u64 = 3;
const TIMES: u64 = 1 | 2;
const USER_ONLY: u64 = 1 << 5 | 1 << 6;

/// Counts misses of that thread from now on, wherever it runs, guest and host; 0 is who asks.
fn count(thread: u32) -> io::Result<fs::File> {
    let attributes = Attributes {
        kind: HARDWARE,
        size: size_of::<Attributes>() as u32,
        config: CACHE_MISSES,
        sample_period: 0,
        sample_type: 0,
        read_format: TIMES,
        flags: USER_ONLY,
        wakeup_events: 0,
        bp_type: 0,
        bp_addr: 0,
    };
    let thread = libc::pid_t::try_from(thread).map_err(|_| io::ErrorKind::InvalidInput)?;
    const CLOSE_ON_EXEC: libc::c_ulong = 1 << 3;
    // SAFETY: the attributes are as large as they say, and only read.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            thread,
            -1,
            -1,
            CLOSE_ON_EXEC,
        )
    };
    let fd = i32::try_from(fd).ok().filter(|&fd| fd >= 0).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: the kernel has just opened it for nobody else.
    Ok(unsafe { fs::File::from_raw_fd(fd) })
}

/// How much it counted, or would have, where counters were too few and it had one in turns.
fn counted(file: &mut fs::File) -> Option<f64> {
    let mut bytes = [0; 24];
    file.read_exact(&mut bytes).ok()?;
    let number = |at: usize| {
        u64::from_ne_bytes(bytes[8 * at..8 * at + 8].try_into().expect("there are three")) as f64
    };
    let (value, wanted, ran) = (number(0), number(1), number(2));
    Some(if ran > 0.0 { value * wanted / ran } else { 0.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misses_of_one_thread_are_counted_where_the_host_can() {
        let Ok(mut one) = count(0) else { return };
        let touched: u64 = vec![1_u8; 64 << 20].iter().step_by(64).map(|&it| u64::from(it)).sum();
        assert!(counted(&mut one).is_some() && touched == 1 << 20);
    }
}

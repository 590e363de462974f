// SPDX-License-Identifier: GPL-2.0-only
//! What pCPUs did, from `/proc/stat`.

use std::path::Path;

use anyhow::{Context, Result};
use drover_host::files;

/// 8,192 pCPUs, and a count for each of as many interrupts.
const STAT_MAX: usize = 4 << 20;

/// Ticks of one pCPU since the host booted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ticks {
    /// Its number.
    pub pcpu: u32,
    /// Its socket.
    pub socket: u32,
    /// Its core: the lowest pCPU of it.
    pub core: u32,
    /// In guests.
    pub guest: u64,
    /// All it did, guests too.
    pub busy: u64,
    /// All that passed.
    pub all: u64,
}

/// The pCPUs that are online, as they are now.
///
/// # Errors
/// When there is no `/proc`, or it has another format.
pub fn read() -> Result<Vec<Ticks>> {
    let text =
        files::kernel_lines(Path::new("/proc/stat"), STAT_MAX).context("cannot read /proc/stat")?;
    let lines = text.lines().filter(|line| line.starts_with("cpu") && !line.starts_with("cpu "));
    let ticks: Option<Vec<Ticks>> = lines.map(parse).collect();
    let mut ticks = ticks.context("/proc/stat has another format than Linux gives it")?;
    for one in &mut ticks {
        (one.socket, one.core) = place(one.pcpu);
    }
    Ok(ticks)
}

/// The socket and the core of a pCPU, by its lowest number. Where the kernel does not tell it is a core of its own.
fn place(pcpu: u32) -> (u32, u32) {
    let read = |file: &str| {
        let path = format!("/sys/devices/system/cpu/cpu{pcpu}/topology/{file}");
        files::kernel(Path::new(&path)).ok()
    };
    let socket = read("physical_package_id").and_then(|text| text.trim().parse().ok());
    // As `0-1`, or `0,64`.
    let threads = read("thread_siblings_list");
    let first = threads.as_deref().and_then(|list| list.trim().split([',', '-']).next());
    (socket.unwrap_or(0), first.and_then(|text| text.parse().ok()).unwrap_or(pcpu))
}

/// `cpu3 user nice system idle iowait irq softirq steal guest guest_nice`: what is in guests is in `user`
/// and `nice` as well, and one that waits for a disk is idle.
fn parse(line: &str) -> Option<Ticks> {
    let mut words = line.strip_prefix("cpu")?.split_whitespace();
    let pcpu = words.next()?.parse().ok()?;
    let ticks: Vec<u64> = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
    let [user, nice, system, idle, iowait, irq, softirq, steal, guest, guest_nice] =
        *ticks.first_chunk()?;
    let busy = user + nice + system + irq + softirq + steal;
    let (guest, all) = (guest + guest_nice, busy + idle + iowait);
    Some(Ticks { pcpu, guest, busy, all, ..Ticks::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guests_are_part_of_what_a_pcpu_did() {
        let ticks = parse("cpu12 100 5 20 500 7 1 2 3 90 4").unwrap();
        assert_eq!((ticks.pcpu, ticks.guest, ticks.busy, ticks.all), (12, 94, 131, 638));
        assert_eq!(parse("cpu1 1 2 3"), None);
    }

    #[test]
    fn this_host_has_pcpus() {
        let pcpus = read().unwrap();
        assert!(!pcpus.is_empty() && pcpus.iter().all(|it| it.guest <= it.busy), "{pcpus:?}");
        assert!(pcpus.iter().all(|it| it.core <= it.pcpu), "{pcpus:?}");
    }
}

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
    ticks.context("/proc/stat has another format than Linux gives it")
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
    Some(Ticks { pcpu, guest: guest + guest_nice, busy, all: busy + idle + iowait })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guests_are_part_of_what_a_pcpu_did() {
        let ticks = parse("cpu12 100 5 20 500 7 1 2 3 90 4").unwrap();
        assert_eq!(ticks, Ticks { pcpu: 12, guest: 94, busy: 131, all: 638 });
        assert_eq!(parse("cpu1 1 2 3"), None);
    }

    #[test]
    fn this_host_has_pcpus() {
        let pcpus = read().unwrap();
        assert!(!pcpus.is_empty() && pcpus.iter().all(|it| it.guest <= it.busy), "{pcpus:?}");
    }
}

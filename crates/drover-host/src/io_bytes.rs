// SPDX-License-Identifier: GPL-2.0-only
//! Bytes that VMs moved to and from their disks and the network.
//!
//! | what | from |
//! |---|---|
//! | disks | `/proc/PID/io` |
//! | network | `/proc/PID/net/dev`, for the taps that the process has open (`iff` in `fdinfo`) |
//!
//! Each counter is followed on its own, and only its growth is added, so sums never go down. When a tap is removed, its bytes
//! so far stay in the sum. When a tap is made again, or a 32-bit counter wraps, counting goes on from zero; the bytes between
//! the last reading and that moment are lost. What cannot be read from the first (no rights, a kernel without `CONFIG_TASK_IO_ACCOUNTING`, no
//! tap) is not known.
//!
//! Limitations. Blocks that the host's page cache had are no disk's, nor are those of a back end in another process. A
//! tap that is opened later is found at every eighth reading, and what it had moved by then does not count.

use crate::files::{self, ENTRIES_MAX};
use drover_core::io::{Bytes, counted_since};
use std::collections::{BTreeSet, HashMap};
use std::path::Path;

/// How often it is looked which taps a VM has, readings.
const TAPS_EVERY: u32 = 8;

/// The bytes of one VM since it was first read.
#[derive(Debug, Clone, Default)]
pub struct ByteCounts {
    disks: Counter,
    /// Its taps, by name, those that have gone too.
    taps: HashMap<String, Counter>,
    /// Those that it has open.
    open: BTreeSet<String>,
    readings: u32,
}

/// A counter of the kernel's, and what was counted since it was first read.
#[derive(Debug, Clone, Copy, Default)]
struct Counter {
    last: Option<u64>,
    sum: u64,
}

impl Counter {
    fn read(&mut self, now: u64) {
        self.sum += self.last.map_or(0, |last| counted_since(last, now));
        self.last = Some(now);
    }

    fn sum(&self) -> Option<u64> {
        self.last.map(|_| self.sum)
    }
}

impl ByteCounts {
    /// Reads those of the process of this directory of `/proc`. Of one that has gone it is what it had.
    pub fn read(&mut self, process: &Path) -> Bytes {
        let io = || files::kernel(&process.join("io")).ok();
        self.read_with(process, io, || Some(taps(process)))
    }

    /// The same, where others read `io`, and which taps are open; none: it is not known.
    pub(crate) fn read_with(
        &mut self,
        process: &Path,
        io: impl FnOnce() -> Option<String>,
        taps: impl FnOnce() -> Option<BTreeSet<String>>,
    ) -> Bytes {
        if let Some(bytes) = io().as_deref().and_then(of_disks) {
            self.disks.read(bytes);
        }
        if self.readings % TAPS_EVERY == 0 {
            self.open = taps().unwrap_or_else(|| std::mem::take(&mut self.open));
        }
        self.readings += 1;
        // The process may have a network namespace of its own, and its taps in it.
        if !self.open.is_empty() {
            let table = files::kernel_lines(&process.join("net/dev"), 1 << 20).unwrap_or_default();
            for (name, bytes) in table.lines().filter_map(of_device) {
                if self.open.contains(name) {
                    self.taps.entry(name.to_owned()).or_default().read(bytes);
                }
            }
        }
        let network_bytes = self.taps.values().filter_map(Counter::sum).reduce(|sum, it| sum + it);
        Bytes { block_bytes: self.disks.sum(), network_bytes }
    }
}

/// The bytes of many VMs.
#[derive(Debug, Default)]
pub struct HostBytes(HashMap<u32, ByteCounts>);

impl HostBytes {
    /// Those of these processes; others are forgotten. `proc` is `/proc`, or a test's.
    pub fn read(&mut self, proc: &Path, processes: &BTreeSet<u32>) -> HashMap<u32, Bytes> {
        self.0.retain(|process, _| processes.contains(process));
        let mut read = |process: u32| {
            let counts = self.0.entry(process).or_default();
            (process, counts.read(&proc.join(process.to_string())))
        };
        processes.iter().map(|process| read(*process)).collect()
    }
}

/// The taps that a process has open, by name.
pub(crate) fn taps(process: &Path) -> BTreeSet<String> {
    let open = files::entries(&process.join("fdinfo"), ENTRIES_MAX);
    let tap = |info: String| files::field(&info, "iff:").map(str::to_owned);
    open.filter_map(|entry| tap(files::kernel(&entry.path()).ok()?)).collect()
}

/// A device, and its bytes both ways, of a line of `net/dev`.
fn of_device(line: &str) -> Option<(&str, u64)> {
    let (name, counts) = line.split_once(':')?;
    let mut counts = counts.split_whitespace().map(str::parse::<u64>);
    let received = counts.next()?.ok()?;
    Some((name.trim(), received.wrapping_add(counts.nth(7)?.ok()?)))
}

/// Bytes that a process moved to and from disks.
fn of_disks(io: &str) -> Option<u64> {
    let bytes = |name| files::field(io, name)?.parse::<u64>().ok();
    Some(bytes("read_bytes:")?.wrapping_add(bytes("write_bytes:")?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_host::host;
    use std::fs;

    const FULL: u64 = u32::MAX as u64;

    fn device(name: &str, received: u64, sent: u64) -> String {
        format!("{name}: {received} 1 0 0 0 0 0 0 {sent} 1 0 0 0 0 0 0\n")
    }

    fn io(read: u64) -> String {
        format!("rchar: 9\nread_bytes: {read}\nwrite_bytes: 10\ncancelled_write_bytes: 1\n")
    }

    fn bytes(block_bytes: Option<u64>, network_bytes: Option<u64>) -> Bytes {
        Bytes { block_bytes, network_bytes }
    }

    #[test]
    fn bytes_are_those_since_the_first_reading() {
        let dir = host(&[
            ("7/io", &io(4096)),
            ("7/fdinfo/3", "pos:\t0\niff:\tvnet0\n"),
            ("7/net/dev", &(device("vnet0", 1000, 500) + &device("lo", 7, 7))),
        ]);
        let process = dir.path().join("7");
        let mut counts = ByteCounts::default();
        assert_eq!(counts.read(&process), bytes(Some(0), Some(0)));
        fs::write(process.join("io"), io(8192)).unwrap();
        fs::write(process.join("net/dev"), device("vnet0", 3000, 600)).unwrap();
        assert_eq!(counts.read(&process), bytes(Some(4096), Some(2100)));
        fs::remove_dir_all(&process).unwrap();
        assert_eq!(counts.read(&process), bytes(Some(4096), Some(2100)), "it has gone");
    }

    #[test]
    fn a_tap_that_goes_leaves_what_it_had_and_one_made_again_begins_anew() {
        let both = device("vnet0", 1000, 0) + &device("vnet1", 100, 0);
        let dir = host(&[
            ("7/fdinfo/3", "iff:\tvnet0\n"),
            ("7/fdinfo/4", "iff:\tvnet1\n"),
            ("7/net/dev", &both),
        ]);
        let process = dir.path().join("7");
        let mut counts = ByteCounts::default();
        let mut then = |table: String| {
            fs::write(process.join("net/dev"), table).unwrap();
            counts.read(&process).network_bytes
        };
        assert_eq!(then(both), Some(0));
        assert_eq!(then(device("vnet0", 1500, 0) + &device("vnet1", 150, 0)), Some(550));
        assert_eq!(then(device("vnet1", 170, 0)), Some(570), "vnet0 has gone");
        assert_eq!(then(String::new()), Some(570), "both have");
        assert_eq!(then(device("vnet0", 40, 0)), Some(610), "made again");
    }

    #[test]
    fn a_counter_of_32_bits_that_is_full_is_no_flood() {
        let dir = host(&[
            ("7/fdinfo/3", "iff:\tvnet0\n"),
            ("7/net/dev", &device("vnet0", FULL - 100, 0)),
        ]);
        let process = dir.path().join("7");
        let mut counts = ByteCounts::default();
        counts.read(&process);
        fs::write(process.join("net/dev"), device("vnet0", 300, 0)).unwrap();
        assert_eq!(counts.read(&process).network_bytes, Some(300), "what came before is lost");
    }

    #[test]
    fn what_cannot_be_read_is_not_known() {
        let mut counts = ByteCounts::default();
        assert_eq!(counts.read(Path::new("/nonexistent")), Bytes::default());
        let dir = host(&[("7/io", "read_bytes: many\n"), ("7/fdinfo/3", "iff:\tvnet0\n")]);
        assert_eq!(counts.read(&dir.path().join("7")), Bytes::default());
    }

    #[test]
    fn who_has_gone_is_forgotten() {
        let mut all = HostBytes::default();
        let read = all.read(Path::new("/nonexistent"), &BTreeSet::from([7, 8]));
        assert_eq!(read, HashMap::from([(7, Bytes::default()), (8, Bytes::default())]));
        all.read(Path::new("/nonexistent"), &BTreeSet::from([8]));
        assert_eq!(all.0.len(), 1);
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! Bytes that a VM moved to and from its disks and the network.
//!
//! | what | from |
//! |---|---|
//! | disks | `/proc/PID/io` |
//! | network | `/proc/PID/net/dev`, for the taps that the process has open (`iff` in `fdinfo`) |
//!
//! Limitations. Blocks that the host's page cache had are no disk's, nor are those of a back end in another process.

use crate::files::{self, ENTRIES_MAX};
use std::collections::BTreeSet;
use std::path::Path;

/// The taps of a process, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Taps(BTreeSet<String>);

impl Taps {
    /// Those that the process of this directory of `/proc` has open.
    pub fn of(process: &Path) -> Self {
        let open = files::entries(&process.join("fdinfo"), ENTRIES_MAX);
        let tap = |info: String| files::field(&info, "iff:").map(str::to_owned);
        Self(open.filter_map(|entry| tap(files::kernel(&entry.path()).ok()?)).collect())
    }

    /// Bytes through them, both ways; none: there is no tap.
    pub fn bytes(&self, process: &Path) -> Option<u64> {
        if self.0.is_empty() {
            return None;
        }
        // The process may have a network namespace of its own, and its taps in it.
        let table = files::kernel_lines(&process.join("net/dev"), 1 << 20).ok()?;
        let bytes = |line: &str| {
            let (name, counts) = line.split_once(':')?;
            let mut counts = counts.split_whitespace().map(str::parse::<u64>);
            self.0.contains(name.trim()).then_some(())?;
            Some(counts.next()?.ok()? + counts.nth(7)?.ok()?)
        };
        table.lines().filter_map(bytes).reduce(|sum, bytes| sum + bytes)
    }
}

/// Bytes that the process of this directory of `/proc` moved to and from disks.
pub fn of_disks(process: &Path) -> Option<u64> {
    let io = files::kernel(&process.join("io")).ok()?;
    let bytes = |name| files::field(&io, name)?.parse::<u64>().ok();
    Some(bytes("read_bytes:")? + bytes("write_bytes:")?)
}

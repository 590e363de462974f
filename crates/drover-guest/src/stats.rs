// SPDX-License-Identifier: GPL-2.0-only
//! Reading a micro VM's counters from outside, while it runs or after.

use crate::layout::{self, VCPU_AT_GATE, Vcpu};
use crate::shared_file::SharedFile;
use crate::{GuestError, ProgressSource, Snapshot};
use drover_core::histogram::Histogram;
use std::path::Path;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// An open window on the counters of one micro VM, held by another process than the VM's.
#[derive(Debug)]
pub struct StatsReader {
    file: SharedFile,
}

impl StatsReader {
    /// Opens the counters at `path`.
    ///
    /// A VM leaves its file behind: remove it, or choose another path, before the next VM is started, or
    /// this opens the old one's counters while the new VM has not begun.
    ///
    /// # Errors
    /// When the file is not there, not filled in yet (the VM's process has only just begun), or holds
    /// something else.
    pub fn open(path: &Path) -> Result<Self, GuestError> {
        SharedFile::open(path).map(|file| Self { file })
    }

    /// Lets a VM that waits for it begin to work. It looks every 10 ms.
    pub fn go(&self) {
        self.file.control().go.store(1, Release);
    }

    /// Whether every vCPU has run and stands at the gate or beyond.
    pub fn booted(&self) -> bool {
        (0..self.file.vcpus())
            .all(|index| self.file.vcpu(index).state.load(Acquire) >= VCPU_AT_GATE)
    }

    /// The counters as they are now. Each is exact; they are read one after the other while the VM
    /// runs, so counters of the same moment may differ by what happened in between.
    ///
    /// The VM's progress is the sum of its vCPUs', but for `barrier`, where all count the same rounds:
    /// there it is what the slowest has counted.
    pub fn snapshot(&self) -> Snapshot {
        let vcpus = || (0..self.file.vcpus()).map(|index| self.file.vcpu(index));
        let vcpu_progress: Vec<u64> = vcpus().map(|vcpu| vcpu.progress.load(Relaxed)).collect();
        let rounds = self.file.control().workload.load(Relaxed) == layout::WORKLOAD_BARRIER;
        let each = vcpu_progress.iter().copied();
        let progress = if rounds { each.min() } else { Some(each.sum()) };
        let mut wakeups = Histogram::new();
        vcpus().for_each(|vcpu| wakeups.merge(&read_wakeups(vcpu)));
        let yields = vcpus().map(|vcpu| vcpu.yields.load(Relaxed)).sum();
        Snapshot { progress, vcpu_progress, wakeups, yields }
    }
}

fn read_wakeups(vcpu: &Vcpu) -> Histogram {
    let buckets: Vec<u64> = vcpu.wake_buckets.iter().map(|count| count.load(Relaxed)).collect();
    Histogram::from_parts(&buckets, vcpu.wake_sum_ns.load(Relaxed), vcpu.wake_max_ns.load(Relaxed))
}

impl ProgressSource for StatsReader {
    fn ready(&mut self) -> Result<bool, GuestError> {
        Ok(self.booted())
    }

    fn snapshot(&mut self) -> Result<Snapshot, GuestError> {
        Ok(StatsReader::snapshot(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn file_of(dir: &tempfile::TempDir, vcpus: u32, workload: u32) -> (PathBuf, SharedFile) {
        let path = dir.path().join("stats");
        let file = SharedFile::create(&path, vcpus).unwrap();
        file.control().version.store(layout::VERSION, Relaxed);
        file.control().vcpus.store(vcpus, Relaxed);
        file.control().workload.store(workload, Relaxed);
        file.control().magic.store(layout::MAGIC, Release);
        (path, file)
    }

    #[test]
    fn a_vm_has_booted_when_all_its_vcpus_have() {
        let dir = tempfile::tempdir().unwrap();
        let (path, file) = file_of(&dir, 2, layout::WORKLOAD_CPU);
        let reader = StatsReader::open(&path).unwrap();
        assert!(!reader.booted());
        file.vcpu(0).state.store(1, Relaxed);
        assert!(!reader.booted());
        file.vcpu(1).state.store(2, Relaxed);
        assert!(reader.booted());
        assert_eq!(file.control().go.load(Relaxed), 0);
        reader.go();
        assert_eq!(file.control().go.load(Relaxed), 1);
    }

    #[test]
    fn progress_is_a_sum_but_for_rounds() {
        let dir = tempfile::tempdir().unwrap();
        for (workload, expected) in [(layout::WORKLOAD_LOCK, 21), (layout::WORKLOAD_BARRIER, 10)] {
            let (path, file) = file_of(&dir, 2, workload);
            file.vcpu(0).progress.store(10, Relaxed);
            file.vcpu(1).progress.store(11, Relaxed);
            assert_eq!(StatsReader::open(&path).unwrap().snapshot().progress, Some(expected));
        }
    }

    #[test]
    fn a_window_holds_what_came_between() {
        let dir = tempfile::tempdir().unwrap();
        let (path, file) = file_of(&dir, 1, layout::WORKLOAD_SLEEP);
        let reader = StatsReader::open(&path).unwrap();
        let wake = |late_ns: u64| {
            let vcpu = file.vcpu(0);
            vcpu.progress.fetch_add(1, Relaxed);
            vcpu.wake_sum_ns.fetch_add(late_ns, Relaxed);
            vcpu.wake_max_ns.fetch_max(late_ns, Relaxed);
            let index = drover_core::histogram::bucket_index(late_ns);
            vcpu.wake_buckets[index].fetch_add(1, Relaxed);
        };
        wake(900_000);
        file.vcpu(0).yields.store(3, Relaxed);
        let before = reader.snapshot();
        file.vcpu(0).yields.store(8, Relaxed);
        wake(50_000);
        wake(70_000);
        let window = reader.snapshot().since(&before);
        assert_eq!((window.progress, window.wakeups.count()), (Some(2), 2));
        assert_eq!((window.vcpu_progress.as_slice(), window.yields), ([2].as_slice(), 5));
        assert_eq!(window.wakeups.mean_ns(), Some(60_000.0));
        assert!(window.wakeups.max_ns().unwrap() < 75_000);
    }
}

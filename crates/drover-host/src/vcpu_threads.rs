// SPDX-License-Identifier: GPL-2.0-only
//! Which threads of a VM's process are its vCPUs, by what VMMs call them.

use crate::files::{self, THREADS_MAX};
use std::path::{Path, PathBuf};

/// The directories of a process' vCPU threads; `process` is its own in /proc. VMMs name these threads `CPU 0/KVM`,
/// `vcpu0`, `fc_vcpu 0` or much like it; where none is named so, all threads count.
pub(crate) fn vcpu_threads(process: &Path) -> Vec<PathBuf> {
    let threads = files::entries(&process.join("task"), THREADS_MAX);
    let threads: Vec<PathBuf> = threads.map(|thread| thread.path()).collect();
    let is_vcpu = |thread: &PathBuf| {
        let name = files::kernel(&thread.join("comm")).unwrap_or_default();
        name.to_ascii_lowercase().contains("cpu")
    };
    let vcpus: Vec<PathBuf> = threads.iter().filter(|it| is_vcpu(it)).cloned().collect();
    if vcpus.is_empty() { threads } else { vcpus }
}

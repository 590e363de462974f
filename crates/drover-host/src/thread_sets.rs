// SPDX-License-Identifier: GPL-2.0-only
//! Where the threads of VMs may run, of all that they have: what a VM is guaranteed follows from that.
//!
//! Each thread is a file to read, and a user's process may have thousands, or confine them all the time. So a VM's are read when
//! the kernel says that one of them was confined, or that there are more or fewer; some at a time, all VMs taking turns; and
//! who asks is told what was read last.

use crate::files::{self, THREADS_MAX};
use crate::kernel::KernelVm;
use crate::topology::cpus_of_thread;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// So many threads are read at a look.
const AT_ONCE: usize = 512;

/// The sets of pCPUs on which threads may run.
pub type Sets = BTreeSet<Vec<usize>>;

/// Those of all VMs.
#[derive(Debug, Default)]
pub struct ThreadSets {
    vms: BTreeMap<u64, Known>,
    /// Who was read last.
    turn: u64,
}

#[derive(Debug, Default)]
struct Known {
    sets: Sets,
    /// What the kernel counted when these were begun to be read.
    seen: Option<(u32, u32)>,
    /// Threads that are still to be read, the sets of those before, and what the kernel counted then.
    left: Vec<u32>,
    begun: Sets,
    counted: (u32, u32),
}

impl ThreadSets {
    /// Reads what has changed, or a part of it. How many threads that were.
    pub fn look<'a>(&mut self, proc: &Path, vms: impl Iterator<Item = &'a KernelVm>) -> usize {
        let vms: Vec<&KernelVm> = vms.collect();
        let changed = |vm: &&KernelVm| self.vms.entry(vm.id).or_default().is_to_be_read(vm);
        let mut changed: Vec<&KernelVm> = vms.iter().copied().filter(changed).collect();
        if self.vms.len() > vms.len() {
            let here: BTreeSet<u64> = vms.iter().map(|vm| vm.id).collect();
            self.vms.retain(|id, _| here.contains(id));
        }
        let (turn, mut read) = (self.turn, 0);
        changed.sort_by_key(|vm| (vm.id <= turn, vm.id));
        for vm in changed {
            if read == AT_ONCE {
                break;
            }
            let threads = proc.join(vm.tgid.to_string()).join("task");
            read += self.vms.entry(vm.id).or_default().read(&threads, counts(vm), AT_ONCE - read);
            self.turn = vm.id;
        }
        read
    }

    /// Those of that VM, as they were read last; empty: not yet.
    pub fn of(&self, id: u64) -> Sets {
        self.vms.get(&id).map(|known| known.sets.clone()).unwrap_or_default()
    }
}

/// What the kernel counts of a VM when its threads come, go, or are confined.
fn counts(vm: &KernelVm) -> (u32, u32) {
    (vm.affinity_changes, vm.nr_threads)
}

impl Known {
    fn is_to_be_read(&self, vm: &KernelVm) -> bool {
        !self.left.is_empty() || self.seen != Some(counts(vm))
    }

    fn read(&mut self, threads: &Path, counted: (u32, u32), most: usize) -> usize {
        if self.left.is_empty() {
            let entries = files::entries(threads, THREADS_MAX);
            self.left = entries.filter_map(|it| it.file_name().to_str()?.parse().ok()).collect();
            (self.begun, self.counted) = (Sets::new(), counted);
        }
        let now = self.left.split_off(self.left.len().saturating_sub(most));
        // One that just left may run nowhere, and does not count.
        let set = |tid: &u32| cpus_of_thread(&threads.join(tid.to_string())).ok();
        self.begun.extend(now.iter().filter_map(set));
        if self.left.is_empty() {
            (self.sets, self.seen) = (std::mem::take(&mut self.begun), Some(self.counted));
        }
        now.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_host::host;

    #[test]
    fn threads_are_read_when_they_change_a_part_at_a_time_and_vms_take_turns() {
        let many = 2 * AT_ONCE as u64 + 100;
        let files: Vec<(String, String)> = (1..=many)
            .map(|tid| {
                (format!("7/task/{tid}/status"), format!("Cpus_allowed_list:\t{}\n", tid % 4))
            })
            .chain([("8/task/8/status".to_owned(), "Cpus_allowed_list:\t0-3\n".to_owned())])
            .collect();
        let files: Vec<(&str, &str)> =
            files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        let proc = host(&files);
        let vm = |id: u64, tgid: u32| KernelVm { tgid, ..KernelVm::for_test(id) };
        let mut vms = [vm(1, 7), vm(2, 8)];
        let mut all = ThreadSets::default();
        let mut look = |vms: &[KernelVm]| {
            let read = all.look(proc.path(), vms.iter());
            (read, all.of(1).len(), all.of(2).len())
        };
        assert_eq!(look(&vms), (AT_ONCE, 0, 0));
        assert_eq!(look(&vms), (AT_ONCE, 0, 1), "the other one waits for no more than a turn");
        assert_eq!(look(&vms).1, 4);
        assert_eq!(look(&vms), (0, 4, 1), "nothing has changed");
        vms[1].affinity_changes += 1;
        assert_eq!(look(&vms), (1, 4, 1));
        assert_eq!(look(&vms[..1]), (0, 4, 0), "it is gone");
    }
}

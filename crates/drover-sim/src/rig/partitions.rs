// SPDX-License-Identifier: GPL-2.0-only
//! Threads of a VM are served in its partition, if they may run there at all.
//!
//! Who changes partitions does so when it next begins to wait: it is served where it waits, and runs elsewhere
//! until the tick (policy/partition/partition.h). Of a thread that may run nowhere in its partition it is
//! known only that one of those serves it where it may.

use crate::machine::{Task, TaskId};
use crate::scx::Scx;
use crate::sim::Sim;
use std::collections::BTreeMap;

/// What is remembered of partitions.
#[derive(Debug, Default)]
pub(super) struct Partitions {
    /// There is one, or was.
    divided: bool,
    /// When any of them, or who is in which, or the pCPUs online, last changed.
    changed_ns: u64,
    /// The longest slice any of them ever had.
    pub longest_slice_ns: u64,
    /// Who runs outside of its partition: its dispatch, and since when.
    elsewhere: BTreeMap<TaskId, (u64, u64)>,
}

impl Partitions {
    /// There is a partition with such slices.
    pub(super) fn begin(&mut self, slice_ns: u64) {
        self.divided = true;
        self.longest_slice_ns = self.longest_slice_ns.max(slice_ns);
    }

    /// Who may be where has changed.
    pub(super) fn changed(&mut self, now_ns: u64) {
        self.changed_ns = now_ns;
    }

    /// Does the task wait since before that changed?
    pub(super) fn waits_since_before(&self, task: &Task) -> bool {
        self.divided && task.ready_since_ns <= self.changed_ns
    }

    /// Must that pCPU serve the task, which waits and may run there?
    pub(super) fn serves(&self, sim: &Sim<Scx>, task: TaskId, cpu: u32) -> bool {
        if !self.divided {
            return true;
        }
        let reach = sim.class.reach_of(&sim.m, task);
        let mut partitions: Vec<u32> =
            reach.iter().map(|cpus| sim.class.partition_of(cpus[0])).collect();
        partitions.dedup();
        !self.waits_since_before(&sim.m.tasks[task as usize])
            && partitions == [sim.class.partition_of(cpu)]
    }

    /// Does anybody run outside of its partition for longer than to the tick?
    pub(super) fn nobody_runs_elsewhere(
        &mut self,
        sim: &Sim<Scx>,
        kicks_late_ns: u64,
    ) -> Result<(), String> {
        let m = &sim.m;
        let grace_ns = 2 * m.costs.tick_interval_ns + 2 * kicks_late_ns;
        let before = std::mem::take(&mut self.elsewhere);
        for cpu in (0..m.pcpus.len() as u32).filter(|_| self.divided) {
            let Some(task) = m.current(cpu).filter(|_| m.online.contains(cpu)) else { continue };
            if sim.class.reach_of(m, task).iter().flatten().any(|&own| own == cpu) {
                continue;
            }
            let dispatch = m.tasks[task as usize].dispatches;
            let since_ns = match before.get(&task) {
                Some((same, since_ns)) if *same == dispatch => (*since_ns).max(self.changed_ns),
                _ => m.now_ns,
            };
            if m.now_ns - since_ns > grace_ns {
                return Err(format!(
                    "task {task} runs on pCPU {cpu}, outside of its partition, for {} us",
                    (m.now_ns - since_ns) / 1000
                ));
            }
            self.elsewhere.insert(task, (dispatch, since_ns));
        }
        Ok(())
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! The run queue of a pCPU: groups and the tasks in them.

use super::entity::{self, Entity, NICE_0};
use drover_sim::machine::TaskId;

/// A VM's group on one pCPU.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) vm: u32,
    pub(super) entity: Entity,
    /// Has tasks here, and so competes.
    pub(super) queued: bool,
    /// Tasks that are ready or run here.
    pub(super) tasks: Vec<TaskId>,
    /// Where a first task begins.
    pub(super) zero: u64,
    /// The buddy: somebody yielded to it.
    pub(super) next: Option<TaskId>,
    /// CPU time it may use here before it draws on its quota again.
    pub(super) runtime_ns: i64,
    /// It has none left: its tasks wait and do not compete.
    pub(super) throttled: bool,
}

/// The run queue of a pCPU.
#[derive(Debug, Default)]
pub(super) struct Rq {
    /// By VM, ascending; groups that were here once stay for their lag.
    pub(super) groups: Vec<Group>,
    /// Tasks that are ready or run here.
    pub(super) nr: u32,
    /// Where a first group begins.
    pub(super) zero: u64,
    /// Tasks here, the one that was put on the pCPU last at the end (cfs_tasks, from its tail).
    pub(super) order: Vec<TaskId>,
    /// The running task is to be pushed to that pCPU, for its domain of that level.
    pub(super) push_to: Option<(u32, usize)>,
}

impl Rq {
    /// Where the VM's group is, made if it was never here.
    pub(super) fn group_at(&mut self, vm: u32) -> usize {
        self.groups.binary_search_by_key(&vm, |group| group.vm).unwrap_or_else(|at| {
            let entity = Entity::new(NICE_0);
            let (queued, tasks, zero, next) = (false, Vec::new(), 0, None);
            let (runtime_ns, throttled) = (0, false);
            let group = Group { vm, entity, queued, tasks, zero, next, runtime_ns, throttled };
            self.groups.insert(at, group);
            at
        })
    }

    /// Where the groups that compete are.
    pub(super) fn queued(&self) -> impl Iterator<Item = usize> + Clone + '_ {
        (0..self.groups.len()).filter(|&at| self.groups[at].queued)
    }

    /// Mean virtual time and weight of the groups that compete.
    pub(super) fn mean(&self) -> Option<(u64, u64)> {
        entity::mean(self.groups.iter().filter(|group| group.queued).map(|group| &group.entity))
    }

    /// The VM's group, if it was ever here.
    pub(super) fn find(&self, vm: u32) -> Option<&Group> {
        let at = self.groups.binary_search_by_key(&vm, |group| group.vm).ok()?;
        Some(&self.groups[at])
    }

    /// Has the VM tasks here?
    pub(super) fn has(&self, vm: u32) -> bool {
        self.find(vm).is_some_and(|group| !group.tasks.is_empty())
    }

    /// Weight of the VM's group here.
    pub(super) fn weight_of(&self, vm: u32) -> u64 {
        self.find(vm).map_or(0, |group| group.entity.weight)
    }

    /// The task was looked at, or put on the pCPU, last.
    pub(super) fn move_to_head(&mut self, task: TaskId) {
        self.order.retain(|&other| other != task);
        self.order.push(task);
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! The run queue of a pCPU: groups and the tasks in them.

use super::entity::{self, Entity, NICE_0};
use super::load::Load;
use crate::machine::TaskId;

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
    pub(super) load: Load,
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
    /// When load is balanced next.
    pub(super) balance_ns: u64,
    /// How often balancing has found nothing light enough to move (nr_balance_failed).
    pub(super) failed: u32,
}

impl Rq {
    /// Where the VM's group is, made if it was never here.
    pub(super) fn group_at(&mut self, vm: u32) -> usize {
        self.groups.binary_search_by_key(&vm, |group| group.vm).unwrap_or_else(|at| {
            let (entity, load) = (Entity::new(NICE_0), Load::default());
            let (queued, tasks, zero, next) = (false, Vec::new(), 0, None);
            let (runtime_ns, throttled) = (0, false);
            let group =
                Group { vm, entity, queued, tasks, zero, next, load, runtime_ns, throttled };
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

    /// Load of the run queue: the weights of the groups that compete.
    pub(super) fn weight(&self) -> u64 {
        let queued = self.groups.iter().filter(|group| group.queued);
        queued.map(|group| group.entity.weight).sum()
    }

    /// Weight of one task of the VM here (task_h_load).
    pub(super) fn weight_of_one(&self, vm: u32) -> u64 {
        match self.groups.binary_search_by_key(&vm, |group| group.vm) {
            Ok(at) if !self.groups[at].tasks.is_empty() => {
                self.groups[at].entity.weight / self.groups[at].tasks.len() as u64
            }
            _ => 0,
        }
    }
}

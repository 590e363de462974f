// SPDX-License-Identifier: GPL-2.0-only
//! The run queue of a pCPU: groups and the tasks in them.

use super::entity::{Buddies, Entity, before};
use drover_sim::machine::TaskId;

/// A VM's group on one pCPU: an entity, and a queue of its own.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) vm: u32,
    pub(super) entity: Entity,
    /// Tasks that are ready or run here.
    pub(super) tasks: Vec<TaskId>,
    pub(super) min_vruntime: u64,
    /// Among its tasks.
    pub(super) buddies: Buddies,
}

/// The run queue of a pCPU.
#[derive(Debug, Default)]
pub(super) struct Rq {
    /// By VM, ascending; groups that were here once stay for their virtual time.
    pub(super) groups: Vec<Group>,
    /// Tasks that are ready or run here.
    pub(super) nr: u32,
    pub(super) min_vruntime: u64,
    /// Among its groups, by VM.
    pub(super) buddies: Buddies,
    /// When each domain is balanced next: core, last-level cache, host.
    pub(super) balance_ns: [u64; 3],
}

impl Rq {
    /// Where the VM's group is, made if it was never here.
    pub(super) fn group_at(&mut self, vm: u32) -> usize {
        self.groups.binary_search_by_key(&vm, |group| group.vm).unwrap_or_else(|at| {
            let entity = Entity { vruntime: self.min_vruntime, ..Entity::new() };
            let (tasks, buddies) = (Vec::new(), Buddies::default());
            self.groups.insert(at, Group { vm, entity, tasks, min_vruntime: 0, buddies });
            at
        })
    }

    /// Changes the buddies of both levels: the VM's among groups, the task's in its group.
    pub(super) fn set_buddies(&mut self, vm: u32, task: TaskId, change: fn(&mut Buddies, u32)) {
        change(&mut self.buddies, vm);
        let at = self.group_at(vm);
        change(&mut self.groups[at].buddies, task);
    }

    /// The groups that compete, by VM.
    pub(super) fn queued(&self) -> impl Iterator<Item = (u32, &Entity)> + Clone {
        let queued = self.groups.iter().filter(|group| !group.tasks.is_empty());
        queued.map(|group| (group.vm, &group.entity))
    }

    /// Load of the run queue: the weights of the groups that compete.
    pub(super) fn weight(&self) -> u64 {
        self.queued().map(|(_, entity)| entity.weight).sum()
    }

    /// Weight of one task of the VM here.
    pub(super) fn weight_of_one(&self, vm: u32) -> u64 {
        match self.groups.binary_search_by_key(&vm, |group| group.vm) {
            Ok(at) => self.groups[at].entity.weight / self.groups[at].tasks.len().max(1) as u64,
            Err(_) => 0,
        }
    }

    /// update_min_vruntime, of the run queue: forwards only.
    pub(super) fn advance(&mut self) {
        let least = self.queued().map(|(_, entity)| entity.vruntime);
        let least = least.reduce(|a, b| if before(b, a) { b } else { a });
        if let Some(least) = least.filter(|&least| before(self.min_vruntime, least)) {
            self.min_vruntime = least;
        }
    }
}

impl Group {
    /// update_min_vruntime, of the group.
    pub(super) fn advance(&mut self, tasks: &[Entity]) {
        let least = self.tasks.iter().map(|&task| tasks[task as usize].vruntime);
        let least = least.reduce(|a, b| if before(b, a) { b } else { a });
        if let Some(least) = least.filter(|&least| before(self.min_vruntime, least)) {
            self.min_vruntime = least;
        }
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! Guests that can never go on: every vCPU waits for a sibling, and none of them can move.

use super::{Guests, Mode, Step};
use crate::machine::{Machine, NOBODY, TaskId, TaskState, timer_source};

impl Guests {
    /// Why that VM can never go on, if it cannot: what its first vCPU waits for.
    ///
    /// Worked example: vCPU 0 holds lock a and spins for b, vCPU 1 holds b and spins for a: none
    /// has a timer, none computes, and no request is on its way.
    pub fn stuck(&self, m: &Machine, vm: u32) -> Option<String> {
        let guest = &self.vms[vm as usize];
        if guest.serving.is_some() || !guest.requests.is_empty() {
            return None;
        }
        let mut vcpus = guest.first..guest.first + guest.vcpus;
        let waits = |task: TaskId| {
            let vcpu = &self.vcpus[task as usize];
            let begun = m.tasks[task as usize].state != TaskState::Absent;
            let timer = m.events.when(timer_source(&m.pcpus, task)).is_some();
            let asleep = vcpu.mode == Mode::Asleep && vcpu.deadline_ns == u64::MAX && !vcpu.roused;
            let spins = vcpu.mode == Mode::Spin && vcpu.left_ns == u64::MAX;
            // Who waits for the network waits for others' VMs.
            let step = self.programs[vcpu.program as usize][vcpu.step as usize];
            let network = matches!(step, Step::Send { .. } | Step::Forward);
            begun && !timer && (asleep || spins) && !network && vcpu.ipis.is_empty()
        };
        if vcpus.clone().all(waits) {
            return vcpus
                .next()
                .map(|task| format!("can never go on: vCPU 0 waits for {}", self.awaited(task)));
        }
        None
    }

    /// What the vCPU waits for, in words.
    fn awaited(&self, task: TaskId) -> String {
        let vcpu = &self.vcpus[task as usize];
        let guest = &self.vms[vcpu.vm as usize];
        let name = |names: &Vec<String>, at: u32| {
            names.get(at as usize).map_or(at.to_string(), Clone::clone)
        };
        match self.programs[vcpu.program as usize][vcpu.step as usize] {
            Step::Take { lock } => {
                let holder = guest.locks[lock as usize].holder;
                let whose = match holder {
                    NOBODY => "which nobody holds".to_owned(),
                    _ => format!("which vCPU {} holds", holder - guest.first),
                };
                format!("lock {}, {whose}", name(&guest.names.locks, lock))
            }
            Step::Meet { barrier } | Step::Join { barrier } => {
                let (here, of) = {
                    let barrier = &guest.barriers[barrier as usize];
                    (barrier.waiting.len(), barrier.parties)
                };
                let name = name(&guest.names.barriers, barrier);
                format!("barrier {name}, where {here} of {of} have come")
            }
            Step::Wait { queue } => {
                format!("work in queue {}, which is empty", name(&guest.names.queues, queue))
            }
            other => format!("what never comes ({other:?})"),
        }
    }
}

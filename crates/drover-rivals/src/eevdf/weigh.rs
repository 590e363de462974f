// SPDX-License-Identifier: GPL-2.0-only
//! Loads as balancing sees them: means over the recent past, of threads that are ready, by weight.
//!
//! All VMs are in one group, as libvirt's are in machine.slice and the lab's in one of its own. That
//! group weighs as much as one thread of nice 0 on the whole host, and the load of a pCPU is the part of
//! it that the VMs there have by their shares.
//!
//! Worked example. Three equal VMs of 2, 2 and 3 busy vCPUs on four pCPUs: a vCPU of the first two is
//! a sixth of the host's load, 170 of 1024; one of the third a ninth, 113. A pCPU with one of each has
//! 284, and one left alone with a vCPU of the first 170.

use super::Eevdf;
use super::load::ALWAYS;
use drover_sim::machine::{Machine, TaskId};

/// What the group of all VMs weighs on the host (NICE_0_LOAD).
const OF_HOST: u64 = 1024;

/// A VM on one pCPU.
#[derive(Debug, Clone, Copy)]
struct Part {
    vm: u32,
    /// How much of the recent past its threads were ready, added up.
    ready: u64,
    /// Its weight there, for as long as it was ready.
    weighs: u64,
}

/// A pCPU as balancing sees it.
#[derive(Debug, Clone, Default)]
pub(super) struct Weighed {
    parts: Vec<Part>,
    /// The weights of its VMs.
    weighs: u64,
    /// Part of the load of the host (cpu_load).
    pub(super) load: u64,
    /// How much of the recent past it was busy (cpu_util).
    pub(super) util: u64,
    /// How much of it threads were ready there, added up (cpu_runnable).
    pub(super) ready: u64,
}

impl Eevdf {
    /// All pCPUs.
    pub(super) fn weigh(&self, m: &Machine) -> Vec<Weighed> {
        let mut all = vec![Weighed::default(); m.pcpus.len()];
        for (task, known) in m.tasks.iter().enumerate() {
            let Some(ready) = self.ready.get(task).map(|ready| ready.at(m.now_ns)) else { break };
            let there = &mut all[known.pcpu as usize];
            there.ready += ready;
            there.util += self.running[task].at(m.now_ns);
            match there.parts.iter_mut().find(|part| part.vm == known.vm) {
                Some(part) => part.ready += ready,
                None => there.parts.push(Part { vm: known.vm, ready, weighs: 0 }),
            }
        }
        for (rq, there) in self.rqs.iter().zip(&mut all) {
            for part in &mut there.parts {
                part.weighs = rq.weight_of(part.vm) * part.ready.min(ALWAYS) / ALWAYS;
                there.weighs += part.weighs;
            }
        }
        let total: u64 = all.iter().map(|there| there.weighs).sum();
        for there in &mut all {
            let of_host = OF_HOST * there.ready.min(ALWAYS) / ALWAYS;
            there.load = (of_host * there.weighs).checked_div(total).unwrap_or(0);
            there.util = there.util.min(ALWAYS);
        }
        all
    }

    /// What the thread adds to the load of that pCPU, where it is (task_h_load).
    pub(super) fn weight_of_one(&self, m: &Machine, there: &Weighed, task: TaskId) -> u64 {
        let vm = m.tasks[task as usize].vm;
        let Some(part) = there.parts.iter().find(|part| part.vm == vm) else { return 1 };
        let of_vm = there.load * part.weighs / (there.weighs + 1);
        (of_vm * self.ready[task as usize].at(m.now_ns) / (part.ready + 1)).max(1)
    }
}

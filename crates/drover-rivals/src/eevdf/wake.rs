// SPDX-License-Identifier: GPL-2.0-only
//! Where a task goes that wakes, or begins.

use super::Eevdf;
use drover_sim::machine::{Machine, TaskId};

impl Eevdf {
    /// select_task_rq_fair: where it last ran if that is idle, else an idle pCPU of the same cache, of an
    /// idle core rather; else where it last ran. Who begins goes to the least loaded pCPU.
    pub(super) fn select(&self, m: &Machine, task: TaskId, begins: bool) -> u32 {
        let last = m.tasks[task as usize].pcpu;
        let allowed = m.allowed(task);
        let usable = |cpu: u32| allowed.contains(cpu) && m.online.contains(cpu);
        if begins {
            return self.least_loaded(m, task).unwrap_or(last);
        }
        if usable(last) && self.is_idle(m, last) {
            return last;
        }
        let llc = &m.topology.llcs[m.topology.llc_of[last as usize] as usize];
        let free = |&cpu: &u32| usable(cpu) && self.is_idle(m, cpu);
        let whole =
            |&cpu: &u32| free(&cpu) && m.topology.siblings(cpu).all(|cpu| self.is_idle(m, cpu));
        if m.busy.count() < m.online.count() {
            let found = llc.iter().find(whole).or_else(|| llc.iter().find(free));
            if let Some(cpu) = found {
                return cpu;
            }
        }
        if usable(last) { last } else { allowed.next_common(&m.online, 0).unwrap_or(last) }
    }

    /// sched_balance_find_dst_cpu.
    fn least_loaded(&self, m: &Machine, task: TaskId) -> Option<u32> {
        let all = self.weigh(m);
        let usable = m.online.iter().filter(|&cpu| m.may_run_on(task, cpu));
        usable.min_by_key(|&cpu| {
            let shares_core = m.topology.siblings(cpu).any(|cpu| !self.is_idle(m, cpu));
            let there = &all[cpu as usize];
            (!self.is_idle(m, cpu), shares_core, there.load, there.ready)
        })
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! Which threads a pCPU pulls from another's run queue (detach_tasks, can_migrate_task).
//!
//! Those that ran longest ago are looked at first. A thread that weighs more than what is to be moved stays;
//! after every failure half as much of its weight counts. Threads that ran within the last half ms
//! stay, and those that had more than their due, until some attempts failed.

use super::Eevdf;
use super::balance::{Attempt, Why};
use super::busiest::Imbalance;
use super::domains::Shared;
use super::entity::{self, before};
use super::weigh::Weighed;
use drover_sim::machine::{Machine, TaskId};

/// Who ran so lately has a warm cache (sysctl_sched_migration_cost).
const HOT_NS: u64 = 500_000;
/// So many threads are looked at (SCHED_NR_MIGRATE_BREAK).
const LOOKED_AT: usize = 32;

impl Eevdf {
    /// Pulls threads from that run queue (detach_tasks, attach_tasks); returns how many.
    pub(super) fn pull(
        &mut self,
        m: &mut Machine,
        all: &[Weighed],
        attempt: &mut Attempt,
        from: u32,
    ) -> u32 {
        let mut moved = Vec::new();
        let mut to = attempt.cpu;
        let mut left = self.rqs[from as usize].nr as usize;
        loop {
            let looked_at = self.rqs[from as usize].order.len().min(LOOKED_AT);
            for _ in 0..looked_at {
                if attempt.imbalance.is_none() || left <= 1 && attempt.why != Why::Busy {
                    break;
                }
                let task = self.rqs[from as usize].order[0];
                let takes = self.may_move(m, attempt, task, from, to)
                    && self.is_light(m, &all[from as usize], attempt, task);
                if !takes {
                    self.rqs[from as usize].move_to_head(task);
                    continue;
                }
                self.migrate(m, task, to);
                moved.push((task, to));
                left -= 1;
                if attempt.why == Why::RunsDry {
                    break;
                }
            }
            let Some(instead) = attempt.instead.take() else { break };
            if attempt.imbalance.is_none() {
                break;
            }
            to = instead;
            attempt.instead = None;
        }
        for &(task, to) in &moved {
            self.preempt(m, to, task);
        }
        moved.len() as u32
    }

    /// can_migrate_task.
    fn may_move(
        &self,
        m: &Machine,
        attempt: &mut Attempt,
        task: TaskId,
        from: u32,
        to: u32,
    ) -> bool {
        let domain = &self.domains.of[attempt.cpu as usize][attempt.level];
        let span = &self.domains.spans[domain.span];
        let vm = m.tasks[task as usize].vm;
        if self.is_throttled(from, vm) || self.is_throttled(to, vm) {
            return false;
        }
        if domain.failed == 0 && self.rqs[to as usize].has(vm) && !self.is_eligible(task, from, vm)
        {
            return false;
        }
        if !m.may_run_on(task, to) {
            attempt.some_pinned = true;
            let other = |&cpu: &u32| cpu != to && m.online.contains(cpu) && m.may_run_on(task, cpu);
            if attempt.why != Why::RunsDry && attempt.instead.is_none() && to == attempt.cpu {
                attempt.instead = span.groups[domain.local].iter().copied().find(other);
            }
            return false;
        }
        attempt.all_pinned = false;
        if m.current(from) == Some(task) {
            return false;
        }
        let hot = span.shared != Shared::Core
            && (self.is_buddy(from, vm, task) && self.rqs[to as usize].nr > 0
                || m.now_ns - m.tasks[task as usize].accounted_ns < HOT_NS);
        !hot || domain.failed > span.nice_tries()
    }

    /// Is the thread light enough? It is counted then.
    fn is_light(&self, m: &Machine, there: &Weighed, attempt: &mut Attempt, task: TaskId) -> bool {
        let failed = self.domains.of[attempt.cpu as usize][attempt.level].failed;
        let (value, left) = match &mut attempt.imbalance {
            Imbalance::Load(left) => (self.weight_of_one(m, there, task), left),
            Imbalance::Busy(left) => (self.running[task as usize].at(m.now_ns), left),
            Imbalance::Tasks(left) => {
                *left -= 1;
                return true;
            }
        };
        if (value >> failed) > *left {
            return false;
        }
        *left = left.saturating_sub(value);
        true
    }

    fn is_eligible(&self, task: TaskId, cpu: u32, vm: u32) -> bool {
        let Some(group) = self.rqs[cpu as usize].find(vm) else { return true };
        let all = group.tasks.iter().map(|&task| &self.tasks[task as usize]);
        entity::mean(all).is_none_or(|(mean, _)| !before(mean, self.tasks[task as usize].vruntime))
    }
}

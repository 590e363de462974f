// SPDX-License-Identifier: GPL-2.0-only
//! Load balancing between run queues: at wake-up, when a pCPU runs dry, and now and then.

use super::Eevdf;
use crate::machine::{Machine, TaskId};

/// A busy pCPU balances so many times less often than an idle one (sd->busy_factor).
const BUSY_FACTOR: u64 = 16;
/// A difference of load below this is left alone, % (sd->imbalance_pct).
const IMBALANCE_PCT: u64 = 117;

/// Failures to balance beyond this make no more difference.
const FAILED_MAX: u32 = 6;

impl Eevdf {
    /// select_task_rq_fair: where a waking task goes.
    pub(super) fn select(&self, m: &Machine, task: TaskId) -> u32 {
        let last = m.tasks[task as usize].pcpu;
        let allowed = m.allowed(task);
        let usable = |cpu: u32| allowed.contains(cpu) && m.online.contains(cpu);
        let idle = |cpu: u32| {
            m.pcpus[cpu as usize].current == crate::machine::NOBODY
                && self.rqs[cpu as usize].nr == 0
        };
        if usable(last) && idle(last) {
            return last;
        }
        let llc = &m.topology.llcs[m.topology.llc_of[last as usize] as usize];
        let free = |&cpu: &u32| usable(cpu) && idle(cpu);
        let whole = |&cpu: &u32| free(&cpu) && m.topology.siblings(cpu).all(idle);
        if m.busy.count() < m.online.count() {
            let found = llc.iter().find(whole).or_else(|| llc.iter().find(free));
            if let Some(cpu) = found {
                return cpu;
            }
        }
        if usable(last) { last } else { allowed.next_common(&m.online, 0).unwrap_or(last) }
    }

    /// A pCPU runs dry: it pulls one waiting task, from nearby first.
    pub(super) fn pull_when_idle(&mut self, m: &mut Machine, cpu: u32) {
        let llc = m.topology.llc_of[cpu as usize] as usize;
        let node = m.topology.node_of[cpu as usize] as usize;
        let near = &m.topology.nodes_by_distance[node];
        let near = near.iter().map(|&node| &m.topology.nodes[node as usize]);
        let found = std::iter::once(&m.topology.llcs[llc])
            .chain(near)
            .find_map(|cpus| self.busiest(m, cpus.iter(), cpu));
        if let Some(task) = found {
            self.migrate(m, task, cpu);
        }
    }

    /// A waiting task of the busiest of those run queues, that may run on `to`.
    fn busiest(&self, m: &Machine, cpus: impl Iterator<Item = u32>, to: u32) -> Option<TaskId> {
        let mut crowded: Vec<u32> = cpus.filter(|&cpu| self.rqs[cpu as usize].nr > 1).collect();
        crowded.sort_by_key(|&cpu| std::cmp::Reverse(self.rqs[cpu as usize].weight()));
        crowded.into_iter().find_map(|cpu| self.movable(m, cpu, to).next())
    }

    /// Tasks waiting on `from` that may run on `to`.
    fn movable<'a>(
        &'a self,
        m: &'a Machine,
        from: u32,
        to: u32,
    ) -> impl Iterator<Item = TaskId> + 'a {
        let groups = self.rqs[from as usize].groups.iter().filter(|group| group.queued);
        let tasks = groups.flat_map(|group| group.tasks.iter().copied());
        tasks.filter(move |&task| m.current(from) != Some(task) && m.may_run_on(task, to))
    }

    /// The tick: hand somebody to an idle pCPU (nohz balancing), or balance by load if it is time.
    pub(super) fn balance_at_tick(&mut self, m: &mut Machine, cpu: u32) {
        let rq = &self.rqs[cpu as usize];
        if rq.nr > 1 && m.busy.count() < m.online.count() {
            let idle = m.online.iter().find(|&to| {
                !m.busy.contains(to)
                    && self.rqs[to as usize].nr == 0
                    && self.movable(m, cpu, to).next().is_some()
            });
            if let Some(to) = idle {
                let task = self.movable(m, cpu, to).next().expect("found a line ago");
                self.migrate(m, task, to);
                m.resched(to);
                return;
            }
        }
        let pcpus = m.online.count();
        if pcpus > 1 && m.now_ns >= self.rqs[cpu as usize].balance_ns {
            let interval_ns = u64::from(pcpus) * BUSY_FACTOR * 1_000_000;
            self.rqs[cpu as usize].balance_ns = m.now_ns + interval_ns;
            self.balance_load(m, cpu);
        }
    }

    /// load_balance: pull from the heaviest run queue what brings both nearer to the mean. What is
    /// too heavy to move is moved all the same once it was in the way often enough.
    fn balance_load(&mut self, m: &mut Machine, cpu: u32) {
        let weigh = |cpu: u32| self.rqs[cpu as usize].weight();
        let crowded = m.online.iter().filter(|&other| self.rqs[other as usize].nr > 1);
        let Some(from) = crowded.max_by_key(|&other| weigh(other)) else { return };
        let mean = m.online.iter().map(weigh).sum::<u64>() / u64::from(m.online.count());
        let (mine, theirs) = (weigh(cpu), weigh(from));
        if from == cpu || mine >= mean || theirs * 100 <= mine * IMBALANCE_PCT {
            self.rqs[cpu as usize].failed = 0;
            return;
        }
        let mut imbalance = (theirs - mean).min(mean - mine);
        let mut moved = None;
        for task in self.movable(m, from, cpu).collect::<Vec<_>>() {
            let weight = self.rqs[from as usize].weight_of_one(m.tasks[task as usize].vm);
            if weight >> self.rqs[cpu as usize].failed > imbalance {
                continue;
            }
            imbalance = imbalance.saturating_sub(weight);
            self.migrate(m, task, cpu);
            moved = Some(task);
            if imbalance == 0 {
                break;
            }
        }
        let failed = &mut self.rqs[cpu as usize].failed;
        *failed = if moved.is_some() { 0 } else { (*failed + 1).min(FAILED_MAX) };
        if let Some(task) = moved {
            self.preempt(m, cpu, task);
        }
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! Load balancing between run queues: at wake-up, when a pCPU runs dry, and domain by domain now
//! and then.

use super::Cfs36;
use drover_sim::cpu_set::CpuSet;
use drover_sim::machine::{Machine, NOBODY, TaskId};

/// A busy pCPU balances so many times less often than an idle one (sd->busy_factor of 3.6).
const BUSY_FACTOR: u64 = 64;
/// A difference of load below this is left alone, %, by domain: core, cache, host
/// (sd->imbalance_pct).
const IMBALANCE_PCT: [u64; 3] = [110, 117, 125];

impl Cfs36 {
    fn is_idle(&self, m: &Machine, cpu: u32) -> bool {
        m.pcpus[cpu as usize].current == NOBODY && self.rqs[cpu as usize].nr == 0
    }

    /// select_task_rq_fair and select_idle_sibling: where it last ran if that is idle, then a core
    /// idle as a whole in its cache, then an idle thread of its core.
    pub(super) fn select(&self, m: &Machine, task: TaskId) -> u32 {
        let last = self.numa_last(m, task);
        let allowed = m.allowed(task);
        let free =
            |&cpu: &u32| allowed.contains(cpu) && m.online.contains(cpu) && self.is_idle(m, cpu);
        if free(&last) {
            return last;
        }
        if m.busy.count() < m.online.count() {
            let llc = &m.topology.llcs[m.topology.llc_of[last as usize] as usize];
            let whole = |cpu: &u32| {
                free(cpu) && m.topology.siblings(*cpu).all(|other| self.is_idle(m, other))
            };
            let found = llc.iter().find(whole).or_else(|| m.topology.siblings(last).find(free));
            if let Some(cpu) = found {
                return cpu;
            }
        }
        let stays = allowed.contains(last) && m.online.contains(last);
        if stays { last } else { allowed.next_common(&m.online, 0).unwrap_or(last) }
    }

    /// Tasks waiting on `from` that may run on `to`.
    fn movable<'a>(
        &'a self,
        m: &'a Machine,
        from: u32,
        to: u32,
    ) -> impl Iterator<Item = TaskId> + 'a {
        let groups = self.rqs[from as usize].groups.iter();
        let tasks = groups.flat_map(|group| group.tasks.iter().copied());
        tasks.filter(move |&task| m.current(from) != Some(task) && m.may_run_on(task, to))
    }

    /// The first of these that should go to an idle pCPU.
    fn first_movable(&self, m: &Machine, from: u32, to: u32) -> Option<TaskId> {
        if self.numa.is_none() {
            return self.movable(m, from, to).next();
        }
        let tasks = self.movable(m, from, to).collect();
        self.by_node(m, tasks, (from, to), true).first().copied()
    }

    /// idle_balance: a pCPU that runs dry pulls one waiting task, from near first.
    pub(super) fn pull_when_idle(&mut self, m: &mut Machine, cpu: u32) {
        let task = {
            let nodes = &m.topology.nodes_by_distance[m.topology.node_of[cpu as usize] as usize];
            let far = nodes.iter().map(|&node| &m.topology.nodes[node as usize]);
            let llc = &m.topology.llcs[m.topology.llc_of[cpu as usize] as usize];
            let core = CpuSet::of(m.topology.pcpus(), m.topology.siblings(cpu));
            [&core, llc].into_iter().chain(far).find_map(|cpus| {
                let crowded = cpus.iter().filter(|&other| self.rqs[other as usize].nr > 1);
                let mut crowded: Vec<u32> = crowded.collect();
                crowded.sort_by_key(|&other| std::cmp::Reverse(self.rqs[other as usize].weight()));
                crowded.into_iter().find_map(|from| self.first_movable(m, from, cpu))
            })
        };
        if let Some(task) = task {
            self.migrate(m, task, cpu);
        }
    }

    /// The tick: an idle pCPU is told to fetch somebody (nohz), and each domain whose time has come
    /// is balanced.
    pub(super) fn balance_at_tick(&mut self, m: &mut Machine, cpu: u32) {
        if self.rqs[cpu as usize].nr > 1 && m.busy.count() < m.online.count() {
            let mut next = 0;
            while let Some(to) = m.online.next_from(next) {
                next = to + 1;
                if !self.is_idle(m, to) || self.expects(to) || !self.numa_may_fetch(m, to) {
                    continue;
                }
                let task = self.first_movable(m, cpu, to);
                self.numa_balanced(to, true, task.is_some());
                if let Some(task) = task {
                    self.migrate(m, task, to);
                    m.resched(to);
                    return;
                }
            }
        }
        for (domain, imbalance_pct) in IMBALANCE_PCT.into_iter().enumerate() {
            let cpus = match domain {
                0 => CpuSet::of(m.topology.pcpus(), m.topology.siblings(cpu)),
                1 => m.topology.llcs[m.topology.llc_of[cpu as usize] as usize].clone(),
                _ => m.online.clone(),
            };
            let due_ns = &mut self.rqs[cpu as usize].balance_ns[domain];
            if cpus.count() > 1 && m.now_ns >= *due_ns {
                *due_ns = m.now_ns + u64::from(cpus.count()) * BUSY_FACTOR * 1_000_000;
                let moved = self.balance(m, cpu, &cpus, imbalance_pct);
                if domain == 2 {
                    self.balanced_nodes(m, cpu, moved);
                }
            }
        }
    }

    /// load_balance, between run queues: pull from the heaviest of the domain half of what it has
    /// more. Whether somebody came; none: there was nothing to balance.
    fn balance(
        &mut self,
        m: &mut Machine,
        cpu: u32,
        cpus: &CpuSet,
        imbalance_pct: u64,
    ) -> Option<bool> {
        let weigh = |cpu: u32| self.rqs[cpu as usize].weight();
        let crowded = cpus.iter().filter(|&other| self.rqs[other as usize].nr > 1);
        let from = crowded.max_by_key(|&other| weigh(other))?;
        let (mine, theirs) = (weigh(cpu), weigh(from));
        if from == cpu || theirs * 100 <= mine * imbalance_pct {
            return None;
        }
        let mut imbalance = (theirs - mine) / 2;
        // fix_small_imbalance: rather one task too many than none, if it is heavier than ours.
        let each = |cpu: u32| weigh(cpu) / u64::from(self.rqs[cpu as usize].nr.max(1));
        if imbalance < each(from) && (each(from) > each(cpu) || theirs - mine >= each(from)) {
            imbalance = each(from);
        }
        let tasks = self.movable(m, from, cpu).collect();
        let mut moved = false;
        for task in self.by_node(m, tasks, (from, cpu), false) {
            // detach: what is more than twice too heavy stays.
            let weight = self.rqs[from as usize].weight_of_one(m.tasks[task as usize].vm);
            if weight / 2 > imbalance || self.rqs[from as usize].nr < 2 {
                continue;
            }
            imbalance = imbalance.saturating_sub(weight);
            moved = true;
            self.migrate(m, task, cpu);
            self.preempt(m, cpu, task);
            if imbalance == 0 {
                break;
            }
        }
        Some(moved)
    }
}

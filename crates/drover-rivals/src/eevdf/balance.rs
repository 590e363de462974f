// SPDX-License-Identifier: GPL-2.0-only
//! Load balancing between run queues: at the tick by the clock of each domain (domains.rs), for idle
//! pCPUs at the tick of a busy one that has two threads or more, and when a pCPU runs dry.
//!
//! A pCPU finds the busiest group of a domain and in it the busiest run queue (busiest.rs), and
//! pulls waiting threads from there (pull.rs). What it found decides when it looks again. If threads
//! were to be moved and none waits, the running one is pushed away in the end.
//!
//! Worked example. Three busy VMs of one vCPU on two pCPUs: loads of 683 and 341. The pCPU with one may
//! pull 170, a thread weighs 341: it fails. After 60 ms it tries again, half of 341 counts, and the
//! other pCPU is the one with one thread.

use super::Eevdf;
use super::busiest::{Imbalance, Look};
use super::domains::Shared;
use drover_sim::cpu_set::CpuSet;
use drover_sim::machine::Machine;
use drover_sim::rng::mix;

/// Failures beyond this make no more difference.
const FAILED_MAX: u32 = 32;

/// On what occasion a pCPU balances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    Busy,
    Idle,
    /// It is about to be idle.
    RunsDry,
}

/// One attempt of a pCPU in one of its domains.
pub(super) struct Attempt {
    pub(super) cpu: u32,
    /// Which of the pCPU's domains.
    pub(super) level: usize,
    pub(super) why: Why,
    pub(super) imbalance: Imbalance,
    /// Threads were left because they may not run there; all were.
    pub(super) some_pinned: bool,
    pub(super) all_pinned: bool,
    /// A pCPU of the group where one of them may run.
    pub(super) instead: Option<u32>,
}

impl Eevdf {
    /// A pCPU runs dry: it pulls a waiting task, from nearby first (sched_balance_newidle).
    pub(super) fn pull_when_dry(&mut self, m: &mut Machine, cpu: u32) {
        for level in 0..self.domains.of[cpu as usize].len() {
            if self.rqs[cpu as usize].nr > 0 || !self.is_crowded(m) {
                return;
            }
            self.balance(m, cpu, level, Why::RunsDry);
        }
    }

    /// Is there a waiting task anywhere (rd->overloaded)?
    fn is_crowded(&self, m: &Machine) -> bool {
        m.online.iter().any(|cpu| self.rqs[cpu as usize].nr > 1)
    }

    /// The tick: balances by the clock, and for the pCPUs that are idle.
    pub(super) fn balance_at_tick(&mut self, m: &mut Machine, cpu: u32) {
        self.balance_domains(m, cpu, Why::Busy);
        if self.rqs[cpu as usize].nr < 2 || m.busy.count() == m.online.count() {
            return;
        }
        for idle in m.online.iter().collect::<Vec<_>>() {
            if self.is_idle(m, idle) {
                self.balance_domains(m, idle, Why::Idle);
                if self.rqs[idle as usize].nr > 0 {
                    m.resched(idle);
                }
            }
        }
    }

    /// sched_balance_domains.
    fn balance_domains(&mut self, m: &mut Machine, cpu: u32, why: Why) {
        let tick_ns = m.costs.tick_interval_ns;
        let now = (m.now_ns / tick_ns) as i64;
        let mut why = why;
        for level in 0..self.domains.of[cpu as usize].len() {
            let chance = mix(m.trace.hash ^ u64::from(cpu));
            let domain = &mut self.domains.of[cpu as usize][level];
            let ticks = domain.ticks(tick_ns, m.online.count(), why == Why::Busy);
            if !domain.is_due(now, ticks, chance) {
                continue;
            }
            if !self.is_its_turn(m, cpu, level) {
                // Another pCPU of its group balances there, and further up.
                self.domains.of[cpu as usize][level].last_tick = Some(now);
                return;
            }
            self.balance(m, cpu, level, why);
            self.domains.of[cpu as usize][level].last_tick = Some(now);
            why = if self.is_idle(m, cpu) { Why::Idle } else { Why::Busy };
        }
    }

    /// should_we_balance: of each group it is the first idle pCPU, rather of an idle core, else the first.
    fn is_its_turn(&self, m: &Machine, cpu: u32, level: usize) -> bool {
        let domain = &self.domains.of[cpu as usize][level];
        let span = &self.domains.spans[domain.span];
        let group =
            || span.groups[domain.local].iter().copied().filter(|&cpu| m.online.contains(cpu));
        let is_idle = |cpu: &u32| self.is_idle(m, *cpu);
        let of_idle_core = |cpu: &u32| m.topology.siblings(*cpu).all(|cpu| self.is_idle(m, cpu));
        let whole =
            group().find(|cpu| is_idle(cpu) && (span.shared == Shared::Core || of_idle_core(cpu)));
        whole.or_else(|| group().find(is_idle)).or_else(|| group().next()) == Some(cpu)
    }

    /// sched_balance_rq.
    fn balance(&mut self, m: &mut Machine, cpu: u32, level: usize, why: Why) {
        let mut tried = CpuSet::none(m.topology.pcpus());
        let mut attempt = Attempt {
            cpu,
            level,
            why,
            imbalance: Imbalance::Tasks(0),
            some_pinned: false,
            all_pinned: false,
            instead: None,
        };
        loop {
            let all = self.weigh(m);
            let domain = &self.domains.of[cpu as usize][level];
            let look = Look { all: &all, domain, why, tried: &tried };
            let Some((group, imbalance)) = self.find_group(m, &look) else { break };
            let Some(from) = self.find_queue(&look, group, imbalance) else { break };
            attempt.imbalance = imbalance;
            attempt.all_pinned = self.rqs[from as usize].nr > 1;
            let moved = self.pull(m, &all, &mut attempt, from);
            self.note_confined(&attempt);
            if attempt.all_pinned {
                tried.insert(from);
                continue;
            }
            self.after(m, &attempt, from, moved);
            return;
        }
        self.is_level(&attempt);
    }

    /// The level above learns whether threads that are confined were in the way.
    fn note_confined(&mut self, attempt: &Attempt) {
        if attempt.some_pinned && !attempt.imbalance.is_none() {
            self.set_confined(attempt, true);
        }
    }

    fn set_confined(&mut self, attempt: &Attempt, confined: bool) {
        if let Some(above) = self.domains.of[attempt.cpu as usize].get(attempt.level + 1) {
            self.domains.spans[above.span].confined[above.local] = confined;
        }
    }

    /// There was nothing to do, or nobody may be moved: it looks less often.
    fn is_level(&mut self, attempt: &Attempt) {
        if !attempt.all_pinned {
            self.set_confined(attempt, false);
        }
        let domain = &mut self.domains.of[attempt.cpu as usize][attempt.level];
        let pcpus = u64::from(self.domains.spans[domain.span].pcpus);
        domain.failed = 0;
        let most_ms = if attempt.all_pinned { PINNED_MS } else { 2 * pcpus };
        if attempt.why != Why::RunsDry && domain.interval_ms < most_ms {
            domain.interval_ms *= 2;
        }
    }

    /// An imbalance was found and so many threads moved.
    fn after(&mut self, m: &mut Machine, attempt: &Attempt, from: u32, moved: u32) {
        let domain = &mut self.domains.of[attempt.cpu as usize][attempt.level];
        let span = &self.domains.spans[domain.span];
        domain.interval_ms = span.pcpus.into();
        if moved > 0 {
            domain.failed = 0;
            return;
        }
        if attempt.why != Why::RunsDry {
            domain.failed = (domain.failed + 1).min(FAILED_MAX);
        }
        let by_tasks = matches!(attempt.imbalance, Imbalance::Tasks(_));
        if by_tasks && domain.failed > span.nice_tries() + 2 {
            let may = m.current(from).is_some_and(|running| m.may_run_on(running, attempt.cpu));
            if may {
                self.rqs[from as usize].push_to = Some((attempt.cpu, attempt.level));
                m.resched(from);
            }
        }
    }

    /// The running thread is pushed away, as the kernel's stopper does (active_load_balance_cpu_stop).
    pub(super) fn push(&mut self, m: &mut Machine, from: u32) {
        let Some((to, level)) = self.rqs[from as usize].push_to.take() else { return };
        let order = &self.rqs[from as usize].order;
        let Some(&task) = order.iter().find(|&&task| m.may_run_on(task, to)) else { return };
        if !m.online.contains(to) {
            return;
        }
        self.domains.of[to as usize][level].failed = 0;
        self.migrate(m, task, to);
        self.preempt(m, to, task);
    }
}

/// Where nobody may be moved the interval grows to this (MAX_PINNED_INTERVAL).
const PINNED_MS: u64 = 512;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eevdf::load::{ALWAYS, Average};
    use drover_core::shares::Shares;
    use drover_scenario::Host;
    use drover_sim::class::{Class, VmTerms};
    use drover_sim::costs::Costs;
    use drover_sim::machine::TaskState;
    use drover_sim::scenario::rival::Rival;
    use drover_sim::topology::Topology;

    /// Four pCPUs of a cache and equal VMs, whose tasks have long been where they are; the first on each
    /// pCPU runs. A task: its VM, its pCPU, and where it may run.
    fn host(tasks: &[(u32, u32, &[u32])]) -> (Machine, Eevdf) {
        let topology = Topology::of(&Host { cores: 4, ..Host::default() });
        let mut m = Machine::new(topology, Costs::default(), tasks.len());
        m.now_ns = 1_000_000_000;
        let mut class = Eevdf::new(&m);
        for &(vm, cpu, allowed) in tasks {
            let mask = m.mask_of(&CpuSet::of(4, allowed.iter().copied()));
            let task = m.add_task(vm, 0, mask, cpu);
            class.add(&mut m, task, VmTerms { shares: Shares::Exact(1000), vcpus: 1 });
            class.ready[task as usize] = Average::of(ALWAYS, m.now_ns);
            class.running[task as usize] = Average::of(ALWAYS, m.now_ns);
        }
        for (task, &(_, cpu, _)) in (0..).zip(tasks) {
            class.enqueue(&mut m, cpu, task);
            m.tasks[task as usize].state = TaskState::Ready;
            if m.current(cpu).is_none() {
                m.pcpus[cpu as usize].current = task;
                m.tasks[task as usize].state = TaskState::Running;
                m.tasks[task as usize].accounted_ns = m.now_ns;
                m.set_busy(cpu, true);
            }
        }
        for &(vm, cpu, _) in tasks {
            class.update_shares(&m, cpu, vm);
        }
        (m, class)
    }

    const ANY: &[u32] = &[0, 1, 2, 3];

    #[test]
    fn who_is_alone_gets_company_at_the_third_attempt() {
        let placed = [(0, 0), (2, 0), (0, 1), (2, 1), (1, 2), (2, 2), (1, 3)];
        let (mut m, mut class) = host(&placed.map(|(vm, cpu)| (vm, cpu, ANY)));
        let loads: Vec<u64> = class.weigh(&m).iter().map(|there| there.load).collect();
        assert_eq!(loads, [284, 284, 284, 170]);
        for failed in 1..=2 {
            class.balance(&mut m, 3, 0, Why::Busy);
            assert_eq!((class.rqs[3].nr, class.domains.of[3][0].failed), (1, failed));
        }
        class.balance(&mut m, 3, 0, Why::Busy);
        assert_eq!((class.rqs[0].nr, class.rqs[3].nr), (1, 2), "from the next around the ring");
        assert_eq!((m.tasks[1].pcpu, class.domains.of[3][0].failed), (3, 0));
    }

    #[test]
    fn it_looks_past_a_run_queue_of_confined_threads() {
        let tasks = [(0, 0), (1, 0), (2, 0), (3, 1), (4, 2), (5, 2), (6, 3), (7, 3)];
        let tasks = tasks.map(|(vm, cpu)| (vm, cpu, if cpu == 0 { &[0][..] } else { ANY }));
        let (mut m, mut class) = host(&tasks);
        for _ in 0..4 {
            class.balance(&mut m, 1, 0, Why::Busy);
        }
        assert_eq!((class.rqs[0].nr, class.rqs[1].nr, class.rqs[2].nr), (3, 2, 1));
    }

    #[test]
    fn where_the_mean_counts_idle_pcpus_confined_threads_stay() {
        let tasks = [(0, 0), (1, 1), (2, 1)].map(|(vm, cpu)| (vm, cpu, &[0, 1][..]));
        let (mut m, mut class) = host(&tasks);
        for _ in 0..9 {
            class.balance(&mut m, 0, 0, Why::Busy);
        }
        assert_eq!((class.rqs[0].nr, class.rqs[1].nr), (1, 2));
    }

    #[test]
    fn a_pcpu_that_runs_dry_pulls_who_waited_longest() {
        let tasks = [(0, 1), (1, 1), (2, 1)].map(|(vm, cpu)| (vm, cpu, ANY));
        let (mut m, mut class) = host(&tasks);
        class.rqs[1].move_to_head(0);
        class.pull_when_dry(&mut m, 0);
        assert_eq!((m.tasks[1].pcpu, class.rqs[0].nr, class.rqs[1].nr), (0, 1, 2));
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! SchedNUMA, after its patches of March to May 2012 (linux-mm, "sched: Implement home-node awareness"; numa.c): each
//! process has a home node, its memory follows by faults, and its threads run there if balancing has it so.
//!
//! A process's home is the node with least load as it begins; all of a host on which nobody runs yet are the first
//! node's. Each 2 s each node looks for the one most of whose processes' load runs elsewhere, and takes processes over
//! as long as that makes the two more alike. Then all memory of the process is taken away, and moves as it is used.
//!
//! Threads: one that wakes is placed as if it had run at home. Balancing takes those first that are away from
//! home, leaves alone those that it would not bring nearer, unless it has failed so before, and where there is
//! nothing to balance fetches one that runs elsewhere.
//!
//! Left out: memory that a node lacks, which moves processes as load does.

use super::{Cfs36, Kind, Machine, Numa, TaskId};
use drover_sim::machine::TaskState;

/// numa_balance_interval.
pub(super) const COMPARE_NS: u64 = 2_000_000_000;
/// sd->cache_nice_tries of a node: an estimate for all domains.
pub(super) const NICE_TRIES: u32 = 2;

impl Numa {
    /// Load of VMs at home on each node, and what of it runs elsewhere; in threads.
    fn loads(&self, m: &Machine) -> (Vec<u32>, Vec<u32>) {
        let nodes = m.topology.nodes.len();
        let (mut all, mut away) = (vec![0; nodes], vec![0; nodes]);
        for vm in &self.vms {
            for &task in &vm.tasks {
                let task = &m.tasks[task as usize];
                if matches!(task.state, TaskState::Running | TaskState::Ready) {
                    let elsewhere = m.topology.node_of[task.pcpu as usize] != vm.home;
                    all[vm.home as usize] += 1;
                    away[vm.home as usize] += u32::from(elsewhere);
                }
            }
        }
        (all, away)
    }

    fn load(m: &Machine, tasks: &[TaskId]) -> u32 {
        let wants = |task: &&TaskId| {
            matches!(m.tasks[**task as usize].state, TaskState::Running | TaskState::Ready)
        };
        tasks.iter().filter(wants).count() as u32
    }

    /// numa_balance, of all nodes in turn.
    pub(super) fn compare_nodes(&mut self, m: &Machine) {
        self.compare_ns = m.now_ns + COMPARE_NS;
        for node in 0..m.topology.nodes.len() as u32 {
            let (all, away) = self.loads(m);
            let busiest = (0u32..).zip(&away).max_by_key(|(at, away)| (**away, u32::MAX - at));
            let Some((from, _)) = busiest.filter(|(at, away)| **away > 0 && *at != node) else {
                continue;
            };
            let mut spare = (i64::from(all[from as usize]) - i64::from(all[node as usize])) / 2;
            for at in 0..self.vms.len() {
                let load = i64::from(Self::load(m, &self.vms[at].tasks));
                if self.vms[at].home == from && load > 0 && spare > 0 && spare >= load / 2 {
                    self.vms[at].home = node;
                    self.take_all_away(m, at);
                    spare -= load;
                }
            }
        }
    }
}

impl Cfs36 {
    /// The pCPU near which a thread that wakes is placed: the first at home, if it has one.
    pub(in super::super) fn numa_last(&self, m: &Machine, task: TaskId) -> u32 {
        let last = m.tasks[task as usize].pcpu;
        match &self.numa {
            Some(numa) if numa.kind == Kind::Home => {
                let home = numa.vms[m.tasks[task as usize].vm as usize].home;
                m.topology.nodes[home as usize].next_common(m.allowed(task), 0).unwrap_or(last)
            }
            _ => last,
        }
    }

    /// The host was balanced: somebody came, or not, or there was nothing to balance.
    pub(in super::super) fn balanced_nodes(
        &mut self,
        m: &mut Machine,
        cpu: u32,
        moved: Option<bool>,
    ) {
        match moved {
            Some(moved) => self.numa_balanced(cpu, false, moved),
            None => self.fetch_home(m, cpu),
        }
    }

    /// Balancing moved somebody, or nobody.
    pub(in super::super) fn numa_balanced(&mut self, cpu: u32, idle: bool, moved: bool) {
        if let Some(numa) = &mut self.numa {
            let failed = &mut numa.failed[cpu as usize][usize::from(!idle)];
            *failed = if moved { 0 } else { *failed + 1 };
        }
    }

    /// May an idle pCPU balance now? Each 80 ms or so: sd->balance_interval is a ms for each pCPU of the domain.
    pub(in super::super) fn numa_may_fetch(&mut self, m: &Machine, cpu: u32) -> bool {
        let Some(numa) = self.numa.as_mut().filter(|numa| numa.kind == Kind::Home) else {
            return true;
        };
        let due = m.now_ns >= numa.idle_ns[cpu as usize];
        if due {
            numa.idle_ns[cpu as usize] = m.now_ns + u64::from(m.online.count()) * 1_000_000;
        }
        due
    }

    /// NUMA_PULL_BIAS: nothing to balance, so one of those that run away from home is fetched, if this is its home. Any
    /// run queue of the host with such a thread is looked at, by chance.
    fn fetch_home(&mut self, m: &mut Machine, cpu: u32) {
        let Some(numa) = self.numa.as_mut().filter(|numa| numa.kind == Kind::Home) else { return };
        let node_of = |cpu: u32| m.topology.node_of[cpu as usize];
        let home = |vms: &[super::Vm], task: TaskId| vms[m.tasks[task as usize].vm as usize].home;
        let strays = |&other: &u32| {
            let runs = m.current(other);
            node_of(other) != node_of(cpu)
                && runs.is_some_and(|task| home(&numa.vms, task) != node_of(other))
        };
        let from: Vec<u32> = m.online.iter().filter(strays).collect();
        if from.is_empty() {
            return;
        }
        let other = *numa.rng.pick(&from);
        let comes = m.current(other).filter(|&task| home(&numa.vms, task) == node_of(cpu));
        // active_load_balance, for who is alone on its run queue.
        if comes.is_some() && self.rqs[other as usize].nr == 1 {
            self.send(m, other, cpu);
        }
    }
}

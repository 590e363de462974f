// SPDX-License-Identifier: GPL-2.0-only
//! Xen's credit scheduler, as a scheduler of the simulator: what seeds 001 and 003 were measured on.
//!
//! Idea. Every 30 ms each VM that was active is given credits by its weight, divided among its
//! active vCPUs. Every 10 ms whoever runs then pays 100 credits. A vCPU with credits left is UNDER,
//! one without is OVER; on each pCPU those UNDER go first, in turn, 30 ms at a time. A vCPU that
//! wakes while it is UNDER is put into BOOST, before all, until the next 10 ms find it running. A
//! pCPU that has nothing better than OVER looks into the other pCPUs' queues for something that is.
//!
//! Worked example. One pCPU, VMs a and b of equal weight, busy. In 30 ms there are 300 credits: 150
//! each. a runs its 30 ms, pays 300, is at -150 and OVER; b is UNDER and next. A third VM that wakes
//! every 5 ms for 0.1 ms is in BOOST each time and runs at once; only if one of the moments of 10 ms
//! catches it does it pay anything at all.
//!
//! Limitations, which are why it is here. A VM that sleeps at the right moments pays nothing; much I/O keeps
//! busy VMs waiting behind BOOST; without BOOST one waits for slices of 30 ms.
//!
//! At a tick a vCPU that shares its core goes to a core that is wholly idle (csched_cpu_pick).
//!
//! What is left out. Caps; what else csched_cpu_pick weighs, cache hotness; yields (KVM's directed ones have no meaning here, so `ple` only costs); CPU pools; node affinity.
//! A tick falls on the same moment on all pCPUs.

use drover_sim::class::{Class, VmTerms};
use drover_sim::costs::Costs;
use drover_sim::machine::{CLASS_TIMER, Machine, NOBODY, TaskId, TaskState};
use drover_sim::scenario::rival::Rival;
use std::collections::VecDeque;

/// How long a vCPU runs before the next has its turn.
const SLICE_NS: u64 = 30_000_000;
/// Interval of debits: the host's tick with this scheduler.
const TICK_NS: u64 = 10_000_000;
/// Interval of the accounting that gives credits.
const ACCOUNT_NS: u64 = 30_000_000;
/// What whoever runs at a tick pays.
const CREDITS_PER_TICK: i64 = 100;
/// What a pCPU is worth in an accounting interval.
const CREDITS_PER_ACCOUNT: i64 = 300;

/// Who goes before whom: the greater first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Priority {
    Over,
    Under,
    Boost,
}

const PRIORITIES: [Priority; 3] = [Priority::Boost, Priority::Under, Priority::Over];

#[derive(Debug, Clone, Copy)]
struct Vcpu {
    priority: Priority,
    credits: i64,
    /// It was found running since it last had more credits than it could use.
    active: bool,
    /// The queue it stands in.
    queued_on: u32,
}

/// The credit scheduler.
#[derive(Debug)]
pub struct Credit {
    vcpus: Vec<Vcpu>,
    /// Weight of each VM.
    weights: Vec<i64>,
    /// By pCPU, then by priority in the order of [`PRIORITIES`].
    queues: Vec<[VecDeque<TaskId>; 3]>,
    /// When the slice of each pCPU ends.
    slice_ends_ns: Vec<u64>,
    account_ns: u64,
    /// Who leaves its pCPU at the next pick, and where to.
    moving: Option<(TaskId, u32)>,
}

impl Rival for Credit {
    type Class = Self;

    const NAME: &'static str = "credit";

    fn new(m: &Machine) -> Self {
        let pcpus = m.pcpus.len();
        Self {
            vcpus: Vec::new(),
            weights: Vec::new(),
            queues: (0..pcpus).map(|_| Default::default()).collect(),
            slice_ends_ns: vec![u64::MAX; pcpus],
            account_ns: ACCOUNT_NS,
            moving: None,
        }
    }

    fn set_host(costs: &mut Costs) {
        costs.tick_interval_ns = TICK_NS;
    }
}

impl Credit {
    fn set_timer(&self, m: &mut Machine) {
        let slice_ns = self.slice_ends_ns.iter().copied().min().unwrap_or(u64::MAX);
        m.events.set(CLASS_TIMER, self.account_ns.min(slice_ns).max(m.now_ns));
    }

    fn queue(&mut self, m: &mut Machine, cpu: u32, task: TaskId) {
        m.tasks[task as usize].pcpu = cpu;
        let vcpu = &mut self.vcpus[task as usize];
        debug_assert!(vcpu.queued_on == NOBODY, "nobody stands in two queues");
        vcpu.queued_on = cpu;
        let at = PRIORITIES.iter().position(|&priority| priority == vcpu.priority);
        self.queues[cpu as usize][at.expect("all are listed")].push_back(task);
    }

    fn unqueue(&mut self, task: TaskId) {
        let cpu = std::mem::replace(&mut self.vcpus[task as usize].queued_on, NOBODY);
        if cpu != NOBODY {
            self.queues[cpu as usize].iter_mut().for_each(|queue| queue.retain(|&it| it != task));
        }
    }

    /// The first of a pCPU's queue that may run on `to`, with more than that priority.
    fn first(&self, m: &Machine, from: u32, to: u32, above: Option<Priority>) -> Option<TaskId> {
        let better = PRIORITIES.iter().zip(&self.queues[from as usize]);
        let better = better.filter(|(priority, _)| above.is_none_or(|above| **priority > above));
        let mut tasks = better.flat_map(|(_, queue)| queue.iter().copied());
        tasks.find(|&task| m.may_run_on(task, to))
    }

    /// csched_load_balance: something better from another pCPU, those after this one first.
    fn steal(&self, m: &Machine, cpu: u32, above: Option<Priority>) -> Option<TaskId> {
        let pcpus = self.queues.len() as u32;
        let peers = (1..pcpus).map(|step| (cpu + step) % pcpus);
        let busy = |peer: &u32| m.pcpus[*peer as usize].current != NOBODY;
        peers.filter(busy).find_map(|peer| self.first(m, peer, cpu, above))
    }

    /// __runq_tickle: the pCPU itself if the new one goes before who runs there, else an idle one
    /// that may come and take it.
    fn tickle(&self, m: &mut Machine, cpu: u32, task: TaskId) {
        let current = m.current(cpu);
        let wins = current.is_none_or(|current| {
            self.vcpus[task as usize].priority > self.vcpus[current as usize].priority
        });
        if wins {
            m.resched(cpu);
        }
        if current.is_some() {
            let idle = |&to: &u32| m.pcpus[to as usize].current == NOBODY && m.may_run_on(task, to);
            let found = m.online.iter().find(idle);
            if let Some(to) = found {
                m.resched(to);
            }
        }
    }

    /// A pCPU of a wholly idle core for a task that shares its core (csched_cpu_pick).
    fn idle_core(&self, m: &Machine, cpu: u32, task: TaskId) -> Option<u32> {
        let expected = |cpu: u32| self.queues[cpu as usize].iter().any(|queue| !queue.is_empty());
        let rests = |cpu: u32| m.pcpus[cpu as usize].current == NOBODY && m.online.contains(cpu);
        let idle = |cpu: u32| rests(cpu) && !expected(cpu);
        if m.topology.siblings(cpu).all(|sibling| sibling == cpu || idle(sibling)) {
            return None;
        }
        let whole = |&to: &u32| m.may_run_on(task, to) && m.topology.siblings(to).all(idle);
        m.online.iter().find(whole)
    }

    /// csched_acct: credits for all that were active, by weight.
    fn account(&mut self, m: &Machine) {
        let active = |task: &usize| self.vcpus[*task].active;
        let mut counts = vec![0; self.weights.len()];
        let running: Vec<usize> = (0..self.vcpus.len()).filter(active).collect();
        running.iter().for_each(|&task| counts[m.tasks[task].vm as usize] += 1);
        let mut left = i64::from(m.online.count()) * CREDITS_PER_ACCOUNT;
        let mut vms: Vec<usize> = (0..counts.len()).filter(|&vm| counts[vm] > 0).collect();
        // Those that can use least for their weight first: what they leave is for the others.
        vms.sort_by(|&a, &b| (counts[a] * self.weights[b]).cmp(&(counts[b] * self.weights[a])));
        let mut weight: i64 = vms.iter().map(|&vm| self.weights[vm]).sum();
        let mut fair = vec![0; counts.len()];
        for &vm in &vms {
            let part = (left * self.weights[vm] / weight).min(counts[vm] * CREDITS_PER_ACCOUNT);
            left -= part;
            weight -= self.weights[vm];
            fair[vm] = part / counts[vm];
        }
        for task in running {
            let vcpu = &mut self.vcpus[task];
            vcpu.credits += fair[m.tasks[task].vm as usize];
            if vcpu.credits < 0 {
                vcpu.priority = Priority::Over;
                vcpu.credits = vcpu.credits.max(-CREDITS_PER_ACCOUNT);
            } else {
                vcpu.priority = vcpu.priority.max(Priority::Under);
                if vcpu.credits > CREDITS_PER_ACCOUNT {
                    // More than it uses: it takes no part until it is found running again.
                    vcpu.active = false;
                    vcpu.credits = 0;
                }
            }
        }
    }

    /// csched_runq_sort: those whose priority has changed stand among their new equals.
    fn sort(&mut self, m: &mut Machine) {
        for cpu in 0..self.queues.len() as u32 {
            let queues = self.queues[cpu as usize].iter_mut();
            let all: Vec<TaskId> = queues.flat_map(|queue| queue.drain(..)).collect();
            for task in all {
                self.vcpus[task as usize].queued_on = NOBODY;
                self.queue(m, cpu, task);
            }
        }
    }
}

impl Class for Credit {
    fn start(&mut self, m: &mut Machine) {
        self.set_timer(m);
    }

    fn add(&mut self, m: &mut Machine, task: TaskId, terms: VmTerms) {
        let vm = m.tasks[task as usize].vm;
        let new = Vcpu { priority: Priority::Under, credits: 0, active: false, queued_on: NOBODY };
        if self.vcpus.len() <= task as usize {
            self.vcpus.resize(task as usize + 1, new);
        }
        if self.weights.len() <= vm as usize {
            self.weights.resize(vm as usize + 1, 1);
        }
        self.set_terms(m, vm, terms);
    }

    fn set_terms(&mut self, _: &mut Machine, vm: u32, terms: VmTerms) {
        self.weights[vm as usize] = i64::from(terms.shares_of_all().max(1));
    }

    fn wake(&mut self, m: &mut Machine, task: TaskId) {
        let last = m.tasks[task as usize].pcpu;
        let usable = m.may_run_on(task, last) && m.online.contains(last);
        let cpu = match usable {
            true => last,
            false => m.allowed(task).next_common(&m.online, 0).unwrap_or(last),
        };
        if self.vcpus[task as usize].priority == Priority::Under {
            self.vcpus[task as usize].priority = Priority::Boost;
        }
        self.queue(m, cpu, task);
        self.tickle(m, cpu, task);
    }

    fn stopped(&mut self, _: &mut Machine, _: u32, task: TaskId) {
        self.unqueue(task);
    }

    fn pick(
        &mut self,
        m: &mut Machine,
        cpu: u32,
        previous: Option<TaskId>,
        ready: bool,
    ) -> Option<TaskId> {
        let leaves = |task: &TaskId| self.moving.is_some_and(|(moving, _)| moving == *task);
        let previous = previous.filter(|task| ready && !leaves(task));
        let priority = |task: TaskId| self.vcpus[task as usize].priority;
        let head = self.first(m, cpu, cpu, None);
        // Who ran stands behind its equals.
        let own = match (head, previous) {
            (Some(head), Some(previous)) if priority(head) < priority(previous) => Some(previous),
            (head, previous) => head.or(previous),
        };
        let chosen = match own.map(priority) {
            Some(Priority::Boost | Priority::Under) => own,
            over if m.pcpus[cpu as usize].online => self.steal(m, cpu, over).or(own),
            _ => own,
        };
        self.slice_ends_ns[cpu as usize] =
            if chosen.is_some() { m.now_ns + SLICE_NS } else { u64::MAX };
        self.set_timer(m);
        if let Some(task) = chosen {
            m.counts.migrations += u64::from(m.tasks[task as usize].pcpu != cpu);
            self.unqueue(task);
        }
        chosen
    }

    fn put(&mut self, m: &mut Machine, cpu: u32, task: TaskId) {
        match self.moving.take() {
            Some((moving, to)) if moving == task => {
                self.queue(m, to, task);
                m.resched(to);
            }
            _ => self.queue(m, cpu, task),
        }
    }

    fn set(&mut self, _: &mut Machine, _: u32, _: TaskId) {}

    fn rest(&mut self, _: &mut Machine, _: u32) {}

    fn ran(&mut self, _: &mut Machine, _: u32, _: TaskId, _: u64) {}

    /// csched_tick: whoever runs pays, and may find a better core.
    fn tick(&mut self, m: &mut Machine, cpu: u32, task: TaskId) {
        let vcpu = &mut self.vcpus[task as usize];
        vcpu.active = true;
        vcpu.credits -= CREDITS_PER_TICK;
        vcpu.priority = vcpu.priority.min(Priority::Under);
        self.moving = self.idle_core(m, cpu, task).map(|to| (task, to));
        if self.moving.is_some() {
            m.resched(cpu);
        }
    }

    fn timer(&mut self, m: &mut Machine) {
        if m.now_ns >= self.account_ns {
            self.account_ns = m.now_ns + ACCOUNT_NS;
            self.account(m);
            self.sort(m);
        }
        for cpu in 0..self.slice_ends_ns.len() {
            if m.now_ns >= self.slice_ends_ns[cpu] {
                self.slice_ends_ns[cpu] = u64::MAX;
                m.resched(cpu as u32);
            }
        }
        self.set_timer(m);
    }

    fn yield_to(&mut self, _: &mut Machine, _: u32, _: TaskId, _: TaskId) -> bool {
        false
    }

    fn remove(&mut self, _: &mut Machine, task: TaskId) {
        self.vcpus[task as usize].active = false;
    }

    fn evict(&mut self, m: &mut Machine, cpu: u32, task: TaskId) {
        let to = m.allowed(task).next_common(&m.online, 0).unwrap_or(cpu);
        self.slice_ends_ns[cpu as usize] = u64::MAX;
        self.queue(m, to, task);
        self.tickle(m, to, task);
    }

    fn confine(&mut self, m: &mut Machine, task: TaskId) {
        let here = m.tasks[task as usize].pcpu;
        let stays = m.may_run_on(task, here) && m.online.contains(here);
        if m.tasks[task as usize].state == TaskState::Ready && !stays {
            let to = m.allowed(task).next_common(&m.online, 0).unwrap_or(here);
            self.unqueue(task);
            self.queue(m, to, task);
            self.tickle(m, to, task);
        }
    }

    /// The core calls `confine` for every task next, which moves those that wait here.
    fn offline(&mut self, _: &mut Machine, _: u32) {}

    fn online(&mut self, _: &mut Machine, _: u32) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use drover_core::shares::Shares;
    use drover_scenario::Host;
    use drover_sim::topology::Topology;

    fn host(pcpus: u32, vms: &[(u32, u32)]) -> (Machine, Credit) {
        let host = Host { cores: pcpus, ..Host::default() };
        let mut m = Machine::new(Topology::of(&host), Costs::default(), 16);
        let mut credit = Credit::new(&m);
        for (vm, &(vcpus, shares)) in vms.iter().enumerate() {
            for vcpu in 0..vcpus {
                let task = m.add_task(vm as u32, vcpu, 0, 0);
                credit.add(&mut m, task, VmTerms { shares: Shares::Exact(shares), vcpus });
                credit.vcpus[task as usize].active = true;
            }
        }
        (m, credit)
    }

    fn credits(credit: &Credit) -> Vec<i64> {
        credit.vcpus.iter().map(|vcpu| vcpu.credits).collect()
    }

    #[test]
    fn credits_are_given_by_weight_and_what_one_cannot_use_to_others() {
        let (m, mut credit) = host(1, &[(1, 256), (1, 768)]);
        credit.account(&m);
        assert_eq!(credits(&credit), [75, 225]);
        let (m, mut credit) = host(2, &[(1, 9000), (2, 1000)]);
        credit.account(&m);
        assert_eq!(credits(&credit), [300, 150, 150], "one vCPU can use one pCPU");
    }

    #[test]
    fn who_has_paid_too_much_is_over_and_debts_are_bounded() {
        let (mut m, mut credit) = host(1, &[(1, 1), (1, 1)]);
        (0..9).for_each(|_| credit.tick(&mut m, 0, 0));
        credit.account(&m);
        assert_eq!(credits(&credit), [-300, 150]);
        assert_eq!(credit.vcpus[0].priority, Priority::Over);
        (0..2).for_each(|_| credit.account(&m));
        assert_eq!((credits(&credit)[0], credit.vcpus[0].priority), (0, Priority::Under));
        assert!(!credit.vcpus[1].active, "it has had more than it used");
    }

    #[test]
    fn a_boost_ends_at_the_tick_and_is_only_for_those_under() {
        let (mut m, mut credit) = host(1, &[(1, 1), (1, 1)]);
        credit.vcpus[1].priority = Priority::Over;
        credit.wake(&mut m, 0);
        credit.wake(&mut m, 1);
        assert_eq!(credit.vcpus[0].priority, Priority::Boost);
        assert_eq!(credit.vcpus[1].priority, Priority::Over);
        assert_eq!(credit.pick(&mut m, 0, None, false), Some(0));
        credit.tick(&mut m, 0, 0);
        assert_eq!(credit.vcpus[0].priority, Priority::Under);
    }

    #[test]
    fn who_sleeps_before_the_tick_pays_nothing_and_who_runs_then_all_of_it() {
        let (mut m, mut credit) = host(1, &[(1, 1), (1, 1)]);
        for (task, ran_ns, until_tick) in [(0, 9_900_000, false), (1, 100_000, true)] {
            credit.wake(&mut m, task);
            assert_eq!(credit.pick(&mut m, 0, None, false), Some(task));
            credit.ran(&mut m, 0, task, ran_ns);
            if until_tick {
                credit.tick(&mut m, 0, task);
            }
            credit.stopped(&mut m, 0, task);
        }
        assert_eq!(credits(&credit), [0, -100]);
    }

    #[test]
    fn a_pcpu_with_nothing_better_than_over_steals() {
        let (mut m, mut credit) = host(2, &[(1, 1), (1, 1), (1, 1)]);
        m.pcpus[0].current = 2;
        credit.vcpus[1].priority = Priority::Over;
        credit.queue(&mut m, 0, 0);
        credit.queue(&mut m, 1, 1);
        assert_eq!(credit.pick(&mut m, 1, None, false), Some(0), "UNDER from next door");
        assert_eq!(credit.pick(&mut m, 1, None, false), Some(1), "then its own");
    }

    #[test]
    fn who_shares_a_core_goes_to_one_that_is_wholly_idle() {
        let host = Host { cores: 3, threads: 2, ..Host::default() };
        let mut m = Machine::new(Topology::of(&host), Costs::default(), 3);
        let mut credit = Credit::new(&m);
        for (task, cpu) in [(0, 0), (1, 1), (2, 2)] {
            m.add_task(task, 0, 0, cpu);
            credit.add(&mut m, task, VmTerms { shares: Shares::Exact(1), vcpus: 1 });
            m.pcpus[cpu as usize].current = task;
            m.tasks[task as usize].state = TaskState::Running;
        }
        credit.tick(&mut m, 2, 2);
        assert_eq!(credit.moving, None, "it has its core to itself");
        credit.tick(&mut m, 0, 0);
        assert_eq!((credit.moving, m.pcpus[0].need_resched), (Some((0, 4)), true));
        assert_eq!(credit.pick(&mut m, 0, Some(0), true), None);
        credit.put(&mut m, 0, 0);
        assert_eq!((credit.vcpus[0].queued_on, m.pcpus[4].need_resched), (4, true));
        credit.tick(&mut m, 1, 1);
        assert_eq!(credit.moving, None, "somebody is on the way there");
    }
}

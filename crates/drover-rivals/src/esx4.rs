// SPDX-License-Identifier: GPL-2.0-only
//! ESX 4's CPU scheduler as seed 000 describes it (3.1 to 3.3.2, table 1): what differs from ESX 3.5, whose
//! [model](super::esx35) it shares.
//!
//! Idea. There are no cells: a vCPU may run anywhere, and each pCPU and each VM has a lock. Skew is how far a vCPU is
//! ahead of its slowest sibling that is not halted; a halted vCPU neither falls behind nor gets ahead. A vCPU that is more
//! than 3 ms ahead stops alone, and goes on once the slowest is within 3 ms. Who wakes goes to an idle pCPU of the cache with the fewest busy ones;
//! of the VM whose turn it is, a vCPU that ran on the same cache comes first, so that siblings still run together.
//!
//! Worked example. Two vCPUs take turns of 5 ms on one pCPU. Each is 5 ms ahead of the other once in a turn, and stops
//! then; in ESX 3.5 each has 5 ms of skew after its sibling's turn, and more after the next.
//!
//! Parameters are ESX 3.5's: a slice of 50 ms ("50 for VMkernel by default": vSphere High Performance Cookbook), skew
//! of 3 ms, locks held for 1 us.
//!
//! What is left out, beside what ESX 3.5's model does: moves while running, and what caches' fair part is (3.3.4).

use super::esx35::{Esx35, LOOK_NS, SKEW_NS};
use drover_sim::machine::{Machine, TaskId, TaskState};
use drover_sim::scenario::rival::Rival;

/// ESX 4's scheduler.
#[derive(Debug)]
pub struct Esx4;

impl Rival for Esx4 {
    type Class = Esx35;

    const NAME: &'static str = "esx4";

    fn new(m: &Machine) -> Esx35 {
        Esx35::four(m)
    }
}

impl Esx35 {
    /// How many pCPUs that share a cache with this one are busy.
    pub(crate) fn busy_beside(&self, m: &Machine, cpu: u32) -> usize {
        let cache = m.topology.llc_of[cpu as usize];
        m.topology.llcs[cache as usize].iter().filter(|&it| m.current(it).is_some()).count()
    }

    /// A sibling of `first`, whose VM's turn it is, that ran on this pCPU's cache; else that one.
    pub(crate) fn near(&self, m: &Machine, cpu: u32, first: TaskId) -> TaskId {
        let llc_of = &m.topology.llc_of;
        let ran_here =
            |task: TaskId| llc_of[m.tasks[task as usize].pcpu as usize] == llc_of[cpu as usize];
        let may = |&task: &TaskId| {
            m.tasks[task as usize].vm == m.tasks[first as usize].vm
                && ran_here(task)
                && m.may_run_on(task, cpu)
                && !self.vcpus[task as usize].stopped
        };
        let near = self.waiting(cpu).iter().copied().filter(may);
        near.min_by_key(|&task| self.key(m, task)).unwrap_or(first)
    }

    /// Each vCPU that is too far ahead of its slowest sibling stops; one that is not goes on.
    pub(crate) fn look_at_progress(&mut self, m: &mut Machine) {
        for at in 0..self.vms.len() {
            let tasks = self.vms[at].tasks.clone();
            let state = |task: TaskId| m.tasks[task as usize].state;
            let runs = tasks.iter().any(|&task| state(task) == TaskState::Running);
            let waiting = tasks.iter().filter(|&&task| state(task) == TaskState::Ready).count();
            for &task in tasks.iter().filter(|&&task| state(task) == TaskState::Running) {
                self.vcpus[task as usize].progress_ns += LOOK_NS;
            }
            let wants = |state| matches!(state, TaskState::Ready | TaskState::Running);
            let awake = tasks.iter().filter(|&&task| wants(state(task)));
            let progress = |task: &TaskId| self.vcpus[*task as usize].progress_ns;
            let Some(slowest) = awake.map(progress).min() else { continue };
            for &task in tasks.iter().filter(|&&task| !wants(state(task))) {
                let halted_ns = &mut self.vcpus[task as usize].progress_ns;
                *halted_ns = slowest.max(*halted_ns);
            }
            let look_s = LOOK_NS as f64 / 1e9;
            let seen = &mut self.vms[at].seen;
            *seen.progressed_s.get_or_insert(0.0) += if runs { look_s } else { 0.0 };
            *seen.hazard_s.get_or_insert(0.0) += if runs && waiting > 0 { look_s } else { 0.0 };
            for task in tasks {
                let vcpu = &mut self.vcpus[task as usize];
                let stops = vcpu.progress_ns > slowest + SKEW_NS;
                let stopped = std::mem::replace(&mut vcpu.stopped, stops);
                let seen = &mut self.vms[at].seen;
                let is_held = stops && m.tasks[task as usize].state == TaskState::Ready;
                seen.costop_s += if is_held { look_s } else { 0.0 };
                seen.costops += u64::from(stops && !stopped);
                seen.costarts += u64::from(stopped && !stops);
                match m.tasks[task as usize].state {
                    TaskState::Running if stops => m.resched(m.tasks[task as usize].pcpu),
                    TaskState::Ready if stopped && !stops => self.place(m, task, false),
                    _ => {}
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::esx35::tests::run;
    use super::*;
    use drover_core::shares::Shares;
    use drover_scenario::Host;
    use drover_sim::class::{Class, VmTerms};
    use drover_sim::costs::Costs;
    use drover_sim::topology::Topology;

    /// A host of so many caches of two pCPUs, and a VM of so many vCPUs that wait.
    fn host(caches: u32, vcpus: u32) -> (Machine, Esx35) {
        let host = Host { dies: caches, cores: 2, ..Host::default() };
        let mut m = Machine::new(Topology::of(&host), Costs::default(), 32);
        let mut esx = Esx4::new(&m);
        for vcpu in 0..vcpus {
            let task = m.add_task(0, vcpu, 0, 0);
            esx.add(&mut m, task, VmTerms { shares: Shares::Exact(1000), vcpus });
            m.tasks[task as usize].state = TaskState::Ready;
            esx.wake(&mut m, task);
        }
        (m, esx)
    }

    #[test]
    fn a_vm_may_have_pcpus_of_more_than_four() {
        let (mut m, mut esx) = host(4, 4);
        (4..8).for_each(|cpu| assert!(run(&mut m, &mut esx, cpu).is_some()));
    }

    #[test]
    fn who_is_too_far_ahead_of_the_slowest_stops_alone_until_that_is_near() {
        let (mut m, mut esx) = host(1, 3);
        assert_eq!(run(&mut m, &mut esx, 0), Some(0));
        assert_eq!(run(&mut m, &mut esx, 1), Some(1));
        (0..3).for_each(|_| esx.look_at_progress(&mut m));
        assert!(!esx.vcpus[0].stopped, "3 ms are allowed");
        esx.look_at_progress(&mut m);
        assert!(esx.vcpus[0].stopped && esx.vcpus[1].stopped && m.pcpus[0].need_resched);
        m.tasks[0].state = TaskState::Ready;
        assert_eq!(esx.pick(&mut m, 0, Some(0), true), Some(2), "who is behind does not");
        m.tasks[2].state = TaskState::Running;
        esx.look_at_progress(&mut m);
        assert!(!esx.vcpus[0].stopped, "3 ms ahead");
        assert_eq!(esx.counters(&m, 0).unwrap().vm.costops, 2);
    }

    #[test]
    fn who_halts_neither_falls_behind_nor_gets_ahead() {
        let (mut m, mut esx) = host(1, 2);
        assert_eq!(run(&mut m, &mut esx, 0), Some(0));
        (m.tasks[1].state, m.tasks[0].state) = (TaskState::Asleep, TaskState::Ready);
        (0..50).for_each(|_| esx.look_at_progress(&mut m));
        m.tasks[1].state = TaskState::Running;
        (0..3).for_each(|_| esx.look_at_progress(&mut m));
        assert!(!esx.vcpus[1].stopped, "3 ms ahead since it woke");
        m.tasks[0].state = TaskState::Running;
        (0..50).for_each(|_| esx.look_at_progress(&mut m));
        assert!(!esx.vcpus[0].stopped);
    }

    #[test]
    fn turns_of_equal_length_are_no_skew() {
        let (mut m, mut esx) = host(1, 2);
        for turn in 0..100 {
            for (task, state) in [(turn % 2, TaskState::Running), (1 - turn % 2, TaskState::Ready)]
            {
                m.tasks[task].state = state;
            }
            (0..3).for_each(|_| esx.look_at_progress(&mut m));
        }
        assert_eq!(esx.counters(&m, 0).unwrap().vm.costops, 0);
    }

    #[test]
    fn who_wakes_goes_to_the_cache_with_fewest_busy() {
        let (mut m, mut esx) = host(2, 2);
        assert!(run(&mut m, &mut esx, 0).is_some());
        m.pcpus.iter_mut().for_each(|pcpu| pcpu.need_resched = false);
        esx.place(&mut m, 1, true);
        assert!(!m.pcpus[1].need_resched && m.pcpus[2].need_resched);
    }
}

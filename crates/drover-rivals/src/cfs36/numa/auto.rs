// SPDX-License-Identifier: GPL-2.0-only
//! AutoNUMA, after its documentation and patches of May to October 2012 (linux-mm, "autonuma: CPU follow memory
//! algorithm"): a scanner, faults that move memory to threads, and exchanges that move threads to memory.
//!
//! A thread that runs on another node than the one where both its process has most of its memory and it faults most
//! is exchanged for a thread there: of all those that run, the one for which that gains most. Of another
//! process counts where that has its memory, of a sibling where it faults.
//!
//! Left out: who wakes is not drawn to its node.

use super::memory::Fault;
use super::{
    Cfs36, Faulted, Machine, NOWHERE, Numa, PAGES, PASS_NS, Part, SCAN_NS, SCAN_PARTS, TaskId,
};

/// A pCPU looks for an exchange so often: with the balancing of its core, an estimate.
const EXCHANGE_NS: u64 = 128_000_000;
/// Weights are parts of this.
const SCALE: u64 = 1000;

/// Does the part go to the node from which it was used? At the first fault of all, or the second in succession.
pub(super) fn moves(part: &mut Part, node: u32) -> Option<u32> {
    let last = std::mem::replace(&mut part.last, node);
    (last == node || last == NOWHERE).then_some(node)
}

impl Numa {
    /// knuma_scand: the next parts are counted and taken away.
    pub(super) fn scan(&mut self, m: &Machine, slower: u64) {
        self.scan_ns = m.now_ns + SCAN_NS * slower;
        for _ in 0..SCAN_PARTS {
            let (at, part) = self.scanned;
            let Some(vm) = self.vms.get_mut(at) else {
                self.end_pass(m, slower);
                return;
            };
            if part >= vm.memory.len() {
                self.scanned = (at + 1, 0);
                continue;
            }
            self.scanned = (at, part + 1);
            if let Some(node) = vm.memory.take_away(part) {
                vm.pages_now[node as usize] += u64::from(PAGES);
                vm.next_fault_ns = vm.next_fault_ns.min(m.now_ns);
            }
        }
    }

    fn end_pass(&mut self, m: &Machine, slower: u64) {
        for vm in &mut self.vms {
            for (pages, now) in vm.pages.iter_mut().zip(&mut vm.pages_now) {
                *pages = *pages / 2 + std::mem::take(now);
            }
        }
        self.pass += 1;
        self.scanned = (0, 0);
        self.scan_ns = (self.pass_ns + PASS_NS * slower).max(m.now_ns + SCAN_NS);
        self.pass_ns = self.scan_ns;
    }

    /// The thread faulted: what it uses lies there.
    pub(super) fn note_fault(&mut self, task: TaskId, fault: Fault) {
        let (pass, it) = (self.pass, &mut self.tasks[task as usize]);
        if it.pass != pass {
            it.pages.iter_mut().for_each(|pages| *pages /= 2);
            it.pass = pass;
        }
        it.pages[fault.node as usize] += u64::from(fault.pages);
    }

    /// The part of its memory that the VM has on that node.
    fn memory_weight(&self, vm: usize, node: u32) -> Option<u64> {
        weight(&self.vms[vm].pages, node)
    }

    /// The part of its faults that the thread has on that node.
    fn task_weight(&self, task: TaskId, node: u32) -> Option<u64> {
        weight(&self.tasks[task as usize].pages, node)
    }

    /// Where both the thread and its VM have most.
    fn favourite(&self, m: &Machine, task: TaskId) -> Option<u32> {
        let Faulted { pages, .. } = &self.tasks[task as usize];
        let vm = m.tasks[task as usize].vm as usize;
        let most = |of: &[u64]| {
            let most = (0u32..).zip(of).max_by_key(|(node, pages)| (**pages, u32::MAX - node));
            most.filter(|(_, pages)| **pages > 0).map(|(node, _)| node)
        };
        most(pages).filter(|node| most(&self.vms[vm].pages) == Some(*node))
    }

    /// What it gains to have the thread, on `here`, change places with who runs on that pCPU.
    fn gain(&self, m: &Machine, task: TaskId, here: u32, cpu: u32) -> Option<u64> {
        let other = m.current(cpu)?;
        let there = m.topology.node_of[cpu as usize];
        let (vm, others) = (m.tasks[task as usize].vm, m.tasks[other as usize].vm);
        let (on_node, at_present, of_other) = if vm == others {
            let of = |node| self.task_weight(task, node);
            (of(there)?, of(here)?, self.task_weight(other, there)?)
        } else {
            let of = |node| self.memory_weight(vm as usize, node);
            (of(there)?, of(here)?, self.memory_weight(others as usize, there)?)
        };
        (on_node > of_other && on_node > at_present).then(|| 2 * on_node - of_other - at_present)
    }
}

fn weight(pages: &[u64], node: u32) -> Option<u64> {
    let all: u64 = pages.iter().sum();
    (pages[node as usize] * SCALE).checked_div(all)
}

impl Cfs36 {
    /// sched_autonuma_balance.
    pub(super) fn exchange_at_tick(&mut self, m: &mut Machine, cpu: u32, task: TaskId) {
        let Some(numa) = &mut self.numa else { return };
        if m.now_ns < numa.exchange_ns[cpu as usize] || numa.orders[cpu as usize].is_some() {
            return;
        }
        numa.exchange_ns[cpu as usize] = m.now_ns + EXCHANGE_NS;
        let here = m.topology.node_of[cpu as usize];
        let favourite = numa.favourite(m, task);
        if favourite == Some(here) {
            numa.tasks[task as usize].selected = favourite;
            return;
        }
        let far = |&other: &u32| {
            m.topology.node_of[other as usize] != here
                && m.may_run_on(task, other)
                && numa.orders[other as usize].is_none()
        };
        let gains = m.online.iter().filter(far).filter_map(|other| {
            let mutual = m.may_run_on(m.current(other)?, cpu);
            numa.gain(m, task, here, other).filter(|_| mutual).map(|gain| (gain, other))
        });
        // The first of those that gain most.
        let best = gains.reduce(|best, it| if it.0 > best.0 { it } else { best });
        let node = best.map_or(here, |(_, other)| m.topology.node_of[other as usize]);
        numa.tasks[task as usize].selected = Some(node);
        if let Some((_, other)) = best {
            self.send(m, cpu, other);
            self.send(m, other, cpu);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cfs36::numa::memory::{Fault, Memory};
    use drover_sim::rng::Rng;

    /// Where the only part of a VM's memory lies after faults from these nodes, a pass each.
    fn lies_after(nodes: &[u32]) -> u32 {
        let (mut memory, mut rng) = (Memory::new(1, 3), Rng::new(1));
        memory.fault(&mut rng, 0, |_| None);
        for &node in nodes {
            memory.take_away(0);
            while memory.fault(&mut rng, node, |part| moves(part, node)).is_some() {}
        }
        memory.most().unwrap().0
    }

    #[test]
    fn a_part_goes_where_it_is_used_twice_in_succession_or_first_of_all() {
        assert_eq!(lies_after(&[1]), 1, "the first fault of all");
        assert_eq!(lies_after(&[0, 1]), 0);
        assert_eq!(lies_after(&[0, 1, 2]), 0);
        assert_eq!(lies_after(&[0, 1, 2, 2]), 2);
    }

    #[test]
    fn weights_are_parts_of_all_and_faults_are_forgotten_by_halves() {
        assert_eq!(weight(&[3, 1], 0), Some(750));
        assert_eq!(weight(&[0, 0], 0), None);
        let mut numa =
            Numa { tasks: vec![Faulted { pages: vec![512, 0], ..Faulted::default() }], ..numa() };
        numa.pass = 1;
        numa.note_fault(0, Fault { pages: 1, node: 1, moved: false });
        numa.note_fault(0, Fault { pages: 1, node: 1, moved: false });
        assert_eq!(numa.tasks[0].pages, [256, 2]);
    }

    fn numa() -> Numa {
        let host = drover_scenario::Scenario::parse(
            "name = \"x\"\nhost = { cores = 1 }\n[[vm]]\nname = \"a\"\nvcpus = 1\nworkload = { kind = \"cpu\" }\n",
            "x.toml",
        );
        let topology = drover_sim::topology::Topology::of(&host.unwrap().host);
        let costs = drover_sim::costs::Costs::default();
        Numa::new(super::super::Kind::Auto { slower: 1 }, &Machine::new(topology, costs, 1))
    }
}

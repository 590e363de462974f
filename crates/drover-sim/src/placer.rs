// SPDX-License-Identifier: GPL-2.0-only
//! The daemon's placer in the simulator, and memory that follows.
//!
//! Twice a second [`drover_core::place::Keeper`] is asked for homes, as the daemon asks it, and those are told to
//! the scheduler. A VM's memory lies where the scenario puts it, or where the VM first runs; then it moves to its
//! homes at the daemon's pace, one VM after the other. A VM that is pinned, or whose memory the scenario spreads
//! over several nodes, is left alone, as the daemon leaves alone what others have placed.
//!
//! What a VM has of caches and memory is looked at as often, as it is at that moment.
//!
//! Limitations. The speed model knows memory as lying on some nodes in equal parts: what is on its way counts as
//! half here, half there. To move memory costs no CPU time.

use crate::class::Class;
use crate::sim::{Plan, Sim};
use crate::topology::Topology;
use drover_core::config::Config;
use drover_core::place::{self, Host, INTERVAL, Keeper, Memory, Pressure, Seen, Wishes};

use drover_core::cpu_list::CpuList;
use std::collections::BTreeSet;
use std::time::Duration;

/// A node on which less than that part of its memory lies is none of a VM's.
const COUNTS_PART: f64 = 0.3;

/// What is to be known of a VM that is placed.
#[derive(Debug, Clone, Default)]
pub struct Placed {
    /// As the keeper sees it, but for what changes.
    pub seen: Seen,
    /// Its memory, MiB.
    pub memory_mib: f64,
    /// The nodes on which that lies at first; empty: where it first runs.
    pub nodes: Vec<u32>,
    /// Its partition, by its place among those in which VMs have homes; none: it is in another one.
    pub division: Option<usize>,
}

#[derive(Debug, Default)]
struct Known {
    placed: Placed,
    /// What of its memory lies on each node, MiB; nothing until it first ran.
    lies_mib: Vec<f64>,
    moved_mib: f64,
    wanted_ns: u64,
}

/// Homes of VMs of a simulated host.
#[derive(Debug)]
pub struct Placer {
    host: Host,
    /// Who remembers the homes in each partition, with the host as that has it.
    divisions: Vec<(Host, Keeper)>,
    wishes: Wishes,
    vms: Vec<Known>,
    budget_mib_s: f64,
    looked_ns: u64,
}

impl Placer {
    /// For the VMs of a scenario on that host; the first is VM 0. `divisions`: the pCPUs of each partition in which VMs
    /// have homes.
    pub fn new(
        host: &drover_scenario::Host,
        divisions: &[CpuList],
        vms: Vec<Placed>,
        wishes: Wishes,
    ) -> Self {
        let known = |placed| Known { placed, ..Known::default() };
        let topology = Topology::of(host);
        let division = |cpus: &CpuList| (division_of(host, &topology, cpus), Keeper::default());
        Self {
            host: host_of(host),
            divisions: divisions.iter().map(division).collect(),
            wishes,
            vms: vms.into_iter().map(known).collect(),
            budget_mib_s: f64::from(Config::default().move_mib_per_s()),
            looked_ns: 0,
        }
    }

    /// When it looks again.
    pub fn next_ns(&self) -> u64 {
        self.looked_ns + INTERVAL.as_nanos() as u64
    }

    /// Who remembers the homes of that VM.
    fn keeper_of(&self, id: usize) -> Option<&Keeper> {
        Some(&self.divisions[self.vms.get(id)?.placed.division?].1)
    }

    /// Memory goes to its homes for so long.
    fn move_memory(&mut self, passed_s: f64) {
        let mut budget_mib = self.budget_mib_s * passed_s;
        for (id, vm) in self.vms.iter_mut().enumerate() {
            let Some(division) = vm.placed.division else { continue };
            let nodes = self.divisions[division].1.memory_nodes(id as u64);
            let places = nodes.iter().filter_map(|&node| position(&self.host, node));
            let to: Vec<usize> = places.collect();
            let each_mib = vm.lies_mib.iter().sum::<f64>() / to.len().max(1) as f64;
            for &at in &to {
                let comes_mib = (each_mib - vm.lies_mib[at]).clamp(0.0, budget_mib);
                vm.take_from_elsewhere(at, (&to, each_mib), comes_mib);
                budget_mib -= comes_mib;
            }
        }
    }

    fn seen(&self, id: usize, wanted_pcpus: f64) -> Seen {
        let vm = &self.vms[id];
        let number = |node: usize| self.host.nodes[node].number;
        let lies = vm.lies_mib.iter().enumerate();
        let memory = Memory {
            lies_mib: lies.map(|(node, mib)| (number(node), mib.round() as u64)).collect(),
            expected_mib: vm.placed.memory_mib as u64,
            is_stuck: false,
            local_pct: self.local_pct(id),
        };
        Seen {
            wanted_pcpus: Some(wanted_pcpus),
            memory: (!vm.lies_mib.is_empty()).then_some(memory),
            ..vm.placed.seen.clone()
        }
    }

    /// The part of a VM's memory that lies at home, %.
    fn local_pct(&self, id: usize) -> Option<f64> {
        let vm = &self.vms[id];
        let all_mib: f64 = vm.lies_mib.iter().sum();
        let homes = self.keeper_of(id)?.homes(id as u64);
        let nodes: BTreeSet<u32> = homes.iter().map(|home| home.node).collect();
        let most_mib = all_mib / nodes.len().max(1) as f64;
        let lies = nodes.iter().filter_map(|&node| position(&self.host, node));
        let here: f64 = lies.map(|at| vm.lies_mib[at].min(most_mib)).sum();
        (all_mib > 0.0 && !nodes.is_empty()).then(|| 100.0 * here / all_mib)
    }

    /// The nodes that the VM's memory counts as lying on.
    fn counts_on(&self, id: usize) -> Vec<u32> {
        let lies = &self.vms[id].lies_mib;
        let most = lies.iter().copied().fold(0.0, f64::max);
        let counts =
            lies.iter().enumerate().filter(|(_, mib)| most > 0.0 && **mib >= COUNTS_PART * most);
        counts.map(|(node, _)| self.host.nodes[node].number).collect()
    }

    /// The host as that partition has it, with the memory that nobody has.
    fn host_now(&self, division: usize) -> Host {
        let mut host = self.divisions[division].0.clone();
        for (at, node) in host.nodes.iter_mut().enumerate() {
            let used: f64 = self.vms.iter().filter_map(|vm| vm.lies_mib.get(at)).sum();
            node.free_mib = node.memory_mib.saturating_sub(used as u64);
        }
        host
    }

    /// Tells where the VM is at home, where its memory lies and what was moved.
    pub fn tell(&self, vm: u32, numa: &mut drover_core::counters::Numa) {
        let id = vm as usize;
        let Some(keeper) = self.keeper_of(id) else { return };
        let homes = keeper.homes(id as u64);
        if !homes.is_empty() {
            numa.home = homes.iter().map(|home| home.node).collect();
            numa.local_pct = self.local_pct(id);
            numa.migrations = keeper.migrations(id as u64);
            numa.moved_mib = self.vms[id].moved_mib;
        }
    }
}

impl Known {
    /// Each of its homes is to have so much.
    fn take_from_elsewhere(
        &mut self,
        to: usize,
        (homes, each_mib): (&[usize], f64),
        comes_mib: f64,
    ) {
        let mut rest_mib = comes_mib;
        for (node, lies_mib) in self.lies_mib.iter_mut().enumerate() {
            let stays_mib = if homes.contains(&node) { each_mib } else { 0.0 };
            let part_mib = rest_mib.min((*lies_mib - stays_mib).max(0.0));
            *lies_mib -= part_mib;
            rest_mib -= part_mib;
        }
        self.lies_mib[to] += comes_mib - rest_mib;
        self.moved_mib += comes_mib - rest_mib;
    }
}

impl<C: Class> Sim<C> {
    /// The placer looks, and plans to look again.
    pub(crate) fn look_at_homes(&mut self) {
        let Some(mut placer) = self.placer.take() else { return };
        let passed_s = (self.m.now_ns - placer.looked_ns) as f64 / 1e9;
        placer.looked_ns = self.m.now_ns;
        placer.move_memory(passed_s);
        let mut seen = Vec::new();
        for id in 0..placer.vms.len() {
            let vm = id as u32;
            let wanted_ns = self.class.wanted_ns(&self.m, vm);
            let wanted_ns = wanted_ns - std::mem::replace(&mut placer.vms[id].wanted_ns, wanted_ns);
            if placer.vms[id].lies_mib.is_empty() && wanted_ns > 0 {
                placer.vms[id].lies_mib = self.first_memory(&placer, id);
            }
            let pressure = self.pressure(vm);
            let wanted_pcpus = wanted_ns as f64 / 1e9 / passed_s.max(1e-3);
            let woken = self.class.woken(&self.m, vm, placer.vms.len() as u32);
            seen.push(Seen { pressure, woken, ..placer.seen(id, wanted_pcpus) });
        }
        seen.retain(|vm| vm.memory.is_some());
        let now = Duration::from_nanos(self.m.now_ns);
        for division in 0..placer.divisions.len() {
            let is_its = |vm: &&Seen| placer.vms[vm.id as usize].placed.division == Some(division);
            let its: Vec<Seen> = seen.iter().filter(is_its).cloned().collect();
            let host = placer.host_now(division);
            let keeper = &mut placer.divisions[division].1;
            let (_, changed) = keeper.look(host, &its, &placer.wishes, now);
            for id in changed {
                self.class.set_homes(&mut self.m, id as u32, &keeper.told(id));
            }
        }
        for id in 0..placer.vms.len() {
            let nodes = placer.counts_on(id);
            if !nodes.is_empty() {
                self.set_memory_nodes(id as u32, &nodes);
            }
        }
        self.plan(placer.next_ns(), Plan::Place);
        self.placer = Some(placer);
    }

    /// What the VM has of caches and memory at this moment; nothing is known where the scenario says nothing of speed.
    fn pressure(&self, vm: u32) -> Pressure {
        let now = self.speeds.as_ref().map(|speeds| speeds.pressure(&self.m.topology, vm));
        Pressure { cache_mib: now.map(|it| it.0), memory_mib_s: now.map(|it| it.1) }
    }

    /// Where a VM's memory lies when it first ran: in equal parts on the scenario's nodes, or where it is.
    fn first_memory(&self, placer: &Placer, id: usize) -> Vec<f64> {
        let Placed { memory_mib, nodes, .. } = &placer.vms[id].placed;
        let first =
            self.tasks_of(id as u32).next().map(|task| self.m.tasks[task as usize].last_ran);
        let node = first.and_then(|cpu| self.m.topology.node_of.get(cpu as usize)).copied();
        let nodes = if nodes.is_empty() { node.into_iter().collect() } else { nodes.clone() };
        let mut lies = vec![0.0; placer.host.nodes.len()];
        for at in nodes.iter().filter_map(|&node| position(&placer.host, node)) {
            lies[at] += memory_mib / nodes.len() as f64;
        }
        lies
    }
}

fn position(host: &Host, node: u32) -> Option<usize> {
    host.nodes.iter().position(|it| it.number == node)
}

/// The same with those pCPUs only.
fn division_of(host: &drover_scenario::Host, topology: &Topology, cpus: &CpuList) -> Host {
    let mut all = host_of(host);
    let count = |is_its: &dyn Fn(u32) -> bool| {
        cpus.cpus().iter().filter(|&&cpu| is_its(cpu)).count() as u32
    };
    for node in &mut all.nodes {
        node.pcpus = count(&|cpu| topology.node_of[cpu as usize] == node.number);
        let cores =
            cpus.cpus().iter().filter(|&&cpu| topology.node_of[cpu as usize] == node.number);
        node.cores = cores.map(|cpu| cpu / host.threads).collect::<BTreeSet<_>>().len() as u32;
        for llc in &mut node.llcs {
            llc.pcpus = count(&|cpu| topology.llc_of[cpu as usize] == llc.number);
        }
        node.llcs.retain(|llc| llc.pcpus > 0);
    }
    all
}

/// A scenario's host as the placer sees it.
fn host_of(host: &drover_scenario::Host) -> Host {
    let pcpus = host.pcpus() / host.nodes;
    let llcs = host.llcs();
    let llcs_of_node = (llcs / host.nodes).max(1);
    let llc = |number| place::Llc {
        number,
        pcpus: host.pcpus() / llcs,
        cache_mib: f64::from(host.llc_kib.unwrap_or(0)) / 1024.0,
    };
    let node = |number| place::Node {
        number,
        pcpus,
        cores: pcpus / host.threads,
        llcs: (number * llcs_of_node..(number + 1) * llcs_of_node).map(llc).collect(),
        memory_mib: u64::from(host.memory_mib / host.nodes),
        memory_mib_s: f64::from(host.node_mb_s.unwrap_or(0)) * 1e6 / f64::from(1 << 20),
        ..place::Node::default()
    };
    let row = |from| (0..host.nodes).map(|to| host.distance(from, to)).collect();
    Host {
        nodes: (0..host.nodes).map(node).collect(),
        distances: (0..host.nodes).map(row).collect(),
    }
}

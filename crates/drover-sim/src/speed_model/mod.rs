// SPDX-License-Identifier: GPL-2.0-only
//! How fast a running thread gets on, by what runs beside it.
//!
//! A thread that is alone on the host with its memory near by has speed 1. Others slow it down in three
//! ways: on the other hardware threads of its core ([`smt`]), in its last-level cache ([`cache`]), and at
//! the memory that it uses, which may also be far away ([`memory`]). A thread computes for a while, misses
//! the cache, waits for memory, computes on; so the time that a ms of computing takes is
//!
//! `1 ms + misses per ms * (latency of its memory, as loaded now)`
//!
//! and its speed is that time alone, divided by that time now, times its part of its core. All is a
//! function of who runs where now, worked out anew for those concerned whenever that changes. Work in
//! guests is then the integral of speed over CPU time (crate::guest).
//!
//! Worked example: a host of 100 ns local and 200 ns remote latency, a thread of 10,000 misses a ms with
//! the cache it has. Alone and local a ms of computing takes 1 + 1 ms; with its memory on the other node
//! 1 + 2 ms: speed 2/3. With a sibling on its core and a gain of 120 %: 2/3 * 0.6.

mod cache;
mod memory;
mod smt;

use crate::topology::Topology;
use drover_core::scenario::{Host, Pace};
use memory::{Load, Memory};

/// Full speed; speeds are parts of it.
pub const FULL: u32 = 1 << 16;

/// A VM as the model sees it.
#[derive(Debug)]
struct PacedVm {
    pace: Pace,
    /// The nodes its memory lies on; none until it first runs.
    nodes: Vec<u32>,
    /// How long a ms of computing takes a vCPU that is alone and near its memory, ms.
    alone_ms: f64,
    /// Its misses in each ms then.
    alone_misses: f64,
}

/// How the thread on a pCPU gets on.
#[derive(Debug, Clone, Copy, Default)]
struct Going {
    /// Its VM.
    vm: Option<u32>,
    /// The part of full speed that the other threads of its core leave it.
    core_part: f64,
    /// The cache it has, KiB.
    cache_kib: f64,
    /// Its misses in each ms that it computes.
    misses_per_ms: f64,
    /// What it asks of each node that its memory lies on.
    load: Load,
}

/// The model of one host.
#[derive(Debug)]
pub struct SpeedModel {
    /// None: the host does not say how fast its memory is, and no VM here misses.
    memory: Option<Memory>,
    llc_kib: u32,
    vms: Vec<PacedVm>,
    /// The VM that runs on each pCPU.
    on: Vec<Option<u32>>,
    /// How it gets on there.
    going: Vec<Going>,
    /// pCPUs whose speed may be another, with that speed.
    moved: Vec<(u32, u32)>,
}

impl SpeedModel {
    /// The model of a host on which nobody runs, for the VMs of these paces whose memory lies on
    /// these nodes. None where nothing is said that speed could hang on.
    pub fn of(host: &Host, vms: &[(Pace, Vec<u32>)]) -> Option<Self> {
        if vms.iter().all(|(pace, _)| *pace == Pace::default()) {
            return None;
        }
        let pcpus = host.pcpus() as usize;
        let llc_kib = host.llc_kib.unwrap_or_default();
        let memory = Memory::of(host);
        let paced = |(pace, nodes): &(Pace, Vec<u32>)| {
            let cache_kib = pace.fills_kib(llc_kib).into();
            let (alone_ms, alone_misses) = match &memory {
                Some(memory) if pace.misses_per_ms > 0 => {
                    let misses = pace.misses_with(cache_kib);
                    (memory.alone_ms(pace, misses), misses)
                }
                _ => (1.0, 0.0),
            };
            PacedVm { pace: *pace, nodes: nodes.clone(), alone_ms, alone_misses }
        };
        Some(Self {
            vms: vms.iter().map(paced).collect(),
            memory,
            llc_kib,
            on: vec![None; pcpus],
            going: vec![Going::default(); pcpus],
            moved: Vec::new(),
        })
    }

    /// From now on a thread of that VM runs on the pCPU, or nobody. Returns the pCPUs where speed may
    /// be another from now on, with that speed; each once.
    pub fn runs(&mut self, topology: &Topology, cpu: u32, vm: Option<u32>) -> &[(u32, u32)] {
        self.moved.clear();
        let vm = vm.filter(|&vm| (vm as usize) < self.vms.len());
        if std::mem::replace(&mut self.on[cpu as usize], vm) == vm {
            return &self.moved;
        }
        if let Some(vm) = vm.map(|vm| &mut self.vms[vm as usize]).filter(|vm| vm.nodes.is_empty()) {
            vm.nodes = vec![topology.node_of[cpu as usize]];
        }
        let llc = &topology.llcs[topology.llc_of[cpu as usize] as usize];
        let wanted_kib = llc.iter().filter_map(|cpu| self.pace(cpu)).map(cache::wants_kib).sum();
        for near in llc.iter() {
            self.look(topology, near, wanted_kib);
        }
        let crowded = self.memory.as_mut().is_some_and(Memory::recount);
        // A node that is more or less crowded than before concerns all with memory there.
        for other in 0..self.on.len() as u32 {
            let near = topology.llc_of[other as usize] == topology.llc_of[cpu as usize];
            if self.on[other as usize].is_some() && (near || crowded) {
                self.moved.push((other, self.speed(topology, other)));
            }
        }
        &self.moved
    }

    /// The memory of that VM lies on these nodes from now on. Returns as [`SpeedModel::runs`] does.
    pub fn set_nodes(&mut self, topology: &Topology, vm: u32, nodes: &[u32]) -> &[(u32, u32)] {
        self.moved.clear();
        let pcpus = 0..self.on.len() as u32;
        if self.vms.get(vm as usize).is_none_or(|known| known.nodes == nodes) {
            return &self.moved;
        }
        let runs_here: Vec<u32> =
            pcpus.clone().filter(|&cpu| self.on[cpu as usize] == Some(vm)).collect();
        // What it asks of its old nodes is taken back first.
        for &cpu in &runs_here {
            let load = std::mem::take(&mut self.going[cpu as usize]).load;
            if let Some(memory) = &mut self.memory {
                memory.remove(load, &self.vms[vm as usize].nodes);
            }
        }
        self.vms[vm as usize].nodes = nodes.to_vec();
        for &cpu in &runs_here {
            let llc = &topology.llcs[topology.llc_of[cpu as usize] as usize];
            let wanted_kib =
                llc.iter().filter_map(|cpu| self.pace(cpu)).map(cache::wants_kib).sum();
            self.look(topology, cpu, wanted_kib);
        }
        if let Some(memory) = &mut self.memory {
            memory.recount();
        }
        for cpu in pcpus.filter(|&cpu| self.on[cpu as usize].is_some()) {
            self.moved.push((cpu, self.speed(topology, cpu)));
        }
        &self.moved
    }

    /// How long the thread on that pCPU takes to fill its part of the cache, where it comes from another
    /// cache, ns: nothing but misses, one after the other.
    pub fn warm_up_ns(&self, topology: &Topology, cpu: u32) -> u64 {
        let (Some(vm), Some(memory)) = (self.vm(cpu), &self.memory) else { return 0 };
        if vm.alone_misses == 0.0 {
            return 0;
        }
        let bytes_per_miss = f64::from(vm.pace.lines_per_miss * Pace::LINE_BYTES);
        let misses = self.going[cpu as usize].cache_kib * 1024.0 / bytes_per_miss;
        (misses * memory.loaded_ns(topology.node_of[cpu as usize], &vm.nodes)) as u64
    }

    /// What that VM has of the caches now, MiB, and moves to and from memory, MiB/s; as a host's counters
    /// would have it.
    pub fn pressure(&self, topology: &Topology, vm: u32) -> (f64, f64) {
        let mut sum = (0.0, 0.0);
        for cpu in (0..self.on.len() as u32).filter(|&cpu| self.on[cpu as usize] == Some(vm)) {
            let (paced, going) = (&self.vms[vm as usize], self.going[cpu as usize]);
            let Some(memory) = self.memory.as_ref().filter(|_| paced.alone_misses > 0.0) else {
                continue;
            };
            let latency_ns = memory.loaded_ns(topology.node_of[cpu as usize], &paced.nodes);
            let takes_ms = 1.0 + going.misses_per_ms * latency_ns / 1e6;
            let moves_mb_s = paced.pace.moves_mb_s(going.misses_per_ms / takes_ms);
            sum.0 += going.cache_kib / 1024.0;
            sum.1 += going.core_part * moves_mb_s * 1e6 / f64::from(1 << 20);
        }
        sum
    }

    fn vm(&self, cpu: u32) -> Option<&PacedVm> {
        self.on[cpu as usize].map(|vm| &self.vms[vm as usize])
    }

    fn pace(&self, cpu: u32) -> Option<&Pace> {
        self.vm(cpu).map(|vm| &vm.pace)
    }

    /// Works out anew what the thread of that pCPU has of its core and cache, and asks of its memory.
    fn look(&mut self, topology: &Topology, cpu: u32, wanted_kib: u64) {
        let before = std::mem::take(&mut self.going[cpu as usize]);
        if let (Some(vm), Some(memory)) = (before.vm, &mut self.memory) {
            memory.remove(before.load, &self.vms[vm as usize].nodes);
        }
        let Some(number) = self.on[cpu as usize] else { return };
        let vm = &self.vms[number as usize];
        let busy = topology.siblings(cpu).filter(|&cpu| self.on[cpu as usize].is_some()).count();
        let core_part = smt::part(vm.pace.smt_gain_pct, busy as u32);
        let mut going = Going { vm: Some(number), core_part, ..Going::default() };
        if let Some(memory) = self.memory.as_mut().filter(|_| vm.alone_misses > 0.0) {
            going.cache_kib = cache::share_kib(&vm.pace, wanted_kib, self.llc_kib);
            going.misses_per_ms = vm.pace.misses_with(going.cache_kib);
            let latency_ns = memory.latency_ns(topology.node_of[cpu as usize], &vm.nodes);
            let takes_ms = 1.0 + going.misses_per_ms * latency_ns / 1e6;
            let asks_mb_s = vm.pace.moves_mb_s(going.misses_per_ms / takes_ms) * core_part;
            let waits = going.misses_per_ms * memory.local_ns() / 1e6 / takes_ms;
            going.load = Load::new(asks_mb_s, waits, vm.nodes.len());
            memory.add(going.load, &vm.nodes);
        }
        self.going[cpu as usize] = going;
    }

    /// The speed of the thread there.
    fn speed(&self, topology: &Topology, cpu: u32) -> u32 {
        let (Some(vm), going) = (self.vm(cpu), self.going[cpu as usize]) else { return FULL };
        let slow = match &self.memory {
            Some(memory) if vm.alone_misses > 0.0 => {
                let latency_ns = memory.loaded_ns(topology.node_of[cpu as usize], &vm.nodes);
                vm.alone_ms / (1.0 + going.misses_per_ms * latency_ns / 1e6)
            }
            _ => 1.0,
        };
        // Spread over nodes that are no farther away, memory may even be less crowded than alone.
        let speed = going.core_part * slow.min(1.0);
        ((speed * f64::from(FULL)).round() as u32).clamp(1, FULL)
    }
}

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
//! What it had and lost of a cache before is apart from that: a debt in time that a thread pays when it runs
//! next ([`footprint`]).
//!
//! Worked example: a host of 100 ns local and 200 ns remote latency, a thread of 10,000 misses a ms with
//! the cache it has. Alone and local a ms of computing takes 1 + 1 ms; with its memory on the other node
//! 1 + 2 ms: speed 2/3. With a sibling on its core and a gain of 120 %: 2/3 * 0.6.

mod cache;
mod channel;
mod footprint;
mod memory;
mod routes;
mod smt;

use crate::topology::Topology;
use cache::Cache;
use channel::Load;
use drover_scenario::{Host, Pace};
use footprint::{Footprint, Warming};
use memory::Memory;

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

/// A thread, from when it began on its pCPU.
#[derive(Debug, Clone, Copy)]
struct Stint {
    thread: usize,
    /// From when it works: what it owed is paid.
    since_ns: u64,
    /// What it had of the cache then, KiB.
    from_kib: f64,
}

/// What is known of a thread from its stints.
#[derive(Debug, Clone, Default)]
struct Past {
    /// What it left in each cache.
    footprints: Vec<Footprint>,
    /// Time for its extra misses, which it pays when it runs next.
    owed_ns: u64,
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
    /// ... and in each second that passes, if memory is not crowded.
    misses_per_s: u64,
    /// What it asks of all nodes together that its memory lies on.
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
    stints: Vec<Option<Stint>>,
    /// By number of the thread.
    pasts: Vec<Past>,
    caches: Vec<Cache>,
    /// The speed of each pCPU as last said.
    said: Vec<u32>,
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
            stints: vec![None; pcpus],
            pasts: Vec::new(),
            caches: vec![Cache::new(llc_kib); host.llcs() as usize],
            said: vec![FULL; pcpus],
            moved: Vec::new(),
        })
    }

    /// From now on that thread, of that VM, runs on the pCPU, or nobody. Returns the pCPUs where speed may
    /// be another from now on, with that speed; each once.
    pub fn runs(
        &mut self,
        topology: &Topology,
        now_ns: u64,
        cpu: u32,
        who: Option<(u32, u32)>,
    ) -> &[(u32, u32)] {
        self.moved.clear();
        let who = who.filter(|&(_, vm)| (vm as usize) < self.vms.len());
        self.end_stint(topology, now_ns, cpu);
        let vm = who.map(|(_, vm)| vm);
        if self.on[cpu as usize] != vm {
            self.look_around(topology, now_ns, cpu, vm);
        }
        if let Some((thread, _)) = who {
            self.begin_stint(topology, now_ns, cpu, thread as usize);
        }
        &self.moved
    }

    /// A thread of another VM runs on a pCPU: works out anew what hangs on that.
    fn look_around(&mut self, topology: &Topology, now_ns: u64, cpu: u32, vm: Option<u32>) {
        let cache = topology.llc_of[cpu as usize] as usize;
        let wanted = |model: &Self| model.pace(cpu).map_or(0, cache::wants_kib);
        let before_kib = wanted(self);
        self.on[cpu as usize] = vm;
        if let Some(vm) = vm.map(|vm| &mut self.vms[vm as usize]).filter(|vm| vm.nodes.is_empty()) {
            vm.nodes = vec![topology.node_of[cpu as usize]];
        }
        let after_kib = wanted(self);
        let all_near = self.caches[cache].is_wanted(before_kib, after_kib);
        self.caches[cache].fetched.count_until(now_ns);
        if all_near {
            topology.llcs[cache].iter().for_each(|near| self.look(topology, near));
        } else {
            topology.siblings(cpu).for_each(|near| self.look(topology, near));
        }
        // Whoever has just come is told its speed in any case.
        self.said[cpu as usize] = 0;
        // A channel that is more or less crowded than before concerns all.
        if self.memory.as_mut().is_some_and(Memory::recount) {
            self.say(topology, 0..self.on.len() as u32);
        } else if all_near {
            self.say(topology, topology.llcs[cache].iter());
        } else {
            self.say(topology, topology.siblings(cpu));
        }
    }

    /// Adds those of these pCPUs to the moved whose speed is another.
    fn say(&mut self, topology: &Topology, cpus: impl IntoIterator<Item = u32>) {
        for cpu in cpus {
            if self.on[cpu as usize].is_some() {
                let speed = self.speed(topology, cpu);
                if std::mem::replace(&mut self.said[cpu as usize], speed) != speed {
                    self.moved.push((cpu, speed));
                }
            }
        }
    }

    fn begin_stint(&mut self, topology: &Topology, now_ns: u64, cpu: u32, thread: usize) {
        if self.pasts.len() <= thread {
            self.pasts.resize(thread + 1, Past::default());
        }
        let cache = topology.llc_of[cpu as usize] as usize;
        let past = &self.pasts[thread];
        let left =
            |left: &Footprint| left.left_kib(self.caches[cache].fetched.kib(now_ns), self.llc_kib);
        let from_kib = past.footprints.get(cache).map_or(0.0, left);
        let since_ns = now_ns + past.owed_ns;
        self.stints[cpu as usize] = Some(Stint { thread, since_ns, from_kib });
    }

    /// Whoever runs on that pCPU leaves it: with what it now has of the cache, and owing what that took.
    fn end_stint(&mut self, topology: &Topology, now_ns: u64, cpu: u32) {
        let Some(stint) = self.stints[cpu as usize].take() else { return };
        let (Some(vm), Some(memory)) = (self.vm(cpu), &self.memory) else { return };
        if vm.alone_misses == 0.0 {
            return;
        }
        let going = &self.going[cpu as usize];
        let latency_ns = memory.loaded_ns(topology.node_of[cpu as usize], &vm.nodes);
        let takes_ms = 1.0 + going.misses_per_ms * latency_ns / 1e6;
        let works_ns = now_ns.saturating_sub(stint.since_ns) as f64;
        let computed_ms = works_ns / 1e6 * going.core_part / takes_ms;
        let warming =
            Warming::of(stint.from_kib, going.cache_kib, going.misses_per_ms, computed_ms);
        let cache = topology.llc_of[cpu as usize] as usize;
        let fetched_kib = self.caches[cache].fetched.kib(now_ns);
        let past = &mut self.pasts[stint.thread];
        past.footprints.resize(topology.llcs.len(), Footprint::default());
        past.footprints[cache] = Footprint { kib: warming.kib, fetched_kib };
        // What was not worked off of the last is still owed.
        past.owed_ns = stint.since_ns.saturating_sub(now_ns);
        past.owed_ns += (warming.extra_misses * latency_ns) as u64;
    }

    /// What the thread that has just begun on that pCPU takes before it works: the time for misses it had
    /// more of in its last stint, in a cache that had lost its lines, ns.
    pub fn owed_ns(&self, cpu: u32) -> u64 {
        self.stints[cpu as usize].map_or(0, |stint| self.pasts[stint.thread].owed_ns)
    }

    /// The memory of that VM lies on these nodes from now on. Returns as [`SpeedModel::runs`] does.
    pub fn set_nodes(
        &mut self,
        topology: &Topology,
        now_ns: u64,
        vm: u32,
        nodes: &[u32],
    ) -> &[(u32, u32)] {
        self.moved.clear();
        let pcpus = 0..self.on.len() as u32;
        if self.vms.get(vm as usize).is_none_or(|known| known.nodes == nodes) {
            return &self.moved;
        }
        for cache in &mut self.caches {
            cache.fetched.count_until(now_ns);
        }
        let runs_here: Vec<u32> =
            pcpus.clone().filter(|&cpu| self.on[cpu as usize] == Some(vm)).collect();
        // What it asks of its old nodes is taken back first.
        for &cpu in &runs_here {
            self.forget(topology, cpu);
        }
        self.vms[vm as usize].nodes = nodes.to_vec();
        for &cpu in &runs_here {
            self.look(topology, cpu);
        }
        if let Some(memory) = &mut self.memory {
            memory.recount();
        }
        self.say(topology, pcpus);
        &self.moved
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

    /// Takes back what the thread of that pCPU asks of cache and memory.
    fn forget(&mut self, topology: &Topology, cpu: u32) {
        let before = std::mem::take(&mut self.going[cpu as usize]);
        if let (Some(vm), Some(memory)) = (before.vm, &mut self.memory) {
            let from = topology.node_of[cpu as usize];
            memory.remove(before.load, from, &self.vms[vm as usize].nodes);
        }
        let cache = topology.llc_of[cpu as usize] as usize;
        self.caches[cache].fetched.remove(before.misses_per_s);
    }

    /// Works out anew what the thread of that pCPU has of its core and cache, and asks of its memory.
    fn look(&mut self, topology: &Topology, cpu: u32) {
        self.forget(topology, cpu);
        let Some(number) = self.on[cpu as usize] else { return };
        let vm = &self.vms[number as usize];
        let busy = topology.siblings(cpu).filter(|&cpu| self.on[cpu as usize].is_some()).count();
        let core_part = smt::part(vm.pace.smt_gain_pct, busy as u32);
        let mut going = Going { vm: Some(number), core_part, ..Going::default() };
        if let Some(memory) = self.memory.as_mut().filter(|_| vm.alone_misses > 0.0) {
            let (from, cache) = (topology.node_of[cpu as usize], topology.llc_of[cpu as usize]);
            let cache = &mut self.caches[cache as usize];
            going.cache_kib = cache.share_kib(&vm.pace);
            going.misses_per_ms = vm.pace.misses_with(going.cache_kib);
            let latency_ns = memory.latency_ns(from, &vm.nodes);
            let takes_ms = 1.0 + going.misses_per_ms * latency_ns / 1e6;
            let misses_per_ms = going.misses_per_ms / takes_ms * core_part;
            going.misses_per_s = (misses_per_ms * 1e3) as u64;
            cache.fetched.add(going.misses_per_s);
            let asks_mb_s = vm.pace.moves_mb_s(misses_per_ms);
            let waits = going.misses_per_ms * memory.local_ns() / 1e6 / takes_ms;
            going.load = Load::new(asks_mb_s, waits);
            memory.add(going.load, from, &vm.nodes);
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

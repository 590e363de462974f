// SPDX-License-Identifier: GPL-2.0-only
//! Homes: gives every VM that nobody pinned one or several NUMA homes, tells the scheduler, has its memory
//! follow.
//!
//! The kernel moves no memory of VMs by itself here: its NUMA balancing starts from ticks of its own
//! scheduler. So the daemon looks where the memory of each VM lies (`maps`), asks [`drover_core::place`] for
//! homes, tells the scheduler, which prefers their pCPUs (policy/place/home.h), and moves what lies elsewhere,
//! within a budget (`mover`, on a thread of its own).
//!
//! What others have decided stays: a VM confined to some pCPUs, or whose memory is bound by a policy or a
//! cpuset, is only looked at, and its home is where its pCPUs or its memory are, if that is one node. On
//! a host of one node only homes of one LLC mean anything, and memory is left alone; on one of one LLC there is nothing of
//! all this.
//!
//! What VMs have of caches and memory is measured as the host lets it be (`pressure`, on a thread of its own).
//!
//! Where a QEMU guest has nodes of its own (`guest`), the memory of each goes to the node where its vCPUs are at
//! home. That of other wide VMs is spread evenly over their homes.
//!
//! Partitions of policy `share` are hosts of their own here: a VM is at home on nodes where its partition has pCPUs. Who is
//! in another is where its partition is, and its memory is left alone.
//!
//! When homes change is [`drover_core::place::Keeper`]'s. Where memory turns out not to be movable, home is
//! where that is.

mod guest;
mod host;
mod maps;
mod mover;
pub mod once;
mod os;
mod pressure;

use crate::domains::Domains;
use crate::helper::Helper;
use crate::kernel::{Kernel, KernelVm};
use crate::privileges;
use crate::status::{Advice, NodeStatus, PlannedMove};
use crate::topology::{Topology, free_mib, mems_of};
use drover_core::asked::Consolidate;
use drover_core::counters::Numa as NumaCounters;
use drover_core::cpu_list::CpuList;
use drover_core::place::{
    self, Crowd, HomeNumber, INTERVAL, Keeper, Memory, NamedMove, Pressure, Wishes,
};
use drover_core::sets::Room;
use drover_core::tree::Affinity;
use maps::{Layout, Own};
use mover::{Mover, Report, Target};
use pressure::Gauge;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A VM as it is to be seen here.
#[derive(Debug, Clone)]
pub struct Seen<'a> {
    /// As the kernel saw it last.
    pub kernel: KernelVm,
    /// What it is called.
    pub name: &'a str,
    /// Where its vCPUs may run.
    pub affinity: &'a Affinity,
    /// The pCPUs of its partition that are online.
    pub cpus: &'a CpuList,
    /// CPU time it wanted lately, pCPUs; none: not known yet.
    pub wanted_pcpus: Option<f64>,
    /// What is reserved for it, pCPUs.
    pub reserved_pcpus: f64,
    /// At most so many of its vCPUs on a node.
    pub max_per_node: Option<u32>,
    /// Whether it is to live in one LLC, if it fits.
    pub consolidate: Consolidate,
}

/// A partition in which VMs have homes.
#[derive(Debug, Clone)]
pub struct Division<'a> {
    /// What it is called.
    pub name: &'a str,
    /// Its pCPUs that are online.
    pub cpus: &'a CpuList,
    /// Who is in it.
    pub vms: Vec<Seen<'a>>,
}

/// What the thread that moves and the daemon tell one another.
#[derive(Debug, Default)]
struct State {
    targets: BTreeMap<u64, Target>,
    mib_per_s: u32,
    reports: HashMap<u64, Report>,
    pressures: HashMap<u64, Pressure>,
    stop: bool,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for so long, or until something changes.
    fn wait<'a>(&'a self, state: MutexGuard<'a, State>, wait: Duration) -> MutexGuard<'a, State> {
        self.changed.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Keeps homes.
#[derive(Debug)]
pub struct Numa {
    topology: Topology,
    online: Option<CpuList>,
    looked: Option<Instant>,
    /// Time is counted from here.
    begun: Instant,
    /// Who remembers the homes in each partition, by its name.
    keepers: BTreeMap<String, Keeper>,
    /// What was said of VMs' memory.
    said: HashMap<u64, HashSet<String>>,
    shared: Arc<Shared>,
    /// What pressure is known by.
    measured_by: &'static str,
    threads: Vec<JoinHandle<()>>,
}

impl Numa {
    /// For that host; none where it has but one node and one LLC that can be a home.
    pub(crate) fn start(topology: &Topology, helper: &Arc<Helper>) -> Option<Self> {
        let mut numa = Self::new(topology.clone());
        if numa.is_one_node() {
            let llcs: BTreeSet<_> = topology.pcpus.iter().filter_map(|pcpu| pcpu.llc).collect();
            return (llcs.len() > 1).then_some(numa);
        }
        if let Err(error) = numa.start_threads(helper) {
            tracing::warn!("no thread for it: {error}; VMs have no NUMA homes");
            return None;
        }
        Some(numa)
    }

    fn start_threads(&mut self, helper: &Arc<Helper>) -> std::io::Result<()> {
        let os = os::Linux(Arc::clone(helper));
        self.start_thread("drover-numa", |shared| {
            privileges::confine_thread(&[]);
            work(shared, os);
        })?;
        let gauge = pressure::best(helper);
        self.measured_by = pressure::source(gauge.as_deref());
        tracing::info!("pressure on caches and memory is known by {}", self.measured_by);
        match gauge {
            Some(gauge) => self.start_thread("drover-gauge", |shared| {
                privileges::confine_thread(gauge.writes());
                measure(shared, gauge);
            }),
            None => Ok(()),
        }
    }

    fn start_thread(
        &mut self,
        name: &str,
        work: impl FnOnce(&Shared) + Send + 'static,
    ) -> std::io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name(name.to_owned());
        self.threads.push(thread.spawn(move || work(&shared))?);
        Ok(())
    }

    /// For that host, without the threads that move memory and measure pressure.
    pub(crate) fn new(topology: Topology) -> Self {
        Self {
            topology,
            online: None,
            looked: None,
            begun: Instant::now(),
            keepers: BTreeMap::new(),
            said: HashMap::new(),
            shared: Arc::default(),
            measured_by: pressure::source(None),
            threads: Vec::new(),
        }
    }

    /// Has it no more than one node that can be a home?
    fn is_one_node(&self) -> bool {
        self.topology.nodes.values().filter(|node| node.memory_kib > 0).count() < 2
    }

    /// How fast memory may be moved.
    pub fn set_budget(&mut self, mib_per_s: u32) {
        let mut state = self.shared.lock();
        if std::mem::replace(&mut state.mib_per_s, mib_per_s) != mib_per_s {
            self.shared.changed.notify_all();
        }
    }

    /// Looks at all VMs: who needs a home, who would be better off elsewhere.
    pub fn look(
        &mut self,
        kernel: &dyn Kernel,
        divisions: &[Division],
        (online, domains): (&CpuList, &Domains),
        wishes: &Wishes,
        now: Instant,
    ) {
        if self.looked.is_some_and(|looked| now - looked < INTERVAL) {
            return;
        }
        self.looked = Some(now);
        if self.online.as_ref() != Some(online) {
            self.online = Some(online.clone());
            self.topology = Topology::read().unwrap_or_else(|_| self.topology.clone());
        }
        self.keepers.retain(|name, _| divisions.iter().any(|it| it.name == name));
        for division in divisions {
            let host = self.host(domains, division.cpus);
            for id in self.decide(division, host, wishes, &mems_of, now) {
                let Some(vm) = division.vms.iter().find(|vm| vm.kernel.id == id) else { continue };
                if let Err(error) = kernel.set_home(&vm.kernel, &self.told(id)) {
                    tracing::debug!("VM {}: {error:#}", vm.name);
                }
            }
        }
        let all: Vec<&Seen> = divisions.iter().flat_map(|division| &division.vms).collect();
        self.say(&all);
        self.tell_mover(&all);
    }

    fn host(&self, domains: &Domains, cpus: &CpuList) -> place::Host {
        host::of(&self.topology, domains, cpus, &|node| free_mib(node).unwrap_or(0))
    }

    /// The keeper that knows that VM.
    fn keeper_of(&self, id: u64) -> Option<&Keeper> {
        self.keepers.values().find(|keeper| keeper.knows(id))
    }

    /// What the scheduler is told of its homes.
    fn told(&self, id: u64) -> Vec<HomeNumber> {
        self.keeper_of(id).map_or(Vec::new(), |keeper| keeper.told(id))
    }

    /// The VMs of that partition whose homes change now.
    fn decide(
        &mut self,
        division: &Division,
        host: place::Host,
        wishes: &Wishes,
        mems_of: &dyn Fn(u32) -> Option<Vec<usize>>,
        now: Instant,
    ) -> Vec<u64> {
        let seen = self.all_seen(&division.vms, mems_of);
        let keeper = self.keepers.entry(division.name.to_owned()).or_default();
        let (moves, changed) = keeper.look(host, &seen, wishes, now - self.begun);
        for step in moves {
            let part = match step.part {
                (_, 1) => String::new(),
                (part, parts) => format!(", part {} of {parts}", part + 1),
            };
            tracing::info!("VM {}{part}: home is node {}: {}", step.name, step.to.node, step.why);
        }
        changed
    }

    /// The VMs as the keeper sees them.
    fn all_seen(
        &self,
        vms: &[Seen],
        mems_of: &dyn Fn(u32) -> Option<Vec<usize>>,
    ) -> Vec<place::Seen> {
        let (reports, pressures) = {
            let state = self.shared.lock();
            (state.reports.clone(), state.pressures.clone())
        };
        let seen = |vm: &Seen| place::Seen {
            pressure: pressures.get(&vm.kernel.id).copied().unwrap_or_default(),
            ..self.seen(vm, reports.get(&vm.kernel.id), mems_of)
        };
        vms.iter().map(seen).collect()
    }

    /// What would be moved now, if everybody might leave home.
    pub fn plan(
        &self,
        divisions: &[Division],
        domains: &Domains,
        wishes: &Wishes,
        now: Instant,
    ) -> Vec<PlannedMove> {
        let planned = |step: NamedMove| PlannedMove {
            name: step.name,
            part: step.part.0 + 1,
            parts: step.part.1,
            from: step.from,
            to: step.to,
            why: step.why,
        };
        let moves = divisions.iter().flat_map(|division| {
            let seen = self.all_seen(&division.vms, &mems_of);
            let host = self.host(domains, division.cpus);
            let keeper = self.keepers.get(division.name);
            keeper.map_or(Vec::new(), |it| it.plan(host, &seen, wishes, now - self.begun))
        });
        moves.map(planned).collect()
    }

    /// Nodes of each partition that may be a home, and who lives there.
    pub fn nodes(
        &self,
        divisions: &[Division],
        domains: &Domains,
        now: Instant,
    ) -> Vec<NodeStatus> {
        divisions.iter().flat_map(|division| self.nodes_of(division, domains, now)).collect()
    }

    fn nodes_of(&self, division: &Division, domains: &Domains, now: Instant) -> Vec<NodeStatus> {
        let host = self.host(domains, division.cpus);
        let seen = self.all_seen(&division.vms, &mems_of);
        let none = Keeper::default();
        let keeper = self.keepers.get(division.name).unwrap_or(&none);
        let crowds = keeper.crowds(host.clone(), &seen, now - self.begun);
        let status = |(node, crowd): (&place::Node, Crowd)| NodeStatus {
            node: node.number,
            partition: division.name.to_owned(),
            pcpus: node.pcpus,
            cores: node.cores,
            llcs: node.llcs.len(),
            wanted_pcpus: crowd.wanted_pcpus,
            crowded: crowd.crowded,
            measured_by: self.measured_by.to_owned(),
            memory_mib: node.memory_mib,
            free_mib: node.free_mib,
            vms: crowd.vms.into_iter().map(|vm| division.vms[vm].name.to_owned()).collect(),
        };
        let nodes = host.nodes.iter().zip(crowds);
        nodes.filter(|(node, _)| node.is_a_home()).map(status).collect()
    }

    /// How many homes there are.
    pub fn room(&self, domains: &Domains, cpus: &CpuList) -> Room {
        let host = self.host(domains, cpus);
        Room { nodes: host.homes().count(), llcs: host.homes().map(|node| node.llcs.len()).sum() }
    }

    /// The virtual nodes that this VM should have; none: its memory was not looked at yet, or all is one node's.
    pub fn advise(&self, vm: &Seen, domains: &Domains) -> Option<Advice> {
        if self.is_one_node() {
            return None;
        }
        let seen = self.all_seen(std::slice::from_ref(vm), &mems_of).pop()?;
        let shape = seen.shape(seen.memory.as_ref()?);
        let host = self.host(domains, vm.cpus);
        Some(Advice {
            vcpus: shape.vcpus,
            memory_mib: shape.memory_mib,
            node_cores: host.widest(),
            node_memory_mib: host.homes().map(|node| node.memory_mib).max().unwrap_or(0),
            guest: place::advise(&host, &shape),
        })
    }

    /// What the VM has of caches and memory, where the host counts that.
    pub fn pressure(&self, id: u64) -> Option<Pressure> {
        self.shared.lock().pressures.get(&id).copied()
    }

    /// Why its home is where it is, or why it has none.
    pub fn why(&self, vm: &KernelVm) -> Option<String> {
        self.keeper_of(vm.id)?.why(vm.id).map(str::to_owned)
    }

    /// A VM as the keeper sees it.
    fn seen(
        &self,
        vm: &Seen,
        report: Option<&Report>,
        mems_of: &dyn Fn(u32) -> Option<Vec<usize>>,
    ) -> place::Seen {
        let number = |node: usize| u32::try_from(node).ok();
        let memory = |report: &Report| Memory {
            lies_mib: numbered(report.maps.lies_mib()),
            expected_mib: report.maps.expected_mib(),
            is_stuck: report.is_stuck,
            local_pct: self.local_pct(vm.kernel.id, report),
        };
        // Memory of one node is not looked at.
        let nothing = Report::default();
        let report = report.or(self.is_one_node().then_some(&nothing));
        let others = report.and_then(|report| self.placed_by_others(vm, report, mems_of));
        place::Seen {
            id: vm.kernel.id,
            name: vm.name.to_owned(),
            vcpus: vm.kernel.nr_vcpus,
            wanted_pcpus: vm.wanted_pcpus,
            reserved_pcpus: vm.reserved_pcpus,
            max_per_node: vm.max_per_node,
            virtual_nodes: report.map_or(Vec::new(), virtual_nodes),
            device: report.and_then(|report| number(report.guest.device?)),
            consolidate: vm.consolidate,
            woken: Some(vm.kernel.woken),
            ordered: None,
            on_nodes: self.on_nodes(vm.affinity),
            placed_by_others: others.map(|node| node.and_then(number)),
            memory: report.map(memory),
            pressure: Pressure::default(),
        }
    }

    /// The node of that pCPU.
    fn node_of(&self, cpu: u32) -> Option<usize> {
        self.topology.pcpus.get(cpu as usize).and_then(|pcpu| pcpu.node)
    }

    /// The part of its pCPUs that a confined VM has on each node.
    fn on_nodes(&self, affinity: &Affinity) -> BTreeMap<u32, f64> {
        let nodes = affinity.cpus().filter_map(|cpu| u32::try_from(self.node_of(cpu)?).ok());
        place::parts_on_nodes(&nodes.collect::<Vec<u32>>())
    }

    fn local_pct(&self, id: u64, report: &Report) -> Option<f64> {
        let homes = self.keeper_of(id)?.homes(id);
        let nodes = homes.iter().map(|home| home.node as usize).collect();
        report.maps.local_pct(&Layout { nodes, own: self.own(id, report) })
    }

    /// Memory of the VM's virtual nodes, where that is to lie.
    fn own(&self, id: u64, report: &Report) -> Vec<Own> {
        let keeper = self.keeper_of(id);
        let nodes = keeper.map_or(Vec::new(), |it| it.nodes_of_virtual(id)).into_iter();
        let virtual_nodes = report.guest.nodes.iter().zip(nodes);
        virtual_nodes
            .map(|(it, node)| Own { start: it.start, end: it.end, node: node as usize })
            .collect()
    }

    /// What of memory cannot be looked at, moved or told apart, once.
    fn say(&mut self, vms: &[&Seen]) {
        let state = self.shared.lock();
        self.said.retain(|id, _| state.reports.contains_key(id));
        for vm in vms {
            let Some(report) = state.reports.get(&vm.kernel.id) else { continue };
            let text = match (&report.refused, report.guest.not_followed) {
                (Some(why), _) => format!("its memory cannot be looked at or moved: {why}"),
                _ if report.is_stuck => "what lies elsewhere of its memory cannot be moved (in use \
                    by a device, as with VFIO, or shared with other processes); its home is where most \
                    of it lies"
                    .to_owned(),
                (None, Some(why)) => format!(
                    "its guest has NUMA nodes that are not followed: {why}; where it needs several \
                    nodes, its memory is spread evenly over them"
                ),
                (None, None) => continue,
            };
            if self.said.entry(vm.kernel.id).or_default().insert(text.clone()) {
                tracing::warn!("VM {}: {text}", vm.name);
            }
        }
    }

    /// Where somebody else has put it, if anybody has; none within: on several nodes.
    fn placed_by_others(
        &self,
        vm: &Seen,
        report: &Report,
        mems_of: &dyn Fn(u32) -> Option<Vec<usize>>,
    ) -> Option<Option<usize>> {
        let affinity = vm.affinity.on(vm.cpus);
        if !affinity.is_anywhere() {
            return Some(only(affinity.cpus().map(|cpu| self.node_of(cpu))));
        }
        if self.is_one_node() {
            return None;
        }
        let has_memory = |node: &usize| self.topology.nodes[node].memory_kib > 0;
        let mems = mems_of(vm.kernel.tgid);
        let all = |mems: &Vec<usize>| {
            self.topology.nodes.keys().filter(|node| has_memory(node)).all(|it| mems.contains(it))
        };
        if report.maps.is_bound() || mems.is_some_and(|mems| !all(&mems)) {
            return Some(report.maps.main_node());
        }
        None
    }

    fn tell_mover(&self, vms: &[&Seen]) {
        if self.is_one_node() {
            return;
        }
        let mut state = self.shared.lock();
        let target = |vm: &&Seen| {
            let id = vm.kernel.id;
            let keeper = self.keeper_of(id);
            let nodes = keeper.map_or(Vec::new(), |it| it.memory_nodes(id));
            let nodes = nodes.into_iter().map(|node| node as usize).collect();
            let own = state.reports.get(&id).map_or(Vec::new(), |report| self.own(id, report));
            (id, Target { pid: vm.kernel.tgid, to: Layout { nodes, own } })
        };
        let targets: BTreeMap<u64, Target> = vms.iter().map(target).collect();
        state.reports.retain(|id, _| targets.contains_key(id));
        state.pressures.retain(|id, _| targets.contains_key(id));
        if state.targets != targets {
            state.targets = targets;
            self.shared.changed.notify_all();
        }
    }

    /// What is to be told of that VM.
    #[allow(clippy::cast_precision_loss, reason = "exact up to 104 days")]
    pub fn counters(&self, vm: &KernelVm) -> NumaCounters {
        let state = self.shared.lock();
        let report = state.reports.get(&vm.id);
        let seconds = |ns: u64| ns as f64 / 1e9;
        let keeper = self.keeper_of(vm.id);
        NumaCounters {
            home: keeper
                .map_or(Vec::new(), |it| it.homes(vm.id))
                .iter()
                .map(|it| it.node)
                .collect(),
            local_pct: report.and_then(|report| self.local_pct(vm.id, report)),
            migrations: keeper.map_or(0, |it| it.migrations(vm.id)),
            moved_mib: report.map_or(0.0, |report| report.moved_mib),
            home_s: seconds(vm.home_run_ns),
            ran_s: seconds(vm.vcpu_run_ns + vm.helper_run_ns),
        }
    }
}

impl Drop for Numa {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            // One that panicked has said so.
            let _ = thread.join();
        }
    }
}

/// MiB by the numbers that the placer has for nodes.
fn numbered(mib: BTreeMap<usize, u64>) -> BTreeMap<u32, u64> {
    mib.into_iter().filter_map(|(node, mib)| Some((u32::try_from(node).ok()?, mib))).collect()
}

/// The nodes that its guest has, as the placer sees them.
fn virtual_nodes(report: &Report) -> Vec<place::VirtualNode> {
    let node = |it: &guest::VirtualNode| place::VirtualNode {
        vcpus: it.vcpus,
        memory_mib: (it.end - it.start) >> 20,
        lies_mib: numbered(report.maps.lies_mib_of(it.start)),
    };
    report.guest.nodes.iter().map(node).collect()
}

/// The one node of all of these, if it is one.
fn only(mut nodes: impl Iterator<Item = Option<usize>>) -> Option<usize> {
    let first = nodes.next()??;
    nodes.all(|node| node == Some(first)).then_some(first)
}

/// The thread that looks and moves.
fn work(shared: &Shared, os: os::Linux) {
    let mut mover = Mover::new(os);
    let mut state = shared.lock();
    while !state.stop {
        let (targets, mib_per_s) = (state.targets.clone(), state.mib_per_s);
        drop(state);
        let mut told = Vec::new();
        let note = &mut |id, report| told.push((id, report));
        let wait = mover.step(&targets, mib_per_s, Instant::now(), note);
        state = shared.lock();
        state.reports.extend(told);
        if !wait.is_zero() && !state.stop {
            state = shared.wait(state, wait);
        }
    }
}

/// The thread that measures.
fn measure(shared: &Shared, mut gauge: Box<dyn Gauge>) {
    let mut state = shared.lock();
    while !state.stop {
        let vms: Vec<(u64, u32)> = state.targets.iter().map(|(id, it)| (*id, it.pid)).collect();
        drop(state);
        let begun = Instant::now();
        let pressures = gauge.measure(&vms);
        state = shared.lock();
        state.pressures = pressures;
        while !state.stop && begun.elapsed() < pressure::LOOKS {
            let left = pressure::LOOKS.saturating_sub(begun.elapsed());
            state = shared.wait(state, left);
        }
    }
}

#[cfg(test)]
mod tests;

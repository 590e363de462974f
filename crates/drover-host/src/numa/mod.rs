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
//! a host of one node there is nothing of all this.
//!
//! A VM is given its home a second after it was found, when it has memory to look at. Every 2 s it is asked
//! who would be better off elsewhere; a VM keeps its home for 30 s at least, and nobody moves while the memory
//! of two is on its way. What VMs want is averaged over 10 s or so: demand that swings faster moves nobody.
//! Where memory turns out not to be movable, home is where that is.

mod clients;
mod host;
mod maps;
mod mover;
mod os;

use crate::domains::Domains;
use crate::kernel::Kernel;
use crate::scheduler::KernelVm;
use crate::status::{Advice, NodeStatus, PlannedMove};
use crate::topology::{Topology, free_mib, mems_of};
use clients::{Kept, Survey};
use drover_core::counters::Numa as NumaCounters;
use drover_core::place::{self, Heuristic, Home, HomeNumber};
use drover_core::scenario::CpuList;
use drover_core::sets::{Room, SetSpec};
use drover_core::tree::Affinity;
use mover::{Mover, Report, Target};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often homes are looked at, and how often it is asked who would be better off elsewhere.
const INTERVAL: Duration = Duration::from_millis(500);
const BALANCES: Duration = Duration::from_secs(2);
/// So many VMs leave their homes at once, and nobody while the memory of so many is on its way.
const MOST_MOVES: usize = 2;

/// A VM as it is to be seen here.
#[derive(Debug, Clone)]
pub struct Seen<'a> {
    /// As the kernel saw it last.
    pub kernel: KernelVm,
    /// What it is called.
    pub name: &'a str,
    /// Where its vCPUs may run.
    pub affinity: &'a Affinity,
    /// CPU time it wanted lately, pCPUs; none: not known yet.
    pub wanted_pcpus: Option<f64>,
    /// What is reserved for it, pCPUs.
    pub reserved_pcpus: f64,
    /// At most so many of its vCPUs on a node.
    pub max_per_node: Option<u32>,
    /// It is to live in one LLC, if it fits.
    pub one_llc: bool,
}

/// What is asked of all homes together.
#[derive(Debug, Clone, Default)]
pub struct Wishes {
    /// How homes are chosen.
    pub heuristic: Heuristic,
    /// VMs that belong together or apart; some may not be there.
    pub sets: Vec<SetSpec>,
}

/// What the thread that moves and the daemon tell one another.
#[derive(Debug, Default)]
struct State {
    targets: BTreeMap<u64, Target>,
    mib_per_s: u32,
    reports: HashMap<u64, Report>,
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
}

/// Keeps homes.
#[derive(Debug)]
pub struct Numa {
    topology: Topology,
    online: Option<CpuList>,
    looked: Option<Instant>,
    balanced: Option<Instant>,
    kept: HashMap<u64, Kept>,
    shared: Arc<Shared>,
    mover: Option<JoinHandle<()>>,
}

impl Numa {
    /// For that host; none where it has but one node that can be a home.
    pub fn start(topology: &Topology) -> Option<Self> {
        let can_be = |node: &&usize| topology.nodes[*node].memory_kib > 0;
        if topology.nodes.keys().filter(can_be).count() < 2 {
            return None;
        }
        let mut numa = Self::new(topology.clone());
        let shared = Arc::clone(&numa.shared);
        let thread = std::thread::Builder::new().name("drover-numa".to_owned());
        match thread.spawn(move || work(&shared)) {
            Ok(mover) => numa.mover = Some(mover),
            Err(error) => {
                tracing::warn!("no thread for it: {error}; VMs have no NUMA homes");
                return None;
            }
        }
        Some(numa)
    }

    /// For that host, with nobody who moves memory.
    pub(crate) fn new(topology: Topology) -> Self {
        let (shared, kept) = (Arc::default(), HashMap::new());
        let (online, looked, balanced) = (None, None, None);
        Self { topology, online, looked, balanced, kept, shared, mover: None }
    }

    /// How fast memory may be moved.
    pub fn set_budget(&mut self, mib_per_s: u32) {
        let mut state = self.shared.lock();
        if std::mem::replace(&mut state.mib_per_s, mib_per_s) != mib_per_s {
            self.shared.changed.notify_one();
        }
    }

    /// Looks at all VMs: who needs a home, who would be better off elsewhere.
    pub fn look(
        &mut self,
        kernel: &dyn Kernel,
        vms: &[Seen],
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
        let host = self.host(domains);
        let all: HashMap<u64, &Seen> = vms.iter().map(|vm| (vm.kernel.id, vm)).collect();
        for (id, homes) in self.decide(host, vms, wishes, &mems_of, now) {
            let Some(vm) = all.get(&id) else { continue };
            if let Err(error) = kernel.set_home(&vm.kernel, &homes) {
                tracing::debug!("VM {}: {error:#}", vm.name);
            }
        }
        self.tell_mover(vms);
    }

    /// The homes that change now, by VM: those of all of its parts.
    fn decide(
        &mut self,
        host: place::Host,
        vms: &[Seen],
        wishes: &Wishes,
        mems_of: &dyn Fn(u32) -> Option<Vec<usize>>,
        now: Instant,
    ) -> Vec<(u64, Vec<HomeNumber>)> {
        let reports = self.shared.lock().reports.clone();
        let here: HashSet<u64> = vms.iter().map(|vm| vm.kernel.id).collect();
        self.kept.retain(|id, _| here.contains(id));
        for vm in vms {
            self.kept.entry(vm.kernel.id).or_insert_with(|| Kept::new(now)).note(vm, now);
        }
        let mut changed = Vec::new();
        for vm in vms {
            let Some(report) = reports.get(&vm.kernel.id) else { continue };
            let others = self.placed_by_others(vm, report, mems_of);
            let kept = self.kept.get_mut(&vm.kernel.id).expect("it was entered");
            if kept.is_settled(now) && kept.leave_to_others(others.is_some(), others.flatten()) {
                changed.push(vm.kernel.id);
            }
            kept.say(vm, report);
        }
        let mut survey = Survey::of(host, &self.topology, vms, &reports, &self.kept, wishes, now);
        survey.split_anew(&mut self.kept);
        let most = if self.balances(&reports, now) { MOST_MOVES } else { 0 };
        let (homes, moves) = survey.place(wishes.heuristic, most);
        for (&(id, _), home) in survey.who.iter().zip(&homes) {
            self.kept.get_mut(&id).expect("it was entered").note_home(*home);
        }
        for step in moves {
            let (id, part) = survey.who[step.client];
            let vm = vms.iter().find(|vm| vm.kernel.id == id).expect("it was surveyed");
            let kept = self.kept.get_mut(&id).expect("it was entered");
            let (to, part_text) = (survey.host.number(step.to), kept.part_text(part));
            tracing::info!("VM {}{part_text}: home is node {}: {}", vm.name, to.node, step.why);
            kept.settle((part, step.from.is_some()), to, step.why, now);
            changed.push(id);
        }
        survey.note_crowding(&mut self.kept);
        changed.sort_unstable();
        changed.dedup();
        changed.into_iter().map(|id| (id, self.kept[&id].told())).collect()
    }

    /// Is it time to ask who would be better off elsewhere?
    fn balances(&mut self, reports: &HashMap<u64, Report>, now: Instant) -> bool {
        let on_its_way = self.kept.iter().filter(|(id, kept)| {
            reports.get(id).is_some_and(|report| kept.memory_is_on_its_way(report, now))
        });
        let is_time = self.balanced.is_none_or(|balanced| now - balanced >= BALANCES)
            && on_its_way.count() < MOST_MOVES;
        if is_time {
            self.balanced = Some(now);
        }
        is_time
    }

    /// What would be moved now, if everybody might leave home.
    pub fn plan(
        &self,
        vms: &[Seen],
        domains: &Domains,
        wishes: &Wishes,
        now: Instant,
    ) -> Vec<PlannedMove> {
        let mut survey = self.survey(vms, domains, wishes, now);
        survey.let_all_leave();
        let (_, moves) = survey.place(wishes.heuristic, usize::MAX);
        let name = |id| vms.iter().find(|vm| vm.kernel.id == id).map_or("", |vm| vm.name);
        let planned = moves.into_iter().map(|step| {
            let (id, part) = survey.who[step.client];
            let number = |home: Home| survey.host.number(home);
            PlannedMove {
                name: name(id).to_owned(),
                part: part + 1,
                parts: survey.parts(id),
                from: step.from.map(number),
                to: number(step.to),
                why: step.why,
            }
        });
        planned.collect()
    }

    /// The VMs that were looked at, as things stand.
    fn survey(&self, vms: &[Seen], domains: &Domains, wishes: &Wishes, now: Instant) -> Survey {
        let reports = self.shared.lock().reports.clone();
        let known: Vec<Seen> =
            vms.iter().filter(|vm| self.kept.contains_key(&vm.kernel.id)).cloned().collect();
        Survey::of(self.host(domains), &self.topology, &known, &reports, &self.kept, wishes, now)
    }

    fn host(&self, domains: &Domains) -> place::Host {
        host::of(&self.topology, domains, &|node| free_mib(node).unwrap_or(0))
    }

    /// Nodes that may be a home, and who lives there.
    pub fn nodes(&self, vms: &[Seen], domains: &Domains, now: Instant) -> Vec<NodeStatus> {
        let survey = self.survey(vms, domains, &Wishes::default(), now);
        let lives_on = |vm: &&Seen, node: u32| {
            let kept = self.kept.get(&vm.kernel.id);
            kept.is_some_and(|kept| kept.homes().iter().any(|home| home.node == node))
        };
        let status = |(node, wanted_pcpus): (&place::Node, f64)| NodeStatus {
            node: node.number,
            pcpus: node.pcpus,
            cores: node.cores,
            llcs: node.llcs.len(),
            wanted_pcpus,
            crowded: clients::crowding(wanted_pcpus, f64::from(node.pcpus)),
            memory_mib: node.memory_mib,
            free_mib: node.free_mib,
            vms: (vms.iter().filter(|vm| lives_on(vm, node.number)))
                .map(|vm| vm.name.to_owned())
                .collect(),
        };
        let nodes = survey.host.nodes.iter().zip(survey.wanted_pcpus());
        nodes.filter(|(node, _)| node.is_a_home()).map(status).collect()
    }

    /// How many homes there are.
    pub fn room(&self, domains: &Domains) -> Room {
        let host = self.host(domains);
        Room { nodes: host.homes().count(), llcs: host.homes().map(|node| node.llcs.len()).sum() }
    }

    /// The virtual nodes that this VM should have; none: its memory was not looked at yet.
    pub fn advise(&self, vm: &Seen, domains: &Domains) -> Option<Advice> {
        let shape = clients::shape(vm, self.shared.lock().reports.get(&vm.kernel.id)?);
        let host = self.host(domains);
        Some(Advice {
            vcpus: shape.vcpus,
            memory_mib: shape.memory_mib,
            node_cores: host.widest(),
            node_memory_mib: host.homes().map(|node| node.memory_mib).max().unwrap_or(0),
            guest: place::advise(&host, &shape),
        })
    }

    /// Why its home is where it is, or why it has none.
    pub fn why(&self, vm: &KernelVm) -> Option<String> {
        self.kept.get(&vm.id).and_then(Kept::why)
    }

    /// Where somebody else has put it, if anybody has; none within: on several nodes.
    fn placed_by_others(
        &self,
        vm: &Seen,
        report: &Report,
        mems_of: &dyn Fn(u32) -> Option<Vec<usize>>,
    ) -> Option<Option<usize>> {
        let online = self.online.as_ref();
        let affinity = online.map_or(vm.affinity.clone(), |online| vm.affinity.on(online));
        if !affinity.is_anywhere() {
            let node = |cpu: u32| self.topology.pcpus.get(cpu as usize).and_then(|it| it.node);
            return Some(only(affinity.cpus().map(node)));
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

    fn tell_mover(&self, vms: &[Seen]) {
        let target = |vm: &Seen| {
            let to = self.kept[&vm.kernel.id].memory_nodes();
            (vm.kernel.id, Target { pid: vm.kernel.tgid, to })
        };
        let targets: BTreeMap<u64, Target> = vms.iter().map(target).collect();
        let mut state = self.shared.lock();
        state.reports.retain(|id, _| targets.contains_key(id));
        if state.targets != targets {
            state.targets = targets;
            self.shared.changed.notify_one();
        }
    }

    /// What is to be told of that VM.
    #[allow(clippy::cast_precision_loss, reason = "exact up to 104 days")]
    pub fn counters(&self, vm: &KernelVm) -> NumaCounters {
        let kept = self.kept.get(&vm.id);
        let homes: Vec<u32> =
            kept.map_or(Vec::new(), |kept| kept.homes().iter().map(|home| home.node).collect());
        let nodes: Vec<usize> = homes.iter().map(|&node| node as usize).collect();
        let state = self.shared.lock();
        let report = state.reports.get(&vm.id);
        let seconds = |ns: u64| ns as f64 / 1e9;
        NumaCounters {
            local_pct: report.and_then(|report| report.maps.local_pct(&nodes)),
            home: homes,
            migrations: kept.map_or(0, |kept| kept.migrations),
            moved_mib: report.map_or(0.0, |report| report.moved_mib),
            home_s: seconds(vm.home_run_ns),
            ran_s: seconds(vm.vcpu_run_ns + vm.helper_run_ns),
        }
    }
}

impl Drop for Numa {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.changed.notify_one();
        if let Some(mover) = self.mover.take() {
            // One that panicked has said so.
            let _ = mover.join();
        }
    }
}

/// The one node of all of these, if it is one.
fn only(mut nodes: impl Iterator<Item = Option<usize>>) -> Option<usize> {
    let first = nodes.next()??;
    nodes.all(|node| node == Some(first)).then_some(first)
}

/// The thread that looks and moves.
fn work(shared: &Shared) {
    let mut mover = Mover::new(os::Linux);
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
            let woken = shared.changed.wait_timeout(state, wait);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests;

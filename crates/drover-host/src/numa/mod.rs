// SPDX-License-Identifier: GPL-2.0-only
//! Homes: gives every VM that nobody pinned a NUMA node, tells the scheduler, has its memory follow.
//!
//! The kernel moves no memory of VMs by itself here: its NUMA balancing starts from ticks of its own
//! scheduler. So the daemon looks where the memory of each VM lies (`maps`), chooses a node for it
//! ([`drover_core::home`]), tells the scheduler, which prefers that node's pCPUs (policy/place/home.h), and
//! moves what lies elsewhere, within a budget (`mover`, on a thread of its own).
//!
//! What others have decided stays: a VM confined to some pCPUs, or whose memory is bound by a policy or a
//! cpuset, is only looked at, and its home is where its pCPUs or its memory are, if that is one node. On
//! a host of one node there is nothing of all this.
//!
//! A VM is given its home a second after it was found, when it has memory to look at. A home is asked
//! again every 30 s, and one VM at a time may leave it; where memory turns out not to be movable, home is
//! where that is.

mod maps;
mod mover;
mod os;

use crate::kernel::Kernel;
use crate::scheduler::KernelVm;
use crate::topology::{Topology, free_mib, mems_of};
use drover_core::counters::Numa as NumaCounters;
use drover_core::home::{Node, Seeker, better, choose};
use drover_core::scenario::CpuList;
use drover_core::tree::Affinity;
use mover::{Mover, Report, Target};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often homes are looked at.
const INTERVAL: Duration = Duration::from_millis(500);
/// How old a VM is before it is given a home.
const SETTLES: Duration = Duration::from_secs(1);
/// Until it is so old, it is taken to want all of its vCPUs.
const YOUNG: Duration = Duration::from_secs(10);
/// How long a VM keeps its home at least, and the host the homes of all others.
const KEEPS: Duration = Duration::from_secs(30);

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
}

/// What is known of a VM.
#[derive(Debug)]
struct Kept {
    since: Instant,
    /// Its home, and since when.
    home: Option<(usize, Instant)>,
    /// It is where it was put by others: nothing is moved.
    is_left_alone: bool,
    /// What was said of it.
    said: Option<String>,
}

/// What VMs are to the nodes.
#[derive(Debug, Clone, Default)]
struct Load {
    nodes: BTreeMap<usize, OnNode>,
}

/// What VMs are to one node.
#[derive(Debug, Clone, Copy, Default)]
struct OnNode {
    /// CPU time that is wanted there, millionths of a pCPU: what is taken from a sum leaves the others exactly.
    wanted_ucpu: u64,
    /// Memory that is to come there.
    promised_mib: u64,
}

impl Load {
    fn on(&self, node: usize) -> OnNode {
        self.nodes.get(&node).copied().unwrap_or_default()
    }

    fn add(&mut self, other: &Self) {
        for (node, on) in &other.nodes {
            let own = self.nodes.entry(*node).or_default();
            own.wanted_ucpu += on.wanted_ucpu;
            own.promised_mib += on.promised_mib;
        }
    }

    fn take(&mut self, other: &Self) {
        for (node, on) in &other.nodes {
            let own = self.nodes.entry(*node).or_default();
            own.wanted_ucpu = own.wanted_ucpu.saturating_sub(on.wanted_ucpu);
            own.promised_mib = own.promised_mib.saturating_sub(on.promised_mib);
        }
    }
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
    /// When any VM last left its home.
    left: Option<Instant>,
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

    fn new(topology: Topology) -> Self {
        let shared = Arc::default();
        let (kept, online, looked, left) = (HashMap::new(), None, None, None);
        Self { topology, online, looked, left, kept, shared, mover: None }
    }

    /// How fast memory may be moved.
    pub fn set_budget(&mut self, mib_per_s: u32) {
        let mut state = self.shared.lock();
        if std::mem::replace(&mut state.mib_per_s, mib_per_s) != mib_per_s {
            self.shared.changed.notify_one();
        }
    }

    /// Looks at all VMs: who needs a home, who would be better off elsewhere.
    pub fn look(&mut self, kernel: &dyn Kernel, vms: &[Seen], online: &CpuList, now: Instant) {
        if self.looked.is_some_and(|looked| now - looked < INTERVAL) {
            return;
        }
        self.looked = Some(now);
        if self.online.as_ref() != Some(online) {
            self.online = Some(online.clone());
            self.topology = Topology::read().unwrap_or_else(|_| self.topology.clone());
        }
        let free = |node: usize| free_mib(node).unwrap_or(0);
        let all: HashMap<u64, &Seen> = vms.iter().map(|vm| (vm.kernel.id, vm)).collect();
        for (id, home) in self.decide(vms, &free, &mems_of, now) {
            let Some(vm) = all.get(&id) else { continue };
            let home = home.and_then(|node| u32::try_from(node).ok());
            if let Err(error) = kernel.set_home(&vm.kernel, home) {
                tracing::debug!("VM {}: {error:#}", vm.name);
            }
        }
        self.tell_mover(vms);
    }

    /// The homes that change now.
    fn decide(
        &mut self,
        vms: &[Seen],
        free_mib: &dyn Fn(usize) -> u64,
        mems_of: &dyn Fn(u32) -> Option<Vec<usize>>,
        now: Instant,
    ) -> Vec<(u64, Option<usize>)> {
        let reports = self.shared.lock().reports.clone();
        let here: HashSet<u64> = vms.iter().map(|vm| vm.kernel.id).collect();
        self.kept.retain(|id, _| here.contains(id));
        for vm in vms {
            self.kept.entry(vm.kernel.id).or_insert(Kept {
                since: now,
                home: None,
                is_left_alone: false,
                said: None,
            });
        }
        let mut load = self.load(vms, &reports, now);
        let mut changes = Vec::new();
        for vm in vms {
            let Some(report) = reports.get(&vm.kernel.id) else { continue };
            let kept = &self.kept[&vm.kernel.id];
            if now - kept.since < SETTLES {
                continue;
            }
            let before = (kept.home.map(|(home, _)| home), kept.is_left_alone);
            let after = match self.placed_by_others(vm, report, mems_of) {
                Some(home) => (home, true),
                None => (self.home_for(vm, &load, report, free_mib, now), false),
            };
            if before != after {
                if before.0.is_some() && before.0 != after.0 {
                    self.left = Some(now);
                }
                load.take(&self.load_of(vm, Some(report), now));
                self.settle(vm, report, after, now);
                load.add(&self.load_of(vm, Some(report), now));
                changes.push((vm.kernel.id, after.0.filter(|_| !after.1)));
            }
            self.say(vm, report);
        }
        changes
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

    fn home_for(
        &self,
        vm: &Seen,
        load: &Load,
        report: &Report,
        free_mib: &dyn Fn(usize) -> u64,
        now: Instant,
    ) -> Option<usize> {
        let kept = &self.kept[&vm.kernel.id];
        let home = kept.home.filter(|_| !kept.is_left_alone);
        let is_fresh = |since: Instant| now - since < KEEPS;
        let rests =
            home.is_some_and(|(_, since)| is_fresh(since)) || self.left.is_some_and(is_fresh);
        if report.is_stuck && report.refused.is_none() {
            // It goes to its memory.
            return report.maps.lies_mib().into_iter().max_by_key(|&(_, mib)| mib).map(|it| it.0);
        }
        if let (Some((home, _)), true) = (home, rests) {
            return Some(home);
        }
        let numbers: Vec<usize> = self.topology.nodes.keys().copied().collect();
        let mut others = load.clone();
        others.take(&self.load_of(vm, Some(report), now));
        let node = |&number: &usize| self.node(number, &others, free_mib);
        let nodes: Vec<Node> = numbers.iter().map(node).collect();
        let lies = report.maps.lies_mib();
        let seeker = Seeker {
            wanted_pcpus: self.wants(vm, now),
            memory_mib: report.maps.expected_mib(),
            lies_mib: numbers.iter().map(|node| lies.get(node).copied().unwrap_or(0)).collect(),
        };
        match home {
            None => choose(&nodes, &seeker).map(|place| numbers[place]),
            Some((home, _)) => {
                let at = numbers.iter().position(|&node| node == home);
                let moves = at.and_then(|at| better(&nodes, &seeker, at));
                Some(moves.map_or(home, |place| numbers[place]))
            }
        }
    }

    /// A node as a VM sees it beside others that are such a load.
    fn node(&self, number: usize, others: &Load, free_mib: &dyn Fn(usize) -> u64) -> Node {
        let pcpus = self.topology.count(|pcpu| pcpu.online && pcpu.node == Some(number));
        let OnNode { wanted_ucpu, promised_mib } = others.on(number);
        Node {
            pcpus: u32::try_from(pcpus).unwrap_or(u32::MAX),
            wanted_pcpus: wanted_ucpu as f64 / 1e6,
            memory_mib: self.topology.nodes[&number].memory_kib >> 10,
            free_mib: free_mib(number).saturating_sub(promised_mib),
        }
    }

    /// What all VMs are to the nodes.
    fn load(&self, vms: &[Seen], reports: &HashMap<u64, Report>, now: Instant) -> Load {
        let mut load = Load::default();
        for vm in vms {
            load.add(&self.load_of(vm, reports.get(&vm.kernel.id), now));
        }
        load
    }

    /// What one VM is to the nodes.
    fn load_of(&self, vm: &Seen, report: Option<&Report>, now: Instant) -> Load {
        let kept = &self.kept[&vm.kernel.id];
        let wants = self.wants(vm, now);
        let on = |&number: &usize| {
            let comes = match (kept.home, report) {
                (Some((home, _)), Some(report)) if home == number && !kept.is_left_alone => {
                    let here = report.maps.lies_mib().get(&home).copied().unwrap_or(0);
                    report.maps.expected_mib().saturating_sub(here)
                }
                _ => 0,
            };
            let wanted_ucpu = (wants * self.part_on(number, vm) * 1e6).round() as u64;
            (number, OnNode { wanted_ucpu, promised_mib: comes })
        };
        Load { nodes: self.topology.nodes.keys().map(on).collect() }
    }

    /// What it wants, pCPUs.
    fn wants(&self, vm: &Seen, now: Instant) -> f64 {
        let all = f64::from(vm.kernel.nr_vcpus);
        let is_young = now - self.kept[&vm.kernel.id].since < YOUNG;
        vm.wanted_pcpus.filter(|_| !is_young).map_or(all, |wanted| wanted.min(all))
    }

    /// The part of what a VM wants that it wants there.
    #[allow(clippy::cast_precision_loss, reason = "there are not so many pCPUs")]
    fn part_on(&self, number: usize, vm: &Seen) -> f64 {
        if let Some((home, _)) = self.kept[&vm.kernel.id].home {
            return if home == number { 1.0 } else { 0.0 };
        }
        let is_there =
            |cpu: usize| self.topology.pcpus.get(cpu).is_some_and(|it| it.node == Some(number));
        let mut cpus: Vec<usize> = vm.affinity.cpus().map(|cpu| cpu as usize).collect();
        if cpus.is_empty() {
            cpus = (0..self.topology.pcpus.len())
                .filter(|&cpu| self.topology.pcpus[cpu].online)
                .collect();
        }
        cpus.iter().filter(|&&cpu| is_there(cpu)).count() as f64 / cpus.len().max(1) as f64
    }

    /// From now on that is its home.
    fn settle(
        &mut self,
        vm: &Seen,
        report: &Report,
        (home, is_left_alone): (Option<usize>, bool),
        now: Instant,
    ) {
        let kept = self.kept.get_mut(&vm.kernel.id).expect("it was entered");
        let same = kept.home.filter(|(before, _)| Some(*before) == home);
        kept.home = same.or(home.map(|home| (home, now)));
        kept.is_left_alone = is_left_alone;
        match home {
            Some(home) if !is_left_alone => {
                let lies = report.maps.lies_mib();
                let (there, all) = (lies.get(&home).unwrap_or(&0), lies.values().sum::<u64>());
                tracing::info!(
                    "VM {}: node {home} is its home, {there} MiB of {all} MiB lie there",
                    vm.name
                );
            }
            _ => tracing::debug!("VM {}: no home is chosen for it", vm.name),
        }
    }

    /// What cannot be moved, once.
    fn say(&mut self, vm: &Seen, report: &Report) {
        let kept = self.kept.get_mut(&vm.kernel.id).expect("it was entered");
        let text = match &report.refused {
            Some(why) => {
                Some(format!("VM {}: its memory cannot be looked at or moved: {why}", vm.name))
            }
            None if report.is_stuck => Some(format!(
                "VM {}: what lies elsewhere of its memory cannot be moved (in use by a device, as with \
                 VFIO, or shared with other processes); its home is where most of it lies",
                vm.name
            )),
            None => None,
        };
        if let Some(text) = text.filter(|text| kept.said.as_ref() != Some(text)) {
            tracing::warn!("{text}");
            kept.said = Some(text);
        }
    }

    fn tell_mover(&self, vms: &[Seen]) {
        let target = |vm: &Seen| {
            let kept = &self.kept[&vm.kernel.id];
            let to = kept.home.filter(|_| !kept.is_left_alone).map(|(home, _)| home);
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
        let home = self.kept.get(&vm.id).and_then(|kept| kept.home).map(|(home, _)| home);
        let state = self.shared.lock();
        let report = state.reports.get(&vm.id);
        let seconds = |ns: u64| ns as f64 / 1e9;
        NumaCounters {
            home: home.and_then(|home| u32::try_from(home).ok()),
            local_pct: home.and_then(|home| report?.maps.local_pct(home)),
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
mod tests {
    use super::*;
    use crate::topology::tests::Host;
    use maps::Maps;

    /// Two nodes of two pCPUs; others as sysfs has them.
    fn numa(nodes: &[(&str, u64)]) -> Numa {
        let host = Host::new("0-3", "0-3", "0-3");
        for (number, (cpus, memory_kib)) in nodes.iter().enumerate() {
            host.node(number, cpus, *memory_kib, "10 20");
        }
        Numa::new(host.read())
    }

    fn two_nodes() -> Numa {
        numa(&[("0-1", 4 << 20), ("2-3", 4 << 20)])
    }

    /// A VM of so many vCPUs with that memory.
    struct One(KernelVm, Affinity, Option<f64>);

    impl One {
        fn new(id: u64, nr_vcpus: u32) -> Self {
            let kernel = KernelVm { nr_vcpus, ..KernelVm::for_test(id) };
            Self(kernel, Affinity::ANYWHERE, None)
        }

        fn pinned(id: u64, nr_vcpus: u32, cpus: &str) -> Self {
            Self(One::new(id, nr_vcpus).0, Affinity::within(cpus.parse().unwrap()), None)
        }
    }

    fn report(policy: &str, mib: [u64; 2]) -> Report {
        let maps = "10000000-20000000 rw-p 0";
        let [a, b] = mib.map(|mib| mib * 256);
        let numa = format!("10000000 {policy} anon=1 N0={a} N1={b}");
        Report { maps: Maps::of(maps, &numa), ..Report::default() }
    }

    fn decide(numa: &mut Numa, ones: &[One], now: Instant) -> Vec<(u64, Option<usize>)> {
        let seen: Vec<Seen> = ones
            .iter()
            .map(|One(kernel, affinity, wanted_pcpus)| Seen {
                kernel: *kernel,
                name: "vm",
                affinity,
                wanted_pcpus: *wanted_pcpus,
            })
            .collect();
        let changes = numa.decide(&seen, &|_| 1000, &|_| None, now);
        numa.tell_mover(&seen);
        changes
    }

    fn told(numa: &Numa, id: u64, report: Report) {
        numa.shared.lock().reports.insert(id, report);
    }

    #[test]
    fn a_vm_on_a_full_node_is_given_the_other_and_its_memory_goes_there() {
        let (mut numa, begun) = (two_nodes(), Instant::now());
        let ones = [One::pinned(1, 2, "0-1"), One::new(2, 1)];
        told(&numa, 1, report("default", [100, 0]));
        told(&numa, 2, report("prefer:0", [64, 0]));
        assert!(decide(&mut numa, &ones, begun).is_empty(), "they have just begun");
        let changes = decide(&mut numa, &ones, begun + SETTLES);
        assert_eq!(changes, [(1, None), (2, Some(1))], "who is pinned is left alone");
        let targets = numa.shared.lock().targets.clone();
        assert_eq!((targets[&1].to, targets[&2].to), (None, Some(1)));
        assert_eq!(numa.counters(&ones[0].0).home, Some(0), "and its home is told");
        assert!(decide(&mut numa, &ones, begun + 2 * SETTLES).is_empty());
    }

    #[test]
    fn what_others_have_decided_stays() {
        let (mut numa, begun) = (two_nodes(), Instant::now());
        let ones = [One::new(1, 1), One::new(2, 1), One::pinned(3, 2, "1-2")];
        told(&numa, 1, report("bind:1", [0, 64]));
        told(&numa, 2, report("interleave:0-1", [64, 64]));
        told(&numa, 3, report("default", [64, 0]));
        decide(&mut numa, &ones, begun);
        let changes = decide(&mut numa, &ones, begun + SETTLES);
        assert_eq!(changes, [(1, None), (2, None), (3, None)]);
        let homes = ones.map(|one| numa.counters(&one.0).home);
        assert_eq!(homes, [Some(1), None, None]);
    }

    #[test]
    fn two_that_start_at_once_are_not_promised_the_same_memory() {
        let (mut numa, begun) = (two_nodes(), Instant::now());
        let ones = [One::new(1, 1), One::new(2, 1)];
        // 700 MiB each will be theirs, and 1000 are free on each node.
        let large = |_| {
            let maps = format!("10000000-{:x} rw-p 0", 0x1000_0000 + (700u64 << 20));
            Report { maps: Maps::of(&maps, "10000000 default anon=1 N0=256"), ..Report::default() }
        };
        [1, 2].iter().for_each(|&id| told(&numa, id, large(id)));
        decide(&mut numa, &ones, begun);
        let changes = decide(&mut numa, &ones, begun + SETTLES);
        assert_eq!(changes, [(1, Some(0)), (2, Some(1))]);
    }

    /// Two VMs whose load changes all the time, to provoke them.
    #[test]
    fn homes_are_left_seldom_and_one_at_a_time() {
        let (mut numa, begun) = (two_nodes(), Instant::now());
        let mut ones =
            [One::pinned(1, 2, "0-1"), One::pinned(2, 2, "2-3"), One::new(3, 1), One::new(4, 1)];
        (1..=4).for_each(|id| told(&numa, id, report("default", [8, 8])));
        let mut moves = 0;
        for tick in 0..600u64 {
            let swings = tick % 20 < 10;
            ones[0].2 = Some(if swings { 2.0 } else { 0.0 });
            ones[1].2 = Some(if swings { 0.0 } else { 2.0 });
            (ones[2].2, ones[3].2) = (Some(1.0), Some(1.0));
            let changes = decide(&mut numa, &ones, begun + INTERVAL * u32::try_from(tick).unwrap());
            moves += changes.iter().filter(|(id, _)| *id > 2).count();
            assert!(tick < 10 || changes.len() <= 1, "{changes:?}");
        }
        // 300 s: two choices at first, and one more each 30 s at most.
        assert!((2..=12).contains(&moves), "{moves}");
    }

    #[test]
    fn with_memory_that_cannot_move_home_is_where_that_is() {
        let (mut numa, begun) = (two_nodes(), Instant::now());
        let ones = [One::pinned(1, 2, "0-1"), One::new(2, 1)];
        told(&numa, 1, report("default", [8, 0]));
        told(&numa, 2, report("default", [64, 0]));
        decide(&mut numa, &ones, begun);
        decide(&mut numa, &ones, begun + SETTLES);
        assert_eq!(numa.counters(&ones[1].0).home, Some(1));
        told(&numa, 2, Report { is_stuck: true, ..report("default", [64, 0]) });
        assert_eq!(decide(&mut numa, &ones, begun + 2 * SETTLES), [(2, Some(0))]);
        assert!(numa.kept[&2].said.as_ref().unwrap().contains("cannot be moved"));
        assert!(decide(&mut numa, &ones, begun + 3 * SETTLES).is_empty());
    }

    #[test]
    fn nodes_without_pcpus_or_memory_are_nobodys_home() {
        let mut numa = numa(&[("0-3", 4 << 20), ("", 4 << 20)]);
        let begun = Instant::now();
        let ones = [One::new(1, 1)];
        told(&numa, 1, report("default", [0, 64]));
        decide(&mut numa, &ones, begun);
        assert_eq!(decide(&mut numa, &ones, begun + SETTLES), [(1, Some(0))]);
        let host = Host::new("0-1", "0-1", "0-1");
        host.node(0, "0", 9 << 10, "10 20").node(1, "1", 0, "20 10");
        assert!(Numa::start(&host.read()).is_none(), "one node has memory");
    }
}

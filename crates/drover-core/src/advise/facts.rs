// SPDX-License-Identifier: GPL-2.0-only
//! What is known of a host and its VMs, from a recording.

use crate::cpu_list::CpuList;
use crate::profile::Evidence;
use crate::recording::{Event, History, What, replay, who_ran_meanwhile};
use crate::recording_file::{Recording, VmSetup};
use crate::tree::pcpus::Siblings;
use crate::why::Who;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A recording that is shorter says nothing, ns.
const LEAST_NS: u64 = 500_000_000;
/// More vCPUs at once than those are wanted for less of the time.
const RARE: f64 = 0.01;
/// A VM that had so much of its limit was held by it.
const AT_LIMIT: f64 = 0.8;

/// What is known of a host.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Facts {
    /// How long it was recorded, s.
    pub window_s: f64,
    /// The scheduler in charge; none: the kernel's own.
    pub scheduler: Option<String>,
    /// Its pCPUs that are online, in the order that a scenario has them.
    pub pcpus: Vec<PcpuFacts>,
    /// The memory of its nodes, MiB.
    pub nodes_mib: BTreeMap<u32, u64>,
    /// How far each node is from each.
    pub node_distances: Vec<Vec<u32>>,
    /// See [`crate::recording_file::Setup::pause_exits`].
    pub pause_exits: Option<bool>,
    /// See [`crate::recording_file::Setup::huge_pages`].
    pub huge_pages: Option<String>,
    /// Its VMs, in the order that a scenario has them.
    pub vms: Vec<VmFacts>,
}

/// What is known of a pCPU.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct PcpuFacts {
    /// Its number.
    pub pcpu: u32,
    /// Its core, by the lowest pCPU there.
    pub core: u32,
    /// Its NUMA node.
    pub node: u32,
    /// The part of the time for which it was busy.
    pub busy: f64,
}

/// What is known of a VM.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct VmFacts {
    /// Its name.
    pub name: String,
    /// Its process.
    pub pid: u32,
    /// libvirt's name of it, where that manages it.
    pub domain: Option<String>,
    /// Its cgroup.
    pub cgroup: String,
    /// Its vCPUs.
    pub vcpus: Vec<VcpuFacts>,
    /// No more vCPUs than so many wanted to run at once, but for 1 % of the time.
    pub at_once: u32,
    /// Its other threads.
    pub helpers: Vec<u32>,
    /// What these ran, pCPUs.
    pub helpers_ran: f64,
    /// Where these may run.
    pub helper_pins: Option<CpuList>,
    /// What these ran where its vCPUs were ready, pCPUs.
    pub kept_by_helpers: f64,
    /// What its vCPUs ran on each node, pCPUs.
    pub ran_on: BTreeMap<u32, f64>,
    /// Shares that were set.
    pub shares: Option<u32>,
    /// What is promised to it, thousandths of a pCPU.
    pub reservation_mcpu: Option<u32>,
    /// The most CPU it may have, thousandths of a pCPU.
    pub limit_mcpu: Option<u32>,
    /// The most CPU its cgroup may have, other threads counted, thousandths of a pCPU.
    pub quota_mcpu: Option<u32>,
    /// Its pool.
    pub pool: Option<String>,
    /// Its partition, where it is in another than `default`.
    pub partition: Option<String>,
    /// What was asked for it and cannot be.
    pub troubles: Vec<String>,
    /// What of its memory lies on each node, MiB.
    pub memory_mib: BTreeMap<u32, u64>,
    /// What of it is on huge pages, MiB.
    pub huge_mib: Option<u64>,
    /// Whether its guest has nodes.
    pub knows_nodes: Option<bool>,
    /// How many of its vCPUs have a core-scheduling cookie.
    pub cookies: u32,
    /// What kind of work it does.
    pub evidence: Evidence,
}

/// What is known of a vCPU.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct VcpuFacts {
    /// Its thread.
    pub thread: u32,
    /// What of the time it ran.
    pub ran: f64,
    /// What of the time it was ready and did not run.
    pub ready: f64,
    /// Where it may run; none: not known.
    pub pin: Option<CpuList>,
}

impl VmFacts {
    /// What its vCPUs ran, pCPUs.
    pub fn ran(&self) -> f64 {
        self.vcpus.iter().map(|vcpu| vcpu.ran).sum()
    }

    /// What they were ready for, pCPUs.
    pub fn ready(&self) -> f64 {
        self.vcpus.iter().map(|vcpu| vcpu.ready).sum()
    }

    /// What all its vCPUs can use, thousandths of a pCPU.
    pub(super) fn all_mcpu(&self) -> u32 {
        u32::try_from(1000 * self.vcpus.len()).unwrap_or(u32::MAX)
    }

    /// Whether it had what a limit allows it.
    pub(super) fn is_at_limit(&self) -> bool {
        let has = |mcpu: &u32| self.ran() >= AT_LIMIT * f64::from(*mcpu) / 1e3;
        self.limit_mcpu.iter().chain(&self.quota_mcpu).any(has)
    }
}

impl Facts {
    /// What that recording tells.
    ///
    /// # Errors
    /// In one line, when it is too short, or there is no VM in it.
    pub fn of(recording: &Recording) -> Result<Self, String> {
        let from_ns = recording.head.from_ns;
        let last_ns = recording.events.iter().map(|event| event.at_ns).max().unwrap_or(from_ns);
        if last_ns < from_ns + LEAST_NS {
            let ms = last_ns.saturating_sub(from_ns) / 1_000_000;
            return Err(format!("it has {ms} ms of events: record for some seconds"));
        }
        let setup =
            recording.setup.as_ref().ok_or("it says nothing of the host: record it anew")?;
        let mut events = recording.events.clone();
        events.sort_by_key(|event| event.at_ns);
        let people = People::of(recording);
        if people.vms.is_empty() {
            return Err("no VM ran while it was recorded".to_owned());
        }
        let window = (from_ns, last_ns);
        let history = replay(&events, window, |thread| people.vcpu(thread).is_some());
        let mut facts = Self {
            window_s: (last_ns - from_ns) as f64 / 1e9,
            scheduler: recording.head.scheduler.clone(),
            nodes_mib: setup.nodes_mib.clone(),
            node_distances: setup.node_distances.clone(),
            pause_exits: setup.pause_exits,
            huge_pages: setup.huge_pages.clone(),
            ..Self::default()
        };
        let mut pcpus = setup.pcpus.clone();
        pcpus.sort_unstable_by_key(|it| (it.node, it.llc, it.core, it.pcpu));
        facts.pcpus = pcpus
            .iter()
            .map(|it| PcpuFacts { pcpu: it.pcpu, core: it.core, node: it.node, busy: 0.0 })
            .collect();
        facts.vms = people.vms.clone();
        for vm in &mut facts.vms {
            if let Some(set) = setup.vms.iter().find(|it| it.vm == vm.pid) {
                vm.set(set);
            }
        }
        facts.count(&history, &people);
        facts.meet(&history, &people);
        facts.work(&events, from_ns, &people);
        Ok(facts)
    }

    /// Adds up the time that threads ran and waited.
    fn count(&mut self, history: &History, people: &People) {
        let part = |ns: u64| ns as f64 / 1e9 / self.window_s;
        let place: HashMap<u32, usize> =
            self.pcpus.iter().enumerate().map(|(at, it)| (it.pcpu, at)).collect();
        for ran in history.ran.iter().filter(|ran| ran.thread != 0) {
            let took = part(ran.to_ns - ran.from_ns);
            let Some(&at) = place.get(&ran.pcpu) else { continue };
            self.pcpus[at].busy += took;
            let node = self.pcpus[at].node;
            match people.of.get(&ran.thread) {
                Some(&(vm, Some(vcpu))) => {
                    self.vms[vm].vcpus[vcpu].ran += took;
                    *self.vms[vm].ran_on.entry(node).or_default() += took;
                }
                Some(&(vm, None)) => self.vms[vm].helpers_ran += took,
                None => {}
            }
        }
        for wait in &history.waits {
            if let Some((vm, vcpu)) = people.vcpu(wait.thread) {
                self.vms[vm].vcpus[vcpu].ready += part(wait.to_ns - wait.from_ns);
            }
        }
    }

    /// How many vCPUs wanted to run at once, and what kept them that is of their own VM.
    fn meet(&mut self, history: &History, people: &People) {
        for at in 0..self.vms.len() {
            let is_its = |thread: u32| people.vcpu(thread).is_some_and(|(vm, _)| vm == at);
            let ran = history.ran.iter().filter(|ran| is_its(ran.thread));
            let waits = history.waits.iter().filter(|wait| is_its(wait.thread));
            let spans = ran
                .map(|it| (it.from_ns, it.to_ns))
                .chain(waits.clone().map(|it| (it.from_ns, it.to_ns)));
            self.vms[at].at_once = at_once(spans, self.window_s);
            let waits: Vec<_> = waits.copied().collect();
            let is_helper = |thread: u32| people.of.get(&thread) == Some(&(at, None));
            let (meanwhile, _) = who_ran_meanwhile(history, &waits);
            let ns: u64 = meanwhile.iter().filter(|it| is_helper(it.thread)).map(|it| it.ns).sum();
            self.vms[at].kept_by_helpers = ns as f64 / 1e9 / self.window_s;
        }
    }

    /// How often its threads slept, and what kind of work that makes.
    fn work(&mut self, events: &[Event], from_ns: u64, people: &People) {
        let mut sleeps = vec![(0u64, 0u64); self.vms.len()];
        let mut running: HashMap<u32, u32> = HashMap::new();
        for event in events {
            let What::Ran { left_ready, .. } = event.what else { continue };
            let before = running.insert(event.pcpu, event.thread);
            let known = before.filter(|_| !left_ready && event.at_ns >= from_ns);
            match known.and_then(|thread| people.of.get(&thread)) {
                Some(&(vm, Some(_))) => sleeps[vm].0 += 1,
                Some(&(vm, None)) => sleeps[vm].1 += 1,
                None => {}
            }
        }
        for (vm, (slept, helpers)) in self.vms.iter_mut().zip(sleeps) {
            let slept = slept as f64;
            vm.evidence = Evidence {
                over_s: self.window_s,
                vcpus_pcpus: vm.ran(),
                helpers_pcpus: vm.helpers_ran,
                wanted_pcpus: vm.ran() + vm.helpers_ran + vm.ready(),
                run_ms: (slept > 0.0).then(|| 1e3 * vm.ran() * self.window_s / slept),
                sleeps_per_s: slept / self.window_s,
                helper_sleeps_per_s: helpers as f64 / self.window_s,
                ..Evidence::default()
            };
        }
    }

    /// Whether Drover schedules.
    pub(super) fn is_drover(&self) -> bool {
        self.scheduler.as_deref() == Some("drover")
    }

    /// Whether cores have two threads.
    pub(super) fn shares_cores(&self) -> bool {
        !self.siblings().is_empty()
    }

    /// The other thread of each core.
    pub(super) fn siblings(&self) -> Siblings {
        let sibling = |one: &PcpuFacts| {
            let mut others =
                self.pcpus.iter().filter(|it| it.core == one.core && it.pcpu != one.pcpu);
            let other = others.next()?;
            others.next().is_none().then_some((one.pcpu, other.pcpu))
        };
        self.pcpus.iter().filter_map(sibling).collect()
    }

    /// All pCPUs that are online.
    pub(super) fn online(&self) -> Option<CpuList> {
        CpuList::of(self.pcpus.iter().map(|it| it.pcpu))
    }

    /// These of them.
    pub(super) fn on<'a>(&'a self, pcpus: &'a CpuList) -> impl Iterator<Item = &'a PcpuFacts> {
        self.pcpus.iter().filter(|it| pcpus.contains(it.pcpu))
    }

    /// How busy these are.
    pub(super) fn busy(&self, pcpus: &CpuList) -> f64 {
        let each: Vec<f64> = self.on(pcpus).map(|it| it.busy.min(1.0)).collect();
        each.iter().sum::<f64>() / each.len().max(1) as f64
    }

    /// How much of these is idle, pCPUs.
    pub(super) fn idle(&self, pcpus: &CpuList) -> f64 {
        self.on(pcpus).map(|it| (1.0 - it.busy).max(0.0)).sum()
    }

    /// All of these lists; where one is not known, all pCPUs.
    pub(super) fn union<'a>(
        &self,
        lists: impl Iterator<Item = Option<&'a CpuList>>,
    ) -> Option<CpuList> {
        let lists: Option<Vec<&CpuList>> = lists.collect();
        let all: BTreeSet<u32> = match lists {
            Some(lists) => lists.iter().flat_map(|list| list.cpus()).copied().collect(),
            None => self.pcpus.iter().map(|it| it.pcpu).collect(),
        };
        CpuList::of(all)?.common(&self.online()?)
    }

    /// Where vCPUs of that VM may run.
    pub(super) fn allowed(&self, vm: &VmFacts) -> Option<CpuList> {
        self.union(vm.vcpus.iter().map(|vcpu| vcpu.pin.as_ref()))
    }

    /// The same pCPUs by the numbers that a scenario gives them.
    pub(super) fn in_scenario(&self, pcpus: &CpuList) -> Option<CpuList> {
        let here = (0u32..).zip(&self.pcpus).filter(|(_, it)| pcpus.contains(it.pcpu));
        CpuList::of(here.map(|(number, _)| number))
    }
}

impl VmFacts {
    fn set(&mut self, set: &VmSetup) {
        for (vcpu, pin) in self.vcpus.iter_mut().zip(&set.pins) {
            vcpu.pin.clone_from(pin);
        }
        let VmSetup { shares, reservation_mcpu, limit_mcpu, quota_mcpu, knows_nodes, .. } = *set;
        *self = Self {
            shares,
            reservation_mcpu,
            limit_mcpu,
            quota_mcpu,
            knows_nodes,
            cookies: set.cookies,
            huge_mib: set.huge_mib,
            domain: set.domain.clone(),
            cgroup: set.cgroup.clone(),
            helper_pins: set.helper_pins.clone(),
            pool: set.pool.clone(),
            partition: set.partition.clone(),
            troubles: set.troubles.clone(),
            memory_mib: set.memory_mib.clone(),
            ..std::mem::take(self)
        };
    }
}

/// The VMs, and whose a thread is.
struct People {
    vms: Vec<VmFacts>,
    /// By the thread: the VM's place, and of a vCPU its place there.
    of: HashMap<u32, (usize, Option<usize>)>,
}

/// A VM as its threads are told of.
#[derive(Default)]
struct Told {
    name: String,
    /// Threads by the numbers of vCPUs.
    vcpus: BTreeMap<u32, u32>,
    helpers: BTreeSet<u32>,
}

impl People {
    fn of(recording: &Recording) -> Self {
        let mut found: BTreeMap<u32, Told> = BTreeMap::new();
        for thread in &recording.threads {
            match (thread.who, thread.vm, thread.vcpu) {
                (Who::Vm, Some(pid), Some(vcpu)) => {
                    let told = found.entry(pid).or_default();
                    told.name.clone_from(&thread.name);
                    told.vcpus.insert(vcpu, thread.thread);
                }
                (Who::VmHelper, Some(pid), _) => {
                    found.entry(pid).or_default().helpers.insert(thread.thread);
                }
                _ => {}
            }
        }
        found.retain(|_, told| !told.vcpus.is_empty());
        let mut people = Self { vms: Vec::new(), of: HashMap::new() };
        for (at, (pid, Told { name, vcpus, helpers })) in found.into_iter().enumerate() {
            people.of.extend(helpers.iter().map(|&thread| (thread, (at, None))));
            let numbered = vcpus.values().enumerate();
            people.of.extend(numbered.map(|(number, &thread)| (thread, (at, Some(number)))));
            let vcpu = |&thread: &u32| VcpuFacts { thread, ..VcpuFacts::default() };
            let vcpus = vcpus.values().map(vcpu).collect();
            let helpers = helpers.into_iter().collect();
            people.vms.push(VmFacts { name, pid, vcpus, helpers, ..VmFacts::default() });
        }
        people
    }

    fn vcpu(&self, thread: u32) -> Option<(usize, usize)> {
        self.of.get(&thread).and_then(|&(vm, vcpu)| Some((vm, vcpu?)))
    }
}

/// How many of these spans there are at once, but for a small part of the time.
fn at_once(spans: impl Iterator<Item = (u64, u64)>, window_s: f64) -> u32 {
    let mut edges: Vec<(u64, i32)> = Vec::new();
    for (from_ns, to_ns) in spans {
        edges.extend([(from_ns, 1), (to_ns, -1)]);
    }
    // Where one ends as another begins it is one.
    edges.sort_unstable();
    let mut of_count: BTreeMap<i32, u64> = BTreeMap::new();
    let (mut count, mut since_ns) = (0, 0);
    for (at_ns, by) in edges {
        *of_count.entry(count).or_default() += at_ns - since_ns;
        (count, since_ns) = (count + by, at_ns);
    }
    let mut above_s = 0.0;
    for (&count, &ns) in of_count.iter().rev() {
        above_s += ns as f64 / 1e9;
        if above_s >= RARE * window_s {
            return u32::try_from(count).unwrap_or(0);
        }
    }
    0
}

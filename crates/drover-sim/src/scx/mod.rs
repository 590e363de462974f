// SPDX-License-Identifier: GPL-2.0-only
//! Drover itself as a scheduler of the simulator: the policy's C code, called as sched_ext calls it.
//!
//! The order of callbacks is that of kernel/sched/ext/ext.c: a wake-up selects a pCPU, then
//! enqueues; a pick asks `dispatch` only when the running task's slice is spent and the local queue
//! is empty; the old task is put (`stopping`, then `enqueue`) after the new one was found, and
//! before it runs (`running`); a task that goes on gets neither.

mod allocator;
mod ground;
mod memory;
mod meter;
pub mod native;
mod ordered_queue;
mod policy;
mod queues;
mod timers;

pub(crate) use allocator::tree_of;
pub use meter::Meter;
pub use policy::{Policy, Tunables};
pub use queues::{Planted, Queues, Stands, Surroundings};

use crate::class::{Class, VmBounds, VmTerms};
use crate::machine::{CLASS_TIMER, Machine, Task, TaskId, TaskState};
use drover_core::allot::Allocator;
use drover_core::counters::{Counters, Numa, VmCounters};
use drover_core::delay::{self, Delay, Reach, guaranteed};
use drover_core::partition::{PartitionPolicy, PartitionSettings};
use drover_core::place::{HomeNumber, Woken};
use drover_core::settings::{PoolSettings, VmSettings};
use drover_core::shares::Shares;
use ground::process_of;
use native::{WAKES_TO_PREEMPT, WAKES_TO_WAIT, counters, counters_of_vcpu};
use queues::DEFAULT_SLICE_NS;

/// Drover.
#[derive(Debug)]
pub struct Scx {
    /// The policy's state.
    pub policy: Policy,
    /// What sched_ext keeps for it.
    pub queues: Queues,
    /// Terms of each VM, as the daemon knows them.
    terms: Vec<VmTerms>,
    /// What else is asked for each VM, likewise.
    bounds: Vec<VmBounds>,
    /// The homes of each VM.
    homes: Vec<Vec<HomeNumber>>,
    /// ... as the policy knows them, with the vCPUs they were told for.
    homes_told: Vec<(Vec<HomeNumber>, u32)>,
    /// What is asked for pools, from 1 on.
    pools: Vec<PoolSettings>,
    /// What is asked for partitions, from 1 on.
    settings: Vec<PartitionSettings>,
    /// Each domain: that of its pCPUs while there are no partitions, and its partition.
    domains: Vec<(u32, u32)>,
    /// The domain of each pCPU.
    domain_of: Vec<u32>,
    /// Late timers: how much later the next one comes.
    pub timer_late_ns: u64,
    /// Works out weights, as the daemon does.
    allocator: Allocator,
    /// Until then the daemon answers nobody, as if somebody had stopped it.
    daemon_hangs_until_ns: u64,
}

impl Scx {
    /// Drover on that host.
    ///
    /// # Errors
    /// When the host is larger than the policy's tables.
    pub fn new(m: &Machine, tunables: &Tunables) -> Result<Self, String> {
        let (policy, queues) = Policy::new(m, tunables)?;
        Ok(Self {
            policy,
            queues,
            terms: Vec::new(),
            bounds: Vec::new(),
            homes: Vec::new(),
            homes_told: Vec::new(),
            pools: Vec::new(),
            settings: Vec::new(),
            domains: (0..m.topology.llc_of_domain.len() as u32).map(|domain| (domain, 0)).collect(),
            domain_of: m.topology.domain_of.clone(),
            timer_late_ns: 0,
            allocator: Allocator::default(),
            daemon_hangs_until_ns: 0,
        })
    }

    /// What is asked for pools; the first is pool 1.
    pub fn pools(&self) -> &[PoolSettings] {
        &self.pools
    }

    /// The pools above that VM, the nearest first.
    fn pools_above(&self, vm: u32) -> impl Iterator<Item = u32> {
        let exists = |pool: u32| (1..=self.pools.len()).contains(&(pool as usize)).then_some(pool);
        let first = exists(pool_of(self.bounds_of(vm)));
        std::iter::successors(first, move |&pool| exists(self.pools[pool as usize - 1].parent.0))
    }

    /// Is the VM in that pool, or in one below it?
    pub fn is_in_pool(&self, vm: u32, pool: u32) -> bool {
        self.pools_above(vm).any(|above| above == pool)
    }

    /// Has a pool above that VM a limit?
    pub fn is_in_limited_pool(&self, vm: u32) -> bool {
        self.pools_above(vm).any(|pool| self.pools[pool as usize - 1].limit_mcpu.is_some())
    }

    /// Has the VM, or a pool above it, a limit?
    pub fn is_capped(&self, vm: u32) -> bool {
        self.bounds_of(vm).limit_mcpu > 0 || self.is_in_limited_pool(vm)
    }

    /// What is asked for that VM beyond shares.
    pub fn bounds_of(&self, vm: u32) -> VmBounds {
        self.bounds.get(vm as usize).copied().unwrap_or_default()
    }

    /// The slot of that VM; none while it has not been found.
    pub fn slot_of(&self, vm: u32) -> Option<u32> {
        let slot = self.queues.vm_slots.get(process_of(vm) as usize).copied().unwrap_or(0);
        (slot != 0).then_some(slot)
    }

    /// How many domains are in use.
    pub fn domains(&self) -> u32 {
        self.domains.len() as u32
    }

    /// The partition of that pCPU.
    pub fn partition_of(&self, cpu: u32) -> u32 {
        self.domains[self.domain_of[cpu as usize] as usize].1
    }

    /// The pCPUs online that may serve the task, by domain: of those where it may run its partition's, if
    /// that has any. A task that is no VM's yet is the host's.
    pub fn reach_of(&self, m: &Machine, task: TaskId) -> Vec<Vec<u32>> {
        let found = self.policy.thread(task).slot != 0;
        let partition = if found { self.bounds_of(m.tasks[task as usize].vm).partition } else { 0 };
        let all = || m.allowed(task).iter().filter(|&cpu| m.online.contains(cpu));
        let drawn = all().any(|cpu| self.partition_of(cpu) == partition);
        let mut reach = vec![Vec::new(); self.domains.len()];
        for cpu in all().filter(|&cpu| !drawn || self.partition_of(cpu) == partition) {
            reach[self.domain_of[cpu as usize] as usize].push(cpu);
        }
        reach.retain(|cpus| !cpus.is_empty());
        reach
    }

    /// What of the host decides how long the VM waits: slices are those of its partition, or, where one of
    /// its threads may be served by another, the longest there are.
    pub fn delay_host(&self, m: &Machine, vm: u32) -> delay::Host {
        let host = self.policy.delay_host(m);
        let slice_ns = |partition: u32| match partition {
            0 => host.slice_ns,
            _ => self.settings.get(partition as usize - 1).map_or(host.slice_ns, |it| it.slice_ns),
        };
        let own = self.bounds_of(vm).partition;
        let strays = |(task, known): (usize, &Task)| {
            let is_own = |cpu: u32| self.partition_of(cpu) == own;
            let allowed = m.allowed(task as TaskId);
            known.vm == vm && !allowed.iter().any(|cpu| m.online.contains(cpu) && is_own(cpu))
        };
        let all = 0..=self.settings.len() as u32;
        let slice_ns = match m.tasks.iter().enumerate().any(strays) {
            true => all.map(slice_ns).max().unwrap_or(host.slice_ns),
            false => slice_ns(own),
        };
        delay::Host { slice_ns, ..host }
    }

    /// What the VM is guaranteed as things stand, as the daemon works it out.
    fn guaranteed(&self, m: &Machine, vm: u32) -> Delay {
        let partition = self.bounds_of(vm).partition;
        let slots = (1..self.policy.slots_in_use()).map(|slot| self.policy.vm(slot));
        let is_here = |view: &&native::vm| {
            let other = view.process().wrapping_sub(process_of(0));
            view.is_live() && self.bounds_of(other).partition == partition
        };
        let all: u32 = slots.filter(is_here).map(|view| view.nr_threads).sum();
        let terms = self.delay_terms(m, vm);
        guaranteed(&self.delay_host(m, vm), &terms, all.saturating_sub(terms.threads))
    }

    /// What is reserved for a VM: by another policy than `share` nothing, which the daemon refuses.
    fn promised_mcpu(&self, bounds: VmBounds) -> u32 {
        match self.policy_of(bounds.partition) {
            PartitionPolicy::Share => bounds.reservation_mcpu,
            _ => 0,
        }
    }

    /// How that partition chooses who runs.
    pub fn policy_of(&self, partition: u32) -> PartitionPolicy {
        let known = |at: usize| self.settings.get(at).map(|settings| settings.policy);
        partition.checked_sub(1).and_then(|at| known(at as usize)).unwrap_or_default()
    }

    /// What of the VM decides how long it waits.
    pub fn delay_terms(&self, m: &Machine, vm: u32) -> delay::Vm {
        let bounds = self.bounds_of(vm);
        delay::Vm {
            threads: self.slot_of(vm).map_or(0, |slot| self.policy.vm(slot).nr_threads),
            reservation_mcpu: self.promised_mcpu(bounds),
            limited: self.is_capped(vm),
            reach: self.reach(m, vm),
            cosched: bounds.cosched,
        }
    }

    /// Where threads of the VM may run: of their pCPUs those of its partition, if they have any.
    fn reach(&self, m: &Machine, vm: u32) -> Reach {
        let partition = self.bounds_of(vm).partition;
        let of_domain = |domain: u32| {
            let is_in =
                |cpu: &u32| self.domain_of[*cpu as usize] == domain && m.online.contains(*cpu);
            (0..m.pcpus.len() as u32).filter(is_in).collect()
        };
        let domains: Vec<Vec<u32>> = (0..self.domains.len() as u32).map(of_domain).collect();
        let is_own = |cpu: u32| self.domains[self.domain_of[cpu as usize] as usize].1 == partition;
        let of_vm = m.tasks.iter().filter(|task| task.vm == vm && task.state != TaskState::Absent);
        let mut masks: Vec<u32> = of_vm.map(|task| task.mask).collect();
        masks.dedup();
        let set = |&mask: &u32| {
            let all = &m.masks[mask as usize];
            let drawn = all.iter().any(|cpu| m.online.contains(cpu) && is_own(cpu));
            move |cpu: u32| all.contains(cpu) && (!drawn || is_own(cpu))
        };
        let sets: Vec<_> = masks.iter().map(set).collect();
        Reach::of(&domains, &sets)
    }

    /// The domain in that partition for pCPUs that are in this one while there are no partitions.
    fn domain_for(&mut self, undivided: u32, partition: u32) -> u32 {
        let known = self.domains.iter().position(|known| *known == (undivided, partition));
        let domain = known.unwrap_or_else(|| {
            self.domains.push((undivided, partition));
            self.domains.len() - 1
        });
        domain as u32
    }

    /// The daemon sees a new VM and sets its shares.
    fn tell_terms(&mut self, m: &mut Machine) {
        while let Some(tgid) = self.queues.found.pop() {
            let vm = tgid - process_of(0);
            if let Some(terms) = self.terms.get(vm as usize).copied() {
                self.set_terms(m, vm, terms);
            }
        }
    }

    /// Shares and all else that the policy is told of that VM.
    fn told(&self, vm: u32, terms: VmTerms) -> VmSettings {
        let (mut bounds, mut shares) = (self.bounds_of(vm), terms.shares);
        bounds.reservation_mcpu = self.promised_mcpu(bounds);
        bounds.pool = pool_of(bounds);
        match self.queues.planted {
            Some(Planted::IgnoresShares) => shares = Shares::Exact(0),
            Some(Planted::IgnoresReservations) => bounds.reservation_mcpu = 0,
            Some(Planted::IgnoresPools) => bounds.pool = 0,
            Some(Planted::IgnoresPartitions) => bounds.partition = 0,
            Some(Planted::IgnoresLimits) => bounds.limit_mcpu = 0,
            Some(Planted::LaxLimits) => bounds.limit_mcpu += bounds.limit_mcpu / 4,
            _ => {}
        }
        bounds.settings(shares)
    }

    /// What is asked for the VM, if it was found.
    fn order(&mut self, m: &mut Machine, vm: u32, terms: VmTerms) {
        let Some(slot) = self.slot_of(vm) else { return };
        let settings = self.told(vm, terms);
        self.policy.order_vm(m, &mut self.queues, slot, &settings);
        self.allot_anew(m);
        self.tell_homes(m, vm);
    }

    /// Tells the policy of the VM's homes, where it knows others. What the scenario orders counts first.
    fn tell_homes(&mut self, m: &mut Machine, vm: u32) {
        let Some(slot) = self.slot_of(vm) else { return };
        let ordered = self.bounds_of(vm).home.checked_sub(1).map(HomeNumber::node);
        let placed = self.homes.get(vm as usize).cloned().unwrap_or_default();
        let homes = ordered.map_or(placed, |home| vec![home]);
        let told = (homes, self.policy.vm(slot).nr_vcpus);
        if self.homes_told.len() <= vm as usize {
            self.homes_told.resize(vm as usize + 1, (Vec::new(), 0));
        }
        let before = &self.homes_told[vm as usize];
        // vCPUs that come later are told, too, where parts have homes of their own.
        if before.0 == told.0 && (told.0.len() < 2 || before.1 == told.1) {
            return;
        }
        let parts = told.0.len().max(1) as u32;
        let words = told.0.iter().map(|home| home.word());
        for (part, home) in (0..).zip(words.chain((parts > told.0.len() as u32).then_some(0))) {
            self.policy.order_home(m, &mut self.queues, slot, (home, part, parts));
        }
        self.homes_told[vm as usize] = told;
    }

    /// The ready task, not just woken, needs a queue. Where one goes that is leaving, nobody is asked.
    fn enqueue(&mut self, m: &mut Machine, task: TaskId) {
        let Task { leaving, pcpu, .. } = m.tasks[task as usize];
        if leaving {
            m.tasks[task as usize].slice_ns = DEFAULT_SLICE_NS;
            self.queues.insert_local(m, task, pcpu, false);
        } else {
            self.policy.enqueue(m, &mut self.queues, task, false, false);
        }
    }

    fn stopping(&mut self, m: &mut Machine, cpu: u32, task: TaskId, ready: bool) {
        self.policy.stopping(m, &mut self.queues, cpu, task, ready);
        if !self.queues.found.is_empty() {
            self.tell_terms(m);
        }
    }
}

impl Class for Scx {
    fn start(&mut self, m: &mut Machine) {
        let at_ns = m.now_ns + self.policy.params().wait_bound_ns / 8;
        m.events.set(CLASS_TIMER, at_ns);
        self.policy.start(m, &mut self.queues);
    }

    fn add(&mut self, m: &mut Machine, task: TaskId, terms: VmTerms) {
        let vm = m.tasks[task as usize].vm;
        if self.terms.len() <= vm as usize {
            self.terms.resize(vm as usize + 1, VmTerms::default());
        }
        self.terms[vm as usize] = terms;
        self.policy.enable(m, &mut self.queues, task);
    }

    fn set_terms(&mut self, m: &mut Machine, vm: u32, terms: VmTerms) {
        if let Some(known) = self.terms.get_mut(vm as usize) {
            *known = terms;
        }
        self.order(m, vm, terms);
    }

    fn set_bounds(&mut self, m: &mut Machine, vm: u32, bounds: VmBounds) {
        if self.bounds.len() <= vm as usize {
            self.bounds.resize(vm as usize + 1, VmBounds::default());
        }
        self.bounds[vm as usize] = bounds;
        if let Some(terms) = self.terms.get(vm as usize).copied() {
            self.order(m, vm, terms);
        }
    }

    fn set_homes(&mut self, m: &mut Machine, vm: u32, homes: &[HomeNumber]) {
        if self.homes.len() <= vm as usize {
            self.homes.resize(vm as usize + 1, Vec::new());
        }
        self.homes[vm as usize] = homes.to_vec();
        self.tell_homes(m, vm);
    }

    fn wanted_ns(&self, _: &Machine, vm: u32) -> u64 {
        self.slot_of(vm).map_or(0, |slot| {
            let view = self.policy.vm(slot);
            view.counters.vcpu_run_ns + view.counters.helper_run_ns + view.counters.ready_ns
        })
    }

    fn woken(&self, _: &Machine, vm: u32, vms: u32) -> Option<Woken> {
        let slot = self.slot_of(vm)?;
        let native::waker { slot: waker, votes, wakes, near } = self.policy.waker(slot);
        let by = (0..vms).find(|&it| self.slot_of(it) == Some(waker)).unwrap_or(vm);
        let waited_ms = self.policy.vm(slot).counters.ready_ns / 1_000_000;
        Some(Woken { by: by.into(), votes, wakes, near, waited_ms })
    }

    fn set_pool(&mut self, m: &mut Machine, pool: u32, settings: Option<&PoolSettings>) {
        if self.pools.len() < pool as usize {
            self.pools.resize(pool as usize, PoolSettings::default());
        }
        self.pools[pool as usize - 1] = settings.cloned().unwrap_or_default();
        let mut told = settings.cloned();
        if let (Some(told), Some(Planted::IgnoresLimits)) = (&mut told, self.queues.planted) {
            told.limit_mcpu = None;
        }
        self.policy.order_pool(m, &mut self.queues, pool, told.as_ref());
        self.allot_anew(m);
    }

    fn set_partition(
        &mut self,
        m: &mut Machine,
        partition: u32,
        cpus: &[u32],
        settings: PartitionSettings,
    ) {
        self.settings.resize(self.settings.len().max(partition as usize), settings);
        self.settings[partition as usize - 1] = settings;
        self.policy.order_partition(m, &mut self.queues, partition, settings);
        for cpu in 0..m.pcpus.len() as u32 {
            let before = self.partition_of(cpu);
            let after = match cpus.contains(&cpu) {
                true => partition,
                false if before == partition => 0,
                false => before,
            };
            if after != before {
                let domain = self.domain_for(m.topology.domain_of[cpu as usize], after);
                self.domain_of[cpu as usize] = domain;
                self.policy.order_pcpu(m, &mut self.queues, cpu, (domain, after));
            }
        }
        self.allot_anew(m);
    }

    fn look(&mut self, m: &mut Machine) {
        self.allot(m);
    }

    fn timers(&mut self, m: &mut Machine) {
        self.policy.timers(m, &mut self.queues);
    }

    fn wake(&mut self, m: &mut Machine, task: TaskId) {
        let last = m.tasks[task as usize].pcpu;
        let allowed = &m.masks[m.tasks[task as usize].mask as usize];
        let chooses = allowed.next_from(allowed.next_from(0).map_or(0, |first| first + 1));
        if chooses.is_none() {
            // The kernel does not ask where there is no choice.
            m.tasks[task as usize].pcpu = allowed.next_from(0).unwrap_or(last);
            self.policy.enqueue(m, &mut self.queues, task, true, false);
            return;
        }
        let (at, wakes) = self.policy.select_cpu(m, &mut self.queues, task);
        // Where it may not run the kernel has it wait where it may.
        let may = m.may_run_on(task, at) && m.online.contains(at);
        let elsewhere = || m.allowed(task).next_common(&m.online, 0).unwrap_or(last);
        m.tasks[task as usize].pcpu = if may { at } else { elsewhere() };
        if wakes != WAKES_TO_WAIT {
            m.counts.migrations += u64::from(at != last);
            let slice_ns = self.policy.params().slice_ns;
            self.queues.run_on(m, task, at, slice_ns, wakes == WAKES_TO_PREEMPT);
        } else {
            self.policy.enqueue(m, &mut self.queues, task, true, true);
        }
    }

    fn stopped(&mut self, m: &mut Machine, cpu: u32, task: TaskId) {
        self.stopping(m, cpu, task, false);
    }

    fn pick(
        &mut self,
        m: &mut Machine,
        cpu: u32,
        previous: Option<TaskId>,
        ready: bool,
    ) -> Option<TaskId> {
        let goes_on =
            |m: &Machine| previous.filter(|&task| ready && m.tasks[task as usize].slice_ns > 0);
        if let Some(task) = goes_on(m) {
            return Some(task);
        }
        if let Some(task) = self.queues.pop_local(m, cpu) {
            return Some(task);
        }
        if m.pcpus[cpu as usize].online {
            self.policy.dispatch(m, &mut self.queues, cpu, previous, ready);
            if !self.queues.found.is_empty() {
                self.tell_terms(m);
            }
            // Who may not go on is enqueued, although there is nobody else (SCX_OPS_ENQ_LAST).
            return goes_on(m).or_else(|| self.queues.pop_local(m, cpu));
        }
        let task = previous.filter(|_| ready)?;
        m.tasks[task as usize].slice_ns = DEFAULT_SLICE_NS;
        Some(task)
    }

    fn put(&mut self, m: &mut Machine, cpu: u32, task: TaskId) {
        self.stopping(m, cpu, task, true);
        self.enqueue(m, task);
    }

    fn set(&mut self, m: &mut Machine, cpu: u32, task: TaskId) {
        if self.queues.planted == Some(Planted::LosesStarts) && m.counts.picks % 50 == 0 {
            return;
        }
        self.policy.running(m, &mut self.queues, cpu, task);
    }

    fn rest(&mut self, m: &mut Machine, cpu: u32) {
        self.policy.idle(m, &mut self.queues, cpu, true);
    }

    fn rests_no_more(&mut self, m: &mut Machine, cpu: u32) {
        self.policy.idle(m, &mut self.queues, cpu, false);
    }

    fn ran(&mut self, m: &mut Machine, _: u32, task: TaskId, ran_ns: u64) {
        let known = &mut m.tasks[task as usize];
        known.slice_ns = known.slice_ns.saturating_sub(ran_ns);
    }

    fn tick(&mut self, m: &mut Machine, cpu: u32, task: TaskId) {
        self.policy.tick(m, &mut self.queues, cpu, task);
        if self.queues.planted == Some(Planted::ChargesStops) {
            self.policy.charge_stops(m, &mut self.queues);
        }
        if m.tasks[task as usize].slice_ns == 0 {
            m.resched(cpu);
        }
    }

    fn timer(&mut self, m: &mut Machine) {
        match self.queues.planted {
            Some(Planted::IgnoresWaitBound) => {}
            Some(Planted::SpoilsTournament) => self.policy.spoil_tournament(m, &mut self.queues),
            Some(Planted::Miscounts) => self.policy.spoil_count(m, &mut self.queues),
            Some(Planted::MiscountsModes) => self.policy.spoil_modes(m, &mut self.queues),
            Some(Planted::TurnsClockBack) => self.policy.turn_clock_back(),
            _ => self.policy.rouse(m, &mut self.queues),
        }
        let late_ns = std::mem::take(&mut self.timer_late_ns);
        m.events.set(CLASS_TIMER, m.now_ns + self.policy.params().wait_bound_ns / 8 + late_ns);
    }

    fn counters(&self, m: &Machine, vm: u32) -> Option<VmCounters> {
        let view = self.policy.vm(self.slot_of(vm)?);
        let vcpu = |(task, known): (usize, &Task)| {
            let of = self.policy.vcpu(task as TaskId).filter(|_| known.vm == vm)?;
            Some((known.vcpu, counters_of_vcpu(of, view.cosched_mode)))
        };
        let guaranteed_delay_ms = Some(self.guaranteed(m, vm).ready_ns() as f64 / 1e6);
        Some(VmCounters {
            vm: Counters { guaranteed_delay_ms, ..counters(view) },
            vcpus: m.tasks.iter().enumerate().filter_map(vcpu).collect(),
            numa: (m.topology.llcs.len() > 1).then(|| Numa {
                home: self.bounds_of(vm).home.checked_sub(1).into_iter().collect(),
                home_s: seconds(view.counters.home_run_ns),
                ran_s: seconds(view.counters.vcpu_run_ns + view.counters.helper_run_ns),
                ..Numa::default()
            }),
            profile: None,
        })
    }

    fn yield_to(&mut self, m: &mut Machine, cpu: u32, from: TaskId, to: TaskId) -> bool {
        self.policy.yields(m, &mut self.queues, cpu, (from, Some(to)))
    }

    fn remove(&mut self, m: &mut Machine, task: TaskId) {
        self.policy.exit_task(m, &mut self.queues, task);
    }

    fn evict(&mut self, m: &mut Machine, cpu: u32, task: TaskId) {
        self.stopping(m, cpu, task, true);
        let to = m.allowed(task).next_common(&m.online, 0).unwrap_or(cpu);
        m.tasks[task as usize].pcpu = to;
        self.enqueue(m, task);
    }

    fn confine(&mut self, m: &mut Machine, task: TaskId) {
        let waits = m.tasks[task as usize].state == TaskState::Ready;
        if waits {
            self.queues.dequeue(task);
        }
        self.policy.set_cpumask(m, &mut self.queues, task);
        self.allot_anew(m);
        if waits {
            let here = m.tasks[task as usize].pcpu;
            if !m.may_run_on(task, here) || !m.online.contains(here) {
                let to = m.allowed(task).next_common(&m.online, 0).unwrap_or(here);
                m.tasks[task as usize].pcpu = to;
            }
            self.enqueue(m, task);
        }
    }

    /// put_prev_task_scx, then switch_class: who has time left stays first in the local queue, and what
    /// the policy has queued anew of that queue is asked for again (SCX_ENQ_REENQ).
    fn taken(&mut self, m: &mut Machine, cpu: u32, task: Option<TaskId>) {
        match task {
            Some(task) if m.tasks[task as usize].slice_ns > 0 => {
                self.stopping(m, cpu, task, true);
                self.queues.insert_local(m, task, cpu, true);
            }
            Some(task) => self.put(m, cpu, task),
            None => self.rests_no_more(m, cpu),
        }
        self.policy.cpu_release(m, &mut self.queues, cpu);
        for task in self.queues.take_reenqueued() {
            self.enqueue(m, task);
        }
    }

    fn given(&mut self, m: &mut Machine, cpu: u32) {
        self.policy.cpu_acquire(m, &mut self.queues, cpu);
    }

    fn offline(&mut self, m: &mut Machine, cpu: u32) {
        self.policy.offline(m, &mut self.queues, cpu);
        for task in std::mem::take(&mut self.queues.local[cpu as usize]) {
            self.queues.local[cpu as usize].push_back(task);
            self.confine(m, task);
        }
        self.allot_anew(m);
    }

    fn online(&mut self, m: &mut Machine, cpu: u32) {
        self.policy.online(m, &mut self.queues, cpu);
        self.allot_anew(m);
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// The pool of a VM; outside of partition `default` it has none, which the daemon refuses.
fn pool_of(bounds: VmBounds) -> u32 {
    if bounds.partition == 0 { bounds.pool } else { 0 }
}

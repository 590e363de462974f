// SPDX-License-Identifier: GPL-2.0-only
//! The policy's C code with its state, as an object.

use super::ground::{self, Ground, pointer};
use super::memory::Room;
use super::meter::Meter;
use super::native::{self, drover, drover_wakes, params_of, thread};
use super::queues::Queues;
use crate::machine::{CLASS_TIMERS, Machine, TaskId};
use drover_core::allot::{AllotmentOf, Measured};
use drover_core::partition::PartitionSettings;
use drover_core::place::policy_hops;
use drover_core::settings::{PartitionId, PoolId, PoolSettings, VmSettings};
use drover_core::{delay, params};
use drover_scenario::Host;
use std::time::Instant;

/// How a run of the policy begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tunables {
    /// The policy's parameters, as the daemon sets them.
    pub params: params::Params,
    /// Virtual time at the start: wraps like any other.
    pub vtime_ns: u64,
    /// Domains beyond one for each last-level cache, for partitions.
    pub spare_domains: u32,
}

/// The weight of a thread of nice 0.
const WEIGHT: u32 = 100;

/// The policy's state.
#[derive(Debug)]
pub struct Policy {
    drover: Room<drover>,
    threads: Room<thread>,
    tunables: Tunables,
    /// Takes the time of each call, if it is there.
    pub meter: Option<Meter>,
}

impl Policy {
    /// The policy for that host, and its queues.
    ///
    /// # Errors
    /// When the host is larger than the policy's tables.
    pub fn new(m: &Machine, tunables: &Tunables) -> Result<(Self, Queues), String> {
        let pcpus = m.pcpus.len() as u32;
        let nr_domains = m.topology.llc_of_domain.len() as u32;
        let all_domains = nr_domains + tunables.spare_domains;
        let (max_pcpus, max_domains) = (native::DROVER_MAX_PCPUS, native::DROVER_MAX_DOMAINS);
        if pcpus > max_pcpus || all_domains > max_domains {
            return Err(format!(
                "the host has {pcpus} pCPUs and {all_domains} last-level caches, or parts of them, Drover schedules \
                 {max_pcpus} and {max_domains} at most; use a smaller [host]"
            ));
        }
        let domains = Room::of(all_domains as usize);
        let queues = Queues::new(pcpus, domains, all_domains, native::DROVER_MAX_VMS);
        let threads = Room::of(m.tasks.capacity().max(m.tasks.len()));
        let mut policy = Self { drover: Room::of(1), threads, tunables: *tunables, meter: None };
        policy.set_clocks(tunables.vtime_ns);
        let state = policy.state_mut();
        state.params = params_of(&tunables.params, pcpus, nr_domains);
        for (pcpu, &domain) in m.topology.domain_of.iter().enumerate() {
            let known = &mut state.pcpu[pcpu];
            known.domain = domain;
            known.sibling = m.topology.sibling(pcpu as u32).map_or(0, |sibling| sibling + 1);
            known.online = 1;
            state.domain[domain as usize].node = m.topology.node_of[pcpu] + 1;
            state.domain[domain as usize].llc = m.topology.llc_of[pcpu] + 1;
        }
        Ok((policy, queues))
    }

    /// How far the host's nodes are from each other; before it starts.
    pub fn set_distances(&mut self, host: &Host) {
        let state = self.state_mut();
        for (from, row) in (0..host.nodes).zip(&mut state.node_hops) {
            for (to, hops) in (0..host.nodes).zip(row) {
                *hops = policy_hops(host.distance(from, to));
            }
        }
    }

    /// What the policy knows.
    fn state(&self) -> &drover {
        // SAFETY: any bytes are a struct drover; C code writes to it in `call` only, which borrows self.
        unsafe { &*self.drover.at(0) }
    }

    fn state_mut(&mut self) -> &mut drover {
        // SAFETY: as in `state`.
        unsafe { &mut *self.drover.at(0) }
    }

    /// With what it runs.
    pub fn params(&self) -> &params::Params {
        &self.tunables.params
    }

    /// What of that host decides how long VMs wait.
    pub fn delay_host(&self, m: &Machine) -> delay::Host {
        let params::Params { slice_ns, wait_bound_ns, hold_max_ns, .. } = *self.params();
        delay::Host {
            pcpus: m.online.count(),
            slice_ns,
            tick_ns: m.costs.tick_interval_ns,
            wait_bound_ns,
            hold_max_ns,
        }
    }

    /// Bytes of the policy's state, domains aside.
    pub fn bytes(&self) -> usize {
        self.drover.bytes() + self.threads.bytes()
    }

    fn thread_of(&self, task: TaskId) -> *mut thread {
        self.threads.at(task as usize)
    }

    /// Calls the policy. `cpu` is the pCPU whose dispatch it is, if it is one.
    fn call<R>(
        &mut self,
        m: &mut Machine,
        queues: &mut Queues,
        cpu: u32,
        function: impl FnOnce(*mut drover) -> R,
    ) -> R {
        let ground = Ground { machine: &raw mut *m, queues, threads: &self.threads, cpu };
        self.state_mut().ground = &raw const ground as u64;
        let begun = self.meter.map(|_| Instant::now());
        let answer = function(self.drover.at(0));
        if let (Some(meter), Some(begun)) = (&mut self.meter, begun) {
            meter.add(begun);
        }
        if let Some(what) = ground::take_failed_assertion() {
            m.complain(|| what);
        }
        answer
    }

    pub(super) fn start(&mut self, m: &mut Machine, queues: &mut Queues) {
        // SAFETY: `d` is this policy's state with its ground set, here and below.
        self.call(m, queues, 0, |d| unsafe { native::sim_init(d) });
    }

    pub(super) fn rouse(&mut self, m: &mut Machine, queues: &mut Queues) {
        // SAFETY: see `start`.
        self.call(m, queues, 0, |d| unsafe { native::sim_rouse(d) });
    }

    /// What whoever has that slot used, and wants.
    pub(super) fn measure(&mut self, m: &mut Machine, queues: &mut Queues, slot: u32) -> Measured {
        let mut of = native::measured { vm_id: 0, used_ns: 0, waited_ns: 0, awake: 0, shares: 0 };
        // SAFETY: see `start`; `of` outlives the call.
        self.call(m, queues, 0, |d| unsafe { native::sim_measure(d, slot, &mut of) });
        of.into()
    }

    /// That is allotted to whoever has that slot.
    pub(super) fn allot(
        &mut self,
        m: &mut Machine,
        queues: &mut Queues,
        slot: u32,
        of: &AllotmentOf,
    ) {
        let allotment = of.into();
        // SAFETY: see `start`.
        self.call(m, queues, 0, |d| unsafe { native::sim_allot(d, slot, &allotment) });
    }

    /// Nothing is allotted any more.
    pub(super) fn allot_end(&mut self, m: &mut Machine, queues: &mut Queues) {
        // SAFETY: see `start`.
        self.call(m, queues, 0, |d| unsafe { native::sim_allot_end(d) });
    }

    /// The first timer goes off.
    pub(super) fn timers(&mut self, m: &mut Machine, queues: &mut Queues) {
        let Some((slot, due_ns)) = queues.timers.take_first() else { return };
        if let Some(next_ns) = queues.timers.next_ns() {
            m.events.set(CLASS_TIMERS, next_ns);
        }
        // A timer of the kernel's knows when it was due, whatever became of the policy's clock.
        let now_ns = queues.clock_ns(m);
        let now_ns = if now_ns.wrapping_sub(due_ns) as i64 > 0 { now_ns } else { due_ns };
        // SAFETY: see `start`.
        self.call(m, queues, 0, |d| unsafe { native::sim_timer(d, slot, now_ns) });
    }

    pub(super) fn order_vm(
        &mut self,
        m: &mut Machine,
        queues: &mut Queues,
        slot: u32,
        settings: &VmSettings,
    ) {
        let order = native::vm_order::of(slot, self.vm(slot).id, settings);
        // SAFETY: see `start`.
        let done = self.call(m, queues, 0, |d| unsafe { native::sim_order_vm(d, &order) });
        debug_assert!(done, "the VM was found a moment ago");
    }

    pub(super) fn order_home(
        &mut self,
        m: &mut Machine,
        queues: &mut Queues,
        slot: u32,
        (home, part, parts): (u32, u32, u32),
    ) {
        let order = native::home_order { slot, home, vm_id: self.vm(slot).id, part, parts };
        // SAFETY: see `start`.
        let done = self.call(m, queues, 0, |d| unsafe { native::sim_order_home(d, &order) });
        debug_assert!(done, "the VM is there");
    }

    pub(super) fn order_pool(
        &mut self,
        m: &mut Machine,
        queues: &mut Queues,
        pool: u32,
        settings: Option<&PoolSettings>,
    ) {
        let order = native::pool_order::of(PoolId(pool), settings);
        // SAFETY: see `start`.
        let done = self.call(m, queues, 0, |d| unsafe { native::sim_order_pool(d, &order) });
        debug_assert!(done, "pools of scenarios have places in the table");
    }

    pub(super) fn order_partition(
        &mut self,
        m: &mut Machine,
        queues: &mut Queues,
        partition: u32,
        settings: PartitionSettings,
    ) {
        let order = native::partition_order::of(PartitionId(partition), settings);
        // SAFETY: see `start`.
        let done = self.call(m, queues, 0, |d| unsafe { native::sim_order_partition(d, &order) });
        debug_assert!(done, "partitions of scenarios have places in the table");
    }

    pub(super) fn order_pcpu(
        &mut self,
        m: &mut Machine,
        queues: &mut Queues,
        pcpu: u32,
        (domain, partition): (u32, u32),
    ) {
        let known = &self.state().pcpu[pcpu as usize];
        let native::domain { node, llc, .. } = self.state().domain[known.domain as usize];
        let sibling = known.sibling;
        let order = native::pcpu_order { pcpu, domain, partition, sibling, node, llc };
        // SAFETY: see `start`.
        let done = self.call(m, queues, 0, |d| unsafe { native::sim_order_pcpu(d, &order) });
        debug_assert!(done, "there are domains enough");
    }

    pub(super) fn enable(&mut self, m: &mut Machine, queues: &mut Queues, task: TaskId) {
        let t = self.thread_of(task);
        // SAFETY: see `start`; `t` is the task's own struct, here and below.
        self.call(m, queues, 0, |d| unsafe { native::sim_enable(d, pointer(task), t, WEIGHT) });
    }

    pub(super) fn set_cpumask(&mut self, m: &mut Machine, queues: &mut Queues, task: TaskId) {
        let t = self.thread_of(task);
        // SAFETY: see `enable`.
        self.call(m, queues, 0, |d| unsafe { native::sim_set_cpumask(d, pointer(task), t) });
    }

    /// The task wakes: where it goes, and how it begins there.
    pub(super) fn select_cpu(
        &mut self,
        m: &mut Machine,
        queues: &mut Queues,
        task: TaskId,
    ) -> (u32, drover_wakes) {
        let t = self.thread_of(task);
        let mut wakes = native::WAKES_TO_WAIT;
        let at = self.call(m, queues, 0, |d| {
            // SAFETY: see `enable`.
            unsafe { native::sim_select_cpu(d, pointer(task), t, &mut wakes) }
        });
        (at, wakes)
    }

    pub(super) fn tick(&mut self, m: &mut Machine, queues: &mut Queues, cpu: u32, task: TaskId) {
        let t = self.thread_of(task);
        // SAFETY: see `enable`.
        self.call(m, queues, cpu, |d| unsafe { native::sim_tick(d, pointer(task), t) });
    }

    pub(super) fn enqueue(
        &mut self,
        m: &mut Machine,
        queues: &mut Queues,
        task: TaskId,
        woken: bool,
        selected: bool,
    ) {
        let t = self.thread_of(task);
        // SAFETY: see `enable`.
        self.call(m, queues, 0, |d| unsafe {
            native::sim_enqueue(d, pointer(task), t, woken, selected);
        });
    }

    /// `previous` is whoever ran there last; `ready`: and would go on.
    pub(super) fn dispatch(
        &mut self,
        m: &mut Machine,
        queues: &mut Queues,
        cpu: u32,
        previous: Option<TaskId>,
        ready: bool,
    ) {
        let p = previous.map_or(std::ptr::null_mut(), pointer);
        let t =
            previous.filter(|_| ready).map_or(std::ptr::null_mut(), |task| self.thread_of(task));
        // SAFETY: see `enable`.
        self.call(m, queues, cpu, |d| unsafe { native::sim_dispatch(d, cpu, p, t) });
    }

    pub(super) fn running(&mut self, m: &mut Machine, queues: &mut Queues, cpu: u32, task: TaskId) {
        let t = self.thread_of(task);
        // SAFETY: see `enable`.
        self.call(m, queues, cpu, |d| unsafe { native::sim_running(d, pointer(task), t, cpu) });
    }

    /// The running task gives way to `to`, or to any sibling.
    pub(crate) fn yields(
        &mut self,
        m: &mut Machine,
        queues: &mut Queues,
        cpu: u32,
        (from, to): (TaskId, Option<TaskId>),
    ) -> bool {
        let t = self.thread_of(from);
        let to_pointer = to.map_or(std::ptr::null_mut(), pointer);
        let to = to.map_or(std::ptr::null_mut(), |to| self.thread_of(to));
        // SAFETY: see `enable`.
        self.call(m, queues, cpu, |d| unsafe {
            native::sim_yield(d, pointer(from), t, to_pointer, to)
        })
    }

    pub(super) fn stopping(
        &mut self,
        m: &mut Machine,
        queues: &mut Queues,
        cpu: u32,
        task: TaskId,
        ready: bool,
    ) {
        let t = self.thread_of(task);
        // SAFETY: see `enable`.
        self.call(m, queues, cpu, |d| unsafe {
            native::sim_stopping(d, pointer(task), t, cpu, ready);
        });
    }

    pub(super) fn exit_task(&mut self, m: &mut Machine, queues: &mut Queues, task: TaskId) {
        let t = self.thread_of(task);
        // SAFETY: see `enable`.
        self.call(m, queues, 0, |d| unsafe {
            native::sim_disable(d, pointer(task), t);
            native::sim_exit_task(d, t);
        });
    }

    /// The pCPU has become idle, or is no longer.
    pub(super) fn idle(&mut self, m: &mut Machine, queues: &mut Queues, cpu: u32, idle: bool) {
        // SAFETY: see `start`.
        self.call(m, queues, cpu, |d| unsafe { native::sim_idle(d, cpu, idle) });
    }

    /// A real-time task takes the pCPU.
    pub(super) fn cpu_release(&mut self, m: &mut Machine, queues: &mut Queues, cpu: u32) {
        // SAFETY: see `start`.
        self.call(m, queues, cpu, |d| unsafe { native::sim_cpu_release(d, cpu) });
    }

    /// ... and leaves it.
    pub(super) fn cpu_acquire(&mut self, m: &mut Machine, queues: &mut Queues, cpu: u32) {
        // SAFETY: see `start`.
        self.call(m, queues, cpu, |d| unsafe { native::sim_cpu_acquire(d, cpu) });
    }

    pub(super) fn online(&mut self, m: &mut Machine, queues: &mut Queues, cpu: u32) {
        // SAFETY: see `start`.
        self.call(m, queues, cpu, |d| unsafe { native::sim_pcpu_online(d, cpu) });
    }

    pub(super) fn offline(&mut self, m: &mut Machine, queues: &mut Queues, cpu: u32) {
        // SAFETY: see `start`.
        self.call(m, queues, cpu, |d| unsafe { native::sim_pcpu_offline(d, cpu) });
    }

    /// The VM in that slot.
    pub fn vm(&self, slot: u32) -> &native::vm {
        &self.state().vm[slot as usize]
    }

    /// Who wakes the VM in that slot.
    pub fn waker(&self, slot: u32) -> native::waker {
        self.state().waker[slot as usize]
    }

    /// The books of that task, if it is a vCPU and has any.
    pub fn vcpu(&self, task: TaskId) -> Option<&native::vcpu> {
        let record = self.thread(task).record;
        (record != 0).then(|| &self.state().vcpu[record as usize])
    }

    /// May that task not run because its VM is at its limit?
    pub fn at_limit(&self, task: TaskId) -> bool {
        self.vm(self.thread(task).slot).at_limit != 0
    }

    /// The thread of that task.
    pub fn thread(&self, task: TaskId) -> &thread {
        // SAFETY: as in `state`.
        unsafe { &*self.thread_of(task) }
    }

    /// See [`super::Planted::SpoilsTournament`].
    pub(super) fn spoil_tournament(&mut self, m: &mut Machine, queues: &mut Queues) {
        // SAFETY: see `start`.
        self.call(m, queues, 0, |d| unsafe { native::sim_spoil_tournament(d) });
    }

    /// See [`super::Planted::Miscounts`].
    pub(super) fn spoil_count(&mut self, m: &mut Machine, queues: &mut Queues) {
        // SAFETY: see `start`.
        self.call(m, queues, 0, |d| unsafe { native::sim_spoil_count(d) });
    }

    /// See [`super::Planted::MiscountsModes`].
    pub(super) fn spoil_modes(&mut self, m: &mut Machine, queues: &mut Queues) {
        // SAFETY: see `start`.
        self.call(m, queues, 0, |d| unsafe { native::sim_spoil_modes(d) });
    }

    /// See [`super::Planted::ChargesStops`].
    pub(super) fn charge_stops(&mut self, m: &mut Machine, queues: &mut Queues) {
        // SAFETY: see `start`.
        self.call(m, queues, 0, |d| unsafe { native::sim_charge_stops(d) });
    }

    /// What the policy counts wrong of VMs and their vCPUs, if anything; whose, 0: of all VMs.
    pub fn miscounted(
        &mut self,
        m: &mut Machine,
        queues: &mut Queues,
    ) -> Option<(&'static str, u32)> {
        let mut slot = 0;
        // SAFETY: see `start`; `slot` outlives the call.
        let wrong = self.call(m, queues, 0, |d| unsafe { native::sim_check_counts(d, &mut slot) });
        let what = match wrong {
            native::SIM_COUNTS_TOGETHER => "VMs kept together",
            native::SIM_COUNTS_RESERVED => "VMs with a reservation",
            native::SIM_COUNTS_RUNNING => "running vCPUs",
            native::SIM_COUNTS_WAITING => "waiting vCPUs",
            native::SIM_COUNTS_STOPPED => "co-stopped vCPUs",
            _ => return None,
        };
        Some((what, slot))
    }

    /// See [`super::Planted::TurnsClockBack`].
    pub(super) fn turn_clock_back(&mut self) {
        self.set_clocks(self.clock_ns(0).wrapping_sub(self.params().slice_ns));
    }

    /// That is the virtual time of all domains.
    fn set_clocks(&mut self, vtime_ns: u64) {
        self.state_mut().domain.iter_mut().for_each(|domain| domain.clock_ns = vtime_ns);
    }

    /// The virtual time the least served VM that waits in the domain has reached.
    pub fn clock_ns(&self, domain: u32) -> u64 {
        self.state().domain[domain as usize].clock_ns
    }

    /// No slot at or above this was ever used.
    pub fn slots_in_use(&self) -> u32 {
        self.state().slots_in_use
    }

    /// Threads waiting in the pCPU's own queue, as the policy counts them.
    pub fn pinned_on(&self, cpu: u32) -> u32 {
        self.state().pcpu[cpu as usize].nr_pinned
    }

    /// 0 when the domain's tournament is in order, else the slot or node that is not, + 1.
    pub fn check_tournament(&mut self, m: &mut Machine, queues: &mut Queues, domain: u32) -> u32 {
        // SAFETY: see `start`.
        self.call(m, queues, 0, |d| unsafe { native::sim_check_tournament(d, domain) })
    }
}

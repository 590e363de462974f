// SPDX-License-Identifier: GPL-2.0-only
//! The policy's C code with its state, as an object.

use super::ground::{Ground, pointer};
use super::memory::Room;
use super::native::{
    self, Drover, Params, PoolOrder, Thread, ThreadView, VcpuView, VmOrder, VmView,
};
use super::queues::Queues;
use crate::class::VmBounds;
use crate::machine::{CLASS_TIMERS, Machine, TaskId};
use crate::policy_cost::Meter;
use drover_core::allot::{AllotmentOf, Measured};
use drover_core::settings::{PartitionSettings, PoolSettings};
use drover_core::{delay, params};
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

/// What becomes of a task that wakes: the policy's `enum drover_wakes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wakes {
    /// It is placed next.
    ToWait,
    /// It begins on a pCPU that is idle and was claimed.
    OnIdle,
    /// It begins at once, whoever runs there now.
    ToPreempt,
}

/// The policy's state.
#[derive(Debug)]
pub struct Policy {
    drover: Room,
    threads: Room,
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
        native::check_layout();
        let pcpus = m.pcpus.len() as u32;
        let nr_domains = m.topology.llcs.len() as u32;
        // SAFETY: constants of the linked object.
        let (max_pcpus, max_domains, max_vms) =
            unsafe { (native::sim_max_pcpus, native::sim_max_domains, native::sim_max_vms) };
        let all_domains = nr_domains + tunables.spare_domains;
        if pcpus > max_pcpus || all_domains > max_domains {
            return Err(format!(
                "the host has {pcpus} pCPUs and {all_domains} last-level caches, or parts of them, Drover schedules \
                 {max_pcpus} and {max_domains} at most; use a smaller [host]"
            ));
        }
        // SAFETY: constants of the linked object.
        let (drover, domain, thread) = unsafe {
            (native::sim_drover_bytes, native::sim_domain_bytes, native::sim_thread_bytes)
        };
        let domains = Room::of(all_domains as usize, domain);
        let queues = Queues::new(pcpus, domains, all_domains, max_vms);
        let threads = Room::of(m.tasks.capacity().max(m.tasks.len()), thread);
        let policy =
            Self { drover: Room::of(1, drover), threads, tunables: *tunables, meter: None };
        let params = Params { given: tunables.params, nr_pcpus: pcpus, nr_domains };
        // SAFETY: `at(0)` is a zeroed struct drover; pCPU numbers are within its table.
        unsafe {
            native::sim_set_params(policy.drover.at(0), &params);
            native::sim_set_vtime(policy.drover.at(0), tunables.vtime_ns);
            for (pcpu, &domain) in m.topology.llc_of.iter().enumerate() {
                let sibling = m.topology.sibling(pcpu as u32).map_or(0, |sibling| sibling + 1);
                let node = m.topology.node_of[pcpu];
                native::sim_set_pcpu(policy.drover.at(0), pcpu as u32, domain, sibling, node);
            }
        }
        Ok((policy, queues))
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

    fn thread(&self, task: TaskId) -> *mut Thread {
        self.threads.at(task as usize)
    }

    /// Calls the policy. `cpu` is the pCPU whose dispatch it is, if it is one.
    fn call<R>(
        &mut self,
        m: &mut Machine,
        queues: &mut Queues,
        cpu: u32,
        function: impl FnOnce(*mut Drover) -> R,
    ) -> R {
        let ground = Ground { machine: m, queues, threads: &self.threads, cpu };
        let drover: *mut Drover = self.drover.at(0);
        // SAFETY: struct drover has a u64 there, and lives as long as self.
        unsafe {
            let field = drover.byte_add(native::sim_ground_offset).cast::<u64>();
            field.write(&raw const ground as u64);
        }
        let begun = self.meter.map(|_| Instant::now());
        let answer = function(drover);
        if let (Some(meter), Some(begun)) = (&mut self.meter, begun) {
            meter.add(begun);
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
        let mut measured = Measured::default();
        // SAFETY: see `start`; `measured` is laid out as in C and outlives the call.
        self.call(m, queues, 0, |d| unsafe { native::sim_measure(d, slot, &mut measured) });
        measured
    }

    /// That is allotted to whoever has that slot.
    pub(super) fn allot(
        &mut self,
        m: &mut Machine,
        queues: &mut Queues,
        slot: u32,
        allotment: &AllotmentOf,
    ) {
        // SAFETY: see `start`; `allotment` is laid out as in C.
        self.call(m, queues, 0, |d| unsafe { native::sim_allot(d, slot, allotment) });
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
        (shares, bounds): (u32, VmBounds),
    ) {
        let order = VmOrder {
            slot,
            shares,
            vm_id: self.vm(slot).id,
            reservation_mcpu: bounds.reservation_mcpu,
            limit_mcpu: bounds.limit_mcpu,
            pool: bounds.pool,
            cosched_mode: bounds.cosched as u32,
            partition: bounds.partition,
            burst_us: 0,
        };
        // SAFETY: see `start`.
        let done = self.call(m, queues, 0, |d| unsafe { native::sim_order_vm(d, &order) });
        debug_assert!(done, "the VM was found a moment ago");
    }

    pub(super) fn order_home(
        &mut self,
        m: &mut Machine,
        queues: &mut Queues,
        slot: u32,
        home: u32,
    ) {
        // SAFETY: see `start`.
        self.call(m, queues, 0, |d| unsafe { native::sim_order_home(d, slot, home) });
    }

    pub(super) fn order_pool(
        &mut self,
        m: &mut Machine,
        queues: &mut Queues,
        pool: u32,
        settings: Option<&PoolSettings>,
    ) {
        let live = settings.is_some();
        let settings = settings.cloned().unwrap_or_default();
        let order = PoolOrder {
            pool,
            live: live.into(),
            parent: settings.parent.0,
            limit_mcpu: settings.limit_mcpu.unwrap_or(0),
            burst_us: settings.burst_us,
        };
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
        let (policy, slice_ns) = (settings.policy as u32, settings.slice_ns);
        // SAFETY: see `start`.
        let done = self.call(m, queues, 0, |d| unsafe {
            native::sim_order_partition(d, partition, policy, slice_ns)
        });
        debug_assert!(done, "partitions of scenarios have places in the table");
    }

    pub(super) fn order_pcpu(
        &mut self,
        m: &mut Machine,
        queues: &mut Queues,
        pcpu: u32,
        (domain, partition): (u32, u32),
    ) {
        // SAFETY: see `start`.
        let done = self
            .call(m, queues, 0, |d| unsafe { native::sim_order_pcpu(d, pcpu, domain, partition) });
        debug_assert!(done, "there are domains enough");
    }

    pub(super) fn enable(&mut self, m: &mut Machine, queues: &mut Queues, task: TaskId) {
        let t = self.thread(task);
        // SAFETY: see `start`; `t` is the task's own struct, here and below.
        self.call(m, queues, 0, |d| unsafe { native::sim_enable(d, pointer(task), t, WEIGHT) });
    }

    pub(super) fn set_cpumask(&mut self, m: &mut Machine, queues: &mut Queues, task: TaskId) {
        let t = self.thread(task);
        // SAFETY: see `enable`.
        self.call(m, queues, 0, |d| unsafe { native::sim_set_cpumask(d, pointer(task), t) });
    }

    /// The task wakes: where it goes, and how it begins there.
    pub(super) fn select_cpu(
        &mut self,
        m: &mut Machine,
        queues: &mut Queues,
        task: TaskId,
    ) -> (u32, Wakes) {
        let t = self.thread(task);
        let mut wakes = 0;
        let at = self.call(m, queues, 0, |d| {
            // SAFETY: see `enable`.
            unsafe { native::sim_select_cpu(d, pointer(task), t, &mut wakes) }
        });
        (at, [Wakes::ToWait, Wakes::OnIdle, Wakes::ToPreempt][wakes as usize])
    }

    pub(super) fn tick(&mut self, m: &mut Machine, queues: &mut Queues, cpu: u32, task: TaskId) {
        let t = self.thread(task);
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
        let t = self.thread(task);
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
        let t = previous.filter(|_| ready).map_or(std::ptr::null_mut(), |task| self.thread(task));
        // SAFETY: see `enable`.
        self.call(m, queues, cpu, |d| unsafe { native::sim_dispatch(d, cpu, p, t) });
    }

    pub(super) fn running(&mut self, m: &mut Machine, queues: &mut Queues, cpu: u32, task: TaskId) {
        let t = self.thread(task);
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
        let t = self.thread(from);
        let to_pointer = to.map_or(std::ptr::null_mut(), pointer);
        let to = to.map_or(std::ptr::null_mut(), |to| self.thread(to));
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
        let t = self.thread(task);
        // SAFETY: see `enable`.
        self.call(m, queues, cpu, |d| unsafe {
            native::sim_stopping(d, pointer(task), t, cpu, ready);
        });
    }

    pub(super) fn exit_task(&mut self, m: &mut Machine, queues: &mut Queues, task: TaskId) {
        let t = self.thread(task);
        // SAFETY: see `enable`.
        self.call(m, queues, 0, |d| unsafe {
            native::sim_disable(d, t);
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
    pub fn vm(&self, slot: u32) -> VmView {
        let mut view = VmView::default();
        // SAFETY: reads this policy's own state; the view is of the size C expects.
        unsafe { native::sim_view_vm(self.drover.at(0), slot, &mut view) };
        view
    }

    /// The books of that task, if it is a vCPU and has any.
    pub fn vcpu_view(&self, task: TaskId) -> Option<VcpuView> {
        let mut view = VcpuView::default();
        // SAFETY: as in `vm`.
        let has_books =
            unsafe { native::sim_view_vcpu(self.drover.at(0), self.thread(task), &mut view) };
        has_books.then_some(view)
    }

    /// May that task not run because its VM is at its limit?
    pub fn at_limit(&self, task: TaskId) -> bool {
        // SAFETY: as in `vm`.
        unsafe { native::sim_at_limit(self.drover.at(0), self.thread(task)) }
    }

    /// The thread of that task.
    pub fn thread_view(&self, task: TaskId) -> ThreadView {
        let mut view = ThreadView::default();
        // SAFETY: as in `vm`.
        unsafe { native::sim_view_thread(self.thread(task), &mut view) };
        view
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
    pub fn miscounted(&mut self, m: &mut Machine, queues: &mut Queues) -> Option<(&str, u32)> {
        const WHAT: [&str; 5] = [
            "VMs kept together",
            "VMs with a reservation",
            "running vCPUs",
            "waiting vCPUs",
            "co-stopped vCPUs",
        ];
        let mut slot = 0;
        // SAFETY: see `start`; `slot` outlives the call.
        let wrong = self.call(m, queues, 0, |d| unsafe { native::sim_check_counts(d, &mut slot) });
        (wrong > 0).then(|| (WHAT[wrong as usize - 1], slot))
    }

    /// See [`super::Planted::TurnsClockBack`].
    pub(super) fn turn_clock_back(&mut self) {
        let back_ns = self.clock_ns(0).wrapping_sub(self.params().slice_ns);
        // SAFETY: as in `vm`.
        unsafe { native::sim_set_vtime(self.drover.at(0), back_ns) };
    }

    /// The virtual time the least served VM that waits in the domain has reached.
    pub fn clock_ns(&self, domain: u32) -> u64 {
        // SAFETY: as in `vm`.
        unsafe { native::sim_clock_ns(self.drover.at(0), domain) }
    }

    /// No slot at or above this was ever used.
    pub fn slots_in_use(&self) -> u32 {
        // SAFETY: as in `vm`.
        unsafe { native::sim_slots_in_use(self.drover.at(0)) }
    }

    /// Threads waiting in the pCPU's own queue, as the policy counts them.
    pub fn pinned_on(&self, cpu: u32) -> u32 {
        // SAFETY: as in `vm`.
        unsafe { native::sim_pcpu_pinned(self.drover.at(0), cpu) }
    }

    /// Threads of the VM waiting in the domain, as the policy counts them.
    pub fn queued(&mut self, m: &mut Machine, queues: &mut Queues, domain: u32, slot: u32) -> u32 {
        // SAFETY: see `start`.
        self.call(m, queues, 0, |d| unsafe { native::sim_domain_queued(d, domain, slot) })
    }

    /// 0 when the domain's tournament is in order, else the slot or node that is not, + 1.
    pub fn check_tournament(&mut self, m: &mut Machine, queues: &mut Queues, domain: u32) -> u32 {
        // SAFETY: see `start`.
        self.call(m, queues, 0, |d| unsafe { native::sim_check_tournament(d, domain) })
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! The functions and structs of native/policy.c, and of policy/account/orders.h.
//!
//! The policy's own structs stay opaque: their sizes are asked for, so that the policy may grow
//! without a word of Rust. Only what native/policy.c itself defines, and orders, are mirrored here.

use drover_core::allot::{AllotmentOf, Measured};
use std::ffi::c_void;

/// `struct drover`, the whole state of the policy.
#[repr(C)]
pub struct Drover {
    opaque: [u8; 0],
}

/// `struct thread`.
#[repr(C)]
pub struct Thread {
    opaque: [u8; 0],
}

/// `struct runqueue`.
#[repr(C)]
pub struct Domain {
    opaque: [u8; 0],
}

/// The kernel's task, which the policy never looks into: its number + 1, as a pointer.
pub type TaskPointer = *mut c_void;

/// `struct params`: what crates/drover-host sets in the kernel.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Params {
    /// What does not depend on the host.
    pub given: drover_core::params::Params,
    /// Number of pCPUs.
    pub nr_pcpus: u32,
    /// Number of domains.
    pub nr_domains: u32,
}

/// `struct vm_order`: what the daemon orders for a VM.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VmOrder {
    /// Where it is.
    pub slot: u32,
    /// Shares asked for; 0: the default.
    pub shares: u32,
    /// The VM meant.
    pub vm_id: u64,
    /// Thousandths of a pCPU promised.
    pub reservation_mcpu: u32,
    /// Thousandths of a pCPU at most; 0: no limit.
    pub limit_mcpu: u32,
    /// Its pool.
    pub pool: u32,
    /// How its vCPUs are kept together, `enum cosched_mode`.
    pub cosched_mode: u32,
    /// Its partition.
    pub partition: u32,
    /// What its bucket holds beside 100 ms of its limit, us.
    pub burst_us: u32,
}

/// `struct pool_order`: what it orders for a pool.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolOrder {
    /// Its place.
    pub pool: u32,
    /// 0: remove it.
    pub live: u32,
    /// The pool it is in.
    pub parent: u32,
    /// Thousandths of a pCPU at most; 0: no limit.
    pub limit_mcpu: u32,
    /// As in [`VmOrder`].
    pub burst_us: u32,
}

/// `struct sim_vm_view`: what can be seen of a VM.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VmView {
    /// Never given to another VM.
    pub id: u64,
    /// Its virtual time.
    pub vtime_ns: u64,
    /// CPU time its vCPUs used, as far as it is in the books.
    pub vcpu_run_ns: u64,
    /// CPU time its other threads used.
    pub helper_run_ns: u64,
    /// Of both, what it was not charged, beside busy sibling threads.
    pub smt_discount_ns: u64,
    /// Time its threads were ready and did not run.
    pub ready_ns: u64,
    /// The longest single such wait.
    pub longest_ready_ns: u64,
    /// Times the wait bound stepped in.
    pub nr_starvation_boosts: u64,
    /// Times a waking thread of it preempted.
    pub nr_wake_preemptions: u64,
    /// Time in which any of its vCPUs ran.
    pub progressed_ns: u64,
    /// Of that, while a sibling was ready and did not.
    pub hazard_ns: u64,
    /// Time its vCPUs were co-stopped, summed up.
    pub costop_ns: u64,
    /// Co-stops.
    pub nr_costops: u64,
    /// Starts of vCPUs after one.
    pub nr_costarts: u64,
    /// The furthest a vCPU was seen ahead of a ready sibling.
    pub skew_max_ns: u64,
    /// Time its threads were ready and it was at its limit.
    pub limited_ns: u64,
    /// CPU time on pCPUs of its home.
    pub home_run_ns: u64,
    /// Directed yields asked for.
    pub yields_asked: u64,
    /// Of these, the sibling ran next.
    pub yields_granted: u64,
    /// Beyond one a tick for a vCPU.
    pub yields_throttled: u64,
    /// Not 0: the slot is a VM's.
    pub live: u32,
    /// Shares in force.
    pub shares: u32,
    /// vCPUs attached.
    pub nr_vcpus: u32,
    /// Threads attached.
    pub nr_threads: u32,
    /// Threads ready and not running.
    pub nr_waiting: u32,
    /// Its process.
    pub tgid: u32,
}

/// `struct sim_vcpu_view`: what is in the books of a vCPU.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VcpuView {
    /// How far it has come.
    pub progress_ns: u64,
    /// Time it was ready while a sibling ran.
    pub hazard_ns: u64,
    /// Time it was co-stopped.
    pub costop_ns: u64,
    /// Co-stops.
    pub nr_costops: u64,
    /// Of these, the ones that are over.
    pub nr_costarts: u64,
    /// The furthest it was seen ahead of a ready sibling.
    pub skew_max_ns: u64,
}

/// `struct sim_thread_view`: what can be seen of a thread.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ThreadView {
    /// Its own CPU time, for order among siblings.
    pub vruntime_ns: u64,
    /// Since when it is ready; 0: it is not.
    pub ready_since_ns: u64,
    /// Its VM; 0: none.
    pub slot: u32,
    /// 0 host, 1 vCPU, 2 helper.
    pub kind: u32,
    /// Domain it waits in + 1; 0: none.
    pub queued_in: u32,
    /// pCPU in whose queue it waits + 1; 0: none.
    pub pinned_at: u32,
}

unsafe extern "C" {
    pub static sim_drover_bytes: usize;
    pub static sim_domain_bytes: usize;
    pub static sim_thread_bytes: usize;
    pub static sim_ground_offset: usize;
    pub static sim_params_bytes: usize;
    pub static sim_vm_order_bytes: usize;
    pub static sim_pool_order_bytes: usize;
    pub static sim_measured_bytes: usize;
    pub static sim_allotment_bytes: usize;
    pub static sim_vm_view_bytes: usize;
    pub static sim_vcpu_view_bytes: usize;
    pub static sim_thread_view_bytes: usize;
    pub static sim_max_vms: u32;
    pub static sim_max_domains: u32;
    pub static sim_max_pcpus: u32;

    pub fn sim_set_params(d: *mut Drover, params: *const Params);
    pub fn sim_set_vtime(d: *mut Drover, vtime_ns: u64);
    pub fn sim_set_pcpu(d: *mut Drover, pcpu: u32, domain: u32, sibling: u32, node: u32, llc: u32);
    pub fn sim_init(d: *mut Drover);
    pub fn sim_rouse(d: *mut Drover);
    pub fn sim_measure(d: *mut Drover, slot: u32, measured: *mut Measured);
    pub fn sim_allot(d: *mut Drover, slot: u32, allotment: *const AllotmentOf);
    pub fn sim_allot_end(d: *mut Drover);
    pub fn sim_timer(d: *mut Drover, slot: u32, now_ns: u64);
    pub fn sim_order_vm(d: *mut Drover, order: *const VmOrder) -> bool;
    pub fn sim_order_pool(d: *mut Drover, order: *const PoolOrder) -> bool;
    pub fn sim_order_home(d: *mut Drover, slot: u32, home: u32, part: u32, parts: u32);
    pub fn sim_set_hops(d: *mut Drover, from: u32, to: u32, hops: u8);
    pub fn sim_order_partition(d: *mut Drover, partition: u32, policy: u32, slice_ns: u64) -> bool;
    pub fn sim_order_pcpu(d: *mut Drover, pcpu: u32, domain: u32, partition: u32) -> bool;
    pub fn sim_enable(d: *mut Drover, p: TaskPointer, t: *mut Thread, weight: u32);
    pub fn sim_set_cpumask(d: *mut Drover, p: TaskPointer, t: *mut Thread);
    pub fn sim_select_cpu(d: *mut Drover, p: TaskPointer, t: *mut Thread, wakes: &mut u32) -> u32;
    pub fn sim_enqueue(d: *mut Drover, p: TaskPointer, t: *mut Thread, woken: bool, selected: bool);
    pub fn sim_dispatch(d: *mut Drover, at: u32, prev: TaskPointer, t: *mut Thread);
    pub fn sim_running(d: *mut Drover, p: TaskPointer, t: *mut Thread, at: u32);
    pub fn sim_tick(d: *mut Drover, p: TaskPointer, t: *mut Thread);
    pub fn sim_stopping(d: *mut Drover, p: TaskPointer, t: *mut Thread, at: u32, ready: bool);
    pub fn sim_yield(
        d: *mut Drover,
        p: TaskPointer,
        t: *mut Thread,
        to_p: TaskPointer,
        to: *mut Thread,
    ) -> bool;
    pub fn sim_disable(d: *mut Drover, t: *mut Thread);
    pub fn sim_exit_task(d: *mut Drover, t: *mut Thread);
    pub fn sim_idle(d: *mut Drover, at: u32, idle: bool);
    pub fn sim_cpu_release(d: *mut Drover, at: u32);
    pub fn sim_cpu_acquire(d: *mut Drover, at: u32);
    pub fn sim_pcpu_online(d: *mut Drover, at: u32);
    pub fn sim_pcpu_offline(d: *mut Drover, at: u32);
    pub fn sim_view_vm(d: *mut Drover, slot: u32, view: *mut VmView);
    pub fn sim_view_vcpu(d: *mut Drover, t: *const Thread, view: *mut VcpuView) -> bool;
    pub fn sim_view_thread(t: *const Thread, view: *mut ThreadView);
    pub fn sim_clock_ns(d: *mut Drover, domain: u32) -> u64;
    pub fn sim_slots_in_use(d: *mut Drover) -> u32;
    pub fn sim_drain_to(d: *mut Drover, p: TaskPointer, t: *mut Thread) -> i32;
    pub fn sim_due_ns(t: *const Thread) -> u64;
    pub fn sim_record(t: *const Thread) -> u32;
    pub fn sim_at_limit(d: *mut Drover, t: *const Thread) -> bool;
    pub fn sim_pcpu_pinned(d: *mut Drover, at: u32) -> u32;
    pub fn sim_domain_queued(d: *mut Drover, domain: u32, slot: u32) -> u32;
    pub fn sim_spoil_tournament(d: *mut Drover);
    pub fn sim_spoil_count(d: *mut Drover);
    pub fn sim_spoil_modes(d: *mut Drover);
    pub fn sim_charge_stops(d: *mut Drover);
    pub fn sim_check_counts(d: *mut Drover, slot: *mut u32) -> u32;
    pub fn sim_check_tournament(d: *mut Drover, domain: u32) -> u32;
}

/// Fails unless the structs mirrored here are laid out as in C.
pub fn check_layout() {
    // SAFETY: constants of the linked object.
    let native = unsafe {
        [
            sim_params_bytes,
            sim_vm_order_bytes,
            sim_pool_order_bytes,
            sim_measured_bytes,
            sim_allotment_bytes,
            sim_vm_view_bytes,
            sim_vcpu_view_bytes,
            sim_thread_view_bytes,
        ]
    };
    let mirrored = [
        size_of::<Params>(),
        size_of::<VmOrder>(),
        size_of::<PoolOrder>(),
        size_of::<Measured>(),
        size_of::<AllotmentOf>(),
        size_of::<VmView>(),
        size_of::<VcpuView>(),
        size_of::<ThreadView>(),
    ];
    assert_eq!(native, mirrored, "src/scx/native.rs no longer mirrors native/policy.c");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structs_are_laid_out_as_in_c() {
        check_layout();
        // SAFETY: constants of the linked object.
        let (thread, domains) = unsafe { (sim_thread_bytes, sim_max_domains) };
        assert!(thread >= size_of::<ThreadView>() && domains >= 1);
    }
}

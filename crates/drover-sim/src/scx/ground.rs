// SPDX-License-Identifier: GPL-2.0-only
//! policy/base/ground.h on virtual time: what the policy may ask, answered by the simulated kernel.
//!
//! Every function gets the `struct drover` it was called with; its `ground` field leads here. There
//! are no globals, so any number of simulations run side by side, on any number of threads.

use super::memory::Room;
use super::native::{DROVER_HOST_SLOT, drover, runqueue, sim_drain_to, task_struct, thread};
use super::queues::{MAX_SLICE, Planted, Queues};
use crate::machine::{CLASS_TIMERS, Machine, NOBODY, TaskId};
use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int};

/// What `drover.ground` points to, for as long as one call into the policy lasts.
pub struct Ground {
    pub(super) machine: *mut Machine,
    pub(super) queues: *mut Queues,
    pub(super) threads: *const Room<thread>,
    /// The pCPU that asks for work, during a dispatch.
    pub(super) cpu: u32,
}

/// The machine and queues behind `d`.
///
/// # Safety
/// To be called only from within a call into the policy that `Policy::call` made with this `d`.
unsafe fn behind<'a>(d: *mut drover) -> (&'a mut Machine, &'a mut Queues, u32) {
    // SAFETY: `Policy::call` stored the address of a live Ground there, whose pointers come from
    // the exclusive references it holds and does not use until the policy returns.
    unsafe {
        let ground = (*d).ground as *const Ground;
        (&mut *(*ground).machine, &mut *(*ground).queues, (*ground).cpu)
    }
}

/// What the policy knows of each task.
///
/// # Safety
/// As for [`behind`].
unsafe fn threads<'a>(d: *mut drover) -> &'a Room<thread> {
    // SAFETY: as in `behind`; the threads outlive the call.
    unsafe {
        let ground = (*d).ground as *const Ground;
        &*(*ground).threads
    }
}

thread_local! {
    /// The first assertion of the policy that failed in the call that this thread makes.
    static FAILED: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// The first assertion that failed since this was last asked.
pub(super) fn take_failed_assertion() -> Option<String> {
    FAILED.take()
}

/// Only noted: the policy goes on, and the simulation ends with it after the call.
#[unsafe(no_mangle)]
extern "C" fn ground_assertion_failed(what: *const c_char, file: *const c_char, line: c_int) {
    // SAFETY: the policy passes string literals.
    let (what, file) = unsafe { (CStr::from_ptr(what), CStr::from_ptr(file)) };
    let text = format!("the policy asserts {what:?} at {file:?}:{line}, which is not so");
    FAILED.with_borrow_mut(|failed| {
        failed.get_or_insert(text);
    });
}

fn number(task: *mut task_struct) -> TaskId {
    (task as usize - 1) as TaskId
}

/// The policy's name for a task, which it never looks into: its number + 1, as a pointer.
pub(super) fn pointer(task: TaskId) -> *mut task_struct {
    (task as usize + 1) as *mut task_struct
}

#[unsafe(no_mangle)]
extern "C" fn ground_now_ns(d: *mut drover) -> u64 {
    // SAFETY: called by the policy.
    let (m, queues, _) = unsafe { behind(d) };
    queues.clock_ns(m)
}

#[unsafe(no_mangle)]
extern "C" fn ground_cpu_time_ns(d: *mut drover, task: *mut task_struct) -> u64 {
    // SAFETY: called by the policy.
    let (m, queues, _) = unsafe { behind(d) };
    let task = &m.tasks[number(task) as usize];
    let half = queues.planted == Some(Planted::ChargesHalf) && task.vm % 2 == 1;
    task.cpu_time_ns >> u32::from(half)
}

/// The simulated guests' exits are time of the pCPU, not of a task: there is none to take off.
#[unsafe(no_mangle)]
extern "C" fn ground_hypervisor_time_ns(_: *mut drover, _: *mut task_struct) -> u64 {
    0
}

/// CPU time that the vCPU was seen to spin since it was put on a pCPU.
#[unsafe(no_mangle)]
extern "C" fn ground_spun_ns(d: *mut drover, task: *mut task_struct) -> u64 {
    // SAFETY: called by the policy.
    let (m, _, _) = unsafe { behind(d) };
    m.tasks[number(task) as usize].spun_ns
}

#[unsafe(no_mangle)]
extern "C" fn ground_task_pcpu(d: *mut drover, task: *mut task_struct) -> u32 {
    // SAFETY: called by the policy.
    let (m, _, _) = unsafe { behind(d) };
    m.tasks[number(task) as usize].pcpu
}

#[unsafe(no_mangle)]
extern "C" fn ground_may_run_on(d: *mut drover, task: *mut task_struct, pcpu: u32) -> bool {
    // SAFETY: called by the policy.
    let (m, _, _) = unsafe { behind(d) };
    m.may_run_on(number(task), pcpu)
}

#[unsafe(no_mangle)]
extern "C" fn ground_waker(d: *mut drover, pcpu: *mut u32) -> u32 {
    // SAFETY: called by the policy.
    let (m, _, _) = unsafe { behind(d) };
    // SAFETY: the policy passes a variable of its own.
    unsafe { *pcpu = m.this_cpu };
    let current = m.pcpus[m.this_cpu as usize].current;
    if !m.wakes || current == NOBODY {
        return DROVER_HOST_SLOT;
    }
    // SAFETY: called by the policy; the thread's struct is there as long as the task is.
    unsafe { (*threads(d).at(current as usize)).slot }
}

/// The simulated kernel has no threads of its own.
#[unsafe(no_mangle)]
extern "C" fn ground_is_kernel_thread(_: *mut drover, _: *mut task_struct) -> bool {
    false
}

#[unsafe(no_mangle)]
extern "C" fn ground_is_leaving(d: *mut drover, task: *mut task_struct) -> bool {
    // SAFETY: called by the policy.
    let (m, _, _) = unsafe { behind(d) };
    m.tasks[number(task) as usize].leaving
}

/// No task of the simulator's is inside the kernel.
#[unsafe(no_mangle)]
extern "C" fn ground_blocks_rcu(_: *mut drover, _: *mut task_struct) -> bool {
    false
}

#[unsafe(no_mangle)]
extern "C" fn ground_set_slice(d: *mut drover, task: *mut task_struct, slice_ns: u64) {
    // SAFETY: called by the policy.
    let (m, _, _) = unsafe { behind(d) };
    m.tasks[number(task) as usize].slice_ns = slice_ns.min(MAX_SLICE);
}

#[unsafe(no_mangle)]
extern "C" fn ground_enqueue(
    d: *mut drover,
    task: *mut task_struct,
    queue: u64,
    slice_ns: u64,
    order: u64,
) {
    // SAFETY: called by the policy.
    let (m, queues, _) = unsafe { behind(d) };
    queues.enqueue(m, number(task), queue as usize, slice_ns, order);
}

#[unsafe(no_mangle)]
extern "C" fn ground_run_on(
    d: *mut drover,
    task: *mut task_struct,
    pcpu: u32,
    slice_ns: u64,
    preempt: bool,
) {
    // SAFETY: called by the policy.
    let (m, queues, _) = unsafe { behind(d) };
    queues.run_on(m, number(task), pcpu, slice_ns, preempt);
}

#[unsafe(no_mangle)]
extern "C" fn ground_vm_queue(d: *mut drover, slot: u32, domain: u32) -> u64 {
    // SAFETY: called by the policy.
    let (_, queues, _) = unsafe { behind(d) };
    u64::from(slot) * u64::from(queues.nr_domains) + u64::from(domain)
}

/// No VM here has a quota for each vCPU: nobody is ever parked.
#[unsafe(no_mangle)]
extern "C" fn ground_parked_queue(_: *mut drover, _: u32) -> u64 {
    0
}

#[unsafe(no_mangle)]
extern "C" fn ground_take_first(d: *mut drover, queue: u64) -> bool {
    // SAFETY: called by the policy.
    let (m, queues, cpu) = unsafe { behind(d) };
    queues.take_first(m, cpu, queue as usize)
}

#[unsafe(no_mangle)]
extern "C" fn ground_take_due(
    d: *mut drover,
    queue: u64,
    until_ns: u64,
    next_ns: *mut u64,
) -> bool {
    // SAFETY: called by the policy.
    let (m, queues, cpu) = unsafe { behind(d) };
    let due_ns = |task: TaskId| {
        // SAFETY: called by the policy, which does not write to the task's struct now.
        Some(unsafe { (*threads(d).at(task as usize)).due_ns })
    };
    // SAFETY: the policy passes where it has the one and wants the other.
    queues.take_due(m, cpu, queue as usize, until_ns, due_ns, unsafe { &mut *next_ns })
}

#[unsafe(no_mangle)]
extern "C" fn ground_take_vcpu(d: *mut drover, queue: u64, record: u32) -> bool {
    // SAFETY: called by the policy.
    let (m, queues, cpu) = unsafe { behind(d) };
    let is_it = |task: TaskId| {
        // SAFETY: called by the policy, which does not write to the task's struct now.
        let known = unsafe { (*threads(d).at(task as usize)).record };
        (known == record).then_some(0)
    };
    queues.take_due(m, cpu, queue as usize, 0, is_it, &mut 0)
}

#[unsafe(no_mangle)]
extern "C" fn ground_only_pcpu(d: *mut drover, task: *mut task_struct) -> i32 {
    // SAFETY: called by the policy.
    let (m, _, _) = unsafe { behind(d) };
    let mut allowed = m.allowed(number(task)).iter();
    match (allowed.next(), allowed.next()) {
        (Some(only), None) => only as i32,
        _ => -1,
    }
}

/// Simulated pCPUs have one speed.
#[unsafe(no_mangle)]
extern "C" fn ground_set_speed(_: *mut drover, _: u32, _: u32) {}

#[unsafe(no_mangle)]
extern "C" fn ground_place_anew(d: *mut drover) {
    // SAFETY: called by the policy.
    let (_, queues, cpu) = unsafe { behind(d) };
    queues.reenqueue_local(cpu);
}

#[unsafe(no_mangle)]
extern "C" fn sim_reenqueue_local(d: *mut drover) {
    // SAFETY: called by the policy.
    let (_, queues, cpu) = unsafe { behind(d) };
    queues.reenqueue_local(cpu);
}

#[unsafe(no_mangle)]
extern "C" fn ground_drain(d: *mut drover, queue: u64, slice_ns: u64) {
    // SAFETY: called by the policy.
    let waiting = unsafe { behind(d) }.1.waiting_in(queue as usize);
    for task in waiting {
        // SAFETY: called by the policy, which asks for this; nothing else is borrowed meanwhile.
        let to = unsafe { sim_drain_to(d, pointer(task), threads(d).at(task as usize)) };
        // SAFETY: as above.
        let (m, queues, _) = unsafe { behind(d) };
        if let Ok(cpu) = u32::try_from(to) {
            m.tasks[task as usize].slice_ns = slice_ns;
            queues.dequeue(task);
            queues.insert_local(m, task, cpu, false);
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn ground_first_order(d: *mut drover, queue: u64, pcpu: u32, order: *mut u64) -> bool {
    // SAFETY: called by the policy.
    let (m, queues, _) = unsafe { behind(d) };
    let Some(first_order) = queues.first_order(m, pcpu, queue as usize) else { return false };
    // SAFETY: the policy passes where it wants the answer.
    unsafe { order.write(first_order) };
    true
}

#[unsafe(no_mangle)]
extern "C" fn ground_claim(d: *mut drover, task: *mut task_struct, pcpu: u32) -> bool {
    // SAFETY: called by the policy.
    let (m, _, _) = unsafe { behind(d) };
    // It could not be kicked from a pCPU that is going (bpf/ground.bpf.h).
    m.pcpus[m.this_cpu as usize].online && m.may_run_on(number(task), pcpu) && m.idle.take(pcpu)
}

#[unsafe(no_mangle)]
extern "C" fn ground_kick(d: *mut drover, pcpu: u32) {
    // SAFETY: called by the policy.
    let (m, queues, _) = unsafe { behind(d) };
    queues.kick(m, pcpu);
}

#[unsafe(no_mangle)]
extern "C" fn ground_preempt(d: *mut drover, pcpu: u32) {
    // SAFETY: called by the policy.
    let (m, queues, _) = unsafe { behind(d) };
    queues.preempt(m, pcpu);
}

#[unsafe(no_mangle)]
extern "C" fn ground_timer(d: *mut drover, slot: u32, at_ns: u64, now_ns: u64) {
    // SAFETY: called by the policy.
    let (m, queues, _) = unsafe { behind(d) };
    // The policy's clock is not the machine's.
    let in_ns = match queues.planted {
        Some(Planted::LosesTimers) => return,
        Some(Planted::HurriesTimers) => 0,
        _ => (at_ns.wrapping_sub(now_ns) as i64).max(0) as u64,
    };
    let goes_off_ns = m.now_ns + in_ns + m.timer_late_ns();
    m.events.set(CLASS_TIMERS, queues.timers.set(slot, goes_off_ns, at_ns));
}

#[unsafe(no_mangle)]
extern "C" fn ground_runqueue(d: *mut drover, domain: u32) -> *mut runqueue {
    // SAFETY: called by the policy.
    let (_, queues, _) = unsafe { behind(d) };
    if domain < queues.nr_domains {
        queues.domains.at(domain as usize)
    } else {
        std::ptr::null_mut()
    }
}

#[unsafe(no_mangle)]
extern "C" fn ground_lock_runqueue(domain: *mut runqueue) {
    // SAFETY: called by the policy, with what `ground_runqueue` gave.
    let held = unsafe { &mut (*domain).lock.held };
    assert_eq!(*held, 0, "the policy takes a domain's lock twice: on a real host it would hang");
    *held = 1;
}

#[unsafe(no_mangle)]
extern "C" fn ground_unlock_runqueue(domain: *mut runqueue) {
    // SAFETY: as above.
    unsafe { (*domain).lock.held = 0 };
}

/// The process of a VM: 0 is none.
pub(super) fn process_of(vm: u32) -> u32 {
    vm + 1
}

#[unsafe(no_mangle)]
extern "C" fn ground_process(d: *mut drover, task: *mut task_struct) -> u64 {
    // SAFETY: called by the policy.
    let (m, _, _) = unsafe { behind(d) };
    process_of(m.tasks[number(task) as usize].vm).into()
}

/// No simulated process executes another program.
#[unsafe(no_mangle)]
extern "C" fn ground_exec_id(_: *mut drover, _: *mut task_struct) -> u32 {
    0
}

#[unsafe(no_mangle)]
extern "C" fn ground_tid(_: *mut drover, task: *mut task_struct) -> u32 {
    number(task)
}

/// All VMs are root's.
#[unsafe(no_mangle)]
extern "C" fn ground_user(_: *mut drover, _: *mut task_struct) -> u32 {
    0
}

#[unsafe(no_mangle)]
extern "C" fn ground_vcpu_of(d: *mut drover, task: *mut task_struct) -> i32 {
    // SAFETY: called by the policy.
    let (m, _, _) = unsafe { behind(d) };
    let task = &m.tasks[number(task) as usize];
    if task.in_kvm_run { task.vcpu as i32 } else { -1 }
}

#[unsafe(no_mangle)]
extern "C" fn ground_slot_of(d: *mut drover, process: u64) -> u32 {
    // SAFETY: called by the policy.
    let (_, queues, _) = unsafe { behind(d) };
    queues.vm_slots.get(process as usize).copied().unwrap_or(0)
}

#[unsafe(no_mangle)]
extern "C" fn ground_enter(d: *mut drover, process: u64, slot: u32) -> bool {
    // SAFETY: called by the policy.
    let (_, queues, _) = unsafe { behind(d) };
    let needed = process as usize + 1;
    if queues.vm_slots.len() < needed {
        queues.vm_slots.resize(needed, 0);
    }
    let is_new = queues.vm_slots[process as usize] == 0;
    if is_new {
        queues.vm_slots[process as usize] = slot;
        queues.found.push(process as u32);
    }
    is_new
}

#[unsafe(no_mangle)]
extern "C" fn ground_forget(d: *mut drover, process: u64) {
    // SAFETY: called by the policy.
    let (_, queues, _) = unsafe { behind(d) };
    queues.vm_slots[process as usize] = 0;
}

#[unsafe(no_mangle)]
extern "C" fn ground_pop_slot(d: *mut drover) -> u32 {
    // SAFETY: called by the policy.
    let (_, queues, _) = unsafe { behind(d) };
    queues.free_slots.pop().unwrap_or(0)
}

#[unsafe(no_mangle)]
extern "C" fn ground_push_slot(d: *mut drover, slot: u32) {
    // SAFETY: called by the policy.
    let (_, queues, _) = unsafe { behind(d) };
    if queues.planted != Some(Planted::LeaksSlots) {
        queues.free_slots.push(slot);
    }
}

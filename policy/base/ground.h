/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the policy may ask of the ground it runs on.
 *
 * The policy calls nothing else. In the kernel these are a few lines each over
 * sched_ext (bpf/ground.bpf.h); in the simulator they act on virtual time. A
 * task is opaque here: what the policy knows of it is in struct thread.
 *
 * A queue holds tasks in the order of a u64 that may wrap. Every (VM, domain)
 * pair has one.
 */
#ifndef DROVER_GROUND_H
#define DROVER_GROUND_H

#include "base/types.h"

#ifdef __bpf__
#define GROUND static __always_inline
#else
#define GROUND extern
#undef __always_inline
#define __always_inline inline __attribute__((always_inline))
#endif

/* In the kernel this is the kernel's own task; the simulator brings its own. */
struct task_struct;

/* --- time --- */

/* Now, monotonic. Cheap: may lag by the length of one scheduling event. */
GROUND u64 ground_now_ns(struct drover *d);
/* CPU time the task has received in its life, as the ground accounts it. */
GROUND u64 ground_cpu_time_ns(struct drover *d, struct task_struct *task);

/* How much of that was spent in the hypervisor, not in the guest, as far as sampling tells. */
GROUND u64 ground_hypervisor_time_ns(struct drover *d, struct task_struct *task);
/* CPU time for which the running vCPU was seen to spin since it was switched to. */
GROUND u64 ground_spun_ns(struct drover *d, struct task_struct *task);

/* --- tasks --- */

/* The pCPU the task runs on, or last ran on. */
GROUND u32 ground_task_pcpu(struct drover *d, struct task_struct *task);
/* May the task run on that pCPU now (affinity, migration, hotplug)? */
GROUND bool ground_may_run_on(struct drover *d, struct task_struct *task, u32 pcpu);
/* The only pCPU where the task may ever run, or -1. */
GROUND s32 ground_only_pcpu(struct drover *d, struct task_struct *task);
/* Is the task one of the kernel's own threads? */
GROUND bool ground_is_kernel_thread(struct drover *d, struct task_struct *task);
/*
 * Is the task on its way out? The kernel does not ask about one: preempted, it stands at once
 * among those that the pCPU runs next, and the pCPU does not ask for work.
 */
GROUND bool ground_is_leaving(struct drover *d, struct task_struct *task);
/* Was the task preempted inside a read-side section of RCU? The kernel cannot free memory before it
 * has run on, and ends a scheduler that leaves it waiting for 21 s. */
GROUND bool ground_blocks_rcu(struct drover *d, struct task_struct *task);
/* How long the running task may go on before ground asks again; 0: ask now. */
GROUND void ground_set_slice(struct drover *d, struct task_struct *task, u64 slice_ns);

/* --- whose slots are: processes, and cgroups with OWNER_CGROUP --- */

GROUND u64 ground_process(struct drover *d, struct task_struct *task);
/* How often the task's process has executed a program. */
GROUND u32 ground_exec_id(struct drover *d, struct task_struct *task);
/* The task's own number. */
GROUND u32 ground_tid(struct drover *d, struct task_struct *task);
/* The user whose process that is; 0: root. */
GROUND u32 ground_user(struct drover *d, struct task_struct *task);
/* The VM whose thread wakes a task just now, and the pCPU that it runs on; that of the host: none
 * does, or an interrupt. */
GROUND u32 ground_waker(struct drover *d, u32 *pcpu);
/* The number of the vCPU that the running task has loaded, if it is in KVM_RUN; else -1. */
GROUND s32 ground_vcpu_of(struct drover *d, struct task_struct *task);
/*
 * The container the task is in: the slot of its cgroup, or of the nearest above that has one, and
 * that cgroup; DROVER_HOST_SLOT: none has.
 */
GROUND u32 ground_container_of(struct drover *d, struct task_struct *task, u64 *owner_id);
/* The slot with which that was entered; that of the host: with none. */
GROUND u32 ground_slot_of(struct drover *d, u64 owner_id);
/* Enter it; false if it has one already, which stays. */
GROUND bool ground_enter(struct drover *d, u64 owner_id, u32 slot);
GROUND void ground_forget(struct drover *d, u64 owner_id);
/* A slot out of those that are free, a low one if it can be; that of the host: none is. */
GROUND u32 ground_pop_slot(struct drover *d);
GROUND void ground_push_slot(struct drover *d, u32 slot);

/* --- placing the task that has just become ready; one of these, once --- */

/* Put it into a queue, to be taken in order. */
GROUND void ground_enqueue(struct drover *d, struct task_struct *task, u64 queue, u64 slice_ns,
			   u64 order);
/*
 * Let it run on that pCPU next; with preempt, at once: on the pCPU that it is on already. (A kernel
 * may forget that on the way to another one.)
 */
GROUND void ground_run_on(struct drover *d, struct task_struct *task, u32 pcpu, u64 slice_ns,
			  bool preempt);

/* --- queues --- */

/* A search looks at no more threads of a queue, which is locked meanwhile. */
#define GROUND_SEARCH_MAX 256

GROUND u64 ground_vm_queue(struct drover *d, u32 slot, u32 domain);
/* Of the VM's threads that are parked (quota.h): none is taken from there. */
GROUND u64 ground_parked_queue(struct drover *d, u32 slot);
/* Take the first task that may run here, to run on the asking pCPU next. */
GROUND bool ground_take_first(struct drover *d, u64 queue);
/*
 * Of such tasks take the one that must run first (thread.due_ns), if that is then or before.
 * *next_ns is when the first of those that stay must run; as it was, if none stays. Searches the
 * queue: not for every pick.
 */
GROUND bool ground_take_due(struct drover *d, u64 queue, u64 until_ns, u64 *next_ns);
/* Of such tasks take the vCPU with that record. Searches, too. */
GROUND bool ground_take_vcpu(struct drover *d, u64 queue, u32 record);
/* Ask drain_to (drain.h) of each task in the queue, and send it to run on the pCPU that it says. */
GROUND void ground_drain(struct drover *d, u64 queue, u64 slice_ns);
/* Finds the first task in the queue that may run on that pCPU, and its order. False: there is none.
 */
GROUND bool ground_first_order(struct drover *d, u64 queue, u32 pcpu, u64 *order);

/* --- pCPUs --- */

/*
 * Claim that pCPU for the task, to be kicked. False: it is not idle, was claimed by another,
 * the task may not run there, or it could not be kicked from here.
 */
GROUND bool ground_claim(struct drover *d, struct task_struct *task, u32 pcpu);
/* Have all tasks that were to run next on this pCPU placed anew (drover_place). */
GROUND void ground_place_anew(struct drover *d);
/* Make the pCPU ask for work again. */
GROUND void ground_kick(struct drover *d, u32 pcpu);
/* Take the slice from the running task there: the pCPU asks for work at once. */
GROUND void ground_preempt(struct drover *d, u32 pcpu);
/* Have drover_timer called for that timer (timer.h) then, and not when it was to be before; it is
 * now_ns. */
GROUND void ground_timer(struct drover *d, u32 timer, u64 at_ns, u64 now_ns);

/* Ask for so much of that pCPU's full speed, of 1024. From that pCPU only. */
GROUND void ground_set_speed(struct drover *d, u32 pcpu, u32 speed);

/* --- domains --- */

/* NULL only for a domain that does not exist. */
GROUND struct runqueue *ground_runqueue(struct drover *d, u32 domain);
GROUND void ground_lock_runqueue(struct runqueue *rq);
GROUND void ground_unlock_runqueue(struct runqueue *rq);

#endif

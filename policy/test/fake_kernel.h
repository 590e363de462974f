/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The kernel's part: events in the order in which it delivers them.
 *
 * This is kernel/sched/ext together with bpf/drover.bpf.c, with all that does
 * not matter to a policy left out. A wake-up has two halves (a pCPU is chosen;
 * the task is queued there) and so has a switch (the pCPU asks for work; it
 * switches to it): between them, other pCPUs act, and tests can have them do so.
 *
 * Between a pCPU's two halves the thread that ran is stopped and placed first,
 * and then the next one runs; a preempting thread goes to the head of what the
 * pCPU runs next; a pCPU that has such a thread does not ask for work; and one
 * that becomes idle is told so once.
 */
#ifndef DROVER_TEST_FAKE_KERNEL_H
#define DROVER_TEST_FAKE_KERNEL_H

#include "fake_ground.h"

/* A thread of that process, found as a ground finds it; asleep. A vCPU has run just now. */
struct task_struct *kernel_thread(struct ground *g, u32 tgid, u32 kind);
/* A VM of busy vCPUs, all woken; returns its slot. shares 0: the default. */
u32 kernel_busy_vm(struct ground *g, u32 tgid, u32 nr_vcpus, u32 shares);
struct vm *kernel_vm(struct ground *g, u32 tgid);
void kernel_set_shares(struct ground *g, u32 tgid, u32 shares);
/* Its settings were changed, or those of pools: as bpf/drover.bpf.c does with an order. */
void kernel_settle_vm(struct ground *g, u32 tgid);
void kernel_settle_pools(struct ground *g);
/* CPU time of all tasks of the process. */
u64 kernel_cpu_time_ns(struct ground *g, u32 tgid);
/* Of the time in which vCPUs of the VM run, the part in which not all do, for so long from now. */
double kernel_hazard(struct ground *g, u32 tgid, u64 duration_ns);
/* How often any of them has begun to run. */
u64 kernel_runs(struct ground *g, u32 tgid);
u64 kernel_longest_wait_ns(struct ground *g);

/* The task wakes: the first half, the second half, or both. */
void kernel_select(struct ground *g, struct task_struct *task);
void kernel_enqueue(struct ground *g, struct task_struct *task);
void kernel_wake(struct ground *g, struct task_struct *task);

/* The pCPU asks for work, switches to it; as often as any pCPU shall. */
void kernel_pick(struct ground *g, u32 pcpu);
void kernel_switch(struct ground *g, u32 pcpu);
void kernel_settle(struct ground *g);

/* The task running there sleeps; the pCPU has not asked for work yet. */
void kernel_stop(struct ground *g, u32 pcpu);
/* The task running there sleeps, or leaves for good; the pCPU asks for work. */
void kernel_sleep(struct ground *g, u32 pcpu);
void kernel_exit(struct ground *g, u32 pcpu);
/* So many threads of the process leave for good, as they are found running. */
void kernel_exit_threads(struct ground *g, u32 tgid, u32 nr_threads);

/* The task running there yields, to that one or (NULL) to any; the pCPU asks for work if it gave
 * way. */
bool kernel_yield(struct ground *g, u32 pcpu, struct task_struct *to);

/* A new task, or one whose affinity was changed, is placed. */
void kernel_set_affinity(struct ground *g, struct task_struct *task, u64 allowed);
void kernel_set_cgroup(struct ground *g, struct task_struct *task, u32 cgroup);

void kernel_offline(struct ground *g, u32 pcpu);
void kernel_online(struct ground *g, u32 pcpu);

/* The daemon allots what VMs are owed, if shares alone do not say it (fake_allocator.c). */
void fake_allot(struct ground *g);
/* Timers that are due go off. */
void kernel_timers(struct ground *g);

/* Time passes: slices end, bursts end, sleepers wake, the wait bound is checked. */
void kernel_run(struct ground *g, u64 duration_ns);

#endif

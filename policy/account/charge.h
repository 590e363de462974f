/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Charging: what a thread used is counted once for all that goes by it; and half a core in part.
 *
 * Idea. CPU time counts in virtual time (share.h), for a reservation (share.h), a quota
 * (quota.h), for progress (vcpu.h) and for counters. All are charged here, when a thread stops,
 * when it may go on, and where skew is bounded at each tick; limits take what the VM used from the
 * sum (limit.h).
 *
 * Two hardware threads of a core (SMT siblings) share it: both busy, each gets on at some 5/8
 * of the speed it has alone. So used and charged are two things. What a thread used, all of it,
 * counts for limits, progress, wants and counters; what it is charged for, in virtual time and of a
 * reservation, is less while its sibling is busy: `shared_core_permille` of the time. So of two VMs
 * alike the one that has to share its core is owed more CPU time.
 *
 * Each pCPU keeps for how long it has been busy, in one word, as share.h does: doubled, with the
 * lowest bit set while it is, and then less the moment when that began. A thread that is charged
 * asks how much its sibling's has grown since: that long the two ran side by side, whichever began
 * and ended first.
 *
 * Worked example. A runs on pCPU 0 from 0 to 8 ms, B on its sibling from 6 to 20 ms. At 8 ms pCPU 1
 * has been busy for 2 ms: A is charged 6 + 2 * 0.625 = 7.25 ms. At 20 ms pCPU 0's time has grown by
 * 2 ms since B began: B is charged 12 + 1.25 = 13.25 ms.
 *
 * Limitations. The gain of two threads over one depends on what they do, 10 to 30 % mostly;
 * one figure stands for all. Only cores of two threads are known: of more, each thread counts as a
 * core. What real-time tasks take of a core is not seen. What is not charged yet (share_vtime_now)
 * counts in full until it is, and reservations are admitted by pCPUs, as if each were a core.
 */
#ifndef DROVER_CHARGE_H
#define DROVER_CHARGE_H

#include "account/vcpu.h"
#include "share/share.h"
#include "limit/quota.h"
#include "place/home.h"

/* --- half a core --- */

/* For how long that pCPU has been busy up to now, doubled, without its bit. */
static __always_inline u64 charge_core_busy(struct drover *d, u32 at, u64 now_ns)
{
	u64 word = *(volatile u64 *)&pcpu_at(d, at)->busy;

	return word & 1 ? word - 1 + (now_ns << 1) : word;
}

/* A thread begins to run there. */
static __always_inline void charge_core_begin(struct drover *d, struct pcpu *pcpu, u64 now_ns)
{
	if (!pcpu->sibling)
		return;
	ASSERT(!(pcpu->busy & 1));
	pcpu->smt_neighbour = DROVER_MAX_VMS;
	pcpu->shared = charge_core_busy(d, pcpu->sibling - 1, now_ns);
	pcpu->busy = pcpu->busy - (now_ns << 1) + 1;
}

/* None does any more. */
static __always_inline void charge_core_end(struct drover *d, u32 at, u64 now_ns)
{
	pcpu_at(d, at)->busy = charge_core_busy(d, at, now_ns);
}

/* Of what the thread that runs there has run since it was last charged, that much is spared it. */
static __always_inline u64 charge_core_discount_ns(struct drover *d, struct pcpu *pcpu, u64 ran_ns)
{
	u64 busy;
	s64 grown;

	if (!pcpu->sibling)
		return 0;
	busy = charge_core_busy(d, pcpu->sibling - 1, ground_now_ns(d));
	grown = (s64)(busy - pcpu->shared);
	/* Clocks of pCPUs differ by a little. */
	if (grown <= 0)
		return 0;
	pcpu->shared = busy;
	return min_of((u64)grown >> 1, ran_ns) * (1000 - d->params.shared_core_permille) / 1000;
}

/* --- all that goes by it --- */

/* The thread used so much there that it was not charged for yet; part of that is spared it. */
BPF_GLOBAL int charge_book(THE_DROVER, THE_THREAD, u32 at, u64 ran_ns, u64 smt_discount_ns)
{
	share_charge(d, t, ran_ns, smt_discount_ns);
	home_count(d, t, at, ran_ns);
	return 0;
}

/* When the thread last stopped, the kernel counted as its own time how long the next was chosen. */
static __always_inline void charge_late(struct drover *d, struct task_struct *task,
					struct thread *t, u32 at)
{
	u64 late_ns = ground_cpu_time_ns(d, task) - t->charged_ns;

	if (late_ns)
		charge_book(d, t, at, late_ns, 0);
}

/* Charge the running thread and its VM for what it has run since last charged. */
BPF_GLOBAL int drover_charge(THE_DROVER, THE_TASK, THE_THREAD, u32 at)
{
	u64 ran_ns = ground_cpu_time_ns(d, task) - t->charged_ns;

	charge_book(d, t, at, ran_ns, charge_core_discount_ns(d, pcpu_at(d, at), ran_ns));
	share_clock_pass(d, t->slot, at);
	quota_charge(d, t, ran_ns);
	if (t->kind != THREAD_VCPU)
		return 0;
	vcpu_progress(d, t, ran_ns, ground_hypervisor_time_ns(d, task));
	together_note_spun(d, vm_at(d, t->slot), vcpu_take_spun_ns(d, task, t), ground_now_ns(d));
	return 0;
}

/* The same for one that may go on without stopping. */
static __always_inline void charge_and_go_on(struct drover *d, struct task_struct *task,
					     struct thread *t, u32 at, u64 now_ns)
{
	struct vm *vm = vm_at(d, t->slot);

	drover_charge(d, task, t, at);
	/* At no moment is it counted as one that does not run. */
	__sync_fetch_and_add(&vm->running_sum, (now_ns - t->begun_ns) << SHARE_COUNT_BITS);
	t->begun_ns = now_ns;
	if (t->kind == THREAD_VCPU)
		together_judge(d, vm, now_ns);
}

/*
 * The thread begins to run there. What the kernel counted late is charged before its time counts as
 * uncharged, or it would count twice.
 */
static __always_inline void charge_begin(struct drover *d, struct task_struct *task,
					 struct thread *t, u32 at, u64 now_ns)
{
	struct vm *vm = vm_at(d, t->slot);

	charge_late(d, task, t, at);
	share_lift_floor(vm, t);
	share_begin(vm, t, now_ns);
	charge_core_begin(d, pcpu_at(d, at), now_ns);
}

/* It stops. */
static __always_inline void charge_end(struct drover *d, struct task_struct *task, struct thread *t,
				       u32 at, u64 now_ns)
{
	drover_charge(d, task, t, at);
	share_end(vm_at(d, t->slot), t);
	charge_core_end(d, at, now_ns);
}

#endif

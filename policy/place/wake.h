/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Waking: where a thread that has just become ready goes.
 *
 * Idea. In this order: an idle pCPU; a pCPU whose running thread is ahead of the waking one, which
 * is preempted at once, near where the waking one last ran or at home (home.h), else in one other
 * domain, if it is ahead by what a migration is worth (steal_gain); a queue. Which thread is ahead
 * of which: gain.h.
 *
 * A thread that preempts has a turn, a quarter of a slice and on to the tick, that no other one
 * that wakes, and no round, cuts short; only one that is due by a reservation. So short runs end
 * where they began.
 *
 * Worked example. A sleeper (2 vCPUs, 2000 shares) beside a busy VM (4000
 * shares) on two pCPUs. The sleeper's virtual time is held at most 10 ms / 2 =
 * 5 ms behind the clock, the busy VM is at the clock or ahead: the gap is
 * over 5 ms, more than preempt_gain (0.25 ms of CPU time, 0.125 ms of the
 * sleeper's virtual time), and the sleeper runs at once.
 * Should it then stay busy, it is at the clock after 10 ms of CPU time, and
 * waits its turn like any.
 *
 * Limitations. Only one preempting thread is sent to a pCPU at a time; a crowd that wakes at once
 * queues.
 */
#ifndef DROVER_WAKE_H
#define DROVER_WAKE_H

#include "account/waker.h"
#include "limit/quota.h"
#include "place/spread.h"
#include "queue/waiting.h"

/* A pCPU of another domain of the partition, now of this, now of that; or that one. */
static __always_inline u32 wake_elsewhere(struct drover *d, struct thread *t, u32 near)
{
	u32 other = topology_sampled(d, near);

	if (domain_at(d, other)->partition != t->partition)
		return near;
	return bounded(topology_pcpu(d, other, pcpu_at(d, near)->place), DROVER_MAX_PCPUS);
}

/* May a ready thread begin at once? */
static __always_inline bool wake_may_begin(struct drover *d, struct thread *t)
{
	return !vm_at(d, t->slot)->at_limit && !cosched_holds(vm_at(d, t->slot)) &&
	       !quota_holds(d, t, ground_now_ns(d));
}

/* The thread slept and is ready now, near that pCPU. Its pCPU may still be chosen. */
BPF_GLOBAL int drover_woken(THE_DROVER, THE_THREAD, u32 near)
{
	struct vm *vm = vm_at(d, t->slot);
	u32 awake = share_nr_awake(vm);

	/* How few were awake since that was last measured (allot.h)? */
	if (awake < vm->least_awake)
		vm->least_awake = awake;
	waker_note(d, t->slot, near);
	hook_wakes(d, t->slot, awake);
	share_clamp_lag(d, t, near);
	if (!quota_holds(d, t, ground_now_ns(d)))
		waiting_begin(d, t);
	return 0;
}

/* What becomes of a thread that wakes. */
enum drover_wakes {
	WAKES_TO_WAIT,     /* it is placed next (drover_place) */
	WAKES_ON_IDLE,     /* it begins on a pCPU that is idle and was claimed */
	WAKES_TO_PREEMPT,  /* it begins at once, in place of the running thread */
};

/* The thread slept, is ready now and may be sent to several pCPUs: to which? */
static __always_inline u32 drover_select(struct drover *d, struct task_struct *task,
					 struct thread *t, enum drover_wakes *wakes)
{
	s32 target;
	u32 near;

	affinity_refresh(d, task, t);
	near = home_place(d, task, t);
	*wakes = WAKES_TO_PREEMPT;
	target = home_take_back(d, task, t, near);
	if (target != PCPU_NONE) {
		drover_woken(d, t, (u32)target);
		return (u32)target;
	}
	target = idle_claim(d, task, t, near);
	if (target != PCPU_NONE)
		*wakes = WAKES_ON_IDLE;
	drover_woken(d, t, target == PCPU_NONE ? near : (u32)target);
	if (!wake_may_begin(d, t)) {
		/* It is claimed, so no other wake-up would find it: it becomes idle anew. */
		if (*wakes == WAKES_ON_IDLE)
			ground_kick(d, (u32)target);
		*wakes = WAKES_TO_WAIT;
		return near;
	}
	if (*wakes == WAKES_ON_IDLE)
		return (u32)target;
	target = gain_best(d, task, t, near, GAIN_WOKEN);
	if (target == PCPU_NONE && d->params.nr_domains > 1)
		target = gain_best(d, task, t, wake_elsewhere(d, t, near), GAIN_FAR);
	if (target != PCPU_NONE)
		return (u32)target;
	*wakes = WAKES_TO_WAIT;
	return near;
}

/*
 * The ready thread begins at once, if it may: on a pCPU that is idle, or in place of the one that
 * runs on its own pCPU. On an idle one only if it woke: one that was preempted may have its
 * affinity changed on its way to another pCPU, and 6.18 then sends it where it may not run and ends
 * the scheduler. It waits in a queue, and the idle pCPU asks. Whether a thread that may have to
 * wait for its siblings starts is asked when it is picked (plan.h).
 */
static __always_inline bool wake_begins(struct drover *d, struct task_struct *task,
					struct thread *t, u32 near, bool woken)
{
	s32 at = PCPU_NONE;

	if (!wake_may_begin(d, t))
		return false;
	if (woken && !vm_may_wait(vm_at(d, t->slot)))
		at = idle_claim(d, task, t, near);
	if (at != PCPU_NONE) {
		ground_run_on(d, task, (u32)at, d->params.slice_ns, false);
		return true;
	}
	at = gain_best(d, task, t, near, GAIN_WOKEN);
	if (at != PCPU_NONE)
		ground_run_on(d, task, (u32)at, d->params.slice_ns, true);
	return at != PCPU_NONE;
}

/*
 * A pCPU that the queued thread could run on asks for work: one that is idle, which has either seen
 * the thread on its way to idle or is seen here; else one that is to be preempted for it.
 */
static __always_inline void wake_find_pcpu(struct drover *d, struct task_struct *task,
					   struct thread *t, u32 near)
{
	s32 at = idle_claim(d, task, t, near);

	if (at != PCPU_NONE) {
		ground_kick(d, (u32)at);
		return;
	}
	at = wake_may_begin(d, t) ? gain_best(d, task, t, near, GAIN_PUSHED) : PCPU_NONE;
	if (at != PCPU_NONE)
		ground_preempt(d, (u32)at);
}

/*
 * Was the thread preempted where RCU waits for it? Then it runs on next there, a moment, whatever
 * its VM has used: in the lab khugepaged, of nice 19, had waited for 21 s beside a crowd.
 */
static __always_inline bool wake_is_awaited(struct drover *d, struct task_struct *task, u32 at,
					    bool woken)
{
	struct pcpu *pcpu = pcpu_at(d, at);

	return !woken && ground_blocks_rcu(d, task) && ground_may_run_on(d, task, at) &&
	       pcpu->online && !order_is(pcpu, ORDER_TAKEN);
}

/*
 * The ready thread needs a place. woken: it had slept, and no pCPU was chosen for it
 * (drover_select): there is one only.
 */
BPF_GLOBAL int drover_place(THE_DROVER, THE_TASK, THE_THREAD, bool woken)
{
	bool kernel = gain_is_kernel(d, task, t, woken);
	u32 at = ground_task_pcpu(d, task);
	bool awaited = wake_is_awaited(d, task, at, woken);
	u32 near;

	if (t->affinity_seq != d->pcpu_changes)
		affinity_note(d, task, t);
	near = home_place(d, task, t);
	waiting_leave(d, t);
	if (!awaited && quota_holds(d, t, ground_now_ns(d)) && !ground_is_leaving(d, task))
		return quota_park(d, task, t, ground_now_ns(d));
	waiting_begin(d, t);
	if (awaited) {
		ground_run_on(d, task, at, WAIT_BOUND_TURN_MIN_NS, false);
		return 0;
	}
	/* Of one pCPU, it is served there at once. */
	if (kernel && t->pinned_cpu) {
		ground_run_on(d, task, t->pinned_cpu - 1, d->params.slice_ns, woken);
		return 0;
	}
	if (!woken && spread_leave(d, task, pcpu_at(d, at), wake_may_begin(d, t)))
		return 0;
	if ((woken || kernel) && wake_begins(d, task, t, near, woken))
		return 0;
	waiting_enter(d, task, t, near);
	if (!vm_at(d, t->slot)->at_limit)
		wake_find_pcpu(d, task, t, near);
	return 0;
}

#endif

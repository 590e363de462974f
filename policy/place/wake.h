/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Waking: where a thread that has just become ready goes.
 *
 * Idea. In this order: an idle pCPU; a pCPU whose running VM has had more than
 * its due compared with the waking one, which is preempted at once, near where the thread last ran
 * or at home (home.h), else in one other domain, if it has had more by what a migration is worth
 * (steal_gain); a queue.
 * A VM that mostly sleeps is always behind, so its wake-ups cost one
 * interrupt, whatever the slice; a VM that burns its share gains nothing by
 * waking often. Of several pCPUs the one whose VM is furthest ahead is taken; of
 * those that run siblings the nearest to where the thread last ran, unless a sibling
 * has run longer by a slice. A waker never preempts on behalf of its own VM, except a
 * sibling that has run longer than itself by a whole slice.
 *
 * Worked example. A sleeper (2 vCPUs, 2000 shares) beside a busy VM (4000
 * shares) on two pCPUs. The sleeper's virtual time is held at most 10 ms / 2 =
 * 5 ms behind the clock, the busy VM is at the clock or ahead: the gap is
 * over 5 ms, more than preempt_gain (0.25 ms of CPU time, 0.125 ms of the
 * sleeper's virtual time), and the sleeper runs at once.
 * Should it then stay busy, it is at the clock after 10 ms of CPU time, and
 * waits its turn like anybody.
 *
 * Limitations. It looks at no more than eight pCPUs of the domain, so on a
 * wide domain a waker may preempt the second best. Only one preempting thread is
 * sent to a pCPU at a time; a crowd that wakes at once queues.
 */
#ifndef DROVER_WAKE_H
#define DROVER_WAKE_H

#include "queue/waiting.h"

#define WAKE_MAX_LOOKS 8
#define WAKE_NOWHERE (-1)
/* The thread slept, and preempts near where it ran or at home; or in another domain, where it must
 * be owed what a migration is worth. 0: it had to give up its pCPU. */
#define WAKE_NEAR 1
#define WAKE_FAR 2
/* What being due (reserve.h) counts against any gain by shares. */
#define WAKE_DUE (1LL << 56)

/*
 * By how much a thread of that VM, with that vruntime, is owed more than whoever
 * runs there; <= 0: it is not. due: the VM is, by its reservation.
 */
BPF_GLOBAL s64 wake_gain_ns(THE_DROVER, u32 slot, u64 vruntime_ns, u32 at, bool due)
{
	struct vm *vm = vm_at(d, slot);
	struct pcpu *pcpu = pcpu_at(d, at);
	u32 there = pcpu->running_slot;
	s64 gain_ns;

	if (!pcpu->online || pcpu->order.why || there >= DROVER_MAX_VMS)
		return 0;
	if (due && slot == DROVER_HOST_SLOT)
		return there == slot ? 1 : WAKE_DUE;
	if (there == slot) {
		/* Siblings: only to keep their times equal. */
		gain_ns = (s64)(pcpu->running_vruntime_ns - vruntime_ns) - (s64)d->params.slice_ns;
		return gain_ns > 0 ? 1 : 0;
	}
	gain_ns = (s64)(vm_at(d, there)->vtime_ns + share_offset_ns(d, there, pcpu->domain) -
			vm->vtime_ns - share_offset_ns(d, slot, pcpu->domain));
	if (!hook_is_share(d, pcpu->domain))
		return hook_gain(d, at, slot, there);
	if (d->nr_reserved) {
		bool stays = reserve_is_due(vm_at(d, there), ground_now_ns(d));

		/*
		 * A VM that runs by its reservation is preempted by the host's own threads only, as
		 * their last choice: any other VM that is ahead of them gains more here. A VM that
		 * is due preempts one that is not.
		 */
		if (slot == DROVER_HOST_SLOT && gain_ns > 0)
			return stays ? 1 : 1 + gain_ns;
		if (stays)
			return 0;
		if (due)
			return gain_ns > 0 ? WAKE_DUE + gain_ns : WAKE_DUE;
	}
	return gain_ns - (s64)share_weigh(vm, d->params.preempt_gain_ns);
}

/*
 * Is it a kernel thread of the host that had slept? Others wait for what it does, RCU's, the
 * kernel's own, whatever the host's programs have used: it preempts anybody. If it uses up a slice
 * it is a task like others. Those that are nice are none of the host's (account/find.h).
 */
static __always_inline bool wake_is_kernel(struct drover *d, struct task_struct *task,
					   struct thread *t, bool woken)
{
	return t->slot == DROVER_HOST_SLOT && (woken || t->due_ns) &&
	       ground_is_kernel_thread(d, task);
}

/* Is the thread's VM due? The host's programs go by shares before those that are. */
static __always_inline bool wake_is_due(struct drover *d, struct task_struct *task,
					struct thread *t, bool woken)
{
	if (t->slot == DROVER_HOST_SLOT)
		return wake_is_kernel(d, task, t, woken);
	return d->nr_reserved && reserve_is_due(vm_at(d, t->slot), ground_now_ns(d));
}

/* Has who runs there run longer by a slice than who runs on the other? Of siblings, that is. */
static __always_inline bool wake_ran_longer(struct drover *d, u32 at, s32 other)
{
	return other != WAKE_NOWHERE &&
	       (s64)(pcpu_at(d, at)->running_vruntime_ns -
		     pcpu_at(d, (u32)other)->running_vruntime_ns) > (s64)d->params.slice_ns;
}

/*
 * The pCPU to preempt for the thread, or WAKE_NOWHERE. Gains are alike where siblings run: were it
 * always the nearest, one of them would pay for all wake-ups.
 */
static __always_inline s32 wake_target(struct drover *d, struct task_struct *task, struct thread *t,
				       u32 near, u32 woken, bool due)
{
	u32 home = pcpu_at(d, near)->domain;
	u32 looks = (u32)min_of(t->pinned_cpu ? 1 : WAKE_MAX_LOOKS, domain_at(d, home)->nr_pcpus);
	s64 best_gain_ns = woken == WAKE_FAR ? (s64)d->params.steal_gain_ns : 0;
	s32 best = WAKE_NOWHERE;
	u32 look;

	for_each_index(look, 0, looks) {
		u32 at = bounded(topology_pcpu(d, home, pcpu_at(d, near)->place + look),
				 DROVER_MAX_PCPUS);
		s64 gain_ns;

		if (!woken && pcpu_at(d, at)->running_slot == DROVER_HOST_SLOT)
			continue;
		gain_ns = wake_gain_ns(d, t->slot, t->vruntime_ns, at, due);
		if (gain_ns < best_gain_ns || !ground_may_run_on(d, task, at) ||
		    (gain_ns == best_gain_ns && !wake_ran_longer(d, at, best)))
			continue;
		best_gain_ns = gain_ns;
		best = (s32)at;
	}
	return best;
}

/* A pCPU of another domain of the partition, now of this, now of that; or that one. */
static __always_inline u32 wake_elsewhere(struct drover *d, struct thread *t, u32 near)
{
	u32 other = topology_glanced(d, near);

	if (domain_at(d, other)->partition != t->partition)
		return near;
	return bounded(topology_pcpu(d, other, pcpu_at(d, near)->place), DROVER_MAX_PCPUS);
}

/* Nobody comes back from sleep with a claim from before. */
static __always_inline void wake_forget_old_claims(struct drover *d, struct thread *t, u32 near)
{
	struct vm *vm = vm_at(d, t->slot);
	u64 clock_ns = share_own_clock_ns(d, t->slot, pcpu_at(d, near)->domain);

	reserve_wake(d, vm, !share_nr_awake(vm));
	if (share_nr_awake(vm))
		share_bound_claim(vm, clock_ns, share_claim_max_ns(d, vm));
	else
		share_bound_claim(vm, clock_ns, d->params.wake_credit_ns);
	if (t->pinned_cpu)
		share_level_pinned(d, t);
	else
		share_not_before(&t->vruntime_ns, vm->vruntime_floor_ns);
}

/*
 * The pCPU that the thread is to preempt, or WAKE_NOWHERE; `woken` as above. One that had to
 * give up its pCPU may preempt another as if it had woken if its VM is due: where it waits nobody
 * may ask for a slice. The host's own tasks neither push nor are pushed: everybody would push the
 * next one round for ever.
 */
BPF_GLOBAL s32 wake_preempt(THE_DROVER, THE_TASK, THE_THREAD, u32 near, u32 woken)
{
	bool due = wake_is_due(d, task, t, woken);
	s32 target;

	if (!woken && !due)
		return WAKE_NOWHERE;
	target = wake_target(d, task, t, near, woken, due);
	if (target == WAKE_NOWHERE)
		return target;
	pcpu_at(d, (u32)target)->order.why = ORDER_WOKEN;
	__sync_fetch_and_add(&vm_at(d, t->slot)->nr_wake_preemptions, 1);
	return target;
}

#endif

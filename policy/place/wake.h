/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Waking: where a thread that has just become ready goes.
 *
 * Idea. In this order: an idle pCPU; a pCPU whose running thread is ahead of the waking one, which
 * is preempted at once, near where the waking one last ran or at home (home.h), else in one other
 * domain, if it is ahead by what a migration is worth (steal_gain); a queue.
 *
 * One law says which is ahead, among VMs and among the threads of one VM, and always as it is now.
 * Threads of two VMs are compared by their VMs' virtual times, two threads of one VM by their
 * vruntime. A VM that is ahead pays for a wake-up first. If none is, a sibling does. If none of
 * them runs here, the waking thread counts for its VM at where that would stand, had all siblings
 * run as little (share_lag_ns): one vCPU that wants little is not kept waiting by busy siblings
 * that have used up what their VM is owed. They pay: all it runs is charged to the VM. Lag is kept
 * across sleep at both levels, up to wake_credit (10 ms), so a VM gets ahead by it once, not again
 * and again.
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
 * Another. Two busy vCPUs of VM 3 (3000 shares) have just had a round on two pCPUs and it is 8 ms
 * of virtual time ahead of VM 4, which runs now. A third vCPU of VM 3, which runs for 0.1 ms each 2
 * ms, wakes: it is 10 ms behind its siblings' clock, three are awake, on two pCPUs, so it stands at
 * 8 - 10 * 2 / 3 = 1.3 ms. Once VM 4 has run for 1.6 ms it is preempted; in VM 3's own round
 * a sibling is.
 *
 * Limitations. It looks at no more than eight pCPUs of the domain, so on a
 * wide domain a waker may preempt the second best. Only one preempting thread is
 * sent to a pCPU at a time; a crowd that wakes at once queues.
 */
#ifndef DROVER_WAKE_H
#define DROVER_WAKE_H

#include "base/order.h"
#include "queue/waiting.h"

#define WAKE_MAX_LOOKS 8
/* The thread slept, and preempts near where it ran or at home; or in another domain, where it must
 * be owed what a migration is worth. 0: it had to give up its pCPU. */
#define WAKE_NEAR 1
#define WAKE_FAR 2
/* What there is to gain, the least first: where the VM itself is owed nothing, from another VM, by
 * the thread's lag among its siblings; from a sibling; from a VM that is ahead; */
#define WAKE_LAG 1LL
#define WAKE_SIBLING 2LL
/* and what being due (reserve.h) counts against any gain by shares. */
#define WAKE_DUE (1LL << 56)

/*
 * By shares: `ahead_ns` is by how much the VM that runs is ahead of the waking thread's. Where it
 * is not, the thread may be behind its own siblings.
 */
static __always_inline s64 wake_gain_by_shares_ns(struct drover *d, struct vm *vm, s64 ahead_ns,
						  u64 vruntime_ns)
{
	s64 gain_ns = ahead_ns - (s64)share_weigh(vm, d->params.preempt_gain_ns);

	if (gain_ns > 0)
		return WAKE_SIBLING + gain_ns;
	return gain_ns + (s64)share_lag_ns(d, vm, vruntime_ns, ground_now_ns(d)) > 0 ? WAKE_LAG : 0;
}

/* The same where one of the two VMs is served by its reservation: the one that runs stays, the
 * waking one is due. */
static __always_inline s64 wake_gain_reserved_ns(struct drover *d, u32 slot, u32 there,
						 s64 ahead_ns, bool stays, bool due)
{
	u64 now_ns = ground_now_ns(d);

	if (!due)
		return 0;
	if (!stays)
		return WAKE_DUE + max_signed(ahead_ns, 0);
	/* Both are: the one that is for longer. */
	return (s64)(reserve_due_ns(d, vm_at(d, there), now_ns) -
		     reserve_due_ns(d, vm_at(d, slot), now_ns) - d->params.preempt_gain_ns);
}

/*
 * By how much a thread of that VM, with that vruntime, is owed more now than the thread that runs
 * there; <= 0: it is not. due: the VM is, by its reservation.
 */
BPF_GLOBAL s64 wake_gain_ns(THE_DROVER, u32 slot, u64 vruntime_ns, u32 at, bool due)
{
	struct vm *vm = vm_at(d, slot);
	struct pcpu *pcpu = pcpu_at(d, at);
	u32 there = pcpu->running_slot;
	u64 now_ns = ground_now_ns(d);
	bool stays;
	s64 ahead_ns;

	if (!pcpu->online || there >= DROVER_MAX_VMS ||
	    (!order_is(pcpu, ORDER_NONE) && !(due && order_is(pcpu, ORDER_BEGUN))))
		return 0;
	if (due && slot == DROVER_HOST_SLOT)
		return there == slot ? 1 : WAKE_DUE;
	if (there == slot)
		return (s64)(pcpu_vruntime_ns(pcpu, now_ns) - vruntime_ns -
			     d->params.preempt_gain_ns) > 0 ?
			       WAKE_SIBLING :
			       0;
	if (!hook_is_share(d, pcpu->domain))
		return hook_gain(d, at, slot, there);
	ahead_ns = (s64)(share_vtime_now(vm_at(d, there), now_ns) +
			 share_offset_ns(d, there, pcpu->domain) - share_vtime_now(vm, now_ns) -
			 share_offset_ns(d, slot, pcpu->domain));
	stays = d->nr_reserved && reserve_is_due(vm_at(d, there), now_ns);
	/* The host's own threads take the pCPU of one that runs by its reservation as their last
	 * choice. */
	if (slot == DROVER_HOST_SLOT && d->nr_reserved && ahead_ns > 0)
		return stays ? 1 : 1 + ahead_ns;
	if (stays || due)
		return wake_gain_reserved_ns(d, slot, there, ahead_ns, stays, due);
	return wake_gain_by_shares_ns(d, vm, ahead_ns, vruntime_ns);
}

/*
 * Is it a kernel thread of the host that had slept? Others wait for what it does, RCU's, the
 * kernel's own, whatever the host's programs have used: it preempts any other. If it uses up a
 * slice it is a task like others. Those that are nice are none of the host's (account/find.h).
 */
static __always_inline bool wake_is_kernel(struct drover *d, struct task_struct *task,
					   struct thread *t, bool woken)
{
	return t->slot == DROVER_HOST_SLOT && (woken || t->due_ns) &&
	       ground_is_kernel_thread(d, task);
}

/*
 * The pCPU to preempt for the thread, or PCPU_NONE. Gains are alike where siblings run: were it
 * always the nearest, one of them would pay for all wake-ups. So one that has run longer by a slice
 * is preferred.
 */
static __always_inline s32 wake_target(struct drover *d, struct task_struct *task, struct thread *t,
				       u32 near, u32 woken, bool due)
{
	u32 home = pcpu_at(d, near)->domain;
	u32 looks = (u32)min_of(t->pinned_cpu ? 1 : WAKE_MAX_LOOKS, domain_at(d, home)->nr_pcpus);
	s64 best_gain_ns = woken == WAKE_FAR ? (s64)d->params.steal_gain_ns : 0;
	u64 best_vruntime_ns = 0;
	s32 best = PCPU_NONE;
	u32 look;

	for_each_index(look, 0, looks) {
		u32 at = bounded(topology_pcpu(d, home, pcpu_at(d, near)->place + look),
				 DROVER_MAX_PCPUS);
		s64 gain_ns;

		if (!woken && pcpu_at(d, at)->running_slot == DROVER_HOST_SLOT)
			continue;
		gain_ns = wake_gain_ns(d, t->slot, t->vruntime_ns, at, due);
		if (gain_ns < best_gain_ns || !ground_may_run_on(d, task, at))
			continue;
		if (gain_ns == best_gain_ns &&
		    (best == PCPU_NONE || (s64)(pcpu_at(d, at)->running_vruntime_ns -
						best_vruntime_ns) <= (s64)d->params.slice_ns))
			continue;
		best_gain_ns = gain_ns;
		best_vruntime_ns = pcpu_at(d, at)->running_vruntime_ns;
		best = (s32)at;
	}
	return best;
}

/* A pCPU of another domain of the partition, now of this, now of that; or that one. */
static __always_inline u32 wake_elsewhere(struct drover *d, struct thread *t, u32 near)
{
	u32 other = topology_sampled(d, near);

	if (domain_at(d, other)->partition != t->partition)
		return near;
	return bounded(topology_pcpu(d, other, pcpu_at(d, near)->place), DROVER_MAX_PCPUS);
}

/* Clamp the lag kept across sleep: of the VM, and of the thread among its siblings. */
static __always_inline void wake_clamp_lag(struct drover *d, struct thread *t, u32 near)
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
		share_not_before(&t->vruntime_ns, share_thread_clock_ns(vm, ground_now_ns(d)) -
							  d->params.wake_credit_ns);
}

/*
 * The pCPU that the thread is to preempt, or PCPU_NONE; `woken` as above. One that had to
 * give up its pCPU may preempt another as if it had woken if its VM is due: where it waits no pCPU
 * may ask for a slice. The host's own tasks neither push nor are pushed: each would push the
 * next one round for ever.
 */
BPF_GLOBAL s32 wake_preempt(THE_DROVER, THE_TASK, THE_THREAD, u32 near, u32 woken)
{
	/* The host's programs go by shares before VMs that are due. */
	bool due = t->slot == DROVER_HOST_SLOT ?
			   wake_is_kernel(d, task, t, woken) :
			   d->nr_reserved && reserve_is_due(vm_at(d, t->slot), ground_now_ns(d));
	s32 target;

	if (!woken && !due)
		return PCPU_NONE;
	target = wake_target(d, task, t, near, woken, due);
	if (target == PCPU_NONE)
		return target;
	order_give(pcpu_at(d, (u32)target), woken ? ORDER_SENT : ORDER_WOKEN);
	return target;
}

#endif

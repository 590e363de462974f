/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Gain: which of the pCPUs that are looked at is worth most to a thread.
 *
 * Idea. A thread that wakes, one that runs away from home, one that shares a core and one that
 * keeps others from a pCPU all ask the same: of some pCPUs near by, which is the best? So there is
 * one scan, of eight pCPUs, and what is asked for (enum gain_for) says what a pCPU is worth: what a
 * waking thread is owed more than the running one; a pCPU at home that a stray has; the idle half
 * of a core whose other half is ahead; a pCPU that the thread may use and a waiting one may not.
 *
 * One law says which thread is ahead, among VMs and among the threads of one VM, and always as it
 * is now. Threads of two VMs are compared by their VMs' virtual times, two threads of one VM by
 * their vruntime. A VM that is ahead pays for a wake-up first. If none is, a sibling does. If none
 * of them runs here, the waking thread counts for its VM at where that would stand, had all
 * siblings run as little (share_lag_ns): one vCPU that wants little is not kept waiting by busy
 * siblings that have used up what their VM is owed. They pay: all it runs is charged to the VM. Lag
 * is kept across sleep at both levels, up to wake_credit (10 ms), so a VM gets ahead by it once,
 * not again and again.
 *
 * Worked example. Two busy vCPUs of VM 3 (3000 shares) have just had a round on two pCPUs and it is
 * 8 ms of virtual time ahead of VM 4, which runs now. A third vCPU of VM 3, which runs for 0.1 ms
 * each 2 ms, wakes: it is 10 ms behind its siblings' clock, three are awake, on two pCPUs, so it
 * stands at 8 - 10 * 2 / 3 = 1.3 ms. Once VM 4 has run for 1.6 ms it is preempted; in VM 3's own
 * round a sibling is.
 *
 * Limitations. On a wide domain a waker may preempt the second best; at ticks other pCPUs are
 * looked at each time.
 */
#ifndef DROVER_GAIN_H
#define DROVER_GAIN_H

#include "partition/hooks.h"
#include "place/idle.h"
#include "queue/affinity.h"

#define GAIN_LOOKS 8
/* What there is to gain, the least first: where the VM itself is owed nothing, from another VM, by
 * the thread's lag among its siblings; from a sibling; from a VM that is ahead; */
#define GAIN_LAG 1LL
#define GAIN_SIBLING 2LL
/* and what being due (share.h) counts against any gain by shares. */
#define GAIN_DUE (1LL << 56)

/* What a pCPU is looked for, near the one that is named. */
enum gain_for {
	/* a thread that is ready preempts: it had to give up its pCPU, and is due; */
	GAIN_PUSHED,
	/* it slept; */
	GAIN_WOKEN,
	/* it slept, and must be owed what a migration is worth */
	GAIN_FAR,
	/* it wakes at home, and a thread with another home makes room; */
	GAIN_HOME,
	/* the same, or one without a home: they change places */
	GAIN_SWAP,
	/* it runs there, and makes room for the one beside it, which is behind */
	GAIN_BESIDE,
	/* the same, for the VM that waits there, whose slot is in the bits above */
	GAIN_ASIDE,
};
#define GAIN_FOR 15U
/* Of a thread that is ready: it is due. */
#define GAIN_IS_DUE 16U
#define GAIN_SLOT_SHIFT 8

/* Of the running thread: it has a home, elsewhere; it has none. (home.h) */
#define HOME_IS_AWAY 1
#define HOME_HAS_NONE 2

/* --- from a thread that runs --- */

/* Where one of the two VMs is served by its reservation: the one that runs stays, the waking one is
 * due. */
static __always_inline s64 gain_reserved_ns(struct drover *d, u32 slot, u32 there, s64 ahead_ns,
					    bool stays, bool due)
{
	u64 now_ns = ground_now_ns(d);

	if (!due)
		return 0;
	if (!stays)
		return GAIN_DUE + max_signed(ahead_ns, 0);
	/* Both are: the one that is for longer. */
	return (s64)(reserve_due_ns(d, vm_at(d, there), now_ns) -
		     reserve_due_ns(d, vm_at(d, slot), now_ns) - d->params.preempt_gain_ns);
}

/*
 * By how much a thread of that VM, with that vruntime, is owed more now than the thread that runs
 * there; <= 0: it is not. due: the VM is, by its reservation.
 */
BPF_GLOBAL s64 gain_over_ns(THE_DROVER, u32 slot, u64 vruntime_ns, u32 at, bool due)
{
	struct vm *vm = vm_at(d, slot);
	struct pcpu *pcpu = pcpu_at(d, at);
	u32 there = pcpu->running_slot;
	u64 now_ns = ground_now_ns(d);
	s64 ahead_ns, gain_ns;
	bool stays;

	if (!pcpu->online || there >= DROVER_MAX_VMS ||
	    (!order_is(pcpu, ORDER_NONE) && !(due && order_is(pcpu, ORDER_BEGUN))))
		return 0;
	if (due && slot == DROVER_HOST_SLOT)
		return there == slot ? 1 : GAIN_DUE;
	if (there == slot)
		return (s64)(pcpu->running_vruntime_ns + now_ns - vruntime_ns -
			     d->params.preempt_gain_ns) > 0 ?
			       GAIN_SIBLING :
			       0;
	if (!partition_is_share(d, pcpu->domain))
		return hook_gain(d, at, slot, there);
	ahead_ns = (s64)(share_stands_ns(d, there, pcpu->domain, now_ns) -
			 share_stands_ns(d, slot, pcpu->domain, now_ns));
	stays = d->nr_reserved && reserve_is_due(vm_at(d, there), now_ns);
	/* The host's own threads take the pCPU of one that runs by its reservation as their last
	 * choice. */
	if (slot == DROVER_HOST_SLOT && d->nr_reserved && ahead_ns > 0)
		return stays ? 1 : 1 + ahead_ns;
	if (stays || due)
		return gain_reserved_ns(d, slot, there, ahead_ns, stays, due);
	/* Where its VM is not behind, the thread may be behind its own siblings. */
	gain_ns = ahead_ns - (s64)share_weigh(vm, d->params.preempt_gain_ns);
	if (gain_ns > 0)
		return GAIN_SIBLING + gain_ns;
	return gain_ns + (s64)share_lag_ns(d, vm, vruntime_ns, now_ns) > 0 ? GAIN_LAG : 0;
}

/*
 * Is it a kernel thread of the host that had slept? Others wait for what it does, RCU's, the
 * kernel's own, whatever the host's programs have used: it preempts any other. If it uses up a
 * slice it is a task like others. Those that are nice are none of the host's (account/find.h).
 */
static __always_inline bool gain_is_kernel(struct drover *d, struct task_struct *task,
					   struct thread *t, bool woken)
{
	return t->slot == DROVER_HOST_SLOT && (woken || t->due_ns) &&
	       ground_is_kernel_thread(d, task);
}

/* --- what a pCPU is worth --- */

/* Does a thread that is no further from home run there, which makes room for one of that VM? That
 * one is at home there, and owed no less. */
static __always_inline s64 gain_from_stray(struct drover *d, const struct pcpu *pcpu, u32 furthest,
					   u32 slot)
{
	return pcpu->away && pcpu->away <= furthest && !pcpu->migrate_to &&
	       order_is(pcpu, ORDER_NONE) && pcpu->running_slot < DROVER_MAX_VMS &&
	       (s64)(vm_at(d, pcpu->running_slot)->vtime_ns - vm_at(d, slot)->vtime_ns) >= 0;
}

/* By how much is the thread there ahead of the one on the other pCPU? */
BPF_GLOBAL s64 gain_ahead_ns(THE_DROVER, u32 there, u32 other)
{
	u64 now_ns = ground_now_ns(d);
	u32 a = pcpu_at(d, there)->running_slot;
	u32 b = pcpu_at(d, other)->running_slot;
	u32 domain = pcpu_at(d, there)->domain;

	/* The host's own tasks work for a moment, and are always behind. */
	if (a >= DROVER_MAX_VMS || b >= DROVER_MAX_VMS || b == DROVER_HOST_SLOT)
		return 0;
	if (a == b)
		return (s64)(pcpu_at(d, there)->running_vruntime_ns -
			     pcpu_at(d, other)->running_vruntime_ns);
	return (s64)(share_stands_ns(d, a, domain, now_ns) - share_stands_ns(d, b, domain, now_ns));
}

/* The thread runs on `at`; that VM waits there, and may not run on `to`, where another is ahead of
 * it. */
static __always_inline s64 gain_aside_ns(struct drover *d, struct thread *t, u32 at, u32 to,
					 u32 waits)
{
	u32 domain = pcpu_at(d, at)->domain;
	struct runqueue *rq = ground_runqueue(d, domain);

	if (!rq || pcpu_at(d, to)->running_slot == t->slot ||
	    pcpu_at(d, to)->running_slot == DROVER_HOST_SLOT ||
	    partition_of_pcpu(d, to) != t->partition ||
	    affinity_fits(d, entity_rq_of(rq, waits), domain, to))
		return 0;
	return gain_over_ns(d, waits, vm_at(d, waits)->vruntime_floor_ns, to, false);
}

/* What the thread, which is on `at` or near, gains by that pCPU; not above 0: nothing. */
BPF_GLOBAL s64 gain_ns(THE_DROVER, THE_THREAD, u32 at, u32 to, u32 wanted)
{
	struct pcpu *pcpu = pcpu_at(d, to);
	u32 looks_for = wanted & GAIN_FOR;

	if (looks_for <= GAIN_FAR) {
		/* The host's own tasks neither push nor are pushed: each would push the next one
		 * round for ever. */
		if (looks_for == GAIN_PUSHED && pcpu->running_slot == DROVER_HOST_SLOT)
			return 0;
		return gain_over_ns(d, t->slot, t->vruntime_ns, to, wanted & GAIN_IS_DUE);
	}
	if (looks_for == GAIN_HOME || looks_for == GAIN_SWAP)
		return gain_from_stray(
			d, pcpu, looks_for == GAIN_HOME ? HOME_IS_AWAY : HOME_HAS_NONE, t->slot);
	if (looks_for == GAIN_ASIDE)
		return gain_aside_ns(d, t, at, to, wanted >> GAIN_SLOT_SHIFT);
	if (!pcpu->sibling || !pcpu_is_idle(pcpu))
		return 0;
	return gain_ahead_ns(d, pcpu->sibling - 1, pcpu_at(d, at)->sibling - 1);
}

/* Is a thread that is ready due? The host's programs go by shares before VMs that are. */
BPF_GLOBAL bool gain_is_due(THE_DROVER, THE_TASK, THE_THREAD, u32 wanted)
{
	if (wanted > GAIN_FAR)
		return false;
	if (t->slot == DROVER_HOST_SLOT)
		return gain_is_kernel(d, task, t, wanted);
	return d->nr_reserved && reserve_is_due(vm_at(d, t->slot), ground_now_ns(d));
}

/* --- the best of them --- */

/* No more than that there is to gain is nothing. */
BPF_GLOBAL s64 gain_least_ns(THE_DROVER, u32 wanted)
{
	return wanted == GAIN_FAR || wanted >= GAIN_BESIDE ? (s64)d->params.steal_gain_ns : 0;
}

/* How many pCPUs are looked at. */
BPF_GLOBAL u32 gain_looks(THE_DROVER, THE_THREAD, u32 at, u32 wanted)
{
	if (t->pinned_cpu)
		return 1;
	return wanted > GAIN_BESIDE ?
		       GAIN_LOOKS :
		       (u32)min_of(GAIN_LOOKS, domain_at(d, pcpu_at(d, at)->domain)->nr_pcpus);
}

/* Which is looked at next? The thread may be on `at`, or near. */
BPF_GLOBAL u32 gain_candidate(THE_DROVER, u32 at, u32 wanted, u32 look)
{
	struct pcpu *here = pcpu_at(d, at);
	u32 looks = (u32)min_of(GAIN_LOOKS, domain_at(d, here->domain)->nr_pcpus);

	if (wanted > GAIN_BESIDE)
		return topology_listed(d, here->ticks * GAIN_LOOKS + look);
	return topology_pcpu(d, here->domain,
			     (wanted == GAIN_BESIDE ? here->ticks * looks : here->place) + look);
}

/* The best is given to the thread: claimed if it is idle, else with the order to look for the
 * thread, which no other gets there meanwhile. */
BPF_GLOBAL s32 gain_take(THE_DROVER, THE_TASK, s32 best, u32 wanted)
{
	if (best == PCPU_NONE)
		return best;
	if (wanted == GAIN_BESIDE)
		return ground_claim(d, task, (u32)best) ? best : PCPU_NONE;
	order_give(pcpu_at(d, (u32)best),
		   wanted == GAIN_WOKEN || wanted == GAIN_FAR ? ORDER_SENT : ORDER_WOKEN);
	return best;
}

/*
 * The pCPU of eight that is best for the thread, or PCPU_NONE. Gains are alike where siblings run:
 * were it always the nearest, one of them would pay for all wake-ups. So one that has run longer by
 * a slice is preferred. Strays, and those before which one steps aside, are not compared: the first
 * will do.
 */
BPF_GLOBAL s32 gain_best(THE_DROVER, THE_TASK, THE_THREAD, u32 at, u32 wanted)
{
	u32 due = gain_is_due(d, task, t, wanted) ? GAIN_IS_DUE : 0;
	/* If due it preempts as if it had woken: where it waits no pCPU may ask for a slice. */
	u32 looks = wanted == GAIN_PUSHED && !due ? 0 : gain_looks(d, t, at, wanted);
	s64 most_ns = gain_least_ns(d, wanted);
	u64 vruntime_ns = 0;
	s32 best = PCPU_NONE;
	u32 look;

	for_each_index(look, 0, looks) {
		u32 to = bounded(gain_candidate(d, at, wanted, look), DROVER_MAX_PCPUS);
		u64 ran_ns = pcpu_at(d, to)->running_vruntime_ns;
		s64 there_ns = gain_ns(d, t, at, to, wanted | due);

		if (there_ns < most_ns || !ground_may_run_on(d, task, to))
			continue;
		if (there_ns == most_ns && (best == PCPU_NONE || wanted > GAIN_FAR ||
					    (s64)(ran_ns - vruntime_ns) <= (s64)d->params.slice_ns))
			continue;
		most_ns = there_ns;
		vruntime_ns = ran_ns;
		best = (s32)to;
		if (wanted > GAIN_FAR && wanted != GAIN_BESIDE)
			break;
	}
	return gain_take(d, task, best, wanted);
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Timers: what must be done at a moment at which the kernel has nothing to tell.
 *
 * Idea. Each VM has a timer for its limit (limit.h); slot 0's is the scheduler's own, for idle
 * pCPUs that must ask again (plan.h). Any pCPU may bring a timer forward at any moment. `busy`
 * is a lock: its holder arms the timer, or does what is due. Others that want it to go off earlier
 * meanwhile write that to `at_ns`, and the holder arms the timer for it as it unlocks.
 *
 * Worked example. VM 3 has used up its limit at 12 ms and may run again at 15: its timer is set to
 * 15. It goes off on pCPU 0, which lets the VM go. Meanwhile a vCPU of it begins on pCPU 1 and will
 * have used up the rest at 16: pCPU 1 writes 16 to `at_ns`, and pCPU 0 arms the timer for that.
 *
 * Limitations. A timer goes off on the pCPU that armed it last, and takes that pCPU's time,
 * whichever VM it belongs to.
 */
#ifndef DROVER_TIMER_H
#define DROVER_TIMER_H

#include "base/ground.h"

/* The timer of the scheduler itself. */
#define TIMER_OWN DROVER_HOST_SLOT
/* Beyond those of slots: one for each pCPU, which alone sets it, for the turns it gives
 * (wait_bound.h). */
#define TIMER_TURN(pcpu) (DROVER_MAX_VMS + (pcpu))
/* The clock of the kernel's timers and the policy's may differ by that. */
#define TIMER_EARLY_NS 50000ULL
/* No timer is that late. */
#define TIMER_LOST_NS 10000000ULL

static __always_inline struct timer *timer_of(struct drover *d, u32 slot)
{
	return &d->timer[bounded(slot, DROVER_MAX_VMS)];
}

/* When it is to go off; 0: not at all. */
static __always_inline u64 timer_at_ns(struct timer *timer)
{
	return *(volatile u64 *)&timer->at_ns;
}

/* Lock it. False: another pCPU has. */
static __always_inline bool timer_enter(struct timer *timer)
{
	return !__sync_lock_test_and_set(&timer->busy, 1);
}

/* Tell the kernel when it is to go off, unless another pCPU has locked it and will do so. */
BPF_GLOBAL int timer_arm(THE_DROVER, u32 slot)
{
	struct timer *timer = timer_of(d, slot);
	u32 try;

	/* Each try that is not the last means that it was brought forward meanwhile. */
	for_each_index(try, 0, 16) {
		u64 at_ns = timer_at_ns(timer);

		if (!at_ns || at_ns == *(volatile u64 *)&timer->armed_ns || !timer_enter(timer))
			break;
		timer->armed_ns = at_ns;
		ground_timer(d, slot, at_ns, ground_now_ns(d));
		__sync_lock_test_and_set(&timer->busy, 0);
	}
	return 0;
}

/* Unlock it. */
static __always_inline void timer_leave(struct drover *d, u32 slot)
{
	__sync_lock_test_and_set(&timer_of(d, slot)->busy, 0);
	timer_arm(d, slot);
}

/* It shall go off then, or sooner. */
BPF_GLOBAL int timer_by(THE_DROVER, u32 slot, u64 at_ns)
{
	struct timer *timer = timer_of(d, slot);
	u32 try;

	/* Each try that fails means that another pCPU has set it. */
	for_each_index(try, 0, 16) {
		u64 set_ns = timer_at_ns(timer);

		if (set_ns && (s64)(set_ns - at_ns) <= 0)
			return 0;
		if (__sync_val_compare_and_swap(&timer->at_ns, set_ns, at_ns ?: 1) == set_ns)
			break;
	}
	return timer_arm(d, slot);
}

/* It goes off. True: do what is due, and timer_leave. */
static __always_inline bool timer_goes_off(struct drover *d, u32 slot, u64 now_ns)
{
	struct timer *timer = timer_of(d, slot);
	u64 at_ns = timer_at_ns(timer);

	timer->armed_ns = 0;
	if (!at_ns || (s64)(at_ns - now_ns) > (s64)TIMER_EARLY_NS) {
		timer_arm(d, slot);
		return false;
	}
	/* Before anything is looked at: what changes from now on sets it anew. */
	__sync_lock_test_and_set(&timer->at_ns, 0);
	if (timer_enter(timer))
		return true;
	/* The holder of its lock began before this was due, and may not see it: it goes off again.
	 */
	timer_by(d, slot, now_ns + TIMER_EARLY_NS);
	return false;
}

/* If it is overdue by that much, the kernel lost it or its clock has leapt: arm it again. */
BPF_GLOBAL int timer_repair(THE_DROVER, u32 slot, u64 now_ns)
{
	struct timer *timer = timer_of(d, slot);
	u64 at_ns = timer_at_ns(timer);

	if (!at_ns || (s64)(now_ns - at_ns) <= (s64)TIMER_LOST_NS)
		return 0;
	timer->armed_ns = 0;
	return timer_arm(d, slot);
}

/* Idle pCPUs ask again then, or sooner. */
static __always_inline void timer_rouse_at(struct drover *d, u64 at_ns)
{
	timer_by(d, TIMER_OWN, at_ns);
}

#endif

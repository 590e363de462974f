/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The alarm: what must be done at a moment at which the kernel has nothing to tell.
 *
 * Idea. Whoever may not run now must be let go at some moment: a VM at its limit when
 * it may run again (limit.h), one whose vCPUs wait to start together when it has
 * waited long enough (cosched.h). An idle pCPU does not ask by itself, and a busy one
 * asks a slice later. So there is one alarm, at the earliest of these moments; it
 * may be set for sooner from any event, and does all that is due when it goes off.
 *
 * Worked example. A gang is refused at 10 ms: rouse at 60 ms, the alarm is set to 60.
 * A limited VM begins to run at 12 ms and will have used up its budget at 13: the
 * alarm is set to 13. It goes off, the VM is held, and it is set to 15, when the VM
 * may run again.
 *
 * Each pCPU that wants it sooner sets it where it is itself; so it may go off on a
 * second one for a moment that has passed. Then there is nothing to do. While it does
 * what is due it is not set, only noted for when: at its end it sets itself. So no two
 * pCPUs do the same at once.
 *
 * What it is bad at. There is one for the host: with many limited VMs it goes off
 * often, on whatever pCPU set it.
 */
#ifndef DROVER_ALARM_H
#define DROVER_ALARM_H

#include "base/ground.h"

/* The clock of timers and the policy's may differ by that. */
#define ALARM_EARLY_NS 50000ULL

/* No timer is that late. */
#define ALARM_LOST_NS 10000000ULL

/* When it goes off; 0: not at all. */
static __always_inline u64 alarm_due_ns(struct drover *d)
{
	return *(volatile u64 *)&d->alarm_at_ns;
}

/* Have it go off here when it is due. */
static __always_inline void alarm_set(struct drover *d, u64 now_ns)
{
	u64 at_ns = alarm_due_ns(d);

	if (at_ns)
		ground_alarm(d, at_ns, now_ns);
}

/* The alarm shall go off then, or sooner. */
CHECKED_APART int alarm_at(THE_DROVER, u64 at_ns)
{
	u32 try;

	if (!at_ns)
		at_ns = 1;
	/* Each try that fails means that another pCPU has set it. */
	for_each_index(try, 0, 16) {
		u64 set_ns = alarm_due_ns(d);

		if (set_ns && (s64)(set_ns - at_ns) <= 0)
			break;
		if (__sync_val_compare_and_swap(&d->alarm_at_ns, set_ns, at_ns) != set_ns)
			continue;
		/* Either this is seen when all that was due is done, or it is done already. */
		if (!*(volatile u32 *)&d->alarm_rings)
			alarm_set(d, ground_now_ns(d));
		break;
	}
	return 0;
}

/* It is overdue by more than that: a timer was lost, or its clock has leapt. */
static __always_inline void alarm_mend(struct drover *d, u64 late_ns, u64 now_ns)
{
	u64 at_ns = alarm_due_ns(d);

	if (at_ns && (s64)(now_ns - at_ns) > (s64)late_ns)
		alarm_set(d, now_ns);
}

/* It goes off. False: there is nothing to do, or somebody else is at it. */
static __always_inline bool alarm_begin(struct drover *d, u64 now_ns)
{
	u64 at_ns = alarm_due_ns(d);

	if (!at_ns || (s64)(at_ns - now_ns) > (s64)ALARM_EARLY_NS)
		return false;
	if (__sync_lock_test_and_set(&d->alarm_rings, 1))
		return false;
	/* Before anything is looked at: what changes from now on sets it anew. */
	__sync_lock_test_and_set(&d->alarm_at_ns, 0);
	return true;
}

/* All that was due is done. */
static __always_inline void alarm_end(struct drover *d, u64 now_ns)
{
	__sync_lock_test_and_set(&d->alarm_rings, 0);
	alarm_set(d, now_ns);
}

/* Then, or sooner, idle pCPUs ask again. Rare: what should have gone off is mended, too. */
static __always_inline void alarm_rouse_at(struct drover *d, u64 at_ns, u64 now_ns)
{
	u64 set_ns = d->rouse_at_ns;

	if (!set_ns || (s64)(set_ns - at_ns) > 0)
		d->rouse_at_ns = at_ns;
	alarm_at(d, at_ns);
	alarm_mend(d, ALARM_EARLY_NS, now_ns);
}

#endif

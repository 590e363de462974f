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
 * What it is bad at. Of two pCPUs that set it at the same moment the later one may
 * win: then it goes off late by what the two differ in.
 */
#ifndef DROVER_ALARM_H
#define DROVER_ALARM_H

#include "ground.h"

/* The alarm shall go off then, or sooner. */
static __always_inline void alarm_at(struct drover *d, u64 at_ns)
{
	u64 set_ns = *(volatile u64 *)&d->alarm_at_ns;
	s64 in_ns;

	if (set_ns && (s64)(set_ns - at_ns) <= 0)
		return;
	d->alarm_at_ns = at_ns;
	in_ns = (s64)(at_ns - ground_now_ns(d));
	ground_alarm(d, in_ns > 0 ? (u64)in_ns : 0);
}

/* Then, or sooner, idle pCPUs ask again. */
static __always_inline void alarm_rouse_at(struct drover *d, u64 at_ns)
{
	u64 set_ns = d->rouse_at_ns;

	if (!set_ns || (s64)(set_ns - at_ns) > 0)
		d->rouse_at_ns = at_ns;
	alarm_at(d, at_ns);
}

#endif

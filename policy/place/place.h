/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Near which pCPU a ready thread is served.
 *
 * Idea. Where it ran last is best, if it may run there and that is in its partition; at home
 * (home.h), if its VM has one. Else the first pCPU from there on where it may run.
 */
#ifndef DROVER_PLACE_H
#define DROVER_PLACE_H

#include "place/home.h"
#include "queue/affinity.h"

/* The pCPU near which the ready thread waits: where it ran, if it may run there. */
static __always_inline u32 place_near(struct drover *d, struct task_struct *task, struct thread *t)
{
	u32 near = ground_task_pcpu(d, task);
	s32 other;

	if (t->pinned_cpu)
		return t->pinned_cpu - 1;
	if (!d->divided || partition_of_pcpu(d, near) == t->partition) {
		if (t->affinity_full)
			return home_near(d, t, near);
		if (affinity_mask(d, task, t, pcpu_at(d, near)->domain))
			return near;
	}
	other = affinity_find(d, task, t->partition, AFFINITY_ANY, true, near);
	return other == PCPU_NONE ? near : (u32)other;
}

#endif

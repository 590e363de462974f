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

/* May the thread be served there? */
static __always_inline bool place_fits(struct drover *d, struct task_struct *task, struct thread *t,
				       u32 pcpu)
{
	return partition_of_pcpu(d, pcpu) == t->partition && ground_may_run_on(d, task, pcpu);
}

/* The first pCPU of its partition, from there on, where the thread may run; -1: there is none. */
static __always_inline s32 place_first(struct drover *d, struct task_struct *task, struct thread *t,
				       u32 from)
{
	u32 nr_pcpus = d->params.nr_pcpus;
	s32 found = -1;
	u32 i;

	for_each_index(i, 0, nr_pcpus) {
		u32 at = bounded((from + i) % (nr_pcpus ?: 1), DROVER_MAX_PCPUS);

		if (!pcpu_at(d, at)->online || !place_fits(d, task, t, at))
			continue;
		found = (s32)at;
		break;
	}
	return found;
}

/* The pCPU near which the ready thread waits: where it ran, if it may run there. */
static __always_inline u32 place_near(struct drover *d, struct task_struct *task, struct thread *t)
{
	u32 near = ground_task_pcpu(d, task);
	s32 other;

	if (t->single)
		return t->single - 1;
	if (!d->divided || partition_of_pcpu(d, near) == t->partition) {
		if (t->anywhere)
			return home_near(d, t, near);
		if (affinity_mask(d, task, t, pcpu_at(d, near)->domain))
			return near;
	}
	other = place_first(d, task, t, near);
	return other < 0 ? near : (u32)other;
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Half a core: what a thread uses beside a busy sibling is charged in part.
 *
 * Idea. Two hardware threads of a core (SMT siblings) share it: both busy, each gets on at some 5/8
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
#ifndef DROVER_CORE_H
#define DROVER_CORE_H

#include "base/ground.h"

/* For how long that pCPU has been busy up to now, doubled, without its bit. */
static __always_inline u64 core_busy(struct drover *d, u32 at, u64 now_ns)
{
	u64 word = *(volatile u64 *)&pcpu_at(d, at)->busy;

	return word & 1 ? word - 1 + (now_ns << 1) : word;
}

/* A thread begins to run there. */
static __always_inline void core_begin(struct drover *d, struct pcpu *pcpu, u64 now_ns)
{
	if (!pcpu->sibling)
		return;
	ASSERT(!(pcpu->busy & 1));
	pcpu->smt_neighbour = DROVER_MAX_VMS;
	pcpu->shared = core_busy(d, pcpu->sibling - 1, now_ns);
	pcpu->busy = pcpu->busy - (now_ns << 1) + 1;
}

/* None does any more. */
static __always_inline void core_end(struct drover *d, u32 at, u64 now_ns)
{
	pcpu_at(d, at)->busy = core_busy(d, at, now_ns);
}

/* Of what the thread that runs there has run since it was last charged, that much is spared it. */
static __always_inline u64 core_discount_ns(struct drover *d, struct pcpu *pcpu, u64 ran_ns)
{
	u64 busy;
	s64 grown;

	if (!pcpu->sibling)
		return 0;
	busy = core_busy(d, pcpu->sibling - 1, ground_now_ns(d));
	grown = (s64)(busy - pcpu->shared);
	/* Clocks of pCPUs differ by a little. */
	if (grown <= 0)
		return 0;
	pcpu->shared = busy;
	return min_of((u64)grown >> 1, ran_ns) * (1000 - d->params.shared_core_permille) / 1000;
}

/* Does a thread run on that pCPU's core, if that has two hardware threads? */
static __always_inline bool core_is_busy(struct drover *d, const struct pcpu *pcpu)
{
	return pcpu->sibling && (pcpu->running_slot < DROVER_MAX_VMS ||
				 pcpu_at(d, pcpu->sibling - 1)->running_slot < DROVER_MAX_VMS);
}

#endif

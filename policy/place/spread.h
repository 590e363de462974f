/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Spread: who shares a core goes to a better one.
 *
 * Idea. A core of which both hardware threads are idle is worth more than half of one, so whoever
 * is to run is given a whole idle core first (idle.h). Who shares a core at the tick,
 * and may run where a whole core has become idle, is stopped and goes there. Where none is idle but
 * single threads are, somebody has a core for itself while others share one: by chance, and as long
 * as nobody waits, for good. Virtual time, charged in part (core.h), says who fell behind by that.
 * Such a one is helped by one move, not of itself but of the thread beside it: that goes to the
 * idle thread beside somebody who is ahead, and leaves a whole core behind.
 *
 * Where somebody waits nobody is moved: whoever waits has the next pCPU that comes free.
 *
 * All of it is found at the tick of the one that goes; who is to be helped must have run beside it
 * at the tick before, too. The pCPU is claimed at once, so that no two go to one core; the thread
 * is stopped and run there. Should it sleep first, or not be let go, the claimed pCPU is kicked, to
 * be idle again.
 *
 * Worked example. Six busy VMs alike on four cores: A and B alone, C with D, E with F. A is charged
 * 4 ms in each tick, C 2.5. After 6 ticks A is 8 ms ahead, worth a migration (steal_gain_ns). At
 * D's tick: C is behind A by that much, so D goes beside A, and C has a core for itself. C catches
 * up, is 8 ms ahead of A after some 40 ms, and then somebody goes beside C. All have 0.75 of a
 * core, within some 10 ms.
 *
 * What it costs. A move: two switches, and what was in the core's own caches, up to 2 MiB, some 0.1
 * to 0.2 ms of work. In the example there are some 50 a second (lab and simulator), one in 40 ms
 * for each core that is shared: 0.2 % of the host. None where nobody shares, or all do, or nobody
 * is ahead. Where shares differ, whoever is owed more has the whole core, up to all of the time.
 *
 * What it is bad at. At each tick it looks at eight pCPUs of its domain only, others each time, for
 * somebody who is ahead; a whole idle core it finds anywhere, far ones too. Who is pinned to one
 * pCPU stays.
 */
#ifndef DROVER_SPREAD_H
#define DROVER_SPREAD_H

#include "place/place.h"
#include "share/share.h"

#define SPREAD_LOOKS 8
#define SPREAD_NOWHERE (-1)

/* By how much is who runs there ahead of who runs on the other pCPU? */
CHECKED_APART s64 spread_ahead_ns(THE_DROVER, u32 there, u32 other)
{
	u64 now_ns = ground_now_ns(d);
	u32 a = pcpu_at(d, there)->running_slot;
	u32 b = pcpu_at(d, other)->running_slot;

	/* The host's own tasks work for a moment, and are always behind. */
	if (a >= DROVER_MAX_VMS || b >= DROVER_MAX_VMS || b == DROVER_HOST_SLOT)
		return 0;
	if (a == b)
		return (s64)(pcpu_at(d, there)->running_vruntime_ns -
			     pcpu_at(d, other)->running_vruntime_ns);
	return (s64)(share_vtime_now(vm_at(d, a), now_ns) - share_vtime_now(vm_at(d, b), now_ns));
}

/* An idle pCPU beside somebody who is ahead of the sibling of that one, claimed, or NOWHERE. */
static __always_inline s32 spread_beside(struct drover *d, struct task_struct *task, u32 at)
{
	struct pcpu *here = pcpu_at(d, at);
	u32 looks = (u32)least_of(SPREAD_LOOKS, domain_at(d, here->domain)->nr_pcpus);
	s64 most_ns = (s64)d->params.steal_gain_ns;
	s32 best = SPREAD_NOWHERE;
	u32 look;

	for_each_index(look, 0, looks) {
		u32 to = bounded(topology_pcpu(d, here->domain, here->ticks * looks + look),
				 DROVER_MAX_PCPUS);
		u32 beside = pcpu_at(d, to)->sibling;
		s64 ahead_ns;

		if (!beside || !pcpu_is_idle(pcpu_at(d, to)))
			continue;
		ahead_ns = spread_ahead_ns(d, beside - 1, here->sibling - 1);
		if (ahead_ns <= most_ns)
			continue;
		most_ns = ahead_ns;
		best = (s32)to;
	}
	return best != SPREAD_NOWHERE && ground_claim(d, task, (u32)best) ? best : SPREAD_NOWHERE;
}

/* The tick finds the thread running there: shall it leave for another core? */
static __always_inline void spread_tick(struct drover *d, struct task_struct *task,
					struct thread *t, u32 at)
{
	struct pcpu *here = pcpu_at(d, at);
	u32 before = here->beside;
	struct pcpu *other;
	s32 to;

	if (!here->sibling)
		return;
	other = pcpu_at(d, here->sibling - 1);
	here->beside = other->running_slot;
	/* One of the two is enough. */
	if (here->beside >= DROVER_MAX_VMS || other->leaves_for || here->leaves_for ||
	    here->order.why || t->single || ground_is_leaving(d, task) ||
	    !share_nobody_waits(d, here->domain))
		return;
	to = idle_claim(d, task, t, at, true);
	if (to == SPREAD_NOWHERE && here->beside == before && hook_is_share(d, here->domain))
		to = spread_beside(d, task, at);
	if (to == SPREAD_NOWHERE)
		return;
	here->leaves_for = (u32)to + 1;
	ground_set_slice(d, task, 0);
}

/* Who was to leave does not: what was claimed becomes idle anew. */
static __always_inline void spread_stay(struct drover *d, struct pcpu *pcpu)
{
	u32 claimed = pcpu->leaves_for;

	if (!claimed)
		return;
	pcpu->leaves_for = 0;
	ground_kick(d, claimed - 1);
}

/* The thread that ran on that pCPU is ready: it goes where it was to go, if anywhere. */
static __always_inline bool spread_leave(struct drover *d, struct task_struct *task,
					 struct pcpu *pcpu, bool may_begin)
{
	u32 to = pcpu->leaves_for;

	if (!to || !may_begin || !ground_may_run_on(d, task, to - 1)) {
		spread_stay(d, pcpu);
		return false;
	}
	pcpu->leaves_for = 0;
	ground_run_on(d, task, to - 1, d->params.slice_ns, false);
	return true;
}

#endif

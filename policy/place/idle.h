/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which idle pCPU takes a ready thread.
 *
 * Idea. Each domain has a mask of its pCPUs that are idle, changed when one becomes idle or ends
 * to be. A thread is given the first of these from the pCPU on near which it is placed: in its own
 * domain, where its working set may be cached, of a core that is idle as a whole, else any. Then
 * the other domains of its partition are searched, the nearest first (topology.h): all for a whole
 * core, then for any. Should it share a core and run on, it leaves for a whole one at the tick
 * (spread.h). Where nothing is idle, which is when it matters what a wake-up costs, that is a look
 * at one word for each domain.
 *
 * The mask is a hint: the ground says which was the first to claim a pCPU, and one bit too many
 * costs a claim in vain. When pCPUs change domains all are taken to be idle.
 *
 * Worked example. Domain 0 has pCPUs 0 to 3, cores 0-1 and 2-3; domain 1 has 4 and 5. pCPUs 1, 2, 3
 * and 4 are idle. A thread that ran on 0 wakes: 1 is nearest, but shares its core with the thread
 * on 0, and so it is given 2. The next one is given 1, in the same cache, and the next 4.
 *
 * Limitations. In another domain a whole core far away comes before half of one that is nearer.
 */
#ifndef DROVER_IDLE_H
#define DROVER_IDLE_H

#include "base/order.h"
#include "partition/partition.h"

/* Does nothing run there, and might? */
static __always_inline bool pcpu_is_idle(const struct pcpu *pcpu)
{
	return pcpu->online && !order_is(pcpu, ORDER_TAKEN) && pcpu->running_slot >= DROVER_MAX_VMS;
}

/* Does a thread run on that pCPU's core, if that has two hardware threads? */
static __always_inline bool idle_core_is_busy(struct drover *d, const struct pcpu *pcpu)
{
	return pcpu->sibling && (pcpu->running_slot < DROVER_MAX_VMS ||
				 pcpu_at(d, pcpu->sibling - 1)->running_slot < DROVER_MAX_VMS);
}

/* The pCPU is idle from now on, or no longer. */
static __always_inline void idle_note(struct drover *d, u32 at, bool idle)
{
	struct domain *domain = domain_at(d, pcpu_at(d, at)->domain);
	u64 bit = 1ULL << bounded(pcpu_at(d, at)->place, DROVER_DOMAIN_PCPUS);

	if (idle)
		__sync_fetch_and_or(&domain->idle, bit);
	else
		__sync_fetch_and_and(&domain->idle, ~bit);
}

/* Is a pCPU of that domain idle? */
BPF_GLOBAL bool idle_is_in(THE_DROVER, u32 domain)
{
	u32 nr = domain_at(d, domain)->idle ? domain_at(d, domain)->nr_pcpus : 0;
	bool found = false;
	u32 i;

	for_each_index(i, 0, nr) {
		found = pcpu_is_idle(pcpu_at(d, topology_pcpu(d, domain, i)));
		if (found)
			break;
	}
	return found;
}

/* One of that domain for the thread, claimed, the first from that place on; or PCPU_NONE. */
BPF_GLOBAL s32 idle_claim_in(THE_DROVER, THE_TASK, u32 domain, u32 place, bool whole_core)
{
	u64 idle = domain_at(d, domain)->idle;
	u32 nr = domain_at(d, domain)->nr_pcpus;
	s32 found = PCPU_NONE;
	u32 i;

	for_each_index(i, 0, nr) {
		u32 at = bounded(topology_pcpu(d, domain, place + i), DROVER_MAX_PCPUS);
		struct pcpu *pcpu = pcpu_at(d, at);

		if (!(idle >> bounded(pcpu->place, DROVER_DOMAIN_PCPUS) & 1) ||
		    !pcpu_is_idle(pcpu) || (whole_core && idle_core_is_busy(d, pcpu)))
			continue;
		/* One with an order asks in a moment, for another. */
		if (!order_is(pcpu, ORDER_NONE) || !ground_claim(d, task, at))
			continue;
		found = (s32)at;
		break;
	}
	return found;
}

/* A search is in the domain of the pCPU near which the thread is placed, or in all others, the
 * nearest first; for any pCPU, or one of a core that is idle as a whole. */
#define IDLE_ELSEWHERE 1U
#define IDLE_WHOLE_CORE 2U

/* One for the thread, claimed, in a domain of the partition that serves it; or PCPU_NONE. */
BPF_GLOBAL s32 idle_claim_by(THE_DROVER, THE_TASK, THE_THREAD, u32 near, u32 search)
{
	u32 first = search & IDLE_ELSEWHERE;
	u32 end = first ? d->params.nr_domains : 1;
	u32 home = pcpu_at(d, near)->domain;
	s32 found = PCPU_NONE;
	u32 i;

	for_each_index(i, first, end) {
		u32 domain = topology_near(d, home, i);

		if (domain_at(d, domain)->idle && domain_at(d, domain)->partition == t->partition)
			found = idle_claim_in(d, task, domain, i ? 0 : pcpu_at(d, near)->place,
					      search & IDLE_WHOLE_CORE);
		if (found != PCPU_NONE)
			break;
	}
	return found;
}

/* Is any pCPU of the host? */
BPF_GLOBAL bool idle_is_any(THE_DROVER)
{
	u32 nr_domains = d->params.nr_domains;
	bool any = domain_at(d, 0)->idle;
	u32 i;

	/* To begin a loop costs more than the look. */
	if (any || nr_domains < 2)
		return any;
	for_each_index(i, 1, nr_domains) {
		any = domain_at(d, i)->idle;
		if (any)
			break;
	}
	return any;
}

/* One for a thread that is to run now, claimed: in the domain of that pCPU, else in another; of a
 * whole core if there is one, or any; or PCPU_NONE. */
BPF_GLOBAL s32 idle_claim(THE_DROVER, THE_TASK, THE_THREAD, u32 near)
{
	s32 found = PCPU_NONE;

	if (!idle_is_any(d))
		return found;
	found = idle_claim_by(d, task, t, near, IDLE_WHOLE_CORE);
	if (found == PCPU_NONE)
		found = idle_claim_by(d, task, t, near, 0);
	if (found == PCPU_NONE)
		found = idle_claim_by(d, task, t, near, IDLE_ELSEWHERE | IDLE_WHOLE_CORE);
	return found == PCPU_NONE ? idle_claim_by(d, task, t, near, IDLE_ELSEWHERE) : found;
}

/* The thread that was to leave does not: what was claimed becomes idle anew. */
static __always_inline void idle_give_back(struct drover *d, struct pcpu *pcpu)
{
	u32 claimed = pcpu->migrate_to;

	if (!claimed)
		return;
	pcpu->migrate_to = 0;
	ground_kick(d, claimed - 1);
}

#endif

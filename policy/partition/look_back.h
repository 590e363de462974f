/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A pCPU that changes domains looks back into the one it has left.
 *
 * Idea. Threads wait in the domain that it leaves, and for some there may be no other pCPU: those
 * that may run on this one only, or all of them if it was the domain's last. So now and then it
 * takes one of them that is overdue (wait_bound.h), until none of those that waited when it left
 * can be. If the domain has no online pCPU left, it runs the threads that wait there before others;
 * and when a domain's last goes offline all other pCPUs do so.
 *
 * Worked example. Partition `io`, pCPUs 2 and 3, is removed while six threads wait there. Both are
 * in the default partition's domain now. Each time one of them asks it takes one of the six, which
 * runs, and goes to its own partition when it stops.
 */
#ifndef DROVER_LOOK_BACK_H
#define DROVER_LOOK_BACK_H

#include "guarantee/deadline.h"

static __always_inline struct look_back *look_back_of(struct drover *d, u32 pcpu)
{
	return &d->look_back[bounded(pcpu, DROVER_MAX_PCPUS)];
}

/* The pCPU looks into that domain from now on. */
static __always_inline void look_back_begin(struct drover *d, u32 pcpu, u32 domain, u64 now_ns)
{
	struct look_back *back = look_back_of(d, pcpu);

	back->next_ns = now_ns;
	back->until_ns = now_ns + (WAIT_BOUND_THREAD_FACTOR + 1) * d->params.wait_bound_ns;
	pcpu_at(d, pcpu)->left = domain + 1;
}

/* Is none of the domain's pCPUs online? */
BPF_GLOBAL bool look_back_is_deserted(THE_DROVER, u32 domain)
{
	u32 nr_pcpus = domain_at(d, domain)->nr_pcpus;
	bool deserted = true;
	u32 i;

	for_each_index(i, 0, nr_pcpus) {
		if (pcpu_at(d, topology_pcpu(d, domain, i))->online)
			deserted = false;
	}
	return deserted;
}

/* A pCPU of that domain has gone offline. */
BPF_GLOBAL int look_back_offline(THE_DROVER, u32 domain)
{
	u64 now_ns = ground_now_ns(d);
	u32 nr_pcpus = d->params.nr_pcpus;
	u32 i;

	if (!look_back_is_deserted(d, domain))
		return 0;
	for_each_index(i, 0, nr_pcpus) {
		u32 left = pcpu_at(d, i)->left;

		/* One it has left itself stays that: into those without pCPUs it looks anyway. */
		if (pcpu_at(d, i)->online)
			look_back_begin(d, i, left ? left - 1 : domain, now_ns);
	}
	return 0;
}

/* The pCPU is in that domain from now on. */
static __always_inline void look_back_move(struct drover *d, u32 pcpu, u32 domain)
{
	struct pcpu *p = pcpu_at(d, pcpu);
	u64 now_ns = ground_now_ns(d);
	u32 left = p->domain;

	if (left != domain) {
		look_back_begin(d, pcpu, left, now_ns);
		p->domain = domain;
		topology_settle(d);
		affinity_unsettle(d, left);
		affinity_unsettle(d, domain);
	}
	partition_count(d);
}

/* Take one that waits in that domain: which the pCPU has left, or which has no pCPU. */
BPF_GLOBAL bool look_back_take_from(THE_DROVER, u32 pcpu, u32 domain)
{
	struct pcpu *here = pcpu_at(d, pcpu);
	struct runqueue *rq = ground_runqueue(d, domain);
	bool deserted = look_back_is_deserted(d, domain);
	u64 until_ns = here->asked_ns + (deserted ? DEADLINE_ANY_NS : 0);
	u32 nr_slots = d->slots_in_use;
	bool taken = false;
	u32 slot;

	if (!rq)
		return false;
	for_each_index(slot, 0, nr_slots) {
		u64 next_ns = 0;

		if (!entity_rq_of(rq, slot)->nr_queued || vm_at(d, slot)->at_limit)
			continue;
		taken = ground_take_due(d, ground_vm_queue(d, slot, domain), until_ns, &next_ns);
		if (taken)
			break;
	}
	return taken;
}

/* Take one from the domain which the pCPU has left, or from any that has no pCPU. */
BPF_GLOBAL bool look_back_take(THE_DROVER, u32 pcpu)
{
	struct pcpu *here = pcpu_at(d, pcpu);
	u32 nr_domains = d->params.nr_domains ?: 1;
	bool taken = false;
	u32 i;

	for_each_index(i, 0, nr_domains) {
		u32 domain = (here->left - 1 + i) % nr_domains;

		taken = (!i || look_back_is_deserted(d, domain)) &&
			look_back_take_from(d, pcpu, domain);
		if (taken)
			break;
	}
	look_back_of(d, pcpu)->next_ns = here->asked_ns + (taken ? 0 : d->params.wait_bound_ns / 8);
	return taken;
}

/* The pCPU asks. */
static __always_inline bool look_back(struct drover *d, u32 pcpu)
{
	struct pcpu *here = pcpu_at(d, pcpu);

	if (!here->left || (s64)(here->asked_ns - look_back_of(d, pcpu)->next_ns) < 0)
		return false;
	if ((s64)(here->asked_ns - look_back_of(d, pcpu)->until_ns) >= 0) {
		here->left = 0;
		return false;
	}
	return look_back_take(d, pcpu);
}

#endif

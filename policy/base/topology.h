/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Topology: which pCPUs make up a domain.
 *
 * Idea. The loader says of each pCPU which domain it is in (an LLC, or a part of one with more than
 * 64 pCPUs). From that one list of pCPUs is made, those of one domain side by side: a look at
 * the pCPUs of a domain walks its part of the list, whatever the kernel's numbers are. A pCPU's
 * place in its part is its bit in masks of the domain (affinity.h).
 *
 * Distance between domains is counted in hops: 0 within an LLC, 1 within a NUMA node, 2 to a near
 * node (distance 20), 3 to one that is further (30), up to 7. Each domain has a list of the others
 * by that. A search for a pCPU or a thread elsewhere walks it, and what a step must bring
 * grows with hops.
 *
 * Worked example. pCPUs 0, 1, 4 and 5 are in domain 0, 2 and 3 in domain 1: the list is 0 1 4 5 2
 * 3, domain 1 begins at 4 and has two, and pCPU 3 has place 1. Four domains on two nodes, 0 and 1
 * on node 0: domain 1's list is 0 (1 hop), 2, 3 (2 hops).
 */
#ifndef DROVER_TOPOLOGY_H
#define DROVER_TOPOLOGY_H

#include "base/ground.h"

/* No domain is as far from another. */
#define TOPOLOGY_HOPS_END 8

/* The pCPU at that place of the list, which begins anew at its end. */
static __always_inline u32 topology_listed(struct drover *d, u32 at)
{
	return d->pcpu_of[bounded(at % (d->params.nr_pcpus ?: 1), DROVER_MAX_PCPUS)];
}

/* The i-th pCPU of the domain, from any place on: those after the last begin anew. */
static __always_inline u32 topology_pcpu(struct drover *d, u32 domain, u32 i)
{
	u32 nr = domain_at(d, domain)->nr_pcpus ?: 1;
	u32 at = domain_at(d, domain)->first + i % nr;

	return d->pcpu_of[bounded(at, DROVER_MAX_PCPUS)];
}

/* The other domain that the pCPU looks at in this pick (pick.h). There must be two or more. */
static __always_inline u32 topology_sampled(struct drover *d, u32 pcpu)
{
	u32 others = d->params.nr_domains - 1;
	u32 step = 1 + (others ? (pcpu_at(d, pcpu)->steal_cursor >> 16) % others : 0);

	return (pcpu_at(d, pcpu)->domain + step) % d->params.nr_domains;
}

/* Give the domain its pCPUs, from that place in the list on; returns the place after. */
BPF_GLOBAL u32 topology_gather(THE_DROVER, u32 domain, u32 first)
{
	struct domain *it = domain_at(d, domain);
	u32 nr_pcpus = d->params.nr_pcpus;
	u32 i;

	it->first = first;
	it->nr_pcpus = 0;
	it->all = 0;
	for_each_index(i, 0, nr_pcpus) {
		/* Counted in memory, of which the verifier knows nothing that it would follow. */
		u32 place = *(volatile u32 *)&it->nr_pcpus;

		if (pcpu_at(d, i)->domain != domain)
			continue;
		ASSERT(place < DROVER_DOMAIN_PCPUS);
		pcpu_at(d, i)->place = place;
		d->pcpu_of[bounded(first + place, DROVER_MAX_PCPUS)] = i;
		it->all |= 1ULL << bounded(place, DROVER_DOMAIN_PCPUS);
		it->nr_pcpus = place + 1;
	}
	/* Of an idle pCPU the kernel tells when it ends to be; not that it still is. */
	it->idle = it->all;
	return first + it->nr_pcpus;
}

/* How far one domain is from another, in hops. */
BPF_GLOBAL u32 topology_hops(THE_DROVER, u32 domain, u32 other)
{
	struct domain *a = domain_at(d, domain);
	struct domain *b = domain_at(d, other);
	u32 hops;

	if (domain == other || (a->llc && a->llc == b->llc))
		return 0;
	if (a->node == b->node)
		return 1;
	hops = d->node_hops[bounded(a->node - 1, DROVER_MAX_NODES)]
			   [bounded(b->node - 1, DROVER_MAX_NODES)];
	return hops > 2 ? bounded(hops, TOPOLOGY_HOPS_END) : 2;
}

/* The domain that is the step-th nearest to that one, from 1 on; 0 is the domain itself. */
static __always_inline u32 topology_near(struct drover *d, u32 domain, u32 step)
{
	if (!step)
		return domain;
	return d->near_of[bounded(domain, DROVER_MAX_DOMAINS)]
			 [bounded(step - 1, DROVER_MAX_DOMAINS)];
}

/* List the others that are so far from a domain, after so many; returns how many there are then. */
BPF_GLOBAL u32 topology_list_at(THE_DROVER, u32 domain, u32 hops, u32 listed)
{
	u32 nr_domains = d->params.nr_domains;
	u32 i;

	/* Those as far begin after its own number: not all look to the same first. */
	for_each_index(i, 1, nr_domains) {
		u32 other = (domain + i) % nr_domains;

		if (topology_hops(d, domain, other) != hops)
			continue;
		d->near_of[bounded(domain, DROVER_MAX_DOMAINS)]
			  [bounded(listed, DROVER_MAX_DOMAINS)] = (u8)other;
		listed++;
	}
	return listed;
}

/* List the others of a domain by hops. */
BPF_GLOBAL int topology_list(THE_DROVER, u32 domain)
{
	u32 listed = 0;
	u32 hops;

	for_each_index(hops, 0, TOPOLOGY_HOPS_END)
		listed = topology_list_at(d, domain, hops, listed);
	return 0;
}

/* The domains of pCPUs were set, or have changed. */
static __always_inline void topology_settle(struct drover *d)
{
	u32 first = 0;
	u32 i;

	for_each_index(i, 0, d->params.nr_domains)
		first = topology_gather(d, i, first);
	for_each_index(i, 0, d->params.nr_domains)
		topology_list(d, i);
}

#endif

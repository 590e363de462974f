/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Topology: which pCPUs make up a domain.
 *
 * Idea. The loader says of each pCPU which domain it is in (an LLC, or a part of one with more than
 * 64 pCPUs). From that one list of pCPUs is made, those of one domain side by side: who looks at
 * the pCPUs of a domain walks its part of the list, whatever the kernel's numbers are. A pCPU's
 * place in its part is its bit in masks of the domain (affinity.h).
 *
 * Worked example. pCPUs 0, 1, 4 and 5 are in domain 0, 2 and 3 in domain 1: the list is 0 1 4 5 2
 * 3, domain 1 begins at 4 and has two, and pCPU 3 has place 1.
 */
#ifndef DROVER_TOPOLOGY_H
#define DROVER_TOPOLOGY_H

#include "base/ground.h"

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

/* The other domain that pCPU looks at now, pick_vm.h; there are two domains at least. */
static __always_inline u32 topology_glanced(struct drover *d, u32 pcpu)
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
		pcpu_at(d, i)->place = place;
		d->pcpu_of[bounded(first + place, DROVER_MAX_PCPUS)] = i;
		it->all |= 1ULL << bounded(place, DROVER_DOMAIN_PCPUS);
		it->nr_pcpus = place + 1;
	}
	/* Of who is idle the kernel tells when it ends to be; not that it still is. */
	it->idle = it->all;
	return first + it->nr_pcpus;
}

/* The domains of pCPUs were set, or have changed. */
static __always_inline void topology_settle(struct drover *d)
{
	u32 first = 0;
	u32 i;

	for_each_index(i, 0, d->params.nr_domains)
		first = topology_gather(d, i, first);
}

#endif

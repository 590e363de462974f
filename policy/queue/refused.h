/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Refused: the VMs a pCPU could not take from, in the pick it is at.
 *
 * Idea. A VM stands in the tournament of a domain as long as threads of it are counted
 * there. Yet a pCPU may find none that it can take: one is on its way into the queue or
 * out of it, one may not run on that pCPU (the kernel forbids it to move for a moment,
 * or the pCPU is on its way offline), or the VM waits to start its vCPUs together. Then
 * the pCPU passes it over, and asks who is the first of the others. The list is kept
 * with the pCPU and is void at its next pick: for all others, and for that pCPU the next
 * time, the VM stands where it stood.
 *
 * Who is first but for those: on the way from the leaf of each up to the root, the best
 * of what stands beside that way and holds none of them.
 *
 * Worked example. VM 3 (5 ms), VM 4 (6 ms) and VM 7 (9 ms) wait. The only thread of VM 3
 * is just being queued: pCPU 2 refuses it. Beside the way up from leaf 3 stand leaf 2
 * (nobody), the pair 0 and 1 (nobody), and the four from 4 to 7, won by VM 4: that is
 * next. VM 3 is the first again for pCPU 1, which asks at the same moment.
 *
 * What it is bad at. A pCPU tries six VMs in a pick. Behind more than six that it cannot
 * take it finds nobody, and rests until it is kicked.
 */
#ifndef DROVER_REFUSED_H
#define DROVER_REFUSED_H

#include "queue/tournament.h"

/* A pCPU that refuses nobody. */
#define REFUSED_BY_NOBODY DROVER_MAX_PCPUS

static __always_inline u32 refused_entry(u32 domain_index, u32 slot)
{
	return domain_index << DROVER_SLOT_BITS | bounded(slot, DROVER_MAX_VMS);
}

/* A pick begins, in which nobody has been refused. */
static __always_inline void refused_forget(struct drover *d, u32 pcpu)
{
	pcpu_at(d, pcpu)->nr_refused = 0;
}

/* That pCPU passes over the VM in that domain from now on. */
static __always_inline void refused_add(struct drover *d, u32 pcpu, u32 domain_index, u32 slot)
{
	struct pcpu *p = pcpu_at(d, pcpu);
	u32 nr = p->nr_refused;

	if (nr >= DROVER_REFUSED)
		return;
	p->refused[bounded(nr, DROVER_REFUSED)] = refused_entry(domain_index, slot);
	p->nr_refused = nr + 1;
}

/* Is a VM that pCPU refuses in that domain under that node, so many levels above the leaves? */
CHECKED_APART bool refused_under(THE_DROVER, u32 pcpu, u32 domain_index, u32 node, u32 level)
{
	struct pcpu *p = pcpu_at(d, pcpu);
	u32 i;

	for_each_index(i, 0, p->nr_refused) {
		u32 entry = p->refused[bounded(i, DROVER_REFUSED)];
		u32 leaf = DROVER_MAX_VMS + tournament_slot(entry);

		if (entry >> DROVER_SLOT_BITS == domain_index && leaf >> bounded(level, 16) == node)
			return true;
	}
	return false;
}

static __always_inline bool refused_has(struct drover *d, u32 pcpu, u32 domain_index, u32 slot)
{
	return refused_under(d, pcpu, domain_index,
			     (u32)(DROVER_MAX_VMS + bounded(slot, DROVER_MAX_VMS)), 0);
}

static __always_inline struct tournament *refused_tournament(struct domain *domain, bool by_reserve)
{
	return by_reserve ? &domain->by_reserve : &domain->by_share;
}

/* The best key beside the way from that leaf to the root. */
CHECKED_APART u64 refused_best_beside(THE_DROVER, u32 pcpu, u32 domain_index, u32 slot,
				      bool by_reserve)
{
	struct domain *domain = ground_domain(d, domain_index);
	u64 at = DROVER_MAX_VMS + bounded(slot, DROVER_MAX_VMS);
	u64 best = TOURNAMENT_NOBODY;
	u32 level;

	if (!domain)
		return best;
	for_each_index(level, 0, d->tournament_levels) {
		u64 beside = bounded(at ^ 1, 2 * DROVER_MAX_VMS);
		struct tournament *among = refused_tournament(domain, by_reserve);
		u64 key = *(volatile u64 *)&among->node[beside];

		if (tournament_before(key, best) &&
		    !refused_under(d, pcpu, domain_index, (u32)beside, level))
			best = key;
		at >>= 1;
	}
	return best;
}

/* The best key of the domain's tournament but for those refused, of whom there are some. */
CHECKED_APART u64 refused_best_of_others(THE_DROVER, u32 pcpu, u32 domain_index, bool by_reserve)
{
	struct domain *domain = ground_domain(d, domain_index);
	u64 best;
	u32 i;

	if (!domain)
		return TOURNAMENT_NOBODY;
	best = tournament_best(d, refused_tournament(domain, by_reserve));
	if (!refused_has(d, pcpu, domain_index, tournament_slot(best)))
		return best;
	best = TOURNAMENT_NOBODY;
	for_each_index(i, 0, pcpu_at(d, pcpu)->nr_refused) {
		u32 entry = pcpu_at(d, pcpu)->refused[bounded(i, DROVER_REFUSED)];
		u64 key = TOURNAMENT_NOBODY;

		if (entry >> DROVER_SLOT_BITS == domain_index)
			key = refused_best_beside(d, pcpu, domain_index, tournament_slot(entry),
						  by_reserve);
		if (tournament_before(key, best))
			best = key;
	}
	return best;
}

/*
 * The best key of that tournament of the domain, by shares or by reservations, but for those
 * refused. Mostly there are none: then it is the root, with no more looked up.
 */
static __always_inline u64 refused_best(struct drover *d, u32 pcpu, u32 domain_index,
					struct domain *domain, bool by_reserve)
{
	if (pcpu >= DROVER_MAX_PCPUS || !pcpu_at(d, pcpu)->nr_refused)
		return tournament_best(d, refused_tournament(domain, by_reserve));
	return refused_best_of_others(d, pcpu, domain_index, by_reserve);
}

#endif

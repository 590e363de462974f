/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Picking of a VM: which of its threads, and from which domain.
 *
 * Idea. Whoever has decided for a VM (pick.h) takes the first thread of its queue in that
 * domain. Siblings that stand in other domains may have run less, and virtual time does not
 * tell: it is the VM's. So before one is taken, or goes on, the VM's queue in one other
 * domain, now this, now that, is asked for a sibling that has run less by a slice.
 *
 * Worked example. Two of a VM's three vCPUs take turns on the pCPU of domain 0, the third has
 * domain 1's for itself. After three slices of 8 ms they have run 16, 8 and 24 ms. The pCPU of
 * domain 1 asks: the second, which waits in domain 0, has run 16 ms less than the third, more than
 * a slice. It is taken, and the third waits in domain 1.
 *
 * What it is bad at. With C domains, siblings apart are seen after some C picks of the VM. A
 * thread changes domains for a slice, however much of its working set is in the caches of one.
 */
#ifndef DROVER_PICK_VM_H
#define DROVER_PICK_VM_H

#include "cosched/rotate.h"
#include "guarantee/wait_bound.h"

/* So many VMs are asked, one after the other: some may be held, or their threads in flight. */
#define PICK_TRIES 6

enum picked {
	PICKED_NONE,
	PICKED_NONE_BUT_HELD, /* of those who wait some are held */
	PICKED_RUNNING, /* who runs goes on */
	PICKED_WAITING, /* somebody was taken */
};

/* Glances follow no rhythm: one that beats with the turns of VMs always sees the same. */
static __always_inline void pick_next_glance(struct pcpu *pcpu)
{
	pcpu->glance = pcpu->glance * 1664525 + 1013904223;
}

/* The other domain that pCPU glances at now; there are two domains at least. */
static __always_inline u32 pick_glanced(struct drover *d, u32 pcpu)
{
	u32 others = d->params.nr_domains - 1;
	u32 step = 1 + (others ? (pcpu_at(d, pcpu)->glance >> 16) % others : 0);

	return (pcpu_at(d, pcpu)->domain + step) % d->params.nr_domains;
}

/* The VM's queue in that domain, or in the glanced one if a sibling there has run less. */
CHECKED_APART u64 pick_queue_of(THE_DROVER, u32 pcpu, u32 domain_index, u32 slot)
{
	u64 here = ground_vm_queue(d, slot, domain_index);
	u64 there;
	u64 here_order = 0;
	u64 there_order = 0;
	u32 other;
	struct domain *domain;

	other = pick_glanced(d, pcpu);
	domain = ground_domain(d, other);
	if (other == domain_index || !domain || !books_of(domain, slot)->nr_queued)
		return here;
	there = ground_vm_queue(d, slot, other);
	if (!ground_first_order(d, there, &there_order) ||
	    !ground_first_order(d, here, &here_order))
		return here;
	return (s64)(here_order - there_order) > (s64)d->params.slice_ns ? there : here;
}

static __always_inline void pick_note_served(struct drover *d, u32 pcpu, u32 domain_index, u32 slot)
{
	struct domain *domain = ground_domain(d, domain_index);

	round_note(d, pcpu, slot);
	if (domain)
		books_of(domain, slot)->taken_ns = pcpu_at(d, pcpu)->asked_ns;
}

/* Take a thread of that VM. */
CHECKED_APART bool pick_from_vm(THE_DROVER, u32 pcpu, u32 domain_index, u32 slot)
{
	u64 here = ground_vm_queue(d, slot, domain_index);
	u64 queue = d->params.nr_domains < 2 ? here : pick_queue_of(d, pcpu, domain_index, slot);

	if (!wait_bound_serve(d, &vm_at(d, slot)->overdue_check_ns, queue,
			      pcpu_at(d, pcpu)->asked_ns) &&
	    !ground_take_first(d, queue)) {
		/* A sibling there, not confined while pCPUs were offline, may not run here. */
		if (queue == here || !ground_take_first(d, here))
			return false;
	}
	pick_note_served(d, pcpu, domain_index, slot);
	return true;
}

/* Take a thread of the domain's least served VM, or of one that is owed a turn. */
CHECKED_APART bool pick_from_domain(THE_DROVER, u32 pcpu, u32 domain_index, u64 key)
{
	u32 slot = tournament_slot(key);

	if (!d->nr_choosy || cosched_admits(d, pcpu, domain_index, slot, 0)) {
		if (wait_bound_owes_turn(d, domain_index, slot))
			return wait_bound_serve_turn(d, pcpu, domain_index, slot);
		share_clock_follow(d, vm_at(d, slot)->vtime_ns);
		if (pick_from_vm(d, pcpu, domain_index, slot))
			return true;
	}
	refused_add(d, pcpu, domain_index, slot);
	return false;
}

/* A vCPU of that VM, wherever one waits, this domain first. */
CHECKED_APART bool pick_wherever(THE_DROVER, u32 pcpu, u32 slot)
{
	u32 home = pcpu_at(d, pcpu)->domain;
	u32 nr_domains = d->params.nr_domains;
	bool found = false;
	u32 step;

	for_each_index(step, 0, nr_domains) {
		u32 other = (home + step) % nr_domains;
		struct domain *domain = ground_domain(d, other);

		found = domain && books_of(domain, slot)->nr_queued &&
			pick_from_vm(d, pcpu, other, slot);
		if (found)
			break;
	}
	return found;
}

/* A sibling of the running thread, in the glanced domain, that has run less by a slice. */
CHECKED_APART bool pick_sibling(THE_DROVER, u32 pcpu, u32 slot, u64 vruntime_ns)
{
	u32 other = pick_glanced(d, pcpu);
	struct domain *domain = ground_domain(d, other);
	u64 order = 0;

	if (!domain || !books_of(domain, slot)->nr_queued ||
	    !ground_first_order(d, ground_vm_queue(d, slot, other), &order))
		return false;
	if ((s64)(vruntime_ns - order) <= (s64)d->params.slice_ns)
		return false;
	return ground_take_first(d, ground_vm_queue(d, slot, other));
}

/* Does a sibling wait here that has run less than the running thread? */
CHECKED_APART bool pick_sibling_is_behind(THE_DROVER, u32 home, u32 slot, u64 vruntime_ns)
{
	struct domain *domain = ground_domain(d, home);
	u64 order = 0;

	return domain && books_of(domain, slot)->nr_queued &&
	       ground_first_order(d, ground_vm_queue(d, slot, home), &order) &&
	       (s64)(order - vruntime_ns) < 0;
}

/* The running thread's VM goes on: with that thread, unless a sibling has run less. */
static __always_inline u32 pick_go_on(struct drover *d, u32 pcpu, u32 running, u64 vruntime_ns)
{
	if (d->params.nr_domains < 2 || !pick_sibling(d, pcpu, running, vruntime_ns))
		return PICKED_RUNNING;
	return PICKED_WAITING;
}

/* The earliest of what the pCPU could run; NOBODY if there is nothing. */
static __always_inline u64 pick_earliest(u64 a, u64 b)
{
	return tournament_before(a, b) ? a : b;
}

/* The key of the VM that would go on there; NOBODY: there is none. */
static __always_inline u64 pick_running_key(struct drover *d, u32 pcpu, u32 slot)
{
	if (slot >= DROVER_MAX_VMS)
		return TOURNAMENT_NOBODY;
	return tournament_key(share_vtime_now(vm_at(d, slot), pcpu_at(d, pcpu)->asked_ns), slot);
}

#endif

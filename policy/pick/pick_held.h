/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Picking where VMs are held: those that wait until enough of their vCPUs can start (cosched.h).
 *
 * Idea. The least served VM of a domain may be held, and those after it, too. Picking by shares
 * (pick.h) passes over some; the tournament knows only who comes first. Beyond these, VMs are
 * looked at one by one: the least served that is not held is taken, if it comes before the
 * pCPU's own queue and the running thread. Before a pCPU goes idle those that are held are
 * asked again, the one held longest first: it may be free to start by now.
 *
 * Worked example. Seven strict VMs at 10 ms are held; VM 8 waits at 12 ms; VM 9 runs, is at
 * 15 ms, and its slice is over. Six are asked and refused; then, of all that are not held, VM 8
 * is taken. Had VM 9 been at 11 ms, it would have gone on.
 *
 * What it is bad at. Each of these looks passes over all slots in use, not over those
 * that wait: some microseconds with 1000 VMs, and only where VMs are held.
 */
#ifndef DROVER_PICK_HELD_H
#define DROVER_PICK_HELD_H

#include "pick/pick_confined.h"

/* Is the VM held for its siblings, and not for as long as anybody is? */
static __always_inline bool pick_is_held(struct drover *d, u32 pcpu, u32 slot)
{
	struct vm *vm = vm_at(d, slot);

	return vm->held_since_ns && !cosched_held_too_long(d, vm, pcpu_at(d, pcpu)->asked_ns);
}

/* Of the VMs of the domain neither refused nor held for their siblings, the least served one's key.
 */
CHECKED_APART u64 pick_least_not_held(THE_DROVER, u32 pcpu, u32 domain_index)
{
	struct domain *domain = ground_domain(d, domain_index);
	u32 nr_slots = d->slots_in_use;
	u64 best = TOURNAMENT_NOBODY;
	u32 slot;

	if (!domain)
		return best;
	for_each_index(slot, 0, nr_slots) {
		u64 key = tournament_leaf(&domain->by_share, slot);

		if (tournament_before(key, best) && !vm_at(d, slot)->held_since_ns &&
		    !refused_has(d, pcpu, domain_index, slot))
			best = key;
	}
	return best;
}

/* Of the VMs of the domain held for their siblings since later than that, the one held longest. */
CHECKED_APART u32 pick_longest_held(THE_DROVER, u32 domain_index, u64 after_ns)
{
	struct domain *domain = ground_domain(d, domain_index);
	u32 nr_slots = d->slots_in_use;
	u32 longest = DROVER_HOST_SLOT;
	u64 longest_ns = ~0ULL;
	u32 slot;

	if (!domain)
		return longest;
	for_each_index(slot, 1, nr_slots) {
		u64 held_ns = vm_at(d, slot)->held_since_ns;

		if (held_ns <= after_ns || held_ns >= longest_ns ||
		    tournament_leaf(&domain->by_share, slot) == TOURNAMENT_NOBODY)
			continue;
		longest = slot;
		longest_ns = held_ns;
	}
	return longest;
}

/* All that may run here are held: those held longest may be free to start by now. */
CHECKED_APART bool pick_held(THE_DROVER, u32 pcpu, u32 domain_index)
{
	struct domain *domain = ground_domain(d, domain_index);
	bool found = false;
	u64 after_ns = 0;
	u32 try;

	for_each_index(try, 0, PICK_TRIES) {
		u32 slot = pick_longest_held(d, domain_index, after_ns);
		u64 key = domain ? tournament_leaf(&domain->by_share, slot) : TOURNAMENT_NOBODY;

		if (slot == DROVER_HOST_SLOT || key == TOURNAMENT_NOBODY)
			break;
		after_ns = vm_at(d, slot)->held_since_ns;
		found = pick_from_domain(d, pcpu, domain_index, key);
		if (found)
			break;
	}
	return found;
}

/* The first VMs of the domain are held: take one that is not, and comes before `before`. */
CHECKED_APART bool pick_beside_held(THE_DROVER, u32 pcpu, u32 domain_index, u64 before)
{
	bool found = false;
	u32 try;

	for_each_index(try, 0, PICK_TRIES) {
		u64 key = pick_least_not_held(d, pcpu, domain_index);

		if (!tournament_before(key, before))
			break;
		found = pick_from_domain(d, pcpu, domain_index, key);
		if (found)
			break;
	}
	return found;
}

/* Nobody is left but those that are held, or come after them. */
static __always_inline bool pick_rest_of(struct drover *d, u32 pcpu, u32 domain_index)
{
	return pick_beside_held(d, pcpu, domain_index, TOURNAMENT_NOBODY) ||
	       pick_held(d, pcpu, domain_index);
}

/*
 * The first VMs of the domain are held: whoever is not, there or in the pCPU's own queue, comes
 * before the pCPU goes idle, and before the running thread if that has had more.
 */
CHECKED_APART bool pick_around_held(THE_DROVER, u32 pcpu, u32 slot)
{
	u32 home = pcpu_at(d, pcpu)->domain;
	u64 running_key = pick_running_key(d, pcpu, slot);
	u64 own_key = pick_own_key(d, pcpu);

	if (pick_beside_held(d, pcpu, home, pick_earliest(own_key, running_key)) ||
	    (tournament_before(own_key, running_key) && pick_confined(d, pcpu, pcpu)))
		return true;
	return running_key == TOURNAMENT_NOBODY && pick_rest_of(d, pcpu, home);
}

/*
 * The same as pick_pass_on where VMs wait until they may start, and were not queued just now: a
 * pCPU takes their vCPUs instead of whom it was woken for.
 */
static __always_inline void pick_pass_on_beside_held(struct drover *d, u32 pcpu)
{
	if (d->nr_choosy && pcpu_at(d, pcpu)->rests &&
	    share_least_served(d, pcpu_at(d, pcpu)->domain) != TOURNAMENT_NOBODY)
		pick_pass_on(d, pcpu);
}

#endif

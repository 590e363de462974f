/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Who of the VMs that wait in a domain is next for a pCPU.
 *
 * Idea. The root of a tournament is the answer, mostly. It is not where that VM may not run on the
 * pCPU that asks (affinity.h), or was tried just now and could not be taken: its thread is on its
 * way into the queue or out of it, or it waits to start its vCPUs together (cosched.h). Then all
 * VMs are looked at, once, for the first that fits and comes after the one that was tried. Nothing
 * is remembered of who was passed over: for all others the VM stands where it stood.
 *
 * Worked example. VM 3 (5 ms), VM 4 (6 ms) and VM 7 (9 ms) wait. pCPU 2 tries VM 3, whose only
 * thread is just being queued: it asks for who comes after 5 ms and gets VM 4. VM 3 is the first
 * again for pCPU 1, which asks at the same moment.
 *
 * What it is bad at. A look at all is some microseconds with 1000 VMs.
 */
#ifndef DROVER_NEXT_H
#define DROVER_NEXT_H

#include "guarantee/reserve.h"
#include "queue/affinity.h"

/* Asked by nobody who would run it. */
#define NEXT_FOR_NOBODY DROVER_MAX_PCPUS

/* What to ask for: by reservations, not by shares; not VMs that are held for their siblings. */
#define NEXT_BY_RESERVE 1U
#define NEXT_NOT_HELD 2U

static __always_inline struct tournament *next_tournament(struct runqueue *rq, u32 asks)
{
	return asks & NEXT_BY_RESERVE ? &rq->by_reserve : &rq->by_share;
}

/* Is the VM held for its siblings, and not for as long as anybody is? */
static __always_inline bool next_is_held(struct drover *d, u32 pcpu, u32 slot)
{
	u64 since_ns = vm_at(d, slot)->held_since_ns;

	return since_ns &&
	       (s64)(pcpu_at(d, pcpu)->asked_ns - since_ns) < (s64)d->params.hold_max_ns;
}

/* Is the domain in the partition of who asks? */
static __always_inline bool next_is_near(struct drover *d, u32 pcpu, u32 domain)
{
	return pcpu == NEXT_FOR_NOBODY || partition_shares(d, domain, pcpu_at(d, pcpu)->domain);
}

static __always_inline bool next_fits(struct drover *d, u32 pcpu, u32 domain, struct runqueue *rq,
				      u32 slot, u32 asks)
{
	if (pcpu == NEXT_FOR_NOBODY)
		return true;
	return affinity_fits(d, books_of(rq, slot), domain, pcpu) &&
	       !(asks & NEXT_NOT_HELD && next_is_held(d, pcpu, slot));
}

/* The first that fits and comes after that key. */
CHECKED_APART u64 next_look_at_all(THE_DROVER, u32 pcpu, u32 domain, u64 after, u32 asks)
{
	struct runqueue *rq = ground_runqueue(d, domain);
	u32 nr_slots = d->slots_in_use;
	u64 best = TOURNAMENT_NOBODY;
	u32 slot;

	if (!rq)
		return best;
	for_each_index(slot, 0, nr_slots) {
		u64 key = tournament_leaf(next_tournament(rq, asks), slot);

		if (tournament_before(key, best) &&
		    (after == TOURNAMENT_NOBODY || tournament_before(after, key)) &&
		    next_fits(d, pcpu, domain, rq, slot, asks))
			best = key;
	}
	return best;
}

/* The same, from the first on with TOURNAMENT_NOBODY for `after`. */
static __always_inline u64 next_after(struct drover *d, u32 pcpu, u32 domain, struct runqueue *rq,
				      u64 after, u32 asks)
{
	u64 root = tournament_best(d, next_tournament(rq, asks));

	if (root == TOURNAMENT_NOBODY)
		return root;
	if (after == TOURNAMENT_NOBODY &&
	    next_fits(d, pcpu, domain, rq, tournament_slot(root), asks))
		return root;
	return next_look_at_all(d, pcpu, domain, after, asks);
}

/* Where the VM stands by now among those who wait there; nowhere while it may not run (limit.h). */
static __always_inline u64 next_key(struct drover *d, u32 domain, u32 slot, u32 asks, u64 now_ns)
{
	struct vm *vm = vm_at(d, slot);

	if (vm->at_limit)
		return TOURNAMENT_NOBODY;
	if (asks & NEXT_BY_RESERVE)
		return reserve_key(d, vm, slot, now_ns);
	if (!hook_is_share(d, domain))
		return hook_key(d, domain, slot);
	return tournament_key(share_vtime_now(vm, now_ns), slot);
}

/*
 * Make the VM's leaf agree with that and with the count of its waiting threads: nobody if there are
 * none. With `expected`, only if the leaf still holds that: somebody else may have been quicker.
 */
CHECKED_APART int next_settle(THE_DROVER, u32 domain, u32 slot, u32 asks, u64 expected)
{
	struct runqueue *rq = ground_runqueue(d, domain);
	u64 key = next_key(d, domain, slot, asks, ground_now_ns(d));
	struct tournament *among;

	if (!rq)
		return 0;
	among = next_tournament(rq, asks);
	ground_lock_runqueue(rq);
	if (expected == TOURNAMENT_NOBODY || tournament_leaf(among, slot) == expected)
		tournament_set(among, d->tournament_levels, slot,
			       books_of(rq, slot)->nr_queued ? key : TOURNAMENT_NOBODY);
	ground_unlock_runqueue(rq);
	return 0;
}

/*
 * The key of the domain's first VM that may run on that pCPU and comes after that key, or NOBODY;
 * by reservations, of those that are due. Corrects leaves that lag behind their VM on the way; a
 * few tries suffice because only VMs that ran since they were last looked at can lag.
 */
CHECKED_APART u64 next_vm(THE_DROVER, u32 pcpu, u32 domain, u64 after, u32 asks)
{
	struct runqueue *rq = ground_runqueue(d, domain);
	u64 now_ns = ground_now_ns(d);
	/* That of the last slot of this moment: who comes after it is not due. */
	u64 last = asks & NEXT_BY_RESERVE ? tournament_key(now_ns, DROVER_MAX_VMS - 1) :
					    TOURNAMENT_NOBODY;
	u64 key = TOURNAMENT_NOBODY;
	u32 try;

	if (!rq || !next_is_near(d, pcpu, domain))
		return TOURNAMENT_NOBODY;
	for_each_index(try, 0, 9) {
		u32 slot;

		key = next_after(d, pcpu, domain, rq, after, asks);
		slot = tournament_slot(key);
		if (key == TOURNAMENT_NOBODY || tournament_before(last, key) ||
		    !tournament_before(key, next_key(d, domain, slot, asks, now_ns)))
			break;
		next_settle(d, domain, slot, asks, key);
	}
	return tournament_before(last, key) ? TOURNAMENT_NOBODY : key;
}

#endif

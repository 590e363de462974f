/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The run queue of VMs: a tournament.
 *
 * Idea. A domain must know which of up to 2048 VMs with waiting threads is the
 * least served. Each VM has a fixed leaf that holds its virtual time; every
 * inner node holds the smaller of its two children; the root is the answer.
 * Reading the answer is one load without the lock; changing a VM's key replays
 * the matches on its way up, at most 11, and stops at the first that keeps its
 * winner. Nothing is allocated and nothing moves, which is what the BPF
 * verifier and a lock held for a few dozen instructions both want. Only the
 * leftmost part of the tree that holds slots in use is played: with up to 16
 * VMs the matches end after 4 levels, and that node is the root.
 *
 * A key packs the virtual time (in units of 1024 ns) above the slot number, so
 * that one comparison decides and a tie goes to the lower slot. Keys wrap; they
 * are compared by signed difference.
 *
 * Worked example. VM 3 at 5 ms and VM 7 at 4 ms wait: their keys are
 * 4882<<11|3 and 3906<<11|7, and the root is VM 7's. VM 7 runs for 8 ms and is
 * now at 12 ms; its leaf still says 4 ms. That is harmless: a key only ever
 * lags, so a pCPU that finds VM 7 at the root sees that it is late, corrects the
 * leaf (11718<<11|7), and finds VM 3 at the root.
 *
 * Limitations. The played part grows with the most VMs there have ever
 * been and never shrinks. Keys that move back must be written at once, by hand.
 *
 * After the tournament trees of Knuth, TAOCP vol. 3, 5.4.1.
 */
#ifndef DROVER_TOURNAMENT_H
#define DROVER_TOURNAMENT_H

#include "base/ground.h"

/* Zero, so that zeroed memory is an empty tournament. */
#define TOURNAMENT_NONE 0ULL
#define TOURNAMENT_TIME_SHIFT 10
/* With a VM's slot: its leaf by deadline. Else by shares. */
#define BY_DEADLINE (1U << 31)
/* Asked by deadline, only VMs with a reservation count. */
#define ONLY_RESERVED (1U << 30)

/* The key of a VM at that virtual time. */
static __always_inline u64 tournament_key(u64 vtime_ns, u32 slot)
{
	u64 key = ((vtime_ns >> TOURNAMENT_TIME_SHIFT) << DROVER_SLOT_BITS) |
		  bounded(slot, DROVER_MAX_VMS);

	/* The key NONE is not a time: step on by one unit of 1024 ns. */
	return key == TOURNAMENT_NONE ? key + DROVER_MAX_VMS : key;
}

static __always_inline u32 tournament_slot(u64 key)
{
	return key & (DROVER_MAX_VMS - 1);
}

/* Is the VM with key a to be served before the one with key b? */
static __always_inline bool tournament_before(u64 a, u64 b)
{
	if (a == TOURNAMENT_NONE)
		return false;
	if (b == TOURNAMENT_NONE)
		return true;
	return (s64)(a - b) < 0;
}

/*
 * Of two keys the one to be served first, by arithmetic: in the matches of a way up the tree the
 * verifier would follow both sides of each branch.
 */
static __always_inline u64 tournament_first(u64 left, u64 right)
{
	u64 minus_left = 0 - left, minus_right = 0 - right;
	u64 right_first;

	/* Or the compiler would see through it. */
	asm("" : "+r"(minus_left), "+r"(minus_right));
	right_first = (right | minus_right) & (~(left | minus_left) | (right - left));
	right_first = 0 - (right_first >> 63);
	asm("" : "+r"(right_first));
	return left ^ ((left ^ right) & right_first);
}

static __always_inline struct tournament *tournament_in(struct runqueue *rq, u32 leaf)
{
	return &rq->by[leaf / BY_DEADLINE];
}

/* The node that is the root while slots below 1 << levels are in use. */
static __always_inline u64 tournament_root(u32 levels)
{
	return DROVER_MAX_VMS >> bounded(levels, 16);
}

/* The best key, or TOURNAMENT_NONE. Needs no lock. */
static __always_inline u64 tournament_best(struct drover *d, struct tournament *among)
{
	u64 root = bounded(tournament_root(d->tournament_levels), 2 * DROVER_MAX_VMS);

	return *(volatile u64 *)&among->node[root];
}

static __always_inline u64 tournament_leaf(struct tournament *among, u32 slot)
{
	return *(volatile u64 *)&among->node[DROVER_MAX_VMS + bounded(slot, DROVER_MAX_VMS)];
}

/* Replay the match that is decided at that node; its winner. The domain is locked. */
static __always_inline u64 tournament_replay(struct tournament *among, u64 at)
{
	u64 left = among->node[bounded(2 * at, 2 * DROVER_MAX_VMS)];
	u64 right = among->node[bounded(2 * at + 1, 2 * DROVER_MAX_VMS)];
	u64 winner = tournament_first(left, right);

	among->node[bounded(at, 2 * DROVER_MAX_VMS)] = winner;
	return winner;
}

/* Give the slot a new key and replay its matches. The domain is locked. */
static __always_inline void tournament_set(struct tournament *among, u32 levels, u32 slot, u64 key)
{
	u64 at = DROVER_MAX_VMS + bounded(slot, DROVER_MAX_VMS);

	among->node[at] = key;
	for (u32 level = 0; level < DROVER_SLOT_BITS && level < levels; level++) {
		u64 up = bounded(at >> 1, 2 * DROVER_MAX_VMS);
		u64 before = among->node[up];

		if (tournament_replay(among, up) == before)
			break;
		at = up;
	}
	ASSERT(key == TOURNAMENT_NONE || tournament_slot(key) == slot % DROVER_MAX_VMS);
	ASSERT(!tournament_before(key, among->node[tournament_root(levels)]));
}

/*
 * Make the leaf agree with the count of the VM's waiting threads: `key` if there are any, nobody if
 * not. With `expected`, only if the leaf still holds that: another pCPU may have been quicker.
 */
BPF_GLOBAL int tournament_settle(THE_DROVER, u32 domain, u32 leaf, u64 expected, u64 key)
{
	struct runqueue *rq = ground_runqueue(d, domain);

	if (!rq)
		return 0;
	ground_lock_runqueue(rq);
	if (expected == TOURNAMENT_NONE ||
	    tournament_leaf(tournament_in(rq, leaf), leaf) == expected)
		tournament_set(tournament_in(rq, leaf), d->tournament_levels, leaf,
			       entity_rq_of(rq, leaf)->nr_queued ? key : TOURNAMENT_NONE);
	ground_unlock_runqueue(rq);
	return 0;
}

/* Hand the winner of the old root up to the new one, in every domain. */
BPF_GLOBAL int tournament_raise(THE_DROVER, u32 levels)
{
	u64 root = tournament_root(levels + 1);
	u32 i;

	for_each_index(i, 0, d->params.nr_domains) {
		struct runqueue *rq = ground_runqueue(d, i);

		if (!rq)
			continue;
		ground_lock_runqueue(rq);
		tournament_replay(&rq->by_share, root);
		tournament_replay(&rq->by_deadline, root);
		ground_unlock_runqueue(rq);
	}
	return 0;
}

/*
 * The slot will be used: play as many levels as that takes. Done before a VM
 * begins, so the right half of what is added is still empty; others may grow it at
 * the same moment. The second pass catches a winner that changed at the old root
 * after the first: levels are read with the domain locked.
 */
BPF_GLOBAL int tournament_grow(THE_DROVER, u32 slot)
{
	u32 step;

	for_each_index(step, 0, DROVER_SLOT_BITS) {
		u32 levels = d->tournament_levels;

		if (levels >= DROVER_SLOT_BITS || (slot >> bounded(levels, 16)) == 0)
			break;
		tournament_raise(d, levels);
		/* Others may grow it at this moment; it never shrinks. */
		__sync_val_compare_and_swap(&d->tournament_levels, levels, levels + 1);
		tournament_raise(d, levels);
	}
	return 0;
}

#endif

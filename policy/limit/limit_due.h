/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * When each VM under a limit is to be looked at.
 *
 * Idea. The alarm goes off for the first of a thousand VMs, and the others are not due. Each
 * has a time; so has each group of eight slots, the first of theirs, and each of eight such
 * groups, whose times stand in one cache line. An alarm passes over groups that are not due. A
 * time is only ever brought forward, by anybody, slot before group; who looks puts them off first,
 * the group before its slots, and what comes up meanwhile brings them forward again.
 *
 * Worked example. 1000 VMs, some 60 of which run and six of which are due at an alarm: the
 * times of 16 groups of 64 slots are read, those of 48 groups of eight and of 48 slots; six VMs
 * are looked at.
 *
 * What it is bad at. A VM in a pool with a limit is looked at by every alarm while it runs:
 * what the pool used is what is known of each.
 */
#ifndef DROVER_LIMIT_DUE_H
#define DROVER_LIMIT_DUE_H

#include "base/ground.h"

/* Not before somebody begins to run. */
#define LIMIT_NO_ALARM (~0ULL)
/* Whenever the alarm goes off next, which it need not do for that. */
#define LIMIT_NEXT_ALARM 0ULL

/* Level 0: of a slot. Above: the first of a group of the level below. */
static __always_inline u64 *limit_due_of(struct drover *d, u32 level, u32 index)
{
	return &d->limit_due_ns[level][bounded(index, DROVER_MAX_VMS)];
}

/* Groups of the last level that hold slots in use. */
static __always_inline u32 limit_due_top_groups(struct drover *d)
{
	u32 slots_bits = (DROVER_DUE_LEVELS - 1) * DROVER_DUE_GROUP_BITS;

	return (d->slots_in_use + (1 << slots_bits) - 1) >> slots_bits;
}

static __always_inline u64 limit_due_read(u64 *due_ns)
{
	return *(volatile u64 *)due_ns;
}

/* Then, or sooner. */
static __always_inline void limit_due_by(u64 *due_ns, u64 at_ns)
{
	u32 try;

	for_each_index(try, 0, 4) {
		u64 set_ns = limit_due_read(due_ns);

		if (set_ns <= at_ns || __sync_val_compare_and_swap(due_ns, set_ns, at_ns) == set_ns)
			return;
	}
	/* Others keep changing it: the soonest is never wrong. */
	__sync_lock_test_and_set(due_ns, LIMIT_NEXT_ALARM);
}

/* Nobody looks for now: who finds it due takes it. */
static __always_inline void limit_due_take(u64 *due_ns)
{
	__sync_lock_test_and_set(due_ns, LIMIT_NO_ALARM);
}

/* Look at the VM then, or sooner. */
static __always_inline void limit_watch(struct drover *d, u32 slot, u64 at_ns)
{
	for (u32 level = 0; level < DROVER_DUE_LEVELS; level++)
		limit_due_by(limit_due_of(d, level, slot >> (level * DROVER_DUE_GROUP_BITS)),
			     at_ns);
}

#endif

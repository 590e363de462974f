/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The levels of CPU time in the tree of pools, as of water in a vessel of vessels.
 *
 * Idea. In each pool there is a level, CPU per share, and a child holds
 *     shares * level, but no less than is reserved and no more than its limit or than it wants.
 * All that is reserved and wanted is added up the tree first; then CPU time is poured in at the
 * root, and each pool is owed what it holds at its parent's level.
 *
 * How a level is found. By Newton's steps: children at their floor or their most
 * are fixed, the others divide the rest by shares; that level is exact unless a
 * child changes sides, and then the next step starts there. It is kept between
 * looks, and all pools step at once, until none moves: mostly, that is soon. A bracket
 * halves what Newton would jump about in.
 *
 * Worked example. 4 pCPUs; vm0 with 1000 shares and 100 % reserved, seven with 1000; all want
 * all. The level is 0.5 of a pCPU for 1000 shares: everybody holds 0.5, and vm0, below its
 * floor, 1. The others are free, so the next level is (4 - 1) / 7 = 0.43. There nobody
 * changes sides, and it is found. vm0 wants 0.2 later: it is fixed at that, and the next level
 * is 3.8 / 7 = 0.54.
 *
 * What it is bad at. A step passes over all VMs and pools, whichever of them moved. Where many are
 * near their floor or most, levels take several steps, and pools below wait for those above.
 */
#ifndef DROVER_ENTITLE_LEVEL_H
#define DROVER_ENTITLE_LEVEL_H

#include "entitle/entitle_want.h"

/* A level that moves by less than that part of itself has been found. */
#define ENTITLE_EXACT 1024
#define ENTITLE_LEVEL_SHIFT 20
/* 8 pCPUs a share: shares * level stays within 64 bits. */
#define ENTITLE_LEVEL_MAX (1ULL << 43)
#define ENTITLE_SCALE_SHIFT 10
/* Who is owed next to nothing is weighed by that part of an even share at least. */
#define ENTITLE_LEAST_PART 64

/* A promise as it can be kept with the pCPUs there are. */
static __always_inline u64 entitle_kept_ucpu(struct drover *d, u32 mcpu)
{
	return (entitle_ucpu(mcpu) * d->promise_scale) >> ENTITLE_SCALE_SHIFT;
}

static __always_inline void entitle_clear(struct pool *pool)
{
	pool->promised_ucpu = pool->floor_ucpu = pool->most_ucpu = pool->all_shares = 0;
	pool->low = 0;
	pool->high = ENTITLE_LEVEL_MAX;
}

static __always_inline void entitle_add_child(struct pool *parent, u64 promised, u64 floor,
					      u64 most, u32 shares)
{
	parent->promised_ucpu += promised;
	parent->floor_ucpu += floor;
	parent->most_ucpu += most;
	parent->all_shares += shares;
}

CHECKED_APART int entitle_gather_vm(THE_DROVER, u32 slot)
{
	struct vm *vm = vm_at(d, slot);

	if (!partition_is_default(vm))
		return 0;
	vm->most_ucpu = entitle_most_ucpu(vm);
	vm->floor_ucpu = (u32)least_of(entitle_kept_ucpu(d, vm->reservation_mcpu), vm->most_ucpu);
	entitle_add_child(pool_at(d, pool_existing(d, vm->pool)),
			  entitle_ucpu(vm->reservation_mcpu), vm->floor_ucpu, vm->most_ucpu,
			  vm->shares);
	return 0;
}

/* All that is in the pool has been gathered. */
CHECKED_APART int entitle_gather_pool(THE_DROVER, u32 index)
{
	struct pool *pool = pool_at(d, index);
	u64 kept = entitle_kept_ucpu(d, pool->reservation_mcpu);

	pool->promised_ucpu = most_of(pool->promised_ucpu, entitle_ucpu(pool->reservation_mcpu));
	pool->most_ucpu = least_of(pool->most_ucpu, entitle_limit_ucpu(pool->limit_mcpu));
	pool->floor_ucpu = least_of(most_of(pool->floor_ucpu, kept), pool->most_ucpu);
	entitle_add_child(pool_around(d, pool), pool->promised_ucpu, pool->floor_ucpu,
			  pool->most_ucpu, pool->shares);
	return 0;
}

static __always_inline u32 entitle_ordered(struct drover *d, u32 i)
{
	return d->pool_order[bounded(i, DROVER_MAX_POOLS)];
}

/* Promises that exceed the pCPUs there are shrink alike. */
static __always_inline void entitle_scale(struct drover *d)
{
	u64 promised = pool_at(d, POOL_ROOT)->promised_ucpu;
	u64 there = partition_at(d, 0)->nr_online * ENTITLE_PCPU_UCPU;
	u32 before = d->promise_scale;

	d->promise_scale = promised > there ? (u32)((there << ENTITLE_SCALE_SHIFT) / promised) :
					      1 << ENTITLE_SCALE_SHIFT;
	/* What was gathered is kept by the old one. */
	if (d->promise_scale != before)
		d->owed_anew = 1;
}

/* What is promised and wanted, up the tree. */
static __always_inline void entitle_gather(struct drover *d)
{
	u32 i;

	entitle_clear(pool_at(d, POOL_ROOT));
	for_each_index(i, 0, d->nr_pools)
		entitle_clear(pool_at(d, entitle_ordered(d, i)));
	for_each_index(i, 0, d->slots_in_use)
		entitle_gather_vm(d, i);
	for_each_index(i, 0, d->nr_pools)
		entitle_gather_pool(d, entitle_ordered(d, d->nr_pools - 1 - i));
	entitle_scale(d);
}

/* What the child holds at that level; counted as fixed or free. */
static __always_inline u64 entitle_held(struct pool *parent, u32 shares, u64 floor, u64 most)
{
	u64 held = (shares * parent->level) >> ENTITLE_LEVEL_SHIFT;

	if (!most || !shares)
		return 0;
	if (held >= most) {
		u64 full = (most << ENTITLE_LEVEL_SHIFT) / shares;

		parent->fixed_ucpu += most;
		parent->full_level = most_of(parent->full_level, full);
		return most;
	}
	if (held < floor) {
		u64 rise = (floor << ENTITLE_LEVEL_SHIFT) / shares + 1;

		parent->fixed_ucpu += floor;
		parent->rise_level = least_of(parent->rise_level, rise);
		return floor;
	}
	parent->free_shares += shares;
	return held;
}

CHECKED_APART int entitle_hold_vm(THE_DROVER, u32 slot)
{
	struct vm *vm = vm_at(d, slot);

	if (partition_is_default(vm))
		entitle_held(pool_at(d, pool_existing(d, vm->pool)), vm->shares, vm->floor_ucpu,
			     vm->most_ucpu);
	return 0;
}

/* Newton's next level for a pool that is owed so much, within its bracket. */
static __always_inline u64 entitle_step(struct pool *pool, u64 owed_ucpu)
{
	u64 held = pool->fixed_ucpu + ((pool->free_shares * pool->level) >> ENTITLE_LEVEL_SHIFT);
	u64 next;

	if (!pool->free_shares && pool->fixed_ucpu == owed_ucpu)
		return pool->full_level; /* all have all they want */
	if (held <= owed_ucpu)
		pool->low = most_of(pool->low, pool->level);
	else
		pool->high = least_of(pool->high, pool->level);
	if (pool->free_shares)
		next = owed_ucpu > pool->fixed_ucpu ?
			       ((owed_ucpu - pool->fixed_ucpu) << ENTITLE_LEVEL_SHIFT) /
				       pool->free_shares :
			       0;
	else if (pool->fixed_ucpu < owed_ucpu)
		next = pool->rise_level;
	else
		next = pool->full_level - pool->full_level / ENTITLE_EXACT; /* one is free */
	if (next != pool->level && (next <= pool->low || next >= pool->high))
		next = (pool->low + pool->high) / 2;
	return least_of(next, ENTITLE_LEVEL_MAX);
}

/* The pool is owed that if it wants all: find the level of what is in it. */
static __always_inline void entitle_fill(struct drover *d, struct pool *pool, u64 owed_ucpu)
{
	u64 poured = least_of(owed_ucpu, pool->most_ucpu);
	u64 before = pool->level;

	if (poured != pool->poured_ucpu) {
		/* The level above has moved: what was learnt of this one is void. */
		pool->low = 0;
		pool->high = ENTITLE_LEVEL_MAX;
	}
	pool->poured_ucpu = poured;
	pool->owed_ucpu = owed_ucpu;
	pool->level = entitle_step(pool, poured);
	if (entitle_apart(pool->level, before) > pool->level / ENTITLE_EXACT)
		d->levels_move = 1;
	pool->weigh_level = pool->level;
	/* Nobody wants the rest: a child that begins to shall find its part of it. */
	if (owed_ucpu > pool->most_ucpu && pool->all_shares)
		pool->weigh_level +=
			((owed_ucpu - pool->most_ucpu) << ENTITLE_LEVEL_SHIFT) / pool->all_shares;
	pool->weigh_level = least_of(pool->weigh_level, ENTITLE_LEVEL_MAX);
	pool->fixed_ucpu = pool->free_shares = pool->full_level = 0;
	pool->rise_level = ENTITLE_LEVEL_MAX;
}

/* What a child is owed if it wants all. */
static __always_inline u64 entitle_owed(struct pool *parent, u32 shares, u64 kept, u64 limit)
{
	u64 owed = (shares * parent->weigh_level) >> ENTITLE_LEVEL_SHIFT;

	/* Else a moment's misjudgement is a debt of hours. */
	u64 least = shares * parent->owed_ucpu / ENTITLE_LEAST_PART / (parent->all_shares ?: 1);

	return least_of(most_of(most_of(owed, least), kept), limit);
}

CHECKED_APART int entitle_fill_pool(THE_DROVER, u32 index)
{
	struct pool *pool = pool_at(d, index);
	struct pool *parent = pool_around(d, pool);
	u64 kept = most_of(entitle_kept_ucpu(d, pool->reservation_mcpu), pool->floor_ucpu);

	entitle_fill(
		d, pool,
		entitle_owed(parent, pool->shares, kept, entitle_limit_ucpu(pool->limit_mcpu)));
	return 0;
}

/* All pools make a step towards their levels. */
CHECKED_APART int entitle_round(THE_DROVER)
{
	u32 i;

	for_each_index(i, 0, d->slots_in_use)
		entitle_hold_vm(d, i);
	for_each_index(i, 0, d->nr_pools) {
		struct pool *pool = pool_at(d, entitle_ordered(d, i));

		entitle_held(pool_around(d, pool), pool->shares, pool->floor_ucpu, pool->most_ucpu);
	}
	d->levels_move = 0;
	entitle_fill(d, pool_at(d, POOL_ROOT), partition_at(d, 0)->nr_online * ENTITLE_PCPU_UCPU);
	for_each_index(i, 0, d->nr_pools)
		entitle_fill_pool(d, entitle_ordered(d, i));
	return 0;
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Pools: a tree in which CPU time is divided level by level.
 *
 * Idea. VMs and pools are in pools; the root is there without being made. Each
 * pool has shares, reservation and limit among its siblings, as a VM has. What
 * a pool is owed is divided among what is in it and wants CPU time; what one
 * child cannot use goes to its siblings first, and only what the whole pool
 * cannot use leaves it. entitle_level.h computes that; here is the tree itself. The
 * pools are kept in an order in which every pool comes after its parent, so that
 * one pass in that order goes down the tree and one against it goes up.
 *
 * Worked example. Root: pool A (1000 shares) with VMs a1, a2; pool B (1000) with
 * b1. All want all: A and B are owed half of the host each, a1 and a2 a quarter.
 * a2 sleeps: a1 is owed half, B nothing more.
 *
 * What it is bad at. A pool deeper than 8 levels below the root, or in a circle of pools, counts as
 * none, and what is in it as in the root; so does what is in a pool that does not exist. The daemon
 * refuses them all.
 */
#ifndef DROVER_POOL_H
#define DROVER_POOL_H

#include "guarantee/reserve.h"

#define POOL_ROOT 0
#define POOL_DEPTH_MAX 8
/* The depth of a pool that has no place in the order yet. */
#define POOL_UNPLACED (POOL_DEPTH_MAX + 1)

static __always_inline struct pool *pool_at(struct drover *d, u32 pool)
{
	return &d->pool[bounded(pool, DROVER_MAX_POOLS)];
}

/* The pool if it exists, else the root. */
static __always_inline u32 pool_existing(struct drover *d, u32 pool)
{
	return pool < DROVER_MAX_POOLS && pool_at(d, pool)->depth ? pool : POOL_ROOT;
}

/* What that pool is in. */
static __always_inline struct pool *pool_around(struct drover *d, struct pool *pool)
{
	return pool_at(d, pool_existing(d, pool->parent));
}

/* The pools of that depth go to the end of the order. */
CHECKED_APART int pool_append_depth(THE_DROVER, u32 depth)
{
	u32 i;

	for_each_index(i, 1, DROVER_MAX_POOLS) {
		struct pool *pool = pool_at(d, i);
		struct pool *around = pool_around(d, pool);

		if (pool->depth != POOL_UNPLACED || around->depth + 1 != depth)
			continue;
		pool->depth = depth;
		pool->capped_by = pool->limit_mcpu ? i : around->capped_by;
		d->pool_order[bounded(d->nr_pools, DROVER_MAX_POOLS)] = i;
		d->nr_pools++;
	}
	return 0;
}

/* Pools came, went or moved: order them anew, parents first. The root is in no list. */
static __always_inline void pool_settle(struct drover *d)
{
	u32 i;

	for_each_index(i, 1, DROVER_MAX_POOLS)
		pool_at(d, i)->depth = pool_at(d, i)->live ? POOL_UNPLACED : 0;
	d->nr_pools = 0;
	for_each_index(i, 1, POOL_DEPTH_MAX + 1)
		pool_append_depth(d, i);
	for_each_index(i, 1, DROVER_MAX_POOLS) {
		if (pool_at(d, i)->depth == POOL_UNPLACED)
			pool_at(d, i)->depth = 0;
	}
}

#endif

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
 * What it is bad at. A pool deeper than 8 levels below the root, or in a pool
 * that does not exist, counts as in the root: the daemon refuses both.
 */
#ifndef DROVER_POOL_H
#define DROVER_POOL_H

#include "guarantee/reserve.h"

#define POOL_ROOT 0
#define POOL_DEPTH_MAX 8

static __always_inline struct pool *pool_at(struct drover *d, u32 pool)
{
	return &d->pool[bounded(pool, DROVER_MAX_POOLS)];
}

/* The pool if it exists, else the root. */
static __always_inline u32 pool_existing(struct drover *d, u32 pool)
{
	return pool < DROVER_MAX_POOLS && pool_at(d, pool)->live ? pool : POOL_ROOT;
}

/* How many pools are above that one; POOL_DEPTH_MAX: too many, or its parents go in a circle. */
CHECKED_APART u32 pool_count_above(THE_DROVER, u32 pool)
{
	u32 above = 0;
	u32 step;

	for_each_index(step, 0, POOL_DEPTH_MAX) {
		pool = pool_existing(d, pool_at(d, pool)->parent);
		if (pool == POOL_ROOT)
			break;
		above++;
	}
	return above;
}

static __always_inline void pool_find_place(struct drover *d, u32 index)
{
	struct pool *pool = pool_at(d, index);
	u32 above = pool_count_above(d, index);

	pool->depth = above < POOL_DEPTH_MAX ? above + 1 : 1;
	pool->in = above < POOL_DEPTH_MAX ? pool_existing(d, pool->parent) : POOL_ROOT;
}

/* The pools of that depth go to the end of the order. */
CHECKED_APART int pool_append_depth(THE_DROVER, u32 depth)
{
	u32 pool;

	for_each_index(pool, 1, DROVER_MAX_POOLS) {
		if (!pool_at(d, pool)->live || pool_at(d, pool)->depth != depth)
			continue;
		pool_at(d, pool)->capped_by = pool_at(d, pool)->limit_mcpu ?
						      pool :
						      pool_at(d, pool_at(d, pool)->in)->capped_by;
		d->pool_order[bounded(d->nr_pools, DROVER_MAX_POOLS)] = pool;
		d->nr_pools++;
	}
	return 0;
}

/* Pools came, went or moved: order them anew, parents first. The root is in no list. */
static __always_inline void pool_settle(struct drover *d)
{
	u32 pool, depth;

	for_each_index(pool, 1, DROVER_MAX_POOLS) {
		if (pool_at(d, pool)->live)
			pool_find_place(d, pool);
	}
	d->nr_pools = 0;
	for_each_index(depth, 1, POOL_DEPTH_MAX + 1)
		pool_append_depth(d, depth);
}

#endif

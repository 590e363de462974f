/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Pools, as far as limits need them: which of those a VM is in have one.
 *
 * Idea. What a pool is owed is divided outside of the kernel (allot.h). What all VMs in and below a
 * pool use is counted here (limit.h), so each pool knows the nearest one, itself or above it, that
 * has a limit; from there it is one step to the next.
 *
 * Worked example. Pool a has a limit of 200 %, b in it none, c in b 50 %. A VM of b counts for a;
 * one of c for c, then for a.
 *
 * Limitations. A pool deeper than 8 levels below the root, or in a circle of pools, is bound by no
 * more than the 8 around it. The daemon refuses both.
 */
#ifndef DROVER_POOL_H
#define DROVER_POOL_H

#include "base/types.h"

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

/* The pool itself, or the nearest around it, that has a limit; 0: none. */
BPF_GLOBAL u32 pool_find_cap(THE_DROVER, u32 pool)
{
	u32 step;

	for_each_index(step, 0, POOL_DEPTH_MAX) {
		pool = pool_existing(d, pool);
		if (pool == POOL_ROOT || pool_at(d, pool)->limit_mcpu)
			break;
		pool = pool_at(d, pool)->parent;
	}
	return pool_at(d, pool)->limit_mcpu ? pool : POOL_ROOT;
}

/* Pools came, went or changed. */
static __always_inline void pool_settle(struct drover *d)
{
	u32 i;

	for_each_index(i, 1, DROVER_MAX_POOLS)
		pool_at(d, i)->capped_by = pool_find_cap(d, i);
}

#endif

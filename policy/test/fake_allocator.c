// SPDX-License-Identifier: GPL-2.0-only
/*
 * A small daemon: every 50 ms it allots what is owed by shares, reservations and limits, those of
 * pools too. All that is awake counts as busy. Pools divide by the shares of the VMs in them.
 */
#include "fake_kernel.h"

struct claims {
	u32 nr;
	u32 slot[FAKE_PROCESSES];
	double shares[FAKE_PROCESSES];
	double floor[FAKE_PROCESSES]; /* pCPUs reserved */
	double most[FAKE_PROCESSES];  /* wanted, and within limits */
};

static double held(const struct claims *c, u32 i, double level)
{
	double amount = level * c->shares[i];

	amount = amount < c->floor[i] ? c->floor[i] : amount;
	return amount > c->most[i] ? c->most[i] : amount;
}

/* What a share is worth to one who would begin to want. */
static double level_of(const struct claims *c, double pcpus)
{
	double low = 0, high = pcpus, most = 0, shares = 0, all_have = 0;

	for (u32 i = 0; i < c->nr; i++) {
		most += c->most[i];
		shares += c->shares[i];
		if (c->most[i] / c->shares[i] > all_have)
			all_have = c->most[i] / c->shares[i];
	}
	if (most <= pcpus)
		return all_have + (pcpus - most) / shares;
	for (u32 round = 0; round < 60; round++) {
		double level = (low + high) / 2, sum = 0;

		for (u32 i = 0; i < c->nr; i++)
			sum += held(c, i, level);
		*(sum > pcpus ? &high : &low) = level;
	}
	return low;
}

static bool is_in_pool(struct ground *g, u32 slot, u32 pool)
{
	u32 at = pool_existing(&g->d, vm_at(&g->d, slot)->asked.pool);

	for (u32 step = 0; step < POOL_DEPTH_MAX && at; step++) {
		if (at == pool)
			return true;
		at = pool_existing(&g->d, pool_at(&g->d, at)->parent);
	}
	return false;
}

/* Who is in the pool may have what its limit leaves each of them. */
static void bound_by_pool(struct ground *g, struct claims *all, u32 pool)
{
	struct claims inside = {0};
	u32 of[FAKE_PROCESSES];
	double level;

	for (u32 i = 0; i < all->nr; i++) {
		if (!is_in_pool(g, all->slot[i], pool))
			continue;
		of[inside.nr] = i;
		inside.shares[inside.nr] = all->shares[i];
		inside.floor[inside.nr] = all->floor[i];
		inside.most[inside.nr] = all->most[i];
		inside.nr++;
	}
	if (!inside.nr)
		return;
	level = level_of(&inside, pool_at(&g->d, pool)->limit_mcpu / 1000.0);
	for (u32 i = 0; i < inside.nr; i++)
		all->most[of[i]] = held(&inside, i, level);
}

static bool gather(struct ground *g, struct claims *c, double pcpus)
{
	bool bound = false;

	for (u32 slot = 0; slot < FAKE_PROCESSES; slot++) {
		struct vm *vm = vm_at(&g->d, slot);
		double limit = vm->asked.limit_mcpu ? vm->asked.limit_mcpu / 1000.0 : pcpus;

		if (!vm->id || !partition_allots(&g->d, vm))
			continue;
		c->slot[c->nr] = slot;
		c->shares[c->nr] = vm->shares;
		c->floor[c->nr] = vm->asked.reservation_mcpu / 1000.0;
		c->most[c->nr] = share_nr_awake(vm) < limit ? share_nr_awake(vm) : limit;
		c->nr++;
		bound |= vm->asked.reservation_mcpu || vm->asked.limit_mcpu || vm->asked.pool;
	}
	/* Deeper pools have higher numbers. */
	for (u32 pool = DROVER_MAX_POOLS - 1; pool; pool--)
		if (pool_existing(&g->d, pool) && pool_at(&g->d, pool)->limit_mcpu)
			bound_by_pool(g, c, pool);
	return bound;
}

void fake_allot(struct ground *g)
{
	double pcpus = partition_at(&g->d, 0)->nr_online, level;
	struct claims c = {0};

	if (!gather(g, &c, pcpus)) {
		allot_end(&g->d);
		return;
	}
	level = level_of(&c, pcpus);
	level = level > pcpus / 1e6 ? level : pcpus / 1e6;
	for (u32 i = 0; i < c.nr; i++) {
		struct vm *vm = vm_at(&g->d, c.slot[i]);
		double limit = vm->asked.limit_mcpu ? vm->asked.limit_mcpu / 1000.0 : pcpus;
		double owed = held(&c, i, level), weight = level * c.shares[i];
		struct allotment allotment = {.vm_id = vm->id};

		weight = weight > owed ? weight : owed;
		weight = weight > c.floor[i] ? weight : c.floor[i];
		weight = weight < 2 * limit ? weight : 2 * limit;
		allotment.share_inverse = (u64)(1000 * level / weight * (1 << SHARE_INVERSE_SHIFT));
		allotment.entitled_ucpu = (u32)(1e6 * (vm->asked.pool ? owed : weight));
		allotment.promised_mcpu = vm->asked.reservation_mcpu;
		allot_obey(&g->d, c.slot[i], &allotment);
	}
	allot_begin(&g->d, g->now_ns);
}

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the daemon orders. It has checked that the whole makes sense; here an
 * order reaches the VM that was meant, or nobody.
 *
 * A VM may end while an order is on its way, and its slot be another's. So an
 * order names the VM by its id, which is never used again, and holds the slot
 * until all settings are in force.
 *
 * After an order the ground asks drover_begins_to_look (drover.h).
 */
#ifndef DROVER_ORDERS_H
#define DROVER_ORDERS_H

#include "account/find.h"

struct vm_order {
	u32 slot;
	u32 shares; /* 0: the default for its size */
	u64 vm_id;  /* the VM meant; another in that slot is left alone */
	u32 reservation_mcpu;
	u32 limit_mcpu; /* 0: no limit */
	u32 pool;
	u32 cosched_mode; /* enum cosched_mode */
};

struct pool_order {
	u32 pool;
	u32 live; /* 0: remove it */
	u32 parent;
	u32 shares;
	u32 reservation_mcpu;
	u32 limit_mcpu; /* 0: no limit */
};

/* Where a pCPU belongs that has come. */
struct pcpu_order {
	u32 pcpu;
	u32 domain;
	u32 node; /* of all pCPUs in that domain, + 1; 0: none, or several */
};

/* Where the VM's memory lies, or is going to. */
struct home_order {
	u32 slot;
	u32 home; /* the NUMA node, + 1; 0: it has no home */
	u64 vm_id;
};

/* False: the VM is gone. */
static inline bool order_vm(struct drover *d, const struct vm_order *order)
{
	struct vm *vm = vm_at(d, order->slot);
	bool meant;

	if (order->slot == DROVER_HOST_SLOT || !vm_hold(vm))
		return false;
	meant = vm->id == order->vm_id;
	if (meant) {
		vm->shares_asked = order->shares;
		vm->reservation_mcpu = order->reservation_mcpu;
		vm->limit_mcpu = order->limit_mcpu;
		vm->pool = order->pool;
		cosched_set_mode(d, order->slot, order->cosched_mode);
		vm_settle(d, order->slot);
	}
	find_let_go(d, order->slot);
	return meant;
}

/* False: the VM is gone. */
static inline bool order_home(struct drover *d, const struct home_order *order)
{
	struct vm *vm = vm_at(d, order->slot);
	bool meant;

	if (order->slot == DROVER_HOST_SLOT || !vm_hold(vm))
		return false;
	meant = vm->id == order->vm_id;
	if (meant) {
		vm->home = order->home;
		d->homes = 1;
	}
	find_let_go(d, order->slot);
	return meant;
}

/* False: there is no such pool, or it is the root. */
static inline bool order_pool(struct drover *d, const struct pool_order *order)
{
	struct pool *pool = pool_at(d, order->pool);

	if (order->pool == 0 || order->pool >= DROVER_MAX_POOLS)
		return false;
	pool->parent = order->parent;
	pool->shares = order->shares;
	pool->reservation_mcpu = order->reservation_mcpu;
	pool->limit_mcpu = order->limit_mcpu;
	pool->live = order->live;
	vm_settle_pools(d);
	return true;
}

/*
 * False: there is no such pCPU or domain. Threads that wait in the domain it was in
 * stay there; its pCPUs, or others that look there, take them.
 */
static inline bool order_pcpu(struct drover *d, const struct pcpu_order *order)
{
	if (order->pcpu >= d->params.nr_pcpus || !ground_runqueue(d, order->domain))
		return false;
	/* A spare domain is empty, and begins to count before anybody is in it. */
	raise_to(&d->params.nr_domains, order->domain + 1);
	pcpu_at(d, order->pcpu)->domain = order->domain;
	domain_at(d, order->domain)->node = order->node;
	topology_settle(d);
	/* Masks of domains mean other pCPUs now. */
	__sync_fetch_and_add(&d->pcpu_changes, 1);
	return true;
}

#endif

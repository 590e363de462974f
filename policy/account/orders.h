/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the daemon orders. It has checked that the whole makes sense; here an
 * order reaches the VM that was meant, or none.
 *
 * A VM may end while an order is on its way, and its slot be another's. So an
 * order names the VM by its id, which is never used again, and holds the slot
 * until all settings are in force.
 */
#ifndef DROVER_ORDERS_H
#define DROVER_ORDERS_H

#include "account/find.h"
#include "partition/drain.h"

struct vm_order {
	u64 vm_id; /* the VM meant; another in that slot is left alone */
	u32 slot;
	u32 cosched_mode; /* enum cosched_mode */
	u32 partition;
	u32 burst_us; /* with a limit: what its bucket holds beside 100 ms of that */
	struct vm_settings asked;
};

/* A cgroup begins or ceases to be a container. */
struct container_order {
	u64 cgroup;
	u32 live;
	u32 user; /* whose subtree it is in; 0: root's */
};

struct pool_order {
	u32 pool;
	u32 live; /* 0: remove it */
	u32 parent;
	u32 limit_mcpu; /* 0: no limit */
	u32 burst_us; /* as in struct vm_order */
};

struct partition_order {
	u32 partition;
	u32 policy; /* enum partition_policy */
	u64 slice_ns;
};

/* Where a pCPU belongs: one that has come, or that changes partitions. */
struct pcpu_order {
	u32 pcpu;
	u32 domain;
	u32 partition; /* of that domain */
	u32 sibling; /* the other thread of its core, + 1; 0: there is none */
	u32 node; /* of all pCPUs in that domain, + 1; 0: none, or several */
	u32 llc; /* the cache of that domain, by any number of its own, + 1 */
};

/* Where the VM's memory, or that of a part of it, lies or is going to. */
struct home_order {
	u32 slot;
	u32 home; /* home.h; 0: it has no home */
	u64 vm_id;
	u32 part; /* of so many, in order; a VM with one home is one part */
	u32 parts;
};

/* The VM meant, held until find_let_go; NULL: it is gone. */
static __always_inline struct vm *order_hold(struct drover *d, u32 slot, u64 vm_id)
{
	struct vm *vm = vm_at(d, slot);

	if (slot == DROVER_HOST_SLOT || !vm_hold(vm))
		return NULL;
	if (vm->id == vm_id)
		return vm;
	find_let_go(d, slot);
	return NULL;
}

/* False: the VM is gone. */
static inline bool order_vm(struct drover *d, const struct vm_order *order)
{
	struct vm *vm = order_hold(d, order->slot, order->vm_id);

	if (!vm)
		return false;
	vm->asked = order->asked;
	limit_of_vm(d, order->slot)->burst_us = order->burst_us;
	/* The quota may have changed: look at its parked threads again. */
	if (vm->nr_parked)
		timer_by(d, order->slot, ground_now_ns(d));
	vm_set_partition(d, vm, order->partition);
	cosched_set_mode(d, order->slot, order->cosched_mode);
	vm_settle(d, order->slot);
	find_let_go(d, order->slot);
	return true;
}

static inline bool order_begin_container(struct drover *d, u64 owner_id, u32 user)
{
	if (ground_slot_of(d, owner_id) != DROVER_HOST_SLOT ||
	    find_make(d, owner_id, user) == DROVER_HOST_SLOT)
		return false;
	__sync_fetch_and_add(&d->nr_containers, 1);
	vm_tell_found(d);
	return true;
}

/* Its tasks leave as they next wake or stop; until then no setting binds them. */
static inline bool order_end_container(struct drover *d, u64 owner_id)
{
	u32 slot = ground_slot_of(d, owner_id);
	struct vm *vm = vm_at(d, slot);

	if (!find_hold(d, slot, owner_id))
		return false;
	ground_forget(d, owner_id);
	vm->owner_id = 0;
	vm->asked = (struct vm_settings){.pool = POOL_ROOT};
	vm_settle(d, slot);
	__sync_fetch_and_sub(&d->nr_containers, 1);
	vm_tell_found(d);
	find_let_go(d, slot);
	find_let_go(d, slot); /* which held it from the first */
	return true;
}

/* False: no slot is free for it, or the cgroup is, or is not, a container already. */
static inline bool order_container(struct drover *d, const struct container_order *order)
{
	u64 owner_id = order->cgroup | OWNER_CGROUP;

	return order->live ? order_begin_container(d, owner_id, order->user) :
			     order_end_container(d, owner_id);
}

/*
 * A limit was written for a cgroup, by a process of that user: it is a container at once, so that
 * tasks that enter it next are limited. The daemon reads the cgroup up to a second later, and sets
 * the rest: burst, weight and pool, or that it is not a container. The limit of a cgroup that is a
 * container already is left to the daemon.
 */
static inline void order_cgroup_limit(struct drover *d, u64 cgroup, u32 user, u64 quota_us,
				      u64 period_us)
{
	u64 owner_id = cgroup | OWNER_CGROUP;
	u32 slot;

	/* No limit, or one that this host cannot reach. */
	if (!period_us || quota_us / period_us >= d->params.nr_pcpus ||
	    !order_begin_container(d, owner_id, user))
		return;
	slot = ground_slot_of(d, owner_id);
	if (!find_hold(d, slot, owner_id))
		return;
	vm_at(d, slot)->asked.limit_mcpu = (u32)max_of(quota_us * 1000 / period_us, 1);
	vm_settle(d, slot);
	find_let_go(d, slot);
}

/* False: the VM is gone. */
static inline bool order_home(struct drover *d, const struct home_order *order)
{
	if (!order_hold(d, order->slot, order->vm_id))
		return false;
	home_set(d, order->slot, order->home, order->part, order->parts);
	find_let_go(d, order->slot);
	return true;
}

/* False: there is no such pool, or it is the root. */
static inline bool order_pool(struct drover *d, const struct pool_order *order)
{
	struct pool *pool = pool_at(d, order->pool);

	if (order->pool == 0 || order->pool >= DROVER_MAX_POOLS)
		return false;
	pool->parent = order->parent;
	pool->limit_mcpu = order->limit_mcpu;
	limit_of_pool(d, order->pool)->burst_us = order->burst_us;
	pool->live = order->live;
	vm_settle_pools(d);
	return true;
}

/* False: there is no such partition or policy. Its pCPUs are told of one by one, order_pcpu. */
static inline bool order_partition(struct drover *d, const struct partition_order *order)
{
	if (order->partition >= DROVER_MAX_PARTITIONS || order->policy > POLICY_ANTICIPATORY ||
	    !order->slice_ns)
		return false;
	partition_at(d, order->partition)->policy = order->policy;
	partition_at(d, order->partition)->slice_ns = order->slice_ns;
	return true;
}

/* False: there is no such pCPU, domain or partition. */
static inline bool order_pcpu(struct drover *d, const struct pcpu_order *order)
{
	if (order->pcpu >= d->params.nr_pcpus || order->sibling > d->params.nr_pcpus ||
	    !ground_runqueue(d, order->domain) || order->partition >= DROVER_MAX_PARTITIONS)
		return false;
	/* A spare domain is empty, and begins to count before a thread is in it. */
	atomic_max(&d->params.nr_domains, order->domain + 1);
	domain_at(d, order->domain)->partition = order->partition;
	domain_at(d, order->domain)->node = order->node;
	domain_at(d, order->domain)->llc = order->llc;
	pcpu_at(d, order->pcpu)->sibling = order->sibling;
	if (order->sibling)
		pcpu_at(d, order->sibling - 1)->sibling = order->pcpu + 1;
	drain_move(d, order->pcpu, order->domain);
	return true;
}

#endif

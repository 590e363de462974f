/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Affinity: the set of pCPUs where a thread may run, and how queues deal with it.
 *
 * Idea. A thread that may run on two pCPUs or more waits in the queue of its VM in a domain, as
 * any does, and everything holds for it: shares, reservations, rounds, limits. Each VM has in
 * each domain a mask: the pCPUs where some of its threads that wait there may run. A pCPU that asks
 * passes over VMs without its bit (pick.h); of a VM with its bit the kernel gives it the first
 * thread in the queue that may run there. A mask only grows while threads wait, and begins anew
 * when none does. A bit too many costs a pCPU a look in vain; it never takes a wrong thread.
 *
 * A thread that may run on one pCPU only (a pinned vCPU, a kernel thread of a pCPU) is counted for
 * that pCPU instead: a VM with 64 vCPUs pinned one to one always has some that wait, and its mask
 * would never begin anew. A VM confined to a NUMA node, the usual case, is in no other's way: where
 * its domains are whole, no queue ever has to be searched.
 *
 * Worked example. Domain 0 has pCPUs 0 to 3. The host keeps pCPU 0 for itself; VM 5 may run on 1 to
 * 3 and waits: its mask is 1110. pCPU 0 asks: VM 5 is the least served but has no bit for it, and
 * the host's tasks are next. A vCPU of VM 6 that may run on 3 and 4 waits here with the mask 1000,
 * and with the mark that says that pCPUs of other domains may take it, too.
 *
 * Limitations. Where many VMs share a domain and few may run on a pCPU, that pCPU looks at
 * all VMs to find one (pick.h).
 */
#ifndef DROVER_AFFINITY_H
#define DROVER_AFFINITY_H

#include "partition/partition.h"

#define AFFINITY_ALL (~0ULL)

/* The thread joins the VM, or leaves it. (The count of the host is wrong, and not read.) */
static __always_inline void affinity_join(struct vm *vm, struct thread *t)
{
	__sync_fetch_and_add(&vm->nr_confined, !t->affinity_full);
}

static __always_inline void affinity_leave(struct vm *vm, struct thread *t)
{
	__sync_fetch_and_sub(&vm->nr_confined, !t->affinity_full);
}

/* Of any partition, and of any domain. */
#define AFFINITY_ANY DROVER_MAX_DOMAINS

/*
 * A pCPU that is online, of that partition, not in the domain `but`, where the task may run (or,
 * with may false, may not): the first from there on, or PCPU_NONE.
 */
static __always_inline s32 affinity_find(struct drover *d, struct task_struct *task, u32 partition,
					 u32 but, bool may, u32 from)
{
	u32 nr_pcpus = d->params.nr_pcpus;
	s32 found = PCPU_NONE;
	u32 i;

	for_each_index(i, 0, nr_pcpus) {
		u32 at = bounded((from + i) % (nr_pcpus ?: 1), DROVER_MAX_PCPUS);

		if (!pcpu_at(d, at)->online || pcpu_at(d, at)->domain == but ||
		    (partition != AFFINITY_ANY && partition_of_pcpu(d, at) != partition) ||
		    ground_may_run_on(d, task, at) != may)
			continue;
		found = (s32)at;
		break;
	}
	return found;
}

/* Where the thread is served: in the partition of its VM, if it may run there. */
static __always_inline u32 affinity_partition(struct drover *d, struct task_struct *task,
					      u32 wanted)
{
	s32 any;

	if (affinity_find(d, task, wanted, AFFINITY_ANY, true, 0) != PCPU_NONE)
		return wanted;
	any = affinity_find(d, task, AFFINITY_ANY, AFFINITY_ANY, true, 0);
	return any == PCPU_NONE ? wanted : partition_of_pcpu(d, (u32)any);
}

/*
 * The thread, which runs there, is not of that pCPU's partition. What runs while a pCPU comes or
 * goes is the kernel's choice, and keeps its slice.
 */
static __always_inline bool affinity_strays(struct drover *d, struct thread *t, u32 at)
{
	return d->divided && pcpu_at(d, at)->online && t->partition != partition_of_pcpu(d, at);
}

/* The thread's affinity, its VM's partition, or the pCPUs online, have changed. */
BPF_GLOBAL int affinity_note(THE_DROVER, THE_TASK, THE_THREAD)
{
	struct vm *vm = vm_at(d, t->slot);
	s32 only = ground_only_pcpu(d, task);

	affinity_leave(vm, t);
	t->partition = affinity_partition(d, task, vm->partition);
	t->affinity_full =
		t->partition == vm->partition &&
		affinity_find(d, task, t->partition, AFFINITY_ANY, false, 0) == PCPU_NONE;
	affinity_join(vm, t);
	t->pinned_cpu = only >= 0 && !t->affinity_full ? (u32)only + 1 : 0;
	t->affinity_remote = t->affinity_full;
	t->may_in = 0;
	t->affinity_seq = d->pcpu_changes;
	return 0;
}

/*
 * On a divided host the thread may have to run elsewhere than when that was last looked at. Asked
 * as it wakes and, where it runs, by the tick; on other hosts as it is queued.
 */
static __always_inline void affinity_refresh(struct drover *d, struct task_struct *task,
					     struct thread *t)
{
	if (d->divided && t->affinity_seq != d->pcpu_changes)
		affinity_note(d, task, t);
}

/* The thread's affinity was changed. */
static __always_inline void affinity_change(struct drover *d, struct task_struct *task,
					    struct thread *t)
{
	affinity_note(d, task, t);
	__sync_fetch_and_add(&vm_at(d, t->slot)->counters.affinity_changes, 1);
}

/* The thread's mask in that domain. May it run in others, too? */
BPF_GLOBAL u64 affinity_mask(THE_DROVER, THE_TASK, THE_THREAD, u32 domain)
{
	u32 nr = domain_at(d, domain)->nr_pcpus;
	u64 may = 0;
	u32 i;

	if (t->affinity_full)
		return AFFINITY_ALL;
	if (t->may_in == domain + 1)
		return t->may;
	if (t->pinned_cpu) {
		t->may = 1ULL << bounded(pcpu_at(d, t->pinned_cpu - 1)->place, DROVER_DOMAIN_PCPUS);
		t->may_in = domain + 1;
		return t->may;
	}
	for_each_index(i, 0, nr) {
		if (ground_may_run_on(d, task, topology_pcpu(d, domain, i)))
			may |= 1ULL << bounded(i, DROVER_DOMAIN_PCPUS);
	}
	t->affinity_remote = affinity_find(d, task, t->partition, domain, true, 0) != PCPU_NONE;
	t->may = may == domain_at(d, domain)->all ? AFFINITY_ALL : may;
	t->may_in = domain + 1;
	return t->may;
}

/* How many of the VM's threads wait for the pCPU at that place alone. */
static __always_inline u32 *affinity_pinned(struct entity_rq *entity, u32 place)
{
	return &entity->pinned[bounded(place, DROVER_DOMAIN_PCPUS)];
}

/* Do all of the VM's threads that wait there wait for one pCPU? The mask is of the others. */
static __always_inline bool affinity_only_pinned(const struct entity_rq *entity)
{
	return *(volatile const u32 *)&entity->nr_queued ==
	       *(volatile const u32 *)&entity->nr_pinned;
}

/* If so the mask begins anew. Of threads that came meanwhile nothing is known. */
static __always_inline void affinity_forget(struct entity_rq *entity)
{
	bool all = entity->may == AFFINITY_ALL && entity->remote;

	if (!affinity_only_pinned(entity) || (all && !entity->nr_pinned))
		return;
	__sync_lock_test_and_set(&entity->may, 0);
	__sync_lock_test_and_set(&entity->remote, 0);
	if (affinity_only_pinned(entity))
		return;
	__sync_fetch_and_or(&entity->may, AFFINITY_ALL);
	__sync_lock_test_and_set(&entity->remote, 1);
}

/* The thread, with that mask, waits: its VM's mask has these bits. After it was counted. */
static __always_inline void affinity_add(struct drover *d, struct entity_rq *entity,
					 struct thread *t, u64 may)
{
	if (t->pinned_cpu) {
		struct pcpu *only = pcpu_at(d, t->pinned_cpu - 1);

		/* Both may change before it leaves. */
		t->pinned_at = t->pinned_cpu * DROVER_DOMAIN_PCPUS + only->place;
		__sync_fetch_and_add(affinity_pinned(entity, only->place), 1);
		__sync_fetch_and_add(&entity->nr_pinned, 1);
		__sync_fetch_and_add(&only->nr_pinned, 1);
		affinity_forget(entity);
		return;
	}
	if ((*(volatile u64 *)&entity->may & may) != may)
		__sync_fetch_and_or(&entity->may, may);
	if (t->affinity_remote && !*(volatile u32 *)&entity->remote)
		__sync_lock_test_and_set(&entity->remote, 1);
}

/* The thread waits no longer. */
static __always_inline void affinity_remove(struct drover *d, struct entity_rq *entity,
					    struct thread *t)
{
	u32 place = t->pinned_at % DROVER_DOMAIN_PCPUS;
	u32 only = t->pinned_at / DROVER_DOMAIN_PCPUS - 1;

	if (!t->pinned_at)
		return;
	t->pinned_at = 0;
	ASSERT(entity->nr_pinned && pcpu_at(d, only)->nr_pinned);
	__sync_fetch_and_sub(affinity_pinned(entity, place), 1);
	__sync_fetch_and_sub(&entity->nr_pinned, 1);
	__sync_fetch_and_sub(&pcpu_at(d, only)->nr_pinned, 1);
}

/* May some of the VM's threads that wait run in other domains than where they do? */
BPF_GLOBAL bool affinity_is_remote(THE_DROVER, u32 slot)
{
	bool remote = false;
	u32 i;

	for_each_index(i, 0, d->params.nr_domains) {
		struct runqueue *rq = ground_runqueue(d, i);

		if (rq && entity_rq_of(rq, slot)->nr_queued)
			remote |= entity_rq_of(rq, slot)->remote;
	}
	return remote;
}

/* The domain's pCPUs are others now: of the threads that wait there nothing is known. */
BPF_GLOBAL int affinity_unsettle(THE_DROVER, u32 domain)
{
	struct runqueue *rq = ground_runqueue(d, domain);
	u32 nr_slots = d->slots_in_use;
	u32 slot;

	if (!rq)
		return 0;
	for_each_index(slot, 0, nr_slots) {
		struct entity_rq *entity = entity_rq_of(rq, slot);

		if (affinity_only_pinned(entity))
			continue;
		__sync_fetch_and_or(&entity->may, AFFINITY_ALL);
		__sync_lock_test_and_set(&entity->remote, 1);
	}
	return 0;
}

/* May a thread of the VM that waits in that domain run on that pCPU? */
static __always_inline bool affinity_fits(struct drover *d, struct entity_rq *entity, u32 domain,
					  u32 pcpu)
{
	struct pcpu *p = pcpu_at(d, pcpu);

	if (p->domain != domain)
		return entity->remote;
	return (entity->may >> bounded(p->place, DROVER_DOMAIN_PCPUS) & 1) ||
	       *affinity_pinned(entity, p->place);
}

#endif

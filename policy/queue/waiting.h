/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Waiting: which queue a ready thread stands in, and the accounting of it.
 *
 * Idea. Every VM has a queue in every domain, ordered by the CPU time of its own threads, so that
 * siblings get equal time; the tournament of the domain says whose queue is next. A thread that may
 * not run everywhere stands in the queue of a domain where it may (affinity.h), and one that may
 * run on one pCPU only in that of its domain: shares, reservations and deadlines hold for all of
 * them alike.
 *
 * Why a domain is an LLC. A queue per pCPU has no contention but divides time
 * well only after balancing; one queue for the host divides exactly, and its
 * lock is what ESX's scheduler cells and, later, their removal were about (seed
 * 000, 2.3, 3.2). An LLC has 4 to 16 cores, a switch every few milliseconds
 * each, and a lock held for some 100 ns: it is never contended, and moving
 * inside it costs no cache. docs/performance.md has the measurement.
 *
 * In a crowd, some hundred threads of one VM, the order is that in which they came: each has its
 * turn, and the thread that must run first is among the first (wait_bound.h).
 *
 * Worked example. VM 3 has two vCPUs waiting in domain 0: nr_queued is 2 and leaf
 * 3 holds VM 3's virtual time. One is taken: 1. The other is taken: 0, and the
 * leaf is cleared, under the lock, after looking again, because a third may
 * have come meanwhile.
 *
 * Limitations. The count is raised before the thread is in the queue and
 * lowered when it runs, so for a microsecond a VM may look as if it had a
 * waiting thread that cannot be taken; the pCPU then tries the next VM (pick.h).
 */
#ifndef DROVER_WAITING_H
#define DROVER_WAITING_H

#include "cosched/cosched_stop.h"
#include "guarantee/wait_bound.h"
#include "partition/hooks.h"

/* Its places in the tournaments of that domain are what they should be now. */
static __always_inline void waiting_settle_once(struct drover *d, u32 domain, u32 slot)
{
	tournament_settle(d, domain, slot, TOURNAMENT_NONE, hook_key(d, domain, slot));
	deadline_settle(d, domain, slot);
}

/* The count of the VM's waiting threads in the domain has changed, or whether they may run. */
static __always_inline void waiting_settle(struct drover *d, u32 domain, u32 slot)
{
	u32 at_limit = vm_at(d, slot)->at_limit;

	waiting_settle_once(d, domain, slot);
	/* It was held or let go meanwhile: what was settled then may have been overwritten. */
	if (*(volatile u32 *)&vm_at(d, slot)->at_limit != at_limit)
		waiting_settle_once(d, domain, slot);
}

/* The same wherever threads of it wait. */
BPF_GLOBAL int waiting_settle_domains(THE_DROVER, u32 slot)
{
	u32 i;

	for_each_index(i, 0, d->params.nr_domains) {
		struct runqueue *rq = ground_runqueue(d, i);

		if (rq && entity_rq_of(rq, slot)->nr_queued)
			waiting_settle(d, i, slot);
	}
	return 0;
}

/* The thread stands in no queue any more. Safe to call when it never did. */
static __always_inline void waiting_leave(struct drover *d, struct thread *t)
{
	u32 domain = t->queued_in - 1;
	u32 slot = bounded(t->slot, DROVER_MAX_VMS);
	struct entity_rq *entity;
	struct runqueue *rq;
	bool last;

	if (!t->queued_in)
		return;
	t->queued_in = 0;
	rq = ground_runqueue(d, domain);
	if (!rq)
		return;
	entity = entity_rq_of(rq, slot);
	ASSERT(entity->nr_queued);
	affinity_remove(d, entity, t);
	last = __sync_fetch_and_sub(&entity->nr_queued, 1) == 1;
	affinity_forget(entity);
	if (last)
		waiting_settle(d, domain, slot);
}

/* With so many threads of a VM that wait in a domain they stand in the order in which they came. */
#define WAITING_CROWD (GROUND_SEARCH_MAX / 2)

/* Put the thread into its VM's queue in the domain of that pCPU. */
BPF_GLOBAL int waiting_enter(THE_DROVER, THE_TASK, THE_THREAD, u32 near)
{
	u32 slot = bounded(t->slot, DROVER_MAX_VMS);
	u32 domain = pcpu_at(d, near)->domain;
	struct runqueue *rq = ground_runqueue(d, domain);
	bool new_here = t->may_in != domain + 1;
	u64 may = affinity_mask(d, task, t, domain);
	struct entity_rq *entity;
	bool first, earlier;

	if (!rq)
		return 0;
	ASSERT(!t->queued_in && t->ready_since_ns);
	entity = entity_rq_of(rq, slot);
	share_move_to(d, slot, near);
	if (t->pinned_cpu && new_here)
		share_level_pinned(d, t);
	t->queued_in = domain + 1;
	if (t->record)
		vcpu_at(d, t->record)->pcpu = near;
	share_bound_lead(d, vm_at(d, slot), t);
	if (entity->nr_queued >= WAITING_CROWD) {
		share_not_before(&t->vruntime_ns, entity->last_vruntime_ns);
		entity->last_vruntime_ns = t->vruntime_ns;
	}
	first = __sync_fetch_and_add(&entity->nr_queued, 1) == 0;
	affinity_add(d, entity, t, may);
	earlier = wait_bound_enter(d, t, domain, entity, first);
	if (first)
		waiting_settle(d, domain, slot);
	else if (earlier)
		deadline_settle(d, domain, slot);
	ground_enqueue(d, task, ground_vm_queue(d, slot, domain), d->params.slice_ns,
		       t->vruntime_ns);
	return 0;
}

/* For how long the VM was held at its limit altogether, up to now. */
static __always_inline u64 waiting_held_ns(struct vm *vm, u64 now_ns)
{
	u64 held_ns = now_ns - vm->hold.since_ns;

	return vm->at_limit && (s64)held_ns > 0 ? vm->hold.before_ns + held_ns : vm->hold.before_ns;
}

/* The vCPU is ready. The VM's times are up to date. */
static __always_inline void waiting_vcpu_begin(struct drover *d, struct vm *vm, struct thread *t)
{
	struct vcpu *v = vcpu_at(d, t->record);

	if (!t->record)
		return;
	v->lag_mark_ns = vm->pressure.progressed_ns;
	v->costop_mark_ns = v->costop_ns;
	if (v->state == VCPU_HALTED && (s64)(v->progress_ns - vm->skew.floor_ns) < 0)
		v->progress_ns = vm->skew.floor_ns;
	v->state = VCPU_READY;
}

/* A thread has become ready: its wait, if any, begins now. */
static __always_inline void waiting_begin(struct drover *d, struct thread *t)
{
	if (t->ready_since_ns)
		return;
	t->ready_since_ns = ground_now_ns(d);
	t->held_mark_ns = waiting_held_ns(vm_at(d, t->slot), t->ready_since_ns);
	__sync_fetch_and_add(&vm_at(d, t->slot)->nr_waiting, 1);
	if (t->kind == THREAD_VCPU) {
		together_tally(vm_at(d, t->slot), t->ready_since_ns);
		__sync_fetch_and_add(&vm_at(d, t->slot)->vcpus_waiting, 1);
		waiting_vcpu_begin(d, vm_at(d, t->slot), t);
	}
}

/* It is ready no more. The VM's times are up to date. */
static __always_inline void waiting_vcpu_end(struct drover *d, struct vm *vm, struct thread *t)
{
	struct vcpu *v = vcpu_at(d, t->record);

	if (!t->record || v->state != VCPU_READY)
		return;
	v->lag_ns = vcpu_lag_ns(vm, v);
	v->hazard_ns += vm->pressure.progressed_ns - v->lag_mark_ns;
	v->state = VCPU_HALTED;
}

/* How much of the wait that ends now it was co-stopped: that was not ready time. */
static __always_inline u64 waiting_costopped_ns(struct drover *d, struct vm *vm, struct thread *t,
						u64 now_ns)
{
	struct vcpu *v = vcpu_at(d, t->record);

	if (!t->record)
		return 0;
	cosched_start(vm, v, now_ns);
	return v->costop_ns - v->costop_mark_ns;
}

/* The wait that ends now was so long; what of it a limit held back is counted apart. */
static __always_inline void waiting_count(struct drover *d, struct vm *vm, struct thread *t,
					  u64 waited_ns, u64 now_ns)
{
	u64 held_ns = waiting_held_ns(vm, now_ns) - t->held_mark_ns;
	u64 settled_for_ns = now_ns - vm->counters.settled_ns;

	if (waited_ns >= d->params.slice_ns / 2)
		vm->waited_ns = now_ns;
	__sync_fetch_and_add(&vm->counters.ready_ns, waited_ns);
	/* As esxtop has it, %RDY contains %MLMTD; and of that, what shares would hold is no
	 * limit's. */
	if ((s64)held_ns > 0) {
		u64 shares_ns = held_ns / LIMITED_PARTS * vm->hold.shares_part;

		__sync_fetch_and_add(&vm->counters.limited_ns, held_ns - shares_ns);
		waited_ns = waited_ns > held_ns ? waited_ns - held_ns : 0;
	}
	/* What it waited before its settings changed, it waited under another promise. */
	waited_ns = (s64)settled_for_ns > 0 ? min_of(waited_ns, settled_for_ns) : 0;
	if (waited_ns > vm->counters.longest_ready_ns)
		vm->counters.longest_ready_ns = waited_ns;
}

/* It runs, or has gone: its wait is over. */
BPF_GLOBAL int waiting_end(THE_DROVER, THE_THREAD, u64 now_ns)
{
	struct vm *vm = vm_at(d, t->slot);
	u64 waited_ns;

	waiting_leave(d, t);
	if (!t->ready_since_ns)
		return 0;
	waited_ns = now_ns - t->ready_since_ns;
	t->ready_since_ns = 0;
	ASSERT(vm->nr_waiting);
	__sync_fetch_and_sub(&vm->nr_waiting, 1);
	if (t->kind == THREAD_VCPU) {
		ASSERT(vm->vcpus_waiting);
		together_tally(vm, now_ns);
		__sync_fetch_and_sub(&vm->vcpus_waiting, 1);
		waiting_vcpu_end(d, vm, t);
		waited_ns -= waiting_costopped_ns(d, vm, t, now_ns);
	}
	if ((s64)waited_ns >= 0)
		waiting_count(d, vm, t, waited_ns, now_ns);
	return 0;
}

#endif

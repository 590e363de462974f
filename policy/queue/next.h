/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which of the VMs that wait in a domain is next for a pCPU.
 *
 * Idea. The root of a tournament is the answer, mostly. It is not where that VM may not run on the
 * pCPU that asks (affinity.h), or was tried just now and could not be taken: its thread is on its
 * way into the queue or out of it, or the plan has left it out (plan.h). Then all
 * VMs are looked at, once, for the first that fits and comes after the one that was tried. Nothing
 * is remembered of VMs that were passed over: for all others the VM stands where it stood.
 *
 * Worked example. VM 3 (5 ms), VM 4 (6 ms) and VM 7 (9 ms) wait. pCPU 2 tries VM 3, whose only
 * thread is just being queued: it asks for the VM after 5 ms and gets VM 4. VM 3 is the first
 * again for pCPU 1, which asks at the same moment.
 *
 * Limitations. A look at all is some microseconds with 1000 VMs.
 */
#ifndef DROVER_NEXT_H
#define DROVER_NEXT_H

#include "guarantee/deadline.h"

/* It is no pCPU that asks: any VM will do. */
#define NEXT_FOR_ANY DROVER_MAX_PCPUS

/* Has the VM been left out of plans for as long as any VM is? */
static __always_inline bool next_held_too_long(struct drover *d, struct vm *vm, u64 now_ns)
{
	return vm->plan.held_since_ns &&
	       (s64)(now_ns - vm->plan.held_since_ns) >= (s64)d->params.hold_max_ns;
}

/* Has the plan of this round left the VM out (plan.h)? In skew mode single vCPUs are stopped. */
static __always_inline bool next_is_left_out(struct drover *d, u32 pcpu, u32 slot)
{
	struct vm *vm = vm_at(d, slot);

	return vm->plan.held_since_ns && vm->plan.round == d->round &&
	       vm->cosched_mode != COSCHED_SKEW &&
	       !next_held_too_long(d, vm, pcpu_at(d, pcpu)->asked_ns);
}

/* Is the domain in the partition of the pCPU that asks? */
static __always_inline bool next_is_near(struct drover *d, u32 pcpu, u32 domain)
{
	return pcpu == NEXT_FOR_ANY || partition_shares(d, domain, pcpu_at(d, pcpu)->domain);
}

static __always_inline bool next_fits(struct drover *d, u32 pcpu, u32 domain, struct runqueue *rq,
				      u32 slot, u32 asks)
{
	if (asks & ONLY_RESERVED && !vm_at(d, slot)->reserve_inverse)
		return false;
	return pcpu == NEXT_FOR_ANY || (affinity_fits(d, entity_rq_of(rq, slot), domain, pcpu) &&
					!next_is_left_out(d, pcpu, slot));
}

/* The first that fits and comes after that key. */
BPF_GLOBAL u64 next_look_at_all(THE_DROVER, u32 pcpu, u32 domain, u64 after, u32 asks)
{
	struct runqueue *rq = ground_runqueue(d, domain);
	u32 nr_slots = d->slots_in_use;
	u64 best = TOURNAMENT_NONE;
	u32 slot;

	if (!rq)
		return best;
	for_each_index(slot, 0, nr_slots) {
		u64 key = tournament_leaf(tournament_in(rq, asks), slot);

		if (tournament_before(key, best) &&
		    (after == TOURNAMENT_NONE || tournament_before(after, key)) &&
		    next_fits(d, pcpu, domain, rq, slot, asks))
			best = key;
	}
	return best;
}

/* The same, from the first on with TOURNAMENT_NONE for `after`. */
BPF_GLOBAL u64 next_after(THE_DROVER, u32 pcpu, u32 domain, u64 after, u32 asks)
{
	struct runqueue *rq = ground_runqueue(d, domain);
	u64 root = rq ? tournament_best(d, tournament_in(rq, asks)) : TOURNAMENT_NONE;

	if (root == TOURNAMENT_NONE)
		return root;
	if (after == TOURNAMENT_NONE && next_fits(d, pcpu, domain, rq, tournament_slot(root), asks))
		return root;
	return next_look_at_all(d, pcpu, domain, after, asks);
}

/* Is that, of a VM's deadline, not later than now? */
static __always_inline bool next_has_come(u64 key, u64 now_ns)
{
	return !tournament_before(tournament_key(now_ns, DROVER_MAX_VMS - 1), key);
}

/* The VM with that key has moved on since its leaf was written: put that right. False: it has not.
 */
BPF_GLOBAL bool next_put_right(THE_DROVER, u32 domain, u64 key, u32 asks, u64 now_ns)
{
	u32 slot = tournament_slot(key);
	u64 fresh;

	if (key == TOURNAMENT_NONE || (asks & BY_DEADLINE && !next_has_come(key, now_ns)))
		return false;
	fresh = asks & BY_DEADLINE ? deadline_key(d, domain, slot, now_ns) :
				     share_key_now(d, domain, slot, now_ns);
	if (!tournament_before(key, fresh))
		return false;
	tournament_settle(d, domain, slot | (asks & BY_DEADLINE), key, fresh);
	return true;
}

/* The VM with the earliest deadline, on whatever pCPU it may run, or NONE: none has come. */
static __always_inline u64 next_due(struct drover *d, u32 domain, u64 now_ns)
{
	struct runqueue *rq = ground_runqueue(d, domain);
	u64 key = rq ? tournament_best(d, &rq->by_deadline) : TOURNAMENT_NONE;

	return next_has_come(key, now_ns) ? key : TOURNAMENT_NONE;
}

/* How long until the first deadline in that domain comes; so long at most, also where one has come:
 * a VM that may not run on the pCPU that asks shortens no slice. */
BPF_GLOBAL u64 next_deadline_within_ns(THE_DROVER, u32 domain, u64 most_ns)
{
	struct runqueue *rq = ground_runqueue(d, domain);
	u64 key = rq ? tournament_best(d, &rq->by_deadline) : TOURNAMENT_NONE;
	u64 due_ns = key >> DROVER_SLOT_BITS << TOURNAMENT_TIME_SHIFT;
	s64 left_ns = (s64)(due_ns - ground_now_ns(d));

	return key == TOURNAMENT_NONE || left_ns <= 0 ? most_ns : min_of((u64)left_ns, most_ns);
}

/* The same when leaves of deadlines that lag have been corrected. */
BPF_GLOBAL u64 next_due_corrected(THE_DROVER, u32 domain, u64 now_ns)
{
	u32 try;

	for_each_index(try, 0, 8) {
		if (!next_put_right(d, domain, next_due(d, domain, now_ns), BY_DEADLINE, now_ns))
			break;
	}
	return next_due(d, domain, now_ns);
}

/* next_after when leaves that lag have been corrected. */
BPF_GLOBAL u64 next_after_corrected(THE_DROVER, u32 pcpu, u32 domain, u64 after, u32 asks)
{
	u64 now_ns = ground_now_ns(d);
	u64 key = TOURNAMENT_NONE;
	u32 try;

	for_each_index(try, 0, 8) {
		key = next_after(d, pcpu, domain, after, asks);
		if (!next_put_right(d, domain, key, asks, now_ns))
			break;
	}
	return key;
}

/*
 * The key of the next VM of that domain for that pCPU, after the key `after`: the least served, or
 * with BY_DEADLINE the VM that is due for longest. NONE: there is none. On the way leaves that
 * lag behind their VM are corrected. A few tries suffice: only VMs that ran, or ceased to wait,
 * since they were last looked at can lag. Most often none does, or no deadline has come: that is
 * seen without a loop, which costs more to begin than all the rest.
 */
BPF_GLOBAL u64 next_vm(THE_DROVER, u32 pcpu, u32 domain, u64 after, u32 asks)
{
	u64 now_ns = ground_now_ns(d);
	u64 key;

	if (!next_is_near(d, pcpu, domain))
		return TOURNAMENT_NONE;
	if (asks & BY_DEADLINE && (next_due(d, domain, now_ns) == TOURNAMENT_NONE ||
				   next_due_corrected(d, domain, now_ns) == TOURNAMENT_NONE))
		return TOURNAMENT_NONE;
	key = next_after(d, pcpu, domain, after, asks);
	if (next_put_right(d, domain, key, asks, now_ns))
		key = next_after_corrected(d, pcpu, domain, after, asks);
	return asks & BY_DEADLINE && !next_has_come(key, now_ns) ? TOURNAMENT_NONE : key;
}

/* The least served VM of that domain, on whatever pCPU it may run. */
static __always_inline u64 next_of_all(struct drover *d, u32 domain)
{
	return next_vm(d, NEXT_FOR_ANY, domain, TOURNAMENT_NONE, 0);
}

#endif

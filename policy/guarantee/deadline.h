/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Deadlines: which thread must run by when, whatever its VM's shares.
 *
 * Idea. Two things make a VM's threads urgent: its reservation is due (reserve.h), or one of them
 * has waited for as long as a thread may (wait_bound.h). Both are moments in real time, so each
 * domain has a second tournament, in which a waiting VM stands at the earlier of the two. A pCPU
 * that asks for work reads its root first. Mostly no deadline has come, and shares decide.
 * Otherwise the VM with the earliest deadline is served.
 *
 * A VM's deadline mostly moves later: it is served elsewhere, the thread that was due first is
 * taken by shares, or none of its threads waits any more. Its leaf then still has the earlier time.
 * It is corrected when it is at the root and that time has come, so that threads can come and go
 * without a write here. When a deadline moves earlier (a thread comes that kept its own, a
 * reservation grows) the leaf is written at once.
 *
 * Worked example. It is 5,000 ms. VM 3 has 100 % reserved and its tag is at 4,998; VM 4 waits since
 * 4,100, its deadline is 5,100; VM 5's, which has waited since 3,999, is 4,999. The pCPU takes
 * VM 3. 8 ms later VM 3's tag is at 5,006, its leaf still says 4,998: it is put right, and VM 5 has
 * a turn.
 *
 * Limitations. Nothing happens at the moment of a deadline: it is seen when a pCPU next asks, a
 * slice later at worst. A thread that is due and may not run on the pCPU that asks costs that one a
 * search.
 */
#ifndef DROVER_DEADLINE_H
#define DROVER_DEADLINE_H

#include "guarantee/reserve.h"
#include "guarantee/wait_bound.h"

/* Where the VM stands by its deadline among those that wait there; nowhere while it may not run. */
static __always_inline u64 deadline_key(struct drover *d, u32 domain, u32 slot, u64 now_ns)
{
	struct runqueue *rq = ground_runqueue(d, domain);
	struct vm *vm = vm_at(d, slot);
	u64 due_ns;

	if (!rq || vm->at_limit || !entity_rq_of(rq, slot)->nr_queued)
		return TOURNAMENT_NONE;
	due_ns = wait_bound_due_ns(d, entity_rq_of(rq, slot));
	if (vm->reserve_inverse)
		due_ns = share_earlier(due_ns, reserve_due_ns(d, vm, now_ns));
	return tournament_key(due_ns, slot);
}

/* The deadline of the VM in that domain may have moved back. */
BPF_GLOBAL int deadline_settle(THE_DROVER, u32 domain, u32 slot)
{
	u64 key = deadline_key(d, domain, slot, ground_now_ns(d));
	struct runqueue *rq = ground_runqueue(d, domain);

	if (rq && tournament_before(key, tournament_leaf(&rq->by_deadline, slot)))
		tournament_settle(d, domain, slot | BY_DEADLINE, TOURNAMENT_NONE, key);
	return 0;
}

/* Promise the VM that much from now on; 0: nothing. Its leaves stand where it waits. */
BPF_GLOBAL int deadline_promise(THE_DROVER, u32 slot, u32 mcpu)
{
	struct vm *vm = vm_at(d, slot);
	u64 before = vm->reserve_inverse;
	u32 i;

	reserve_set(d, vm, mcpu);
	if (vm->reserve_inverse == before)
		return 0;
	for_each_index(i, 0, d->params.nr_domains)
		deadline_settle(d, i, slot);
	return 0;
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Picking: what a pCPU runs next.
 *
 * Idea. In this order:
 *
 *  1. who has a deadline: a thread that has waited for as long as anybody may; a VM that has called
 *     this pCPU (cosched_call.h); a VM that is due by its reservation (pick_due.h);
 *  2. the VM to which a round gave the pCPU (pick_round.h);
 *  3. the least served, of those that wait here, the one that runs, and, if that is far behind, one
 *     of another domain (pick_shares.h);
 *  4. anybody, from anywhere.
 *
 * Where another policy than `share` chooses (partition/), it does so in place of 2 and 3.
 *
 * Worked example. VM 3 runs, at 20 ms; VM 4 waits at 25 ms. VM 3 goes on. At the next tick VM 5 has
 * waited for a second, whatever its shares: it has a turn. Then VM 3 is at 24 ms, and is taken
 * anew.
 *
 * Limitations. It asks only when a slice ends, somebody wakes, or a timer goes off.
 */
#ifndef DROVER_PICK_H
#define DROVER_PICK_H

#include "pick/pick_due.h"
#include "pick/pick_round.h"
#include "pick/pick_shares.h"

/* The VM goes on there, but its thread gave way: take the sibling named, or the one that has run
 * least. */
static __always_inline bool pick_yielded(struct drover *d, u32 pcpu, u32 slot)
{
	u32 home = pcpu_at(d, pcpu)->domain;

	return yield_take(d, pcpu, slot) ||
	       (!vm_at(d, slot)->may_idle_wait && pick_waits_in(d, pcpu, home, slot) &&
		pick_from_vm(d, pcpu, home, slot));
}

/* A vCPU of the VM that has called the pCPU. */
BPF_GLOBAL bool pick_called(THE_DROVER, u32 pcpu)
{
	struct order *order = &pcpu_at(d, pcpu)->order;

	if (order->why != ORDER_CALLED)
		return false;
	order->why = ORDER_NONE;
	return pick_wherever(d, pcpu, order->who);
}

/*
 * Where the policy is not `share`: the first of the domain, unless the policy has who runs go on.
 */
BPF_GLOBAL u32 pick_by_policy(THE_DROVER, u32 pcpu, u32 running)
{
	u32 home = pcpu_at(d, pcpu)->domain;
	u64 key = next_vm(d, pcpu, home, TOURNAMENT_NOBODY, 0);

	if (running < DROVER_MAX_VMS && key != TOURNAMENT_NOBODY &&
	    hook_gain(d, pcpu, tournament_slot(key), running) < 0)
		return PICKED_RUNNING;
	if (pick_first(d, pcpu, home, TOURNAMENT_NOBODY))
		return PICKED_WAITING;
	return running < DROVER_MAX_VMS ? PICKED_RUNNING : PICKED_NONE;
}

/* The VM of the round, or the least served. */
static __always_inline u32 pick_by_virtual_time(struct drover *d, u32 pcpu, u32 slot,
						u64 vruntime_ns)
{
	u32 picked = PICKED_NONE;

	if (d->nr_coscheduled)
		picked = pick_by_round(d, pcpu, slot, vruntime_ns);
	return picked == PICKED_NONE ? pick_by_shares(d, pcpu, slot, vruntime_ns) : picked;
}

/*
 * Choose for that pCPU. `slot` is the VM of the thread that would go on there and
 * `vruntime_ns` that thread's, charged up to now; DROVER_MAX_VMS when there is none.
 * Returns true when the pCPU shall go on with it.
 */
static __always_inline bool pick_next(struct drover *d, u32 pcpu, u32 slot, u64 vruntime_ns)
{
	bool called = pcpu_at(d, pcpu)->order.why == ORDER_CALLED;
	u32 picked;

	pick_next_glance(pcpu_at(d, pcpu));
	picked = pick_by_deadline(d, pcpu, slot, called);
	if (picked == PICKED_NONE && pick_called(d, pcpu))
		return false;
	if (picked == PICKED_NONE && called)
		picked = pick_by_deadline(d, pcpu, slot, false);
	if (picked == PICKED_NONE && hook_is_share(d, pcpu_at(d, pcpu)->domain))
		picked = pick_by_virtual_time(d, pcpu, slot, vruntime_ns);
	else if (picked == PICKED_NONE)
		picked = pick_by_policy(d, pcpu, slot);
	if (picked == PICKED_NONE)
		return !pick_anywhere(d, pcpu);
	return picked == PICKED_RUNNING;
}

#endif

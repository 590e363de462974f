/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Picking: what a pCPU runs next.
 *
 * Idea. In this order:
 *
 *  1. by deadline: a thread that has waited for as long as a thread may; a VM that is due by
 *     its reservation (pick_due.h);
 *  2. the VM to which the pCPU was given in this round (pick_plan.h);
 *  3. the least served, of those that wait here, the one that runs, and, if that is far behind, one
 *     of another domain (pick_shares.h);
 *  4. any, from anywhere.
 *
 * Where another policy than `share` chooses (partition/), it does so in place of 2 and 3.
 *
 * Worked example. VM 3 runs, at 20 ms; VM 4 waits at 25 ms. VM 3 goes on. At the next tick VM 5 has
 * waited for a second, whatever its shares: it has a turn. Then VM 3 is at 24 ms, and is taken
 * anew.
 *
 * Limitations. It asks only when a slice ends, a thread wakes, or a timer goes off.
 */
#ifndef DROVER_PICK_H
#define DROVER_PICK_H

#include "pick/pick_due.h"
#include "pick/pick_plan.h"
#include "pick/pick_shares.h"

/* The VM goes on there, but its thread gave way: take the sibling named, or the one that has run
 * least. */
static __always_inline bool pick_yielded(struct drover *d, u32 pcpu, u32 slot)
{
	u32 home = pcpu_at(d, pcpu)->domain;

	return yield_take(d, pcpu, slot) ||
	       (!vm_may_wait(vm_at(d, slot)) && pick_waits_in(d, pcpu, home, slot) &&
		pick_from_vm(d, pcpu, home, slot));
}

/*
 * Where the policy is not `share`: the first of the domain, unless the policy has the running VM go
 * on.
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

/* The VM of the plan, or the least served. */
static __always_inline u32 pick_by_virtual_time(struct drover *d, u32 pcpu, u32 slot,
						u64 vruntime_ns)
{
	u32 picked = PICKED_NONE;

	if (d->nr_coscheduled)
		picked = pick_by_plan(d, pcpu, slot, vruntime_ns);
	return picked == PICKED_NONE ? pick_by_shares(d, pcpu, slot, vruntime_ns) : picked;
}

/* Which is next? `slot` is the VM of the thread that would go on, `vruntime_ns` that thread's. */
static __always_inline u32 pick_whom(struct drover *d, u32 pcpu, u32 slot, u64 vruntime_ns)
{
	u32 picked = pick_by_deadline(d, pcpu, slot, false);

	if (picked == PICKED_RUNNING)
		return pick_go_on(d, pcpu, slot, vruntime_ns);
	if (picked == PICKED_NONE && hook_is_share(d, pcpu_at(d, pcpu)->domain))
		picked = pick_by_virtual_time(d, pcpu, slot, vruntime_ns);
	else if (picked == PICKED_NONE)
		picked = pick_by_policy(d, pcpu, slot);
	if (picked == PICKED_NONE && pick_anywhere(d, pcpu))
		picked = PICKED_WAITING;
	return picked == PICKED_NONE && slot < DROVER_MAX_VMS ? PICKED_RUNNING : picked;
}

/*
 * Choose for that pCPU. `slot` is the VM of the thread that would go on there and
 * `vruntime_ns` that thread's, charged up to now; DROVER_MAX_VMS when there is none.
 */
static __always_inline u32 pick_next(struct drover *d, u32 pcpu, u32 slot, u64 vruntime_ns)
{
	u32 picked;

	pick_next_glance(pcpu_at(d, pcpu));
	picked = pick_whom(d, pcpu, slot, vruntime_ns);
	if (picked != PICKED_RUNNING || !d->nr_coscheduled ||
	    plan_admits(d, pcpu, pcpu_at(d, pcpu)->domain, slot, 1))
		return picked;
	/* Its vCPUs must run together, and cannot: another VM. */
	return pick_whom(d, pcpu, DROVER_MAX_VMS, vruntime_ns);
}

#endif

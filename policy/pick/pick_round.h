/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Picking by the round: the VM that is played on several pCPUs together goes on (round.h).
 *
 * Idea. A round gives pCPUs to a VM, and each asks for itself, at another moment. What was
 * given stays given: the round's VM goes on, or is begun here, unless somebody who waits here
 * has received less by all that the VM gets in a round, which is no matter of moments.
 *
 * Worked example. Slices of 8 ms, a VM of two vCPUs and 1000 shares. A kworker has preempted one
 * of them in mid-round; the other runs, and the VM is at 104 ms. It counts as 104 - 2 * 8 =
 * 88 ms: the pCPU is not taken from it by one that waits at 101 ms, but by one at 87 ms.
 *
 * A VM that slept, wakes in mid-round, and is owed time is not kept waiting by the round: it runs,
 * or goes on, before the round's VM, as if there were none. So does one under a limit, whose pauses
 * are in step with no round.
 *
 * Limitations. A VM that wakes often takes pCPUs out of others' rounds.
 */
#ifndef DROVER_PICK_ROUND_H
#define DROVER_PICK_ROUND_H

#include "pick/pick_vm.h"

/* Is the VM one that waits for nobody's round, and owed more than that? */
static __always_inline bool pick_round_exempt(struct drover *d, u32 slot, u64 key)
{
	struct vm *vm = vm_at(d, slot);

	return slot < DROVER_MAX_VMS &&
	       (round_is_apart(vm) || (vm->woke_round == d->round && !vm->coscheduled)) &&
	       (s64)(tournament_key(vm->vtime_ns, slot) - key) < 0;
}

/* Is the VM that has run there behind that virtual time by all it gets in a round? */
static __always_inline bool pick_is_behind(struct drover *d, u32 pcpu, u32 running, u64 vtime_ns)
{
	struct vm *vm = vm_at(d, running);
	u64 now_ns = share_vtime_now(vm, pcpu_at(d, pcpu)->asked_ns);
	u64 round_ns = share_weigh(vm, d->params.slice_ns * share_nr_running(vm));

	return running < DROVER_MAX_VMS && (s64)(vtime_ns - now_ns) > (s64)round_ns;
}

/*
 * Must the VM of the round give way to who waits here, or to the `running` VM? Other pCPUs decided
 * without these, so only to one that has received less by all that the VM gets in a round, or that
 * waits for no round. To the running VM only if it lacks a round of its own: VMs that take turns
 * are never quite level.
 */
BPF_GLOBAL bool pick_gives_way(THE_DROVER, u32 pcpu, u32 stay, u32 running)
{
	u32 home = pcpu_at(d, pcpu)->domain;
	struct vm *vm = vm_at(d, stay);
	u64 round_ns = share_weigh(vm, d->params.slice_ns * (share_nr_running(vm) + 1));
	u64 now_ns = share_vtime_now(vm, pcpu_at(d, pcpu)->asked_ns);
	u64 stays = tournament_key(now_ns, stay);
	u64 waiting = next_vm(d, pcpu, home, TOURNAMENT_NOBODY, 0);

	/* Its own leaf may be behind; that is not somebody else. */
	if (tournament_slot(waiting) == stay)
		waiting = TOURNAMENT_NOBODY;
	if ((waiting != TOURNAMENT_NOBODY &&
	     pick_round_exempt(d, tournament_slot(waiting), stays)) ||
	    (running != stay && pick_round_exempt(d, running, stays)))
		return true;
	return tournament_before(waiting, tournament_key(now_ns - round_ns, stay)) ||
	       (running != stay && pick_is_behind(d, pcpu, running, now_ns - round_ns));
}

/* The round's VM, if the round has given the pCPU to one. */
BPF_GLOBAL u32 pick_by_round(THE_DROVER, u32 pcpu, u32 slot, u64 vruntime_ns)
{
	u32 home = pcpu_at(d, pcpu)->domain;
	u32 stay = round_stay(d, pcpu, slot);
	bool goes_on = pcpu_at(d, pcpu)->round == d->round;

	if (stay >= DROVER_MAX_VMS || pick_gives_way(d, pcpu, stay, slot))
		return PICKED_NONE;
	if (stay == slot && ((goes_on && !round_is_crowded(d, vm_at(d, slot))) ||
			     !pick_sibling_is_behind(d, pcpu, slot, vruntime_ns)))
		return pick_go_on(d, pcpu, slot, vruntime_ns);
	if (pick_waits_in(d, pcpu, home, stay) && pick_from_vm(d, pcpu, home, stay))
		return PICKED_WAITING;
	/* One that is wider than a domain may stand elsewhere with more than fit there. */
	if (stay != slot && round_spans(d, vm_at(d, stay)) && vm_at(d, stay)->nr_waiting &&
	    pick_wherever(d, pcpu, stay))
		return PICKED_WAITING;
	return stay == slot ? pick_go_on(d, pcpu, slot, vruntime_ns) : PICKED_NONE;
}

#endif

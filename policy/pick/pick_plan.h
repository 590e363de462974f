/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Picking by the plan: the VM to which the pCPU was given in this round goes on (plan.h).
 *
 * Idea. What was given stays given, but to who would have come first when it was given: by the
 * virtual time that the planned VM had then, not by what it has had since on all its pCPUs.
 *
 * Worked example. Slices of 8 ms, a VM of two vCPUs and 1000 shares, planned at 88 ms. A kworker
 * has preempted one of them in mid-round; the other runs, and the VM is at 104 ms. The pCPU is not
 * taken from it by one that waits at 101 ms, but by one at 87 ms.
 *
 * Limitations. A VM that wakes often takes pCPUs out of others' rounds.
 */
#ifndef DROVER_PICK_PLAN_H
#define DROVER_PICK_PLAN_H

#include "pick/pick_vm.h"

/*
 * Would the VM with that key have come before the one that was given the pCPU? One under a limit,
 * which pauses in step with no round, need only come before it now.
 */
static __always_inline bool pick_outranks(struct drover *d, u32 pcpu, u64 key, u32 given)
{
	struct vm *vm = vm_at(d, given);
	u32 slot = tournament_slot(key);
	u64 vtime_ns = vm_at(d, slot)->capped ? share_vtime_now(vm, pcpu_at(d, pcpu)->asked_ns) :
						vm->planned_vtime_ns;

	return slot != given && tournament_before(key, tournament_key(vtime_ns, given));
}

/* Must that VM give way to who waits there, or to the VM that runs? */
BPF_GLOBAL bool pick_gives_way(THE_DROVER, u32 pcpu, u32 given, u32 running)
{
	u32 home = pcpu_at(d, pcpu)->domain;

	return pick_outranks(d, pcpu, next_vm(d, pcpu, home, TOURNAMENT_NOBODY, 0), given) ||
	       pick_outranks(d, pcpu, pick_running_key(d, pcpu, running), given);
}

/* The VM that has the pCPU, if the plan has given it to one. */
BPF_GLOBAL u32 pick_by_plan(THE_DROVER, u32 pcpu, u32 slot, u64 vruntime_ns)
{
	u32 home = pcpu_at(d, pcpu)->domain;
	u32 given = plan_of(d, pcpu);

	if (given >= DROVER_MAX_VMS || pick_gives_way(d, pcpu, given, slot))
		return PICKED_NONE;
	if (given == slot)
		return pick_go_on(d, pcpu, slot, vruntime_ns);
	if (pick_waits_in(d, pcpu, home, given) && pick_from_vm(d, pcpu, home, given))
		return PICKED_WAITING;
	return vm_at(d, given)->nr_waiting && pick_wherever(d, pcpu, given) ? PICKED_WAITING :
									      PICKED_NONE;
}

#endif

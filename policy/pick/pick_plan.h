/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Picking by the plan: the VM to which the pCPU was given in this round goes on (plan.h).
 *
 * Idea. What was given stays given. Of VMs that waited when it was given only one that came before
 * takes it: by the virtual time that the planned VM had then, not by what it has had since on all
 * its pCPUs. But a round is no reason to have one wait that wants less than its part: a VM that has
 * slept since the round began is compared with the planned one as it is now.
 *
 * Worked example. Slices of 8 ms, a VM of two vCPUs and 1000 shares, planned at 88 ms. A kworker
 * has preempted one of them in mid-round; the other runs, and the VM is at 104 ms. The pCPU is
 * taken from it by a VM that waits at 87 ms, not by one at 101 ms; but by that one, too, if it
 * slept a millisecond ago.
 *
 * Limitations. A VM that wakes often takes pCPUs out of others' rounds.
 */
#ifndef DROVER_PICK_PLAN_H
#define DROVER_PICK_PLAN_H

#include "pick/pick_vm.h"

/* Is the VM not played in rounds itself, or has it slept as a whole since this one began? */
static __always_inline bool pick_is_out_of_step(struct drover *d, struct vm *vm)
{
	return !plan_is_for(vm) ||
	       (s64)(vm->slept_at_ns + d->params.slice_ns - d->round_end_ns) > 0;
}

/*
 * Does the VM with that key come before the one that was given the pCPU? One that waited when the
 * round began must have come before it then; one that is out of step with rounds, now.
 */
static __always_inline bool pick_outranks(struct drover *d, u32 pcpu, u64 key, u32 given)
{
	u32 slot = tournament_slot(key);
	u64 given_key = pick_is_out_of_step(d, vm_at(d, slot)) ?
				pick_running_key(d, pcpu, given) :
				tournament_key(vm_at(d, given)->planned_vtime_ns, given);

	return slot != given && tournament_before(key, given_key);
}

/* Must that VM give way to a VM that waits there, or to the VM that runs? */
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

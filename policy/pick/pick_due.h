/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Picking by deadline: threads that must run by now, before all by shares.
 *
 * Idea. The domain's tournament of deadlines says which VMs are due (deadline.h). The first of them
 * is taken: a thread of it that has waited for as long as a thread may has a turn; a VM that is due
 * by its reservation has a pCPU as by shares. While any VM has a reservation one other domain is
 * asked, too, now this, now that.
 *
 * Worked example. VM 3, 50 % reserved, runs, and its tag is 1 ms ago; VM 4's, which waits, is 3 ms
 * ago. VM 4 is taken. Had VM 4's been 0.5 ms ago, VM 3 would go on.
 *
 * Limitations. A VM that is due and waits in another domain is seen after some C picks, of C
 * domains.
 */
#ifndef DROVER_PICK_DUE_H
#define DROVER_PICK_DUE_H

#include "pick/pick_vm.h"

/*
 * Of that domain take a thread that must run by now: to have a turn, or, if not `turns_only`, of a
 * VM that is due by its reservation, for longer than `before`.
 */
BPF_GLOBAL bool pick_due_in(THE_DROVER, u32 pcpu, u32 domain, bool turns_only, u64 before)
{
	u64 now_ns = pcpu_at(d, pcpu)->asked_ns;
	bool may_turn = wait_bound_may_give(pcpu_at(d, pcpu));
	/* Those that are due for a turn are not to hide the others. */
	u32 asks = may_turn ? BY_DEADLINE : BY_DEADLINE | ONLY_RESERVED;
	u64 after = TOURNAMENT_NOBODY;
	bool found = false;
	u32 try;

	if (next_due(d, domain, now_ns) == TOURNAMENT_NOBODY)
		return false;
	if (!may_turn) {
		wait_bound_ask_then(d, pcpu);
		if (turns_only || !d->nr_reserved)
			return false;
	}
	for_each_index(try, 0, PICK_TRIES) {
		u64 key = next_vm(d, pcpu, domain, after, asks);
		u32 slot = tournament_slot(key);

		if (key == TOURNAMENT_NOBODY)
			break;
		found = deadline_take_turn(d, pcpu, domain, slot) ||
			(!turns_only && tournament_before(key, before) &&
			 reserve_is_due(vm_at(d, slot), now_ns) &&
			 pick_from_domain(d, pcpu, domain, key));
		if (found)
			break;
		after = key;
	}
	return found;
}

/*
 * Pick by deadline, before any VM is picked by shares: a waiting thread, which is taken, or the
 * running VM, which gives way to a VM that is due for longer, and to a sibling. turns_only: not by
 * reservations.
 */
BPF_GLOBAL u32 pick_by_deadline(THE_DROVER, u32 pcpu, u32 running_slot, bool turns_only)
{
	u32 slot = running_slot < DROVER_MAX_VMS ? running_slot : DROVER_HOST_SLOT;
	struct vm *running = vm_at(d, slot);
	u32 home = pcpu_at(d, pcpu)->domain;
	u64 now_ns = pcpu_at(d, pcpu)->asked_ns;
	bool due = !turns_only && reserve_is_due(running, now_ns);
	u64 before = due ? tournament_key(reserve_due_ns(d, running, now_ns), slot) + 1 :
			   TOURNAMENT_NOBODY;
	u32 other = pcpu_at(d, pcpu)->steal_cursor % d->params.nr_domains;

	if (pick_due_in(d, pcpu, home, turns_only, before) ||
	    (other != home && d->nr_reserved && pick_due_in(d, pcpu, other, turns_only, before)))
		return PICKED_WAITING;
	return due ? PICKED_RUNNING : PICKED_NONE;
}

#endif

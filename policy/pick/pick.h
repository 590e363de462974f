/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Picking: what a pCPU runs next.
 *
 * Idea. First comes whoever has a deadline (deadline.h): a thread that has waited for as long as
 * anybody may, a VM that is due by its reservation; and, before the latter, a VM that has called
 * this pCPU. Then the VM to which a round gave the pCPU (pick_round.h). Else the pCPU compares the
 * least served VM of its domain that may run here (next.h) and the thread that runs now, if it
 * would go on. The least virtual time wins. Before that it glances at one other domain,
 * now this, now that, and takes from there when that domain's VM is further behind than a migration
 * is worth. That glance is the whole of load balancing between domains: virtual time is the VM's
 * wherever it runs, so the domain with too much work is the one whose VMs fall behind. A pCPU that
 * finds nobody looks everywhere before it goes idle. VMs that wait at home are dearer (home.h).
 *
 * Worked example. Domain 0 has one VM at 40 ms, domain 1 three VMs at 28 ms. A pCPU
 * of domain 0 glances at domain 1: 28 + steal_gain (8 ms) < 40, so it takes a thread
 * of domain 1, which from then on waits in domain 0.
 *
 * Limitations. With C domains an imbalance is seen after about C picks, some
 * C * 8 ms. It knows distance only as "my domain" and "another".
 */
#ifndef DROVER_PICK_H
#define DROVER_PICK_H

#include "pick/pick_round.h"
#include "place/home.h"
#include "queue/waiting.h"

/* What to ask for after so many VMs were asked in vain. */
static __always_inline u32 pick_asks(struct drover *d, u32 tries)
{
	return d->nr_idle_waiters && tries >= PICK_ASKS_HELD ? NEXT_NOT_HELD : 0;
}

/*
 * Take a thread of that domain which may run here: of the least served VM of those that come before
 * that key. NOBODY: of any.
 */
BPF_GLOBAL bool pick_first(THE_DROVER, u32 pcpu, u32 domain, u64 before)
{
	u64 after = TOURNAMENT_NOBODY;
	bool found = false;
	u32 try;

	for_each_index(try, 0, PICK_TRIES) {
		u64 key = next_vm(d, pcpu, domain, after, pick_asks(d, try));

		if (!tournament_before(key, before))
			break;
		found = !home_keeps(d, pcpu, domain, key, before) &&
			pick_from_domain(d, pcpu, domain, key);
		if (found)
			break;
		after = key;
	}
	return found;
}

/* One of the glanced domain, if its VM is far behind `key`. */
static __always_inline bool pick_from_neighbour(struct drover *d, u32 pcpu, u64 key)
{
	u64 gain = key == TOURNAMENT_NOBODY ? 0 : home_in_keys(d->params.steal_gain_ns);

	return pick_first(d, pcpu, topology_glanced(d, pcpu), key - gain);
}

/* Nothing here: anything, anywhere, that may run here. */
BPF_GLOBAL bool pick_anywhere(THE_DROVER, u32 pcpu)
{
	u32 nr_domains = d->params.nr_domains;
	u32 home = pcpu_at(d, pcpu)->domain;
	bool found = false;
	u32 step;

	for_each_index(step, 1, nr_domains) {
		u32 other = (home + step) % nr_domains;

		found = pick_first(d, pcpu, other, TOURNAMENT_NOBODY);
		if (found)
			break;
	}
	return found;
}

/*
 * Of that domain take who must run by now: to have a turn, or, if not `turns_only`, of a VM that is
 * due by its reservation, for longer than `before`.
 */
BPF_GLOBAL bool pick_due_in(THE_DROVER, u32 pcpu, u32 domain, bool turns_only, u64 before)
{
	u64 now_ns = pcpu_at(d, pcpu)->asked_ns;
	u64 after = TOURNAMENT_NOBODY;
	bool found = false;
	u32 try;

	for_each_index(try, 0, PICK_TRIES) {
		u64 key = next_vm(d, pcpu, domain, after, BY_DEADLINE | pick_asks(d, try));
		u32 slot = tournament_slot(key);

		if (key == TOURNAMENT_NOBODY)
			break;
		found = (!next_is_held(d, pcpu, slot) &&
			 deadline_take_turn(d, pcpu, domain, slot)) ||
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

/*
 * Does the running thread give way to the best that waits? To a sibling always. Where tasks have
 * nice values, or all pCPUs ask at once, only to a sibling that has run less: otherwise the pCPU
 * that asks last would preempt the same thread each time.
 */
static __always_inline bool pick_yields(struct drover *d, u32 pcpu, u64 running_key,
					u64 vruntime_ns, u64 key)
{
	u32 running = tournament_slot(running_key);

	if (tournament_slot(key) == running)
		return (vm_is_process(vm_at(d, running)) && !vm_at(d, running)->coscheduled) ||
		       pick_sibling_is_behind(d, pcpu, running, vruntime_ns);
	return !tournament_before(running_key, key);
}

/* The least served. */
BPF_GLOBAL u32 pick_by_shares(THE_DROVER, u32 pcpu, u32 slot, u64 vruntime_ns)
{
	u32 home = pcpu_at(d, pcpu)->domain;
	u64 running_key = pick_running_key(d, pcpu, slot);
	u64 after = TOURNAMENT_NOBODY;
	u32 try;

	for_each_index(try, 0, PICK_TRIES) {
		u64 key = next_vm(d, pcpu, home, after, pick_asks(d, try));

		if (d->params.nr_domains > 1 && !try &&
		    pick_from_neighbour(d, pcpu,
					tournament_before(key, running_key) ? key : running_key))
			return PICKED_WAITING;
		if (running_key != TOURNAMENT_NOBODY &&
		    (key == TOURNAMENT_NOBODY ||
		     !pick_yields(d, pcpu, running_key, vruntime_ns, key))) {
			share_clock_follow(d, home, vm_at(d, slot)->vtime_ns);
			return pick_go_on(d, pcpu, slot, vruntime_ns);
		}
		if (key == TOURNAMENT_NOBODY)
			break;
		if (pick_from_domain(d, pcpu, home, key))
			return PICKED_WAITING;
		after = key;
	}
	return PICKED_NONE;
}

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

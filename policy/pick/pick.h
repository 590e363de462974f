/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Picking: what a pCPU runs next.
 *
 * Idea. The first of these that finds a thread decides:
 *
 * 1. Deadlines. A thread that has waited for as long as a thread may wait has a turn. A VM that is
 * due by its reservation has a pCPU, the one that is due for longest first. The domain's tournament
 * of deadlines lists both (deadline.h).
 *
 * 2. The plan. The VM to which the pCPU was given in this round has it (plan.h). Another VM that
 * already waited when the round began takes it only if it came before the planned VM then. A VM
 * that has slept since then wants less than its part, and is compared with the planned VM as that
 * is now.
 *
 * 3. Shares. The least virtual time wins: of the VMs that wait in this domain, and of the thread
 * that runs, if it would go on. At each pick the pCPU also looks at one other domain, chosen at
 * random, and takes a thread from there if its VM is behind by more than a migration costs
 * (steal_gain for each hop, topology.h). This is all the load balancing between domains there is:
 * a VM has one virtual time wherever it runs, so in an overloaded domain VMs fall behind. A VM that
 * waits at home must be further behind (home.h).
 *
 * 4. Any thread, from any domain.
 *
 * Where a partition has another policy than `share`, that policy replaces 2 and 3.
 *
 * From the chosen VM the pCPU takes the first thread of its queue in that domain: the one that has
 * run least. A sibling in another domain may have run less, which virtual time does not show. So
 * the pCPU first looks into the VM's queue in the sampled domain, for a sibling that has run less
 * by a slice.
 *
 * Worked examples.
 *
 * VM 3 runs, at 20 ms; VM 4 waits at 25 ms. VM 3 goes on. At the next tick VM 5 has waited for a
 * second, so it has a turn, whatever its shares. Then VM 3 is at 24 ms, and is picked again.
 *
 * VM 3, 50 % reserved, runs, and its tag is 1 ms ago; the tag of VM 4, which waits, is 3 ms ago.
 * VM 4 is picked. Had its tag been 0.5 ms ago, VM 3 would go on.
 *
 * Slices of 8 ms, a VM of two vCPUs and 1000 shares, planned at 88 ms. A kworker has preempted one
 * of them in mid-round; the other runs, and the VM is at 104 ms. A VM that waits at 87 ms takes the
 * pCPU; one at 101 ms does not, unless it slept a millisecond ago.
 *
 * Domain 0 has one VM at 40 ms, domain 1 three VMs at 28 ms. A pCPU of domain 0 samples domain 1:
 * 28 + steal_gain (8 ms) < 40, so it takes a thread from there, which waits in domain 0 from then
 * on.
 *
 * Limitations. A pCPU picks only when a slice ends, a thread wakes, or a timer goes off. With C
 * domains it takes some C picks, C * 8 ms, until an imbalance, a VM that is due elsewhere, or
 * siblings that are apart are seen. A thread changes domains for the gain of one slice, even if its
 * working set is cached in the old one. A VM that wakes often takes pCPUs out of others' rounds.
 */
#ifndef DROVER_PICK_H
#define DROVER_PICK_H

#include "base/order.h"
#include "cosched/plan.h"
#include "place/home.h"
#include "yield/yield.h"

/* So many VMs are asked, one after the other: the threads of some may be in flight. */
#define PICK_TRIES 24
/* A time later than any deadline: all that wait are due by then. */
#define PICK_ANY_NS (1ULL << 40)

enum picked {
	PICKED_NONE,
	PICKED_RUNNING, /* the running thread goes on */
	PICKED_WAITING, /* a waiting thread was taken */
};

/* --- of a VM: which of its threads, from which domain --- */

/* May a thread of the VM that waits in that domain run on that pCPU? */
BPF_GLOBAL bool pick_waits_in(THE_DROVER, u32 pcpu, u32 domain, u32 slot)
{
	struct runqueue *rq = ground_runqueue(d, domain);

	return rq && entity_rq_of(rq, slot)->nr_queued && !vm_at(d, slot)->at_limit &&
	       next_is_near(d, pcpu, domain) &&
	       affinity_fits(d, entity_rq_of(rq, slot), domain, pcpu);
}

/* Does a thread of the VM wait in that domain that may run on that pCPU and has run less than that?
 */
BPF_GLOBAL bool pick_is_behind_in(THE_DROVER, u32 pcpu, u32 domain, u32 slot, u64 vruntime_ns)
{
	u64 order = 0;

	return pick_waits_in(d, pcpu, domain, slot) &&
	       ground_first_order(d, ground_vm_queue(d, slot, domain), pcpu, &order) &&
	       (s64)(order - vruntime_ns) < 0;
}

/* The VM's queue in that domain, or in the sampled domain if a sibling there has run less. */
BPF_GLOBAL u64 pick_queue_of(THE_DROVER, u32 pcpu, u32 domain, u32 slot)
{
	u64 here = ground_vm_queue(d, slot, domain);
	u32 other = topology_sampled(d, pcpu);
	u64 order = 0;

	if (other == domain || !ground_first_order(d, here, pcpu, &order))
		return here;
	return pick_is_behind_in(d, pcpu, other, slot, order - d->params.slice_ns) ?
		       ground_vm_queue(d, slot, other) :
		       here;
}

/* Take a thread of that VM. */
BPF_GLOBAL bool pick_from_vm(THE_DROVER, u32 pcpu, u32 domain, u32 slot)
{
	u64 here = ground_vm_queue(d, slot, domain);
	u64 queue = d->params.nr_domains < 2 ? here : pick_queue_of(d, pcpu, domain, slot);
	struct runqueue *rq = ground_runqueue(d, domain);

	if (!yield_take(d, slot) && !ground_take_first(d, queue)) {
		/* The sibling there may not run here. */
		if (queue == here || !ground_take_first(d, here))
			return false;
	}
	plan_note(d, pcpu, slot);
	if (rq)
		entity_rq_of(rq, slot)->served_ns = pcpu_at(d, pcpu)->asked_ns;
	return true;
}

/* Take a thread of the VM with that key in the domain. */
BPF_GLOBAL bool pick_from_domain(THE_DROVER, u32 pcpu, u32 domain, u64 key)
{
	u32 slot = tournament_slot(key);

	if (d->nr_coscheduled && !plan_admits(d, pcpu, domain, slot, 0))
		return false;
	if (!pick_from_vm(d, pcpu, domain, slot))
		return false;
	/* Taken to another domain, it says nothing of whom those are serving where it waited. */
	if (domain == pcpu_at(d, pcpu)->domain)
		share_clock_follow(d, domain, slot);
	return true;
}

/* A vCPU of that VM, wherever one waits, this domain first. */
BPF_GLOBAL bool pick_wherever(THE_DROVER, u32 pcpu, u32 slot)
{
	u32 home = pcpu_at(d, pcpu)->domain;
	u32 nr_domains = d->params.nr_domains;
	bool found = false;
	u32 step;

	for_each_index(step, 0, nr_domains) {
		u32 other = topology_near(d, home, step);

		found = pick_waits_in(d, pcpu, other, slot) && pick_from_vm(d, pcpu, other, slot);
		if (found)
			break;
	}
	return found;
}

/*
 * Does a sibling wait here that may run here and has run less than the running thread? Where turns
 * are short (plan.h), a waiting sibling is next if it has run the same, or longer by less than a
 * turn.
 */
static __always_inline bool pick_sibling_is_behind(struct drover *d, u32 pcpu, u32 slot,
						   u64 vruntime_ns)
{
	u64 turn_ns = plan_excess(d, vm_at(d, slot)) > 0 ? PLAN_TURN_NS : 0;

	return pick_is_behind_in(d, pcpu, pcpu_at(d, pcpu)->domain, slot, vruntime_ns + turn_ns);
}

/*
 * The running thread's VM goes on: with that thread, unless a sibling has run less. That none
 * comes before the VM does not say that no sibling waits: its leaf counts what its running threads
 * are not charged for yet in full, and on a core of two they are charged in part (core.h).
 */
BPF_GLOBAL u32 pick_go_on(THE_DROVER, u32 pcpu, u32 slot, u64 vruntime_ns)
{
	u32 home = pcpu_at(d, pcpu)->domain;
	u32 other;

	if (!vm_at(d, slot)->nr_waiting)
		return PICKED_RUNNING;
	if (pick_sibling_is_behind(d, pcpu, slot, vruntime_ns) &&
	    pick_from_domain(d, pcpu, home, tournament_key(0, slot)))
		return PICKED_WAITING;
	if (d->params.nr_domains < 2)
		return PICKED_RUNNING;
	other = topology_sampled(d, pcpu);
	return pick_is_behind_in(d, pcpu, other, slot, vruntime_ns - d->params.slice_ns) &&
			       ground_take_first(d, ground_vm_queue(d, slot, other)) ?
		       PICKED_WAITING :
		       PICKED_RUNNING;
}

/* The key there of that VM, had it so much more virtual time. */
static __always_inline u64 pick_key_later(struct drover *d, u32 pcpu, u32 slot, u64 more_ns)
{
	return tournament_key(share_vtime_now(vm_at(d, slot), pcpu_at(d, pcpu)->asked_ns) +
				      share_offset_ns(d, slot, pcpu_at(d, pcpu)->domain) + more_ns,
			      slot);
}

/* The key of the VM that would go on there; NONE: there is none. */
static __always_inline u64 pick_running_key(struct drover *d, u32 pcpu, u32 slot)
{
	return slot < DROVER_MAX_VMS ? pick_key_later(d, pcpu, slot, 0) : TOURNAMENT_NONE;
}

/* --- by deadline --- */

/*
 * So many threads wait there that a search has seen none which may run on that pCPU: take the first
 * that may. More of them may be due.
 */
static __always_inline bool pick_take_hidden(struct drover *d, u32 pcpu, u64 queue,
					     struct entity_rq *entity)
{
	u64 order = 0;

	if (entity->nr_queued <= GROUND_SEARCH_MAX || ground_first_order(d, queue, pcpu, &order) ||
	    !ground_take_first(d, queue))
		return false;
	entity->due_ns = pcpu_at(d, pcpu)->asked_ns;
	return true;
}

/*
 * If the pCPU may give a turn now, take a thread of that VM in that domain whose deadline has come
 * and which may run there. If no thread of the VM was served for W, the one with the earliest
 * deadline is taken, whether that has come or not.
 */
BPF_GLOBAL bool pick_take_turn(THE_DROVER, u32 pcpu, u32 domain, u32 slot)
{
	struct runqueue *rq = ground_runqueue(d, domain);
	u64 now_ns = pcpu_at(d, pcpu)->asked_ns;
	u64 queue = ground_vm_queue(d, slot, domain);
	struct entity_rq *entity;
	bool unserved, taken;
	u64 next_ns;
	s64 late_ns;

	if (!rq || !wait_bound_may_give(pcpu_at(d, pcpu)))
		return false;
	entity = entity_rq_of(rq, slot);
	late_ns = (s64)(now_ns - wait_bound_due_ns(d, entity));
	if (late_ns < 0)
		return false;
	unserved = (s64)(now_ns - entity->served_ns) >= (s64)d->params.wait_bound_ns;
	/* A thread that comes at this very moment may not be known. */
	next_ns = now_ns + d->params.wait_bound_ns;
	taken = ground_take_due(d, queue, now_ns + (unserved ? PICK_ANY_NS : 0), &next_ns);
	entity->due_ns = next_ns;
	if (!taken && !pick_take_hidden(d, pcpu, queue, entity))
		return false;
	if (unserved)
		wait_bound_forgive(d, slot, domain);
	entity->served_ns = now_ns;
	wait_bound_begin_turn(d, pcpu_at(d, pcpu), late_ns);
	return true;
}

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
	u64 after = TOURNAMENT_NONE;
	bool found = false;
	u32 try;

	if (next_due(d, domain, now_ns) == TOURNAMENT_NONE)
		return false;
	if (!may_turn) {
		/* One is due and waits until a turn may be given again: the pCPU asks then. */
		ground_timer(d, TIMER_TURN(pcpu), pcpu_at(d, pcpu)->next_turn_ns, now_ns);
		if (turns_only || !d->nr_reserved)
			return false;
	}
	for_each_index(try, 0, PICK_TRIES) {
		u64 key = next_vm(d, pcpu, domain, after, asks);
		u32 slot = tournament_slot(key);

		if (key == TOURNAMENT_NONE)
			break;
		found = pick_take_turn(d, pcpu, domain, slot) ||
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
			   TOURNAMENT_NONE;
	u32 other = pcpu_at(d, pcpu)->steal_cursor % d->params.nr_domains;

	if (pick_due_in(d, pcpu, home, turns_only, before) ||
	    (other != home && d->nr_reserved && pick_due_in(d, pcpu, other, turns_only, before)))
		return PICKED_WAITING;
	return due ? PICKED_RUNNING : PICKED_NONE;
}

/* --- by the plan --- */

/*
 * Does the VM with that key come before the one that was given the pCPU? One that waited when the
 * round began must have come before it then; one that is not played in rounds, or has slept as a
 * whole since this one began, now.
 */
static __always_inline bool pick_outranks(struct drover *d, u32 pcpu, u64 key, u32 given)
{
	u32 slot = tournament_slot(key);
	struct vm *vm = vm_at(d, slot);
	bool slept = (s64)(vm->slept_at_ns + d->params.slice_ns - d->round_end_ns) > 0;
	u64 given_key = !plan_is_for(vm) || slept ?
				pick_running_key(d, pcpu, given) :
				tournament_key(vm_at(d, given)->plan.vtime_ns, given);

	return slot != given && tournament_before(key, given_key);
}

/* Must that VM give way to a VM that waits there, or to the VM that runs? */
BPF_GLOBAL bool pick_gives_way(THE_DROVER, u32 pcpu, u32 given, u32 running)
{
	u32 home = pcpu_at(d, pcpu)->domain;

	return pick_outranks(d, pcpu, next_vm(d, pcpu, home, TOURNAMENT_NONE, 0), given) ||
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

/* --- by shares --- */

/*
 * Take a thread of that domain which may run here: of the least served VM of those that come before
 * that key. NONE: of any.
 */
BPF_GLOBAL bool pick_first(THE_DROVER, u32 pcpu, u32 domain, u64 before)
{
	u64 after = TOURNAMENT_NONE;
	bool found = false;
	u32 try;

	for_each_index(try, 0, PICK_TRIES) {
		u64 key = next_vm(d, pcpu, domain, after, 0);

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

/* Take a thread from the sampled domain if its VM is behind `key` by what the migration costs. */
static __always_inline bool pick_from_neighbour(struct drover *d, u32 pcpu, u64 key)
{
	u32 other = topology_sampled(d, pcpu);
	u64 gain = key == TOURNAMENT_NONE ? 0 : home_gain_in_keys(d, pcpu, other);

	return pick_first(d, pcpu, other, key - gain);
}

/* Nothing here: anything, anywhere, that may run here. */
BPF_GLOBAL bool pick_anywhere(THE_DROVER, u32 pcpu)
{
	u32 nr_domains = d->params.nr_domains;
	u32 home = pcpu_at(d, pcpu)->domain;
	bool found = false;
	u32 step;

	for_each_index(step, 1, nr_domains) {
		found = pick_first(d, pcpu, topology_near(d, home, step), TOURNAMENT_NONE);
		if (found)
			break;
	}
	return found;
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
	u64 after = TOURNAMENT_NONE;
	u32 try;

	for_each_index(try, 0, PICK_TRIES) {
		u64 key = next_vm(d, pcpu, home, after, 0);

		if (d->params.nr_domains > 1 && !try &&
		    pick_from_neighbour(d, pcpu,
					tournament_before(key, running_key) ? key : running_key))
			return PICKED_WAITING;
		if (running_key != TOURNAMENT_NONE &&
		    (key == TOURNAMENT_NONE ||
		     !pick_yields(d, pcpu, running_key, vruntime_ns, key))) {
			share_clock_follow(d, home, slot);
			return pick_go_on(d, pcpu, slot, vruntime_ns);
		}
		if (key == TOURNAMENT_NONE)
			break;
		if (pick_from_domain(d, pcpu, home, key))
			return PICKED_WAITING;
		after = key;
	}
	return PICKED_NONE;
}

/* --- by all --- */

/* The VM goes on there, but its thread gave way: take the sibling named, or the one that has run
 * least. */
static __always_inline bool pick_yielded(struct drover *d, u32 pcpu, u32 slot)
{
	u32 home = pcpu_at(d, pcpu)->domain;

	return yield_take(d, slot) ||
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
	u64 key = next_vm(d, pcpu, home, TOURNAMENT_NONE, 0);

	if (running < DROVER_MAX_VMS && key != TOURNAMENT_NONE &&
	    hook_gain(d, pcpu, tournament_slot(key), running) < 0)
		return PICKED_RUNNING;
	if (pick_first(d, pcpu, home, TOURNAMENT_NONE))
		return PICKED_WAITING;
	return running < DROVER_MAX_VMS ? PICKED_RUNNING : PICKED_NONE;
}

/* The VM's thread spins: another VM that waits has the pCPU, if it is ahead by less than a slice.
 */
BPF_GLOBAL bool pick_others(THE_DROVER, u32 pcpu, u32 slot)
{
	u64 latest = pick_key_later(d, pcpu, slot, d->params.slice_ns);
	u32 home = pcpu_at(d, pcpu)->domain;
	u64 key = next_vm(d, pcpu, home, TOURNAMENT_NONE, 0);

	if (key != TOURNAMENT_NONE && tournament_slot(key) == slot)
		key = next_vm(d, pcpu, home, key, 0);
	return tournament_before(key, latest) && pick_from_domain(d, pcpu, home, key);
}

/* Which is next? `slot` is the VM of the thread that would go on, `vruntime_ns` that thread's. */
static __always_inline u32 pick_whom(struct drover *d, u32 pcpu, u32 slot, u64 vruntime_ns)
{
	u32 picked = pick_by_deadline(d, pcpu, slot, false);

	if (picked == PICKED_RUNNING)
		return pick_go_on(d, pcpu, slot, vruntime_ns);
	if (picked == PICKED_NONE && !hook_is_share(d, pcpu_at(d, pcpu)->domain)) {
		picked = pick_by_policy(d, pcpu, slot);
	} else if (picked == PICKED_NONE) {
		if (yield_is_to_others(pcpu_at(d, pcpu)) && slot < DROVER_MAX_VMS &&
		    pick_others(d, pcpu, slot))
			return PICKED_WAITING;
		if (d->nr_coscheduled)
			picked = pick_by_plan(d, pcpu, slot, vruntime_ns);
		if (picked == PICKED_NONE)
			picked = pick_by_shares(d, pcpu, slot, vruntime_ns);
	}
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
	struct pcpu *at = pcpu_at(d, pcpu);
	u32 picked;

	/* Pseudo-random, to avoid resonance with the turns of VMs. */
	at->steal_cursor = at->steal_cursor * 1664525 + 1013904223;
	picked = pick_whom(d, pcpu, slot, vruntime_ns);
	if (picked != PICKED_RUNNING || !d->nr_coscheduled ||
	    plan_admits(d, pcpu, at->domain, slot, 1))
		return picked;
	/* Its vCPUs must run together, and cannot: another VM. */
	return pick_whom(d, pcpu, DROVER_MAX_VMS, vruntime_ns);
}

#endif

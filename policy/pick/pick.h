/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Picking: what a pCPU runs next.
 *
 * Idea. The first of these that finds a thread decides:
 *
 * 1. Deadlines. A thread that has waited for as long as a thread may wait has a turn. A VM that is
 * due by its reservation has a pCPU, the one that is due for longest first. The domain's tournament
 * of deadlines lists both (wait_bound.h).
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
 * Which VM of a domain is next the root of a tournament says, mostly. It does not where that VM may
 * not run on the pCPU that asks (affinity.h), or was tried just now and could not be taken: its
 * thread is on its way into the queue or out of it, or the plan has left it out (plan.h). Then all
 * VMs are looked at, once, for the first that fits and comes after the one that was tried. Nothing
 * is remembered of VMs that were passed over: for all others the VM stands where it stood.
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
 * VM 3 (5 ms), VM 4 (6 ms) and VM 7 (9 ms) wait. pCPU 2 tries VM 3, whose only thread is just being
 * queued: it asks for the VM after 5 ms and gets VM 4. VM 3 is the first again for pCPU 1, which
 * asks at the same moment.
 *
 * Limitations. A look at all VMs is some microseconds with 1000. A pCPU picks only when a slice
 * ends, a thread wakes, or a timer goes off. With C domains it takes some C picks, C * 8 ms, until
 * an imbalance, a VM that is due elsewhere, or siblings that are apart are seen. A thread changes
 * domains for the gain of one slice, even if its working set is cached in the old one. A VM that
 * wakes often takes pCPUs out of others' rounds.
 */
#ifndef DROVER_PICK_H
#define DROVER_PICK_H

#include "account/charge.h"
#include "cosched/plan.h"
#include "guarantee/wait_bound.h"
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

/* --- which VM of a domain is next --- */

BPF_GLOBAL bool next_fits(THE_DROVER, u32 pcpu, u32 domain, u32 slot, u32 asks)
{
	struct runqueue *rq = ground_runqueue(d, domain);

	if (asks & ONLY_RESERVED && !vm_at(d, slot)->reserve_inverse)
		return false;
	return rq && affinity_fits(d, entity_rq_of(rq, slot), domain, pcpu) &&
	       !plan_leaves_out(d, pcpu, slot);
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
		    next_fits(d, pcpu, domain, slot, asks))
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
	if (after == TOURNAMENT_NONE && next_fits(d, pcpu, domain, tournament_slot(root), asks))
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
				     hook_key_now(d, domain, slot, now_ns);
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

	if (!partition_shares(d, domain, pcpu_at(d, pcpu)->domain))
		return TOURNAMENT_NONE;
	if (asks & BY_DEADLINE && (next_due(d, domain, now_ns) == TOURNAMENT_NONE ||
				   next_due_corrected(d, domain, now_ns) == TOURNAMENT_NONE))
		return TOURNAMENT_NONE;
	key = next_after(d, pcpu, domain, after, asks);
	if (next_put_right(d, domain, key, asks, now_ns))
		key = next_after_corrected(d, pcpu, domain, after, asks);
	return asks & BY_DEADLINE && !next_has_come(key, now_ns) ? TOURNAMENT_NONE : key;
}

/* --- of a VM: which of its threads, from which domain --- */

/* May a thread of the VM that waits in that domain run on that pCPU? */
BPF_GLOBAL bool pick_waits_in(THE_DROVER, u32 pcpu, u32 domain, u32 slot)
{
	struct runqueue *rq = ground_runqueue(d, domain);

	return rq && entity_rq_of(rq, slot)->nr_queued && !vm_at(d, slot)->at_limit &&
	       partition_shares(d, domain, pcpu_at(d, pcpu)->domain) &&
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

	if (!yield_take(d, pcpu, slot) && !ground_take_first(d, queue)) {
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
 * are not charged for yet in full, and on a core of two they are charged in part (charge.h).
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
	u64 now_ns = pcpu_at(d, pcpu)->asked_ns;

	return tournament_key(share_stands_ns(d, slot, pcpu_at(d, pcpu)->domain, now_ns) + more_ns,
			      slot);
}

/* The key of the VM that would go on there; NONE: there is none. */
static __always_inline u64 pick_running_key(struct drover *d, u32 pcpu, u32 slot)
{
	return slot < DROVER_MAX_VMS ? pick_key_later(d, pcpu, slot, 0) : TOURNAMENT_NONE;
}

/* --- by deadline --- */

/* May the pCPU, which asks, give a turn now? */
static __always_inline bool pick_may_give_turn(const struct pcpu *pcpu)
{
	return (s64)(pcpu->asked_ns - pcpu->next_turn_ns) >= 0;
}

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
 * No thread of the VM was taken in the domain for all of W, and one is now. Bring the VM back to
 * the clock, if it runs elsewhere, and hold the first to its claim.
 */
BPF_GLOBAL int pick_forgive(THE_DROVER, u32 slot, u32 domain)
{
	struct runqueue *rq = ground_runqueue(d, domain);

	if (!rq)
		return 0;
	share_forgive(d, slot, domain);
	tournament_settle(d, domain, slot, TOURNAMENT_NONE, hook_key(d, domain, slot));
	share_hold_first(d, rq, domain);
	return 0;
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

	if (!rq || !pick_may_give_turn(pcpu_at(d, pcpu)))
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
		pick_forgive(d, slot, domain);
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
	bool may_turn = pick_may_give_turn(pcpu_at(d, pcpu));
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

/* The VM that has the pCPU in this round, and may run; DROVER_MAX_VMS: the pCPU may choose. */
static __always_inline u32 pick_planned(struct drover *d, u32 pcpu)
{
	u32 slot = pcpu_at(d, pcpu)->planned;
	struct vm *vm = vm_at(d, slot);

	if (pcpu_at(d, pcpu)->round != d->round || slot >= DROVER_MAX_VMS || !plan_is_for(vm) ||
	    vm->plan.round != d->round || vm->at_limit)
		return DROVER_MAX_VMS;
	return slot;
}

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
	u32 given = pick_planned(d, pcpu);

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
	struct vm *vm = vm_at(d, running);

	if (tournament_slot(key) != running)
		return !tournament_before(running_key, key);
	return (vm->owner_id && !(vm->owner_id & OWNER_CGROUP) && !vm->coscheduled) ||
	       pick_sibling_is_behind(d, pcpu, running, vruntime_ns);
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
	if (picked == PICKED_NONE && !partition_is_share(d, pcpu_at(d, pcpu)->domain)) {
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

/* --- the pCPU asks --- */

/*
 * The pCPU asks: does the task (NULL: none that may go on) have a turn that is not over yet? Then
 * the interrupt was sent before the turn began, and comes when it has. The task
 * goes on for what is left of the turn.
 */
static __always_inline bool pick_turn_goes_on(struct drover *d, struct task_struct *task,
					      struct pcpu *pcpu)
{
	s64 left_ns = (s64)(pcpu->order.until_ns - pcpu->asked_ns);

	if (!order_is_turn(pcpu))
		return false;
	if (!task || left_ns <= WAIT_BOUND_EARLY_NS) {
		order_give(pcpu, ORDER_NONE);
		return false;
	}
	ground_set_slice(d, task, (u64)left_ns);
	return true;
}

/*
 * The pCPU asks what to run. `task` and `t` are what runs there and
 * would go on, or NULL.
 */
static __always_inline void drover_dispatch(struct drover *d, u32 at, struct task_struct *task,
					    struct thread *t)
{
	struct pcpu *pcpu = pcpu_at(d, at);
	bool in_turn;
	bool first;
	bool stopped;
	u32 picked;

	/* The pending wake-up preemption went elsewhere: clear it. */
	if (order_is(pcpu, ORDER_WOKEN) || order_is(pcpu, ORDER_SENT))
		order_give(pcpu, ORDER_NONE);
	if (!t || ground_is_leaving(d, task))
		idle_give_back(d, pcpu);
	pcpu->asked_ns = ground_now_ns(d);
	if (t) {
		charge_and_go_on(d, task, t, at, pcpu->asked_ns);
		share_bound_lag(d, pcpu, t, pcpu->asked_ns);
	}
	/* If preempted it would be picked again here, or wait next to an idle pCPU. */
	if (t && ground_is_leaving(d, task)) {
		/* To leave takes seconds where much memory goes: who may run nowhere else has its
		 * turn. */
		if (pick_by_deadline(d, at, DROVER_MAX_VMS, true) == PICKED_WAITING)
			return;
		ground_set_slice(d, task, d->params.slice_ns);
		return;
	}
	first = d->nr_coscheduled && plan_begin_round(d, at);
	stopped = t &&
		  (vm_at(d, t->slot)->at_limit || pcpu->migrate_to || affinity_strays(d, t, at) ||
		   cosched_must_stop(d, t) || quota_is_spent(d, t, pcpu->asked_ns));
	/* Found just now it has a slice, and would go on if there is no other. */
	if (stopped && d->divided)
		ground_set_slice(d, task, 0);
	in_turn = pick_turn_goes_on(d, t && !stopped ? task : NULL, pcpu);
	picked = in_turn ? PICKED_RUNNING :
			   pick_next(d, at, t && !stopped ? t->slot : DROVER_MAX_VMS,
				     t ? t->vruntime_ns : 0);
	if (order_is(pcpu, ORDER_YIELD) && picked != PICKED_WAITING) {
		if (picked == PICKED_RUNNING && t && pick_yielded(d, at, t->slot))
			picked = PICKED_WAITING;
		else
			order_give(pcpu, ORDER_NONE);
	}
	/* After the choice: the least served VM is the same for all pCPUs that are told to ask. */
	if (first)
		plan_tell(d, at);
	if (picked != PICKED_RUNNING || !t || in_turn)
		return;
	plan_note(d, at, t->slot);
	share_keeps_on(d, t, pcpu->domain, pcpu->asked_ns);
	ground_set_slice(
		d, task,
		quota_slice_ns(d, t, plan_slice_ns(d, vm_at(d, t->slot), at), pcpu->asked_ns));
}

/* Could a waiting thread run there? */
BPF_GLOBAL bool drover_has_work(THE_DROVER, u32 at)
{
	bool work = false;
	u32 i;

	for_each_index(i, 0, d->params.nr_domains) {
		if (work)
			break;
		work = partition_shares(d, i, pcpu_at(d, at)->domain) &&
		       next_after(d, at, i, TOURNAMENT_NONE, 0) != TOURNAMENT_NONE;
	}
	return work;
}

#endif

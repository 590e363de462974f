/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Picking: what a pCPU runs next.
 *
 * Idea. First comes what waits for nobody's share: a thread beyond the wait bound, one that
 * this pCPU was woken for. Then whoever is due by a reservation (reserve.h); then the VM to
 * which a round gave the pCPU (pick_round.h). Else the pCPU compares three candidates: the
 * least served VM of its domain, the first thread of its own queue (pick_confined.h), and the
 * thread that runs now, if it would go on. The least virtual time wins. Before that it
 * glances at one other domain, now this, now that, and takes from there
 * when that domain's VM is further behind than a migration is worth. That glance
 * is the whole of load balancing between domains: virtual time is global, so the
 * domain with too much work is the one whose VMs fall behind. A pCPU that finds nobody looks
 * everywhere before it goes idle.
 *
 * Worked example. Domain 0 has one VM at 40 ms, domain 1 three VMs at 28 ms. A pCPU
 * of domain 0 glances at domain 1: 28 + steal_gain (8 ms) < 40, so it takes a thread
 * of domain 1, which from then on waits in domain 0.
 *
 * What it is bad at. With C domains an imbalance is seen after about C picks, some
 * C * 8 ms. It knows distance only as "my domain" and "another".
 */
#ifndef DROVER_PICK_H
#define DROVER_PICK_H

#include "pick/pick_held.h"
#include "pick/pick_round.h"

/* A domain other than mine whose least served VM is far behind `key`. */
CHECKED_APART bool pick_from_neighbour(THE_DROVER, u32 pcpu, u64 key)
{
	u64 gain = (d->params.steal_gain_ns >> TOURNAMENT_TIME_SHIFT) << DROVER_SLOT_BITS;
	u32 other = pick_glanced(d, pcpu);
	bool found = false;
	u32 try;

	if (d->params.nr_domains < 2)
		return false;
	/* Behind a VM that waits for its siblings stand others. */
	for_each_index(try, 0, PICK_TRIES) {
		u64 theirs = share_least_served_for(d, pcpu, other);

		if (theirs == TOURNAMENT_NOBODY || !tournament_before(theirs + gain, key))
			break;
		found = pick_from_domain(d, pcpu, other, theirs);
		if (found)
			break;
	}
	return found;
}

/* Anybody of that domain; several are asked, because some may be in flight. */
static __always_inline bool pick_from_foreign(struct drover *d, u32 pcpu, u32 other)
{
	bool found = false;
	u32 try;

	refused_forget(d, pcpu);
	for_each_index(try, 0, PICK_TRIES) {
		u64 key = share_least_served_for(d, pcpu, other);

		if (key == TOURNAMENT_NOBODY)
			break;
		found = pick_from_domain(d, pcpu, other, key);
		if (found)
			break;
	}
	return found || (d->nr_choosy && pick_rest_of(d, pcpu, other));
}

/* Nothing here: anything, anywhere, that may run here. */
CHECKED_APART bool pick_anywhere(THE_DROVER, u32 pcpu, u32 home)
{
	u32 nr_domains = d->params.nr_domains;
	u32 nr_pcpus = d->params.nr_pcpus;
	u32 step;

	for_each_index(step, 1, nr_domains) {
		if (pick_from_foreign(d, pcpu, (home + step) % nr_domains))
			return true;
	}
	if (!d->nr_confined_waiting)
		return false;
	for_each_index(step, 1, nr_pcpus) {
		u32 other = (pcpu + step) % nr_pcpus;

		if (pcpu_at(d, other)->nr_pinned &&
		    ground_take_first(d, ground_pcpu_queue(d, other)))
			return true;
	}
	return false;
}

/*
 * A thread whose VM is due by its reservation, of this domain or of the glanced one.
 * `running_key`: the VM that runs here, if that is due itself; it gives way to one
 * that is due for longer, and to a sibling.
 */
CHECKED_APART bool pick_due(THE_DROVER, u32 pcpu, u32 home, u64 running_key)
{
	u32 glance = pcpu_at(d, pcpu)->glance % d->params.nr_domains;
	bool found = false;
	u32 try;

	for_each_index(try, 0, PICK_TRIES) {
		u64 key = reserve_first_due(d, pcpu, home);
		u64 theirs =
			glance == home ? TOURNAMENT_NOBODY : reserve_first_due(d, pcpu, glance);
		bool here = !tournament_before(theirs, key);
		u64 first = here ? key : theirs;
		u32 slot = tournament_slot(first);

		if (first == TOURNAMENT_NOBODY ||
		    (tournament_before(running_key, first) && slot != tournament_slot(running_key)))
			break;
		found = (!d->nr_choosy || cosched_admits(d, pcpu, here ? home : glance, slot, 0)) &&
			ground_take_first(d, ground_vm_queue(d, slot, here ? home : glance));
		if (found) {
			pick_note_served(d, pcpu, here ? home : glance, slot);
			break;
		}
		refused_add(d, pcpu, here ? home : glance, slot);
	}
	/* Who is paid by now may be the least served all the same. */
	refused_forget(d, pcpu);
	return found;
}

/*
 * Whom reservations put before any by shares, if anybody: one that waits and was taken,
 * or the running VM. Turns (wait_bound.h) and the pCPU's own queue come by shares.
 */
CHECKED_APART u32 pick_by_reserve(THE_DROVER, u32 pcpu, u32 running_slot)
{
	struct vm *running = vm_at(d, running_slot);
	u32 home = pcpu_at(d, pcpu)->domain;
	struct domain *domain = ground_domain(d, home);
	u64 first = domain ? tournament_best(d, &domain->by_share) : TOURNAMENT_NOBODY;
	u64 now_ns = pcpu_at(d, pcpu)->asked_ns;
	bool due = reserve_is_due(running, now_ns);

	/* A turn that cannot be taken, its VM being held, keeps nobody waiting. */
	if (first != TOURNAMENT_NOBODY && wait_bound_owes_turn(d, home, tournament_slot(first)) &&
	    !pick_is_held(d, pcpu, tournament_slot(first)))
		return PICKED_NONE;
	if (pick_due(d, pcpu, home,
		     due ? reserve_key(d, running, running_slot, now_ns) : TOURNAMENT_NOBODY))
		return PICKED_WAITING;
	if (due && tournament_before(tournament_key(running->vtime_ns, running_slot),
				     pick_own_key(d, pcpu)))
		return PICKED_RUNNING;
	return PICKED_NONE;
}

/*
 * Does the running thread give way to the best that waits? To a sibling always; where
 * all pCPUs ask at once, only to one that has run less: whoever asked last would else
 * put the same thread out each time.
 */
static __always_inline bool pick_yields(struct drover *d, u32 home, u64 running_key,
					u64 vruntime_ns, u64 own_key, u64 domain_key)
{
	u32 running = tournament_slot(running_key);

	if (own_key != TOURNAMENT_NOBODY && !tournament_before(running_key, own_key))
		return true;
	if (domain_key == TOURNAMENT_NOBODY)
		return false;
	if (tournament_slot(domain_key) == running)
		return !vm_at(d, running)->together ||
		       pick_sibling_is_behind(d, home, running, vruntime_ns);
	return !tournament_before(running_key, domain_key);
}

/* Somebody elsewhere who comes before `key` by enough. */
static __always_inline bool pick_from_elsewhere(struct drover *d, u32 pcpu, u64 key)
{
	return pick_from_neighbour(d, pcpu, key) ||
	       (d->nr_confined_waiting && pick_from_crowd(d, pcpu, key));
}

/* Another pCPU has called this one to a VM whose vCPUs start together (cosched.h). */
CHECKED_APART bool pick_called(THE_DROVER, u32 pcpu)
{
	u32 slot = __sync_lock_test_and_set(&pcpu_at(d, pcpu)->called_slot, 0);

	return slot && pick_wherever(d, pcpu, slot);
}

/* The least served. */
CHECKED_APART u32 pick_by_shares(THE_DROVER, u32 pcpu, u32 slot, u64 vruntime_ns)
{
	u32 home = pcpu_at(d, pcpu)->domain;
	u64 running_key = pick_running_key(d, pcpu, slot);
	bool held = false;
	u32 try;

	for_each_index(try, 0, PICK_TRIES) {
		u64 key = share_least_served_for(d, pcpu, home);
		u64 own_key = pick_own_key(d, pcpu);
		u64 best = pick_earliest(own_key, key);

		if (pick_from_elsewhere(d, pcpu, pick_earliest(best, running_key)))
			return PICKED_WAITING;
		if (running_key != TOURNAMENT_NOBODY &&
		    !pick_yields(d, home, running_key, vruntime_ns, own_key, key)) {
			/* Chosen again, and that often nobody else would move the clock. */
			if (rotate_is_due(d, vm_at(d, slot)))
				share_clock_to(d, vm_at(d, slot)->vtime_ns);
			return pick_go_on(d, pcpu, slot, vruntime_ns);
		}
		if (best == TOURNAMENT_NOBODY)
			break;
		if (best == own_key ? pick_confined(d, pcpu, pcpu) :
				      pick_from_domain(d, pcpu, home, key))
			return PICKED_WAITING;
		held |= vm_at(d, tournament_slot(key))->held_since_ns != 0;
	}
	return held ? PICKED_NONE_BUT_HELD : PICKED_NONE;
}

/* What does not wait for anybody's share. */
CHECKED_APART bool pick_at_once(THE_DROVER, u32 pcpu)
{
	return pick_overdue(d, pcpu) || (d->orphans && pick_orphan(d)) ||
	       (pcpu_at(d, pcpu)->woken_for && pick_woken_for(d, pcpu)) ||
	       (pcpu_at(d, pcpu)->called_slot && pick_called(d, pcpu));
}

/*
 * Choose for that pCPU. `slot` is the VM of the thread that would go on there and
 * `vruntime_ns` that thread's, charged up to now; DROVER_MAX_VMS when there is none.
 * Returns true when the pCPU shall go on with it.
 */
static __always_inline bool pick_next(struct drover *d, u32 pcpu, u32 slot, u64 vruntime_ns)
{
	u32 chooses = __sync_lock_test_and_set(&pcpu_at(d, pcpu)->chooses, 0);
	u32 picked = PICKED_NONE;

	/* On its way offline it still runs what must run there, and takes nothing else. */
	if (!pcpu_at(d, pcpu)->online)
		return !ground_take_first(d, ground_pcpu_queue(d, pcpu));
	if (pick_at_once(d, pcpu))
		return false;
	refused_forget(d, pcpu);
	pick_next_glance(pcpu_at(d, pcpu));
	if (d->nr_reserved)
		picked = pick_by_reserve(d, pcpu, slot < DROVER_MAX_VMS ? slot : DROVER_HOST_SLOT);
	if (picked == PICKED_NONE && d->nr_together && !chooses)
		picked = pick_by_round(d, pcpu, slot, vruntime_ns);
	if (picked == PICKED_NONE)
		picked = pick_by_shares(d, pcpu, slot, vruntime_ns);
	if (picked == PICKED_NONE_BUT_HELD && pick_around_held(d, pcpu, slot))
		return false;
	if (picked == PICKED_NONE || picked == PICKED_NONE_BUT_HELD)
		return !pick_anywhere(d, pcpu, pcpu_at(d, pcpu)->domain);
	return picked == PICKED_RUNNING;
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Picking among confined threads: those that may not run on every pCPU.
 *
 * Idea. They stand in pCPUs' own queues, ordered by the virtual time they had when they
 * came. A pCPU that asks compares the first of its queue with all others by that (pick.h).
 * Threads of a VM confined to three of four pCPUs may stand four here and one there, so
 * a pCPU glances at eight queues of others, too, and takes from one longer than its own. And
 * where all who wait are confined, they move the clock of shares (share.h): once in a
 * slice, to the least that any of them, or of those that run, has reached.
 *
 * Worked example. pCPU 0 is the host's own; VMs 1 and 2 may use 1 to 3. The queue of pCPU 1
 * has two of their threads, those of 2 and 3 one each. pCPU 2 asks, finds the queue of
 * pCPU 1 longer, and takes its first if that comes before all it has itself: the odd one
 * goes round. VMs 1 and 2 have reached 13.0 and 13.3 s, so the clock stands at 13.0, and a
 * VM that comes now begins there, not at 0 with a claim to all that was.
 *
 * What it is bad at. There is one clock: VMs confined to a crowded pCPU are behind those
 * confined to an empty one, and the clock stays with them. A queue is looked at by pCPUs
 * that may not run its first thread: the kernel says so only when that is tried.
 */
#ifndef DROVER_PICK_CONFINED_H
#define DROVER_PICK_CONFINED_H

#include "pick/pick_vm.h"

#define PICK_CROWD_LOOKS 8

/* The key of the first thread in the pCPU's own queue, or NOBODY. */
CHECKED_APART u64 pick_own_key(THE_DROVER, u32 pcpu)
{
	u64 vtime_ns = 0;

	if (!pcpu_at(d, pcpu)->nr_pinned ||
	    !ground_first_order(d, ground_pcpu_queue(d, pcpu), &vtime_ns))
		return TOURNAMENT_NOBODY;
	return tournament_key(vtime_ns, 0);
}

/* A thread of the pCPU's own queue that has waited beyond the bound. */
CHECKED_APART bool pick_overdue(THE_DROVER, u32 pcpu)
{
	struct pcpu *here = pcpu_at(d, pcpu);
	u32 nr_pinned = here->nr_pinned;

	if (!nr_pinned || !wait_bound_serve(d, &here->overdue_check_ns, ground_pcpu_queue(d, pcpu),
					    here->asked_ns))
		return false;
	here->overdue_check_ns = here->asked_ns + wait_bound_period_ns(d, nr_pinned, 1, nr_pinned);
	here->begins_turn = 1;
	return true;
}

/*
 * A pCPU that rested was woken for somebody, and takes somebody else: let another that rests
 * look.
 */
CHECKED_APART int pick_pass_on(THE_DROVER, u32 pcpu)
{
	u32 nr_pcpus = d->params.nr_pcpus ?: 1;
	u32 step;

	for_each_index(step, 1, nr_pcpus) {
		u32 other = (pcpu + step) % nr_pcpus;

		if (!pcpu_at(d, other)->online || !pcpu_at(d, other)->rests)
			continue;
		ground_kick(d, bounded(other, DROVER_MAX_PCPUS));
		break;
	}
	return 0;
}

/*
 * The virtual time that all have reached who wait in pCPUs' own queues, or run. One that is just
 * being switched is in neither: what the look before found counts, too.
 */
CHECKED_APART int pick_follow_confined(THE_DROVER)
{
	s64 nobody_ns = (s64)(~0ULL >> 1);
	u64 clock_ns = d->vtime_now_ns;
	s64 before_ns = (s64)(d->confined_reached_ns - clock_ns);
	s64 ahead_ns = nobody_ns;
	u32 i;

	for_each_index(i, 0, d->params.nr_pcpus) {
		u32 slot = pcpu_at(d, i)->running_slot;
		u64 first_ns;

		if (pcpu_at(d, i)->nr_pinned &&
		    ground_first_order(d, ground_pcpu_queue(d, i), &first_ns))
			ahead_ns = least_signed(ahead_ns, (s64)(first_ns - clock_ns));
		if (slot < DROVER_MAX_VMS && slot != DROVER_HOST_SLOT)
			ahead_ns =
				least_signed(ahead_ns, (s64)(vm_at(d, slot)->vtime_ns - clock_ns));
	}
	if (ahead_ns == nobody_ns)
		return 0;
	d->confined_reached_ns = clock_ns + (u64)ahead_ns;
	share_clock_follow(d, clock_ns + (u64)least_signed(before_ns, ahead_ns));
	return 0;
}

/*
 * A confined thread was taken. Where all who wait are confined, nobody else moves the clock; once
 * in a slice is enough.
 */
static __always_inline void pick_move_clock(struct drover *d, u64 now_ns)
{
	u64 moved_ns = d->confined_moved_ns;

	if (now_ns - moved_ns >= d->params.slice_ns &&
	    __sync_val_compare_and_swap(&d->confined_moved_ns, moved_ns, now_ns) == moved_ns)
		pick_follow_confined(d);
}

/*
 * The first of the own queue of `from`. Where others wait, of any domain, the pCPU may have been
 * woken for one of these.
 */
static __always_inline bool pick_confined(struct drover *d, u32 pcpu, u32 from)
{
	if (!ground_take_first(d, ground_pcpu_queue(d, from)))
		return false;
	pick_move_clock(d, pcpu_at(d, pcpu)->asked_ns);
	if (pcpu_at(d, pcpu)->rests && d->nr_waiting > d->nr_confined_waiting)
		pick_pass_on(d, pcpu);
	return true;
}

/*
 * From the own queue of another pCPU, if it is longer than this one's and its first
 * thread comes before `key`. Where counts do not divide, the odd one so goes round.
 */
CHECKED_APART bool pick_from_crowd(THE_DROVER, u32 pcpu, u64 key)
{
	u32 mine = pcpu_at(d, pcpu)->nr_pinned;
	u32 nr_pcpus = d->params.nr_pcpus ?: 1;
	u32 from = pcpu_at(d, pcpu)->glance >> 12;
	bool found = false;
	u32 step;

	for_each_index(step, 0, PICK_CROWD_LOOKS) {
		u32 other = (from + step) % nr_pcpus;

		if (other == pcpu || pcpu_at(d, other)->nr_pinned <= mine ||
		    !tournament_before(pick_own_key(d, other), key))
			continue;
		found = pick_confined(d, pcpu, other);
		if (found)
			break;
	}
	return found;
}

/*
 * A pCPU that rested takes the confined thread that it was woken for, whoever waits in its
 * domain: the pCPU that was woken for that one, which may run anywhere, may not be one where
 * the confined thread may run.
 */
CHECKED_APART bool pick_woken_for(THE_DROVER, u32 pcpu)
{
	u32 queue = __sync_lock_test_and_set(&pcpu_at(d, pcpu)->woken_for, 0);

	return queue && pcpu_at(d, pcpu)->rests && pick_confined(d, pcpu, queue - 1);
}

/* Threads left in the queues of pCPUs that went offline: whoever can, takes them. */
CHECKED_APART bool pick_orphan(THE_DROVER)
{
	bool taken = false;
	bool left = false;
	u32 i;

	/* Before looking: a pCPU that goes meanwhile says so again. */
	__sync_lock_test_and_set(&d->orphans, 0);
	for_each_index(i, 0, d->params.nr_pcpus) {
		if (pcpu_at(d, i)->online || !pcpu_at(d, i)->nr_pinned)
			continue;
		left = true;
		taken = ground_take_first(d, ground_pcpu_queue(d, i));
		if (taken)
			break;
	}
	if (left)
		d->orphans = 1;
	return taken;
}

#endif

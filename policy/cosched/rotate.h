/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Rotation: the vCPUs of a VM wider than its host take short turns.
 *
 * Idea. Of a VM with more vCPUs at work than there are pCPUs some must wait, whatever
 * is done: it cannot be played together (round.h). A sibling that waits for one of
 * those, for a lock it holds or is next in line for, waits for that one's turn and
 * burns its own. So turns are short: while such a VM has the host for itself, a timer
 * goes off every millisecond, and all pCPUs choose anew; they find the round's VM again,
 * and of it whoever has run least. Nobody but the VM is touched by it.
 *
 * Worked example. Four vCPUs on two pCPUs take a ticket lock in turn. 0 and 1 run, the
 * lock goes from 0 to 1 to 2, which does not run, and nothing happens until it does: a
 * critical section or two a turn. With turns of 8 ms, a slice and the tick, that is some 200
 * a second. With 1 ms, 2 is there after 1 ms, 3 after 2, and so on: over a thousand.
 *
 * What it is bad at. As soon as anybody else wants a pCPU, or another VM wakes now and then, turns
 * are as long as slices again: tried with others there, narrow VMs lost up to a fifteenth of what
 * they are owed, vCPUs of one VM got unequal time in several domains, and one of sixteen with a
 * share together waited 4.5 s. It says who is at risk, not who suffers (together.h): vCPUs that
 * never wait for each other are switched a thousand times a second, too, for some
 * microseconds each. A VM confined to fewer pCPUs than it has vCPUs does not count as wide.
 *
 * After micro-sliced virtual processors (Ahn, Park and Huh, MICRO 2014).
 */
#ifndef DROVER_ROTATE_H
#define DROVER_ROTATE_H

#include "base/timer.h"
#include "cosched/round.h"

#define ROTATE_TURN_NS 1000000ULL
/* No short turns while others have woken in so many slices: they would not have the host for
 * itself. */
#define ROTATE_ALONE_SLICES 4

/* Does nobody wait in any domain but that VM? */
CHECKED_APART bool rotate_waits_alone(THE_DROVER, u32 slot)
{
	u32 nr_domains = d->params.nr_domains;
	bool alone = true;
	u32 i;

	for_each_index(i, 0, nr_domains) {
		u64 first = next_look_at_all(d, NEXT_FOR_NOBODY, i, TOURNAMENT_NOBODY, 0);

		if (first == TOURNAMENT_NOBODY)
			continue;
		alone = tournament_slot(first) == slot &&
			next_look_at_all(d, NEXT_FOR_NOBODY, i, first, 0) == TOURNAMENT_NOBODY;
		if (!alone)
			break;
	}
	return alone;
}

/* Has the VM all pCPUs, and more vCPUs that wait, and nobody else does? */
static __always_inline bool rotate_is_due(struct drover *d, u32 slot)
{
	struct vm *vm = vm_at(d, slot);

	return vm->together && vm->vcpus_waiting &&
	       vm->vcpus_running >= partition_at(d, 0)->nr_online &&
	       ground_now_ns(d) - d->woke_ns > ROTATE_ALONE_SLICES * d->params.slice_ns &&
	       rotate_waits_alone(d, slot);
}

/* A thread of that VM wakes. Once in a slice is enough to know. */
static __always_inline void rotate_note_wake(struct drover *d, u32 slot)
{
	u64 now_ns = ground_now_ns(d);

	if (slot != DROVER_HOST_SLOT && !vm_at(d, slot)->together &&
	    now_ns - d->woke_ns > d->params.slice_ns)
		d->woke_ns = now_ns;
}

/* A turn begins. */
static __always_inline void rotate_set(struct drover *d, u64 now_ns)
{
	d->turn_ends_ns = now_ns + ROTATE_TURN_NS;
	timer_by(d, TIMER_OWN, now_ns + ROTATE_TURN_NS);
}

/* One of the VM's vCPUs begins to run. */
static __always_inline void rotate_begin(struct drover *d, u32 slot, u64 now_ns)
{
	if ((s64)(now_ns - d->turn_ends_ns) >= 0 && rotate_is_due(d, slot))
		rotate_set(d, now_ns);
}

/* Have the VM's pCPUs choose anew. False: no such VM runs. */
CHECKED_APART bool rotate_end_turns(THE_DROVER)
{
	bool any = false;
	u32 i;

	for_each_index(i, 0, d->params.nr_pcpus) {
		struct pcpu *pcpu = pcpu_at(d, i);
		u32 slot = pcpu->running_slot;

		if (slot >= DROVER_MAX_VMS || !pcpu->online || !rotate_is_due(d, slot))
			continue;
		any = true;
		/* Who was overdue keeps the turn it was given for that (wait_bound.h). */
		if (pcpu->order.why == ORDER_TURN)
			continue;
		ground_preempt(d, bounded(i, DROVER_MAX_PCPUS));
	}
	return any;
}

/* The timer has gone off. */
static __always_inline void rotate_look(struct drover *d, u64 now_ns)
{
	u64 ends_ns = d->turn_ends_ns;

	/* Nobody takes turns: a timer that went off for something else need not look at all pCPUs.
	 */
	if (!ends_ns)
		return;
	if ((s64)(ends_ns - now_ns) > (s64)TIMER_EARLY_NS) {
		timer_by(d, TIMER_OWN, ends_ns);
		return;
	}
	d->turn_ends_ns = 0;
	if (rotate_end_turns(d))
		rotate_set(d, now_ns);
}

#endif

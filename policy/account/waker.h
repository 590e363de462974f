/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What wakes a VM: its own vCPUs, or another VM.
 *
 * Idea. Threads that wake each other hand over data, and get it soonest from a cache that both
 * share. So of each VM it is known which other wakes it mostly, and how often the two shared an LLC
 * then. One wake-up in eight is looked at, and votes: for the waker known so far if it was that
 * one, against it if it was another; when no votes are left the next one is taken (the majority
 * vote of Boyer and Moore, 1981). Interrupts do not vote: whose thread they interrupt says nothing.
 * The daemon decides what follows (crates/drover-core/src/place/draw.rs).
 *
 * Worked example. VM 3 is woken by its own vCPUs (A) and by VM 7 (B): A A B A A A. Votes for A: 1,
 * 2, 1, 2, 3, 4. Five of six are A's; the daemon reads VM 3 and 4 votes.
 *
 * Limitations. A VM that wakes it less than half of the time is not found: a server with ten busy
 * clients has no waker. What reaches a VM through an interrupt, as from a network card, has none.
 * pCPUs that count at the same moment may lose a vote.
 */
#ifndef DROVER_WAKER_H
#define DROVER_WAKER_H

#include "base/topology.h"

/* So many votes are kept: a VM that wakes it no longer is outvoted by as many others. */
#define WAKER_VOTES_MAX 256
/* One wake-up in eight is looked at, by a hash of the time (Knuth's multiplier). */
#define WAKER_HASH 2654435761U
#define WAKER_SAMPLE_SHIFT 29

/* A thread of that VM was woken, and goes to that pCPU. */
static __always_inline void waker_note(struct drover *d, u32 slot, u32 goes_to)
{
	struct waker *waker = &d->waker[bounded(slot, DROVER_MAX_VMS)];
	u32 by, from;

	if (slot == DROVER_HOST_SLOT || (u32)ground_now_ns(d) * WAKER_HASH >> WAKER_SAMPLE_SHIFT)
		return;
	by = ground_waker(d, &from);
	if (by == DROVER_HOST_SLOT)
		return;
	waker->wakes++;
	waker->near += !topology_hops(d, pcpu_at(d, from)->domain, pcpu_at(d, goes_to)->domain);
	if (waker->slot == by)
		waker->votes += waker->votes < WAKER_VOTES_MAX;
	else if (waker->votes)
		waker->votes--;
	else
		*waker = (struct waker){by, 1, waker->wakes, waker->near};
}

#endif

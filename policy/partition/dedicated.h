/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The policy `dedicated`: a pCPU for each vCPU, and none is preempted.
 *
 * Idea. The no-op scheduler of seed 001. A vCPU that wakes takes a pCPU of the partition that is
 * idle, the one it ran on if it can, and keeps it until it sleeps. With no more vCPUs than pCPUs
 * each always finds its own, with all of its caches, and runs as if it were alone on the host.
 * Those that come when all pCPUs are taken stand in a waiting list, whose first takes the place of
 * the next that sleeps or leaves.
 *
 * Worked example. vCPUs A and B, which never sleep, have pCPUs 4 and 5; C comes, and waits. B is
 * destroyed: C has pCPU 5. If none left, C would be overdue after a second (wait_bound.h), and
 * take the place of one of them, which waits then: no thread may wait forever.
 *
 * Limitations. With more busy vCPUs than pCPUs it is a round robin of a second. Threads of
 * the host that are tied to these pCPUs wait like vCPUs, unless they serve the kernel; and never
 * keep a pCPU from one that waits.
 */
#ifndef DROVER_DEDICATED_H
#define DROVER_DEDICATED_H

#include "queue/tournament.h"

static __always_inline u64 dedicated_key(u32 slot, u64 since_ns)
{
	return tournament_key(since_ns, slot);
}

static __always_inline s64 dedicated_gain(u32 running)
{
	return running == DROVER_HOST_SLOT ? 0 : -1;
}

#endif

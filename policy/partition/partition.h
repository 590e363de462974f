/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Partitions: sets of pCPUs, each with a policy of its own.
 *
 * Idea. No policy is right for all VMs (seed 001): whose vCPUs do I/O should run at once and
 * briefly, whose compute want long slices, and some want a pCPU that no other has. So a host's
 * pCPUs may be divided into partitions, and each says how it chooses: `share` (Drover's own),
 * `credit`, `anticipatory` (credit.h), `dedicated` (hooks.h). A VM belongs to
 * one partition, and so do the host's own tasks: to partition 0, which is `share` and always there.
 * A domain (topology.h) is within one partition, so whatever is a domain's, run queue, clock,
 * waiting VMs, is the partition's.
 *
 * A thread is served in its VM's partition, if it may run on any pCPU of that. One that is pinned
 * elsewhere is served where it may run, as that partition serves.
 *
 * A thread that runs when its VM, or its pCPU, changes partitions is stopped at the next tick, and
 * then waits in its new one; threads that wait are drained (drain.h).
 *
 * Worked example. pCPUs 0 to 5; 0-1 are the host's, partition `io` has 2-3 and `rt` 4-5. VM web
 * moves from `io` to `rt`: its vCPU 0, running on 2, is stopped at the tick, looks for an idle pCPU
 * among 4-5, and finds 5. Its vCPU 1, which waits in the domain of 2-3, is sent to 4.
 *
 * Limitations. A host with many partitions has narrow ones, and a pCPU of one stands idle
 * beside threads that wait in another. Reservations, co-scheduling and homes are for partitions of
 * policy `share`, pools for partition 0 only: a pool's part of time cannot be had in two places.
 */
#ifndef DROVER_PARTITION_H
#define DROVER_PARTITION_H

#include "base/topology.h"

static __always_inline struct partition *partition_at(struct drover *d, u32 partition)
{
	return &d->partition[bounded(partition, DROVER_MAX_PARTITIONS)];
}

static __always_inline u32 partition_of_pcpu(struct drover *d, u32 pcpu)
{
	return domain_at(d, pcpu_at(d, pcpu)->domain)->partition;
}

/*
 * How pCPUs of that domain choose. On a host that is not divided, here and below, nothing more is
 * looked at: this is asked several times at each switch.
 */
static __always_inline u32 partition_policy(struct drover *d, u32 domain)
{
	if (!d->divided)
		return POLICY_SHARE;
	return partition_at(d, domain_at(d, domain)->partition)->policy;
}

static __always_inline bool partition_is_share(struct drover *d, u32 domain)
{
	return partition_policy(d, domain) == POLICY_SHARE;
}

/* Are both domains of one partition? */
static __always_inline bool partition_shares(struct drover *d, u32 domain, u32 other)
{
	return !d->divided || domain_at(d, domain)->partition == domain_at(d, other)->partition;
}

/* How long a thread runs there before it is asked again. */
static __always_inline u64 partition_slice_ns(struct drover *d, u32 pcpu)
{
	return d->divided ? partition_at(d, partition_of_pcpu(d, pcpu))->slice_ns :
			    d->params.slice_ns;
}

/* Is the VM there, and in a partition whose time is divided by promises and weights (allot.h)? */
static __always_inline bool partition_allots(struct drover *d, const struct vm *vm)
{
	return vm->id && partition_at(d, vm->partition)->policy == POLICY_SHARE;
}

/* Which pCPUs are online, or the partitions they are in, have changed. */
BPF_GLOBAL int partition_count(THE_DROVER)
{
	u32 nr_pcpus = d->params.nr_pcpus;
	u32 divided = 0;
	u32 i;

	for_each_index(i, 0, DROVER_MAX_PARTITIONS)
		partition_at(d, i)->nr_counted = 0;
	for_each_index(i, 0, nr_pcpus) {
		partition_at(d, partition_of_pcpu(d, i))->nr_counted += pcpu_at(d, i)->online;
		divided |= partition_of_pcpu(d, i);
	}
	for_each_index(i, 0, DROVER_MAX_PARTITIONS)
		partition_at(d, i)->nr_online = partition_at(d, i)->nr_counted;
	d->divided = divided;
	/* Threads judge anew where they may run. */
	__sync_fetch_and_add(&d->pcpu_changes, 1);
	return 0;
}

#endif

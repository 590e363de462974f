/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a partition asks of its policy: one function for each question.
 *
 *	key      where a VM that waits stands among others of its domain: the least is first
 *	wakes    a thread of a VM wakes
 *	sleeps   a thread of a VM sleeps
 *	gain     a VM waits where another runs: > 0 it preempts; < 0 the running one goes on when
 * asked tick     the tick finds a VM running
 *
 * `share` answers key and gain in share.h, wake.h and pick.h, where they have grown; the
 * others here. A new policy is a file like dedicated.h, and a line in each function.
 */
#ifndef DROVER_HOOKS_H
#define DROVER_HOOKS_H

#include "partition/anticipatory.h"
#include "partition/credit.h"
#include "partition/dedicated.h"

static __always_inline bool hook_is_share(struct drover *d, u32 domain)
{
	return partition_policy(d, domain) == POLICY_SHARE;
}

/* Are VMs of that policy in classes, by their credit? */
static __always_inline bool hook_has_credit(u32 policy)
{
	return policy == POLICY_CREDIT || policy == POLICY_ANTICIPATORY;
}

/* Of a partition that is not `share`. */
BPF_GLOBAL u64 hook_key(THE_DROVER, u32 domain, u32 slot)
{
	struct runqueue *rq = ground_runqueue(d, domain);

	if (!rq)
		return TOURNAMENT_NONE;
	if (hook_has_credit(partition_policy(d, domain)))
		return credit_key(d, slot, entity_rq_of(rq, slot)->served_ns);
	return dedicated_key(slot, entity_rq_of(rq, slot)->served_ns);
}

/* The policy of the VM's own partition. */
static __always_inline u32 hook_policy_of(struct drover *d, u32 slot)
{
	return d->divided ? partition_at(d, vm_at(d, slot)->partition)->policy : POLICY_SHARE;
}

static __always_inline void hook_wakes(struct drover *d, u32 slot, u32 nr_awake)
{
	u32 policy = hook_policy_of(d, slot);

	if (policy == POLICY_CREDIT)
		credit_wakes(d, slot, nr_awake);
	if (policy == POLICY_ANTICIPATORY)
		anticipatory_wakes(d, slot, nr_awake, ground_now_ns(d));
}

static __always_inline void hook_sleeps(struct drover *d, u32 slot, u32 nr_awake, u64 now_ns)
{
	if (!nr_awake)
		vm_at(d, slot)->slept_at_ns = now_ns;
	if (hook_policy_of(d, slot) == POLICY_ANTICIPATORY)
		anticipatory_sleeps(d, slot, nr_awake);
}

/* A thread of that VM waits where another VM runs. Of a partition that is not `share`. */
static __always_inline s64 hook_gain(struct drover *d, u32 pcpu, u32 slot, u32 running)
{
	if (hook_has_credit(partition_policy(d, pcpu_at(d, pcpu)->domain)))
		return credit_gain(d, slot, running);
	return dedicated_gain(running);
}

/* True: the order of the VMs that wait may have changed. */
static __always_inline bool hook_tick(struct drover *d, u32 pcpu, u32 slot)
{
	u32 policy = partition_policy(d, pcpu_at(d, pcpu)->domain);
	u32 boosted = 0;
	u64 now_ns;

	if (!hook_has_credit(policy))
		return false;
	now_ns = ground_now_ns(d);
	if (policy == POLICY_ANTICIPATORY)
		boosted = anticipatory_debited(vm_at(d, slot)->credit.boosted);
	credit_debit(d, pcpu, slot, boosted, now_ns);
	return credit_account(d, partition_of_pcpu(d, pcpu), now_ns);
}

#endif

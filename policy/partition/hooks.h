/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a partition asks of its policy: one function for each question; and the policy
 * `dedicated`, which is no more than their defaults.
 *
 *	key      where a VM that waits stands among others of its domain: the least is first
 *	wakes    a thread of a VM wakes
 *	sleeps   a thread of a VM sleeps
 *	gain     a VM waits where another runs: > 0 it preempts; < 0 the running one goes on
 *	tick     the tick finds a VM running
 *
 * `share` answers key and gain in share.h, gain.h and pick.h, where they have grown; the
 * others here. A new policy is a file of its own, and a line in each function.
 *
 * --- dedicated ---
 *
 * A pCPU for each vCPU, and none is preempted.
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
#ifndef DROVER_HOOKS_H
#define DROVER_HOOKS_H

#include "partition/credit.h"

/* Are VMs of that policy in classes, by their credit? */
static __always_inline bool hook_has_credit(u32 policy)
{
	return policy == POLICY_CREDIT || policy == POLICY_ANTICIPATORY;
}

/*
 * Of a partition that is not `share`: the first to come is the first, by credit those of its class.
 */
BPF_GLOBAL u64 hook_key_of_others(THE_DROVER, u32 domain, u32 slot)
{
	struct runqueue *rq = ground_runqueue(d, domain);
	u64 class = 0;

	if (!rq)
		return TOURNAMENT_NONE;
	if (hook_has_credit(partition_policy(d, domain)))
		class = credit_class(d, slot);
	return tournament_key(entity_rq_of(rq, slot)->served_ns + class * CREDIT_CLASS_NS, slot);
}

/* Where the VM stands in that domain's tournament, as far as it was charged; nowhere while it may
 * not run. */
static __always_inline u64 hook_key(struct drover *d, u32 domain, u32 slot)
{
	struct vm *vm = vm_at(d, slot);

	if (vm->at_limit)
		return TOURNAMENT_NONE;
	if (!partition_is_share(d, domain))
		return hook_key_of_others(d, domain, slot);
	return tournament_key(vm->vtime_ns + share_offset_ns(d, slot, domain), slot);
}

/* Where a VM that waits in the domain, or runs there, stands by now. */
static __always_inline u64 hook_key_now(struct drover *d, u32 domain, u32 slot, u64 now_ns)
{
	if (!partition_is_share(d, domain))
		return hook_key_of_others(d, domain, slot);
	return tournament_key(share_stands_ns(d, slot, domain, now_ns), slot);
}

/* The policy of the VM's own partition. */
static __always_inline u32 hook_policy_of(struct drover *d, u32 slot)
{
	return d->divided ? partition_at(d, vm_at(d, slot)->partition)->policy : POLICY_SHARE;
}

/* So many threads of the VM were awake. */
static __always_inline void hook_wakes(struct drover *d, u32 slot, u32 nr_awake)
{
	u32 policy = hook_policy_of(d, slot);

	if (hook_has_credit(policy) && !nr_awake && slot != DROVER_HOST_SLOT)
		credit_wakes(vm_at(d, slot), policy, ground_now_ns(d));
}

/* So many are still awake. */
static __always_inline void hook_sleeps(struct drover *d, u32 slot, u32 nr_awake, u64 now_ns)
{
	if (nr_awake)
		return;
	vm_at(d, slot)->slept_at_ns = now_ns;
	credit_sleeps(vm_at(d, slot), hook_policy_of(d, slot));
}

/* A thread of that VM waits where another VM runs. Of a partition that is not `share`. */
static __always_inline s64 hook_gain(struct drover *d, u32 pcpu, u32 slot, u32 running)
{
	if (hook_has_credit(partition_policy(d, pcpu_at(d, pcpu)->domain)))
		return (s64)credit_class(d, running) - (s64)credit_class(d, slot);
	return running == DROVER_HOST_SLOT ? 0 : -1;
}

/* True: the order of the VMs that wait may have changed. */
static __always_inline bool hook_tick(struct drover *d, u32 pcpu, u32 slot)
{
	u32 policy = partition_policy(d, pcpu_at(d, pcpu)->domain);
	u64 now_ns;

	if (!hook_has_credit(policy))
		return false;
	now_ns = ground_now_ns(d);
	credit_debit(d, pcpu, slot, policy, now_ns);
	return credit_account(d, partition_of_pcpu(d, pcpu), now_ns);
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Shares: how much of the host each VM is owed, and how it is told.
 *
 * Idea. The VM is the scheduled thing, not the thread. A VM has a virtual time:
 * all CPU time its threads have received, divided by its shares. The VM with
 * the least virtual time is served next; so among VMs that want more than they
 * get, CPU time flows in proportion to shares, whatever the number of their
 * vCPUs, and helper threads are paid for by the VM they work for. This is
 * start-time fair queueing (Goyal, Vin, Cheng 1996) with the VM as the flow and
 * several servers; seed 000, 2.1, calls the same quantity "the ratio of the
 * consumed CPU resources to the entitlement".
 *
 * Each domain has a clock: the virtual time of the least served VM that waits there. Domains differ
 * where VMs are confined to them: where three VMs share a node, time passes more slowly than where
 * one has a node for itself. Rules tie VMs to the clock where they wait:
 *  - a VM that wakes from sleep as a whole may not be further behind it than its
 *    credit (10 ms of CPU time): sleeping saves up no claim to starve others with. But a slice:
 *    a VM that had to wait while another had one, and then sleeps for a moment, is owed that still;
 *  - one that sleeps in part, or runs on although others wait, because it cannot
 *    use its share (1 vCPU with half of four pCPUs), may be owed more, because a
 *    thread is charged up to a slice late: 32 ms of CPU time for each thread that is awake, no
 *    more than there are pCPUs (threads that sleep are free to make, and owed nothing), or
 *    32 ms of virtual time, as long as it runs. One that waits, or waited within
 *    the last eighth of the wait bound, keeps its claim, however large: it could
 *    use it. (The clock may stand far ahead of the running VM: at a light, wide VM that has
 *    just had the host for a slice, and has a vCPU on the pCPU that no other wants.)
 *  - while no VM waits there, it follows the VM that is furthest ahead: time
 *    that no other wanted is free, and is not held against the VM that used it;
 *  - a VM that comes from another domain may be owed no more than if it had woken in part, unless
 *    weights are allotted (allot.h): then all clocks go alike.
 *
 * Worked example. vm0 has 1000 shares, vm1 7000, four busy vCPUs each, four
 * pCPUs, slices of 8 ms. Both start at 0. vm0 runs on all four pCPUs for 8 ms
 * and is at 32 ms. vm1 now runs until it, too, has passed 32 ms: 32 * 7 = 224 ms
 * of CPU time, seven rounds of 4 pCPUs * 8 ms. Then vm0 again: 1:7. Note that a
 * VM's vCPUs tend to run at the same time, without being told to.
 *
 * Limitations. A VM is charged when it has run, not before, so a VM as
 * wide as the host takes a whole round at a time: others wait one slice, and a
 * VM with few shares gets its time in rare, wide bursts. Time is what is
 * divided, not work, but for what a busy SMT sibling takes (core.h). There
 * is one clock for a domain: VMs confined to a crowded part of it fall behind the others, and one
 * of these that sleeps comes back with a claim to what those were kept from.
 */
#ifndef DROVER_SHARE_H
#define DROVER_SHARE_H

#include "partition/hooks.h"
#include "queue/tournament.h"

/* Virtual times and tags (reserve.h) are CPU time times an inverse with so many fraction bits. */
#define SHARE_INVERSE_SHIFT 20

/* What the smallest weight that is allotted is in shares: one in so many (allot.h). */
#define SHARE_ONE_IN 128

static __always_inline u64 share_scale(u64 cpu_ns, u64 inverse)
{
	/* Eight seconds at once at most, or 67 ms by the smallest weights: the product stays within
	 * 64 bits. */
	u64 most_ns = inverse >> 30 ? 1ULL << 26 : 1ULL << 33;

	return (min_of(cpu_ns, most_ns) * inverse) >> SHARE_INVERSE_SHIFT;
}

/* CPU time as the VM's virtual time sees it. */
static __always_inline u64 share_weigh(struct vm *vm, u64 cpu_ns)
{
	return share_scale(cpu_ns, vm->share_inverse);
}

/* Give the VM shares, 1 to 1000000; returns what it had before. */
static __always_inline u32 share_set(struct vm *vm, u32 shares)
{
	if (shares < 1)
		shares = 1;
	if (shares > DROVER_SHARES_MAX)
		shares = DROVER_SHARES_MAX;
	/* A VM that is allotted a weight has that until it is allotted another (allot.h). */
	if (!vm->entitled_ucpu)
		vm->share_inverse =
			(((u64)DROVER_SHARES_PER_VCPU << SHARE_INVERSE_SHIFT) + shares / 2) /
			shares;
	return __sync_lock_test_and_set(&vm->shares, shares);
}

/* If the time is earlier than that, set it there. Racing writers lose at most one step. */
static __always_inline void share_not_before(u64 *time_ns, u64 earliest_ns)
{
	if ((s64)(earliest_ns - *time_ns) > 0)
		*time_ns = earliest_ns;
}

/* If the time is later than that, set it there. */
static __always_inline void share_not_after(u64 *time_ns, u64 latest_ns)
{
	if ((s64)(*time_ns - latest_ns) > 0)
		*time_ns = latest_ns;
}

/*
 * The domain whose clock the VM goes by in that one. The host's tasks belong to partition 0; those
 * that must run elsewhere, per-CPU kernel threads mostly, go by its clock there, too.
 */
BPF_GLOBAL u32 share_own_domain(THE_DROVER, u32 slot, u32 domain)
{
	if (slot == DROVER_HOST_SLOT && d->divided && domain_at(d, domain)->partition)
		return vm_at(d, slot)->domain;
	return domain;
}

static __always_inline u64 share_own_clock_ns(struct drover *d, u32 slot, u32 domain)
{
	return domain_at(d, share_own_domain(d, slot, domain))->clock_ns;
}

/* What is added to the VM's virtual time to compare it in that domain: it stands as far from the
 * clock there as from its own. */
BPF_GLOBAL u64 share_offset_ns(THE_DROVER, u32 slot, u32 domain)
{
	return domain_at(d, domain)->clock_ns - share_own_clock_ns(d, slot, domain);
}

/* The VM may be owed that much CPU time by that clock, and no more. */
static __always_inline void share_bound_claim(struct vm *vm, u64 clock_ns, u64 cpu_ns)
{
	share_not_before(&vm->vtime_ns, clock_ns - share_weigh(vm, cpu_ns));
}

/*
 * Of a VM's running threads two things are asked at once: how many there are, and since
 * when they have not been charged, summed up. Both are in one word, the count in its low
 * bits, the sum, which wraps, above: read apart, one before a thread began and one after,
 * all time there ever was would look like time not charged.
 */
#define SHARE_COUNT_BITS 13

static __always_inline u32 share_nr_running(struct vm *vm)
{
	return *(volatile u64 *)&vm->running_sum & ((1 << SHARE_COUNT_BITS) - 1);
}

/* What its running threads were not charged for yet. */
static __always_inline u64 share_uncharged_ns(struct vm *vm, u64 now_ns)
{
	u64 word = *(volatile u64 *)&vm->running_sum;
	u64 count = word & ((1 << SHARE_COUNT_BITS) - 1);
	s64 shifted = (s64)((count * now_ns << SHARE_COUNT_BITS) - (word - count));

	/* Clocks of pCPUs differ by a little. */
	return shifted > 0 ? (u64)shifted >> SHARE_COUNT_BITS : 0;
}

/* What all threads of the VM have used in its life, charged or not. */
static __always_inline u64 share_used_ns(struct vm *vm, u64 now_ns)
{
	return vm->counters.vcpu_run_ns + vm->counters.helper_run_ns +
	       share_uncharged_ns(vm, now_ns);
}

/* Threads that run or are ready to. */
static __always_inline u32 share_nr_awake(struct vm *vm)
{
	return share_nr_running(vm) + vm->nr_waiting;
}

/* The clock of the VM's threads: each moment it moves on by what its threads run then, divided by
 * how many are awake. A thread behind it has had less than an even part. */
static __always_inline u64 share_thread_clock_ns(struct vm *vm, u64 now_ns)
{
	return vm->thread_clock_ns + share_uncharged_ns(vm, now_ns) / max_of(share_nr_awake(vm), 1);
}

/* The thread begins to run: from now on its time is the VM's, although not charged yet. */
static __always_inline void share_begin(struct vm *vm, struct thread *t, u64 now_ns)
{
	t->begun_ns = now_ns;
	__sync_fetch_and_add(&vm->running_sum, (now_ns << SHARE_COUNT_BITS) + 1);
}

/* It was charged and runs on. At no moment is it counted as one that does not run. */
static __always_inline void share_go_on(struct vm *vm, struct thread *t, u64 now_ns)
{
	__sync_fetch_and_add(&vm->running_sum, (now_ns - t->begun_ns) << SHARE_COUNT_BITS);
	t->begun_ns = now_ns;
}

/* It stops. */
static __always_inline void share_end(struct vm *vm, struct thread *t)
{
	ASSERT(share_nr_running(vm));
	__sync_fetch_and_sub(&vm->running_sum, (t->begun_ns << SHARE_COUNT_BITS) + 1);
}

/* Siblings that arrive or wake from now on begin no earlier than that thread has come to. */
static __always_inline void share_lift_floor(struct vm *vm, struct thread *t)
{
	/* A thread that waits for one pCPU is not picked by vruntime: it says nothing of its
	 * siblings. */
	if (!t->pinned_cpu)
		share_not_before(&vm->vruntime_floor_ns, t->vruntime_ns);
}

/*
 * Siblings are no further apart than can be made up within the wait bound; where a
 * reservation promises each its turn sooner (one domain), no further than a slice: else one that
 * has fallen behind goes on and on while the others wait.
 */
static __always_inline u64 share_apart_max_ns(struct drover *d, struct vm *vm)
{
	bool promised = vm->reserve_inverse && d->params.nr_domains < 2;

	return promised ? d->params.slice_ns : d->params.wait_bound_ns / 2;
}

/* The thread begins to wait: no further ahead. Of one pCPU: share_level_pinned. */
static __always_inline void share_bound_lead(struct drover *d, struct vm *vm, struct thread *t)
{
	if (t->pinned_cpu)
		return;
	share_not_after(&t->vruntime_ns, vm->vruntime_floor_ns + share_apart_max_ns(d, vm));
}

/* The thread would go on running: no further behind. */
static __always_inline void share_bound_lag(struct drover *d, struct vm *vm, struct thread *t)
{
	if (t->pinned_cpu)
		return;
	share_not_before(&t->vruntime_ns, vm->vruntime_floor_ns - share_apart_max_ns(d, vm));
}

/*
 * The thread, of one pCPU, comes to wait there. It goes by the sibling that runs there, or is next:
 * no further ahead or behind than a slice. Others may have run for hours longer or shorter
 * elsewhere.
 */
static __always_inline void share_level_pinned(struct drover *d, struct thread *t)
{
	struct pcpu *pcpu = pcpu_at(d, t->pinned_cpu - 1);
	u64 queue = ground_vm_queue(d, t->slot, pcpu->domain);
	u64 sibling_ns = pcpu_vruntime_ns(pcpu, ground_now_ns(d));

	if (pcpu->running_slot != t->slot &&
	    !ground_first_order(d, queue, t->pinned_cpu - 1, &sibling_ns))
		return;
	share_not_before(&t->vruntime_ns, sibling_ns - d->params.slice_ns);
	share_not_after(&t->vruntime_ns, sibling_ns + d->params.slice_ns);
}

/*
 * The VM's virtual time with what its running threads will be charged for. All
 * pCPUs that ask at the same moment get the same answer, whichever was charged first.
 */
static __always_inline u64 share_vtime_now(struct vm *vm, u64 now_ns)
{
	return vm->vtime_ns + share_weigh(vm, share_uncharged_ns(vm, now_ns));
}

/* What a VM that is awake may be owed, by the threads that can be charged late. */
static __always_inline u64 share_claim_max_ns(struct drover *d, struct vm *vm)
{
	return d->params.claim_bound_ns * max_of(min_of(share_nr_awake(vm), d->params.nr_pcpus), 1);
}

/*
 * What a VM that goes on running may be owed: as much as VMs are apart anyway, being
 * charged late, 32 ms of a VM of 1000 shares. One vCPU of 8000 shares is that far
 * behind after every wait, and would lose what it is owed by its own claim.
 */
static __always_inline u64 share_lag_max_ns(struct drover *d, struct vm *vm)
{
	u64 apart_ns = d->params.claim_bound_ns * vm->shares / DROVER_SHARES_PER_VCPU;

	return max_of(apart_ns, share_claim_max_ns(d, vm));
}

/*
 * By how much a thread of the VM is behind the clock of its siblings, as the VM's virtual time
 * counts it: where the VM would stand had all that are awake run as little. No more than may be
 * saved up.
 */
static __always_inline u64 share_lag_ns(struct drover *d, struct vm *vm, u64 vruntime_ns,
					u64 now_ns)
{
	u64 parts = max_of(min_of(share_nr_awake(vm), d->params.nr_pcpus), 1);
	s64 lag_ns = (s64)(share_thread_clock_ns(vm, now_ns) - vruntime_ns);

	if (lag_ns <= 0)
		return 0;
	return share_weigh(vm, parts * min_of((u64)lag_ns, d->params.wake_credit_ns));
}

static __always_inline u64 share_earlier(u64 a, u64 b)
{
	return (s64)(a - b) < 0 ? a : b;
}

/*
 * A thread of the VM waits or runs there. A VM that is new, or comes from another partition, begins
 * at the clock. Where weights are allotted clocks of domains go alike, and the VM takes along what
 * it is owed; else it brings no more of a claim than if it had woken in part.
 */
static __always_inline void share_move_to(struct drover *d, u32 slot, u32 pcpu)
{
	struct vm *vm = vm_at(d, slot);
	u32 domain = pcpu_at(d, pcpu)->domain;
	u32 before = vm->domain;
	u64 clock_ns;

	/* The host's tasks stay where their partition is. */
	if (before == domain || (slot == DROVER_HOST_SLOT && domain_at(d, domain)->partition))
		return;
	vm->domain = domain;
	clock_ns = domain_at(d, domain)->clock_ns;
	/* Another partition's time is none. */
	if (before == DOMAIN_NONE || !partition_shares(d, before, domain))
		vm->vtime_ns = clock_ns;
	else if (!d->allotted_ns)
		share_bound_claim(vm, clock_ns, share_claim_max_ns(d, vm));
}

/* The thread has run for so long since it was last charged: charge it and the VM, but for a part.
 */
static __always_inline void share_charge(struct vm *vm, struct thread *t, u64 ran_ns,
					 u64 smt_discount_ns)
{
	u64 charged_ns = ran_ns - smt_discount_ns;
	u64 step_ns;

	ASSERT(smt_discount_ns <= ran_ns);
	t->charged_ns += ran_ns;
	step_ns = thread_is_task(t) ? charged_ns * 100 / (t->weight ?: 1) : charged_ns;
	t->vruntime_ns += step_ns;
	__sync_fetch_and_add(&vm->thread_clock_ns, step_ns / max_of(share_nr_awake(vm), 1));
	__sync_fetch_and_add(&vm->vtime_ns, share_weigh(vm, charged_ns));
	__sync_fetch_and_add(t->kind >= THREAD_HELPER ? &vm->counters.helper_run_ns :
							&vm->counters.vcpu_run_ns,
			     ran_ns);
	if (smt_discount_ns)
		__sync_fetch_and_add(&vm->counters.smt_discount_ns, smt_discount_ns);
}

/* Where the VM stands in that domain's tournament now; nowhere while it may not run (limit.h). */
static __always_inline u64 share_key(struct drover *d, u32 domain, u32 slot)
{
	if (vm_at(d, slot)->at_limit)
		return TOURNAMENT_NONE;
	if (!hook_is_share(d, domain))
		return hook_key(d, domain, slot);
	return tournament_key(vm_at(d, slot)->vtime_ns + share_offset_ns(d, slot, domain), slot);
}

/* Where a VM that waits in the domain, or runs there, stands by now. */
static __always_inline u64 share_key_now(struct drover *d, u32 domain, u32 slot, u64 now_ns)
{
	if (!hook_is_share(d, domain))
		return hook_key(d, domain, slot);
	return tournament_key(
		share_vtime_now(vm_at(d, slot), now_ns) + share_offset_ns(d, slot, domain), slot);
}

/* Are the queues of the domain's VMs empty? */
static __always_inline bool share_nobody_waits(struct drover *d, u32 domain)
{
	struct runqueue *rq = ground_runqueue(d, domain);

	return !rq || tournament_best(d, &rq->by_share) == TOURNAMENT_NONE;
}

/*
 * The VM is served in the domain. The clock moves to its virtual time, but no further than to the
 * least served VM that waits, which may not run on the pCPU that serves.
 */
static __always_inline void share_clock_follow(struct drover *d, u32 domain, u32 slot)
{
	struct runqueue *rq = ground_runqueue(d, domain);
	u64 key = rq ? tournament_best(d, &rq->by_share) : TOURNAMENT_NONE;
	u32 first = tournament_slot(key);
	u64 vtime_ns = vm_at(d, slot)->vtime_ns;

	if (share_own_domain(d, slot, domain) != domain)
		return;
	if (key != TOURNAMENT_NONE)
		vtime_ns = share_earlier(vtime_ns, vm_at(d, first)->vtime_ns +
							   share_offset_ns(d, first, domain));
	share_not_before(&domain_at(d, domain)->clock_ns, vtime_ns);
}

/* A thread of the VM ran there. Where no VM waits its time was free. */
static __always_inline void share_clock_pass(struct drover *d, u32 slot, u32 pcpu)
{
	u32 domain = pcpu_at(d, pcpu)->domain;

	if (share_own_domain(d, slot, domain) == domain && share_nobody_waits(d, domain))
		share_not_before(&domain_at(d, domain)->clock_ns, vm_at(d, slot)->vtime_ns);
}

#endif

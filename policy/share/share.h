/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Shares: how much of the host each VM is owed, and how it is told.
 *
 * Idea. The VM is the scheduled thing, not the thread. A VM has a virtual time:
 * all CPU time its threads have received, divided by its shares. Whoever has
 * the least virtual time is served next; so among VMs that want more than they
 * get, CPU time flows in proportion to shares, whatever the number of their
 * vCPUs, and helper threads are paid for by the VM they work for. This is
 * start-time fair queueing (Goyal, Vin, Cheng 1996) with the VM as the flow and
 * several servers; seed 000, 2.1, calls the same quantity "the ratio of the
 * consumed CPU resources to the entitlement".
 *
 * `vtime_now_ns` is the virtual time of the least served VM that waits; where only confined
 * threads do, of whoever waits or runs, looked at once in a slice (pick_confined.h). Two
 * rules tie VMs to it:
 *  - a VM that wakes from sleep as a whole may not be further behind it than its
 *    credit (5 ms of CPU time): sleeping saves up no claim to starve others with;
 *  - one that sleeps in part, or runs on although others wait, because it cannot
 *    use its share (1 vCPU with half of four pCPUs), may be owed more, because a
 *    thread is charged up to a slice late: 32 ms of CPU time for each thread, or
 *    32 ms of virtual time, as long as it runs. One that waits, or waited within
 *    the last eighth of the wait bound, keeps its claim, however large: it could
 *    use it. (The clock may stand far ahead of who runs: at a light, wide VM that has
 *    just had the host for a slice, and has a vCPU on the pCPU that nobody wants.)
 *  - while nobody waits anywhere, it follows the VM that is furthest ahead: time
 *    that nobody else wanted is free, and is not held against who used it.
 *
 * Worked example. vm0 has 1000 shares, vm1 7000, four busy vCPUs each, four
 * pCPUs, slices of 8 ms. Both start at 0. vm0 runs on all four pCPUs for 8 ms
 * and is at 32 ms. vm1 now runs until it, too, has passed 32 ms: 32 * 7 = 224 ms
 * of CPU time, seven rounds of 4 pCPUs * 8 ms. Then vm0 again: 1:7. Note that a
 * VM's vCPUs tend to run at the same time, without being told to.
 *
 * What it is bad at. A VM is charged when it has run, not before, so a VM as
 * wide as the host takes a whole round at a time: others wait one slice, and a
 * VM with few shares gets its time in rare, wide bursts. Time is what is
 * divided, not work: a vCPU beside a busy SMT sibling pays the full price. There
 * is one clock for the host: VMs pinned to a crowded pCPU fall behind it, and one
 * of them that sleeps loses to a rival beside it that does not.
 */
#ifndef DROVER_SHARE_H
#define DROVER_SHARE_H

#include "queue/refused.h"

#define SHARE_INVERSE_SHIFT 20

static __always_inline struct vm *vm_at(struct drover *d, u32 slot)
{
	return &d->vm[bounded(slot, DROVER_MAX_VMS)];
}

/* CPU time as the VM's virtual time sees it. */
static __always_inline u64 share_weigh(struct vm *vm, u64 cpu_ns)
{
	/* Eight seconds at once at most: the product stays within 64 bits. */
	if (cpu_ns > (1ULL << 33))
		cpu_ns = 1ULL << 33;
	return (cpu_ns * vm->share_inverse) >> SHARE_INVERSE_SHIFT;
}

/* Give the VM shares, 1 to 1000000; returns what it had before. */
static __always_inline u32 share_set(struct vm *vm, u32 shares)
{
	if (shares < 1)
		shares = 1;
	if (shares > DROVER_SHARES_MAX)
		shares = DROVER_SHARES_MAX;
	vm->share_inverse =
		(((u64)DROVER_SHARES_PER_VCPU << SHARE_INVERSE_SHIFT) + shares / 2) / shares;
	return __sync_lock_test_and_set(&vm->shares, shares);
}

/* Virtual time moves forward only. Racing writers lose at most one step. */
static __always_inline void share_clock_to(struct drover *d, u64 vtime_ns)
{
	if ((s64)(vtime_ns - d->vtime_now_ns) > 0)
		d->vtime_now_ns = vtime_ns;
}

/* The VM may be owed that much CPU time and no more. */
static __always_inline void share_bound_claim(struct drover *d, struct vm *vm, u64 cpu_ns)
{
	u64 floor_ns = d->vtime_now_ns - share_weigh(vm, cpu_ns);

	if ((s64)(vm->vtime_ns - floor_ns) < 0)
		vm->vtime_ns = floor_ns;
}

/*
 * Of a VM's running threads two things are asked at once: how many there are, and since
 * when they have not been charged, summed up. Both are in one word, the count in its low
 * bits, the sum, which wraps, above: who read one before a thread began and the other
 * after would take all time there ever was for time not charged.
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
	return vm->vcpu_run_ns + vm->helper_run_ns + share_uncharged_ns(vm, now_ns);
}

/* Threads that run or are ready to. */
static __always_inline u32 share_nr_awake(struct vm *vm)
{
	return share_nr_running(vm) + vm->nr_waiting;
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
	__sync_fetch_and_sub(&vm->running_sum, (t->begun_ns << SHARE_COUNT_BITS) + 1);
}

/* Siblings that arrive or wake from now on begin no earlier than that thread has come to. */
static __always_inline void share_lift_floor(struct vm *vm, struct thread *t)
{
	/* Confined threads are not picked by vruntime: they say nothing of their siblings. */
	if (!t->confined && (s64)(t->vruntime_ns - vm->vruntime_floor_ns) > 0)
		vm->vruntime_floor_ns = t->vruntime_ns;
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

/* The thread begins to wait: no further ahead. */
static __always_inline void share_bound_lead(struct drover *d, struct vm *vm, struct thread *t)
{
	u64 last_ns = vm->vruntime_floor_ns + share_apart_max_ns(d, vm);

	if ((s64)(t->vruntime_ns - last_ns) > 0)
		t->vruntime_ns = last_ns;
}

/* The thread would go on running: no further behind. */
static __always_inline void share_bound_lag(struct drover *d, struct vm *vm, struct thread *t)
{
	u64 first_ns = vm->vruntime_floor_ns - share_apart_max_ns(d, vm);

	if ((s64)(t->vruntime_ns - first_ns) < 0)
		t->vruntime_ns = first_ns;
}

/*
 * The VM's virtual time with what its running threads will be charged for. All
 * pCPUs that ask at the same moment get the same answer, whoever was charged first.
 */
static __always_inline u64 share_vtime_now(struct vm *vm, u64 now_ns)
{
	return vm->vtime_ns + share_weigh(vm, share_uncharged_ns(vm, now_ns));
}

/* What a VM that is awake may be owed. */
static __always_inline u64 share_claim_max_ns(struct drover *d, struct vm *vm)
{
	/* The host's own threads are not counted; it is as wide as its pCPUs. */
	u32 threads = vm->nr_threads > vm->nr_vcpus ? vm->nr_threads : vm->nr_vcpus;

	return d->params.claim_bound_ns * (threads ?: 1);
}

/*
 * What a VM that goes on running may be owed: as much as VMs are apart anyway, being
 * charged late, 32 ms of a VM of 1000 shares. One vCPU of 8000 shares is that far
 * behind after every wait, and would lose what it is owed by its own claim.
 */
static __always_inline u64 share_lag_max_ns(struct drover *d, struct vm *vm)
{
	u64 claim_ns = share_claim_max_ns(d, vm);
	u64 apart_ns = d->params.claim_bound_ns * vm->shares / DROVER_SHARES_PER_VCPU;

	return apart_ns > claim_ns ? apart_ns : claim_ns;
}

/* Charge the VM and the thread for what the thread has run since last charged: returned. */
static __always_inline u64 share_charge(struct drover *d, struct vm *vm, struct thread *t,
					u64 cpu_time_ns)
{
	u64 ran_ns = cpu_time_ns - t->charged_ns;

	t->charged_ns = cpu_time_ns;
	t->vruntime_ns += t->kind == THREAD_HOST ? ran_ns * 100 / (t->weight ?: 1) : ran_ns;
	__sync_fetch_and_add(&vm->vtime_ns, share_weigh(vm, ran_ns));
	__sync_fetch_and_add(t->kind == THREAD_HELPER ? &vm->helper_run_ns : &vm->vcpu_run_ns,
			     ran_ns);
	if (!d->nr_waiting)
		share_clock_to(d, vm->vtime_ns);
	return ran_ns;
}

/* Who is owed a turn stands before all who are not, however late those are. */
#define SHARE_TURN_LEAD_NS (1ULL << 60)

/* Where the VM stands in the domain's tournament now; nowhere while it may not run (limit.h). */
static __always_inline u64 share_key(struct drover *d, struct domain *domain, u32 slot)
{
	if (vm_at(d, slot)->at_limit)
		return TOURNAMENT_NOBODY;
	if (books_of(domain, slot)->turns)
		return tournament_key(d->vtime_now_ns - SHARE_TURN_LEAD_NS, slot);
	return tournament_key(vm_at(d, slot)->vtime_ns, slot);
}

/*
 * The key of the domain's least served VM, but for those that pCPU has refused, or
 * TOURNAMENT_NOBODY. Corrects leaves that lag behind their VM on the way; a few tries
 * suffice because only VMs that ran since they were last looked at can lag.
 */
CHECKED_APART u64 share_least_served_for(THE_DROVER, u32 pcpu, u32 domain_index)
{
	struct domain *domain = ground_domain(d, domain_index);
	u64 now_ns = ground_now_ns(d);
	u64 key;
	u32 try;

	if (!domain)
		return TOURNAMENT_NOBODY;
	key = refused_best(d, pcpu, domain_index, domain, false);
	for_each_index(try, 0, 8) {
		u32 slot = tournament_slot(key);
		u64 fresh;

		if (key == TOURNAMENT_NOBODY || books_of(domain, slot)->turns)
			break;
		fresh = tournament_key(share_vtime_now(vm_at(d, slot), now_ns), slot);
		if (!tournament_before(key, fresh))
			break;
		tournament_settle(d, domain_index, slot, key, fresh);
		key = refused_best(d, pcpu, domain_index, domain, false);
	}
	return key;
}

static __always_inline u64 share_least_served(struct drover *d, u32 domain_index)
{
	return share_least_served_for(d, REFUSED_BY_NOBODY, domain_index);
}

/*
 * A VM at that virtual time is served next. The least served of its domain it is; before the clock
 * leaps after it, all domains are asked for one that is served less.
 */
CHECKED_APART int share_clock_follow(THE_DROVER, u64 vtime_ns)
{
	u32 nr_domains = d->params.nr_domains;
	u32 i;

	if ((s64)(vtime_ns - d->vtime_now_ns) <= 0)
		return 0;
	for_each_index(i, 0, nr_domains) {
		struct domain *domain = ground_domain(d, i);
		u64 key = domain ? tournament_best(d, &domain->by_share) : TOURNAMENT_NOBODY;
		u64 least_ns = vm_at(d, tournament_slot(key))->vtime_ns;

		if (key != TOURNAMENT_NOBODY && (s64)(least_ns - vtime_ns) < 0)
			vtime_ns = least_ns;
	}
	share_clock_to(d, vtime_ns);
	return 0;
}

#endif

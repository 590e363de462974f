/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Shares and reservations: how much of the host each VM is owed, and how it is told.
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
 * divided, not work, but for what a busy SMT sibling takes (charge.h). There
 * is one clock for a domain: VMs confined to a crowded part of it fall behind the others, and one
 * of these that sleeps comes back with a claim to what those were kept from.
 *
 * Reservations: CPU time a VM is promised, from the moment it wants it. Beside its virtual time a
 * VM with a reservation has a tag in real time: the moment up to which what it has received pays
 * for its reservation. Each ns of CPU time moves the tag on by 1 / reservation; a VM whose tag is
 * not later than now is *due*, and VMs that are due are served before all by shares, the one with
 * the earliest tag first. The tag is kept from two sides:
 *  - a VM that wakes has its tag at now, less a small credit: it is due at once,
 *    and has saved up nothing to starve others with;
 *  - a VM that got more than its reservation, by its shares, is ahead by no more
 *    than a slice of each of its threads pays for: when rivals come, it is due
 *    again after that, and need not first give back what no other wanted.
 * Whatever the reason for which it ran, a VM is charged in both times. So it gets
 * the larger of its reservation and what its shares bring, not the sum. Its
 * virtual time runs by what it is owed in all (allot.h), so that it stays level
 * with the others', hoards no claim and drags no other's along.
 * These are the R tags of mClock (Gulati, Merchant, Varman, OSDI '10), charged
 * when a thread has run, in place of when a request arrives.
 *
 * Worked example. vm0, one vCPU, 100 % reserved, and seven like it without on
 * four pCPUs. vm0 runs for 8 ms: its tag has moved by 8 ms, and so has now; it is
 * still due, and goes on. The other seven divide three pCPUs by shares: 3/7 each.
 * With 50 %, the tag would be 8 ms ahead after 8 ms: others run for as long, then
 * vm0 is due.
 *
 * Limitations. Nothing happens at the moment at which a waiting VM becomes
 * due: it is seen at the next pick, a slice later at worst, and catches up then.
 */
#ifndef DROVER_SHARE_H
#define DROVER_SHARE_H

#include "partition/partition.h"
#include "queue/tournament.h"

/* Virtual times and tags of reservations are CPU time times an inverse with so many fraction bits.
 */
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
static __always_inline u64 share_offset_ns(struct drover *d, u32 slot, u32 domain)
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

/* The thread, charged up to now, would go on running there: no further behind. */
static __always_inline void share_bound_lag(struct drover *d, struct pcpu *pcpu, struct thread *t,
					    u64 now_ns)
{
	struct vm *vm = vm_at(d, t->slot);

	if (!t->pinned_cpu)
		share_not_before(&t->vruntime_ns,
				 vm->vruntime_floor_ns - share_apart_max_ns(d, vm));
	pcpu->running_vruntime_ns = t->vruntime_ns - now_ns;
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
	u64 sibling_ns = pcpu->running_vruntime_ns + ground_now_ns(d);

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

/* The same, as it is compared in that domain. */
BPF_GLOBAL u64 share_stands_ns(THE_DROVER, u32 slot, u32 domain, u64 now_ns)
{
	return share_vtime_now(vm_at(d, slot), now_ns) + share_offset_ns(d, slot, domain);
}

/* What a VM that is awake may be owed, by the threads that can be charged late. */
static __always_inline u64 share_claim_max_ns(struct drover *d, struct vm *vm)
{
	return d->params.claim_bound_ns * max_of(min_of(share_nr_awake(vm), d->params.nr_pcpus), 1);
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

/* --- reservations --- */

/* A waiting VM may be overdue by what so many slices pay for. */
#define RESERVE_OVERDUE_SLICES 4

/* Real time that the CPU time pays for. */
static __always_inline u64 reserve_span_ns(struct vm *vm, u64 cpu_ns)
{
	return share_scale(cpu_ns, vm->reserve_inverse);
}

/* It may be ahead of its reservation by that much real time: a slice of each thread that can run,
 * and one. */
static __always_inline u64 reserve_ahead_max_ns(struct drover *d, struct vm *vm)
{
	u64 threads = min_of(vm->nr_threads, d->params.nr_pcpus);

	return reserve_span_ns(vm, (threads + 1) * d->params.slice_ns);
}

/* What it is promised, from now on; its leaves are left as they are. */
static __always_inline void reserve_set(struct drover *d, struct vm *vm, u32 mcpu)
{
	u64 inverse = mcpu ? (1000ULL << SHARE_INVERSE_SHIFT) / mcpu : 0;
	u64 now_ns = ground_now_ns(d);
	u64 before;

	if (!vm->reserve_inverse)
		vm->reserve_tag_ns = now_ns;
	before = __sync_lock_test_and_set(&vm->reserve_inverse, inverse);
	/* What paid for a long time of the old promise pays for a short one of a larger. */
	share_not_after(&vm->reserve_tag_ns, now_ns + reserve_ahead_max_ns(d, vm));
	if (inverse && !before)
		__sync_fetch_and_add(&d->nr_reserved, 1);
	ASSERT(!before || d->nr_reserved);
	if (!inverse && before)
		__sync_fetch_and_sub(&d->nr_reserved, 1);
}

/* By that much it may be overdue while it is awake. */
static __always_inline u64 reserve_overdue_max_ns(struct drover *d, struct vm *vm)
{
	return d->params.claim_bound_ns +
	       reserve_span_ns(vm, RESERVE_OVERDUE_SLICES * d->params.slice_ns);
}

/* A thread of the VM wakes: clamp what the VM is overdue by. */
static __always_inline void reserve_wake(struct drover *d, struct vm *vm)
{
	u64 overdue_ns =
		share_nr_awake(vm) ? reserve_overdue_max_ns(d, vm) : d->params.wake_credit_ns;

	if (vm->reserve_inverse)
		share_not_before(&vm->reserve_tag_ns, ground_now_ns(d) - overdue_ns);
}

/*
 * A thread of the VM wakes near there: clamp the lag kept across sleep, of the VM, of its
 * reservation, and of the thread among its siblings.
 */
static __always_inline void share_clamp_lag(struct drover *d, struct thread *t, u32 near)
{
	struct vm *vm = vm_at(d, t->slot);
	u64 clock_ns = share_own_clock_ns(d, t->slot, pcpu_at(d, near)->domain);

	reserve_wake(d, vm);
	share_bound_claim(vm, clock_ns,
			  share_nr_awake(vm) ? share_claim_max_ns(d, vm) :
					       d->params.wake_credit_ns);
	if (t->pinned_cpu)
		share_level_pinned(d, t);
	else
		share_not_before(&t->vruntime_ns, share_thread_clock_ns(vm, ground_now_ns(d)) -
							  d->params.wake_credit_ns);
}

/* By so much the CPU time moves the VM's tag on: no further than it may be ahead. */
static __always_inline u64 reserve_step_ns(struct drover *d, struct vm *vm, u64 cpu_ns, u64 now_ns)
{
	s64 room_ns = (s64)(now_ns + reserve_ahead_max_ns(d, vm) - vm->reserve_tag_ns);

	return room_ns > 0 ? min_of(reserve_span_ns(vm, cpu_ns), (u64)room_ns) : 0;
}

/* The VM has received CPU time. */
static __always_inline void reserve_charge(struct drover *d, struct vm *vm, u64 ran_ns)
{
	u64 now_ns;

	if (!vm->reserve_inverse)
		return;
	now_ns = ground_now_ns(d);
	__sync_fetch_and_add(&vm->reserve_tag_ns, reserve_step_ns(d, vm, ran_ns, now_ns));
	share_not_before(&vm->reserve_tag_ns, now_ns - reserve_overdue_max_ns(d, vm));
}

/*
 * For how long the VM, which has a reservation, has been due; < 0: it is not. What its running
 * threads will be charged for counts: of six that began together each would else find the VM due,
 * at the end of its slice, as long as few others were charged.
 */
static __always_inline s64 reserve_overdue_ns(struct vm *vm, u64 now_ns)
{
	u64 uncharged_ns = share_uncharged_ns(vm, now_ns);

	return (s64)(now_ns - vm->reserve_tag_ns - reserve_span_ns(vm, uncharged_ns));
}

/* Is the VM to be served before any by shares? */
static __always_inline bool reserve_is_due(struct vm *vm, u64 now_ns)
{
	return vm->reserve_inverse && reserve_overdue_ns(vm, now_ns) >= 0;
}

/*
 * When the VM, which has a reservation and waits, is due. What is uncharged takes it no further
 * ahead than it may be: it would wait for what it will never be charged, and nothing would correct
 * that.
 */
static __always_inline u64 reserve_due_ns(struct drover *d, struct vm *vm, u64 now_ns)
{
	return vm->reserve_tag_ns + reserve_step_ns(d, vm, share_uncharged_ns(vm, now_ns), now_ns);
}

/* --- charging, and where a VM stands --- */

/* The thread has run for so long since it was last charged: charge it and its VM, but for a part.
 */
static __always_inline void share_charge(struct drover *d, struct thread *t, u64 ran_ns,
					 u64 smt_discount_ns)
{
	struct vm *vm = vm_at(d, t->slot);
	u64 charged_ns = ran_ns - smt_discount_ns;
	u64 step_ns;

	ASSERT(smt_discount_ns <= ran_ns);
	t->charged_ns += ran_ns;
	step_ns = thread_is_task(t) ? charged_ns * 100 / (t->weight ?: 1) : charged_ns;
	t->vruntime_ns += step_ns;
	__sync_fetch_and_add(&vm->thread_clock_ns, step_ns / max_of(share_nr_awake(vm), 1));
	__sync_fetch_and_add(&vm->vtime_ns, share_weigh(vm, charged_ns));
	reserve_charge(d, vm, charged_ns);
	__sync_fetch_and_add(t->kind >= THREAD_HELPER ? &vm->counters.helper_run_ns :
							&vm->counters.vcpu_run_ns,
			     ran_ns);
	if (smt_discount_ns)
		__sync_fetch_and_add(&vm->counters.smt_discount_ns, smt_discount_ns);
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
		share_not_after(&vtime_ns,
				vm_at(d, first)->vtime_ns + share_offset_ns(d, first, domain));
	share_not_before(&domain_at(d, domain)->clock_ns, vtime_ns);
}

/* A thread of the VM ran there. Where no VM waits its time was free. */
static __always_inline void share_clock_pass(struct drover *d, u32 slot, u32 pcpu)
{
	u32 domain = pcpu_at(d, pcpu)->domain;

	if (share_own_domain(d, slot, domain) == domain && share_nobody_waits(d, domain))
		share_not_before(&domain_at(d, domain)->clock_ns, vm_at(d, slot)->vtime_ns);
}

/*
 * The thread goes on, as none comes before it. What it had while no sibling wanted it, it need not
 * wait for when one comes. Its VM may be owed as much as VMs are apart anyway, being charged late,
 * 32 ms of a VM of 1000 shares: one vCPU of 8000 shares is that far behind after every wait, and
 * would lose what it is owed by its own claim. One that waited lately keeps its claim, as one that
 * waits does.
 */
static __always_inline void share_keeps_on(struct drover *d, struct thread *t, u32 domain,
					   u64 now_ns)
{
	struct vm *vm = vm_at(d, t->slot);
	u64 apart_ns = d->params.claim_bound_ns * vm->shares / DROVER_SHARES_PER_VCPU;

	if (!vm->nr_waiting)
		share_lift_floor(vm, t);
	if ((s64)(now_ns - vm->waited_ns) > (s64)d->params.wait_bound_ns / 8)
		share_bound_claim(vm, share_own_clock_ns(d, t->slot, domain),
				  max_of(apart_ns, share_claim_max_ns(d, vm)));
}

/* The VM, which is served at last, is brought back to the clock, if it runs elsewhere. */
static __always_inline void share_forgive(struct drover *d, u32 slot, u32 domain)
{
	struct vm *vm = vm_at(d, slot);

	vm->counters.nr_starvation_boosts++;
	if (share_nr_running(vm))
		share_not_after(&vm->vtime_ns, share_own_clock_ns(d, slot, domain));
}

/* The VM that is first in the domain is held to its claim. */
static __always_inline void share_hold_first(struct drover *d, struct runqueue *rq, u32 domain)
{
	u32 first = tournament_slot(tournament_best(d, &rq->by_share));

	share_bound_claim(vm_at(d, first), share_own_clock_ns(d, first, domain),
			  share_claim_max_ns(d, vm_at(d, first)));
}

#endif

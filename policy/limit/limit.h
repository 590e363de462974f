/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Limits: the most CPU time a VM, or a pool of VMs, may have.
 *
 * Idea. A limit is a token bucket (bucket.h). Tokens are CPU time that may be used; they come at
 * the pace of the limit, and the bucket holds what comes in 100 ms. While there are tokens no VM is
 * held. When none are left the VM is held as a whole: it leaves the tournaments, and its threads
 * are preempted. It is let go when what comes in 2.5 ms has come. So a vCPU that waits for a lock
 * held by a sibling waits for a few ms. What a sibling that sleeps does not use, the others may.
 *
 * The promise: in any time T no more than limit x (T + 100 ms), the burst that was set beside
 * it (cpu.max.burst, which makes the bucket deeper), and what runs on until a timer or a kick is
 * heeded; that is paid back, so in the long run there is nothing too much at all.
 *
 * Each VM has its own timer (timer.h), set to when its tokens are used up if all that run go on,
 * or, while it is held, to when it may go on. A VM that does not run has none.
 *
 * Pools. What all VMs in and below a pool use is taken from a bucket of the pool. While that is
 * more than half full it alone counts: nothing has to be divided. Below that a VM may also use no
 * more than what it is owed now (allot.h), from a bucket of 10 ms. So a VM that is owed most of a
 * pCPU has it, although wider VMs could use all that the pool may have while it waits; and a VM
 * that wakes before the division is known anew takes its part from the half that is left.
 *
 * Worked example. Four vCPUs under 50 % that have slept for long: 50 ms of tokens. They run for
 * 14 ms, until these and the 7 that came meanwhile are used up; from then on they pause for 2.5 ms,
 * in which 1.25 come, and run for 0.36. A VM that works for 40 ms in each 100 is never held.
 *
 *     ms      0    5    10   15   20
 *     tokens  50   32   15   0    0
 *     runs    ##############   #  #
 *
 * Limitations. Just after rest a VM has up to twice its limit over 100 ms, as under the kernel's
 * quota. A limit under 20 % comes in runs as short as 0.1 ms for all vCPUs together: much of that
 * is switching. In a pool whose VMs come and go all the time what was dealt to one that sleeps now
 * is dealt anew only every 10 ms.
 *
 * Seed 000, 2.1 ("limit").
 */
#ifndef DROVER_LIMIT_H
#define DROVER_LIMIT_H

#include "base/order.h"
#include "base/timer.h"
#include "limit/bucket.h"
#include "limit/pool.h"
#include "partition/drain.h"
#include "place/gain.h"
#include "queue/waiting.h"

/* A bucket of what a VM is dealt in its pool holds what comes in so long. */
#define LIMIT_DEALT_DEPTH_NS 10000000ULL
/* A throttled VM runs again when it has the tokens of so long, or the least below, if that is more.
 */
#define LIMIT_PAUSE_NS 2500000ULL
#define LIMIT_START_MIN_NS 100000ULL
/* No VM is stopped for less than that, */
#define LIMIT_STEP_NS 25000ULL
/* or for so short a time that its threads are still on their way into queues when it is let go. */
#define LIMIT_PAUSE_MIN_NS 250000ULL
/* What is left to a VM without a limit of its own: more than can matter. */
#define LIMIT_NONE_NS 1000000000ULL
/* In a pool others use the same tokens, and what is dealt changes: so often it is looked at. */
#define LIMIT_SHARED_LOOK_NS 1000000ULL

static __always_inline struct limit *limit_of_vm(struct drover *d, u32 slot)
{
	return &d->limit[bounded(slot & (DROVER_MAX_VMS - 1), DROVER_LIMITS)];
}

static __always_inline struct limit *limit_of_pool(struct drover *d, u32 pool)
{
	return &d->limit[bounded(DROVER_MAX_VMS + pool, DROVER_LIMITS)];
}

/* The nearest pool above the VM that has a limit; 0: none. */
static __always_inline u32 limit_pool_above(struct vm *vm)
{
	return vm->capped ? vm->capped - 1 : 0;
}

/* The next pool above that one that has a limit; 0: none. */
static __always_inline u32 limit_next_above(struct drover *d, u32 pool)
{
	return pool_at(d, pool_existing(d, pool_at(d, pool)->parent))->capped_by;
}

/* --- what may be used --- */

static __always_inline u64 limit_ucpu(u32 mcpu)
{
	return (u64)mcpu * (BUCKET_PCPU_UCPU / 1000);
}

/* The bucket of a limit. It holds enough for a VM to be let go; no debt is larger than what it
 * holds. */
static __always_inline struct bucket limit_bucket(const struct limit *l, u32 mcpu)
{
	u64 ucpu = limit_ucpu(mcpu);
	u64 depth_ns = BUCKET_DEPTH_NS + bucket_price_ns(l->burst_us * 1000ULL, ucpu);

	depth_ns = max_of(depth_ns, bucket_price_ns(LIMIT_START_MIN_NS, ucpu));
	return (struct bucket){.ucpu = ucpu, .depth_ns = depth_ns, .debt_ns = depth_ns};
}

static __always_inline struct bucket limit_bucket_of_pool(struct drover *d, u32 pool)
{
	return limit_bucket(limit_of_pool(d, pool), pool_at(d, pool)->limit_mcpu);
}

/* The bucket of what the VM is dealt in its pool. */
static __always_inline struct bucket limit_dealt(struct vm *vm)
{
	u64 ucpu = vm->entitled_ucpu;
	u64 depth_ns = max_of(LIMIT_DEALT_DEPTH_NS, bucket_price_ns(LIMIT_START_MIN_NS, ucpu));

	return (struct bucket){.ucpu = ucpu, .depth_ns = depth_ns, .debt_ns = depth_ns};
}

/* What is left of the pool's limit. */
BPF_GLOBAL s64 limit_left_in_pool_ns(THE_DROVER, u32 pool, u64 now_ns)
{
	return bucket_left_ns(&limit_of_pool(d, pool)->paid_ns, limit_bucket_of_pool(d, pool),
			      now_ns);
}

/* What is left for the VM to use, of its own limit and of all above it. */
BPF_GLOBAL s64 limit_left_ns(THE_DROVER, u32 slot, u64 now_ns)
{
	struct vm *vm = vm_at(d, slot);
	struct limit *l = limit_of_vm(d, slot);
	s64 left_ns = (s64)LIMIT_NONE_NS;
	u32 pool = limit_pool_above(vm);
	bool scarce = false;
	u32 step;

	if (vm->asked.limit_mcpu)
		left_ns =
			bucket_left_ns(&l->paid_ns, limit_bucket(l, vm->asked.limit_mcpu), now_ns);
	for_each_index(step, 0, POOL_DEPTH_MAX) {
		s64 pool_left_ns;

		if (!pool)
			break;
		pool_left_ns = limit_left_in_pool_ns(d, pool, now_ns);
		scarce |= pool_left_ns < bucket_brings_ns(limit_ucpu(pool_at(d, pool)->limit_mcpu),
							  BUCKET_DEPTH_NS / 2);
		left_ns = min_signed(left_ns, pool_left_ns);
		pool = limit_next_above(d, pool);
	}
	/* While nothing is dealt the first VM to ask has it. */
	if (scarce && vm->entitled_ucpu)
		return min_signed(left_ns, bucket_left_ns(&l->dealt_ns, limit_dealt(vm), now_ns));
	/* What it used of plenty it does not owe the others later. */
	share_not_after(&l->dealt_ns, now_ns);
	return left_ns;
}

/* So much was used of the pool's limit. */
BPF_GLOBAL int limit_charge_pool(THE_DROVER, u32 pool, u64 used_ns, u64 now_ns)
{
	bucket_charge(&limit_of_pool(d, pool)->paid_ns, limit_bucket_of_pool(d, pool), used_ns,
		      now_ns);
	return 0;
}

/* What the VM used since that was last done is charged to its limit and to all pools above it. */
BPF_GLOBAL int limit_charge(THE_DROVER, u32 slot, u64 now_ns)
{
	struct vm *vm = vm_at(d, slot);
	struct limit *l = limit_of_vm(d, slot);
	/* A thread just being charged counts twice for a moment. */
	u64 used_ns = (u64)max_signed((s64)(share_used_ns(vm, now_ns) - l->seen_ns), 0);
	u32 pool = limit_pool_above(vm);
	u32 step;

	l->seen_ns += used_ns;
	/* A limit that it is given in its pool begins empty, and without debt. */
	if (vm->asked.limit_mcpu)
		bucket_charge(&l->paid_ns, limit_bucket(l, vm->asked.limit_mcpu), used_ns, now_ns);
	else
		l->paid_ns = now_ns;
	bucket_charge(&l->dealt_ns, limit_dealt(vm), used_ns, now_ns);
	for_each_index(step, 0, POOL_DEPTH_MAX) {
		if (!pool)
			break;
		limit_charge_pool(d, pool, used_ns, now_ns);
		pool = limit_next_above(d, pool);
	}
	return 0;
}

/* --- holding and letting go --- */

/* If a thread of the VM runs there, take the pCPU from it. */
static __always_inline void limit_stop_at(struct drover *d, u32 slot, u32 pcpu)
{
	if (pcpu_at(d, pcpu)->running_slot == slot)
		ground_preempt(d, bounded(pcpu, DROVER_MAX_PCPUS));
}

/*
 * Take their pCPUs from the threads of the VM, which is held: one that begins only now sees that.
 * vCPUs' records say where they run; if threads without one run, too, all pCPUs are asked.
 */
BPF_GLOBAL int limit_stop(THE_DROVER, u32 slot)
{
	struct vm *vm = vm_at(d, slot);
	u32 recorded = 0;
	u32 i;

	for_each_index(i, 0, vcpu_places(vm)) {
		struct vcpu *v = vcpu_in(d, slot, i);

		if (!v || v->state != VCPU_RUNNING)
			continue;
		limit_stop_at(d, slot, v->pcpu);
		recorded++;
	}
	if (recorded >= share_nr_running(vm))
		return 0;
	for_each_index(i, 0, d->params.nr_pcpus)
		limit_stop_at(d, slot, i);
	return 0;
}

/* May threads of the VM that wait in the pCPU's domain run there, as far as is known? */
static __always_inline bool limit_fits(struct drover *d, u32 slot, u32 at)
{
	u32 domain = pcpu_at(d, at)->domain;
	struct runqueue *rq = ground_runqueue(d, domain);

	if (!vm_at(d, slot)->nr_confined)
		return true;
	return rq && affinity_fits(d, entity_rq_of(rq, slot), domain, at);
}

/*
 * The VM, which is let go, has that pCPU look for its threads: if it is idle, or, asked for a busy
 * one, if its VM has had more than its due compared with it. True: so it is.
 */
BPF_GLOBAL bool limit_kick(THE_DROVER, u32 slot, u32 at, bool busy)
{
	struct vm *vm = vm_at(d, slot);
	struct pcpu *pcpu = pcpu_at(d, at);

	/* It asks in a moment, for another VM. */
	if (!order_is(pcpu, ORDER_NONE) || pcpu_is_idle(pcpu) == busy)
		return false;
	/* Threads of a confined VM may wait outside of its partition. */
	if (!vm->nr_confined && !partition_shares(d, vm->domain, pcpu->domain))
		return false;
	if (busy && (!limit_fits(d, slot, at) ||
		     gain_over_ns(d, slot, vm->vruntime_floor_ns, at, false) <= 0))
		return false;
	if (busy)
		ground_preempt(d, bounded(at, DROVER_MAX_PCPUS));
	else
		ground_kick(d, bounded(at, DROVER_MAX_PCPUS));
	order_give(pcpu, ORDER_WOKEN);
	return true;
}

/*
 * The VM is let go: have pCPUs look for its threads, as for threads that wake (gain.h). Idle ones
 * first; all of them if it is confined, because it is not known which queue of a pCPU its threads
 * are in. Then busy ones.
 */
BPF_GLOBAL int limit_unthrottle_kick(THE_DROVER, u32 slot)
{
	struct vm *vm = vm_at(d, slot);
	u32 first = domain_at(d, vm->domain)->first;
	u32 nr_pcpus = d->params.nr_pcpus;
	u32 left = vm->nr_waiting;
	u32 i;

	for_each_index(i, 0, 2 * nr_pcpus) {
		bool busy = i >= nr_pcpus;

		if (!left)
			break;
		if (limit_kick(d, slot, topology_listed(d, first + i), busy))
			left -= busy || !vm->nr_confined;
	}
	return 0;
}

/* The VM may run, or may not, from now on. */
static __always_inline void limit_hold(struct drover *d, u32 slot, bool hold, u64 now_ns)
{
	struct vm *vm = vm_at(d, slot);
	u32 before = vm->at_limit;

	if (before == hold)
		return;
	ASSERT(vm->capped || !hold);
	if (hold) {
		vm->hold.since_ns = now_ns;
	} else {
		vm->hold.before_ns = waiting_held_ns(vm, now_ns);
		/* What a limit keeps from a VM, it is not owed for ever. */
		share_bound_claim(vm, domain_at(d, vm->domain)->clock_ns, d->params.claim_bound_ns);
	}
	__sync_lock_test_and_set(&vm->at_limit, hold);
	waiting_settle_domains(d, slot);
	if (hold && share_nr_running(vm))
		limit_stop(d, slot);
	if (!hold)
		limit_unthrottle_kick(d, slot);
}

/* --- events --- */

/* The pace at which the VM's own tokens come, in millionths of a pCPU. */
static __always_inline u64 limit_pace_ucpu(struct drover *d, struct vm *vm)
{
	u64 ucpu = vm->asked.limit_mcpu ? limit_ucpu(vm->asked.limit_mcpu) : ~0ULL;
	u32 pool = limit_pool_above(vm);

	if (pool)
		ucpu = min_of(ucpu, vm->entitled_ucpu ?: limit_ucpu(pool_at(d, pool)->limit_mcpu));
	return max_of(ucpu, 1);
}

/* With so much the VM is let go. */
BPF_GLOBAL s64 limit_start_ns(THE_DROVER, u32 slot)
{
	struct vm *vm = vm_at(d, slot);

	return max_signed(bucket_brings_ns(limit_pace_ucpu(d, vm), LIMIT_PAUSE_NS),
			  LIMIT_START_MIN_NS);
}

/* When the VM must be looked at again, so much being left; 0: not before a thread begins. */
BPF_GLOBAL u64 limit_next_look_ns(THE_DROVER, u32 slot, s64 left_ns, u64 now_ns)
{
	struct vm *vm = vm_at(d, slot);
	u64 used_ucpu = share_nr_running(vm) * BUCKET_PCPU_UCPU;
	u64 comes_ucpu = limit_pace_ucpu(d, vm);
	u64 in_ns = ~0ULL;

	if (vm->at_limit) {
		u64 lacks_ns = (u64)max_signed(limit_start_ns(d, slot) - left_ns, 0);

		in_ns = lacks_ns * BUCKET_PCPU_UCPU / comes_ucpu;
		in_ns = max_of(min_of(in_ns, 2 * LIMIT_PAUSE_NS), LIMIT_PAUSE_MIN_NS);
		return now_ns + in_ns;
	}
	if (!used_ucpu)
		return 0;
	if (limit_pool_above(vm))
		in_ns = min_of(LIMIT_SHARED_LOOK_NS, (u64)left_ns / share_nr_running(vm));
	else if (used_ucpu > comes_ucpu)
		in_ns = (u64)left_ns * BUCKET_PCPU_UCPU / (used_ucpu - comes_ucpu);
	return in_ns == ~0ULL ? 0 : now_ns + in_ns;
}

/* Is so little left to the VM that it may not run? */
BPF_GLOBAL bool limit_holds(THE_DROVER, u32 slot, s64 left_ns, u64 now_ns)
{
	struct vm *vm = vm_at(d, slot);

	if (!vm->at_limit)
		return left_ns < (s64)LIMIT_STEP_NS;
	return left_ns < limit_start_ns(d, slot) || now_ns - vm->hold.since_ns < LIMIT_PAUSE_MIN_NS;
}

/* Hold the VM or let it go as its limits say. Its timer is busy with that. */
BPF_GLOBAL int limit_look(THE_DROVER, u32 slot, u64 now_ns)
{
	struct vm *vm = vm_at(d, slot);
	bool bound = vm->id && vm->capped;
	s64 left_ns = 0;
	u64 at_ns;

	if (bound) {
		limit_charge(d, slot, now_ns);
		left_ns = limit_left_ns(d, slot, now_ns);
	}
	limit_hold(d, slot, bound && limit_holds(d, slot, left_ns, now_ns), now_ns);
	at_ns = bound ? limit_next_look_ns(d, slot, left_ns, now_ns) : 0;
	if (at_ns)
		timer_by(d, slot, at_ns);
	return 0;
}

/* A thread of a VM under a limit begins to run. */
static __always_inline void limit_begin(struct drover *d, u32 slot, u64 now_ns)
{
	if (!timer_enter(timer_of(d, slot))) {
		/* The look that is under way may not have seen it run. */
		timer_by(d, slot, now_ns + TIMER_EARLY_NS);
		return;
	}
	limit_look(d, slot, now_ns);
	timer_leave(d, slot);
}

/* The VM's timer goes off. */
static __always_inline void limit_timer(struct drover *d, u32 slot, u64 now_ns)
{
	if (!timer_goes_off(d, slot, now_ns))
		return;
	if (vm_at(d, slot)->nr_parked)
		ground_drain(d, ground_parked_queue(d, slot), DRAIN_SLICE_NS);
	limit_look(d, slot, now_ns);
	timer_leave(d, slot);
}

/* --- settings --- */

/* The VM is under a limit from now on, or (0) under none. */
static __always_inline void limit_bind(struct drover *d, struct vm *vm, u32 capped)
{
	u32 before = __sync_lock_test_and_set(&vm->capped, capped);

	__sync_fetch_and_add(&d->nr_capped, (capped != 0) - (before != 0));
}

/* The VM is under no limit, and free to run. */
static __always_inline void limit_forget(struct drover *d, struct vm *vm)
{
	limit_bind(d, vm, 0);
	__sync_lock_test_and_set(&vm->at_limit, 0);
}

/*
 * The new owner of the limit has used nothing of it. Its bucket is empty: a VM that comes anew all
 * the time gains nothing by that.
 */
static __always_inline void limit_begin_anew(struct limit *l, u64 used_ns, u64 now_ns)
{
	l->paid_ns = now_ns;
	l->dealt_ns = now_ns;
	l->seen_ns = used_ns;
}

/* Limits may have changed: is the VM under one? Its timer holds it or lets it go. */
BPF_GLOBAL int limit_note(THE_DROVER, u32 slot)
{
	struct vm *vm = vm_at(d, slot);
	u32 above = pool_at(d, pool_existing(d, vm->asked.pool))->capped_by;
	u32 capped = vm->asked.limit_mcpu || above ? above + 1 : 0;
	u64 now_ns = ground_now_ns(d);

	/* What it used until now does not count. */
	if (capped && !vm->capped)
		limit_begin_anew(limit_of_vm(d, slot), share_used_ns(vm, now_ns), now_ns);
	if (capped || vm->capped)
		timer_by(d, slot, now_ns);
	limit_bind(d, vm, capped);
	return 0;
}

/* Pools have changed. */
static __always_inline void limit_note_all(struct drover *d)
{
	u32 i;

	for_each_index(i, 1, DROVER_MAX_POOLS) {
		if (!pool_existing(d, i) || !pool_at(d, i)->limit_mcpu)
			limit_begin_anew(limit_of_pool(d, i), 0, ground_now_ns(d));
	}
	for_each_index(i, 1, d->slots_in_use) {
		if (vm_at(d, i)->id)
			limit_note(d, i);
	}
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Limits: the most CPU time a VM, or a pool of VMs, may have.
 *
 * Idea. A VM under a limit has a bucket of tokens, CPU time that it may use. Tokens come every 2.5
 * ms (a bin): of its own limit at the pace of its window (limit_window.h); of a pool's limit as the
 * entitlement deals it out (entitle.h), because whoever is owed most of a pCPU must have it
 * although wider VMs could use all that the pool may have while it waits. When no tokens are left,
 * or no room in its window or in that of a pool above it, the VM is held: it leaves the
 * tournaments, and its threads are preempted. So it runs and pauses as a whole, and a vCPU that
 * waits for a lock held by a sibling waits for a few ms. What a sibling that sleeps does not use,
 * the others may.
 *
 * Each VM has its own timer (timer.h), set to when what is left is used up if all that run go on,
 * and to the next bin. A VM that does not run has none; a thousand that do not reach their limits
 * cost a look for each bin in which they run.
 *
 * Pools. What all VMs in and below a pool use is booked with a bucket and a window of the pool.
 * The entitlement already divides the limit among those who want it; the pool's own matter when
 * somebody wakes and the division is not known yet.
 *
 * Worked example. Four vCPUs under 50 %, busy for long: 1.25 ms come in each bin. They run for
 * 0.3 ms, and pause for 2.2. In a pool of 200 %, a VM of one vCPU that is owed 100 % and one of
 * four that is owed as much: in each bin the first runs throughout, the other for 0.6 ms.
 *
 *     ms    0     1     2     3     4     5
 *     one   ####################################
 *     four  ####           ####           ####
 *
 * What it is bad at. A limit under 20 % comes in runs as short as 0.1 ms for all vCPUs together:
 * much of that is switching. A timer that is late by 100 us lets a wide VM have so much more for
 * each vCPU, and it has less in the next bin. A pool whose VMs come and go all the time has some
 * per cent less than its limit: what was dealt to who sleeps now is dealt anew only every 10 ms.
 *
 * Seed 000, 2.1 ("limit"); token buckets after Turner 1986.
 */
#ifndef DROVER_LIMIT_H
#define DROVER_LIMIT_H

#include "base/timer.h"
#include "entitle/entitle.h"
#include "limit/limit_window.h"
#include "place/wake.h"

/* Tokens are kept for so many bins: a VM that waited for a pCPU may make up for it. */
#define LIMIT_SAVED_BINS 4
/* Nobody is let go for less than what comes in a bin, within these bounds. */
#define LIMIT_START_MIN_NS 100000ULL
#define LIMIT_START_MAX_NS 500000ULL
/* Nobody is stopped for less, */
#define LIMIT_STEP_NS 25000ULL
/* or for so short a time that its threads are still on their way into queues when it is let go. */
#define LIMIT_PAUSE_NS 250000ULL
/* In a pool others use the same room: so often it is looked at. */
#define LIMIT_SHARED_LOOK_NS 1000000ULL
/* Bins of different VMs begin at so many different moments. */
#define LIMIT_PHASES 16

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
	return pool_around(d, pool_at(d, pool))->capped_by;
}

/* The VM's bins begin so much earlier than others'. */
static __always_inline u64 limit_phase_ns(u32 slot)
{
	return slot % LIMIT_PHASES * (LIMIT_BIN_NS / LIMIT_PHASES);
}

/* --- what is left --- */

/* Book what the VM used with all pools above it. */
CHECKED_APART int limit_tell_pools(THE_DROVER, u32 slot, u64 used_ns)
{
	u32 pool = limit_pool_above(vm_at(d, slot));
	u32 step;

	for_each_index(step, 0, POOL_DEPTH_MAX) {
		if (!pool)
			break;
		__sync_fetch_and_add(&limit_of_pool(d, pool)->came_ns, used_ns);
		pool = limit_next_above(d, pool);
	}
	return 0;
}

/* So many bins have begun, and such tokens come in each. No debt is larger than that. */
static __always_inline void limit_earn(struct limit *l, u32 passed, u64 income_ns, u64 debt_max_ns)
{
	u64 most_ns = LIMIT_SAVED_BINS * income_ns;

	l->tokens_ns = most_signed(l->tokens_ns, -(s64)debt_max_ns);
	l->tokens_ns += (s64)(least_of(passed, LIMIT_SAVED_BINS) * income_ns);
	l->tokens_ns = least_signed(l->tokens_ns, (s64)most_of(most_ns, LIMIT_START_MAX_NS));
}

/* What is left of the pool's limit. While another pCPU updates it, only read it. */
static __always_inline s64 limit_pool_left_ns(struct drover *d, u32 pool, u64 now_ns)
{
	struct limit *l = limit_of_pool(d, pool);
	u32 mcpu = pool_at(d, pool)->limit_mcpu;

	if (!__sync_lock_test_and_set(&l->busy, 1)) {
		u64 came_ns = __sync_lock_test_and_set(&l->came_ns, 0);
		u32 passed = limit_go_to_bin(l, now_ns / LIMIT_BIN_NS);

		limit_book(l, came_ns);
		if (passed)
			limit_earn(l, passed, limit_pace_ns(l, mcpu), (u64)limit_window_ns(mcpu));
		__sync_lock_test_and_set(&l->busy, 0);
	}
	return least_signed(l->tokens_ns, limit_room_ns(l, mcpu)) - (s64)l->came_ns;
}

/* What is left for the VM to use, of its own limit and of all above it. */
CHECKED_APART s64 limit_left_ns(THE_DROVER, u32 slot, u64 now_ns)
{
	struct vm *vm = vm_at(d, slot);
	struct limit *l = limit_of_vm(d, slot);
	s64 left_ns = l->tokens_ns;
	u32 pool = limit_pool_above(vm);
	u32 step;

	if (vm->limit_mcpu)
		left_ns = least_signed(left_ns, limit_room_ns(l, vm->limit_mcpu));
	for_each_index(step, 0, POOL_DEPTH_MAX) {
		if (!pool)
			break;
		left_ns = least_signed(left_ns, limit_pool_left_ns(d, pool, now_ns));
		pool = limit_next_above(d, pool);
	}
	return left_ns;
}

/* Tokens come to the VM, so many bins having begun. */
static __always_inline void limit_earn_vm(struct vm *vm, struct limit *l, u32 passed)
{
	u64 income_ns = vm->limit_mcpu ? limit_pace_ns(l, vm->limit_mcpu) : ~0ULL;
	u64 debt_max_ns = (u64)limit_window_ns(vm->limit_mcpu);
	u64 dealt_ns = vm->entitled_ucpu * LIMIT_BIN_NS / ENTITLE_PCPU_UCPU;

	if (limit_pool_above(vm))
		income_ns = least_of(income_ns, dealt_ns);
	limit_earn(l, passed, income_ns, debt_max_ns ?: LIMIT_BINS * dealt_ns);
}

/* Book what the VM used since it was last looked at; tokens come if a bin has begun. */
CHECKED_APART int limit_settle(THE_DROVER, u32 slot, u64 now_ns)
{
	struct vm *vm = vm_at(d, slot);
	struct limit *l = limit_of_vm(d, slot);
	s64 used_ns = (s64)(share_used_ns(vm, now_ns) - l->seen_ns);
	u32 passed;

	/* A thread just being charged counts twice for a moment. */
	used_ns = most_signed(used_ns, 0);
	l->seen_ns += (u64)used_ns;
	limit_tell_pools(d, slot, (u64)used_ns);
	limit_book(l, (u64)used_ns);
	passed = limit_go_to_bin(l, (now_ns + limit_phase_ns(slot)) / LIMIT_BIN_NS);
	if (passed)
		limit_earn_vm(vm, l, passed);
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
CHECKED_APART int limit_stop(THE_DROVER, u32 slot)
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
	return rq && affinity_fits(d, books_of(rq, slot), domain, at);
}

/* Is the pCPU where threads of the VM wait? Those of a confined one may wait outside of its
 * partition. */
CHECKED_APART bool limit_is_near(THE_DROVER, u32 slot, u32 at)
{
	struct vm *vm = vm_at(d, slot);

	return vm->nr_confined || partition_shares(d, vm->domain, pcpu_at(d, at)->domain);
}

/*
 * The VM is let go: have pCPUs look for its threads, as for threads that wake (wake.h). Idle ones
 * first; all of them if it is confined, because nobody knows which queue of a pCPU its threads are
 * in. Then those whose VM has had more than its due compared with it.
 */
CHECKED_APART int limit_offer(THE_DROVER, u32 slot)
{
	struct vm *vm = vm_at(d, slot);
	u32 first = domain_at(d, vm->domain)->first;
	u32 nr_pcpus = d->params.nr_pcpus;
	bool confined = vm->nr_confined;
	u32 left = vm->nr_waiting;
	u32 i;

	for_each_index(i, 0, 2 * nr_pcpus) {
		u32 at = bounded(topology_listed(d, first + i), DROVER_MAX_PCPUS);
		bool idle = pcpu_is_idle(pcpu_at(d, at));

		if (!left)
			break;
		/* It asks in a moment, for somebody else. */
		if (pcpu_at(d, at)->order.why || !limit_is_near(d, slot, at))
			continue;
		if (i < nr_pcpus && idle) {
			ground_kick(d, at);
			left -= !confined;
		} else if (i >= nr_pcpus && !idle && limit_fits(d, slot, at) &&
			   wake_gain_ns(d, slot, vm->vruntime_floor_ns, at, false) > 0) {
			ground_preempt(d, at);
			left--;
		} else {
			continue;
		}
		pcpu_at(d, at)->order.why = ORDER_WOKEN;
	}
	return 0;
}

/* The VM may run, or may not, from now on. */
CHECKED_APART int limit_hold(THE_DROVER, u32 slot, bool hold, u64 now_ns)
{
	struct vm *vm = vm_at(d, slot);
	u32 before = vm->at_limit;

	if (before == hold)
		return 0;
	if (hold) {
		vm->at_limit_since_ns = now_ns;
	} else {
		vm->held_ns = waiting_held_ns(vm, now_ns);
		/* As one that wakes it waits for no round. */
		vm->woke_round = d->round;
		/* What a limit keeps from a VM, it is not owed for ever. */
		share_bound_claim(vm, *share_clock(d, vm->domain), d->params.claim_bound_ns);
	}
	__sync_lock_test_and_set(&vm->at_limit, hold);
	waiting_settle_domains(d, slot);
	if (hold && share_nr_running(vm))
		limit_stop(d, slot);
	if (!hold)
		limit_offer(d, slot);
	return 0;
}

/* --- events --- */

/* When the VM must be looked at again, so much being left; 0: not before a thread begins. */
static __always_inline u64 limit_next_look_ns(struct vm *vm, u32 slot, s64 left_ns, u64 now_ns)
{
	u64 in_bin_ns = (now_ns + limit_phase_ns(slot)) % LIMIT_BIN_NS;
	u64 in_ns = LIMIT_BIN_NS - in_bin_ns;
	u32 running = share_nr_running(vm);

	if (vm->at_limit)
		return most_of(now_ns + in_ns, vm->at_limit_since_ns + LIMIT_PAUSE_NS);
	if (!running)
		return 0;
	in_ns = least_of(in_ns, (u64)left_ns / running);
	if (limit_pool_above(vm))
		in_ns = least_of(in_ns, LIMIT_SHARED_LOOK_NS);
	return now_ns + in_ns;
}

/* Is so little left to the VM that it may not run? */
static __always_inline bool limit_holds(struct vm *vm, s64 left_ns, u64 now_ns)
{
	u64 comes_ns = vm->limit_mcpu ? vm->limit_mcpu * (LIMIT_BIN_NS / 1000) : LIMIT_START_MAX_NS;
	u64 start_ns = most_of(least_of(comes_ns, LIMIT_START_MAX_NS), LIMIT_START_MIN_NS);

	if (!vm->at_limit)
		return left_ns < (s64)LIMIT_STEP_NS;
	return left_ns < (s64)start_ns || now_ns - vm->at_limit_since_ns < LIMIT_PAUSE_NS;
}

/* Hold the VM or let it go as its limits say. Its timer is busy with that. */
CHECKED_APART int limit_look(THE_DROVER, u32 slot, u64 now_ns)
{
	struct vm *vm = vm_at(d, slot);
	s64 left_ns;
	u64 at_ns;

	if (!vm->id || !vm->capped) {
		limit_hold(d, slot, false, now_ns);
		return 0;
	}
	limit_settle(d, slot, now_ns);
	left_ns = limit_left_ns(d, slot, now_ns);
	limit_hold(d, slot, limit_holds(vm, left_ns, now_ns), now_ns);
	at_ns = limit_next_look_ns(vm, slot, left_ns, now_ns);
	if (at_ns)
		timer_by(d, slot, at_ns);
	return 0;
}

/* A thread of a VM under a limit begins to run. */
static __always_inline void limit_begin(struct drover *d, u32 slot, u64 now_ns)
{
	if (!timer_enter(timer_of(d, slot))) {
		/* Who looks just now may not have seen it run. */
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

/* Whose limit it is now has used nothing of it. */
static __always_inline void limit_begin_anew(struct limit *l, u64 used_ns)
{
	u32 i;

	for_each_index(i, 0, DROVER_LIMIT_BINS)
		l->bin_ns[bounded(i, DROVER_LIMIT_BINS)] = 0;
	l->bin = 0;
	l->window_ns = 0;
	l->tokens_ns = 0;
	l->came_ns = 0;
	l->seen_ns = used_ns;
}

/* Limits may have changed: is the VM under one? Its timer holds it or lets it go. */
CHECKED_APART int limit_note(THE_DROVER, u32 slot)
{
	struct vm *vm = vm_at(d, slot);
	u32 above = pool_at(d, pool_existing(d, vm->pool))->capped_by;
	u32 capped = vm->limit_mcpu || above ? above + 1 : 0;
	u64 now_ns = ground_now_ns(d);

	/* What it used until now does not count. */
	if (capped && !vm->capped)
		limit_begin_anew(limit_of_vm(d, slot), share_used_ns(vm, now_ns));
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
			limit_begin_anew(limit_of_pool(d, i), 0);
	}
	for_each_index(i, 1, d->slots_in_use) {
		if (vm_at(d, i)->id)
			limit_note(d, i);
	}
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Limits: the most CPU time a VM, or a pool of VMs, may have; in any 100 ms.
 *
 * Idea. When a limit is spent (limit_use.h) all VMs under it are held (limit_hold.h); when it has
 * tokens and room again, all are let go at once. So a VM runs and pauses as a
 * whole, some 400 times a second, and a vCPU that waits for a lock held by a sibling
 * at its limit waits for 2 to 4 ms, not for what is left of 100. What a sibling that
 * sleeps does not use is used by the others.
 *
 * Nothing happens between two events of the kernel by itself; so an alarm (alarm.h)
 * is set to when tokens will have come, or will be spent if all that run go on, and
 * anyway to a millisecond from now while anybody in a pool with a limit runs. A thread that
 * begins to run sets it to sooner if need be.
 *
 * A pool's limit is kept in the same way by the same record, of what all VMs in and
 * below it used; a VM is held while any of the limits above it is spent. But if all in a pool
 * ran at once and paused at once, pCPUs would rest in the pauses, and one vCPU that is owed
 * most of a pCPU could not make up for them. So as its tokens go, or the room in its record, a
 * pool is first *narrowed*, at half of what it is let go with: one VM goes on alone, one that
 * has lately had less than it is owed (entitle.h) before all others, else the least served.
 * At a quarter it is *low*: one goes on only if it is short, and no wider than the limit, so
 * that tokens come no slower than they go. The same steps lead up again. Who goes on is chosen
 * anew every millisecond, and when he sleeps. (Entitlement alone would hold a pool's limit in
 * the mean of a second, but neither on idle pCPUs nor in each 100 ms.)
 *
 * Of a thousand VMs under limits few matter at any moment: those whose own limit can turn
 * by then (limit_due.h), and those that run in a pool with a limit. All others are looked at
 * only when the limit of a pool turns.
 *
 * Worked example. A pool limited to 120 % on four pCPUs, with one busy vCPU that is owed 77 % and
 * VMs of two and three. Let go with 2.4 ms, all run: after 0.4 ms it is narrowed. Two
 * vCPUs of the least served then take 0.8 ms more than comes, for 0.75 ms, until it is low; and
 * now the one vCPU runs by itself, while 0.2 ms come for each ms. One pCPU is the pool's for
 * most of the time. (Of a VM's own limit: limit_use.h.)
 *
 * What it is bad at. It is as exact as pCPUs are quick to obey: where one notices an
 * interrupt a ms late a single 100 ms may have a run too much, and the caution learnt
 * from that costs some of the limit. Looking takes time itself, some 100 us in the lab; it is
 * kept to half of one pCPU, and comes late then. A pool has some 98.5 % of its limit: others
 * use its pauses, and to go up a step takes room in the record, which is there only after
 * less was used.
 *
 * Seed 000, 2.1 ("limit").
 */
#ifndef DROVER_LIMIT_H
#define DROVER_LIMIT_H

#include "limit/limit_hold.h"

/* In so long looking takes half the time at most. */
#define LIMIT_WINDOW_NS 10000000ULL

/* --- what is due --- */

/*
 * The VM is due: what it used, its own limit, and what follows. Returns when the alarm must go
 * off for it.
 */
CHECKED_APART u64 limit_visit(THE_DROVER, u32 slot, u64 now_ns)
{
	u64 *due_ns = limit_due_of(d, 0, slot);
	struct vm *vm = vm_at(d, slot);
	u64 at_ns = LIMIT_NO_ALARM;

	limit_due_take(due_ns);
	if (vm->state != VM_LIVE || !vm->capped) {
		limit_enforce(d, slot, now_ns);
		return LIMIT_NO_ALARM;
	}
	limit_begin_gathering(limit_of_vm(d, slot));
	limit_gather(d, slot, now_ns);
	if (vm->limit_mcpu)
		at_ns = limit_look_at(d, slot, vm->limit_mcpu, now_ns);
	limit_enforce(d, slot, now_ns);
	limit_due_by(due_ns, vm->capped_by && share_nr_running(vm) ? LIMIT_NEXT_ALARM : at_ns);
	return at_ns;
}

/* The same for a pool, when all VMs in it that run have been seen. */
CHECKED_APART u64 limit_visit_pool(THE_DROVER, u32 pool, u64 now_ns)
{
	u64 *due_ns = &d->limit_pool_due_ns[bounded(pool, DROVER_MAX_POOLS)];
	struct limit *l = limit_at(d, limit_of_pool(pool));

	if (l->state == LIMIT_SPENT && *due_ns > now_ns + ALARM_EARLY_NS)
		return *due_ns;
	if (l->state == LIMIT_OPEN && !l->running && !l->came_ns)
		return LIMIT_NO_ALARM;
	*due_ns = limit_look_at(d, limit_of_pool(pool), pool_at(d, pool)->limit_mcpu, now_ns);
	return *due_ns;
}

CHECKED_APART u64 limit_visit_group(THE_DROVER, u32 group, u64 now_ns);

/*
 * Visit those of a group that are due: VMs on level 1, groups of level 1 on level 2. Returns when
 * the alarm must go off for one.
 */
static __always_inline u64 limit_visit_due(struct drover *d, u32 level, u32 group, u64 now_ns)
{
	u64 *group_due_ns = limit_due_of(d, level, group);
	u64 alarm_ns = LIMIT_NO_ALARM;
	u64 first_ns = LIMIT_NO_ALARM;
	u32 first = group << DROVER_DUE_GROUP_BITS;
	u32 i;

	if (limit_due_read(group_due_ns) > now_ns + ALARM_EARLY_NS)
		return limit_due_read(group_due_ns);
	limit_due_take(group_due_ns);
	for_each_index(i, first, first + (1 << DROVER_DUE_GROUP_BITS)) {
		u64 due_ns = limit_due_read(limit_due_of(d, level - 1, i));
		u64 at_ns = due_ns;

		if (due_ns <= now_ns + ALARM_EARLY_NS) {
			at_ns = level == 1 ? limit_visit(d, i, now_ns) :
					     limit_visit_group(d, i, now_ns);
			due_ns = limit_due_read(limit_due_of(d, level - 1, i));
		}
		alarm_ns = least_of(at_ns, alarm_ns);
		first_ns = least_of(due_ns, first_ns);
	}
	limit_due_by(group_due_ns, first_ns);
	return alarm_ns;
}

CHECKED_APART u64 limit_visit_group(THE_DROVER, u32 group, u64 now_ns)
{
	return limit_visit_due(d, 1, group, now_ns);
}

CHECKED_APART u64 limit_visit_top_group(THE_DROVER, u32 group, u64 now_ns)
{
	return limit_visit_due(d, DROVER_DUE_LEVELS - 1, group, now_ns);
}

/* --- who goes on under a narrowed limit --- */

/* Could the VM go on, by what is left of each limit above it? */
CHECKED_APART bool limit_could_keep(THE_DROVER, u32 slot)
{
	struct vm *vm = vm_at(d, slot);
	u32 awake = share_nr_awake(vm);
	u32 pool = vm->capped_by;
	bool could = pool && awake && vm->state == VM_LIVE;
	u32 step;

	if (limit_own_is_spent(d, slot))
		return false;
	for_each_index(step, 0, POOL_DEPTH_MAX) {
		u32 state = limit_at(d, limit_of_pool(pool))->state;

		if (!pool || !could)
			break;
		if (state == LIMIT_LOW)
			could = vm->short_ns > 0 && awake <= pool_at(d, pool)->limit_mcpu / 1000;
		could = could && state != LIMIT_SPENT;
		pool = limit_next_above(d, pool);
	}
	return could;
}

/* Rather that VM than the other: it is short of what it is owed, or else the less served. */
static __always_inline bool limit_keeps_rather(struct vm *vm, struct vm *other)
{
	bool is_short = vm->short_ns > 0;

	if (is_short != (other->short_ns > 0))
		return is_short;
	return (s64)(vm->vtime_ns - other->vtime_ns) < 0;
}

/* The VM keeps its place under each narrowed limit above it where it comes first. */
CHECKED_APART int limit_keep(THE_DROVER, u32 slot)
{
	u32 pool = vm_at(d, slot)->capped_by;
	u32 step;

	if (!limit_could_keep(d, slot))
		return 0;
	for_each_index(step, 0, POOL_DEPTH_MAX) {
		struct limit *l = limit_at(d, limit_of_pool(pool));

		if (!pool)
			break;
		if (l->state != LIMIT_OPEN &&
		    (!l->keeper || limit_keeps_rather(vm_at(d, slot), vm_at(d, l->keeper))))
			l->keeper = slot;
		pool = limit_next_above(d, pool);
	}
	return 0;
}

/* Is somebody else to go on under that limit: the one chosen does not, or was a while ago? */
static __always_inline bool limit_lost_keeper(struct drover *d, struct limit *l, u64 now_ns)
{
	struct vm *vm = vm_at(d, l->keeper);

	if (l->state != LIMIT_NARROWED && l->state != LIMIT_LOW)
		return false;
	if (now_ns - d->kept_at_ns >= LIMIT_LOOK_NS)
		return true;
	return l->keeper && (!share_nr_awake(vm) || limit_own_is_spent(d, l->keeper));
}

/* Choose those who go on anew; hold and let go accordingly. */
static __always_inline void limit_choose(struct drover *d, u64 now_ns)
{
	u32 i;

	d->kept_at_ns = now_ns;
	for_each_index(i, 0, d->nr_pools_limited)
		limit_of_limited_pool(d, i)->keeper = 0;
	for_each_index(i, 1, d->slots_in_use)
		limit_keep(d, i);
	for_each_index(i, 1, d->slots_in_use)
		limit_enforce(d, i, now_ns);
}

/*
 * A look is over that began then; the next is due then. In each so many ns looking takes half of
 * one pCPU at most: one look after the other would leave nothing for that pCPU's other tasks.
 */
static __always_inline u64 limit_spare(struct drover *d, u64 begun_ns, u64 next_ns)
{
	if (begun_ns - d->look_window_ns >= LIMIT_WINDOW_NS) {
		d->look_window_ns = begun_ns;
		d->looked_ns = 0;
	}
	d->looked_ns += ground_now_ns(d) - begun_ns;
	if (d->looked_ns < LIMIT_WINDOW_NS / 2)
		return next_ns;
	return most_of(next_ns, d->look_window_ns + LIMIT_WINDOW_NS);
}

/* Look at all limits that are due and do what they ask. The alarm has gone off. */
static __always_inline void limit_look(struct drover *d, u64 now_ns)
{
	u64 begun_ns = ground_now_ns(d);
	u64 next_ns = LIMIT_NO_ALARM;
	bool turned = false;
	u32 i;

	d->let_go = 0;
	for_each_index(i, 0, d->nr_pools_limited)
		limit_begin_gathering(limit_of_limited_pool(d, i));
	for_each_index(i, 0, limit_due_top_groups(d))
		next_ns = least_of(limit_visit_top_group(d, i, now_ns), next_ns);
	for_each_index(i, 0, d->nr_pools_limited) {
		u32 pool = d->pool_limited[bounded(i, DROVER_MAX_POOLS)];
		u32 state = limit_at(d, limit_of_pool(pool))->state;

		next_ns = least_of(limit_visit_pool(d, pool, now_ns), next_ns);
		turned |= state != limit_at(d, limit_of_pool(pool))->state;
		turned |= limit_lost_keeper(d, limit_at(d, limit_of_pool(pool)), now_ns);
	}
	if (turned)
		limit_choose(d, now_ns);
	if (d->let_go)
		limit_offer(d, d->let_go, d->let_go_vtime_ns, now_ns);
	if (next_ns != LIMIT_NO_ALARM)
		alarm_at(d, most_of(limit_spare(d, begun_ns, next_ns), now_ns + LIMIT_STEP_NS));
}

/* --- events --- */

/* The first thread since it was settled begins: all of what was left is, and what came. */
static __always_inline void limit_begin_first(struct limit *l, u32 pace_mcpu, u64 now_ns)
{
	u64 idle_ns = now_ns - l->settled_ns;
	s64 come_ns = (s64)idle_ns > 0 ? (s64)(idle_ns * pace_mcpu / 1000) : 0;

	limit_begins(l, l->left_ns + least_signed(come_ns, l->more_ns), now_ns);
}

/*
 * One more thread runs under that limit. Returns when to look, before it can be overdrawn, as
 * tokens come at that pace.
 */
static __always_inline u64 limit_begin_at(struct limit *l, u32 pace_mcpu, u64 now_ns)
{
	u32 running = __sync_fetch_and_add(&l->running, 1) + 1;
	s64 left_ns;

	if (running == 1)
		limit_begin_first(l, pace_mcpu, now_ns);
	left_ns = l->begun_left_ns;
	return l->begun_ns +
	       limit_lasts_ns(left_ns, l->left_ns + l->more_ns - left_ns, running, pace_mcpu);
}

/* A thread of a VM under a limit begins to run. */
CHECKED_APART int limit_begin(THE_DROVER, u32 slot, u64 now_ns)
{
	struct limit *own = limit_of_vm(d, slot);
	struct vm *vm = vm_at(d, slot);
	u32 pool = vm->capped_by;
	u64 at_ns = now_ns + limit_look_ns(pool ? limit_of_pool(pool) : slot);
	bool in_pool = pool;
	u32 step;

	if (vm->limit_mcpu)
		at_ns = least_of(limit_begin_at(own, limit_pace_mcpu(own, vm->limit_mcpu), now_ns),
				 at_ns);
	for_each_index(step, 0, POOL_DEPTH_MAX) {
		if (!pool)
			break;
		at_ns = least_of(limit_begin_at(limit_at(d, limit_of_pool(pool)), 0, now_ns),
				 at_ns);
		pool = limit_next_above(d, pool);
	}
	/* Before the alarm: it may go off at once. */
	limit_watch(d, slot, in_pool ? LIMIT_NEXT_ALARM : at_ns);
	alarm_at(d, at_ns);
	return 0;
}

/* --- settings --- */

/* The VM is under no limit, and free to run. */
static __always_inline void limit_forget(struct drover *d, struct vm *vm)
{
	u32 capped = __sync_lock_test_and_set(&vm->capped, 0);
	u32 at_limit = __sync_lock_test_and_set(&vm->at_limit, 0);

	vm->capped_by = 0;
	__sync_fetch_and_sub(&d->nr_capped, capped);
	__sync_fetch_and_sub(&d->nr_at_limit, at_limit);
}

/* Limits may have changed: is the VM under one? It is held or let go by the alarm. */
CHECKED_APART int limit_note(THE_DROVER, u32 slot)
{
	struct vm *vm = vm_at(d, slot);
	u32 capped_by = pool_at(d, pool_existing(d, vm->pool))->capped_by;
	u32 capped = vm->limit_mcpu || capped_by;
	u32 before;

	/* What it used until now does not count; nobody looks at it before it is capped. */
	if (capped && !vm->capped)
		vm->limit_seen_ns = share_used_ns(vm, ground_now_ns(d));
	vm->capped_by = capped_by;
	before = __sync_lock_test_and_set(&vm->capped, capped);
	__sync_fetch_and_add(&d->nr_capped, capped - before);
	limit_watch(d, slot, LIMIT_NEXT_ALARM);
	if (capped || before)
		alarm_at(d, ground_now_ns(d));
	return 0;
}

/* Pools have changed. What was left of other limits says nothing of these: who begins looks. */
static __always_inline void limit_note_all(struct drover *d)
{
	u32 i;

	for_each_index(i, 1, DROVER_MAX_POOLS) {
		if (!pool_existing(d, i) || !pool_at(d, i)->limit_mcpu)
			limit_begin_anew(limit_at(d, limit_of_pool(i)));
	}
	for_each_index(i, 0, d->nr_pools_limited) {
		struct limit *l = limit_of_limited_pool(d, i);

		l->left_ns = 0;
		limit_begins(l, 0, l->settled_ns);
	}
	for_each_index(i, 1, d->slots_in_use) {
		if (vm_at(d, i)->state == VM_LIVE)
			limit_note(d, i);
	}
}

#endif

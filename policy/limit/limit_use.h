/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What is left of one limit, a VM's or a pool's.
 *
 * Idea. Two things say what may be used: tokens and savings (limit_tokens.h), at once; and the
 * record (limit_record.h), in 100 ms, less what is expected of those who stop late. When either is
 * used up the limit is *spent*. When 2 ms' worth of tokens have come, and the record has room, it
 * is open again. A pool's limit goes by steps: at half of that it is *narrowed*, at a quarter
 * *low* (what that means for VMs: limit.h), and the same steps lead up again.
 *
 * Worked example. Four vCPUs under 50 %, busy for long: they have savings, and the record is more
 * than half full. Tokens: 1 ms when they are let go. They run for 0.29 ms, and it is spent: the
 * record has 1.1 ms more of the 50.25 it may. 2 ms later it has 1 ms again. 44 times in 100 ms that
 * makes 50 ms; in some 100 ms that begin with a run it is one run more, and the record puts the
 * last one off.
 *
 * What it is bad at. Limits under 1 % come in runs of what 50 ms bring, and what one timer is
 * late for is more than 1 % of them.
 */
#ifndef DROVER_LIMIT_USE_H
#define DROVER_LIMIT_USE_H

#include "base/alarm.h"
#include "limit/limit_due.h"
#include "limit/limit_tokens.h"
#include "entitle/pool.h"
#include "share/share.h"

/* A pool's holds more: it goes up a step when there is room for one, so it is seldom full. */
#define LIMIT_POOL_MORE_US 300
/*
 * Where the record is full, such a part of that must fit in. Room comes in pieces, as what was used
 * 100 ms ago is forgotten: with an eighth each piece is a run of its own, with half of it a VM has
 * less than 99 % of its limit.
 */
#define LIMIT_ROOM_PART 4
/* Nobody is stopped or started for less than that. */
#define LIMIT_STEP_NS 50000ULL
/* Who stopped late is remembered for so many times. */
#define LIMIT_LEARN 16
/* While anybody runs, a pool's limit is looked at so often. */
#define LIMIT_LOOK_NS 1000000ULL
/* A VM's, which is looked at when it can be spent, at least so often. */
#define LIMIT_VM_LOOK_NS 20000000ULL

static __always_inline struct limit *limit_of_vm(struct drover *d, u32 slot)
{
	return &d->limit[bounded(slot & (DROVER_MAX_VMS - 1), DROVER_LIMITS)];
}

static __always_inline u32 limit_of_pool(u32 pool)
{
	return DROVER_MAX_VMS + pool;
}

static __always_inline struct limit *limit_at(struct drover *d, u32 index)
{
	return &d->limit[bounded(index, DROVER_LIMITS)];
}

/* The next pool above that one that has a limit; 0: none. */
static __always_inline u32 limit_next_above(struct drover *d, u32 pool)
{
	return pool_at(d, pool_at(d, pool)->in)->capped_by;
}

/* Is the VM's own limit spent, if it has one? */
static __always_inline bool limit_own_is_spent(struct drover *d, u32 slot)
{
	return vm_at(d, slot)->limit_mcpu && limit_of_vm(d, slot)->state == LIMIT_SPENT;
}

/* While anybody runs, it is looked at so often. */
static __always_inline u64 limit_look_ns(u32 index)
{
	return index < DROVER_MAX_VMS ? LIMIT_VM_LOOK_NS : LIMIT_LOOK_NS;
}

/* The limit of the i-th of the pools that have one. */
static __always_inline struct limit *limit_of_limited_pool(struct drover *d, u32 i)
{
	return limit_at(d, limit_of_pool(d->pool_limited[bounded(i, DROVER_MAX_POOLS)]));
}

/* What came was used until now, and is recorded. */
static __always_inline void limit_settle(struct limit *l, u32 index, u32 mcpu, u64 now_ns)
{
	u64 elapsed_ns = now_ns - l->settled_ns;

	/* Clocks of pCPUs differ by a little: what was recorded stays. */
	if ((s64)elapsed_ns < 0) {
		elapsed_ns = 0;
		now_ns = l->settled_ns;
	}
	limit_earn(l, index, mcpu, least_of(elapsed_ns, 1000000000));
	limit_spend(l, index, mcpu, l->came_ns);
	limit_record_until(l, l->came_ns, now_ns);
	l->came_ns = 0;
	l->settled_ns = now_ns;
}

/* What is expected of those who stop late, within reason: a quarter of what the record holds. */
static __always_inline u64 limit_late_ns(u64 late_ns, u32 mcpu)
{
	return least_of(late_ns, (u64)limit_record_max_ns(mcpu) / 4);
}

/* It was spent: so much was used by those who stopped late. Expect as much again. */
static __always_inline void limit_learn(struct limit *l, u32 mcpu)
{
	if (l->over_ns > l->late_ns)
		l->late_ns = limit_late_ns(l->over_ns, mcpu);
	else
		l->late_ns -= (l->late_ns - l->over_ns) / LIMIT_LEARN;
}

/* What must have come until somebody is let go again. */
static __always_inline s64 limit_needs_ns(struct limit *l, u32 index, u32 mcpu)
{
	s64 burst_ns = limit_burst_ns(mcpu);

	/* What was needed under a larger limit may be more than ever comes under this one. */
	if (index < DROVER_MAX_VMS)
		return least_signed(l->needs_ns, burst_ns);
	if (l->state == LIMIT_NARROWED)
		return burst_ns;
	return l->state == LIMIT_LOW ? burst_ns / 2 : burst_ns / 4;
}

/* What the record has room for, less what is expected of those who stop late. */
static __always_inline s64 limit_room_ns(struct limit *l, u32 index, u32 mcpu)
{
	s64 more_ns = index < DROVER_MAX_VMS ? 0 : (s64)mcpu * LIMIT_POOL_MORE_US;

	/* It may have been learnt under a larger limit. */
	return limit_record_max_ns(mcpu) + more_ns -
	       (s64)(l->recorded_ns + limit_late_ns(l->late_ns, mcpu));
}

/* With so much left somebody is to be held; a VM's threads are, when nothing is. */
static __always_inline s64 limit_floor_ns(struct limit *l, u32 index, u32 mcpu)
{
	s64 burst_ns = limit_burst_ns(mcpu);

	if (index < DROVER_MAX_VMS || l->state == LIMIT_LOW)
		return 0;
	return l->state == LIMIT_OPEN ? burst_ns / 2 : burst_ns / 4;
}

/* Room in the record that is worth a start. */
static __always_inline s64 limit_room_needs_ns(struct limit *l, u32 index, u32 mcpu)
{
	return index < DROVER_MAX_VMS ? limit_burst_ns(mcpu) / LIMIT_ROOM_PART :
					limit_needs_ns(l, index, mcpu);
}

/* It may let more of them go: the state that follows. */
static __always_inline void limit_rise(struct limit *l, u32 index, u32 mcpu)
{
	if (l->state == LIMIT_SPENT)
		limit_learn(l, mcpu);
	l->state = index < DROVER_MAX_VMS ? LIMIT_OPEN : l->state - 1;
}

/* What it has left has changed: the state that follows, if any does. */
static __always_inline void limit_turn(struct limit *l, u32 index, u32 mcpu, s64 room_ns)
{
	s64 burst_ns = limit_burst_ns(mcpu);

	if (l->state != LIMIT_SPENT && l->left_ns <= (s64)(l->running * LIMIT_STEP_NS)) {
		l->state = LIMIT_SPENT;
		l->saves = l->drawn_ns > 0;
		l->over_ns = 0;
		l->needs_ns = room_ns < l->tokens_ns ? burst_ns / LIMIT_ROOM_PART : burst_ns;
	} else if (l->state != LIMIT_OPEN && l->tokens_ns >= limit_needs_ns(l, index, mcpu) &&
		   room_ns >= limit_room_needs_ns(l, index, mcpu)) {
		limit_rise(l, index, mcpu);
	} else if (l->state < LIMIT_LOW && l->left_ns <= limit_floor_ns(l, index, mcpu)) {
		l->state++;
	}
}

/* When it can turn if all that run go on, or as tokens come and room does. */
static __always_inline u64 limit_turns_in_ns(struct limit *l, u32 index, u32 mcpu, s64 room_ns)
{
	s64 lacks_ns = limit_room_needs_ns(l, index, mcpu) - room_ns;
	s64 needs_ns = limit_needs_ns(l, index, mcpu);
	s64 floor_ns = limit_floor_ns(l, index, mcpu);
	/* A pool is looked at so often that what comes meanwhile need not count. */
	u32 pace_mcpu = index < DROVER_MAX_VMS ? limit_pace_mcpu(l, mcpu) : 0;
	s64 left_ns = l->left_ns;
	u64 in_ns = LIMIT_STEP_NS;

	if (l->state != LIMIT_SPENT && l->running) {
		if (left_ns > floor_ns)
			left_ns -= floor_ns;
		return least_of(limit_lasts_ns(left_ns, l->more_ns, l->running, pace_mcpu),
				limit_look_ns(index));
	}
	if (lacks_ns > 0)
		in_ns = limit_forgets_in_ns(l, lacks_ns);
	if (l->tokens_ns < needs_ns)
		in_ns = most_of(limit_earns_in_ns(l, mcpu, needs_ns - l->tokens_ns), in_ns);
	/* By then it has come for one who looks too early, too. */
	return in_ns + ALARM_EARLY_NS;
}

/* From then on, when so much was left, threads begin to run. */
static __always_inline void limit_begins(struct limit *l, s64 left_ns, u64 at_ns)
{
	l->begun_left_ns = left_ns;
	l->begun_ns = at_ns;
}

/* Note what may be used, and what that can grow by as tokens come. */
static __always_inline void limit_note_left(struct limit *l, u32 index, u32 mcpu, s64 room_ns)
{
	s64 max_ns = limit_savings_max_ns(index, mcpu);
	s64 left_ns = l->tokens_ns + limit_drawable_ns(l, mcpu, max_ns - l->drawn_ns, room_ns);
	s64 full_ns = 2 * limit_burst_ns(mcpu) + limit_drawable_ns(l, mcpu, max_ns, room_ns);

	l->left_ns = least_signed(left_ns, room_ns);
	l->more_ns = most_signed(least_signed(full_ns, room_ns) - l->left_ns, 0);
	limit_begins(l, l->left_ns, l->settled_ns);
}

/*
 * Bring a limit up to date. Returns when it must be looked at again, or LIMIT_NO_ALARM: not
 * before somebody begins to run.
 */
CHECKED_APART u64 limit_look_at(THE_DROVER, u32 index, u32 mcpu, u64 now_ns)
{
	struct limit *l = limit_at(d, index);
	s64 room_ns;

	if (l->state == LIMIT_SPENT)
		l->over_ns += l->came_ns;
	limit_settle(l, index, mcpu, now_ns);
	room_ns = limit_room_ns(l, index, mcpu);
	limit_note_left(l, index, mcpu, room_ns);
	limit_turn(l, index, mcpu, room_ns);
	if (l->state == LIMIT_OPEN && !l->running)
		return LIMIT_NO_ALARM;
	return now_ns + limit_turns_in_ns(l, index, mcpu, room_ns);
}

/* Whose limit it is now has used nothing of it, and nothing is known of it. */
static __always_inline void limit_begin_anew(struct limit *l)
{
	l->settled_ns = 0;
	l->tokens_ns = 0;
	l->recorded_ns = 0;
	l->left_ns = 0;
	l->more_ns = 0;
	limit_begins(l, 0, 0);
	l->drawn_ns = 0;
	l->needs_ns = 0;
	l->over_ns = 0;
	l->late_ns = 0;
	l->came_ns = 0;
	l->running = 0;
	l->ran = 0;
	l->state = LIMIT_OPEN;
	l->keeper = 0;
	l->oldest = l->next;
	l->saves = 0;
}

/* Those that run are counted anew. */
static __always_inline void limit_begin_gathering(struct limit *l)
{
	l->ran = l->running;
	l->running = 0;
}

static __always_inline void limit_add(struct limit *l, u64 came_ns, u32 running)
{
	l->came_ns += came_ns;
	/* Others begin meanwhile. */
	__sync_fetch_and_add(&l->running, running);
}

/* What the VM used since it was last looked at goes to all limits above it. */
CHECKED_APART int limit_gather(THE_DROVER, u32 slot, u64 now_ns)
{
	struct vm *vm = vm_at(d, slot);
	u32 running = share_nr_running(vm);
	u32 pool = vm->capped_by;
	u64 came_ns = share_used_ns(vm, now_ns) - vm->limit_seen_ns;
	u32 step;

	/* A thread just being charged counts twice for a moment. */
	if ((s64)came_ns < 0)
		came_ns = 0;
	vm->limit_seen_ns += came_ns;
	if (vm->limit_mcpu)
		limit_add(limit_of_vm(d, slot), came_ns, running);
	for_each_index(step, 0, POOL_DEPTH_MAX) {
		if (!pool)
			break;
		limit_add(limit_at(d, limit_of_pool(pool)), came_ns, running);
		pool = limit_next_above(d, pool);
	}
	return 0;
}

#endif

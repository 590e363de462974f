/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What is left of one limit, a VM's or a pool's.
 *
 * Idea. Two things are kept of each limit:
 *  - tokens: CPU time that may be used at once. They come at the rate of the limit,
 *    are spent by whatever runs, and do not pile up beyond what 4 ms bring;
 *  - a record of what was used in each of the last 201 half milliseconds, which is
 *    all that 100 ms can touch wherever they begin. Together they may hold what
 *    these 100.5 ms bring, less what is expected of those who stop late. When it is full, it
 *    is known when enough of it is forgotten: nobody looks before.
 * When either is used up the limit is *spent*. When 2 ms' worth of tokens have come, and the
 * record has room, it is open again. A pool's limit goes by steps: at half of that it is
 * *narrowed*, at a quarter *low* (what that means for VMs: limit.h), and the same steps lead up
 * again.
 *
 * Worked example. Four busy vCPUs under 50 %. Tokens: 1 ms when they are let go. They run for
 * 0.25 ms, and it is spent: the record has 1 ms more of the 50.25 ms it may. 2 ms later it has 1 ms
 * again. 44 times in 100 ms that makes 50 ms; in some 100 ms that begin with a run it is one run
 * more, and the record puts the last one off.
 *
 * What it is bad at. Limits under 0.5 % come in runs of what 50 ms bring, and what one timer is
 * late for is more than 1 % of them. What is used between two looks is recorded as late as it can
 * have been: a little of it is kept in mind for too long.
 *
 * After the leaky bucket (Turner 1986) and the sliding windows of rate limiters.
 */
#ifndef DROVER_LIMIT_USE_H
#define DROVER_LIMIT_USE_H

#include "alarm.h"
#include "limit_due.h"
#include "pool.h"
#include "share.h"

#define LIMIT_BIN_NS 500000ULL
/* As many bins as 100 ms touch, and what these may hold: what comes in as many, for each mcpu. */
#define LIMIT_BINS 201
#define LIMIT_RECORD_US ((s64)(LIMIT_BINS * LIMIT_BIN_NS / 1000))
/* A pool's holds more: it goes up a step when there is room for one, so it is seldom full. */
#define LIMIT_POOL_MORE_US 300
/* The tokens with which it is let go again: what so long brings, and at least so much. */
#define LIMIT_BURST_US 2000
#define LIMIT_LEAST_BURST_NS 500000
/*
 * Where the record is full, such a part of that must fit in. Room comes in pieces, as what was used
 * 100 ms ago is forgotten: with an eighth each piece is a run of its own, with half of it a VM has
 * less than 99 % of its limit.
 */
#define LIMIT_ROOM_PART 4
/* How many of its entries are looked at to know when it has room. */
#define LIMIT_FORESEEN 8
/* Nobody is stopped or started for less than that. */
#define LIMIT_STEP_NS 50000ULL
/* Who stopped late is remembered for so many times. */
#define LIMIT_LEARN 16
/* While anybody runs, a limit is looked at so often. */
#define LIMIT_LOOK_NS 1000000ULL

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

/* What the record may hold. */
static __always_inline s64 limit_record_max_ns(u32 mcpu)
{
	return (s64)mcpu * LIMIT_RECORD_US;
}

/* With how many tokens it is let go again. */
static __always_inline s64 limit_burst_ns(u32 mcpu)
{
	s64 burst_ns = (s64)mcpu * LIMIT_BURST_US;
	s64 half_ns = limit_record_max_ns(mcpu) / 2;

	if (burst_ns < LIMIT_LEAST_BURST_NS)
		burst_ns = LIMIT_LEAST_BURST_NS;
	return burst_ns < half_ns ? burst_ns : half_ns;
}

/* The limit of the i-th of the pools that have one. */
static __always_inline struct limit *limit_of_limited_pool(struct drover *d, u32 i)
{
	return limit_at(d, limit_of_pool(d->pool_limited[bounded(i, DROVER_MAX_POOLS)]));
}

static __always_inline u32 limit_bin(u64 time_ns)
{
	return (u32)(time_ns / LIMIT_BIN_NS);
}

static __always_inline struct limit_use *limit_recorded(struct limit *l, u32 entry)
{
	return &l->record[bounded(entry, DROVER_LIMIT_RECORD)];
}

/* What was used before the bins that 100 ms can touch, the last of which is `bin`, is forgotten. */
static __always_inline void limit_forget_before(struct limit *l, u32 bin)
{
	u32 entries = l->next - l->oldest;
	u32 i;

	for_each_index(i, 0, entries) {
		struct limit_use *oldest = limit_recorded(l, l->oldest);

		if (bin - oldest->bin < LIMIT_BINS)
			break;
		l->recorded_ns -= oldest->used_ns;
		l->oldest++;
	}
}

/* So much was used in that bin, the last one or a later one. */
static __always_inline void limit_record(struct limit *l, u32 bin, u32 used_ns)
{
	struct limit_use *newest = limit_recorded(l, l->next - 1);

	if (!used_ns)
		return;
	l->recorded_ns += used_ns;
	if (l->next != l->oldest && newest->bin == bin) {
		newest->used_ns += used_ns;
		return;
	}
	*limit_recorded(l, l->next) = (struct limit_use){.bin = bin, .used_ns = used_ns};
	l->next++;
}

/*
 * What came was used since it was settled; as late as so many threads can have: too late in the
 * record keeps too much in mind, never too little.
 */
static __always_inline void limit_record_until(struct limit *l, u64 now_ns)
{
	u32 bin = limit_bin(now_ns);
	u64 late_ns = l->came_ns;

	limit_forget_before(l, bin);
	if (limit_bin(l->settled_ns) != bin)
		late_ns = least_of(now_ns % LIMIT_BIN_NS * l->ran, l->came_ns);
	limit_record(l, bin - 1, (u32)(l->came_ns - late_ns));
	limit_record(l, bin, (u32)late_ns);
}

/* Tokens come and go, and what was used is recorded. */
static __always_inline void limit_settle(struct limit *l, u32 mcpu, u64 now_ns)
{
	s64 elapsed_ns = (s64)(now_ns - l->settled_ns);
	s64 most_ns = 2 * limit_burst_ns(mcpu);
	s64 debt_ns = limit_record_max_ns(mcpu);

	/* Clocks of pCPUs differ by a little: what was recorded stays. */
	if (elapsed_ns < 0) {
		elapsed_ns = 0;
		now_ns = l->settled_ns;
	}
	if (elapsed_ns > 1000000000)
		elapsed_ns = 1000000000;
	l->tokens_ns += elapsed_ns * mcpu / 1000;
	if (l->tokens_ns > most_ns)
		l->tokens_ns = most_ns;
	l->tokens_ns -= (s64)l->came_ns;
	if (l->tokens_ns < -debt_ns)
		l->tokens_ns = -debt_ns;
	limit_record_until(l, now_ns);
	l->came_ns = 0;
	l->settled_ns = now_ns;
}

/* It was spent: so much was used by those who stopped late. Expect as much again, within reason. */
static __always_inline void limit_learn(struct limit *l, u64 most_ns)
{
	if (l->over_ns > l->late_ns)
		l->late_ns = least_of(l->over_ns, most_ns);
	else
		l->late_ns -= (l->late_ns - l->over_ns) / LIMIT_LEARN;
}

/* What must have come until somebody is let go again. */
static __always_inline s64 limit_needs_ns(struct limit *l, u32 index, u32 mcpu)
{
	s64 burst_ns = limit_burst_ns(mcpu);

	/* What was needed under a larger limit may be more than ever comes under this one. */
	if (index < DROVER_MAX_VMS)
		return l->needs_ns < burst_ns ? l->needs_ns : burst_ns;
	if (l->state == LIMIT_NARROWED)
		return burst_ns;
	return l->state == LIMIT_LOW ? burst_ns / 2 : burst_ns / 4;
}

/* What the record has room for, less what is expected of those who stop late. */
static __always_inline s64 limit_room_ns(struct limit *l, u32 index, u32 mcpu)
{
	s64 more_ns = index < DROVER_MAX_VMS ? 0 : (s64)mcpu * LIMIT_POOL_MORE_US;

	return limit_record_max_ns(mcpu) + more_ns - (s64)(l->recorded_ns + l->late_ns);
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
		limit_learn(l, (u64)limit_record_max_ns(mcpu) / 4);
	l->state = index < DROVER_MAX_VMS ? LIMIT_OPEN : l->state - 1;
}

/* What it has left has changed: the state that follows, if any does. */
static __always_inline void limit_turn(struct limit *l, u32 index, u32 mcpu, s64 room_ns)
{
	s64 burst_ns = limit_burst_ns(mcpu);

	if (l->state != LIMIT_SPENT && l->left_ns <= (s64)(l->running * LIMIT_STEP_NS)) {
		l->state = LIMIT_SPENT;
		l->over_ns = 0;
		l->needs_ns = room_ns < l->tokens_ns ? burst_ns / LIMIT_ROOM_PART : burst_ns;
	} else if (l->state != LIMIT_OPEN && l->tokens_ns >= limit_needs_ns(l, index, mcpu) &&
		   room_ns >= limit_room_needs_ns(l, index, mcpu)) {
		limit_rise(l, index, mcpu);
	} else if (l->state < LIMIT_LOW && l->left_ns <= limit_floor_ns(l, index, mcpu)) {
		l->state++;
	}
}

/* In how long enough of the record is forgotten for so much more room, or a part of that. */
static __always_inline u64 limit_forgets_in_ns(struct limit *l, s64 lacks_ns)
{
	u32 bins = 1;
	u32 i;

	for_each_index(i, 0, LIMIT_FORESEEN) {
		struct limit_use *use = limit_recorded(l, l->oldest + i);

		if (lacks_ns <= 0 || l->oldest + i == l->next)
			break;
		lacks_ns -= use->used_ns;
		bins = use->bin + LIMIT_BINS - limit_bin(l->settled_ns);
	}
	return bins * LIMIT_BIN_NS - l->settled_ns % LIMIT_BIN_NS;
}

/* When it can turn if all that run go on, or as tokens come and room does. */
static __always_inline u64 limit_turns_in_ns(struct limit *l, u32 index, u32 mcpu, s64 room_ns)
{
	s64 lacks_ns = limit_room_needs_ns(l, index, mcpu) - room_ns;
	s64 needs_ns = limit_needs_ns(l, index, mcpu);
	s64 floor_ns = limit_floor_ns(l, index, mcpu);
	s64 left_ns = l->left_ns;
	u64 in_ns = LIMIT_STEP_NS;

	if (l->state != LIMIT_SPENT && l->running) {
		if (left_ns > floor_ns)
			left_ns -= floor_ns;
		return least_of((u64)left_ns / l->running, LIMIT_LOOK_NS);
	}
	if (lacks_ns > 0)
		in_ns = limit_forgets_in_ns(l, lacks_ns);
	if (l->tokens_ns < needs_ns)
		in_ns = most_of((u64)(needs_ns - l->tokens_ns) * 1000 / (mcpu ?: 1), in_ns);
	/* By then it has come for one who looks too early, too. */
	return in_ns + ALARM_EARLY_NS;
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
	limit_settle(l, mcpu, now_ns);
	room_ns = limit_room_ns(l, index, mcpu);
	l->left_ns = l->tokens_ns < room_ns ? l->tokens_ns : room_ns;
	limit_turn(l, index, mcpu, room_ns);
	if (l->state == LIMIT_OPEN && !l->running)
		return LIMIT_NO_ALARM;
	return now_ns + limit_turns_in_ns(l, index, mcpu, room_ns);
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
	l->running += running;
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

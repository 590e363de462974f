/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What was used of one limit in the last 100 ms, and at what pace the rest may be.
 *
 * Idea. Time is cut into bins of 2.5 ms. Any 100 ms touch 41 bins at most, so what was used in the
 * last 40 and what is in this one may together be 4 % more than a limit brings in 100 ms: then no
 * 100 ms has 5 % more, although who is told to stop does so a little later. How that is spread:
 *  - Who has used less than half of it has the rest of that half at once, unless it is in debt: a
 *    VM that works now and then runs its burst to the end.
 *  - Everybody else goes at the limit's pace, so that in the long run there is nothing too much at
 *    all; or, after a burst, at the largest even pace at which it never has to stop for longer than
 *    10 ms. In any k bins to come there is what is free now, and what was used in the k - 1 oldest,
 *    which are forgotten by then. The least of these, divided by k - 4, is that pace.
 *
 * Worked example. A limit of 100 %: 104 ms. A VM of four vCPUs wakes after long sleep and wants
 * all: 52 ms at once, that is for 13 ms. 52 are left, and nothing is forgotten for 35 bins:
 * 1.7 ms a bin, and a pause of 10 ms at the end. After 100 ms the burst is forgotten, and the pace
 * is 2.5 ms a bin from then on.
 *
 *     bins   0-5  6-10  ...  31-35  36-40  41-45  ...
 *     used   52   8     ...  8      2      12.5   ...
 *
 * What it is bad at. After a burst a VM that goes on has half of its limit for 100 ms. What is used
 * between two looks is booked in the bin that was current at the first.
 *
 * After the sliding windows of rate limiters; the pace is our own.
 */
#ifndef DROVER_LIMIT_WINDOW_H
#define DROVER_LIMIT_WINDOW_H

#include "base/ground.h"

#define LIMIT_BIN_NS 2500000ULL
/* As many bins as 100 ms touch, and what they may hold: what comes in so long. */
#define LIMIT_BINS 41
#define LIMIT_WINDOW_US 104000
/* At an even pace it may have to stop for so many. */
#define LIMIT_STOP_BINS 4

/* What the window may hold under a limit of so many thousandths of a pCPU. */
static __always_inline s64 limit_window_ns(u32 mcpu)
{
	return (s64)mcpu * LIMIT_WINDOW_US;
}

static __always_inline u32 *limit_bin(struct limit *l, u64 bin)
{
	return &l->bin_ns[bounded(bin, DROVER_LIMIT_BINS)];
}

/* So much more was used, in the bin that is current; never more at once than a bin can hold. */
static __always_inline void limit_book(struct limit *l, u64 used_ns)
{
	u32 *bin_ns = limit_bin(l, l->bin);

	*bin_ns += (u32)least_of(used_ns, (u32) ~*bin_ns);
	l->tokens_ns -= (s64)used_ns;
}

/* That bin is current. Returns how many have begun since the last one. */
static __always_inline u32 limit_go_to_bin(struct limit *l, u64 bin)
{
	/* A clock that was put back forgets all, as one does that leaps. */
	u32 passed = (u32)least_of(bin - l->bin, LIMIT_BINS);
	u32 i;

	for_each_index(i, 0, passed) {
		u32 *oldest_ns = limit_bin(l, l->bin + 1 - LIMIT_BINS);

		l->window_ns += *limit_bin(l, l->bin);
		l->window_ns -= *oldest_ns;
		*oldest_ns = 0;
		l->bin++;
	}
	l->bin = bin;
	return passed;
}

/* What there is room for. */
static __always_inline s64 limit_room_ns(struct limit *l, u32 mcpu)
{
	return limit_window_ns(mcpu) - (s64)(l->window_ns + *limit_bin(l, l->bin));
}

/* What may be used in the bin that begins. */
static __always_inline u64 limit_pace_ns(struct limit *l, u32 mcpu)
{
	s64 free_ns = limit_room_ns(l, mcpu);
	s64 half_ns = free_ns - limit_window_ns(mcpu) / 2;
	u64 pace_ns = mcpu * (LIMIT_BIN_NS / 1000);
	u32 k;

	if (half_ns > (s64)pace_ns && l->tokens_ns >= 0)
		return (u64)half_ns;
	for_each_index(k, 2, LIMIT_BINS + 1) {
		free_ns += *limit_bin(l, l->bin + k - 1 - LIMIT_BINS);
		if (k > LIMIT_STOP_BINS)
			pace_ns = least_of(pace_ns,
					   (u64)most_signed(free_ns, 0) / (k - LIMIT_STOP_BINS));
	}
	return pace_ns;
}

#endif

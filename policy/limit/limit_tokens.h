/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The pace of a limit: what may be used at once.
 *
 * Idea. Tokens are CPU time. They come at the rate of the limit, are spent by whatever runs, and do
 * not pile up beyond what 4 ms bring; so a VM that wants more than its limit runs often and
 * briefly. What would pile up beyond that a VM saves, up to what 30 ms bring in all. When its
 * tokens are spent it draws on these savings, and runs on: who uses less than half of its limit in
 * the mean, and no more than that at once, is not cut short. When they are spent, too, they are
 * not touched before all is saved again; and until then a third of what comes is saved. So after
 * a burst it goes on at two thirds of the pace, and does not stand still later because the
 * record (limit_record.h) is full.
 *
 * Worked example. Four vCPUs under 200 %, at rest until now: tokens of 8 ms, savings of 52, and 2
 * ms come in each. All four run for 25 ms; then the record of 201 ms is half full, 42 ms of savings
 * are drawn, and it is spent. From now on 1.33 ms come in each ms, and 0.67 are saved: of every
 * 4.5 ms all four run for 1.5. After 63 ms all is saved. Should they want no less, they run for
 * 2 ms of every 4 from then on.
 *
 * What it is bad at. Limits under 3 % save nothing: their tokens alone are what 30 ms bring. Who
 * uses more than half of its limit is cut into runs of some ms, and has no bursts, although it may
 * have much of them left.
 *
 * After the leaky bucket (Turner 1986), and a second one behind it as in dual-rate traffic
 * policers.
 */
#ifndef DROVER_LIMIT_TOKENS_H
#define DROVER_LIMIT_TOKENS_H

#include "limit/limit_record.h"

/* The tokens with which it is let go again: what so long brings, and at least so much. */
#define LIMIT_BURST_US 2000
#define LIMIT_LEAST_BURST_NS 500000
/* Tokens and savings of a VM together: what so long brings. */
#define LIMIT_SAVED_US 30000
/* While savings are lacking, such a part of what comes is saved. */
#define LIMIT_SAVED_PART 3

/* With how many tokens it is let go again. */
static __always_inline s64 limit_burst_ns(u32 mcpu)
{
	s64 burst_ns = most_signed((s64)mcpu * LIMIT_BURST_US, LIMIT_LEAST_BURST_NS);

	return least_signed(burst_ns, limit_record_max_ns(mcpu) / 2);
}

/* What can be saved up beside the tokens. A pool saves nothing: it goes by steps. */
static __always_inline s64 limit_savings_max_ns(u32 index, u32 mcpu)
{
	s64 max_ns = (s64)mcpu * LIMIT_SAVED_US - 2 * limit_burst_ns(mcpu);

	return index < DROVER_MAX_VMS ? most_signed(max_ns, 0) : 0;
}

/*
 * Tokens come; while savings are lacking, a part of them is saved. What comes while threads run
 * does not pile up: for as long as so many of them need for what they have used.
 */
static __always_inline void limit_earn(struct limit *l, u32 index, u32 mcpu, u64 elapsed_ns)
{
	u64 ran_ns = least_of(l->came_ns / (l->ran ?: 1), elapsed_ns);
	s64 most_ns = 2 * limit_burst_ns(mcpu) + (s64)(ran_ns * mcpu / 1000);
	/* More was drawn under a larger limit, maybe. */
	s64 lacking_ns = least_signed(l->drawn_ns, limit_savings_max_ns(index, mcpu));
	s64 come_ns = (s64)(elapsed_ns * mcpu / 1000);
	s64 save_ns = least_signed(come_ns / LIMIT_SAVED_PART, lacking_ns);

	l->tokens_ns += come_ns - save_ns;
	/* Who uses less than comes saves the rest. */
	if (l->tokens_ns > most_ns) {
		save_ns += l->tokens_ns - most_ns;
		l->tokens_ns = most_ns;
	}
	l->drawn_ns = most_signed(lacking_ns - save_ns, 0);
	if (!l->drawn_ns)
		l->saves = 0;
}

/* So much was used: tokens go, then what was saved up. */
static __always_inline void limit_spend(struct limit *l, u32 index, u32 mcpu, u64 used_ns)
{
	s64 savings_ns = limit_savings_max_ns(index, mcpu) - l->drawn_ns;

	l->tokens_ns -= (s64)used_ns;
	if (l->tokens_ns < 0 && savings_ns > 0 && !l->saves) {
		savings_ns = least_signed(savings_ns, -l->tokens_ns);
		l->drawn_ns += savings_ns;
		l->tokens_ns += savings_ns;
	}
	l->tokens_ns = most_signed(l->tokens_ns, -limit_record_max_ns(mcpu));
}

/*
 * What may be used of so large savings: as long as the record has room for half of what it holds,
 * so that pauses stay short until what is used now is forgotten.
 */
static __always_inline s64 limit_drawable_ns(struct limit *l, u32 mcpu, s64 savings_ns, s64 room_ns)
{
	s64 free_ns = room_ns - limit_record_max_ns(mcpu) / 2;

	return l->saves ? 0 : most_signed(least_signed(savings_ns, free_ns), 0);
}

/* At what pace tokens come that may be used. */
static __always_inline u32 limit_pace_mcpu(struct limit *l, u32 mcpu)
{
	return l->saves ? mcpu - mcpu / LIMIT_SAVED_PART : mcpu;
}

/*
 * How long what is left lasts if so many threads run; it grows meanwhile at that pace, by `more_ns`
 * at most.
 */
static __always_inline u64 limit_lasts_ns(s64 left_ns, s64 more_ns, u32 running, u32 pace_mcpu)
{
	s64 drain_mcpu = 1000 * (s64)running - pace_mcpu;
	u64 all_ns;

	if (left_ns <= 0)
		return 0;
	all_ns = (u64)(left_ns + more_ns) / running;
	return drain_mcpu > 0 ? least_of((u64)left_ns * 1000 / (u64)drain_mcpu, all_ns) : all_ns;
}

/* In how long so many tokens come, while savings are lacking and then. */
static __always_inline u64 limit_earns_in_ns(struct limit *l, u32 mcpu, s64 lacks_ns)
{
	s64 save_ns = least_signed(lacks_ns / (LIMIT_SAVED_PART - 1), l->drawn_ns);

	return (u64)(lacks_ns + save_ns) * 1000 / (mcpu ?: 1);
}

#endif

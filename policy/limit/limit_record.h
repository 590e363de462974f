/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What was used of one limit in the last 100 ms, and what may be.
 *
 * Idea. A record of what was used in each of the last 201 half milliseconds, which is all that
 * 100 ms can touch wherever they begin. Together they may hold what these 100.5 ms bring, so no
 * 100 ms has more. When the record is full, it is known when enough of it is forgotten: nobody
 * looks before.
 *
 * Worked example. Four vCPUs under 100 %, 100.5 ms in the record, run for 5 ms between two looks:
 * 2 ms in each of ten half milliseconds. 100.5 ms after they began there is room for 2 ms more than
 * now, 4.5 ms later for 20.
 *
 * What it is bad at. When a thread ran between two looks is not known: it is recorded as
 * late as it can have been, and a little of it is kept in mind for too long.
 *
 * After the sliding windows of rate limiters.
 */
#ifndef DROVER_LIMIT_RECORD_H
#define DROVER_LIMIT_RECORD_H

#include "base/ground.h"

#define LIMIT_BIN_NS 500000ULL
/* As many bins as 100 ms touch, and what these may hold: what comes in as many, for each mcpu. */
#define LIMIT_BINS 201
#define LIMIT_RECORD_US ((s64)(LIMIT_BINS * LIMIT_BIN_NS / 1000))
/* How many of its entries are looked at to know when it has room. */
#define LIMIT_FORESEEN 8

/* What the record may hold. */
static __always_inline s64 limit_record_max_ns(u32 mcpu)
{
	return (s64)mcpu * LIMIT_RECORD_US;
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
static __always_inline void limit_record(struct limit *l, u32 bin, u64 used_ns)
{
	struct limit_use *newest = limit_recorded(l, l->next - 1);

	if (!used_ns)
		return;
	if (l->next == l->oldest || newest->bin != bin) {
		newest = limit_recorded(l, l->next++);
		*newest = (struct limit_use){.bin = bin};
	}
	/* More than an entry holds was used only where nobody looked for long. */
	used_ns = least_of(used_ns, (u32)~newest->used_ns);
	newest->used_ns += (u32)used_ns;
	l->recorded_ns += used_ns;
}

/*
 * So much was used since it was settled; as late as so many threads can have: too late in the
 * record keeps too much in mind, never too little.
 */
static __always_inline void limit_record_until(struct limit *l, u64 used_ns, u64 now_ns)
{
	u32 bin = limit_bin(now_ns);
	u32 ran = l->ran ?: 1;
	u64 each_ns = LIMIT_BIN_NS * ran;
	u64 last_ns = now_ns % LIMIT_BIN_NS * ran;
	u64 bins = least_of(used_ns / each_ns + 1, bin - limit_bin(l->settled_ns));
	u32 i;

	limit_forget_before(l, bin);
	bins = least_of(bins, LIMIT_BINS - 1);
	/* The first bin takes what is too much for all that follow. */
	for_each_index(i, 0, bins + 1) {
		u64 back = bins - i;
		u64 later_ns = back ? last_ns + (back - 1) * each_ns : 0;

		if (used_ns <= later_ns)
			continue;
		limit_record(l, bin - (u32)back, used_ns - later_ns);
		used_ns = later_ns;
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

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Buckets: how much CPU time may be used now, at a pace that is set.
 *
 * Idea. A token bucket that is kept as one time, its tag: until when what was used is paid for. CPU
 * time costs as long as it would take to come at the pace, and moves the tag on by that. What may
 * be used now is what comes between the tag and now. The tag is at most `depth` behind now: that
 * much can be saved up; and at most `debt` ahead. So nothing has to be filled, no lock is needed
 * where several pCPUs use one bucket, and a vCPU's quota (quota.h), the limit of a VM, that of a
 * pool, and what a pool deals to a VM (limit.h) are one thing.
 *
 * Worked example. 50 % and a depth of 100 ms. After a long rest the tag is 100 ms ago: 50 ms may be
 * used. 20 ms are used, in 20 ms: they cost 40, and the tag is 100 + 20 - 40 = 80 ms ago: 40 ms.
 *
 *     ms         0     20    40    60    80    100
 *     tag       -100  -60   -20    20    60    100
 *     may use    50    40    30    20    10    0
 *
 * Limitations. When the pace changes, what is saved or owed stays as long, not as much CPU time.
 *
 * Turner 1986; as one time, "virtual scheduling": ITU-T I.371, the generic cell rate algorithm.
 */
#ifndef DROVER_BUCKET_H
#define DROVER_BUCKET_H

#include "base/types.h"

/* Paces are in millionths of a pCPU. */
#define BUCKET_PCPU_UCPU 1000000ULL
/* What one limit or quota brings in so long may be saved up: the period of the kernel's quota. */
#define BUCKET_DEPTH_NS 100000000ULL
/* What is used at once is no more than that, 73 minutes: its price stays within 64 bits. */
#define BUCKET_USED_MAX_NS (1ULL << 42)

struct bucket {
	u64 ucpu;
	u64 depth_ns;
	u64 debt_ns;
};

/* What comes in so long. */
static __always_inline s64 bucket_brings_ns(u64 ucpu, u64 in_ns)
{
	return (s64)(ucpu * (in_ns / 1000) / (BUCKET_PCPU_UCPU / 1000));
}

/* How long so much CPU time takes to come. */
static __always_inline u64 bucket_price_ns(u64 cpu_ns, u64 ucpu)
{
	return cpu_ns * BUCKET_PCPU_UCPU / (ucpu ?: 1);
}

/* The tag is within the bucket's bounds. Of pCPUs that do this at once the later one finds it so.
 */
static __always_inline void bucket_bound(u64 *tag, struct bucket bucket, u64 now_ns)
{
	u64 tag_ns = *(volatile u64 *)tag;

	if ((s64)(now_ns - bucket.depth_ns - tag_ns) > 0)
		__sync_val_compare_and_swap(tag, tag_ns, now_ns - bucket.depth_ns);
	else if ((s64)(tag_ns - now_ns - bucket.debt_ns) > 0)
		__sync_val_compare_and_swap(tag, tag_ns, now_ns + bucket.debt_ns);
}

/* So much was used since that was last said. What came meanwhile pays for it, however much. */
static __always_inline void bucket_charge(u64 *tag, struct bucket bucket, u64 used_ns, u64 now_ns)
{
	if (used_ns)
		__sync_fetch_and_add(
			tag, bucket_price_ns(min_of(used_ns, BUCKET_USED_MAX_NS), bucket.ucpu));
	bucket_bound(tag, bucket, now_ns);
}

/* What may be used now; below 0: so much too much was. */
static __always_inline s64 bucket_left_ns(const u64 *tag, struct bucket bucket, u64 now_ns)
{
	s64 since_ns = (s64)(now_ns - *(volatile const u64 *)tag);

	if (since_ns < 0)
		return -bucket_brings_ns(bucket.ucpu, (u64)-since_ns);
	return bucket_brings_ns(bucket.ucpu, min_of((u64)since_ns, bucket.depth_ns));
}

#endif

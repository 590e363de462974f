/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Log-linear histogram index: 32 sub-buckets for each power of two, so that a bucket is never wider
 * than 1/32 of its value. 0..63 ns have a bucket each; 64 and 65 share bucket 64; 1,000 ns is
 * 0b1111101000: five bits below the top one kept, shift 4, bucket 4 * 32 + (1000 >> 4) = 190.
 * The same function as drover_core::histogram; a test compares the two.
 */
#ifndef DROVER_GUEST_HISTOGRAM_H
#define DROVER_GUEST_HISTOGRAM_H

#include "layout.h"

static inline uint32_t histogram_index(uint64_t value_ns)
{
	uint32_t top_bit, shift;
	uint64_t index;

	if (value_ns < (1u << HISTOGRAM_SUB_BITS))
		return (uint32_t)value_ns;
	top_bit = 63u - (uint32_t)__builtin_clzll(value_ns);
	shift = top_bit - HISTOGRAM_SUB_BITS;
	index = ((uint64_t)shift << HISTOGRAM_SUB_BITS) + (value_ns >> shift);
	return index < HISTOGRAM_BUCKETS ? (uint32_t)index : HISTOGRAM_BUCKETS - 1;
}

#endif

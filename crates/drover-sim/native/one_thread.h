/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The policy's atomic operations, for a host that one thread simulates.
 *
 * In a simulation every callback is one moment, and its state is no other thread's: plain
 * arithmetic does what a locked instruction does, at a twentieth of the time. To be included
 * before the policy.
 */
#ifndef DROVER_SIM_ONE_THREAD_H
#define DROVER_SIM_ONE_THREAD_H

#define __sync_fetch_and_add(at, by)                       \
	({                                                 \
		__typeof__(at) __at = (at);                \
		__typeof__(*__at) __was = *__at;           \
		*__at = (__typeof__(*__at))(__was + (by)); \
		__was;                                     \
	})
#define __sync_fetch_and_sub(at, by) __sync_fetch_and_add(at, -(by))
#define __sync_lock_test_and_set(at, to)         \
	({                                       \
		__typeof__(at) __at = (at);      \
		__typeof__(*__at) __was = *__at; \
		*__at = (to);                    \
		__was;                           \
	})
#define __sync_val_compare_and_swap(at, expected, to) \
	({                                            \
		__typeof__(at) __at = (at);           \
		__typeof__(*__at) __was = *__at;      \
		if (__was == (expected))              \
			*__at = (to);                 \
		__was;                                \
	})

#endif

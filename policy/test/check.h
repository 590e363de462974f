/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Checks, and the runner of the tests in one file.
 *
 * A test is a function; RUN() runs it and counts it. A CHECK that does not hold
 * says where and with which values, and ends its test; the next test runs. The
 * random numbers of a test depend on the environment's SEED and the test's
 * name only, so that one test can be run again alone (ONLY=name).
 */
#ifndef DROVER_TEST_CHECK_H
#define DROVER_TEST_CHECK_H

#include <inttypes.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern struct check {
	jmp_buf end_of_test;
	uint64_t seed;
	uint64_t random;
	unsigned passed;
	unsigned failed;
} check;

/* The next random number. */
uint64_t check_random(void);
/* A random number of [low, high]. */
uint32_t check_random_in(uint32_t low, uint32_t high);
bool check_chance(uint32_t percent);

_Noreturn void check_fail(void);

#define CHECK_SAYING(holds, ...)                                     \
	do {                                                         \
		if (!(holds)) {                                      \
			printf("%s:%d: ", __FILE__, __LINE__);       \
			printf(__VA_ARGS__);                         \
			printf(" (SEED=%" PRIu64 ")\n", check.seed); \
			check_fail();                                \
		}                                                    \
	} while (0)

#define CHECK(holds) CHECK_SAYING(holds, "not so: %s", #holds)

#define CHECK_EQ(got, want)                                                            \
	do {                                                                           \
		uint64_t __got = (uint64_t)(got), __want = (uint64_t)(want);           \
		CHECK_SAYING(__got == __want, "%s is %" PRId64 ", not %" PRId64, #got, \
			     (int64_t)__got, (int64_t)__want);                         \
	} while (0)

#define CHECK_NEAR(got, want, tolerance)                                                          \
	do {                                                                                      \
		double __got = (double)(got), __want = (double)(want);                            \
		double __off = __got > __want ? __got - __want : __want - __got;                  \
		CHECK_SAYING(__off <= (double)(tolerance), "%s is %g, not %g +- %g", #got, __got, \
			     __want, (double)(tolerance));                                        \
	} while (0)

void check_run(const char *name, void (*test)(void));
#define RUN(test) check_run(#test, test)

/* To be returned by main. */
int check_done(void);

#endif

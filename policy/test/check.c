// SPDX-License-Identifier: GPL-2.0-only
#include "check.h"

struct check check;

/* splitmix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators" (2014). */
uint64_t check_random(void)
{
	uint64_t z = check.random += 0x9e3779b97f4a7c15ULL;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}

uint32_t check_random_in(uint32_t low, uint32_t high)
{
	return low + (uint32_t)(check_random() % ((uint64_t)high - low + 1));
}

bool check_chance(uint32_t percent)
{
	return check_random_in(1, 100) <= percent;
}

void check_fail(void)
{
	longjmp(check.end_of_test, 1);
}

static void begin(const char *name)
{
	const char *seed = getenv("SEED");

	check.seed = seed && *seed ? strtoull(seed, NULL, 0) : 1;
	check.random = check.seed;
	for (; *name; name++)
		check.random = check.random * 31 + (uint64_t)(unsigned char)*name;
}

void check_run(const char *name, void (*test)(void))
{
	const char *only = getenv("ONLY");

	if (only && *only && strcmp(only, name))
		return;
	begin(name);
	if (setjmp(check.end_of_test)) {
		printf("FAILED %s\n", name);
		check.failed++;
		return;
	}
	test();
	check.passed++;
}

int check_done(void)
{
	printf("%u passed, %u failed\n", check.passed, check.failed);
	return check.failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

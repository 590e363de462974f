// SPDX-License-Identifier: GPL-2.0-only
/* The policy that docs/write-a-policy.md shows: the Makefile takes it from there. */
#include "fake_kernel.h"
#include "fifo.h"

static void who_came_first_is_first_and_nobody_preempts(void)
{
	CHECK(fifo_key(2, 3 * MS) < fifo_key(1, 5 * MS));
	CHECK_EQ(fifo_gain(), 0);
}

int main(void)
{
	RUN(who_came_first_is_first_and_nobody_preempts);
	return check_done();
}

// SPDX-License-Identifier: GPL-2.0-only
/* How fast pCPUs are asked to run: policy/place/speed.h. */
#include "fake_kernel.h"

static struct ground *g;

/* One that works so long, and sleeps so long, again and again. */
static void works(u64 burst_ns, u64 sleep_ns)
{
	struct task_struct *task = kernel_thread(g, 1, THREAD_VCPU);

	task->burst_ns = task->burst_left_ns = burst_ns;
	task->sleep_ns = sleep_ns;
	kernel_wake(g, task);
}

/* The essay's worked example. */
static void a_pcpu_is_asked_for_five_quarters_of_what_it_uses(void)
{
	g = fake_ground(1, 1);
	works(MS, 9 * MS);
	kernel_run(g, SECOND);
	CHECK_NEAR(g->speed[0], 1024 / 8, SPEED_STEP);
	kernel_run(g, SECOND);
	CHECK_NEAR(g->speed[0], 1024 / 8, SPEED_STEP);
}

static void who_computes_on_has_full_speed_within_two_ticks(void)
{
	g = fake_ground(1, 1);
	works(100 * SECOND, 0);
	kernel_run(g, 8 * MS + US);
	CHECK_EQ(g->speed[0], 1024);
	kernel_run(g, SECOND);
	CHECK_EQ(g->speed[0], 1024);
}

static void half_of_the_time_is_five_eighths_of_the_speed(void)
{
	u32 least = 1024, most = 0;

	g = fake_ground(1, 1);
	works(500 * US, 500 * US);
	kernel_run(g, 100 * MS);
	for (u32 i = 0; i < 200; i++) {
		kernel_run(g, 5 * MS);
		least = (u32)min_of(least, g->speed[0]);
		most = (u32)max_of(most, g->speed[0]);
	}
	CHECK(least >= 640 - 2 * SPEED_STEP && most <= 640 + 2 * SPEED_STEP);
}

/* The kernel begins with full speed. */
static void a_pcpu_that_is_hardly_used_is_slowed_down(void)
{
	g = fake_ground(1, 1);
	CHECK_EQ(g->speed[0], 1024);
	works(100 * US, 10 * MS);
	kernel_run(g, SECOND);
	CHECK(g->speed[0] < 2 * SPEED_STEP);
}

int main(void)
{
	RUN(a_pcpu_is_asked_for_five_quarters_of_what_it_uses);
	RUN(who_computes_on_has_full_speed_within_two_ticks);
	RUN(half_of_the_time_is_five_eighths_of_the_speed);
	RUN(a_pcpu_that_is_hardly_used_is_slowed_down);
	return check_done();
}

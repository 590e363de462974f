// SPDX-License-Identifier: GPL-2.0-only
/* The most that each vCPU may have: policy/limit/quota.h. */
#include "fake_kernel.h"

static struct ground *g;

static void quota(u32 tgid, u32 mcpu, u32 burst_us)
{
	struct vm *vm = kernel_vm(g, tgid);
	struct vm_order order = {
		.slot = g->slot_of[tgid],
		.vm_id = vm->id,
		.asked.vcpu_limit_mcpu = mcpu,
		.asked.vcpu_burst_us = burst_us,
	};

	CHECK(order_vm(&g->d, &order));
}

/* A vCPU that works for so long, and sleeps for so long. */
static struct task_struct *vcpu(u32 tgid, u64 burst_ns, u64 sleep_ns)
{
	struct task_struct *task = kernel_thread(g, tgid, THREAD_VCPU);

	task->burst_ns = task->burst_left_ns = burst_ns;
	task->sleep_ns = sleep_ns;
	kernel_wake(g, task);
	return task;
}

static u32 permille(struct task_struct *task, u64 before_ns, u64 of_ns)
{
	return (u32)((task->cpu_time_ns - before_ns) * 1000 / of_ns);
}

/* Two busy ones and one that sleeps, under 50 % each: the sum of all had them run for 74 and 77. */
static void each_vcpu_has_its_own(void)
{
	struct task_struct *busy[2], *light;
	u64 before_ns[2];

	g = fake_ground(2, 1);
	for (u32 i = 0; i < 2; i++)
		busy[i] = vcpu(1, NEVER / 2, 0);
	light = vcpu(1, MS / 5, 2 * MS);
	quota(1, 500, 0);
	kernel_run(g, SECOND);
	for (u32 i = 0; i < 2; i++)
		before_ns[i] = busy[i]->cpu_time_ns;
	kernel_run(g, 4 * SECOND);
	for (u32 i = 0; i < 2; i++)
		CHECK_NEAR(permille(busy[i], before_ns[i], 4 * SECOND), 500, 10);
	CHECK(permille(light, 0, 5 * SECOND) > 60);
	CHECK(kernel_vm(g, 1)->counters.limited_ns > 3 * SECOND);
}

/* Beside another VM, too, that has what is left. */
static void it_holds_beside_others(void)
{
	for (u32 mcpu = 100; mcpu <= 900; mcpu += 400) {
		struct task_struct *busy[2];

		g = fake_ground(2, 1);
		for (u32 i = 0; i < 2; i++)
			busy[i] = vcpu(1, NEVER / 2, 0);
		kernel_busy_vm(g, 2, 2, 0);
		quota(1, mcpu, 0);
		kernel_run(g, 8 * SECOND);
		for (u32 i = 0; i < 2; i++)
			CHECK_NEAR(permille(busy[i], 0, 8 * SECOND), min_of(mcpu, 500), 25);
		CHECK_NEAR(kernel_cpu_time_ns(g, 1) + kernel_cpu_time_ns(g, 2), 16 * SECOND,
			   10 * MS);
	}
}

static void who_stays_below_is_never_parked(void)
{
	struct task_struct *task;

	g = fake_ground(2, 1);
	task = vcpu(1, 40 * MS, 60 * MS);
	quota(1, 500, 0);
	kernel_run(g, 5 * SECOND);
	CHECK_EQ(kernel_vm(g, 1)->counters.limited_ns, 0);
	CHECK_NEAR(permille(task, 0, 5 * SECOND), 400, 10);
	/* 200 ms of work each 500 ms are within 50 % over 500 ms. */
	g = fake_ground(2, 1);
	task = vcpu(1, 200 * MS, 300 * MS);
	quota(1, 500, 200000);
	kernel_run(g, 5 * SECOND);
	CHECK_EQ(kernel_vm(g, 1)->counters.limited_ns, 0);
	CHECK_NEAR(permille(task, 0, 5 * SECOND), 400, 10);
}

static void who_is_parked_goes_on_without_a_quota(void)
{
	struct task_struct *task;
	u64 before_ns;

	g = fake_ground(1, 1);
	task = vcpu(1, NEVER / 2, 0);
	quota(1, 10, 0);
	kernel_run(g, SECOND);
	while (!task->thread.parked_until_ns)
		kernel_run(g, MS);
	CHECK_EQ(kernel_vm(g, 1)->nr_parked, 1);
	quota(1, 0, 0);
	before_ns = task->cpu_time_ns;
	kernel_run(g, 100 * MS);
	CHECK_EQ(kernel_vm(g, 1)->nr_parked, 0);
	CHECK(task->cpu_time_ns - before_ns > 98 * MS);
}

/* Moved while it is parked it stays so, and is counted once. */
static void who_is_moved_stays_parked(void)
{
	struct task_struct *task;
	u64 until_ns;

	g = fake_ground(2, 1);
	task = vcpu(1, NEVER / 2, 0);
	quota(1, 10, 0);
	while (!task->thread.parked_until_ns)
		kernel_run(g, MS);
	until_ns = task->thread.parked_until_ns;
	kernel_set_affinity(g, task, 2);
	CHECK_EQ(task->thread.parked_until_ns, until_ns);
	CHECK_EQ(kernel_vm(g, 1)->nr_parked, 1);
	kernel_run(g, 10 * SECOND);
	CHECK_NEAR(permille(task, 0, 10 * SECOND), 20, 10);
}

int main(void)
{
	RUN(each_vcpu_has_its_own);
	RUN(it_holds_beside_others);
	RUN(who_stays_below_is_never_parked);
	RUN(who_is_parked_goes_on_without_a_quota);
	RUN(who_is_moved_stays_parked);
	return check_done();
}

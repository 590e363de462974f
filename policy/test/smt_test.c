// SPDX-License-Identifier: GPL-2.0-only
/* Cores of two threads: what is charged (account/charge.h) and who moves (place/spread.h). */
#include "fake_kernel.h"

static struct ground *g;

static void cores_of_two(u32 nr_pcpus)
{
	g = fake_ground(nr_pcpus, 1);
	fake_cores(g);
}

/* A busy VM of one vCPU, found, that runs on that pCPU; pinned there if it is to stay. */
static struct task_struct *busy_on(u32 tgid, u32 at, bool stays)
{
	struct task_struct *task = kernel_thread(g, tgid, THREAD_VCPU);

	task->pcpu = at;
	kernel_set_affinity(g, task, 1ULL << at);
	kernel_wake(g, task);
	kernel_settle(g);
	CHECK(g->pcpu[at].current == task);
	if (!stays)
		kernel_set_affinity(g, task, ALL_PCPUS);
	return task;
}

static u64 used_ns(u32 tgid)
{
	return kernel_vm(g, tgid)->counters.vcpu_run_ns +
	       kernel_vm(g, tgid)->counters.helper_run_ns;
}

static u64 charged_ns(u32 tgid)
{
	return used_ns(tgid) - kernel_vm(g, tgid)->counters.smt_discount_ns;
}

/* What runs on that pCPU is charged up to now. */
static void charge(u32 at)
{
	struct task_struct *task = g->pcpu[at].current;

	fake_count_cpu_time(g, task);
	drover_charge(&g->d, task, &task->thread, ground_task_pcpu(&g->d, task));
}

/* Cores that two vCPUs share while another is idle. */
static u32 shared_beside_idle(void)
{
	u32 shared = 0;
	bool whole = false;

	for (u32 i = 0; i < g->d.params.nr_pcpus; i += 2) {
		u32 busy = !!g->pcpu[i].current + !!g->pcpu[i + 1].current;

		shared += busy == 2;
		whole |= busy == 0;
	}
	return whole ? shared : 0;
}

/* --- what is charged --- */

/* The example of charge.h. */
static void time_beside_a_busy_sibling_is_charged_in_part(void)
{
	cores_of_two(2);
	busy_on(1, 0, true);
	g->now_ns += 6 * MS;
	busy_on(2, 1, true);
	g->now_ns += 2 * MS;
	charge(0);
	CHECK_EQ(used_ns(1), 8 * MS);
	CHECK_EQ(charged_ns(1), 7250 * US);
	kernel_sleep(g, 0);
	kernel_settle(g);
	g->now_ns += 12 * MS;
	charge(1);
	CHECK_EQ(used_ns(2), 14 * MS);
	CHECK_EQ(charged_ns(2), 13250 * US);
}

static void virtual_time_and_reservation_go_by_what_is_charged(void)
{
	u64 vtime_ns, tag_ns;

	cores_of_two(2);
	busy_on(1, 0, true);
	busy_on(2, 1, true);
	kernel_vm(g, 1)->asked.reservation_mcpu = 500;
	kernel_settle_vm(g, 1);
	charge(0);
	vtime_ns = kernel_vm(g, 1)->vtime_ns;
	tag_ns = kernel_vm(g, 1)->reserve_tag_ns;
	g->now_ns += 8 * MS;
	charge(0);
	CHECK_EQ(kernel_vm(g, 1)->vtime_ns - vtime_ns, 5 * MS);
	CHECK_NEAR(kernel_vm(g, 1)->reserve_tag_ns - tag_ns, 10 * MS, US);
}

static void without_siblings_used_and_charged_are_equal(void)
{
	g = fake_ground(2, 1);
	busy_on(1, 0, true);
	busy_on(2, 1, true);
	kernel_run(g, SECOND);
	CHECK(used_ns(1) > 0);
	CHECK_EQ(charged_ns(1), used_ns(1));
	CHECK_EQ(charged_ns(2), used_ns(2));
}

/* Property: whoever sleeps and wakes, what is charged lies between 5/8 of what was used and all. */
static void no_more_is_charged_than_is_used(void)
{
	for (u32 trial = 0; trial < 20; trial++) {
		u64 used = 0, charged = 0;

		cores_of_two(8);
		for (u32 tgid = 1; tgid <= 1 + check_random() % 12; tgid++) {
			struct task_struct *task = kernel_thread(g, tgid, THREAD_VCPU);

			if (check_random() % 2) {
				task->burst_ns = task->burst_left_ns =
					1 + check_random() % (9 * MS);
				task->sleep_ns = 1 + check_random() % (9 * MS);
			}
			kernel_wake(g, task);
			kernel_settle(g);
		}
		kernel_run(g, SECOND / 4);
		for (u32 slot = 1; slot < g->d.slots_in_use; slot++) {
			struct vm *vm = vm_at(&g->d, slot);

			CHECK(vm->counters.smt_discount_ns <= vm->counters.vcpu_run_ns * 3 / 8);
			used += vm->counters.vcpu_run_ns;
			charged += vm->counters.vcpu_run_ns - vm->counters.smt_discount_ns;
		}
		CHECK(used && charged <= used);
	}
}

/* --- who moves --- */

static void a_whole_idle_core_comes_first(void)
{
	cores_of_two(8);
	for (u32 tgid = 1; tgid <= 4; tgid++) {
		struct task_struct *task = kernel_thread(g, tgid, THREAD_VCPU);

		task->pcpu = 0;
		kernel_wake(g, task);
		kernel_settle(g);
		CHECK_EQ(shared_beside_idle(), 0);
	}
}

/* Of two caches: half a core beside what it has cached, until the next tick. */
static void who_wakes_stays_in_its_cache_and_has_a_whole_core_at_the_tick(void)
{
	struct task_struct *task;

	g = fake_ground(4, 2);
	fake_cores(g);
	busy_on(1, 0, true);
	task = kernel_thread(g, 2, THREAD_VCPU);
	task->pcpu = 0;
	kernel_wake(g, task);
	kernel_settle(g);
	CHECK_EQ(task->pcpu, 1);
	kernel_run(g, 4 * MS + 1);
	CHECK(task->pcpu >= 2);
}

static void who_shares_a_core_goes_to_an_idle_one_at_the_tick(void)
{
	cores_of_two(4);
	busy_on(1, 0, false);
	busy_on(2, 1, false);
	CHECK_EQ(shared_beside_idle(), 1);
	kernel_run(g, 4 * MS + 1);
	CHECK_EQ(shared_beside_idle(), 0);
	/* One of them, once. */
	CHECK(g->pcpu[0].current || g->pcpu[1].current);
	kernel_run(g, 100 * MS);
	CHECK_EQ(shared_beside_idle(), 0);
}

static void who_may_not_run_there_stays(void)
{
	cores_of_two(4);
	kernel_set_affinity(g, busy_on(1, 0, false), 3);
	kernel_set_affinity(g, busy_on(2, 1, false), 3);
	kernel_run(g, 100 * MS);
	CHECK(g->pcpu[0].current && g->pcpu[1].current);
	CHECK_NEAR(charged_ns(1), used_ns(1) * 5 / 8, MS);
}

/* What was claimed for one that sleeps before it can go is idle again. */
static void what_was_claimed_in_vain_is_idle_again(void)
{
	struct task_struct *task;

	cores_of_two(4);
	busy_on(1, 0, false);
	busy_on(2, 1, false);
	task = g->pcpu[1].current;
	fake_count_cpu_time(g, task);
	drover_tick(&g->d, task, &task->thread);
	CHECK(g->d.pcpu[1].migrate_to);
	CHECK(!g->pcpu[g->d.pcpu[1].migrate_to - 1].idle);
	kernel_sleep(g, 1);
	kernel_settle(g);
	CHECK(!g->d.pcpu[1].migrate_to);
	for (u32 at = 1; at < 4; at++)
		CHECK(g->pcpu[at].idle);
}

/* Six on four cores: 4.5 cores' worth, 0.75 each. */
static void those_who_share_take_turns(void)
{
	u64 before[7];

	cores_of_two(8);
	for (u32 tgid = 1; tgid <= 6; tgid++)
		kernel_busy_vm(g, tgid, 1, 0);
	kernel_settle(g);
	kernel_run(g, 100 * MS);
	for (u32 tgid = 1; tgid <= 6; tgid++)
		before[tgid] = charged_ns(tgid);
	kernel_run(g, 2 * SECOND);
	for (u32 tgid = 1; tgid <= 6; tgid++)
		CHECK_NEAR(charged_ns(tgid) - before[tgid], 1500 * MS, 30 * MS);
}

static void who_is_owed_more_has_the_whole_core(void)
{
	cores_of_two(4);
	kernel_busy_vm(g, 1, 1, 4000);
	for (u32 tgid = 2; tgid <= 3; tgid++)
		kernel_busy_vm(g, tgid, 1, 0);
	kernel_settle(g);
	kernel_run(g, 2 * SECOND);
	CHECK(charged_ns(1) > used_ns(1) * 95 / 100);
	CHECK_NEAR(charged_ns(2), charged_ns(3), 30 * MS);
}

/* vCPUs of one VM take turns, too. */
static void siblings_take_turns(void)
{
	cores_of_two(4);
	kernel_busy_vm(g, 1, 3, 0);
	kernel_settle(g);
	kernel_run(g, 2 * SECOND);
	for (u32 i = 1; i < 3; i++)
		CHECK_NEAR(g->task[i].thread.vruntime_ns, g->task[0].thread.vruntime_ns, 30 * MS);
}

static void a_pcpu_that_comes_finds_its_sibling(void)
{
	struct pcpu_order order = {.pcpu = 1, .sibling = 1};

	g = fake_ground(2, 1);
	CHECK(order_pcpu(&g->d, &order));
	CHECK_EQ(g->d.pcpu[0].sibling, 2);
	CHECK_EQ(g->d.pcpu[1].sibling, 1);
	order.sibling = 3;
	CHECK(!order_pcpu(&g->d, &order));
}

int main(void)
{
	RUN(time_beside_a_busy_sibling_is_charged_in_part);
	RUN(virtual_time_and_reservation_go_by_what_is_charged);
	RUN(without_siblings_used_and_charged_are_equal);
	RUN(no_more_is_charged_than_is_used);
	RUN(a_whole_idle_core_comes_first);
	RUN(who_wakes_stays_in_its_cache_and_has_a_whole_core_at_the_tick);
	RUN(who_shares_a_core_goes_to_an_idle_one_at_the_tick);
	RUN(who_may_not_run_there_stays);
	RUN(what_was_claimed_in_vain_is_idle_again);
	RUN(those_who_share_take_turns);
	RUN(who_is_owed_more_has_the_whole_core);
	RUN(siblings_take_turns);
	RUN(a_pcpu_that_comes_finds_its_sibling);
	return check_done();
}

// SPDX-License-Identifier: GPL-2.0-only
/* Where a thread that wakes goes: policy/place/wake.h. */
#include "fake_kernel.h"

static struct ground *g;

/* Every pCPU runs a 1-vCPU VM of its own (process pCPU + 1) of 1000 shares, level with the clock.
 */
static void a_busy_ground(u32 nr_pcpus, u32 nr_domains)
{
	g = fake_ground(nr_pcpus, nr_domains);
	for (u32 i = 0; i < nr_pcpus; i++)
		kernel_busy_vm(g, i + 1, 1, 1000);
	kernel_settle(g);
	for (u32 i = 0; i < nr_pcpus; i++)
		CHECK_EQ(g->pcpu[i].current->tgid, i + 1);
}

static void put_ahead(u32 tgid, u64 by_ns)
{
	kernel_vm(g, tgid)->vtime_ns = g->d.domain[0].clock_ns + by_ns;
}

/* A sleeper of process 20 wakes on that pCPU. */
static struct task_struct *wakes_near(u32 pcpu)
{
	struct task_struct *task = kernel_thread(g, 20, THREAD_VCPU);

	task->pcpu = pcpu;
	kernel_wake(g, task);
	return task;
}

static bool was_sent_to(struct task_struct *task, u32 pcpu)
{
	return task->queue == fake_local_queue(pcpu) && task->arrival < 0;
}

static bool was_queued(struct task_struct *task)
{
	return task->queue < fake_local_queue(0);
}

static void an_idle_pcpu_is_taken_first(void)
{
	g = fake_ground(2, 1);
	kernel_busy_vm(g, 1, 1, 1000);
	kernel_settle(g);
	put_ahead(1, 50 * MS);
	CHECK_EQ(wakes_near(0)->queue, fake_local_queue(1));
}

static void the_vm_furthest_ahead_is_preempted(void)
{
	a_busy_ground(4, 1);
	put_ahead(1, 10 * MS);
	put_ahead(3, 12 * MS);
	put_ahead(4, 11 * MS);
	CHECK(was_sent_to(wakes_near(0), 2));
}

/* A kernel forgot on the way to another pCPU that it was to preempt, and it waited for a slice. */
static void who_preempts_on_another_pcpu_runs_at_once(void)
{
	struct task_struct *task;

	a_busy_ground(2, 1);
	put_ahead(2, 10 * MS);
	g->now_ns += MS;
	task = wakes_near(0);
	kernel_settle(g);
	CHECK(g->pcpu[1].current == task);
	CHECK_EQ(task->longest_wait_ns, 0);
}

static void at_a_tie_the_pcpu_it_last_ran_on_is_taken(void)
{
	a_busy_ground(4, 1);
	for (u32 tgid = 1; tgid <= 4; tgid++)
		put_ahead(tgid, 10 * MS);
	CHECK(was_sent_to(wakes_near(2), 2));
}

/* Always the nearest, and one of two vCPUs had a sixth less. */
static void siblings_pay_for_wake_ups_alike(void)
{
	u64 least_ns = NEVER, most_ns = 0;
	struct task_struct *sleeper;

	g = fake_ground(2, 1);
	kernel_busy_vm(g, 2, 2, 0);
	kernel_busy_vm(g, 3, 2, 0);
	sleeper = kernel_thread(g, 1, THREAD_VCPU);
	sleeper->burst_ns = sleeper->burst_left_ns = 400 * US;
	sleeper->sleep_ns = 1600 * US;
	kernel_wake(g, sleeper);
	kernel_run(g, 4 * SECOND);
	for (u32 i = 0; i < FAKE_TASKS; i++) {
		u64 ran_ns = g->task[i].cpu_time_ns;

		if (g->task[i].state == TASK_NONE || g->task[i].tgid != 2)
			continue;
		least_ns = ran_ns < least_ns ? ran_ns : least_ns;
		most_ns = ran_ns > most_ns ? ran_ns : most_ns;
	}
	CHECK((double)most_ns <= 1.05 * (double)least_ns);
}

static void it_runs_at_once_and_the_preempted_thread_waits(void)
{
	struct task_struct *task, *victim;

	a_busy_ground(1, 1);
	victim = g->pcpu[0].current;
	put_ahead(1, 10 * MS);
	g->now_ns += MS;
	task = wakes_near(0);
	kernel_settle(g);
	CHECK(g->pcpu[0].current == task);
	CHECK_EQ(task->longest_wait_ns, 0);
	CHECK_EQ(victim->state, TASK_READY);
}

/* It leaves what it has cached: to preempt there must bring what a migration is worth. */
static void in_another_domain_only_who_is_owed_a_migration_preempts(void)
{
	a_busy_ground(2, 2);
	put_ahead(2, 8 * MS);
	CHECK(was_queued(wakes_near(0)));
	put_ahead(2, 9 * MS);
	CHECK(was_sent_to(wakes_near(0), 1));
}

static void who_is_not_behind_by_the_gain_is_queued(void)
{
	a_busy_ground(1, 1);
	put_ahead(1, 250 * US);
	CHECK(was_queued(wakes_near(0)));
	put_ahead(1, 251 * US);
	CHECK(was_sent_to(wakes_near(0), 0));
}

/* The gain is CPU time of the waker: a wide VM's virtual time is short. */
static void a_wide_vm_preempts_by_its_credit_too(void)
{
	struct task_struct *task;

	a_busy_ground(1, 1);
	task = kernel_thread(g, 20, THREAD_VCPU);
	share_set(kernel_vm(g, 20), 64000);
	kernel_run(g, SECOND);
	kernel_wake(g, task);
	CHECK(was_sent_to(task, 0));
}

/* A sibling of who runs on pCPU 0, which has run longer by that much, wakes. */
static struct task_struct *sibling_wakes(u64 longer_ns)
{
	struct task_struct *task = kernel_thread(g, 1, THREAD_VCPU);

	pcpu_at(&g->d, 0)->running_vruntime_ns = task->thread.vruntime_ns + longer_ns - g->now_ns;
	kernel_wake(g, task);
	return task;
}

static void nobody_preempts_a_sibling_that_ran_longer_by_less_than_the_gain(void)
{
	a_busy_ground(1, 1);
	CHECK(was_queued(sibling_wakes(250 * US)));
}

static void a_sibling_that_ran_longer_by_the_gain_is_preempted(void)
{
	a_busy_ground(1, 1);
	CHECK(was_sent_to(sibling_wakes(251 * US), 0));
}

static void a_vm_that_is_ahead_is_preempted_rather_than_a_sibling(void)
{
	a_busy_ground(2, 1);
	put_ahead(1, 0);
	put_ahead(2, 10 * MS);
	CHECK(was_sent_to(sibling_wakes(100 * MS), 1));
}

static void a_sibling_is_preempted_rather_than_a_vm_that_is_not_ahead(void)
{
	a_busy_ground(2, 1);
	put_ahead(1, 0);
	put_ahead(2, 0);
	CHECK(was_sent_to(sibling_wakes(4 * MS), 0));
}

/*
 * A vCPU that runs for 0.1 ms each 2 ms has two busy siblings, and
 * a busy VM of two is beside it on two pCPUs. It waited for 5 ms in the mean: for its VM's turn,
 * and then for a sibling to have run longer by a slice.
 */
static void a_light_vcpu_does_not_wait_for_its_busy_siblings(void)
{
	u32 shares[] = {2000, 6000};

	for (u32 i = 0; i < 2; i++) {
		struct task_struct *light;
		double part;

		g = fake_ground(2, 1);
		light = kernel_thread(g, 1, THREAD_VCPU);
		light->burst_ns = light->burst_left_ns = 100 * US;
		light->sleep_ns = 1900 * US;
		kernel_busy_vm(g, 1, 2, 0);
		kernel_busy_vm(g, 2, 2, shares[i]);
		kernel_set_shares(g, 1, 3000);
		kernel_wake(g, light);
		kernel_run(g, 4 * SECOND);
		/* Of 2,000 bursts. */
		CHECK_SAYING(light->cpu_time_ns >= 4 * SECOND / 20 * 9 / 10,
			     "it ran %" PRIu64 " ms", (uint64_t)(light->cpu_time_ns / MS));
		/* Its VM pays. */
		part = (double)kernel_cpu_time_ns(g, 1) / (8.0 * (double)SECOND);
		CHECK_SAYING(part > (i ? 0.32 : 0.58) && part < (i ? 0.35 : 0.62),
			     "its VM has %.3f", part);
	}
}

static void one_preempting_thread_is_sent_to_a_pcpu_at_a_time(void)
{
	a_busy_ground(2, 1);
	put_ahead(1, 20 * MS);
	put_ahead(2, 10 * MS);
	CHECK(was_sent_to(wakes_near(0), 0));
	CHECK(was_sent_to(wakes_near(0), 1));
	CHECK(was_queued(wakes_near(0)));
}

/* Each cut short the one before, and short runs were begun three times. */
static void when_it_has_had_a_turn_the_next_may_be_sent(void)
{
	struct task_struct *first, *second;

	a_busy_ground(1, 1);
	put_ahead(1, 20 * MS);
	first = wakes_near(0);
	kernel_settle(g);
	g->now_ns += MS;
	second = kernel_thread(g, 21, THREAD_VCPU);
	second->pcpu = 0;
	kernel_wake(g, second);
	kernel_settle(g);
	CHECK(g->pcpu[0].current == first);
	CHECK(was_queued(second));
	kernel_run(g, 4 * MS);
	CHECK_EQ(pcpu_at(&g->d, 0)->order.why, ORDER_NONE);
}

static void it_goes_only_where_it_may_run(void)
{
	struct task_struct *task;

	a_busy_ground(4, 1);
	put_ahead(1, 30 * MS);
	put_ahead(2, 10 * MS);
	task = kernel_thread(g, 20, THREAD_VCPU);
	kernel_set_affinity(g, task, 2 | 4);
	kernel_wake(g, task);
	CHECK(was_sent_to(task, 1));
}

static void it_stays_in_its_domain(void)
{
	a_busy_ground(4, 2);
	put_ahead(1, 10 * MS);
	put_ahead(4, 30 * MS);
	CHECK(was_sent_to(wakes_near(1), 0));
}

static void an_offline_pcpu_is_not_preempted(void)
{
	a_busy_ground(2, 1);
	put_ahead(1, 10 * MS);
	put_ahead(2, 30 * MS);
	pcpu_at(&g->d, 1)->online = 0;
	CHECK(was_sent_to(wakes_near(0), 0));
}

static void it_looks_at_eight_pcpus(void)
{
	a_busy_ground(10, 1);
	put_ahead(9, 30 * MS);
	put_ahead(8, 10 * MS);
	CHECK(was_sent_to(wakes_near(0), 7));
}

static void a_thread_whose_slice_ended_preempts_nobody(void)
{
	struct task_struct *task;

	a_busy_ground(2, 1);
	task = g->pcpu[0].current;
	kernel_wake(g, kernel_thread(g, 1, THREAD_VCPU));
	put_ahead(2, 30 * MS);
	task->slice_ns = 0;
	g->pcpu[0].resched = true;
	kernel_settle(g);
	CHECK_EQ(task->state, TASK_READY);
	CHECK(was_queued(task));
}

/* The essay's worked example. */
static struct task_struct *the_sleeper_beside_the_busy_vm(void)
{
	struct task_struct *sleeper;

	g = fake_ground(2, 1);
	sleeper = kernel_thread(g, 1, THREAD_VCPU);
	kernel_thread(g, 1, THREAD_VCPU);
	kernel_set_shares(g, 1, 2000);
	kernel_busy_vm(g, 2, 4, 4000);
	kernel_run(g, SECOND);
	return sleeper;
}

static void after_sleep_it_is_its_credit_behind_and_runs_at_once(void)
{
	struct task_struct *sleeper = the_sleeper_beside_the_busy_vm();

	kernel_wake(g, sleeper);
	CHECK_EQ(kernel_vm(g, 1)->vtime_ns, g->d.domain[0].clock_ns - 5 * MS);
	CHECK((s64)(kernel_vm(g, 2)->vtime_ns - g->d.domain[0].clock_ns) >= 0);
	kernel_settle(g);
	CHECK_EQ(sleeper->state, TASK_RUNNING);
	CHECK_EQ(sleeper->longest_wait_ns, 0);
}

static void once_it_has_used_up_its_credit_it_waits_its_turn(void)
{
	struct task_struct *sleeper = the_sleeper_beside_the_busy_vm();
	struct vm *vm = kernel_vm(g, 1);
	u64 clock_ns = g->d.domain[0].clock_ns;

	kernel_wake(g, sleeper);
	kernel_settle(g);
	g->now_ns += 10 * MS;
	fake_count_cpu_time(g, sleeper);
	drover_charge(&g->d, sleeper, &sleeper->thread, ground_task_pcpu(&g->d, sleeper));
	CHECK_EQ(vm->vtime_ns, clock_ns);
	kernel_run(g, SECOND);
	/* And the credit. */
	CHECK_NEAR(kernel_cpu_time_ns(g, 1), 677 * MS, 10 * MS);
}

static void who_wakes_often_gains_nothing_by_it(void)
{
	struct task_struct *task;

	g = fake_ground(1, 1);
	kernel_busy_vm(g, 2, 1, 1000);
	task = kernel_thread(g, 1, THREAD_VCPU);
	task->burst_ns = task->burst_left_ns = 2 * MS;
	task->sleep_ns = 10 * US;
	kernel_wake(g, task);
	kernel_run(g, 4 * SECOND);
	CHECK_NEAR(kernel_cpu_time_ns(g, 1), 2 * SECOND, 40 * MS);
}

/* Issue 2: a VM that wakes every 2 ms beside a busy one of twice its size. */
static void a_sleeper_wakes_without_delay(void)
{
	g = fake_ground(2, 1);
	for (u32 i = 0; i < 2; i++) {
		struct task_struct *task = kernel_thread(g, 1, THREAD_VCPU);

		task->burst_ns = task->burst_left_ns = 50 * US;
		task->sleep_ns = 2 * MS;
		task->wakes_at_ns = g->now_ns + i * 100 * US;
	}
	kernel_busy_vm(g, 2, 4, 0);
	/* At first both are level with the clock, and have no claim. */
	kernel_run(g, 100 * MS);
	kernel_vm(g, 1)->counters.longest_ready_ns = 0;
	kernel_run(g, 4 * SECOND);
	CHECK(kernel_runs(g, 1) > 3500);
	CHECK(kernel_vm(g, 1)->counters.longest_ready_ns <= 100 * US);
}

/* It ran while nobody wanted its pCPU; that is no debt to siblings that come later. */
static void who_ran_alone_does_not_wait_for_siblings_to_make_up_for_it(void)
{
	struct task_struct *alone;

	g = fake_ground(1, 1);
	alone = kernel_thread(g, 1, THREAD_VCPU);
	kernel_wake(g, alone);
	kernel_run(g, 400 * MS);
	for (u32 i = 0; i < 3; i++)
		kernel_wake(g, kernel_thread(g, 1, THREAD_VCPU));
	kernel_run(g, 400 * MS);
	CHECK_NEAR(alone->cpu_time_ns, 500 * MS, 20 * MS);
	CHECK(vm_at(&g->d, g->slot_of[1])->counters.longest_ready_ns <= 60 * MS);
}

/* Its affinity was changed before it got there: the next waker may preempt, too. */
static void a_preempting_thread_that_never_arrives_keeps_nobody_else_away(void)
{
	struct task_struct *first;

	a_busy_ground(2, 1);
	put_ahead(1, 10 * MS);
	first = wakes_near(0);
	CHECK(was_sent_to(first, 0));
	kernel_set_affinity(g, first, 2);
	CHECK(was_queued(first));
	kernel_settle(g);
	CHECK_EQ(g->pcpu[0].current->tgid, 1);
	put_ahead(1, 10 * MS);
	CHECK(was_sent_to(wakes_near(0), 0));
}

int main(void)
{
	RUN(who_ran_alone_does_not_wait_for_siblings_to_make_up_for_it);
	RUN(a_preempting_thread_that_never_arrives_keeps_nobody_else_away);
	RUN(an_idle_pcpu_is_taken_first);
	RUN(the_vm_furthest_ahead_is_preempted);
	RUN(who_preempts_on_another_pcpu_runs_at_once);
	RUN(at_a_tie_the_pcpu_it_last_ran_on_is_taken);
	RUN(siblings_pay_for_wake_ups_alike);
	RUN(it_runs_at_once_and_the_preempted_thread_waits);
	RUN(in_another_domain_only_who_is_owed_a_migration_preempts);
	RUN(who_is_not_behind_by_the_gain_is_queued);
	RUN(a_wide_vm_preempts_by_its_credit_too);
	RUN(nobody_preempts_a_sibling_that_ran_longer_by_less_than_the_gain);
	RUN(a_sibling_that_ran_longer_by_the_gain_is_preempted);
	RUN(a_vm_that_is_ahead_is_preempted_rather_than_a_sibling);
	RUN(a_sibling_is_preempted_rather_than_a_vm_that_is_not_ahead);
	RUN(a_light_vcpu_does_not_wait_for_its_busy_siblings);
	RUN(one_preempting_thread_is_sent_to_a_pcpu_at_a_time);
	RUN(when_it_has_had_a_turn_the_next_may_be_sent);
	RUN(it_goes_only_where_it_may_run);
	RUN(it_stays_in_its_domain);
	RUN(an_offline_pcpu_is_not_preempted);
	RUN(it_looks_at_eight_pcpus);
	RUN(a_thread_whose_slice_ended_preempts_nobody);
	RUN(after_sleep_it_is_its_credit_behind_and_runs_at_once);
	RUN(once_it_has_used_up_its_credit_it_waits_its_turn);
	RUN(who_wakes_often_gains_nothing_by_it);
	RUN(a_sleeper_wakes_without_delay);
	return check_done();
}

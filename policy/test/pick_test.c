// SPDX-License-Identifier: GPL-2.0-only
/* What a pCPU runs next: policy/pick/pick.h, and the files it builds on. */
#include "fake_kernel.h"

static struct ground *g;

/* On every pCPU a task of the host, which is far ahead; its slice does not end by itself. */
static void a_busy_ground(u32 nr_pcpus, u32 nr_domains)
{
	g = fake_ground(nr_pcpus, nr_domains);
	for (u32 i = 0; i < nr_pcpus; i++)
		kernel_wake(g, kernel_thread(g, 0, THREAD_HOST));
	kernel_settle(g);
	for (u32 i = 0; i < nr_pcpus; i++)
		CHECK(g->pcpu[i].current);
	vm_at(&g->d, DROVER_HOST_SLOT)->vtime_ns += 10 * SECOND;
}

/* A thread of that VM, at that virtual time, is queued near that pCPU; kicks are on their way. */
static struct task_struct *waits_unkicked(u32 tgid, u64 vtime_ns, u32 near, u64 allowed)
{
	struct task_struct *task = kernel_thread(g, tgid, THREAD_VCPU);

	kernel_vm(g, tgid)->vtime_ns = vtime_ns;
	task->pcpu = near;
	kernel_set_affinity(g, task, allowed);
	task->state = TASK_READY;
	task->ready_at_ns = g->now_ns;
	drover_place(&g->d, task, &task->thread, false);
	fake_put(g, task);
	CHECK(task->queue < fake_local_queue(0));
	return task;
}

/* The same; it preempts nobody. */
static struct task_struct *waits(u32 tgid, u64 vtime_ns, u32 near, u64 allowed)
{
	struct task_struct *task = waits_unkicked(tgid, vtime_ns, near, allowed);

	fake_deliver_kicks(g);
	return task;
}

static void slice_ends(u32 pcpu)
{
	g->pcpu[pcpu].current->slice_ns = 0;
	kernel_pick(g, pcpu);
	kernel_switch(g, pcpu);
}

static void goes_to_sleep(u32 pcpu)
{
	kernel_sleep(g, pcpu);
	kernel_switch(g, pcpu);
}

static void the_least_served_vm_is_first(void)
{
	struct task_struct *second, *first, *third;

	a_busy_ground(1, 1);
	second = waits(1, 20 * MS, 0, ALL_PCPUS);
	first = waits(2, 10 * MS, 0, ALL_PCPUS);
	third = waits(3, 30 * MS, 0, ALL_PCPUS);
	goes_to_sleep(0);
	CHECK(g->pcpu[0].current == first);
	goes_to_sleep(0);
	CHECK(g->pcpu[0].current == second);
	goes_to_sleep(0);
	CHECK(g->pcpu[0].current == third);
}

static void a_thread_that_is_less_served_goes_on(void)
{
	struct task_struct *task;

	a_busy_ground(1, 1);
	task = waits(1, 10 * MS, 0, ALL_PCPUS);
	slice_ends(0);
	CHECK(g->pcpu[0].current == task);
	waits(2, 20 * MS, 0, ALL_PCPUS);
	slice_ends(0);
	CHECK(g->pcpu[0].current == task);
	CHECK_EQ(task->slice_ns, 8 * MS);
}

/* Another waits, far ahead: what who goes on has had, nobody that sleeps meanwhile is owed. */
static void the_clock_follows_who_goes_on(void)
{
	struct task_struct *task;

	a_busy_ground(1, 1);
	task = waits(1, 10 * MS, 0, ALL_PCPUS);
	slice_ends(0);
	waits(2, SECOND, 0, ALL_PCPUS);
	for (u32 slice = 0; slice < 5; slice++) {
		g->now_ns += 8 * MS;
		slice_ends(0);
		CHECK(g->pcpu[0].current == task);
	}
	CHECK_EQ(g->d.domain[0].clock_ns, 50 * MS);
}

static void a_thread_that_ran_ahead_gives_way(void)
{
	struct task_struct *task, *other;

	a_busy_ground(1, 1);
	task = waits(1, 10 * MS, 0, ALL_PCPUS);
	slice_ends(0);
	other = waits(2, 15 * MS, 0, ALL_PCPUS);
	g->now_ns += 8 * MS;
	slice_ends(0);
	CHECK(g->pcpu[0].current == other);
	CHECK_EQ(task->state, TASK_READY);
}

/* Both are due by their reservations, the one that waits for so much longer or shorter. */
static void of_two_that_are_due_the_one_due_for_longer_is_next(void)
{
	for (u32 longer = 0; longer <= 1; longer++) {
		struct task_struct *runs, *other;

		a_busy_ground(1, 1);
		runs = waits(1, 10 * MS, 0, ALL_PCPUS);
		slice_ends(0);
		CHECK(g->pcpu[0].current == runs);
		kernel_thread(g, 2, THREAD_VCPU);
		for (u32 tgid = 1; tgid <= 2; tgid++) {
			kernel_vm(g, tgid)->asked.reservation_mcpu = 400;
			kernel_settle_vm(g, tgid);
			kernel_vm(g, tgid)->reserve_tag_ns = g->now_ns - 3 * MS;
		}
		kernel_vm(g, 2)->reserve_tag_ns += longer ? -MS : MS;
		other = waits(2, 5 * MS, 0, ALL_PCPUS);
		slice_ends(0);
		CHECK(g->pcpu[0].current == (longer ? other : runs));
	}
}

static void to_a_sibling_it_gives_way_always(void)
{
	struct task_struct *task, *sibling;

	a_busy_ground(1, 1);
	task = waits(1, 10 * MS, 0, ALL_PCPUS);
	slice_ends(0);
	CHECK(g->pcpu[0].current == task);
	sibling = waits(1, 10 * MS, 0, ALL_PCPUS);
	slice_ends(0);
	CHECK(g->pcpu[0].current == sibling);
}

static void when_nobody_waits_it_goes_on(void)
{
	struct task_struct *current;

	a_busy_ground(1, 1);
	current = g->pcpu[0].current;
	slice_ends(0);
	CHECK(g->pcpu[0].current == current);
}

static void a_confined_thread_is_compared_with_the_domain(void)
{
	struct task_struct *confined, *free;

	a_busy_ground(2, 1);
	free = waits(1, 10 * MS, 0, ALL_PCPUS);
	confined = waits(2, 20 * MS, 0, 1);
	goes_to_sleep(0);
	CHECK(g->pcpu[0].current == free);
	goes_to_sleep(0);
	CHECK(g->pcpu[0].current == confined);

	a_busy_ground(2, 1);
	free = waits(1, 20 * MS, 0, ALL_PCPUS);
	confined = waits(2, 10 * MS, 0, 1);
	goes_to_sleep(0);
	CHECK(g->pcpu[0].current == confined);
	goes_to_sleep(0);
	CHECK(g->pcpu[0].current == free);
}

static void a_thread_that_runs_is_compared_with_a_confined_one(void)
{
	struct task_struct *confined, *current;

	a_busy_ground(2, 1);
	current = g->pcpu[0].current;
	confined = waits(1, 11 * SECOND, 0, 1);
	slice_ends(0);
	CHECK(g->pcpu[0].current == current);
	vm_at(&g->d, DROVER_HOST_SLOT)->vtime_ns += 2 * SECOND;
	slice_ends(0);
	CHECK(g->pcpu[0].current == confined);
}

static void a_confined_thread_is_left_to_pcpus_it_may_use(void)
{
	struct task_struct *task;

	a_busy_ground(2, 1);
	task = waits(1, 10 * MS, 0, 1);
	goes_to_sleep(1);
	CHECK(!g->pcpu[1].current);
	CHECK_EQ(task->state, TASK_READY);
}

static void an_idle_pcpu_takes_from_another_domain(void)
{
	struct task_struct *task;

	a_busy_ground(4, 2);
	task = waits(1, 10 * MS, 0, ALL_PCPUS);
	goes_to_sleep(3);
	CHECK(g->pcpu[3].current == task);
	CHECK_EQ(entity_rq_of(&g->runqueue[0], task->thread.slot)->nr_queued, 0);
}

static void an_idle_pcpu_takes_from_the_queue_of_a_busy_one(void)
{
	struct task_struct *task;

	a_busy_ground(4, 2);
	task = waits(1, 10 * MS, 0, 1 | 8);
	goes_to_sleep(3);
	CHECK(g->pcpu[3].current == task);
}

/* The essay's worked example: from then on it waits in domain 0. */
static void a_pcpu_takes_a_vm_far_behind_from_another_domain(void)
{
	struct task_struct *here;

	a_busy_ground(2, 2);
	here = waits(1, 40 * MS, 0, ALL_PCPUS);
	for (u32 tgid = 2; tgid <= 4; tgid++)
		waits(tgid, 28 * MS, 1, ALL_PCPUS);
	/* One sample of two is the neighbour. */
	slice_ends(0);
	if (g->pcpu[0].current == here)
		slice_ends(0);
	CHECK(g->pcpu[0].current->tgid >= 2);
	CHECK_EQ(fake_queue_length(g, ground_vm_queue(&g->d, g->pcpu[0].current->thread.slot, 1)),
		 0);
}

static void what_is_not_worth_a_migration_stays(void)
{
	struct task_struct *here;

	a_busy_ground(2, 2);
	here = waits(1, 35 * MS, 0, ALL_PCPUS);
	waits(2, 28 * MS, 1, ALL_PCPUS);
	for (u32 i = 0; i < 4; i++)
		slice_ends(0);
	CHECK(g->pcpu[0].current == here);
}

static void a_domain_is_sampled_though_nobody_waits_here(void)
{
	struct task_struct *there;

	a_busy_ground(2, 2);
	there = waits(1, 28 * MS, 1, ALL_PCPUS);
	slice_ends(0);
	slice_ends(0);
	CHECK(g->pcpu[0].current == there);
}

static void domains_end_up_with_equal_time(void)
{
	g = fake_ground(8, 2);
	for (u32 tgid = 1; tgid <= 3; tgid++)
		kernel_busy_vm(g, tgid, 4, 4000);
	kernel_run(g, 6 * SECOND);
	for (u32 tgid = 1; tgid <= 3; tgid++)
		CHECK_NEAR(kernel_cpu_time_ns(g, tgid), 16 * SECOND, 320 * MS);
}

/* Taken by another pCPU, but not running yet: it still counts, and cannot be taken. */
static void a_vm_whose_thread_is_under_way_is_asked_later(void)
{
	struct task_struct *under_way, *next;

	a_busy_ground(2, 1);
	under_way = waits(1, 10 * MS, 0, ALL_PCPUS);
	next = waits(2, 40 * MS, 0, ALL_PCPUS);
	g->pcpu[0].current->slice_ns = 0;
	kernel_pick(g, 0);
	CHECK_EQ(tournament_slot(tournament_best(&g->d, &g->runqueue[0].by_share)), 1);
	slice_ends(1);
	CHECK(g->pcpu[1].current == next);
	kernel_switch(g, 0);
	CHECK(g->pcpu[0].current == under_way);
}

/* Counted, and not in its queue yet: a moment later it is, and need not wait until its time has
 * come. */
static void a_vm_whose_thread_was_on_its_way_in_is_asked_at_the_next_pick(void)
{
	struct task_struct *coming;

	a_busy_ground(1, 1);
	coming = waits(1, 10 * MS, 0, ALL_PCPUS);
	waits(2, 200 * MS, 0, ALL_PCPUS);
	coming->locked = true;
	slice_ends(0);
	CHECK(g->pcpu[0].current != coming);
	coming->locked = false;
	slice_ends(0);
	CHECK(g->pcpu[0].current == coming);
}

/* Whoever cannot be taken hides nobody, be that an hour behind. */
static void a_vm_whose_thread_cannot_be_taken_hides_nobody(void)
{
	struct task_struct *cannot[3], *next;

	a_busy_ground(1, 1);
	for (u32 i = 0; i < 3; i++) {
		cannot[i] = waits(1 + i, 10 * MS, 0, ALL_PCPUS);
		cannot[i]->locked = true;
	}
	next = waits(4, 3600 * SECOND, 0, ALL_PCPUS);
	slice_ends(0);
	goes_to_sleep(0);
	CHECK(g->pcpu[0].current == next);
	CHECK_EQ(tournament_slot(next_vm(&g->d, 0, 0, TOURNAMENT_NONE, 0)), 1);
}

static void and_comes_back_to_its_place_when_it_has_another(void)
{
	a_busy_ground(2, 1);
	waits(1, 10 * MS, 0, ALL_PCPUS);
	waits(2, 12 * MS, 0, ALL_PCPUS);
	g->pcpu[0].current->slice_ns = 0;
	kernel_pick(g, 0);
	slice_ends(1);
	waits(2, 12 * MS, 0, ALL_PCPUS);
	waits(1, 10 * MS, 0, ALL_PCPUS);
	kernel_switch(g, 0);
	CHECK_EQ(tournament_slot(next_vm(&g->d, 0, 0, TOURNAMENT_NONE, 0)), 1);
}

static void a_pcpu_that_becomes_idle_looks_once_more(void)
{
	struct task_struct *task;

	a_busy_ground(1, 1);
	task = waits(1, 10 * MS, 0, ALL_PCPUS);
	/* On its way into the queue when the pCPU asked; there when it is told it is idle. */
	task->locked = true;
	kernel_sleep(g, 0);
	CHECK(!g->pcpu[0].next);
	task->locked = false;
	kernel_switch(g, 0);
	kernel_settle(g);
	CHECK(g->pcpu[0].current == task);
}

/* The same, and it waits in another domain than the one that is looked at last. */
static void a_pcpu_that_becomes_idle_looks_in_all_domains(void)
{
	struct task_struct *task;

	a_busy_ground(2, 2);
	task = waits(1, 10 * MS, 0, ALL_PCPUS);
	task->locked = true;
	kernel_sleep(g, 1);
	CHECK(!g->pcpu[1].next);
	task->locked = false;
	kernel_switch(g, 1);
	kernel_settle(g);
	CHECK(g->pcpu[1].current == task);
}

static void a_thread_that_finds_no_pcpu_idle_but_then_one_is_gets_it(void)
{
	struct task_struct *task;

	a_busy_ground(2, 1);
	task = kernel_thread(g, 1, THREAD_VCPU);
	kernel_select(g, task);
	goes_to_sleep(1);
	kernel_enqueue(g, task);
	kernel_settle(g);
	CHECK_EQ(task->state, TASK_RUNNING);
}

static void threads_left_at_offline_pcpus_are_served(void)
{
	struct task_struct *left[2];

	a_busy_ground(4, 1);
	left[0] = waits(1, 10 * MS, 0, 1 | 4);
	left[1] = waits(2, 10 * MS, 1, 2 | 4);
	kernel_offline(g, 0);
	kernel_offline(g, 1);
	slice_ends(2);
	slice_ends(2);
	kernel_run(g, 100 * MS);
	CHECK(left[0]->cpu_time_ns > 0);
	CHECK(left[1]->cpu_time_ns > 0);
}

/*
 * The kernel moves nobody to a pCPU that is on its way offline, which says so only later
 * and asks meanwhile: whom it could not take has not become a later one for others.
 */
static void nobody_is_asked_later_for_a_pcpu_that_goes_offline(void)
{
	struct task_struct *task;

	a_busy_ground(2, 1);
	task = waits(1, 10 * MS, 0, ALL_PCPUS);
	task->locked = true;
	for (u32 i = 0; i < 3; i++)
		slice_ends(1);
	task->locked = false;
	kernel_offline(g, 1);
	CHECK_EQ(next_vm(&g->d, 0, 0, TOURNAMENT_NONE, 0),
		 tournament_key(kernel_vm(g, 1)->vtime_ns, g->slot_of[1]));
}

static void a_pcpu_back_online_serves_its_queue(void)
{
	struct task_struct *task;

	a_busy_ground(2, 1);
	task = waits(1, 10 * MS, 0, 1);
	kernel_set_affinity(g, task, 1);
	kernel_offline(g, 0);
	kernel_online(g, 0);
	kernel_run(g, 20 * MS);
	CHECK(task->cpu_time_ns > 0);
}

/* One was confined to pCPU 0 while that was the only one; 1 is back, and that one has run less. */
static void a_sibling_that_may_not_run_here_does_not_hide_one_that_may(void)
{
	struct task_struct *elsewhere, *here;

	a_busy_ground(2, 2);
	kernel_offline(g, 1);
	elsewhere = waits(1, 10 * MS, 0, 1);
	kernel_online(g, 1);
	here = waits(1, 10 * MS, 1, ALL_PCPUS);
	elsewhere->order = here->order - SECOND;
	kernel_pick(g, 1);
	kernel_switch(g, 1);
	CHECK(g->pcpu[1].current == here);
	CHECK_EQ(entity_rq_of(&g->runqueue[1], here->thread.slot)->nr_queued, 0);
}

/* 12 vCPUs on 3 of 4 pCPUs, four or five to a queue: the odd one goes round. */
static void vcpus_confined_to_some_pcpus_get_equal_time(void)
{
	for (u32 nr_vcpus = 4; nr_vcpus <= 13; nr_vcpus++) {
		u64 least_ns = NEVER, most_ns = 0;

		g = fake_ground(4, 1);
		for (u32 i = 0; i < nr_vcpus; i++) {
			struct task_struct *task = kernel_thread(g, 1, THREAD_VCPU);

			kernel_set_affinity(g, task, 7);
			kernel_wake(g, task);
		}
		kernel_run(g, 4 * SECOND);
		for (u32 i = 0; i < nr_vcpus; i++) {
			u64 cpu_ns = g->task[i].cpu_time_ns;

			least_ns = cpu_ns < least_ns ? cpu_ns : least_ns;
			most_ns = cpu_ns > most_ns ? cpu_ns : most_ns;
		}
		CHECK_SAYING(most_ns - least_ns <= least_ns / 20,
			     "%u vCPUs on 3 pCPUs: %" PRIu64 " to %" PRIu64 " ms", nr_vcpus,
			     (uint64_t)(least_ns / MS), (uint64_t)(most_ns / MS));
	}
}

/* scenarios/sleep-vs-busy.toml: beside a VM that is played in rounds a sleeper waited for the
 * round's end. */
static void who_wakes_in_mid_round_does_not_wait_for_its_end(void)
{
	struct task_struct *sleeper;

	g = fake_ground(2, 1);
	kernel_busy_vm(g, 2, 4, 0);
	kernel_run(g, 201 * MS);
	CHECK(kernel_vm(g, 2)->coscheduled);
	/* It wakes where it cannot preempt: others are on their way already. */
	for (u32 i = 0; i < 2; i++)
		pcpu_at(&g->d, i)->order.why = ORDER_WOKEN;
	sleeper = kernel_thread(g, 1, THREAD_VCPU);
	kernel_vm(g, 1)->vtime_ns = kernel_vm(g, 2)->plan.vtime_ns - MS;
	kernel_wake(g, sleeper);
	CHECK_EQ(sleeper->state, TASK_READY);
	CHECK_EQ(pcpu_at(&g->d, 0)->round, g->d.round);
	slice_ends(0);
	CHECK(g->pcpu[0].current == sleeper);
	/* A kick that was meant for who ran before does not take the pCPU from it. */
	g->now_ns += 20 * US;
	slice_ends(0);
	CHECK(g->pcpu[0].current == sleeper);
}

int main(void)
{
	RUN(vcpus_confined_to_some_pcpus_get_equal_time);
	RUN(the_least_served_vm_is_first);
	RUN(a_thread_that_is_less_served_goes_on);
	RUN(the_clock_follows_who_goes_on);
	RUN(a_thread_that_ran_ahead_gives_way);
	RUN(of_two_that_are_due_the_one_due_for_longer_is_next);
	RUN(to_a_sibling_it_gives_way_always);
	RUN(when_nobody_waits_it_goes_on);
	RUN(a_confined_thread_is_compared_with_the_domain);
	RUN(a_thread_that_runs_is_compared_with_a_confined_one);
	RUN(a_confined_thread_is_left_to_pcpus_it_may_use);
	RUN(an_idle_pcpu_takes_from_another_domain);
	RUN(an_idle_pcpu_takes_from_the_queue_of_a_busy_one);
	RUN(a_pcpu_takes_a_vm_far_behind_from_another_domain);
	RUN(what_is_not_worth_a_migration_stays);
	RUN(a_domain_is_sampled_though_nobody_waits_here);
	RUN(domains_end_up_with_equal_time);
	RUN(a_vm_whose_thread_is_under_way_is_asked_later);
	RUN(a_vm_whose_thread_was_on_its_way_in_is_asked_at_the_next_pick);
	RUN(a_vm_whose_thread_cannot_be_taken_hides_nobody);
	RUN(and_comes_back_to_its_place_when_it_has_another);
	RUN(a_pcpu_that_becomes_idle_looks_once_more);
	RUN(a_pcpu_that_becomes_idle_looks_in_all_domains);
	RUN(a_thread_that_finds_no_pcpu_idle_but_then_one_is_gets_it);
	RUN(threads_left_at_offline_pcpus_are_served);
	RUN(nobody_is_asked_later_for_a_pcpu_that_goes_offline);
	RUN(a_pcpu_back_online_serves_its_queue);
	RUN(a_sibling_that_may_not_run_here_does_not_hide_one_that_may);
	RUN(who_wakes_in_mid_round_does_not_wait_for_its_end);
	return check_done();
}

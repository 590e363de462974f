// SPDX-License-Identifier: GPL-2.0-only
/* Queues of ready threads and the books kept of them: policy/queue/waiting.h. */
#include "books.h"

static struct ground *g;

/* A ready thread of that VM enters a queue near pCPU 0, all pCPUs being busy. */
static struct task_struct *enters(u32 tgid)
{
	struct task_struct *task = kernel_thread(g, tgid, THREAD_VCPU);

	kernel_wake(g, task);
	CHECK_EQ(task->state, TASK_READY);
	return task;
}

/* One pCPU, on which a thread of the host runs that will not stop by itself. */
static void a_busy_ground(u32 nr_pcpus)
{
	g = fake_ground(nr_pcpus, 1);
	for (u32 i = 0; i < nr_pcpus; i++)
		kernel_wake(g, kernel_thread(g, 0, THREAD_HOST));
	kernel_settle(g);
}

static void runs(struct task_struct *task)
{
	task->queue = NO_QUEUE;
	waiting_end(&g->d, &task->thread, g->now_ns);
}

static u64 key_of(u32 slot)
{
	return tournament_key(vm_at(&g->d, slot)->vtime_ns, slot);
}

/* The essay's worked example. */
static void two_wait_one_is_taken_then_the_other(void)
{
	struct task_struct *first, *second;
	u32 slot;

	a_busy_ground(1);
	first = enters(3);
	second = enters(3);
	slot = g->slot_of[3];
	CHECK_EQ(entity_rq_of(&g->runqueue[0], slot)->nr_queued, 2);
	CHECK_EQ(tournament_leaf(&g->runqueue[0].by_share, slot), key_of(slot));
	runs(first);
	CHECK_EQ(entity_rq_of(&g->runqueue[0], slot)->nr_queued, 1);
	CHECK(tournament_leaf(&g->runqueue[0].by_share, slot) != TOURNAMENT_NONE);
	runs(second);
	CHECK_EQ(entity_rq_of(&g->runqueue[0], slot)->nr_queued, 0);
	CHECK_EQ(tournament_leaf(&g->runqueue[0].by_share, slot), TOURNAMENT_NONE);
}

static void a_third_that_comes_before_the_leaf_is_cleared_keeps_it(void)
{
	struct task_struct *task;
	u32 slot;

	a_busy_ground(1);
	task = enters(3);
	slot = task->thread.slot;
	/* Between the count's fall to 0 and the clearing, it rises to 1. */
	entity_rq_of(&g->runqueue[0], slot)->nr_queued = 1;
	tournament_settle(&g->d, 0, slot, TOURNAMENT_NONE, key_of(slot));
	CHECK_EQ(tournament_best(&g->d, &g->runqueue[0].by_share), key_of(slot));
}

static void siblings_are_served_in_order_of_their_own_time(void)
{
	struct task_struct *task[3];

	a_busy_ground(1);
	for (u32 i = 0; i < 3; i++) {
		task[i] = kernel_thread(g, 1, THREAD_VCPU);
		task[i]->thread.vruntime_ns = (3 - i) * MS;
		kernel_wake(g, task[i]);
	}
	for (u32 i = 3; i-- > 0; task[i]->queue = NO_QUEUE)
		CHECK(fake_first(g, ground_vm_queue(&g->d, 1, 0), 0) == task[i]);
}

static void the_order_of_siblings_wraps(void)
{
	struct task_struct *before, *after;

	a_busy_ground(1);
	before = kernel_thread(g, 1, THREAD_VCPU);
	after = kernel_thread(g, 1, THREAD_VCPU);
	vm_at(&g->d, 1)->thread_clock_ns = before->thread.vruntime_ns = 0 - 2 * MS;
	pcpu_at(&g->d, 0)->running_vruntime_ns = 0 - 2 * MS - g->now_ns;
	after->thread.vruntime_ns = 2 * MS;
	kernel_wake(g, after);
	kernel_wake(g, before);
	CHECK(fake_first(g, ground_vm_queue(&g->d, 1, 0), 0) == before);
}

static void leaving_twice_is_harmless(void)
{
	struct task_struct *task;

	a_busy_ground(1);
	task = enters(1);
	enters(1);
	for (u32 i = 0; i < 2; i++) {
		waiting_leave(&g->d, &task->thread);
		CHECK_EQ(entity_rq_of(&g->runqueue[0], 1)->nr_queued, 1);
	}
	waiting_end(&g->d, &task->thread, g->now_ns);
	waiting_end(&g->d, &task->thread, g->now_ns);
	CHECK_EQ(vm_at(&g->d, 1)->nr_waiting, 1);
}

static void who_never_waited_may_leave(void)
{
	struct thread t = {};

	g = fake_ground(1, 1);
	waiting_leave(&g->d, &t);
	waiting_end(&g->d, &t, g->now_ns);
}

static void placing_a_queued_thread_anew_counts_it_once(void)
{
	struct task_struct *task;

	a_busy_ground(2);
	task = enters(1);
	kernel_set_affinity(g, task, 1);
	CHECK_EQ(entity_rq_of(&g->runqueue[0], 1)->nr_queued, 1);
	CHECK_EQ(pcpu_at(&g->d, 0)->nr_pinned, 1);
	kernel_set_affinity(g, task, ALL_PCPUS);
	CHECK_EQ(entity_rq_of(&g->runqueue[0], 1)->nr_queued, 1);
	CHECK_EQ(pcpu_at(&g->d, 0)->nr_pinned, 0);
}

static void a_pinned_thread_waits_in_its_vms_queue_for_its_pcpu_alone(void)
{
	struct task_struct *task;

	a_busy_ground(2);
	task = kernel_thread(g, 1, THREAD_VCPU);
	kernel_set_affinity(g, task, 2);
	kernel_wake(g, task);
	CHECK_EQ(task->queue, ground_vm_queue(&g->d, task->thread.slot, 0));
	CHECK_EQ(pcpu_at(&g->d, 1)->nr_pinned, 1);
	for (u32 at = 0; at < 2; at++)
		CHECK_EQ(affinity_fits(&g->d, entity_rq_of(&g->runqueue[0], task->thread.slot), 0,
				       at),
			 at);
	runs(task);
	CHECK_EQ(pcpu_at(&g->d, 1)->nr_pinned, 0);
	CHECK(!affinity_fits(&g->d, entity_rq_of(&g->runqueue[0], task->thread.slot), 0, 1));
}

static void pinned_threads_are_served_in_order_of_their_vms(void)
{
	struct task_struct *ahead, *behind;

	a_busy_ground(2);
	ahead = kernel_thread(g, 1, THREAD_VCPU);
	behind = kernel_thread(g, 2, THREAD_VCPU);
	vm_at(&g->d, ahead->thread.slot)->vtime_ns += 20 * MS;
	kernel_set_affinity(g, ahead, 1);
	kernel_set_affinity(g, behind, 1);
	kernel_wake(g, ahead);
	kernel_wake(g, behind);
	CHECK_EQ(tournament_slot(next_vm(&g->d, 0, 0, TOURNAMENT_NONE, 0)), behind->thread.slot);
}

static void a_wait_is_counted_from_the_first_time_it_began(void)
{
	struct task_struct *task;

	a_busy_ground(1);
	task = enters(1);
	g->now_ns += 3 * MS;
	waiting_begin(&g->d, &task->thread);
	g->now_ns += 4 * MS;
	waiting_end(&g->d, &task->thread, g->now_ns);
	CHECK_EQ(vm_at(&g->d, 1)->counters.ready_ns, 7 * MS);
	CHECK_EQ(vm_at(&g->d, 1)->counters.longest_ready_ns, 7 * MS);
}

static void the_longest_wait_is_kept(void)
{
	struct task_struct *task;

	a_busy_ground(1);
	task = kernel_thread(g, 1, THREAD_VCPU);
	for (u32 i = 0; i < 3; i++) {
		waiting_begin(&g->d, &task->thread);
		g->now_ns += (9 - 4 * i) * MS;
		waiting_end(&g->d, &task->thread, g->now_ns);
	}
	CHECK_EQ(vm_at(&g->d, 1)->counters.ready_ns, 15 * MS);
	CHECK_EQ(vm_at(&g->d, 1)->counters.longest_ready_ns, 9 * MS);
}

/* Under another promise nobody may hold a wait against this one. */
static void the_longest_wait_counts_from_when_settings_changed(void)
{
	struct task_struct *task;

	a_busy_ground(1);
	task = kernel_thread(g, 1, THREAD_VCPU);
	for (u32 i = 0; i < 2; i++) {
		waiting_begin(&g->d, &task->thread);
		g->now_ns += 9 * MS;
		if (i)
			kernel_settle_vm(g, 1);
		g->now_ns += 2 * MS;
		waiting_end(&g->d, &task->thread, g->now_ns);
		CHECK_EQ(kernel_vm(g, 1)->counters.longest_ready_ns, i ? 2 * MS : 11 * MS);
	}
	CHECK_EQ(kernel_vm(g, 1)->counters.ready_ns, 22 * MS);
}

static void a_clock_that_lags_makes_no_huge_wait(void)
{
	struct task_struct *task;

	a_busy_ground(1);
	task = enters(1);
	waiting_end(&g->d, &task->thread, g->now_ns - 1);
	CHECK_EQ(vm_at(&g->d, 1)->counters.ready_ns, 0);
	CHECK_EQ(vm_at(&g->d, 1)->nr_waiting, 0);
}

static void the_time_ready_is_what_the_threads_waited(void)
{
	u64 waited_ns = 0;

	g = fake_ground(2, 1);
	kernel_busy_vm(g, 1, 4, 0);
	kernel_run(g, SECOND);
	for (u32 i = 0; i < 4; i++)
		if (g->task[i].state == TASK_READY)
			waited_ns += g->now_ns - g->task[i].ready_at_ns;
	CHECK_EQ(kernel_vm(g, 1)->counters.ready_ns + waited_ns, 2 * SECOND);
}

int main(void)
{
	RUN(two_wait_one_is_taken_then_the_other);
	RUN(a_third_that_comes_before_the_leaf_is_cleared_keeps_it);
	RUN(siblings_are_served_in_order_of_their_own_time);
	RUN(the_order_of_siblings_wraps);
	RUN(leaving_twice_is_harmless);
	RUN(who_never_waited_may_leave);
	RUN(placing_a_queued_thread_anew_counts_it_once);
	RUN(a_pinned_thread_waits_in_its_vms_queue_for_its_pcpu_alone);
	RUN(pinned_threads_are_served_in_order_of_their_vms);
	RUN(a_wait_is_counted_from_the_first_time_it_began);
	RUN(the_longest_wait_is_kept);
	RUN(the_longest_wait_counts_from_when_settings_changed);
	RUN(a_clock_that_lags_makes_no_huge_wait);
	RUN(the_time_ready_is_what_the_threads_waited);
	return check_done();
}

// SPDX-License-Identifier: GPL-2.0-only
/* Sets of pCPUs: policy/queue/affinity.h, policy/pick/pick.h, and what holds for confined VMs. */
#include "fake_kernel.h"

static struct ground *g;

static void confine(u32 tgid, u64 allowed)
{
	for (u32 i = 0; i < FAKE_TASKS; i++)
		if (g->task[i].state != TASK_NONE && g->task[i].tgid == tgid)
			kernel_set_affinity(g, &g->task[i], allowed);
}

/* A VM of busy vCPUs, confined before any of them runs. */
static void confined_vm(u32 tgid, u32 nr_vcpus, u32 shares, u64 allowed)
{
	struct task_struct *vcpu[FAKE_TASKS];

	for (u32 i = 0; i < nr_vcpus; i++) {
		vcpu[i] = kernel_thread(g, tgid, THREAD_VCPU);
		kernel_set_affinity(g, vcpu[i], allowed);
	}
	kernel_vm(g, tgid)->domain = DOMAIN_NONE;
	kernel_set_shares(g, tgid, shares);
	for (u32 i = 0; i < nr_vcpus; i++)
		kernel_wake(g, vcpu[i]);
}

static void a_mask_says_where_threads_that_wait_may_run(void)
{
	struct task_struct *task;
	struct entity_rq *books;

	g = fake_ground(8, 2);
	task = kernel_thread(g, 1, THREAD_VCPU);
	kernel_set_affinity(g, task, 0x16); /* pCPUs 1, 2, 4 */
	CHECK_EQ(affinity_mask(&g->d, task, &task->thread, 0), 6);
	CHECK(task->thread.affinity_remote);
	CHECK_EQ(affinity_mask(&g->d, task, &task->thread, 1), 1);
	CHECK_EQ(affinity_mask(&g->d, task, &task->thread, 0), 6);
	kernel_set_affinity(g, task, 0xf0);
	CHECK_EQ(affinity_mask(&g->d, task, &task->thread, 1), AFFINITY_ALL);
	CHECK(!task->thread.affinity_remote && !task->thread.pinned_cpu);
	kernel_set_affinity(g, task, 0x20);
	CHECK_EQ(task->thread.pinned_cpu, 6);
	books = entity_rq_of(&g->runqueue[1], 1);
	affinity_add(&g->d, books, &task->thread, 2);
	for (u32 at = 4; at < 8; at++)
		CHECK_EQ(affinity_fits(&g->d, books, 1, at), at == 5);
	affinity_remove(&g->d, books, &task->thread);
	CHECK(!affinity_fits(&g->d, books, 1, 5));
	kernel_set_affinity(g, task, 0x16);
	books = entity_rq_of(&g->runqueue[0], 1);
	affinity_add(&g->d, books, &task->thread, 6);
	CHECK(affinity_fits(&g->d, books, 0, 1) && !affinity_fits(&g->d, books, 0, 3));
	affinity_forget(books);
	CHECK(!affinity_fits(&g->d, books, 0, 1));
}

/* Thirty VMs that may not run on pCPU 0 stand before one that may. */
static void who_may_not_run_here_hides_nobody_who_may(void)
{
	g = fake_ground(2, 1);
	for (u32 tgid = 2; tgid < 32; tgid++)
		confined_vm(tgid, 1, 0, 2);
	kernel_busy_vm(g, 1, 1, 0);
	kernel_vm(g, 1)->vtime_ns += SECOND / 2;
	kernel_run(g, 100 * MS);
	CHECK(g->pcpu[0].current && g->pcpu[0].current->tgid == 1);
	CHECK(kernel_cpu_time_ns(g, 1) > 90 * MS);
}

/* Where three VMs share a domain time passes more slowly than where one has another for itself. */
static void each_domain_has_its_own_clock(void)
{
	g = fake_ground(4, 2);
	confined_vm(1, 2, 2000, 3);
	for (u32 tgid = 2; tgid <= 4; tgid++)
		confined_vm(tgid, 2, 2000, 12);
	kernel_run(g, 3 * SECOND);
	CHECK_NEAR(kernel_cpu_time_ns(g, 1), 6 * SECOND, 100 * MS);
	CHECK_NEAR(kernel_cpu_time_ns(g, 2), 2 * SECOND, 100 * MS);
	/* Who comes has its part from then on, in either. */
	confined_vm(5, 2, 2000, 3);
	confined_vm(6, 2, 2000, 12);
	kernel_run(g, 2 * SECOND);
	CHECK_NEAR(kernel_cpu_time_ns(g, 5), 2 * SECOND, 100 * MS);
	CHECK_NEAR(kernel_cpu_time_ns(g, 6), SECOND, 100 * MS);
}

/*
 * A task of the host, far ahead by what it had elsewhere, waits where a VM has all pCPUs, and is
 * taken to the other domain. Who sleeps here would else be held to have slept through all that.
 */
static void who_is_taken_to_another_domain_does_not_move_the_clock(void)
{
	struct task_struct *host;
	u64 clock_ns;

	g = fake_ground(4, 2);
	confined_vm(1, 2, 0, 3);
	confined_vm(2, 2, 0, 12);
	kernel_run(g, 100 * MS);
	clock_ns = g->d.domain[0].clock_ns;
	vm_at(&g->d, DROVER_HOST_SLOT)->domain = 1;
	vm_at(&g->d, DROVER_HOST_SLOT)->vtime_ns = clock_ns + SECOND / 2;
	host = kernel_thread(g, 0, THREAD_HOST);
	host->burst_ns = NEVER;
	kernel_wake(g, host);
	CHECK_EQ(host->thread.queued_in, 1);
	kernel_vm(g, 2)->vtime_ns = clock_ns + SECOND;
	g->pcpu[2].current->slice_ns = 0;
	kernel_pick(g, 2);
	kernel_switch(g, 2);
	CHECK(g->pcpu[2].current == host);
	CHECK_EQ(g->d.domain[0].clock_ns, clock_ns);
}

static void a_confined_vm_has_its_reservation(void)
{
	g = fake_ground(4, 2);
	confined_vm(1, 1, 0, 3);
	kernel_vm(g, 1)->asked.reservation_mcpu = 900;
	kernel_settle_vm(g, 1);
	for (u32 tgid = 2; tgid <= 4; tgid++)
		confined_vm(tgid, 2, 0, 3);
	confined_vm(5, 4, 0, 12);
	kernel_run(g, 4 * SECOND);
	CHECK(kernel_cpu_time_ns(g, 1) >= 4 * 890 * MS);
	CHECK_NEAR(kernel_cpu_time_ns(g, 2), kernel_cpu_time_ns(g, 3), 100 * MS);
}

/* VMs on 0-1, 1-2, 2-3 and 0-3: a pCPU for each. */
static void overlapping_sets_divide_evenly(void)
{
	g = fake_ground(4, 2);
	confined_vm(1, 2, 0, 3);
	confined_vm(2, 2, 0, 6);
	confined_vm(3, 2, 0, 12);
	confined_vm(4, 2, 0, 9);
	kernel_run(g, 4 * SECOND);
	for (u32 tgid = 1; tgid <= 4; tgid++)
		CHECK_NEAR(kernel_cpu_time_ns(g, tgid), 4 * SECOND, 320 * MS);
}

/*
 * One that may run anywhere stands on pCPU 0, and is always the least served. Behind it waits who
 * may run on 0 and 1 only, and is owed both.
 */
static void who_may_run_elsewhere_steps_aside(void)
{
	for (u32 nr_domains = 1; nr_domains <= 2; nr_domains++) {
		g = fake_ground(4, nr_domains);
		kernel_busy_vm(g, 1, 1, 1000);
		confined_vm(2, 4, 1000, 3);
		confined_vm(3, 4, 500, 12);
		kernel_run(g, 4 * SECOND);
		CHECK_NEAR(kernel_cpu_time_ns(g, 1), 4 * SECOND, 80 * MS);
		CHECK_NEAR(kernel_cpu_time_ns(g, 2), 8 * SECOND, 240 * MS);
		CHECK_NEAR(kernel_cpu_time_ns(g, 3), 4 * SECOND, 240 * MS);
	}
}

/* Moved to a disjoint set and back under load, nobody starves. */
static void a_set_that_changes_starves_nobody(void)
{
	g = fake_ground(4, 2);
	for (u32 tgid = 1; tgid <= 3; tgid++)
		confined_vm(tgid, 2, 0, 3);
	confined_vm(4, 2, 0, 12);
	for (u32 i = 0; i < 100; i++) {
		confine(1, i % 2 ? 3 : 12);
		kernel_run(g, 30 * MS);
	}
	kernel_run(g, 2 * SECOND);
	CHECK(kernel_longest_wait_ns(g) < SECOND + SECOND / 4);
	CHECK(kernel_cpu_time_ns(g, 1) > SECOND);
}

/* It may run on these pCPUs; the host's programs have used far more than is theirs. */
static void a_kernel_thread_never_waits_for_vms_on(u64 pcpus)
{
	struct task_struct *kworker;

	g = fake_ground(2, 1);
	kernel_busy_vm(g, 1, 2, 1000000);
	kernel_vm(g, 1)->asked.reservation_mcpu = 2000;
	kernel_settle_vm(g, 1);
	kworker = kernel_thread(g, 0, THREAD_HOST);
	kworker->kernel_thread = true;
	kworker->burst_ns = kworker->burst_left_ns = 100 * US;
	kworker->sleep_ns = 3 * MS;
	kernel_set_affinity(g, kworker, pcpus);
	kernel_run(g, MS);
	vm_at(&g->d, DROVER_HOST_SLOT)->vtime_ns += 10 * SECOND;
	kernel_wake(g, kworker);
	kernel_run(g, SECOND);
	CHECK(kworker->longest_wait_ns < 10 * US);
	CHECK(kworker->cpu_time_ns > 30 * MS);
}

static void a_kernel_thread_never_waits_for_vms(void)
{
	a_kernel_thread_never_waits_for_vms_on(1);
	a_kernel_thread_never_waits_for_vms_on(3);
}

static void a_kernel_thread_does_not_wait_for_a_real_time_task(void)
{
	struct task_struct *kworker;
	enum drover_wakes wakes;
	u32 at;

	g = fake_ground(2, 1);
	kernel_busy_vm(g, 1, 2, 1000);
	kernel_run(g, 20 * MS);
	kworker = kernel_thread(g, 0, THREAD_HOST);
	kworker->kernel_thread = true;
	vm_at(&g->d, DROVER_HOST_SLOT)->vtime_ns += 10 * SECOND;
	at = drover_select(&g->d, kworker, &kworker->thread, &wakes);
	CHECK_EQ(wakes, WAKES_TO_PREEMPT);
	pcpu_at(&g->d, at)->running_slot = DROVER_MAX_VMS;
	drover_pcpu_taken(&g->d, at);
	kworker->pcpu = at;
	CHECK_EQ(drover_select(&g->d, kworker, &kworker->thread, &wakes), !at);
	CHECK_EQ(wakes, WAKES_TO_PREEMPT);
}

static void a_pcpu_that_is_taken_is_not_free(void)
{
	g = fake_ground(2, 1);
	CHECK(pcpu_is_idle(pcpu_at(&g->d, 0)));
	drover_pcpu_taken(&g->d, 0);
	CHECK(g->place_anew && !pcpu_is_idle(pcpu_at(&g->d, 0)));
	entity_rq_of(&g->runqueue[0], 1)->may = AFFINITY_ALL;
	CHECK_EQ(plan_count(&g->d, 1, 1, false, false), 0);
	drover_pcpu_returned(&g->d, 0);
	CHECK_EQ(plan_count(&g->d, 1, 1, false, false), 1);
	kernel_offline(g, 0);
	CHECK_EQ(plan_count(&g->d, 1, 1, false, false), 0);
}

int main(void)
{
	RUN(a_mask_says_where_threads_that_wait_may_run);
	RUN(who_may_not_run_here_hides_nobody_who_may);
	RUN(each_domain_has_its_own_clock);
	RUN(who_is_taken_to_another_domain_does_not_move_the_clock);
	RUN(a_confined_vm_has_its_reservation);
	RUN(overlapping_sets_divide_evenly);
	RUN(who_may_run_elsewhere_steps_aside);
	RUN(a_set_that_changes_starves_nobody);
	RUN(a_kernel_thread_never_waits_for_vms);
	RUN(a_kernel_thread_does_not_wait_for_a_real_time_task);
	RUN(a_pcpu_that_is_taken_is_not_free);
	return check_done();
}

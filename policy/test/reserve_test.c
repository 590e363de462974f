// SPDX-License-Identifier: GPL-2.0-only
/* CPU time that is promised: policy/share/share.h. */
#include "fake_kernel.h"

static struct ground *g;

static void reserve(u32 tgid, u32 mcpu)
{
	kernel_vm(g, tgid)->asked.reservation_mcpu = mcpu;
	kernel_settle_vm(g, tgid);
}

/* pCPUs the VM had on average while so much time passed. */
static double pcpus_over(u32 tgid, u64 duration_ns)
{
	u64 before_ns = kernel_cpu_time_ns(g, tgid);

	kernel_run(g, duration_ns);
	return (double)(kernel_cpu_time_ns(g, tgid) - before_ns) / (double)duration_ns;
}

/* While next to nothing was promised, two slices paid for more than a second. */
static void a_larger_promise_holds_at_once(void)
{
	g = fake_ground(1, 1);
	kernel_busy_vm(g, 1, 1, 0);
	kernel_busy_vm(g, 2, 1, 0);
	reserve(1, 10);
	kernel_run(g, SECOND);
	CHECK(kernel_vm(g, 1)->reserve_tag_ns > g->now_ns + SECOND);
	reserve(1, 800);
	CHECK(kernel_vm(g, 1)->reserve_tag_ns <= g->now_ns + 20 * MS);
}

/* A VM of one vCPU that sleeps, until it is woken by hand. */
static struct task_struct *a_sleeper(u32 tgid, u32 mcpu)
{
	struct task_struct *task = kernel_thread(g, tgid, THREAD_VCPU);

	reserve(tgid, mcpu);
	return task;
}

static void a_fully_reserved_vcpu_beside_one_to_seven_rivals(void)
{
	for (u32 rivals = 1; rivals <= 7; rivals++) {
		double rest = rivals < 4 ? 1.0 : 3.0 / rivals;

		g = fake_ground(4, 1);
		for (u32 i = 0; i < rivals; i++)
			kernel_busy_vm(g, 2 + i, 1, 0);
		kernel_busy_vm(g, 1, 1, 0);
		reserve(1, 1000);
		CHECK(pcpus_over(1, 4 * SECOND) >= 0.99);
		for (u32 i = 0; i < rivals; i++)
			CHECK_NEAR((double)kernel_cpu_time_ns(g, 2 + i) / (double)(4 * SECOND),
				   rest, 0.02 * rest);
	}
}

static void half_a_pcpu_on_one_is_every_other_slice(void)
{
	g = fake_ground(1, 1);
	for (u32 i = 1; i <= 5; i++)
		kernel_busy_vm(g, i, 1, 0);
	reserve(1, 500);
	CHECK_NEAR(pcpus_over(1, SECOND), 0.5, 0.01);
	CHECK_NEAR(pcpus_over(2, SECOND), 0.125, 0.01);
}

static void a_vm_gets_the_larger_of_reservation_and_share_not_the_sum(void)
{
	g = fake_ground(2, 1);
	kernel_busy_vm(g, 1, 2, 1000);
	kernel_busy_vm(g, 2, 2, 1000);
	reserve(1, 500);
	CHECK_NEAR(pcpus_over(1, 4 * SECOND), 1.0, 0.02);
}

static void what_is_not_used_is_lent(void)
{
	g = fake_ground(1, 1);
	a_sleeper(1, 900);
	kernel_busy_vm(g, 2, 1, 0);
	CHECK_NEAR(pcpus_over(2, SECOND), 1.0, 0.0);
}

static void who_slept_two_seconds_has_its_reservation_at_once(void)
{
	struct task_struct *vcpu[3];

	g = fake_ground(4, 1);
	for (u32 i = 0; i < 3; i++)
		vcpu[i] = a_sleeper(1, 3000);
	kernel_busy_vm(g, 2, 8, 1000000);
	kernel_run(g, 2 * SECOND);
	for (u32 i = 0; i < 3; i++)
		kernel_wake(g, vcpu[i]);
	CHECK(pcpus_over(1, 20 * MS) >= 2.9);
	CHECK(pcpus_over(1, SECOND) >= 2.97);
}

static void sleeping_saves_up_no_more_than_a_small_credit(void)
{
	struct task_struct *vcpu;

	g = fake_ground(1, 1);
	vcpu = a_sleeper(1, 250);
	vm_at(&g->d, g->slot_of[1])->asked.shares = 1;
	reserve(1, 250);
	kernel_busy_vm(g, 2, 1, 1000000);
	kernel_run(g, 10 * SECOND);
	kernel_wake(g, vcpu);
	/* A slice may be begun at the last moment. */
	CHECK(pcpus_over(1, 400 * MS) <= 0.25 + (0.25 * 5 + 8) / 400);
}

/* Each of six found the VM due at the end of its slice, the others not being charged yet, and had
 * two. */
static void what_runs_and_is_not_charged_yet_counts(void)
{
	g = fake_ground(8, 1);
	kernel_busy_vm(g, 1, 6, 0);
	kernel_settle(g);
	reserve(1, 1250);
	CHECK(reserve_is_due(kernel_vm(g, 1), g->now_ns));
	g->now_ns += 8 * MS;
	CHECK(!reserve_is_due(kernel_vm(g, 1), g->now_ns));
	/* 48 ms of CPU time pay for 38.4 ms. */
	CHECK_NEAR((double)reserve_overdue_ns(kernel_vm(g, 1), g->now_ns), -30.4 * MS, 0.1 * MS);
}

/* Its leaf would say so, and it would wait, for what it will never be charged. */
static void what_is_not_charged_yet_takes_nobody_further_ahead_than_may_be(void)
{
	struct vm *vm;

	g = fake_ground(8, 1);
	kernel_busy_vm(g, 1, 6, 0);
	kernel_settle(g);
	reserve(1, 100);
	vm = kernel_vm(g, 1);
	g->now_ns += 16 * MS;
	/* 96 ms of CPU time would pay for 960 ms; seven slices pay for 560. */
	CHECK(reserve_overdue_ns(vm, g->now_ns) < -900 * (s64)MS);
	CHECK((s64)(reserve_due_ns(&g->d, vm, g->now_ns) - g->now_ns) < 561 * (s64)MS);
}

static void who_had_the_host_for_itself_is_due_soon_after_rivals_come(void)
{
	g = fake_ground(2, 1);
	kernel_busy_vm(g, 1, 2, 1);
	reserve(1, 1000);
	kernel_run(g, 10 * SECOND);
	kernel_busy_vm(g, 2, 8, 1000000);
	kernel_run(g, 32 * MS);
	CHECK(pcpus_over(1, 200 * MS) >= 0.96);
}

static void who_loses_its_reservation_is_not_starved_for_what_it_had(void)
{
	g = fake_ground(2, 1);
	for (u32 i = 1; i <= 6; i++)
		kernel_busy_vm(g, i, 1, 0);
	reserve(1, 1000);
	kernel_run(g, 10 * SECOND);
	reserve(1, 0);
	CHECK_EQ(g->d.nr_reserved, 0);
	kernel_run(g, 200 * MS);
	CHECK_NEAR(pcpus_over(1, SECOND), 1.0 / 3, 0.03);
}

static void a_due_waker_preempts_who_is_not_and_never_who_is(void)
{
	struct task_struct *first, *second;

	g = fake_ground(1, 1);
	first = a_sleeper(1, 600);
	second = a_sleeper(2, 400);
	kernel_busy_vm(g, 3, 1, 1000000);
	kernel_run(g, 3 * MS);
	kernel_wake(g, first);
	kernel_settle(g);
	CHECK(g->pcpu[0].current == first);
	kernel_wake(g, second);
	kernel_settle(g);
	CHECK(g->pcpu[0].current == first);
}

/* Who is promised much may be far ahead by shares, and would be put out first; or ahead by less
 * than what others are put out for, and was put out alone. */
static void the_host_puts_out_who_runs_by_its_reservation_last(void)
{
	for (u32 i = 0; i < 4; i++) {
		u32 nr_pcpus = 1 + i % 2;
		u64 ahead_ns = i < 2 ? 100 * MS : 200 * US;
		struct task_struct *host;
		u64 nr_dispatches;

		g = fake_ground(nr_pcpus, 1);
		for (u32 tgid = 1; tgid <= nr_pcpus; tgid++)
			kernel_busy_vm(g, tgid, 1, 0);
		reserve(1, 1000);
		kernel_run(g, 10 * MS);
		host = kernel_thread(g, 0, THREAD_HOST);
		vm_at(&g->d, DROVER_HOST_SLOT)->vtime_ns = g->d.domain[0].clock_ns;
		for (u32 tgid = 1; tgid <= nr_pcpus; tgid++)
			kernel_vm(g, tgid)->vtime_ns = g->d.domain[0].clock_ns + ahead_ns / tgid;
		nr_dispatches = kernel_runs(g, 1);
		kernel_wake(g, host);
		kernel_settle(g);
		CHECK_EQ(host->state, TASK_RUNNING);
		CHECK_EQ(kernel_runs(g, 1), nr_dispatches);
		CHECK_EQ(!!share_nr_running(kernel_vm(g, 1)), nr_pcpus == 2);
	}
}

/* A task of the host that may run on pCPU 0 only takes it. */
static void who_is_put_out_although_due_has_another_pcpu_at_once(void)
{
	struct task_struct *due, *host;

	g = fake_ground(2, 1);
	kernel_busy_vm(g, 1, 1, 0);
	kernel_busy_vm(g, 2, 1, 0);
	reserve(1, 1000);
	kernel_run(g, 10 * MS);
	due = g->pcpu[0].current;
	CHECK_EQ(due->tgid, 1);
	host = kernel_thread(g, 0, THREAD_HOST);
	host->burst_ns = NEVER;
	kernel_set_affinity(g, host, 1);
	vm_at(&g->d, DROVER_HOST_SLOT)->vtime_ns = g->d.domain[0].clock_ns;
	kernel_vm(g, 1)->vtime_ns = g->d.domain[0].clock_ns + 100 * MS;
	kernel_wake(g, host);
	kernel_settle(g);
	CHECK(g->pcpu[0].current == host);
	CHECK(g->pcpu[1].current == due);
}

static void in_another_domain_who_is_due_is_found(void)
{
	g = fake_ground(4, 2);
	for (u32 i = 0; i < 2; i++)
		kernel_busy_vm(g, 1 + i, 2, 1);
	kernel_busy_vm(g, 3, 16, 1000000);
	reserve(1, 1500);
	reserve(2, 1500);
	kernel_run(g, SECOND);
	CHECK(pcpus_over(1, 2 * SECOND) >= 1.45);
	CHECK(pcpus_over(2, 2 * SECOND) >= 1.45);
}

static void without_reservations_nothing_is_asked(void)
{
	g = fake_ground(1, 1);
	kernel_busy_vm(g, 1, 1, 0);
	kernel_busy_vm(g, 2, 1, 0);
	kernel_run(g, SECOND);
	CHECK_EQ(g->d.nr_reserved, 0);
	CHECK(!reserve_is_due(kernel_vm(g, 1), g->now_ns));
}

static void a_vm_that_goes_takes_its_reservation_along(void)
{
	g = fake_ground(1, 1);
	kernel_busy_vm(g, 1, 1, 0);
	reserve(1, 300);
	CHECK_EQ(g->d.nr_reserved, 1);
	kernel_settle(g);
	kernel_exit(g, 0);
	CHECK_EQ(g->d.nr_reserved, 0);
}

/* Water filling with floors: what each VM is owed, pCPUs. */
static void fill(u32 nr, const u32 *shares, const double *floor, const double *most, double pcpus,
		 double *owed)
{
	double low = 0, high = pcpus;

	for (u32 round = 0; round < 100; round++) {
		double level = (low + high) / 2, sum = 0;

		for (u32 i = 0; i < nr; i++) {
			owed[i] = level * shares[i];
			owed[i] = owed[i] < floor[i] ? floor[i] : owed[i];
			owed[i] = owed[i] > most[i] ? most[i] : owed[i];
			sum += owed[i];
		}
		if (sum > pcpus)
			high = level;
		else
			low = level;
	}
}

static void random_vms_get_what_floors_and_shares_say(void)
{
	for (u32 run = 0; run < 30; run++) {
		u32 nr_pcpus = check_random_in(1, 8), nr = check_random_in(2, 9);
		u32 shares[9], wide[9];
		double floor[9], most[9], owed[9], left = 0.9 * nr_pcpus;

		g = fake_ground(nr_pcpus, 1);
		for (u32 i = 0; i < nr; i++) {
			wide[i] = check_random_in(1, nr_pcpus);
			most[i] = wide[i];
			shares[i] = check_random_in(500, 4000);
			floor[i] = check_chance(50) ? 0 : left * check_random_in(5, 60) / 100;
			floor[i] = floor[i] > most[i] ? most[i] : floor[i];
			left -= floor[i];
			kernel_busy_vm(g, 1 + i, wide[i], shares[i]);
			reserve(1 + i, (u32)(1000 * floor[i]));
		}
		fill(nr, shares, floor, most, nr_pcpus, owed);
		kernel_run(g, 2 * SECOND);
		for (u32 i = 0; i < nr; i++) {
			double got = (double)kernel_cpu_time_ns(g, 1 + i) / (double)(2 * SECOND);

			CHECK_NEAR(100 * got / nr_pcpus, 100 * owed[i] / nr_pcpus, 2.0);
		}
	}
}

int main(void)
{
	RUN(a_fully_reserved_vcpu_beside_one_to_seven_rivals);
	RUN(half_a_pcpu_on_one_is_every_other_slice);
	RUN(a_vm_gets_the_larger_of_reservation_and_share_not_the_sum);
	RUN(what_is_not_used_is_lent);
	RUN(who_slept_two_seconds_has_its_reservation_at_once);
	RUN(sleeping_saves_up_no_more_than_a_small_credit);
	RUN(what_is_not_charged_yet_takes_nobody_further_ahead_than_may_be);
	RUN(who_had_the_host_for_itself_is_due_soon_after_rivals_come);
	RUN(a_larger_promise_holds_at_once);
	RUN(what_runs_and_is_not_charged_yet_counts);
	RUN(who_loses_its_reservation_is_not_starved_for_what_it_had);
	RUN(a_due_waker_preempts_who_is_not_and_never_who_is);
	RUN(the_host_puts_out_who_runs_by_its_reservation_last);
	RUN(who_is_put_out_although_due_has_another_pcpu_at_once);
	RUN(in_another_domain_who_is_due_is_found);
	RUN(without_reservations_nothing_is_asked);
	RUN(a_vm_that_goes_takes_its_reservation_along);
	RUN(random_vms_get_what_floors_and_shares_say);
	return check_done();
}

// SPDX-License-Identifier: GPL-2.0-only
/* Nobody waits forever: policy/guarantee/wait_bound.h. */
#include "fake_kernel.h"

/* The bound, until it is looked at next, and until the running slice ends. */
#define LONGEST_NS (SECOND + SECOND / 8 + 8 * MS)
/* How long a pCPU gives no turn after one of a quarter slice: turns take a fiftieth. */
#define TURN_APART_NS (50 * 2 * MS)

static struct ground *g;

/* The essay's worked example; here a turn has no tick to run on to. */
static void a_millionth_of_the_shares_still_gets_a_turn_a_second(void)
{
	g = fake_ground(1, 1);
	kernel_busy_vm(g, 1, 1, 1);
	kernel_busy_vm(g, 2, 1, 1000000);
	kernel_run(g, 8 * MS);
	CHECK_EQ(kernel_vm(g, 1)->vtime_ns, 8 * SECOND);
	kernel_run(g, 20 * SECOND);
	CHECK_NEAR(kernel_cpu_time_ns(g, 1), 20 * 2 * MS, 10 * MS);
	CHECK(kernel_longest_wait_ns(g) <= LONGEST_NS);
}

static void nobody_is_forgiven_before_the_bound(void)
{
	g = fake_ground(1, 1);
	kernel_busy_vm(g, 1, 1, 1);
	kernel_busy_vm(g, 2, 1, 1000000);
	kernel_run(g, 990 * MS);
	CHECK_EQ(kernel_vm(g, 1)->counters.nr_starvation_boosts, 0);
	CHECK_EQ(kernel_vm(g, 1)->vtime_ns, 8 * SECOND);
	kernel_run(g, 200 * MS);
	CHECK_EQ(kernel_vm(g, 1)->counters.nr_starvation_boosts, 1);
	CHECK_EQ(kernel_cpu_time_ns(g, 1), 10 * MS);
}

/* VM 2 runs on one of two pCPUs, VM 3 on none. */
static void a_debt_is_forgiven_a_claim_is_not(void)
{
	g = fake_ground(2, 1);
	for (u32 tgid = 1; tgid <= 3; tgid++)
		kernel_busy_vm(g, tgid, 1, 1000);
	kernel_settle(g);
	for (u32 tgid = 2; tgid <= 3; tgid++) {
		struct vm *vm = kernel_vm(g, tgid);

		for (s64 ahead_ms = -20; ahead_ms <= 20; ahead_ms += 40) {
			u64 clock_ns = g->d.domain[0].clock_ns;
			s64 left_ms = tgid == 2 ? min_signed(ahead_ms, 0) : ahead_ms;

			vm->vtime_ns = clock_ns + (u64)(ahead_ms * (s64)MS);
			pick_forgive(&g->d, g->slot_of[tgid], 0);
			CHECK_EQ((s64)(vm->vtime_ns - clock_ns), left_ms * (s64)MS);
		}
	}
}

/* A vCPU, asleep, of a VM of so many shares, that may run on pCPU 0 only. */
static struct task_struct *pinned_vcpu(u32 tgid, u32 shares)
{
	struct task_struct *task = kernel_thread(g, tgid, THREAD_VCPU);

	kernel_set_shares(g, tgid, shares);
	kernel_set_affinity(g, task, 1);
	return task;
}

static void a_pinned_vm_of_few_shares_does_not_wait_longer(void)
{
	g = fake_ground(2, 1);
	kernel_wake(g, pinned_vcpu(1, 1));
	kernel_wake(g, pinned_vcpu(2, 1000000));
	kernel_busy_vm(g, 3, 4, 4000);
	kernel_run(g, 10 * SECOND);
	CHECK(kernel_longest_wait_ns(g) <= LONGEST_NS);
	CHECK(g->task[0].cpu_time_ns >= 8 * 2 * MS);
}

/* Turns that others cut short are no turns: the next would be a second away. */
static void a_turn_is_not_cut_short_by_who_wakes(void)
{
	struct task_struct *sleeper;

	g = fake_ground(2, 1);
	kernel_wake(g, pinned_vcpu(1, 1));
	kernel_wake(g, pinned_vcpu(2, 1000000));
	sleeper = pinned_vcpu(3, 1000000);
	sleeper->burst_ns = sleeper->burst_left_ns = 20 * US;
	sleeper->sleep_ns = 400 * US;
	kernel_wake(g, sleeper);
	kernel_run(g, 10 * SECOND);
	CHECK(g->task[0].cpu_time_ns >= 8 * 2 * MS);
}

/* In the lab every fifth turn of 16 vCPUs ended after 80 us: the other pCPU had begun a round. */
static void a_turn_is_not_cut_short_by_a_round(void)
{
	for (u32 turn = 0; turn <= 1; turn++) {
		g = fake_ground(2, 1);
		kernel_busy_vm(g, 1, 4, 0);
		kernel_busy_vm(g, 2, 2, 0);
		kernel_run(g, SECOND);
		CHECK(kernel_vm(g, 1)->coscheduled && kernel_vm(g, 2)->coscheduled);
		g->now_ns = g->d.round_end_ns + MS;
		pcpu_at(&g->d, 1)->order = (struct order){
			.why = turn ? ORDER_TURN : ORDER_NONE,
			.until_ns = g->now_ns + MS,
		};
		g->pcpu[0].current->slice_ns = 0;
		kernel_pick(g, 0);
		CHECK_EQ(g->preempts >> 1 & 1, !turn);
	}
}

/*
 * Nor by an interrupt that was sent before it began: in the lab one of a hundred turns ended after
 * 30 us, and the next was a second away.
 */
static void a_turn_is_not_cut_short_by_what_was_sent_before(void)
{
	for (u32 nr_pcpus = 1; nr_pcpus <= 2; nr_pcpus++) {
		struct task_struct *poor, *before = NULL;

		/* Where there are two they stand in the queue of the one. */
		g = fake_ground(nr_pcpus, 1);
		poor = pinned_vcpu(1, 1);
		kernel_wake(g, poor);
		kernel_wake(g, pinned_vcpu(2, 1000000));
		for (u32 step = 0; step < 100000; step++) {
			kernel_run(g, 100 * US);
			if (g->pcpu[0].current == poor && before != poor) {
				kernel_run(g, 30 * US);
				poor->slice_ns = 0;
				g->pcpu[0].resched = true;
			}
			before = g->pcpu[0].current;
		}
		CHECK(poor->cpu_time_ns >= 8 * 2 * MS);
	}
}

/*
 * Taken while nobody else waited, and put out by who woke: in the lab a VM stood still for 1.53 s
 * after that, because it counted as served.
 */
static void who_was_put_out_at_once_was_not_served(void)
{
	for (u32 nr_pcpus = 1; nr_pcpus <= 2; nr_pcpus++) {
		u64 served_at_ns, run_ns = 0;
		struct task_struct *poor, *rich;

		/* Where there are two they stand in the queue of the one. */
		g = fake_ground(nr_pcpus, 1);
		served_at_ns = g->now_ns;
		poor = pinned_vcpu(1, 1);
		rich = pinned_vcpu(2, 1000000);
		rich->burst_ns = rich->burst_left_ns = 600 * MS;
		rich->sleep_ns = 100 * US;
		kernel_wake(g, rich);
		kernel_wake(g, poor);
		for (u32 step = 0; step < 100000; step++) {
			kernel_run(g, 100 * US);
			if (poor->cpu_time_ns - run_ns >= MS) {
				run_ns = poor->cpu_time_ns;
				served_at_ns = g->now_ns;
			}
			CHECK(g->now_ns - served_at_ns <= 1200 * MS);
		}
	}
}

/* A run counts unless others cut it short. */
static void what_counts_as_served(void)
{
	for (u32 i = 0; i < 8; i++) {
		u32 own = i >> 2, brief = i >> 1 & 1, preempted = i & 1;
		struct thread *t;

		g = fake_ground(1, 1);
		kernel_busy_vm(g, 1, 1, 0);
		kernel_settle(g);
		t = &g->task[0].thread;
		t->due_ns = t->runs_since_ns;
		/* What its own limit takes from it, others did not. */
		vm_at(&g->d, t->slot)->at_limit = own;
		wait_bound_stops(&g->d, t, preempted, t->runs_since_ns + (brief ? 999 : 1000) * US);
		vm_at(&g->d, t->slot)->at_limit = 0;
		CHECK_EQ(t->due_ns, brief && preempted && !own ? t->runs_since_ns : 0);
	}
}

/* The later, the shorter, and the sooner the next. */
static void turns_of_those_that_are_late_are_short(void)
{
	struct pcpu *pcpu;

	g = fake_ground(1, 1);
	pcpu = pcpu_at(&g->d, 0);
	for (u64 late_ms = 0; late_ms < 6000; late_ms += 50) {
		u64 turn_ns, apart_ns;

		pcpu->asked_ns = g->now_ns;
		wait_bound_begin_turn(&g->d, pcpu, (s64)(late_ms * MS));
		turn_ns = pcpu->order.until_ns - g->now_ns;
		apart_ns = pcpu->next_turn_ns - g->now_ns;
		CHECK(turn_ns >= 50 * US && turn_ns <= 2 * MS);
		if (late_ms <= 50)
			CHECK_EQ(turn_ns, 2 * MS);
		if (late_ms >= 2500)
			CHECK_EQ(turn_ns, 50 * US);
		CHECK_EQ(apart_ns, turn_ns * (late_ms > 4000 ? 2 : 50));
	}
}

/* Nor by a gang that calls pCPUs to start together. */
static void a_turn_is_not_cut_short_by_a_gang(void)
{
	g = fake_ground(2, 1);
	kernel_busy_vm(g, 1, 2, 1000);
	kernel_settle(g);
	kernel_thread(g, 2, THREAD_VCPU);
	kernel_vm(g, 1)->vtime_ns = SECOND;
	g->d.round = 1;
	entity_rq_of(&g->runqueue[0], g->slot_of[2])->may = AFFINITY_ALL;
	CHECK_EQ(plan_count(&g->d, 0, g->slot_of[2], false, false), 1);
	pcpu_at(&g->d, 1)->order.why = ORDER_TURN;
	CHECK_EQ(plan_count(&g->d, 0, g->slot_of[2], false, false), 0);
}

static void a_nice_task_does_not_wait_longer_beside_its_siblings(void)
{
	g = fake_ground(1, 1);
	for (u32 i = 0; i < 2; i++) {
		struct task_struct *task = kernel_thread(g, 0, THREAD_HOST);

		task->thread.weight = i ? 8668 : 1;
		kernel_wake(g, task);
	}
	kernel_run(g, 10 * SECOND);
	CHECK(kernel_longest_wait_ns(g) <= LONGEST_NS);
}

static void a_pinned_vcpu_does_not_wait_longer_while_its_siblings_run(void)
{
	struct task_struct *pinned;

	g = fake_ground(2, 1);
	kernel_busy_vm(g, 1, 1, 0);
	pinned = kernel_thread(g, 1, THREAD_VCPU);
	kernel_set_shares(g, 1, 1);
	kernel_set_affinity(g, &g->task[0], 1);
	kernel_set_affinity(g, pinned, 2);
	kernel_busy_vm(g, 2, 1, 1000000);
	kernel_set_affinity(g, &g->task[2], 2);
	kernel_wake(g, pinned);
	kernel_run(g, 10 * SECOND);
	CHECK(kernel_longest_wait_ns(g) <= LONGEST_NS);
}

static void a_vcpu_in_another_domain_does_not_wait_longer_while_its_siblings_run(void)
{
	g = fake_ground(2, 2);
	kernel_busy_vm(g, 1, 1, 1000);
	kernel_busy_vm(g, 2, 2, 1000);
	kernel_busy_vm(g, 3, 8, 1000);
	kernel_run(g, 10 * SECOND);
	CHECK(kernel_longest_wait_ns(g) <= LONGEST_NS);
}

static void all_threads_of_a_forgiven_vm_run(void)
{
	g = fake_ground(1, 1);
	kernel_busy_vm(g, 1, 4, 1);
	kernel_busy_vm(g, 2, 1, 1000000);
	kernel_run(g, 10 * SECOND);
	CHECK(kernel_longest_wait_ns(g) <= LONGEST_NS + 4 * TURN_APART_NS);
	for (u32 i = 0; i < 4; i++)
		CHECK(g->task[i].cpu_time_ns >= 6 * MS);
}

/* Served once in 0.8 s by its shares, each of its threads would wait for 19 s. */
static void threads_of_a_wide_vm_of_few_shares_do_not_wait_for_all_their_siblings(void)
{
	g = fake_ground(1, 1);
	kernel_busy_vm(g, 1, 1, 2400);
	kernel_busy_vm(g, 2, 24, 24);
	kernel_run(g, 30 * SECOND);
	CHECK_EQ(wait_bound_thread_ns(&g->d, 24, 1), 24 * 200 * MS);
	CHECK(kernel_longest_wait_ns(g) <= 24 * 200 * MS + SECOND / 8 + 24 * 8 * MS);
	/* They are owed a hundredth, and turns take no more than a fiftieth. */
	CHECK(kernel_cpu_time_ns(g, 2) <= 30 * SECOND / 50 + 24 * 8 * MS);
}

static void no_crowd_of_few_shares_is_near_the_watchdog_nor_takes_much(void)
{
	g = fake_ground(2, 1);
	kernel_busy_vm(g, 1, 80, 1);
	kernel_busy_vm(g, 2, 2, 1000000);
	kernel_run(g, 30 * SECOND);
	CHECK_EQ(wait_bound_thread_ns(&g->d, 80, 2), 8 * SECOND);
	CHECK(kernel_longest_wait_ns(g) <= 8 * SECOND + SECOND / 8 + 80 * 8 * MS);
	CHECK(kernel_cpu_time_ns(g, 1) <= 2 * 30 * SECOND / 50 + 80 * 8 * MS);
}

/* Turns of a quarter slice for all of them would take 0.6 of the pCPU. */
static void turns_for_all_take_a_fiftieth(void)
{
	g = fake_ground(1, 1);
	kernel_busy_vm(g, 1, 1, 1000000);
	for (u32 tgid = 2; tgid < 32; tgid++)
		kernel_busy_vm(g, tgid, 1, 1);
	g->d.params.wait_bound_ns = 100 * MS;
	kernel_run(g, 10 * SECOND);
	/* And each had a slice at first. */
	CHECK(kernel_cpu_time_ns(g, 1) >= 10 * SECOND * 49 / 50 - 30 * 8 * MS);
	CHECK(kernel_longest_wait_ns(g) <= 500 * MS);
}

/* Whoever had its turn stood there as if it were owed another, before a VM owed one and unseen. */
static void turns_of_several_come_before_a_reservation(void)
{
	g = fake_ground(1, 1);
	kernel_busy_vm(g, 1, 1, 1000);
	kernel_vm(g, 1)->asked.reservation_mcpu = 1000;
	kernel_settle_vm(g, 1);
	kernel_busy_vm(g, 2, 4, 1000);
	kernel_busy_vm(g, 3, 1, 1000);
	kernel_run(g, 10 * SECOND);
	CHECK(kernel_longest_wait_ns(g) <= LONGEST_NS + 5 * TURN_APART_NS);
}

/* A VM confined to a crowded pCPU fell behind the clock; then it competes with others. */
static void who_is_far_behind_the_clock_does_not_starve_a_forgiven_vm(void)
{
	g = fake_ground(1, 1);
	kernel_busy_vm(g, 1, 2, 1000);
	kernel_busy_vm(g, 2, 2, 1000);
	kernel_vm(g, 1)->vtime_ns -= 100 * SECOND;
	kernel_run(g, 2 * SECOND);
	CHECK(kernel_cpu_time_ns(g, 2) >= 300 * MS);
	kernel_run(g, 8 * SECOND);
	CHECK_NEAR(kernel_cpu_time_ns(g, 2), 5 * SECOND, SECOND);
}

static void ordinary_shares_are_not_bent(void)
{
	g = fake_ground(1, 1);
	kernel_busy_vm(g, 1, 1, 100);
	kernel_busy_vm(g, 2, 1, 5000);
	kernel_run(g, 10 * SECOND);
	CHECK_EQ(kernel_vm(g, 1)->counters.nr_starvation_boosts, 0);
	CHECK_NEAR(kernel_cpu_time_ns(g, 1), 196 * MS, 8 * MS);
}

/* Where much memory goes, leaving takes seconds. */
static void beside_one_that_leaves_a_pinned_thread_has_its_turns(void)
{
	struct task_struct *pinned;

	g = fake_ground(1, 1);
	kernel_busy_vm(g, 1, 1, 0);
	kernel_run(g, 10 * MS);
	g->pcpu[0].current->leaving = true;
	pinned = kernel_thread(g, 2, THREAD_VCPU);
	pinned->burst_ns = pinned->burst_left_ns = NEVER / 2;
	kernel_set_affinity(g, pinned, 1);
	kernel_wake(g, pinned);
	kernel_run(g, 5 * SECOND);
	CHECK(kernel_longest_wait_ns(g) < SECOND + 200 * MS);
	CHECK(pinned->cpu_time_ns > 20 * MS);
}

int main(void)
{
	RUN(a_millionth_of_the_shares_still_gets_a_turn_a_second);
	RUN(nobody_is_forgiven_before_the_bound);
	RUN(a_debt_is_forgiven_a_claim_is_not);
	RUN(a_pinned_vm_of_few_shares_does_not_wait_longer);
	RUN(a_turn_is_not_cut_short_by_who_wakes);
	RUN(a_turn_is_not_cut_short_by_a_round);
	RUN(a_turn_is_not_cut_short_by_what_was_sent_before);
	RUN(a_turn_is_not_cut_short_by_a_gang);
	RUN(who_was_put_out_at_once_was_not_served);
	RUN(what_counts_as_served);
	RUN(turns_of_those_that_are_late_are_short);
	RUN(a_nice_task_does_not_wait_longer_beside_its_siblings);
	RUN(a_pinned_vcpu_does_not_wait_longer_while_its_siblings_run);
	RUN(a_vcpu_in_another_domain_does_not_wait_longer_while_its_siblings_run);
	RUN(all_threads_of_a_forgiven_vm_run);
	RUN(threads_of_a_wide_vm_of_few_shares_do_not_wait_for_all_their_siblings);
	RUN(no_crowd_of_few_shares_is_near_the_watchdog_nor_takes_much);
	RUN(turns_for_all_take_a_fiftieth);
	RUN(turns_of_several_come_before_a_reservation);
	RUN(who_is_far_behind_the_clock_does_not_starve_a_forgiven_vm);
	RUN(ordinary_shares_are_not_bent);
	RUN(beside_one_that_leaves_a_pinned_thread_has_its_turns);
	return check_done();
}

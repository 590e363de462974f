// SPDX-License-Identifier: GPL-2.0-only
/* Who runs instead of a thread that gives way: policy/yield/yield.h. */
#include "fake_kernel.h"

static struct ground *g;
/* vCPUs of VM 1, in the order of the time they have had: the first has had least. */
static struct task_struct *vcpu[3];

/* VM 1 has three vCPUs: vcpu[2] runs on pCPU 0, the others wait and have had less. */
static void a_vm_of_three(u32 nr_pcpus, u32 nr_domains)
{
	g = fake_ground(nr_pcpus, nr_domains);
	for (u32 i = 0; i < 3; i++) {
		vcpu[i] = kernel_thread(g, 1, THREAD_VCPU);
		kernel_set_affinity(g, vcpu[i], nr_pcpus > 1 ? 3 : ALL_PCPUS);
	}
	kernel_wake(g, vcpu[2]);
	kernel_settle(g);
	/* No sibling is behind by enough to preempt when it wakes. */
	kernel_run(g, 200 * US);
	vcpu[0]->thread.vruntime_ns = 0;
	vcpu[1]->thread.vruntime_ns = 100 * US;
	/* The other pCPU, if any, is busy. */
	if (nr_pcpus > 1) {
		kernel_busy_vm(g, 2, 1, 0);
		kernel_set_affinity(g, &g->task[3], 2);
	}
	for (u32 i = 0; i < 2; i++) {
		vcpu[i]->pcpu = vcpu[2]->pcpu;
		kernel_wake(g, vcpu[i]);
	}
	kernel_settle(g);
	CHECK(g->pcpu[0].current == vcpu[2]);
}

static bool yields_to(struct task_struct *to)
{
	bool answer = kernel_yield(g, 0, to);

	kernel_settle(g);
	return answer;
}

static void a_tick_passes(void)
{
	g->d.pcpu[0].ticks++;
}

/* --- who runs --- */

static void the_sibling_named_runs_next(void)
{
	a_vm_of_three(1, 1);
	CHECK(yields_to(vcpu[1]));
	CHECK(g->pcpu[0].current == vcpu[1]);
	CHECK_EQ(kernel_vm(g, 1)->counters.yields_asked, 1);
	CHECK_EQ(kernel_vm(g, 1)->counters.yields_granted, 1);
	CHECK_EQ(kernel_vm(g, 1)->counters.yields_throttled, 0);
	/* And when it runs again it is for nobody's yield. */
	kernel_run(g, 100 * MS);
	CHECK_EQ(kernel_vm(g, 1)->counters.yields_granted, 1);
}

/* The sibling named has run for that long when a thread of the kernel's has the pCPU for a moment;
 * which vCPU is next then? */
static struct task_struct *next_after_being_cut_short(u64 ran_ns)
{
	struct task_struct *kthread;

	a_vm_of_three(1, 1);
	kthread = kernel_thread(g, 0, THREAD_HOST);
	kthread->kernel_thread = true;
	CHECK(yields_to(vcpu[1]));
	kernel_run(g, ran_ns);
	kernel_wake(g, kthread);
	kernel_settle(g);
	CHECK(g->pcpu[0].current == kthread);
	kernel_sleep(g, 0);
	kernel_settle(g);
	CHECK_EQ(kernel_vm(g, 1)->counters.yields_granted, 1);
	return g->pcpu[0].current;
}

static void a_boost_lasts_until_it_was_of_use(void)
{
	CHECK(next_after_being_cut_short(10 * US) == vcpu[1]);
	CHECK(next_after_being_cut_short(60 * US) == vcpu[0]);
}

static void a_boost_ends_when_its_vcpu_sleeps(void)
{
	a_vm_of_three(1, 1);
	CHECK(yields_to(vcpu[1]));
	CHECK(kernel_vm(g, 1)->boosted);
	kernel_sleep(g, 0);
	kernel_settle(g);
	CHECK_EQ(kernel_vm(g, 1)->boosted, 0);
	CHECK(g->pcpu[0].current == vcpu[0]);
}

/* Another VM has the pCPU where the thread gave way; the other pCPU is the first to be free. */
static void any_pcpu_takes_the_one_that_is_boosted_first(void)
{
	a_vm_of_three(2, 1);
	yield_boost(kernel_vm(g, 1), &vcpu[2]->thread, vcpu[1]->thread.record);
	kernel_sleep(g, 1);
	kernel_settle(g);
	CHECK(g->pcpu[1].current == vcpu[1]);
}

static void a_yield_is_wasted_if_the_yielder_asks_again_at_once(void)
{
	for (u32 of_use = 0; of_use <= 1; of_use++) {
		a_vm_of_three(1, 1);
		yields_to(vcpu[1]);
		yields_to(vcpu[2]);
		CHECK(g->pcpu[0].current == vcpu[2]);
		kernel_run(g, of_use ? 60 * US : 10 * US);
		yields_to(vcpu[0]);
		CHECK_EQ(kernel_vm(g, 1)->counters.yields_wasted, !of_use);
	}
}

/* Two vCPUs wait for different siblings, and a third sibling has run least. */
static void of_two_that_ask_at_once_each_has_the_one_it_named(void)
{
	struct task_struct *of[5];

	g = fake_ground(2, 1);
	for (u32 i = 0; i < 5; i++)
		of[i] = kernel_thread(g, 1, THREAD_VCPU);
	kernel_wake(g, of[0]);
	kernel_wake(g, of[1]);
	kernel_settle(g);
	kernel_run(g, 200 * US);
	for (u32 i = 2; i < 5; i++) {
		of[i]->thread.vruntime_ns = (i - 2) * 50 * US;
		kernel_wake(g, of[i]);
	}
	kernel_settle(g);
	CHECK(g->pcpu[0].current == of[0] && g->pcpu[1].current == of[1]);
	kernel_yield(g, 0, of[4]);
	kernel_yield(g, 1, of[3]);
	kernel_settle(g);
	CHECK(g->pcpu[0].current == of[4]);
	CHECK(g->pcpu[1].current == of[3]);
}

static void one_pinned_beside_it_runs_next(void)
{
	a_vm_of_three(2, 1);
	kernel_set_affinity(g, vcpu[1], 1);
	CHECK_EQ(vcpu[1]->queue, ground_vm_queue(&g->d, vcpu[1]->thread.slot, 0));
	CHECK(yields_to(vcpu[1]));
	CHECK(g->pcpu[0].current == vcpu[1]);
	CHECK_EQ(kernel_vm(g, 1)->counters.yields_granted, 1);
}

/* Siblings that wait where one spins and yields are not behind it: any pCPU of the domain that has
 * nothing better takes them, and they need not be swapped with who waits for another. */
static void siblings_are_not_stuck_behind_one_that_yields(void)
{
	a_vm_of_three(2, 1);
	yields_to(vcpu[1]);
	yields_to(vcpu[2]);
	CHECK(g->pcpu[0].current == vcpu[2]);
	kernel_sleep(g, 1);
	kernel_settle(g);
	CHECK(g->pcpu[1].current == vcpu[0]);
	kernel_sleep(g, 1);
	kernel_settle(g);
	CHECK(g->pcpu[1].current == vcpu[1]);
	CHECK(g->pcpu[0].current == vcpu[2]);
}

/* The round has given the pCPU to the VM: it goes on. */
static void of_a_vm_played_in_rounds_it_does_too(void)
{
	for (u32 named = 0; named <= 1; named++) {
		a_vm_of_three(1, 1);
		g->d.nr_coscheduled = kernel_vm(g, 1)->coscheduled = 1;
		g->d.round_end_ns = g->now_ns + 5 * MS;
		kernel_vm(g, 1)->plan.round = g->d.round;
		plan_note(&g->d, 0, g->slot_of[1]);
		CHECK(yields_to(named ? vcpu[1] : NULL));
		CHECK(g->pcpu[0].current == vcpu[named]);
	}
}

static void the_only_one_that_waits_elsewhere_runs_next(void)
{
	g = fake_ground(2, 2);
	for (u32 i = 0; i < 2; i++) {
		vcpu[i] = kernel_thread(g, 1, THREAD_VCPU);
		vcpu[i]->pcpu = i;
	}
	kernel_wake(g, vcpu[0]);
	kernel_busy_vm(g, 2, 1, 1000000);
	kernel_settle(g);
	kernel_wake(g, vcpu[1]);
	kernel_settle(g);
	CHECK(g->pcpu[0].current == vcpu[0] && vcpu[1]->thread.queued_in == 2);
	CHECK(yields_to(vcpu[1]));
	CHECK(g->pcpu[0].current == vcpu[1]);
}

static void one_that_waits_in_another_domain_runs_next(void)
{
	a_vm_of_three(2, 2);
	vcpu[1]->pcpu = 1;
	kernel_set_affinity(g, vcpu[1], 3);
	CHECK_EQ(vcpu[1]->thread.queued_in, 2);
	CHECK(yields_to(vcpu[1]));
	CHECK(g->pcpu[0].current == vcpu[1]);
}

static void another_vm_that_is_owed_more_comes_first(void)
{
	struct task_struct *other;

	a_vm_of_three(1, 1);
	kernel_vm(g, 1)->vtime_ns += 20 * MS;
	g->d.pcpu[0].order.why = ORDER_WOKEN;
	kernel_busy_vm(g, 2, 1, 0);
	other = &g->task[3];
	g->d.pcpu[0].order.why = ORDER_NONE;
	CHECK(yields_to(vcpu[1]));
	CHECK(g->pcpu[0].current == other);
	CHECK_EQ(kernel_vm(g, 1)->counters.yields_granted, 0);
	CHECK_EQ(g->d.pcpu[0].order.why, ORDER_NONE);
	/* When it is the VM's turn, the boost is not forgotten. */
	kernel_sleep(g, 0);
	kernel_settle(g);
	CHECK(g->pcpu[0].current == vcpu[1]);
	CHECK_EQ(kernel_vm(g, 1)->counters.yields_granted, 1);
}

/* --- not more than one a tick --- */

static void a_second_in_the_same_tick_gives_way_to_any_sibling(void)
{
	a_vm_of_three(1, 1);
	yields_to(vcpu[1]);
	yields_to(vcpu[2]);
	CHECK(g->pcpu[0].current == vcpu[2]);
	CHECK(yields_to(vcpu[1]));
	CHECK(g->pcpu[0].current == vcpu[0]);
	CHECK_EQ(kernel_vm(g, 1)->counters.yields_granted, 2);
	CHECK_EQ(kernel_vm(g, 1)->counters.yields_throttled, 1);
}

/* VM 2, which waits, is ahead of VM 1 by so much: who runs when vcpu[2] is throttled? */
static struct task_struct *next_beside_a_vm_that_is_ahead_by(u64 ahead_ns)
{
	a_vm_of_three(1, 1);
	g->d.pcpu[0].order.why = ORDER_WOKEN;
	kernel_busy_vm(g, 2, 1, 0);
	g->d.pcpu[0].order.why = ORDER_NONE;
	kernel_vm(g, 2)->vtime_ns = share_vtime_now(kernel_vm(g, 1), g->now_ns) + ahead_ns;
	yields_to(vcpu[1]);
	yields_to(vcpu[2]);
	CHECK(g->pcpu[0].current == vcpu[2]);
	CHECK(yields_to(vcpu[1]));
	CHECK_EQ(kernel_vm(g, 1)->counters.yields_throttled, 1);
	return g->pcpu[0].current;
}

/* Seed 002: it is another VM that has the time, not a sibling, which may spin, too. */
static void a_second_in_the_same_tick_makes_way_for_another_vm(void)
{
	CHECK(next_beside_a_vm_that_is_ahead_by(4 * MS) == &g->task[3]);
	CHECK(next_beside_a_vm_that_is_ahead_by(12 * MS) == vcpu[0]);
}

/* It waited for the one it had asked for, worked, and waits for another. */
static void one_that_has_worked_since_its_last_has_another(void)
{
	a_vm_of_three(1, 1);
	yields_to(vcpu[1]);
	yields_to(vcpu[2]);
	kernel_run(g, 60 * US);
	yields_to(vcpu[1]);
	CHECK(g->pcpu[0].current == vcpu[1]);
	CHECK_EQ(kernel_vm(g, 1)->counters.yields_throttled, 0);
}

static void the_next_tick_brings_another(void)
{
	a_vm_of_three(1, 1);
	yields_to(vcpu[1]);
	yields_to(vcpu[2]);
	a_tick_passes();
	yields_to(vcpu[1]);
	CHECK(g->pcpu[0].current == vcpu[1]);
	CHECK_EQ(kernel_vm(g, 1)->counters.yields_granted, 3);
}

static void the_kernels_ticks_are_counted(void)
{
	u32 before;

	a_vm_of_three(1, 1);
	before = g->d.pcpu[0].ticks;
	kernel_run(g, 20 * MS);
	CHECK_EQ(g->d.pcpu[0].ticks - before, 5);
}

/* --- what KVM is told --- */

static bool goes_on_with_its_slice(void)
{
	return g->pcpu[0].current == vcpu[2] && vcpu[2]->slice_ns;
}

static void another_is_tried_where_that_may_do_better(void)
{
	a_vm_of_three(2, 1);
	/* It may run elsewhere only. */
	kernel_set_affinity(g, vcpu[1], 2);
	CHECK(!yields_to(vcpu[1]));
	/* It is of another VM, running or not, or of none. */
	CHECK(!yields_to(g->pcpu[1].current));
	CHECK(!yields_to(kernel_thread(g, 3, THREAD_VCPU)));
	CHECK(!yields_to(kernel_thread(g, 0, THREAD_HOST)));
	CHECK(goes_on_with_its_slice());
	CHECK_EQ(kernel_vm(g, 1)->counters.yields_asked, 4);
	CHECK_EQ(kernel_vm(g, 1)->counters.yields_throttled, 0);
}

static void one_that_is_co_stopped_is_not_run(void)
{
	a_vm_of_three(1, 1);
	vcpu_at(&g->d, vcpu[1]->thread.record)->costop_since_ns = g->now_ns;
	CHECK(!yields_to(vcpu[1]));
	vcpu_at(&g->d, vcpu[1]->thread.record)->costop_since_ns = 0;
	kernel_yield(g, 0, vcpu[1]);
	vcpu_at(&g->d, vcpu[1]->thread.record)->costop_since_ns = g->now_ns;
	kernel_settle(g);
	CHECK(g->pcpu[0].current == vcpu[0]);
}

static void the_search_ends_where_no_sibling_could_run(void)
{
	a_vm_of_three(1, 1);
	kernel_vm(g, 1)->cosched_mode = COSCHED_STRICT;
	kernel_vm(g, 1)->skew.nr_stopped = 1;
	CHECK(yields_to(vcpu[1]));
	CHECK(goes_on_with_its_slice());
	kernel_vm(g, 1)->skew.nr_stopped = 0;
	kernel_vm(g, 1)->cosched_mode = COSCHED_AUTO;
	CHECK(yields_to(vcpu[1]));
	CHECK(g->pcpu[0].current == vcpu[1]);
}

/* --- between the yield and the choice --- */

static void a_target_that_may_not_run_there_any_more_stays_where_it_is(void)
{
	a_vm_of_three(2, 1);
	kernel_yield(g, 0, vcpu[1]);
	kernel_set_affinity(g, vcpu[1], 2);
	kernel_settle(g);
	CHECK(g->pcpu[0].current == vcpu[0]);
	CHECK(vcpu[1]->pcpu == 1 || vcpu[1]->state == TASK_READY);
}

static void a_target_that_is_gone_is_forgotten(void)
{
	a_vm_of_three(1, 1);
	kernel_yield(g, 0, vcpu[1]);
	/* Killed where it waits. */
	vcpu[1]->state = TASK_NONE;
	vcpu[1]->queue = NO_QUEUE;
	drover_leaving(&g->d, vcpu[1], &vcpu[1]->thread);
	find_forget(&g->d, &vcpu[1]->thread);
	kernel_settle(g);
	CHECK(g->pcpu[0].current == vcpu[0]);
	CHECK_EQ(kernel_vm(g, 1)->counters.yields_granted, 0);
}

/* Its record is another vCPU's by then. */
static void a_target_that_is_of_another_vm_by_now_is_not_taken(void)
{
	a_vm_of_three(1, 1);
	kernel_yield(g, 0, vcpu[1]);
	vcpu_at(&g->d, vcpu[1]->thread.record)->slot = 7;
	kernel_settle(g);
	CHECK(g->pcpu[0].current == vcpu[0]);
	CHECK_EQ(kernel_vm(g, 1)->boosted, 0);
}

static void a_target_that_waits_in_another_domain_by_now_runs_next(void)
{
	a_vm_of_three(2, 2);
	kernel_yield(g, 0, vcpu[1]);
	vcpu[1]->pcpu = 1;
	kernel_set_affinity(g, vcpu[1], 2);
	kernel_set_affinity(g, vcpu[1], 3);
	CHECK_EQ(vcpu[1]->thread.queued_in, 2);
	kernel_settle(g);
	CHECK(g->pcpu[0].current == vcpu[1] || g->pcpu[1].current == vcpu[1]);
}

static void who_finds_nobody_goes_on(void)
{
	a_vm_of_three(1, 1);
	kernel_yield(g, 0, vcpu[1]);
	vcpu[0]->locked = vcpu[1]->locked = true;
	kernel_settle(g);
	CHECK(goes_on_with_its_slice());
	CHECK_EQ(g->d.pcpu[0].order.why, ORDER_NONE);
}

/* --- sched_yield --- */

static void who_yields_to_nobody_goes_behind_all_its_peers(void)
{
	struct task_struct *peer[3];

	g = fake_ground(1, 1);
	for (u32 i = 0; i < 3; i++) {
		peer[i] = kernel_thread(g, 0, THREAD_HOST);
		peer[i]->thread.vruntime_ns = i * MS;
		kernel_wake(g, peer[i]);
	}
	kernel_settle(g);
	/* The second spins, too: the third is not passed over. */
	for (u32 i = 0; i < 3; i++) {
		CHECK(g->pcpu[0].current == peer[i]);
		CHECK(yields_to(NULL));
	}
}

static void who_has_no_peers_goes_on(void)
{
	u64 vruntime_ns;

	g = fake_ground(1, 1);
	vcpu[2] = kernel_thread(g, 1, THREAD_VCPU);
	kernel_wake(g, vcpu[2]);
	kernel_settle(g);
	vruntime_ns = vcpu[2]->thread.vruntime_ns;
	CHECK(yields_to(NULL));
	CHECK(goes_on_with_its_slice());
	CHECK_EQ(vcpu[2]->thread.vruntime_ns, vruntime_ns);
}

/* --- shares --- */

/* VM 1 yields every 50 us for 4 s; what VM 2, of one busy vCPU, has of a pCPU meanwhile. */
static u64 quiet_has_ns(u32 shares, u32 nr_pcpus, bool directed)
{
	u64 before_ns;
	u64 end_ns;

	g = fake_ground(nr_pcpus, 1);
	kernel_busy_vm(g, 1, 2 * nr_pcpus, shares);
	kernel_busy_vm(g, 2, 1, 1000);
	kernel_run(g, 100 * MS);
	before_ns = kernel_cpu_time_ns(g, 2);
	end_ns = g->now_ns + 4 * SECOND;
	while (g->now_ns < end_ns) {
		for (u32 at = 0; at < nr_pcpus; at++) {
			struct task_struct *from = g->pcpu[at].current;
			struct task_struct *to = &g->task[check_random() % (2 * nr_pcpus)];

			if (from && from->tgid == 1 && (!directed || to->state == TASK_READY))
				kernel_yield(g, at, directed ? to : NULL);
			kernel_settle(g);
		}
		kernel_run(g, 50 * US);
	}
	return kernel_cpu_time_ns(g, 2) - before_ns;
}

static void who_yields_in_a_tight_loop_takes_nothing_from_a_quiet_vm(void)
{
	for (u32 directed = 0; directed <= 1; directed++) {
		CHECK_NEAR(quiet_has_ns(1000, 1, directed), 2 * SECOND, 40 * MS);
		CHECK_NEAR(quiet_has_ns(1000, 2, directed), 4 * SECOND, 80 * MS);
		CHECK_NEAR(quiet_has_ns(3000, 1, directed), SECOND, 20 * MS);
	}
}

/* Its runs are short, but nobody cuts them short: it is not overdue for that. */
static void who_yields_has_no_turns_for_it(void)
{
	u64 had_ns;

	a_vm_of_three(1, 1);
	g->now_ns += SECOND;
	vcpu[2]->thread.runs_since_ns = g->now_ns - 10 * US;
	had_ns = g->now_ns;
	yields_to(vcpu[1]);
	CHECK(vcpu[2]->thread.due_ns >= had_ns + SECOND);
}

int main(void)
{
	RUN(the_sibling_named_runs_next);
	RUN(a_boost_lasts_until_it_was_of_use);
	RUN(a_boost_ends_when_its_vcpu_sleeps);
	RUN(any_pcpu_takes_the_one_that_is_boosted_first);
	RUN(a_yield_is_wasted_if_the_yielder_asks_again_at_once);
	RUN(of_two_that_ask_at_once_each_has_the_one_it_named);
	RUN(one_pinned_beside_it_runs_next);
	RUN(siblings_are_not_stuck_behind_one_that_yields);
	RUN(of_a_vm_played_in_rounds_it_does_too);
	RUN(the_only_one_that_waits_elsewhere_runs_next);
	RUN(one_that_waits_in_another_domain_runs_next);
	RUN(another_vm_that_is_owed_more_comes_first);
	RUN(a_second_in_the_same_tick_gives_way_to_any_sibling);
	RUN(a_second_in_the_same_tick_makes_way_for_another_vm);
	RUN(one_that_has_worked_since_its_last_has_another);
	RUN(the_next_tick_brings_another);
	RUN(the_kernels_ticks_are_counted);
	RUN(another_is_tried_where_that_may_do_better);
	RUN(one_that_is_co_stopped_is_not_run);
	RUN(the_search_ends_where_no_sibling_could_run);
	RUN(a_target_that_may_not_run_there_any_more_stays_where_it_is);
	RUN(a_target_that_is_gone_is_forgotten);
	RUN(a_target_that_is_of_another_vm_by_now_is_not_taken);
	RUN(a_target_that_waits_in_another_domain_by_now_runs_next);
	RUN(who_finds_nobody_goes_on);
	RUN(who_yields_to_nobody_goes_behind_all_its_peers);
	RUN(who_has_no_peers_goes_on);
	RUN(who_yields_in_a_tight_loop_takes_nothing_from_a_quiet_vm);
	RUN(who_yields_has_no_turns_for_it);
	return check_done();
}

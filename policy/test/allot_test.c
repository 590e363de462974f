// SPDX-License-Identifier: GPL-2.0-only
/* What the daemon allots, and what is measured for it: policy/allot/allot.h. */
#include "fake_kernel.h"

static struct ground *g;

/* A host where the test allots what it likes. */
static struct ground *a_host(u32 nr_pcpus)
{
	struct ground *host = fake_ground(nr_pcpus, 1);

	host->next_allot_ns = NEVER;
	return host;
}

/* As if it had so many shares. */
static u64 inverse_of(u32 shares)
{
	return ((u64)DROVER_SHARES_PER_VCPU << SHARE_INVERSE_SHIFT) / shares;
}

static void allot(u32 slot, u32 as_shares, u32 entitled_ucpu, u32 promised_mcpu)
{
	struct allotment allotment = {
		.vm_id = vm_at(&g->d, slot)->id,
		.share_inverse = inverse_of(as_shares),
		.entitled_ucpu = entitled_ucpu,
		.promised_mcpu = promised_mcpu,
	};

	allot_obey(&g->d, slot, &allotment);
	allot_begin(&g->d, g->now_ns);
}

static void allot_to(u32 tgid, u32 as_shares, u32 promised_mcpu)
{
	allot(g->slot_of[tgid], as_shares, 500000, promised_mcpu);
}

static struct measured measure(u32 slot)
{
	struct measured measured;

	allot_measure(&g->d, slot, &measured, g->now_ns);
	return measured;
}

/* Part of so many pCPUs that the process has from now on. */
static double part_of(u32 tgid, u32 nr_pcpus, u64 duration_ns)
{
	u64 before_ns = kernel_cpu_time_ns(g, tgid);

	kernel_run(g, duration_ns);
	return (double)(kernel_cpu_time_ns(g, tgid) - before_ns) / (double)(duration_ns * nr_pcpus);
}

/* --- obeying --- */

static void time_goes_by_what_is_allotted(void)
{
	g = a_host(2);
	kernel_busy_vm(g, 1, 2, 0);
	kernel_busy_vm(g, 2, 2, 0);
	allot_to(1, 3000, 0);
	allot_to(2, 1000, 0);
	CHECK_NEAR(100 * part_of(1, 2, SECOND), 75, 2);
	/* Shares that change count when they are allotted. */
	kernel_set_shares(g, 2, 9000);
	CHECK_EQ(kernel_vm(g, 2)->share_inverse, inverse_of(1000));
}

static void what_is_promised_is_served_first(void)
{
	g = a_host(2);
	kernel_busy_vm(g, 1, 1, 0);
	for (u32 tgid = 2; tgid <= 5; tgid++)
		kernel_busy_vm(g, tgid, 2, 0);
	for (u32 tgid = 1; tgid <= 5; tgid++)
		allot_to(tgid, 1000, tgid == 1 ? 900 : 0);
	CHECK_EQ(g->d.nr_reserved, 1);
	CHECK(part_of(1, 1, SECOND) > 0.88);
	allot_to(1, 1000, 0);
	CHECK_EQ(g->d.nr_reserved, 0);
}

static void another_in_the_slot_is_left_alone(void)
{
	struct allotment late = {.share_inverse = 1, .entitled_ucpu = 1, .promised_mcpu = 1000};

	g = a_host(2);
	kernel_busy_vm(g, 1, 1, 0);
	late.vm_id = kernel_vm(g, 1)->id + 1;
	allot_obey(&g->d, g->slot_of[1], &late);
	CHECK_EQ(kernel_vm(g, 1)->share_inverse, inverse_of(1000));
	CHECK_EQ(kernel_vm(g, 1)->entitled_ucpu, 0);
	CHECK_EQ(g->d.nr_reserved, 0);
	/* Nobody has it. */
	late.vm_id = 0;
	allot_obey(&g->d, 40, &late);
	CHECK_EQ(vm_at(&g->d, 40)->entitled_ucpu, 0);
}

static void nothing_is_promised_to_the_hosts_tasks(void)
{
	g = a_host(2);
	allot(DROVER_HOST_SLOT, 2000, 500000, 1000);
	CHECK_EQ(vm_at(&g->d, DROVER_HOST_SLOT)->reserve_inverse, 0);
	CHECK_EQ(vm_at(&g->d, DROVER_HOST_SLOT)->share_inverse, inverse_of(2000));
}

static void numbers_out_of_range_do_no_harm(void)
{
	struct allotment odd = {.share_inverse = 0, .entitled_ucpu = 0, .promised_mcpu = 0};

	g = a_host(1);
	kernel_busy_vm(g, 1, 1, 0);
	kernel_busy_vm(g, 2, 1, 0);
	odd.vm_id = kernel_vm(g, 1)->id;
	allot_obey(&g->d, g->slot_of[1], &odd);
	CHECK_EQ(kernel_vm(g, 1)->share_inverse, 1);
	CHECK_EQ(kernel_vm(g, 1)->entitled_ucpu, 1);
	odd.share_inverse = ~0ULL;
	allot_obey(&g->d, g->slot_of[1], &odd);
	CHECK_EQ(kernel_vm(g, 1)->share_inverse, inverse_of(1) * SHARE_ONE_IN);
	kernel_run(g, SECOND);
}

/* For as long as tasks of the host took nearly all, it was owed next to nothing. */
static void what_is_charged_beside_a_storm_is_no_lasting_debt(void)
{
	struct vm *vm;

	g = a_host(4);
	kernel_busy_vm(g, 1, 4, 0);
	kernel_busy_vm(g, 2, 4, 0);
	vm = kernel_vm(g, 1);
	allot_to(2, 1000, 0);
	allot_to(1, 5, 0);
	/* As if pCPUs had been free for it for two slices more. */
	vm->vtime_ns += share_weigh(vm, 16 * MS);
	CHECK(vm->vtime_ns - g->d.domain[0].clock_ns > SECOND);
	allot_to(1, 1000, 0);
	CHECK_NEAR(100 * part_of(1, 4, SECOND), 50, 5);
}

/* Soak, seed 4124143: a sibling was passed over for 226 ms, its VM's leaf was that late. */
static void who_is_owed_more_stands_where_that_puts_it(void)
{
	u32 slot;

	g = a_host(1);
	kernel_busy_vm(g, 1, 2, 0);
	slot = g->slot_of[1];
	kernel_run(g, SECOND);
	/* With what its running thread was not charged for yet. */
	g->now_ns += MS;
	CHECK(share_uncharged_ns(vm_at(&g->d, slot), g->now_ns) > 0);
	next_vm(&g->d, 0, 0, TOURNAMENT_NONE, 0);
	CHECK(tournament_before(tournament_key(vm_at(&g->d, slot)->vtime_ns, slot),
				tournament_leaf(&ground_runqueue(&g->d, 0)->by_share, slot)));
	allot_to(1, 100 * 2000, 0);
	CHECK_EQ(tournament_leaf(&ground_runqueue(&g->d, 0)->by_share, slot),
		 tournament_key(vm_at(&g->d, slot)->vtime_ns, slot));
}

/* --- a daemon that does not answer --- */

static void after_two_seconds_without_a_message_all_have_plain_shares(void)
{
	g = a_host(2);
	kernel_busy_vm(g, 1, 2, 0);
	kernel_busy_vm(g, 2, 1, 0);
	kernel_busy_vm(g, 3, 2, 0);
	kernel_vm(g, 2)->asked.reservation_mcpu = 900;
	kernel_settle_vm(g, 2);
	allot_to(1, 8000, 0);
	allot_to(2, 500, 900);
	allot_to(3, 1000, 700);
	kernel_run(g, ALLOT_LAPSES_NS - 100 * MS);
	CHECK_EQ(kernel_vm(g, 1)->share_inverse, inverse_of(8000));
	CHECK_EQ(g->d.allot_lapses, 0);
	kernel_run(g, 200 * MS);
	CHECK_EQ(g->d.allot_lapses, 1);
	CHECK_EQ(g->d.allotted_ns, 0);
	for (u32 tgid = 1; tgid <= 3; tgid++) {
		CHECK_EQ(kernel_vm(g, tgid)->share_inverse, inverse_of(tgid == 2 ? 1000 : 2000));
		CHECK_EQ(kernel_vm(g, tgid)->entitled_ucpu, 0);
	}
	/* Only what was asked for is still promised. */
	CHECK_EQ(g->d.nr_reserved, 1);
	CHECK(part_of(2, 1, SECOND) > 0.88);
	allot_to(1, 8000, 0);
	kernel_run(g, SECOND);
	CHECK_EQ(kernel_vm(g, 1)->share_inverse, inverse_of(8000));
	CHECK_EQ(g->d.allot_lapses, 1);
}

static void messages_that_go_on_coming_keep_it_in_force(void)
{
	g = a_host(2);
	kernel_busy_vm(g, 1, 2, 0);
	for (u32 second = 0; second < 5; second++) {
		allot_to(1, 8000, 0);
		kernel_run(g, SECOND);
	}
	CHECK_EQ(g->d.allot_lapses, 0);
	CHECK_EQ(kernel_vm(g, 1)->share_inverse, inverse_of(8000));
}

/* In the pool of a limit nobody is held for what was dealt to nobody. */
static void a_pool_at_its_limit_goes_on_when_nothing_is_dealt(void)
{
	g = a_host(4);
	*pool_at(&g->d, 1) = (struct pool){.live = 1, .limit_mcpu = 2000};
	kernel_settle_pools(g);
	for (u32 tgid = 1; tgid <= 2; tgid++) {
		kernel_busy_vm(g, tgid, 4, 0);
		kernel_vm(g, tgid)->asked.pool = 1;
		kernel_settle_vm(g, tgid);
		allot(g->slot_of[tgid], 2000, 1000000, 0);
	}
	kernel_run(g, ALLOT_LAPSES_NS + 200 * MS);
	CHECK_EQ(g->d.allot_lapses, 1);
	CHECK_NEAR(100 * (part_of(1, 4, SECOND) + part_of(2, 4, SECOND)), 50, 3);
}

/* --- measuring --- */

static void who_never_sleeps_is_awake_throughout(void)
{
	struct measured measured;
	u64 before_ns;

	g = a_host(2);
	kernel_busy_vm(g, 1, 2, 0);
	kernel_busy_vm(g, 2, 2, 0);
	measure(g->slot_of[1]);
	kernel_run(g, 100 * MS);
	measured = measure(g->slot_of[1]);
	CHECK_EQ(measured.awake, 2);
	CHECK_EQ(measured.vm_id, kernel_vm(g, 1)->id);
	before_ns = measured.used_ns;
	kernel_run(g, SECOND);
	CHECK_NEAR((double)(measure(g->slot_of[1]).used_ns - before_ns) / MS, 1000, 20);
}

static void what_it_waited_for_is_measured_beside_what_it_used(void)
{
	struct measured before, after;

	g = a_host(1);
	kernel_busy_vm(g, 1, 1, 0);
	kernel_busy_vm(g, 2, 1, 0);
	before = measure(g->slot_of[1]);
	kernel_run(g, SECOND);
	after = measure(g->slot_of[1]);
	CHECK_NEAR((double)(after.used_ns - before.used_ns) / MS, 500, 20);
	CHECK_NEAR((double)(after.waited_ns - before.waited_ns) / MS, 500, 20);
}

static void who_sleeps_in_between_is_not(void)
{
	struct task_struct *task;

	g = a_host(4);
	kernel_busy_vm(g, 1, 2, 0);
	task = kernel_thread(g, 1, THREAD_VCPU);
	task->burst_ns = task->burst_left_ns = MS;
	task->sleep_ns = MS;
	kernel_wake(g, task);
	kernel_run(g, 10 * MS);
	measure(g->slot_of[1]);
	kernel_run(g, 100 * MS);
	CHECK_EQ(measure(g->slot_of[1]).awake, 2);
}

/* To another class of the kernel's, say: it has not slept, and wants nothing of us any more. */
static void who_leaves_wants_nothing(void)
{
	struct task_struct *leaver;
	u32 slot;

	g = a_host(1);
	kernel_busy_vm(g, 1, 2, 0);
	slot = g->slot_of[1];
	kernel_run(g, 100 * MS);
	measure(slot);
	leaver = fake_first(g, ground_vm_queue(&g->d, slot, 0), FAKE_PCPUS);
	CHECK(leaver);
	waiting_leave(&g->d, &leaver->thread);
	drover_leaving(&g->d, leaver, &leaver->thread);
	leaver->queue = NO_QUEUE;
	leaver->state = TASK_ASLEEP;
	kernel_run(g, 100 * MS);
	CHECK_EQ(measure(slot).awake, 1);
}

int main(void)
{
	RUN(time_goes_by_what_is_allotted);
	RUN(what_is_promised_is_served_first);
	RUN(another_in_the_slot_is_left_alone);
	RUN(nothing_is_promised_to_the_hosts_tasks);
	RUN(numbers_out_of_range_do_no_harm);
	RUN(what_is_charged_beside_a_storm_is_no_lasting_debt);
	RUN(who_is_owed_more_stands_where_that_puts_it);
	RUN(after_two_seconds_without_a_message_all_have_plain_shares);
	RUN(messages_that_go_on_coming_keep_it_in_force);
	RUN(a_pool_at_its_limit_goes_on_when_nothing_is_dealt);
	RUN(who_never_sleeps_is_awake_throughout);
	RUN(who_sleeps_in_between_is_not);
	RUN(what_it_waited_for_is_measured_beside_what_it_used);
	RUN(who_leaves_wants_nothing);
	return check_done();
}

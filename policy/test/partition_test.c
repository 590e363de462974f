// SPDX-License-Identifier: GPL-2.0-only
/* Partitions and their policies: policy/partition/. */
#include "books.h"

#define IO 1
#define RT 2

static struct ground *g;

static void partition(u32 number, u32 policy, u64 slice_ns)
{
	struct partition_order order = {number, policy, slice_ns};

	CHECK(order_partition(&g->d, &order));
}

static void pcpu_to(u32 pcpu, u32 domain, u32 number)
{
	struct pcpu_order order = {.pcpu = pcpu, .domain = domain, .partition = number};

	CHECK(order_pcpu(&g->d, &order));
}

static void vm_to(u32 tgid, u32 number)
{
	vm_set_partition(&g->d, kernel_vm(g, tgid), number);
}

/* pCPUs 0-1 are the host's, 2-3 are in partition `io`, 4-5 in `rt`. One cache: domains 1 and 2 were
 * spare. */
static void a_divided_host(u32 io_policy, u32 rt_policy)
{
	g = fake_ground(6, 1);
	partition(IO, io_policy, io_policy == POLICY_SHARE ? 8 * MS : 30 * MS);
	partition(RT, rt_policy, rt_policy == POLICY_DEDICATED ? 100 * MS : 8 * MS);
	for (u32 i = 0; i < 2; i++) {
		pcpu_to(2 + i, 1, IO);
		pcpu_to(4 + i, 2, RT);
	}
}

/* A VM of busy vCPUs in that partition. */
static void busy_vm_in(u32 number, u32 tgid, u32 nr_vcpus, u32 shares)
{
	u32 slot = kernel_busy_vm(g, tgid, nr_vcpus, shares);

	CHECK(slot);
	vm_to(tgid, number);
}

static u64 ran_in_the_next(u64 duration_ns, u32 tgid)
{
	u64 before_ns = kernel_cpu_time_ns(g, tgid);

	kernel_run(g, duration_ns);
	return kernel_cpu_time_ns(g, tgid) - before_ns;
}

static bool runs_in(u32 tgid, u32 first, u32 last)
{
	for (u32 at = 0; at < g->d.params.nr_pcpus; at++) {
		struct task_struct *current = g->pcpu[at].current;

		if (current && current->tgid == tgid && (at < first || at > last))
			return false;
	}
	return true;
}

/* --- where threads run --- */

static void vms_run_in_their_partition(void)
{
	a_divided_host(POLICY_SHARE, POLICY_SHARE);
	busy_vm_in(IO, 1, 4, 0);
	kernel_run(g, 20 * MS);
	for (u32 i = 0; i < 100; i++) {
		kernel_run(g, 7 * MS);
		CHECK(runs_in(1, 2, 3));
		CHECK(!g->pcpu[0].current && !g->pcpu[4].current);
	}
}

/* The hazard of the first of two busy VMs as wide as partition `io`. */
static double hazard_in_a_partition(u32 mode)
{
	a_divided_host(POLICY_SHARE, POLICY_SHARE);
	for (u32 tgid = 1; tgid <= 2; tgid++) {
		busy_vm_in(IO, tgid, 2, 0);
		cosched_set_mode(&g->d, g->slot_of[tgid], mode);
	}
	kernel_run(g, 200 * MS);
	return kernel_hazard(g, 1, 2 * SECOND);
}

static void siblings_run_at_the_same_time_in_their_partition(void)
{
	CHECK(hazard_in_a_partition(COSCHED_AUTO) < 0.02);
	CHECK(hazard_in_a_partition(COSCHED_OFF) > 0.2);
}

static void a_vm_that_moves_leaves_at_the_tick(void)
{
	a_divided_host(POLICY_SHARE, POLICY_DEDICATED);
	busy_vm_in(IO, 1, 2, 0);
	kernel_run(g, 50 * MS);
	vm_to(1, RT);
	kernel_run(g, 5 * MS);
	CHECK(runs_in(1, 4, 5));
	CHECK_EQ(ran_in_the_next(100 * MS, 1), 200 * MS);
	vm_to(1, 0);
	kernel_run(g, 5 * MS);
	CHECK(runs_in(1, 0, 1));
}

/* Roused, every eighth of the bound, idle pCPUs look for who still waits where it was. */
static void who_waits_on_where_it_was_is_taken_by_pcpus_that_rest(void)
{
	a_divided_host(POLICY_SHARE, POLICY_DEDICATED);
	busy_vm_in(0, 1, 4, 0);
	busy_vm_in(0, 2, 2, 0);
	kernel_run(g, 50 * MS);
	vm_to(2, RT);
	kernel_run(g, g->d.params.wait_bound_ns / 8 + 10 * MS);
	CHECK_EQ(ran_in_the_next(100 * MS, 2), 200 * MS);
	CHECK(runs_in(2, 4, 5));
}

static void who_may_run_nowhere_in_its_partition_runs_where_it_may(void)
{
	struct task_struct *vcpu;

	a_divided_host(POLICY_CREDIT, POLICY_SHARE);
	vcpu = kernel_thread(g, 1, THREAD_VCPU);
	kernel_set_affinity(g, vcpu, 1ULL << 4 | 1ULL << 5);
	kernel_wake(g, vcpu);
	vm_to(1, IO);
	kernel_run(g, 100 * MS);
	CHECK_EQ(ran_in_the_next(100 * MS, 1), 100 * MS);
	CHECK(runs_in(1, 4, 5));
}

/* A vCPU in the partition, and one that may run outside of it only: both run whenever the limit
 * lets them. */
static void check_limited_in_two_partitions(u64 outside)
{
	a_divided_host(POLICY_SHARE, POLICY_SHARE);
	busy_vm_in(IO, 1, 2, 0);
	kernel_set_affinity(g, &g->task[1], outside);
	kernel_vm(g, 1)->asked.limit_mcpu = 500;
	kernel_settle_vm(g, 1);
	kernel_run(g, SECOND);
	CHECK(kernel_longest_wait_ns(g) < 15 * MS);
}

static void who_is_let_go_outside_of_its_partition_runs_at_once(void)
{
	check_limited_in_two_partitions(1 << 0);
	check_limited_in_two_partitions(1 << 0 | 1 << 4);
	check_limited_in_two_partitions(1 << 0 | 1 << 1);
}

static void who_waits_in_a_domain_without_pcpus_is_served(void)
{
	a_divided_host(POLICY_CREDIT, POLICY_SHARE);
	busy_vm_in(IO, 1, 6, 0);
	kernel_run(g, 50 * MS);
	for (u32 i = 0; i < 2; i++)
		pcpu_to(2 + i, 0, 0);
	vm_to(1, 0);
	kernel_run(g, 200 * MS);
	CHECK_EQ(g->runqueue[1].entity_rq[g->slot_of[1]].nr_queued, 0);
	for (u32 i = 0; i < 6; i++)
		CHECK(g->task[i].cpu_time_ns > 0);
}

static void when_all_pcpus_of_a_partition_go_its_vms_run_where_they_may(void)
{
	a_divided_host(POLICY_CREDIT, POLICY_SHARE);
	busy_vm_in(IO, 1, 4, 0);
	kernel_run(g, 50 * MS);
	kernel_offline(g, 2);
	kernel_run(g, 50 * MS);
	kernel_offline(g, 3);
	kernel_run(g, 500 * MS);
	for (u32 i = 0; i < 4; i++)
		CHECK(g->task[i].cpu_time_ns > 0);
	CHECK_EQ(ran_in_the_next(100 * MS, 1), 200 * MS);
	kernel_online(g, 2);
	kernel_run(g, 50 * MS);
	CHECK(runs_in(1, 2, 2));
}

/* The kernel goes idle beside a thread whose slice is spent there (bpf/drover.bpf.c). */
static void who_runs_where_a_pcpu_goes_keeps_its_slice(void)
{
	struct task_struct *task;

	a_divided_host(POLICY_CREDIT, POLICY_SHARE);
	busy_vm_in(IO, 1, 2, 0);
	kernel_run(g, 50 * MS);
	task = g->pcpu[2].current;
	task->slice_ns = MS;
	drover_pcpu_offline(&g->d, 2);
	vm_to(1, RT);
	drover_tick(&g->d, task, &task->thread);
	CHECK_EQ(task->slice_ns, MS);
	drover_pcpu_online(&g->d, 2);
	drover_tick(&g->d, task, &task->thread);
	CHECK_EQ(task->slice_ns, 0);
}

static void vms_elsewhere_are_allotted_nothing(void)
{
	a_divided_host(POLICY_SHARE, POLICY_DEDICATED);
	for (u32 tgid = 1; tgid <= 2; tgid++)
		kernel_busy_vm(g, tgid, 2, 0);
	busy_vm_in(RT, 3, 4, 0);
	for (u32 tgid = 1; tgid <= 3; tgid++) {
		struct allotment allotment = {kernel_vm(g, tgid)->id, 1 << SHARE_INVERSE_SHIFT,
					      1000000, 0, 0};
		struct measured measured;

		allot_measure(&g->d, g->slot_of[tgid], &measured, g->now_ns);
		CHECK_EQ(measured.vm_id, tgid == 3 ? 0 : kernel_vm(g, tgid)->id);
		allot_obey(&g->d, g->slot_of[tgid], &allotment);
		CHECK_EQ(kernel_vm(g, tgid)->entitled_ucpu, tgid == 3 ? 0 : 1000000);
	}
	kernel_vm(g, 1)->hold.shares_part = LIMITED_PARTS;
	vm_to(1, RT);
	CHECK_EQ(kernel_vm(g, 1)->entitled_ucpu, 0);
	CHECK_EQ(kernel_vm(g, 1)->hold.shares_part, 0);
}

/* --- credit --- */

/* A task of the host that works for a tenth of each 10 ms. */
static struct task_struct *host_task(u64 allowed, bool of_the_kernel)
{
	struct task_struct *task = kernel_thread(g, 0, THREAD_HOST);

	task->kernel_thread = of_the_kernel;
	task->burst_ns = task->burst_left_ns = MS;
	task->sleep_ns = 9 * MS;
	kernel_set_affinity(g, task, allowed);
	kernel_wake(g, task);
	return task;
}

/* A VM of few shares has its clock go a hundred times as fast in `io` as that of `default` goes. */
static void the_hosts_tasks_wait_for_no_other_partitions_clock(u32 policy)
{
	struct task_struct *program;

	a_divided_host(policy, POLICY_DEDICATED);
	busy_vm_in(IO, 1, 4, 100);
	busy_vm_in(0, 2, 4, 10000);
	program = host_task(3, false);
	host_task(1 << 2, true);
	kernel_run(g, 5 * SECOND);
	CHECK_SAYING(program->longest_wait_ns < 20 * MS, "%" PRIu64 " ms",
		     (uint64_t)(program->longest_wait_ns / MS));
	CHECK(program->cpu_time_ns > 450 * MS);
	CHECK(kernel_cpu_time_ns(g, 1) > 9 * SECOND);
}

static void the_hosts_tasks_go_by_the_clock_of_their_partition(void)
{
	the_hosts_tasks_wait_for_no_other_partitions_clock(POLICY_SHARE);
	the_hosts_tasks_wait_for_no_other_partitions_clock(POLICY_CREDIT);
}

static void check_3_to_1_under(u32 policy)
{
	u64 a_ns, b_ns;

	a_divided_host(policy, POLICY_SHARE);
	busy_vm_in(IO, 1, 2, 3000);
	busy_vm_in(IO, 2, 2, 1000);
	kernel_run(g, SECOND);
	a_ns = kernel_cpu_time_ns(g, 1);
	b_ns = kernel_cpu_time_ns(g, 2);
	kernel_run(g, 6 * SECOND);
	a_ns = kernel_cpu_time_ns(g, 1) - a_ns;
	b_ns = kernel_cpu_time_ns(g, 2) - b_ns;
	/* Coarse, as credit is: who is OVER beside others that are OVER has slices like them. */
	CHECK(a_ns > b_ns * 25 / 10 && a_ns < b_ns * 33 / 10);
}

static void credit_follows_shares(void)
{
	check_3_to_1_under(POLICY_CREDIT);
}

static void a_vm_that_wakes_with_credit_is_boosted(void)
{
	struct task_struct *io;

	a_divided_host(POLICY_CREDIT, POLICY_SHARE);
	busy_vm_in(IO, 1, 2, 0);
	io = kernel_thread(g, 2, THREAD_VCPU);
	vm_to(2, IO);
	io->burst_ns = 100 * US;
	io->sleep_ns = 1900 * US;
	kernel_run(g, 100 * MS);
	kernel_wake(g, io);
	kernel_settle(g);
	CHECK_EQ(io->state, TASK_RUNNING);
	io->longest_wait_ns = 0;
	kernel_run(g, 300 * MS);
	/* Charged now and then by bad luck, it is still UNDER: it has its part of what is given
	 * out. */
	CHECK(io->longest_wait_ns < 35 * MS);
}

static void a_slice_of_credit_is_30_ms(void)
{
	u64 dispatches;

	a_divided_host(POLICY_CREDIT, POLICY_SHARE);
	busy_vm_in(IO, 1, 2, 0);
	busy_vm_in(IO, 2, 2, 0);
	kernel_run(g, SECOND);
	dispatches = kernel_runs(g, 1) + kernel_runs(g, 2);
	kernel_run(g, SECOND);
	dispatches = kernel_runs(g, 1) + kernel_runs(g, 2) - dispatches;
	/* Two pCPUs, a second: 67 slices of 30 ms, or 63 that end at a tick. */
	CHECK(dispatches >= 55 && dispatches <= 75);
}

/* --- anticipatory --- */

/* A VM that does I/O in partition `io`: its vCPU runs for so long, then sleeps for so long. */
static struct task_struct *io_vm(u32 tgid, u64 burst_ns, u64 sleep_ns)
{
	struct task_struct *io = kernel_thread(g, tgid, THREAD_VCPU);

	vm_to(tgid, IO);
	io->burst_ns = io->burst_left_ns = burst_ns;
	io->sleep_ns = sleep_ns;
	return io;
}

static void anticipation_follows_shares(void)
{
	check_3_to_1_under(POLICY_ANTICIPATORY);
}

/* The level of a VM alone there after so long of such runs and sleeps, with credit. */
static u32 level_after(u64 burst_ns, u64 sleep_ns, u64 duration_ns)
{
	a_divided_host(POLICY_ANTICIPATORY, POLICY_SHARE);
	kernel_wake(g, io_vm(1, burst_ns, sleep_ns));
	kernel_vm(g, 1)->credit.left_ns = (s64)CREDIT_ACCOUNT_NS;
	kernel_run(g, duration_ns);
	return kernel_vm(g, 1)->credit.boosted;
}

static void who_sleeps_after_short_runs_is_boosted_more_up_to_the_third_level(void)
{
	CHECK_EQ(level_after(100 * US, 1900 * US, 50 * US), 1);
	CHECK_EQ(level_after(100 * US, 1900 * US, 1 * MS), 2);
	CHECK_EQ(level_after(100 * US, 1900 * US, 3 * MS), 3);
	CHECK_EQ(level_after(100 * US, 1900 * US, 9 * MS), 3);
}

static void who_computes_is_no_longer_boosted(void)
{
	CHECK_EQ(level_after(SECOND, MS, 25 * MS), 0);
}

static void a_boost_does_not_outlive_a_long_sleep(void)
{
	struct task_struct *io;

	a_divided_host(POLICY_ANTICIPATORY, POLICY_SHARE);
	io = io_vm(1, 100 * US, 400 * US);
	kernel_wake(g, io);
	kernel_run(g, 3 * MS);
	CHECK_EQ(kernel_vm(g, 1)->credit.boosted, CREDIT_LEVELS);
	io->sleep_ns = 40 * MS;
	kernel_run(g, 39 * MS);
	CHECK_EQ(io->state, TASK_ASLEEP);
	kernel_run(g, 1500 * US);
	/* Awake and back to sleep: the first level, and one more for the short run. */
	CHECK(kernel_vm(g, 1)->credit.boosted <= 2);
}

/* Three debits find it without credit: so far it comes before those that are UNDER, no further. */
static void without_credit_a_boost_lasts_for_its_levels_and_gains_none(void)
{
	struct vm *vm;

	a_divided_host(POLICY_ANTICIPATORY, POLICY_SHARE);
	busy_vm_in(IO, 1, 2, 0);
	io_vm(2, 100 * US, MS);
	vm = kernel_vm(g, 2);
	vm->credit.boosted = CREDIT_LEVELS;
	vm->credit.left_ns = -1;
	for (u32 left = CREDIT_LEVELS; left; left--) {
		CHECK_EQ(vm->credit.boosted, left);
		CHECK(hook_gain(&g->d, 2, g->slot_of[2], g->slot_of[1]) > 0);
		hook_sleeps(&g->d, g->slot_of[2], 0, g->now_ns);
		hook_wakes(&g->d, g->slot_of[2], 0);
		CHECK_EQ(vm->credit.boosted, left);
		g->now_ns += CREDIT_DEBIT_NS;
		hook_tick(&g->d, 2, g->slot_of[2]);
		vm->credit.left_ns = -1;
	}
	hook_wakes(&g->d, g->slot_of[2], 0);
	CHECK(hook_gain(&g->d, 2, g->slot_of[2], g->slot_of[1]) < 0);
}

/* The mean wait of a VM that does I/O beside busy ones and needs nearly all that it is due. This is
 * one of the I/O patterns listed in credit.h; with some of the others it gains less. */
static u64 mean_wait_of_io(u32 policy)
{
	struct task_struct *io;
	u64 runs;

	a_divided_host(policy, POLICY_SHARE);
	for (u32 tgid = 1; tgid <= 6; tgid++)
		busy_vm_in(IO, tgid, 1, 0);
	io = io_vm(7, 500 * US, 1300 * US);
	kernel_wake(g, io);
	kernel_run(g, SECOND);
	runs = kernel_runs(g, 7);
	kernel_vm(g, 7)->counters.ready_ns = 0;
	kernel_run(g, 10 * SECOND);
	return kernel_vm(g, 7)->counters.ready_ns / (kernel_runs(g, 7) - runs);
}

static void who_is_at_io_waits_less_than_under_credit(void)
{
	u64 wait_ns = mean_wait_of_io(POLICY_ANTICIPATORY);

	CHECK(wait_ns < mean_wait_of_io(POLICY_CREDIT) / 2);
}

/* VMs that do I/O nearly all of the time, on both pCPUs: who computes has half of its part at
 * least, and waits no longer than the bound. */
static void nobody_starves_beside_those_that_are_boosted(void)
{
	a_divided_host(POLICY_ANTICIPATORY, POLICY_SHARE);
	busy_vm_in(IO, 1, 1, 0);
	for (u32 tgid = 2; tgid <= 4; tgid++)
		kernel_wake(g, io_vm(tgid, 900 * US, 100 * US));
	kernel_run(g, SECOND);
	CHECK(ran_in_the_next(10 * SECOND, 1) > 10 * SECOND / 4);
	CHECK(kernel_longest_wait_ns(g) < 2 * g->d.params.wait_bound_ns);
}

/* --- dedicated --- */

static void nobody_is_preempted_where_pcpus_are_dedicated(void)
{
	u64 dispatches;

	a_divided_host(POLICY_SHARE, POLICY_DEDICATED);
	busy_vm_in(RT, 1, 1, 0);
	busy_vm_in(RT, 2, 1, 0);
	kernel_run(g, 100 * MS);
	dispatches = kernel_runs(g, 1);
	CHECK_EQ(ran_in_the_next(3 * SECOND, 1), 3 * SECOND);
	CHECK_EQ(kernel_runs(g, 1), dispatches);
	/* Not by a third either, until that has waited for too long. */
	busy_vm_in(RT, 3, 1, 0);
	kernel_run(g, 20 * MS);
	dispatches = kernel_runs(g, 1) + kernel_runs(g, 2);
	CHECK_EQ(ran_in_the_next(300 * MS, 3), 0);
	CHECK_EQ(kernel_runs(g, 1) + kernel_runs(g, 2), dispatches);
}

static void the_first_of_the_waiting_list_follows_who_sleeps(void)
{
	u32 at = 4;

	a_divided_host(POLICY_SHARE, POLICY_DEDICATED);
	for (u32 tgid = 1; tgid <= 4; tgid++) {
		busy_vm_in(RT, tgid, 1, 0);
		kernel_run(g, 20 * MS);
	}
	CHECK_EQ(ran_in_the_next(300 * MS, 3), 0);
	if (g->pcpu[at].current->tgid != 1)
		at = 5;
	kernel_sleep(g, at);
	kernel_settle(g);
	CHECK_EQ(g->pcpu[at].current->tgid, 3);
	CHECK_EQ(ran_in_the_next(300 * MS, 4), 0);
}

static void who_waits_for_a_dedicated_pcpu_does_so_no_longer_than_the_bound(void)
{
	a_divided_host(POLICY_SHARE, POLICY_DEDICATED);
	for (u32 tgid = 1; tgid <= 3; tgid++)
		busy_vm_in(RT, tgid, 1, 0);
	kernel_run(g, 10 * SECOND);
	CHECK(kernel_longest_wait_ns(g) > 500 * MS);
	CHECK(kernel_longest_wait_ns(g) < 2 * g->d.params.wait_bound_ns + 500 * MS);
}

/* --- all together --- */

/* VMs and pCPUs move at random; the books hold, and nobody waits for long. */
static void check_moves_beside(u32 policy)
{
	struct books_before before = {};
	u32 number = check_random_in(0, 2);

	a_divided_host(policy, POLICY_DEDICATED);
	for (u32 tgid = 1; tgid <= 5; tgid++)
		busy_vm_in(tgid % 3, tgid, 1 + tgid % 2, 0);
	for (u32 i = 0; i < 200; i++) {
		if (check_random_in(0, 2)) {
			vm_to(1 + check_random_in(0, 4), check_random_in(0, 2));
		} else {
			number = check_random_in(0, 2);
			pcpu_to(1 + check_random_in(0, 4), number, number);
		}
		kernel_run(g, (1 + check_random_in(0, 59)) * MS);
		books_check(g, &before);
	}
	kernel_run(g, 10 * SECOND);
	/* Seven vCPUs for one pCPU in the worst case, each overdue after a second. */
	CHECK(kernel_longest_wait_ns(g) < 3 * g->d.params.wait_bound_ns);
}

static void nothing_is_lost_by_moves(void)
{
	check_moves_beside(POLICY_CREDIT);
	check_moves_beside(POLICY_ANTICIPATORY);
}

static void bad_orders_are_refused(void)
{
	struct partition_order order = {DROVER_MAX_PARTITIONS, POLICY_SHARE, MS};
	struct pcpu_order move = {.pcpu = 99};

	a_divided_host(POLICY_SHARE, POLICY_SHARE);
	CHECK(!order_partition(&g->d, &order));
	order = (struct partition_order){IO, POLICY_ANTICIPATORY + 1, MS};
	CHECK(!order_partition(&g->d, &order));
	order = (struct partition_order){IO, POLICY_SHARE, 0};
	CHECK(!order_partition(&g->d, &order));
	CHECK(!order_pcpu(&g->d, &move));
	move = (struct pcpu_order){.partition = DROVER_MAX_PARTITIONS};
	CHECK(!order_pcpu(&g->d, &move));
}

int main(void)
{
	RUN(vms_run_in_their_partition);
	RUN(siblings_run_at_the_same_time_in_their_partition);
	RUN(a_vm_that_moves_leaves_at_the_tick);
	RUN(who_waits_on_where_it_was_is_taken_by_pcpus_that_rest);
	RUN(who_may_run_nowhere_in_its_partition_runs_where_it_may);
	RUN(who_is_let_go_outside_of_its_partition_runs_at_once);
	RUN(who_waits_in_a_domain_without_pcpus_is_served);
	RUN(when_all_pcpus_of_a_partition_go_its_vms_run_where_they_may);
	RUN(who_runs_where_a_pcpu_goes_keeps_its_slice);
	RUN(vms_elsewhere_are_allotted_nothing);
	RUN(the_hosts_tasks_go_by_the_clock_of_their_partition);
	RUN(credit_follows_shares);
	RUN(a_vm_that_wakes_with_credit_is_boosted);
	RUN(a_slice_of_credit_is_30_ms);
	RUN(anticipation_follows_shares);
	RUN(who_sleeps_after_short_runs_is_boosted_more_up_to_the_third_level);
	RUN(who_computes_is_no_longer_boosted);
	RUN(a_boost_does_not_outlive_a_long_sleep);
	RUN(without_credit_a_boost_lasts_for_its_levels_and_gains_none);
	RUN(who_is_at_io_waits_less_than_under_credit);
	RUN(nobody_starves_beside_those_that_are_boosted);
	RUN(nobody_is_preempted_where_pcpus_are_dedicated);
	RUN(the_first_of_the_waiting_list_follows_who_sleeps);
	RUN(who_waits_for_a_dedicated_pcpu_does_so_no_longer_than_the_bound);
	RUN(nothing_is_lost_by_moves);
	RUN(bad_orders_are_refused);
	return check_done();
}

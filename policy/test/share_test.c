// SPDX-License-Identifier: GPL-2.0-only
/* CPU time in proportion to shares: policy/share/share.h. */
#include "fake_kernel.h"
#include <pthread.h>

static struct ground *g;

/* The VM's CPU time of all VMs' together, in percent. */
static double percent_of(u32 tgid)
{
	u64 sum_ns = 0;

	for (u32 i = 1; i < FAKE_PROCESSES; i++)
		sum_ns += kernel_cpu_time_ns(g, i);
	return 100.0 * (double)kernel_cpu_time_ns(g, tgid) / (double)sum_ns;
}

static struct vm *a_vm_with(u32 shares)
{
	struct vm *vm;

	g = fake_ground(1, 1);
	kernel_thread(g, 1, THREAD_VCPU);
	vm = kernel_vm(g, 1);
	share_set(vm, shares);
	return vm;
}

/* Make the thread of that kind run that long, as far as the books go. */
static void charge(struct thread *t, u64 cpu_ns)
{
	share_charge(&g->d, t, cpu_ns, 0);
}

static void at_1000_shares_virtual_time_is_cpu_time(void)
{
	struct vm *vm = a_vm_with(1000);

	CHECK_EQ(share_weigh(vm, 8 * MS), 8 * MS);
}

static void with_twice_the_shares_a_vm_ages_half_as_fast(void)
{
	struct vm *vm = a_vm_with(2000);

	CHECK_EQ(share_weigh(vm, 8 * MS), 4 * MS);
}

static void the_least_and_the_most_shares(void)
{
	struct vm *vm = a_vm_with(1);

	CHECK_EQ(share_weigh(vm, 8 * MS), 8 * SECOND);
	share_set(vm, DROVER_SHARES_MAX);
	CHECK_NEAR(share_weigh(vm, 8 * MS), 8 * US, 8);
}

static void shares_out_of_range_are_brought_into_it(void)
{
	struct vm *vm = a_vm_with(0);

	CHECK_EQ(vm->shares, 1);
	share_set(vm, UINT32_MAX);
	CHECK_EQ(vm->shares, DROVER_SHARES_MAX);
}

static void weighing_is_exact_within_a_thousandth_for_any_shares(void)
{
	for (u32 i = 0; i < 10000; i++) {
		u32 shares = check_random_in(1, DROVER_SHARES_MAX);
		struct vm vm = {0};

		share_set(&vm, shares);
		CHECK_NEAR(share_weigh(&vm, SECOND), 1e12 / shares, 1e12 / shares / 1000 + 1);
	}
}

static void at_most_eight_seconds_are_charged_at_once_and_nothing_overflows(void)
{
	struct vm *vm = a_vm_with(1);
	u64 most_ns = share_weigh(vm, 1ULL << 33);

	CHECK_NEAR(most_ns, 8.59e12, 1e10);
	CHECK_EQ(share_weigh(vm, (1ULL << 33) + 1), most_ns);
	CHECK_EQ(share_weigh(vm, UINT64_MAX), most_ns);
}

static void all_threads_of_a_vm_are_charged_to_it(void)
{
	struct vm *vm = a_vm_with(1000);
	struct thread *vcpu = &g->task[0].thread;
	struct thread *helper = &kernel_thread(g, 1, THREAD_HELPER)->thread;
	u64 start_ns = vm->vtime_ns;

	share_set(vm, 1000);
	charge(vcpu, 3 * MS);
	charge(helper, 2 * MS);
	CHECK_EQ(vm->vtime_ns - start_ns, 5 * MS);
	CHECK_EQ(vm->counters.vcpu_run_ns, 3 * MS);
	CHECK_EQ(vm->counters.helper_run_ns, 2 * MS);
	CHECK_EQ(vcpu->vruntime_ns, 3 * MS);
	CHECK_EQ(helper->vruntime_ns, 2 * MS);
}

static void what_was_charged_is_not_charged_again(void)
{
	struct vm *vm = a_vm_with(1000);
	struct task_struct *vcpu = &g->task[0];
	u64 start_ns = vm->vtime_ns;

	for (u64 ms = 5; ms <= 6; ms++) {
		vcpu->cpu_time_ns = ms * MS;
		drover_charge(&g->d, vcpu, &vcpu->thread, ground_task_pcpu(&g->d, vcpu));
		drover_charge(&g->d, vcpu, &vcpu->thread, ground_task_pcpu(&g->d, vcpu));
	}
	CHECK_EQ(vm->vtime_ns - start_ns, 6 * MS);
}

/* Who is next is chosen when a thread has stopped; the kernel counts that as its time. */
static void what_the_kernel_counts_after_a_stop_is_charged_at_the_next_run(void)
{
	struct vm *vm = a_vm_with(1000);
	struct task_struct *vcpu = &g->task[0];
	u64 start_ns = vm->vtime_ns;

	kernel_wake(g, vcpu);
	kernel_run(g, MS);
	kernel_sleep(g, 0);
	vcpu->cpu_time_ns += 3 * MS;
	CHECK_EQ(vm->counters.vcpu_run_ns, MS);
	kernel_settle(g);
	kernel_wake(g, vcpu);
	kernel_settle(g);
	CHECK_EQ(vm->counters.vcpu_run_ns, 4 * MS);
	CHECK_EQ(vm->vtime_ns - start_ns, 4 * MS);
}

static void what_a_thread_used_in_another_class_is_not_charged(void)
{
	struct vm *vm = a_vm_with(1000);
	struct task_struct *vcpu = &g->task[0];

	kernel_wake(g, vcpu);
	kernel_run(g, MS);
	kernel_sleep(g, 0);
	kernel_settle(g);
	drover_leaving(&g->d, vcpu, &vcpu->thread);
	vcpu->cpu_time_ns += SECOND;
	drover_enable(&g->d, vcpu, &vcpu->thread, 100);
	kernel_wake(g, vcpu);
	kernel_settle(g);
	CHECK_EQ(vm->counters.vcpu_run_ns, MS);
}

static void a_nice_host_task_ages_faster_than_its_siblings_but_its_vm_does_not(void)
{
	struct vm *host;
	struct task_struct *task;
	u64 start_ns;

	g = fake_ground(1, 1);
	host = vm_at(&g->d, DROVER_HOST_SLOT);
	start_ns = host->vtime_ns;
	task = kernel_thread(g, 0, THREAD_HOST);
	task->thread.weight = 50;
	charge(&task->thread, 4 * MS);
	CHECK_EQ(task->thread.vruntime_ns, 8 * MS);
	CHECK_EQ(host->vtime_ns - start_ns, 4 * MS);
	task->thread.weight = 0;
	charge(&task->thread, MS);
	CHECK_EQ(task->thread.vruntime_ns, 108 * MS);
}

/*
 * However many there are: three times as much at nice 0 as at nice 5. Of one pCPU, too, beside one
 * that has another for itself.
 */
static void nice_values_divide_what_siblings_have(void)
{
	for (u32 i = 0; i < 6; i++) {
		u32 pairs = 2 + i / 2, pinned = i % 2;
		u64 nice_ns[2] = {0, 0};

		g = fake_ground(2, 1);
		for (u32 i = 0; i < 2 * pairs; i++) {
			struct task_struct *task = kernel_thread(g, 0, THREAD_HOST);

			task->thread.weight = i % 2 ? 33 : 100;
			if (pinned)
				kernel_set_affinity(g, task, 1);
			kernel_wake(g, task);
		}
		if (pinned)
			kernel_wake(g, kernel_thread(g, 0, THREAD_HOST));
		kernel_run(g, 10 * SECOND);
		for (u32 i = 0; i < 2 * pairs; i++)
			nice_ns[i % 2] += g->task[i].cpu_time_ns;
		CHECK_SAYING(nice_ns[0] * 100 >= nice_ns[1] * 294 &&
				     nice_ns[0] * 100 <= nice_ns[1] * 312,
			     "%u pairs, pinned %u: %g", pairs, pinned,
			     (double)nice_ns[0] / (double)nice_ns[1]);
	}
}

static void the_clock_moves_forward_only(void)
{
	g = fake_ground(1, 1);
	g->d.domain[0].clock_ns = 0 - 5 * MS;
	share_not_before(&g->d.domain[0].clock_ns, 10 * MS);
	CHECK_EQ(g->d.domain[0].clock_ns, 10 * MS);
	share_not_before(&g->d.domain[0].clock_ns, 4 * MS);
	CHECK_EQ(g->d.domain[0].clock_ns, 10 * MS);
	share_not_before(&g->d.domain[0].clock_ns, 0 - 5 * MS);
	CHECK_EQ(g->d.domain[0].clock_ns, 10 * MS);
}

static void while_nobody_waits_the_clock_follows_who_is_furthest_ahead(void)
{
	g = fake_ground(2, 1);
	kernel_busy_vm(g, 1, 1, 1000);
	kernel_busy_vm(g, 2, 1, 4000);
	kernel_run(g, SECOND);
	CHECK_NEAR(g->d.domain[0].clock_ns, kernel_vm(g, 1)->vtime_ns, 8 * MS);
}

static void while_somebody_waits_the_clock_follows_the_least_served(void)
{
	g = fake_ground(1, 1);
	kernel_busy_vm(g, 1, 1, 1000);
	kernel_busy_vm(g, 2, 1, 1000);
	kernel_run(g, SECOND);
	CHECK_NEAR(g->d.domain[0].clock_ns, SECOND / 2, 8 * MS);
	CHECK((s64)(kernel_vm(g, 1)->vtime_ns - g->d.domain[0].clock_ns) >= 0);
	CHECK((s64)(kernel_vm(g, 2)->vtime_ns - g->d.domain[0].clock_ns) >= 0);
}

/* Time that nobody else wanted is not held against who used it. */
static void a_vm_alone_owes_nothing_later(void)
{
	g = fake_ground(1, 1);
	kernel_busy_vm(g, 1, 1, 1000);
	kernel_run(g, SECOND);
	kernel_busy_vm(g, 2, 1, 1000);
	kernel_run(g, SECOND);
	CHECK_NEAR(kernel_cpu_time_ns(g, 2), SECOND / 2, 10 * MS);
}

static void who_slept_has_no_claim_beyond_its_credit(void)
{
	struct task_struct *sleeper;

	g = fake_ground(1, 1);
	sleeper = kernel_thread(g, 1, THREAD_VCPU);
	kernel_busy_vm(g, 2, 1, 1000);
	kernel_run(g, 10 * SECOND);
	drover_woken(&g->d, &sleeper->thread, 0);
	CHECK_EQ(kernel_vm(g, 1)->vtime_ns, g->d.domain[0].clock_ns - 10 * MS);
}

static void who_cannot_use_its_share_is_owed_32_ms_of_virtual_time_at_most(void)
{
	g = fake_ground(4, 1);
	kernel_busy_vm(g, 1, 1, 8000);
	kernel_busy_vm(g, 2, 8, 8000);
	kernel_run(g, 10 * SECOND);
	CHECK_NEAR(percent_of(1), 25.0, 0.1);
	CHECK_NEAR(kernel_vm(g, 1)->vtime_ns, g->d.domain[0].clock_ns - 32 * MS, 3 * MS);
}

/* One works while 80 sleep; then four do. */
static void threads_that_sleep_save_up_no_claim(void)
{
	u64 before_ns;

	g = fake_ground(4, 1);
	kernel_busy_vm(g, 1, 1, 4000);
	for (u32 i = 0; i < 80; i++)
		kernel_thread(g, 1, THREAD_HELPER);
	kernel_busy_vm(g, 2, 4, 4000);
	kernel_run(g, 4 * SECOND);
	before_ns = kernel_cpu_time_ns(g, 2);
	for (u32 i = 1; i < 4; i++)
		kernel_wake(g, &g->task[i]);
	kernel_run(g, SECOND);
	/* Of four threads' claims of 32 ms it may have used half before that. */
	CHECK_NEAR(kernel_cpu_time_ns(g, 2) - before_ns, 2 * SECOND, 150 * MS);
}

/* Two of its threads run; a third wakes. What it is owed from before is bounded by two. */
static void who_wakes_beside_siblings_brings_no_claim_from_before(void)
{
	struct task_struct *third;
	struct vm *vm;

	g = fake_ground(4, 1);
	kernel_busy_vm(g, 1, 2, 1000);
	kernel_busy_vm(g, 2, 2, 1000);
	kernel_run(g, 100 * MS);
	third = kernel_thread(g, 1, THREAD_VCPU);
	vm = kernel_vm(g, 1);
	vm->vtime_ns = g->d.domain[0].clock_ns - SECOND;
	kernel_wake(g, third);
	CHECK_NEAR(vm->vtime_ns, g->d.domain[0].clock_ns - 2 * 32 * MS, MS);
}

/*
 * A light, wide VM takes the host in rare bursts, after which the clock stands far ahead: a VM
 * that can use all it is owed is that far behind then, and keeps its claim.
 */
static void who_waits_now_and_then_keeps_what_it_is_owed(void)
{
	g = fake_ground(12, 1);
	kernel_busy_vm(g, 1, 15, 500);
	kernel_busy_vm(g, 2, 11, 3000);
	kernel_run(g, 4 * SECOND);
	CHECK_NEAR(percent_of(2), 600.0 / 7, 1.5);
}

/* The essay's worked example: 8 ms on four pCPUs, then seven rounds of the other. */
static void shares_1_to_7_one_round_against_seven(void)
{
	g = fake_ground(4, 1);
	kernel_busy_vm(g, 1, 4, 1000);
	kernel_busy_vm(g, 2, 4, 7000);
	kernel_run(g, 8 * MS);
	CHECK_EQ(kernel_cpu_time_ns(g, 1), 32 * MS);
	CHECK_EQ(kernel_cpu_time_ns(g, 2), 0);
	CHECK_EQ(kernel_vm(g, 1)->vtime_ns, 32 * MS);
	kernel_run(g, 56 * MS);
	CHECK_EQ(kernel_cpu_time_ns(g, 1), 32 * MS);
	CHECK_EQ(kernel_cpu_time_ns(g, 2), 224 * MS);
	/* One more round at most, because 7000 shares are weighed a millionth too lightly. */
	kernel_run(g, 16 * MS);
	CHECK(kernel_cpu_time_ns(g, 1) >= 64 * MS);
}

static void the_seven_ratios_of_seed_000_figure_3(void)
{
	for (u32 part = 1; part <= 7; part++) {
		g = fake_ground(4, 1);
		kernel_busy_vm(g, 1, 4, part * 1000);
		kernel_busy_vm(g, 2, 4, (8 - part) * 1000);
		kernel_run(g, 4 * SECOND);
		CHECK_NEAR(percent_of(1), part * 12.5, 1.0);
		CHECK_EQ(kernel_cpu_time_ns(g, 1) + kernel_cpu_time_ns(g, 2), 16 * SECOND);
	}
}

static void a_vms_time_does_not_depend_on_its_number_of_vcpus(void)
{
	g = fake_ground(2, 1);
	kernel_busy_vm(g, 1, 1, 1000);
	kernel_busy_vm(g, 2, 2, 1000);
	kernel_busy_vm(g, 3, 8, 1000);
	kernel_run(g, 4 * SECOND);
	for (u32 tgid = 1; tgid <= 3; tgid++)
		CHECK_NEAR(percent_of(tgid), 100.0 / 3, 1.0);
}

static void a_vm_that_halves_its_demand_gives_the_rest_away_at_once(void)
{
	u64 before_ns;

	g = fake_ground(4, 1);
	kernel_busy_vm(g, 1, 4, 4000);
	kernel_busy_vm(g, 2, 4, 4000);
	kernel_run(g, SECOND);
	for (u32 i = 0; i < 4; i++) {
		g->task[i].burst_ns = g->task[i].burst_left_ns = 2500 * US;
		g->task[i].sleep_ns = 7500 * US;
	}
	kernel_run(g, 100 * MS);
	before_ns = kernel_cpu_time_ns(g, 2);
	kernel_run(g, SECOND);
	CHECK_EQ(kernel_cpu_time_ns(g, 1) + kernel_cpu_time_ns(g, 2), 8400 * MS);
	CHECK(kernel_cpu_time_ns(g, 2) - before_ns >= 3 * SECOND);
}

static void vcpus_of_one_busy_vm_get_equal_time(void)
{
	for (u32 nr_domains = 1; nr_domains <= 2; nr_domains++) {
		g = fake_ground(4, nr_domains);
		kernel_busy_vm(g, 1, 6, 6000);
		kernel_busy_vm(g, 2, 3, 2000);
		kernel_run(g, 4 * SECOND);
		for (u32 i = 0; i < 6; i++)
			CHECK_NEAR(g->task[i].cpu_time_ns, 2 * SECOND, 50 * MS);
		for (u32 i = 6; i < 9; i++)
			CHECK_NEAR(g->task[i].cpu_time_ns, 4 * SECOND / 3, 33 * MS);
	}
}

/* A claim is the VM's, so one waking vCPU must not lose what the others are owed. */
static void a_vm_that_sleeps_in_part_gets_its_share(void)
{
	g = fake_ground(4, 1);
	kernel_busy_vm(g, 1, 2, 0);
	for (u32 i = 0; i < 2; i++) {
		struct task_struct *task = kernel_thread(g, 1, THREAD_VCPU);

		task->burst_ns = task->burst_left_ns = 500 * US;
		task->sleep_ns = 500 * US;
		kernel_wake(g, task);
	}
	kernel_set_shares(g, 1, 8000);
	kernel_busy_vm(g, 2, 4, 4000);
	kernel_run(g, 4 * SECOND);
	CHECK_NEAR(percent_of(1), 66.7, 1.0);
}

static void pinned_vms_share_their_pcpu(void)
{
	struct task_struct *task[3];

	g = fake_ground(2, 1);
	for (u32 i = 0; i < 3; i++) {
		task[i] = kernel_thread(g, i + 1, THREAD_VCPU);
		kernel_set_affinity(g, task[i], i < 2 ? 1 : 2);
	}
	kernel_set_shares(g, 2, 7000);
	for (u32 i = 0; i < 3; i++)
		kernel_wake(g, task[i]);
	kernel_run(g, 8 * SECOND);
	CHECK_NEAR(task[0]->cpu_time_ns, SECOND, 80 * MS);
	CHECK_NEAR(task[1]->cpu_time_ns, 7 * SECOND, 80 * MS);
	CHECK_EQ(task[2]->cpu_time_ns, 8 * SECOND);
}

/* --- time not charged, read while threads come and go --- */

#define BOOT_NS (1000000 * SECOND)

static volatile bool all_ended;

static void who_is_pinned_says_nothing_of_where_its_siblings_begin(void)
{
	struct vm vm = {.vruntime_floor_ns = 20 * MS};
	struct thread t = {.vruntime_ns = 50 * MS, .pinned_cpu = 1};

	share_lift_floor(&vm, &t);
	CHECK_EQ(vm.vruntime_floor_ns, 20 * MS);
	t.pinned_cpu = 0;
	share_lift_floor(&vm, &t);
	CHECK_EQ(vm.vruntime_floor_ns, 50 * MS);
	t.vruntime_ns = 30 * MS;
	share_lift_floor(&vm, &t);
	CHECK_EQ(vm.vruntime_floor_ns, 50 * MS);
}

static void *begins_and_ends(void *vm)
{
	struct thread t = {0};

	for (u32 i = 0; i < 300000; i++) {
		share_begin(vm, &t, BOOT_NS);
		share_end(vm, &t);
	}
	all_ended = true;
	return NULL;
}

static void who_reads_while_threads_begin_and_end_sees_no_time_that_never_was(void)
{
	static struct vm vm;
	u64 most_ns = 0;
	pthread_t others;

	share_begin(&vm, &(struct thread){0}, BOOT_NS);
	CHECK_EQ(pthread_create(&others, NULL, begins_and_ends, &vm), 0);
	do
		most_ns = max_of(share_uncharged_ns(&vm, BOOT_NS + MS), most_ns);
	while (!all_ended);
	pthread_join(others, NULL);
	CHECK(most_ns >= MS && most_ns <= 2 * MS);
	CHECK_EQ(share_nr_running(&vm), 1);
	CHECK_EQ(share_uncharged_ns(&vm, BOOT_NS - MS), 0);
}

/* All VMs keep off one pCPU, as where the host has one for itself: the clock of the domain stands.
 */
static void who_comes_late_among_confined_vms_has_no_more_than_its_part(void)
{
	u64 before_ns;

	g = fake_ground(3, 1);
	for (u32 tgid = 1; tgid <= 3; tgid++) {
		kernel_busy_vm(g, tgid, 2, 0);
		for (u32 i = 0; i < FAKE_TASKS; i++)
			if (g->task[i].state != TASK_NONE && g->task[i].tgid == tgid)
				kernel_set_affinity(g, &g->task[i], 3);
		kernel_run(g, tgid == 2 ? 20 * SECOND : 0);
	}
	before_ns = kernel_cpu_time_ns(g, 3);
	kernel_run(g, 3 * SECOND);
	CHECK_NEAR((double)(kernel_cpu_time_ns(g, 3) - before_ns) / (double)SECOND, 2.0, 0.2);
	/* Nor would the host's own tasks, which are as old as the clock. */
	CHECK(kernel_vm(g, 1)->vtime_ns - g->d.domain[0].clock_ns < 100 * MS);
}

/* What no look has found yet is no virtual time that anybody has reached. */
static void the_clock_does_not_leap_where_it_begins_far_from_zero(void)
{
	u64 begins_ns = (1ULL << 63) + MS;

	g = fake_ground(2, 1);
	g->d.domain[0].clock_ns = begins_ns;
	for (u32 tgid = 1; tgid <= 4; tgid++) {
		struct task_struct *task = kernel_thread(g, tgid, THREAD_VCPU);

		/* Behind it, as who slept is. */
		kernel_vm(g, tgid)->vtime_ns -= 4 * MS;
		kernel_set_affinity(g, task, 1);
		kernel_wake(g, task);
	}
	for (u32 ms = 0; ms < 100; ms++) {
		kernel_run(g, MS);
		CHECK(g->d.domain[0].clock_ns - begins_ns <= 100 * MS);
	}
}

int main(void)
{
	RUN(at_1000_shares_virtual_time_is_cpu_time);
	RUN(with_twice_the_shares_a_vm_ages_half_as_fast);
	RUN(the_least_and_the_most_shares);
	RUN(shares_out_of_range_are_brought_into_it);
	RUN(weighing_is_exact_within_a_thousandth_for_any_shares);
	RUN(at_most_eight_seconds_are_charged_at_once_and_nothing_overflows);
	RUN(all_threads_of_a_vm_are_charged_to_it);
	RUN(what_was_charged_is_not_charged_again);
	RUN(what_the_kernel_counts_after_a_stop_is_charged_at_the_next_run);
	RUN(what_a_thread_used_in_another_class_is_not_charged);
	RUN(nice_values_divide_what_siblings_have);
	RUN(a_nice_host_task_ages_faster_than_its_siblings_but_its_vm_does_not);
	RUN(the_clock_moves_forward_only);
	RUN(while_nobody_waits_the_clock_follows_who_is_furthest_ahead);
	RUN(while_somebody_waits_the_clock_follows_the_least_served);
	RUN(a_vm_alone_owes_nothing_later);
	RUN(who_slept_has_no_claim_beyond_its_credit);
	RUN(who_cannot_use_its_share_is_owed_32_ms_of_virtual_time_at_most);
	RUN(threads_that_sleep_save_up_no_claim);
	RUN(who_wakes_beside_siblings_brings_no_claim_from_before);
	RUN(who_waits_now_and_then_keeps_what_it_is_owed);
	RUN(shares_1_to_7_one_round_against_seven);
	RUN(the_seven_ratios_of_seed_000_figure_3);
	RUN(a_vms_time_does_not_depend_on_its_number_of_vcpus);
	RUN(a_vm_that_halves_its_demand_gives_the_rest_away_at_once);
	RUN(vcpus_of_one_busy_vm_get_equal_time);
	RUN(a_vm_that_sleeps_in_part_gets_its_share);
	RUN(pinned_vms_share_their_pcpu);
	RUN(who_is_pinned_says_nothing_of_where_its_siblings_begin);
	RUN(who_reads_while_threads_begin_and_end_sees_no_time_that_never_was);
	RUN(who_comes_late_among_confined_vms_has_no_more_than_its_part);
	RUN(the_clock_does_not_leap_where_it_begins_far_from_zero);
	return check_done();
}

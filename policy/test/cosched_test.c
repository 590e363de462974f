// SPDX-License-Identifier: GPL-2.0-only
/* vCPUs kept together: policy/cosched/ and policy/account/vcpu.h. */
#include "fake_kernel.h"

static struct ground *g;

/* A VM (process 1) in that mode beside a 1-vCPU VM (process 2), two pCPUs, a share per vCPU. */
static void two_beside_one(u32 mode)
{
	g = fake_ground(2, 1);
	kernel_busy_vm(g, 1, 2, 2000);
	kernel_busy_vm(g, 2, 1, 1000);
	cosched_set_mode(&g->d, g->slot_of[1], mode);
}

static double used_pcpus(u32 tgid, u64 before_ns, u64 passed_ns)
{
	return (double)(kernel_cpu_time_ns(g, tgid) - before_ns) / (double)passed_ns;
}

/* --- rounds --- */

static void a_pressed_vm_is_kept_together_within_100_ms(void)
{
	g = fake_ground(2, 1);
	kernel_busy_vm(g, 1, 2, 0);
	kernel_run(g, 200 * MS);
	CHECK_EQ(kernel_vm(g, 1)->coscheduled, 0);
	kernel_busy_vm(g, 2, 2, 0);
	kernel_run(g, 100 * MS);
	CHECK_EQ(kernel_vm(g, 1)->coscheduled, 1);
	CHECK_EQ(kernel_vm(g, 2)->coscheduled, 1);
	CHECK_EQ(g->d.nr_coscheduled, 2);
}

static void a_vm_that_is_pressed_no_longer_is_let_alone_within_100_ms(void)
{
	g = fake_ground(2, 1);
	kernel_busy_vm(g, 1, 2, 0);
	kernel_busy_vm(g, 2, 2, 0);
	kernel_run(g, 200 * MS);
	CHECK_EQ(kernel_vm(g, 1)->coscheduled, 1);
	kernel_exit_threads(g, 2, 2);
	kernel_run(g, 100 * MS);
	CHECK_EQ(kernel_vm(g, 1)->coscheduled, 0);
	CHECK_EQ(g->d.nr_coscheduled, 0);
}

/* The hazard of the first of so many VMs as wide as the host. */
static double hazard_of_vms_as_wide_as_the_host(u32 nr_pcpus, u32 nr_domains, u32 nr_vms)
{
	g = fake_ground(nr_pcpus, nr_domains);
	for (u32 tgid = 1; tgid <= nr_vms; tgid++)
		kernel_busy_vm(g, tgid, nr_pcpus, 0);
	kernel_run(g, 200 * MS);
	return kernel_hazard(g, 1, 2 * SECOND);
}

static void siblings_run_at_the_same_time(void)
{
	CHECK(hazard_of_vms_as_wide_as_the_host(2, 1, 2) < 0.02);
}

/* Each domain by itself would have another VM than the next half of the time. */
static void siblings_run_at_the_same_time_in_all_domains_they_need(void)
{
	CHECK(hazard_of_vms_as_wide_as_the_host(8, 2, 2) < 0.02);
	CHECK(hazard_of_vms_as_wide_as_the_host(8, 4, 2) < 0.02);
	CHECK(hazard_of_vms_as_wide_as_the_host(8, 4, 3) < 0.02);
}

/* Of three VMs that take turns, the two that wait have received the same. */
static void siblings_run_at_the_same_time_whatever_others_are_owed(void)
{
	CHECK(hazard_of_vms_as_wide_as_the_host(2, 1, 3) < 0.02);
	CHECK(hazard_of_vms_as_wide_as_the_host(4, 1, 5) < 0.02);
}

/* What a round gave to a VM goes to others when it may not have it any more. */
static void a_round_keeps_a_pcpu_only_for_who_may_have_it(void)
{
	struct drover *d;
	struct vm *vm;
	u32 slot;

	g = fake_ground(2, 1);
	d = &g->d;
	slot = kernel_busy_vm(g, 1, 2, 0);
	kernel_busy_vm(g, 2, 2, 0);
	kernel_run(g, 200 * MS);
	vm = vm_at(d, slot);
	CHECK_EQ(vm->coscheduled, 1);
	vm->plan.round = d->round;
	plan_note(d, 0, slot);
	CHECK_EQ(pick_planned(d, 0), slot);
	vm->at_limit = 1;
	CHECK_EQ(pick_planned(d, 0), DROVER_MAX_VMS);
	vm->at_limit = 0;
	vm->coscheduled = 0;
	CHECK_EQ(pick_planned(d, 0), DROVER_MAX_VMS);
	vm->coscheduled = 1;
	CHECK_EQ(pick_planned(d, 0), slot);
	cosched_stop_all(d, slot, g->now_ns);
	CHECK_EQ(pick_planned(d, 0), DROVER_MAX_VMS);
}

/* Without rounds the same two VMs have all their time in hazard, half a slice out of step. */
static void mode_off_is_left_alone(void)
{
	g = fake_ground(2, 1);
	kernel_busy_vm(g, 1, 2, 0);
	kernel_busy_vm(g, 2, 2, 0);
	for (u32 tgid = 1; tgid <= 2; tgid++)
		kernel_vm(g, tgid)->cosched_mode = COSCHED_OFF;
	kernel_run(g, SECOND);
	CHECK_EQ(kernel_vm(g, 1)->coscheduled, 0);
	CHECK_EQ(g->d.nr_coscheduled, 0);
}

/* --- a VM that spins --- */

/* For so long, vCPUs of VM 1 that run while a sibling waits do nothing but spin, or nothing of it.
 */
static void with_spinning(u64 duration_ns, bool spins)
{
	for (u64 passed_ns = 0; passed_ns < duration_ns; passed_ns += MS) {
		bool split = kernel_vm(g, 1)->vcpus_running && kernel_vm(g, 1)->vcpus_waiting;

		for (u32 i = 0; i < kernel_vm(g, 1)->nr_vcpus; i++) {
			struct task_struct *task = &g->task[i];

			if (task->state != TASK_RUNNING)
				task->spun_ns = 0;
			else if (spins && split)
				task->spun_ns += MS;
		}
		kernel_run(g, MS);
	}
}

/* Two busy vCPUs beside a busy one with as many shares, on two pCPUs. */
static void two_that_meet_beside_one(bool spin)
{
	g = fake_ground(2, 1);
	kernel_busy_vm(g, 1, 2, 1000);
	kernel_busy_vm(g, 2, 1, 1000);
	with_spinning(200 * MS, spin);
}

static void a_vm_that_spins_for_those_that_wait_is_a_gang_within_two_windows(void)
{
	two_that_meet_beside_one(false);
	CHECK_EQ(kernel_vm(g, 1)->spins, 0);
	with_spinning(36 * MS, true);
	CHECK_EQ(kernel_vm(g, 1)->spins, 1);
	with_spinning(100 * MS, true);
	CHECK(kernel_hazard(g, 1, 500 * MS) < 0.05);
}

static void one_that_spins_no_more_is_let_alone_after_a_second(void)
{
	two_that_meet_beside_one(true);
	CHECK_EQ(kernel_vm(g, 1)->spins, 1);
	with_spinning(1100 * MS, false);
	CHECK_EQ(kernel_vm(g, 1)->spins, 0);
	CHECK(kernel_hazard(g, 1, 500 * MS) > 0.3);
}

/* It cannot run all together. */
static void one_that_is_wider_than_the_host_is_no_gang(void)
{
	g = fake_ground(2, 1);
	kernel_busy_vm(g, 1, 3, 0);
	with_spinning(200 * MS, true);
	CHECK_EQ(kernel_vm(g, 1)->spins, 0);
}

static void only_in_mode_auto(void)
{
	two_that_meet_beside_one(true);
	cosched_set_mode(&g->d, g->slot_of[1], COSCHED_OFF);
	CHECK_EQ(kernel_vm(g, 1)->spins, 0);
	with_spinning(100 * MS, true);
	CHECK_EQ(kernel_vm(g, 1)->spins, 0);
	CHECK_EQ(kernel_vm(g, 1)->coscheduled, 0);
}

/* --- progress and lag --- */

static struct thread vcpu[4];

static void vcpu_turns(u32 i, bool running)
{
	struct vm *vm = vm_at(&g->d, 1);

	together_tally(vm, g->now_ns);
	if (running) {
		vm->vcpus_waiting--;
		waiting_vcpu_end(&g->d, vm, &vcpu[i]);
		vm->vcpus_running++;
		vcpu_running(&g->d, &vcpu[i], i);
	} else {
		vm->vcpus_running--;
		vcpu_halted(&g->d, &vcpu[i]);
		vm->vcpus_waiting++;
		waiting_vcpu_begin(&g->d, vm, &vcpu[i]);
	}
}

static void runs_alone(u32 i, u64 ran_ns)
{
	vcpu_turns(i, true);
	g->now_ns += ran_ns;
	together_tally(vm_at(&g->d, 1), g->now_ns);
	vcpu_progress(&g->d, &vcpu[i], ran_ns, 0);
	vcpu_turns(i, false);
}

/* A VM with that many vCPUs and pCPUs, all ready. */
static struct vm *ready_vcpus(u32 nr)
{
	struct vm *vm;

	g = fake_ground(nr, 1);
	vm_begin(&g->d, 1, 7);
	vm = vm_at(&g->d, 1);
	for (u32 i = 0; i < nr; i++) {
		vcpu[i] = (struct thread){.slot = 1, .kind = THREAD_VCPU};
		vcpu_open(&g->d, &vcpu[i], i, i + 1);
		together_tally(vm, g->now_ns);
		vm->vcpus_waiting++;
		waiting_vcpu_begin(&g->d, vm, &vcpu[i]);
	}
	return vm;
}

/* Seed 000, figure 1: what ESX 3 takes for 3 T is 2 T. */
static void figure_1(void)
{
	struct vm *vm = ready_vcpus(4);

	runs_alone(3, 2 * MS);
	runs_alone(2, MS);
	CHECK_EQ(vcpu_lag_ns(vm, vcpu_at(&g->d, vcpu[0].record)), 3 * MS);
	CHECK_EQ(vcpu_lag_ns(vm, vcpu_at(&g->d, vcpu[1].record)), 3 * MS);
	CHECK_EQ(vcpu_at(&g->d, vcpu[3].record)->progress_ns - cosched_slowest_ns(&g->d, 1, false),
		 2 * MS);
}

static void who_runs_makes_up_for_its_own_lag(void)
{
	struct vm *vm;

	figure_1();
	vm = vm_at(&g->d, 1);
	runs_alone(0, MS);
	CHECK_EQ(vcpu_lag_ns(vm, vcpu_at(&g->d, vcpu[0].record)), 2 * MS);
	CHECK_EQ(vcpu_lag_ns(vm, vcpu_at(&g->d, vcpu[1].record)), 4 * MS);
}

/* Seed 000, 3.1: two that make the same progress at different moments do not drift apart, but each
 * lags. */
static void siblings_that_run_in_turn_have_no_skew(void)
{
	struct vm *vm = ready_vcpus(2);

	for (u32 turn = 0; turn < 5; turn++) {
		runs_alone(0, MS);
		runs_alone(1, MS);
		for (u32 i = 0; i < 2; i++)
			CHECK_EQ(vcpu_at(&g->d, vcpu[i].record)->progress_ns -
					 cosched_slowest_ns(&g->d, 1, false),
				 0);
	}
	CHECK(vcpu_lag_ns(vm, vcpu_at(&g->d, vcpu[0].record)) > 0);
}

/* What figure 1 leaves in the books of its vCPUs. */
static void what_happened_is_booked_by_vcpu(void)
{
	struct vm *vm;

	figure_1();
	vm = vm_at(&g->d, 1);
	vcpu_note_skew(&g->d, 1, cosched_slowest_ns(&g->d, 1, true));
	CHECK_EQ(vm->skew.max_ns, 2 * MS);
	CHECK_EQ(vcpu_at(&g->d, vcpu[3].record)->skew_max_ns, 2 * MS);
	CHECK_EQ(vcpu_at(&g->d, vcpu[2].record)->skew_max_ns, MS);
	CHECK_EQ(vcpu_at(&g->d, vcpu[0].record)->skew_max_ns, 0);
	/* A sibling ran while it was ready: all the time, before v2 ran, before v3 ran. */
	runs_alone(0, MS);
	runs_alone(3, MS);
	CHECK_EQ(vcpu_at(&g->d, vcpu[0].record)->hazard_ns, 3 * MS);
	CHECK_EQ(vcpu_at(&g->d, vcpu[2].record)->hazard_ns, 2 * MS);
	CHECK_EQ(vcpu_at(&g->d, vcpu[3].record)->hazard_ns, 2 * MS);
	/* What was, stays. */
	vcpu_note_skew(&g->d, 1, cosched_slowest_ns(&g->d, 1, true));
	CHECK_EQ(vcpu_at(&g->d, vcpu[2].record)->skew_max_ns, MS);
	CHECK_EQ(vm->skew.max_ns, 3 * MS);
}

static void hypervisor_time_is_no_progress(void)
{
	struct vcpu *v;

	figure_1();
	v = vcpu_at(&g->d, vcpu[0].record);
	vcpu_progress(&g->d, &vcpu[0], 4 * MS, 100 * MS);
	CHECK_EQ(v->progress_ns, 4 * MS);
	/* A whole tick was sampled while it ran for a quarter of one: the rest is taken later. */
	vcpu_progress(&g->d, &vcpu[0], MS, 104 * MS);
	CHECK_EQ(v->progress_ns, 4 * MS);
	vcpu_progress(&g->d, &vcpu[0], 4 * MS, 104 * MS);
	CHECK_EQ(v->progress_ns, 5 * MS);
}

static void who_halts_never_lags(void)
{
	struct vm *vm;

	figure_1();
	vm = vm_at(&g->d, 1);
	together_tally(vm, g->now_ns);
	vm->vcpus_waiting--;
	waiting_vcpu_end(&g->d, vm, &vcpu[0]);
	vcpu_at(&g->d, vcpu[0].record)->lag_ns = 0;
	for (u32 i = 0; i < 10; i++)
		runs_alone(3, 4 * MS);
	CHECK_EQ(vcpu_lag_ns(vm, vcpu_at(&g->d, vcpu[0].record)), 0);
	vm->skew.floor_ns = cosched_slowest_ns(&g->d, 1, false);
	vm->vcpus_waiting++;
	waiting_vcpu_begin(&g->d, vm, &vcpu[0]);
	CHECK(vcpu_at(&g->d, vcpu[0].record)->progress_ns >= vm->skew.floor_ns);
}

/*
 * Seed 000, table 1: v3 of 4 is too far ahead of v0 and v1, v2 is not. With so many
 * pCPUs at hand, may the VM start? ESX 3: with two, v0 and v1; with one, not at all.
 * ESX 4: v0, v1 or v2 alone; v3 not while v0 or v1 is ready (elsewhere, here).
 */
static bool starts_with(u32 mode, u32 pcpus, u32 wait_here)
{
	struct vm *vm;

	figure_1();
	vm = vm_at(&g->d, 1);
	vm->nr_vcpus = 4;
	vm->cosched_mode = mode;
	vm->coscheduled = 1;
	g->d.round = 1;
	entity_rq_of(&g->runqueue[0], 1)->may = AFFINITY_ALL;
	for (u32 at = pcpus; at < 4; at++)
		pcpu_at(&g->d, at)->order.why = ORDER_TAKEN;
	g->d.params.skew_max_ns = 2 * MS;
	if (mode == COSCHED_SKEW) {
		g->d.pcpu[1].domain = 1;
		for (u32 i = 0; i < 4; i++)
			vcpu_at(&g->d, vcpu[i].record)->pcpu = i < 4 - wait_here;
		vcpu_at(&g->d, vcpu[3].record)->costop_since_ns = g->now_ns;
	} else {
		vcpu_at(&g->d, vcpu[2].record)->lag_ns = 0;
		vm->skew.nr_stopped = 4;
	}
	return plan_admits(&g->d, 0, 0, 1, 0);
}

static void table_1(void)
{
	CHECK(!starts_with(COSCHED_STRICT, 3, 4));
	CHECK(starts_with(COSCHED_STRICT, 4, 4));
	CHECK(!starts_with(COSCHED_RELAXED, 1, 4));
	CHECK(starts_with(COSCHED_RELAXED, 2, 4));
	CHECK(starts_with(COSCHED_SKEW, 1, 4));
	CHECK(!starts_with(COSCHED_SKEW, 1, 1));
}

/* --- modes --- */

static void a_gang_runs_all_together_or_not_at_all(void)
{
	u64 before_ns;

	two_beside_one(COSCHED_GANG);
	kernel_run(g, 200 * MS);
	before_ns = kernel_cpu_time_ns(g, 2);
	CHECK(kernel_hazard(g, 1, 2 * SECOND) < 0.05);
	/* Equal by shares: 1 pCPU and a half, and half of one is nobody's. */
	CHECK_NEAR(used_pcpus(2, before_ns, 2 * SECOND), 0.5, 0.05);
}

/* Their vCPUs wait in all domains at first: each gang gathers where it is called to. */
static void gangs_of_several_domains_run_all_together(void)
{
	u64 hazard_ns = 0, progressed_ns = 0;

	g = fake_ground(16, 4);
	for (u32 tgid = 1; tgid <= 8; tgid++) {
		kernel_busy_vm(g, tgid, 4, 0);
		cosched_set_mode(&g->d, g->slot_of[tgid], COSCHED_GANG);
	}
	kernel_run(g, 500 * MS);
	for (u32 tgid = 1; tgid <= 8; tgid++) {
		hazard_ns -= kernel_vm(g, tgid)->pressure.hazard_ns;
		progressed_ns -= kernel_vm(g, tgid)->pressure.progressed_ns;
	}
	kernel_run(g, 2 * SECOND);
	for (u32 tgid = 1; tgid <= 8; tgid++) {
		hazard_ns += kernel_vm(g, tgid)->pressure.hazard_ns;
		progressed_ns += kernel_vm(g, tgid)->pressure.progressed_ns;
		CHECK_NEAR((double)kernel_cpu_time_ns(g, tgid) / SECOND, 5.0, 0.25);
	}
	CHECK_NEAR((double)hazard_ns / (double)progressed_ns, 0.0, 0.05);
	CHECK_NEAR((double)progressed_ns / SECOND, 8.0, 0.4);
}

/* Figures 6 and 8: relaxed and skew use what strict leaves idle; skew stops far less often. */
static void strict_idles_relaxed_stops_often_skew_seldom(void)
{
	u64 used_ns[3], stops[3];

	for (u32 i = 0; i < 3; i++) {
		two_beside_one(COSCHED_STRICT + i);
		kernel_run(g, 4 * SECOND);
		used_ns[i] = kernel_cpu_time_ns(g, 1) + kernel_cpu_time_ns(g, 2);
		stops[i] = kernel_vm(g, 1)->skew.nr_costops;
		/* Stopped time is paid back: two parts of three, in every mode. */
		CHECK_NEAR((double)kernel_cpu_time_ns(g, 1) / (double)used_ns[i], 2.0 / 3, 0.02);
	}
	CHECK(used_ns[0] < 19 * 4 * SECOND / 10);
	CHECK(used_ns[1] > 196 * 4 * SECOND / 100);
	CHECK(used_ns[2] > 196 * 4 * SECOND / 100);
	CHECK(stops[0] > 0 && stops[2] > 0);
	CHECK(stops[2] * 3 < stops[1] * 2);
}

static void shares_hold_in_every_mode(void)
{
	for (u32 mode = COSCHED_AUTO; mode <= COSCHED_GANG; mode++) {
		g = fake_ground(4, 1);
		for (u32 tgid = 1; tgid <= 3; tgid++) {
			kernel_busy_vm(g, tgid, 4, 1000 * tgid);
			cosched_set_mode(&g->d, g->slot_of[tgid], mode);
		}
		kernel_run(g, 6 * SECOND);
		for (u32 tgid = 1; tgid <= 3; tgid++)
			CHECK_NEAR((double)kernel_cpu_time_ns(g, tgid) / SECOND, 4.0 * tgid, 0.24);
	}
}

/* Both wider than the host: whoever runs asks for pCPUs to go on, but whoever waits comes first. */
static void shares_hold_between_modes(void)
{
	for (u32 a = COSCHED_STRICT; a <= COSCHED_GANG; a++) {
		for (u32 b = COSCHED_STRICT; b <= COSCHED_GANG; b++) {
			u64 before_ns[2];

			g = fake_ground(5, 1);
			kernel_busy_vm(g, 1, 10, 500);
			kernel_busy_vm(g, 2, 9, 1500);
			cosched_set_mode(&g->d, g->slot_of[1], a);
			cosched_set_mode(&g->d, g->slot_of[2], b);
			kernel_run(g, SECOND);
			before_ns[0] = kernel_cpu_time_ns(g, 1);
			before_ns[1] = kernel_cpu_time_ns(g, 2);
			kernel_run(g, 4 * SECOND);
			CHECK_NEAR((double)(kernel_cpu_time_ns(g, 2) - before_ns[1]) /
					   (double)(kernel_cpu_time_ns(g, 1) - before_ns[0]),
				   3.0, 0.3);
		}
	}
}

static void skew_stays_within_its_bound(void)
{
	two_beside_one(COSCHED_SKEW);
	for (u32 i = 0; i < 2000; i++) {
		u64 a, b;

		kernel_run(g, MS);
		a = g->task[0].cpu_time_ns;
		b = g->task[1].cpu_time_ns;
		/* What a tick finds may have grown since the last. */
		CHECK((a > b ? a - b : b - a) <= g->d.params.skew_max_ns + 6 * MS);
	}
}

/* Two vCPUs in skew mode: task 0 runs, task 1 is ready. */
static struct vm *one_runs_and_one_waits(void)
{
	g = fake_ground(1, 1);
	kernel_busy_vm(g, 1, 2, 0);
	cosched_set_mode(&g->d, g->slot_of[1], COSCHED_SKEW);
	kernel_settle(g);
	CHECK(g->task[0].state == TASK_RUNNING && g->task[1].state == TASK_READY);
	return kernel_vm(g, 1);
}

static struct vcpu *record_of(u32 task)
{
	return vcpu_at(&g->d, g->task[task].thread.record);
}

static void in_skew_mode_who_is_stopped_must_stop_and_nobody_else(void)
{
	struct vm *vm = one_runs_and_one_waits();

	CHECK(!cosched_must_stop(&g->d, &g->task[0].thread));
	cosched_stop(vm, record_of(0), g->now_ns);
	CHECK(cosched_must_stop(&g->d, &g->task[0].thread));
}

/* Who is too far ahead of a ready sibling is stopped, and let go as soon as it is so no more. */
static void who_was_ahead_is_let_go_when_the_sibling_has_caught_up(void)
{
	struct vm *vm = one_runs_and_one_waits();

	record_of(0)->progress_ns = record_of(1)->progress_ns + 4 * MS;
	cosched_review(&g->d, g->slot_of[1], g->now_ns);
	CHECK(record_of(0)->costop_since_ns);
	CHECK_EQ(vm->skew.nr_stopped, 1);
	CHECK_EQ(record_of(0)->nr_costops, 1);
	g->now_ns += 2 * MS;
	record_of(1)->progress_ns += 2 * MS;
	cosched_review(&g->d, g->slot_of[1], g->now_ns);
	CHECK(!record_of(0)->costop_since_ns);
	CHECK_EQ(vm->skew.nr_stopped, 0);
	CHECK_EQ(record_of(0)->costop_ns, 2 * MS);
	CHECK_EQ(vm->skew.costop_ns, 2 * MS);
}

/* It leaves an empty place among the records of its siblings. */
static void a_vcpu_that_goes_does_not_trouble_its_siblings(void)
{
	for (u32 mode = COSCHED_STRICT; mode <= COSCHED_GANG; mode++) {
		u32 slot;

		two_beside_one(mode);
		slot = g->slot_of[1];
		kernel_run(g, 100 * MS);
		kernel_busy_vm(g, 1, 1, 3000);
		for (u32 ms = 0; ms < 200 && g->task[0].state != TASK_RUNNING; ms++)
			kernel_run(g, MS);
		kernel_exit(g, g->task[0].pcpu);
		CHECK(!vcpu_in(&g->d, slot, 0) && vcpu_in(&g->d, slot, 1));
		kernel_run(g, 200 * MS);
	}
}

/* A sibling that cannot run, beside a pinned rival of a thousand times the shares. */
static void nothing_is_held_beyond_100_ms(void)
{
	for (u32 mode = COSCHED_STRICT; mode <= COSCHED_GANG; mode++) {
		struct task_struct *hog;
		u64 before_ns;

		g = fake_ground(2, 1);
		kernel_busy_vm(g, 1, 2, 1000);
		cosched_set_mode(&g->d, g->slot_of[1], mode);
		hog = kernel_thread(g, 2, THREAD_VCPU);
		kernel_set_shares(g, 2, 1000000);
		kernel_set_affinity(g, hog, 1);
		kernel_wake(g, hog);
		kernel_set_affinity(g, &g->task[1], 1);
		kernel_run(g, 200 * MS);
		for (u32 i = 0; i < 10; i++) {
			before_ns = g->task[0].cpu_time_ns;
			kernel_run(g, 100 * MS + 8 * MS);
			CHECK_SAYING(g->task[0].cpu_time_ns > before_ns, "mode %u stands still",
				     mode);
		}
	}
}

/* 15 vCPUs on 16 pCPUs, 5 of which another VM keeps: it never starts whole, and starts in part. */
static void half_a_gang_is_better_than_none(void)
{
	g = fake_ground(16, 1);
	kernel_busy_vm(g, 1, 15, 300);
	cosched_set_mode(&g->d, g->slot_of[1], COSCHED_GANG);
	kernel_busy_vm(g, 2, 8, 1000);
	kernel_busy_vm(g, 3, 5, 8000);
	kernel_run(g, 4 * SECOND);
	CHECK_SAYING(kernel_cpu_time_ns(g, 1) > 4 * SECOND, "%" PRIu64 " ms",
		     (uint64_t)(kernel_cpu_time_ns(g, 1) / MS));
}

/* By shares nobody ever gives it a pCPU: what it is promised calls the seven it lacks. */
static void one_whose_vcpus_start_together_has_its_reservation(void)
{
	for (u32 mode = COSCHED_STRICT; mode <= COSCHED_GANG; mode++) {
		u64 had_ns;

		g = fake_ground(16, 1);
		kernel_busy_vm(g, 1, 8, 512);
		cosched_set_mode(&g->d, g->slot_of[1], mode);
		kernel_vm(g, 1)->asked.reservation_mcpu = 750;
		kernel_settle_vm(g, 1);
		kernel_busy_vm(g, 2, 15, 1000000);
		kernel_run(g, SECOND);
		had_ns = kernel_cpu_time_ns(g, 1);
		kernel_run(g, 4 * SECOND);
		had_ns = kernel_cpu_time_ns(g, 1) - had_ns;
		CHECK_SAYING(had_ns > 2950 * MS, "mode %u: %" PRIu64 " ms", mode,
			     (uint64_t)(had_ns / MS));
	}
}

/* pCPU 0 belongs to a task of the host for now, pCPU 1 becomes free; gangs need both. */
static void gangs_that_are_held(u32 nr_domains, u32 nr_gangs)
{
	g = fake_ground(2, nr_domains);
	for (u32 at = 0; at < 2; at++) {
		struct task_struct *host = kernel_thread(g, 0, THREAD_HOST);

		kernel_set_affinity(g, host, 1ULL << at);
		kernel_wake(g, host);
	}
	kernel_settle(g);
	vm_at(&g->d, DROVER_HOST_SLOT)->vtime_ns -= SECOND;
	for (u32 tgid = 1; tgid <= nr_gangs; tgid++) {
		kernel_busy_vm(g, tgid, 2, 0);
		cosched_set_mode(&g->d, g->slot_of[tgid], COSCHED_GANG);
	}
}

static void pcpu_1_becomes_free(void)
{
	kernel_sleep(g, 1);
	kernel_switch(g, 1);
}

static void gangs_that_are_held_leave_a_pcpu_to_who_is_not(u32 nr_domains)
{
	gangs_that_are_held(nr_domains, 2);
	kernel_busy_vm(g, 3, 1, 0);
	kernel_vm(g, 3)->vtime_ns += 100 * MS;
	pcpu_1_becomes_free();
	kernel_run(g, 40 * MS);
	CHECK(kernel_cpu_time_ns(g, 3) > 30 * MS);
}

static void held_gangs_leave_a_pcpu_to_who_is_not(void)
{
	gangs_that_are_held_leave_a_pcpu_to_who_is_not(1);
}

static void held_gangs_leave_a_pcpu_of_another_domain_to_who_is_not(void)
{
	gangs_that_are_held_leave_a_pcpu_to_who_is_not(2);
}

static void held_gangs_leave_a_pcpu_to_who_is_confined_to_it(void)
{
	struct task_struct *confined;

	gangs_that_are_held(1, 2);
	confined = kernel_thread(g, 3, THREAD_VCPU);
	kernel_set_affinity(g, confined, 2);
	kernel_vm(g, 3)->vtime_ns += 100 * MS;
	kernel_wake(g, confined);
	pcpu_1_becomes_free();
	kernel_run(g, 40 * MS);
	CHECK(confined->cpu_time_ns > 30 * MS);
}

/* Two that are less served are refused; the third has waited for as long as anybody may. */
static void of_many_gangs_the_one_held_longest_is_asked(void)
{
	gangs_that_are_held(1, 3);
	kernel_vm(g, 3)->vtime_ns += 10 * MS;
	g->now_ns += 100 * MS;
	kernel_vm(g, 3)->plan.held_since_ns = g->now_ns - g->d.params.hold_max_ns;
	pcpu_1_becomes_free();
	kernel_run(g, MS);
	CHECK(g->pcpu[1].current && g->pcpu[1].current->tgid == 3);
}

/* The gang has waited long enough, and a helper of its stands first in the queue. */
static void a_helper_does_not_use_up_that_its_gang_may_start(void)
{
	struct task_struct *helper;

	gangs_that_are_held(1, 1);
	kernel_vm(g, 1)->vruntime_floor_ns -= MS;
	helper = kernel_thread(g, 1, THREAD_HELPER);
	kernel_wake(g, helper);
	g->now_ns += 100 * MS;
	kernel_vm(g, 1)->plan.held_since_ns = g->now_ns - g->d.params.hold_max_ns;
	pcpu_1_becomes_free();
	CHECK(g->pcpu[1].current == helper);
	pcpu_1_becomes_free();
	CHECK(g->pcpu[1].current && g->pcpu[1].current->thread.kind == THREAD_VCPU);
	CHECK_EQ(kernel_vm(g, 1)->plan.held_since_ns, 0);
}

/* vCPU 0 ran for seconds before its sibling began; then somebody asks for co-scheduling. */
static void what_was_run_before_a_mode_bounds_it_is_no_skew(void)
{
	static const u32 modes[] = {COSCHED_STRICT, COSCHED_RELAXED, COSCHED_SKEW};

	for (u32 i = 0; i < 3; i++) {
		struct vm *vm;
		u32 slot;

		g = fake_ground(2, 1);
		kernel_busy_vm(g, 1, 1, 0);
		kernel_run(g, 5 * SECOND);
		kernel_busy_vm(g, 1, 1, 0);
		kernel_run(g, 100 * MS);
		vm = kernel_vm(g, 1);
		slot = (u32)(vm - g->d.vm);
		CHECK_EQ(vm->nr_vcpus, 2);
		CHECK(vcpu_in(&g->d, slot, 0)->progress_ns >
		      vcpu_in(&g->d, slot, 1)->progress_ns + 4 * SECOND);
		cosched_set_mode(&g->d, slot, modes[i]);
		/* A rival, so that one of the two has to wait now and then. */
		kernel_busy_vm(g, 2, 1, 0);
		kernel_run(g, SECOND);
		CHECK(vm->skew.max_ns < 100 * MS);
		CHECK(kernel_cpu_time_ns(g, 1) > 6 * SECOND);
	}
}

static void who_was_ahead_of_others_is_level_with_them_when_a_mode_begins_to_bound_it(void)
{
	struct vm *vm;

	figure_1();
	vm = vm_at(&g->d, 1);
	vm->cosched_mode = COSCHED_OFF;
	cosched_set_mode(&g->d, 1, COSCHED_SKEW);
	for (u32 i = 0; i < 4; i++)
		CHECK_EQ(vcpu_at(&g->d, vcpu[i].record)->progress_ns, 2 * MS);
}

/* It was held beside two idle pCPUs; a third finds that it has waited for long enough. */
static void who_is_let_go_has_all_idle_pcpus(void)
{
	struct vm *gang;

	g = fake_ground(4, 1);
	for (u32 at = 0; at < 4; at++) {
		struct task_struct *vcpu = kernel_thread(g, 1 + at, THREAD_VCPU);

		kernel_set_affinity(g, vcpu, 1ULL << at);
		kernel_vm(g, 1 + at)->vtime_ns -= SECOND;
		kernel_wake(g, vcpu);
	}
	kernel_settle(g);
	kernel_busy_vm(g, 5, 4, 0);
	gang = kernel_vm(g, 5);
	cosched_set_mode(&g->d, g->slot_of[5], COSCHED_GANG);
	for (u32 at = 2; at < 4; at++) {
		kernel_sleep(g, at);
		kernel_switch(g, at);
	}
	kernel_run(g, MS);
	CHECK(gang->plan.held_since_ns && !share_nr_running(gang));
	gang->plan.held_since_ns -= g->d.params.hold_max_ns;
	kernel_vm(g, 1)->vtime_ns += 2 * SECOND;
	g->pcpu[0].current->slice_ns = 0;
	g->pcpu[0].resched = true;
	kernel_run(g, MS);
	CHECK_EQ(share_nr_running(gang), 3);
}

static void who_is_held_for_his_mode_runs_at_once_in_another(void)
{
	gangs_that_are_held(1, 1);
	pcpu_1_becomes_free();
	kernel_run(g, 10 * MS);
	CHECK_EQ(kernel_cpu_time_ns(g, 1), 0);
	cosched_set_mode(&g->d, g->slot_of[1], COSCHED_AUTO);
	kernel_run(g, MS);
	CHECK(g->pcpu[1].current && g->pcpu[1].current->tgid == 1);
}

static void a_vm_wider_than_the_host_moves_in_turns(void)
{
	for (u32 mode = COSCHED_STRICT; mode <= COSCHED_GANG; mode++) {
		g = fake_ground(2, 1);
		kernel_busy_vm(g, 1, 6, 0);
		kernel_busy_vm(g, 2, 1, 1000);
		cosched_set_mode(&g->d, g->slot_of[1], mode);
		kernel_run(g, 2 * SECOND);
		for (u32 i = 0; i < 6; i++)
			CHECK_SAYING(g->task[i].cpu_time_ns > 100 * MS, "mode %u: vCPU %u", mode,
				     i);
	}
}

static void vcpus_of_a_vm_wider_than_the_host_take_short_turns(void)
{
	u64 runs;

	g = fake_ground(2, 1);
	kernel_busy_vm(g, 1, 4, 0);
	kernel_run(g, 200 * MS);
	runs = kernel_runs(g, 1);
	kernel_run(g, SECOND);
	runs = kernel_runs(g, 1) - runs;
	/* Of 4 ms, one tick. */
	CHECK_SAYING(runs > 450, "%" PRIu64, runs);
	for (u32 i = 0; i < 4; i++)
		CHECK_NEAR((double)g->task[i].cpu_time_ns, 0.6 * SECOND, 0.01 * SECOND);
}

/* Beside one busy vCPU a barrier of 12 vCPUs on six pCPUs did 0.54 of its work under EEVDF. */
static void nor_do_they_take_longer_ones_where_another_vm_has_a_pcpu(void)
{
	u64 runs;

	g = fake_ground(2, 1);
	kernel_busy_vm(g, 1, 4, 0);
	kernel_busy_vm(g, 2, 1, 0);
	kernel_run(g, 200 * MS);
	CHECK(kernel_vm(g, 1)->coscheduled);
	runs = kernel_runs(g, 1);
	kernel_run(g, SECOND);
	runs = kernel_runs(g, 1) - runs;
	/* Of 1.6 s, one tick each at most; 419 where turns were short only on all pCPUs. */
	CHECK_SAYING(runs > 1000, "%" PRIu64, runs);
}

/* A VM as wide as the host: 0.65. Another has one of its pCPUs, and two of its vCPUs the other. */
static void siblings_take_turns_in_a_round_where_another_vm_has_a_pcpu(void)
{
	u64 waited_ns;

	g = fake_ground(2, 1);
	kernel_busy_vm(g, 1, 2, 0);
	kernel_busy_vm(g, 2, 1, 0);
	kernel_run(g, 200 * MS);
	CHECK(kernel_vm(g, 1)->coscheduled);
	kernel_vm(g, 1)->counters.longest_ready_ns = 0;
	kernel_run(g, SECOND);
	waited_ns = kernel_vm(g, 1)->counters.longest_ready_ns;
	CHECK_SAYING(waited_ns < g->d.params.slice_ns, "%" PRIu64, waited_ns);
}

static void modes_may_change_at_any_moment(void)
{
	g = fake_ground(4, 2);
	kernel_busy_vm(g, 1, 6, 0);
	kernel_busy_vm(g, 2, 3, 0);
	kernel_busy_vm(g, 3, 1, 0);
	for (u32 i = 0; i < 600; i++) {
		cosched_set_mode(&g->d, g->slot_of[check_random_in(1, 3)],
				 check_random_in(COSCHED_AUTO, COSCHED_GANG));
		kernel_run(g, check_random_in(1, 9) * MS);
		CHECK_EQ(g->d.nr_coscheduled, kernel_vm(g, 1)->coscheduled +
						      kernel_vm(g, 2)->coscheduled +
						      kernel_vm(g, 3)->coscheduled);
	}
	for (u32 tgid = 1; tgid <= 3; tgid++)
		cosched_set_mode(&g->d, g->slot_of[tgid], COSCHED_OFF);
	kernel_run(g, 200 * MS);
	CHECK_EQ(g->d.nr_coscheduled, 0);
	for (u32 tgid = 1; tgid <= 3; tgid++)
		CHECK_EQ(kernel_vm(g, tgid)->skew.nr_stopped, 0);
}

int main(void)
{
	RUN(a_pressed_vm_is_kept_together_within_100_ms);
	RUN(a_vm_that_is_pressed_no_longer_is_let_alone_within_100_ms);
	RUN(siblings_run_at_the_same_time);
	RUN(siblings_run_at_the_same_time_in_all_domains_they_need);
	RUN(siblings_run_at_the_same_time_whatever_others_are_owed);
	RUN(a_round_keeps_a_pcpu_only_for_who_may_have_it);
	RUN(mode_off_is_left_alone);
	RUN(a_vm_that_spins_for_those_that_wait_is_a_gang_within_two_windows);
	RUN(one_that_spins_no_more_is_let_alone_after_a_second);
	RUN(one_that_is_wider_than_the_host_is_no_gang);
	RUN(only_in_mode_auto);
	RUN(figure_1);
	RUN(who_runs_makes_up_for_its_own_lag);
	RUN(siblings_that_run_in_turn_have_no_skew);
	RUN(what_happened_is_booked_by_vcpu);
	RUN(hypervisor_time_is_no_progress);
	RUN(who_halts_never_lags);
	RUN(table_1);
	RUN(a_gang_runs_all_together_or_not_at_all);
	RUN(gangs_of_several_domains_run_all_together);
	RUN(strict_idles_relaxed_stops_often_skew_seldom);
	RUN(shares_hold_in_every_mode);
	RUN(shares_hold_between_modes);
	RUN(skew_stays_within_its_bound);
	RUN(in_skew_mode_who_is_stopped_must_stop_and_nobody_else);
	RUN(who_was_ahead_is_let_go_when_the_sibling_has_caught_up);
	RUN(a_vcpu_that_goes_does_not_trouble_its_siblings);
	RUN(nothing_is_held_beyond_100_ms);
	RUN(half_a_gang_is_better_than_none);
	RUN(one_whose_vcpus_start_together_has_its_reservation);
	RUN(held_gangs_leave_a_pcpu_to_who_is_not);
	RUN(held_gangs_leave_a_pcpu_of_another_domain_to_who_is_not);
	RUN(held_gangs_leave_a_pcpu_to_who_is_confined_to_it);
	RUN(of_many_gangs_the_one_held_longest_is_asked);
	RUN(a_helper_does_not_use_up_that_its_gang_may_start);
	RUN(who_was_ahead_of_others_is_level_with_them_when_a_mode_begins_to_bound_it);
	RUN(what_was_run_before_a_mode_bounds_it_is_no_skew);
	RUN(who_is_let_go_has_all_idle_pcpus);
	RUN(who_is_held_for_his_mode_runs_at_once_in_another);
	RUN(a_vm_wider_than_the_host_moves_in_turns);
	RUN(vcpus_of_a_vm_wider_than_the_host_take_short_turns);
	RUN(nor_do_they_take_longer_ones_where_another_vm_has_a_pcpu);
	RUN(siblings_take_turns_in_a_round_where_another_vm_has_a_pcpu);
	RUN(modes_may_change_at_any_moment);
	return check_done();
}

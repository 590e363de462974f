// SPDX-License-Identifier: GPL-2.0-only
/* The life of a VM: policy/account/vm.h. */
#include "books.h"

#include <pthread.h>

static struct ground *g;

static void dies(struct task_struct *task)
{
	kernel_wake(g, task);
	kernel_settle(g);
	kernel_exit(g, task->pcpu);
	kernel_switch(g, task->pcpu);
}

/* The essay's worked example. */
static void born_with_its_first_vcpu_gone_with_its_last_thread(void)
{
	struct task_struct *vcpu[2], *io;

	g = fake_ground(2, 1);
	vcpu[0] = kernel_thread(g, 5, THREAD_VCPU);
	CHECK(kernel_vm(g, 5)->id);
	CHECK_EQ(kernel_vm(g, 5)->shares, 1000);
	vcpu[1] = kernel_thread(g, 5, THREAD_VCPU);
	CHECK_EQ(kernel_vm(g, 5)->shares, 2000);
	io = kernel_thread(g, 5, THREAD_HELPER);
	CHECK_EQ(kernel_vm(g, 5)->shares, 2000);
	CHECK_EQ(kernel_vm(g, 5)->nr_threads, 3);
	kernel_run(g, 10 * SECOND);
	CHECK_EQ(kernel_vm(g, 5)->shares, 1000);
	dies(vcpu[0]);
	dies(vcpu[1]);
	CHECK(vm_at(&g->d, 1)->id);
	dies(io);
	CHECK(!vm_at(&g->d, 1)->id);
	CHECK_EQ(g->slot_of[5], 0);
}

static void a_vm_begins_level_with_the_clock(void)
{
	g = fake_ground(1, 1);
	g->d.domain[0].clock_ns = 77 * SECOND;
	kernel_thread(g, 1, THREAD_VCPU);
	CHECK_EQ(kernel_vm(g, 1)->vtime_ns, 77 * SECOND);
}

static void nothing_of_the_last_vm_is_left_in_a_slot(void)
{
	struct task_struct *vcpu;
	struct vm *vm;
	u64 id;

	g = fake_ground(1, 1);
	vcpu = kernel_thread(g, 1, THREAD_VCPU);
	vm = kernel_vm(g, 1);
	kernel_set_shares(g, 1, 77);
	kernel_wake(g, vcpu);
	kernel_run(g, SECOND);
	id = vm->id;
	kernel_exit(g, 0);
	kernel_switch(g, 0);

	kernel_thread(g, 2, THREAD_VCPU);
	CHECK(kernel_vm(g, 2) == vm);
	CHECK(vm->id != id);
	CHECK_EQ(vm->shares, 1000);
	CHECK_EQ(vm->counters.vcpu_run_ns + vm->counters.helper_run_ns + vm->counters.ready_ns, 0);
	CHECK_EQ(vm->nr_waiting + share_nr_running(vm), 0);
	CHECK_EQ(vm->vruntime_floor_ns, 0);
}

static void default_shares_follow_the_vcpus_that_run(void)
{
	struct task_struct *vcpu[3];

	g = fake_ground(4, 1);
	for (u32 i = 0; i < 3; i++) {
		vcpu[i] = kernel_thread(g, 1, THREAD_VCPU);
		CHECK_EQ(kernel_vm(g, 1)->shares, (i + 1) * 1000);
	}
	dies(vcpu[1]);
	CHECK_EQ(kernel_vm(g, 1)->shares, 2000);
}

/* 80 of 81 vCPUs never ran a guest; burners do the VM's work. */
static void vcpus_that_never_run_weigh_nothing(void)
{
	struct task_struct *burner;

	g = fake_ground(4, 1);
	for (u32 i = 0; i < 80; i++) {
		struct task_struct *vcpu = kernel_thread(g, 1, THREAD_VCPU);

		vcpu_at(&g->d, vcpu->thread.record)->used_ns = 0;
		vcpu_at(&g->d, vcpu->thread.record)->counts = 0;
	}
	vm_take_size(&g->d, g->slot_of[1], false);
	vm_settle_shares(&g->d, g->slot_of[1]);
	for (u32 i = 0; i < 4; i++) {
		burner = kernel_thread(g, 1, THREAD_HELPER);
		kernel_wake(g, burner);
	}
	kernel_busy_vm(g, 2, 4, 0);
	kernel_run(g, 2 * SECOND);
	CHECK_NEAR(kernel_cpu_time_ns(g, 2), 2 * SECOND * 4 * 4 / 5, 2 * SECOND / 10);
	CHECK_EQ(vm_at(&g->d, DROVER_HOST_SLOT)->shares, 4000);
}

/* One is busy, one works a tenth of the time, one for a moment now and then, one never. */
static void vcpus_count_that_use_a_32nd_of_a_pcpu(void)
{
	struct task_struct *vcpu[4];

	g = fake_ground(4, 1);
	for (u32 i = 0; i < 4; i++)
		vcpu[i] = kernel_thread(g, 1, THREAD_VCPU);
	kernel_wake(g, vcpu[0]);
	for (u32 i = 1; i < 3; i++) {
		vcpu[i]->burst_ns = vcpu[i]->burst_left_ns = i == 1 ? 5 * MS : MS;
		vcpu[i]->sleep_ns = 45 * MS;
		kernel_wake(g, vcpu[i]);
	}
	CHECK_EQ(kernel_vm(g, 1)->shares, 4000);
	kernel_run(g, 3 * SECOND);
	for (u32 i = 0; i < 40; i++) {
		CHECK_EQ(kernel_vm(g, 1)->shares, 2000);
		kernel_run(g, 125 * MS);
	}
	vcpu[3]->burst_ns = vcpu[3]->burst_left_ns = 10 * SECOND;
	kernel_wake(g, vcpu[3]);
	kernel_run(g, (32 + 125) * MS);
	CHECK_EQ(kernel_vm(g, 1)->shares, 3000);
}

/* Two of three users are busy: each has half of what the host's own tasks have. */
static void busy_users_have_together_what_the_host_has(void)
{
	struct task_struct *task[3];

	g = fake_ground(4, 1);
	for (u32 user = 1; user <= 3; user++) {
		struct task_struct *it = task[user - 1] = kernel_thread(g, 0, THREAD_HOST);

		it->user = user;
		it->burst_ns = it->burst_left_ns = user < 3 ? 100 * SECOND : MS;
		it->sleep_ns = 100 * SECOND;
		find_moved(&g->d, &it->thread);
		find_owner(&g->d, it, &it->thread);
		kernel_wake(g, it);
		CHECK(it->thread.slot != DROVER_HOST_SLOT);
		CHECK_EQ(vm_at(&g->d, it->thread.slot)->shares, 4000);
	}
	kernel_run(g, 3 * SECOND);
	for (u32 i = 0; i < 3; i++)
		CHECK_EQ(vm_at(&g->d, task[i]->thread.slot)->shares, 2000);
}

static void a_vm_counts_for_no_more_than_the_pcpus_there_are(void)
{
	g = fake_ground(2, 1);
	kernel_busy_vm(g, 1, 8, 0);
	kernel_busy_vm(g, 2, 2, 0);
	kernel_run(g, SECOND);
	CHECK_EQ(kernel_vm(g, 1)->shares, 2000);
	CHECK_NEAR(kernel_cpu_time_ns(g, 2), SECOND, SECOND / 20);
	kernel_offline(g, 1);
	kernel_run(g, 5 * SECOND);
	CHECK_EQ(kernel_vm(g, 1)->shares, 1000);
}

static void shares_may_be_asked_for_each_vcpu_that_runs(void)
{
	g = fake_ground(4, 1);
	kernel_thread(g, 1, THREAD_VCPU);
	kernel_busy_vm(g, 1, 2, 500 | SHARES_PER_VCPU);
	CHECK_EQ(kernel_vm(g, 1)->shares, 1500);
	kernel_run(g, 10 * SECOND);
	CHECK_EQ(kernel_vm(g, 1)->shares, 1000);
}

static void shares_asked_for_stay(void)
{
	g = fake_ground(2, 1);
	kernel_thread(g, 1, THREAD_VCPU);
	kernel_vm(g, 1)->asked.shares = 300;
	kernel_thread(g, 1, THREAD_VCPU);
	CHECK_EQ(kernel_vm(g, 1)->shares, 300);
	kernel_set_shares(g, 1, 0);
	CHECK_EQ(kernel_vm(g, 1)->shares, 2000);
}

static void a_vm_of_helpers_only_has_the_shares_of_one_vcpu(void)
{
	struct task_struct *vcpu;

	g = fake_ground(1, 1);
	vcpu = kernel_thread(g, 1, THREAD_VCPU);
	kernel_thread(g, 1, THREAD_HELPER);
	dies(vcpu);
	CHECK_EQ(kernel_vm(g, 1)->shares, 1000);
}

static void the_host_weighs_as_if_as_wide_as_the_host_and_a_tenth_of_all_vms_at_least(void)
{
	struct vm *host;

	g = fake_ground(6, 1);
	host = vm_at(&g->d, DROVER_HOST_SLOT);
	CHECK_EQ(host->shares, 6000);
	kernel_busy_vm(g, 1, 1, 59000);
	CHECK_EQ(host->shares, 6000);
	kernel_busy_vm(g, 2, 3, 0);
	CHECK_EQ(host->shares, 6200);
}

static void shares_of_all_vms_are_counted_while_they_live(void)
{
	struct task_struct *task[2];

	g = fake_ground(2, 1);
	task[0] = kernel_thread(g, 1, THREAD_VCPU);
	task[1] = kernel_thread(g, 2, THREAD_VCPU);
	kernel_thread(g, 2, THREAD_HELPER);
	kernel_set_shares(g, 1, 700);
	CHECK_EQ(g->d.vm_shares, 1700);
	dies(task[0]);
	dies(task[1]);
	CHECK_EQ(g->d.vm_shares, 1000);
}

static void the_host_does_not_end(void)
{
	struct task_struct *task;

	g = fake_ground(1, 1);
	task = kernel_thread(g, 0, THREAD_HOST);
	CHECK(!vm_detach(&g->d, &task->thread));
	CHECK(vm_at(&g->d, DROVER_HOST_SLOT)->id);
}

static void a_helper_that_enters_the_guest_becomes_a_vcpu(void)
{
	struct task_struct *task;

	g = fake_ground(2, 1);
	kernel_thread(g, 1, THREAD_VCPU);
	task = kernel_thread(g, 1, THREAD_HELPER);
	vm_promote(&g->d, &task->thread, 1, 7);
	CHECK_EQ(task->thread.kind, THREAD_VCPU);
	g->task[0].burst_ns = g->task[0].burst_left_ns = 10 * SECOND;
	task->burst_ns = task->burst_left_ns = 10 * SECOND;
	kernel_wake(g, g->task);
	kernel_wake(g, task);
	kernel_run(g, SECOND);
	CHECK_EQ(kernel_vm(g, 1)->shares, 2000);
	kernel_exit(g, task->pcpu);
	kernel_settle(g);
	CHECK_EQ(kernel_vm(g, 1)->shares, 1000);
}

static void an_attached_thread_begins_level_with_its_siblings(void)
{
	struct task_struct *task;

	g = fake_ground(1, 1);
	kernel_busy_vm(g, 1, 1, 0);
	kernel_run(g, SECOND);
	task = kernel_thread(g, 1, THREAD_HELPER);
	CHECK_EQ(task->thread.vruntime_ns, kernel_vm(g, 1)->vruntime_floor_ns);
}

static void who_dies_waiting_leaves_nothing_behind(void)
{
	struct task_struct *task;

	g = fake_ground(1, 1);
	kernel_busy_vm(g, 2, 1, 0);
	kernel_settle(g);
	task = kernel_thread(g, 1, THREAD_VCPU);
	kernel_wake(g, task);
	CHECK_EQ(task->state, TASK_READY);
	CHECK(vm_detach(&g->d, &task->thread));
	CHECK_EQ(entity_rq_of(&g->runqueue[0], 1)->nr_queued, 0);
	CHECK_EQ(vm_at(&g->d, 1)->nr_waiting, 0);
	CHECK_EQ(tournament_best(&g->d, &g->runqueue[0].by_share), TOURNAMENT_NONE);
}

/* A thread holds the VM just before, or just after, the last one has left. */
static void held_before_the_last_leaves_it_lives_on(void)
{
	struct task_struct *task;
	struct vm *vm;

	g = fake_ground(1, 1);
	task = kernel_thread(g, 1, THREAD_VCPU);
	vm = kernel_vm(g, 1);
	CHECK(vm_hold(vm));
	CHECK(!vm_detach(&g->d, &task->thread));
	CHECK(vm->id);
	CHECK(vm_release(&g->d, vm));
	CHECK(!vm->id);
}

static void after_the_last_has_left_nobody_can_hold_it(void)
{
	struct task_struct *task;
	struct vm *vm;

	g = fake_ground(1, 1);
	task = kernel_thread(g, 1, THREAD_VCPU);
	vm = kernel_vm(g, 1);
	CHECK(vm_detach(&g->d, &task->thread));
	CHECK(!vm_hold(vm));
	/* Nor does having tried let the next one hold it. */
	CHECK(!vm_hold(vm));
	CHECK_EQ(vm->nr_threads, 0);
}

/* Who has held a slot that became another's lets go; if last, it frees the slot. */
static void whoever_lets_go_last_frees_the_slot(void)
{
	struct task_struct *other;
	struct vm *vm;

	g = fake_ground(1, 1);
	other = kernel_thread(g, 2, THREAD_VCPU);
	vm = kernel_vm(g, 2);
	CHECK(vm_hold(vm));
	CHECK(!vm_detach(&g->d, &other->thread));
	CHECK(vm_release(&g->d, vm));
	CHECK_EQ(vm->nr_threads, 0);
}

static void a_slot_is_never_free_while_a_thread_remains(void)
{
	for (u32 run = 0; run < 300; run++) {
		struct task_struct *task;
		u32 held = 1;
		struct vm *vm;

		g = fake_ground(1, 1);
		task = kernel_thread(g, 1, THREAD_VCPU);
		vm = kernel_vm(g, 1);
		/* The first half of vm_detach: the thread is the host's, and still holds the VM. */
		vm_attach(&g->d, &task->thread, DROVER_HOST_SLOT, THREAD_HOST);
		while (held) {
			if (check_chance(45))
				held += vm_hold(vm);
			else
				CHECK_EQ(vm_release(&g->d, vm), --held == 0);
			CHECK_EQ(vm->nr_threads, held);
			CHECK_EQ(vm->id != 0, held != 0);
		}
	}
}

static void threads_are_told_to_look_when_a_vm_is_found(void)
{
	u32 before;

	g = fake_ground(1, 1);
	before = g->d.vms_found;
	kernel_thread(g, 1, THREAD_VCPU);
	CHECK(g->d.vms_found != before);
}

static void ids_are_never_used_again(void)
{
	u64 last = 0;

	g = fake_ground(1, 1);
	for (u32 i = 0; i < 50; i++) {
		struct task_struct *task = kernel_thread(g, 1, THREAD_VCPU);

		CHECK(kernel_vm(g, 1)->id > last);
		last = kernel_vm(g, 1)->id;
		dies(task);
	}
	CHECK_EQ(g->d.slots_in_use, 2);
}

/* Two pCPUs find a VM each at the same moment, again and again. */
#define MEETINGS 20000
static u32 arrivals;

static void meet(u32 nth)
{
	__atomic_add_fetch(&arrivals, 1, __ATOMIC_RELEASE);
	while (__atomic_load_n(&arrivals, __ATOMIC_ACQUIRE) < 2 * (nth + 1))
		;
}

static void take_slot(u32 slot, u32 meeting)
{
	meet(2 * meeting);
	tournament_grow(&g->d, slot);
	atomic_max(&g->d.slots_in_use, slot + 1);
	meet(2 * meeting + 1);
}

static void *take_slot_2(void *unused)
{
	for (u32 i = 0; i < MEETINGS; i++)
		take_slot(2, i);
	return unused;
}

static void slots_taken_at_the_same_moment_all_count(void)
{
	u32 lost = 0;
	pthread_t other;

	g = fake_ground(2, 1);
	g->d.params.nr_domains = 0;
	arrivals = 0;
	CHECK_EQ(pthread_create(&other, NULL, take_slot_2, NULL), 0);
	for (u32 i = 0; i < MEETINGS; i++) {
		g->d.slots_in_use = 1;
		g->d.tournament_levels = 1;
		take_slot(9, i);
		lost += g->d.slots_in_use != 10 || g->d.tournament_levels != 4;
	}
	CHECK_EQ(pthread_join(other, NULL), 0);
	CHECK_EQ(lost, 0);
}

static void up_to_1024_vcpus_of_a_vm_have_books(void)
{
	static struct thread vcpu[1025];

	g = fake_ground(2, 1);
	vm_begin(&g->d, 1, 7);
	for (u32 pass = 0; pass < 2; pass++) {
		for (u32 i = 0; i < 1025; i++) {
			vcpu[i] = (struct thread){};
			vm_at(&g->d, 1)->nr_threads++;
			vm_attach(&g->d, &vcpu[i], 1, THREAD_HELPER);
			vm_promote(&g->d, &vcpu[i], i, i + 1);
			CHECK(!vcpu[i].record == (i == 1024));
		}
		CHECK_EQ(vcpu_at(&g->d, vcpu[1023].record)->vcpu_id, 1023);
		for (u32 i = 0; i < 1025; i++)
			CHECK_EQ(vm_detach(&g->d, &vcpu[i]), i == 1024);
	}
}

int main(void)
{
	RUN(born_with_its_first_vcpu_gone_with_its_last_thread);
	RUN(a_vm_begins_level_with_the_clock);
	RUN(nothing_of_the_last_vm_is_left_in_a_slot);
	RUN(default_shares_follow_the_vcpus_that_run);
	RUN(vcpus_that_never_run_weigh_nothing);
	RUN(vcpus_count_that_use_a_32nd_of_a_pcpu);
	RUN(busy_users_have_together_what_the_host_has);
	RUN(a_vm_counts_for_no_more_than_the_pcpus_there_are);
	RUN(shares_may_be_asked_for_each_vcpu_that_runs);
	RUN(shares_asked_for_stay);
	RUN(a_vm_of_helpers_only_has_the_shares_of_one_vcpu);
	RUN(the_host_weighs_as_if_as_wide_as_the_host_and_a_tenth_of_all_vms_at_least);
	RUN(shares_of_all_vms_are_counted_while_they_live);
	RUN(the_host_does_not_end);
	RUN(a_helper_that_enters_the_guest_becomes_a_vcpu);
	RUN(an_attached_thread_begins_level_with_its_siblings);
	RUN(who_dies_waiting_leaves_nothing_behind);
	RUN(held_before_the_last_leaves_it_lives_on);
	RUN(after_the_last_has_left_nobody_can_hold_it);
	RUN(whoever_lets_go_last_frees_the_slot);
	RUN(a_slot_is_never_free_while_a_thread_remains);
	RUN(threads_are_told_to_look_when_a_vm_is_found);
	RUN(ids_are_never_used_again);
	RUN(slots_taken_at_the_same_moment_all_count);
	RUN(up_to_1024_vcpus_of_a_vm_have_books);
	return check_done();
}

// SPDX-License-Identifier: GPL-2.0-only
/* Finding VMs, and orders to them: policy/account/find.h and orders.h. */
#include "books.h"

static struct ground *g;

static struct task_struct *thread(u32 tgid)
{
	struct task_struct *task = fake_task(g);

	task->tgid = tgid;
	return task;
}

static u32 looks_up(struct task_struct *task)
{
	find_owner(&g->d, task, &task->thread);
	return task->thread.kind;
}

static u32 enters_guest(struct task_struct *task, u32 vcpu_id)
{
	task->in_kvm_run = true;
	task->vcpu_id = vcpu_id;
	find_vcpu(&g->d, task, &task->thread);
	return task->thread.kind;
}

static u32 nr_taken(void)
{
	u32 taken = 0;

	for (u32 slot = 0; slot < FAKE_PROCESSES; slot++)
		taken += g->slot_taken[slot];
	return taken;
}

static void who_is_in_kvm_run_is_a_vcpu_and_its_process_a_vm(void)
{
	struct task_struct *task, *io;

	g = fake_ground(1, 1);
	task = thread(5);
	io = thread(5);
	CHECK_EQ(looks_up(io), THREAD_HOST);
	find_vcpu(&g->d, task, &task->thread);
	CHECK_EQ(task->thread.kind, THREAD_HOST);
	CHECK_EQ(enters_guest(task, 3), THREAD_VCPU);
	CHECK_EQ(vcpu_at(&g->d, task->thread.record)->vcpu_id, 3);
	CHECK_EQ(vcpu_at(&g->d, task->thread.record)->tid, task - g->task + 1);
	CHECK_EQ(kernel_vm(g, 5)->owner_id, 5);
	CHECK_EQ(looks_up(io), THREAD_HELPER);
	CHECK_EQ(looks_up(thread(6)), THREAD_HOST);
	CHECK_EQ(enters_guest(io, 4), THREAD_VCPU);
	CHECK_EQ(kernel_vm(g, 5)->nr_threads, 2);
}

static void a_host_thread_is_looked_up_once_for_each_vm_found(void)
{
	struct task_struct *task;

	g = fake_ground(1, 1);
	enters_guest(thread(1), 0);
	task = thread(2);
	looks_up(task);
	CHECK_EQ(task->thread.vms_seen, g->d.vms_found);
	enters_guest(thread(2), 0);
	CHECK_EQ(looks_up(task), THREAD_HELPER);
}

/* The last thread goes, and another process gets the slot, between look-up and hold. */
static struct task_struct *goes;
static u32 slot_goes_to;

static void its_slot_changes_hands(struct ground *ground)
{
	ground->meanwhile = NULL;
	find_forget(&ground->d, &goes->thread);
	if (slot_goes_to)
		enters_guest(thread(slot_goes_to), 0);
}

static void who_finds_the_slot_in_other_hands_lets_go_again(void)
{
	struct task_struct *io;

	g = fake_ground(1, 1);
	goes = thread(1);
	enters_guest(goes, 0);
	io = thread(1);
	slot_goes_to = 2;
	g->meanwhile = its_slot_changes_hands;
	CHECK_EQ(looks_up(io), THREAD_HOST);
	CHECK(kernel_vm(g, 2) == vm_at(&g->d, 1));
	CHECK_EQ(vm_at(&g->d, 1)->nr_threads, 1);
	CHECK_EQ(nr_taken(), 1);
}

static void a_helper_that_could_not_hold_its_vm_looks_again(void)
{
	struct task_struct *io;

	g = fake_ground(1, 1);
	goes = thread(1);
	enters_guest(goes, 0);
	io = thread(1);
	slot_goes_to = 0;
	g->meanwhile = its_slot_changes_hands;
	CHECK_EQ(looks_up(io), THREAD_HOST);
	CHECK(io->thread.vms_seen != g->d.vms_found);
}

/* Two vCPUs of a process are found at the same moment. */
static struct task_struct *sibling;

static void a_sibling_is_quicker(struct ground *ground)
{
	ground->meanwhile = NULL;
	enters_guest(sibling, 1);
}

static void of_two_that_make_a_vm_the_second_gives_its_slot_back(void)
{
	struct task_struct *task;

	g = fake_ground(2, 1);
	task = thread(7);
	sibling = thread(7);
	g->meanwhile = a_sibling_is_quicker;
	CHECK_EQ(enters_guest(task, 0), THREAD_VCPU);
	CHECK_EQ(task->thread.slot, sibling->thread.slot);
	CHECK_EQ(kernel_vm(g, 7)->nr_threads, 2);
	CHECK_EQ(kernel_vm(g, 7)->nr_vcpus, 2);
	CHECK_EQ(nr_taken(), 1);
	CHECK_EQ(g->d.vm_shares, 1000);
}

/*
 * The slot of one that is about to give it back is held by a third that looked it up
 * long ago: it frees the slot, and the process keeps the slot it was entered with.
 */
static void a_slot_held_when_it_is_given_back_is_freed_by_the_holder(void)
{
	u32 slot;

	g = fake_ground(2, 1);
	enters_guest(thread(7), 0);
	slot = ground_pop_slot(&g->d);
	vm_begin(&g->d, slot, 7);
	vm_at(&g->d, slot)->nr_threads = 2;
	find_let_go(&g->d, slot);
	CHECK_EQ(nr_taken(), 2);
	find_let_go(&g->d, slot);
	CHECK_EQ(nr_taken(), 1);
	CHECK_EQ(g->slot_of[7], 1);
}

static void with_all_slots_taken_a_vcpu_is_a_host_task_until_one_is_free(void)
{
	struct task_struct *first, *second, *third;

	g = fake_ground(1, 1);
	g->nr_slots = 2;
	first = thread(1);
	second = thread(2);
	CHECK_EQ(enters_guest(first, 0), THREAD_VCPU);
	third = thread(3);
	CHECK_EQ(enters_guest(second, 0), THREAD_HOST);
	CHECK_EQ(enters_guest(second, 0), THREAD_HOST);
	CHECK_EQ(enters_guest(third, 0), THREAD_HOST);
	CHECK_EQ(g->d.nr_unplaced, 2);
	find_forget(&g->d, &third->thread);
	CHECK_EQ(g->d.nr_unplaced, 1);
	find_forget(&g->d, &first->thread);
	CHECK_EQ(g->slot_of[1], 0);
	CHECK_EQ(enters_guest(second, 0), THREAD_VCPU);
	CHECK_EQ(g->d.nr_unplaced, 0);
}

static struct task_struct *thread_of_user(u32 tgid, u32 user)
{
	struct task_struct *task = thread(tgid);

	task->user = user;
	return task;
}

/* Many slots are free, or few. */
static void others_hold_all_but(u32 free)
{
	g->d.slots_held = DROVER_MAX_VMS - 1 - free;
}

static void no_user_holds_more_slots_than_are_left_for_others(void)
{
	struct task_struct *of_alice[6];

	g = fake_ground(1, 1);
	others_hold_all_but(9);
	for (u32 i = 0; i < 6; i++)
		of_alice[i] = thread_of_user(1 + i, 1000);
	for (u32 i = 0; i < 4; i++)
		CHECK_EQ(enters_guest(of_alice[i], 0), THREAD_VCPU);
	CHECK_EQ(g->d.crowded_user, 0);
	CHECK_EQ(enters_guest(of_alice[4], 0), THREAD_HOST);
	CHECK_EQ(g->d.crowded_user, 1000);
	CHECK_EQ(g->d.nr_unplaced, 1);
	/* Of five that are left bob has two, carol one, dave one; the last one is root's. */
	CHECK_EQ(enters_guest(thread_of_user(11, 1001), 0), THREAD_VCPU);
	CHECK_EQ(enters_guest(thread_of_user(12, 1001), 0), THREAD_VCPU);
	CHECK_EQ(enters_guest(thread_of_user(13, 1001), 0), THREAD_HOST);
	CHECK_EQ(enters_guest(thread_of_user(14, 1002), 0), THREAD_VCPU);
	CHECK_EQ(enters_guest(thread_of_user(15, 1003), 0), THREAD_VCPU);
	CHECK_EQ(enters_guest(thread_of_user(16, 1004), 0), THREAD_HOST);
	CHECK_EQ(enters_guest(thread_of_user(17, 0), 0), THREAD_VCPU);
	/* Two that go leave room for one more. */
	find_forget(&g->d, &of_alice[0]->thread);
	find_forget(&g->d, &of_alice[1]->thread);
	CHECK_EQ(g->d.crowded_user, 0);
	CHECK_EQ(enters_guest(of_alice[4], 0), THREAD_HOST);
	find_forget(&g->d, &of_alice[2]->thread);
	CHECK_EQ(enters_guest(of_alice[4], 0), THREAD_VCPU);
	CHECK_EQ(enters_guest(of_alice[5], 0), THREAD_HOST);
}

static void who_changes_users_gives_back_what_was_charged_to_the_first(void)
{
	struct task_struct *task;

	g = fake_ground(1, 1);
	others_hold_all_but(2);
	task = thread_of_user(1, 1000);
	CHECK_EQ(enters_guest(task, 0), THREAD_VCPU);
	CHECK_EQ(*find_slots_of(&g->d, 1000), 1);
	task->user = 1001;
	find_forget(&g->d, &task->thread);
	CHECK_EQ(*find_slots_of(&g->d, 1000), 0);
	CHECK_EQ(*find_slots_of(&g->d, 1001), 0);
	CHECK_EQ(enters_guest(thread_of_user(2, 1000), 0), THREAD_VCPU);
}

static void tasks_of_a_user_have_a_slot_and_its_threads_come_back_to_it(void)
{
	struct task_struct *of_alice[2], *of_root;
	u32 slot;

	g = fake_ground(1, 1);
	of_root = thread_of_user(1, 0);
	for (u32 i = 0; i < 2; i++) {
		of_alice[i] = thread_of_user(2 + i, 1000);
		find_moved(&g->d, &of_alice[i]->thread);
		looks_up(of_alice[i]);
	}
	find_moved(&g->d, &of_root->thread);
	looks_up(of_root);
	slot = of_alice[0]->thread.slot;
	CHECK_EQ(of_root->thread.slot, DROVER_HOST_SLOT);
	CHECK(slot != DROVER_HOST_SLOT && of_alice[1]->thread.slot == slot);
	CHECK_EQ(vm_at(&g->d, slot)->owner_id, OWNER_USER | 1000);
	/* One becomes a VM, and goes. */
	CHECK_EQ(enters_guest(of_alice[0], 0), THREAD_VCPU);
	CHECK(of_alice[0]->thread.slot != slot);
	find_forget(&g->d, &of_alice[0]->thread);
	find_forget(&g->d, &of_alice[1]->thread);
	CHECK_EQ(ground_slot_of(&g->d, OWNER_USER | 1000), DROVER_HOST_SLOT);
	CHECK_EQ(*find_slots_of(&g->d, 1000), 0);
}

/* A VM's process executes sudo: what was its thread is root's task. */
static void who_executes_a_program_is_no_vm_any_more(void)
{
	struct task_struct *task;
	u32 slot;

	g = fake_ground(1, 1);
	task = thread_of_user(1, 1000);
	CHECK_EQ(enters_guest(task, 0), THREAD_VCPU);
	slot = task->thread.slot;
	task->in_kvm_run = false;
	task->exec_id++;
	task->user = 0;
	looks_up(task);
	CHECK_EQ(task->thread.kind, THREAD_HOST);
	CHECK_EQ(task->thread.slot, DROVER_HOST_SLOT);
	CHECK_EQ(ground_slot_of(&g->d, 1), DROVER_HOST_SLOT);
	CHECK_EQ(vm_at(&g->d, slot)->id, 0);
	/* What it does from then on is its own. */
	CHECK_EQ(enters_guest(task, 0), THREAD_VCPU);
	CHECK_EQ(g->d.user_of[task->thread.slot], 0);
}

/* Threads come and go at random, each step in the middle of another's. */
static struct task_struct *crowd[12];
static u32 depth;

static void one_comes_or_goes(struct ground *ground)
{
	struct task_struct *task = crowd[check_random() % 12];

	(void)ground;
	if (depth > 3 || task->locked)
		return;
	depth++;
	task->locked = true;
	if (task->thread.kind != THREAD_HOST && check_chance(50)) {
		task->in_kvm_run = false;
		find_forget(&g->d, &task->thread);
	} else if (check_chance(50)) {
		looks_up(task);
	} else {
		enters_guest(task, 0);
	}
	task->locked = false;
	depth--;
}

/* A busy task of that process, in KVM_RUN as it runs; the policy has not seen it there. */
static struct task_struct *unseen_vcpu(u32 tgid)
{
	struct task_struct *task = kernel_thread(g, tgid, THREAD_HOST);

	task->in_kvm_run = true;
	return task;
}

/* It never stops, so a tick has to find it. */
static void a_vcpu_alone_on_its_pcpu_is_found_by_the_tick(void)
{
	struct task_struct *vcpu;

	g = fake_ground(1, 1);
	vcpu = kernel_thread(g, 5, THREAD_HOST);
	kernel_wake(g, vcpu);
	kernel_settle(g);
	vcpu->in_kvm_run = true;
	kernel_run(g, 5 * MS);
	CHECK_EQ(vcpu->thread.kind, THREAD_VCPU);
	CHECK_EQ(vcpu->nr_runs, 1);
	CHECK_EQ(kernel_vm(g, 5)->vcpus_running, 1);
}

/* They waited as tasks of the host, and whoever is due by its reservation comes before those. */
static void siblings_that_wait_as_their_vm_is_found_come_to_it_at_once(void)
{
	struct task_struct *vcpu[4];

	g = fake_ground(1, 1);
	for (u32 i = 0; i < 4; i++)
		vcpu[i] = unseen_vcpu(5);
	for (u32 i = 0; i < 4; i++)
		kernel_wake(g, vcpu[i]);
	kernel_run(g, 9 * MS);
	kernel_vm(g, 5)->asked.reservation_mcpu = 900;
	kernel_settle_vm(g, 5);
	kernel_run(g, 25 * MS);
	for (u32 i = 0; i < 4; i++)
		CHECK(vcpu[i]->thread.slot == g->slot_of[5]);
	kernel_run(g, 200 * MS);
	for (u32 i = 0; i < 4; i++)
		CHECK_NEAR(vcpu[i]->cpu_time_ns / MS, 230 / 4, 12);
}

static void no_slot_and_no_hold_is_ever_lost(void)
{
	u32 held[FAKE_PROCESSES] = {};

	g = fake_ground(2, 1);
	g->nr_slots = 4;
	others_hold_all_but(7);
	for (u32 i = 0; i < 12; i++)
		crowd[i] = thread_of_user(1 + i % 4, 1000 + i % 2);
	g->meanwhile = one_comes_or_goes;
	for (u32 i = 0; i < 20000; i++)
		one_comes_or_goes(g);
	for (u32 i = 0; i < 12; i++) {
		u32 slot = crowd[i]->thread.slot;

		held[slot]++;
		CHECK(!slot || g->slot_of[crowd[i]->tgid] == slot ||
		      owner_is_user(vm_at(&g->d, slot)->owner_id));
	}
	for (u32 slot = 1; slot < 4; slot++) {
		CHECK_EQ(vm_at(&g->d, slot)->nr_threads, held[slot]);
		CHECK_EQ(g->slot_taken[slot], held[slot] != 0);
	}
	CHECK_EQ(g->d.slots_held, DROVER_MAX_VMS - 8 + nr_taken());
	CHECK_EQ(*find_slots_of(&g->d, 1000) + *find_slots_of(&g->d, 1001), nr_taken());
}

static void an_order_reaches_the_vm_that_was_meant_or_nobody(void)
{
	struct vm_order order = {.slot = 1, .asked = {.shares = 300, .reservation_mcpu = 400}};
	struct task_struct *task;

	g = fake_ground(1, 1);
	task = thread(1);
	enters_guest(task, 0);
	order.vm_id = kernel_vm(g, 1)->id;
	CHECK(order_vm(&g->d, &order));
	CHECK_EQ(kernel_vm(g, 1)->shares, 300);
	CHECK_EQ(kernel_vm(g, 1)->asked.reservation_mcpu, 400);
	CHECK_EQ(kernel_vm(g, 1)->nr_threads, 1);
	find_forget(&g->d, &task->thread);
	CHECK(!order_vm(&g->d, &order));
	enters_guest(thread(2), 0);
	CHECK(kernel_vm(g, 2) == vm_at(&g->d, 1));
	CHECK(!order_vm(&g->d, &order));
	CHECK_EQ(kernel_vm(g, 2)->shares, 1000);
	CHECK_EQ(kernel_vm(g, 2)->nr_threads, 1);
	order.slot = DROVER_HOST_SLOT;
	order.vm_id = vm_at(&g->d, DROVER_HOST_SLOT)->id;
	CHECK(!order_vm(&g->d, &order));
}

static void orders_for_pools_that_cannot_be_are_refused(void)
{
	struct pool_order order = {.live = 1, .limit_mcpu = 500};

	g = fake_ground(1, 1);
	CHECK(!order_pool(&g->d, &order));
	order.pool = DROVER_MAX_POOLS;
	CHECK(!order_pool(&g->d, &order));
	order.pool = 3;
	CHECK(order_pool(&g->d, &order));
	CHECK_EQ(pool_at(&g->d, 3)->limit_mcpu, 500);
	CHECK(pool_at(&g->d, 3)->live);
}

static void a_pcpu_goes_where_it_is_told_to_belong(void)
{
	struct pcpu_order order = {.pcpu = 1, .domain = 1};

	g = fake_ground(4, 2);
	CHECK_EQ(g->d.pcpu[1].domain, 0);
	CHECK(order_pcpu(&g->d, &order));
	CHECK_EQ(g->d.pcpu[1].domain, 1);
	CHECK_EQ(g->d.params.nr_domains, 2);
	order.pcpu = 4;
	CHECK(!order_pcpu(&g->d, &order));
	order = (struct pcpu_order){.pcpu = 1, .domain = FAKE_DOMAINS};
	CHECK(!order_pcpu(&g->d, &order));
	CHECK_EQ(g->d.pcpu[1].domain, 1);
}

/* VMs that wait in the domain it leaves are not forgotten. */
static void who_waits_in_a_domain_without_pcpus_is_served(void)
{
	struct pcpu_order order = {.domain = 1};

	g = fake_ground(4, 2);
	for (u32 tgid = 1; tgid <= 6; tgid++)
		kernel_busy_vm(g, tgid, 1, 0);
	kernel_settle(g);
	for (order.pcpu = 0; order.pcpu < 2; order.pcpu++)
		CHECK(order_pcpu(&g->d, &order));
	kernel_run(g, 3 * SECOND);
	for (u32 tgid = 1; tgid <= 6; tgid++)
		CHECK(kernel_cpu_time_ns(g, tgid) > SECOND);
}

int main(void)
{
	RUN(who_is_in_kvm_run_is_a_vcpu_and_its_process_a_vm);
	RUN(a_host_thread_is_looked_up_once_for_each_vm_found);
	RUN(who_finds_the_slot_in_other_hands_lets_go_again);
	RUN(a_helper_that_could_not_hold_its_vm_looks_again);
	RUN(of_two_that_make_a_vm_the_second_gives_its_slot_back);
	RUN(a_slot_held_when_it_is_given_back_is_freed_by_the_holder);
	RUN(with_all_slots_taken_a_vcpu_is_a_host_task_until_one_is_free);
	RUN(no_user_holds_more_slots_than_are_left_for_others);
	RUN(who_changes_users_gives_back_what_was_charged_to_the_first);
	RUN(tasks_of_a_user_have_a_slot_and_its_threads_come_back_to_it);
	RUN(who_executes_a_program_is_no_vm_any_more);
	RUN(a_vcpu_alone_on_its_pcpu_is_found_by_the_tick);
	RUN(siblings_that_wait_as_their_vm_is_found_come_to_it_at_once);
	RUN(no_slot_and_no_hold_is_ever_lost);
	RUN(an_order_reaches_the_vm_that_was_meant_or_nobody);
	RUN(a_pcpu_goes_where_it_is_told_to_belong);
	RUN(who_waits_in_a_domain_without_pcpus_is_served);
	RUN(orders_for_pools_that_cannot_be_are_refused);
	return check_done();
}

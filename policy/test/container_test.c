/* SPDX-License-Identifier: GPL-2.0-only */
/* Containers: cgroups that are scheduled as VMs are (account/find.h, account/orders.h). */
#include "check.h"
#include "fake_kernel.h"

static struct ground *g;

#define WEB 1
#define BATCH 2
#define BELOW_WEB 3

static bool order(u64 cgroup, u32 live)
{
	struct container_order order = {.cgroup = cgroup, .live = live};

	return order_container(&g->d, &order);
}

static u32 slot_of(u32 cgroup)
{
	return g->slot_of_cgroup[cgroup];
}

/* As the daemon does: made, then told what it may have. */
static void container(u32 cgroup, u32 shares, u32 limit_mcpu)
{
	CHECK(order(cgroup, 1));
	struct vm *vm = vm_at(&g->d, slot_of(cgroup));
	struct vm_order order = {
		.slot = slot_of(cgroup),
		.vm_id = vm->id,
		.asked.shares = shares,
		.asked.limit_mcpu = limit_mcpu,
		.cosched_mode = COSCHED_OFF,
	};

	CHECK(order_vm(&g->d, &order));
}

static struct task_struct *task_in(u32 cgroup, u32 tgid)
{
	struct task_struct *task = kernel_thread(g, tgid, THREAD_HOST);

	task->cgroup = cgroup;
	find_moved(&g->d, &task->thread);
	return task;
}

static void busy_tasks(u32 cgroup, u32 tgid, u32 count)
{
	for (u32 i = 0; i < count; i++)
		kernel_wake(g, task_in(cgroup, tgid));
}

static u64 used_ns(u32 cgroup)
{
	return share_used_ns(vm_at(&g->d, slot_of(cgroup)), g->now_ns);
}

static void weights_divide(void)
{
	g = fake_ground(2, 1);
	container(WEB, 4000, 0);
	container(BATCH, 1000, 0);
	busy_tasks(WEB, 1, 2);
	busy_tasks(BATCH, 2, 5);
	kernel_run(g, 4 * SECOND);
	CHECK_NEAR(kernel_cpu_time_ns(g, 1), 6400 * MS, 80 * MS);
	CHECK_NEAR(kernel_cpu_time_ns(g, 2), 1600 * MS, 80 * MS);
	CHECK_NEAR(used_ns(WEB), kernel_cpu_time_ns(g, 1), 20 * MS);
}

static void a_limit_holds(void)
{
	g = fake_ground(2, 1);
	container(WEB, 1000, 200);
	busy_tasks(WEB, 1, 4);
	kernel_busy_vm(g, 2, 2, 0);
	kernel_run(g, 4 * SECOND);
	CHECK_NEAR(kernel_cpu_time_ns(g, 1), 800 * MS, 12 * MS);
}

static void a_limit_holds_from_when_it_is_written(void)
{
	g = fake_ground(2, 1);
	kernel_busy_vm(g, 2, 2, 0);
	order_cgroup_limit(&g->d, WEB, 0, 20000, 100000);
	busy_tasks(WEB, 1, 4);
	kernel_run(g, SECOND);
	/* In the first second what comes in it, and what the bucket holds when it begins. */
	CHECK_NEAR(kernel_cpu_time_ns(g, 1), 210 * MS, 12 * MS);
	/* The daemon finds it as it is, and has the say from then on. */
	CHECK(!order(WEB, 1));
	order_cgroup_limit(&g->d, WEB, 0, 90000, 100000);
	kernel_run(g, SECOND);
	CHECK_NEAR(kernel_cpu_time_ns(g, 1), 410 * MS, 15 * MS);
	CHECK(order(WEB, 0));
	/* No limit, and one above what the host has, make none. */
	order_cgroup_limit(&g->d, BATCH, 0, ~0ULL, 100000);
	order_cgroup_limit(&g->d, BATCH, 0, 200000, 100000);
	CHECK_EQ(slot_of(BATCH), DROVER_HOST_SLOT);
	CHECK_EQ(g->d.nr_containers, 0);
}

/* Nobody of it sleeps: busy tasks are found as they stop. */
static void busy_tasks_become_members_and_leave_again(void)
{
	g = fake_ground(2, 1);
	struct task_struct *task = task_in(BELOW_WEB, 1);

	g->cgroup_above[BELOW_WEB] = WEB;
	kernel_wake(g, task);
	kernel_run(g, 100 * MS);
	CHECK_EQ(task->thread.slot, DROVER_HOST_SLOT);
	container(WEB, 1000, 500);
	kernel_run(g, SECOND);
	CHECK_EQ(task->thread.kind, THREAD_MEMBER);
	CHECK_EQ(task->thread.slot, slot_of(WEB));
	CHECK_NEAR(used_ns(WEB), 500 * MS, 50 * MS);
	container(BATCH, 1000, 0);
	kernel_set_cgroup(g, task, BATCH);
	kernel_run(g, 100 * MS);
	CHECK_EQ(task->thread.slot, slot_of(BATCH));
	CHECK(order(BATCH, 0));
	kernel_run(g, 100 * MS);
	CHECK_EQ(task->thread.slot, DROVER_HOST_SLOT);
	CHECK_EQ(task->thread.kind, THREAD_HOST);
}

static u32 awake_in(u32 slot)
{
	struct measured measured;

	allot_measure(&g->d, slot, &measured, g->now_ns);
	return measured.awake;
}

static void what_busy_tasks_want_counts_when_they_become_members(void)
{
	g = fake_ground(2, 1);
	struct task_struct *tasks[] = {task_in(0, 1), task_in(0, 1)};

	for (u32 i = 0; i < 2; i++)
		kernel_wake(g, tasks[i]);
	container(WEB, 4000, 0);
	container(BATCH, 1000, 500);
	kernel_run(g, 200 * MS);
	CHECK_EQ(awake_in(slot_of(WEB)), 0);
	CHECK_EQ(awake_in(DROVER_HOST_SLOT), 0);
	for (u32 i = 0; i < 2; i++)
		kernel_set_cgroup(g, tasks[i], WEB);
	kernel_run(g, 400 * MS);
	CHECK_EQ(tasks[0]->thread.slot, slot_of(WEB));
	awake_in(slot_of(WEB));
	kernel_run(g, 100 * MS);
	CHECK_EQ(awake_in(slot_of(WEB)), 2);
	CHECK_EQ(awake_in(DROVER_HOST_SLOT), 0);
}

static void it_is_there_with_nobody_in_it(void)
{
	g = fake_ground(1, 1);
	u32 shares = g->d.vm_shares;

	container(WEB, 4000, 100);
	u32 slot = slot_of(WEB);
	CHECK(vm_at(&g->d, slot)->id);
	CHECK(!order(WEB, 1));
	CHECK(order(WEB, 0));
	CHECK(!order(WEB, 0));
	CHECK(!vm_at(&g->d, slot)->id);
	CHECK(!g->slot_taken[slot]);
	CHECK_EQ(g->d.vm_shares, shares);
	CHECK_EQ(g->d.nr_containers, 0);
}

static void a_task_that_sleeps_is_in_its_new_container_at_once(void)
{
	g = fake_ground(2, 1);
	container(WEB, 1000, 0);
	container(BATCH, 1000, 0);
	struct task_struct *task = task_in(WEB, 1);

	find_owner(&g->d, task, &task->thread);
	CHECK_EQ(task->thread.slot, slot_of(WEB));
	kernel_set_cgroup(g, task, BATCH);
	CHECK_EQ(task->thread.slot, slot_of(BATCH));
}

/* A sleeper of one that is no more binds nobody, and frees the slot as it wakes. */
static void who_sleeps_through_its_end_leaves_later(void)
{
	g = fake_ground(1, 1);
	container(WEB, 1000, 100);
	struct task_struct *task = task_in(WEB, 1);
	u32 slot = slot_of(WEB);

	find_owner(&g->d, task, &task->thread);
	CHECK_EQ(task->thread.slot, slot);
	CHECK(order(WEB, 0));
	CHECK(vm_at(&g->d, slot)->id);
	kernel_wake(g, task);
	CHECK_EQ(task->thread.slot, DROVER_HOST_SLOT);
	CHECK(!vm_at(&g->d, slot)->id);
}

static void a_vm_that_begins_in_one_leaves_it(void)
{
	g = fake_ground(1, 1);
	container(WEB, 1000, 0);
	struct task_struct *vcpu = task_in(WEB, 5);
	struct task_struct *io = task_in(WEB, 5);

	find_owner(&g->d, vcpu, &vcpu->thread);
	find_owner(&g->d, io, &io->thread);
	CHECK_EQ(vm_at(&g->d, slot_of(WEB))->nr_threads, 3);
	vcpu->in_kvm_run = true;
	find_vcpu(&g->d, vcpu, &vcpu->thread);
	CHECK_EQ(vcpu->thread.kind, THREAD_VCPU);
	CHECK_EQ(vcpu->thread.slot, g->slot_of[5]);
	find_owner(&g->d, io, &io->thread);
	CHECK_EQ(io->thread.kind, THREAD_HELPER);
	CHECK_EQ(io->thread.slot, g->slot_of[5]);
	CHECK_EQ(vm_at(&g->d, slot_of(WEB))->nr_threads, 1);
}

/* Also not by way of cgroups that were delegated to him. */
static void a_users_containers_take_no_more_slots_than_are_left(void)
{
	struct container_order order = {.live = 1, .user = 1000};

	g = fake_ground(1, 1);
	g->d.slots_held = DROVER_MAX_VMS - 1 - 3;
	order.cgroup = WEB;
	CHECK(order_container(&g->d, &order));
	order.cgroup = BATCH;
	CHECK(!order_container(&g->d, &order));
	order.user = 0;
	CHECK(order_container(&g->d, &order));
}

/* Its container's limit holds for a VM that has no slot. */
static void a_vcpu_without_a_slot_stays_in_its_container(void)
{
	struct task_struct *task;

	g = fake_ground(1, 1);
	g->nr_slots = 2;
	container(WEB, 1000, 200);
	task = task_in(WEB, 9);
	kernel_wake(g, task);
	CHECK_EQ(task->thread.slot, slot_of(WEB));
	task->in_kvm_run = true;
	find_vcpu(&g->d, task, &task->thread);
	CHECK_EQ(g->d.nr_unplaced, 1);
	CHECK_EQ(task->thread.slot, slot_of(WEB));
	CHECK_EQ(task->thread.kind, THREAD_MEMBER);
}

/* A thread of the kernel's of that weight works for 3 ms, again and again, and sleeps for 1. */
static struct task_struct *scanner(u32 weight)
{
	struct task_struct *task = task_in(0, 0);

	task->kernel_thread = true;
	task->burst_ns = task->burst_left_ns = 3 * MS;
	task->sleep_ns = MS;
	drover_reweigh(&g->d, &task->thread, weight);
	kernel_wake(g, task);
	return task;
}

/* ksmd had 75 % of a pCPU beside a busy VM of two vCPUs. Weighed as a third of one it has 28. */
static void kernel_threads_that_are_nice_are_so_to_vms(void)
{
	struct task_struct *ksmd;

	g = fake_ground(2, 1);
	kernel_busy_vm(g, 1, 2, 0);
	ksmd = scanner(33);
	kernel_run(g, 4 * SECOND);
	CHECK_NEAR(ksmd->cpu_time_ns, 4 * 283 * MS, 4 * 15 * MS);
	/* Beside another of nice 19 it does not lose to that. */
	struct task_struct *khugepaged = scanner(1);
	u64 before_ns = ksmd->cpu_time_ns;

	kernel_run(g, 4 * SECOND);
	CHECK_NEAR(ksmd->cpu_time_ns - before_ns, 4 * 275 * MS, 4 * 20 * MS);
	CHECK(khugepaged->cpu_time_ns < 4 * 25 * MS);
}

/* What is promised to a VM is not theirs. */
static void kernel_threads_that_are_nice_preempt_no_promise(void)
{
	struct task_struct *ksmd;

	g = fake_ground(2, 1);
	kernel_busy_vm(g, 1, 2, 0);
	kernel_vm(g, 1)->asked.reservation_mcpu = 1900;
	kernel_settle_vm(g, 1);
	ksmd = scanner(33);
	kernel_run(g, 4 * SECOND);
	CHECK(ksmd->cpu_time_ns < 4 * 110 * MS);
	CHECK(kernel_cpu_time_ns(g, 1) > 4 * 1890 * MS);
}

/* Reniced to 0 it is the host's, and preempts anybody; then nice again. */
static void a_kernel_thread_is_nice_for_as_long_as_it_is_told_to_be(void)
{
	struct task_struct *ksmd;

	g = fake_ground(2, 1);
	kernel_busy_vm(g, 1, 2, 0);
	ksmd = scanner(33);
	kernel_run(g, 100 * MS);
	CHECK_EQ(ksmd->thread.slot, ground_slot_of(&g->d, OWNER_HOST_TASKS | 33));
	CHECK_EQ(vm_at(&g->d, ksmd->thread.slot)->shares, 330);
	drover_reweigh(&g->d, &ksmd->thread, 100);
	kernel_run(g, 100 * MS);
	CHECK_EQ(ksmd->thread.slot, DROVER_HOST_SLOT);
	CHECK_EQ(ground_slot_of(&g->d, OWNER_HOST_TASKS | 33), DROVER_HOST_SLOT);
	drover_reweigh(&g->d, &ksmd->thread, 1);
	kernel_run(g, 100 * MS);
	CHECK_EQ(ksmd->thread.slot, ground_slot_of(&g->d, OWNER_HOST_TASKS | 1));
	/* A program of the host's is nice to the host's only. */
	ksmd->kernel_thread = false;
	find_moved(&g->d, &ksmd->thread);
	kernel_run(g, 2 * SECOND);
	CHECK_EQ(ksmd->thread.slot, DROVER_HOST_SLOT);
}

int main(void)
{
	RUN(kernel_threads_that_are_nice_are_so_to_vms);
	RUN(kernel_threads_that_are_nice_preempt_no_promise);
	RUN(a_kernel_thread_is_nice_for_as_long_as_it_is_told_to_be);
	RUN(a_users_containers_take_no_more_slots_than_are_left);
	RUN(a_vcpu_without_a_slot_stays_in_its_container);
	RUN(weights_divide);
	RUN(a_limit_holds);
	RUN(a_limit_holds_from_when_it_is_written);
	RUN(busy_tasks_become_members_and_leave_again);
	RUN(what_busy_tasks_want_counts_when_they_become_members);
	RUN(it_is_there_with_nobody_in_it);
	RUN(a_task_that_sleeps_is_in_its_new_container_at_once);
	RUN(who_sleeps_through_its_end_leaves_later);
	RUN(a_vm_that_begins_in_one_leaves_it);
	return check_done();
}

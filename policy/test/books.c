// SPDX-License-Identifier: GPL-2.0-only
#include "books.h"

#define for_each_task(g, task)                                                            \
	for (struct task_struct *task = (g)->task; task < (g)->task + FAKE_TASKS; task++) \
		if (task->state != TASK_NONE)

static void check_queued(struct ground *g, u32 domain, u32 slot, u64 *best, u64 *due)
{
	u64 leaf = tournament_leaf(&g->runqueue[domain].by_share, slot);
	u64 due_leaf = tournament_leaf(&g->runqueue[domain].by_deadline, slot);
	u32 nr_queued = 0;
	bool stands;

	for_each_task(g, task) nr_queued +=
		task->thread.slot == slot && task->thread.queued_in == domain + 1;
	CHECK_EQ(entity_rq_of(&g->runqueue[domain], slot)->nr_queued, nr_queued);
	stands = nr_queued && !vm_at(&g->d, slot)->at_limit;
	CHECK_EQ(leaf != TOURNAMENT_NONE, stands);
	CHECK(due_leaf != TOURNAMENT_NONE || !stands);
	if (tournament_before(leaf, *best))
		*best = leaf;
	if (tournament_before(due_leaf, *due))
		*due = due_leaf;
}

static void check_tournaments(struct ground *g)
{
	for (u32 domain = 0; domain < g->d.params.nr_domains; domain++) {
		u64 best = TOURNAMENT_NONE, due = TOURNAMENT_NONE;

		for (u32 slot = 0; slot < FAKE_PROCESSES; slot++)
			check_queued(g, domain, slot, &best, &due);
		CHECK_EQ(tournament_best(&g->d, &g->runqueue[domain].by_deadline), due);
		CHECK_EQ(tournament_best(&g->d, &g->runqueue[domain].by_share), best);
		CHECK_EQ(g->runqueue[domain].lock.held, 0);
	}
}

/* A ready thread is somewhere, once, and the books know where. */
static void check_place(struct ground *g, struct task_struct *task)
{
	struct thread *t = &task->thread;
	u64 queue = task->queue;

	if (task->state != TASK_READY) {
		CHECK_EQ(queue, NO_QUEUE);
		CHECK(!t->queued_in && !t->pinned_at);
		CHECK(task->state == TASK_WAKING || !t->ready_since_ns);
		return;
	}
	CHECK_SAYING(queue != NO_QUEUE, "a ready thread is in no queue");
	if (queue == ground_parked_queue(&g->d, t->slot)) {
		CHECK(t->parked_until_ns && !t->queued_in && !t->ready_since_ns);
		return;
	}
	CHECK(t->ready_since_ns);
	if (queue < fake_local_queue(0))
		CHECK_EQ(queue, ground_vm_queue(&g->d, t->slot, t->queued_in - 1));
}

static void check_waiting(struct ground *g)
{
	u32 nr_waiting[FAKE_PROCESSES] = {}, nr_pinned[FAKE_PCPUS] = {};

	for_each_task(g, task)
	{
		check_place(g, task);
		nr_waiting[task->thread.slot] += task->thread.ready_since_ns != 0;
		if (task->thread.pinned_at)
			nr_pinned[task->thread.pinned_at / DROVER_DOMAIN_PCPUS - 1]++;
	}
	for (u32 slot = 0; slot < FAKE_PROCESSES; slot++)
		CHECK_EQ(vm_at(&g->d, slot)->nr_waiting, nr_waiting[slot]);
	for (u32 pcpu = 0; pcpu < g->d.params.nr_pcpus; pcpu++)
		CHECK_EQ(pcpu_at(&g->d, pcpu)->nr_pinned, nr_pinned[pcpu]);
}

static void check_running(struct ground *g)
{
	for (u32 at = 0; at < g->d.params.nr_pcpus; at++) {
		struct task_struct *current = g->pcpu[at].current;

		if (!current)
			continue;
		CHECK_EQ(current->state, TASK_RUNNING);
		CHECK_EQ(pcpu_at(&g->d, at)->running_slot, current->thread.slot);
		CHECK_SAYING(fake_allowed(g, current, at) || !g->pcpu[at].online,
			     "runs on a pCPU it may not run on");
	}
}

static void check_life(struct ground *g)
{
	for (u32 slot = 1; slot < FAKE_PROCESSES; slot++) {
		struct vm *vm = vm_at(&g->d, slot);
		u32 nr_threads = 0, nr_vcpus = 0;

		for_each_task(g, task)
		{
			nr_threads += task->thread.slot == slot;
			nr_vcpus += task->thread.slot == slot && task->thread.kind == THREAD_VCPU;
		}
		CHECK_EQ(vm->nr_threads, nr_threads);
		CHECK_EQ(vm->id != 0, nr_threads != 0);
		if (vm->id)
			CHECK_EQ(vm->nr_vcpus, nr_vcpus);
	}
}

/*
 * Time does not run backwards, but for a VM that was forgiven, or is weighed anew (allot.h), or has
 * just begun, there or in another partition.
 */
static void check_monotone(struct ground *g, struct books_before *before)
{
	for (u32 i = 0; i < g->d.params.nr_domains; i++) {
		u64 clock_ns = g->d.domain[i].clock_ns;

		CHECK((s64)(clock_ns - before->clock_ns[i]) >= 0);
		before->clock_ns[i] = clock_ns;
	}
	for (u32 slot = 0; slot < FAKE_PROCESSES; slot++) {
		struct vm *vm = vm_at(&g->d, slot);

		if (vm->id == before->vm[slot].id && !before->allotted &&
		    vm->counters.nr_starvation_boosts == before->vm[slot].nr_starvation_boosts)
			CHECK((s64)(vm->vtime_ns - before->vm[slot].vtime_ns) >= 0 ||
			      before->vm[slot].domain == DOMAIN_NONE ||
			      !partition_shares(&g->d, before->vm[slot].domain, vm->domain));
		before->vm[slot].id = vm->id;
		before->vm[slot].domain = vm->domain;
		before->vm[slot].vtime_ns = vm->vtime_ns;
		before->vm[slot].nr_starvation_boosts = vm->counters.nr_starvation_boosts;
	}
	before->allotted = false;
}

static void check_limits(struct ground *g)
{
	u32 nr_capped = 0;

	for (u32 slot = 0; slot < FAKE_PROCESSES; slot++)
		nr_capped += vm_at(&g->d, slot)->capped != 0;
	CHECK_EQ(g->d.nr_capped, nr_capped);
}

void books_check(struct ground *g, struct books_before *before)
{
	check_waiting(g);
	check_tournaments(g);
	check_running(g);
	check_life(g);
	check_limits(g);
	check_monotone(g, before);
}

/* Who is held does not run, unless it leaves; nobody is held without a limit. */
static void check_held(struct ground *g)
{
	for (u32 at = 0; at < g->d.params.nr_pcpus; at++) {
		struct task_struct *current = g->pcpu[at].current;

		if (current && !current->leaving)
			CHECK(!vm_at(&g->d, current->thread.slot)->at_limit);
	}
	for (u32 slot = 0; slot < FAKE_PROCESSES; slot++)
		CHECK(vm_at(&g->d, slot)->capped || !vm_at(&g->d, slot)->at_limit);
}

void books_check_settled(struct ground *g)
{
	check_held(g);
	for (u32 at = 0; at < g->d.params.nr_pcpus; at++) {
		if (g->pcpu[at].current || !g->pcpu[at].online)
			continue;
		CHECK_EQ(pcpu_at(&g->d, at)->running_slot, DROVER_MAX_VMS);
		/* What is in a pCPU's local queue is the kernel's to run. */
		for_each_task(g, task) CHECK_SAYING(
			task->state != TASK_READY || task->queue >= fake_local_queue(0) ||
				!fake_allowed(g, task, at) ||
				vm_at(&g->d, task->thread.slot)->at_limit,
			"pCPU %u idles while a thread of VM %u waits in queue %" PRIx64, at,
			task->thread.slot, (uint64_t)task->queue);
	}
}

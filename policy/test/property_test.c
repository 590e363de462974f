// SPDX-License-Identifier: GPL-2.0-only
/*
 * Properties that hold whatever happens, in whatever order.
 *
 * Random events, with others in between wherever the policy asks the ground for
 * something that takes time; after each the books are checked.
 */
#include "books.h"

#define RUNS 240
#define STEPS 1500
#define POOLS 4

static struct books_before before;
static bool in_halves; /* wake-ups and switches are not done at once */
static bool in_between; /* of another event */
static bool crowded; /* several threads were placed at once */

static struct task_struct *random_task(struct ground *g, enum task_state state)
{
	u32 from = check_random_in(0, FAKE_TASKS - 1);

	for (u32 i = 0; i < FAKE_TASKS; i++) {
		struct task_struct *task = &g->task[(from + i) % FAKE_TASKS];

		if (task->state == state && !task->locked && !g->pcpu[task->pcpu].locked)
			return task;
	}
	return NULL;
}

static u64 random_affinity(struct ground *g)
{
	u64 mask = check_random();
	u32 kind = check_random_in(0, 2);

	if (kind == 0)
		return ALL_PCPUS;
	if (kind == 1)
		mask = 1ULL << check_random_in(0, g->d.params.nr_pcpus - 1);
	for (u32 i = 0; i < g->d.params.nr_pcpus; i++)
		if (g->pcpu[i].online && mask >> i & 1)
			return mask;
	return ALL_PCPUS;
}

static void one_wakes(struct ground *g)
{
	struct task_struct *task = random_task(g, TASK_ASLEEP);

	if (task)
		kernel_select(g, task);
	if (task && (!in_halves || check_chance(50)))
		kernel_enqueue(g, task);
}

static void one_is_queued(struct ground *g)
{
	struct task_struct *task = random_task(g, TASK_WAKING);

	if (task)
		kernel_enqueue(g, task);
}

static void one_sleeps(struct ground *g)
{
	struct task_struct *task = random_task(g, TASK_RUNNING);

	if (task)
		kernel_sleep(g, task->pcpu);
	if (task && !in_halves)
		kernel_switch(g, task->pcpu);
}

static void one_slice_ends(struct ground *g)
{
	struct task_struct *task = random_task(g, TASK_RUNNING);

	if (!task)
		return;
	task->slice_ns = 0;
	g->pcpu[task->pcpu].resched = true;
}

static void one_pcpu_acts(struct ground *g)
{
	u32 at = check_random_in(0, g->d.params.nr_pcpus - 1);

	if (g->pcpu[at].switching) {
		if (!in_between)
			kernel_switch(g, at);
	} else if (!g->pcpu[at].locked && g->pcpu[at].online && g->pcpu[at].resched) {
		kernel_pick(g, at);
		if (in_between || !in_halves || check_chance(50))
			kernel_switch(g, at);
	}
}

/* Any, to some. */
static void weights_are_allotted(struct ground *g)
{
	for (u32 slot = 0; slot < 8; slot++) {
		struct allotment allotment = {
			.vm_id = vm_at(&g->d, slot)->id - check_chance(5),
			.share_inverse = check_random() >> check_random_in(32, 63),
			.entitled_ucpu = check_random_in(0, 4000000),
			.promised_mcpu = check_chance(60) ? 0 : check_random_in(1, 4000),
		};

		if (check_chance(80))
			allot_obey(&g->d, slot, &allotment);
	}
	allot_begin(&g->d, g->now_ns);
	if (check_chance(10))
		allot_end(&g->d);
	before.allotted = true;
}

static void time_passes(struct ground *g)
{
	u64 end_ns = g->now_ns + check_random() % (5 * MS);

	g->now_ns = end_ns;
	for (u32 i = 0; i < FAKE_TASKS; i++)
		if (g->task[i].state == TASK_RUNNING)
			fake_count_cpu_time(g, &g->task[i]);
	if (check_chance(20))
		weights_are_allotted(g);
}

static void one_is_born(struct ground *g)
{
	u32 tgid = check_random_in(0, 6);
	u32 alive = 0;
	struct task_struct *task;

	for (u32 i = 0; i < FAKE_TASKS; i++)
		alive += g->task[i].state != TASK_NONE;
	if (alive > 40)
		return;
	/* A VM begins with a vCPU. */
	task = kernel_thread(g, tgid,
			     !tgid                                 ? THREAD_HOST :
			     !g->slot_of[tgid] || check_chance(70) ? THREAD_VCPU :
								     THREAD_HELPER);
	task->thread.weight = check_chance(80) ? 100 : check_random_in(1, 10000);
	if (check_chance(30))
		kernel_set_affinity(g, task, random_affinity(g));
}

static void one_dies(struct ground *g)
{
	struct task_struct *task = random_task(g, TASK_RUNNING);

	if (task)
		kernel_exit(g, task->pcpu);
	if (task && !in_halves)
		kernel_switch(g, task->pcpu);
}

static void one_is_confined(struct ground *g)
{
	static const enum task_state states[] = {TASK_READY, TASK_RUNNING, TASK_ASLEEP};
	struct task_struct *task = random_task(g, states[check_random_in(0, 2)]);

	if (!task)
		return;
	kernel_set_affinity(g, task, random_affinity(g));
	for (u32 i = 0; i < g->d.params.nr_pcpus && !in_halves; i++)
		kernel_switch(g, i);
}

static void hotplug(struct ground *g)
{
	u32 at = check_random_in(0, g->d.params.nr_pcpus - 1);
	u32 online = 0;

	kernel_settle(g);
	for (u32 i = 0; i < g->d.params.nr_pcpus; i++)
		online += g->pcpu[i].online;
	if (!g->pcpu[at].online)
		kernel_online(g, at);
	else if (online > 1)
		kernel_offline(g, at);
	crowded = true;
}

static void settings_change(struct ground *g)
{
	static const u32 shares[] = {0, 1, 500, 1000, 7000, 1000000};
	struct vm *vm = vm_at(&g->d, check_random_in(1, 7));

	if (!vm->id)
		return;
	vm->asked.shares = shares[check_random_in(0, 5)];
	vm->asked.reservation_mcpu = check_chance(50) ? 0 : check_random_in(1, 2000);
	vm->asked.limit_mcpu = check_chance(50) ? 0 : check_random_in(1, 3000);
	vm->asked.pool = check_random_in(0, POOLS);
	vm_settle(&g->d, (u32)(vm - g->d.vm));
}

/* A node that is not there is a home like any other. */
static void a_home_changes(struct ground *g)
{
	struct home_order order = {
		.slot = check_random_in(0, 7),
		.home = check_random_in(0, g->d.params.nr_domains + 1),
		.parts = check_random_in(1, 3),
	};

	order.vm_id = vm_at(&g->d, order.slot)->id;
	order_home(&g->d, &order);
}

/* Some pools are in others; one that goes may have VMs in it. */
static void a_pool_changes(struct ground *g)
{
	u32 pool = check_random_in(1, POOLS);

	*pool_at(&g->d, pool) = (struct pool){
		.live = check_chance(80),
		.parent = check_random_in(0, pool - 1),
		.limit_mcpu = check_chance(30) ? 0 : check_random_in(1, 6000),
	};
	kernel_settle_pools(g);
}

/* Waits one in a queue that it would not be put into now that pCPUs have come? */
static bool somebody_stands_as_before(struct ground *g)
{
	for (u32 i = 0; i < FAKE_TASKS; i++)
		if (g->task[i].state == TASK_READY &&
		    g->task[i].thread.affinity_seq != g->d.pcpu_changes)
			return true;
	return false;
}

static void all_settles(struct ground *g)
{
	struct task_struct *task;

	for (u32 i = 0; i < g->d.params.nr_pcpus; i++)
		kernel_switch(g, i);
	while ((task = random_task(g, TASK_WAKING)))
		kernel_enqueue(g, task);
	kernel_settle(g);
	kernel_timers(g);
	kernel_settle(g);
	if (in_halves || crowded || somebody_stands_as_before(g)) {
		/* A kick may serve another than it was meant for, or nobody; that is fixed in
		 * time. */
		drover_kick_idle(&g->d);
		fake_deliver_kicks(g);
		kernel_settle(g);
	}
	crowded = false;
	books_check(g, &before);
	books_check_settled(g);
}

/* Elsewhere, while the policy asks the ground for something. */
static void meanwhile(struct ground *g)
{
	static void (*const events[])(struct ground *) = {
		one_wakes,  one_is_queued,  one_pcpu_acts, one_pcpu_acts,
		one_sleeps, one_slice_ends, kernel_timers,
	};

	if (in_between || check_chance(50))
		return;
	in_between = true;
	for (u32 i = check_random_in(1, 4); i; i--)
		events[check_random_in(0, 6)](g);
	in_between = false;
}

static void step(struct ground *g)
{
	static void (*const often[])(struct ground *) = {
		one_wakes,     one_is_queued, one_sleeps,    one_slice_ends, one_pcpu_acts,
		one_pcpu_acts, one_pcpu_acts, one_pcpu_acts, time_passes,    kernel_timers,
	};
	static void (*const seldom[])(struct ground *) = {
		one_is_born,     one_dies,       one_is_confined, hotplug,
		settings_change, a_pool_changes, a_home_changes,  all_settles,
	};

	if (check_chance(85))
		often[check_random_in(0, 9)](g);
	else
		seldom[check_random_in(0, 7)](g);
}

static void random_runs(bool halves, void (*elsewhere)(struct ground *))
{
	for (u32 run = 0; run < RUNS; run++) {
		u32 nr_pcpus = check_random_in(1, 8);
		u32 nr_domains =
			check_random_in(1, nr_pcpus < FAKE_DOMAINS ? nr_pcpus : FAKE_DOMAINS);
		struct ground *g = fake_nodes(nr_pcpus, nr_domains);

		if (run % 2)
			fake_cores(g);
		memset(&before, 0, sizeof(before));
		in_halves = halves;
		in_between = crowded = false;
		for (u32 i = 0; i < 12; i++)
			one_is_born(g);
		g->meanwhile = elsewhere;
		for (u32 i = 0; i < STEPS; i++) {
			step(g);
			if (!halves)
				kernel_settle(g);
			books_check(g, &before);
			if (!halves)
				all_settles(g);
		}
		all_settles(g);
	}
}

static void after_any_event_the_books_are_right_and_no_pcpu_idles_beside_waiting_threads(void)
{
	random_runs(false, NULL);
}

static void the_same_with_half_done_wake_ups_and_switches(void)
{
	random_runs(true, NULL);
}

static void the_same_with_other_pcpus_acting_in_between(void)
{
	random_runs(true, meanwhile);
}

int main(void)
{
	RUN(after_any_event_the_books_are_right_and_no_pcpu_idles_beside_waiting_threads);
	RUN(the_same_with_half_done_wake_ups_and_switches);
	RUN(the_same_with_other_pcpus_acting_in_between);
	return check_done();
}

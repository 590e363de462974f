// SPDX-License-Identifier: GPL-2.0-only
#include "fake_kernel.h"

/* What sched_ext gives a task that goes on without anybody having said so. */
#define TICK_NS (4 * MS)
#define DEFAULT_SLICE_NS (20 * MS)

/* --- threads and VMs --- */

static u64 online_pcpus(struct ground *g)
{
	u64 online = 0;

	for (u32 i = 0; i < g->d.params.nr_pcpus; i++)
		online |= (u64)g->pcpu[i].online << i;
	return online;
}

/* Nobody else acts in the middle of this: the test says what exists. */
struct task_struct *kernel_thread(struct ground *g, u32 tgid, u32 kind)
{
	struct task_struct *task = fake_task(g);
	void (*meanwhile)(struct ground *) = g->meanwhile;

	g->meanwhile = NULL;
	task->tgid = tgid;
	task->in_kvm_run = kind == THREAD_VCPU;
	drover_enable(&g->d, task, &task->thread, 100);
	if (kind == THREAD_HELPER || kind == THREAD_MEMBER)
		find_owner(&g->d, task, &task->thread);
	find_vcpu(&g->d, task, &task->thread);
	CHECK_EQ(task->thread.kind, kind);
	/* Tests set its VM's virtual time before any thread of it runs. */
	if (kind != THREAD_HOST)
		kernel_vm(g, tgid)->domain = 0;
	/* As if it had run before. */
	if (task->thread.record) {
		vcpu_at(&g->d, task->thread.record)->used_ns = SECOND;
		vm_take_size(&g->d, task->thread.slot, false);
		vm_settle_shares(&g->d, task->thread.slot);
	}
	g->meanwhile = meanwhile;
	return task;
}

struct vm *kernel_vm(struct ground *g, u32 tgid)
{
	return vm_at(&g->d, g->slot_of[tgid]);
}

void kernel_set_shares(struct ground *g, u32 tgid, u32 shares)
{
	kernel_vm(g, tgid)->asked.shares = shares;
	vm_settle_shares(&g->d, g->slot_of[tgid]);
}

void kernel_settle_vm(struct ground *g, u32 tgid)
{
	vm_settle(&g->d, g->slot_of[tgid]);
}

void kernel_settle_pools(struct ground *g)
{
	vm_settle_pools(&g->d);
}

u32 kernel_busy_vm(struct ground *g, u32 tgid, u32 nr_vcpus, u32 shares)
{
	struct task_struct *vcpu[FAKE_TASKS];

	for (u32 i = 0; i < nr_vcpus; i++)
		vcpu[i] = kernel_thread(g, tgid, THREAD_VCPU);
	kernel_set_shares(g, tgid, shares);
	for (u32 i = 0; i < nr_vcpus; i++)
		kernel_wake(g, vcpu[i]);
	return g->slot_of[tgid];
}

u64 kernel_cpu_time_ns(struct ground *g, u32 tgid)
{
	u64 sum_ns = 0;

	for (u32 i = 0; i < FAKE_TASKS; i++)
		if (g->task[i].state != TASK_NONE && g->task[i].tgid == tgid)
			sum_ns += g->task[i].cpu_time_ns;
	return sum_ns;
}

double kernel_hazard(struct ground *g, u32 tgid, u64 duration_ns)
{
	struct vm *vm = kernel_vm(g, tgid);
	u64 hazard_ns = vm->pressure.hazard_ns, progressed_ns = vm->pressure.progressed_ns;

	kernel_run(g, duration_ns);
	return (double)(vm->pressure.hazard_ns - hazard_ns) /
	       (double)(vm->pressure.progressed_ns - progressed_ns);
}

u64 kernel_runs(struct ground *g, u32 tgid)
{
	u64 runs = 0;

	for (u32 i = 0; i < FAKE_TASKS; i++)
		if (g->task[i].state != TASK_NONE && g->task[i].tgid == tgid)
			runs += g->task[i].nr_runs;
	return runs;
}

u64 kernel_longest_wait_ns(struct ground *g)
{
	u64 longest_ns = 0;

	for (u32 i = 0; i < FAKE_TASKS; i++) {
		struct task_struct *task = &g->task[i];
		u64 wait_ns = task->longest_wait_ns;

		if (task->state == TASK_READY && g->now_ns - task->ready_at_ns > wait_ns)
			wait_ns = g->now_ns - task->ready_at_ns;
		if (task->state != TASK_NONE && wait_ns > longest_ns)
			longest_ns = wait_ns;
	}
	return longest_ns;
}

/* --- waking --- */

static void place(struct ground *g, struct task_struct *task, bool woken)
{
	struct fake_pcpu *pcpu = &g->pcpu[task->pcpu];
	bool was_locked = pcpu->locked;

	pcpu->locked = true;
	task->state = TASK_READY;
	task->locked = true;
	drover_place(&g->d, task, &task->thread, woken);
	fake_put(g, task);
	task->locked = false;
	pcpu->locked = was_locked;
}

void kernel_select(struct ground *g, struct task_struct *task)
{
	u64 possible = task->allowed & online_pcpus(g);
	enum drover_wakes wakes = WAKES_TO_WAIT;

	CHECK(task->state == TASK_ASLEEP && possible);
	task->state = TASK_WAKING;
	task->wakes_at_ns = NEVER;
	task->ready_at_ns = g->now_ns;
	task->locked = true;
	if (!fake_allowed(g, task, task->pcpu))
		task->pcpu = (u32)__builtin_ctzll(possible);
	/* With only one pCPU to choose from, the policy is not asked to choose. */
	task->selected = possible & (possible - 1);
	if (task->selected)
		task->pcpu = drover_select(&g->d, task, &task->thread, &wakes);
	if (wakes != WAKES_TO_WAIT) {
		task->state = TASK_READY;
		ground_run_on(&g->d, task, task->pcpu, g->d.params.slice_ns,
			      wakes == WAKES_TO_PREEMPT);
		fake_put(g, task);
	}
	task->locked = false;
}

void kernel_enqueue(struct ground *g, struct task_struct *task)
{
	if (task->state != TASK_WAKING)
		return; /* it was sent to run */
	if (!fake_allowed(g, task, task->pcpu))
		task->pcpu = (u32)__builtin_ctzll(task->allowed & online_pcpus(g));
	task->locked = true;
	drover_stopped(&g->d, task, &task->thread);
	task->locked = false;
	if (!task->selected)
		drover_woken(&g->d, &task->thread, task->pcpu);
	place(g, task, !task->selected);
	fake_deliver_kicks(g);
}

void kernel_wake(struct ground *g, struct task_struct *task)
{
	kernel_select(g, task);
	kernel_enqueue(g, task);
}

/* --- switching --- */

void kernel_pick(struct ground *g, u32 at)
{
	struct fake_pcpu *pcpu = &g->pcpu[at];
	struct task_struct *current = pcpu->current;

	CHECK(!pcpu->switching);
	pcpu->resched = false;
	if (current)
		fake_count_cpu_time(g, current);
	if (current && current->slice_ns)
		return;
	pcpu->locked = pcpu->switching = true;
	if (pcpu->online && !fake_first(g, fake_local_queue(at), at)) {
		g->asking = at;
		drover_dispatch(&g->d, at, current, current ? &current->thread : NULL);
	}
	pcpu->next = fake_first(g, fake_local_queue(at), at);
	/* Offline, the kernel keeps what runs; else whoever may not go on is enqueued, the last,
	 * too. */
	if (current && !pcpu->online && !pcpu->next)
		current->slice_ns = DEFAULT_SLICE_NS;
	if (current && current->slice_ns)
		pcpu->locked = pcpu->switching = false;
}

static void put_current(struct ground *g, u32 at)
{
	struct task_struct *current = g->pcpu[at].current;

	if (!current)
		return;
	fake_count_cpu_time(g, current);
	drover_stopping(&g->d, current, &current->thread, at, true);
	drover_stopped(&g->d, current, &current->thread);
	current->ready_at_ns = g->now_ns;
	g->pcpu[at].was_busy = true;
	g->pcpu[at].current = NULL;
	place(g, current, false);
}

static void run_next(struct ground *g, u32 at)
{
	struct fake_pcpu *pcpu = &g->pcpu[at];
	struct task_struct *next = pcpu->next;
	struct task_struct *second;

	CHECK_SAYING(fake_allowed(g, next, at), "runs on a pCPU it may not run on");
	CHECK(next->state == TASK_READY && next->queue == fake_local_queue(at));
	next->queue = NO_QUEUE;
	next->state = TASK_RUNNING;
	next->pcpu = at;
	next->counted_to_ns = g->now_ns;
	if (g->now_ns - next->ready_at_ns > next->longest_wait_ns)
		next->longest_wait_ns = g->now_ns - next->ready_at_ns;
	pcpu->current = next;
	pcpu->idle = false;
	if (!pcpu->was_busy)
		drover_idle(&g->d, at, false);
	next->nr_runs++;
	drover_running(&g->d, next, &next->thread, at);
	second = fake_first(g, fake_local_queue(at), at);
	if (second && second->arrival < 0) {
		/* One came to preempt while the switch was under way. */
		next->slice_ns = 0;
		pcpu->resched = true;
	}
}

void kernel_switch(struct ground *g, u32 at)
{
	struct fake_pcpu *pcpu = &g->pcpu[at];

	if (!pcpu->switching)
		return;
	put_current(g, at);
	if (pcpu->next) {
		run_next(g, at);
	} else {
		pcpu->idle = pcpu->online;
		if (pcpu->was_busy && pcpu->online)
			drover_idle(&g->d, at, true);
	}
	pcpu->next = NULL;
	pcpu->was_busy = pcpu->switching = pcpu->locked = false;
	fake_deliver_kicks(g);
}

static bool has_to_act(struct fake_pcpu *pcpu)
{
	return pcpu->online && (pcpu->resched || pcpu->switching);
}

void kernel_settle(struct ground *g)
{
	u32 rounds = 0;
	u32 idle_for = 0;

	for (u32 i = 0; idle_for < g->d.params.nr_pcpus; i = (i + 1) % g->d.params.nr_pcpus) {
		idle_for = has_to_act(&g->pcpu[i]) ? 0 : idle_for + 1;
		CHECK_SAYING(++rounds < 10000, "pCPUs ask for work again and again");
		if (g->pcpu[i].online && g->pcpu[i].resched && !g->pcpu[i].switching)
			kernel_pick(g, i);
		kernel_switch(g, i);
	}
}

/* --- sleeping, leaving, changing --- */

static struct task_struct *stop_current(struct ground *g, u32 at, bool ready)
{
	struct task_struct *current = g->pcpu[at].current;

	fake_count_cpu_time(g, current);
	drover_stopping(&g->d, current, &current->thread, at, ready);
	g->pcpu[at].locked = true;
	drover_stopped(&g->d, current, &current->thread);
	g->pcpu[at].locked = false;
	g->pcpu[at].current = NULL;
	g->pcpu[at].was_busy = true;
	g->pcpu[at].resched = true;
	return current;
}

void kernel_stop(struct ground *g, u32 at)
{
	struct task_struct *task = stop_current(g, at, false);

	task->state = TASK_ASLEEP;
	if (task->burst_ns != NEVER) {
		task->burst_left_ns = task->burst_ns;
		task->wakes_at_ns = g->now_ns + task->sleep_ns;
	}
}

void kernel_sleep(struct ground *g, u32 at)
{
	kernel_stop(g, at);
	kernel_pick(g, at);
}

bool kernel_yield(struct ground *g, u32 at, struct task_struct *to)
{
	struct task_struct *from = g->pcpu[at].current;
	bool answer;

	fake_count_cpu_time(g, from);
	answer = drover_yield(&g->d, from, &from->thread, to, to ? &to->thread : NULL);
	g->pcpu[at].resched |= !from->slice_ns;
	return answer;
}

void kernel_exit(struct ground *g, u32 at)
{
	struct task_struct *task = stop_current(g, at, false);

	task->state = TASK_NONE;
	kernel_pick(g, at);
	find_forget(&g->d, &task->thread);
}

/* The running task stops, to be queued again. */
static void dequeue_current(struct ground *g, struct task_struct *task)
{
	u32 at = task->pcpu;

	stop_current(g, at, true);
	task->ready_at_ns = g->now_ns;
	kernel_pick(g, at);
}

/* A ready task is queued again. */
static void requeue(struct ground *g, struct task_struct *task)
{
	task->queue = NO_QUEUE;
	if (!fake_allowed(g, task, task->pcpu))
		task->pcpu = (u32)__builtin_ctzll(task->allowed & online_pcpus(g));
	place(g, task, false);
	fake_deliver_kicks(g);
}

void kernel_set_affinity(struct ground *g, struct task_struct *task, u64 allowed)
{
	task->allowed = allowed;
	affinity_change(&g->d, task, &task->thread);
	if (task->state == TASK_RUNNING && !fake_allowed(g, task, task->pcpu))
		dequeue_current(g, task);
	else if (task->state != TASK_READY)
		return;
	requeue(g, task);
}

void kernel_set_cgroup(struct ground *g, struct task_struct *task, u32 cgroup)
{
	bool asleep = task->state == TASK_ASLEEP;

	task->cgroup = cgroup;
	if (task->state == TASK_RUNNING)
		dequeue_current(g, task);
	drover_moved(&g->d, task, &task->thread);
	if (!asleep)
		requeue(g, task);
}

/* --- hotplug --- */

void kernel_offline(struct ground *g, u32 at)
{
	struct fake_pcpu *pcpu = &g->pcpu[at];
	void (*meanwhile)(struct ground *) = g->meanwhile;

	g->meanwhile = NULL;
	drover_pcpu_offline(&g->d, at);
	pcpu->online = pcpu->idle = pcpu->resched = false;
	for (u32 i = 0; i < FAKE_TASKS; i++) {
		struct task_struct *task = &g->task[i];
		bool leaves = task->queue == fake_local_queue(at) || pcpu->current == task;

		if (task->state == TASK_NONE)
			continue;
		if (!(task->allowed & online_pcpus(g)))
			kernel_set_affinity(g, task, ALL_PCPUS);
		else if (leaves)
			kernel_set_affinity(g, task, task->allowed);
	}
	kernel_switch(g, at);
	g->meanwhile = meanwhile;
}

void kernel_online(struct ground *g, u32 at)
{
	g->pcpu[at].online = true;
	drover_pcpu_online(&g->d, at);
	g->pcpu[at].resched = true;
}

/* --- time --- */

static u64 next_event_ns(struct ground *g, u64 end_ns)
{
	for (u32 i = 0; i < FAKE_TASKS; i++) {
		struct task_struct *task = &g->task[i];
		u64 at_ns = NEVER;

		if (task->state == TASK_RUNNING) {
			u64 left_ns = task->slice_ns < task->burst_left_ns ? task->slice_ns :
									     task->burst_left_ns;

			at_ns = task->counted_to_ns + left_ns;
		} else if (task->state == TASK_ASLEEP) {
			at_ns = task->wakes_at_ns;
		}
		if (at_ns < end_ns)
			end_ns = at_ns;
	}
	for (u32 i = 0; i < g->d.params.nr_pcpus; i++)
		if (g->pcpu[i].kick_at_ns && g->pcpu[i].kick_at_ns < end_ns)
			end_ns = g->pcpu[i].kick_at_ns;
	for (u32 slot = 0; slot < FAKE_PROCESSES; slot++)
		if (g->timer_ns[slot] < end_ns)
			end_ns = g->timer_ns[slot];
	for (u32 pcpu = 0; pcpu < FAKE_PCPUS; pcpu++)
		if (g->turn_timer_ns[pcpu] < end_ns)
			end_ns = g->turn_timer_ns[pcpu];
	if (g->next_tick_ns < end_ns)
		end_ns = g->next_tick_ns;
	if (g->next_allot_ns < end_ns)
		end_ns = g->next_allot_ns;
	return g->next_rouse_ns < end_ns ? g->next_rouse_ns : end_ns;
}

static void go_off_if_due(struct ground *g, u64 *timer_ns, u32 timer)
{
	if (*timer_ns > g->now_ns)
		return;
	*timer_ns = NEVER;
	drover_timer(&g->d, timer, g->now_ns);
	fake_deliver_kicks(g);
}

void kernel_timers(struct ground *g)
{
	for (u32 slot = 0; slot < FAKE_PROCESSES; slot++)
		go_off_if_due(g, &g->timer_ns[slot], slot);
	for (u32 pcpu = 0; pcpu < FAKE_PCPUS; pcpu++)
		go_off_if_due(g, &g->turn_timer_ns[pcpu], TIMER_TURN(pcpu));
}

/* All pCPUs tick at the same moments. */
static void tick(struct ground *g)
{
	if (g->now_ns < g->next_tick_ns)
		return;
	for (u32 i = 0; i < g->d.params.nr_pcpus; i++) {
		struct task_struct *current = g->pcpu[i].current;

		if (!current)
			continue;
		fake_count_cpu_time(g, current);
		drover_tick(&g->d, current, &current->thread);
		fake_deliver_kicks(g);
	}
	g->next_tick_ns = g->now_ns + TICK_NS;
}

static void rouse(struct ground *g)
{
	if (g->now_ns < g->next_rouse_ns)
		return;
	drover_kick_idle(&g->d);
	fake_deliver_kicks(g);
	g->next_rouse_ns = g->now_ns + g->d.params.wait_bound_ns / 8;
}

static void allot(struct ground *g)
{
	if (g->now_ns < g->next_allot_ns)
		return;
	fake_allot(g);
	fake_deliver_kicks(g);
	g->next_allot_ns = g->now_ns + 50 * MS;
}

/* Its work for this period is done: is there more to do already? */
static bool is_behind(struct ground *g, struct task_struct *task)
{
	if (!task->period_ns)
		return false;
	task->period_end_ns += task->period_ns;
	if (task->period_end_ns > g->now_ns) {
		task->sleep_ns = task->period_end_ns - g->now_ns;
		return false;
	}
	task->burst_left_ns = task->burst_ns;
	return true;
}

static void let_time_tell(struct ground *g, struct task_struct *task)
{
	if (task->state == TASK_RUNNING) {
		fake_count_cpu_time(g, task);
		if (!task->burst_left_ns && !is_behind(g, task))
			kernel_sleep(g, task->pcpu);
		else if (!task->slice_ns)
			g->pcpu[task->pcpu].resched = true;
	} else if (task->state == TASK_ASLEEP && task->wakes_at_ns <= g->now_ns) {
		kernel_wake(g, task);
	}
}

void kernel_run(struct ground *g, u64 duration_ns)
{
	u64 end_ns = g->now_ns + duration_ns;

	kernel_settle(g);
	while (g->now_ns < end_ns) {
		u64 next_ns = next_event_ns(g, end_ns);

		g->now_ns = next_ns > g->now_ns ? next_ns : g->now_ns;
		fake_deliver_late_kicks(g);
		rouse(g);
		allot(g);
		kernel_timers(g);
		tick(g);
		for (u32 i = 0; i < FAKE_TASKS; i++)
			let_time_tell(g, &g->task[i]);
		kernel_settle(g);
	}
}

void kernel_exit_threads(struct ground *g, u32 tgid, u32 nr_threads)
{
	for (u32 left = nr_threads; left > 0; kernel_run(g, MS))
		for (u32 at = 0; at < g->d.params.nr_pcpus; at++)
			if (left && g->pcpu[at].current && g->pcpu[at].current->tgid == tgid) {
				kernel_exit(g, at);
				left--;
			}
}

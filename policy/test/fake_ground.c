// SPDX-License-Identifier: GPL-2.0-only
#include "fake_ground.h"
#include "partition/drain.h"

static struct ground *the_ground;

static struct ground *of(struct drover *d)
{
	CHECK(d == &the_ground->d);
	return the_ground;
}

void ground_assertion_failed(const char *what, const char *file, int line)
{
	CHECK_SAYING(false, "%s:%d: not so: %s", file, line, what);
}

/* Others act: their kicks are felt, the caller's are still on their way. */
static void meanwhile(struct ground *g)
{
	u64 kicks = g->kicks;
	u64 preempts = g->preempts;
	u32 asking = g->asking;

	if (!g->meanwhile)
		return;
	g->kicks = g->preempts = 0;
	g->meanwhile(g);
	g->kicks = kicks;
	g->preempts = preempts;
	g->asking = asking;
}

struct ground *fake_ground(u32 nr_pcpus, u32 nr_domains)
{
	struct ground *g;

	free(the_ground);
	g = the_ground = calloc(1, sizeof(*g));
	CHECK(g && nr_pcpus <= FAKE_PCPUS && nr_domains <= FAKE_DOMAINS);
	g->now_ns = SECOND;
	for (u32 slot = 0; slot < FAKE_PROCESSES; slot++)
		g->timer_ns[slot] = NEVER;
	for (u32 pcpu = 0; pcpu < FAKE_PCPUS; pcpu++) {
		g->turn_timer_ns[pcpu] = NEVER;
		g->speed[pcpu] = SPEED_FULL;
	}
	g->next_tick_ns = SECOND + 4 * MS;
	g->nr_slots = FAKE_PROCESSES;
	g->d.params = (struct params){
#include "params.h"
		.nr_pcpus = nr_pcpus,
		.nr_domains = nr_domains,
	};
	/* What ticks of 4 ms make of it. */
	g->d.params.slice_ns = (g->d.params.slice_ns + 4 * MS - 1) / (4 * MS) * (4 * MS);
	for (u32 i = 0; i < nr_pcpus; i++) {
		g->pcpu[i].online = g->pcpu[i].idle = true;
		g->d.pcpu[i].online = 1;
		g->d.pcpu[i].domain = i * nr_domains / nr_pcpus;
	}
	drover_start(&g->d);
	return g;
}

struct ground *fake_nodes(u32 nr_pcpus, u32 nr_nodes)
{
	struct ground *g = fake_ground(nr_pcpus, nr_nodes);

	for (u32 i = 0; i < nr_nodes; i++)
		g->d.domain[i].node = g->d.domain[i].llc = i + 1;
	topology_settle(&g->d);
	return g;
}

void fake_cores(struct ground *g)
{
	for (u32 i = 0; i + 1 < g->d.params.nr_pcpus; i += 2) {
		g->d.pcpu[i].sibling = i + 2;
		g->d.pcpu[i + 1].sibling = i + 1;
	}
}

struct task_struct *fake_task(struct ground *g)
{
	for (u32 i = 0; i < FAKE_TASKS; i++) {
		struct task_struct *task = &g->task[i];

		if (task->state != TASK_NONE)
			continue;
		*task = (struct task_struct){
			.state = TASK_ASLEEP,
			.allowed = ALL_PCPUS,
			.queue = NO_QUEUE,
			.to_queue = NO_QUEUE,
			.burst_ns = NEVER,
			.burst_left_ns = NEVER,
			.wakes_at_ns = NEVER,
			.thread.weight = 100,
		};
		return task;
	}
	CHECK_SAYING(false, "more than %d tasks", FAKE_TASKS);
}

bool fake_allowed(struct ground *g, struct task_struct *task, u32 pcpu)
{
	return g->pcpu[pcpu].online && task->allowed >> pcpu & 1;
}

struct task_struct *fake_first(struct ground *g, u64 queue, u32 pcpu)
{
	struct task_struct *first = NULL;

	for (u32 i = 0; i < FAKE_TASKS; i++) {
		struct task_struct *task = &g->task[i];
		s64 later;

		if (task->state == TASK_NONE || task->queue != queue)
			continue;
		if (pcpu < FAKE_PCPUS && (!fake_allowed(g, task, pcpu) || task->locked))
			continue;
		later = first ? (s64)(task->order - first->order) : -1;
		if (later < 0 || (later == 0 && task->arrival < first->arrival))
			first = task;
	}
	return first;
}

u32 fake_queue_length(struct ground *g, u64 queue)
{
	u32 length = 0;

	for (u32 i = 0; i < FAKE_TASKS; i++)
		length += g->task[i].state != TASK_NONE && g->task[i].queue == queue;
	return length;
}

u64 fake_local_queue(u32 pcpu)
{
	return (2ULL << 32) + pcpu;
}

static void insert(struct ground *g, struct task_struct *task, u64 queue, u64 order)
{
	CHECK_SAYING(task->queue == NO_QUEUE, "a task in a queue was placed again");
	task->queue = queue;
	task->order = order;
	task->arrival = ++g->arrivals;
}

void fake_put(struct ground *g, struct task_struct *task)
{
	u32 at = task->to_pcpu;
	struct fake_pcpu *pcpu = &g->pcpu[at];

	CHECK_SAYING(task->to_queue != NO_QUEUE, "a ready task was placed nowhere");
	meanwhile(g);
	insert(g, task, task->to_queue, task->to_order);
	if (task->to_queue == fake_local_queue(at)) {
		task->pcpu = at;
		if (task->to_preempt)
			task->arrival = -task->arrival;
		if (task->to_preempt && pcpu->current)
			pcpu->current->slice_ns = 0;
		pcpu->resched |= task->to_preempt || !pcpu->current;
	}
	task->to_queue = NO_QUEUE;
}

static void kick_arrives(struct fake_pcpu *pcpu, bool preempts)
{
	if (preempts && pcpu->current)
		pcpu->current->slice_ns = 0;
	pcpu->resched = true;
}

void fake_deliver_kicks(struct ground *g)
{
	for (u32 i = 0; i < g->d.params.nr_pcpus; i++) {
		struct fake_pcpu *pcpu = &g->pcpu[i];
		bool preempts = g->preempts >> i & 1;

		if (!preempts && !(g->kicks >> i & 1))
			continue;
		if (!g->kicks_late_ns) {
			kick_arrives(pcpu, preempts);
			continue;
		}
		pcpu->preempted |= preempts;
		if (!pcpu->kick_at_ns)
			pcpu->kick_at_ns = g->now_ns + 1 + check_random() % g->kicks_late_ns;
	}
	g->kicks = g->preempts = 0;
}

void fake_deliver_late_kicks(struct ground *g)
{
	for (u32 i = 0; i < g->d.params.nr_pcpus; i++) {
		struct fake_pcpu *pcpu = &g->pcpu[i];

		if (!pcpu->kick_at_ns || pcpu->kick_at_ns > g->now_ns)
			continue;
		kick_arrives(pcpu, pcpu->preempted);
		pcpu->kick_at_ns = 0;
		pcpu->preempted = false;
	}
}

void fake_count_cpu_time(struct ground *g, struct task_struct *task)
{
	u64 ran_ns = g->now_ns - task->counted_to_ns;

	task->counted_to_ns = g->now_ns;
	task->cpu_time_ns += ran_ns;
	task->slice_ns -= ran_ns < task->slice_ns ? ran_ns : task->slice_ns;
	if (task->burst_left_ns != NEVER)
		task->burst_left_ns -= ran_ns < task->burst_left_ns ? ran_ns : task->burst_left_ns;
}

/* --- what ground.h promises --- */

u64 ground_now_ns(struct drover *d)
{
	return of(d)->now_ns;
}

u64 ground_cpu_time_ns(struct drover *d, struct task_struct *task)
{
	(void)d;
	return task->cpu_time_ns;
}

u64 ground_hypervisor_time_ns(struct drover *d, struct task_struct *task)
{
	(void)d;
	return task->hypervisor_ns;
}

u64 ground_spun_ns(struct drover *d, struct task_struct *task)
{
	(void)d;
	return task->spun_ns;
}

u32 ground_task_pcpu(struct drover *d, struct task_struct *task)
{
	(void)d;
	return task->pcpu;
}

u32 ground_waker(struct drover *d, u32 *pcpu)
{
	struct ground *g = of(d);

	*pcpu = g->waker_pcpu;
	return g->waker;
}

bool ground_is_kernel_thread(struct drover *d, struct task_struct *task)
{
	(void)d;
	return task->kernel_thread;
}

bool ground_is_leaving(struct drover *d, struct task_struct *task)
{
	(void)d;
	return task->leaving;
}

bool ground_blocks_rcu(struct drover *d, struct task_struct *task)
{
	(void)d;
	return task->blocks_rcu;
}

bool ground_may_run_on(struct drover *d, struct task_struct *task, u32 pcpu)
{
	/* The kernel answers for affinity only; so does this. */
	(void)d;
	return task->allowed >> pcpu & 1;
}

s32 ground_only_pcpu(struct drover *d, struct task_struct *task)
{
	u64 allowed = task->allowed & ((2ULL << (d->params.nr_pcpus - 1)) - 1);

	return __builtin_popcountll(allowed) == 1 ? __builtin_ctzll(task->allowed) : -1;
}

void ground_set_slice(struct drover *d, struct task_struct *task, u64 slice_ns)
{
	(void)d;
	task->slice_ns = slice_ns;
}

void ground_enqueue(struct drover *d, struct task_struct *task, u64 queue, u64 slice_ns, u64 order)
{
	CHECK_SAYING(task->to_queue == NO_QUEUE, "a task was placed twice");
	meanwhile(of(d));
	task->slice_ns = slice_ns;
	task->to_queue = queue;
	task->to_order = order;
}

void ground_run_on(struct drover *d, struct task_struct *task, u32 pcpu, u64 slice_ns, bool preempt)
{
	struct ground *g = of(d);

	CHECK_SAYING(task->to_queue == NO_QUEUE, "a task was placed twice");
	CHECK_SAYING(task->allowed >> pcpu & 1, "sent to a pCPU it may not run on");
	meanwhile(g);
	/* To an offline pCPU: the kernel runs it anywhere instead. */
	for (u32 i = 0; !g->pcpu[pcpu].online && i < g->d.params.nr_pcpus; i++)
		if (fake_allowed(g, task, i))
			pcpu = i;
	task->slice_ns = slice_ns;
	task->to_queue = fake_local_queue(pcpu);
	task->to_order = 0;
	task->to_pcpu = pcpu;
	/* A kernel may forget it on the way to another pCPU. */
	task->to_preempt = preempt && pcpu == task->pcpu;
}

u64 ground_process(struct drover *d, struct task_struct *task)
{
	(void)d;
	return task->tgid;
}

u32 ground_exec_id(struct drover *d, struct task_struct *task)
{
	(void)d;
	return task->exec_id;
}

u32 ground_tid(struct drover *d, struct task_struct *task)
{
	return (u32)(task - of(d)->task) + 1;
}

s32 ground_vcpu_of(struct drover *d, struct task_struct *task)
{
	(void)d;
	return task->in_kvm_run ? (s32)task->vcpu_id : -1;
}

static u32 *slot_of(struct ground *g, u64 owner_id)
{
	u32 number = (u32)owner_id;

	if (owner_is_user(owner_id))
		return &g->slot_of_user[number % FAKE_USERS];
	if (owner_is_host_tasks(owner_id))
		return &g->slot_of_nice[number];
	return owner_id & OWNER_CGROUP ? &g->slot_of_cgroup[number] : &g->slot_of[number];
}

u32 ground_slot_of(struct drover *d, u64 owner_id)
{
	u32 slot = *slot_of(of(d), owner_id);

	/* What was read may be old by the time it is used. */
	meanwhile(of(d));
	return slot;
}

bool ground_enter(struct drover *d, u64 owner_id, u32 slot)
{
	struct ground *g = of(d);

	meanwhile(g);
	CHECK(owner_id && slot && g->slot_taken[slot]);
	if (*slot_of(g, owner_id))
		return false;
	*slot_of(g, owner_id) = slot;
	return true;
}

void ground_forget(struct drover *d, u64 owner_id)
{
	CHECK(*slot_of(of(d), owner_id));
	*slot_of(of(d), owner_id) = 0;
}

u32 ground_user(struct drover *d, struct task_struct *task)
{
	(void)d;
	return task->user;
}

u32 ground_container_of(struct drover *d, struct task_struct *task, u64 *owner_id)
{
	struct ground *g = of(d);
	u32 cgroup = task->cgroup;
	u32 slot;

	while (cgroup && !g->slot_of_cgroup[cgroup])
		cgroup = g->cgroup_above[cgroup];
	*owner_id = cgroup | OWNER_CGROUP;
	slot = g->slot_of_cgroup[cgroup];
	meanwhile(g);
	return slot;
}

u32 ground_pop_slot(struct drover *d)
{
	struct ground *g = of(d);

	for (u32 slot = 1; slot < g->nr_slots; slot++) {
		if (g->slot_taken[slot])
			continue;
		CHECK_EQ(vm_at(d, slot)->nr_threads, 0);
		g->slot_taken[slot] = true;
		return slot;
	}
	return DROVER_HOST_SLOT;
}

void ground_push_slot(struct drover *d, u32 slot)
{
	CHECK_SAYING(of(d)->slot_taken[slot], "a slot was freed twice");
	CHECK_EQ(vm_at(d, slot)->nr_threads, 0);
	of(d)->slot_taken[slot] = false;
}

u64 ground_vm_queue(struct drover *d, u32 slot, u32 domain)
{
	(void)d;
	return (u64)slot * DROVER_MAX_DOMAINS + domain;
}

u64 ground_parked_queue(struct drover *d, u32 slot)
{
	return ground_vm_queue(d, DROVER_MAX_VMS + slot, 0);
}

static bool take(struct ground *g, struct task_struct *task)
{
	if (!task)
		return false;
	task->queue = NO_QUEUE;
	task->pcpu = g->asking;
	insert(g, task, fake_local_queue(g->asking), 0);
	meanwhile(g);
	return true;
}

bool ground_take_first(struct drover *d, u64 queue)
{
	return take(of(d), fake_first(of(d), queue, of(d)->asking));
}

bool ground_take_due(struct drover *d, u64 queue, u64 until_ns, u64 *next_ns)
{
	struct ground *g = of(d);
	struct task_struct *first = NULL;

	for (u32 i = 0; i < FAKE_TASKS; i++) {
		struct task_struct *task = &g->task[i];
		u64 due_ns = task->thread.due_ns;

		if (task->state != TASK_READY || task->queue != queue || task->locked)
			continue;
		if ((s64)(until_ns - due_ns) >= 0 && fake_allowed(g, task, g->asking) &&
		    (!first || (s64)(due_ns - first->thread.due_ns) < 0))
			first = task;
	}
	for (u32 i = 0; i < FAKE_TASKS; i++) {
		struct task_struct *task = &g->task[i];

		if (task->state == TASK_READY && task->queue == queue && task != first &&
		    (s64)(task->thread.due_ns - *next_ns) < 0)
			*next_ns = task->thread.due_ns;
	}
	return take(g, first);
}

bool ground_take_vcpu(struct drover *d, u64 queue, u32 record)
{
	struct ground *g = of(d);

	for (u32 i = 0; i < FAKE_TASKS; i++) {
		struct task_struct *task = &g->task[i];

		if (task->state == TASK_READY && task->queue == queue && !task->locked &&
		    task->thread.record == record && fake_allowed(g, task, g->asking))
			return take(g, task);
	}
	return false;
}

void ground_drain(struct drover *d, u64 queue, u64 slice_ns)
{
	struct ground *g = of(d);

	for (u32 i = 0; i < FAKE_TASKS; i++) {
		struct task_struct *task = &g->task[i];
		s32 to;

		if (task->state != TASK_READY || task->queue != queue || task->locked)
			continue;
		to = drain_to(d, task, &task->thread);
		if (to == PCPU_NONE)
			continue;
		task->queue = NO_QUEUE;
		task->pcpu = (u32)to;
		task->slice_ns = slice_ns;
		insert(g, task, fake_local_queue((u32)to), 0);
		g->pcpu[to].resched |= !g->pcpu[to].current;
	}
}

bool ground_first_order(struct drover *d, u64 queue, u32 pcpu, u64 *order)
{
	struct task_struct *task = fake_first(of(d), queue, pcpu);

	if (task)
		*order = task->order;
	return task;
}

bool ground_claim(struct drover *d, struct task_struct *task, u32 pcpu)
{
	struct fake_pcpu *it = &of(d)->pcpu[pcpu];
	bool claimed = it->idle && fake_allowed(of(d), task, pcpu);

	if (claimed)
		it->idle = false;
	else
		meanwhile(of(d));
	return claimed;
}

void ground_set_speed(struct drover *d, u32 pcpu, u32 speed)
{
	of(d)->speed[pcpu] = speed;
}

void ground_place_anew(struct drover *d)
{
	of(d)->place_anew = true;
}

void ground_kick(struct drover *d, u32 pcpu)
{
	of(d)->kicks |= 1ULL << pcpu;
	of(d)->nr_kicks++;
}

void ground_preempt(struct drover *d, u32 pcpu)
{
	of(d)->preempts |= 1ULL << pcpu;
	of(d)->nr_preempts++;
}

void ground_timer(struct drover *d, u32 timer, u64 at_ns, u64 now_ns)
{
	u64 goes_off_ns = at_ns > now_ns ? at_ns : now_ns;

	if (timer >= TIMER_TURN(0)) {
		CHECK(timer < TIMER_TURN(FAKE_PCPUS));
		of(d)->turn_timer_ns[timer - TIMER_TURN(0)] = goes_off_ns;
		return;
	}
	CHECK(timer < FAKE_PROCESSES && d->timer[timer].busy);
	of(d)->timer_ns[timer] = goes_off_ns;
}

struct runqueue *ground_runqueue(struct drover *d, u32 domain)
{
	return domain < FAKE_DOMAINS ? &of(d)->runqueue[domain] : NULL;
}

void ground_lock_runqueue(struct runqueue *rq)
{
	CHECK_SAYING(!rq->lock.held, "a domain was locked twice");
	rq->lock.held = 1;
}

void ground_unlock_runqueue(struct runqueue *rq)
{
	CHECK_SAYING(rq->lock.held, "a domain was unlocked that was not locked");
	rq->lock.held = 0;
}

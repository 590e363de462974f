// SPDX-License-Identifier: GPL-2.0-only
/* Homes: policy/place/home.h. Two nodes of two pCPUs: 0 and 1, 2 and 3. */
#include "fake_kernel.h"

#define NODE_0 1U
#define NODE_1 2U

static struct ground *g;

static void go_home(u32 tgid, u32 home)
{
	struct home_order order = {.slot = g->slot_of[tgid], .home = home, .parts = 1};

	order.vm_id = vm_at(&g->d, order.slot)->id;
	CHECK(order_home(&g->d, &order));
}

/* A busy vCPU of that VM, which last ran on that pCPU; asleep. */
static struct task_struct *vcpu(u32 tgid, u32 home, u32 pcpu)
{
	struct task_struct *task = kernel_thread(g, tgid, THREAD_VCPU);

	task->pcpu = pcpu;
	kernel_set_affinity(g, task, ALL_PCPUS);
	go_home(tgid, home);
	return task;
}

static struct task_struct *wakes(struct task_struct *task)
{
	kernel_wake(g, task);
	kernel_settle(g);
	return task;
}

static u32 node_of(struct task_struct *task)
{
	return pcpu_at(&g->d, task->pcpu)->domain + 1;
}

/* Both pCPUs of the node are a VM's, pinned there. */
static void fill(u32 tgid, u32 home)
{
	for (u32 i = 0; i < 2; i++) {
		struct task_struct *task = kernel_thread(g, tgid, THREAD_VCPU);

		kernel_set_affinity(g, task, 1ULL << (2 * (home - 1) + i));
		wakes(task);
	}
}

static void who_wakes_runs_at_home(void)
{
	struct task_struct *task;

	g = fake_nodes(4, 2);
	task = wakes(vcpu(1, NODE_1, 0));
	CHECK(task->state == TASK_RUNNING && node_of(task) == NODE_1);
	g = fake_nodes(4, 2);
	task = wakes(vcpu(1, 0, 0));
	CHECK(task->pcpu == 0);
}

static void with_home_full_it_runs_elsewhere_at_once(void)
{
	struct task_struct *task;

	g = fake_nodes(4, 2);
	fill(2, NODE_1);
	task = wakes(vcpu(1, NODE_1, 0));
	CHECK(task->state == TASK_RUNNING && node_of(task) == NODE_0);
	kernel_run(g, 100 * MS);
	CHECK(kernel_cpu_time_ns(g, 1) >= 99 * MS);
	CHECK_EQ(kernel_vm(g, 1)->counters.home_run_ns, 0);
}

static void with_the_host_full_it_waits_at_home(void)
{
	struct task_struct *task;

	g = fake_nodes(4, 2);
	fill(2, NODE_0);
	fill(3, NODE_1);
	task = vcpu(1, NODE_1, 0);
	kernel_vm(g, 1)->vtime_ns = kernel_vm(g, 3)->vtime_ns + SECOND;
	wakes(task);
	CHECK(task->state == TASK_READY);
	CHECK_EQ(task->thread.queued_in, 2);
}

static void it_goes_home_at_the_next_tick(void)
{
	struct task_struct *task;

	g = fake_nodes(4, 2);
	task = wakes(vcpu(1, 0, 0));
	kernel_run(g, 10 * MS);
	CHECK(task->pcpu == 0);
	go_home(1, NODE_1);
	kernel_run(g, 5 * MS);
	CHECK(task->state == TASK_RUNNING && node_of(task) == NODE_1);
	kernel_run(g, 90 * MS);
	CHECK_NEAR(kernel_vm(g, 1)->counters.home_run_ns, 90 * MS, 6 * MS);
}

static void while_home_is_full_it_is_left_where_it_runs(void)
{
	struct task_struct *task;
	u64 dispatches;

	g = fake_nodes(4, 2);
	fill(2, NODE_1);
	task = wakes(vcpu(1, NODE_1, 0));
	dispatches = kernel_runs(g, 1);
	kernel_run(g, 100 * MS);
	CHECK_EQ(kernel_runs(g, 1), dispatches);
	/* Home has room again. */
	kernel_exit_threads(g, 2, 1);
	kernel_run(g, 5 * MS);
	CHECK(node_of(task) == NODE_1);
}

static void an_idle_pcpu_elsewhere_takes_who_waits_at_home(void)
{
	struct task_struct *tasks[3];

	g = fake_nodes(4, 2);
	for (u32 i = 0; i < 3; i++)
		tasks[i] = vcpu(i + 1, NODE_1, 2);
	for (u32 i = 0; i < 3; i++)
		kernel_wake(g, tasks[i]);
	kernel_run(g, 200 * MS);
	for (u32 i = 0; i < 3; i++)
		CHECK(kernel_cpu_time_ns(g, i + 1) >= 199 * MS);
}

/*
 * Home is full of a VM pinned there, which sleeps now and then and so is owed as much as a sleeper;
 * of the others, on both nodes, one has always had more than its due.
 */
static void nobody_waits_at_home_who_may_preempt_elsewhere(void)
{
	struct task_struct *late, *pinned;
	u32 nr_late = 0;

	g = fake_nodes(4, 2);
	late = vcpu(1, NODE_0, 0);
	late->burst_ns = late->burst_left_ns = 100 * US;
	late->sleep_ns = 1900 * US;
	wakes(late);
	for (u32 i = 0; i < 2; i++) {
		pinned = kernel_thread(g, 2, THREAD_VCPU);
		pinned->burst_ns = pinned->burst_left_ns = 9400 * US + i * US;
		pinned->sleep_ns = 600 * US;
		kernel_set_affinity(g, pinned, 3);
		wakes(pinned);
	}
	kernel_busy_vm(g, 3, 3, 0);
	kernel_run(g, SECOND);
	for (u32 i = 0; i < 2000; i++) {
		late->longest_wait_ns = 0;
		kernel_run(g, 2 * MS);
		nr_late += late->longest_wait_ns > MS;
	}
	CHECK_SAYING(nr_late <= 20, "%u of 2000 wake-ups were late", nr_late);
}

/* pCPU 0 chooses between what is at a second and one that waits at home on node 1, behind by that.
 */
static bool is_taken(u32 home, u64 behind_ns)
{
	struct task_struct *task;

	g = fake_nodes(4, 2);
	for (u32 i = 0; i < 4; i++)
		kernel_wake(g, kernel_thread(g, 0, THREAD_HOST));
	kernel_settle(g);
	vm_at(&g->d, DROVER_HOST_SLOT)->vtime_ns = SECOND;
	task = vcpu(1, home, 2);
	kernel_vm(g, 1)->vtime_ns = SECOND - behind_ns;
	task->state = TASK_READY;
	task->ready_at_ns = g->now_ns;
	drover_place(&g->d, task, &task->thread, false);
	fake_put(g, task);
	CHECK(task->state == TASK_READY && task->thread.queued_in == 2);
	g->pcpu[0].current->slice_ns = 0;
	kernel_pick(g, 0);
	kernel_switch(g, 0);
	return g->pcpu[0].current == task;
}

static void to_take_one_from_home_is_worth_twice_the_gain(void)
{
	/* Two hops of 8 ms. */
	CHECK(!is_taken(0, 14 * MS) && is_taken(0, 18 * MS));
	CHECK(!is_taken(NODE_1, 30 * MS) && is_taken(NODE_1, 34 * MS));
	CHECK(is_taken(9, 18 * MS)); /* a home that is not there is none */
}

/* Nodes 0 and 1 are near each other, 2 is further: whoever finds no pCPU at home goes where it is
 * nearest. */
static void a_near_node_comes_before_a_far_one(void)
{
	struct task_struct *other;

	g = fake_nodes(3, 3);
	g->d.node_hops[0][2] = g->d.node_hops[2][0] = 3;
	g->d.node_hops[1][2] = g->d.node_hops[2][1] = 2;
	topology_settle(&g->d);
	CHECK_EQ(topology_near(&g->d, 0, 1), 1);
	CHECK_EQ(topology_near(&g->d, 0, 2), 2);
	CHECK_EQ(topology_near(&g->d, 2, 1), 1);
	CHECK_EQ(topology_hops(&g->d, 0, 2), 3);
	other = vcpu(1, NODE_0, 0);
	kernel_wake(g, other);
	kernel_settle(g);
	CHECK_EQ(wakes(vcpu(2, NODE_0, 2))->pcpu, 1);
}

/* Node 0 is full, with a stray on one of its pCPUs; who is at home there wakes. */
static void who_is_at_home_takes_a_pcpu_back_from_a_stray(void)
{
	struct task_struct *resident;

	g = fake_nodes(4, 2);
	kernel_busy_vm(g, 1, 2, 1000);
	go_home(1, NODE_1);
	kernel_busy_vm(g, 2, 1, 1000);
	kernel_run(g, 10 * MS);
	CHECK_EQ(kernel_vm(g, 2)->nr_waiting, 0);
	go_home(2, NODE_1); /* it is not one of two there */
	resident = vcpu(3, NODE_0, 0);
	kernel_wake(g, vcpu(4, NODE_0, 1));
	kernel_run(g, 10 * MS);
	/* None of those that run is ahead of it by shares. */
	for (u32 tgid = 1; tgid <= 4; tgid++)
		kernel_vm(g, tgid)->vtime_ns = kernel_vm(g, 3)->vtime_ns;
	CHECK_EQ(wakes(resident)->state, TASK_RUNNING);
	CHECK(resident->pcpu < 2);
}

/* Each of four busy vCPUs begins on a pCPU of the other's home, and nothing is ever idle. */
static void who_runs_in_each_others_home_changes_places(void)
{
	g = fake_nodes(4, 2);
	for (u32 i = 0; i < 4; i++) {
		kernel_busy_vm(g, i + 1, 1, 1000);
		kernel_run(g, MS);
	}
	for (u32 i = 0; i < 4; i++) {
		struct task_struct *runs = g->pcpu[i].current;

		go_home(runs->tgid, i < 2 ? NODE_1 : NODE_0);
	}
	kernel_run(g, SECOND);
	for (u32 tgid = 1; tgid <= 4; tgid++) {
		CHECK(kernel_vm(g, tgid)->counters.home_run_ns > 950 * MS);
		CHECK(kernel_cpu_time_ns(g, tgid) > 990 * MS);
	}
	/* Who comes preempts, and need not wait for the end of a slice. */
	CHECK(kernel_longest_wait_ns(g) < MS);
}

/* Two LLCs of one node, of two pCPUs each; home is the second. */
static void an_llc_is_a_home_like_a_node(void)
{
	g = fake_nodes(4, 2);
	g->d.domain[1].node = NODE_0;
	topology_settle(&g->d);
	CHECK_EQ(topology_hops(&g->d, 0, 1), 1);
	CHECK(wakes(vcpu(1, NODE_0 | 2U << HOME_LLC_SHIFT, 0))->pcpu >= 2);
	CHECK(wakes(vcpu(2, NODE_0 | 2U << HOME_LLC_SHIFT, 1))->pcpu >= 2);
	CHECK(wakes(vcpu(3, NODE_0 | 2U << HOME_LLC_SHIFT, 1))->pcpu < 2); /* it is full */
}

/* The search begins at that place and goes up. */
static void a_pcpu_at_home_is_one_that_is_online(void)
{
	g = fake_nodes(4, 1);
	kernel_offline(g, 1);
	CHECK_EQ(home_pcpu(&g->d, 0, 0), 0);
	CHECK_EQ(home_pcpu(&g->d, 0, 1), 2);
	kernel_offline(g, 3);
	CHECK_EQ(home_pcpu(&g->d, 0, 3), 0);
	CHECK_EQ(home_pcpu(&g->d, 1, 0), PCPU_NONE);
}

/* A busy VM of one vCPU that begins on that pCPU; without a home. */
static struct task_struct *begins(u32 tgid, u32 pcpu)
{
	struct task_struct *task = kernel_thread(g, tgid, THREAD_VCPU);

	task->pcpu = pcpu;
	kernel_set_affinity(g, task, ALL_PCPUS);
	return wakes(task);
}

/* Two LLCs of two pCPUs each, of one node or of two. */
static void two_llcs(bool one_node)
{
	g = fake_nodes(4, 2);
	if (one_node)
		g->d.domain[1].node = NODE_0;
	topology_settle(&g->d);
	g->now_ns += SPREAD_LLC_NS;
	g->next_tick_ns += SPREAD_LLC_NS;
}

static void who_shares_an_llc_goes_to_an_idle_one_of_the_node(void)
{
	struct task_struct *a, *b;

	for (u32 one_node = 0; one_node < 2; one_node++) {
		two_llcs(one_node);
		a = begins(1, 0);
		b = begins(2, 1);
		CHECK_EQ(node_of(a), node_of(b));
		kernel_run(g, 8 * MS);
		CHECK_EQ(node_of(a) != node_of(b), one_node);
	}
	/* Who is at home in one LLC stays there. */
	two_llcs(true);
	a = wakes(vcpu(1, NODE_0 | 1U << HOME_LLC_SHIFT, 0));
	b = wakes(vcpu(2, NODE_0 | 1U << HOME_LLC_SHIFT, 1));
	kernel_run(g, 4 * SECOND);
	CHECK(node_of(a) == NODE_0 && node_of(b) == NODE_0);
}

static void whose_home_is_that_llc_stays_although_another_is_idle(void)
{
	two_llcs(true);
	for (u32 i = 0; i < 2; i++)
		wakes(vcpu(i + 1, NODE_0 | 1U << HOME_LLC_SHIFT, i));
	kernel_run(g, 4ULL * SECOND);
	for (u32 i = 0; i < 2; i++)
		CHECK_NEAR(kernel_vm(g, i + 1)->counters.home_run_ns, 4ULL * SECOND, MS);
}

static void three_have_the_emptier_llc_in_turn_and_seldom_move(void)
{
	struct task_struct *busy[3];
	u32 alone[3] = {0};
	u32 moves = 0;

	two_llcs(true);
	for (u32 i = 0; i < 3; i++)
		busy[i] = begins(i + 1, i);
	for (u32 step = 0; step < 600; step++) {
		u32 before[3];

		for (u32 i = 0; i < 3; i++)
			before[i] = node_of(busy[i]);
		kernel_run(g, 100 * MS);
		for (u32 i = 0; i < 3; i++) {
			moves += node_of(busy[i]) != before[i];
			alone[i] += node_of(busy[i]) != node_of(busy[(i + 1) % 3]) &&
				    node_of(busy[i]) != node_of(busy[(i + 2) % 3]);
		}
	}
	CHECK(moves > 20 && moves <= 30);
	for (u32 i = 0; i < 3; i++)
		CHECK(alone[i] > 100 && alone[i] < 300);
}

/* A VM of four vCPUs, two on each of two nodes; the numbers have a gap, as APIC ids have. */
static void parts_of_a_wide_vm_live_on_a_node_each(void)
{
	static const u16 number[] = {0, 1, 4, 5};
	struct task_struct *vcpus[4];
	struct home_order order = {.parts = 2};

	g = fake_nodes(4, 2);
	for (u32 i = 0; i < 4; i++) {
		vcpus[i] = kernel_thread(g, 1, THREAD_VCPU);
		vcpus[i]->pcpu = 3 - i;
		kernel_set_affinity(g, vcpus[i], ALL_PCPUS);
		vcpu_at(&g->d, vcpus[i]->thread.record)->vcpu_id = number[i];
	}
	order.slot = g->slot_of[1];
	order.vm_id = kernel_vm(g, 1)->id;
	for (order.part = 0; order.part < 2; order.part++) {
		order.home = order.part ? NODE_1 : NODE_0;
		CHECK(order_home(&g->d, &order));
	}
	for (u32 i = 0; i < 4; i++)
		CHECK_EQ(wakes(vcpus[i])->pcpu / 2, i / 2);
	kernel_run(g, SECOND);
	CHECK_EQ(kernel_vm(g, 1)->counters.home_run_ns, kernel_cpu_time_ns(g, 1));
	/* And it has one home again. */
	order = (struct home_order){order.slot, NODE_1, order.vm_id, 0, 1};
	CHECK(order_home(&g->d, &order));
	CHECK(home_is_away(&g->d, &vcpus[0]->thread, 0) &&
	      home_is_away(&g->d, &vcpus[3]->thread, 0));
}

/* Three quarters of the demand are at home on one half of the host. */
static void shares_hold_whatever_homes_there_are(void)
{
	u64 all_ns = 4 * 4 * SECOND;

	g = fake_nodes(4, 2);
	for (u32 tgid = 1; tgid <= 4; tgid++) {
		kernel_busy_vm(g, tgid, 2, tgid == 1 ? 4000 : 2000);
		go_home(tgid, tgid < 4 ? NODE_0 : NODE_1);
	}
	kernel_run(g, 4 * SECOND);
	CHECK_NEAR(kernel_cpu_time_ns(g, 1), all_ns * 2 / 5, all_ns / 100);
	for (u32 tgid = 2; tgid <= 4; tgid++)
		CHECK_NEAR(kernel_cpu_time_ns(g, tgid), all_ns / 5, all_ns / 100);
	CHECK(kernel_longest_wait_ns(g) < 100 * MS);
	/* And who has room at home is there mostly. */
	CHECK(kernel_vm(g, 4)->counters.home_run_ns > kernel_cpu_time_ns(g, 4) * 8 / 10);
}

static void a_reservation_is_served_wherever_home_is(void)
{
	g = fake_nodes(4, 2);
	for (u32 tgid = 1; tgid <= 4; tgid++) {
		kernel_busy_vm(g, tgid, tgid == 1 ? 1 : 3, 0);
		go_home(tgid, NODE_0);
	}
	kernel_vm(g, 1)->asked.reservation_mcpu = 900;
	kernel_settle_vm(g, 1);
	kernel_run(g, 2 * SECOND);
	CHECK(kernel_cpu_time_ns(g, 1) >= 2 * SECOND * 89 / 100);
}

static void who_is_confined_is_left_there(void)
{
	struct task_struct *task;

	g = fake_nodes(4, 2);
	task = vcpu(1, NODE_1, 0);
	kernel_set_affinity(g, task, 0x7);
	wakes(task);
	kernel_run(g, 50 * MS);
	CHECK(task->pcpu == 0);
}

static void with_home_offline_it_runs_where_it_can(void)
{
	struct task_struct *task;

	g = fake_nodes(4, 2);
	task = wakes(vcpu(1, NODE_1, 0));
	kernel_offline(g, 2);
	kernel_offline(g, 3);
	kernel_run(g, 50 * MS);
	CHECK(kernel_cpu_time_ns(g, 1) >= 49 * MS && node_of(task) == NODE_0);
	kernel_online(g, 3);
	kernel_run(g, 10 * MS);
	CHECK(task->pcpu == 3);
}

static void an_order_for_one_that_is_gone_reaches_nobody(void)
{
	struct home_order order = {.slot = 1, .home = NODE_1};

	g = fake_nodes(4, 2);
	kernel_thread(g, 1, THREAD_VCPU);
	CHECK(!order_home(&g->d, &order)); /* another id */
	order.slot = DROVER_HOST_SLOT;
	order.vm_id = vm_at(&g->d, 0)->id;
	CHECK(!order_home(&g->d, &order));
	CHECK(!g->d.homes && !kernel_vm(g, 1)->home);
}

int main(void)
{
	RUN(who_wakes_runs_at_home);
	RUN(with_home_full_it_runs_elsewhere_at_once);
	RUN(with_the_host_full_it_waits_at_home);
	RUN(it_goes_home_at_the_next_tick);
	RUN(while_home_is_full_it_is_left_where_it_runs);
	RUN(an_idle_pcpu_elsewhere_takes_who_waits_at_home);
	RUN(nobody_waits_at_home_who_may_preempt_elsewhere);
	RUN(to_take_one_from_home_is_worth_twice_the_gain);
	RUN(a_near_node_comes_before_a_far_one);
	RUN(who_is_at_home_takes_a_pcpu_back_from_a_stray);
	RUN(who_runs_in_each_others_home_changes_places);
	RUN(an_llc_is_a_home_like_a_node);
	RUN(who_shares_an_llc_goes_to_an_idle_one_of_the_node);
	RUN(whose_home_is_that_llc_stays_although_another_is_idle);
	RUN(a_pcpu_at_home_is_one_that_is_online);
	RUN(three_have_the_emptier_llc_in_turn_and_seldom_move);
	RUN(parts_of_a_wide_vm_live_on_a_node_each);
	RUN(shares_hold_whatever_homes_there_are);
	RUN(a_reservation_is_served_wherever_home_is);
	RUN(who_is_confined_is_left_there);
	RUN(with_home_offline_it_runs_where_it_can);
	RUN(an_order_for_one_that_is_gone_reaches_nobody);
	return check_done();
}

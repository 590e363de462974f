// SPDX-License-Identifier: GPL-2.0-only
/* A tree of pools, and what it entitles to: policy/entitle/pool.h and the files of entitlement. */
#include "fake_kernel.h"

static struct ground *g;

/* --- what is owed, computed here in another way: level by bisection, from the root down --- */

#define NODES 64
#define NONE 0xffffffffu

/* Node 0 is the root; a VM's number is its tgid, a pool's its place in the kernel's table. */
static struct node {
	u32 parent; /* NONE: there is no such node */
	u32 pool;   /* != 0: it is this pool */
	u32 tgid;   /* != 0: it is this VM */
	u32 shares;
	double floor; /* pCPUs: reserved, and, for a pool, in it */
	double most;  /* wanted and within limits */
	double owed;
} node[NODES];
static u32 nr_nodes;

static void gather(u32 at)
{
	double floor = 0, most = 0;

	if (node[at].tgid)
		return;
	for (u32 i = 1; i < nr_nodes; i++) {
		if (node[i].parent != at)
			continue;
		gather(i);
		floor += node[i].floor < node[i].most ? node[i].floor : node[i].most;
		most += node[i].most;
	}
	node[at].floor = floor > node[at].floor ? floor : node[at].floor;
	node[at].most = most < node[at].most ? most : node[at].most;
}

static double held(const struct node *n, double level)
{
	double amount = level * n->shares;

	amount = amount < n->floor ? n->floor : amount;
	return amount > n->most ? n->most : amount;
}

static void pour(u32 at)
{
	double low = 0, high = 100;

	for (u32 round = 0; round < 100; round++) {
		double level = (low + high) / 2, sum = 0;

		for (u32 i = 1; i < nr_nodes; i++)
			if (node[i].parent == at)
				sum += node[i].owed = held(&node[i], level);
		*(sum > node[at].owed ? &high : &low) = level;
	}
	for (u32 i = 1; i < nr_nodes; i++)
		if (node[i].parent == at && node[i].pool)
			pour(i);
}

static void entitle_nodes(u32 nr_pcpus)
{
	node[0].most = nr_pcpus;
	gather(0);
	node[0].owed = nr_pcpus < node[0].most ? nr_pcpus : node[0].most;
	pour(0);
}

/* --- making trees, here and in the policy --- */

static void a_host(u32 nr_pcpus)
{
	g = fake_ground(nr_pcpus, 1);
	memset(node, 0, sizeof(node));
	nr_nodes = 1;
	node[0].parent = NONE;
}

static u32 a_pool(u32 parent, u32 shares, u32 reservation_mcpu, u32 limit_mcpu)
{
	u32 at = nr_nodes++;
	struct pool *pool = pool_at(&g->d, at);

	CHECK(at < NODES);
	node[at] = (struct node){
		.parent = parent,
		.pool = at,
		.shares = shares,
		.floor = reservation_mcpu / 1000.0,
		.most = limit_mcpu ? limit_mcpu / 1000.0 : 1000,
	};
	*pool = (struct pool){
		.live = 1,
		.parent = parent,
		.shares = shares,
		.reservation_mcpu = reservation_mcpu,
		.limit_mcpu = limit_mcpu,
	};
	kernel_settle_pools(g);
	return at;
}

struct terms {
	u32 shares, vcpus, duty, reservation_mcpu, limit_mcpu;
};

/* Each of its vCPUs has work for so many percent of every 10 ms. */
static void has_duty(u32 tgid, u32 duty)
{
	for (u32 i = 0; i < FAKE_TASKS; i++) {
		struct task_struct *task = &g->task[i];

		if (task->state == TASK_NONE || task->tgid != tgid)
			continue;
		task->burst_ns = duty < 100 ? duty * 100 * US : NEVER;
		task->period_ns = duty < 100 ? 10 * MS : 0;
		task->period_end_ns = g->now_ns;
		if (task->burst_left_ns > task->burst_ns || duty == 100)
			task->burst_left_ns = task->burst_ns;
		if (task->state == TASK_ASLEEP && task->wakes_at_ns == NEVER)
			kernel_wake(g, task);
	}
}

static void wants(u32 at, struct terms terms)
{
	double demand = terms.vcpus * terms.duty / 100.0;
	double limit = terms.limit_mcpu ? terms.limit_mcpu / 1000.0 : 1000;

	node[at].floor = terms.reservation_mcpu / 1000.0;
	node[at].most = demand < limit ? demand : limit;
	has_duty(node[at].tgid, terms.duty);
}

static u32 a_vm(u32 pool, struct terms terms)
{
	u32 at = nr_nodes++, tgid = 1;

	while (g->slot_of[tgid])
		tgid++;
	CHECK(at < NODES && tgid < FAKE_PROCESSES);
	node[at] = (struct node){.parent = pool, .tgid = tgid, .shares = terms.shares};
	for (u32 i = 0; i < terms.vcpus; i++)
		kernel_thread(g, tgid, THREAD_VCPU);
	kernel_vm(g, tgid)->shares_asked = terms.shares;
	kernel_vm(g, tgid)->reservation_mcpu = terms.reservation_mcpu;
	kernel_vm(g, tgid)->limit_mcpu = terms.limit_mcpu;
	kernel_vm(g, tgid)->pool = pool;
	kernel_settle_vm(g, tgid);
	wants(at, terms);
	return at;
}

static u32 busy(u32 pool, u32 shares, u32 vcpus)
{
	return a_vm(pool, (struct terms){.shares = shares, .vcpus = vcpus, .duty = 100});
}

/* Let it run; how many VMs get what they are owed only to within more than so many points? */
static u32 count_off(u32 nr_pcpus, u64 duration_ns, double points)
{
	u64 before_ns[NODES];
	u32 off = 0;

	entitle_nodes(nr_pcpus);
	for (u32 i = 1; i < nr_nodes; i++)
		before_ns[i] = node[i].tgid ? kernel_cpu_time_ns(g, node[i].tgid) : 0;
	kernel_run(g, duration_ns);
	for (u32 i = 1; i < nr_nodes; i++) {
		double got = node[i].tgid ?
				     (double)(kernel_cpu_time_ns(g, node[i].tgid) - before_ns[i]) /
					     (double)duration_ns :
				     0;

		if (!node[i].tgid)
			continue;
		CHECK_NEAR(100 * got / nr_pcpus, 100 * node[i].owed / nr_pcpus, 2 * points);
		off += got - node[i].owed > points * nr_pcpus / 100 ||
		       node[i].owed - got > points * nr_pcpus / 100;
	}
	return off;
}

static void check_owed(u32 nr_pcpus, u64 duration_ns, double points)
{
	CHECK_EQ(count_off(nr_pcpus, duration_ns, points), 0);
}

static void pools_divide_before_what_is_in_them_does(void)
{
	u32 a, b;

	a_host(4);
	a = a_pool(0, 1000, 0, 0);
	b = a_pool(0, 1000, 0, 0);
	busy(a, 1000, 4);
	busy(a, 1000, 4);
	busy(b, 1000, 4);
	kernel_run(g, 100 * MS);
	check_owed(4, 2 * SECOND, 0.5);
	CHECK_NEAR(node[5].owed, 2.0, 0.01);
}

static void what_a_vm_leaves_is_its_siblings_first(void)
{
	u32 a;

	a_host(4);
	a = a_pool(0, 1000, 0, 0);
	busy(a, 1000, 4);
	a_vm(a, (struct terms){.shares = 1000, .vcpus = 2, .duty = 20});
	busy(a_pool(0, 1000, 0, 0), 1000, 4);
	kernel_run(g, 200 * MS);
	check_owed(4, 2 * SECOND, 1.0);
	CHECK_NEAR(node[2].owed, 1.6, 0.01);
}

static void a_reservation_is_taken_from_siblings_first(void)
{
	u32 a;

	a_host(4);
	a = a_pool(0, 1000, 0, 0);
	busy(a, 3000, 4);
	a_vm(a, (struct terms){.shares = 1, .vcpus = 2, .duty = 100, .reservation_mcpu = 1500});
	busy(a_pool(0, 1000, 0, 0), 1000, 4);
	kernel_run(g, 200 * MS);
	check_owed(4, 2 * SECOND, 1.0);
	CHECK_NEAR(node[2].owed, 0.5, 0.01);
}

static void a_pool_has_its_reservation_for_whoever_wants_it(void)
{
	u32 a;

	a_host(4);
	a = a_pool(0, 100, 3000, 0);
	busy(a, 1000, 2);
	busy(a, 2000, 4);
	busy(0, 10000, 4);
	kernel_run(g, 200 * MS);
	check_owed(4, 2 * SECOND, 1.0);
	CHECK_NEAR(node[2].owed, 1.0, 0.01);
}

/* For as long as tasks of the host take all but what is reserved, the others are owed nothing. */
static void what_is_charged_beside_a_storm_is_no_lasting_debt(void)
{
	struct task_struct *storm[16];
	u64 before_ns;
	u32 a;

	a_host(4);
	a = a_pool(0, 1000, 0, 0);
	a_vm(a, (struct terms){.shares = 2000, .vcpus = 2, .duty = 100, .reservation_mcpu = 1415});
	busy(a, 2500, 5);
	a = busy(a, 500, 1);
	for (u32 i = 0; i < 16; i++) {
		storm[i] = kernel_thread(g, 0, THREAD_HOST);
		kernel_wake(g, storm[i]);
	}
	kernel_run(g, 60 * MS);
	/* As if pCPUs had been free for it for two slices more. */
	kernel_vm(g, node[a].tgid)->vtime_ns += share_weigh(kernel_vm(g, node[a].tgid), 16 * MS);
	CHECK(kernel_vm(g, node[a].tgid)->vtime_ns - g->d.domain[0].clock_ns > SECOND);
	kernel_exit_threads(g, 0, 16);
	before_ns = kernel_cpu_time_ns(g, node[a].tgid);
	kernel_run(g, 500 * MS);
	CHECK_NEAR((double)(kernel_cpu_time_ns(g, node[a].tgid) - before_ns) / MS, 200, 40);
}

/* Soak, seed 4124143: a sibling was passed over for 226 ms, its VM's leaf was that late. */
static void who_is_owed_more_stands_where_that_puts_it(void)
{
	u32 slot;

	a_host(1);
	slot = g->slot_of[node[busy(a_pool(0, 1000, 0, 0), 1, 2)].tgid];
	kernel_run(g, SECOND);
	/* With what its running thread was not charged for yet. */
	g->now_ns += MS;
	CHECK(share_uncharged_ns(vm_at(&g->d, slot), g->now_ns) > 0);
	next_of_all(&g->d, 0);
	CHECK(tournament_before(tournament_key(vm_at(&g->d, slot)->vtime_ns, slot),
				tournament_leaf(&ground_runqueue(&g->d, 0)->by_share, slot)));
	entitle_reweigh(&g->d, slot, vm_at(&g->d, slot)->share_inverse / 100);
	CHECK_EQ(tournament_leaf(&ground_runqueue(&g->d, 0)->by_share, slot),
		 tournament_key(vm_at(&g->d, slot)->vtime_ns, slot));
}

/* scenarios/pools-departments.toml, prod low: one vCPU that is owed most of a pCPU can make up for
 * little. */
static void one_vcpu_beside_limits_has_what_it_is_owed(void)
{
	u32 prod, web, db, test;

	a_host(4);
	prod = a_pool(0, 2000, 0, 0);
	web = a_pool(prod, 6000, 0, 2000);
	db = a_pool(prod, 2000, 0, 0);
	test = a_pool(0, 4000, 0, 1500);
	busy(web, 2000, 2);
	busy(db, 2000, 2);
	busy(test, 4000, 4);
	a_vm(test, (struct terms){.shares = 2000, .vcpus = 2, .duty = 100, .limit_mcpu = 500});
	busy(0, 1000, 1);
	kernel_run(g, 200 * MS);
	check_owed(4, 4 * SECOND, 2.0);
}

/* 2000 of 5000 shares of 4 pCPUs: 1.6 pCPUs, of which one vCPU can use 1, and two of them all. */
static void what_can_all_be_used_is_as_good_as_promised(void)
{
	u32 pool, one, two;

	a_host(4);
	pool = a_pool(0, 2000, 0, 0);
	one = busy(pool, 1000, 1);
	two = busy(0, 3000, 4);
	kernel_run(g, 200 * MS);
	CHECK_NEAR(1000.0 * (1 << SHARE_INVERSE_SHIFT) /
			   (double)kernel_vm(g, node[one].tgid)->reserve_inverse,
		   1000, 1);
	CHECK_EQ(kernel_vm(g, node[two].tgid)->reserve_inverse, 0);
	CHECK_EQ(vm_at(&g->d, DROVER_HOST_SLOT)->reserve_inverse, 0);
	CHECK_EQ(g->d.nr_reserved, 1);
	busy(pool, 1000, 2);
	kernel_run(g, 200 * MS);
	CHECK_EQ(kernel_vm(g, node[one].tgid)->reserve_inverse, 0);
	CHECK_EQ(g->d.nr_reserved, 0);
}

static void what_looks_promised_ends_with_the_last_setting(void)
{
	a_host(4);
	busy(0, 1000, 1);
	busy(a_pool(0, 1000, 0, 0), 1000, 4);
	kernel_run(g, 200 * MS);
	CHECK_EQ(g->d.nr_reserved, 1);
	kernel_vm(g, 2)->pool = 0;
	kernel_settle_vm(g, 2);
	kernel_run(g, 50 * MS);
	CHECK(!g->d.looking);
	CHECK_EQ(g->d.nr_reserved, 0);
}

/* 98 parts of a hundred of 4 pCPUs, not 4: the other VM has its two. */
static void of_what_is_nearly_all_no_more_is_promised_than_is_owed(void)
{
	u32 pool, nearly_all;

	a_host(4);
	pool = a_pool(0, 1000, 0, 0);
	nearly_all = busy(pool, 4900, 4);
	busy(pool, 100, 4);
	kernel_run(g, 200 * MS);
	CHECK_NEAR(1000.0 * (1 << SHARE_INVERSE_SHIFT) /
			   (double)kernel_vm(g, node[nearly_all].tgid)->reserve_inverse,
		   3920, 10);
	check_owed(4, 4 * SECOND, 0.5);
}

static void eight_deep(void)
{
	u32 pool = 0;

	a_host(2);
	for (u32 depth = 0; depth < POOL_DEPTH_MAX; depth++) {
		pool = a_pool(pool, 1000, 0, 0);
		busy(pool, 1000, 1);
	}
	CHECK_EQ(pool_at(&g->d, pool)->depth, POOL_DEPTH_MAX);
	kernel_run(g, 300 * MS);
	check_owed(2, 4 * SECOND, 1.5);
}

static void pools_come_in_the_order_of_the_tree_whatever_their_places(void)
{
	static const u32 parent[] = {0, 5, 0, 2, 3, 4};

	a_host(1);
	for (u32 i = 1; i <= 5; i++)
		*pool_at(&g->d, i) = (struct pool){.live = 1, .parent = parent[i], .shares = 1000};
	kernel_settle_pools(g);
	CHECK_EQ(g->d.nr_pools, 5);
	for (u32 i = 0; i < 5; i++) {
		static const u32 order[] = {2, 3, 4, 5, 1};

		CHECK_EQ(g->d.pool_order[i], order[i]);
	}
	pool_at(&g->d, 3)->live = 0;
	kernel_settle_pools(g);
	/* What was in it counts as in the root. */
	CHECK_EQ(pool_at(&g->d, 4)->depth, 1);
	CHECK_EQ(g->d.nr_pools, 4);
}

static void pools_in_a_circle_do_no_harm(void)
{
	a_host(1);
	*pool_at(&g->d, 1) = (struct pool){.live = 1, .parent = 2, .shares = 1000};
	*pool_at(&g->d, 2) = (struct pool){.live = 1, .parent = 1, .shares = 1000};
	kernel_settle_pools(g);
	nr_nodes = 3;
	node[1].parent = node[2].parent = NONE;
	busy(1, 1000, 1);
	busy(0, 1000, 1);
	kernel_run(g, SECOND);
	CHECK(kernel_cpu_time_ns(g, 1) > 300 * MS);
	CHECK(kernel_cpu_time_ns(g, 2) > 300 * MS);
}

static void promises_that_do_not_fit_any_more_shrink_alike(void)
{
	a_host(4);
	a_vm(0, (struct terms){.shares = 1000, .vcpus = 2, .duty = 100, .reservation_mcpu = 2000});
	a_vm(0, (struct terms){.shares = 1000, .vcpus = 2, .duty = 100, .reservation_mcpu = 1000});
	busy(0, 1000000, 4);
	kernel_run(g, SECOND);
	kernel_offline(g, 1);
	kernel_offline(g, 2);
	node[1].floor = 4.0 / 3;
	node[2].floor = 2.0 / 3;
	kernel_run(g, 200 * MS);
	check_owed(2, 2 * SECOND, 2.0);
	CHECK_NEAR(g->d.promise_scale, 1024 * 2 / 3, 1);
}

/* All are busy: what each is owed, if it wants all, is what it is owed. Soon, and for good. */
static void check_entitled(u32 nr_pcpus)
{
	entitle_nodes(nr_pcpus);
	kernel_run(g, 60 * MS);
	for (u32 i = 1; i < nr_nodes; i++)
		if (node[i].tgid && node[i].parent != NONE)
			CHECK_NEAR(kernel_vm(g, node[i].tgid)->entitled_ucpu / 1e6, node[i].owed,
				   0.01);
}

/* Where nobody's wants move, looks go on only because of these. */
static void on_a_host_that_is_always_busy_entitlements_follow_what_changes(void)
{
	u32 a, b, vm;

	a_host(4);
	a = a_pool(0, 1000, 0, 0);
	b = a_pool(0, 3000, 0, 0);
	vm = busy(a, 1000, 2);
	busy(a, 1000, 2);
	busy(b, 1000, 2);
	busy(b, 2000, 2);
	kernel_run(g, SECOND);
	check_entitled(4);

	node[vm].shares = kernel_vm(g, node[vm].tgid)->shares_asked = 3000;
	kernel_settle_vm(g, node[vm].tgid);
	check_entitled(4);

	node[b].shares = pool_at(&g->d, b)->shares = 1000;
	kernel_settle_pools(g);
	check_entitled(4);

	kernel_offline(g, 3);
	check_entitled(3);
	kernel_online(g, 3);
	check_entitled(4);

	kernel_exit_threads(g, node[vm].tgid, 2);
	node[vm].parent = NONE;
	node[vm].tgid = 0;
	check_entitled(4);
}

/* Two pools of one busy vCPU each on one pCPU, beside `nr_idle` pools, and a task of the host's. */
static struct task_struct *a_tree_beside_a_task(u32 nr_idle)
{
	struct task_struct *task;

	a_host(1);
	for (u32 i = 0; i < 2; i++)
		busy(a_pool(0, 1000, 0, 0), 1000, 1);
	for (u32 i = 0; i < nr_idle; i++)
		a_pool(0, 1000, 0, 0);
	task = kernel_thread(g, 0, THREAD_HOST);
	kernel_run(g, SECOND);
	return task;
}

/* How long after the task begins to take a fiftieth of the pCPU is that taken into account? */
static u64 noticed_after_ns(u32 nr_idle)
{
	struct task_struct *task = a_tree_beside_a_task(nr_idle);
	u64 begun_ns = g->now_ns;

	CHECK_EQ(vm_at(&g->d, DROVER_HOST_SLOT)->most_ucpu, 0);
	task->burst_ns = task->burst_left_ns = 20 * US;
	task->sleep_ns = 980 * US;
	kernel_wake(g, task);
	while (!vm_at(&g->d, DROVER_HOST_SLOT)->most_ucpu && g->now_ns < begun_ns + 10 * SECOND)
		kernel_run(g, MS);
	return g->now_ns - begun_ns;
}

/* What takes longer to divide is divided anew for as much more. */
static void who_wants_a_little_more_counts_when_it_is_worth_the_work(void)
{
	u64 small_ns = noticed_after_ns(0), large_ns = noticed_after_ns(NODES - 8);

	/* 21 us for each of 5 and of 61: an eighth of a fiftieth of a pCPU for 42 and 512 ms. */
	CHECK(small_ns > 40 * MS && small_ns < 80 * MS);
	CHECK(large_ns > 500 * MS && large_ns < 560 * MS);
}

/* A whole pCPU is worth the work of any tree. */
static void who_falls_asleep_counts_at_the_next_looks(void)
{
	u32 left;

	a_tree_beside_a_task(NODES - 8);
	left = g->pcpu[0].current->tgid == 1 ? 2 : 1;
	kernel_sleep(g, 0);
	kernel_run(g, 40 * MS);
	CHECK(kernel_vm(g, left)->entitled_ucpu > 600000);
	kernel_run(g, 110 * MS);
	CHECK(kernel_vm(g, left)->entitled_ucpu > 950000);
}

/* To another class of the kernel's, say: it has not slept, and wants nothing of us any more. */
static void who_leaves_wants_nothing_at_the_next_looks(void)
{
	struct task_struct *leaver;
	u32 slot;

	a_host(2);
	busy(0, 1000, 2);
	busy(0, 1000, 2);
	slot = g->slot_of[1];
	kernel_vm(g, 1)->reservation_mcpu = 100;
	kernel_settle_vm(g, 1);
	kernel_run(g, SECOND);
	/* All is known of it: it is not measured again before something changes. */
	CHECK_EQ(kernel_vm(g, 1)->wanted_ucpu, 2000000);
	CHECK(!(g->d.stirred[0] >> slot & 1));
	for (u32 ms = 0; ms < 100 && !kernel_vm(g, 1)->nr_waiting; ms++)
		kernel_run(g, MS);
	leaver = fake_first(g, ground_vm_queue(&g->d, slot, 0), FAKE_PCPUS);
	CHECK(leaver);
	drover_leaving(&g->d, &leaver->thread);
	leaver->queue = NO_QUEUE;
	leaver->state = TASK_ASLEEP;
	kernel_run(g, SECOND);
	CHECK_NEAR(kernel_vm(g, 1)->wanted_ucpu, 1e6, 1e4);
}

static void without_settings_nobody_looks(void)
{
	a_host(2);
	busy(0, 1000, 2);
	busy(0, 3000, 2);
	CHECK(!g->d.looking && g->next_look_ns == NEVER);
	a_vm(a_pool(0, 500, 0, 0), (struct terms){.shares = 1000, .vcpus = 1, .duty = 100});
	kernel_run(g, SECOND);
	CHECK(g->d.looking);
	/* Back to the root: weights by shares again. */
	kernel_vm(g, 3)->pool = 0;
	kernel_settle_vm(g, 3);
	kernel_run(g, 20 * MS);
	CHECK(!g->d.looking && g->next_look_ns == NEVER);
	CHECK_EQ(kernel_vm(g, 2)->share_inverse, (1000u << SHARE_INVERSE_SHIFT) / 3000);
}

/* --- random trees --- */

static struct terms random_terms(u32 nr_pcpus, double *left)
{
	struct terms terms = {
		.shares = check_random_in(500, 4000),
		.vcpus = check_random_in(1, nr_pcpus),
		.duty = check_chance(60) ? 100 : check_random_in(5, 60),
	};
	double reserved = check_chance(70) ? 0 : *left * check_random_in(5, 40) / 100;

	if (reserved > terms.vcpus)
		reserved = terms.vcpus;
	terms.reservation_mcpu = (u32)(1000 * reserved);
	*left -= reserved;
	return terms;
}

static void a_random_tree(u32 nr_pcpus, u32 *vm, struct terms *terms, u32 *nr_vms)
{
	double left = 0.8 * nr_pcpus;
	u32 pool[12] = {0}, nr_pools = 1;

	a_host(nr_pcpus);
	for (u32 i = check_random_in(2, 3); i; i--)
		pool[nr_pools++] = a_pool(0, check_random_in(500, 4000), 0, 0);
	for (u32 i = check_random_in(1, 4); i; i--) {
		u32 reserved = check_chance(70) ? 0 : (u32)(1000 * left / 4);

		left -= reserved / 1000.0;
		pool[nr_pools] = a_pool(pool[check_random_in(1, nr_pools - 1) % 3 + 1],
					check_random_in(500, 4000), reserved, 0);
		nr_pools++;
	}
	*nr_vms = check_random_in(6, 12);
	for (u32 i = 0; i < *nr_vms; i++) {
		terms[i] = random_terms(nr_pcpus, &left);
		vm[i] = a_vm(pool[check_random_in(0, nr_pools - 1)], terms[i]);
	}
}

/*
 * Within 2 points of the host; one VM in a hundred within 4: one of a single vCPU that is
 * owed a whole pCPU can make up for no wait, and one whose siblings' reservations leave
 * next to nothing has what is left of their measuring.
 */
static void random_trees_with_changing_demand_give_what_they_entitle_to(void)
{
	u32 off = 0, all = 0;

	for (u32 run = 0; run < 24; run++) {
		u32 nr_pcpus = check_random_in(2, 6), nr_vms, vm[12];
		struct terms terms[12];

		a_random_tree(nr_pcpus, vm, terms, &nr_vms);
		for (u32 phase = 0; phase < 3; phase++) {
			/* A new start for what is computed here, from what was asked. */
			for (u32 i = 1; i < nr_nodes; i++)
				if (node[i].pool) {
					struct pool *pool = pool_at(&g->d, i);

					node[i].floor = pool->reservation_mcpu / 1000.0;
					node[i].most = 1000;
				}
			for (u32 i = 0; i < nr_vms; i++) {
				if (phase && check_chance(40))
					terms[i].duty =
						check_chance(50) ? 100 : check_random_in(5, 60);
				wants(vm[i], terms[i]);
			}
			kernel_run(g, 200 * MS);
			off += count_off(nr_pcpus, 4 * SECOND, 2.0);
			all += nr_vms;
		}
	}
	CHECK_SAYING(100 * off <= all, "%u of %u VMs are off by more than 2 points", off, all);
}

int main(void)
{
	RUN(pools_divide_before_what_is_in_them_does);
	RUN(what_a_vm_leaves_is_its_siblings_first);
	RUN(a_reservation_is_taken_from_siblings_first);
	RUN(a_pool_has_its_reservation_for_whoever_wants_it);
	RUN(what_is_charged_beside_a_storm_is_no_lasting_debt);
	RUN(who_is_owed_more_stands_where_that_puts_it);
	RUN(one_vcpu_beside_limits_has_what_it_is_owed);
	RUN(what_can_all_be_used_is_as_good_as_promised);
	RUN(what_looks_promised_ends_with_the_last_setting);
	RUN(of_what_is_nearly_all_no_more_is_promised_than_is_owed);
	RUN(eight_deep);
	RUN(pools_come_in_the_order_of_the_tree_whatever_their_places);
	RUN(pools_in_a_circle_do_no_harm);
	RUN(promises_that_do_not_fit_any_more_shrink_alike);
	RUN(on_a_host_that_is_always_busy_entitlements_follow_what_changes);
	RUN(who_wants_a_little_more_counts_when_it_is_worth_the_work);
	RUN(who_falls_asleep_counts_at_the_next_looks);
	RUN(who_leaves_wants_nothing_at_the_next_looks);
	RUN(without_settings_nobody_looks);
	RUN(random_trees_with_changing_demand_give_what_they_entitle_to);
	return check_done();
}

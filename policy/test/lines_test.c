// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which cache lines are written as a vCPU wakes, runs and sleeps again beside others: its VM's, its
 * pCPU's, its domain's, and none that the whole host shares. `make lines` prints them.
 */
#include "lines.h"

static struct ground *g;

static bool is_verbose(void)
{
	const char *verbose = getenv("VERBOSE");

	return verbose && *verbose;
}

/* --- the host --- */

enum settings { SHARES = 0, RESERVATIONS = 1, LIMITS = 2, ALL_SETTINGS = 3 };

static const char *const settings_names[] = {
	"shares",
	"shares, a reservation each",
	"shares, a limit each",
	"shares, a reservation and a limit each",
};

/* Two domains of four pCPUs, and processes of one vCPU: the first sleeps, the others are busy. */
#define SUBJECT 1
#define OTHERS 12
/* The pCPU that is idle, if one is, */
#define IDLE_PCPU 3
/* where half of the others may not run; nor may the rest. */
#define BESIDE_IT 0x07ULL
#define ELSEWHERE 0xf0ULL

static struct task_struct *vcpu;

/* A VM of one vCPU, asleep, that may run on these. */
static struct task_struct *a_vm(u32 tgid, u64 allowed, enum settings settings)
{
	struct task_struct *task = kernel_thread(g, tgid, THREAD_VCPU);

	kernel_set_affinity(g, task, allowed);
	if (settings & RESERVATIONS)
		kernel_vm(g, tgid)->asked.reservation_mcpu = 100;
	if (settings & LIMITS)
		kernel_vm(g, tgid)->asked.limit_mcpu = 1000;
	kernel_settle_vm(g, tgid);
	return task;
}

/* In each domain more are busy than the pCPUs they may run on, for 120 ms now. */
static void a_crowded_host(enum settings settings, bool one_idles)
{
	g = fake_ground(8, 2);
	vcpu = a_vm(SUBJECT, ALL_PCPUS, settings);
	for (u32 i = 1; i <= OTHERS; i++) {
		u64 allowed = i % 2 ? BESIDE_IT : ELSEWHERE;

		kernel_wake(g, a_vm(SUBJECT + i, one_idles ? allowed : ALL_PCPUS, settings));
	}
	kernel_run(g, 120 * MS);
	CHECK(!vm_at(&g->d, g->slot_of[SUBJECT])->at_limit);
}

/* --- one cycle --- */

enum step { WAKES, BEGINS, TICKS, STOPS };
static const char *const steps[LINES_STEPS] = {"wakes", "begins", "tick", "stops"};

/* In so many all is done that is done now and then. */
#define CYCLES 20

static struct lines cycle; /* of one */
static struct lines cycles; /* of all */
static u32 most_lines; /* that are not the pCPU's own, of one */

static void note_since(u32 at, enum step step)
{
	struct subject of = {.slot = vcpu->thread.slot, .pcpu = at};

	write_log_end();
	lines_add(&cycle, g, of, step);
	lines_add(&cycles, g, of, step);
}

static void begins_on(u32 at)
{
	write_log_begin();
	kernel_pick(g, at);
	kernel_switch(g, at);
	note_since(at, BEGINS);
	CHECK_EQ(g->pcpu[at].current, vcpu);
}

static void runs_and_stops(u32 at)
{
	g->now_ns += MS;
	fake_count_cpu_time(g, vcpu);
	write_log_begin();
	drover_tick(&g->d, vcpu, &vcpu->thread);
	note_since(at, TICKS);
	g->now_ns += MS;
	write_log_begin();
	kernel_stop(g, at);
	note_since(at, STOPS);
}

/* The pCPU is idle, and is so again in the end. */
static void on_an_idle_pcpu(void)
{
	write_log_begin();
	kernel_wake(g, vcpu);
	note_since(IDLE_PCPU, WAKES);
	CHECK_EQ(vcpu->queue, fake_local_queue(IDLE_PCPU));
	begins_on(IDLE_PCPU);
	runs_and_stops(IDLE_PCPU);
	write_log_begin();
	kernel_pick(g, IDLE_PCPU);
	kernel_switch(g, IDLE_PCPU);
	note_since(IDLE_PCPU, STOPS);
	CHECK(g->pcpu[IDLE_PCPU].idle);
}

/* All VMs that run have had less than it, and all that wait more. */
static void is_next(void)
{
	u64 now_ns = g->d.domain[0].clock_ns;

	for (u32 tgid = SUBJECT; tgid <= SUBJECT + OTHERS; tgid++) {
		struct vm *vm = kernel_vm(g, tgid);

		vm->vtime_ns = now_ns + (vm->nr_waiting ? 40 * MS : 0);
		vm->reserve_tag_ns = g->now_ns + SECOND;
		if (tgid == SUBJECT)
			vm->vtime_ns += 30 * MS;
		waiting_settle_domains(&g->d, g->slot_of[tgid]);
	}
	/* Leaves that would be too early as it runs are put right before anybody counts. */
	g->now_ns += 10 * MS;
	for (u32 i = 0; i < 2 * OTHERS; i++)
		next_vm(&g->d, topology_pcpu(&g->d, i % 2, 0), i % 2, TOURNAMENT_NONE, BY_DEADLINE);
	g->now_ns -= 10 * MS;
}

/* It waits in its domain's queue, until somebody sleeps. */
static void after_a_wait(void)
{
	struct task_struct *before = g->pcpu[0].current;

	is_next();
	/* Nor is it behind its siblings. */
	vcpu->thread.vruntime_ns = kernel_vm(g, SUBJECT)->vruntime_floor_ns + 100 * MS;
	write_log_begin();
	kernel_wake(g, vcpu);
	note_since(0, WAKES);
	CHECK_EQ(vcpu->queue, ground_vm_queue(&g->d, vcpu->thread.slot, 0));
	g->now_ns += MS;
	kernel_stop(g, 0);
	begins_on(0);
	runs_and_stops(0);
	kernel_wake(g, before);
}

static u32 not_the_pcpus(const struct lines *lines)
{
	u32 count = 0;

	for (enum owner owner = 0; owner < OWNERS; owner++)
		count += owner == OWNER_PCPU ? 0 : lines_of(lines, owner);
	return count;
}

static void go_round(void (*once)(void))
{
	most_lines = 0;
	/* A deadline is written once, and stays for a second (wait_bound.h). */
	once();
	kernel_run(g, 10 * MS);
	memset(&cycles, 0, sizeof(cycles));
	for (u32 i = 0; i < CYCLES; i++) {
		memset(&cycle, 0, sizeof(cycle));
		once();
		if (not_the_pcpus(&cycle) > most_lines)
			most_lines = not_the_pcpus(&cycle);
		kernel_run(g, 10 * MS);
	}
}

/* --- what may be written --- */

/*
 * Of struct vm's 8 lines: vtime_ns; the sum of those that run; who waits; together; the counters.
 * Two of the vCPU's record; and that of the domain, with its clock and who is idle.
 */
#define LINES_AT_LEAST (5 + 2 + 1)
/* Who waits has an entry in the books, which are locked, and may be looked for (wait_bound.h). */
#define LINES_OF_A_WAIT (1 + 1 + 1)
/* A limit is 304 bytes, in up to six lines; and its timer. */
#define LINES_OF_A_LIMIT (6 + 1)

static u32 lines_allowed(enum settings settings, bool waits)
{
	/* A leaf, and a match at each level. */
	u32 tournament = g->d.tournament_levels + 1;
	u32 allowed = LINES_AT_LEAST;

	if (waits)
		allowed += LINES_OF_A_WAIT + tournament;
	if (waits && settings & RESERVATIONS)
		allowed += tournament;
	if (settings & LIMITS)
		allowed += LINES_OF_A_LIMIT;
	return allowed;
}

static void count_lines(enum settings settings, bool waits)
{
	u32 allowed;
	bool holds;

	a_crowded_host(settings, !waits);
	go_round(waits ? after_a_wait : on_an_idle_pcpu);
	allowed = lines_allowed(settings, waits);
	holds = !lines_of(&cycles, OWNER_ALL) && !lines_of(&cycles, OWNER_OTHERS) &&
		!lines_of(&cycles, OWNER_ABROAD) && most_lines <= allowed;
	if (!holds || is_verbose()) {
		printf("\n%s, %s: writes in %d cycles\n",
		       waits ? "It waits in the queue" : "A pCPU is idle", settings_names[settings],
		       CYCLES);
		lines_print(&cycles, steps);
		printf("%u lines in one cycle at most, its pCPU's apart\n", most_lines);
	}
	CHECK_EQ(lines_of(&cycles, OWNER_ALL), 0);
	CHECK_EQ(lines_of(&cycles, OWNER_OTHERS), 0);
	CHECK_EQ(lines_of(&cycles, OWNER_ABROAD), 0);
	CHECK_SAYING(most_lines <= allowed, "%u lines, and %u are allowed", most_lines, allowed);
}

static void who_finds_an_idle_pcpu_writes_nothing_global(void)
{
	for (enum settings settings = SHARES; settings <= ALL_SETTINGS; settings++)
		count_lines(settings, false);
}

static void who_waits_in_a_queue_writes_nothing_global(void)
{
	for (enum settings settings = SHARES; settings <= ALL_SETTINGS; settings++)
		count_lines(settings, true);
}

/* What is not seen cannot be found: plain writes, those of blocks, and each atomic operation. */
static void every_kind_of_write_is_seen(void)
{
	static const char *const written[] = {"round",        "divided",      "nr_coscheduled",
					      "round_end_ns", "allot_lapses", "vcpu_hint"};
	struct drover *d;

	a_crowded_host(SHARES, true);
	d = &g->d;
	memset(&cycle, 0, sizeof(cycle));
	write_log_begin();
	d->round = *(volatile u32 *)&d->homes;
	__sync_fetch_and_add(&d->divided, 0);
	__sync_fetch_and_sub(&d->nr_coscheduled, 0);
	__sync_val_compare_and_swap(&d->round_end_ns, ~0ULL, 0);
	__sync_lock_test_and_set(&d->allot_lapses, 0);
	__sync_fetch_and_or(&d->vcpu_hint, 0);
	__builtin_memset(vcpu_at(d, 40), 0, 2 * LINE_BYTES);
	write_log_end();
	lines_add(&cycle, g, (struct subject){.slot = DROVER_HOST_SLOT}, WAKES);
	for (u32 i = 0; i < sizeof(written) / sizeof(written[0]); i++)
		CHECK_EQ(lines_writes(&cycle, written[i]), 1);
	CHECK_EQ(lines_writes(&cycle, "homes"), 0);
	CHECK_EQ(lines_writes(&cycle, "all"), 2);
}

/* --- looking --- */

/* Locks are for those who change something: pCPUs that ask take none to see who is first. */
static void to_see_who_is_next_nothing_is_written(void)
{
	u64 key, due;

	a_crowded_host(RESERVATIONS, false);
	is_next();
	kernel_wake(g, vcpu);
	kernel_vm(g, SUBJECT)->reserve_tag_ns = g->now_ns - MS;
	waiting_settle_domains(&g->d, vcpu->thread.slot);
	memset(&cycle, 0, sizeof(cycle));
	write_log_begin();
	key = next_vm(&g->d, 0, 0, TOURNAMENT_NONE, 0);
	due = next_vm(&g->d, 0, 0, TOURNAMENT_NONE, BY_DEADLINE);
	note_since(0, BEGINS);
	CHECK_EQ(tournament_slot(key), vcpu->thread.slot);
	CHECK_EQ(tournament_slot(due), vcpu->thread.slot);
	CHECK_EQ(cycle.nr, 0);
}

/* --- a whole host --- */

/* Of all that is done on the host for so many slices: what is global. */
static void log_slices(u32 slices)
{
	struct subject of = {.slot = DROVER_HOST_SLOT};

	memset(&cycles, 0, sizeof(cycles));
	for (u32 i = 0; i < slices; i++) {
		write_log_begin();
		kernel_run(g, g->d.params.slice_ns);
		write_log_end();
		lines_add(&cycles, g, of, 0);
	}
}

/* Of what is global, how often anything else was written. */
static u32 global_writes_but(const char *const *known, u32 nr_known)
{
	u32 others = 0;

	for (u32 i = 0; i < cycles.nr; i++)
		others += cycles.part[i].owner == OWNER_ALL ? cycles.part[i].writes[0] : 0;
	for (u32 i = 0; i < nr_known; i++)
		others -= lines_writes(&cycles, known[i]);
	if (others || is_verbose())
		lines_print_of(&cycles, OWNER_ALL, 1);
	return others;
}

/* Written once a second, vm.h. */
static const char *const once_a_second[] = {"period"};

/* Preemption, ticks, balancing and the wait bound are in it, too. */
static void a_host_of_shares_writes_nothing_global(void)
{
	a_crowded_host(SHARES, false);
	vcpu->burst_ns = vcpu->burst_left_ns = MS;
	vcpu->sleep_ns = 3 * MS;
	kernel_wake(g, vcpu);
	log_slices(200);
	CHECK(vcpu->cpu_time_ns);
	CHECK_EQ(global_writes_but(once_a_second, 1), 0);
}

/* With VMs that are kept together: what is written once a round, or once a slice, and no more. */
static void rounds_write_global_lines_once_a_slice(void)
{
	static const char *const known[] = {"round", "round_end_ns", "period"};

	a_crowded_host(SHARES, false);
	vcpu->burst_ns = vcpu->burst_left_ns = MS;
	vcpu->sleep_ns = 3 * MS;
	kernel_wake(g, vcpu);
	kernel_busy_vm(g, 20, 8, 0);
	kernel_busy_vm(g, 21, 4, 0);
	kernel_run(g, 200 * MS);
	CHECK(kernel_vm(g, 20)->coscheduled && kernel_vm(g, 21)->coscheduled);
	log_slices(100);
	CHECK_EQ(global_writes_but(known, 3), 0);
	for (u32 i = 0; i < 2; i++)
		CHECK_SAYING(lines_writes(&cycles, known[i]) <= 100 + 1, "%s: %u writes", known[i],
			     lines_writes(&cycles, known[i]));
}

/*
 * VMs that are held at their limits and let go write nothing global.
 */
static void limits_that_hold_write_nothing_global(void)
{
	a_crowded_host(LIMITS, false);
	for (u32 tgid = SUBJECT + 1; tgid <= SUBJECT + OTHERS; tgid++) {
		kernel_vm(g, tgid)->asked.limit_mcpu = 300;
		kernel_settle_vm(g, tgid);
	}
	kernel_run(g, 200 * MS);
	/* What the daemon allots is left out. */
	g->next_allot_ns = NEVER;
	log_slices(100);
	CHECK_EQ(global_writes_but(once_a_second, 1), 0);
	CHECK(kernel_vm(g, SUBJECT + 1)->hold.before_ns > 200 * MS);
}

int main(void)
{
	RUN(every_kind_of_write_is_seen);
	RUN(to_see_who_is_next_nothing_is_written);
	RUN(who_finds_an_idle_pcpu_writes_nothing_global);
	RUN(who_waits_in_a_queue_writes_nothing_global);
	RUN(a_host_of_shares_writes_nothing_global);
	RUN(rounds_write_global_lines_once_a_slice);
	RUN(limits_that_hold_write_nothing_global);
	return check_done();
}

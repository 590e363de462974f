// SPDX-License-Identifier: GPL-2.0-only
/* The run queue of VMs, and who is first but for those refused: policy/queue/tournament.h,
 * refused.h. */
#include "fake_kernel.h"

static struct ground *g;

static void set(u32 slot, u64 key)
{
	tournament_set(&g->runqueue[0].by_share, g->d.tournament_levels, slot, key);
}

static u64 best(void)
{
	return tournament_best(&g->d, &g->runqueue[0].by_share);
}

static void play_all_levels(void)
{
	g = fake_ground(1, 1);
	tournament_grow(&g->d, DROVER_MAX_VMS - 1);
	CHECK_EQ(g->d.tournament_levels, DROVER_SLOT_BITS);
}

static void zeroed_memory_is_an_empty_tournament(void)
{
	g = fake_ground(1, 1);
	CHECK_EQ(best(), TOURNAMENT_NONE);
	CHECK_EQ(next_vm(&g->d, 0, 0, TOURNAMENT_NONE, 0), TOURNAMENT_NONE);
}

static void nobody_is_after_everybody(void)
{
	u64 early = tournament_key(0, 0), late = tournament_key(1ULL << 62, 0);

	CHECK(tournament_before(early, TOURNAMENT_NONE));
	CHECK(tournament_before(late, TOURNAMENT_NONE));
	CHECK(!tournament_before(TOURNAMENT_NONE, early));
	CHECK(!tournament_before(TOURNAMENT_NONE, TOURNAMENT_NONE));
}

static void nobody_is_no_vms_key(void)
{
	/* The times at which the key of slot 0 would be zero, but for the exception. */
	CHECK(tournament_key(0, DROVER_HOST_SLOT) != TOURNAMENT_NONE);
	CHECK(tournament_key(1023, DROVER_HOST_SLOT) != TOURNAMENT_NONE);
	CHECK(tournament_key(1ULL << 63, DROVER_HOST_SLOT) != TOURNAMENT_NONE);
	CHECK_EQ(tournament_slot(tournament_key(0, DROVER_HOST_SLOT)), DROVER_HOST_SLOT);
}

static void a_key_names_its_slot(void)
{
	for (u32 slot = 0; slot < DROVER_MAX_VMS; slot++)
		CHECK_EQ(tournament_slot(tournament_key(check_random(), slot)), slot);
}

static void a_tie_goes_to_the_lower_slot(void)
{
	CHECK(tournament_before(tournament_key(5 * MS, 3), tournament_key(5 * MS, 4)));
	CHECK(!tournament_before(tournament_key(5 * MS, 4), tournament_key(5 * MS, 3)));
}

static void time_wraps(void)
{
	u64 before_wrap = tournament_key((1ULL << 63) - 5 * MS, 3);
	u64 after_wrap = tournament_key((1ULL << 63) + 5 * MS, 2);

	CHECK(tournament_before(before_wrap, after_wrap));
	CHECK(!tournament_before(after_wrap, before_wrap));
}

static void check_every_match(void)
{
	u64 *node = g->runqueue[0].by_share.node;
	u64 leaf_best = TOURNAMENT_NONE;

	for (u32 at = DROVER_MAX_VMS - 1; at > 0; at--) {
		u64 left = node[2 * at], right = node[2 * at + 1];

		CHECK_EQ(node[at], tournament_before(right, left) ? right : left);
	}
	for (u32 at = DROVER_MAX_VMS; at < 2 * DROVER_MAX_VMS; at++)
		if (tournament_before(node[at], leaf_best))
			leaf_best = node[at];
	CHECK_EQ(best(), leaf_best);
}

/* Stopping at the first match that keeps its winner leaves no stale winner above. */
static void the_root_is_the_least_whatever_was_set(void)
{
	static const u64 starts[] = {0, 1ULL << 40, (1ULL << 63) - 500 * MS, 0 - 500 * MS};

	for (u32 run = 0; run < 4; run++) {
		play_all_levels();
		for (u32 i = 0; i < 4000; i++) {
			/* Few slots, so that keys are often replaced, cleared and tied. */
			u32 slot = check_random_in(0, 40) * 50 % DROVER_MAX_VMS;
			u64 vtime_ns = starts[run] + check_random_in(0, 1000) * MS;

			set(slot,
			    check_chance(25) ? TOURNAMENT_NONE : tournament_key(vtime_ns, slot));
			if (i % 16 == 0)
				check_every_match();
		}
	}
}

static void a_vm_that_leaves_hands_on_to_the_next(void)
{
	play_all_levels();
	for (u32 slot = 1; slot <= 100; slot++)
		set(slot, tournament_key(slot * MS, slot));
	for (u32 slot = 1; slot <= 100; slot++) {
		CHECK_EQ(tournament_slot(best()), slot);
		set(slot, TOURNAMENT_NONE);
	}
	CHECK_EQ(best(), TOURNAMENT_NONE);
}

/* The essay's worked example. */
static void a_leaf_that_lags_is_corrected_when_it_is_met(void)
{
	g = fake_ground(1, 1);
	tournament_grow(&g->d, 7);
	vm_at(&g->d, 3)->vtime_ns = 5 * MS;
	vm_at(&g->d, 7)->vtime_ns = 4 * MS;
	entity_rq_of(&g->runqueue[0], 3)->nr_queued = entity_rq_of(&g->runqueue[0], 7)->nr_queued =
		1;
	entity_rq_of(&g->runqueue[0], 3)->may = entity_rq_of(&g->runqueue[0], 7)->may =
		AFFINITY_ALL;
	set(3, tournament_key(5 * MS, 3));
	set(7, tournament_key(4 * MS, 7));
	CHECK_EQ(tournament_leaf(&g->runqueue[0].by_share, 3), 4882 << 11 | 3);
	CHECK_EQ(tournament_leaf(&g->runqueue[0].by_share, 7), 3906 << 11 | 7);
	CHECK_EQ(tournament_slot(best()), 7);

	vm_at(&g->d, 7)->vtime_ns = 12 * MS;
	CHECK_EQ(tournament_slot(best()), 7);
	CHECK_EQ(tournament_slot(next_vm(&g->d, 0, 0, TOURNAMENT_NONE, 0)), 3);
	CHECK_EQ(tournament_leaf(&g->runqueue[0].by_share, 7), 11718 << 11 | 7);
}

/* The first cannot be taken; of the others one has run since it was last looked at. */
static void a_leaf_that_lags_after_one_that_cannot_be_taken_is_corrected(void)
{
	u64 first;

	g = fake_ground(1, 1);
	tournament_grow(&g->d, 3);
	g->d.slots_in_use = 4;
	for (u32 slot = 1; slot <= 3; slot++) {
		entity_rq_of(&g->runqueue[0], slot)->nr_queued = 1;
		vm_at(&g->d, slot)->vtime_ns = slot * MS;
		set(slot, tournament_key(slot * MS, slot));
	}
	for (u32 slot = 1; slot <= 3; slot++)
		entity_rq_of(&g->runqueue[0], slot)->may = AFFINITY_ALL;
	first = next_vm(&g->d, 0, 0, TOURNAMENT_NONE, 0);
	CHECK_EQ(tournament_slot(first), 1);
	CHECK_EQ(tournament_slot(next_vm(&g->d, 0, 0, first, 0)), 2);
	vm_at(&g->d, 2)->vtime_ns = 4 * MS;
	CHECK_EQ(tournament_slot(next_vm(&g->d, 0, 0, first, 0)), 3);
	CHECK_EQ(tournament_slot(next_vm(&g->d, 0, 0, TOURNAMENT_NONE, 0)), 1);
}

/* Whoever is next for a pCPU is the first of those that may run there and come after the last. */
static void who_is_next_may_run_there(void)
{
	for (u32 run = 0; run < 300; run++) {
		u32 nr_slots = check_random_in(1, 40);
		u64 after = TOURNAMENT_NONE;
		u32 seen = 0, fit = 0;

		g = fake_ground(4, 2);
		tournament_grow(&g->d, nr_slots - 1);
		g->d.slots_in_use = nr_slots;
		for (u32 slot = 0; slot < nr_slots; slot++) {
			struct entity_rq *books = entity_rq_of(&g->runqueue[0], slot);

			books->nr_queued = check_chance(80);
			books->may = check_random_in(0, 3);
			books->remote = check_chance(50);
			if (books->nr_queued)
				set(slot, tournament_key(check_random_in(1, 1000) * MS, slot));
			fit += books->nr_queued && (run % 2 ? books->remote : books->may & 2);
		}
		for (;;) {
			u64 key = next_after(&g->d, run % 2 ? 3 : 1, 0, after, 0);

			if (key == TOURNAMENT_NONE)
				break;
			CHECK(after == TOURNAMENT_NONE || tournament_before(after, key));
			after = key;
			seen++;
		}
		CHECK_EQ(seen, fit);
	}
}

static void settling_follows_the_count(void)
{
	g = fake_ground(1, 1);
	tournament_grow(&g->d, 3);
	tournament_settle(&g->d, 0, 3, TOURNAMENT_NONE, tournament_key(MS, 3));
	CHECK_EQ(best(), TOURNAMENT_NONE);
	entity_rq_of(&g->runqueue[0], 3)->nr_queued = 1;
	tournament_settle(&g->d, 0, 3, TOURNAMENT_NONE, tournament_key(MS, 3));
	CHECK_EQ(best(), tournament_key(MS, 3));
	CHECK_EQ(g->runqueue[0].lock.held, 0);
}

static void who_comes_second_to_correct_a_leaf_changes_nothing(void)
{
	u64 first = tournament_key(MS, 3), second = tournament_key(9 * MS, 3);

	g = fake_ground(1, 1);
	tournament_grow(&g->d, 3);
	entity_rq_of(&g->runqueue[0], 3)->nr_queued = 1;
	tournament_settle(&g->d, 0, 3, TOURNAMENT_NONE, second);
	tournament_settle(&g->d, 0, 3, first, tournament_key(5 * MS, 3));
	CHECK_EQ(best(), second);
	tournament_settle(&g->d, 0, 3, second, first);
	CHECK_EQ(best(), first);
}

static void a_domain_that_does_not_exist_is_left_alone(void)
{
	g = fake_ground(1, 1);
	tournament_settle(&g->d, 1, 3, TOURNAMENT_NONE, tournament_key(MS, 3));
	CHECK_EQ(best(), TOURNAMENT_NONE);
}

/* Only as much is played as slots were ever in use; growing loses nobody. */
static void it_grows_with_the_slots_in_use(void)
{
	g = fake_ground(2, 2);
	for (u32 slot = 0; slot < DROVER_MAX_VMS; slot = slot * 2 + 1) {
		u64 key = tournament_key((DROVER_MAX_VMS - slot) * MS, slot);
		u64 was = best();

		tournament_grow(&g->d, slot);
		CHECK(slot < 1U << g->d.tournament_levels);
		CHECK_EQ(best(), was);
		entity_rq_of(&g->runqueue[0], slot)->nr_queued = 1;
		tournament_settle(&g->d, 0, slot, TOURNAMENT_NONE, key);
		CHECK_EQ(best(), key);
		CHECK_EQ(tournament_best(&g->d, &g->runqueue[1].by_share), TOURNAMENT_NONE);
	}
	CHECK_EQ(g->d.tournament_levels, DROVER_SLOT_BITS);
}

int main(void)
{
	RUN(zeroed_memory_is_an_empty_tournament);
	RUN(nobody_is_after_everybody);
	RUN(nobody_is_no_vms_key);
	RUN(a_key_names_its_slot);
	RUN(a_tie_goes_to_the_lower_slot);
	RUN(time_wraps);
	RUN(the_root_is_the_least_whatever_was_set);
	RUN(a_vm_that_leaves_hands_on_to_the_next);
	RUN(a_leaf_that_lags_is_corrected_when_it_is_met);
	RUN(a_leaf_that_lags_after_one_that_cannot_be_taken_is_corrected);
	RUN(who_is_next_may_run_there);
	RUN(settling_follows_the_count);
	RUN(who_comes_second_to_correct_a_leaf_changes_nothing);
	RUN(a_domain_that_does_not_exist_is_left_alone);
	RUN(it_grows_with_the_slots_in_use);
	return check_done();
}

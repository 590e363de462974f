/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Limits: the most CPU time a VM, or a pool of VMs, may have; in any 100 ms.
 *
 * Idea. Two things are kept of each limit:
 *  - tokens: CPU time that may be used at once. They come at the rate of the limit,
 *    are spent by whatever runs, and do not pile up beyond what 4 ms bring;
 *  - a record of what was used in each of the last 201 half milliseconds, which is
 *    all that 100 ms can touch wherever they begin. Together they may hold what
 *    these 100.5 ms bring, less what is expected of those who stop late. When it is full, it
 *    is known when enough of it is forgotten: nobody looks before.
 * When either is used up the limit is *spent*, and all VMs under it are held: they
 * leave the tournaments, so that no pick comes upon them, and those of their threads
 * that run are preempted. When 2 ms' worth of tokens have come, and the record has
 * room, all are let go at once, and pCPUs that rest, or run somebody who has had
 * more than his due compared with them, choose anew. So a VM runs and pauses as a
 * whole, some 400 times a second, and a vCPU that waits for a lock held by a sibling
 * at its limit waits for 2 ms or so, not for what is left of 100. What a sibling that
 * sleeps does not use is used by the others.
 *
 * Nothing happens between two events of the kernel by itself; so an alarm (alarm.h)
 * is set to when tokens will have come, or will be spent if all that run go on, and
 * anyway to a millisecond from now while anybody under a limit runs. A thread that
 * begins to run sets it to sooner if need be.
 *
 * A pool's limit is kept in the same way by the same record, of what all VMs in and
 * below it used; a VM is held while any of the limits above it is spent. But if all in a pool
 * ran at once and paused at once, pCPUs would rest in the pauses, and one vCPU that is owed
 * most of a pCPU could not make up for them. So as its tokens go, or the room in its record, a
 * pool is first *narrowed*, at half of what it is let go with: one VM goes on alone, one that
 * has lately had less than it is owed (entitle.h) before all others, else the least served.
 * At a quarter it is *low*: one goes on only if it is short, and no wider than the limit, so
 * that tokens come no slower than they go. The same steps lead up again. Who goes on is chosen
 * anew every millisecond, and when he sleeps. (Entitlement alone would hold a pool's limit in
 * the mean of a second, but neither on idle pCPUs nor in each 100 ms.)
 *
 * Of a thousand VMs under limits few matter at any moment: those whose own limit can turn
 * by then (limit_due.h), and those that run in a pool with a limit. All others are looked at
 * only when the limit of a pool turns.
 *
 * Worked example. A VM of four busy vCPUs, limited to 50 %, on four pCPUs. Tokens:
 * 1 ms when it is let go. Its four vCPUs run for 0.25 ms, and it is spent: the
 * record has 1 ms more of the 50.25 ms it may. 2 ms later it has 1 ms again. 44 times
 * in 100 ms that makes 50 ms; in some 100 ms that begin with a run it is one run more,
 * and the record puts the last one off.
 *
 * And a pool limited to 120 % on those pCPUs, with one busy vCPU that is owed 77 % and VMs of
 * two and three. Let go with 2.4 ms, all run, on four pCPUs: after 0.4 ms it is narrowed. Two
 * vCPUs of the least served then take 0.8 ms more than comes, for 0.75 ms, until it is low; and
 * now the one vCPU runs by itself, while 0.2 ms come for each ms. One pCPU is the pool's for
 * most of the time.
 *
 * What it is bad at. It is as exact as pCPUs are quick to obey: where one notices an
 * interrupt a ms late a single 100 ms may have a run too much, and the caution learnt
 * from that costs some of the limit. Looking takes time itself, some 100 us in the lab; it is
 * kept to half of one pCPU, and comes late then. A run of a wide VM with a small limit is
 * short, and each costs every pCPU two switches. A pool has some 98.5 % of its limit: others
 * use its pauses, and to go up a step takes room in the record, which is there only after
 * less was used.
 * Limits under 0.5 % come in runs of what 50 ms bring, and what one timer is late for
 * is more than 1 % of them. A thread may be held in the kernel, with a lock of the
 * host. What is used between two looks
 * is recorded as late as it can have been: a little of it is kept in mind for too long.
 *
 * After the leaky bucket (Turner 1986) and the sliding windows of rate limiters;
 * seed 000, 2.1 ("limit").
 */
#ifndef DROVER_LIMIT_H
#define DROVER_LIMIT_H

#include "alarm.h"
#include "entitle.h"
#include "limit_due.h"
#include "pool.h"
#include "waiting.h"

#define LIMIT_BIN_NS 500000ULL
/* As many bins as 100 ms touch, and what these may hold: what comes in as many, for each mcpu. */
#define LIMIT_BINS 201
#define LIMIT_RECORD_US ((s64)(LIMIT_BINS * LIMIT_BIN_NS / 1000))
/* A pool's holds more: it goes up a step when there is room for one, so it is seldom full. */
#define LIMIT_POOL_MORE_US 300
/* The tokens with which it is let go again: what so long brings, and at least so much. */
#define LIMIT_BURST_US 2000
#define LIMIT_LEAST_BURST_NS 500000
/* How many of its entries are looked at to know when it has room. */
#define LIMIT_FORESEEN 8
/* Nobody is stopped or started for less than that. */
#define LIMIT_STEP_NS 50000ULL
/* Who stopped late is remembered for so many times. */
#define LIMIT_LEARN 16
/* Who is let go in a pool may be owed as much as so many that wake up, at least. */
#define LIMIT_CLAIM_CREDITS 2
/* While anybody runs, a limit is looked at so often. */
#define LIMIT_LOOK_NS 1000000ULL
/* In so long looking takes half the time at most. */
#define LIMIT_WINDOW_NS 10000000ULL

static __always_inline struct limit *limit_of_vm(struct drover *d, u32 slot)
{
	return &d->limit[bounded(slot & (DROVER_MAX_VMS - 1), DROVER_LIMITS)];
}

static __always_inline u32 limit_of_pool(u32 pool)
{
	return DROVER_MAX_VMS + pool;
}

static __always_inline struct limit *limit_at(struct drover *d, u32 index)
{
	return &d->limit[bounded(index, DROVER_LIMITS)];
}

/* The next pool above that one that has a limit; 0: none. */
static __always_inline u32 limit_next_above(struct drover *d, u32 pool)
{
	return pool_at(d, pool_at(d, pool)->in)->capped_by;
}

/* Is the VM's own limit spent, if it has one? */
static __always_inline bool limit_own_is_spent(struct drover *d, u32 slot)
{
	return vm_at(d, slot)->limit_mcpu && limit_of_vm(d, slot)->state == LIMIT_SPENT;
}

/* What the record may hold. */
static __always_inline s64 limit_record_max_ns(u32 mcpu)
{
	return (s64)mcpu * LIMIT_RECORD_US;
}

/* With how many tokens it is let go again. */
static __always_inline s64 limit_burst_ns(u32 mcpu)
{
	s64 burst_ns = (s64)mcpu * LIMIT_BURST_US;
	s64 half_ns = limit_record_max_ns(mcpu) / 2;

	if (burst_ns < LIMIT_LEAST_BURST_NS)
		burst_ns = LIMIT_LEAST_BURST_NS;
	return burst_ns < half_ns ? burst_ns : half_ns;
}

/* The limit of the i-th of the pools that have one. */
static __always_inline struct limit *limit_of_limited_pool(struct drover *d, u32 i)
{
	return limit_at(d, limit_of_pool(d->pool_limited[bounded(i, DROVER_MAX_POOLS)]));
}

/* --- what was used --- */

static __always_inline u32 limit_bin(u64 time_ns)
{
	return (u32)(time_ns / LIMIT_BIN_NS);
}

static __always_inline struct limit_use *limit_recorded(struct limit *l, u32 entry)
{
	return &l->record[bounded(entry, DROVER_LIMIT_RECORD)];
}

/* What was used before the bins that 100 ms can touch, the last of which is `bin`, is forgotten. */
static __always_inline void limit_forget_before(struct limit *l, u32 bin)
{
	u32 entries = l->next - l->oldest;
	u32 i;

	for_each_index(i, 0, entries) {
		struct limit_use *oldest = limit_recorded(l, l->oldest);

		if (bin - oldest->bin < LIMIT_BINS)
			break;
		l->recorded_ns -= oldest->used_ns;
		l->oldest++;
	}
}

/* So much was used in that bin, the last one or a later one. */
static __always_inline void limit_record(struct limit *l, u32 bin, u32 used_ns)
{
	struct limit_use *newest = limit_recorded(l, l->next - 1);

	if (!used_ns)
		return;
	l->recorded_ns += used_ns;
	if (l->next != l->oldest && newest->bin == bin) {
		newest->used_ns += used_ns;
		return;
	}
	*limit_recorded(l, l->next) = (struct limit_use){.bin = bin, .used_ns = used_ns};
	l->next++;
}

/*
 * What came was used since it was settled; as late as so many threads can have: too late in the
 * record keeps too much in mind, never too little.
 */
static __always_inline void limit_record_until(struct limit *l, u64 now_ns)
{
	u32 bin = limit_bin(now_ns);
	u64 late_ns = l->came_ns;

	limit_forget_before(l, bin);
	if (limit_bin(l->settled_ns) != bin)
		late_ns = least_of(now_ns % LIMIT_BIN_NS * l->ran, l->came_ns);
	limit_record(l, bin - 1, (u32)(l->came_ns - late_ns));
	limit_record(l, bin, (u32)late_ns);
}

/* Tokens come and go, and what was used is recorded. */
static __always_inline void limit_settle(struct limit *l, u32 mcpu, u64 now_ns)
{
	s64 elapsed_ns = (s64)(now_ns - l->settled_ns);
	s64 most_ns = 2 * limit_burst_ns(mcpu);
	s64 debt_ns = limit_record_max_ns(mcpu);

	/* Clocks of pCPUs differ by a little: what was recorded stays. */
	if (elapsed_ns < 0) {
		elapsed_ns = 0;
		now_ns = l->settled_ns;
	}
	if (elapsed_ns > 1000000000)
		elapsed_ns = 1000000000;
	l->tokens_ns += elapsed_ns * mcpu / 1000;
	if (l->tokens_ns > most_ns)
		l->tokens_ns = most_ns;
	l->tokens_ns -= (s64)l->came_ns;
	if (l->tokens_ns < -debt_ns)
		l->tokens_ns = -debt_ns;
	limit_record_until(l, now_ns);
	l->came_ns = 0;
	l->settled_ns = now_ns;
}

/* It was spent: so much was used by those who stopped late. Expect as much again, within reason. */
static __always_inline void limit_learn(struct limit *l, u64 most_ns)
{
	if (l->over_ns > l->late_ns)
		l->late_ns = least_of(l->over_ns, most_ns);
	else
		l->late_ns -= (l->late_ns - l->over_ns) / LIMIT_LEARN;
}

/* What must have come until somebody is let go again. */
static __always_inline s64 limit_needs_ns(struct limit *l, u32 index, u32 mcpu)
{
	s64 burst_ns = limit_burst_ns(mcpu);

	/* What was needed under a larger limit may be more than ever comes under this one. */
	if (index < DROVER_MAX_VMS)
		return l->needs_ns < burst_ns ? l->needs_ns : burst_ns;
	if (l->state == LIMIT_NARROWED)
		return burst_ns;
	return l->state == LIMIT_LOW ? burst_ns / 2 : burst_ns / 4;
}

/* What the record has room for, less what is expected of those who stop late. */
static __always_inline s64 limit_room_ns(struct limit *l, u32 index, u32 mcpu)
{
	s64 more_ns = index < DROVER_MAX_VMS ? 0 : (s64)mcpu * LIMIT_POOL_MORE_US;

	return limit_record_max_ns(mcpu) + more_ns - (s64)(l->recorded_ns + l->late_ns);
}

/* With so much left somebody is to be held; a VM's threads are, when nothing is. */
static __always_inline s64 limit_floor_ns(struct limit *l, u32 index, u32 mcpu)
{
	s64 burst_ns = limit_burst_ns(mcpu);

	if (index < DROVER_MAX_VMS || l->state == LIMIT_LOW)
		return 0;
	return l->state == LIMIT_OPEN ? burst_ns / 2 : burst_ns / 4;
}

/* Room in the record that is worth a start. */
static __always_inline s64 limit_room_needs_ns(struct limit *l, u32 index, u32 mcpu)
{
	return index < DROVER_MAX_VMS ? limit_burst_ns(mcpu) / 8 : limit_needs_ns(l, index, mcpu);
}

/* It may let more of them go: the state that follows. */
static __always_inline void limit_rise(struct limit *l, u32 index, u32 mcpu)
{
	if (l->state == LIMIT_SPENT)
		limit_learn(l, (u64)limit_record_max_ns(mcpu) / 4);
	l->state = index < DROVER_MAX_VMS ? LIMIT_OPEN : l->state - 1;
}

/* What it has left has changed: the state that follows, if any does. */
static __always_inline void limit_turn(struct limit *l, u32 index, u32 mcpu, s64 room_ns)
{
	s64 burst_ns = limit_burst_ns(mcpu);

	if (l->state != LIMIT_SPENT && l->left_ns <= (s64)(l->running * LIMIT_STEP_NS)) {
		l->state = LIMIT_SPENT;
		l->over_ns = 0;
		l->needs_ns = room_ns < l->tokens_ns ? burst_ns / 8 : burst_ns;
	} else if (l->state != LIMIT_OPEN && l->tokens_ns >= limit_needs_ns(l, index, mcpu) &&
		   room_ns >= limit_room_needs_ns(l, index, mcpu)) {
		limit_rise(l, index, mcpu);
	} else if (l->state < LIMIT_LOW && l->left_ns <= limit_floor_ns(l, index, mcpu)) {
		l->state++;
	}
}

/* In how long enough of the record is forgotten for so much more room, or a part of that. */
static __always_inline u64 limit_forgets_in_ns(struct limit *l, s64 lacks_ns)
{
	u32 bins = 1;
	u32 i;

	for_each_index(i, 0, LIMIT_FORESEEN) {
		struct limit_use *use = limit_recorded(l, l->oldest + i);

		if (lacks_ns <= 0 || l->oldest + i == l->next)
			break;
		lacks_ns -= use->used_ns;
		bins = use->bin + LIMIT_BINS - limit_bin(l->settled_ns);
	}
	return bins * LIMIT_BIN_NS - l->settled_ns % LIMIT_BIN_NS;
}

/* When it can turn if all that run go on, or as tokens come and room does. */
static __always_inline u64 limit_turns_in_ns(struct limit *l, u32 index, u32 mcpu, s64 room_ns)
{
	s64 lacks_ns = limit_room_needs_ns(l, index, mcpu) - room_ns;
	s64 needs_ns = limit_needs_ns(l, index, mcpu);
	s64 floor_ns = limit_floor_ns(l, index, mcpu);
	s64 left_ns = l->left_ns;
	u64 in_ns = LIMIT_STEP_NS;

	if (l->state != LIMIT_SPENT && l->running) {
		if (left_ns > floor_ns)
			left_ns -= floor_ns;
		return least_of((u64)left_ns / l->running, LIMIT_LOOK_NS);
	}
	if (lacks_ns > 0)
		in_ns = limit_forgets_in_ns(l, lacks_ns);
	if (l->tokens_ns < needs_ns)
		in_ns = most_of((u64)(needs_ns - l->tokens_ns) * 1000 / (mcpu ?: 1), in_ns);
	/* By then it has come for one who looks too early, too. */
	return in_ns + ALARM_EARLY_NS;
}

/*
 * Bring a limit up to date. Returns when it must be looked at again, or LIMIT_NO_ALARM: not
 * before somebody begins to run.
 */
CHECKED_APART u64 limit_look_at(THE_DROVER, u32 index, u32 mcpu, u64 now_ns)
{
	struct limit *l = limit_at(d, index);
	s64 room_ns;

	if (l->state == LIMIT_SPENT)
		l->over_ns += l->came_ns;
	limit_settle(l, mcpu, now_ns);
	room_ns = limit_room_ns(l, index, mcpu);
	l->left_ns = l->tokens_ns < room_ns ? l->tokens_ns : room_ns;
	limit_turn(l, index, mcpu, room_ns);
	if (l->state == LIMIT_OPEN && !l->running)
		return LIMIT_NO_ALARM;
	return now_ns + limit_turns_in_ns(l, index, mcpu, room_ns);
}

/* Those that run are counted anew. */
static __always_inline void limit_begin_gathering(struct limit *l)
{
	l->ran = l->running;
	l->running = 0;
}

static __always_inline void limit_add(struct limit *l, u64 came_ns, u32 running)
{
	l->came_ns += came_ns;
	l->running += running;
}

/* What the VM used since it was last looked at goes to all limits above it. */
CHECKED_APART int limit_gather(THE_DROVER, u32 slot, u64 now_ns)
{
	struct vm *vm = vm_at(d, slot);
	u32 running = share_nr_running(vm);
	u32 pool = vm->capped_by;
	u64 came_ns = share_used_ns(vm, now_ns) - vm->limit_seen_ns;
	u32 step;

	/* A thread just being charged counts twice for a moment. */
	if ((s64)came_ns < 0)
		came_ns = 0;
	vm->limit_seen_ns += came_ns;
	if (vm->limit_mcpu)
		limit_add(limit_of_vm(d, slot), came_ns, running);
	for_each_index(step, 0, POOL_DEPTH_MAX) {
		if (!pool)
			break;
		limit_add(limit_at(d, limit_of_pool(pool)), came_ns, running);
		pool = limit_next_above(d, pool);
	}
	return 0;
}

/* --- held and let go --- */

/* If a thread of the VM runs there, take the pCPU from it. */
static __always_inline void limit_stop_at(struct drover *d, u32 slot, u32 pcpu)
{
	if (pcpu_at(d, pcpu)->running_slot == slot)
		ground_preempt(d, bounded(pcpu, DROVER_MAX_PCPUS));
}

/*
 * Take their pCPUs from the threads of the VM, which is held: one that begins only now sees that.
 * vCPUs' records say where they run; for others all pCPUs are asked.
 */
CHECKED_APART int limit_stop(THE_DROVER, u32 slot)
{
	struct vm *vm = vm_at(d, slot);
	u32 i;

	if (*(volatile u32 *)&vm->unrecorded) {
		for_each_index(i, 0, d->params.nr_pcpus)
			limit_stop_at(d, slot, i);
		return 0;
	}
	for_each_index(i, 0, vm->vcpu_places & (2 * DROVER_VM_VCPUS - 1)) {
		struct vcpu *v = vcpu_in(d, slot, i);

		if (v && v->state == VCPU_RUNNING)
			limit_stop_at(d, slot, v->pcpu);
	}
	return 0;
}

/*
 * What a limit keeps from a VM, it is not owed for ever; in a pool, what it is owed in the 32 ms of
 * a claim. With the same for all, one that is owed little would come first whenever it is let go,
 * before vCPUs that are owed most of a pCPU and can make up for little; and a wide one that is owed
 * much would lose what it waited for, and with it all that the pool lacks.
 */
static __always_inline void limit_bound_claim(struct drover *d, struct vm *vm)
{
	u64 claim_ns = d->params.claim_bound_ns;

	if (vm->capped_by)
		claim_ns = most_of(claim_ns * vm->entitled_ucpu / ENTITLE_PCPU_UCPU,
				   LIMIT_CLAIM_CREDITS * d->params.wake_credit_ns);
	share_bound_claim(d, vm, claim_ns);
}

/* The VM may run, or may not, from now on. */
CHECKED_APART int limit_hold(THE_DROVER, u32 slot, bool hold, u64 now_ns)
{
	struct vm *vm = vm_at(d, slot);
	u32 before = vm->at_limit;

	if (before == hold)
		return 0;
	if (hold)
		vm->at_limit_since_ns = now_ns;
	else {
		vm->held_ns = waiting_held_ns(vm, now_ns);
		limit_bound_claim(d, vm);
	}
	__sync_lock_test_and_set(&vm->at_limit, hold);
	__sync_fetch_and_add(&d->nr_at_limit, (u32)hold - before);
	waiting_settle_cells(d, slot);
	if (hold && share_nr_running(vm))
		limit_stop(d, slot);
	return 0;
}

/* May the VM not run, for one of the limits above it? */
CHECKED_APART bool limit_holds(THE_DROVER, u32 slot)
{
	struct vm *vm = vm_at(d, slot);
	u32 pool = vm->capped_by;
	bool holds = limit_own_is_spent(d, slot);
	u32 step;

	for_each_index(step, 0, POOL_DEPTH_MAX) {
		if (!pool || holds)
			break;
		holds = limit_at(d, limit_of_pool(pool))->state != LIMIT_OPEN &&
			limit_at(d, limit_of_pool(pool))->keeper != slot;
		pool = limit_next_above(d, pool);
	}
	return holds;
}

/* By how much whoever runs there has had more than that; 0: nobody to be put out. */
static __always_inline u64 limit_gain_ns(struct drover *d, struct pcpu *p, u64 vtime_ns, u64 now_ns)
{
	u32 slot = p->running_slot;
	struct vm *vm = vm_at(d, slot);
	s64 gain_ns;

	if (!p->online || p->chooses || slot >= DROVER_MAX_VMS || slot == DROVER_HOST_SLOT)
		return 0;
	gain_ns = (s64)(share_vtime_now(vm, now_ns) - vtime_ns);
	if (gain_ns <= 0 || reserve_is_due(vm, now_ns))
		return 0;
	return (u64)gain_ns;
}

/* Note that gain of each pCPU; returns the largest. */
CHECKED_APART u64 limit_note_gains(THE_DROVER, u64 vtime_ns, u64 now_ns)
{
	u64 best_ns = 0;
	u32 i;

	for_each_index(i, 0, d->params.nr_pcpus) {
		u64 gain_ns = limit_gain_ns(d, pcpu_at(d, i), vtime_ns, now_ns);

		d->limit_gain_ns[bounded(i, DROVER_MAX_PCPUS)] = gain_ns;
		best_ns = most_of(gain_ns, best_ns);
	}
	return best_ns;
}

/* Have pCPUs that rest look for so many threads; returns for how many there was none. */
CHECKED_APART u32 limit_rouse(THE_DROVER, u32 threads)
{
	u32 i;

	for_each_index(i, 0, d->params.nr_pcpus) {
		if (!threads)
			break;
		if (!pcpu_at(d, i)->online || pcpu_at(d, i)->running_slot < DROVER_MAX_VMS)
			continue;
		ground_kick(d, bounded(i, DROVER_MAX_PCPUS));
		threads--;
	}
	return threads;
}

/*
 * Have pCPUs choose anew whose VMs have had more than that, for so many threads: first those who
 * have had the most, by half of the largest gain or more.
 */
CHECKED_APART int limit_preempt(THE_DROVER, u32 threads, u64 vtime_ns, u64 now_ns)
{
	u64 least_ns = limit_note_gains(d, vtime_ns, now_ns) / 2;
	u32 nr_pcpus = d->params.nr_pcpus ?: 1;
	u32 i;

	for_each_index(i, 0, 2 * nr_pcpus) {
		u32 at = i % nr_pcpus;
		u64 *gain_ns = &d->limit_gain_ns[bounded(at, DROVER_MAX_PCPUS)];

		if (!threads)
			break;
		if (i == nr_pcpus)
			least_ns = 0;
		if (*gain_ns <= least_ns)
			continue;
		*gain_ns = 0;
		pcpu_at(d, at)->chooses = 1;
		ground_preempt(d, bounded(at, DROVER_MAX_PCPUS));
		threads--;
	}
	return 0;
}

/* So many threads were let go, of VMs the first of which has had `vtime_ns`. */
static __always_inline void limit_offer(struct drover *d, u32 threads, u64 vtime_ns, u64 now_ns)
{
	/* Where some may not run everywhere, nobody knows whose pCPU that is. */
	if (d->nr_confined_waiting)
		threads = DROVER_MAX_PCPUS;
	/* One on its way to rest looks once more, at these. */
	if (*(volatile u32 *)&d->nr_resting)
		threads = limit_rouse(d, threads);
	if (threads)
		limit_preempt(d, threads, vtime_ns, now_ns);
}

/* Hold the VM if a limit above it says so, let it go if none does. */
CHECKED_APART int limit_enforce(THE_DROVER, u32 slot, u64 now_ns)
{
	struct vm *vm = vm_at(d, slot);
	bool hold = vm->capped && limit_holds(d, slot);
	u64 vtime_ns;

	if (vm->state != VM_LIVE || hold == vm->at_limit)
		return 0;
	limit_hold(d, slot, hold, now_ns);
	if (hold || !vm->nr_waiting)
		return 0;
	vtime_ns = vm->vtime_ns + share_weigh(vm, d->params.preempt_gain_ns);
	if (!d->let_go || (s64)(vtime_ns - d->let_go_vtime_ns) < 0)
		d->let_go_vtime_ns = vtime_ns;
	d->let_go += vm->nr_waiting;
	return 0;
}

/* --- what is due --- */

/*
 * The VM is due: what it used, its own limit, and what follows. Returns when the alarm must go
 * off for it.
 */
CHECKED_APART u64 limit_visit(THE_DROVER, u32 slot, u64 now_ns)
{
	u64 *due_ns = limit_due_of(d, 0, slot);
	struct vm *vm = vm_at(d, slot);
	u64 at_ns = LIMIT_NO_ALARM;

	limit_due_take(due_ns);
	if (vm->state != VM_LIVE || !vm->capped) {
		limit_enforce(d, slot, now_ns);
		return LIMIT_NO_ALARM;
	}
	limit_begin_gathering(limit_of_vm(d, slot));
	limit_gather(d, slot, now_ns);
	if (vm->limit_mcpu)
		at_ns = limit_look_at(d, slot, vm->limit_mcpu, now_ns);
	limit_enforce(d, slot, now_ns);
	limit_due_by(due_ns, vm->capped_by && share_nr_running(vm) ? LIMIT_NEXT_ALARM : at_ns);
	return at_ns;
}

/* The same for a pool, when all VMs in it that run have been seen. */
CHECKED_APART u64 limit_visit_pool(THE_DROVER, u32 pool, u64 now_ns)
{
	u64 *due_ns = &d->limit_pool_due_ns[bounded(pool, DROVER_MAX_POOLS)];
	struct limit *l = limit_at(d, limit_of_pool(pool));

	if (l->state == LIMIT_SPENT && *due_ns > now_ns + ALARM_EARLY_NS)
		return *due_ns;
	if (l->state == LIMIT_OPEN && !l->running && !l->came_ns)
		return LIMIT_NO_ALARM;
	*due_ns = limit_look_at(d, limit_of_pool(pool), pool_at(d, pool)->limit_mcpu, now_ns);
	return *due_ns;
}

CHECKED_APART u64 limit_visit_group(THE_DROVER, u32 group, u64 now_ns);

/*
 * Visit those of a group that are due: VMs on level 1, groups of level 1 on level 2. Returns when
 * the alarm must go off for one.
 */
static __always_inline u64 limit_visit_due(struct drover *d, u32 level, u32 group, u64 now_ns)
{
	u64 *group_due_ns = limit_due_of(d, level, group);
	u64 alarm_ns = LIMIT_NO_ALARM;
	u64 first_ns = LIMIT_NO_ALARM;
	u32 first = group << DROVER_DUE_GROUP_BITS;
	u32 i;

	if (limit_due_read(group_due_ns) > now_ns + ALARM_EARLY_NS)
		return limit_due_read(group_due_ns);
	limit_due_take(group_due_ns);
	for_each_index(i, first, first + (1 << DROVER_DUE_GROUP_BITS)) {
		u64 due_ns = limit_due_read(limit_due_of(d, level - 1, i));
		u64 at_ns = due_ns;

		if (due_ns <= now_ns + ALARM_EARLY_NS) {
			at_ns = level == 1 ? limit_visit(d, i, now_ns) :
					     limit_visit_group(d, i, now_ns);
			due_ns = limit_due_read(limit_due_of(d, level - 1, i));
		}
		alarm_ns = least_of(at_ns, alarm_ns);
		first_ns = least_of(due_ns, first_ns);
	}
	limit_due_by(group_due_ns, first_ns);
	return alarm_ns;
}

CHECKED_APART u64 limit_visit_group(THE_DROVER, u32 group, u64 now_ns)
{
	return limit_visit_due(d, 1, group, now_ns);
}

CHECKED_APART u64 limit_visit_top_group(THE_DROVER, u32 group, u64 now_ns)
{
	return limit_visit_due(d, 2, group, now_ns);
}

/* --- who goes on under a narrowed limit --- */

/* Could the VM go on, by what is left of each limit above it? */
CHECKED_APART bool limit_could_keep(THE_DROVER, u32 slot)
{
	struct vm *vm = vm_at(d, slot);
	u32 awake = share_nr_awake(vm);
	u32 pool = vm->capped_by;
	bool could = pool && awake && vm->state == VM_LIVE;
	u32 step;

	if (limit_own_is_spent(d, slot))
		return false;
	for_each_index(step, 0, POOL_DEPTH_MAX) {
		u32 state = limit_at(d, limit_of_pool(pool))->state;

		if (!pool || !could)
			break;
		if (state == LIMIT_LOW)
			could = vm->short_ns > 0 && awake <= pool_at(d, pool)->limit_mcpu / 1000;
		could = could && state != LIMIT_SPENT;
		pool = limit_next_above(d, pool);
	}
	return could;
}

/* Rather that VM than the other: it is short of what it is owed, or else the less served. */
static __always_inline bool limit_keeps_rather(struct vm *vm, struct vm *other)
{
	bool is_short = vm->short_ns > 0;

	if (is_short != (other->short_ns > 0))
		return is_short;
	return (s64)(vm->vtime_ns - other->vtime_ns) < 0;
}

/* The VM keeps its place under each narrowed limit above it where it comes first. */
CHECKED_APART int limit_keep(THE_DROVER, u32 slot)
{
	u32 pool = vm_at(d, slot)->capped_by;
	u32 step;

	if (!limit_could_keep(d, slot))
		return 0;
	for_each_index(step, 0, POOL_DEPTH_MAX) {
		struct limit *l = limit_at(d, limit_of_pool(pool));

		if (!pool)
			break;
		if (l->state != LIMIT_OPEN &&
		    (!l->keeper || limit_keeps_rather(vm_at(d, slot), vm_at(d, l->keeper))))
			l->keeper = slot;
		pool = limit_next_above(d, pool);
	}
	return 0;
}

/* Is somebody else to go on under that limit: the one chosen does not, or was a while ago? */
static __always_inline bool limit_lost_keeper(struct drover *d, struct limit *l, u64 now_ns)
{
	struct vm *vm = vm_at(d, l->keeper);

	if (l->state != LIMIT_NARROWED && l->state != LIMIT_LOW)
		return false;
	if (now_ns - d->kept_at_ns >= LIMIT_LOOK_NS)
		return true;
	return l->keeper && (!share_nr_awake(vm) || limit_own_is_spent(d, l->keeper));
}

/* Choose those who go on anew; hold and let go accordingly. */
static __always_inline void limit_choose(struct drover *d, u64 now_ns)
{
	u32 i;

	d->kept_at_ns = now_ns;
	for_each_index(i, 0, d->nr_pools_limited)
		limit_of_limited_pool(d, i)->keeper = 0;
	for_each_index(i, 1, d->slots_in_use)
		limit_keep(d, i);
	for_each_index(i, 1, d->slots_in_use)
		limit_enforce(d, i, now_ns);
}

/*
 * A look is over that began then; the next is due then. In each so many ns looking takes half of
 * one pCPU at most: one look after the other would leave nothing for that pCPU's other tasks.
 */
static __always_inline u64 limit_spare(struct drover *d, u64 begun_ns, u64 next_ns)
{
	if (begun_ns - d->look_window_ns >= LIMIT_WINDOW_NS) {
		d->look_window_ns = begun_ns;
		d->looked_ns = 0;
	}
	d->looked_ns += ground_now_ns(d) - begun_ns;
	if (d->looked_ns < LIMIT_WINDOW_NS / 2)
		return next_ns;
	return most_of(next_ns, d->look_window_ns + LIMIT_WINDOW_NS);
}

/* Look at all limits that are due and do what they ask. The alarm has gone off. */
static __always_inline void limit_look(struct drover *d, u64 now_ns)
{
	u64 begun_ns = ground_now_ns(d);
	u64 next_ns = LIMIT_NO_ALARM;
	bool turned = false;
	u32 i;

	d->let_go = 0;
	for_each_index(i, 0, d->nr_pools_limited)
		limit_begin_gathering(limit_of_limited_pool(d, i));
	for_each_index(i, 0, limit_due_top_groups(d))
		next_ns = least_of(limit_visit_top_group(d, i, now_ns), next_ns);
	for_each_index(i, 0, d->nr_pools_limited) {
		u32 pool = d->pool_limited[bounded(i, DROVER_MAX_POOLS)];
		u32 state = limit_at(d, limit_of_pool(pool))->state;

		next_ns = least_of(limit_visit_pool(d, pool, now_ns), next_ns);
		turned |= state != limit_at(d, limit_of_pool(pool))->state;
		turned |= limit_lost_keeper(d, limit_at(d, limit_of_pool(pool)), now_ns);
	}
	if (turned)
		limit_choose(d, now_ns);
	if (d->let_go)
		limit_offer(d, d->let_go, d->let_go_vtime_ns, now_ns);
	if (next_ns != LIMIT_NO_ALARM)
		alarm_at(d, most_of(limit_spare(d, begun_ns, next_ns), now_ns + LIMIT_STEP_NS));
}

/* --- events --- */

/* One more thread runs under that limit. Returns when to look, before it can be overdrawn. */
static __always_inline u64 limit_begin_at(struct limit *l, u64 now_ns)
{
	u32 running = __sync_fetch_and_add(&l->running, 1) + 1;
	u64 in_ns = l->left_ns > 0 ? (u64)l->left_ns / running : 0;

	if (in_ns >= LIMIT_LOOK_NS)
		return now_ns + LIMIT_LOOK_NS;
	/* Nobody ran since it was settled: all of that is left still. */
	return in_ns + (running == 1 ? now_ns : l->settled_ns);
}

/* A thread of a VM under a limit begins to run. */
CHECKED_APART int limit_begin(THE_DROVER, u32 slot, u64 now_ns)
{
	struct vm *vm = vm_at(d, slot);
	u32 pool = vm->capped_by;
	bool in_pool = pool;
	u64 at_ns = now_ns + LIMIT_LOOK_NS;
	u32 step;

	if (vm->limit_mcpu)
		at_ns = least_of(limit_begin_at(limit_of_vm(d, slot), now_ns), at_ns);
	for_each_index(step, 0, POOL_DEPTH_MAX) {
		if (!pool)
			break;
		at_ns = least_of(limit_begin_at(limit_at(d, limit_of_pool(pool)), now_ns), at_ns);
		pool = limit_next_above(d, pool);
	}
	/* Before the alarm: it may go off at once. */
	limit_watch(d, slot, in_pool ? LIMIT_NEXT_ALARM : at_ns);
	alarm_at(d, at_ns);
	return 0;
}

/* --- settings --- */

/* The VM is under no limit, and free to run. */
static __always_inline void limit_forget(struct drover *d, struct vm *vm)
{
	u32 capped = __sync_lock_test_and_set(&vm->capped, 0);
	u32 at_limit = __sync_lock_test_and_set(&vm->at_limit, 0);

	vm->capped_by = 0;
	__sync_fetch_and_sub(&d->nr_capped, capped);
	__sync_fetch_and_sub(&d->nr_at_limit, at_limit);
}

/* Limits may have changed: is the VM under one? It is held or let go by the alarm. */
CHECKED_APART int limit_note(THE_DROVER, u32 slot)
{
	struct vm *vm = vm_at(d, slot);
	u32 capped_by = pool_at(d, pool_existing(d, vm->pool))->capped_by;
	u32 capped = vm->limit_mcpu || capped_by;
	u32 before = __sync_lock_test_and_set(&vm->capped, capped);

	vm->capped_by = capped_by;
	/* What it used until now does not count. */
	if (capped && !before)
		vm->limit_seen_ns = share_used_ns(vm, ground_now_ns(d));
	__sync_fetch_and_add(&d->nr_capped, capped - before);
	limit_watch(d, slot, LIMIT_NEXT_ALARM);
	if (capped || before)
		alarm_at(d, ground_now_ns(d));
	return 0;
}

/* Pools have changed. What was left of other limits says nothing of these: who begins looks. */
static __always_inline void limit_note_all(struct drover *d)
{
	u32 i;

	for_each_index(i, 0, d->nr_pools_limited)
		limit_of_limited_pool(d, i)->left_ns = 0;
	for_each_index(i, 1, d->slots_in_use) {
		if (vm_at(d, i)->state == VM_LIVE)
			limit_note(d, i);
	}
}

#endif

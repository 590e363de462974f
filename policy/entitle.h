/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Entitlement: what each VM is owed now, from the tree and from what is wanted.
 *
 * Idea. Shares alone say what a VM is owed beside siblings that want all they can
 * get. Reservations, limits, pools and siblings that want little change that: what
 * one leaves is its siblings' first. So while any such setting is there, the tree is
 * filled with CPU time like a vessel with water: in each pool there is a level, CPU per
 * share, and a child holds
 *     shares * level, but no less than is reserved and no more than its limit,
 * and, to find the level, no more than it wants: what it received lately, or a pCPU for
 * each thread that was never asleep since, averaged over 40 ms.
 * Then each VM's virtual time runs at (CPU received) / (CPU owed), in place of
 * shares: whoever has received the smallest part of what it is owed is served
 * next ("the ratio of the consumed CPU resources to the entitlement", seed 000,
 * 2.1). A VM is weighed by what it would be owed if it wanted all: one that wakes
 * has its weight. One that is owed all that its threads can use, all of them always
 * awake, has that as if it were reserved (reserve.h): it could never make up for a wait.
 * With no such setting nothing of this runs, and virtual time runs by shares.
 *
 * Why not flat weights alone, each VM's share multiplied down the tree as far as
 * siblings are active (the kernel's scx_flatcg)? It is exact only where everybody
 * wants all: what a limited or half-idle VM leaves would go to the whole host.
 *
 * How a level is found. By Newton's steps: children at their floor or their most
 * are fixed, the others divide the rest by shares; that level is exact unless a
 * child changes sides, and then the next step starts there. It is kept between
 * looks, and all pools step at once, until none moves: mostly, that is soon. A bracket
 * halves what Newton would jump about in.
 *
 * When. Settings, VMs and pCPUs that come and go count at the next look, every 9.7 ms or, where
 * there are many, less often. What VMs want is measured then, of those that slept or woke since: of
 * the others all is known. That alone fills no vessel. As long as the levels are wrong by m pCPUs,
 * all that wants moved by since, they give m * t of CPU time in t to the wrong VMs; to divide anew
 * takes c. When m * t is 25 times c, it is done: a 25th of the wrong is what the right may take, be
 * the tree small or large. A host that is busy throughout pays next to nothing.
 *
 * Worked example. 4 pCPUs; vm0 with 1000 shares and 100 % reserved, seven with
 * 1000. Level 0.5 would give everybody 0.5: vm0 is below its floor. It is fixed
 * at 1, the others divide 3 by 7: level 0.43 a thousand shares. vm0 is weighed as
 * 1 / 0.43 = 2333 shares, the others as 1000. c is 8 us: that one of the seven has fallen asleep,
 * m = 0.43, counts at the next look; that one takes 0.01 more, after 20 ms. With 1000 VMs in 500
 * pools c is 1.3 ms: that takes 75 ms and, where nothing else moves, 3 s.
 *
 * What it is bad at. It lags by two looks or so, which with 1000 VMs are 50 ms, and in a large tree
 * small changes wait for others, as shown; what a VM wants is guessed from the past. Nothing is
 * known of pinning. One pCPU does it for all (`drover policy-cost` tells what that costs).
 */
#ifndef DROVER_ENTITLE_H
#define DROVER_ENTITLE_H

#include "pool.h"
#include "waiting.h"

/* No multiple of what guests' clocks go by: looks must not fall into step with them. */
#define ENTITLE_PERIOD_NS 9700000ULL
/* For each VM and pool at least so long. */
#define ENTITLE_PERIOD_EACH_NS 25300ULL
/* What is wanted is averaged over that. */
#define ENTITLE_MEMORY_NS (4 * ENTITLE_PERIOD_NS)
/* Steps at most; one or two suffice where little has changed. */
#define ENTITLE_ROUNDS 32
/* A level that moves by less than that part of itself has been found. */
#define ENTITLE_EXACT 1024
#define ENTITLE_LEVEL_SHIFT 20
/* 8 pCPUs a share: shares * level stays within 64 bits. */
#define ENTITLE_LEVEL_MAX (1ULL << 43)
#define ENTITLE_PCPU_UCPU 1000000ULL
#define ENTITLE_SCALE_SHIFT 10
/* Who is owed next to nothing is weighed by that part of an even share at least. */
#define ENTITLE_LEAST_PART 64
/*
 * Who is kept below what its shares bring by its limit is weighed as if that were twice as
 * much: else it would wait, when it is let go (limit_hold.h), for others that did not have all
 * they were owed for reasons of their own. What it may have is the limit's to say.
 */
#define ENTITLE_LIMIT_SLACK 2
/* What is wanted and owed is known to that part: so little less than all counts as all. */
#define ENTITLE_FULL_PART 32
/* To divide anew takes some 850 ns for each VM and pool, a 25th of what it may mend. */
#define ENTITLE_DIVIDE_EACH_NS 21000ULL
/*
 * What the host's own tasks take more or less of is taken from all VMs alike, or nearly: by a move
 * of theirs what is owed is wrong by such a part of it.
 */
#define ENTITLE_HOST_PART 8
/* A mean has settled within that part of what it tends to, and so many millionths of a pCPU. */
#define ENTITLE_NEAR_PART 256
#define ENTITLE_NEAR_UCPU 1000
/* What was received in less than that says nothing. */
#define ENTITLE_LEAST_NS 1000
/* A weight that rises by more than that part of itself changes what is owed in it. */
#define ENTITLE_REWEIGH_PART 16

static __always_inline u64 entitle_apart(u64 a, u64 b)
{
	return a > b ? a - b : b - a;
}

static __always_inline u64 entitle_ucpu(u32 mcpu)
{
	return (u64)mcpu * (ENTITLE_PCPU_UCPU / 1000);
}

/* A promise as it can be kept with the pCPUs there are. */
static __always_inline u64 entitle_kept_ucpu(struct drover *d, u32 mcpu)
{
	return (entitle_ucpu(mcpu) * d->promise_scale) >> ENTITLE_SCALE_SHIFT;
}

static __always_inline u64 entitle_limit_ucpu(u32 limit_mcpu)
{
	return limit_mcpu ? entitle_ucpu(limit_mcpu) : ~0ULL;
}

/* Until the next look. */
static __always_inline u64 entitle_period_ns(struct drover *d)
{
	return most_of(ENTITLE_PERIOD_NS, (d->slots_in_use + d->nr_pools) * ENTITLE_PERIOD_EACH_NS);
}

/* --- what is wanted --- */

/* The mean of what was wanted and what is, which was measured for so long. */
static __always_inline u64 entitle_mean(u64 before, u64 wanted, u64 elapsed_ns)
{
	u64 memory_us = ENTITLE_MEMORY_NS / 1000;
	u64 elapsed_us = least_of(elapsed_ns / 1000, memory_us);

	return (before * (memory_us - elapsed_us) + wanted * elapsed_us) / memory_us;
}

/* What the VM wants may change, or does still: it is measured at the next look. */
static __always_inline void entitle_stir(struct drover *d, u32 slot)
{
	u64 *stirred = &d->stirred[bounded(slot / DROVER_STIRRED_BITS,
					   DROVER_MAX_VMS / DROVER_STIRRED_BITS)];
	u64 bit = 1ULL << slot % DROVER_STIRRED_BITS;

	/* Read first: who sleeps often writes once. */
	if (!(*(volatile u64 *)stirred & bit))
		__sync_fetch_and_or(stirred, bit);
}

/* A thread of the VM is about to wake: how few were awake before? */
static __always_inline void entitle_note_wake(struct drover *d, u32 slot)
{
	struct vm *vm = vm_at(d, slot);
	u32 awake;

	if (!d->nr_bound)
		return;
	awake = share_nr_awake(vm);
	if (awake < vm->least_awake)
		vm->least_awake = awake;
}

/* A thread of the VM has become ready, or is no longer. */
static __always_inline void entitle_note_change(struct drover *d, u32 slot)
{
	if (d->nr_bound)
		entitle_stir(d, slot);
}

/* It received that much in that time: how far is it from what it was owed? */
static __always_inline void entitle_compare(struct vm *vm, u64 elapsed_ns, s64 ran_ns)
{
	s64 owed_ns = (s64)(vm->entitled_ucpu * (elapsed_ns / 1000) / 1000);
	s64 short_ns = vm->short_ns + owed_ns - ran_ns;
	s64 most_ns = (s64)ENTITLE_MEMORY_NS;

	short_ns = short_ns > most_ns ? most_ns : short_ns;
	vm->short_ns = short_ns < -most_ns ? -most_ns : short_ns;
}

/* All that so many threads can use. */
static __always_inline u64 entitle_usable_ucpu(struct drover *d, u32 nr_threads)
{
	return least_of(nr_threads, d->nr_online) * ENTITLE_PCPU_UCPU;
}

/* Of what it wants it may have that by its limit. */
static __always_inline u32 entitle_most_ucpu(struct vm *vm)
{
	return (u32)least_of(vm->wanted_ucpu, entitle_limit_ucpu(vm->limit_mcpu));
}

/*
 * Is all known of what it wants, until somebody of it sleeps or wakes? The mean has settled, and
 * all was divided by that. What VMs under a limit are short of is asked for at any moment
 * (limit.h).
 */
static __always_inline bool entitle_is_settled(struct drover *d, struct vm *vm)
{
	u32 awake = share_nr_awake(vm);

	return awake == vm->least_awake && vm->wanted_ucpu == entitle_usable_ucpu(d, awake) &&
	       vm->wanted_ucpu == vm->most_ucpu && !vm->capped;
}

/* A mean that is near what it tends to has got there. */
static __always_inline u32 entitle_settle(u64 wanted, u64 usable)
{
	u64 off = entitle_apart(wanted, usable);

	return (u32)(off <= usable / ENTITLE_NEAR_PART + ENTITLE_NEAR_UCPU ? usable : wanted);
}

/*
 * CPU the VM could use: what it received since it was last measured; or all that so many threads
 * can as were awake throughout. (Not what others waited for: who sleeps in between had all it
 * wanted, if late.)
 */
CHECKED_APART int entitle_measure(THE_DROVER, u32 slot, u64 now_ns)
{
	struct vm *vm = vm_at(d, slot);
	u64 total_ns = share_used_ns(vm, now_ns);
	s64 ran_ns = (s64)(total_ns - vm->seen_run_ns);
	u64 elapsed_ns = now_ns - vm->seen_at_ns;
	u32 awake = share_nr_awake(vm);
	u64 usable = entitle_usable_ucpu(d, (u32)least_of(awake, vm->least_awake));
	u64 wanted, moved;

	if (elapsed_ns < ENTITLE_LEAST_NS)
		return 0;
	vm->seen_at_ns = now_ns;
	vm->least_awake = awake;
	if (ran_ns < 0)
		ran_ns = 0;
	if (vm->seen_run_ns && vm->capped)
		entitle_compare(vm, elapsed_ns, ran_ns);
	wanted = most_of(usable, (u64)ran_ns * 1000 / (elapsed_ns / 1000));
	wanted = least_of(wanted, d->nr_online * ENTITLE_PCPU_UCPU);
	if (vm->seen_run_ns)
		wanted = entitle_mean(vm->wanted_ucpu, wanted, elapsed_ns);
	vm->wanted_ucpu = entitle_settle(wanted, usable);
	vm->seen_run_ns = total_ns;
	moved = entitle_apart(entitle_most_ucpu(vm), vm->most_ucpu);
	d->moved_ucpu += slot == DROVER_HOST_SLOT ? moved / ENTITLE_HOST_PART : moved;
	return 0;
}

/* --- up the tree: promised, wanted --- */

static __always_inline void entitle_clear(struct pool *pool)
{
	pool->promised_ucpu = pool->floor_ucpu = pool->most_ucpu = pool->all_shares = 0;
	pool->low = 0;
	pool->high = ENTITLE_LEVEL_MAX;
}

static __always_inline void entitle_add_child(struct pool *parent, u64 promised, u64 floor,
					      u64 most, u32 shares)
{
	parent->promised_ucpu += promised;
	parent->floor_ucpu += floor;
	parent->most_ucpu += most;
	parent->all_shares += shares;
}

CHECKED_APART int entitle_gather_vm(THE_DROVER, u32 slot)
{
	struct vm *vm = vm_at(d, slot);

	if (vm->state != VM_LIVE)
		return 0;
	vm->most_ucpu = entitle_most_ucpu(vm);
	vm->floor_ucpu = (u32)least_of(entitle_kept_ucpu(d, vm->reservation_mcpu), vm->most_ucpu);
	entitle_add_child(pool_at(d, pool_existing(d, vm->pool)),
			  entitle_ucpu(vm->reservation_mcpu), vm->floor_ucpu, vm->most_ucpu,
			  vm->shares);
	return 0;
}

/* All that is in the pool has been gathered. */
CHECKED_APART int entitle_gather_pool(THE_DROVER, u32 index)
{
	struct pool *pool = pool_at(d, index);
	u64 kept = entitle_kept_ucpu(d, pool->reservation_mcpu);

	pool->promised_ucpu = most_of(pool->promised_ucpu, entitle_ucpu(pool->reservation_mcpu));
	pool->most_ucpu = least_of(pool->most_ucpu, entitle_limit_ucpu(pool->limit_mcpu));
	pool->floor_ucpu = least_of(most_of(pool->floor_ucpu, kept), pool->most_ucpu);
	entitle_add_child(pool_at(d, pool->in), pool->promised_ucpu, pool->floor_ucpu,
			  pool->most_ucpu, pool->shares);
	return 0;
}

/* --- down the tree: the levels --- */

/* What the child holds at that level; counted as fixed or free. */
static __always_inline u64 entitle_held(struct pool *parent, u32 shares, u64 floor, u64 most)
{
	u64 held = (shares * parent->level) >> ENTITLE_LEVEL_SHIFT;

	if (!most || !shares)
		return 0;
	if (held >= most) {
		u64 full = (most << ENTITLE_LEVEL_SHIFT) / shares;

		parent->fixed_ucpu += most;
		parent->full_level = most_of(parent->full_level, full);
		return most;
	}
	if (held < floor) {
		u64 rise = (floor << ENTITLE_LEVEL_SHIFT) / shares + 1;

		parent->fixed_ucpu += floor;
		parent->rise_level = least_of(parent->rise_level, rise);
		return floor;
	}
	parent->free_shares += shares;
	return held;
}

CHECKED_APART int entitle_hold_vm(THE_DROVER, u32 slot)
{
	struct vm *vm = vm_at(d, slot);

	if (vm->state == VM_LIVE)
		entitle_held(pool_at(d, pool_existing(d, vm->pool)), vm->shares, vm->floor_ucpu,
			     vm->most_ucpu);
	return 0;
}

/* Newton's next level for a pool that is owed so much, within its bracket. */
static __always_inline u64 entitle_step(struct pool *pool, u64 owed_ucpu)
{
	u64 held = pool->fixed_ucpu + ((pool->free_shares * pool->level) >> ENTITLE_LEVEL_SHIFT);
	u64 next;

	if (!pool->free_shares && pool->fixed_ucpu == owed_ucpu)
		return pool->full_level; /* all have all they want */
	if (held <= owed_ucpu)
		pool->low = most_of(pool->low, pool->level);
	else
		pool->high = least_of(pool->high, pool->level);
	if (pool->free_shares)
		next = owed_ucpu > pool->fixed_ucpu ?
			       ((owed_ucpu - pool->fixed_ucpu) << ENTITLE_LEVEL_SHIFT) /
				       pool->free_shares :
			       0;
	else if (pool->fixed_ucpu < owed_ucpu)
		next = pool->rise_level;
	else
		next = pool->full_level - pool->full_level / ENTITLE_EXACT; /* one is free */
	if (next != pool->level && (next <= pool->low || next >= pool->high))
		next = (pool->low + pool->high) / 2;
	return least_of(next, ENTITLE_LEVEL_MAX);
}

/* The pool is owed that if it wants all: find the level of what is in it. */
static __always_inline void entitle_fill(struct drover *d, struct pool *pool, u64 owed_ucpu)
{
	u64 poured = least_of(owed_ucpu, pool->most_ucpu);
	u64 before = pool->level;

	if (poured != pool->poured_ucpu) {
		/* The level above has moved: what was learnt of this one is void. */
		pool->low = 0;
		pool->high = ENTITLE_LEVEL_MAX;
	}
	pool->poured_ucpu = poured;
	pool->owed_ucpu = owed_ucpu;
	pool->level = entitle_step(pool, poured);
	if (entitle_apart(pool->level, before) > pool->level / ENTITLE_EXACT)
		d->levels_move = 1;
	pool->weigh_level = pool->level;
	/* Nobody wants the rest: a child that begins to shall find its part of it. */
	if (owed_ucpu > pool->most_ucpu && pool->all_shares)
		pool->weigh_level +=
			((owed_ucpu - pool->most_ucpu) << ENTITLE_LEVEL_SHIFT) / pool->all_shares;
	pool->weigh_level = least_of(pool->weigh_level, ENTITLE_LEVEL_MAX);
	pool->fixed_ucpu = pool->free_shares = pool->full_level = 0;
	pool->rise_level = ENTITLE_LEVEL_MAX;
}

/* What a child is owed if it wants all. */
static __always_inline u64 entitle_owed(struct pool *parent, u32 shares, u64 kept, u64 limit)
{
	u64 owed = (shares * parent->weigh_level) >> ENTITLE_LEVEL_SHIFT;

	/* Else a moment's misjudgement is a debt of hours. */
	u64 least = shares * parent->owed_ucpu / ENTITLE_LEAST_PART / (parent->all_shares ?: 1);

	return least_of(most_of(most_of(owed, least), kept), limit);
}

CHECKED_APART int entitle_fill_pool(THE_DROVER, u32 index)
{
	struct pool *pool = pool_at(d, index);
	struct pool *parent = pool_at(d, pool->in);
	u64 kept = most_of(entitle_kept_ucpu(d, pool->reservation_mcpu), pool->floor_ucpu);

	entitle_fill(
		d, pool,
		entitle_owed(parent, pool->shares, kept, entitle_limit_ucpu(pool->limit_mcpu)));
	return 0;
}

static __always_inline u32 entitle_ordered(struct drover *d, u32 i)
{
	return d->pool_order[bounded(i, DROVER_MAX_POOLS)];
}

/* All pools make a step towards their levels. */
CHECKED_APART int entitle_round(THE_DROVER)
{
	u32 i;

	for_each_index(i, 0, d->slots_in_use)
		entitle_hold_vm(d, i);
	for_each_index(i, 0, d->nr_pools) {
		struct pool *pool = pool_at(d, entitle_ordered(d, i));

		entitle_held(pool_at(d, pool->in), pool->shares, pool->floor_ucpu, pool->most_ucpu);
	}
	d->levels_move = 0;
	entitle_fill(d, pool_at(d, POOL_ROOT), d->nr_online * ENTITLE_PCPU_UCPU);
	for_each_index(i, 0, d->nr_pools)
		entitle_fill_pool(d, entitle_ordered(d, i));
	return 0;
}

/* --- what comes of it --- */

/*
 * The VM's virtual time runs by that from now on. When it runs more slowly than before, what
 * the VM is ahead of the clock shrinks alike, to as much CPU time as it was: a moment in
 * which it was owed next to nothing (before its siblings were found, or beside a storm in
 * another pool) would else cost it a second of what it is owed after that.
 */
static __always_inline void entitle_reweigh(struct drover *d, u32 slot, u64 inverse)
{
	struct vm *vm = vm_at(d, slot);
	u64 before = __sync_lock_test_and_set(&vm->share_inverse, inverse);
	s64 ahead_ns = (s64)(vm->vtime_ns - d->vtime_now_ns);
	u64 part;

	if (inverse + inverse / ENTITLE_REWEIGH_PART >= before)
		return;
	part = (inverse << ENTITLE_SCALE_SHIFT) / before;
	if (ahead_ns > 0)
		__sync_fetch_and_sub(&vm->vtime_ns,
				     (u64)ahead_ns - ((u64)ahead_ns >> ENTITLE_SCALE_SHIFT) * part);
	/* Leaves that count what was not charged yet, by the old weight, would be late for good. */
	waiting_settle_cells(d, slot);
}

/*
 * A VM that is owed all that its threads can use, all of them always awake, could never make up
 * for a wait: what it is owed is as good as promised to it. What that is; 0: it is no such VM.
 */
static __always_inline u64 entitle_as_promised_ucpu(struct vm *vm)
{
	u64 usable_ucpu = vm->least_awake * ENTITLE_PCPU_UCPU;
	u64 nearly_ucpu = usable_ucpu - usable_ucpu / ENTITLE_FULL_PART;
	bool full = vm->entitled_ucpu >= nearly_ucpu && vm->wanted_ucpu >= nearly_ucpu;

	return full ? least_of(vm->entitled_ucpu, usable_ucpu) : 0;
}

/* The VM's virtual time runs by what it is owed; and its tag by what can be kept. */
CHECKED_APART int entitle_weigh(THE_DROVER, u32 slot)
{
	struct vm *vm = vm_at(d, slot);
	struct pool *pool = pool_at(d, pool_existing(d, vm->pool));
	u64 kept = entitle_kept_ucpu(d, vm->reservation_mcpu);
	u64 limit = vm->limit_mcpu ? entitle_ucpu(vm->limit_mcpu) : ~0ULL / ENTITLE_LIMIT_SLACK;
	u64 owed, inverse, promised, mcpu;

	if (vm->state != VM_LIVE)
		return 0;
	owed = entitle_owed(pool, vm->shares, kept, ENTITLE_LIMIT_SLACK * limit);
	vm->entitled_ucpu = (u32)least_of(least_of(owed, limit), ~0U);
	inverse = DROVER_SHARES_PER_VCPU * d->reference_level / (owed ?: 1);
	inverse = least_of(inverse, (u64)DROVER_SHARES_PER_VCPU << SHARE_INVERSE_SHIFT);
	entitle_reweigh(d, slot, inverse ?: 1);
	promised = slot == DROVER_HOST_SLOT ? 0 : most_of(kept, entitle_as_promised_ucpu(vm));
	mcpu = promised * 1000 / ENTITLE_PCPU_UCPU;
	reserve_promise(d, slot, (u32)(vm->reservation_mcpu ? most_of(mcpu, 1) : mcpu));
	/* It has just gone: nobody else would take that back. */
	if (*(volatile u32 *)&vm->state != VM_LIVE)
		reserve_promise(d, slot, 0);
	return 0;
}

/* Nobody is bound by more than shares any more: it has these, and what looks promised it ends. */
CHECKED_APART int entitle_unweigh(THE_DROVER, u32 slot)
{
	struct vm *vm = vm_at(d, slot);

	share_set(vm, vm->shares);
	reserve_promise(d, slot, 0);
	/* By shares it may stand earlier than by what it was owed. */
	waiting_settle_cells(d, slot);
	return 0;
}

/*
 * The level that counts as 1000 shares being worth 1000 shares: the root's, so that
 * VMs that are bound by nothing keep the weight they have without all this. Where
 * reservations leave next to nothing for shares, more, to keep the numbers in range.
 */
static __always_inline void entitle_refer(struct drover *d)
{
	struct pool *root = pool_at(d, POOL_ROOT);
	u64 even = (root->owed_ucpu << ENTITLE_LEVEL_SHIFT) / (root->all_shares ?: 1);

	d->reference_level = most_of(most_of(root->weigh_level, even / 16), 1);
}

/* Promises that exceed the pCPUs there are shrink alike. */
static __always_inline void entitle_scale(struct drover *d)
{
	u64 promised = pool_at(d, POOL_ROOT)->promised_ucpu;
	u64 there = d->nr_online * ENTITLE_PCPU_UCPU;
	u32 before = d->promise_scale;

	d->promise_scale = promised > there ? (u32)((there << ENTITLE_SCALE_SHIFT) / promised) :
					      1 << ENTITLE_SCALE_SHIFT;
	/* What was gathered is kept by the old one. */
	if (d->promise_scale != before)
		d->owed_anew = 1;
}

/* The levels, and what comes of them. Those of one look that never settle are stepped on in the
 * next. */
static __always_inline void entitle_divide(struct drover *d)
{
	u32 i;

	for_each_index(i, 0, ENTITLE_ROUNDS) {
		entitle_round(d);
		if (!d->levels_move)
			break;
	}
	if (d->levels_move)
		d->owed_anew = 1;
	entitle_refer(d);
	for_each_index(i, 0, d->slots_in_use)
		entitle_weigh(d, i);
}

/* What is promised and wanted, up the tree. */
static __always_inline void entitle_gather(struct drover *d)
{
	u32 i;

	entitle_clear(pool_at(d, POOL_ROOT));
	for_each_index(i, 0, d->nr_pools)
		entitle_clear(pool_at(d, entitle_ordered(d, i)));
	for_each_index(i, 0, d->slots_in_use)
		entitle_gather_vm(d, i);
	for_each_index(i, 0, d->nr_pools)
		entitle_gather_pool(d, entitle_ordered(d, d->nr_pools - 1 - i));
	entitle_scale(d);
}

/*
 * So much has what VMs want moved by, in all, since it was divided. What that gives to the wrong
 * ones must be worth the work.
 */
static __always_inline bool entitle_is_worth_it(struct drover *d)
{
	d->wrong_ns += d->moved_ucpu * (entitle_period_ns(d) / 1000) / 1000;
	return d->wrong_ns > (d->slots_in_use + d->nr_pools) * ENTITLE_DIVIDE_EACH_NS;
}

/* Measure the VMs, from that slot on, that have their bit. */
CHECKED_APART int entitle_measure_stirred(THE_DROVER, u32 first, u64 stirred, u64 now_ns)
{
	u32 i;

	for_each_index(i, 0, DROVER_STIRRED_BITS) {
		u32 slot = first + i;

		if (!(stirred >> i))
			break;
		if (!(stirred >> i & 1) || vm_at(d, slot)->state != VM_LIVE)
			continue;
		entitle_measure(d, slot, now_ns);
		if (!entitle_is_settled(d, vm_at(d, slot)))
			entitle_stir(d, slot);
	}
	return 0;
}

/* Look at all VMs that may want something else; every entitle_period_ns. */
static __always_inline void entitle_look(struct drover *d, u64 now_ns)
{
	u32 words = (d->slots_in_use + DROVER_STIRRED_BITS - 1) / DROVER_STIRRED_BITS;
	u32 anew = __sync_lock_test_and_set(&d->owed_anew, 0);
	u32 i;

	d->moved_ucpu = 0;
	for_each_index(i, 0, words) {
		u64 *word = &d->stirred[bounded(i, DROVER_MAX_VMS / DROVER_STIRRED_BITS)];
		/* Before they are measured: who sleeps or wakes meanwhile is seen next time. */
		u64 stirred = *word ? __sync_lock_test_and_set(word, 0) : 0;

		if (anew)
			stirred = ~0ULL;
		if (stirred)
			entitle_measure_stirred(d, i * DROVER_STIRRED_BITS, stirred, now_ns);
	}
	if (!anew && !entitle_is_worth_it(d))
		return;
	d->wrong_ns = 0;
	entitle_gather(d);
	entitle_divide(d);
}

#endif

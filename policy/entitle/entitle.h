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
 * and, to find the level (entitle_level.h), no more than it wants (entitle_want.h).
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
 * When. Settings, VMs and pCPUs that come and go count at the next look, every 9.7 ms or, where
 * there are many, less often. What VMs want is measured then, of those that slept or woke since: of
 * the others all is known. That alone fills no vessel. As long as the levels are wrong by m pCPUs,
 * all that wants moved by since, they give m * t of CPU time in t to the wrong VMs; to divide anew
 * takes c. When m * t is 25 times c, it is done: a 25th of the wrong is what the right may take, be
 * the tree small or large. A host that is busy throughout pays next to nothing.
 *
 * Worked example. 4 pCPUs; vm0 with 1000 shares and 100 % reserved, seven with 1000. The level
 * is 0.43 of a pCPU for 1000 shares, vm0 holds 1: it is weighed as 1 / 0.43 = 2333 shares, the
 * others as 1000. c is 8 us: that one of the seven has fallen asleep, m = 0.43, counts at the
 * next look; that one takes 0.01 more, after 20 ms. With 1000 VMs in 500 pools c is 1.3 ms:
 * that takes 75 ms and, where nothing else moves, 3 s.
 *
 * What it is bad at. It lags by two looks or so, which with 1000 VMs are 50 ms, and in a large tree
 * small changes wait for others, as shown; what a VM wants is guessed from the past. Nothing is
 * known of pinning. One pCPU does it for all (`drover policy-cost` tells what that costs).
 */
#ifndef DROVER_ENTITLE_H
#define DROVER_ENTITLE_H

#include "entitle/entitle_level.h"

/* For each VM and pool at least so long. */
#define ENTITLE_PERIOD_EACH_NS 25300ULL
/* Steps at most; one or two suffice where little has changed. */
#define ENTITLE_ROUNDS 32
/*
 * Who is kept below what its shares bring by its limit is weighed as if that were twice as
 * much: else it would wait, when it is let go (limit.h), for others that did not have all
 * they were owed for reasons of their own. What it may have is the limit's to say.
 */
#define ENTITLE_LIMIT_SLACK 2
/* What is wanted and owed is known to that part: so little less than all counts as all. */
#define ENTITLE_FULL_PART 32
/* To divide anew takes some 850 ns for each VM and pool, a 25th of what it may mend. */
#define ENTITLE_DIVIDE_EACH_NS 21000ULL
/* A weight that rises by more than that part of itself changes what is owed in it. */
#define ENTITLE_REWEIGH_PART 16

/* Until the next look. */
static __always_inline u64 entitle_period_ns(struct drover *d)
{
	return most_of(ENTITLE_PERIOD_NS, (d->slots_in_use + d->nr_pools) * ENTITLE_PERIOD_EACH_NS);
}

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
	s64 ahead_ns = (s64)(vm->vtime_ns - *share_clock(d, vm->domain));
	u64 part;

	if (inverse + inverse / ENTITLE_REWEIGH_PART >= before)
		return;
	part = (inverse << ENTITLE_SCALE_SHIFT) / before;
	if (ahead_ns > 0)
		__sync_fetch_and_sub(&vm->vtime_ns,
				     (u64)ahead_ns - ((u64)ahead_ns >> ENTITLE_SCALE_SHIFT) * part);
	/* Leaves that count what was not charged yet, by the old weight, would be late for good. */
	waiting_settle_domains(d, slot);
}

/*
 * A VM that is owed all that its threads can use, all of them always awake, could never make up
 * for a wait: what it is owed is as good as promised to it. What that is; 0: it is no such VM.
 * (What is owed on the pCPUs where a confined VM may run is not known here.)
 */
static __always_inline u64 entitle_as_promised_ucpu(struct vm *vm)
{
	u64 usable_ucpu = vm->least_awake * ENTITLE_PCPU_UCPU;
	u64 nearly_ucpu = usable_ucpu - usable_ucpu / ENTITLE_FULL_PART;
	bool full = vm->entitled_ucpu >= nearly_ucpu && vm->wanted_ucpu >= nearly_ucpu &&
		    !vm->nr_confined;

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

	if (!partition_is_default(vm))
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
	waiting_settle_domains(d, slot);
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

/*
 * The levels, and what comes of them. Those of one look that never settle are stepped on in the
 * next.
 */
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

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a VM wants: how much CPU time it would use if it had it.
 *
 * Idea. It is guessed from the past: what the VM received since it was last measured, or a pCPU for
 * each thread that was never asleep since, if that is more; averaged over 40 ms. Who sleeps or
 * wakes sets a bit, and only VMs with the bit are measured. Of the others all is known: once
 * the average has got to what all their threads can use, nothing of it changes until one sleeps.
 *
 * Worked example. Of two vCPUs one is busy, and the other sleeps half of the time: in 9.7 ms they
 * received 1.5 pCPUs, one was awake throughout, so the VM wants 1.5. The other falls asleep for
 * good. The next measurement is 1.0 and counts for a quarter: 1.375, then 1.28, 1.21; 17 looks
 * later it is within a 200th, and is 1.0. The bit stays away.
 *
 * What it is bad at. Who sleeps in between is taken to have had all it wanted, if late: what a
 * crowd keeps from it is not seen. A burst shorter than a look counts for what it is in 9.7 ms.
 */
#ifndef DROVER_ENTITLE_WANT_H
#define DROVER_ENTITLE_WANT_H

#include "entitle/pool.h"
#include "queue/waiting.h"

/* No multiple of what guests' clocks go by: looks must not fall into step with them. */
#define ENTITLE_PERIOD_NS 9700000ULL
/* What is wanted is averaged over that. */
#define ENTITLE_MEMORY_NS (4 * ENTITLE_PERIOD_NS)
#define ENTITLE_PCPU_UCPU 1000000ULL
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

static __always_inline u64 entitle_apart(u64 a, u64 b)
{
	return a > b ? a - b : b - a;
}

static __always_inline u64 entitle_ucpu(u32 mcpu)
{
	return (u64)mcpu * (ENTITLE_PCPU_UCPU / 1000);
}

static __always_inline u64 entitle_limit_ucpu(u32 limit_mcpu)
{
	return limit_mcpu ? entitle_ucpu(limit_mcpu) : ~0ULL;
}

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

/* All that so many threads can use. */
static __always_inline u64 entitle_usable_ucpu(struct drover *d, u32 nr_threads)
{
	return least_of(nr_threads, partition_at(d, 0)->nr_online) * ENTITLE_PCPU_UCPU;
}

/* Of what it wants it may have that by its limit. */
static __always_inline u32 entitle_most_ucpu(struct vm *vm)
{
	return (u32)least_of(vm->wanted_ucpu, entitle_limit_ucpu(vm->limit_mcpu));
}

/*
 * Is all known of what it wants, until somebody of it sleeps or wakes? The mean has settled, and
 * all was divided by that.
 */
static __always_inline bool entitle_is_settled(struct drover *d, struct vm *vm)
{
	u32 awake = share_nr_awake(vm);

	return awake == vm->least_awake && vm->wanted_ucpu == entitle_usable_ucpu(d, awake) &&
	       vm->wanted_ucpu == vm->most_ucpu;
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
	wanted = most_of(usable, (u64)ran_ns * 1000 / (elapsed_ns / 1000));
	wanted = least_of(wanted, partition_at(d, 0)->nr_online * ENTITLE_PCPU_UCPU);
	if (vm->seen_run_ns)
		wanted = entitle_mean(vm->wanted_ucpu, wanted, elapsed_ns);
	vm->wanted_ucpu = entitle_settle(wanted, usable);
	vm->seen_run_ns = total_ns;
	moved = entitle_apart(entitle_most_ucpu(vm), vm->most_ucpu);
	d->moved_ucpu += slot == DROVER_HOST_SLOT ? moved / ENTITLE_HOST_PART : moved;
	return 0;
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Reservations: CPU time a VM is promised, from the moment it wants it.
 *
 * Idea. Beside its virtual time a VM with a reservation has a tag in real time:
 * the moment up to which what it has received pays for its reservation. Each ns
 * of CPU time moves the tag on by 1 / reservation; a VM whose tag is not later
 * than now is *due*, and VMs that are due are served before all by shares, the
 * one with the earliest tag first. The tag is kept from two sides:
 *  - a VM that wakes has its tag at now, less a small credit: it is due at once,
 *    and has saved up nothing to starve others with;
 *  - a VM that got more than its reservation, by its shares, is ahead by no more
 *    than a slice of each of its threads pays for: when rivals come, it is due
 *    again after that, and need not first give back what no other wanted.
 * Whatever the reason for which it ran, a VM is charged in both times. So it gets
 * the larger of its reservation and what its shares bring, not the sum. Its
 * virtual time runs by what it is owed in all (allot.h), so that it stays level
 * with the others', hoards no claim and drags no other's along.
 * These are the R tags of mClock (Gulati, Merchant, Varman, OSDI '10), charged
 * when a thread has run, in place of when a request arrives.
 *
 * Worked example. vm0, one vCPU, 100 % reserved, and seven like it without on
 * four pCPUs. vm0 runs for 8 ms: its tag has moved by 8 ms, and so has now; it is
 * still due, and goes on. The other seven divide three pCPUs by shares: 3/7 each.
 * With 50 %, the tag would be 8 ms ahead after 8 ms: others run for as long, then
 * vm0 is due.
 *
 * Limitations. Nothing happens at the moment at which a waiting VM becomes
 * due: it is seen at the next pick, a slice later at worst, and catches up then.
 */
#ifndef DROVER_RESERVE_H
#define DROVER_RESERVE_H

#include "share/share.h"

/* A waiting VM may be overdue by what so many slices pay for. */
#define RESERVE_OVERDUE_SLICES 4

/* Real time that the CPU time pays for. */
static __always_inline u64 reserve_span_ns(struct vm *vm, u64 cpu_ns)
{
	return share_scale(cpu_ns, vm->reserve_inverse);
}

/* It may be ahead of its reservation by that much real time: a slice of each thread that can run,
 * and one. */
static __always_inline u64 reserve_ahead_max_ns(struct drover *d, struct vm *vm)
{
	u64 threads = min_of(vm->nr_threads, d->params.nr_pcpus);

	return reserve_span_ns(vm, (threads + 1) * d->params.slice_ns);
}

/* What it is promised, from now on; its leaves are left as they are. */
static __always_inline void reserve_set(struct drover *d, struct vm *vm, u32 mcpu)
{
	u64 inverse = mcpu ? (1000ULL << SHARE_INVERSE_SHIFT) / mcpu : 0;
	u64 now_ns = ground_now_ns(d);
	u64 before;

	if (!vm->reserve_inverse)
		vm->reserve_tag_ns = now_ns;
	before = __sync_lock_test_and_set(&vm->reserve_inverse, inverse);
	/* What paid for a long time of the old promise pays for a short one of a larger. */
	share_not_after(&vm->reserve_tag_ns, now_ns + reserve_ahead_max_ns(d, vm));
	if (inverse && !before)
		__sync_fetch_and_add(&d->nr_reserved, 1);
	ASSERT(!before || d->nr_reserved);
	if (!inverse && before)
		__sync_fetch_and_sub(&d->nr_reserved, 1);
}

/* By that much it may be overdue while it is awake. */
static __always_inline u64 reserve_overdue_max_ns(struct drover *d, struct vm *vm)
{
	return d->params.claim_bound_ns +
	       reserve_span_ns(vm, RESERVE_OVERDUE_SLICES * d->params.slice_ns);
}

/* A thread of the VM wakes; `alone`: no other thread of it is awake. */
static __always_inline void reserve_wake(struct drover *d, struct vm *vm, bool alone)
{
	u64 overdue_ns = alone ? d->params.wake_credit_ns : reserve_overdue_max_ns(d, vm);

	if (vm->reserve_inverse)
		share_not_before(&vm->reserve_tag_ns, ground_now_ns(d) - overdue_ns);
}

/* By so much the CPU time moves the VM's tag on: no further than it may be ahead. */
static __always_inline u64 reserve_step_ns(struct drover *d, struct vm *vm, u64 cpu_ns, u64 now_ns)
{
	s64 room_ns = (s64)(now_ns + reserve_ahead_max_ns(d, vm) - vm->reserve_tag_ns);

	return room_ns > 0 ? min_of(reserve_span_ns(vm, cpu_ns), (u64)room_ns) : 0;
}

/* The VM has received CPU time. */
static __always_inline void reserve_charge(struct drover *d, struct vm *vm, u64 ran_ns)
{
	u64 now_ns;

	if (!vm->reserve_inverse)
		return;
	now_ns = ground_now_ns(d);
	__sync_fetch_and_add(&vm->reserve_tag_ns, reserve_step_ns(d, vm, ran_ns, now_ns));
	share_not_before(&vm->reserve_tag_ns, now_ns - reserve_overdue_max_ns(d, vm));
}

/*
 * For how long the VM, which has a reservation, has been due; < 0: it is not. What its running
 * threads will be charged for counts: of six that began together each would else find the VM due,
 * at the end of its slice, as long as few others were charged.
 */
static __always_inline s64 reserve_overdue_ns(struct vm *vm, u64 now_ns)
{
	u64 uncharged_ns = share_uncharged_ns(vm, now_ns);

	return (s64)(now_ns - vm->reserve_tag_ns - reserve_span_ns(vm, uncharged_ns));
}

/* Is the VM to be served before any by shares? */
static __always_inline bool reserve_is_due(struct vm *vm, u64 now_ns)
{
	return vm->reserve_inverse && reserve_overdue_ns(vm, now_ns) >= 0;
}

/*
 * When the VM, which has a reservation and waits, is due. What is uncharged takes it no further
 * ahead than it may be: it would wait for what it will never be charged, and nothing would correct
 * that.
 */
static __always_inline u64 reserve_due_ns(struct drover *d, struct vm *vm, u64 now_ns)
{
	return vm->reserve_tag_ns + reserve_step_ns(d, vm, share_uncharged_ns(vm, now_ns), now_ns);
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Allotments: the weight each VM is scheduled by, where shares alone do not say it.
 *
 * Idea. Reservations, limits, pools, sets of pCPUs and siblings that want little change what a VM
 * is owed. That may be 100 ms old, so it is worked out in the daemon, every 50 ms or as its cost
 * allows (drover-core, allot.rs). The kernel measures what each VM used, for how long it waited and
 * how many of its threads never slept; the daemon answers with one message for all VMs, which is
 * put in force as a whole:
 *  - virtual time runs at CPU time received / CPU time owed, in place of shares;
 *  - what is promised whenever a VM wants it (share.h);
 *  - what it is owed now, which a VM in a pool at its limit may not exceed (limit.h).
 *
 * A daemon that is late. A message is good for 2 s. If none comes by then (the daemon is stopped,
 * or hangs) VMs have plain shares, what is reserved for them, and the limits of their pools in the
 * order in which they ask.
 *
 * Worked example. 4 pCPUs; a VM with 1000 shares and 100 % reserved beside seven with 1000, one
 * busy vCPU each: the VM is owed 1 pCPU, the others 3/7. It is weighed as 2333 shares, they as
 * 1000. The daemon is stopped: 2 s later all are weighed as 1000, and the VM goes on to have its
 * reservation.
 *
 * Limitations. A VM that comes is weighed by its shares alone until the next message.
 */
#ifndef DROVER_ALLOT_H
#define DROVER_ALLOT_H

#include "share/share.h"
#include "queue/waiting.h"

/* So long what was allotted is good. */
#define ALLOT_LAPSES_NS 2000000000ULL
/* A weight that rises by more than that part of itself changes what is owed in it. */
#define ALLOT_REWEIGH_PART 16
#define ALLOT_SCALE_SHIFT 10

/* What the kernel measured of a VM. */
struct measured {
	u64 vm_id;   /* 0: the slot is free, or its VM is served by another policy */
	u64 used_ns; /* CPU time of all its threads since its birth */
	u64 waited_ns; /* for how long they waited for other VMs, not for a limit, the same */
	u32 awake;   /* threads that were awake ever since the last time it was measured */
	u32 shares;  /* in force */
};

/* What the VM is scheduled by from now on. */
struct allotment {
	u64 vm_id; /* the VM meant; another in that slot is left alone */
	u64 share_inverse;
	u32 entitled_ucpu;
	u32 promised_mcpu;
	u64 shares_part; /* of the time for which a limit holds it, what shares would, in 1024ths */
};

/* What the VM in that slot used, and wants. */
static __always_inline void allot_measure(struct drover *d, u32 slot, struct measured *measured,
					  u64 now_ns)
{
	struct vm *vm = vm_at(d, slot);
	u32 awake = share_nr_awake(vm);

	measured->vm_id = partition_allots(d, vm) ? vm->id : 0;
	measured->used_ns = share_used_ns(vm, now_ns);
	measured->waited_ns = vm->counters.ready_ns - vm->counters.limited_ns;
	measured->awake = (u32)min_of(awake, vm->least_awake);
	measured->shares = vm->shares;
	vm->least_awake = awake;
}

/*
 * The VM's virtual time runs by that from now on. When it runs more slowly than before, what the VM
 * is ahead of the clock shrinks alike, to as much CPU time as it was: a moment in which it was owed
 * next to nothing (before its siblings were found, or beside a storm in another pool) would else
 * cost it seconds of what it is owed after that.
 */
static __always_inline void allot_reweigh(struct drover *d, u32 slot, u64 inverse)
{
	struct vm *vm = vm_at(d, slot);
	u64 before = __sync_lock_test_and_set(&vm->share_inverse, inverse);
	s64 ahead_ns = (s64)(vm->vtime_ns - domain_at(d, vm->domain)->clock_ns);
	u64 part;

	if (inverse + inverse / ALLOT_REWEIGH_PART >= before)
		return;
	part = (inverse << ALLOT_SCALE_SHIFT) / before;
	if (ahead_ns > 0)
		__sync_fetch_and_sub(&vm->vtime_ns,
				     (u64)ahead_ns - ((u64)ahead_ns >> ALLOT_SCALE_SHIFT) * part);
	/* Leaves that count what was not charged yet, by the old weight, would be late for good. */
	waiting_settle_domains(d, slot);
}

/* That is promised to the VM from now on, if it is still there. */
static __always_inline void allot_promise(struct drover *d, u32 slot, u32 mcpu)
{
	deadline_promise(d, slot, mcpu);
	/* It has just gone: nothing else would take that back. */
	if (!*(volatile u64 *)&vm_at(d, slot)->id)
		deadline_promise(d, slot, 0);
}

/* Put what is allotted to the VM in force. */
BPF_GLOBAL int allot_vm(THE_DROVER, u32 slot, u64 inverse, u32 entitled_ucpu, u32 promised_mcpu)
{
	u64 most = (u64)DROVER_SHARES_PER_VCPU * SHARE_ONE_IN << SHARE_INVERSE_SHIFT;

	vm_at(d, slot)->entitled_ucpu = entitled_ucpu ?: 1;
	allot_reweigh(d, slot, min_of(inverse, most) ?: 1);
	if (slot != DROVER_HOST_SLOT)
		allot_promise(d, slot, promised_mcpu);
	return 0;
}

/* Put it in force if that VM is still there. */
static __always_inline void allot_obey(struct drover *d, u32 slot,
				       const struct allotment *allotment)
{
	struct vm *vm = vm_at(d, slot);

	if (!allotment->vm_id || allotment->vm_id != vm->id || !partition_allots(d, vm))
		return;
	vm->hold.shares_part = (u32)min_of(allotment->shares_part, LIMITED_PARTS);
	allot_vm(d, slot, allotment->share_inverse, allotment->entitled_ucpu,
		 allotment->promised_mcpu);
}

/* The VM has plain shares, and what is reserved for it. */
BPF_GLOBAL int allot_end_vm(THE_DROVER, u32 slot)
{
	struct vm *vm = vm_at(d, slot);

	if (!vm->entitled_ucpu)
		return 0;
	vm->entitled_ucpu = 0;
	vm->hold.shares_part = 0;
	share_set(vm, vm->shares);
	allot_promise(d, slot, vm->asked.reservation_mcpu);
	/* By shares it may stand earlier than by what it was owed. */
	waiting_settle_domains(d, slot);
	return 0;
}

/* Nothing is allotted any more. */
static __always_inline void allot_end(struct drover *d)
{
	u32 i;

	if (!d->allotted_ns)
		return;
	d->allotted_ns = 0;
	for_each_index(i, 0, d->slots_in_use)
		allot_end_vm(d, i);
}

/* All that was allotted is in force. */
static __always_inline void allot_begin(struct drover *d, u64 now_ns)
{
	d->allotted_ns = now_ns ?: 1;
}

/* From time to time: is it still good? */
BPF_GLOBAL int allot_check(THE_DROVER, u64 now_ns)
{
	u64 allotted_ns = d->allotted_ns;

	if (!allotted_ns || (s64)(now_ns - allotted_ns) < (s64)ALLOT_LAPSES_NS)
		return 0;
	allot_end(d);
	d->allot_lapses++;
	return 0;
}

#endif

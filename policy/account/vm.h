/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The life of a VM: born with its first vCPU, gone with its last thread.
 *
 * Idea. VMs are not registered. A process becomes one when the ground sees one
 * of its threads inside KVM_RUN; that thread is a vCPU, and all other threads
 * of the process, as they are met, are its helpers. A slot is given back only
 * when the last attached thread has left, because a leaving thread still
 * charges the VM it belongs to; were the slot another's by then, that VM would
 * pay for it.
 *
 * Default shares follow a VM's size: what it uses, not what it declares, for vCPUs that never run
 * cost nothing to make, and those that run for a moment next to nothing. Its size is how many of
 * its vCPUs used a 32nd of a pCPU at least, in this period of 1 s or in the one before, and no more
 * than the pCPUs of its partition: it could not run on more. Such a vCPU counts as a whole one,
 * although it mostly sleeps: when it wakes beside busy vCPUs of others it is to have as much as
 * they.
 *
 * All tasks of one user have a slot (find.h). Those of all users that are busy have together what
 * the host's own have, each an even part.
 *
 * Worked example. A VMM with two vCPUs and one I/O thread: the first vCPU to
 * enter the guest makes the VM (1000 shares), the second is attached, and when both have run for
 * 31 ms the VM has 2000, 125 ms later at most; the I/O thread is attached as a helper when it next
 * stops. One vCPU sleeps from then on but for 20 us every 4 s: 1 to 2 s later the VM has 1000. The
 * process is killed: three detachments, and the third frees the slot.
 *
 * Limitations. A vCPU without a record (vcpu.h) does not count. Where vCPUs that want all have less
 * than a 32nd of a pCPU each, wide VMs weigh as narrow ones. Until a helper thread has slept once
 * after the VM was found, its time is charged to the host. Above 2047 VMs the rest are served as
 * tasks of the host, which keeps them running but without shares of their own.
 */
#ifndef DROVER_VM_H
#define DROVER_VM_H

#include "account/vcpu.h"
#include "limit/limit.h"
#include "partition/drain.h"

static __always_inline u32 vm_host_width(struct drover *d)
{
	return d->params.nr_pcpus * DROVER_SHARES_PER_VCPU;
}

/*
 * The host's own tasks weigh as if they were as wide as the host, and never
 * less than a tenth of all VMs: kthreads and the shell of an operator must get
 * through, whatever shares VMs were given.
 */
static __always_inline void vm_settle_host(struct drover *d)
{
	u32 width = vm_host_width(d);
	u32 tenth = d->vm_shares / 10;

	share_set(vm_at(d, DROVER_HOST_SLOT), (u32)max_of(width, tenth));
}

/* A period in which vCPUs count for their VM's size if they use that part of it. */
#define VM_PERIOD_NS 1000000000ULL
#define VM_COUNTS_ONE_IN 32
/* A busy user has no fewer shares. */
#define VM_USER_SHARES_MIN 100

/* What was asked for, or the default for its size, within what share_set gives. */
BPF_GLOBAL u32 vm_shares_due(THE_DROVER, u32 slot)
{
	struct vm *vm = vm_at(d, slot);
	u32 asked = *(volatile u32 *)&vm->asked.shares ?: DROVER_SHARES_PER_VCPU | SHARES_PER_VCPU;
	u32 pcpus = partition_at(d, vm->partition)->nr_online;
	u64 size = min_of(*(volatile u32 *)&vm->size, *(volatile u32 *)&vm->nr_vcpus);
	u64 shares = asked & ~SHARES_PER_VCPU;

	if (owner_is_user(vm->owner_id))
		return (u32)max_of(vm_host_width(d) / max_of(d->nr_busy_users, 1),
				   VM_USER_SHARES_MIN);
	if (asked & SHARES_PER_VCPU)
		shares *= max_of(min_of(size, pcpus), 1);
	return (u32)min_of(shares, DROVER_SHARES_MAX);
}

/* The shares in force are those. */
BPF_GLOBAL int vm_settle_shares(THE_DROVER, u32 slot)
{
	struct vm *vm = vm_at(d, slot);
	u32 try;

	/* Two vCPUs, or an order, may come at once: the later one may have written first. */
	for_each_index(try, 0, 4) {
		u32 shares = vm_shares_due(d, slot);
		u32 before = share_set(vm, shares);

		__sync_fetch_and_add(&d->vm_shares, shares - before);
		if (vm_shares_due(d, slot) == shares)
			break;
	}
	vm_settle_host(d);
	return 0;
}

/* Does the vCPU count, by what it used in this period or in the last? `over`: this one ends now. */
static __always_inline bool vm_vcpu_counts(struct vcpu *v, bool over)
{
	u64 used_ns = *(volatile u64 *)&v->used_ns;
	bool counts;

	if (used_ns - v->used_mark_ns >= VM_PERIOD_NS / VM_COUNTS_ONE_IN)
		v->counts |= VCPU_COUNTS_NOW;
	counts = v->counts;
	if (over) {
		v->used_mark_ns = used_ns;
		v->counts = v->counts & VCPU_COUNTS_NOW ? VCPU_COUNTED : 0;
	}
	return counts;
}

/* The VM's size is how many of its vCPUs count. */
BPF_GLOBAL int vm_take_size(THE_DROVER, u32 slot, bool over)
{
	u32 places = vcpu_places(vm_at(d, slot));
	u32 size = 0;
	u32 place;

	for_each_index(place, 0, places) {
		struct vcpu *v = vcpu_in(d, slot, place);

		size += v && vm_vcpu_counts(v, over);
	}
	vm_at(d, slot)->size = size;
	return 0;
}

/* A period is over: is this a user whose tasks used as much in it as counts? */
static __always_inline bool vm_is_busy_user(struct vm *vm, u64 now_ns)
{
	u64 before_ns = vm->used_mark_ns;

	if (!owner_is_user(vm->owner_id))
		return false;
	vm->used_mark_ns = share_used_ns(vm, now_ns);
	return vm->used_mark_ns - before_ns >= VM_PERIOD_NS / VM_COUNTS_ONE_IN;
}

/*
 * From time to time: how large is each VM? Shares follow its size, and the pCPUs that came or went
 * since.
 */
BPF_GLOBAL int vm_take_sizes(THE_DROVER, u64 now_ns)
{
	u32 period = (u32)(now_ns / VM_PERIOD_NS);
	bool over = d->period != period;
	u32 nr_busy_users = 0;
	u32 i;

	for_each_index(i, 1, d->slots_in_use) {
		struct vm *vm = vm_at(d, i);

		if (over)
			nr_busy_users += vm_is_busy_user(vm, now_ns);
		if (vcpu_places(vm))
			vm_take_size(d, i, over);
		if (vm->id && vm_shares_due(d, i) != vm->shares)
			vm_settle_shares(d, i);
	}
	if (!over)
		return 0;
	if (d->nr_busy_users != nr_busy_users)
		d->nr_busy_users = nr_busy_users;
	d->period = period;
	return 0;
}

/* The settings of the VM in that slot were changed: put them in force. */
static __always_inline void vm_settle(struct drover *d, u32 slot)
{
	struct vm *vm = vm_at(d, slot);

	vm_settle_shares(d, slot);
	deadline_promise(d, slot, vm->asked.reservation_mcpu);
	limit_note(d, slot);
	/* Waits are held against the promise that is in force (drover-core delay.rs). */
	vm->counters.settled_ns = ground_now_ns(d);
	vm->counters.longest_ready_ns = 0;
}

/* Its threads run in that partition from when they next stop; those that wait move there. */
static __always_inline void vm_set_partition(struct drover *d, struct vm *vm, u32 partition)
{
	if (vm->partition == partition)
		return;
	vm->partition = bounded(partition, DROVER_MAX_PARTITIONS);
	/* What it was owed in another partition says nothing here, nor where it was at home. */
	vm->home = 0;
	vm->entitled_ucpu = 0;
	vm->hold.shares_part = 0;
	share_set(vm, vm->shares);
	__sync_fetch_and_add(&d->pcpu_changes, 1);
	drain_begin(d);
}

/* Pools came, went or changed: put that in force. */
static __always_inline void vm_settle_pools(struct drover *d)
{
	pool_settle(d);
	limit_note_all(d);
}

/* The VM in that free slot begins, with its id. Nothing is left of the VM that had it before. */
static __always_inline void vm_begin(struct drover *d, u32 slot, u64 owner_id)
{
	struct vm *vm = vm_at(d, slot);
	u64 now_ns = ground_now_ns(d);

	tournament_grow(d, slot);
	__builtin_memset(vm, 0, sizeof(*vm));
	__builtin_memset(&d->waker[bounded(slot, DROVER_MAX_VMS)], 0, sizeof(struct waker));
	vm->owner_id = owner_id;
	vm->cosched_mode = COSCHED_AUTO;
	vm->domain = DOMAIN_NONE;
	vm->vtime_ns = domain_at(d, 0)->clock_ns;
	vm->counters.settled_ns = now_ns;
	if (slot != DROVER_HOST_SLOT)
		vm_settle_shares(d, slot);
	vm->id = __sync_fetch_and_add(&d->next_vm_id, 1) + 1;
	atomic_max(&d->slots_in_use, slot + 1);
}

/* The VM can be found from now on: threads are told to look, those that wait too. */
static __always_inline void vm_tell_found(struct drover *d)
{
	__sync_fetch_and_add(&d->vms_found, 1);
	drain_begin(d);
}

/* Slot 0 begins: all other tasks of the host. */
static __always_inline void vm_begin_host(struct drover *d)
{
	vm_begin(d, DROVER_HOST_SLOT, 0);
	vm_at(d, DROVER_HOST_SLOT)->nr_vcpus = d->params.nr_pcpus;
	vm_settle_host(d);
}

/* Let go of the VM. True when it is held no more: the slot is free. */
static __always_inline bool vm_release(struct drover *d, struct vm *vm)
{
	ASSERT(vm->nr_threads);
	if (__sync_fetch_and_sub(&vm->nr_threads, 1) != 1)
		return false;
	ASSERT(!vm->nr_vcpus && !vm->nr_waiting && !vm->nr_confined);
	__sync_fetch_and_sub(&d->vm_shares, vm->shares);
	vm_settle_host(d);
	reserve_set(d, vm, 0);
	limit_forget(d, vm);
	together_set(d, vm, 0);
	vm->id = 0;
	return true;
}

/*
 * Hold the VM for one more thread. False when it is just going away: who has
 * let go last frees the slot, and must not be overtaken.
 */
static __always_inline bool vm_hold(struct vm *vm)
{
	u32 try;

	for_each_index(try, 0, 16) {
		u32 holders = *(volatile u32 *)&vm->nr_threads;

		if (holders == 0)
			return false;
		if (__sync_val_compare_and_swap(&vm->nr_threads, holders, holders + 1) == holders)
			return true;
	}
	return false;
}

/* The thread, which runs or waits, is of the VM in that slot (already held) from now on. */
BPF_GLOBAL int vm_attach(THE_DROVER, THE_THREAD, u32 slot, u32 kind)
{
	struct vm *from = vm_at(d, t->slot);
	struct vm *vm = vm_at(d, slot);

	waiting_end(d, t, ground_now_ns(d));
	quota_unpark(d, t, ground_now_ns(d));
	vcpu_close(d, t);
	ASSERT(!t->queued_in && !t->record);
	if (t->kind == THREAD_VCPU) {
		ASSERT(from->nr_vcpus);
		__sync_fetch_and_sub(&from->nr_vcpus, 1);
		vm_settle_shares(d, t->slot);
	}
	affinity_leave(from, t);
	affinity_join(vm, t);
	t->slot = slot;
	t->kind = kind;
	t->vruntime_ns = vm->vruntime_floor_ns;
	if (t->partition != vm->partition)
		t->affinity_seq = d->pcpu_changes - 1;
	return 0;
}

/* A helper turned out to be a vCPU. */
static __always_inline void vm_promote(struct drover *d, struct thread *t, u32 vcpu_id, u32 tid)
{
	struct vm *vm = vm_at(d, t->slot);

	t->kind = THREAD_VCPU;
	__sync_fetch_and_add(&vm->nr_vcpus, 1);
	vm_settle_shares(d, t->slot);
	vcpu_open(d, t, vcpu_id, tid);
}

/*
 * The thread leaves its VM, if it has one. Returns true when it was the last of that: the slot is
 * free and the caller forgets the process.
 */
static __always_inline bool vm_detach(struct drover *d, struct thread *t)
{
	u32 slot = t->slot;

	vm_attach(d, t, DROVER_HOST_SLOT, THREAD_HOST);
	return slot != DROVER_HOST_SLOT && vm_release(d, vm_at(d, slot));
}

#endif

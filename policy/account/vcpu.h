/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Accounting of single vCPUs: how far each has come.
 *
 * Idea. A VM's own figures say what its threads are due, but not how far its vCPUs
 * have drifted apart. So each vCPU has a record that its siblings can find: its state
 * (halted, ready, running), its progress, and its lag.
 *
 * Progress is guest time: CPU time less what the kernel's accounting says was spent
 * in the hypervisor, in the kernel or in the VMM (seed 000, 3.1: "the time spent in
 * the hypervisor is excluded"). Halted time counts too, as far as to the slowest
 * sibling that wants to run: a halted vCPU never lags, and is not ahead for it either.
 * Lag is the older measure of ESX 2 and 3: it grows while the vCPU is ready and any
 * sibling runs, and shrinks by its own progress.
 *
 * Worked example (seed 000, figure 1). Four vCPUs; v3 runs for 2 T, then v2 for T,
 * while v0 and v1 are ready. Lag of v0 and v1: 3 T. Progress of v3 less that of the
 * slowest: 2 T.
 *
 * Limitations. The kernel's accounting of hypervisor time is by sampling at
 * the tick: exact over a second, coarse over a tick. The 1025th vCPU of a VM, and
 * any beyond 32767 on the host, have no record: they neither lag nor lead.
 */
#ifndef DROVER_VCPU_H
#define DROVER_VCPU_H

#include "cosched/together.h"

static __always_inline struct vcpu *vcpu_at(struct drover *d, u32 record)
{
	return &d->vcpu[bounded(record, DROVER_MAX_VCPUS)];
}

/* One of the VM's places: it holds the record of a vCPU, or 0. */
static __always_inline u32 *vcpu_place(struct drover *d, u32 slot, u32 place)
{
	return &d->vcpu_of[bounded(slot, DROVER_MAX_VMS)][bounded(place, DROVER_VM_VCPUS)];
}

/* How many of them were ever used. */
static __always_inline u32 vcpu_places(struct vm *vm)
{
	return vm->vcpu_places & (2 * DROVER_VM_VCPUS - 1);
}

/* The record in one of the VM's places, NULL if it is empty. */
static __always_inline struct vcpu *vcpu_in(struct drover *d, u32 slot, u32 place)
{
	u32 record = *vcpu_place(d, slot, place);

	return record ? vcpu_at(d, record) : NULL;
}

/* Find a free record. Few are taken, so a few looks do. */
BPF_GLOBAL u32 vcpu_find_record(THE_DROVER)
{
	u32 found = 0;
	u32 try;

	for_each_index(try, 0, 64) {
		u32 record = __sync_fetch_and_add(&d->vcpu_hint, 1) & (DROVER_MAX_VCPUS - 1);

		if (record == 0 || __sync_val_compare_and_swap(&vcpu_at(d, record)->state,
							       VCPU_NONE, VCPU_HALTED) != VCPU_NONE)
			continue;
		found = record;
		break;
	}
	return found;
}

/* Enter the record among those of its VM; false if there is no place left. */
BPF_GLOBAL bool vcpu_enter(THE_DROVER, u32 slot, u32 record)
{
	bool entered = false;
	u32 place;

	for_each_index(place, 0, DROVER_VM_VCPUS) {
		u32 *at = vcpu_place(d, slot, place);

		if (*at || __sync_val_compare_and_swap(at, 0, record))
			continue;
		atomic_max(&vm_at(d, slot)->vcpu_places, place + 1);
		entered = true;
		break;
	}
	return entered;
}

/* The thread, with that number, has become a vCPU of its VM. */
static __always_inline void vcpu_open(struct drover *d, struct thread *t, u32 vcpu_id, u32 tid)
{
	u32 record = vcpu_find_record(d);
	struct vcpu *v = vcpu_at(d, record);

	if (!record)
		return;
	v->progress_ns = vm_at(d, t->slot)->skew.floor_ns;
	v->slot = (u16)t->slot;
	v->vcpu_id = (u16)vcpu_id;
	v->tid = tid;
	if (vcpu_enter(d, t->slot, record))
		t->record = record;
	else
		v->state = VCPU_NONE;
}

/* The thread leaves its VM. */
static __always_inline void vcpu_close(struct drover *d, struct thread *t)
{
	u32 record = t->record;
	struct vcpu *v = vcpu_at(d, record);
	u32 place;

	if (!record)
		return;
	t->record = 0;
	ASSERT(v->slot == t->slot && v->state != VCPU_NONE);
	for_each_index(place, 0, vcpu_places(vm_at(d, t->slot))) {
		u32 *at = vcpu_place(d, t->slot, place);

		if (*at == record)
			*at = 0;
	}
	if (v->costop_since_ns)
		__sync_fetch_and_sub(&vm_at(d, t->slot)->skew.nr_stopped, 1);
	/* A free record is empty; it is free last of all. */
	__builtin_memset(v, 0, offsetof(struct vcpu, state));
	__sync_lock_test_and_set(&v->state, VCPU_NONE);
}

/* Its lag, as of the VM's last tally. */
static __always_inline u64 vcpu_lag_ns(struct vm *vm, struct vcpu *v)
{
	return v->state == VCPU_READY ? v->lag_ns + (vm->pressure.progressed_ns - v->lag_mark_ns) :
					v->lag_ns;
}

/* The thread, a vCPU or not, runs there. */
static __always_inline void vcpu_running(struct drover *d, struct thread *t, u32 pcpu)
{
	struct vcpu *v = vcpu_at(d, t->record);

	t->spun_ns = 0;
	if (!t->record)
		return;
	v->pcpu = pcpu;
	v->state = VCPU_RUNNING;
}

/* It runs no more. */
static __always_inline void vcpu_halted(struct drover *d, struct thread *t)
{
	if (t->record)
		vcpu_at(d, t->record)->state = VCPU_HALTED;
}

/* It has run for so long, and been in the hypervisor for so much of its life. */
static __always_inline void vcpu_progress(struct drover *d, struct thread *t, u64 ran_ns,
					  u64 hypervisor_ns)
{
	struct vcpu *v = vcpu_at(d, t->record);
	u64 spent_ns;
	u64 came_ns;

	if (!t->record)
		return;
	v->used_ns += ran_ns;
	/* What it spent before it was known as a vCPU does not count. */
	if (!v->hypervisor_ns)
		v->hypervisor_ns = hypervisor_ns;
	spent_ns = hypervisor_ns - v->hypervisor_ns;
	/* A sample is a whole tick: what is more than it ran is taken from the next run. */
	if (spent_ns > ran_ns)
		spent_ns = ran_ns;
	v->hypervisor_ns += spent_ns;
	came_ns = ran_ns - spent_ns;
	v->progress_ns += came_ns;
	v->lag_ns -= v->lag_ns < came_ns ? v->lag_ns : came_ns;
}

/* For how long it was seen to spin since it was last asked, or was switched to. */
static __always_inline u64 vcpu_take_spun_ns(struct drover *d, struct task_struct *task,
					     struct thread *t)
{
	u64 before_ns = t->spun_ns;

	t->spun_ns = ground_spun_ns(d, task);
	return t->spun_ns > before_ns ? t->spun_ns - before_ns : 0;
}

/* Bring all vCPUs of a VM level with the one that has come furthest. */
BPF_GLOBAL int vcpu_level(THE_DROVER, u32 slot)
{
	struct vm *vm = vm_at(d, slot);
	u32 places = vcpu_places(vm);
	u64 most_ns = vm->skew.floor_ns;
	u32 place;

	for_each_index(place, 0, places) {
		struct vcpu *v = vcpu_in(d, slot, place);

		if (v)
			most_ns = max_of(most_ns, v->progress_ns);
	}
	vm->skew.floor_ns = most_ns;
	for_each_index(place, 0, places) {
		struct vcpu *v = vcpu_in(d, slot, place);

		if (v)
			v->progress_ns = most_ns;
	}
	return 0;
}

/* Note how far the vCPUs of a VM are ahead of `slowest_ns`, the slowest of their ready siblings. */
BPF_GLOBAL int vcpu_note_skew(THE_DROVER, u32 slot, u64 slowest_ns)
{
	struct vm *vm = vm_at(d, slot);
	u32 place;

	for_each_index(place, 0, vcpu_places(vm)) {
		struct vcpu *v = vcpu_in(d, slot, place);
		s64 ahead_ns;

		if (!v || (v->state != VCPU_READY && v->state != VCPU_RUNNING))
			continue;
		ahead_ns = (s64)(v->progress_ns - slowest_ns);
		if (ahead_ns > (s64)v->skew_max_ns)
			v->skew_max_ns = (u64)ahead_ns;
		if (ahead_ns > (s64)vm->skew.max_ns)
			vm->skew.max_ns = (u64)ahead_ns;
	}
	return 0;
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Finding VMs as bpf/find_vm.bpf.h does, on maps that the simulator keeps. A thread is inside
 * KVM_RUN when the simulator says so.
 */
#ifndef DROVER_SIM_FIND_VM_H
#define DROVER_SIM_FIND_VM_H

#include "account/vm.h"

/* The policy's thread and what the kernel's task_struct would say of it. */
struct sim_thread {
	struct thread t;
	u32 tgid;
	u32 pad;
};

/* The maps vm_slots and free_slots. Slot 0 stands for "none". */
u32 sim_map_slot_of(struct drover *d, u32 tgid);
u32 sim_map_pop_free(struct drover *d);
void sim_map_set_slot(struct drover *d, u32 tgid, u32 slot);
void sim_map_forget(struct drover *d, u32 tgid, u32 slot);

static u32 hold_vm_of(struct drover *d, u32 tgid)
{
	u32 slot = sim_map_slot_of(d, tgid);
	u32 holder;

	if (slot == DROVER_HOST_SLOT || !vm_hold(vm_at(d, slot)))
		return DROVER_HOST_SLOT;
	holder = vm_at(d, slot)->tgid;
	if (holder == tgid)
		return slot;
	if (vm_release(d, vm_at(d, slot)))
		sim_map_forget(d, holder, slot);
	return DROVER_HOST_SLOT;
}

static u32 make_vm(struct drover *d, u32 tgid)
{
	u32 slot = sim_map_pop_free(d);

	if (slot == DROVER_HOST_SLOT)
		return DROVER_HOST_SLOT;
	vm_begin(d, slot, tgid);
	__sync_fetch_and_add(&vm_at(d, slot)->nr_threads, 1);
	sim_map_set_slot(d, tgid, slot);
	vm_tell_found(d);
	return slot;
}

static void find_vcpu(struct drover *d, struct sim_thread *s, u32 vcpu_id)
{
	struct thread *t = &s->t;
	u32 slot;

	if (t->kind == THREAD_VCPU)
		return;
	t->vcpu_id = vcpu_id;
	if (t->kind == THREAD_HELPER) {
		vm_promote(d, t);
		return;
	}
	slot = hold_vm_of(d, s->tgid);
	if (slot == DROVER_HOST_SLOT)
		slot = make_vm(d, s->tgid);
	if (slot != DROVER_HOST_SLOT)
		vm_attach(d, t, slot, THREAD_VCPU);
}

static void find_helper(struct drover *d, struct sim_thread *s)
{
	struct thread *t = &s->t;
	u32 found = d->vms_found;
	u32 slot;

	if (t->kind != THREAD_HOST || t->vms_seen == found)
		return;
	t->vms_seen = found;
	slot = hold_vm_of(d, s->tgid);
	if (slot != DROVER_HOST_SLOT)
		vm_attach(d, t, slot, THREAD_HELPER);
}

static void forget_thread(struct drover *d, struct sim_thread *s)
{
	u32 slot = s->t.slot;
	u32 tgid = vm_at(d, slot)->tgid;

	if (vm_detach(d, &s->t))
		sim_map_forget(d, tgid, slot);
}

#endif

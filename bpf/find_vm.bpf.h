/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Finding VMs in the kernel, for any VMM and with no configuration.
 *
 * While a thread is inside an ioctl on a vCPU, KVM keeps a preempt notifier on
 * it; nothing else in the kernel uses preempt notifiers. So a thread that stops
 * running with one on its list, and whose ioctl is KVM_RUN, is a vCPU, whatever
 * the VMM calls it, and its process is a VM. All other threads of that process are the VM's
 * helpers, vhost workers included: since 6.4 they are threads of the VMM process.
 */
#ifndef DROVER_FIND_VM_BPF_H
#define DROVER_FIND_VM_BPF_H

#include "account/vm.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, DROVER_MAX_VMS);
	__type(key, u32);   /* tgid */
	__type(value, u32); /* slot */
} vm_slots SEC(".maps");

/*
 * Filled by the loader with 1 .. DROVER_MAX_VMS - 1, the lowest on top. A stack,
 * so that slots stay low and the tournament small.
 */
struct {
	__uint(type, BPF_MAP_TYPE_STACK);
	__uint(max_entries, DROVER_MAX_VMS);
	__type(value, u32);
} free_slots SEC(".maps");

/* KVM's vCPU that the running thread has loaded; it may be gone meanwhile. */
static struct kvm_vcpu *loaded_vcpu(struct task_struct *p)
{
	return (void *)p->preempt_notifiers.first -
	       bpf_core_field_offset(struct kvm_vcpu, preempt_notifier) -
	       bpf_core_field_offset(struct preempt_notifier, link);
}

/* Is the thread in KVM_RUN, not in another ioctl on a vCPU? Kernels that do not tell: yes. */
static bool runs_guest(struct kvm_vcpu *vcpu)
{
	bool wants_to_run = true;

	if (bpf_core_field_exists(struct kvm_vcpu, wants_to_run))
		bpf_probe_read_kernel(&wants_to_run, sizeof(wants_to_run),
				      (void *)vcpu +
					      bpf_core_field_offset(struct kvm_vcpu, wants_to_run));
	return wants_to_run;
}

static u32 vcpu_id_of(struct kvm_vcpu *vcpu)
{
	int id = 0;

	if (bpf_core_field_exists(struct kvm_vcpu, vcpu_id))
		bpf_probe_read_kernel(&id, sizeof(id),
				      (void *)vcpu +
					      bpf_core_field_offset(struct kvm_vcpu, vcpu_id));
	return id;
}

/* Nobody holds the slot any more. */
static void free_slot(u32 slot, u32 tgid)
{
	bpf_map_delete_elem(&vm_slots, &tgid);
	bpf_map_push_elem(&free_slots, &slot, BPF_ANY);
}

/* The slot of the process' VM, held for one more thread; 0 if it is none. */
static u32 hold_vm_of(struct drover *d, u32 tgid)
{
	u32 *found = bpf_map_lookup_elem(&vm_slots, &tgid);
	u32 slot = found ? *found : DROVER_HOST_SLOT;
	u32 holder;

	if (slot == DROVER_HOST_SLOT || !vm_hold(vm_at(d, slot)))
		return DROVER_HOST_SLOT;
	holder = vm_at(d, slot)->tgid;
	if (holder == tgid)
		return slot;
	/* Between look-up and hold the slot became another's. */
	if (vm_release(d, vm_at(d, slot)))
		free_slot(slot, holder);
	return DROVER_HOST_SLOT;
}

/* Make a VM of the process; its slot, held, or 0 when all slots are taken. */
static u32 make_vm(struct drover *d, u32 tgid)
{
	u32 slot;

	if (bpf_map_pop_elem(&free_slots, &slot))
		return DROVER_HOST_SLOT;
	vm_begin(d, slot, tgid);
	__sync_fetch_and_add(&vm_at(d, slot)->nr_threads, 1);
	if (!bpf_map_update_elem(&vm_slots, &tgid, &slot, BPF_NOEXIST)) {
		vm_tell_found(d);
		return slot;
	}
	/* A sibling was quicker. */
	vm_release(d, vm_at(d, slot));
	bpf_map_push_elem(&free_slots, &slot, BPF_ANY);
	return hold_vm_of(d, tgid);
}

/* A thread not known as a vCPU stops running with a preempt notifier on it. */
static void find_new_vcpu(struct drover *d, struct task_struct *p, struct thread *t)
{
	u32 tgid = p->tgid;
	u32 slot;

	if (!runs_guest(loaded_vcpu(p)))
		return;
	t->vcpu_id = vcpu_id_of(loaded_vcpu(p));
	if (t->kind == THREAD_HELPER) {
		vm_promote(d, t);
		return;
	}
	slot = hold_vm_of(d, tgid);
	if (slot == DROVER_HOST_SLOT)
		slot = make_vm(d, tgid);
	if (slot != DROVER_HOST_SLOT)
		vm_attach(d, t, slot, THREAD_VCPU);
}

/* The thread stops running: if it is inside KVM_RUN, it is a vCPU. */
static __always_inline void find_vcpu(struct drover *d, struct task_struct *p, struct thread *t)
{
	if (t->kind != THREAD_VCPU && p->preempt_notifiers.first)
		find_new_vcpu(d, p, t);
}

/* VMs have been found since the host thread was last looked at: its process may be one. */
static void find_new_helper(struct drover *d, struct task_struct *p, struct thread *t, u32 found)
{
	u32 slot;

	t->vms_seen = found;
	slot = hold_vm_of(d, p->tgid);
	if (slot != DROVER_HOST_SLOT)
		vm_attach(d, t, slot, THREAD_HELPER);
}

/* A host thread becomes ready: if its process has become a VM, it is a helper. */
static __always_inline void find_helper(struct drover *d, struct task_struct *p, struct thread *t)
{
	u32 found = d->vms_found;

	if (t->kind == THREAD_HOST && t->vms_seen != found)
		find_new_helper(d, p, t, found);
}

/* The thread leaves; its VM is forgotten with its last thread. */
static void forget_thread(struct drover *d, struct thread *t)
{
	u32 slot = t->slot;
	u32 tgid = vm_at(d, slot)->tgid;

	if (vm_detach(d, t))
		free_slot(slot, tgid);
}

#endif

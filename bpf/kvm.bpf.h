/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which vCPU a thread has loaded.
 *
 * While a thread is inside an ioctl on a vCPU, KVM keeps a preempt notifier on
 * it; nothing else in the kernel uses preempt notifiers. So a thread with one on
 * its list, whose ioctl is KVM_RUN, is a vCPU, whatever the VMM calls it. Vhost
 * workers are threads of the VMM's process, too, since 6.4.
 */
#ifndef DROVER_KVM_BPF_H
#define DROVER_KVM_BPF_H

/* KVM's vCPU that the thread has loaded; it may be gone meanwhile. */
static struct kvm_vcpu *loaded_vcpu(struct task_struct *task)
{
	return (void *)task->preempt_notifiers.first -
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

static s32 vcpu_id_of(struct kvm_vcpu *vcpu)
{
	s32 id = 0;

	if (bpf_core_field_exists(struct kvm_vcpu, vcpu_id))
		bpf_probe_read_kernel(&id, sizeof(id),
				      (void *)vcpu +
					      bpf_core_field_offset(struct kvm_vcpu, vcpu_id));
	return id;
}

/* The number of the vCPU that the thread has loaded, if it is in KVM_RUN; else -1. */
static s32 vcpu_of(struct task_struct *task)
{
	struct kvm_vcpu *vcpu;

	/* Not described when we were loaded (crates/drover-host/src/kvm.rs): no VM can be found. */
	if (!bpf_core_type_exists(struct kvm_vcpu))
		return -1;
	if (!task->preempt_notifiers.first)
		return -1;
	vcpu = loaded_vcpu(task);
	return runs_guest(vcpu) ? vcpu_id_of(vcpu) : -1;
}

#endif

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

/*
 * For how long the vCPU has spun since it was switched to. KVM lets it out when it has spun for a
 * window, and doubles that then; a switch sets it back. So
 * the window is what it has spun so far, and the first window. On Intel it is in cycles of the
 * clock, 2 to 4 in a ns; on AMD in PAUSE instructions of 40 to 65 cycles, 65,535 at most.
 */
#define FIRST_WINDOW_INTEL 4096
#define FIRST_WINDOW_AMD 3000

static u64 spun_ns_of(struct kvm_vcpu *vcpu)
{
	void *at = vcpu;
	u32 window = 0;
	u16 pauses = 0;

	/* Both structures begin with KVM's vCPU. */
	if (bpf_core_field_exists(struct vcpu_vmx, ple_window)) {
		bpf_probe_read_kernel(&window, sizeof(window),
				      at + bpf_core_field_offset(struct vcpu_vmx, ple_window));
		return window > FIRST_WINDOW_INTEL ? (window - FIRST_WINDOW_INTEL) / 3 : 0;
	}
	if (!bpf_core_field_exists(struct vmcb_control_area, pause_filter_count) ||
	    bpf_probe_read_kernel(&at, sizeof(at),
				  at + bpf_core_field_offset(struct vcpu_svm, vmcb)))
		return 0;
	bpf_probe_read_kernel(
		&pauses, sizeof(pauses),
		at + bpf_core_field_offset(struct vmcb, control) +
			bpf_core_field_offset(struct vmcb_control_area, pause_filter_count));
	return pauses > FIRST_WINDOW_AMD ? (u64)(pauses - FIRST_WINDOW_AMD) * 16 : 0;
}

/* The same of the vCPU that the thread has loaded, if it has. */
static u64 spun_ns(struct task_struct *task)
{
	if (!bpf_core_type_exists(struct kvm_vcpu) || !task->preempt_notifiers.first)
		return 0;
	return spun_ns_of(loaded_vcpu(task));
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

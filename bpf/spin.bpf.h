/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * For how long a vCPU has spun since it was switched to.
 *
 * KVM lets a vCPU that spins out of the guest when it has done so for a window, and doubles the
 * window then; a switch sets it back. So the window is what the vCPU has spun so far, and the first
 * window. On Intel it is in cycles of the clock, 2 to 4 in a ns; on AMD in PAUSE instructions of 40
 * to 65 cycles, 65,535 at most.
 *
 * Limitations. Where KVM's modules have other settings for how windows grow and shrink than theirs,
 * it says too much or too little. Not seen where the module of the CPU's kind was loaded later.
 */
#ifndef DROVER_SPIN_BPF_H
#define DROVER_SPIN_BPF_H

#include "kvm.bpf.h"

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

#endif

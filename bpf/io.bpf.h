/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which wake-ups are on the way of a VM's I/O, and how long the runs they ask for take to come.
 *
 * Idea. The waker and the thread it wakes say what a wake-up is for. vCPUs run the guest and
 * a VM's other threads, its helpers, are its devices: vhost workers, I/O threads, the VMM's main
 * loop. So
 *
 *   to guest   a vCPU that halted is woken by anybody but a vCPU of its VM, which
 *              sends interrupts of its own, and but its own timer: by a helper, by a
 *              back end in another process, or by the host's kernel
 *   to device  a helper that sleeps is woken by a vCPU of its VM, whose guest rang
 *              its doorbell, by the host's kernel, because a disk is done or a
 *              packet came, or by another VM, which sent one
 *
 * Worked example. A guest reads a block. vCPU 0 writes to the disk's doorbell, which
 * wakes the I/O thread: to device. vCPU 0 halts. The I/O thread runs 80 us later,
 * reads the block and injects an interrupt, which wakes vCPU 0: to guest. It runs
 * 2 ms later, because the pCPU was busy. Delays: 80 us and 2 ms.
 *
 * Limitations. A device that the VMM emulates in the thread of a vCPU looks like
 * an interrupt from vCPU to vCPU. A timer of a helper looks like a device. Nobody
 * is woken who polls. Some kernels do not tell where they keep whether a pCPU is in an
 * interrupt: there an interrupt counts as done by the thread it met. Where KVM has a guest's timer
 * wait on another pCPU and posts its interrupt, it looks like a device's.
 */
#ifndef DROVER_IO_BPF_H
#define DROVER_IO_BPF_H

#include "interrupt.bpf.h"

/* Each power of two in four, from 1.024 us to 17 s; drover-observe's delays.rs reads them. */
#define DELAY_UNIT_SHIFT 10
#define DELAY_SUB_BITS 2
#define NR_DELAYS 92

struct delays {
	u64 sum_ns;
	u32 counts[NR_DELAYS];
};

static u32 delay_index(u64 delay_ns)
{
	u64 units = delay_ns >> DELAY_UNIT_SHIFT;
	u32 shift;
	u64 index;

	if (units < 1u << DELAY_SUB_BITS)
		return units;
	shift = 63 - __builtin_clzll(units) - DELAY_SUB_BITS;
	index = (shift << DELAY_SUB_BITS) + (units >> shift);
	return index < NR_DELAYS ? index : NR_DELAYS - 1;
}

static void delays_add(struct delays *delays, u64 delay_ns)
{
	u32 index = delay_index(delay_ns);

	delays->sum_ns += delay_ns;
	/* It is: for the verifier's sake. */
	if (index < NR_DELAYS)
		delays->counts[index]++;
}

/* Of a vCPU in KVM_RUN: did the timer of its interrupt controller expire, which it has not taken
 * notice of yet? */
static bool timer_expired(struct task_struct *task)
{
	struct kvm_vcpu *vcpu = loaded_vcpu(task);
	int pending;

	/* Elsewhere a timer is not told from a device, so no interrupt is taken for one. */
	if (!bpf_core_field_exists(struct kvm_lapic, lapic_timer.pending.counter))
		return true;
	pending = BPF_CORE_READ(vcpu, arch.apic, lapic_timer.pending.counter);
	return pending > 0;
}

/* Is the wake-up of that thread of a VM I/O? The waker may be of a VM, and a vCPU then. */
static bool is_io(struct task_struct *task, bool is_vcpu, struct task_struct *waker,
		  bool waker_is_of_vm, bool waker_is_vcpu, bool interrupt)
{
	bool by_sibling = waker_is_vcpu && waker->tgid == task->tgid;
	bool by_other_vm = waker_is_of_vm && waker->tgid != task->tgid;

	/* A thread that waits for memory or a file does not wait for work. */
	if (!(task->__state & TASK_INTERRUPTIBLE))
		return false;
	if (!is_vcpu)
		return interrupt || by_sibling || by_other_vm || waker->flags & PF_KTHREAD;
	/* Outside of KVM_RUN it is the VMM that waits, not the guest. */
	if (vcpu_of(task) < 0)
		return false;
	return !timer_expired(task) && (interrupt || !by_sibling);
}

#endif

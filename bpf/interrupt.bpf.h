/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Whether this pCPU is in an interrupt: what is done then is not the current thread's doing.
 */
#ifndef DROVER_INTERRUPT_BPF_H
#define DROVER_INTERRUPT_BPF_H

/* Bits of the count that tells what the pCPU is in: a soft interrupt, a hard one, one that nothing
 * masks. */
#define IN_INTERRUPT 0x00ff0100

struct pcpu_hot___was {
	int preempt_count;
} __attribute__((preserve_access_index));

extern const int __preempt_count __ksym __weak;
extern const struct pcpu_hot___was pcpu_hot __ksym __weak;

/* Is it an interrupt that wakes, whatever the current thread? Not for kernels that do not tell
 * (observer.rs). */
static bool in_interrupt(void)
{
	if (bpf_ksym_exists(&__preempt_count))
		return *(const int *)bpf_this_cpu_ptr(&__preempt_count) & IN_INTERRUPT;
	if (bpf_ksym_exists(&pcpu_hot))
		return ((const struct pcpu_hot___was *)bpf_this_cpu_ptr(&pcpu_hot))->preempt_count &
		       IN_INTERRUPT;
	return false;
}

#endif

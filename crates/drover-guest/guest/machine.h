/* SPDX-License-Identifier: GPL-2.0-only */
/* The few instructions of the processor that C has no words for. */
#ifndef DROVER_GUEST_MACHINE_H
#define DROVER_GUEST_MACHINE_H

#include <stdint.h>

static inline uint64_t read_tsc(void)
{
	uint32_t low, high;

	__asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
	return ((uint64_t)high << 32) | low;
}

static inline void write_msr(uint32_t msr, uint64_t value)
{
	__asm__ volatile("wrmsr"
			 :
			 : "c"(msr), "a"((uint32_t)value), "d"((uint32_t)(value >> 32))
			 : "memory");
}

static inline void write_port(uint16_t port, uint32_t value)
{
	__asm__ volatile("outl %0, %1" : : "a"(value), "d"(port) : "memory");
}

static inline void spin_pause(void)
{
	__asm__ volatile("pause" ::: "memory");
}

/*
 * Ask KVM to run that vCPU in place of this one (KVM_HC_SCHED_YIELD). A vCPU's number is its APIC
 * id. Where the processor's instruction is another (vmmcall), KVM puts that in its place.
 */
static inline void yield_to(uint32_t vcpu)
{
	uint64_t nr = 11;

	__asm__ volatile("vmcall" : "+a"(nr) : "b"((uint64_t)vcpu) : "memory");
}

/*
 * Halt until an interrupt. Interrupts are off everywhere else: one that came after the timer was
 * armed is held until `sti`, whose shadow covers `hlt`, so it cannot slip in between and be missed.
 */
static inline void halt(void)
{
	__asm__ volatile("sti; hlt; cli" ::: "memory");
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/* One running vCPU, and what each file of the guest offers the others. */
#ifndef DROVER_GUEST_GUEST_H
#define DROVER_GUEST_GUEST_H

#include "layout.h"

struct vcpu {
	uint32_t index;
	volatile struct drover_control *control;
	volatile struct drover_vcpu *stats;
	const volatile uint64_t
		*steal_ns; /* CPU time the host gave to others while we were ready */
};

/* work.c */
void work(uint64_t loops);

/* timer.c */
void timer_init(const struct vcpu *vcpu);
uint64_t sleep_until(const struct vcpu *vcpu, uint64_t deadline_tsc); /* the moment it woke */
void end_interrupt(void);
uint64_t cycles_to_ns(const struct vcpu *vcpu, uint64_t cycles);

/* One workload each; none returns. This vCPU is number `rank` of the `parties` that take part. */
void workload_cpu(const struct vcpu *vcpu);
void workload_lock(const struct vcpu *vcpu);
void workload_barrier(const struct vcpu *vcpu, uint32_t parties);
void workload_sleep(const struct vcpu *vcpu, uint32_t rank, uint32_t parties);
void workload_io(const struct vcpu *vcpu);
void workload_yield(const struct vcpu *vcpu, uint32_t parties);

#endif

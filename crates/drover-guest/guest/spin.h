/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Spinning for a sibling. A guest with paravirtual locks does not spin for ever: each time it has
 * spun for `notify_cycles` it asks the host to run the vCPU that it waits for.
 */
#ifndef DROVER_GUEST_SPIN_H
#define DROVER_GUEST_SPIN_H

#include "guest.h"
#include "machine.h"
#include <stdbool.h>

/* One step of the loop, which began, or last asked, at `since_tsc`. Is it time to ask? */
static inline bool spin_once(const struct vcpu *vcpu, uint64_t since_tsc)
{
	uint64_t cycles = vcpu->control->notify_cycles;

	spin_pause();
	return cycles && read_tsc() - since_tsc >= cycles;
}

/* Asks for that sibling. The moment at which this vCPU goes on. */
static inline uint64_t spin_notify(const struct vcpu *vcpu, uint32_t sibling)
{
	vcpu->stats->yields++;
	yield_to(sibling);
	return read_tsc();
}

#endif

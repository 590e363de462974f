/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Workload `barrier`: each vCPU does its piece of work, then spins until all have done theirs.
 * Progress = rounds. One vCPU that is not running holds up all: the case co-scheduling is for.
 */
#include "guest.h"
#include "machine.h"

static _Alignas(64) uint32_t arrived;
static _Alignas(64) uint32_t round_open; /* sense: flips when a round is complete */

/* The last to arrive resets the count before it lets the others go, so that none can be counted
 * twice. */
static void meet(uint32_t parties, uint32_t sense)
{
	if (__atomic_add_fetch(&arrived, 1, __ATOMIC_ACQ_REL) == parties) {
		__atomic_store_n(&arrived, 0, __ATOMIC_RELAXED);
		__atomic_store_n(&round_open, sense, __ATOMIC_RELEASE);
		return;
	}
	while (__atomic_load_n(&round_open, __ATOMIC_ACQUIRE) != sense)
		spin_pause();
}

void workload_barrier(const struct vcpu *vcpu, uint32_t parties)
{
	uint32_t sense = 0;

	for (;;) {
		work(vcpu->control->barrier_work_loops);
		sense = !sense;
		meet(parties, sense);
		vcpu->stats->progress++;
	}
}

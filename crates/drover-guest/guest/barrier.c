/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Workload `barrier`: each vCPU does its piece of work, then spins until all have done theirs.
 * Progress = rounds. One vCPU that is not running holds up all: the case co-scheduling is for. With
 * `notify_cycles` those that wait ask the host to run one that is missing.
 */
#include "guest.h"
#include "spin.h"

static _Alignas(64) uint32_t arrived;
static _Alignas(64) uint32_t round_open; /* sense: flips when a round is complete */
static _Alignas(64) uint32_t arrived_for[MAX_VCPUS]; /* the sense with which each last came */

static _Alignas(64) uint32_t last_asked; /* the vCPU that the host was asked for last */

/*
 * The next vCPU after the one last asked for that has not come yet: as KVM looks for one, so that
 * two that wait ask for different ones.
 */
static uint32_t missing(uint32_t parties, uint32_t sense)
{
	uint32_t last = __atomic_load_n(&last_asked, __ATOMIC_RELAXED);
	uint32_t other = last;

	do {
		other = (other + 1) % parties;
	} while (other != last && __atomic_load_n(&arrived_for[other], __ATOMIC_RELAXED) == sense);
	__atomic_store_n(&last_asked, other, __ATOMIC_RELAXED);
	return other;
}

/* The last to arrive resets the count before it lets the others go, so that none can be counted
 * twice. */
static void meet(const struct vcpu *vcpu, uint32_t parties, uint32_t sense)
{
	uint64_t since_tsc = read_tsc();

	__atomic_store_n(&arrived_for[vcpu->index], sense, __ATOMIC_RELAXED);
	if (__atomic_add_fetch(&arrived, 1, __ATOMIC_ACQ_REL) == parties) {
		__atomic_store_n(&arrived, 0, __ATOMIC_RELAXED);
		__atomic_store_n(&round_open, sense, __ATOMIC_RELEASE);
		return;
	}
	while (__atomic_load_n(&round_open, __ATOMIC_ACQUIRE) != sense) {
		if (spin_once(vcpu, since_tsc))
			since_tsc = spin_notify(vcpu, missing(parties, sense));
	}
}

void workload_barrier(const struct vcpu *vcpu, uint32_t parties)
{
	uint32_t sense = 0;

	for (;;) {
		work(vcpu->control->barrier_work_loops);
		sense = !sense;
		meet(vcpu, parties, sense);
		vcpu->stats->progress++;
	}
}

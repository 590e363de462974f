/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Workload `lock`: think, take the VM's one ticket spinlock, hold it, release. Progress = sections.
 *
 * Tickets are served in order, so a preempted ticket holder stops all vCPUs behind it, as in a
 * kernel without paravirtual locks: the case directed yield is for. With `notify_cycles` those that
 * wait ask the host for it.
 */
#include "guest.h"
#include "spin.h"

struct ticket_lock {
	_Alignas(64) uint32_t next;
	_Alignas(64) uint32_t serving;
	/* Which vCPU took each ticket. A vCPU has one at a time, so no two share a place. */
	_Alignas(64) uint32_t taken_by[MAX_VCPUS];
};

static struct ticket_lock lock;

/* While its taker has not written that yet, an earlier vCPU: a request in vain. */
static uint32_t lock_taken_by(uint32_t ticket)
{
	return __atomic_load_n(&lock.taken_by[ticket % MAX_VCPUS], __ATOMIC_RELAXED);
}

static void lock_take(const struct vcpu *vcpu)
{
	uint32_t ticket = __atomic_fetch_add(&lock.next, 1, __ATOMIC_RELAXED);
	uint64_t since_tsc = read_tsc();
	uint32_t serving;

	__atomic_store_n(&lock.taken_by[ticket % MAX_VCPUS], vcpu->index, __ATOMIC_RELAXED);
	while ((serving = __atomic_load_n(&lock.serving, __ATOMIC_ACQUIRE)) != ticket) {
		if (spin_once(vcpu, since_tsc))
			since_tsc = spin_notify(vcpu, lock_taken_by(serving));
	}
}

/* Only the holder writes `serving`. */
static void lock_release(void)
{
	uint32_t ticket = __atomic_load_n(&lock.serving, __ATOMIC_RELAXED);

	__atomic_store_n(&lock.serving, ticket + 1, __ATOMIC_RELEASE);
}

void workload_lock(const struct vcpu *vcpu)
{
	for (;;) {
		work(vcpu->control->lock_think_loops);
		lock_take(vcpu);
		work(vcpu->control->lock_hold_loops);
		lock_release();
		vcpu->stats->progress++;
	}
}

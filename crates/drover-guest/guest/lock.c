/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Workload `lock`: think, take the VM's one ticket spinlock, hold it, release. Progress = sections.
 *
 * Tickets are served in order, so a preempted ticket holder stops everyone behind it, as in a
 * kernel without paravirtual locks: the case directed yield is for.
 */
#include "guest.h"
#include "machine.h"

struct ticket_lock {
	_Alignas(64) uint32_t next;
	_Alignas(64) uint32_t serving;
};

static struct ticket_lock lock;

static void lock_take(void)
{
	uint32_t ticket = __atomic_fetch_add(&lock.next, 1, __ATOMIC_RELAXED);

	while (__atomic_load_n(&lock.serving, __ATOMIC_ACQUIRE) != ticket)
		spin_pause();
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
		lock_take();
		work(vcpu->control->lock_hold_loops);
		lock_release();
		vcpu->stats->progress++;
	}
}

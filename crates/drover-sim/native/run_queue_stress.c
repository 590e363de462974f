// SPDX-License-Identifier: GPL-2.0-only
/*
 * The tournament (policy/queue/tournament.h) under real threads: what a change of a VM's key takes
 * when others change keys of the same domain at the same moment.
 *
 * The policy's code as it is, with a lock that many threads may want. Worked example: threads 0 and
 * 1, one domain: each gives its own VMs new keys, and both play their matches on the same way up,
 * so that lines of the tree go to and fro. With a domain each they share nothing.
 *
 * Limitations. A ticket lock stands for the kernel's queued one: with few threads the two are
 * alike, with hundreds all waiters of a ticket lock read one line. A thread that loses its pCPU
 * with the lock keeps all others waiting, so there may be no more threads than pCPUs.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* The simulator has functions of these names for its own host. */
#define ground_runqueue stress_runqueue
#define ground_lock_runqueue stress_lock_runqueue
#define ground_unlock_runqueue stress_unlock_runqueue

#include "queue/tournament.h"

/* Levels that are played with so many VMs: 16 a domain, as in docs/performance.md. */
#define STRESS_LEVELS 4
#define STRESS_VMS (1U << STRESS_LEVELS)

struct stress_domain {
	struct runqueue rq;
	/* Tickets of the lock, on a line of their own as the kernel's lock is on the run queue's.
	 */
	u32 next __attribute__((aligned(64)));
	u32 served;
};

struct stress {
	struct drover d;
	u32 nr_domains;
	struct stress_domain domain[];
};

struct runqueue *stress_runqueue(struct drover *d, u32 domain)
{
	struct stress *it = (struct stress *)d;

	return domain < it->nr_domains ? &it->domain[domain].rq : NULL;
}

void stress_lock_runqueue(struct runqueue *rq)
{
	struct stress_domain *it = (struct stress_domain *)rq;
	u32 ticket = __atomic_fetch_add(&it->next, 1, __ATOMIC_RELAXED);

	while (__atomic_load_n(&it->served, __ATOMIC_ACQUIRE) != ticket)
		;
}

void stress_unlock_runqueue(struct runqueue *rq)
{
	struct stress_domain *it = (struct stress_domain *)rq;

	__atomic_store_n(&it->served, it->served + 1, __ATOMIC_RELEASE);
}

/* Run queues of so many domains; NULL: no memory. */
struct stress *stress_new(u32 nr_domains)
{
	size_t size = sizeof(struct stress) + nr_domains * sizeof(struct stress_domain);
	struct stress *it = aligned_alloc(64, (size + 63) / 64 * 64);

	if (!it)
		return NULL;
	__builtin_memset(it, 0, size);
	it->nr_domains = nr_domains;
	it->d.tournament_levels = STRESS_LEVELS;
	for (u32 domain = 0; domain < nr_domains; domain++)
		for (u32 slot = 0; slot < STRESS_VMS; slot++)
			entity_rq_of(&it->domain[domain].rq, slot)->nr_queued = 1;
	return it;
}

void stress_free(struct stress *it)
{
	free(it);
}

/*
 * One thread changes keys of that domain so often: of each of its VMs (first, first + step ...) in
 * turn, by a slice. What it read of the root at last is returned, so that no reading is left out.
 */
u64 stress_run(struct stress *it, u32 domain, u32 first, u32 step, u64 times)
{
	u64 seen = 0;
	u32 slot = first % STRESS_VMS;

	for (u64 turn = 1; turn <= times; turn++) {
		u64 key = tournament_key(turn << 20, slot);

		tournament_settle(&it->d, domain, slot, TOURNAMENT_NONE, key);
		seen = tournament_best(&it->d, &it->domain[domain].rq.by_share);
		slot = (slot + step) % STRESS_VMS;
	}
	return seen;
}

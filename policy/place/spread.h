/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Spread: a thread that shares a core, or keeps one from threads that may run nowhere else, goes to
 * a better one.
 *
 * Idea. A core with both hardware threads idle is worth more than half of a busy one. So a thread
 * that becomes ready takes a whole idle core first (idle.h). A thread that shares a core at the
 * tick is preempted and moved when a whole core that it may use has become idle. Where none is idle
 * but single hardware threads are, one vCPU has a core for itself while others share one: by
 * chance, and as long as none waits, for good. Virtual time, charged in part (charge.h), says which
 * fell behind by that. Such a one is helped by one move, not of itself but of the thread beside it:
 * that goes to the idle thread beside one that is ahead, and leaves a whole core behind.
 *
 * One level up, the same with last-level caches: while an LLC of the node has fewer busy pCPUs, one
 * of those that share an LLC goes there, one every 2 s. So vCPUs have all the cache and bandwidth
 * there is; and where they cannot be spread evenly, they have the emptier LLCs in turn, seldom
 * enough for what a cold cache costs. A thread at home in one LLC stays.
 *
 * Where a thread waits none goes to a better core: the next pCPU that is free is for the one that
 * waits. But a confined thread waits for few pCPUs, and threads that could run elsewhere may run on
 * them. One of these steps aside: it goes to a pCPU where the confined thread may not run, and
 * where a VM runs that is ahead of the confined one by what a migration is worth. So shares hold
 * among sets of pCPUs that overlap.
 *
 * All of it is found at the tick of the one that goes; the one to be helped must have run beside it
 * at the tick before, too. The pCPU is claimed at once, so that no two go to one; the thread
 * is stopped and run there. Should it sleep first, or not be let go, the claimed pCPU is kicked, to
 * be idle again, or to go on.
 *
 * Worked example. Six busy VMs alike on four cores: A and B alone, C with D, E with F. A is charged
 * 4 ms in each tick, C 2.5. After 6 ticks A is 8 ms ahead, worth a migration (steal_gain_ns). At
 * D's tick: C is behind A by that much, so D goes beside A, and C has a core for itself. C catches
 * up, is 8 ms ahead of A after some 40 ms, and then one of the others goes beside C. All have 0.75
 * of a core, within some 10 ms.
 *
 * Another. VM A, one vCPU, may run on pCPUs 0 to 3 and came to 0 first; B may run on 0 and 1, C on
 * 2 and 3, both wide, and C has half of the shares of A and B. A and B have a pCPU each, and stay
 * level; C, with two, gets ahead of B by 8 ms. At A's next tick it goes to pCPU 2, and B has both
 * of its own. A stays there: no thread that waits for 2 or 3 is behind one on 0 or 1.
 *
 * What it costs. A move: two switches, and what was in the core's own caches, up to 2 MiB, some 0.1
 * to 0.2 ms of work. In the example there are some 50 a second (lab and simulator), one in 40 ms
 * for each core that is shared: 0.2 % of the host. None where no core is shared, or all are, or
 * none is ahead. Where shares differ, the VM that is owed more has the whole core, up to all of the
 * time.
 *
 * A third. A VM of four busy vCPUs on four LLCs of two pCPUs begins with two on each of two LLCs.
 * At the next ticks one leaves each of these, and all have an LLC for themselves. Of six, two LLCs
 * have two: 2 s later one of these changes with one that had been alone, and so on.
 *
 * Limitations. At each tick it looks at eight pCPUs only, others each time, for a thread that
 * is ahead; a whole idle core it finds anywhere, far ones too. A thread pinned to one pCPU stays.
 * Where one VM's threads step aside for two sets in turn they go to and fro, every 20 ms or so; and
 * a place that two moves would free is not found.
 */
#ifndef DROVER_SPREAD_H
#define DROVER_SPREAD_H

#include "pick/pick.h"
#include "place/gain.h"

/* An LLC gives away, or takes, one thread in so long. */
#define SPREAD_LLC_NS 2000000000ULL

/* A better core for the thread, which shares one, or for the one beside it; claimed, or PCPU_NONE.
 */
static __always_inline s32 spread_to_core(struct drover *d, struct task_struct *task,
					  struct thread *t, u32 at)
{
	struct pcpu *here = pcpu_at(d, at);
	struct pcpu *other = pcpu_at(d, here->sibling - 1);
	u32 before = here->smt_neighbour;
	s32 to;

	here->smt_neighbour = other->running_slot;
	/* One of the two is enough. */
	if (here->smt_neighbour >= DROVER_MAX_VMS || other->migrate_to)
		return PCPU_NONE;
	to = idle_claim_by(d, task, t, at, IDLE_WHOLE_CORE);
	if (to == PCPU_NONE)
		to = idle_claim_by(d, task, t, at, IDLE_ELSEWHERE | IDLE_WHOLE_CORE);
	if (to == PCPU_NONE && here->smt_neighbour == before && partition_is_share(d, here->domain))
		to = gain_best(d, task, t, at, GAIN_BESIDE);
	return to;
}

/* How many pCPUs of that domain are busy. */
static __always_inline u32 spread_busy(struct domain *domain)
{
	return domain->nr_pcpus - (u32)__builtin_popcountll(domain->idle & domain->all);
}

/* An idle pCPU for the thread in an LLC of the node that is used less, claimed, or PCPU_NONE. */
BPF_GLOBAL s32 spread_to_llc(THE_DROVER, THE_TASK, THE_THREAD, u32 at)
{
	u32 from = pcpu_at(d, at)->domain;
	struct domain *here = domain_at(d, from);
	u64 now_ns = ground_now_ns(d);
	u32 nr_domains = d->params.nr_domains;
	u32 home = home_wish(d, t);
	u32 least = spread_busy(here);
	u32 best = from;
	/* The last to come is the last to go. */
	u64 stays_ns = SPREAD_LLC_NS << (here->came_to == at + 1);
	s32 found;
	u32 i;

	if (nr_domains < 2 || least < 2 || now_ns < here->came_ns + stays_ns ||
	    t->slot == DROVER_HOST_SLOT || !partition_is_share(d, from))
		return PCPU_NONE;
	for_each_index(i, 1, nr_domains) {
		u32 domain = topology_near(d, from, i);
		struct domain *it = domain_at(d, domain);
		u32 hops = topology_hops(d, from, domain);

		if (hops > 1)
			break;
		/* As many as here in the end, or fewer, for its size. */
		if (hops && it->partition == here->partition &&
		    (!home || home_is_in(d, home, domain)) && spread_busy(it) < least &&
		    (spread_busy(it) + 1) * here->nr_pcpus <= spread_busy(here) * it->nr_pcpus) {
			least = spread_busy(it);
			best = domain;
		}
	}
	if (best == from)
		return PCPU_NONE;
	found = idle_claim_in(d, task, best, 0, pcpu_at(d, at)->sibling);
	if (found != PCPU_NONE) {
		here->came_ns = domain_at(d, best)->came_ns = now_ns;
		domain_at(d, best)->came_to = (u32)found + 1;
	}
	return found;
}

/* Where the thread may go for the first that waits here, which may not go there itself: a pCPU
 * whose VM is ahead of that one. */
BPF_GLOBAL s32 spread_aside(THE_DROVER, THE_TASK, THE_THREAD, u32 at)
{
	u32 domain = pcpu_at(d, at)->domain;
	u32 waits = tournament_slot(next_vm(d, at, domain, TOURNAMENT_NONE, 0));

	if (waits == DROVER_HOST_SLOT || t->slot == DROVER_HOST_SLOT || waits == t->slot ||
	    !vm_at(d, waits)->nr_confined || !partition_is_share(d, domain))
		return PCPU_NONE;
	return gain_best(d, task, t, at, GAIN_ASIDE | waits << GAIN_SLOT_SHIFT);
}

/* The tick finds the thread running there: shall it leave for another pCPU? */
static __always_inline void spread_tick(struct drover *d, struct task_struct *task,
					struct thread *t, u32 at)
{
	struct pcpu *here = pcpu_at(d, at);
	s32 to = PCPU_NONE;

	if (here->migrate_to || !order_is(here, ORDER_NONE) || t->pinned_cpu ||
	    ground_is_leaving(d, task))
		return;
	if (here->away == HOME_IS_AWAY) {
		to = home_claim(d, task, t, at);
		if (to == PCPU_NONE)
			to = home_swap(d, task, t, at);
	}
	if (to != PCPU_NONE)
		here->away = 0;
	else if (!share_nobody_waits(d, here->domain))
		to = spread_aside(d, task, t, at);
	else if (here->sibling)
		to = spread_to_core(d, task, t, at);
	if (to == PCPU_NONE && idle_is_any(d))
		to = spread_to_llc(d, task, t, at);
	if (to == PCPU_NONE)
		return;
	here->migrate_to = (u32)to + 1;
	ground_set_slice(d, task, 0);
}

/* The thread that ran on that pCPU is ready: it goes where it was to go, if anywhere. */
static __always_inline bool spread_leave(struct drover *d, struct task_struct *task,
					 struct pcpu *pcpu, bool may_begin)
{
	u32 to = pcpu->migrate_to;

	if (!to || !may_begin || !ground_may_run_on(d, task, to - 1)) {
		idle_give_back(d, pcpu);
		return false;
	}
	pcpu->migrate_to = 0;
	ground_run_on(d, task, to - 1, d->params.slice_ns, false);
	if (!pcpu_is_idle(pcpu_at(d, to - 1)))
		ground_preempt(d, to - 1);
	return true;
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Home: where a VM's memory lies, and where its threads run if they can: a NUMA node, or one
 * last-level cache (LLC) of it.
 *
 * Idea. The daemon gives a VM a home (drover-core, place/) and moves its memory there. Here it is
 * a preference, not a prison. A thread that becomes ready looks for an idle pCPU at home first, and
 * if there is none, as near as can be: to run far from one's memory is slower by some tenths, to
 * wait is slower by all. Where it must wait, it waits in a domain at home. Other pCPUs take it from
 * there when they have nothing to do, or when its VM has fallen so far behind (steal_gain for each
 * hop, doubled) that it would wait for long: so shares hold over the host as a whole, whatever
 * homes there are. One that runs away from home gives up its pCPU at the tick when home has an idle
 * one.
 *
 * A VM wider than a node has several homes: each of its vCPUs has that of its part, and its other
 * threads have none.
 *
 * Homes are for threads that may run anywhere in a partition of policy `share`, and lie within it;
 * a confined thread was placed by its manager. A thread at home is not looked after here: the
 * search for an idle pCPU (idle.h) begins where it ran last, and goes outward. And while no VM has
 * a home, as on a host of one node, nothing is looked at.
 *
 * Worked example. Node 0 is pCPUs 0 and 1, node 1 is 2 and 3. VM 5, one busy vCPU, runs on 3 and is
 * given home 0, where VM 6 keeps both busy. At each tick pCPU 3 sees that no pCPU of node 0 is
 * idle: the vCPU goes on. A vCPU of VM 6 sleeps, pCPU 0 is idle, and at the next tick VM 5's gives
 * up pCPU 3, is placed near 0, and runs there 4 ms later at most. VM 6's wakes, and finds no idle
 * pCPU at home: it takes 3, which is free now.
 *
 * No thread is driven from home by one that is not at home there: one that wakes and finds all
 * pCPUs at home taken, one of them by a stray, takes that one back, and the stray looks for
 * another.
 *
 * Where no pCPU is idle, two threads that both run away from home change places: at the tick of one
 * it goes to a pCPU at home whose thread is not at home either, or has no home, and that one goes
 * to the pCPU that is free now; not one that is owed more, which may find that another was quicker.
 * One at least is at home then that was not. Of VMs 5 and 6, one busy
 * vCPU each at home on 0 and on 1, with 5 on pCPU 2 and 6 on pCPU 0: at 5's next tick it goes to 0,
 * and 6 to 2.
 *
 * A thread that has no home, or may not run everywhere, is placed near where it ran last, if it may
 * run there and that is in its partition; else near the first pCPU from there on where it may.
 *
 * Limitations. A tick looks at eight pCPUs at home. Where all cores have one busy thread and some
 * two, a thread that is away stays away until it can change places.
 */
#ifndef DROVER_HOME_H
#define DROVER_HOME_H

#include "account/vcpu.h"
#include "place/gain.h"
#include "place/idle.h"
#include "share/share.h"

/* A home is a node's number + 1; above that, if it is one LLC only, the LLC's + 1; above that the
 * partition it is in, which is the VM's. */
#define HOME_LLC_SHIFT 12
#define HOME_PARTITION_SHIFT 24
#define HOME_PLACE_MASK ((1U << HOME_LLC_SHIFT) - 1)
/* The VM's home, if its vCPUs have homes of their own. */
#define HOME_OF_PARTS (~0U)

/* That node, or LLC of it, in that partition; 0 remains 0: no home. */
static __always_inline u32 home_in(u32 home, u32 partition)
{
	return home ? home | partition << HOME_PARTITION_SHIFT : 0;
}

/* Are the pCPUs of that domain at that home? */
static __always_inline bool home_is_in(struct drover *d, u32 home, u32 domain)
{
	struct domain *it = domain_at(d, domain);
	u32 llc = home >> HOME_LLC_SHIFT & HOME_PLACE_MASK;

	return it->node == (home & HOME_PLACE_MASK) && (!llc || it->llc == llc) &&
	       it->partition == home >> HOME_PARTITION_SHIFT;
}

/* The home of the thread; 0: it has none. */
static __always_inline u32 home_of(struct drover *d, struct thread *t)
{
	u32 home = vm_at(d, t->slot)->home;

	return home_in(home == HOME_OF_PARTS ? vcpu_at(d, t->record)->home : home, t->partition);
}

/* The same, if it may go there. */
static __always_inline u32 home_wish(struct drover *d, struct thread *t)
{
	return d->homes && t->affinity_full &&
			       partition_at(d, t->partition)->policy == POLICY_SHARE ?
		       home_of(d, t) :
		       0;
}

/* The thread's home, if that pCPU is elsewhere; 0: it is not. */
BPF_GLOBAL u32 home_is_away(THE_DROVER, THE_THREAD, u32 at)
{
	u32 home = home_wish(d, t);

	return home && !home_is_in(d, home, pcpu_at(d, at)->domain) ? home : 0;
}

/* The domain at that home that is nearest to that one, or DOMAIN_NONE. */
BPF_GLOBAL u32 home_domain(THE_DROVER, u32 home, u32 from)
{
	u32 nr_domains = d->params.nr_domains;
	u32 found = DOMAIN_NONE;
	u32 i;

	for_each_index(i, 0, nr_domains) {
		u32 domain = topology_near(d, from, i);

		if (home_is_in(d, home, domain))
			found = domain;
		if (found != DOMAIN_NONE)
			break;
	}
	return found;
}

/* A pCPU of that domain that is online, the first from that place on; or PCPU_NONE. */
BPF_GLOBAL s32 home_pcpu(THE_DROVER, u32 domain, u32 place)
{
	u32 nr = domain < d->params.nr_domains ? domain_at(d, domain)->nr_pcpus : 0;
	s32 found = PCPU_NONE;
	u32 i;

	for_each_index(i, 0, nr) {
		u32 at = topology_pcpu(d, domain, place + i);

		if (pcpu_at(d, at)->online)
			found = (s32)at;
		if (found != PCPU_NONE)
			break;
	}
	return found;
}

/* Is a pCPU at that home idle? */
BPF_GLOBAL bool home_has_idle(THE_DROVER, u32 home)
{
	u32 nr_domains = d->params.nr_domains;
	bool found = false;
	u32 i;

	for_each_index(i, 0, nr_domains) {
		found = home_is_in(d, home, i) && idle_is_in(d, i);
		if (found)
			break;
	}
	return found;
}

/* The pCPU near which the thread is to be placed, which was on that one: a pCPU at home, where
 * threads of its VM wait already, if they do there; not the same for all VMs. */
static __always_inline u32 home_near(struct drover *d, struct thread *t, u32 at)
{
	u32 home = home_is_away(d, t, at);
	u32 domain = vm_at(d, t->slot)->domain;
	s32 near;

	if (!home)
		return at;
	if (domain == DOMAIN_NONE || !home_is_in(d, home, domain))
		domain = home_domain(d, home, t->slot % (d->params.nr_domains ?: 1));
	near = home_pcpu(d, domain, at);
	return near == PCPU_NONE ? at : (u32)near;
}

/*
 * The thread, which runs there, away from home: an idle pCPU at home, claimed; or PCPU_NONE. For a
 * part of a core none goes: that costs more than memory that is far, and a thread that shares one
 * then would leave again for a whole one (spread.h).
 */
BPF_GLOBAL s32 home_claim(THE_DROVER, THE_TASK, THE_THREAD, u32 at)
{
	u32 home = home_is_away(d, t, at);
	u32 nr_domains = home ? d->params.nr_domains : 0;
	s32 found = PCPU_NONE;
	u32 i;

	for_each_index(i, 0, nr_domains) {
		u32 domain = topology_near(d, pcpu_at(d, at)->domain, i);

		if (home_is_in(d, home, domain) && domain_at(d, domain)->idle)
			found = idle_claim_in(d, task, domain, 0, true);
		if (found != PCPU_NONE)
			break;
	}
	return found;
}

/* The thread runs there, away from home: a pCPU at home with whose thread it may change places. */
static __always_inline s32 home_swap(struct drover *d, struct task_struct *task, struct thread *t,
				     u32 at)
{
	u32 ticks = pcpu_at(d, at)->ticks;
	u32 home = home_is_away(d, t, at);
	u32 nr_domains = d->params.nr_domains ?: 1;
	u32 domain = home ? home_domain(d, home, ticks % nr_domains) : DOMAIN_NONE;

	if (domain == DOMAIN_NONE || !domain_at(d, domain)->nr_pcpus)
		return PCPU_NONE;
	return gain_best(d, task, t, topology_pcpu(d, domain, ticks * GAIN_LOOKS), GAIN_SWAP);
}

/* The thread wakes, and nothing is idle at home: a pCPU near there that another's stray has. */
static __always_inline s32 home_take_back(struct drover *d, struct task_struct *task,
					  struct thread *t, u32 near)
{
	u32 home = home_wish(d, t);

	/* A thread that may be held begins only when that is asked. */
	if (!home || vm_at(d, t->slot)->at_limit || vm_may_wait(vm_at(d, t->slot)) ||
	    !home_is_in(d, home, pcpu_at(d, near)->domain) || home_has_idle(d, home))
		return PCPU_NONE;
	return gain_best(d, task, t, near, GAIN_HOME);
}

/* The running thread is at home, or is not. */
BPF_GLOBAL int home_note(THE_DROVER, THE_THREAD, u32 at)
{
	if (!d->homes)
		return 0;
	if (!home_wish(d, t))
		pcpu_at(d, at)->away = t->affinity_full && t->slot ? HOME_HAS_NONE : 0;
	else
		pcpu_at(d, at)->away = home_is_away(d, t, at) ? HOME_IS_AWAY : 0;
	return 0;
}

/* What a migration from that domain to that pCPU must bring, as keys count it: the more, the
 * further. */
static __always_inline u64 home_gain_in_keys(struct drover *d, u32 pcpu, u32 domain)
{
	u32 hops = topology_hops(d, pcpu_at(d, pcpu)->domain, domain);

	return d->params.steal_gain_ns * (hops ?: 1) >> TOURNAMENT_TIME_SHIFT << DROVER_SLOT_BITS;
}

/*
 * The VM with the key `theirs` waits in that domain. It comes before `key`, so that a migration to
 * that pCPU is worth its cost. Does it rather wait, at home, because it is not worth it twice? The
 * vCPUs of a VM with several homes wait at theirs.
 */
BPF_GLOBAL bool home_keeps(THE_DROVER, u32 pcpu, u32 domain, u64 theirs, u64 key)
{
	u32 home = d->homes ? vm_at(d, tournament_slot(theirs))->home : 0;

	if (home == HOME_OF_PARTS)
		home = domain_at(d, domain)->node;
	home = home_in(home, domain_at(d, domain)->partition);
	return home && home_is_in(d, home, domain) &&
	       !home_is_in(d, home, pcpu_at(d, pcpu)->domain) &&
	       !tournament_before(theirs + home_gain_in_keys(d, pcpu, domain), key);
}

/* The thread has run there for so long. */
static __always_inline void home_count(struct drover *d, struct thread *t, u32 at, u64 ran_ns)
{
	u32 home = d->homes ? home_of(d, t) : 0;

	if (home && home_is_in(d, home, pcpu_at(d, at)->domain))
		__sync_fetch_and_add(&vm_at(d, t->slot)->counters.home_run_ns, ran_ns);
}

/*
 * An order: that is the home of the VM (0: it has none), or, of `parts`, that of one: the vCPUs
 * with so many of all numbers before theirs. Numbers may have gaps (they are APIC ids, by sockets).
 */
BPF_GLOBAL int home_set(THE_DROVER, u32 slot, u32 home, u32 part, u32 parts)
{
	u32 places = vcpu_places(vm_at(d, slot));
	u32 numbers = 1;
	u32 place;

	d->homes = 1;
	vm_at(d, slot)->home = parts > 1 ? HOME_OF_PARTS : home;
	for_each_index(place, 0, places) {
		struct vcpu *v = vcpu_in(d, slot, place);

		numbers = v ? (u32)max_of(numbers, v->vcpu_id + 1U) : numbers;
	}
	for_each_index(place, 0, places) {
		struct vcpu *v = vcpu_in(d, slot, place);

		if (v && (u64)v->vcpu_id * parts / numbers == part)
			v->home = home;
	}
	return 0;
}

/* The pCPU near which the ready thread waits: where it ran, if it may run there. */
BPF_GLOBAL u32 home_place(THE_DROVER, THE_TASK, THE_THREAD)
{
	u32 near = ground_task_pcpu(d, task);
	s32 other;

	if (t->pinned_cpu)
		return t->pinned_cpu - 1;
	if (!d->divided || partition_of_pcpu(d, near) == t->partition) {
		if (t->affinity_full)
			return home_near(d, t, near);
		if (affinity_mask(d, task, t, pcpu_at(d, near)->domain))
			return near;
	}
	other = affinity_find(d, task, t->partition, AFFINITY_ANY, true, near);
	return other == PCPU_NONE ? near : (u32)other;
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Home: the NUMA node where a VM's memory lies, and where its threads run if they can.
 *
 * Idea. The daemon gives a VM a home (drover-core, home.rs) and moves its memory there. Here it is
 * a preference, not a prison. A thread that becomes ready looks for an idle pCPU at home first, and
 * if there is none, anywhere: to run far from one's memory is slower by some tenths, to wait is
 * slower by all. Where it must wait, it waits in a domain at home. pCPUs of other nodes take it
 * from there when they have nothing to do, or when its VM has fallen so far behind (steal_gain,
 * doubled) that it would wait for long: so shares hold over the host as a whole, whatever homes
 * there are. One that runs away from home gives up its pCPU at the tick when home has an idle one.
 *
 * Homes are for threads of the default partition that may run anywhere in it; who is confined was
 * placed by somebody else. A thread at home is looked after by nobody here: the search for an idle
 * pCPU (idle.h) begins where it ran last, and in that node. And while no VM has a home, as on a
 * host of one node, nothing is looked at.
 *
 * Worked example. Node 0 is pCPUs 0 and 1, node 1 is 2 and 3. VM 5, one busy vCPU, runs on 3 and is
 * given home 0, where VM 6 keeps both busy. At each tick pCPU 3 sees that no pCPU of node 0 is
 * idle: the vCPU goes on. A vCPU of VM 6 sleeps, pCPU 0 is idle, and at the next tick VM 5's gives
 * up pCPU 3, is placed near 0, and runs there 4 ms later at most. VM 6's wakes, and finds no idle
 * pCPU at home: it takes 3, which is free now.
 *
 * Limitations. Two VMs that are always busy, each on a pCPU of the other's home, stay there
 * as long as no pCPU is idle and nobody waits. Distance is "home" and "not home": of two other
 * nodes the nearer has no precedence.
 */
#ifndef DROVER_HOME_H
#define DROVER_HOME_H

#include "place/idle.h"
#include "share/share.h"

#define HOME_NOWHERE DROVER_MAX_PCPUS

/* Are the pCPUs of that domain at that home, and of the default partition? */
static __always_inline bool home_is_in(struct drover *d, u32 home, u32 domain)
{
	return domain_at(d, domain)->node == home && !domain_at(d, domain)->partition;
}

/* The thread's VM has a home, it may go there, and that pCPU is elsewhere. */
static __always_inline bool home_is_away(struct drover *d, struct thread *t, u32 at)
{
	u32 home = d->homes && t->affinity_full && !t->partition ? vm_at(d, t->slot)->home : 0;

	return home && !home_is_in(d, home, pcpu_at(d, at)->domain);
}

/* The domain at that home that comes first, counted from that one on; or HOME_NOWHERE. */
BPF_GLOBAL u32 home_domain(THE_DROVER, u32 home, u32 from)
{
	u32 nr_domains = d->params.nr_domains ?: 1;
	u32 found = HOME_NOWHERE;
	u32 i;

	for_each_index(i, 0, nr_domains) {
		u32 domain = (from + i) % nr_domains;

		if (home_is_in(d, home, domain))
			found = domain;
		if (found != HOME_NOWHERE)
			break;
	}
	return found;
}

/* A pCPU of that domain that is online, the first from that place on; or HOME_NOWHERE. */
BPF_GLOBAL u32 home_pcpu(THE_DROVER, u32 domain, u32 place)
{
	u32 nr = domain < d->params.nr_domains ? domain_at(d, domain)->nr_pcpus : 0;
	u32 found = HOME_NOWHERE;
	u32 i;

	for_each_index(i, 0, nr) {
		u32 at = topology_pcpu(d, domain, place + i);

		if (pcpu_at(d, at)->online)
			found = at;
		if (found != HOME_NOWHERE)
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

/* The domain at home where the VM's threads wait. */
static __always_inline u32 home_domain_of(struct drover *d, u32 slot)
{
	struct vm *vm = vm_at(d, slot);
	bool known = vm->domain != SHARE_NOWHERE && home_is_in(d, vm->home, vm->domain);

	return known ? vm->domain : home_domain(d, vm->home, slot);
}

/* The pCPU near which the thread is to be placed, which was on that one: a pCPU at home. */
static __always_inline u32 home_near(struct drover *d, struct thread *t, u32 at)
{
	u32 near = home_is_away(d, t, at) ? home_pcpu(d, home_domain_of(d, t->slot), at) :
					    HOME_NOWHERE;

	return near == HOME_NOWHERE ? at : near;
}

/* Is it time that the thread, which runs there, goes home: is a pCPU idle there? */
static __always_inline bool home_calls(struct drover *d, struct thread *t, u32 at)
{
	return home_is_away(d, t, at) && home_has_idle(d, vm_at(d, t->slot)->home);
}

/* Virtual time as tournament keys count it. */
static __always_inline u64 home_in_keys(u64 vtime_ns)
{
	return (vtime_ns >> TOURNAMENT_TIME_SHIFT) << DROVER_SLOT_BITS;
}

/*
 * The VM with the key `theirs` waits in that domain. It comes before `key`, so that a migration to
 * that pCPU is worth its cost. Does it rather wait, at home, because it is not worth it twice?
 */
BPF_GLOBAL bool home_keeps(THE_DROVER, u32 pcpu, u32 domain, u64 theirs, u64 key)
{
	u32 home = d->homes ? vm_at(d, tournament_slot(theirs))->home : 0;
	u64 gain = home_in_keys(d->params.steal_gain_ns);

	return home && home_is_in(d, home, domain) &&
	       !home_is_in(d, home, pcpu_at(d, pcpu)->domain) &&
	       !tournament_before(theirs + gain, key);
}

/* A thread of the VM has run there for so long. */
static __always_inline void home_count(struct drover *d, struct vm *vm, u32 at, u64 ran_ns)
{
	if (d->homes && vm->home && home_is_in(d, vm->home, pcpu_at(d, at)->domain))
		__sync_fetch_and_add(&vm->home_run_ns, ran_ns);
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Picking of a VM: which of its threads, and from which domain.
 *
 * Idea. Where a VM was chosen (pick.h) the pCPU takes the first thread of its queue in that
 * domain. Siblings that stand in other domains may have run less, and virtual time does not
 * tell: it is the VM's. So before one is taken, or goes on, the VM's queue in one other
 * domain, now this, now that, is asked for a sibling that has run less by a slice.
 *
 * Worked example. Two of a VM's three vCPUs take turns on the pCPU of domain 0, the third has
 * domain 1's for itself. After three slices of 8 ms they have run 16, 8 and 24 ms. The pCPU of
 * domain 1 asks: the second, which waits in domain 0, has run 16 ms less than the third, more than
 * a slice. It is taken, and the third waits in domain 1.
 *
 * Limitations. With C domains, siblings apart are seen after some C picks of the VM. A
 * thread changes domains for a slice, however much of its working set is in the caches of one.
 */
#ifndef DROVER_PICK_VM_H
#define DROVER_PICK_VM_H

#include "cosched/plan.h"
#include "yield/yield.h"

/* So many VMs are asked, one after the other: the threads of some may be in flight. */
#define PICK_TRIES 24

enum picked {
	PICKED_NONE,
	PICKED_RUNNING, /* the running thread goes on */
	PICKED_WAITING, /* a waiting thread was taken */
};

/* Glances follow no rhythm: one that beats with the turns of VMs always sees the same. */
static __always_inline void pick_next_glance(struct pcpu *pcpu)
{
	pcpu->steal_cursor = pcpu->steal_cursor * 1664525 + 1013904223;
}

/* May a thread of the VM that waits in that domain run on that pCPU? */
BPF_GLOBAL bool pick_waits_in(THE_DROVER, u32 pcpu, u32 domain, u32 slot)
{
	struct runqueue *rq = ground_runqueue(d, domain);

	return rq && entity_rq_of(rq, slot)->nr_queued && !vm_at(d, slot)->at_limit &&
	       next_is_near(d, pcpu, domain) &&
	       affinity_fits(d, entity_rq_of(rq, slot), domain, pcpu);
}

/* Does a thread of the VM wait in that domain that may run on that pCPU and has run less than that?
 */
BPF_GLOBAL bool pick_is_behind_in(THE_DROVER, u32 pcpu, u32 domain, u32 slot, u64 vruntime_ns)
{
	u64 order = 0;

	return pick_waits_in(d, pcpu, domain, slot) &&
	       ground_first_order(d, ground_vm_queue(d, slot, domain), pcpu, &order) &&
	       (s64)(order - vruntime_ns) < 0;
}

/* The VM's queue in that domain, or in the glanced one if a sibling there has run less. */
BPF_GLOBAL u64 pick_queue_of(THE_DROVER, u32 pcpu, u32 domain, u32 slot)
{
	u64 here = ground_vm_queue(d, slot, domain);
	u32 other = topology_glanced(d, pcpu);
	u64 order = 0;

	if (other == domain || !ground_first_order(d, here, pcpu, &order))
		return here;
	return pick_is_behind_in(d, pcpu, other, slot, order - d->params.slice_ns) ?
		       ground_vm_queue(d, slot, other) :
		       here;
}

/* Take a thread of that VM. */
BPF_GLOBAL bool pick_from_vm(THE_DROVER, u32 pcpu, u32 domain, u32 slot)
{
	u64 here = ground_vm_queue(d, slot, domain);
	u64 queue = d->params.nr_domains < 2 ? here : pick_queue_of(d, pcpu, domain, slot);

	if (!(pcpu_at(d, pcpu)->order.why == ORDER_YIELD && yield_take(d, pcpu, slot)) &&
	    !ground_take_first(d, queue)) {
		/* The sibling there may not run here. */
		if (queue == here || !ground_take_first(d, here))
			return false;
	}
	plan_note(d, pcpu, slot);
	wait_bound_note_taken(d, domain, slot, pcpu_at(d, pcpu)->asked_ns);
	return true;
}

/* Take a thread of the VM with that key in the domain. */
BPF_GLOBAL bool pick_from_domain(THE_DROVER, u32 pcpu, u32 domain, u64 key)
{
	u32 slot = tournament_slot(key);

	if (d->nr_coscheduled && !plan_admits(d, pcpu, domain, slot, 0))
		return false;
	if (!pick_from_vm(d, pcpu, domain, slot))
		return false;
	/* Taken to another domain, it says nothing of whom those are serving where it waited. */
	if (domain == pcpu_at(d, pcpu)->domain)
		share_clock_follow(d, domain, slot);
	return true;
}

/* A vCPU of that VM, wherever one waits, this domain first. */
BPF_GLOBAL bool pick_wherever(THE_DROVER, u32 pcpu, u32 slot)
{
	u32 home = pcpu_at(d, pcpu)->domain;
	u32 nr_domains = d->params.nr_domains;
	bool found = false;
	u32 step;

	for_each_index(step, 0, nr_domains) {
		u32 other = topology_near(d, home, step);

		found = pick_waits_in(d, pcpu, other, slot) && pick_from_vm(d, pcpu, other, slot);
		if (found)
			break;
	}
	return found;
}

/* A sibling of the running thread, in the glanced domain, that has run less by a slice. */
BPF_GLOBAL bool pick_sibling(THE_DROVER, u32 pcpu, u32 slot, u64 vruntime_ns)
{
	u32 other = topology_glanced(d, pcpu);

	return pick_is_behind_in(d, pcpu, other, slot, vruntime_ns - d->params.slice_ns) &&
	       ground_take_first(d, ground_vm_queue(d, slot, other));
}

/*
 * Does a sibling wait here that may run here and has run less than the running thread? Where turns
 * are short (plan.h), a waiting sibling is next if it has run the same, or longer by less than a
 * turn.
 */
static __always_inline bool pick_sibling_is_behind(struct drover *d, u32 pcpu, u32 slot,
						   u64 vruntime_ns)
{
	u64 turn_ns = plan_is_crowded(d, vm_at(d, slot)) ? PLAN_TURN_NS : 0;

	return pick_is_behind_in(d, pcpu, pcpu_at(d, pcpu)->domain, slot, vruntime_ns + turn_ns);
}

/*
 * The running thread's VM goes on: with that thread, unless a sibling has run less. That none
 * comes before the VM does not say that no sibling waits: its leaf counts what its running threads
 * are not charged for yet in full, and on a core of two they are charged in part (core.h).
 */
BPF_GLOBAL u32 pick_go_on(THE_DROVER, u32 pcpu, u32 slot, u64 vruntime_ns)
{
	u32 home = pcpu_at(d, pcpu)->domain;

	if (!vm_at(d, slot)->nr_waiting)
		return PICKED_RUNNING;
	if (pick_sibling_is_behind(d, pcpu, slot, vruntime_ns) &&
	    pick_from_domain(d, pcpu, home, tournament_key(0, slot)))
		return PICKED_WAITING;
	if (d->params.nr_domains < 2 || !pick_sibling(d, pcpu, slot, vruntime_ns))
		return PICKED_RUNNING;
	return PICKED_WAITING;
}

/* The key of the VM that would go on there; NOBODY: there is none. */
static __always_inline u64 pick_running_key(struct drover *d, u32 pcpu, u32 slot)
{
	if (slot >= DROVER_MAX_VMS)
		return TOURNAMENT_NOBODY;
	return tournament_key(share_vtime_now(vm_at(d, slot), pcpu_at(d, pcpu)->asked_ns) +
				      share_offset_ns(d, slot, pcpu_at(d, pcpu)->domain),
			      slot);
}

#endif

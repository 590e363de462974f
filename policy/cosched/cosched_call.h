/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Co-scheduling, calling: pCPUs brought to a VM that starts several vCPUs at once.
 *
 * Idea. A pCPU can be called to the VM when it rests, or when it runs a VM that comes after it,
 * by reservation, then by shares, and has not chosen in this round (round.h) yet. All that can
 * be are counted first; only when they are enough they are called: the resting ones kicked, the
 * others preempted, those of the caller's own domain before all others. A called pCPU takes a vCPU
 * of the VM before it asks for anything else (pick.h). For one that was held for too long the round
 * does not matter, and fewer are called, too.
 *
 * Worked example. A gang VM of three vCPUs at 10 ms; pCPU 0 asks at the beginning of a round, and
 * takes one: two others are needed. pCPU 1 rests. pCPU 2 runs a VM at 14 ms and has not chosen
 * yet. pCPU 3 has chosen, another VM. 1 and 2 are enough: 1 is kicked, 2 preempted, and
 * the three vCPUs begin within two interrupts. Had pCPU 1 chosen as well, none would be called.
 *
 * Limitations. Each call looks at all pCPUs of the host. Two VMs that call at once
 * may each get half of the pCPUs that both counted; what began in part is no gang in that round.
 */
#ifndef DROVER_COSCHED_CALL_H
#define DROVER_COSCHED_CALL_H

#include "cosched/cosched_stop.h"
#include "cosched/round.h"

/* Is the VM held for its siblings, and for as long as anybody is? */
static __always_inline bool cosched_held_too_long(struct drover *d, struct vm *vm, u64 now_ns)
{
	u64 since_ns = vm->held_since_ns;

	return since_ns && (s64)(now_ns - since_ns) >= (s64)d->params.hold_max_ns;
}

/* For how long it has been due by its reservation; < 0: it is not, or has none. */
static __always_inline s64 cosched_overdue_ns(struct vm *vm, u64 now_ns)
{
	return vm->reserve_inverse ? reserve_overdue_ns(vm, now_ns) : -1;
}

/* Does the VM come before the one that runs, by reservation, then by shares, as in a pick? */
static __always_inline bool cosched_comes_before(struct vm *vm, struct vm *running, u64 now_ns)
{
	s64 mine_ns = cosched_overdue_ns(vm, now_ns);
	s64 theirs_ns = cosched_overdue_ns(running, now_ns);

	if (mine_ns >= 0 || theirs_ns >= 0)
		return mine_ns >= theirs_ns;
	return (s64)(share_vtime_now(running, now_ns) - share_vtime_now(vm, now_ns)) >= 0;
}

/* May a vCPU of the VM that waits run there? */
static __always_inline bool cosched_reaches(struct drover *d, u32 pcpu, u32 slot,
					    bool affinity_remote)
{
	u32 domain = pcpu_at(d, pcpu)->domain;
	struct runqueue *rq = ground_runqueue(d, domain);

	return pcpu_at(d, pcpu)->online && rq &&
	       domain_at(d, domain)->partition == vm_at(d, slot)->partition &&
	       (affinity_remote || affinity_fits(d, entity_rq_of(rq, slot), domain, pcpu));
}

/* On how many pCPUs besides `at` vCPUs of the VM that wait may run. */
BPF_GLOBAL u32 cosched_within_reach(THE_DROVER, u32 at, u32 slot, bool affinity_remote)
{
	u32 within = 0;
	u32 i;

	for_each_index(i, 0, d->params.nr_pcpus) {
		if (i != at && cosched_reaches(d, i, slot, affinity_remote))
			within++;
	}
	return within;
}

/*
 * Could the pCPU be called to the VM? It rests, or runs one that comes after it and
 * either has not chosen in this round yet or has been given to the VM in it: one that is
 * wider than the host is stopped and started again in mid-round, others of it in turn.
 */
static __always_inline bool cosched_callable(struct drover *d, u32 pcpu, u32 slot,
					     bool affinity_remote, u64 now_ns)
{
	struct pcpu *p = pcpu_at(d, pcpu);
	struct vm *vm = vm_at(d, slot);
	bool may_choose;

	if (!cosched_reaches(d, pcpu, slot, affinity_remote) || p->order.why)
		return false;
	if (p->running_slot >= DROVER_MAX_VMS)
		return true;
	/* One that was held too long waits for no round. */
	may_choose = p->round != d->round || p->round_slot == slot ||
		     cosched_held_too_long(d, vm, now_ns);
	return may_choose && cosched_comes_before(vm, vm_at(d, p->running_slot), now_ns);
}

/* How many pCPUs besides `at` could be called. */
BPF_GLOBAL u32 cosched_count_callable(THE_DROVER, u32 at, u32 slot, bool affinity_remote)
{
	u64 now_ns = ground_now_ns(d);
	u32 found = 0;
	u32 i;

	for_each_index(i, 0, d->params.nr_pcpus) {
		if (i != at && cosched_callable(d, i, slot, affinity_remote, now_ns))
			found++;
	}
	return found;
}

/* Call that pCPU to the VM. */
static __always_inline void cosched_call_one(struct drover *d, u32 pcpu, u32 slot)
{
	struct pcpu *p = pcpu_at(d, pcpu);

	p->order = (struct order){.why = ORDER_CALLED, .who = slot};
	if (p->running_slot >= DROVER_MAX_VMS)
		ground_kick(d, bounded(pcpu, DROVER_MAX_PCPUS));
	else
		ground_preempt(d, bounded(pcpu, DROVER_MAX_PCPUS));
}

/*
 * Call so many pCPUs besides `at` to the VM, as far as there are. Those of its own domain first:
 * so a VM whose vCPUs wait in several domains comes to run in one.
 */
BPF_GLOBAL int cosched_call(THE_DROVER, u32 at, u32 slot, u32 others, bool affinity_remote)
{
	u32 home = domain_at(d, pcpu_at(d, at)->domain)->first;
	u64 now_ns = ground_now_ns(d);
	u32 called = 0;
	u32 i;

	for_each_index(i, 0, d->params.nr_pcpus) {
		u32 pcpu = topology_listed(d, home + i);

		if (called >= others)
			break;
		if (pcpu == at || !cosched_callable(d, pcpu, slot, affinity_remote, now_ns))
			continue;
		cosched_call_one(d, pcpu, slot);
		called++;
	}
	return 0;
}

#endif

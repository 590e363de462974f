/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Co-scheduling: the vCPUs of a VM kept from drifting apart.
 *
 * Idea. Rounds (round.h) start ready siblings together when pCPUs allow. A mode
 * says what happens when they do not allow it:
 *
 *  auto     nothing: what can run runs. The default; nothing is left lying.
 *  off      nothing, and no rounds either.
 *  gang     the ready vCPUs run all together or not at all.
 *  strict   (ESX 2) a vCPU that lags by more than skew_max (default 3 ms) stops its
 *           VM (co-stop), which starts again only with all its ready vCPUs at once.
 *  relaxed  (ESX 3) the same, but only those that lag must start at once.
 *  skew     (ESX 4) a vCPU that is further ahead than that of a sibling that is
 *           ready is stopped alone, and may start as soon as no ready sibling is so
 *           far behind: when it has caught up, or runs itself.
 *
 * A VM that must start n vCPUs at once looks for n pCPUs that are idle or have not
 * chosen in this round yet (cosched_call.h); when there are enough it calls them, and they take
 * its vCPUs next; when not, the pCPU chooses as if the VM were not there. Because all
 * pCPUs choose anew in each round, the least served VM finds all of them free at the
 * beginning of its turn. It is the VM that is charged, so what a stopped VM does not
 * get keeps it the least served, and what is reserved for it due: stopped time is paid back.
 *
 * Nothing is held for longer than hold_max (50 ms): a sibling may be pinned beside
 * a crowd, or stopped by a debugger, or others may be owed too many pCPUs all the time,
 * and then half a VM is better than none: all pCPUs are called that can be, in mid-round.
 * A VM wider than the host starts as many as there are pCPUs, in turns.
 *
 * Worked example (seed 000, 4.3). A 2-vCPU VM A and a 1-vCPU VM B on two pCPUs. B
 * runs on pCPU 0, a0 on pCPU 1, a1 waits. After 4 ms (a tick) a1 lags by 4 ms.
 * strict: A is stopped, pCPU 1 idles until B's round ends and both are free.
 * relaxed: A is stopped, and starts at once with a1 alone, the only one that lags;
 * 4 ms later a0 lags, and so on: a co-stop every tick. skew: a0 is stopped, a1
 * catches up in 4 ms and is stopped 4 ms later, when it is ahead in turn: half as
 * many stops, and no pCPU idles.
 *
 * Limitations. Skew is looked at when vCPUs are charged (cosched_stop.h). strict and gang
 * leave pCPUs idle beside waiting vCPUs: that is what they are for.
 *
 * After seed 000, 2.2 and 3.1, and the article it refers to (Co-scheduling SMP VMs
 * in VMware ESX Server, 2008).
 */
#ifndef DROVER_COSCHED_H
#define DROVER_COSCHED_H

#include "cosched/cosched_call.h"

/*
 * How many of the VM's vCPUs still run and are about to wait: on pCPUs that have
 * chosen another VM in this round, or on the one that asks, unless it would go on
 * (`here`).
 */
BPF_GLOBAL u32 cosched_leaving(THE_DROVER, u32 at, u32 slot, u32 here)
{
	u32 leaving = 0;
	u32 place;

	for_each_index(place, 0, vcpu_places(vm_at(d, slot))) {
		struct vcpu *v = vcpu_in(d, slot, place);
		struct pcpu *p;

		if (!v || v->state != VCPU_RUNNING)
			continue;
		p = pcpu_at(d, v->pcpu);
		if (v->pcpu == at ? !here : p->round == d->round && p->round_slot != slot)
			leaving++;
	}
	return leaving;
}

/*
 * How many vCPUs of the VM must run at once if any is to, beside those that run
 * elsewhere and stay; `here`: one runs on the pCPU that asks, and would go on.
 */
static __always_inline u32 cosched_needs(struct drover *d, u32 at, u32 slot, u32 here)
{
	struct vm *vm = vm_at(d, slot);
	u32 needs = vm->vcpus_waiting + cosched_leaving(d, at, slot, here) + here;

	if (vm->cosched_mode == COSCHED_RELAXED)
		needs = cosched_laggards(d, slot) ?: 1;
	return needs;
}

/* The VM starts. */
BPF_GLOBAL int cosched_let_go(THE_DROVER, u32 slot, u64 now_ns)
{
	struct vm *vm = vm_at(d, slot);
	u64 held_since_ns = __sync_lock_test_and_set(&vm->held_since_ns, 0);
	u32 costopped = __sync_lock_test_and_set(&vm->costopped, 0);
	u32 place;

	/* Idle pCPUs were refused its vCPUs, and more may start now than were called. */
	if ((held_since_ns || costopped) && vm->vcpus_waiting > 1)
		timer_rouse_at(d, now_ns);
	if (!costopped)
		return 0;
	for_each_index(place, 0, vcpu_places(vm)) {
		struct vcpu *v = vcpu_in(d, slot, place);

		if (v)
			cosched_start(vm, v, now_ns);
	}
	return 0;
}

/*
 * skew: does one that is not stopped wait in that domain? If only stopped ones do, as well
 * if none waits anywhere else: the slowest of those may always start.
 */
BPF_GLOBAL bool cosched_slowest_waits_in(THE_DROVER, u32 domain_index, u32 slot)
{
	bool waits_here = false;
	bool waits_elsewhere = false;
	u32 place;

	for_each_index(place, 0, vcpu_places(vm_at(d, slot))) {
		struct vcpu *v = vcpu_in(d, slot, place);

		if (!v || v->state != VCPU_READY || v->costop_since_ns)
			continue;
		if (pcpu_at(d, v->pcpu)->domain == domain_index)
			waits_here = true;
		else
			waits_elsewhere = true;
	}
	return waits_here || !waits_elsewhere;
}

/*
 * May a vCPU of the VM, by its mode, run on that pCPU now? `here`: one runs there
 * and would go on. Calls other pCPUs where that is what it takes.
 */
BPF_GLOBAL bool cosched_may_run(THE_DROVER, u32 at, u32 domain_index, u32 slot, u32 here)
{
	struct vm *vm = vm_at(d, slot);
	u32 elsewhere = vm->vcpus_running > here ? vm->vcpus_running - here : 0;
	u32 needs, others, within;
	bool affinity_remote, enough;

	if (vm->cosched_mode == COSCHED_SKEW)
		return here || cosched_slowest_waits_in(d, domain_index, slot);
	if (vm->cosched_mode != COSCHED_GANG && !vm->costopped)
		return true;
	/* Started in this round, by somebody else or by the call that is being answered. */
	if (vm->cosched_mode == COSCHED_GANG && elsewhere && vm->round == d->round)
		return true;
	/* So many others; and half a VM is better than none where there never are as many. */
	needs = cosched_needs(d, at, slot, here);
	affinity_remote = affinity_is_remote(d, slot);
	within = cosched_within_reach(d, at, slot, affinity_remote);
	others = needs > 1 ? (u32)min_of(needs - 1, within) : 0;
	enough = cosched_count_callable(d, at, slot, affinity_remote) >= others;
	if (others && (enough || cosched_held_too_long(d, vm, ground_now_ns(d))))
		cosched_call(d, at, slot, others, affinity_remote);
	return enough;
}

/* The pCPU would take a vCPU of that VM from that domain, or go on with the one it runs: may it? */
BPF_GLOBAL bool cosched_admits(THE_DROVER, u32 at, u32 domain_index, u32 slot, u32 here)
{
	struct vm *vm = vm_at(d, slot);
	u64 now_ns = ground_now_ns(d);

	if (!vm->may_idle_wait || vm->nr_vcpus < 2)
		return true;
	if (!cosched_may_run(d, at, domain_index, slot, here)) {
		__sync_val_compare_and_swap(&vm->held_since_ns, 0, now_ns);
		/* Idle pCPUs do not ask again by themselves. */
		timer_rouse_at(d, now_ns + d->params.hold_max_ns);
		/* Held until a vCPU begins: it may be a helper that stands first in the queue. */
		return cosched_held_too_long(d, vm, now_ns);
	}
	cosched_let_go(d, slot, now_ns);
	return true;
}

/*
 * A vCPU begins to run: its VM has waited long enough, and is free to. For one that may run on one
 * pCPU only its siblings, which are held elsewhere, go on waiting.
 */
static __always_inline void cosched_begin(struct drover *d, struct thread *t, u64 now_ns)
{
	if (vm_at(d, t->slot)->held_since_ns && !t->pinned_cpu)
		cosched_let_go(d, t->slot, now_ns);
}

/* Does somebody wait in the domain who has had less than the VM that runs there? */
BPF_GLOBAL bool cosched_comes_after(THE_DROVER, u32 at, u32 slot)
{
	u64 first = next_of_all(d, pcpu_at(d, at)->domain);
	u64 mine = tournament_key(share_vtime_now(vm_at(d, slot), ground_now_ns(d)), slot);

	return first != TOURNAMENT_NOBODY && tournament_slot(first) != slot &&
	       tournament_before(first, mine);
}

/* Must the running vCPU stop, although the pCPU might have nothing else to run? */
static __always_inline bool cosched_must_stop(struct drover *d, u32 at, struct thread *t)
{
	struct vm *vm = vm_at(d, t->slot);
	struct vcpu *v = vcpu_at(d, t->record);

	if (!vm->may_idle_wait || t->kind != THREAD_VCPU || !t->record)
		return false;
	if (vm->cosched_mode == COSCHED_SKEW)
		return v->costop_since_ns != 0;
	/* What was started together in this round stays, and who has a turn. */
	if (!vm->costopped &&
	    (pcpu_at(d, at)->round == d->round || pcpu_at(d, at)->order.why == ORDER_TURN))
		return false;
	/*
	 * It is called away, or somebody comes first. To ask would call pCPUs for it that
	 * are the other's; it may be taken again as any that waits.
	 */
	if (pcpu_at(d, at)->order.why == ORDER_CALLED || cosched_comes_after(d, at, t->slot))
		return true;
	return !cosched_admits(d, at, pcpu_at(d, at)->domain, t->slot, 1);
}

/* Must a vCPU of the VM that wakes wait for its siblings, even beside an idle pCPU? */
static __always_inline bool cosched_holds(struct vm *vm)
{
	if (!vm->may_idle_wait)
		return false;
	return vm->costopped ||
	       (vm->cosched_mode == COSCHED_GANG && !vm->vcpus_running && vm->vcpus_waiting > 1);
}

#endif

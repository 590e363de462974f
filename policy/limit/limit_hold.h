/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Holding VMs whose limits are spent, and letting them go.
 *
 * Idea. A VM that is held leaves the tournaments, so that no pick comes upon it, and those of its
 * threads that run are preempted, each where its record says that it runs. When it is let go all of
 * it is, at once: pCPUs that rest look for its threads. Where these are too few, pCPUs choose anew
 * whose VMs have had more than their due compared with it, those first that have had the most; of
 * a wide host's pCPUs eight are looked at for each thread, in turns. All who are let go by one
 * alarm are offered together.
 *
 * Worked example. A VM of three waiting vCPUs is let go on four pCPUs. One rests and is kicked. The
 * others run VMs that are 1, 3 and 8 ms ahead of it, for two more vCPUs. By half of the most, 4 ms,
 * or more: one, the last. Then by anything: the first of the two that are left.
 *
 * What it is bad at. A run of a wide VM with a small limit is short, and each costs every pCPU two
 * switches. A thread may be held in the kernel, with a lock of the host. Where threads may not run
 * everywhere, nobody knows whose pCPU would do, and all are asked.
 *
 * Seed 000, 2.1 ("limit"), says what is promised, not how; this is our own.
 */
#ifndef DROVER_LIMIT_HOLD_H
#define DROVER_LIMIT_HOLD_H

#include "entitle/entitle.h"
#include "limit/limit_use.h"
#include "queue/waiting.h"

/* Who is let go in a pool may be owed as much as so many that wake up, at least. */
#define LIMIT_CLAIM_CREDITS 2
/* For each thread let go so many pCPUs are looked at, for one to be put out. */
#define LIMIT_OFFER_LOOKS 8

/* If a thread of the VM runs there, take the pCPU from it. */
static __always_inline void limit_stop_at(struct drover *d, u32 slot, u32 pcpu)
{
	if (pcpu_at(d, pcpu)->running_slot == slot)
		ground_preempt(d, bounded(pcpu, DROVER_MAX_PCPUS));
}

/*
 * Take their pCPUs from the threads of the VM, which is held: one that begins only now sees that.
 * vCPUs' records say where they run; for others all pCPUs are asked.
 */
CHECKED_APART int limit_stop(THE_DROVER, u32 slot)
{
	struct vm *vm = vm_at(d, slot);
	u32 i;

	if (*(volatile u32 *)&vm->unrecorded) {
		for_each_index(i, 0, d->params.nr_pcpus)
			limit_stop_at(d, slot, i);
		return 0;
	}
	for_each_index(i, 0, vm->vcpu_places & (2 * DROVER_VM_VCPUS - 1)) {
		struct vcpu *v = vcpu_in(d, slot, i);

		if (v && v->state == VCPU_RUNNING)
			limit_stop_at(d, slot, v->pcpu);
	}
	return 0;
}

/*
 * What a limit keeps from a VM, it is not owed for ever; in a pool, what it is owed in the 32 ms of
 * a claim. With the same for all, one that is owed little would come first whenever it is let go,
 * before vCPUs that are owed most of a pCPU and can make up for little; and a wide one that is owed
 * much would lose what it waited for, and with it all that the pool lacks.
 */
static __always_inline void limit_bound_claim(struct drover *d, struct vm *vm)
{
	u64 claim_ns = d->params.claim_bound_ns;

	if (vm->capped_by)
		claim_ns = most_of(claim_ns * vm->entitled_ucpu / ENTITLE_PCPU_UCPU,
				   LIMIT_CLAIM_CREDITS * d->params.wake_credit_ns);
	share_bound_claim(vm, *share_clock(d, vm->domain), claim_ns);
}

/* The VM may run, or may not, from now on. */
CHECKED_APART int limit_hold(THE_DROVER, u32 slot, bool hold, u64 now_ns)
{
	struct vm *vm = vm_at(d, slot);
	u32 before = vm->at_limit;

	if (before == hold)
		return 0;
	if (hold)
		vm->at_limit_since_ns = now_ns;
	else {
		vm->held_ns = waiting_held_ns(vm, now_ns);
		limit_bound_claim(d, vm);
	}
	/* The VM may just have gone, and been let go by that. */
	before = __sync_lock_test_and_set(&vm->at_limit, hold);
	__sync_fetch_and_add(&d->nr_at_limit, (u32)hold - before);
	waiting_settle_domains(d, slot);
	if (hold && share_nr_running(vm))
		limit_stop(d, slot);
	return 0;
}

/* May the VM not run, for one of the limits above it? */
CHECKED_APART bool limit_holds(THE_DROVER, u32 slot)
{
	struct vm *vm = vm_at(d, slot);
	u32 pool = vm->capped_by;
	bool holds = limit_own_is_spent(d, slot);
	u32 step;

	for_each_index(step, 0, POOL_DEPTH_MAX) {
		if (!pool || holds)
			break;
		holds = limit_at(d, limit_of_pool(pool))->state != LIMIT_OPEN &&
			limit_at(d, limit_of_pool(pool))->keeper != slot;
		pool = limit_next_above(d, pool);
	}
	return holds;
}

/* By how much whoever runs there has had more than that; 0: nobody to be put out. */
static __always_inline u64 limit_gain_ns(struct drover *d, struct pcpu *p, u64 vtime_ns, u64 now_ns)
{
	u32 slot = p->running_slot;
	struct vm *vm = vm_at(d, slot);
	s64 gain_ns;

	if (!p->online || p->chooses || slot >= DROVER_MAX_VMS || slot == DROVER_HOST_SLOT)
		return 0;
	gain_ns = (s64)(share_vtime_now(vm, now_ns) - vtime_ns);
	if (gain_ns <= 0 || reserve_is_due(vm, now_ns))
		return 0;
	return (u64)gain_ns;
}

/* The i-th of the pCPUs that are looked at now for somebody to be put out. */
static __always_inline u32 limit_offered(struct drover *d, u32 i)
{
	return (d->offer_from + i) % (d->params.nr_pcpus ?: 1);
}

/* Note that gain of so many pCPUs; returns the largest. */
CHECKED_APART u64 limit_note_gains(THE_DROVER, u32 looks, u64 vtime_ns, u64 now_ns)
{
	u64 best_ns = 0;
	u32 i;

	for_each_index(i, 0, looks) {
		u32 at = limit_offered(d, i);
		u64 gain_ns = limit_gain_ns(d, pcpu_at(d, at), vtime_ns, now_ns);

		d->limit_gain_ns[bounded(at, DROVER_MAX_PCPUS)] = gain_ns;
		best_ns = most_of(gain_ns, best_ns);
	}
	return best_ns;
}

/* Have pCPUs that rest look for so many threads; returns for how many there was none. */
CHECKED_APART u32 limit_rouse(THE_DROVER, u32 threads)
{
	u32 i;

	for_each_index(i, 0, d->params.nr_pcpus) {
		bool own = pcpu_at(d, i)->nr_pinned;

		/* One in its own queue may be of these. */
		if (!pcpu_is_idle(pcpu_at(d, i)) || !(threads || own))
			continue;
		ground_kick(d, bounded(i, DROVER_MAX_PCPUS));
		threads -= threads && !own;
	}
	return threads;
}

/*
 * Have pCPUs choose anew whose VMs have had more than that, for so many threads: first those who
 * have had the most, by half of the largest gain or more. On a wide host some are looked at, others
 * the next time.
 */
CHECKED_APART int limit_preempt(THE_DROVER, u32 threads, u64 vtime_ns, u64 now_ns)
{
	u32 nr_pcpus = d->params.nr_pcpus;
	u32 looks = threads < nr_pcpus / LIMIT_OFFER_LOOKS ? threads * LIMIT_OFFER_LOOKS : nr_pcpus;
	u64 least_ns = limit_note_gains(d, looks, vtime_ns, now_ns) / 2;
	u32 i;

	for_each_index(i, 0, 2 * looks) {
		u32 at = limit_offered(d, i < looks ? i : i - looks);
		u64 *gain_ns = &d->limit_gain_ns[bounded(at, DROVER_MAX_PCPUS)];

		if (!threads)
			break;
		if (i == looks)
			least_ns = 0;
		if (*gain_ns <= least_ns)
			continue;
		*gain_ns = 0;
		pcpu_at(d, at)->chooses = 1;
		ground_preempt(d, bounded(at, DROVER_MAX_PCPUS));
		threads--;
	}
	d->offer_from = limit_offered(d, looks);
	return 0;
}

/* So many threads were let go, of VMs the first of which has had `vtime_ns`. */
static __always_inline void limit_offer(struct drover *d, u32 threads, u64 vtime_ns, u64 now_ns)
{
	threads = limit_rouse(d, threads);
	if (threads)
		limit_preempt(d, threads, vtime_ns, now_ns);
}

/* Hold the VM if a limit above it says so, let it go if none does. */
CHECKED_APART int limit_enforce(THE_DROVER, u32 slot, u64 now_ns)
{
	struct vm *vm = vm_at(d, slot);
	bool hold = vm->capped && limit_holds(d, slot);
	u64 vtime_ns;

	if (vm->state != VM_LIVE || hold == vm->at_limit)
		return 0;
	limit_hold(d, slot, hold, now_ns);
	if (hold || !vm->nr_waiting)
		return 0;
	vtime_ns = vm->vtime_ns + share_weigh(vm, d->params.preempt_gain_ns);
	if (!d->let_go || (s64)(vtime_ns - d->let_go_vtime_ns) < 0)
		d->let_go_vtime_ns = vtime_ns;
	/* Nobody knows whose pCPU it is that one may run on. */
	d->let_go += affinity_marks(d, slot) & BOOKS_CONFINED ? DROVER_MAX_PCPUS : vm->nr_waiting;
	return 0;
}

#endif

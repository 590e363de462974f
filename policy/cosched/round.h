/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Rounds: the vCPUs of a VM started together, and stopped together.
 *
 * Idea. While one pCPU after the other asks whenever its slice happens to end, the
 * vCPUs of a VM run at the same time only by luck. But the least served VM stays
 * the least served until its vCPUs are charged (share.h), so if all pCPUs asked at
 * the same moment, they would all be given to the same VM without being told. So
 * they are made to: time is cut into rounds of a slice; the first pCPU to notice
 * that the round is over chooses as ever, and then preempts all pCPUs of the host
 * that run vCPUs of VMs played in rounds (together.h), which choose in turn. Three
 * rules keep what was chosen. A VM that was told to go on in this round goes on
 * on all its pCPUs, although each asks with a little more on its account. The VM
 * that was begun last is begun on the next pCPU, too, while it has vCPUs waiting:
 * of three VMs that take turns, the two that wait have received the same, and the
 * tenth of a millisecond that the first vCPU runs before the second pCPU asks would
 * make the other one the least served. And a pCPU taken away in mid-round, by a
 * daemon that wakes for 100 us, goes back to the VM it was given to, not to the
 * least served of that moment, which would be another and would split two gangs for
 * the rest of the round.
 *
 * Worked example. VMs A and B, two busy vCPUs each, two pCPUs, rounds of 7 ms and
 * ticks of 4 ms. Both pCPUs run A. At 8 ms pCPU 1's tick finds the slice over: it
 * begins a round, charges A 8 ms, and takes B, the least served; then it preempts
 * pCPU 0. That one charges A 8 ms more, finds B with a vCPU waiting, still at its
 * old time, and takes it. B's two vCPUs have begun within the time of an
 * interrupt. At 12 ms a kworker takes pCPU 0 for 50 us: the pCPU then goes back to
 * B, although A has now received less.
 *
 * A VM that is wider than a domain is begun in all of them: where one has begun it in this
 * round every other domain begins it, too.
 *
 * If a VM has all pCPUs and still more ready vCPUs, some must wait. A running vCPU may spin for a
 * lock that a waiting one holds. So the VM's slices are as short as can be without a timer: they
 * end at the next tick, and the vCPU that has run least is next.
 *
 * Limitations. VMs whose widths do not add up leave a pCPU over, which is
 * given to one vCPU of another VM alone (work is not left lying; for VMs that
 * would rather wait there is cosched.h). One pCPU interrupts all others that run such VMs,
 * once a round. Of a VM that fits into a domain but has come to stand in two, a domain
 * begins its part only where that is the least served. With turns of a tick four vCPUs that hand a
 * lock round on two pCPUs get on 500 times a second; a VM confined to fewer pCPUs than it has
 * vCPUs has whole slices.
 *
 * After Ousterhout's matrix (Scheduling Techniques for Concurrent Systems, 1982),
 * with the rows made up by shares as they come; seed 000, 2.2 ("the scheduler
 * still attempts to schedule all sibling vCPUs"); seed 002, gang scheduling. Short turns after
 * micro-sliced virtual processors (Ahn, Park and Huh, MICRO 2014).
 */
#ifndef DROVER_ROUND_H
#define DROVER_ROUND_H

#include "cosched/together.h"

/* A turn that ends at the next tick. */
#define ROUND_TURN_NS 1000000ULL

/* The pCPU asks. True if it begins the next round, the last being over: it will tell the others. */
static __always_inline bool round_notice(struct drover *d, u32 pcpu)
{
	u64 now_ns = pcpu_at(d, pcpu)->asked_ns;
	u64 end_ns = d->round_end_ns;

	if ((s64)(now_ns - end_ns) < 0 ||
	    __sync_val_compare_and_swap(&d->round_end_ns, end_ns, now_ns + d->params.slice_ns) !=
		    end_ns)
		return false;
	__sync_fetch_and_add(&d->round, 1);
	return true;
}

/* Is the VM wider than a domain? */
static __always_inline bool round_spans(struct drover *d, struct vm *vm)
{
	return d->params.nr_domains > 1 && vm->nr_vcpus * d->params.nr_domains > d->params.nr_pcpus;
}

/* Is the VM in no step with others? One under a limit (limit.h) pauses and goes on by that. */
static __always_inline bool round_is_apart(struct vm *vm)
{
	return vm->capped && !vm->may_idle_wait;
}

/* Has the VM all pCPUs, and more vCPUs that are ready? */
static __always_inline bool round_is_crowded(struct drover *d, struct vm *vm)
{
	return vm->coscheduled && vm->vcpus_waiting &&
	       vm->vcpus_running >= partition_at(d, 0)->nr_online;
}

/* How long a thread of the VM runs there before it is asked again. */
static __always_inline u64 round_slice_ns(struct drover *d, struct vm *vm, u32 at)
{
	return round_is_crowded(d, vm) ? ROUND_TURN_NS : partition_slice_ns(d, at);
}

/* The pCPU has chosen that VM. */
static __always_inline void round_note(struct drover *d, u32 pcpu, u32 slot)
{
	if (!d->nr_coscheduled || round_is_apart(vm_at(d, slot)))
		return;
	pcpu_at(d, pcpu)->round = d->round;
	pcpu_at(d, pcpu)->round_slot = slot;
	if (vm_at(d, slot)->round == d->round)
		return;
	vm_at(d, slot)->round = d->round;
	if (vm_at(d, slot)->coscheduled)
		domain_at(d, pcpu_at(d, pcpu)->domain)->round_slot = slot;
	if (vm_at(d, slot)->coscheduled && round_spans(d, vm_at(d, slot)))
		d->round_slot = slot;
}

/* Has the VM begun in this round? */
static __always_inline bool round_has(struct drover *d, u32 slot)
{
	return slot < DROVER_MAX_VMS && vm_at(d, slot)->round == d->round;
}

/*
 * The VM for a pCPU that asks for the first time in this round: the one it runs, if that was begun
 * elsewhere; else the one that was begun last, in this domain or, of those wider than one,
 * anywhere.
 */
static __always_inline u32 round_begun(struct drover *d, u32 home, u32 running_slot)
{
	u32 begun = domain_at(d, home)->round_slot;

	if (round_has(d, running_slot))
		return running_slot;
	if (round_has(d, begun))
		return begun;
	return round_has(d, d->round_slot) ? d->round_slot : DROVER_MAX_VMS;
}

/*
 * The VM that the round has given the pCPU to already, DROVER_MAX_VMS if it may
 * choose. `running_slot` is the VM of the thread that would go on there, or
 * DROVER_MAX_VMS.
 */
static __always_inline u32 round_stay(struct drover *d, u32 at, u32 running_slot)
{
	struct pcpu *pcpu = pcpu_at(d, at);
	u32 slot = pcpu->round == d->round ? pcpu->round_slot :
					     round_begun(d, pcpu->domain, running_slot);

	if (slot >= DROVER_MAX_VMS || !vm_at(d, slot)->coscheduled || vm_at(d, slot)->costopped ||
	    vm_at(d, slot)->at_limit)
		return DROVER_MAX_VMS;
	return slot;
}

/* Have the others that run such VMs choose anew, now; but not where somebody overdue has its turn,
 * which is short. */
BPF_GLOBAL int round_tell(THE_DROVER, u32 at)
{
	u32 i;

	for_each_index(i, 0, d->params.nr_pcpus) {
		struct pcpu *other = pcpu_at(d, i);
		u32 slot = other->running_slot;

		if (i == at || !other->online || other->round == d->round ||
		    slot >= DROVER_MAX_VMS || !vm_at(d, slot)->coscheduled ||
		    other->order.why == ORDER_TURN)
			continue;
		ground_preempt(d, bounded(i, DROVER_MAX_PCPUS));
	}
	return 0;
}

#endif

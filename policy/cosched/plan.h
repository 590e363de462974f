/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The plan: which VM has which pCPUs in a round, so that its vCPUs run at the same time.
 *
 * Idea. While one pCPU after the other asks whenever its slice happens to end, the vCPUs of a VM
 * run at the same time only by luck. So time is cut into rounds of a slice. The first pCPU to
 * notice that a round is over chooses as ever (pick.h). When a VM that is kept together
 * (together.h) is chosen for the first time in a round, it is planned: the pCPU that chose it gives
 * it as many pCPUs as it has vCPUs that are ready. First those on which it runs; then such as rest,
 * or run a VM that comes after it, by reservation, then by shares, and were not given to another in
 * this round, those of the same domain first (and no others, if the VM fits into one and need not
 * start as a whole). Those that run others are preempted. Then all that
 * run such VMs and were given to none are preempted, too, and each chooses in turn: so VMs are
 * planned one after the other, the least served first, whichever pCPU asks. A pCPU that has been
 * given to a VM takes that VM's vCPUs, and goes back to them when a kworker has run for 100 us, but
 * for a VM that came before it when it was planned, or that has slept since and is owed more by now
 * (pick.h).
 *
 * A mode says what happens when there are not as many pCPUs:
 *
 *  auto     nothing: what can run runs; but a VM that is seen to spin is a gang for a while
 *           (together.h). The default.
 *  off      nothing, and it is not planned either.
 *  gang     the ready vCPUs run all together or not at all.
 *  strict   (ESX 2) a vCPU that lags by more than skew_max (default 3 ms) stops its
 *           VM (co-stop), which starts again only with all its ready vCPUs at once.
 *  relaxed  (ESX 3) the same, but only those that lag must start at once.
 *  skew     (ESX 4) a vCPU that is further ahead than that of a sibling that is
 *           ready is stopped alone, and may start as soon as no ready sibling is so
 *           far behind: when it has caught up, or runs itself.
 *
 * A VM that must start so many at once and cannot is left out of the plan: no pCPU takes it until
 * the next round. It is the VM that is charged, so what it does not get keeps it the least served,
 * and what is reserved for it due: it is planned first then, while all pCPUs may be had. Nothing is
 * held for longer than hold_max (50 ms): a sibling may be pinned beside a crowd, and half a VM is
 * better than none: it has what can be had.
 *
 * A VM with more vCPUs that are ready than there are pCPUs runs in turns, on all pCPUs or on those
 * that others leave it. A vCPU may spin for a sibling that waits, so its slices are as short as can
 * be without a timer: they end at the tick, and the vCPU that has run least is next.
 *
 * Worked example. VMs A, B and C, two busy vCPUs each, pCPUs 0 and 1, rounds of 8 ms. A runs. At 8
 * ms pCPU 1 begins a round and takes B, the least served. B has one more that is ready: pCPU 0 runs
 * A, which comes after B, so it is B's now, and is preempted. It asks, finds that it is B's, and
 * takes the other vCPU, although C has received less than B by then. At 12 ms a kworker takes pCPU
 * 0 for 50 us; then it is B's again. Were B a single vCPU and C a gang, pCPU 1 would take B, and
 * pCPU 0 find one pCPU for C's two vCPUs: C is left out, and pCPU 0 goes on with A.
 *
 * Limitations. One pCPU interrupts the others that run such VMs, once a round. VMs whose widths do
 * not add up leave a pCPU over, which one vCPU of another VM has alone. To plan a VM takes a look
 * or two at all pCPUs. Two VMs planned at the same moment may each get half of what both need. With
 * turns of a tick four vCPUs that hand a lock round on two pCPUs get on 500 times a second.
 *
 * After Ousterhout's matrix (Scheduling Techniques for Concurrent Systems, 1982), with the rows
 * made up by shares as they come; seed 000, 2.2 and 3.1, and the article it refers to
 * (Co-scheduling SMP VMs in VMware ESX Server, 2008); seed 002, gang scheduling. Short turns after
 * micro-sliced virtual processors (Ahn, Park and Huh, MICRO 2014).
 */
#ifndef DROVER_PLAN_H
#define DROVER_PLAN_H

#include "base/order.h"
#include "cosched/cosched_stop.h"
#include "guarantee/wait_bound.h"

/* A turn that ends at the next tick. */
#define PLAN_TURN_NS 1000000ULL

/* The pCPU asks. True if it begins the next round, the last being over: it will tell the others. */
static __always_inline bool plan_begin_round(struct drover *d, u32 pcpu)
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

/* Is the VM planned? One under a limit that need not be pauses and goes on by that, limit.h. */
static __always_inline bool plan_is_for(struct vm *vm)
{
	return vm->coscheduled && (!vm->capped || vm_may_wait(vm));
}

/* May it have pCPUs of several domains? One wider than a domain, or that must start as a whole. */
static __always_inline bool plan_spans(struct drover *d, struct vm *vm)
{
	return vm_may_wait(vm) || (d->params.nr_domains > 1 &&
				   vm->nr_vcpus * d->params.nr_domains > d->params.nr_pcpus);
}

/*
 * One of its vCPUs waits: by how many is the VM, as far as its vCPUs are ready, wider than the
 * host? Above 0 some wait however many pCPUs it is given; at 0 another VM has one. Below: neither.
 */
static __always_inline s32 plan_excess(struct drover *d, struct vm *vm)
{
	u32 ready = vm->vcpus_running + vm->vcpus_waiting;

	return vm->coscheduled && vm->vcpus_waiting ?
		       (s32)(ready - partition_at(d, vm->partition)->nr_online) :
		       -1;
}

/*
 * How long a thread of the VM runs there before it is asked again: no longer than until a VM that
 * waits there is due by a reservation. In mid-round where the VM is as wide as the host and one of
 * its vCPUs waits, as another VM has a pCPU. (Narrower ones are given another pCPU in the next
 * round.)
 */
static __always_inline u64 plan_slice_ns(struct drover *d, struct vm *vm, u32 at)
{
	u64 slice_ns = partition_slice_ns(d, at);
	s32 excess = plan_excess(d, vm);

	/* Other policies have slices of their own. */
	if (excess >= 0 && partition_is_share(d, pcpu_at(d, at)->domain))
		slice_ns = excess ? PLAN_TURN_NS : slice_ns / 2;
	return d->nr_reserved ? deadline_within_ns(d, pcpu_at(d, at)->domain, slice_ns) : slice_ns;
}

/* The pCPU is that VM's in this round. */
static __always_inline void plan_note(struct drover *d, u32 pcpu, u32 slot)
{
	if (!d->nr_coscheduled)
		return;
	pcpu_at(d, pcpu)->round = d->round;
	pcpu_at(d, pcpu)->planned = slot;
}

/* Was the pCPU given to no other VM in this round? */
static __always_inline bool plan_is_free(struct drover *d, struct pcpu *p, u32 slot)
{
	return p->round != d->round || p->planned == slot;
}

/* Has the VM been left out of plans for as long as any VM is? */
static __always_inline bool plan_held_too_long(struct drover *d, struct vm *vm, u64 now_ns)
{
	return vm->plan.held_since_ns &&
	       (s64)(now_ns - vm->plan.held_since_ns) >= (s64)d->params.hold_max_ns;
}

/* Has the plan of this round left the VM out? In skew mode single vCPUs are stopped. */
static __always_inline bool plan_leaves_out(struct drover *d, u32 pcpu, u32 slot)
{
	struct vm *vm = vm_at(d, slot);

	return vm->plan.held_since_ns && vm->plan.round == d->round &&
	       vm->cosched_mode != COSCHED_SKEW &&
	       !plan_held_too_long(d, vm, pcpu_at(d, pcpu)->asked_ns);
}

/* May a vCPU of the VM that waits run there? */
static __always_inline bool plan_reaches(struct drover *d, u32 pcpu, u32 slot, bool remote)
{
	u32 domain = pcpu_at(d, pcpu)->domain;
	struct runqueue *rq = ground_runqueue(d, domain);

	return pcpu_at(d, pcpu)->online && rq &&
	       domain_at(d, domain)->partition == vm_at(d, slot)->partition &&
	       (remote || affinity_fits(d, entity_rq_of(rq, slot), domain, pcpu));
}

/* Could the pCPU be the VM's in this round? From another VM it is taken if that comes after this
 * one, by reservation, then by shares, as in a pick. */
BPF_GLOBAL bool plan_could_give(THE_DROVER, u32 pcpu, u32 slot, bool remote)
{
	struct pcpu *p = pcpu_at(d, pcpu);
	struct vm *running = vm_at(d, p->running_slot);
	struct vm *vm = vm_at(d, slot);
	u64 now_ns = ground_now_ns(d);
	bool due;

	if (p->running_slot == slot)
		return plan_is_free(d, p, slot);
	if (!plan_reaches(d, pcpu, slot, remote) || !order_is(p, ORDER_NONE))
		return false;
	if (p->running_slot >= DROVER_MAX_VMS)
		return true;
	if (!plan_is_free(d, p, slot))
		return false;
	due = reserve_is_due(vm, now_ns);
	if (due != reserve_is_due(running, now_ns))
		return due;
	return (s64)(share_vtime_now(running, now_ns) - share_vtime_now(vm, now_ns)) >= 0;
}

/* How many pCPUs besides `at` could be the VM's in this round; `ever`: in any. */
BPF_GLOBAL u32 plan_count(THE_DROVER, u32 at, u32 slot, bool remote, bool ever)
{
	u32 found = 0;
	u32 i;

	for_each_index(i, 0, d->params.nr_pcpus) {
		if (i != at &&
		    (ever ? plan_reaches(d, i, slot, remote) : plan_could_give(d, i, slot, remote)))
			found++;
	}
	return found;
}

/* Give the VM those on which it runs, besides `at`. How many are that? */
BPF_GLOBAL u32 plan_keep(THE_DROVER, u32 at, u32 slot)
{
	u32 kept = 0;
	u32 place;

	for_each_index(place, 0, vcpu_places(vm_at(d, slot))) {
		struct vcpu *v = vcpu_in(d, slot, place);

		if (!v || v->state != VCPU_RUNNING || v->pcpu == at ||
		    !plan_is_free(d, pcpu_at(d, v->pcpu), slot))
			continue;
		plan_note(d, v->pcpu, slot);
		kept++;
	}
	return kept;
}

/* Give the VM so many others, as far as there are, those of the same domain first. */
BPF_GLOBAL int plan_give(THE_DROVER, u32 at, u32 slot, u32 others, bool remote)
{
	struct domain *home = domain_at(d, pcpu_at(d, at)->domain);
	u32 span = plan_spans(d, vm_at(d, slot)) ? d->params.nr_pcpus : home->nr_pcpus;
	u32 given = 0;
	u32 i;

	for_each_index(i, 0, span) {
		u32 pcpu = topology_listed(d, home->first + i);
		u32 running = pcpu_at(d, pcpu)->running_slot;

		if (given >= others)
			break;
		if (pcpu == at || running == slot || !plan_could_give(d, pcpu, slot, remote))
			continue;
		plan_note(d, pcpu, slot);
		order_give(pcpu_at(d, pcpu), ORDER_WOKEN);
		if (running >= DROVER_MAX_VMS)
			ground_kick(d, bounded(pcpu, DROVER_MAX_PCPUS));
		else
			ground_preempt(d, bounded(pcpu, DROVER_MAX_PCPUS));
		given++;
	}
	return 0;
}

/* Must the VM start so many vCPUs at once, or none? */
static __always_inline bool plan_is_whole(struct vm *vm)
{
	return cosched_is_gang(vm) || cosched_is_stopped(vm);
}

/* How many pCPUs the VM needs. */
static __always_inline u32 plan_needs(struct drover *d, u32 slot)
{
	struct vm *vm = vm_at(d, slot);
	u32 ready = vm->vcpus_waiting + vm->vcpus_running;

	if (vm->cosched_mode == COSCHED_RELAXED && cosched_is_stopped(vm))
		return cosched_laggards(d, slot) ?: 1;
	return vm->cosched_mode == COSCHED_SKEW && ready > vm->skew.nr_stopped ?
		       ready - vm->skew.nr_stopped :
		       ready;
}

/* Plan the VM, which `at` would run. True if there are as many pCPUs as it must have. */
BPF_GLOBAL bool plan_vm(THE_DROVER, u32 at, u32 slot)
{
	struct vm *vm = vm_at(d, slot);
	u64 now_ns = ground_now_ns(d);
	bool remote = plan_spans(d, vm) && affinity_is_remote(d, slot);
	u32 needs = plan_needs(d, slot);
	u32 others = needs > 1 ? needs - 1 : 0;
	bool enough = true;
	u32 kept;

	vm->plan.round = d->round;
	vm->plan.vtime_ns = share_vtime_now(vm, now_ns);
	/* One that is wider than all pCPUs it may have runs in turns. */
	if (plan_is_whole(vm) && others) {
		others = (u32)min_of(others, plan_count(d, at, slot, remote, true));
		enough = plan_count(d, at, slot, remote, false) >= others;
	}
	if (!enough && !plan_held_too_long(d, vm, now_ns))
		return false;
	kept = plan_keep(d, at, slot);
	if (others > kept)
		plan_give(d, at, slot, others - kept, remote);
	return enough;
}

/*
 * skew: does one that is not stopped wait in that domain? If only stopped ones do, as well
 * if none waits anywhere else: the slowest of those may always start.
 */
BPF_GLOBAL bool plan_slowest_waits_in(THE_DROVER, u32 domain_index, u32 slot)
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
 * The pCPU would take a thread of that VM from that domain, or go on with the one it runs (`here`):
 * may it? Plans the VM if this is the first time in the round.
 */
BPF_GLOBAL bool plan_admits(THE_DROVER, u32 at, u32 domain_index, u32 slot, u32 here)
{
	struct vm *vm = vm_at(d, slot);
	u64 now_ns = pcpu_at(d, at)->asked_ns;
	/* All vCPUs of the gang have stopped: it starts again as a whole. */
	bool begun = !plan_is_whole(vm) || vm->vcpus_running > here;
	bool may = true;

	if (!plan_is_for(vm))
		return true;
	if (plan_leaves_out(d, at, slot))
		return false;
	if (vm->plan.round != d->round || !begun)
		may = plan_vm(d, at, slot);
	if (vm->cosched_mode == COSCHED_SKEW)
		may = here || plan_slowest_waits_in(d, domain_index, slot);
	if (may) {
		if (vm->plan.held_since_ns || cosched_is_stopped(vm))
			cosched_let_go(d, slot, now_ns);
		return true;
	}
	__sync_val_compare_and_swap(&vm->plan.held_since_ns, 0, now_ns);
	/* Idle pCPUs do not ask again by themselves. */
	timer_rouse_at(d, d->round_end_ns);
	/* Held until a vCPU begins: it may be a helper that stands first in the queue. */
	return plan_held_too_long(d, vm, now_ns);
}

/* Have the others that run such VMs, and were given to none, choose anew, now, and those of a VM
 * that takes turns on all pCPUs; but not where an overdue thread has its turn, which is short. */
BPF_GLOBAL int plan_tell(THE_DROVER, u32 at)
{
	u32 i;

	for_each_index(i, 0, d->params.nr_pcpus) {
		struct pcpu *other = pcpu_at(d, i);
		u32 slot = other->running_slot;

		if (i == at || !other->online || slot >= DROVER_MAX_VMS ||
		    !vm_at(d, slot)->coscheduled || order_is_turn(other))
			continue;
		if (other->round == d->round && plan_excess(d, vm_at(d, slot)) <= 0)
			continue;
		ground_preempt(d, bounded(i, DROVER_MAX_PCPUS));
	}
	return 0;
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Co-scheduling, stopping: vCPUs that drift apart, and whom their VM's mode stops for it.
 *
 * Idea. Whenever a vCPU of a VM is charged whose mode bounds skew (strict, relaxed, skew:
 * plan.h), its siblings are looked at (vcpu.h): in strict and relaxed, whether a ready one
 * lags by more than skew_max (3 ms), and then all are stopped; in skew, which of those that run
 * are further ahead than that of the slowest that is ready, and these are stopped.
 *
 * Worked example. Of three vCPUs two run, the third has been ready for 4 ms of that: their
 * progress is 20, 18 and 14 ms. strict, relaxed: it lags by 4 ms, and the VM is stopped, all of
 * it. skew: the first is 6 ms ahead of it, the second 4, and both are stopped. 4 ms later
 * the third is at 18, and of those that are ready the second, at 18 as well, is the slowest:
 * none is 3 ms ahead of it, and all may run.
 *
 * Limitations. Skew is seen when vCPUs are charged, at ticks and when they stop: with
 * ticks of 4 ms it may be 7 ms by then.
 */
#ifndef DROVER_COSCHED_STOP_H
#define DROVER_COSCHED_STOP_H

#include "base/timer.h"
#include "account/vcpu.h"

/* Is the VM of a mode that stops vCPUs which drift apart? */
static __always_inline bool cosched_bounds_skew(struct vm *vm)
{
	return vm->cosched_mode == COSCHED_STRICT || vm->cosched_mode == COSCHED_RELAXED ||
	       vm->cosched_mode == COSCHED_SKEW;
}

/* Do its vCPUs run all together or not at all? */
static __always_inline bool cosched_is_gang(struct vm *vm)
{
	return vm->cosched_mode == COSCHED_GANG || vm->spins;
}

/* Is it stopped as a whole? */
static __always_inline bool cosched_is_stopped(struct vm *vm)
{
	return vm->skew.nr_stopped && cosched_bounds_skew(vm) && vm->cosched_mode != COSCHED_SKEW;
}

/*
 * An order: the VM is of that mode from now on. What its vCPUs ran more or less than each
 * other in a mode that does not ask is no skew: a day of it would be made up for a day.
 */
static __always_inline void cosched_set_mode(struct drover *d, u32 slot, u32 mode)
{
	struct vm *vm = vm_at(d, slot);
	bool bounded_before = cosched_bounds_skew(vm);
	bool waited_before = vm_may_wait(vm);

	/* Rounds are for the policy that knows them. */
	if (partition_at(d, vm->partition)->policy != POLICY_SHARE)
		mode = COSCHED_OFF;
	/* Only another mode lets it go: settings are sent again whenever one of them changes. */
	if (vm->cosched_mode != mode) {
		vm->plan.held_since_ns = 0;
		vm->spins = 0;
	}
	vm->cosched_mode = mode;
	if (mode != COSCHED_AUTO)
		together_set(d, vm, together_is_due(vm, 0, 0));
	if (!bounded_before && cosched_bounds_skew(vm))
		vcpu_level(d, slot);
	/* Idle pCPUs were refused its vCPUs for what was its mode. */
	if (waited_before)
		timer_rouse_at(d, ground_now_ns(d));
}

/* The vCPU is co-stopped from now on. */
static __always_inline void cosched_stop(struct vm *vm, struct vcpu *v, u64 now_ns)
{
	if (__sync_val_compare_and_swap(&v->costop_since_ns, 0, now_ns))
		return;
	__sync_fetch_and_add(&vm->skew.nr_stopped, 1);
	v->nr_costops++;
}

/* It is so no longer. */
static __always_inline void cosched_start(struct vm *vm, struct vcpu *v, u64 now_ns)
{
	u64 since_ns = __sync_lock_test_and_set(&v->costop_since_ns, 0);

	if (!since_ns)
		return;
	ASSERT(vm->skew.nr_stopped);
	__sync_fetch_and_sub(&vm->skew.nr_stopped, 1);
	__sync_fetch_and_add(&vm->skew.nr_costarts, 1);
	if ((s64)(now_ns - since_ns) <= 0)
		return;
	v->costop_ns += now_ns - since_ns;
	__sync_fetch_and_add(&vm->skew.costop_ns, now_ns - since_ns);
}

/* The progress of the VM's slowest vCPU that wants to run; `ready`: that is ready. */
BPF_GLOBAL u64 cosched_slowest_ns(THE_DROVER, u32 slot, bool ready)
{
	u64 slowest_ns = ~0ULL;
	u32 place;

	for_each_index(place, 0, vcpu_places(vm_at(d, slot))) {
		struct vcpu *v = vcpu_in(d, slot, place);

		if (!v || (v->state != VCPU_READY && (ready || v->state != VCPU_RUNNING)))
			continue;
		if (v->progress_ns < slowest_ns)
			slowest_ns = v->progress_ns;
	}
	return slowest_ns;
}

/*
 * skew: stop the running vCPUs that are too far ahead of a ready sibling, and let
 * those go that are so no longer.
 */
BPF_GLOBAL int cosched_stop_leaders(THE_DROVER, u32 slot, u64 now_ns)
{
	struct vm *vm = vm_at(d, slot);
	u64 slowest_ready_ns = cosched_slowest_ns(d, slot, true);
	u32 place;

	for_each_index(place, 0, vcpu_places(vm)) {
		struct vcpu *v = vcpu_in(d, slot, place);
		bool ahead;

		if (!v)
			continue;
		ahead = slowest_ready_ns != ~0ULL &&
			(s64)(v->progress_ns - slowest_ready_ns) > (s64)d->params.skew_max_ns;
		if (!ahead) {
			/* An idle pCPU was refused it, and does not ask again by itself. */
			if (v->costop_since_ns && v->state == VCPU_READY)
				timer_rouse_at(d, now_ns);
			cosched_start(vm, v, now_ns);
			continue;
		}
		if (v->state != VCPU_RUNNING)
			continue;
		if (!v->costop_since_ns)
			__sync_fetch_and_add(&vm->skew.nr_costops, 1);
		cosched_stop(vm, v, now_ns);
		ground_preempt(d, bounded(v->pcpu, DROVER_MAX_PCPUS));
	}
	return 0;
}

/* How many ready vCPUs of the VM lag by more than they may. */
BPF_GLOBAL u32 cosched_laggards(THE_DROVER, u32 slot)
{
	struct vm *vm = vm_at(d, slot);
	u32 laggards = 0;
	u32 place;

	for_each_index(place, 0, vcpu_places(vm)) {
		struct vcpu *v = vcpu_in(d, slot, place);

		if (v && v->state == VCPU_READY && vcpu_lag_ns(vm, v) > d->params.skew_max_ns)
			laggards++;
	}
	return laggards;
}

/* strict, relaxed: stop the VM, all of it. */
BPF_GLOBAL int cosched_stop_all(THE_DROVER, u32 slot, u64 now_ns)
{
	struct vm *vm = vm_at(d, slot);
	u32 place;

	__sync_fetch_and_add(&vm->skew.nr_costops, 1);
	/* In this round, too, it may start again: it is planned anew. */
	vm->plan.round = d->round - 1;
	for_each_index(place, 0, vcpu_places(vm)) {
		struct vcpu *v = vcpu_in(d, slot, place);

		if (!v || v->state == VCPU_HALTED)
			continue;
		cosched_stop(vm, v, now_ns);
		if (v->state == VCPU_RUNNING)
			ground_preempt(d, bounded(v->pcpu, DROVER_MAX_PCPUS));
	}
	return 0;
}

/* The VM starts. */
BPF_GLOBAL int cosched_let_go(THE_DROVER, u32 slot, u64 now_ns)
{
	struct vm *vm = vm_at(d, slot);
	bool stopped = cosched_is_stopped(vm);
	u32 places = stopped ? vcpu_places(vm) : 0;
	u32 place;

	/* Idle pCPUs were refused its vCPUs, and more may start now than were given to it. */
	if ((__sync_lock_test_and_set(&vm->plan.held_since_ns, 0) || stopped) &&
	    vm->vcpus_waiting > 1)
		timer_rouse_at(d, now_ns);
	for_each_index(place, 0, places) {
		struct vcpu *v = vcpu_in(d, slot, place);

		if (v)
			cosched_start(vm, v, now_ns);
	}
	return 0;
}

/*
 * A vCPU begins to run: its VM has waited long enough, and is free to. For one that may run on one
 * pCPU only its siblings, which are held elsewhere, go on waiting.
 */
static __always_inline void cosched_begin(struct drover *d, struct thread *t, u64 now_ns)
{
	if (vm_at(d, t->slot)->plan.held_since_ns && !t->pinned_cpu)
		cosched_let_go(d, t->slot, now_ns);
}

/* skew: must the running vCPU stop, although the pCPU might have nothing else to run? */
static __always_inline bool cosched_must_stop(struct drover *d, struct thread *t)
{
	return vm_at(d, t->slot)->cosched_mode == COSCHED_SKEW && t->record &&
	       vcpu_at(d, t->record)->costop_since_ns;
}

/* Must a vCPU of the VM that wakes wait for its siblings, even beside an idle pCPU? */
static __always_inline bool cosched_holds(struct vm *vm)
{
	return cosched_is_stopped(vm) || (cosched_is_gang(vm) && vm->coscheduled &&
					  !vm->vcpus_running && vm->vcpus_waiting > 1);
}

/* A vCPU of the VM was charged: have they drifted apart? */
static __always_inline void cosched_review(struct drover *d, u32 slot, u64 now_ns)
{
	struct vm *vm = vm_at(d, slot);
	u64 slowest_ns;

	if (!cosched_bounds_skew(vm) || vm->nr_vcpus < 2)
		return;
	together_tally(vm, now_ns);
	slowest_ns = cosched_slowest_ns(d, slot, false);
	if (slowest_ns != ~0ULL)
		vm->skew.floor_ns = slowest_ns;
	slowest_ns = cosched_slowest_ns(d, slot, true);
	if (slowest_ns != ~0ULL)
		vcpu_note_skew(d, slot, slowest_ns);
	if (vm->cosched_mode == COSCHED_SKEW)
		cosched_stop_leaders(d, slot, now_ns);
	else if (!cosched_is_stopped(vm) && cosched_laggards(d, slot))
		cosched_stop_all(d, slot, now_ns);
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Directed yield: a vCPU gives its pCPU to the sibling it waits for.
 *
 * Idea. A guest that spins, or waits for a vCPU that does not run, tells KVM; KVM asks the
 * scheduler to run a certain sibling instead. Nothing is moved then: that sibling is *boosted*, and
 * the pCPU has the order (order.h) to ask for work at once, with the sibling's name on it. It
 * chooses a VM as ever, and from the yielder's VM that vCPU is taken, from whatever queue it waits
 * in, not the one that has run least. Any other pCPU that chooses this VM first takes the one that
 * was boosted last. So a yield decides between siblings only: it is paid for by the VM, and never
 * takes time from another.
 *
 * A boost lasts until it was of use: the vCPU has run for 50 us, or sleeps. One that is preempted
 * before that is next again. A yielder that has its pCPU back and asks again before it has run for
 * 50 us waits still: its yield was *wasted*.
 *
 * In a tick a vCPU has one directed yield, and another after each that was not wasted. A vCPU that
 * yields again and again has not found the one it waits for by yielding (seed 002): KVM guesses,
 * where the guest does not say which. What goes beyond is throttled: the spinner makes way for
 * another VM that waits, unless that is ahead by a slice of virtual time already; if there is none,
 * for siblings that wait, and forfeits a slice against them, so that of several none is passed over
 * for long. The VM has as much less now as it has more later, when the vCPU that all wait for may
 * be running.
 *
 * KVM tries sibling after sibling, with two run queue locks each, until it is told that one was
 * accepted. So it is told to go on only where another sibling may do better: this one may not run
 * here, say. Where none could run, and where a yield is throttled, the search is over.
 *
 * Worked example. VM 3 has vCPUs a, b and c, VM 4 is busy; one pCPU. a has run for 1 ms of its
 * slice and yields to c. VM 3 is at 20 ms, VM 4 waits at 25 ms: VM 3 goes on, with c, although b
 * has run less. 20 us later an interrupt's thread has the pCPU; then c is next again. c yields to
 * a: c's first in this tick, a runs. 10 us later a yields to c again: it is throttled, and VM 4
 * runs. Had a run for 50 us, c would run. When that is at 30 ms VM 3 is owed 10 ms more than it
 * was. Had VM 4 been at 15 ms when a yielded first, it would have run then, and c after it.
 *
 * Limitations. One vCPU of a VM is boosted at a time, the one yielded to last. An idle pCPU
 * elsewhere is not woken for it: it was when the vCPU began to wait.
 */
#ifndef DROVER_YIELD_H
#define DROVER_YIELD_H

#include "account/vcpu.h"
#include "base/order.h"
#include "cosched/cosched_stop.h"
#include "guarantee/wait_bound.h"

/* Who has run for less has done nothing of use. */
#define YIELD_USEFUL_NS 50000ULL
/* vm.boosted: the vCPU has begun to run. */
#define YIELD_BEGUN (1U << 31)
/* order.yield_to: another VM, if one waits. */
#define YIELD_TO_OTHERS (~0U)

/* Could no sibling run if one was asked for? */
static __always_inline bool yield_is_in_vain(struct vm *vm)
{
	return vm->at_limit || cosched_is_stopped(vm) || !vm->vcpus_waiting;
}

/* Is that a sibling, which waits as the kernel knows, and may it run there? */
static __always_inline bool yield_fits(struct drover *d, struct thread *t, struct task_struct *task,
				       struct thread *to, u32 at)
{
	struct vcpu *v = vcpu_at(d, to->record);

	return to->record && to->slot == t->slot && !v->costop_since_ns &&
	       ground_may_run_on(d, task, at);
}

/*
 * The thread, which runs there, asks for a sibling. It may not have one if it has asked in this
 * tick, and not run for long since it was back: what it waits for had not come.
 */
static __always_inline bool yield_is_throttled(struct drover *d, struct vm *vm, struct thread *t,
					       struct pcpu *pcpu)
{
	bool in_vain = ground_now_ns(d) - t->runs_since_ns < YIELD_USEFUL_NS;
	bool again = t->yield_tick == pcpu->ticks + 1;

	if (in_vain && t->yielded)
		__sync_fetch_and_add(&vm->counters.yields_wasted, 1);
	t->yielded = 0;
	t->yield_tick = pcpu->ticks + 1;
	if (!again || !in_vain)
		return false;
	__sync_fetch_and_add(&vm->counters.yields_throttled, 1);
	return true;
}

/* The thread would rather have the vCPU with that record run. */
static __always_inline void yield_boost(struct vm *vm, struct thread *t, u32 record)
{
	vm->boosted = record;
	t->yielded = 1;
}

/* Its siblings come first. */
static __always_inline void yield_forfeit(struct drover *d, struct thread *t)
{
	t->vruntime_ns += d->params.slice_ns;
}

/* The running thread gives way, to what yield_to says. */
static __always_inline void yield_give_way(struct drover *d, struct task_struct *task,
					   struct thread *t, u32 yield_to)
{
	struct pcpu *pcpu = pcpu_at(d, ground_task_pcpu(d, task));

	/* It has had what it wanted: it was not cut short. */
	t->runs_since_ns -= wait_bound_turn_ns(d, 0);
	pcpu->order.yield_to = yield_to;
	order_give(pcpu, ORDER_YIELD);
	ground_set_slice(d, task, 0);
}

/*
 * The running thread gives way: to `to`, which waits, or (NULL) to any sibling. False: another may
 * be tried.
 */
static __always_inline bool drover_yield(struct drover *d, struct task_struct *task,
					 struct thread *t, struct task_struct *to_task,
					 struct thread *to)
{
	u32 at = ground_task_pcpu(d, task);
	struct vm *vm = vm_at(d, t->slot);

	if (!to) {
		if (vm->nr_waiting && !vm_may_wait(vm)) {
			yield_forfeit(d, t);
			yield_give_way(d, task, t, 0);
		}
		return true;
	}
	__sync_fetch_and_add(&vm->counters.yields_asked, 1);
	if (yield_is_in_vain(vm))
		return true;
	if (!yield_fits(d, t, to_task, to, at))
		return false;
	if (!yield_is_throttled(d, vm, t, pcpu_at(d, at))) {
		yield_boost(vm, t, to->record);
		yield_give_way(d, task, t, to->record);
	} else if (!vm_may_wait(vm)) {
		yield_forfeit(d, t);
		yield_give_way(d, task, t, YIELD_TO_OTHERS);
	}
	return true;
}

/* Has the thread there made way for other VMs? */
static __always_inline bool yield_is_to_others(const struct pcpu *pcpu)
{
	return order_is(pcpu, ORDER_YIELD) && pcpu->order.yield_to == YIELD_TO_OTHERS;
}

/* Take that vCPU of the VM, if it waits and may run. */
static __always_inline bool yield_take_vcpu(struct drover *d, u32 slot, u32 record)
{
	struct vcpu *v = vcpu_at(d, record);

	return v->slot == slot && v->state == VCPU_READY && !v->costop_since_ns &&
	       ground_take_vcpu(d, ground_vm_queue(d, slot, pcpu_at(d, v->pcpu)->domain), record);
}

/*
 * The VM is to run next there: take the vCPU that the thread there has asked for, or else the one
 * that is boosted.
 */
BPF_GLOBAL bool yield_take(THE_DROVER, u32 pcpu, u32 slot)
{
	struct order *order = &pcpu_at(d, pcpu)->order;
	u32 record = vm_at(d, slot)->boosted & ~YIELD_BEGUN;
	struct vcpu *v = vcpu_at(d, record);

	if (order->why == ORDER_YIELD && order->yield_to != YIELD_TO_OTHERS &&
	    yield_take_vcpu(d, slot, order->yield_to))
		return true;
	if (!record)
		return false;
	/* It sleeps, or is gone and another has its record. */
	if (v->slot != slot || (v->state != VCPU_READY && v->state != VCPU_RUNNING)) {
		vm_at(d, slot)->boosted = 0;
		return false;
	}
	return yield_take_vcpu(d, slot, record);
}

/* The thread begins to run. */
static __always_inline void yield_begin(struct vm *vm, struct thread *t)
{
	if (!t->record || vm->boosted != t->record)
		return;
	vm->boosted = t->record | YIELD_BEGUN;
	__sync_fetch_and_add(&vm->counters.yields_granted, 1);
}

/* It stops: was its boost of use? */
static __always_inline void yield_stops(struct vm *vm, struct thread *t, bool ready, u64 now_ns)
{
	if (t->record && (vm->boosted & ~YIELD_BEGUN) == t->record &&
	    (!ready || now_ns - t->runs_since_ns >= YIELD_USEFUL_NS))
		vm->boosted = 0;
}

#endif

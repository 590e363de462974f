/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Directed yield: a vCPU gives its pCPU to the sibling it waits for.
 *
 * Idea. A guest that spins, or waits for a vCPU that does not run, tells KVM; KVM asks the
 * scheduler to run a certain sibling instead. Nothing is moved then: the pCPU is given the order
 * (types.h) to take that vCPU, and asks for work at once. It chooses a VM as ever. Is that the
 * yielder's, because it goes on or because it is the least served that waits, then the vCPU named
 * is taken, from whatever queue it waits in, and not the one that has run least. So a yield decides
 * between siblings only: it is paid for by the VM, and never takes time from another.
 *
 * A vCPU has one directed yield a tick. A vCPU that yields more often has not found the one it
 * waits for by yielding (seed 002). What goes beyond is throttled: it counts as a plain
 * sched_yield, which gives way to siblings that wait, and forfeits a slice against them, so that of
 * several none is passed over for long.
 *
 * KVM tries sibling after sibling, with two run queue locks each, until it is told that one was
 * accepted. So it is told to go on only where another sibling may do better: this one may not run
 * here, say. Where none could run, and where a yield is throttled, the search is over.
 *
 * Worked example. VM 3 has vCPUs a, b and c, VM 4 is busy; one pCPU. a has run for 1 ms of its
 * slice and yields to c. VM 3 is at 20 ms, VM 4 waits at 25 ms: VM 3 goes on, with c, although b
 * has run less. c yields to a: c's first in this tick, a runs. a yields to c again, in the same
 * tick: it is throttled, and b runs. Had VM 4 been at 15 ms, it would run now, and the yield be
 * forgotten.
 *
 * Limitations. The vCPU named must be able to run here: that another pCPU could run it sooner
 * is not looked for. An order is forgotten after one choice. A spinner that is throttled makes way
 * for siblings, which may spin, too; other VMs get its time only as their shares have it.
 */
#ifndef DROVER_YIELD_H
#define DROVER_YIELD_H

#include "account/vcpu.h"
#include "base/order.h"
#include "guarantee/wait_bound.h"

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

/* May the thread, which runs there, have another directed yield in this tick? */
static __always_inline bool yield_is_throttled(struct vm *vm, struct thread *t, struct pcpu *pcpu)
{
	if (t->yield_tick != pcpu->ticks + 1) {
		t->yield_tick = pcpu->ticks + 1;
		return false;
	}
	__sync_fetch_and_add(&vm->counters.yields_throttled, 1);
	return true;
}

/* The thread, which runs there, gives way: to the vCPU with that record, or to any sibling. */
static __always_inline void yield_give_way(struct drover *d, struct task_struct *task,
					   struct thread *t, struct pcpu *pcpu, u32 record)
{
	/* It has had what it wanted: it was not cut short. */
	t->runs_since_ns -= wait_bound_turn_ns(d, 0);
	if (!record)
		t->vruntime_ns += d->params.slice_ns;
	pcpu->order.who = record;
	order_give(pcpu, ORDER_YIELD);
	ground_set_slice(d, task, 0);
}

/* The VM is to run there next: take the vCPU that was yielded to, if it still waits. */
BPF_GLOBAL bool yield_take(THE_DROVER, u32 pcpu, u32 slot)
{
	u32 record = pcpu_at(d, pcpu)->order.who;
	struct vcpu *v = vcpu_at(d, record);
	u32 domain = pcpu_at(d, v->pcpu)->domain;

	return record && v->slot == slot && !v->costop_since_ns &&
	       ground_take_vcpu(d, ground_vm_queue(d, slot, domain), record);
}

/* The thread begins to run there. */
static __always_inline void yield_begin(struct vm *vm, struct thread *t, struct pcpu *pcpu)
{
	if (order_is(pcpu, ORDER_YIELD) && t->record && pcpu->order.who == t->record)
		__sync_fetch_and_add(&vm->counters.yields_granted, 1);
}

#endif

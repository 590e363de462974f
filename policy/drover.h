/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The policy's front door: what the ground tells it, in the order of a thread's
 * life. Each function is one event; what it decides is in the file named there.
 */
#ifndef DROVER_POLICY_H
#define DROVER_POLICY_H

#include "pick/pick.h"
#include "account/charge.h"
#include "account/orders.h"
#include "allot/allot.h"
#include "base/order.h"
#include "guarantee/wait_bound.h"
#include "place/home.h"
#include "place/speed.h"
#include "place/spread.h"
#include "place/wake.h"
#include "yield/yield.h"

/* The scheduler starts; params and every pcpu's domain and online are set. */
static __always_inline void drover_start(struct drover *d)
{
	u32 i;

	for_each_index(i, 0, d->params.nr_pcpus) {
		pcpu_at(d, i)->running_slot = DROVER_MAX_VMS;
		speed_of(d, i)->asked = SPEED_FULL;
	}
	topology_settle(d);
	partition_at(d, 0)->slice_ns = d->params.slice_ns;
	partition_count(d);
	vm_begin_host(d);
}

/* The thread is ours from now on, new or of another class: what it used there is no VM's. */
static __always_inline void drover_enable(struct drover *d, struct task_struct *task,
					  struct thread *t, u32 weight)
{
	t->weight = weight;
	find_owner(d, task, t);
	t->vruntime_ns = vm_at(d, t->slot)->vruntime_floor_ns;
	t->charged_ns = ground_cpu_time_ns(d, task);
	affinity_note(d, task, t);
}

/* Its nice value has changed, or whether it is of SCHED_IDLE. */
static __always_inline void drover_reweigh(struct drover *d, struct thread *t, u32 weight)
{
	t->weight = weight;
	if (thread_is_task(t))
		find_moved(d, t);
	else
		__sync_fetch_and_add(&vm_at(d, t->slot)->counters.weight_changes, 1);
}

/*
 * The thread begins to run there. The order matters (docs/concurrency.md):
 *  - its wait ends and its lag is clamped before it counts as running: the clamp asks whether any
 *    other thread of the VM is awake;
 *  - the VM's times are brought up to date before its counts of vCPUs change;
 *  - what the thread used after its last stop is charged before its time counts as uncharged, or it
 *    would count twice;
 *  - the limit is checked once the thread counts as running, and before its slice is set;
 *  - a turn sets a slice of its own, so it comes last.
 */
static __always_inline void drover_running(struct drover *d, struct task_struct *task,
					   struct thread *t, u32 at)
{
	struct pcpu *pcpu = pcpu_at(d, at);
	struct vm *vm = vm_at(d, t->slot);
	u64 now_ns = ground_now_ns(d);

	waiting_end(d, t, now_ns);
	if (quota_unpark(d, t, now_ns))
		share_clamp_lag(d, t, at);
	if (vm->domain == DOMAIN_NONE)
		share_move_to(d, t->slot, at);
	charge_begin(d, task, t, at, now_ns);
	vcpu_running(d, t, at);
	if (t->kind == THREAD_VCPU) {
		together_tally(vm, now_ns);
		__sync_fetch_and_add(&vm->vcpus_running, 1);
		cosched_begin(d, t, now_ns);
		together_judge(d, vm, now_ns);
	}
	ASSERT(pcpu->running_slot == DROVER_MAX_VMS && !t->queued_in && !t->ready_since_ns);
	pcpu->running_slot = t->slot;
	pcpu->running_vruntime_ns = t->vruntime_ns - now_ns;
	home_note(d, t, at);
	if (vm->capped)
		limit_begin(d, t->slot, now_ns);
	/*
	 * Its limit was spent while it was on its way. Two that leave would preempt each other for
	 * ever, no other thread would run there, and the VM would never be below its limit again.
	 */
	if (vm->at_limit && !ground_is_leaving(d, task) && !ground_blocks_rcu(d, task))
		ground_preempt(d, at);
	yield_begin(vm, t);
	idle_give_back(d, pcpu);
	if (d->divided || d->nr_reserved || plan_excess(d, vm) > 0 || quota_of(d, t))
		ground_set_slice(d, task, quota_slice_ns(d, t, plan_slice_ns(d, vm, at), now_ns));
	wait_bound_begin(d, task, t, at, now_ns);
}

/* The thread stops running there, to sleep or, still ready, to wait. */
static __always_inline void drover_stopping(struct drover *d, struct task_struct *task,
					    struct thread *t, u32 at, bool ready)
{
	struct vm *vm = vm_at(d, t->slot);
	u64 now_ns = ground_now_ns(d);

	charge_end(d, task, t, at, now_ns);
	yield_stops(vm, t, ready, now_ns);
	wait_bound_stops(d, t, ready, now_ns);
	if (!ready)
		hook_sleeps(d, t->slot, share_nr_awake(vm), now_ns);
	ASSERT(pcpu_at(d, at)->running_slot == t->slot || !pcpu_at(d, at)->online);
	if (t->kind == THREAD_VCPU) {
		ASSERT(vm->vcpus_running);
		together_tally(vm, now_ns);
		__sync_fetch_and_sub(&vm->vcpus_running, 1);
	}
	vcpu_halted(d, t);
	pcpu_at(d, at)->running_slot = DROVER_MAX_VMS;
}

/* The thread leaves for another scheduling class, or for good. */
static __always_inline void drover_leaving(struct drover *d, struct task_struct *task,
					   struct thread *t)
{
	charge_late(d, task, t, ground_task_pcpu(d, task));
	waiting_end(d, t, ground_now_ns(d));
	quota_unpark(d, t, ground_now_ns(d));
}

/*
 * It has stopped, to sleep or to wait: is it a vCPU, or of another VM, container or user? Asked
 * then, and at the tick of a thread that goes on: no wake-up, switch or stop waits for the answer.
 */
static __always_inline void drover_stopped(struct drover *d, struct task_struct *task,
					   struct thread *t)
{
	/* Something about it was changed while it waited. */
	if (t->ready_since_ns || t->parked_until_ns)
		return;
	find_vcpu(d, task, t);
	find_owner(d, task, t);
}

/* It is in another cgroup from now on. If it neither runs nor waits it is looked up at once. */
static __always_inline void drover_moved(struct drover *d, struct task_struct *task,
					 struct thread *t)
{
	find_moved(d, t);
	drover_stopped(d, task, t);
}

/*
 * The tick finds the thread running there. A vCPU alone on its pCPU never stops: found now, it
 * counts as having stopped. So does a thread that may be of another VM or container.
 */
BPF_GLOBAL int drover_adopt_running(THE_DROVER, THE_TASK, THE_THREAD, u32 at)
{
	if (!find_is_due(d, task, t))
		return 0;
	drover_stopping(d, task, t, at, false);
	drover_stopped(d, task, t);
	drover_running(d, task, t, at);
	return 0;
}

/*
 * The pCPU has just become idle, or ends to be. Idle, it looks once more, for a thread that was on
 * its way into a queue. From now on each enqueue sees that the pCPU is idle.
 */
static __always_inline void drover_idle(struct drover *d, u32 at, bool idle)
{
	idle_note(d, at, idle);
	if (idle)
		speed_note(d, at, false, ground_now_ns(d));
	else
		speed_ask(d, at, ground_now_ns(d));
	if (idle && pcpu_at(d, at)->online && drover_has_work(d, at))
		ground_kick(d, at);
}

/* Is any queue of VMs not empty? */
BPF_GLOBAL bool drover_somebody_waits(THE_DROVER)
{
	bool somebody = false;
	u32 i;

	for_each_index(i, 0, d->params.nr_domains)
		somebody |= !share_nobody_waits(d, i);
	return somebody;
}

/*
 * From time to time: kick pCPUs that are idle beside waiting threads. A thread is
 * counted a moment before it can be taken; if its enqueue is
 * interrupted just there, a pCPU may have looked in vain and gone idle.
 */
static __always_inline void drover_kick_idle(struct drover *d)
{
	bool somebody = drover_somebody_waits(d);
	u64 now_ns = ground_now_ns(d);
	u32 i;

	drain_walk(d);
	vm_take_sizes(d, now_ns);
	allot_check(d, now_ns);
	for_each_index(i, 0, d->slots_in_use) {
		timer_repair(d, i, now_ns);
		/* Is it lost, with threads that are parked? */
		if (vm_at(d, i)->nr_parked && !timer_at_ns(timer_of(d, i)))
			timer_by(d, i, now_ns);
	}
	for_each_index(i, 0, d->params.nr_pcpus) {
		if (somebody && pcpu_is_idle(pcpu_at(d, i)))
			ground_kick(d, bounded(i, DROVER_MAX_PCPUS));
	}
}

/* The VMs of the partition that wait take the places that are theirs now. */
BPF_GLOBAL int drover_stand_anew(THE_DROVER, u32 partition)
{
	u32 i;

	for_each_index(i, 1, d->slots_in_use) {
		if (vm_at(d, i)->partition == partition && vm_at(d, i)->nr_waiting)
			waiting_settle_domains(d, i);
	}
	return 0;
}

/* May the running thread stay there, is there a better place, have its VM's vCPUs drifted apart? */
BPF_GLOBAL int drover_look_after(THE_DROVER, THE_TASK, THE_THREAD)
{
	u32 at = ground_task_pcpu(d, task);
	u64 now_ns = ground_now_ns(d);

	pcpu_at(d, at)->ticks++;
	speed_ask(d, at, now_ns);
	home_note(d, t, at);
	affinity_refresh(d, task, t);
	/* It may have to run elsewhere: its pCPU asks. */
	if (affinity_strays(d, t, at))
		ground_set_slice(d, task, 0);
	else
		spread_tick(d, task, t, at);
	if (hook_tick(d, at, t->slot))
		drover_stand_anew(d, partition_of_pcpu(d, at));
	if (t->kind != THREAD_VCPU || !cosched_bounds_skew(vm_at(d, t->slot)))
		return 0;
	charge_and_go_on(d, task, t, at, now_ns);
	cosched_review(d, t->slot, now_ns);
	return 0;
}

/* The tick finds the thread running. */
static __always_inline void drover_tick(struct drover *d, struct task_struct *task,
					struct thread *t)
{
	drover_adopt_running(d, task, t, ground_task_pcpu(d, task));
	drover_look_after(d, task, t);
}

/* The scheduler's own timer goes off. */
static __always_inline void drover_own_timer(struct drover *d, u64 now_ns)
{
	if (!timer_goes_off(d, TIMER_OWN, now_ns))
		return;
	drover_kick_idle(d);
	/* VMs left out of this round are asked for at its end, and this may have come before. */
	if (d->nr_coscheduled && (s64)(d->round_end_ns - now_ns) > 0)
		timer_rouse_at(d, d->round_end_ns);
	timer_leave(d, TIMER_OWN);
}

/* That timer goes off (timer.h). */
static __always_inline void drover_timer(struct drover *d, u32 timer, u64 now_ns)
{
	if (timer == TIMER_OWN)
		drover_own_timer(d, now_ns);
	else if (timer < TIMER_TURN(0))
		limit_timer(d, timer, now_ns);
	else
		wait_bound_timer(d, timer - TIMER_TURN(0), now_ns);
}

/* A task of a higher class, a real-time one, runs there from now on: the thread that was to
 * run next goes elsewhere. */
static __always_inline void drover_pcpu_taken(struct drover *d, u32 at)
{
	idle_give_back(d, pcpu_at(d, at));
	order_give(pcpu_at(d, at), ORDER_TAKEN);
	ground_place_anew(d);
}

/* It is ours again, and asks for work next. */
static __always_inline void drover_pcpu_returned(struct drover *d, u32 at)
{
	order_give(pcpu_at(d, at), ORDER_NONE);
}

static __always_inline void drover_pcpu_online(struct drover *d, u32 at)
{
	u32 i;

	order_give(pcpu_at(d, at), ORDER_NONE);
	pcpu_at(d, at)->online = 1;
	idle_note(d, at, true);
	partition_count(d);
	/* Threads that wait elsewhere may run here. */
	for_each_index(i, 0, d->params.nr_domains)
		affinity_unsettle(d, i);
}

/* It takes no thread from now on. */
static __always_inline void drover_pcpu_offline(struct drover *d, u32 at)
{
	pcpu_at(d, at)->online = 0;
	charge_core_end(d, at, ground_now_ns(d));
	idle_give_back(d, pcpu_at(d, at));
	partition_count(d);
	drain_begin(d);
}

#endif

// SPDX-License-Identifier: GPL-2.0-only
/*
 * The policy, compiled for the simulator: one exported function for each of sched_ext's callbacks.
 *
 * Stands where bpf/drover.bpf.c stands in the kernel and must do what it does, op for op. What the
 * policy asks of its ground is answered in Rust (src/scx/ground.rs). build.rs
 * generates the Rust side of what is declared here and of the structs in it.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "one_thread.h"

#include "drover.h"

/* --- the simulated host has no cgroups --- */

u32 ground_container_of(struct drover *d, struct task_struct *task, u64 *owner_id)
{
	(void)d, (void)task, (void)owner_id;
	return DROVER_HOST_SLOT;
}

/* --- the scheduler as a whole --- */

void sim_init(struct drover *d)
{
	drover_start(d);
}

void sim_rouse(struct drover *d)
{
	drover_kick_idle(d);
}

void sim_measure(struct drover *d, u32 slot, struct measured *measured)
{
	allot_measure(d, slot, measured, ground_now_ns(d));
}

void sim_allot(struct drover *d, u32 slot, const struct allotment *allotment)
{
	allot_obey(d, slot, allotment);
	allot_begin(d, ground_now_ns(d));
}

void sim_allot_end(struct drover *d)
{
	allot_end(d);
}

void sim_timer(struct drover *d, u32 slot, u64 now_ns)
{
	drover_timer(d, slot, now_ns);
}

bool sim_order_vm(struct drover *d, const struct vm_order *order)
{
	return order_vm(d, order);
}

bool sim_order_home(struct drover *d, const struct home_order *order)
{
	return order_home(d, order);
}

bool sim_order_pool(struct drover *d, const struct pool_order *order)
{
	return order_pool(d, order);
}

bool sim_order_partition(struct drover *d, const struct partition_order *order)
{
	return order_partition(d, order);
}

bool sim_order_pcpu(struct drover *d, const struct pcpu_order *order)
{
	return order_pcpu(d, order);
}

/* --- a thread enters the scheduler's care --- */

void sim_enable(struct drover *d, struct task_struct *p, struct thread *t, u32 weight)
{
	drover_enable(d, p, t, weight);
}

void sim_set_cpumask(struct drover *d, struct task_struct *p, struct thread *t)
{
	affinity_change(d, p, t);
}

/* --- it wakes, is queued, is chosen --- */

/* The pCPU it goes to. */
u32 sim_select_cpu(struct drover *d, struct task_struct *p, struct thread *t,
		   enum drover_wakes *wakes)
{
	return drover_select(d, p, t, wakes);
}

void sim_enqueue(struct drover *d, struct task_struct *p, struct thread *t, bool woken,
		 bool selected)
{
	drover_stopped(d, p, t);
	if (woken && !selected)
		drover_woken(d, t, ground_task_pcpu(d, p));
	drover_place(d, p, t, woken && !selected);
}

/* t: NULL unless prev would go on. */
void sim_dispatch(struct drover *d, u32 at, struct task_struct *prev, struct thread *t)
{
	drover_dispatch(d, at, prev, t);
}

/* --- it runs and stops --- */

void sim_running(struct drover *d, struct task_struct *p, struct thread *t, u32 at)
{
	drover_running(d, p, t, at);
}

void sim_tick(struct drover *d, struct task_struct *p, struct thread *t)
{
	drover_tick(d, p, t);
}

void sim_stopping(struct drover *d, struct task_struct *p, struct thread *t, u32 at, bool ready)
{
	drover_stopping(d, p, t, at, ready);
	/* ops.quiescent */
	if (!ready)
		drover_stopped(d, p, t);
}

bool sim_yield(struct drover *d, struct task_struct *p, struct thread *t, struct task_struct *to_p,
	       struct thread *to)
{
	return drover_yield(d, p, t, to_p, to);
}

/* --- it leaves --- */

void sim_disable(struct drover *d, struct task_struct *p, struct thread *t)
{
	drover_leaving(d, p, t);
}

void sim_exit_task(struct drover *d, struct thread *t)
{
	find_forget(d, t);
}

/* --- pCPUs come, go and rest --- */

void sim_idle(struct drover *d, u32 at, bool idle)
{
	drover_idle(d, at, idle);
}

void sim_cpu_release(struct drover *d, u32 at)
{
	drover_pcpu_taken(d, at);
}

void sim_cpu_acquire(struct drover *d, u32 at)
{
	drover_pcpu_returned(d, at);
}

void sim_pcpu_online(struct drover *d, u32 at)
{
	drover_pcpu_online(d, at);
}

void sim_pcpu_offline(struct drover *d, u32 at)
{
	drover_pcpu_offline(d, at);
}

/* --- where threads of a queue go that is drained --- */

s32 sim_drain_to(struct drover *d, struct task_struct *p, struct thread *t)
{
	return drain_to(d, p, t);
}

/* --- what the fault rig does to it: planted bugs (src/scx/queues.rs) --- */

void sim_spoil_tournament(struct drover *d)
{
	ground_runqueue(d, 0)->by_share.node[DROVER_MAX_VMS / 2] = DROVER_MAX_VMS;
}

void sim_spoil_count(struct drover *d)
{
	entity_rq_of(ground_runqueue(d, 0), DROVER_HOST_SLOT)->nr_queued++;
}

/* One VM too many is believed to be kept together. */
void sim_spoil_modes(struct drover *d)
{
	d->nr_coscheduled++;
}

/* VMs that may not start are charged a millisecond for each vCPU that waits. */
void sim_charge_stops(struct drover *d)
{
	u32 slot;

	for (slot = 1; slot < d->slots_in_use; slot++) {
		struct vm *vm = vm_at(d, slot);

		if (vm->id && vm->plan.held_since_ns)
			vm->vtime_ns += share_weigh(vm, vm->vcpus_waiting * 1000000ULL);
	}
}

/* --- what the fault rig asks of it --- */

enum sim_miscounted {
	SIM_COUNTS_RIGHT,
	SIM_COUNTS_TOGETHER,
	SIM_COUNTS_RESERVED,
	SIM_COUNTS_RUNNING,
	SIM_COUNTS_WAITING,
	SIM_COUNTS_STOPPED,
};

/* Are the VM's counts of vCPUs those of its records? */
static enum sim_miscounted check_vcpu_counts(struct drover *d, u32 slot)
{
	const struct vm *vm = vm_at(d, slot);
	u32 running = 0, waiting = 0, stopped = 0;
	u32 place;

	for (place = 0; place < vm->vcpu_places; place++) {
		struct vcpu *v = vcpu_in(d, slot, place);

		running += v && v->state == VCPU_RUNNING;
		waiting += v && v->state == VCPU_READY;
		stopped += v && v->costop_since_ns != 0;
	}
	if (running != vm->vcpus_running)
		return SIM_COUNTS_RUNNING;
	if (waiting != vm->vcpus_waiting)
		return SIM_COUNTS_WAITING;
	return stopped != vm->skew.nr_stopped ? SIM_COUNTS_STOPPED : SIM_COUNTS_RIGHT;
}

/* Are the counts of VMs, and of each VM's vCPUs, right? `slot`: whose are not. */
enum sim_miscounted sim_check_counts(struct drover *d, u32 *slot)
{
	u32 coscheduled = 0, reserved = 0;

	for (*slot = 1; *slot < d->slots_in_use; (*slot)++) {
		const struct vm *vm = vm_at(d, *slot);
		enum sim_miscounted miscounted = check_vcpu_counts(d, *slot);

		if (vm->id && miscounted != SIM_COUNTS_RIGHT)
			return miscounted;
		coscheduled += vm->coscheduled;
		reserved += vm->reserve_inverse != 0;
	}
	*slot = 0;
	if (coscheduled != d->nr_coscheduled)
		return SIM_COUNTS_TOGETHER;
	return reserved != d->nr_reserved ? SIM_COUNTS_RESERVED : SIM_COUNTS_RIGHT;
}

/*
 * Is every inner node that is played the better of its two children, and every leaf somebody's
 * exactly when the VM has threads waiting here that may run? 0, or the slot or node that is wrong,
 * + 1.
 */
u32 sim_check_tournament(struct drover *d, u32 domain_index)
{
	struct runqueue *rq = ground_runqueue(d, domain_index);
	u32 played = 1u << d->tournament_levels;
	u32 slot, width, node;

	if (!rq)
		return 0;
	for (slot = 0; slot < DROVER_MAX_VMS; slot++) {
		u64 leaf = tournament_leaf(&rq->by_share, slot);

		if ((leaf != TOURNAMENT_NONE) !=
		    (entity_rq_of(rq, slot)->nr_queued != 0 && !vm_at(d, slot)->at_limit))
			return slot + 1;
		if (leaf != TOURNAMENT_NONE && tournament_slot(leaf) != slot)
			return slot + 1;
	}
	for (width = DROVER_MAX_VMS; played > 1; played /= 2, width /= 2) {
		for (node = width / 2; node < width / 2 + played / 2; node++) {
			u64 a = rq->by_share.node[2 * node], b = rq->by_share.node[2 * node + 1];

			if (rq->by_share.node[node] != (tournament_before(b, a) ? b : a))
				return node + 1;
		}
	}
	return 0;
}

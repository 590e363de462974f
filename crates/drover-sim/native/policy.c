// SPDX-License-Identifier: GPL-2.0-only
/*
 * The policy, compiled for the simulator: one exported function for each of sched_ext's callbacks.
 *
 * Stands where bpf/drover.bpf.c stands in the kernel and must do what it does, op for op. What the
 * policy asks of its ground is answered in Rust (src/scx/ground.rs).
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "one_thread.h"

#include "drover.h"

/* What a caller needs to know of the policy's structs. */
const size_t sim_drover_bytes = sizeof(struct drover);
const size_t sim_domain_bytes = sizeof(struct runqueue);
const size_t sim_thread_bytes = sizeof(struct thread);
const size_t sim_params_bytes = sizeof(struct params);
const size_t sim_ground_offset = offsetof(struct drover, ground);
const u32 sim_max_vms = DROVER_MAX_VMS;
const u32 sim_max_domains = DROVER_MAX_DOMAINS;
const u32 sim_max_pcpus = DROVER_MAX_PCPUS;

/* --- the simulated host has no cgroups --- */

u32 ground_container_of(struct drover *d, struct task_struct *task, u64 *owner_id)
{
	(void)d, (void)task, (void)owner_id;
	return DROVER_HOST_SLOT;
}

/* --- the scheduler as a whole --- */

void sim_set_params(struct drover *d, const struct params *params)
{
	d->params = *params;
}

/* A run that begins near the end of the clock's range is as good as any. */
void sim_set_vtime(struct drover *d, u64 vtime_ns)
{
	u32 i;

	for (i = 0; i < DROVER_MAX_DOMAINS; i++)
		domain_at(d, i)->clock_ns = vtime_ns;
}

/* sibling: the other thread of its core, + 1; 0: there is none. */
void sim_set_pcpu(struct drover *d, u32 pcpu, u32 domain, u32 sibling, u32 node)
{
	pcpu_at(d, pcpu)->domain = domain;
	pcpu_at(d, pcpu)->sibling = sibling;
	domain_at(d, domain)->node = node + 1;
	pcpu_at(d, pcpu)->online = 1;
}

void sim_init(struct drover *d)
{
	drover_start(d);
}

void sim_rouse(struct drover *d)
{
	drover_kick_idle(d);
}

const size_t sim_measured_bytes = sizeof(struct measured);
const size_t sim_allotment_bytes = sizeof(struct allotment);

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

const size_t sim_vm_order_bytes = sizeof(struct vm_order);
const size_t sim_pool_order_bytes = sizeof(struct pool_order);

bool sim_order_vm(struct drover *d, const struct vm_order *order)
{
	return order_vm(d, order);
}

/* Of that VM, whoever it is now. */
void sim_order_home(struct drover *d, u32 slot, u32 home)
{
	struct home_order order = {.slot = slot, .home = home, .vm_id = vm_at(d, slot)->id};

	order_home(d, &order);
}

bool sim_order_pool(struct drover *d, const struct pool_order *order)
{
	return order_pool(d, order);
}

bool sim_order_partition(struct drover *d, u32 partition, u32 policy, u64 slice_ns)
{
	struct partition_order order = {partition, policy, slice_ns};

	return order_partition(d, &order);
}

bool sim_order_pcpu(struct drover *d, u32 pcpu, u32 domain, u32 partition)
{
	struct pcpu_order order = {pcpu, domain, partition, pcpu_at(d, pcpu)->sibling,
				   domain_at(d, pcpu_at(d, pcpu)->domain)->node};

	return order_pcpu(d, &order);
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

/* The pCPU it goes to; wakes: enum drover_wakes. */
u32 sim_select_cpu(struct drover *d, struct task_struct *p, struct thread *t, u32 *wakes)
{
	enum drover_wakes as = WAKES_TO_WAIT;
	u32 at = drover_select(d, p, t, &as);

	*wakes = as;
	return at;
}

void sim_enqueue(struct drover *d, struct task_struct *p, struct thread *t, bool woken,
		 bool selected)
{
	if (woken && !selected) {
		find_owner(d, p, t);
		drover_woken(d, t, ground_task_pcpu(d, p));
	}
	drover_place(d, p, t, woken && !selected);
}

/* t: NULL unless prev would go on. */
void sim_dispatch(struct drover *d, u32 at, struct task_struct *prev, struct thread *t)
{
	if (t)
		drover_adopt_running(d, prev, t, at);
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
	drover_stopped(d, p, t);
}

bool sim_yield(struct drover *d, struct task_struct *p, struct thread *t, struct task_struct *to_p,
	       struct thread *to)
{
	return drover_yield(d, p, t, to_p, to);
}

/* --- it leaves --- */

void sim_disable(struct drover *d, struct thread *t)
{
	drover_leaving(d, t);
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

/* --- what the test rig looks at --- */

struct sim_vm_view {
	u64 id;
	u64 vtime_ns;
	u64 vcpu_run_ns;
	u64 helper_run_ns;
	u64 smt_discount_ns;
	u64 ready_ns;
	u64 longest_ready_ns;
	u64 nr_starvation_boosts;
	u64 nr_wake_preemptions;
	u64 progressed_ns;
	u64 hazard_ns;
	u64 costop_ns;
	u64 nr_costops;
	u64 nr_costarts;
	u64 skew_max_ns;
	u64 limited_ns;
	u64 home_run_ns;
	u64 yields_asked;
	u64 yields_granted;
	u64 yields_throttled;
	u32 live;
	u32 shares;
	u32 nr_vcpus;
	u32 nr_threads;
	u32 nr_waiting;
	u32 tgid;
};
const size_t sim_vm_view_bytes = sizeof(struct sim_vm_view);

void sim_view_vm(struct drover *d, u32 slot, struct sim_vm_view *view)
{
	const struct vm *vm = vm_at(d, slot);

	*view = (struct sim_vm_view){
		.id = vm->id,
		.vtime_ns = vm->vtime_ns,
		.vcpu_run_ns = vm->vcpu_run_ns,
		.helper_run_ns = vm->helper_run_ns,
		.smt_discount_ns = vm->smt_discount_ns,
		.ready_ns = vm->ready_ns,
		.longest_ready_ns = vm->longest_ready_ns,
		.nr_starvation_boosts = vm->nr_starvation_boosts,
		.nr_wake_preemptions = vm->nr_wake_preemptions,
		.progressed_ns = vm->progressed_ns,
		.hazard_ns = vm->hazard_ns,
		.costop_ns = vm->costop_ns,
		.nr_costops = vm->nr_costops,
		.nr_costarts = vm->nr_costarts,
		.skew_max_ns = vm->skew_max_ns,
		.limited_ns = vm->limited_ns,
		.home_run_ns = vm->home_run_ns,
		.yields_asked = vm->yields_asked,
		.yields_granted = vm->yields_granted,
		.yields_throttled = vm->yields_throttled,
		.live = vm->id != 0,
		.shares = vm->shares,
		.nr_vcpus = vm->nr_vcpus,
		.nr_threads = vm->nr_threads,
		.nr_waiting = vm->nr_waiting,
		.tgid = (u32)vm->owner_id,
	};
}

struct sim_vcpu_view {
	u64 progress_ns;
	u64 hazard_ns;
	u64 costop_ns;
	u64 nr_costops;
	u64 nr_costarts;
	u64 skew_max_ns;
};
const size_t sim_vcpu_view_bytes = sizeof(struct sim_vcpu_view);

/* False if the thread is no vCPU, or one without books. */
bool sim_view_vcpu(struct drover *d, const struct thread *t, struct sim_vcpu_view *view)
{
	const struct vcpu *v = vcpu_at(d, t->record);

	*view = (struct sim_vcpu_view){
		.progress_ns = v->progress_ns,
		.hazard_ns = v->hazard_ns,
		.costop_ns = v->costop_ns,
		.nr_costops = v->nr_costops,
		.nr_costarts = v->nr_costops - (v->costop_since_ns != 0),
		.skew_max_ns = v->skew_max_ns,
	};
	return t->record != 0;
}

struct sim_thread_view {
	u64 vruntime_ns;
	u64 ready_since_ns;
	u32 slot;
	u32 kind;
	u32 queued_in;
	u32 pinned_at;
};
const size_t sim_thread_view_bytes = sizeof(struct sim_thread_view);

void sim_view_thread(const struct thread *t, struct sim_thread_view *view)
{
	*view = (struct sim_thread_view){
		.vruntime_ns = t->vruntime_ns,
		.ready_since_ns = t->ready_since_ns,
		.slot = t->slot,
		.kind = t->kind,
		.queued_in = t->queued_in,
		.pinned_at = t->pinned_at,
	};
}

u64 sim_clock_ns(struct drover *d, u32 domain)
{
	return domain_at(d, domain)->clock_ns;
}

u32 sim_slots_in_use(struct drover *d)
{
	return d->slots_in_use;
}

s32 sim_drain_to(struct drover *d, struct task_struct *p, struct thread *t)
{
	return drain_to(d, p, t);
}

u64 sim_due_ns(const struct thread *t)
{
	return t->due_ns;
}

u32 sim_record(const struct thread *t)
{
	return t->record;
}

bool sim_at_limit(struct drover *d, const struct thread *t)
{
	return vm_at(d, t->slot)->at_limit;
}

u32 sim_pcpu_pinned(struct drover *d, u32 at)
{
	return pcpu_at(d, at)->nr_pinned;
}

u32 sim_domain_queued(struct drover *d, u32 domain_index, u32 slot)
{
	struct runqueue *rq = ground_runqueue(d, domain_index);

	return rq ? entity_rq_of(rq, slot)->nr_queued : 0;
}

/* Planted bugs (src/scx/queues.rs). */

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

		if (vm->id && vm->held_since_ns)
			vm->vtime_ns += share_weigh(vm, vm->vcpus_waiting * 1000000ULL);
	}
}

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
	return stopped != vm->nr_stopped ? SIM_COUNTS_STOPPED : SIM_COUNTS_RIGHT;
}

/* Are the counts of VMs, and of each VM's vCPUs, right? `slot`: whose are not. */
u32 sim_check_counts(struct drover *d, u32 *slot)
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

		if ((leaf != TOURNAMENT_NOBODY) !=
		    (entity_rq_of(rq, slot)->nr_queued != 0 && !vm_at(d, slot)->at_limit))
			return slot + 1;
		if (leaf != TOURNAMENT_NOBODY && tournament_slot(leaf) != slot)
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

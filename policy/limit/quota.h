/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Quotas: the most CPU time that each vCPU of a VM may have, as libvirt and nova set it.
 *
 * Idea. Each vCPU has a bucket (bucket.h) that holds what its quota brings in 100 ms, and a burst.
 * It may run while there is something in it. Its slice ends when it has used that up; then it is
 * parked, in a queue of its own that is not served, and counts as asleep. The VM's timer sends it
 * to a pCPU when it may run for 2.5 ms again, and it waits and runs as any other.
 *
 * Worked example. 50 %. A vCPU that was asleep for long runs for 100 ms: 50 it had saved up, and 50
 * came meanwhile. It is parked for 2.5 ms; from then on it runs for 4 (to the tick), and is parked
 * for 6.5.
 *
 * Limitations. A slice ends at a tick, 4 ms at most after the quota is used up, which is paid back.
 * On the pCPU where it was sent a parked vCPU runs before those that wait, for a ms. All vCPUs of a
 * VM have the same quota.
 */
#ifndef DROVER_QUOTA_H
#define DROVER_QUOTA_H

#include "base/timer.h"
#include "limit/bucket.h"
#include "place/idle.h"
#include "queue/affinity.h"

/* A parked thread may then run for what comes in so long. */
#define QUOTA_PAUSE_NS 2500000ULL
/* No slice is shorter. */
#define QUOTA_SLICE_MIN_NS 25000ULL
/* No debt is larger. */
#define QUOTA_DEBT_NS 1000000000ULL

/* What the thread may have, thousandths of a pCPU; 0: all it wants. */
static __always_inline u32 quota_of(struct drover *d, struct thread *t)
{
	return t->kind == THREAD_VCPU ? vm_at(d, t->slot)->asked.vcpu_limit_mcpu : 0;
}

/* The bucket of a thread of the VM with such a quota. */
static __always_inline struct bucket quota_bucket(struct vm *vm)
{
	u64 ucpu = vm->asked.vcpu_limit_mcpu * 1000ULL;
	u64 burst_ns = bucket_price_ns(vm->asked.vcpu_burst_us * 1000ULL, ucpu);

	return (struct bucket){
		.ucpu = ucpu,
		.depth_ns = BUCKET_DEPTH_NS + burst_ns,
		.debt_ns = QUOTA_DEBT_NS,
	};
}

/* The thread ran for so long. It may have slept before that for longer than counts. */
static __always_inline void quota_charge(struct drover *d, struct thread *t, u64 ran_ns)
{
	u64 now_ns = ground_now_ns(d);
	struct bucket bucket;

	if (!quota_of(d, t))
		return;
	bucket = quota_bucket(vm_at(d, t->slot));
	bucket_bound(&t->paid_ns, bucket, now_ns);
	bucket_charge(&t->paid_ns, bucket, ran_ns, now_ns);
}

/* Has the thread had all that it may have for now? */
static __always_inline bool quota_is_spent(struct drover *d, struct thread *t, u64 now_ns)
{
	return quota_of(d, t) && (s64)(t->paid_ns - now_ns) >= 0;
}

/* Of that slice, what the thread's quota leaves it: tokens come while it runs. */
static __always_inline u64 quota_slice_ns(struct drover *d, struct thread *t, u64 slice_ns,
					  u64 now_ns)
{
	u32 mcpu = quota_of(d, t);
	s64 left_ns = (s64)(now_ns - t->paid_ns);

	if (!mcpu || mcpu >= 1000 || left_ns >= (s64)QUOTA_DEBT_NS)
		return slice_ns;
	left_ns = max_signed(left_ns, 0) * mcpu / (1000 - mcpu);
	return min_of(slice_ns, max_of((u64)left_ns, QUOTA_SLICE_MIN_NS));
}

/* --- parking --- */

/* Must the thread, which is ready, be parked, or stay so? */
static __always_inline bool quota_holds(struct drover *d, struct thread *t, u64 now_ns)
{
	if (t->parked_until_ns && quota_of(d, t))
		return (s64)(t->parked_until_ns - now_ns) > 0;
	return quota_is_spent(d, t, now_ns);
}

/* Park it. */
BPF_GLOBAL int quota_park(THE_DROVER, THE_TASK, THE_THREAD, u64 now_ns)
{
	u32 mcpu = quota_of(d, t);
	u64 pause_ns =
		max_of(QUOTA_PAUSE_NS, bucket_price_ns(2 * QUOTA_SLICE_MIN_NS, mcpu * 1000ULL));

	if (!t->parked_until_ns) {
		t->parked_since_ns = now_ns;
		t->parked_until_ns = t->paid_ns + pause_ns;
		__sync_fetch_and_add(&vm_at(d, t->slot)->nr_parked, 1);
	}
	/* What its quota takes from it, others did not (wait_bound.h). */
	t->due_ns = 0;
	ground_enqueue(d, task, ground_parked_queue(d, t->slot), d->params.slice_ns,
		       t->parked_until_ns);
	return timer_by(d, t->slot, t->parked_until_ns);
}

/* It is parked no more: it runs, or leaves. True: it was. */
static __always_inline bool quota_unpark(struct drover *d, struct thread *t, u64 now_ns)
{
	struct vm *vm = vm_at(d, t->slot);
	u64 parked_ns = now_ns - t->parked_since_ns;

	if (!t->parked_until_ns)
		return false;
	t->parked_until_ns = 0;
	ASSERT(vm->nr_parked);
	__sync_fetch_and_sub(&vm->nr_parked, 1);
	if ((s64)parked_ns > 0) {
		__sync_fetch_and_add(&vm->counters.ready_ns, parked_ns);
		__sync_fetch_and_add(&vm->counters.limited_ns, parked_ns);
	}
	return true;
}

/* An idle pCPU near that one where the thread may run; or that one. */
static __always_inline u32 quota_near(struct drover *d, struct task_struct *task, u32 near)
{
	u32 domain = pcpu_at(d, near)->domain;
	u32 nr = domain_at(d, domain)->nr_pcpus;
	u32 found = near;
	u32 i;

	for_each_index(i, 0, nr) {
		u32 at = bounded(topology_pcpu(d, domain, pcpu_at(d, near)->place + i),
				 DROVER_MAX_PCPUS);

		if (!pcpu_is_idle(pcpu_at(d, at)) || !order_is(pcpu_at(d, at), ORDER_NONE) ||
		    !ground_may_run_on(d, task, at))
			continue;
		order_give(pcpu_at(d, at), ORDER_WOKEN);
		found = at;
		break;
	}
	return found;
}

/* The thread is parked: the pCPU it is sent to, or it stays, and the timer comes again. */
FRAMED s32 quota_to(struct drover *d, struct task_struct *task, struct thread *t)
{
	u32 partition = affinity_partition(d, task, vm_at(d, t->slot)->partition);
	s32 at;

	if (quota_holds(d, t, ground_now_ns(d))) {
		timer_by(d, t->slot, t->parked_until_ns);
		return PCPU_NONE;
	}
	at = affinity_find(d, task, partition, AFFINITY_ANY, true, ground_task_pcpu(d, task));
	return at < 0 ? PCPU_NONE : (s32)quota_near(d, task, (u32)at);
}

#endif

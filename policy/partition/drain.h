/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Drain: when pCPUs or VMs change domains, or a VM is found, a thread that waits in a queue that is
 * no longer its own leaves it.
 *
 * Idea. Threads wait in a domain; then its pCPUs go to another partition, or offline, or their VM
 * does. No pCPU would take them there, or the wrong ones would. So after each such change all
 * queues are walked once, and each thread that waits where it should not is sent to a pCPU where it
 * may run. It runs there for a tick, and is queued anew as any thread is. A thread that was on its
 * way into a queue at that moment is found by the second walk, an eighth of the wait bound later.
 * The same when a VM is found, by the first of its vCPUs that stops in the guest: its siblings that
 * wait stand with the tasks of the host, whose turn may be far off.
 *
 * Worked example. Partition `io`, pCPUs 2 and 3, is removed while six threads wait there. Both are
 * in the default partition's domain now, and the queues of theirs are walked: three threads are
 * sent to each of pCPUs 0 and 1, or, those pinned to 2, to 2. 12 ms later all wait in order again.
 *
 * Limitations. For those ticks they go before others, in the order in which they were found. A walk
 * looks at all VMs in all domains.
 */
#ifndef DROVER_DRAIN_H
#define DROVER_DRAIN_H

#include "limit/quota.h"

/* Walks after a change. */
#define DRAIN_WALKS 2
/* How long a thread that is sent runs: to the next tick. */
#define DRAIN_SLICE_NS 1000000ULL

/* May the task run on a pCPU of that domain? */
static __always_inline bool drain_fits(struct drover *d, struct task_struct *task, u32 domain)
{
	u32 nr = domain_at(d, domain)->nr_pcpus;
	bool fits = false;
	u32 i;

	for_each_index(i, 0, nr) {
		u32 at = topology_pcpu(d, domain, i);

		fits = pcpu_at(d, at)->online && ground_may_run_on(d, task, at);
		if (fits)
			break;
	}
	return fits;
}

/* The thread waits in a queue: the pCPU it is sent to, or it stays. */
FRAMED s32 drain_to(struct drover *d, struct task_struct *task, struct thread *t)
{
	u32 domain = t->queued_in - 1;
	u32 partition;
	bool has_vm;

	if (t->parked_until_ns)
		return quota_to(d, task, t);
	/* Does it wait as a task of the host, and its process is a VM by now? It joins that as it
	 * stops. */
	has_vm = thread_looks_anew(d, t) &&
		 ground_slot_of(d, ground_process(d, task)) != DROVER_HOST_SLOT;
	partition = affinity_partition(d, task, vm_at(d, t->slot)->partition);
	if (!t->queued_in || (domain_at(d, domain)->partition == partition &&
			      drain_fits(d, task, domain) && !has_vm))
		return PCPU_NONE;
	/* One goes here, the next there. */
	return affinity_find(d, task, partition, AFFINITY_ANY, true, d->drain_cursor++);
}

/* pCPUs, or a VM, have changed domains, or there is a new VM. */
static __always_inline void drain_begin(struct drover *d)
{
	d->drains = DRAIN_WALKS;
	timer_rouse_at(d, ground_now_ns(d));
}

/* From time to time, from a timer: walk, if something has changed. */
FRAMED int drain_walk(struct drover *d)
{
	u32 nr_domains = d->params.nr_domains;
	u32 nr_slots = d->slots_in_use;
	u32 domain, slot;

	if (!d->drains)
		return 0;
	d->drains--;
	for_each_index(domain, 0, nr_domains) {
		struct runqueue *rq = ground_runqueue(d, domain);

		for_each_index(slot, 0, nr_slots) {
			if (rq && entity_rq_of(rq, slot)->nr_queued)
				ground_drain(d, ground_vm_queue(d, slot, domain), DRAIN_SLICE_NS);
		}
	}
	return 0;
}

/* The pCPU is in that domain from now on. */
static __always_inline void drain_move(struct drover *d, u32 pcpu, u32 domain)
{
	u32 left = pcpu_at(d, pcpu)->domain;

	if (left != domain) {
		pcpu_at(d, pcpu)->domain = domain;
		topology_settle(d);
		affinity_unsettle(d, left);
		affinity_unsettle(d, domain);
	}
	partition_count(d);
	drain_begin(d);
}

#endif

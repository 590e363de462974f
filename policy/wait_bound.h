/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The wait bound: nobody waits forever, whatever the shares say.
 *
 * Idea. Shares may be as uneven as a million to one, and then proportion alone
 * would have a VM wait for hours; the kernel throws a scheduler out that leaves
 * a ready task waiting for 30 s, and a guest that stands still for seconds
 * believes its clock is broken. So every wait_bound (default 1 s) the books are
 * walked, and a VM with threads in a cell none of which was taken for that long is
 * forgiven its debt: its virtual time is set to the present, less a slice for each
 * further thread that waits, so that they run in turn. Inside one queue, where a `nice 19` task
 * could wait behind a crowd of `nice -20`, or a pinned VM behind one with a
 * thousand times its shares, the queue is searched now and then for a thread
 * that has waited that long, and that one is served first.
 *
 * Worked example. Shares 1 and 1000000 on one pCPU, one busy vCPU each. After one
 * slice of 8 ms the small VM is 8 s of virtual time ahead and would wait over two
 * hours for its next. After 1 s it is forgiven, runs 8 ms, waits 1 s: it gets
 * 0.8 % where its shares say 0.0001 %.
 *
 * What it is bad at. It bends shares beyond about 1:100, as shown. A hundred
 * such VMs on one pCPU would take 80 % of it. The bound is kept for the VM: of one
 * with many vCPUs and few shares, served once in 0.8 s, each vCPU waits its turn,
 * 6.4 s for eight. The search looks at the first 256
 * threads of a queue.
 */
#ifndef DROVER_WAIT_BOUND_H
#define DROVER_WAIT_BOUND_H

#include "waiting.h"

/*
 * Serve a thread of the queue that waits beyond the bound, if it is time to look
 * for one. As long as there are such threads, the next pick looks again.
 */
static __always_inline bool wait_bound_serve(struct drover *d, u64 *check_ns, u64 queue)
{
	u64 now_ns = ground_now_ns(d);

	if ((s64)(now_ns - *check_ns) < 0)
		return false;
	if (ground_take_overdue(d, queue, now_ns - d->params.wait_bound_ns))
		return true;
	*check_ns = now_ns + d->params.wait_bound_ns / 8;
	return false;
}

/* The VM has waited in that cell for too long: forgive it. */
CHECKED_APART int wait_bound_forgive(THE_DROVER, u32 slot, u32 cell_index, u64 now_ns)
{
	struct vm *vm = vm_at(d, slot);
	struct cell *cell = ground_cell(d, cell_index);
	u32 waiting;
	u64 fresh_ns;

	if (!cell)
		return 0;
	/* At the clock it is first; the others it brings along are lent a slice each. */
	waiting = cell->nr_queued[bounded(slot, DROVER_MAX_VMS)];
	fresh_ns =
		d->vtime_now_ns - share_weigh(vm, (waiting ? waiting - 1 : 0) * d->params.slice_ns);
	if ((s64)(vm->vtime_ns - fresh_ns) > 0)
		vm->vtime_ns = fresh_ns;
	vm->nr_forgiven++;
	cell->served_ns[bounded(slot, DROVER_MAX_VMS)] = now_ns;
	waiting_settle(d, cell_index, slot);
	return 0;
}

/* Walk one VM's books; to be called for every slot, several times a bound. */
static __always_inline void wait_bound_check(struct drover *d, u32 slot, u64 now_ns)
{
	u32 i;

	if (vm_at(d, slot)->state != VM_LIVE || !vm_at(d, slot)->nr_waiting)
		return;
	for_each_index(i, 0, d->params.nr_cells) {
		struct cell *cell = ground_cell(d, i);
		u64 waited_ns;

		if (!cell || !cell->nr_queued[bounded(slot, DROVER_MAX_VMS)])
			continue;
		waited_ns = now_ns - cell->served_ns[bounded(slot, DROVER_MAX_VMS)];
		if ((s64)waited_ns >= (s64)d->params.wait_bound_ns)
			wait_bound_forgive(d, slot, i, now_ns);
	}
}

#endif

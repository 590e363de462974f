/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Finding VMs, for any VMM and with no configuration.
 *
 * Idea. A thread inside KVM_RUN is a vCPU, and its process is a VM. All other
 * threads of that process are the VM's helpers. The ground keeps two tables: the
 * slot of each process (and container), and the free slots.
 *
 * A thread is looked at when it begins (drover_enable), when it stops, and at each tick while it
 * goes on (drover_stopped, drover_adopt_running): a look costs two comparisons, and no wake-up or
 * switch waits for one. What has changed about a thread that sleeps, but for its cgroup, is
 * noticed when it has next run.
 *
 * Two pCPUs may find a VM, leave one, or look one up at the same moment. What
 * holds then:
 *   - each user of a slot holds its VM (nr_threads), and the last to let go
 *     frees the slot, be it a thread or an order;
 *   - a process has one slot: of two that make one, the second to enter it gives
 *     its own back;
 *   - a slot that was looked up may be another's when it is held: the process is
 *     compared after that, and the one that came too late lets go again.
 *
 * Worked example. A VMM starts two vCPUs on two pCPUs. Both stop in KVM_RUN at
 * the same moment, both find no slot and take 1 and 2. The first enters its
 * process with 1, the second fails to enter 2, frees it, and holds 1. The I/O
 * thread sees when it next sleeps that VMs have been found, looks its process
 * up, and is a helper.
 *
 * A container is a cgroup with CPU settings of its own and no VM in it. The daemon knows which
 * cgroups are (orders.h); to the policy one is a VM without vCPUs, which the daemon holds, so that
 * it is there while it is empty. Tasks look for theirs when they would look for their VM: one
 * below /web (slot 3) is told that something has changed when it next stops, walks up from
 * its cgroup to the first that has a slot, and is a member of 3. Moved to another cgroup it leaves
 * the slot at the same moments.
 *
 * Tasks in no container are divided further, each part being as a container to the policy. All
 * tasks of a user other than root have a slot (vm.h says its shares), so that a user's crowd is in
 * no other's way. The kernel's own threads of a nice value above 0 (ksmd, khugepaged) have one
 * for each such value, with the weight of one thread: ksmd, of nice 5, has 330 shares, and beside a
 * busy VM with two vCPUs on two pCPUs 28 % of one, however often it sleeps. All other tasks are the
 * host's: root's, and the kernel's threads, which preempt whom they meet (place/wake.h).
 *
 * A process that executes another program is another one: its thread leaves its VM and is looked
 * up anew, as what it is now.
 *
 * No user takes all slots. A user other than root may hold as many as are left after that, so half
 * of what the others leave, and never the last one. A slot is charged to the user whose process, or
 * delegated cgroup, got it, until it is free again; a process that changes users later changes
 * nothing. Worked example: 2047 slots are free. Alice starts 1500 VMs: 1023 have slots. Bob starts
 * as many: 512 have, and root may have the other 512.
 *
 * Limitations. A VM found while no slot is free for it is served as ordinary tasks of its
 * container, or of the host, is counted (nr_unplaced), and looks for a slot again whenever one of
 * its vCPUs stops. Users whose numbers have the same hash count as one.
 */
#ifndef DROVER_FIND_H
#define DROVER_FIND_H

#include "account/vm.h"

/* How many slots that user holds. */
static __always_inline u32 *find_slots_of(struct drover *d, u32 user)
{
	u32 hash = user * 2654435769U >> (32 - DROVER_USER_BITS);

	return &d->slots_of[bounded(hash, 1 << DROVER_USER_BITS)];
}

/* Does a user with so many slots, of so many that are held, have more than are left for others? */
static __always_inline bool find_is_crowded(u32 user, u32 of_user, u32 held)
{
	return user && (s32)of_user > DROVER_MAX_VMS - 1 - (s32)held;
}

/* A free slot for that user; that of the host when it may have none now. */
static inline u32 find_take_slot(struct drover *d, u32 user)
{
	u32 *of_user = find_slots_of(d, user);
	u32 slot = DROVER_HOST_SLOT;
	u32 mine, held;

	/* A refused process asks again and again, and is not to write what others read. */
	if (find_is_crowded(user, *(volatile u32 *)of_user + 1,
			    *(volatile u32 *)&d->slots_held + 1)) {
		if (d->crowded_user != user)
			d->crowded_user = user;
		return slot;
	}
	mine = __sync_fetch_and_add(of_user, 1) + 1;
	held = __sync_fetch_and_add(&d->slots_held, 1) + 1;
	if (!find_is_crowded(user, mine, held))
		slot = ground_pop_slot(d);
	if (slot == DROVER_HOST_SLOT) {
		__sync_fetch_and_sub(of_user, 1);
		__sync_fetch_and_sub(&d->slots_held, 1);
		return slot;
	}
	d->user_of[bounded(slot, DROVER_MAX_VMS)] = user;
	return slot;
}

/* The slot is held no more. */
static inline void find_free_slot(struct drover *d, u32 slot, u64 owner_id)
{
	/* The process may never have been entered, or with another slot. */
	if (ground_slot_of(d, owner_id) == slot)
		ground_forget(d, owner_id);
	__sync_fetch_and_sub(find_slots_of(d, d->user_of[bounded(slot, DROVER_MAX_VMS)]), 1);
	__sync_fetch_and_sub(&d->slots_held, 1);
	ground_push_slot(d, slot);
	/* There is room for the user that was refused one. */
	if (d->crowded_user)
		d->crowded_user = 0;
}

/* Let go of the VM in that slot; free it if it is held no more. */
BPF_GLOBAL int find_let_go(THE_DROVER, u32 slot)
{
	u64 owner_id = vm_at(d, slot)->owner_id;

	if (vm_release(d, vm_at(d, slot)))
		find_free_slot(d, slot, owner_id);
	return 0;
}

/* Hold whose slot that was when it was looked up, for one more thread. */
BPF_GLOBAL bool find_hold(THE_DROVER, u32 slot, u64 owner_id)
{
	if (slot == DROVER_HOST_SLOT || !vm_hold(vm_at(d, slot)))
		return false;
	if (vm_at(d, slot)->owner_id == owner_id)
		return true;
	find_let_go(d, slot);
	return false;
}

/* The thread leaves its VM or container, if it has one, which is forgotten with its last thread. */
BPF_GLOBAL int find_leave(THE_DROVER, THE_THREAD)
{
	u32 slot = t->slot;
	u64 owner_id = vm_at(d, slot)->owner_id;

	if (vm_detach(d, t))
		find_free_slot(d, slot, owner_id);
	return 0;
}

/* The task is in no container for now. */
static inline void find_leave_container(struct drover *d, struct thread *t)
{
	if (t->kind == THREAD_MEMBER)
		find_leave(d, t);
}

/* Give that a slot of the user's; it is held, or that of the host when none can be had now. */
BPF_GLOBAL u32 find_make(THE_DROVER, u64 owner_id, u32 user)
{
	u32 slot = find_take_slot(d, user);

	if (slot == DROVER_HOST_SLOT)
		return DROVER_HOST_SLOT;
	vm_begin(d, slot, owner_id);
	__sync_fetch_and_add(&vm_at(d, slot)->nr_threads, 1);
	if (ground_enter(d, owner_id, slot)) {
		/* Of a part of the host's tasks each looks for it as it comes. */
		if (!owner_is_host_tasks(owner_id))
			vm_tell_found(d);
		return slot;
	}
	/* A sibling was quicker. */
	find_let_go(d, slot);
	slot = ground_slot_of(d, owner_id);
	return find_hold(d, slot, owner_id) ? slot : DROVER_HOST_SLOT;
}

/* Hold the slot of that, which has one from now on; that of the host when none can be had now. */
static inline u32 find_hold_or_make(struct drover *d, u64 owner_id, u32 user)
{
	u32 slot = ground_slot_of(d, owner_id);

	return find_hold(d, slot, owner_id) ? slot : find_make(d, owner_id, user);
}

/* Which part of the host's tasks the task, of no container, is in; 0: the host's own. */
static inline u64 find_part(struct drover *d, struct task_struct *task, struct thread *t)
{
	u32 user;

	if (ground_is_kernel_thread(d, task))
		return t->weight < THREAD_NORMAL_WEIGHT ? OWNER_HOST_TASKS | t->weight : 0;
	user = ground_user(d, task);
	return user ? OWNER_USER | user : 0;
}

/* Hold the slot of that part. */
static inline u32 find_hold_part(struct drover *d, u64 owner_id)
{
	u32 number = (u32)owner_id;
	u32 slot = find_hold_or_make(d, owner_id, owner_is_user(owner_id) ? number : 0);

	if (slot == DROVER_HOST_SLOT || owner_is_user(owner_id))
		return slot;
	vm_at(d, slot)->asked.shares = number * (DROVER_SHARES_PER_VCPU / THREAD_NORMAL_WEIGHT);
	vm_settle_shares(d, slot);
	return slot;
}

/* The task, of no VM, goes to the container it is in now, or to its part of the host's tasks. */
static inline void find_container(struct drover *d, struct task_struct *task, struct thread *t)
{
	u64 owner_id = 0;
	u64 part;
	u32 slot = DROVER_HOST_SLOT;

	if (d->nr_containers)
		slot = ground_container_of(d, task, &owner_id);
	part = slot == DROVER_HOST_SLOT ? find_part(d, task, t) : 0;
	if (part)
		slot = ground_slot_of(d, part);
	if (slot == t->slot && (!part || slot != DROVER_HOST_SLOT))
		return;
	find_leave_container(d, t);
	if (part)
		slot = find_hold_part(d, part);
	else if (!find_hold(d, slot, owner_id))
		slot = DROVER_HOST_SLOT;
	if (slot != DROVER_HOST_SLOT)
		vm_attach(d, t, slot, THREAD_MEMBER);
}

/* The vCPU has no place of its own because no slot is free, or has one now, or leaves. */
static inline void find_note_unplaced(struct drover *d, struct thread *t, u32 unplaced)
{
	if (t->unplaced == unplaced)
		return;
	t->unplaced = unplaced;
	__sync_fetch_and_add(&d->nr_unplaced, unplaced ? 1 : ~0U);
}

/* A thread not known as a vCPU is inside KVM_RUN. */
BPF_GLOBAL int find_new_vcpu(THE_DROVER, THE_TASK, THE_THREAD, u32 vcpu_id)
{
	u64 owner_id = ground_process(d, task);
	u32 slot;

	if (t->kind != THREAD_HELPER) {
		slot = find_hold_or_make(d, owner_id, ground_user(d, task));
		find_note_unplaced(d, t, slot == DROVER_HOST_SLOT);
		if (slot == DROVER_HOST_SLOT)
			return 0;
		find_leave_container(d, t);
		vm_attach(d, t, slot, THREAD_HELPER);
	}
	vm_promote(d, t, vcpu_id, ground_tid(d, task));
	return 0;
}

/* The thread, just stopped, is a vCPU if it is inside KVM_RUN. */
static __always_inline void find_vcpu(struct drover *d, struct task_struct *task, struct thread *t)
{
	s32 vcpu_id = t->kind == THREAD_VCPU ? -1 : ground_vcpu_of(d, task);

	if (vcpu_id >= 0)
		find_new_vcpu(d, task, t, (u32)vcpu_id);
}

/*
 * Since the task was last looked at VMs have been found, or containers came or went: its process
 * may be a VM, or it is in another container.
 */
BPF_GLOBAL int find_anew(THE_DROVER, THE_TASK, THE_THREAD, u32 found)
{
	u64 owner_id = ground_process(d, task);
	u32 slot = ground_slot_of(d, owner_id);

	if (find_hold(d, slot, owner_id)) {
		find_note_unplaced(d, t, 0);
		find_leave_container(d, t);
		vm_attach(d, t, slot, THREAD_HELPER);
	} else if (slot != DROVER_HOST_SLOT) {
		return 0; /* it may be held next time: look again */
	} else {
		find_container(d, task, t);
	}
	t->vms_seen = found;
	return 0;
}

/* The task was moved to another cgroup, or is nice now: it is looked up anew. */
static __always_inline void find_moved(struct drover *d, struct thread *t)
{
	t->vms_seen = *(volatile u32 *)&d->vms_found - 1;
}

/* The process executes another program since the thread, the only one that is left, was looked at.
 */
BPF_GLOBAL int find_executed(THE_DROVER, THE_TASK, THE_THREAD)
{
	u64 owner_id = ground_process(d, task);

	t->exec_id = ground_exec_id(d, task);
	find_moved(d, t);
	if (thread_is_task(t))
		return 0;
	if (ground_slot_of(d, owner_id) == t->slot)
		ground_forget(d, owner_id);
	find_leave(d, t);
	return 0;
}

/* May the running thread be another's than it is known to be? */
static __always_inline bool find_is_due(struct drover *d, struct task_struct *task,
					struct thread *t)
{
	return t->exec_id != ground_exec_id(d, task) || thread_looks_anew(d, t) ||
	       (t->kind != THREAD_VCPU && ground_vcpu_of(d, task) >= 0);
}

/* The thread has stopped, or is new: whose is it now? */
static __always_inline void find_owner(struct drover *d, struct task_struct *task, struct thread *t)
{
	if (t->exec_id != ground_exec_id(d, task))
		find_executed(d, task, t);
	if (thread_looks_anew(d, t))
		find_anew(d, task, t, *(volatile u32 *)&d->vms_found);
}

/* The thread leaves for good. */
static inline void find_forget(struct drover *d, struct thread *t)
{
	find_note_unplaced(d, t, 0);
	find_leave(d, t);
}

#endif

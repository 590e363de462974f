/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Queues of VMs, made ahead of need.
 *
 * A VM has a queue in each domain, and one of parked threads, and on a wide host 2048 VMs would
 * take hundreds of MB. But a queue can only be made where one may sleep, and VMs are found where
 * that is not allowed. So free_slots holds slots whose queues are there, SPARE_SLOTS at first; a
 * timer that goes off all the time looks how many are left, and has a worker of the kernel make
 * more. Taking a slot does not wake it: that takes the lock that is held there. Queues stay when
 * their VM goes: the next has its slot.
 *
 * More VMs at once than there are slots are served as tasks of the host until the
 * worker has run (account/find.h counts them).
 */
#ifndef DROVER_QUEUES_BPF_H
#define DROVER_QUEUES_BPF_H

#define SPARE_SLOTS 64

struct queue_maker {
	struct bpf_wq work;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct queue_maker);
} queue_makers SEC(".maps");

/* Slots below have queues. */
u32 slots_made;
/* All domains there can be, the spare ones too; set by the loader. */
u32 nr_all_domains;

static s32 make_queues_of(u32 slot)
{
	s32 err = 0;
	u32 domain;

	bpf_for(domain, 0, nr_all_domains) {
		err = scx_bpf_create_dsq(ground_vm_queue(&drover, slot, domain), -1);
		/* It may be there from a time when memory ran out half-way. */
		if (err && err != -17) /* EEXIST */
			break;
		err = 0;
	}
	if (!err)
		err = scx_bpf_create_dsq(ground_parked_queue(&drover, slot), -1);
	return err == -17 ? 0 : err;
}

/* Make queues for so many more VMs, and slots of them. */
static s32 make_slots(u32 count)
{
	u32 first = slots_made;
	u32 end = (u32)min_of(first + count, DROVER_MAX_VMS);
	s32 err = 0;
	u32 slot, i;

	bpf_for(slot, first, end) {
		err = make_queues_of(slot);
		if (err)
			return err;
	}
	slots_made = end;
	/* The lowest on top, so that slots stay low and the tournament small. */
	bpf_for(i, first, end)
		ground_push_slot(&drover, end - 1 - (i - first));
	return 0;
}

static int make_spare_slots(void *map, int *key, void *value)
{
	make_slots(SPARE_SLOTS);
	return 0;
}

/* From time to time, where no lock is held. */
static void keep_slots_spare(void)
{
	u32 only = 0;
	struct queue_maker *maker;

	if (*(volatile u32 *)&nr_free_slots >= SPARE_SLOTS || slots_made >= DROVER_MAX_VMS)
		return;
	maker = bpf_map_lookup_elem(&queue_makers, &only);
	if (maker)
		bpf_wq_start(&maker->work, 0);
}

static s32 begin_making_queues(void)
{
	u32 only = 0;
	struct queue_maker *maker = bpf_map_lookup_elem(&queue_makers, &only);

	if (!maker)
		return -3; /* ESRCH */
	bpf_wq_init(&maker->work, &queue_makers, 0);
	if (bpf_ksym_exists(bpf_wq_set_callback))
		bpf_wq_set_callback(&maker->work, make_spare_slots, 0);
	else
		bpf_wq_set_callback_impl(&maker->work, make_spare_slots, 0, NULL);
	return 0;
}

static s32 create_queues(void)
{
	s32 err = make_queues_of(DROVER_HOST_SLOT);

	slots_made = DROVER_HOST_SLOT + 1;
	return err ?: make_slots(SPARE_SLOTS) ?: begin_making_queues();
}

#endif

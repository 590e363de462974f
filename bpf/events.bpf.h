/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What happened lately on each pCPU: which thread began to run, and which thread of a VM was woken.
 *
 * Idea. Each pCPU writes into a ring of its own, over what is oldest, and nothing is
 * told. User space reads the rings when it is asked what happened
 * (crates/drover-observe/src/ring.rs). Nothing waits for a reader, and as long as
 * nobody asks an event costs a store and no more.
 *
 * A reader takes the count of a ring, copies its events and takes the count again:
 * what was written over meanwhile it leaves out, and counts as lost.
 *
 * Limitations. A wake-up that an interrupt comes into, which is of the current thread by
 * itself, may be lost, and leave an event of the last round. Readers leave out what is
 * older than what stands before it.
 */
#ifndef DROVER_EVENTS_BPF_H
#define DROVER_EVENTS_BPF_H

/* Events in a ring, a power of two: 4 MiB. */
#define RING_EVENTS (1u << 18)

/* Flags of an event. */
#define EVENT_WOKEN 1 /* the thread was woken; else it began to run */
#define EVENT_LEFT_READY 2 /* the thread that ran before it is ready still */
#define EVENT_KERNEL 4 /* it is a thread of the kernel */

struct event {
	u64 at_ns;
	u32 thread; /* 0: the pCPU is idle */
	u8 priority; /* the kernel's: below 100, or 255, is real time */
	u8 flags;
	u16 unused;
};

/* A cache line of its own for each pCPU. */
struct ring {
	u64 count; /* events since the beginning */
	u64 unused[7];
};

/* pCPUs that have rings; 0: none are wanted. */
const volatile u32 ring_pcpus = 0;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* RING_EVENTS for each pCPU */
	__type(key, u32);
	__type(value, struct event);
} ring_events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* one for each pCPU */
	__type(key, u32);
	__type(value, struct ring);
} rings SEC(".maps");

static void event_add(struct task_struct *task, u8 flags)
{
	u32 pcpu = bpf_get_smp_processor_id();
	struct event *event;
	struct ring *ring;
	u64 count;
	u32 index;

	if (pcpu >= ring_pcpus)
		return;
	ring = bpf_map_lookup_elem(&rings, &pcpu);
	if (!ring)
		return;
	count = ring->count;
	index = pcpu * RING_EVENTS + (count & (RING_EVENTS - 1));
	event = bpf_map_lookup_elem(&ring_events, &index);
	if (!event)
		return;
	event->at_ns = bpf_ktime_get_ns();
	event->thread = task->pid;
	event->priority = task->prio;
	event->flags = flags | (task->flags & PF_KTHREAD ? EVENT_KERNEL : 0);
	/* Last: a reader that sees the new count also sees the event. */
	__sync_fetch_and_add(&ring->count, 1);
}

#endif

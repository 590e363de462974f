// SPDX-License-Identifier: GPL-2.0-only
/* Who wakes a VM: policy/account/waker.h. */
#include "fake_kernel.h"

static struct ground *g;

/* Threads of process 3 are woken on pCPU 0 by that VM's, as often as the letters say, and all are
 * looked at. */
static struct waker *woken_by(u32 a, u32 b, const char *by)
{
	u32 slot = g->slot_of[3];
	struct waker *waker = &g->d.waker[slot];

	for (; *by; by++) {
		u32 before = waker->wakes;

		g->waker = *by == 'A' ? a : b;
		for (; waker->wakes == before; g->now_ns += 100)
			waker_note(&g->d, slot, 0);
	}
	return waker;
}

static void three_vms(u32 nr_domains)
{
	g = fake_ground(4, nr_domains);
	for (u32 tgid = 1; tgid <= 3; tgid++)
		kernel_thread(g, tgid, THREAD_VCPU);
}

/* The essay's worked example. */
static void who_wakes_mostly_is_found(void)
{
	struct waker *waker;

	three_vms(1);
	waker = woken_by(g->slot_of[3], g->slot_of[1], "AABAAA");
	CHECK_EQ(waker->slot, g->slot_of[3]);
	CHECK_EQ(waker->votes, 4);
	CHECK_EQ(waker->wakes, 6);
}

static void who_wakes_no_longer_is_outvoted(void)
{
	struct waker *waker;

	three_vms(1);
	for (u32 i = 0; i < 1000; i++)
		waker = woken_by(g->slot_of[1], g->slot_of[2], "A");
	CHECK_EQ(waker->votes, WAKER_VOTES_MAX);
	for (u32 i = 0; i <= WAKER_VOTES_MAX; i++)
		waker = woken_by(g->slot_of[1], g->slot_of[2], "B");
	CHECK_EQ(waker->slot, g->slot_of[2]);
	CHECK_EQ(waker->wakes, 1000 + WAKER_VOTES_MAX + 1);
}

static void wakes_within_a_cache_are_counted(void)
{
	struct waker *waker;

	three_vms(2);
	g->waker_pcpu = 1;
	waker = woken_by(g->slot_of[1], 0, "AAA");
	CHECK_EQ(waker->near, 3);
	g->waker_pcpu = 2;
	waker = woken_by(g->slot_of[1], 0, "AA");
	CHECK_EQ(waker->near, 3);
	CHECK_EQ(waker->wakes, 5);
}

/* One in eight, whatever the pace of wakes. */
static void a_part_of_wakes_is_looked_at(void)
{
	for (u64 pace_ns = 1000; pace_ns <= 1024000; pace_ns *= 2) {
		three_vms(1);
		g->waker = g->slot_of[1];
		for (u32 i = 0; i < 8000; i++, g->now_ns += pace_ns)
			waker_note(&g->d, g->slot_of[3], 0);
		CHECK_NEAR(g->d.waker[g->slot_of[3]].wakes, 1000, 200);
	}
}

static void interrupts_do_not_count_and_a_new_vm_has_no_waker(void)
{
	u32 slot;

	three_vms(1);
	slot = g->slot_of[3];
	for (u32 i = 0; i < 1000; i++, g->now_ns += 1000)
		waker_note(&g->d, slot, 0);
	CHECK_EQ(g->d.waker[slot].wakes, 0);
	woken_by(g->slot_of[1], 0, "A");
	CHECK(g->d.waker[slot].wakes);
	vm_begin(&g->d, slot, 4);
	CHECK_EQ(g->d.waker[slot].wakes, 0);
}

/* Through the front door: a vCPU that wakes its sibling is its VM's waker. */
static void a_thread_that_wakes_is_noted(void)
{
	struct task_struct *vcpu;

	g = fake_ground(2, 1);
	vcpu = kernel_thread(g, 1, THREAD_VCPU);
	g->waker = g->slot_of[1];
	for (u32 i = 0; i < 100; i++) {
		kernel_wake(g, vcpu);
		kernel_settle(g);
		kernel_sleep(g, vcpu->pcpu);
		kernel_settle(g);
		g->now_ns += 12345;
	}
	CHECK(g->d.waker[g->slot_of[1]].votes);
	CHECK_EQ(g->d.waker[g->slot_of[1]].slot, g->slot_of[1]);
}

int main(void)
{
	RUN(who_wakes_mostly_is_found);
	RUN(who_wakes_no_longer_is_outvoted);
	RUN(wakes_within_a_cache_are_counted);
	RUN(a_part_of_wakes_is_looked_at);
	RUN(interrupts_do_not_count_and_a_new_vm_has_no_waker);
	RUN(a_thread_that_wakes_is_noted);
	return check_done();
}

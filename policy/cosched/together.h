/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Together: which VMs need their vCPUs to run at the same time.
 *
 * Idea. Nothing in the host tells a vCPU that waits in a spin loop for its
 * sibling from one that computes: both just run. What the host can see, exactly
 * and for nothing, is whether the question arises at all: does it happen that two
 * or more vCPUs of the VM want to run and not all of them can? A VM of which that
 * is never true (one vCPU at work, a host with CPUs to spare, vCPUs pinned one to
 * one) is left alone and costs nothing. One of which it is true for a sixteenth of
 * a window (default 50 ms) is planned in each round (plan.h), which costs an interrupt
 * per pCPU and round, so being wrong about a VM that did not need it costs next to
 * nothing. "Pressed" rather than "split" is the measure because it does not change
 * when the VM is helped: a VM kept together is no less pressed, so the decision
 * does not swing back.
 *
 * Three times are kept for each VM, brought up to date whenever one of its vCPUs
 * begins or ends to wait or run: `progressed_ns` while any runs, `hazard_ns` while
 * one runs and a sibling is ready (concurrency hazard, as xenalyze counts it), and
 * `pressed_ns`.
 *
 * Worked example. A 2-vCPU VM beside another on two pCPUs: both vCPUs always want
 * to run and half of the time have to wait, so pressed_ns grows by 25 ms in each
 * window of 50 ms, eight times what it takes. The rival leaves: pressed_ns stands
 * still, and after one window the VM is left alone again.
 *
 * Limitations. It says which VM is at risk, not which suffers: four busy vCPUs that
 * never talk to each other are kept together too.
 */
#ifndef DROVER_TOGETHER_H
#define DROVER_TOGETHER_H

#include "share/share.h"

/* A VM is pressed when it is for one part in so many of a window. */
#define TOGETHER_PRESSED_PART 16

/* Bring the VM's times up to date; before the counts of its vCPUs change. */
static __always_inline void together_tally(struct vm *vm, u64 now_ns)
{
	u64 before_ns = __sync_lock_test_and_set(&vm->pressure.tally_ns, now_ns);
	u64 passed_ns = now_ns - before_ns;
	u32 running = vm->vcpus_running;
	u32 waiting = vm->vcpus_waiting;

	/* Clocks of pCPUs differ by a little, and the first time there is no before. */
	if ((s64)passed_ns <= 0 || !before_ns)
		return;
	if (running)
		__sync_fetch_and_add(&vm->pressure.progressed_ns, passed_ns);
	if (running && waiting)
		__sync_fetch_and_add(&vm->pressure.hazard_ns, passed_ns);
	if (waiting && running + waiting >= 2)
		__sync_fetch_and_add(&vm->pressure.pressed_ns, passed_ns);
}

static __always_inline void together_set(struct drover *d, struct vm *vm, u32 coscheduled)
{
	u32 before = __sync_lock_test_and_set(&vm->coscheduled, coscheduled);

	/* All pCPUs read it at every switch: it is written when it changes. */
	if (coscheduled != before)
		__sync_fetch_and_add(&d->nr_coscheduled, coscheduled - before);
}

/* Should it be? `pressed_ns` of the last `passed_ns` it was pressed. */
static __always_inline bool together_is_due(struct vm *vm, u64 pressed_ns, u64 passed_ns)
{
	if (vm->cosched_mode == COSCHED_OFF || vm->nr_vcpus < 2)
		return false;
	return vm->cosched_mode != COSCHED_AUTO || pressed_ns * TOGETHER_PRESSED_PART >= passed_ns;
}

/* Judge the VM anew, once a window. */
static __always_inline void together_judge(struct drover *d, struct vm *vm, u64 now_ns)
{
	u64 began_ns = vm->pressure.window_ns;
	u64 passed_ns = now_ns - began_ns;
	u64 pressed_ns;

	if ((s64)passed_ns < (s64)d->params.judge_window_ns ||
	    __sync_val_compare_and_swap(&vm->pressure.window_ns, began_ns, now_ns) != began_ns)
		return;
	together_tally(vm, now_ns);
	pressed_ns = vm->pressure.pressed_ns - vm->pressure.pressed_mark_ns;
	vm->pressure.pressed_mark_ns = vm->pressure.pressed_ns;
	together_set(d, vm, together_is_due(vm, pressed_ns, passed_ns));
}

#endif

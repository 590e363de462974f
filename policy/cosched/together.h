/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Together: which VMs need their vCPUs to run at the same time, and which of these suffer.
 *
 * Idea. Two questions, and two answers.
 *
 * Is a VM at risk? What the host sees, exactly and for nothing, is whether the question arises at
 * all: do two or more vCPUs of the VM want to run and not all of them can? A VM of which that is
 * never true (one vCPU at work, a host with CPUs to spare, vCPUs pinned one to one) is left alone
 * and costs nothing. One of which it is true for a sixteenth of a window (50 ms) is *pressed*: it
 * is planned in each round (plan.h), which costs an interrupt per pCPU and round. "Pressed" rather
 * than "split" is the measure because it does not change when the VM is helped.
 *
 * Does it suffer? A vCPU that spins is let out of the guest, after a short while, then after twice
 * as long, and so on (pause-loop exits); so for how long it has spun since it was switched to can
 * be read (ground_spun_ns). A VM whose vCPUs spend half of their CPU time spinning while a sibling
 * waits *spins*: what it has alone, in another VM's turn, is thrown away. In `auto` it is a gang
 * from then on, if there are as many pCPUs: its vCPUs run all together or not at all. A gang has
 * nothing to spin for, so it is one for a second; then it is left to itself, and is a gang again
 * within two windows of 16 ms, and a tick, if it spins still.
 *
 * Three times are kept for each VM, brought up to date whenever one of its vCPUs begins or ends to
 * wait or run: `progressed_ns` while any runs, `hazard_ns` while one runs and a sibling is ready
 * (concurrency hazard, as xenalyze counts it), and `pressed_ns`.
 *
 * Worked example. Two vCPUs of 2000 shares that meet each 0.1 ms, and a busy vCPU of 1000, on two
 * pCPUs. For 16 ms of each 24 the busy vCPU has one pCPU. The vCPU that it took it from was in the
 * middle of its work, so KVM asks for no yield to it, and the sibling spins for as long: 16 ms of
 * the 32 that the VM uses, half. It is a gang from then on: both run for half of the time, and
 * nothing is spun away. Did both wait for a pCPU in their spin loops, KVM would have them take
 * turns each 0.1 ms: they get on, spin little, and are no gang.
 *
 * Limitations. Spinning is seen where the CPU has pause-loop exits; on Intel not what the guest's
 * programs do in user mode. So a VM that is not seen to spin is played in rounds all the same. A
 * gang that finds too few pCPUs in a round leaves some idle.
 */
#ifndef DROVER_TOGETHER_H
#define DROVER_TOGETHER_H

#include "base/timer.h"
#include "share/share.h"

/* A VM is pressed when it is for one part in so many of a window. */
#define TOGETHER_PRESSED_PART 16
/* It spins when its vCPUs do so, while a sibling waits, for one part in so many of what they use */
#define TOGETHER_SPUN_PART 2
/* of a window of this length; */
#define TOGETHER_SPIN_WINDOW_NS 16000000ULL
/* and it is taken to for so long after. */
#define TOGETHER_SPINS_NS 1000000000ULL

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

/* Can all vCPUs of the VM that want to run do so at once? */
static __always_inline bool together_fits(struct drover *d, struct vm *vm)
{
	return vm->vcpus_running + vm->vcpus_waiting <= partition_at(d, vm->partition)->nr_online;
}

/* It is no gang any more. Idle pCPUs may have been refused its vCPUs. */
static __always_inline void together_spins_no_more(struct drover *d, struct vm *vm, u64 now_ns)
{
	vm->spins = 0;
	vm->plan.held_since_ns = 0;
	timer_rouse_at(d, now_ns);
}

/* One of its vCPUs was seen to spin for so long more. */
static __always_inline void together_note_spun(struct drover *d, struct vm *vm, u64 spun_ns,
					       u64 now_ns)
{
	u64 since_ns = vm->pressure.alone_since_ns;
	u64 used_ns;

	if (spun_ns && vm->vcpus_waiting)
		__sync_fetch_and_add(&vm->pressure.alone_spun_ns, spun_ns);
	if ((s64)(now_ns - since_ns) < (s64)TOGETHER_SPIN_WINDOW_NS ||
	    __sync_val_compare_and_swap(&vm->pressure.alone_since_ns, since_ns, now_ns) != since_ns)
		return;
	spun_ns = __sync_lock_test_and_set(&vm->pressure.alone_spun_ns, 0);
	used_ns = vm->counters.vcpu_run_ns - vm->pressure.used_mark_ns;
	vm->pressure.used_mark_ns = vm->counters.vcpu_run_ns;
	if (!spun_ns || spun_ns * TOGETHER_SPUN_PART < used_ns)
		return;
	vm->pressure.spun_at_ns = now_ns;
	if (vm->cosched_mode != COSCHED_AUTO || !together_fits(d, vm))
		return;
	vm->spins = 1;
	together_set(d, vm, 1);
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
	if (vm->spins && (!vm->coscheduled || !together_fits(d, vm) ||
			  now_ns - vm->pressure.spun_at_ns >= TOGETHER_SPINS_NS))
		together_spins_no_more(d, vm, now_ns);
}

#endif

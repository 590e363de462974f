/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The policy `anticipatory`: a VM that did I/O will soon do more, and keeps its boost for that
 * long.
 *
 * Idea. In `credit` a VM that wakes has one boost, and loses it to the first debit that finds it
 * running, however briefly it runs. Once its debits have taken it below zero it has none at all,
 * and its next packet waits for whole slices of others. Seed 001 proposes to sustain the boost, by
 * a set of priorities that change when a VM wakes, sleeps and is debited. So here are three levels
 * of boost, on the credits and the accounting of credit.h:
 *
 *	wakes      UNDER: level 1 at least, as in `credit`; after a sleep of 30 ms or more no
 *	           level is left from before, for what it did then says nothing of now
 *	sleeps     boosted and UNDER: one level more, for it ran briefly and waits for an answer
 *	debited    one level less: by then it has run for longer than I/O takes
 *
 * A level comes before those below it, and preempts them; all come before UNDER and OVER. Who has
 * a level keeps it when it is OVER, and gains none: it lives on what it has.
 *
 * Worked example. On one pCPU three busy VMs and `i`, which wakes about each 2 ms for 0.6. It is
 * due a quarter, 7.5 ms of each 30, and is debited for 9 on average; so it is now UNDER and now
 * OVER. Let it be at -1 ms when the debit at 10 ms has found it:
 *
 *	ms            0    2    4    6    8   10   12   14   16   18   20 ...       30
 *	credit        i    i    i    i    i    i*   A A A A A A A A A A A A         i UNDER again
 *	anticipatory  i    i    i    i    i    i*   i    i    i    i    i           i
 *	its level     1    2    3    3    3    2    2    2    2    2    2 ...        2, 3
 *
 * In `credit` it waits 20 ms; here each of its wake-ups runs at once. Were it found by two more
 * debits without credit, it would be at level 0, and wait as in `credit`.
 *
 * None starves: what a VM may take beyond its credit is three debits, 30 ms of CPU time. Then it
 * is OVER until all owe as much.
 *
 * Limitations. How much it helps hangs on how the runs fall on the debits. Mean waits beside six
 * busy VMs on two pCPUs, credit : anticipatory, us, by ms of run and sleep: 0.5/1.3 1475:225,
 * 0.7/2.31 2047:858, 0.3/1.37 465:352, 2/6.1 4416:4188, 0.9/3.11 562:637, and 0.6/1.4 no wait under
 * either, for it is in step with the debits and never found by one.
 *
 * It anticipates where there is nothing to come: the last wake-up of a transfer is
 * boosted like those before. VMs that compute pay: those that do I/O wait less, so they do more of
 * it, and have CPU time up to what they are due. It knows I/O by short runs only; a VM that takes
 * 10 ms for each packet is no I/O VM here, one that sleeps on a lock is. Level 3 preempts level 1,
 * so a VM that begins with I/O waits for those that are at it. Else as credit.h says.
 */
#ifndef DROVER_ANTICIPATORY_H
#define DROVER_ANTICIPATORY_H

#include "partition/credit.h"

/* A VM that sleeps for longer is not at I/O. */
#define ANTICIPATORY_SLEEP_NS CREDIT_ACCOUNT_NS

/* A thread of the VM wakes; so many were awake. */
static __always_inline void anticipatory_wakes(struct drover *d, u32 slot, u32 nr_awake, u64 now_ns)
{
	struct vm *vm = vm_at(d, slot);

	if (nr_awake || slot == DROVER_HOST_SLOT)
		return;
	if (now_ns - vm->slept_at_ns >= ANTICIPATORY_SLEEP_NS)
		vm->credit.boosted = 0;
	if (!vm->credit.boosted)
		credit_wakes(d, slot, nr_awake);
}

/* A thread of the VM sleeps; so many are still awake. */
static __always_inline void anticipatory_sleeps(struct drover *d, u32 slot, u32 nr_awake)
{
	struct vm *vm = vm_at(d, slot);
	u32 level = vm->credit.boosted;

	if (nr_awake)
		return;
	if (level && vm->credit.left_ns >= 0)
		vm->credit.boosted = (u32)min_of(level + 1, CREDIT_LEVELS);
}

/* The boost of a VM that is debited. */
static __always_inline u32 anticipatory_debited(u32 level)
{
	return level ? level - 1 : 0;
}

#endif

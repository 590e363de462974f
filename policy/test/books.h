/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What must hold after every event: the policy's books agree with the truth.
 *
 * The truth is the fake kernel's: which task is in which queue, runs, sleeps.
 */
#ifndef DROVER_TEST_BOOKS_H
#define DROVER_TEST_BOOKS_H

#include "fake_kernel.h"

/* What was so at the last check, to see that it moved the right way. */
struct books_before {
	u64 clock_ns[FAKE_DOMAINS];
	bool allotted; /* VMs were weighed anew since */
	struct {
		u32 domain;
		u64 id;
		u64 vtime_ns;
		u64 nr_starvation_boosts;
	} vm[FAKE_PROCESSES];
};

/* After any event, however many are half done. */
void books_check(struct ground *g, struct books_before *before);
/* When nothing is under way: no pCPU idles while a thread it may run waits. */
void books_check_settled(struct ground *g);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Cache lines of the policy's memory: which were written, and whose they are.
 *
 * The policy's memory is struct drover and the run queues. What a VM, a pCPU or a domain has to
 * itself there is told from what all share: that is *global*, and a line of it that is written at
 * every switch or wake-up goes round all pCPUs of the host.
 *
 * Lines are counted from the start of struct drover, which begins with one, and of each run queue.
 */
#ifndef DROVER_TEST_LINES_H
#define DROVER_TEST_LINES_H

#include "fake_kernel.h"
#include "write_log.h"

#define LINE_BYTES 64
#define LINES_MAX 4096
#define LINES_STEPS 4

/* Whose lines may be written, and whose not. */
enum owner {
	OWNER_VM,      /* the VM's own, with its vCPUs', its limit's and its timer's */
	OWNER_PCPU,    /* of the pCPU it runs on */
	OWNER_DOMAIN,  /* of the domain it runs in, or of another pCPU there */
	OWNER_ALL,     /* global */
	OWNER_OTHERS,  /* another VM's */
	OWNER_ABROAD,  /* of another domain, or a pCPU there */
	OWNERS,
};

/* Whose cycle it is. */
struct subject {
	u32 slot;
	u32 pcpu;
};

/* What was written of a part of a struct, in one line. */
struct part_written {
	const char *structure;
	const char *part;
	u32 index;
	u32 line; /* of that struct */
	enum owner owner;
	u32 writes[LINES_STEPS]; /* in each step of the cycle */
	uintptr_t by;   /* one of those that wrote */
};

struct lines {
	u32 nr;
	struct part_written part[LINES_MAX];
};

/* Add what the log holds: it was done in that step. */
void lines_add(struct lines *lines, struct ground *g, struct subject of, u32 step);
/* How many lines of that owner there are. */
u32 lines_of(const struct lines *lines, enum owner owner);
/* How often that part was written. */
u32 lines_writes(const struct lines *lines, const char *part);
/* A row for each part, with its writes in each step; all, or those of that owner. */
void lines_print(const struct lines *lines, const char *const *steps);
void lines_print_of(const struct lines *lines, enum owner owner, u32 nr_steps);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Every write that instrumented code does, while it is asked for.
 *
 * Code compiled with -fsanitize=thread calls a function before each access to memory that others
 * can see: there is one for each width, and one for each atomic operation does it, too. They belong
 * to that sanitizer's library, which is not linked: write_log.c has its own, which take notes and
 * look for no races.
 */
#ifndef DROVER_TEST_WRITE_LOG_H
#define DROVER_TEST_WRITE_LOG_H

#include <stdbool.h>
#include <stdint.h>

#define WRITE_LOG_MAX (1 << 20)

struct written {
	uintptr_t at;
	uintptr_t size;
	uintptr_t by; /* the code that did */
};

extern struct write_log {
	bool on;
	uint32_t nr; /* all there were: more than fit are not in `written` */
	struct written written[WRITE_LOG_MAX];
} write_log;

/* From now on; what was noted is forgotten. */
void write_log_begin(void);
/* Until now. */
void write_log_end(void);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The unit of work: a loop of two instructions that touches no memory. It takes the same number of
 * instructions each time, so counting loops counts work done, however long the host takes to
 * let it happen. src/calibrate.rs runs the very same loop on the host to learn its speed.
 */
#include "guest.h"

__attribute__((noinline)) void work(uint64_t loops)
{
	if (loops == 0)
		return;
	__asm__ volatile(".p2align 6\n"
			 "1:	dec	%0\n"
			 "	jnz	1b\n"
			 : "+r"(loops)
			 :
			 : "cc");
}

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The unit of work: a loop of 32 instructions that touches no memory. It takes the same number of
 * instructions each time, so counting loops counts work done, however long the host takes to
 * let it happen. Most of them do nothing: an emulator that counts instructions has nothing to do
 * for those, and a busy vCPU costs it a tenth. (For DEC, which leaves one flag alone, it would do
 * more than for SUB.) src/calibrate.rs runs the very same loop on the host to learn its speed.
 */
#include "guest.h"

__attribute__((noinline)) void work(uint64_t loops)
{
	if (loops == 0)
		return;
	__asm__ volatile(".p2align 6\n"
			 "1:	sub	$1, %0\n"
			 "	.rept	30\n"
			 "	nop\n"
			 "	.endr\n"
			 "	jnz	1b\n"
			 : "+r"(loops)
			 :
			 : "cc");
}

// SPDX-License-Identifier: GPL-2.0-only
/* crowd THREADS PCPU [OTHER]: busy threads of the normal class, all on one pCPU (-1: anywhere), and
 * then one on another. */
#include <sched.h>
#include "vm.h"

static _Noreturn void *work(void *where)
{
	long pcpu = (long)where;
	cpu_set_t one;

	if (pcpu >= 0) {
		CPU_ZERO(&one);
		CPU_SET(pcpu, &one);
		must(!sched_setaffinity(0, sizeof(one), &one), "sched_setaffinity");
	}
	for (;;)
		;
}

int main(int argc, char **argv)
{
	must(argc == 3 || argc == 4, "crowd THREADS PCPU [OTHER]");
	for (long i = 0; i < atol(argv[1]); i++)
		start_thread(work, (void *)atol(argv[2]));
	if (argc == 4)
		start_thread(work, (void *)atol(argv[3]));
	for (;;)
		pause();
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * class fifo|deadline|batch|idle THREADS ON_US OFF_US
 * Threads of a scheduling class that run for ON_US and sleep for OFF_US; 0: they never sleep.
 * Those of fifo are pinned, one to each pCPU in turn.
 */
#include <sched.h>
#include <sys/syscall.h>
#include "vm.h"

#define POLICY_DEADLINE 6

/* As the kernel has it: C libraries and kernel headers disagree about the name. */
struct attributes {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime, deadline, period;
};

static uint64_t on, off;
static const char *class;

static void enter_class(long number)
{
	struct attributes attr = {.size = sizeof(attr)};
	cpu_set_t pcpus;

	if (!strcmp(class, "fifo")) {
		CPU_ZERO(&pcpus);
		CPU_SET(number % sysconf(_SC_NPROCESSORS_ONLN), &pcpus);
		must(!sched_setaffinity(0, sizeof(pcpus), &pcpus), "sched_setaffinity");
		attr.policy = SCHED_FIFO;
		attr.priority = 2;
	} else if (!strcmp(class, "deadline")) {
		attr.policy = POLICY_DEADLINE;
		attr.runtime = on * 1000;
		attr.period = attr.deadline = (on + off) * 1000;
	} else {
		attr.policy = strcmp(class, "batch") ? SCHED_IDLE : SCHED_BATCH;
	}
	must(!syscall(SYS_sched_setattr, 0, &attr, 0), class);
}

static _Noreturn void *run(void *number)
{
	enter_class((long)number);
	for (;;) {
		burn_us(off ? on : 1000);
		if (off)
			sleep_us(off);
	}
}

int main(int argc, char **argv)
{
	must(argc == 5, "class fifo|deadline|batch|idle THREADS ON_US OFF_US");
	class = argv[1];
	on = strtoull(argv[3], NULL, 10);
	off = strtoull(argv[4], NULL, 10);
	for (long i = 0; i < atol(argv[2]); i++)
		start_thread(run, (void *)i);
	for (;;)
		pause();
}

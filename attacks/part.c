// SPDX-License-Identifier: GPL-2.0-only
/*
 * part SECONDS PID
 * Prints the CPU time that process PID has in the next SECONDS, in % of a pCPU.
 */
#include <sched.h>
#include "vm.h"

static double read_clock(clockid_t id)
{
	struct timespec t = {0, 0};

	clock_gettime(id, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	struct sched_param punctual = {99};
	clockid_t cpu;

	must(argc == 3, "part SECONDS PID");
	sched_setscheduler(0, SCHED_FIFO, &punctual);
	errno = clock_getcpuclockid(atoi(argv[2]), &cpu);
	must(!errno, argv[2]);
	double begun = read_clock(CLOCK_MONOTONIC), used = read_clock(cpu);
	sleep_us(atof(argv[1]) * 1e6);
	double now = read_clock(CLOCK_MONOTONIC), is = read_clock(cpu);
	printf("%.1f\n", is > used ? 100 * (is - used) / (now - begun) : 0);
}

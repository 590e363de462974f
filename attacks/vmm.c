// SPDX-License-Identifier: GPL-2.0-only
/*
 * vmm --name NAME VCPUS [COUNT:WORK[:A[:B]]]...
 * A VM that never runs a guest, and COUNT threads of it that do each WORK:
 *	sleep		nothing
 *	burn:A		from A ms on, run
 *	duty:A:B	run for A us, sleep for B us
 *	timer:A		wake every A us
 *	yield		call sched_yield
 */
#include <sched.h>
#include <sys/prctl.h>
#include <sys/timerfd.h>
#include "vm.h"

struct group {
	char work[16];
	long count, a, b;
};

static int vm;

static _Noreturn void *be_vcpu(void *number)
{
	int vcpu = make_vcpu(vm, (long)number);

	for (;;)
		ioctl(vcpu, KVM_RUN, 0);
}

static void wake_every(long us)
{
	struct itimerspec period = {{0, us * 1000}, {0, us * 1000}};
	int timer = timerfd_create(CLOCK_MONOTONIC, 0);
	uint64_t times;

	timerfd_settime(timer, 0, &period, NULL);
	while (read(timer, &times, sizeof(times)) > 0)
		;
}

static _Noreturn void *work(void *argument)
{
	struct group *group = argument;

	if (!strcmp(group->work, "timer"))
		wake_every(group->a);
	if (!strcmp(group->work, "burn"))
		sleep_us(group->a * 1000);
	for (;;) {
		if (!strcmp(group->work, "sleep"))
			pause();
		else if (!strcmp(group->work, "yield"))
			sched_yield();
		else
			burn_us(group->b ? group->a : 1000);
		if (group->b)
			sleep_us(group->b);
	}
}

int main(int argc, char **argv)
{
	static struct group groups[16];

	must(argc >= 4 && argc < 20, "vmm --name NAME VCPUS [COUNT:WORK[:A[:B]]]...");
	prctl(PR_SET_TIMERSLACK, 1);
	vm = make_vm();
	for (long i = 0; i < atol(argv[3]); i++)
		start_thread(be_vcpu, (void *)i);
	for (int i = 4; i < argc; i++) {
		struct group *group = &groups[i - 4];

		must(sscanf(argv[i], "%ld:%15[^:]:%ld:%ld", &group->count, group->work, &group->a,
			    &group->b) >= 2,
		     argv[i]);
		for (long n = 0; n < group->count; n++)
			start_thread(work, group);
	}
	for (;;)
		pause();
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * split --name NAME PROCESSES sleep|burn
 * A VM's memory shared by many processes, each of which runs one vCPU: to the host each is a VM of
 * its own.
 */
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include "vm.h"

#define VCPUS_MAX 1000
#define STACK 32768

static int vms[8];
static int burns;

static void wake_up(int signal)
{
	(void)signal;
}

static _Noreturn int process(void *argument)
{
	long number = (long)argument;
	int vcpu = make_vcpu(vms[number / VCPUS_MAX], number % VCPUS_MAX);
	struct itimerval soon = {{0, 0}, {0, 300000}};
	struct sigaction action = {.sa_handler = wake_up};

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (burns) {
		/* It runs the vCPU once, so that it is known as one. */
		sigaction(SIGALRM, &action, NULL);
		setitimer(ITIMER_REAL, &soon, NULL);
		ioctl(vcpu, KVM_RUN, 0);
		for (;;)
			burn_us(1000);
	}
	for (;;)
		ioctl(vcpu, KVM_RUN, 0);
}

int main(int argc, char **argv)
{
	must(argc == 5, "split --name NAME PROCESSES sleep|burn");
	burns = !strcmp(argv[4], "burn");
	for (long i = 0; i < atol(argv[3]); i++) {
		char *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
				   -1, 0);

		if (i % VCPUS_MAX == 0)
			vms[i / VCPUS_MAX] = make_vm();
		must(clone(process, stack + STACK, CLONE_VM | SIGCHLD, (void *)i) > 0, "clone");
	}
	for (;;)
		pause();
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * reexec
 * A VM that becomes another without a new process: its vCPU's thread runs the vCPU, works, and
 * executes this program anew, ten times a second.
 */
#include <signal.h>
#include <sys/time.h>
#include "vm.h"

static void wake_up(int signal)
{
	(void)signal;
}

static _Noreturn void *be_vcpu(void *name)
{
	struct itimerval soon = {{0, 0}, {0, 50000}};
	struct sigaction action = {.sa_handler = wake_up};
	int vcpu = make_vcpu(make_vm(), 0);

	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &soon, NULL);
	ioctl(vcpu, KVM_RUN, 0);
	burn_us(50000);
	execl("/proc/self/exe", name, NULL);
	must(0, "exec");
	exit(1);
}

int main(int argc, char **argv)
{
	sigset_t alarm;

	must(argc == 1, "reexec takes no argument");
	start_thread(be_vcpu, argv[0]);
	/* The alarm is for the vCPU. */
	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	pthread_sigmask(SIG_BLOCK, &alarm, NULL);
	for (;;)
		pause();
}

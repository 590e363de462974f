// SPDX-License-Identifier: GPL-2.0-only
/*
 * samepid PID ROUNDS
 * Two VMs called "prod" in turn, root's and a user's, all of the same process number. The last one,
 * a user's, stays.
 */
#include <linux/sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include "vm.h"

#define USER 1000

static pid_t start(pid_t pid, uid_t user)
{
	struct clone_args how = {
		.exit_signal = SIGCHLD,
		.set_tid = (uint64_t)&pid,
		.set_tid_size = 1,
	};
	long child = syscall(SYS_clone3, &how, sizeof(how));

	must(child >= 0, "clone3");
	if (!child) {
		must(!setgid(user) && !setuid(user), "setuid");
		execlp("vmm", "vmm", "--name", "prod", "1", "1:burn", NULL);
		must(0, "vmm");
	}
	return child;
}

int main(int argc, char **argv)
{
	must(argc == 3, "samepid PID ROUNDS");
	for (long round = 0; round < 2 * atol(argv[2]); round++) {
		pid_t child = start(atoi(argv[1]), round % 2 ? 0 : USER);

		sleep_us(200000);
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
	}
	start(atoi(argv[1]), USER);
	return 0;
}

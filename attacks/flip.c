// SPDX-License-Identifier: GPL-2.0-only
/*
 * flip class|trace PID
 * Takes a thread of PID at random, again and again, and for half a millisecond
 *	class	makes it a real-time thread
 *	trace	stops it as a debugger does
 */
#include <dirent.h>
#include <sched.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include "vm.h"

static pid_t threads[1024];
static int count;

static void find_threads(const char *pid)
{
	char path[64];
	struct dirent *entry;

	snprintf(path, sizeof(path), "/proc/%s/task", pid);
	DIR *directory = opendir(path);
	must(!!directory, path);
	while ((entry = readdir(directory)) && count < 1024)
		if (atoi(entry->d_name))
			threads[count++] = atoi(entry->d_name);
	closedir(directory);
}

static void flip_class(pid_t thread)
{
	struct sched_param real_time = {1}, normal = {0};

	sched_setscheduler(thread, SCHED_FIFO, &real_time);
	sleep_us(500);
	sched_setscheduler(thread, SCHED_OTHER, &normal);
}

static void stop_and_go(pid_t thread)
{
	ptrace(PTRACE_INTERRUPT, thread, NULL, NULL);
	waitpid(thread, NULL, __WALL);
	sleep_us(500);
	ptrace(PTRACE_CONT, thread, NULL, NULL);
}

int main(int argc, char **argv)
{
	struct sched_param above = {3};

	must(argc == 3, "flip class|trace PID");
	int traces = !strcmp(argv[1], "trace");
	find_threads(argv[2]);
	for (int i = 0; traces && i < count; i++)
		must(!ptrace(PTRACE_SEIZE, threads[i], NULL, NULL), "ptrace");
	sched_setscheduler(0, SCHED_FIFO, &above);
	for (;;) {
		(traces ? stop_and_go : flip_class)(threads[rand() % count]);
		sleep_us(500);
	}
}

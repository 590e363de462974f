// SPDX-License-Identifier: GPL-2.0-only
/*
 * cmdline GIB
 * A VM whose command line, as /proc shows it, is so long. It costs its user nothing: the pages are
 * zeros that exist only for who reads them.
 */
#include <linux/prctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include "vm.h"

/* The fields of /proc/self/stat (proc(5)) that say where the parts of a process lie. */
enum { START_CODE = 26, END_CODE, START_STACK, START_DATA = 45, END_DATA, START_BRK, FIELDS = 60 };

static void read_fields(unsigned long *field)
{
	char line[4096];
	FILE *file = fopen("/proc/self/stat", "r");
	int number = 3;

	must(file && fgets(line, sizeof(line), file), "/proc/self/stat");
	for (char *word = strtok(strrchr(line, ')') + 2, " "); word && number < FIELDS;
	     word = strtok(NULL, " "))
		field[number++] = strtoul(word, NULL, 10);
	fclose(file);
}

static void lengthen(uint64_t size)
{
	unsigned long field[FIELDS] = {0};
	char *line = mmap(NULL, size, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	must(line != MAP_FAILED, "mmap");
	read_fields(field);
	struct prctl_mm_map map = {
		.start_code = field[START_CODE],
		.end_code = field[END_CODE],
		.start_data = field[START_DATA],
		.end_data = field[END_DATA],
		.start_brk = field[START_BRK],
		.brk = (uint64_t)sbrk(0),
		.start_stack = field[START_STACK],
		.arg_start = (uint64_t)line,
		.arg_end = (uint64_t)line + size,
		.env_start = (uint64_t)line,
		.env_end = (uint64_t)line + size,
		.exe_fd = -1,
	};
	must(!prctl(PR_SET_MM, PR_SET_MM_MAP, &map, sizeof(map), 0), "PR_SET_MM_MAP");
}

int main(int argc, char **argv)
{
	must(argc == 2, "cmdline GIB");
	lengthen(strtoull(argv[1], NULL, 10) << 30);
	int vcpu = make_vcpu(make_vm(), 0);
	for (;;)
		ioctl(vcpu, KVM_RUN, 0);
}

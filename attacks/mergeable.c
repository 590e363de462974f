// SPDX-License-Identifier: GPL-2.0-only
/*
 * mergeable MIB
 * Has so much memory that may be merged with other memory of the same content, and is never the
 * same.
 */
#include <sys/mman.h>
#include "vm.h"

#define PAGE 4096
#define WORDS (PAGE / sizeof(uint32_t))

int main(int argc, char **argv)
{
	must(argc == 2, "mergeable MIB");
	size_t size = (size_t)atoi(argv[1]) << 20;
	uint32_t random = 1;
	uint32_t *memory =
		mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	must(memory != MAP_FAILED, "mmap");
	for (size_t page = 0; page < size / PAGE; page++) {
		random = random * 1664525 + 1013904223;
		memory[page * WORDS] = random;
	}
	must(!madvise(memory, size, MADV_MERGEABLE), "madvise");
	for (;;)
		pause();
}

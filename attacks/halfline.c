// SPDX-License-Identifier: GPL-2.0-only
/*
 * halfline COUNT
 * So many clients of the daemon at a time that send half a request; who is hung up on comes again.
 */
#include <sys/socket.h>
#include <sys/un.h>
#include "vm.h"

static _Noreturn void *client(void *argument)
{
	struct sockaddr_un daemon = {AF_UNIX, "/run/drover/control.sock"};
	char byte;

	(void)argument;
	for (;;) {
		int line = socket(AF_UNIX, SOCK_STREAM, 0);

		if (!connect(line, (struct sockaddr *)&daemon, sizeof(daemon)) &&
		    write(line, "{\"request\":", 11) == 11)
			(void)!read(line, &byte, 1);
		close(line);
		sleep_us(100000);
	}
}

int main(int argc, char **argv)
{
	must(argc == 2, "halfline COUNT");
	for (long i = 0; i < atol(argv[1]); i++)
		start_thread(client, NULL);
	for (;;)
		pause();
}

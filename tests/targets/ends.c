/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * ends HOW: holds 3 MiB until a destructor, 2 MiB until an exit handler, and frees them there.
 * HOW: return, exit, quick (_exit, which skips both), kill.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB (1ul << 20)

static char *volatile by_destructor, *volatile by_handler;

__attribute__((destructor)) static void end_library(void)
{
	free(by_destructor);
}

static void end_program(void)
{
	free(malloc(7 * MIB)); /* what the teardown takes for itself is nobody's leak, nor peak */
	free(by_handler);
}

static char *hold(size_t bytes)
{
	return memset(malloc(bytes), 1, bytes);
}

int main(int argc, char **argv)
{
	if (argc < 2 || atexit(end_program) != 0)
		return 1;
	by_destructor = hold(3 * MIB);
	by_handler = hold(2 * MIB);
	if (!strcmp(argv[1], "exit"))
		exit(0);
	if (!strcmp(argv[1], "quick"))
		_exit(0);
	if (!strcmp(argv[1], "kill"))
		raise(SIGKILL);
	return 0;
}

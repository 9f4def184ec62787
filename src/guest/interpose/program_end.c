/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Where a program ends by itself: main() returns, or something calls exit(). What exit handlers and
 * destructors free afterwards was there at the end of the program, so that moment is recorded.
 *
 * Only where host memory is recorded: there main() is called by a function of ours, which is a frame
 * in call stacks (the recorder leaves it out). Elsewhere the call is passed on as a jump.
 *
 * Two versions of the C library's function have one name: programs that were linked before 2.34
 * hand over their constructors, which only the older one calls.
 */
#include "guest/collect/collect.h"
#include "guest/interpose/next.h"

#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__aarch64__)
#	define LIBC_VERSION "GLIBC_2.17"
#else
#	define LIBC_VERSION "GLIBC_2.2.5"
#endif
#define LATER_VERSION "GLIBC_2.34"
#define START "__libc_start_main"
#define EXPORT __attribute__((visibility("default"), used))
#define START_ARGS main_fn m, int argc, char **argv, void *init, void *fini, void *end, void *stack

typedef int (*main_fn)(int argc, char **argv, char **env);
typedef int (*start_fn)(START_ARGS);
typedef void (*exit_fn)(int status);

static main_fn program;
static _Atomic(exit_fn) next_exit;

__attribute__((constructor)) static void find_exit(void)
{
	atomic_store(&next_exit, (exit_fn)next_function("exit"));
}

static int run_program(int argc, char **argv, char **env)
{
	int status = program(argc, argv, env);

	collect_program_end();
	return status;
}

static inline int start_program(const char *version, START_ARGS)
{
	start_fn next = (start_fn)next_function_of(START, version);

	if (!next)
		next = (start_fn)next_function(START);
	if (!next)
		__builtin_trap(); /* no C library: there is nothing that could run */
	if (collect_sees_mappings(NULL)) {
		program = m;
		m = run_program;
	}
	return next(m, argc, argv, init, fini, end, stack);
}

EXPORT int job_start(START_ARGS) __asm__("sonde_job_start");
EXPORT int job_start(START_ARGS)
{
	return start_program(LIBC_VERSION, m, argc, argv, init, fini, end, stack);
}

EXPORT int job_start_later(START_ARGS) __asm__("sonde_job_start_later");
EXPORT int job_start_later(START_ARGS)
{
	return start_program(LATER_VERSION, m, argc, argv, init, fini, end, stack);
}

EXPORT _Noreturn void job_exit(int status) __asm__("sonde_job_exit");
EXPORT _Noreturn void job_exit(int status)
{
	exit_fn next = atomic_load(&next_exit);

	collect_program_end();
	if (!next)
		next = (exit_fn)next_function("exit");
	if (next)
		next(status);
	for (;;)
		syscall(SYS_exit_group, status);
}

__asm__(".symver sonde_job_start," START "@" LIBC_VERSION);
__asm__(".symver sonde_job_start_later," START "@" LATER_VERSION);
__asm__(".symver sonde_job_exit,exit@" LIBC_VERSION);

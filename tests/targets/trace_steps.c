/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Ranks that trace some of their steps, without a daemon and a device: what the monitor would tell
 * is told here. usage: trace_steps LIBRARY SESSIONS ORDER RANKS STEPS CALLS [KILLED_RANK STEP]
 *
 * In each step every rank launches CALLS kernels "kernel_s<step>", which run 3 ms later: those of
 * the last calls run in the next step. Even ones are told before their launch, odd ones after.
 */
#include "wire/record.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* As in guest/collect/collect.h, whose symbols are looked up. */
struct collect_activity {
	uint64_t start_ns, end_ns;
	uint64_t correlation;
	uint64_t amount;
	uint64_t more;
	const char *name, *detail, *more_text;
	uint32_t where[2];
	uint8_t kind;
	uint8_t flag;
	uint8_t place;
	uint8_t async;
	uint16_t data_type;
};

static void (*tell)(const struct collect_activity *a);
static void (*monitor)(uint8_t kind, uint64_t window, uint64_t value, int32_t rank,
		       const char *text, size_t len);
static _Bool (*begin)(const char *dir);

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void launch(uint64_t id, unsigned step, int rank)
{
	char name[32];
	uint64_t from = now();

	usleep(100);
	uint64_t to = now();
	snprintf(name, sizeof(name), "kernel_s%u", step);
	struct collect_activity call = {.start_ns = from,
					.end_ns = to,
					.correlation = id,
					.name = "launch",
					.where = {(uint32_t)getpid(), (uint32_t)getpid()},
					.kind = ACTIVITY_RUNTIME_API,
					.place = ACTIVITY_ON_HOST};
	struct collect_activity kernel = {.start_ns = to + 3000000,
					  .end_ns = to + 3050000,
					  .correlation = id,
					  .name = name,
					  .detail = "AIC",
					  .where = {(uint32_t)rank, 2},
					  .kind = ACTIVITY_KERNEL,
					  .place = ACTIVITY_ON_DEVICE};
	tell(id % 2 ? &call : &kernel);
	tell(id % 2 ? &kernel : &call);
}

static int run(int rank, char **argv, int killed_in)
{
	unsigned steps = (unsigned)atoi(argv[5]), calls = (unsigned)atoi(argv[6]);
	uint64_t id = 1;

	if (!begin(argv[2]))
		return 3;
	monitor(MONITOR_START, 1, 0, rank, argv[3], strlen(argv[3]));
	for (unsigned s = 0; s < steps; s++) {
		monitor(MONITOR_STEP, 1, s, rank, "", 0);
		for (unsigned i = 0; i < calls; i++)
			launch(id++, s, rank);
		if ((int)s == killed_in)
			kill(getpid(), SIGKILL);
	}
	monitor(MONITOR_STOP, 1, 0, rank, "", 0);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc < 7)
		return 2;
	void *lib = dlopen(argv[1], RTLD_NOW);
	if (!lib)
		return 4;
	*(void **)&tell = dlsym(lib, "sonde_collect_activity");
	*(void **)&monitor = dlsym(lib, "sonde_collect_monitor");
	*(void **)&begin = dlsym(lib, "sonde_collect_begin_monitor");
	if (!tell || !monitor || !begin)
		return 5;
	for (int rank = 0; rank < atoi(argv[4]); rank++)
		if (!fork())
			exit(run(rank, argv,
				 argc > 8 && rank == atoi(argv[7]) ? atoi(argv[8]) : -1));
	int status, bad = 0;
	while (wait(&status) > 0)
		bad |= WIFEXITED(status) && WEXITSTATUS(status) ? WEXITSTATUS(status) : 0;
	return bad;
}

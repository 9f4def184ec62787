/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The job behind monitor_idle. Prints a line per round:
 *
 *	ns STEP RANGE WORK	of sonde_step(), of an mstx range, of a step of a job that launches
 *
 * usage: job_monitor ROUNDS [file that says when to begin]
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "acl/acl.h"
#include "sim/kernel.h"
#include "sonde/sonde.h"

#define CALLS 5000
#define STEPS 20
#define LAUNCHES 10 /* in a step */
#define KERNEL_NS 2000
#define HOST_WORK 200000 /* turns of a loop between two launches */

uint64_t mstxRangeStartA(const char *message, void *stream);
void mstxRangeEnd(uint64_t id);

static void *stream, *kernel;

/* Of this thread, which is the job's. */
static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static double steps(void)
{
	double from = now();

	for (int i = 0; i < CALLS; i++)
		sonde_step();
	return (now() - from) / CALLS;
}

static double ranges(void)
{
	double from = now();

	for (int i = 0; i < CALLS; i++)
		mstxRangeEnd(mstxRangeStartA("forward", NULL));
	return (now() - from) / CALLS;
}

static void one_step(void)
{
	for (int i = 0; i < LAUNCHES; i++) {
		if (aclrtLaunchKernel(kernel, 1, NULL, 0, stream))
			exit(3);
		for (volatile int k = 0; k < HOST_WORK; k++)
			;
	}
	if (aclrtSynchronizeStream(stream))
		exit(3);
	sonde_step();
}

static double work(void)
{
	double from = now();

	for (int i = 0; i < STEPS; i++)
		one_step();
	return (now() - from) / STEPS;
}

int main(int argc, char **argv)
{
	struct stat st;

	if (argc < 2 || aclInit(NULL) || aclrtSetDevice(0) || aclrtCreateStream(&stream))
		return 3;
	kernel = sim_kernel_register("Add", KERNEL_NS, NULL);
	one_step();
	for (int i = 0; argc > 2 && i < 10000 && stat(argv[2], &st) < 0; i++)
		usleep(5000);
	for (int i = 0; i < atoi(argv[1]); i++)
		printf("ns %.1f %.1f %.1f\n", steps(), ranges(), work());
	return 0;
}

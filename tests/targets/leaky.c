/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Loses memory of the driver: `leaky call|range N` in every one of N steps, told by sonde_step() or
 * as ranges; `leaky marks N` between N marks. Also has a queue of the last three blocks, a block
 * that is kept from step 3 on, and frees everything but the leak in its teardown.
 */
#include "sonde/sonde.h"

#include "acl/acl.h"
#include "hal/ascend_hal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))
#define QUEUE 3

static void *volatile lost; /* the newest one */

static NOINLINE void *take(size_t size)
{
	void *p = NULL;

	if (halMemAlloc(&p, size, 1ull << 10)) /* device 0 */
		_exit(9);
	return p;
}

static NOINLINE void give(void *p)
{
	if (p && halMemFree(p))
		_exit(9);
}

static NOINLINE void *lose_memory(void)
{
	void *p = take(5000);

	__asm__ volatile("" : "+r"(p)); /* no tail call */
	return p;
}

static NOINLINE void *put_into_queue(void)
{
	void *p = take(7000);

	__asm__ volatile("" : "+r"(p));
	return p;
}

static NOINLINE void *make_cache(void)
{
	void *p = take(9000);

	__asm__ volatile("" : "+r"(p));
	return p;
}

static void steps(int n, int by_call)
{
	void *queue[QUEUE] = {0}, *cache = NULL;

	for (int i = 1; i <= n; i++) {
		uint64_t range = by_call ? 0 : sonde_range_start("step start");

		give(take(1000));
		give(queue[i % QUEUE]);
		queue[i % QUEUE] = put_into_queue();
		if (i == 3)
			cache = make_cache();
		lost = lose_memory();
		if (by_call)
			sonde_step();
		else
			sonde_range_end(range);
	}
	for (int i = 0; i < QUEUE; i++)
		give(queue[i]);
	give(cache);
}

static void marks(int n)
{
	void *last = NULL;

	for (int i = 0; i < n; i++) {
		sonde_mark("round, of course");
		sonde_mark("round");
		give(last);
		last = put_into_queue(); /* lives into the next round */
		lost = lose_memory();
	}
	give(last);
}

int main(int argc, char **argv)
{
	if (argc < 3 || aclrtSetDevice(0))
		return 1;
	if (!strcmp(argv[1], "marks"))
		marks(atoi(argv[2]));
	else
		steps(atoi(argv[2]), !strcmp(argv[1], "call"));
	printf("done\n");
	return 0;
}

/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Every call of the C API, in one of several stories; sizes tell the blocks apart. Prints the same
 * with and without a recording.
 */
#include "sonde/sonde.h"

#include "acl/acl.h"
#include "hal/ascend_hal.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void *take(size_t size)
{
	void *p = NULL;

	if (halMemAlloc(&p, size, 1ull << 10)) /* device 0 */
		_exit(9);
	return p;
}

static void give(void *p)
{
	if (halMemFree(p))
		_exit(9);
}

/* Blocks of 1000·n bytes: 1 before the first window, 2 gone before it, 3 in it, … */
static void windows(void)
{
	void *before = take(1000), *gone = take(2000);

	give(gone);
	sonde_start();
	void *in = take(3000);
	void *crosses = take(4000);
	give(in);
	sonde_stop();
	give(crosses);
	void *between = take(5000), *lost = take(6000);
	give(lost);
	sonde_start();
	sonde_start(); /* once more is nothing */
	give(before);
	void *left = take(7000);
	sonde_stop();
	sonde_stop();
	give(between);
	take(8000);
	(void)left;
}

static void labels(void)
{
	void *plain = take(1000);

	sonde_label_push("outer");
	give(take(2000));
	sonde_label_push("inner, with a comma");
	give(take(3000));
	sonde_label_pop("inner, with a comma");
	give(take(4000));
	sonde_label_pop("outer");
	give(take(5000));
	sonde_label_pop("never pushed");
	sonde_label_addr((char *)plain + 500, "late");
	give(plain);
	sonde_label_addr("nowhere", "nobody");
}

static void steps(void)
{
	for (int i = 1; i <= 4; i++) {
		give(take((size_t)i * 1000));
		sonde_step();
	}
}

/* Blocks that are born in one step and die in another. */
static void ranges(void)
{
	void *held = take(100000), *next = NULL;

	for (int i = 1; i <= 5; i++) {
		uint64_t outer = sonde_range_start("not a step");
		uint64_t step = sonde_range_start("step start");
		void *mine = take((size_t)i * 1000);
		if (next)
			give(next);
		next = take((size_t)i * 1000 + 1);
		give(mine);
		sonde_range_end(step);
		sonde_range_end(outer);
		give(take((size_t)i * 1000 + 2)); /* outside */
	}
	give(next);
	give(held);
}

static void marks(void)
{
	char text[3000];

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	sonde_mark("plain");
	sonde_mark("with, comma \"quotes\" and\nnewline");
	sonde_mark("=cmd|' /C calc'!A0");
	sonde_mark("");
	sonde_mark("\xff\xfe not utf-8");
	sonde_mark("Grüße 你好");
	sonde_mark(text);
	sonde_mark(NULL);
	sonde_range_end(sonde_range_start("a range"));
	sonde_range_end(0);
	sonde_range_end(12345);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} stories[] = {{"windows", windows},
		       {"labels", labels},
		       {"steps", steps},
		       {"ranges", ranges},
		       {"marks", marks}};

	/* No aclInit(): nothing but the blocks of the story is allocated. */
	if (argc < 2 || aclrtSetDevice(0))
		return 1;
	for (size_t i = 0; i < sizeof(stories) / sizeof(stories[0]); i++)
		if (!strcmp(stories[i].name, argv[1]))
			stories[i].run();
	printf("done\n");
	return 0;
}
